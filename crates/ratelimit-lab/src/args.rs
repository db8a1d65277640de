//! The arguments.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args as ClapArgs, Parser, Subcommand};
use jiff::SpanRelativeTo;
use jiff::fmt::temporal::DateTimeParser;
use jiff::tz::TimeZone;
use ratelimit_core::{Limit, Limits};

use crate::by::By;
use crate::compare::Traffics;
use crate::engine::{TimeIs, Unit};
use crate::format::{Format, Pattern};
use crate::input::Source;
use crate::model::{Model, Spec, Written};
use crate::suggest::Share;

/// Tries rate limits on access logs and on models of traffic.
#[derive(Parser)]
#[command(name = "ratelimit-lab", version, after_help = AFTER_HELP)]
pub(crate) struct Args {
    #[command(subcommand)]
    pub(crate) command: Command,
}

const AFTER_HELP: &str = "\
Limits are written as everywhere in this project: '100/min', '100/min burst 20', '10/s; 1000/h'.

The exit code is 0 if all went well, 2 if the arguments cannot be read, 1 after any other error. It is 1, too, if no request
was read from a log, or more than nine in ten of its lines are bad.";

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Show what limits would have done to the requests in a log
    ///
    /// Without a file it replays generated traffic. Requests that are refused are not sent again: the log does not tell what clients
    /// would have done.
    Replay(ReplayArgs),
    /// Write the same as a page of HTML, with plots
    ///
    /// The page is one file, which loads nothing.
    Report(ReportArgs),
    /// Write generated traffic as a log to standard output
    Generate(GenerateArgs),
    /// Compare all algorithms on the requests in a log, or on generated traffic, with an exact sliding log
    ///
    /// A decision is judged by what the same algorithm has admitted in the period before.
    Compare(CompareArgs),
    /// Measure how exact the algorithms are on the requests that many sources send in a day
    Measure(MeasureArgs),
}

/// Which log to read, and how.
#[derive(ClapArgs)]
pub(crate) struct LogArgs {
    /// Access logs, also compressed by gzip or zstd; `-` is standard input
    ///
    /// Several files are merged by time. Without a file, traffic is generated
    #[arg(
        value_name = "FILE",
        value_parser = source,
        conflicts_with_all = ["model", "seed", "requests", "keys", "rate", "duration"]
    )]
    pub(crate) files: Vec<Source>,
    /// The format of the lines; detected from the first lines of each file if omitted
    #[arg(long, value_name = "FORMAT", requires = "files")]
    pub(crate) format: Option<Format>,
    /// A regular expression that finds the fields of lines of any other format, as groups with their names: '(?<ip>\S+) (?<time>\S+)'
    ///
    /// The names are those of --by, `time`, and `request` for the first line of a request; others are names of yours
    #[arg(long, value_name = "REGEX", requires = "files", conflicts_with = "format")]
    pub(crate) pattern: Option<Pattern>,
    /// The zone of times that have no offset, such as UTC, +02:00 or Europe/Berlin
    #[arg(long, value_name = "ZONE", value_parser = time_zone, requires = "files")]
    pub(crate) timezone: Option<TimeZone>,
    /// The field with the time, in JSON (dots lead into objects) and CSV; usual names are known
    #[arg(long, value_name = "NAME", requires = "files")]
    pub(crate) time_field: Option<String>,
    /// The field with the client's address, in JSON (dots lead into objects) and CSV; usual names are known
    #[arg(long, value_name = "NAME", requires = "files")]
    pub(crate) ip_field: Option<String>,
    /// The field with the method of the request, as for the address
    #[arg(long, value_name = "NAME", requires = "files")]
    pub(crate) method_field: Option<String>,
    /// The field with the path of the request or its URL, as for the address
    #[arg(long, value_name = "NAME", requires = "files")]
    pub(crate) path_field: Option<String>,
    /// The field with the status of the response, as for the address
    #[arg(long, value_name = "NAME", requires = "files")]
    pub(crate) status_field: Option<String>,
    /// The field with the duration of the request, for concurrency limits and true costs; otherwise usual names are known
    #[arg(long, value_name = "NAME", requires = "files")]
    pub(crate) duration_field: Option<String>,
    /// The unit of durations that do not say it: s, ms, us or ns
    ///
    /// If omitted, a number with a point is of seconds, and another one of milliseconds
    #[arg(long, value_name = "UNIT", requires = "files")]
    pub(crate) duration_unit: Option<Unit>,
    /// What the time of a line is the time of: the start or the end of the request, if its duration matters
    ///
    /// If omitted it is the end, except for HAProxy, Envoy and Classic Load Balancers
    #[arg(long, value_name = "EDGE", requires = "files")]
    pub(crate) time_is: Option<TimeIs>,
    /// The networks of your proxies: `--by ip` then counts by the client that they report, as the layer finds it
    ///
    /// Policies name their own; give them the list with --header
    #[arg(long, value_name = "NETWORK", value_delimiter = ',', requires = "files")]
    pub(crate) trusted_proxies: Vec<String>,
    /// The field with the list of addresses that proxies report; in combined logs `after-1` is the field after the agent
    ///
    /// Without it, the client's address may be such a list itself
    #[arg(long, value_name = "NAME", requires = "trusted_proxies")]
    pub(crate) forwarded_field: Option<String>,
    /// Only requests from this time on: 2026-01-05, 2026-01-05T10:00, or with an offset; otherwise in --timezone or in UTC
    #[arg(long, value_name = "TIME")]
    pub(crate) from: Option<String>,
    /// Only requests before this time
    #[arg(long, value_name = "TIME")]
    pub(crate) to: Option<String>,
    /// Leave out requests of this path, or with a star of all that begin so: '/static/*'
    #[arg(long, value_name = "PATH")]
    pub(crate) without_path: Vec<String>,
    /// The field with the cost of a request, such as `bytes`; without it each costs one
    #[arg(long, value_name = "NAME")]
    pub(crate) cost_field: Option<String>,
    /// Leave out requests that do not have what is counted by, instead of counting them together
    #[arg(long)]
    pub(crate) skip_missing: bool,
    /// How far requests may be out of order; what is later is decided at the latest time
    ///
    /// If omitted it is 10s, and files that need more are read again with what they need
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    pub(crate) out_of_order: Option<Duration>,
    /// Decide requests whose times are whole seconds at the beginning of the second; otherwise they are spread over it
    #[arg(long)]
    pub(crate) keep_seconds: bool,
    /// End at the first bad line
    #[arg(long)]
    pub(crate) strict: bool,
    #[command(flatten)]
    pub(crate) model: ModelArgs,
}

