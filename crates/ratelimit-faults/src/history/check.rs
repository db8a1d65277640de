//! Checks the history of a phase against what the store guarantees.

use std::collections::{BTreeMap, HashMap};

use ratelimit_core::ErrorKind;

use super::{BLUR, Call, Loss, Outcome};
use crate::load::{Class, KeyId};
use crate::rule::Rule;

/// The units that a key has used, as the store itself says after the phase.
pub(crate) type Used = HashMap<KeyId, u64>;

/// All that is known about a phase.
pub(crate) struct Evidence<'a> {
    pub(crate) classes: &'a [Class],
    pub(crate) calls: &'a [Call],
    /// Spans in which a worker was not run, by worker.
    pub(crate) stalls: &'a [(usize, u64, u64)],
    pub(crate) losses: &'a [Loss],
    /// How many keys the server has evicted besides those in the losses. Any key may be among them, several times.
    pub(crate) evicted: u64,
    /// How far the clocks of the workers were behind and ahead, in nanoseconds.
    pub(crate) clocks: (u64, u64),
    /// How long a call may take.
    pub(crate) deadline: u64,
    /// The store's own time limit.
    pub(crate) timeout: u64,
    /// Whether the keys of a call may be on several servers.
    pub(crate) is_spread: bool,
    /// Whether the store refuses only what does not fit, even if other calls on the same key are in progress.
    pub(crate) is_exact: bool,
    /// Among how many instances a fallback divides the limits.
    pub(crate) instances: u64,
    pub(crate) used: &'a Used,
    /// When the fault was over.
    pub(crate) healed: u64,
}

/// The result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Checked {
    pub(crate) calls: u64,
    pub(crate) in_time: u64,
    pub(crate) dropped: u64,
    pub(crate) degraded: u64,
    /// Errors by kind.
    pub(crate) errors: BTreeMap<String, u64>,
    /// Units.
    pub(crate) admitted: u64,
    pub(crate) allowed: u64,
    /// Units that were admitted beyond the guarantee.
    pub(crate) beyond: u64,
    /// The same by limit, including what evictions excuse.
    pub(crate) exceeded: BTreeMap<String, u64>,
    /// Refusals although the cost fitted.
    pub(crate) refused_early: u64,
    /// Admitted units that the store has not counted although nothing was lost.
    pub(crate) forgotten: u64,
    /// Units that the store has counted although nobody may have charged them.
    pub(crate) invented: u64,
    pub(crate) slowest: u64,
    /// From the end of the fault until every worker was served and no call failed any more.
    pub(crate) recovery: Option<u64>,
}

/// Checks a phase.
pub(crate) fn check(evidence: &Evidence<'_>) -> Checked {
    let mut checked = Checked { calls: evidence.calls.len() as u64, ..Checked::default() };
    let mut by_key: BTreeMap<KeyId, Vec<&Call>> = BTreeMap::new();
    for call in evidence.calls {
        checked.count(call, evidence);
        by_key.entry(call.key).or_default().push(call);
    }
    // A store that reserves units before it decides cannot give them back if its connection breaks meanwhile.
    let reservations_may_stay = !evidence.is_exact && evidence.calls.iter().any(Call::is_trouble);
    let mut early: Vec<&Call> = Vec::new();
    let mut restarts = 0;
    let mut excess = 0;
    for (key, calls) in &by_key {
        let Some(class) = evidence.classes.get(usize::from(key.class)) else { continue };
        let losses: Vec<&Loss> = evidence.losses.iter().filter(|loss| loss.concerns(*key)).collect();
        // A store that is not exact has no order for calls on two windows either.
        let rule = if evidence.is_exact { class.rule } else { class.rule.in_any_order() };
        let (allowed, beyond) = bound(rule, &losses, evidence.clocks, calls, Call::is_admitted);
        checked.allowed += allowed;
        restarts += beyond.div_ceil(class.rule.quota());
        excess += beyond;
        checked.exceed(class, beyond);
        let (allowed, beyond) = without_the_store(class.rule, evidence, calls);
        checked.allowed += allowed;
        checked.beyond += beyond;
        checked.exceed(class, beyond);
        // A limit of a second means nothing if the clocks are seconds apart.
        if class.is_long || evidence.clocks == (0, 0) {
            early.extend(refused_early(class.rule, calls, evidence, reservations_may_stay));
        }
        if class.is_long {
            early.extend(refused_early_without_the_store(class.rule, calls, evidence));
            checked.account(*key, class.rule, &losses, calls, evidence, reservations_may_stay);
        }
    }
    let largest = evidence.classes.iter().map(|class| class.rule.quota()).max().unwrap_or(0);
    checked.allowed += evidence.evicted * largest;
    // Each eviction excuses one quota of one key.
    if restarts > evidence.evicted {
        checked.beyond += excess;
    }
    checked.refused_early = calls_of(&early);
    checked.recovery = recovery(evidence);
    checked
}

