//! `list`: the keys that are nearest to their limit.

use std::collections::HashSet;
use std::process::ExitCode;
use std::time::Duration;

use ratelimit_core::kit::MeterScan;
use ratelimit_core::meter::MAX_UNITS;
use ratelimit_core::{Clock as _, Request, Timestamp};
use serde::Serialize;

use crate::args::ListArgs;
use crate::output::Output;
use crate::rank::{Rank, nearest, rank};
use crate::status::{KeyStatus, LimitRow};
use crate::store::Opened;
use crate::subject::{Key, Limiter, Subject};
use crate::table::Table;
use crate::time_text::human_or_never;

/// How many keys are checked in one call.
const BATCH: usize = 256;

const ONLY_SYNCED: &str =
    "which only a program with that store can read and reset, with RateLimiter::peek and reset.";

#[derive(Serialize)]
struct List {
    /// Nearest first.
    keys: Vec<KeyStatus>,
    /// How many keys have used something under these limits.
    matching: usize,
    looked_at: usize,
    digests: usize,
    /// Names of windows that are counted by `Synced`.
    synced: usize,
    more: bool,
}

pub(crate) async fn run(
    limiter: &Limiter,
    opened: &Opened,
    subject: &Subject,
    args: &ListArgs,
    namespace: &str,
    output: &mut Output,
) -> anyhow::Result<ExitCode> {
    let now = limiter.clock().now();
    let scopes: HashSet<String> =
        limiter.limits().iter().map(|limit| limit.at(now).scope().to_owned()).collect();
    let (mut found, mut synced) = (HashSet::new(), 0);
    let scan = opened
        .scan(namespace, args.scan, |id| {
            if scopes.contains(id.scope) {
                found.insert(id.key.to_vec());
            } else if id.scope.rsplit_once('#').is_some_and(|(scope, _)| scopes.contains(scope)) {
                // `Synced` has a window for each segment: `scope#segment`.
                synced += 1;
            }
        })
        .await?;
    let keys: Vec<Key> = found.iter().filter_map(|key| subject.shown(key)).collect();
    let mut ranked = ranked(limiter, &keys).await?;
    ranked.sort_unstable_by_key(|(rank, key)| (*rank, key.bytes.as_slice()));
    let mut list = List::new(scan, ranked.len(), synced);
    for (_, key) in ranked.iter().take(args.top) {
        list.keys.push(KeyStatus::of(limiter, key, 1).await?);
    }
    output.print(&list, || list.table())?;
    Ok(ExitCode::SUCCESS)
}

/// The keys that have used something.
async fn ranked<'k>(limiter: &Limiter, keys: &'k [Key]) -> anyhow::Result<Vec<(Rank, &'k Key)>> {
    let mut ranked = Vec::new();
    for batch in keys.chunks(BATCH) {
        // A cost of zero charges nothing.
        let requests = batch.iter().map(|key| Request::new(&key.bytes).cost(0));
        for (key, decision) in batch.iter().zip(limiter.check_many(requests).await) {
            ranked.extend(nearest(&decision?).map(|rank| (rank, key)));
        }
    }
    Ok(ranked)
}

impl List {
    fn new(scan: MeterScan, matching: usize, synced: usize) -> Self {
        let MeterScan { looked_at, digests, more, .. } = scan;
        Self { keys: Vec::new(), matching, looked_at, digests, synced, more }
    }

    fn table(&self) -> String {
        let headings = ["LIMIT", "USED", "REMAINING", "RESET IN", "RETRY AFTER", "KEY"];
        let mut table = Table::new(&headings).with_text_last();
        for status in &self.keys {
            // Under several limits, the one that is nearest.
            let nearness = |row: &&LimitRow| {
                let reset_at = Timestamp::EPOCH + row.reset_after.unwrap_or(Duration::MAX);
                let remaining = row.remaining.unwrap_or(MAX_UNITS);
                rank(remaining, remaining + row.used, reset_at)
            };
            let Some(row) = status.limits.iter().min_by_key(nearness) else { continue };
            table.row([
                row.limit.clone(),
                row.used.to_string(),
                row.remaining_text(),
                human_or_never(row.reset_after),
                human_or_never(row.retry_after),
                status.key.clone(),
            ]);
        }
        let nothing = self.keys.is_empty();
        format!("{}{}\n", if nothing { String::new() } else { format!("{table}\n") }, self.summary())
    }

    fn summary(&self) -> String {
        let looked = match self.more {
            true => format!("Looked at {} names in the store; there are more, raise --scan.", self.looked_at),
            false if self.looked_at == 1 => "Looked at the only name in the store.".to_owned(),
            false => format!("Looked at all {} names in the store.", self.looked_at),
        };
        let shown = match (self.matching, self.keys.len()) {
            (0, _) => {
                "No key has used anything under these limits; check that the namespace is your program's."
                    .to_owned()
            }
            (matching, 1) if matching > 1 => {
                format!("{matching} keys have used something under these limits; the nearest is shown.")
            }
            (matching, shown) if shown < matching => {
                format!(
                    "{matching} keys have used something under these limits; the {shown} nearest are shown."
                )
            }
            (1, _) => "1 key has used something under these limits.".to_owned(),
            (matching, _) => format!("{matching} keys have used something under these limits."),
        };
        let digests = match self.digests {
            0 => String::new(),
            digests => format!(
                " {digests} names are digests of long keys, which cannot be read back; a key that you know can be peeked at."
            ),
        };
        let synced = match self.synced {
            0 => String::new(),
            1 => format!(" 1 name is a count of a window of Synced, {ONLY_SYNCED}"),
            names => format!(" {names} names are counts of windows of Synced, {ONLY_SYNCED}"),
        };
        format!("{looked} {shown}{digests}{synced}")
    }
}
