//! A column of the result: limits, what they count by, and what they have decided.

use std::cmp::Reverse;
use std::time::Duration;

use foldhash::fast::RandomState;
use hashbrown::HashMap;
use ratelimit_core::Timestamp;

use super::decided::Decided;
use super::decider::Decider;
use super::key_counts::KeyCounts;
use super::keys::Keys;
use super::layer::HttpRequest;
use super::outcome::{KeyOutcome, Outcome};
use super::texts::Place;
use super::waits::Waits;
use super::who::{Counts, Who};

/// One column.
pub(crate) struct Column {
    /// The index of what it counts by, among all that the replay counts by.
    pub(crate) by: usize,
    pub(crate) decider: Decider,
    /// The length of the periods in which peaks are counted, in nanoseconds.
    period: u64,
    keys: Vec<KeyCounts>,
    waits: Waits,
    /// Of the keys that were refused, by their numbers.
    who: HashMap<u32, Counts, RandomState>,
    /// The result, except for what [`outcome`](Self::outcome) adds from the other fields.
    outcome: Outcome,
}

impl Column {
    /// A column of the limits with this name, whose peaks are counted in periods of this length. The shortest period of its
    /// limits is `shortest`.
    pub(crate) fn new(
        name: String,
        by: usize,
        decider: Decider,
        period: Duration,
        shortest: Duration,
    ) -> Self {
        let is_policies = matches!(decider, Decider::Layer(_));
        Self {
            by,
            decider,
            period: u64::try_from(period.as_nanos()).unwrap_or(u64::MAX),
            keys: Vec::new(),
            waits: Waits::default(),
            who: HashMap::default(),
            outcome: Outcome {
                limits: name,
                is_policies,
                peak_seconds: period.as_secs_f64(),
                shortest_seconds: shortest.as_secs_f64(),
                ..Outcome::default()
            },
        }
    }

    /// The same with these parts of a configuration file that are not replayed.
    pub(crate) fn without(mut self, not_replayed: Vec<String>) -> Self {
        self.outcome.not_replayed = not_replayed;
        self
    }

    /// What it cannot decide if no request has a duration, as text for people. Policies are told of as not replayed.
    pub(crate) fn without_durations(&mut self) -> Option<String> {
        const WHY: &str = "no request has a duration, so it is not known how many are in progress; name its field with --duration-field";
        match &self.decider {
            Decider::Layer(layer) => {
                let not_replayed =
                    layer.holding.iter().map(|name| format!("concurrency limits of policy {name}: {WHY}"));
                self.outcome.not_replayed.extend(not_replayed);
                None
            }
            Decider::Limiter(_) => self.decider.holds().then(|| format!("{}: {WHY}", self.outcome.limits)),
        }
    }

    /// Decides a request of the key with this number.
    pub(crate) fn decide(
        &mut self,
        (time, duration): (Timestamp, Duration),
        number: u32,
        key: &[u8],
        cost: u64,
        http: Option<HttpRequest>,
        who: Option<(&mut Who, Place)>,
    ) -> anyhow::Result<()> {
        let decided = self.decider.decide(key, cost, (time, duration), http)?;
        self.count(time, number as usize, &decided);
        if let Some((who, place)) = who.filter(|_| !decided.is_admitted) {
            who.refuse(place, self.who.entry(number).or_default());
        }
        Ok(())
    }

    fn count(&mut self, time: Timestamp, number: usize, decided: &Decided) {
        if number >= self.keys.len() {
            self.keys.resize_with(number + 1, KeyCounts::default);
        }
        let outcome = &mut self.outcome;
        outcome.requests += 1;
        outcome.series.add(time, decided.is_admitted);
        let Some(key) = self.keys.get_mut(number) else { return };
        key.count(time, self.period);
        if decided.is_admitted {
            outcome.admitted += 1;
            if decided.is_delayed {
                outcome.delayed += 1;
                outcome.longest_delay = outcome.longest_delay.max(decided.delay.as_secs_f64());
            }
            return;
        }
        key.refuse(decided.wait);
        outcome.refused += 1;
        match decided.wait {
            Some(wait) => self.waits.add(wait),
            None => outcome.never += u64::from(!decided.refused_otherwise),
        }
        for name in &decided.refused_by {
            match outcome.refused_by.get_mut(name) {
                Some(count) => *count += 1,
                None => drop(outcome.refused_by.insert(name.clone(), 1)),
            }
        }
    }

    /// The result, with at most `top` keys.
    pub(crate) fn outcome(
        self,
        by: String,
        unidentified: u64,
        keys: &Keys,
        who: Option<&Who>,
        top: usize,
    ) -> Outcome {
        let mut refused: Vec<(u32, &KeyCounts)> =
            (0..).zip(&self.keys).filter(|(_, counts)| counts.refused > 0).collect();
        let keys_refused = refused.len() as u64;
        refused.sort_by_key(|(number, counts)| (Reverse(counts.refused), *number));
        refused.truncate(top);
        let top = refused.into_iter().map(|(number, counts)| {
            let counted = who.zip(self.who.get(&number));
            let [path, agent] = counted.map(|(who, counts)| who.outcome(counts)).unwrap_or_default();
            KeyOutcome { path, agent, ..counts.outcome(keys.get(number)) }
        });
        Outcome {
            policies: self.decider.policies(),
            by,
            unidentified,
            keys: self.keys.iter().filter(|counts| counts.requests > 0).count() as u64,
            keys_refused,
            median_wait: self.waits.median_seconds(),
            longest_wait: self.waits.longest_seconds(),
            top: top.collect(),
            ..self.outcome
        }
    }
}
