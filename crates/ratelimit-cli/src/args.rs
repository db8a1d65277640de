//! The arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};

/// Shows the counters of rate limits, charges them and resets them.
#[derive(Parser)]
#[command(name = "ratelimit", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    /// The store that your program counts in: `redis://host`, `redis+cluster://…`, `redis+sentinel://…`,
    /// `postgres://user@host/database`, `memcached://host`, with the options that your program uses. A password is better
    /// kept in the environment than on the command line
    #[arg(long, value_name = "URL", env = "RATELIMIT_STORE", hide_env_values = true)]
    pub(crate) store: String,
    /// The namespace of your program's limiter
    #[arg(long, value_name = "NS", default_value = "")]
    pub(crate) namespace: String,
    #[command(flatten)]
    pub(crate) limits: LimitsArgs,
    /// The policy of the file, if it has several
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) policy: Option<String>,
    /// The plan of the client, for a policy whose limits depend on it
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) plan: Option<String>,
    /// A kind of key that the file names and your program provides, from a function, an extension, a header or the path; may be
    /// repeated
    #[arg(long, value_name = "NAME", requires = "config")]
    pub(crate) provided_key: Vec<String>,
    /// Read `\xNN` in a KEY as a byte and `\\` as a backslash, as `list` prints keys
    #[arg(long)]
    pub(crate) escaped: bool,
    /// Print JSON, one object on each line
    #[arg(long, global = true)]
    pub(crate) json: bool,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The limits: as text, or in a file.
#[derive(ClapArgs)]
#[group(required = true, multiple = false)]
pub(crate) struct LimitsArgs {
    /// The limits, as your program writes them: '10/s; 1000/h burst 50'
    #[arg(long, value_name = "TEXT")]
    pub(crate) limits: Option<String>,
    /// The configuration file of your program's HTTP layer, in TOML or YAML
    #[arg(long, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

const AFTER_HELP: &str = "\
A KEY is the key that your program passes to the limiter. With --config it is what the policy counts by: an address, the \
value of a header, an API key or a token (or `sha256:` and its hash, as `list` prints it).

Exit codes: 0 all went well, 1 an error of the store or in a limit, 2 wrong usage, 3 nothing remains (peek --exit-code).";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show what keys have used, without charging
    Peek(PeekArgs),
    /// Forget what keys have used under these limits
    Reset(ResetArgs),
    /// Charge a key, whether it fits or not, under each of the limits
    ///
    /// There is no refund: it needs the decision that made the charge, which only the program that made it has. To give
    /// units back, reset the key and charge what is to remain.
    Charge(ChargeArgs),
    /// Show a key again and again, until Ctrl-C
    Watch(WatchArgs),
    /// Show the keys that are nearest to their limit (Redis and PostgreSQL)
    List(ListArgs),
}

impl Command {
    /// The keys, as written.
    pub(crate) fn keys(&self) -> &[String] {
        match self {
            Self::Peek(PeekArgs { keys, .. }) | Self::Reset(ResetArgs { keys, .. }) => keys,
            Self::Charge(ChargeArgs { key, .. }) | Self::Watch(WatchArgs { key, .. }) => {
                std::slice::from_ref(key)
            }
            Self::List(_) => &[],
        }
    }
}

#[derive(ClapArgs)]
pub(crate) struct PeekArgs {
    /// Which keys
    #[arg(value_name = "KEY", required = true)]
    pub(crate) keys: Vec<String>,
    /// Report when a request of this cost fits, instead of one unit
    #[arg(long, value_name = "UNITS", default_value_t = 1, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) cost: u64,
    /// End with exit code 3 if a limit has nothing remaining
    #[arg(long)]
    pub(crate) exit_code: bool,
}

#[derive(ClapArgs)]
pub(crate) struct ResetArgs {
    /// Which keys
    #[arg(value_name = "KEY", required = true)]
    pub(crate) keys: Vec<String>,
    /// Reset without asking
    #[arg(long, short)]
    pub(crate) yes: bool,
}

#[derive(ClapArgs)]
pub(crate) struct ChargeArgs {
    /// Which key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// How many units, at least 1
    #[arg(value_name = "UNITS", allow_negative_numbers = true, value_parser = units)]
    pub(crate) units: u64,
}

#[derive(ClapArgs)]
pub(crate) struct WatchArgs {
    /// Which key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// Seconds between two updates, from 0.1
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub(crate) interval: Duration,
}

#[derive(ClapArgs)]
pub(crate) struct ListArgs {
    /// How many keys to show
    #[arg(long, value_name = "K", default_value_t = 20, value_parser = at_least_one)]
    pub(crate) top: usize,
    /// How many names in the store to read
    #[arg(long, value_name = "N", default_value_t = 10_000, value_parser = at_least_one)]
    pub(crate) scan: usize,
}

fn units(text: &str) -> Result<u64, String> {
    if text.starts_with('-') {
        return Err("a charge is at least 1 unit; a refund needs the decision that made the charge, see `help charge`".into());
    }
    let units = text.parse().ok().filter(|units| *units > 0);
    units.ok_or_else(|| "it is a whole number of at least 1".into())
}

fn at_least_one(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| *number > 0).ok_or_else(|| "it is a whole number of at least 1".into())
}

fn interval(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.1..=86_400.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "it is a number of seconds from 0.1 to 86400".into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_arguments_are_consistent() {
        Args::command().debug_assert();
    }

    #[test]
    fn numbers_are_checked() {
        assert_eq!((units("5"), at_least_one("20")), (Ok(5), Ok(20)));
        assert_eq!(interval("0.5"), Ok(Duration::from_millis(500)));
        for wrong in ["0", "x", "1e999", "-5", "nan"] {
            assert!(
                units(wrong).is_err() && at_least_one(wrong).is_err() && interval(wrong).is_err(),
                "{wrong}"
            );
        }
        assert!(units("-5").is_err_and(|error| error.contains("refund")));
    }
}
