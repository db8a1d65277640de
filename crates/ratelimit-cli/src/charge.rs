//! `charge`: charges a key, whether it fits or not.

use std::process::ExitCode;

use ratelimit_core::Request;
use serde::Serialize;

use crate::args::ChargeArgs;
use crate::output::{Output, key_table};
use crate::status::KeyStatus;
use crate::subject::{Key, Limiter};

#[derive(Serialize)]
struct Charged {
    charged: u64,
    #[serde(flatten)]
    after: KeyStatus,
}

pub(crate) async fn run(
    limiter: &Limiter,
    keys: &[Key],
    args: &ChargeArgs,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    for key in keys {
        limiter.charge(Request::new(&key.bytes).cost(args.units)).await?;
        let said = format!("charged {} to", args.units);
        let done = Charged { charged: args.units, after: KeyStatus::after(&said, limiter, key).await? };
        output.print(&done, || format!("{said} {}", key_table(&done.after)))?;
    }
    Ok(ExitCode::SUCCESS)
}