/// Which traffic to generate.
#[derive(ClapArgs)]
pub(crate) struct ModelArgs {
    /// How requests come
    #[arg(long, value_name = "MODEL", default_value = "zipf", help_heading = "Generated traffic")]
    pub(crate) model: Model,
    /// The seed: the same one gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Generated traffic")]
    pub(crate) seed: u64,
    /// The number of requests, at most
    #[arg(long, value_name = "N", default_value_t = 100_000, help_heading = "Generated traffic")]
    pub(crate) requests: u64,
    /// The number of different keys
    #[arg(long, value_name = "N", default_value_t = 1_000, help_heading = "Generated traffic")]
    pub(crate) keys: u32,
    /// Requests per second on average
    #[arg(long, value_name = "R", default_value_t = 50.0, help_heading = "Generated traffic")]
    pub(crate) rate: f64,
    /// End after this time, even if there are fewer requests
    #[arg(long, value_name = "DURATION", value_parser = duration, help_heading = "Generated traffic")]
    pub(crate) duration: Option<Duration>,
}

impl ModelArgs {
    pub(crate) fn spec(&self) -> Spec {
        Spec {
            model: self.model,
            seed: self.seed,
            requests: self.requests,
            keys: self.keys,
            rate: self.rate,
            duration: self.duration.map(|length| length.as_secs_f64()),
        }
    }
}

/// Which requests to replay against what.
#[derive(ClapArgs)]
pub(crate) struct TrialArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// Limits to try; each `--limit` is tried by itself
    #[arg(long, value_name = "LIMIT")]
    pub(crate) limit: Vec<Limits>,
    /// What to count by: ip, ip/24 (networks), user, path, method, agent, a field of JSON or CSV, several with a comma
    /// between them, or all; each `--by` is tried with each limit; ip if there is neither `--by` nor `--key-field`
    #[arg(long, value_name = "NAME")]
    pub(crate) by: Vec<By>,
    /// The same as `--by field:NAME`
    #[arg(long, value_name = "NAME")]
    pub(crate) key_field: Vec<String>,
    /// The configuration file of an HTTP layer: all of its policies together
    #[arg(long, value_name = "FILE")]
    pub(crate) policies: Option<PathBuf>,
    /// Let policies refuse that are in shadow
    #[arg(long, requires = "policies")]
    pub(crate) enforce_shadow: bool,
    /// A header field of the requests, and the field of the log with its value: 'x-api-key=request.key'
    #[arg(long, value_name = "NAME=FIELD", requires = "policies")]
    pub(crate) header: Vec<String>,
    /// A kind of key that the file names and your program provides, and the field of the log with its value: 'tenant=t'
    #[arg(long, value_name = "NAME=FIELD", requires = "policies")]
    pub(crate) provided_key: Vec<String>,
    /// The field of the log that names a request's plan
    #[arg(long, value_name = "NAME", requires = "policies")]
    pub(crate) plan_field: Option<String>,
    /// The field of the log with the true cost of a request, for policies that settle by their handler
    #[arg(long, value_name = "NAME", requires = "policies")]
    pub(crate) settle_field: Option<String>,
    /// Propose limits that refuse at most this share: '1%' of the requests, or '5% of keys'
    ///
    /// For each `--limit`, or for a second, a minute and an hour. Keeps up to 20 bytes for each request and
    /// each `--by`, 36 with a cost field.
    #[arg(long, value_name = "SHARE")]
    pub(crate) suggest: Option<Share>,
    /// How many keys to show
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) top: usize,
}

