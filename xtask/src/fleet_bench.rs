//! `cargo xtask fleet-bench`: requests per second of an instance that counts together with others, compared with one that
//! counts in its own memory.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;

use crate::pair::Pairs;
use crate::workspace::{cargo, target};

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(flatten)]
    pairs: Pairs,
    /// Number of keys that requests choose from.
    #[arg(long, default_value_t = 100_000)]
    keys: u32,
    /// Milliseconds between two exchanges of an instance with the fleet.
    #[arg(long, default_value_t = 1_000)]
    interval: u32,
}

/// How an instance counts, and the goal for its requests per second relative to memory. For leases that depends on how
/// often a key occurs: with this many keys each occurs too rarely to be leased, and most checks take a round trip.
const COUNTING: [(&str, Option<f64>); 3] =
    [("replicated", Some(0.8)), ("synced", Some(0.8)), ("leased", None)];

/// Connections to the other instance of the fleet.
const OTHER: u32 = 2;

/// One customer with many users.
const LIMITS: &str = r#"
[[policies]]
name = "requests"
key = "header:x-user"

[plans.starter]
requests = "1000000/min"
"#;

/// Runs the command.
pub(crate) fn run(mut arguments: Arguments) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    arguments.pairs.find_wrk(&runtime)?;
    let redis = runtime.block_on(arguments.pairs.install.testbed().redis())?;
    let built = cargo().args(["build", "--release", "--package", "api", "--features", "redis"]).status()?;
    ensure!(built.success(), "api was not built");
    let folder = target().join("fleet-bench");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    let (limits, script) = (folder.join("limits.toml"), folder.join("requests.lua"));
    fs::write(&limits, LIMITS)?;
    let keys = arguments.keys;
    fs::write(
        &script,
        format!(
            "function request()\n  wrk.headers['x-api-key'] = 'starter-demo'\n  \
             wrk.headers['x-user'] = 'user:' .. math.random({keys})\n  return wrk.format('GET', '/')\nend\n"
        ),
    )?;
    arguments.pairs.script = Some(script);
    println!(
        "instances of the example `api`, {keys} keys, one more instance of the fleet with {OTHER} connections, \
         {} ms between two tellings",
        arguments.interval
    );
    let pairs = &arguments.pairs;
    pairs.print_headings();
    for (counting, goal) in COUNTING {
        let together = || {
            let mut program = api(&limits);
            program.args(["--store", redis.url(), "--counting", counting]);
            program.args(["--interval", &arguments.interval.to_string()]);
            program
        };
        let (alone, one) = (pairs.serve(&api(&limits))?, pairs.serve(&together())?);
        let other = pairs.serve_beside(&together())?;
        let _busy = pairs.keep_busy(&other, OTHER)?;
        pairs.measure(&format!("{counting} / memory"), [&one, &alone], goal)?;
    }
    Ok(())
}

/// An instance of the example.
fn api(limits: &Path) -> Command {
    let mut program = Command::new(target().join("release/api"));
    program.arg("--config").arg(limits).args(["--listen", "127.0.0.1:0"]);
    program
}
