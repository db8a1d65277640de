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
        let done = Charged { charged: args.units, after: KeyStatus::of(limiter, key, 1).await? };
        output.print(&done, || format!("charged {} to {}", args.units, key_table(&done.after)))?;
    }
    Ok(ExitCode::SUCCESS)
}
