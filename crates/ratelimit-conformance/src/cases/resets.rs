//! A reset removes only the key that it names.

use std::time::Duration;

use crate::bench::Bench;
use crate::case::Case;
use crate::failure::{CaseResult, ensure, ensure_eq};
use crate::kind::Kind;

pub(super) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "resets/by-name-only",
            "A reset of a key with glob characters changes no other key.",
            reset_globs,
        ),
        Case::new(
            "resets/no-prefixes",
            "A reset changes no key that begins with the reset key.",
            reset_prefixes,
        ),
    ]
}

/// Exhausts each key, resets `reset`, and checks which keys admit again.
async fn reset_one(bench: &Bench, keys: &[&str], reset: &str) -> CaseResult {
    for kind in Kind::METERS {
        let limiter = bench.limiter(kind.limit(1, Duration::from_secs(3_600))?).with_namespace(reset);
        for key in keys {
            ensure!(limiter.check(*key).await?.allowed(), "the first claim on {key:?} was refused");
        }
        limiter.reset(reset).await?;
        for key in keys {
            let left = limiter.peek(*key).await?.remaining();
            ensure_eq!(
                left,
                u64::from(*key == reset),
                "left to {key:?} after a reset of {reset:?}, {kind:?}"
            );
        }
    }
    Ok(())
}

async fn reset_globs(bench: Bench) -> CaseResult {
    let keys = [
        "user:*",
        "user:?",
        "user:[12]",
        "user:1",
        "user:2",
        "*",
        "?",
        "user",
        "%",
        "user:%",
        "_ser:1",
        "{user}",
    ];
    for reset in ["user:*", "*", "user:?", "user:[12]", "%", "_ser:1", "{user}"] {
        reset_one(&bench, &keys, reset).await?;
    }
    Ok(())
}

async fn reset_prefixes(bench: Bench) -> CaseResult {
    let keys = ["", "u", "user", "user:1", "user:12", "user:1:2", "user:1 ", "xuser:1"];
    for reset in ["user:1", "user", "u", ""] {
        reset_one(&bench, &keys, reset).await?;
    }
    Ok(())
}
