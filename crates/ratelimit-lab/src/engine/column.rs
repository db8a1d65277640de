//! A column of the result: limits, what they count by, and what they have decided.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use ratelimit_core::Timestamp;

use super::decided::Decided;
use super::decider::Decider;
use super::key_counts::KeyCounts;
use super::keys::Keys;
use super::layer::HttpRequest;
use super::outcome::Outcome;
use super::series::Series;
use super::waits::Waits;

/// One column.
pub(crate) struct Column {
    /// The limits as text, or the path of the configuration file.
    pub(crate) name: String,
    /// The index of what it counts by, among all that the replay counts by.
    pub(crate) by: usize,
    pub(crate) decider: Decider,
    /// The length of the periods in which peaks are counted.
    pub(crate) period: Duration,
    /// The shortest period of its limits.
    pub(crate) shortest: Duration,
    pub(crate) not_replayed: Vec<String>,
    pub(crate) counts: Counts,
}

/// What a column has counted.
#[derive(Default)]
pub(crate) struct Counts {
    keys: Vec<KeyCounts>,
    requests: u64,
    refused: u64,
    delayed: u64,
    never: u64,
    longest_delay: Duration,
    waits: Waits,
    refused_by: BTreeMap<String, u64>,
    series: Series,
}

impl Column {
    /// Decides a request of the key with this number.
    pub(crate) fn decide(
        &mut self,
        time: Timestamp,
        number: u32,
        key: &[u8],
        cost: u64,
        http: Option<HttpRequest>,
    ) -> anyhow::Result<()> {
        let decided = self.decider.decide(key, cost, http)?;
        let length = u64::try_from(self.period.as_nanos()).unwrap_or(u64::MAX);
        self.counts.count(time, number as usize, &decided, length);
        Ok(())
    }

    pub(crate) fn outcome(&self, by: String, unidentified: u64, keys: &Keys, top: usize) -> Outcome {
        let counts = &self.counts;
        let mut refused: Vec<(u32, &KeyCounts)> =
            (0..).zip(&counts.keys).filter(|(_, counts)| counts.refused > 0).collect();
        let keys_refused = refused.len() as u64;
        refused.sort_by_key(|(number, counts)| (Reverse(counts.refused), *number));
        refused.truncate(top);
        let top = refused.into_iter().map(|(number, counts)| counts.outcome(keys.get(number)));
        Outcome {
            limits: self.name.clone(),
            by,
            requests: counts.requests,
            unidentified,
            admitted: counts.requests - counts.refused,
            refused: counts.refused,
            delayed: counts.delayed,
            never: counts.never,
            keys: counts.keys.iter().filter(|counts| counts.requests > 0).count() as u64,
            keys_refused,
            median_wait: counts.waits.median_seconds(),
            longest_wait: counts.waits.longest_seconds(),
            longest_delay: counts.longest_delay.as_secs_f64(),
            peak_seconds: self.period.as_secs_f64(),
            shortest_seconds: self.shortest.as_secs_f64(),
            not_replayed: self.not_replayed.clone(),
            refused_by: counts.refused_by.clone(),
            top: top.collect(),
            series: counts.series.clone(),
        }
    }
}

impl Counts {
    fn count(&mut self, time: Timestamp, number: usize, decided: &Decided, length: u64) {
        if number >= self.keys.len() {
            self.keys.resize_with(number + 1, KeyCounts::default);
        }
        self.requests += 1;
        self.series.add(time, decided.is_admitted);
        let Some(key) = self.keys.get_mut(number) else { return };
        key.count(time, length);
        if decided.is_admitted {
            if decided.is_delayed {
                self.delayed += 1;
                self.longest_delay = self.longest_delay.max(decided.delay);
            }
            return;
        }
        key.refuse(decided.wait);
        self.refused += 1;
        match decided.wait {
            Some(wait) => self.waits.add(wait),
            None => self.never += u64::from(!decided.refused_otherwise),
        }
        for name in &decided.refused_by {
            match self.refused_by.get_mut(name) {
                Some(count) => *count += 1,
                None => drop(self.refused_by.insert(name.clone(), 1)),
            }
        }
    }
}
