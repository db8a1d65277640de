//! The command `ratelimit`, with which an operator shows the counters of rate limits, charges them and resets them.
//!
//! ```text
//! ratelimit --store redis://cache/ --namespace api --limits '100/min burst 20' peek user:7
//! ratelimit --store redis://cache/ --namespace api --config limits.toml --policy address list
//! ```
//!
//! `ratelimit help` describes the commands and their options. The library has one function, [`run`], which the program
//! calls; the crates `ratelimit-core` and `ratelimit-stores` are for programs of your own.
//!
//! # Features
//! - `tls` (on by default): encrypted connections to the servers.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod args;
mod charge;
mod confirm;
mod elsewhere;
mod list;
mod output;
mod peek;
mod rank;
mod reset;
mod status;
mod store;
mod subject;
mod table;
mod text;
mod time_text;
mod watch;

use std::io;
use std::process::ExitCode;

use anyhow::anyhow;
use clap::Parser as _;

use crate::args::{Args, Command};
use crate::output::Output;
use crate::store::Opened;
use crate::subject::Subject;

/// Runs the command with the arguments of the process, and returns its exit code:
///
/// - 0 if all went well, or if the reader of the output has closed it;
/// - 1 after an error of the store or in a limit, or if the answer to `reset` was no;
/// - 2 if `reset` without `--yes` has no terminal to ask on; for other wrong usage the process ends with this code;
/// - 3 if `peek --exit-code` finds a limit with nothing remaining.
#[must_use]
pub fn run() -> ExitCode {
    let args = Args::parse();
    let error = match execute(&args) {
        Ok(code) => return code,
        Err(error) => error,
    };
    if error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == io::ErrorKind::BrokenPipe) {
        // The program that reads the output, such as `head`, has closed it.
        return ExitCode::SUCCESS;
    }
    if let Some(usage) = error.downcast_ref::<clap::Error>() {
        // There is nobody to tell that the message could not be written.
        let _ = usage.print();
        return ExitCode::from(2);
    }
    // Each error contains its cause.
    output::say(&format!("error: {error}"));
    ExitCode::FAILURE
}

fn execute(args: &Args) -> anyhow::Result<ExitCode> {
    // Reports mistakes in the limits and keys before it connects to a server.
    let subject = Subject::load(args)?;
    let keys = args
        .command
        .keys()
        .iter()
        .map(|key| subject.key(key, args.escaped))
        .collect::<Result<Vec<_>, _>>()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| anyhow!("the runtime cannot be started: {error}"))?;
    runtime.block_on(async {
        let opened = Opened::open(&args.store).await?;
        let limiter = subject.limiter(opened.store(), &args.namespace);
        let mut output = Output::new(args.json);
        match &args.command {
            Command::Peek(args) => peek::run(&limiter, &opened, &keys, args, &mut output).await,
            Command::Reset(args) => reset::run(&limiter, &keys, args, &mut output).await,
            Command::Charge(args) => charge::run(&limiter, &keys, args, &mut output).await,
            Command::Watch(args) => watch::run(&limiter, &keys, args, &mut output).await,
            Command::List(list) => {
                list::run(&limiter, &opened, &subject, list, &args.namespace, &mut output).await
            }
        }
    })
}

/// Compiles the examples of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
