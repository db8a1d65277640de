//! `watch`: the status of a key, again and again.

use std::process::ExitCode;

use anyhow::anyhow;
use ratelimit_core::CheckError;
use tokio::signal::ctrl_c;
use tokio::time::{MissedTickBehavior, interval};

use crate::args::WatchArgs;
use crate::output::{Output, key_table, say};
use crate::status::KeyStatus;
use crate::subject::{Key, Limiter};

pub(crate) async fn run(
    limiter: &Limiter,
    keys: &[Key],
    args: &WatchArgs,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let mut rounds = interval(args.interval);
    rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let ended = ctrl_c();
    tokio::pin!(ended);
    let mut is_first = true;
    loop {
        let round = async {
            rounds.tick().await;
            look(limiter, keys).await
        };
        let statuses = tokio::select! {
            ended = &mut ended => return ended.map(|()| ExitCode::SUCCESS).map_err(|error| anyhow!("cannot wait for Ctrl-C: {error}")),
            statuses = round => statuses,
        };
        match statuses {
            Ok(statuses) => show(&statuses, output)?,
            // A wrong address, most likely.
            Err(error) if is_first => return Err(error.into()),
            Err(error) => say(&format!("error: {error}; still watching")),
        }
        is_first = false;
    }
}

async fn look(limiter: &Limiter, keys: &[Key]) -> Result<Vec<KeyStatus>, CheckError> {
    let mut statuses = Vec::new();
    for key in keys {
        statuses.push(KeyStatus::of(limiter, key, 1).await?);
    }
    Ok(statuses)
}

fn show(statuses: &[KeyStatus], output: &mut Output) -> std::io::Result<()> {
    output.clear()?;
    for status in statuses {
        output.print(status, || format!("{}  {}", status.time, key_table(status)))?;
    }
    Ok(())
}