impl Checked {
    fn exceed(&mut self, class: &Class, beyond: u64) {
        if beyond > 0 {
            *self.exceeded.entry(class.text.clone()).or_default() += beyond;
        }
    }

    fn count(&mut self, call: &Call, evidence: &Evidence<'_>) {
        let stalled = evidence.stalls.iter().filter(|(worker, ..)| *worker == call.worker);
        let stalled: u64 = stalled
            .map(|(_, start, end)| (*end).min(call.end).saturating_sub((*start).max(call.start)))
            .sum();
        let took = call.end.saturating_sub(call.start).saturating_sub(stalled);
        self.in_time += u64::from(took <= evidence.deadline);
        self.slowest = self.slowest.max(took);
        self.degraded += u64::from(call.degraded);
        match call.outcome {
            Outcome::Admitted => self.admitted += u64::from(call.cost),
            Outcome::Refused => {}
            Outcome::Dropped => self.dropped += 1,
            Outcome::Failed { kind, maybe } => {
                // A store that gets no connection in time could not reach its server.
                let late =
                    kind == ErrorKind::Unreachable && !maybe && call.end - call.start >= evidence.timeout;
                let kind = if late { ErrorKind::Timeout } else { kind };
                *self.errors.entry(name(kind, maybe)).or_default() += 1;
            }
        }
    }

    /// Compares the calls on a key of a long limit with the store's count afterwards.
    fn account(
        &mut self,
        key: KeyId,
        rule: Rule,
        losses: &[&Loss],
        calls: &[&Call],
        evidence: &Evidence<'_>,
        reservations_may_stay: bool,
    ) {
        let units =
            |calls: &mut dyn Iterator<Item = &&Call>| calls.map(|call| u64::from(call.cost)).sum::<u64>();
        let Some(used) = evidence.used.get(&key) else { return };
        let since = losses.iter().map(|loss| loss.to).max().unwrap_or(0);
        let (first, last) = span(calls, evidence.clocks);
        let Some(returned) = rule.returned(first, last) else { return };
        if evidence.evicted == 0 {
            let known = |call: &&&Call| call.is_admitted() && call.start >= since;
            let admitted = units(&mut calls.iter().filter(known));
            self.forgotten += admitted.saturating_sub(used + returned);
        }
        let charged = units(&mut calls.iter().filter(|call| reservations_may_stay || call.may_be_charged()));
        self.invented += used.saturating_sub(charged);
    }
}

/// The most units that may be admitted, and how many more were, by the calls that `counts` selects.
///
/// A call was charged at some instant between its start and its end. So the calls that began and ended within a span were
/// charged within it, and together are bound by what the rule allows there.
fn bound(
    rule: Rule,
    losses: &[&Loss],
    (behind, ahead): (u64, u64),
    calls: &[&Call],
    counts: impl Fn(&Call) -> bool,
) -> (u64, u64) {
    let most = |from: u64, to: u64| {
        rule.most(from, to) + losses.iter().map(|loss| loss.allows(rule, from, to)).sum::<u64>()
    };
    let admitted = calls.iter().filter(|call| counts(call));
    let mut charged: Vec<(u64, u64, u64)> = admitted
        .map(|call| (call.start.saturating_sub(behind + BLUR), call.end + ahead + BLUR, u64::from(call.cost)))
        .collect();
    charged.sort_unstable_by_key(|(_, end, _)| *end);
    let mut beyond = 0;
    for (from, ..) in &charged {
        let mut sum = 0;
        for (_, to, cost) in charged.iter().filter(|(start, ..)| start >= from) {
            sum += cost;
            beyond = beyond.max(sum.saturating_sub(most(*from, *to)));
        }
    }
    let (first, last) = span(calls, (behind, ahead));
    (most(first, last), beyond)
}

/// The number of calls whose keys are all among these.
fn calls_of(early: &[&Call]) -> u64 {
    let mut keys: BTreeMap<(usize, u64, u64), u64> = BTreeMap::new();
    let alone = early.iter().filter(|call| !call.paired).count() as u64;
    for call in early.iter().filter(|call| call.paired) {
        *keys.entry((call.worker, call.start, call.end)).or_default() += 1;
    }
    alone + keys.into_values().filter(|keys| *keys > 1).count() as u64
}

