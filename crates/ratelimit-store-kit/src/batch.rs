//! The meters of a call: which to read, what is decided, and what to write.

use std::fmt;

use ratelimit_core::Timestamp;
use ratelimit_core::kit::{OwnedClaims, OwnedRefund};
use ratelimit_core::meter::{Meter, State};
use ratelimit_core::store::{Answer, Claims, MeterId, Refund};

use crate::Lifetime;

/// The slices or the refunds of one call, grouped by meter.
///
/// Read the states of [`names`](Self::names), call [`decide`](Self::decide), and write what it returns; all in one transaction,
/// or under locks. It owns its data, so you can move it to a blocking thread. It may decide several times, on other states,
/// until the writes succeed.
///
/// ```
/// use std::collections::BTreeMap;
///
/// use ratelimit_core::meter::State;
/// use ratelimit_core::store::{Answer, Claims};
/// use ratelimit_store_kit::Batch;
///
/// fn claim(map: &mut BTreeMap<Vec<u8>, State>, slices: &[Claims<'_>]) -> Vec<Answer> {
///     let batch = Batch::of_claims(slices);
///     let decided = batch.decide(batch.names().iter().map(|name| map.get(name).cloned()));
///     for (name, write) in batch.names().iter().zip(decided.writes) {
///         map.extend(write.map(|write| (name.clone(), write.state)));
///     }
///     decided.answers
/// }
/// # claim(&mut BTreeMap::new(), &[]);
/// ```
#[derive(Clone)]
pub struct Batch {
    names: Vec<Vec<u8>>,
    work: Work,
}

/// What to decide. A meter is named by its place in the list of names.
#[derive(Clone)]
enum Work {
    Claims(Vec<OwnedClaims<usize>>),
    Refunds(Timestamp, Vec<OwnedRefund<usize>>),
}

/// What a [`Batch`] has decided.
#[derive(Clone, Debug)]
pub struct Decided {
    /// An answer for each slice, in their order; none for refunds.
    pub answers: Vec<Answer>,
    /// What to write, for each of [`Batch::names`]; `None` if the meter stays as it is.
    pub writes: Vec<Option<Write>>,
}

/// The state to write for one meter.
#[derive(Clone, Debug)]
pub struct Write {
    /// The state.
    pub state: State,
    /// How long to keep it at least. Never shorten the lifetime of a meter that exists.
    pub lifetime: Lifetime,
}

impl Batch {
    /// A batch of slices, which are decided one after another: each counts what those before it have charged.
    pub fn of_claims(slices: &[Claims<'_>]) -> Self {
        let ids = slices.iter().flat_map(|claims| claims.iter().map(|claim| claim.id));
        let names = sorted(ids);
        let owned = |claims: &Claims<'_>| OwnedClaims::new(claims, |id| place(&names, id));
        let work = Work::Claims(slices.iter().map(owned).collect());
        Self { names, work }
    }

    /// A batch of refunds at `now`.
    pub fn of_refunds(now: Timestamp, refunds: &[Refund<'_>]) -> Self {
        let names = sorted(refunds.iter().map(|refund| refund.id));
        let owned = |refund: &Refund<'_>| OwnedRefund::new(refund, |id| place(&names, id));
        let work = Work::Refunds(now, refunds.iter().map(owned).collect());
        Self { names, work }
    }

    /// The names of the meters ([`MeterId::to_bytes`]), each once, in ascending order. Lock them in this order, so that no two
    /// calls wait for each other; if you hash them, in that of the hashes.
    pub fn names(&self) -> &[Vec<u8>] {
        &self.names
    }

    /// Decides on these states, which are those of [`names`](Self::names) in their order, `None` for a meter that does not
    /// exist. Missing ones do not exist either.
    pub fn decide(&self, states: impl IntoIterator<Item = Option<State>>) -> Decided {
        let mut meters = Meters::new(states, self.names.len());
        let answers = match &self.work {
            Work::Claims(slices) => slices.iter().map(|slice| meters.claim(slice)).collect(),
            Work::Refunds(now, refunds) => {
                refunds.iter().for_each(|refund| meters.refund(refund, *now));
                Vec::new()
            }
        };
        let writes = meters.states.into_iter().zip(meters.lifetimes);
        let writes = writes.map(|(state, lifetime)| Some(Write { state: state?, lifetime: lifetime? }));
        Decided { answers, writes: writes.collect() }
    }
}

impl fmt::Debug for Batch {
    // A derived one would print keys, which may end up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Batch of {} meters", self.names.len())
    }
}

/// The meters of a batch while it is decided.
struct Meters {
    states: Vec<Option<State>>,
    /// Of the meters that have changed.
    lifetimes: Vec<Option<Lifetime>>,
}

impl Meters {
    fn new(states: impl IntoIterator<Item = Option<State>>, count: usize) -> Self {
        let mut states: Vec<_> = states.into_iter().collect();
        states.resize(count, None);
        Self { states, lifetimes: vec![None; count] }
    }

    fn claim(&mut self, slice: &OwnedClaims<usize>) -> Answer {
        // No meter is twice in a slice.
        let mut states: Vec<_> = slice.claims.iter().map(|claim| self.states[claim.key].take()).collect();
        let answer = slice.decide(&mut states);
        for (claim, state) in slice.claims.iter().zip(states) {
            self.states[claim.key] = state;
            if answer.charged && claim.cost > 0 {
                self.changed(claim.key, &claim.meter, slice.now);
            }
        }
        answer
    }

    fn refund(&mut self, refund: &OwnedRefund<usize>, now: Timestamp) {
        let place = refund.claim.key;
        if refund.apply(&mut self.states[place], now) {
            self.changed(place, &refund.claim.meter, now);
        }
    }

    fn changed(&mut self, place: usize, meter: &Meter, now: Timestamp) {
        if let Some(state) = &self.states[place] {
            let lifetime = Some(Lifetime::of(meter, state, now));
            self.lifetimes[place] = self.lifetimes[place].max(lifetime);
        }
    }
}

fn sorted<'a>(ids: impl Iterator<Item = MeterId<'a>>) -> Vec<Vec<u8>> {
    let mut names: Vec<_> = ids.map(|id| id.to_bytes()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// Where the meter is in the list. Every meter of the batch is there.
fn place(names: &[Vec<u8>], id: &MeterId<'_>) -> usize {
    names.binary_search(&id.to_bytes()).unwrap_or_default()
}
