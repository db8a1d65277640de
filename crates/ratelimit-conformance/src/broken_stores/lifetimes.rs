//! Stores that forget early or never.

use std::time::Duration;

use ratelimit_core::Timestamp;

use super::{BrokenStore, Flaw};

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::new::<ForgetsEarly>(
            "forgets-early",
            "meters live half as long as they count",
            "memory/counts-until-reset-log",
        ),
        BrokenStore::new::<WholeSeconds>(
            "whole-seconds",
            "lifetimes are cut to whole seconds by the server's clock",
            "memory/counts-until-reset-fixed",
        ),
        BrokenStore::new::<NeverForgets>("immortal", "meters are kept for ever", "memory/forgotten-sliding"),
        BrokenStore::new::<TakenForDate>(
            "taken-for-a-date",
            "lifetimes above thirty days are taken for a date that has passed",
            "memory/forty-days-fixed",
        ),
    ]
}

#[derive(Debug, Default)]
struct ForgetsEarly;

impl Flaw for ForgetsEarly {
    fn keep_until(&self, now: Timestamp, forget_at: Timestamp) -> Timestamp {
        now + forget_at.since(now) / 2
    }
}

#[derive(Debug, Default)]
struct WholeSeconds;

impl Flaw for WholeSeconds {
    fn keep_until(&self, now: Timestamp, forget_at: Timestamp) -> Timestamp {
        now + Duration::from_secs(forget_at.since(now).as_secs().saturating_sub(1))
    }
}

#[derive(Debug, Default)]
struct NeverForgets;

impl Flaw for NeverForgets {
    fn keep_until(&self, _: Timestamp, _: Timestamp) -> Timestamp {
        Timestamp::MAX
    }
}

#[derive(Debug, Default)]
struct TakenForDate;

impl Flaw for TakenForDate {
    fn keep_until(&self, now: Timestamp, forget_at: Timestamp) -> Timestamp {
        if forget_at.since(now) > Duration::from_secs(30 * 86_400) { Timestamp::EPOCH } else { forget_at }
    }
}