/// The refusals that neither charges explain nor, on a store that is not exact, calls on the same key in progress. A
/// refusal of two keys may be due to the other one.
fn refused_early<'a>(
    rule: Rule,
    calls: &[&'a Call],
    evidence: &Evidence<'_>,
    reservations_may_stay: bool,
) -> Vec<&'a Call> {
    let (behind, ahead) = evidence.clocks;
    let latest = |call: &Call| {
        // A call that its caller gave up may be decided later.
        let late = if call.is_ambiguous() { evidence.deadline } else { 0 };
        call.end + late + ahead + BLUR
    };
    let refusals = calls.iter().filter(|call| call.outcome == Outcome::Refused && !call.degraded);
    let is_early = |refusal: &&&Call| {
        let from = refusal.start.saturating_sub(behind + BLUR);
        let explains = |call: &&&Call| {
            let overlaps = call.end + BLUR >= refusal.start && !std::ptr::eq(**call, **refusal);
            // Of keys on several servers each is charged by itself, and given back if another one does not fit.
            let is_tentative = overlaps && (!evidence.is_exact || evidence.is_spread && call.paired);
            call.start <= refusal.end + BLUR
                && (call.may_be_charged() || is_tentative || reservations_may_stay)
        };
        let charges = calls.iter().filter(explains).map(|call| (latest(call), u64::from(call.cost)));
        !rule.can_refuse(u64::from(refusal.cost), from, &mut charges.collect::<Vec<_>>())
    };
    refusals.filter(is_early).copied().collect()
}

/// The same for what each worker has admitted without the store. No server can lose any of that.
fn without_the_store(rule: Rule, evidence: &Evidence<'_>, calls: &[&Call]) -> (u64, u64) {
    let mut by_worker: BTreeMap<usize, Vec<&Call>> = BTreeMap::new();
    for call in calls.iter().filter(|call| call.degraded) {
        by_worker.entry(call.worker).or_default().push(call);
    }
    let rule = rule.divided(evidence.instances);
    let bounds = by_worker
        .values()
        .map(|calls| bound(rule, &[], evidence.clocks, calls, |call| call.outcome == Outcome::Admitted));
    bounds.fold((0, 0), |(allowed, beyond), (more, further)| (allowed + more, beyond + further))
}

/// The refusals without the store that the worker's own charges without the store do not explain.
fn refused_early_without_the_store<'a>(
    rule: Rule,
    calls: &[&'a Call],
    evidence: &Evidence<'_>,
) -> Vec<&'a Call> {
    let quota = rule.divided(evidence.instances).quota();
    let refusals = calls.iter().filter(|call| call.degraded && call.outcome == Outcome::Refused);
    let is_early = |refusal: &&&Call| {
        let of_worker =
            calls.iter().filter(|call| call.worker == refusal.worker && call.start <= refusal.end);
        let charged = of_worker.filter(|call| match call.outcome {
            Outcome::Admitted => call.degraded,
            Outcome::Dropped => true,
            Outcome::Refused | Outcome::Failed { .. } => false,
        });
        charged.map(|call| u64::from(call.cost)).sum::<u64>() + u64::from(refusal.cost) <= quota
    };
    refusals.filter(is_early).copied().collect()
}

/// The first and the last instant at which these may have been charged.
fn span(calls: &[&Call], (behind, ahead): (u64, u64)) -> (u64, u64) {
    let first = calls.iter().map(|call| call.start).min().unwrap_or(0);
    let last = calls.iter().map(|call| call.end).max().unwrap_or(0);
    (first.saturating_sub(behind + BLUR), last + ahead + BLUR)
}

/// The time from the end of the fault until every worker was served and no call failed any more; `None` if a worker was not
/// served after the fault.
fn recovery(evidence: &Evidence<'_>) -> Option<u64> {
    let healed = evidence.healed;
    let mut served: BTreeMap<usize, Option<u64>> = BTreeMap::new();
    let mut last_trouble = healed;
    for call in evidence.calls {
        let first = served.entry(call.worker).or_default();
        if call.is_success() && call.start >= healed {
            *first = Some(first.map_or(call.end, |first| first.min(call.end)));
        }
        if call.is_trouble() {
            last_trouble = last_trouble.max(call.end);
        }
    }
    let slowest = served.into_values().try_fold(healed, |slowest, first| Some(slowest.max(first?)))?;
    Some(slowest.max(last_trouble) - healed)
}

/// The name of an error in the table.
fn name(kind: ErrorKind, maybe: bool) -> String {
    if maybe { format!("{}?", kind.as_str()) } else { kind.as_str().to_owned() }
}
