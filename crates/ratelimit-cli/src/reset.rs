//! `reset`: forgets what keys have used.

use std::process::ExitCode;

use serde::Serialize;

use crate::args::ResetArgs;
use crate::confirm::confirm;
use crate::output::{Output, say};
use crate::status::KeyStatus;
use crate::subject::{Key, Limiter};
use crate::table::Table;

#[derive(Serialize)]
struct Reset {
    key: String,
    before: KeyStatus,
    after: KeyStatus,
}

pub(crate) async fn run(
    limiter: &Limiter,
    keys: &[Key],
    args: &ResetArgs,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    if !args.yes && !confirm(&question(limiter, keys))? {
        say("nothing was reset");
        return Ok(ExitCode::FAILURE);
    }
    for key in keys {
        let before = KeyStatus::of(limiter, key, 1).await?;
        limiter.reset(&key.bytes).await?;
        let after = KeyStatus::after("reset", limiter, key).await?;
        let done = Reset { key: key.shown.clone(), before, after };
        output.print(&done, || done.table())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn question(limiter: &Limiter, keys: &[Key]) -> String {
    let shown: Vec<&str> = keys.iter().map(|key| key.shown.as_str()).collect();
    format!("Forget what {} has used under {}?", shown.join(", "), limiter.limits())
}

impl Reset {
    fn table(&self) -> String {
        let mut table = Table::new(&["LIMIT", "USED BEFORE", "USED NOW", "REMAINING"]);
        for (before, after) in self.before.limits.iter().zip(&self.after.limits) {
            let used = [before.used, after.used].map(|number| number.to_string());
            table.row([after.limit.clone()].into_iter().chain(used).chain([after.remaining_text()]));
        }
        format!("{}\n{table}", self.key)
    }
}