#[derive(ClapArgs)]
pub(crate) struct ReplayArgs {
    #[command(flatten)]
    pub(crate) trial: TrialArgs,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the keys that were refused most to a CSV file
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
}

#[derive(ClapArgs)]
pub(crate) struct ReportArgs {
    #[command(flatten)]
    pub(crate) trial: TrialArgs,
    /// The page to write; `-` is standard output
    #[arg(short, long, value_name = "FILE", default_value = "report.html")]
    pub(crate) output: PathBuf,
    /// Compare all algorithms with the quota and the period of each `--limit`, as `compare` does
    ///
    /// Keeps up to 20 bytes for each request and each `--by`, 36 with a cost field.
    #[arg(long)]
    pub(crate) compare: bool,
    /// Write numbers in place of the keys
    #[arg(long)]
    pub(crate) hide_keys: bool,
}

#[derive(ClapArgs)]
pub(crate) struct GenerateArgs {
    #[command(flatten)]
    pub(crate) model: ModelArgs,
    /// The format to write
    #[arg(long, value_name = "FORMAT", default_value = "combined")]
    pub(crate) format: Written,
}

#[derive(ClapArgs)]
pub(crate) struct CompareArgs {
    #[command(flatten)]
    pub(crate) log: LogArgs,
    /// The quota and the period, as a limit of any algorithm; each `--limit` is a comparison
    #[arg(long, value_name = "LIMIT", default_value = "100/min")]
    pub(crate) limit: Vec<Limit>,
    /// What to count by, as for `replay`
    #[arg(long, value_name = "NAME", default_value = "ip")]
    pub(crate) by: By,
    /// Print JSON, an object on a line for each limit
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(ClapArgs)]
pub(crate) struct MeasureArgs {
    /// The quota and the period, as a limit of any algorithm
    #[arg(long, value_name = "LIMIT", default_value = "100/min")]
    pub(crate) limit: Limit,
    /// Which traffic
    #[arg(long, value_name = "TRAFFIC", default_value = "mix")]
    pub(crate) traffic: Traffics,
    /// The number of sources; where their rates are near the limit, it follows from the number of requests
    #[arg(long, value_name = "N", default_value_t = 270_000, value_parser = clap::value_parser!(u64).range(1..=100_000_000))]
    pub(crate) sources: u64,
    /// The number of requests in a day, on average
    #[arg(long, value_name = "N", default_value_t = 400_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) requests: u64,
    /// The seed: the same one gives the same requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

fn source(text: &str) -> Result<Source, String> {
    Ok(if text == "-" { Source::Stdin } else { Source::File(text.into()) })
}

fn duration(text: &str) -> Result<Duration, String> {
    let span = text.parse::<jiff::Span>().ok();
    let duration = span.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let duration = duration.and_then(|duration| Duration::try_from(duration).ok());
    duration.ok_or_else(|| "write a duration as 10s, 500ms, 1h 30m or 1d".to_owned())
}

fn time_zone(text: &str) -> Result<TimeZone, String> {
    let zone = DateTimeParser::new().parse_time_zone(text);
    zone.map_err(|_| "write a zone as UTC, +02:00 or Europe/Berlin".to_owned())
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
    fn durations_have_a_unit() {
        assert_eq!(duration("1h 30m"), Ok(Duration::from_secs(5_400)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(["1d", "1 day", "24h"].map(duration), [const { Ok(Duration::from_secs(86_400)) }; 3]);
        for wrong in ["10", "-1s", "x", "", "1 month"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }
}
