//! `peek`: the status of keys.

use std::process::ExitCode;

use crate::args::PeekArgs;
use crate::output::{Output, key_table};
use crate::status::KeyStatus;
use crate::subject::{Key, Limiter};

/// The exit code of `peek --exit-code` if a limit has nothing remaining.
const NOTHING_REMAINS: u8 = 3;

pub(crate) async fn run(
    limiter: &Limiter,
    keys: &[Key],
    args: &PeekArgs,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let mut is_used_up = false;
    for key in keys {
        let status = KeyStatus::of(limiter, key, args.cost).await?;
        is_used_up |= status.limits.iter().any(|row| row.remaining == Some(0));
        output.print(&status, || key_table(&status))?;
    }
    Ok(if args.exit_code && is_used_up { ExitCode::from(NOTHING_REMAINS) } else { ExitCode::SUCCESS })
}
