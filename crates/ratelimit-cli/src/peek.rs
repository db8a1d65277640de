//! `peek`: the status of keys.

use std::process::ExitCode;

use serde::Serialize;

use crate::args::PeekArgs;
use crate::elsewhere::Elsewhere;
use crate::output::{Output, key_table};
use crate::status::KeyStatus;
use crate::store::Opened;
use crate::subject::{Key, Limiter};

/// The exit code of `peek --exit-code` if a limit has nothing remaining.
const NOTHING_REMAINS: u8 = 3;

#[derive(Serialize)]
struct Peeked {
    #[serde(flatten)]
    status: KeyStatus,
    /// If nothing was used under any of the limits.
    elsewhere: Option<Elsewhere>,
}

pub(crate) async fn run(
    limiter: &Limiter,
    opened: &Opened,
    keys: &[Key],
    args: &PeekArgs,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let mut is_used_up = false;
    for key in keys {
        let status = KeyStatus::of(limiter, key, args.cost).await?;
        is_used_up |= status.limits.iter().any(|row| row.remaining == Some(0));
        let elsewhere = match status.is_unused() {
            true => Some(Elsewhere::find(opened, limiter, key).await),
            false => None,
        };
        let peeked = Peeked { status, elsewhere };
        output.print(&peeked, || {
            let elsewhere = peeked.elsewhere.as_ref().map(|elsewhere| elsewhere.text(limiter.namespace()));
            format!("{}{}", key_table(&peeked.status), elsewhere.unwrap_or_default())
        })?;
    }
    Ok(if args.exit_code && is_used_up { ExitCode::from(NOTHING_REMAINS) } else { ExitCode::SUCCESS })
}
