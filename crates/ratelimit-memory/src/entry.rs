//! One meter as it is kept: its name, its state, and when it may be forgotten.

use ratelimit_core::{CLOCK_SLACK, Claim, MeterId, Refund, State, Timestamp, Verdict};

/// One meter.
pub(crate) struct Entry {
    /// Hash of the name.
    pub(crate) hash: u64,
    /// From when on the state decides like a fresh one.
    forget_at: Timestamp,
    name: Name,
    state: State,
}

/// A meter's name in one piece: namespace, scope and key, told apart by their lengths.
struct Name {
    bytes: Box<[u8]>,
    namespace: usize,
    scope: usize,
}

impl Name {
    fn of(id: &MeterId<'_>) -> Self {
        let bytes = [id.namespace.as_bytes(), id.scope.as_bytes(), id.key].concat();
        Self { bytes: bytes.into(), namespace: id.namespace.len(), scope: id.scope.len() }
    }

    fn is(&self, id: &MeterId<'_>) -> bool {
        self.namespace == id.namespace.len()
            && self.scope == id.scope.len()
            && self.bytes.len() == self.namespace + self.scope + id.key.len()
            && {
                let (namespace, rest) = self.bytes.split_at(self.namespace);
                let (scope, key) = rest.split_at(self.scope);
                same(namespace, id.namespace.as_bytes())
                    && same(scope, id.scope.as_bytes())
                    && same(key, id.key)
            }
    }
}

/// Whether two names are the same. They are short as a rule: a call to the C library would take longer than this.
fn same(one: &[u8], other: &[u8]) -> bool {
    if one.len() != other.len() {
        return false;
    }
    match (one.last_chunk::<8>(), other.last_chunk::<8>()) {
        // The last eight bytes overlap with the whole words before them.
        (Some(one_end), Some(other_end)) => {
            let words = one.as_chunks::<8>().0.iter().zip(other.as_chunks::<8>().0);
            word(one_end) == word(other_end) && words.into_iter().all(|(one, other)| word(one) == word(other))
        }
        _ => one.iter().zip(other).all(|(one, other)| one == other),
    }
}

fn word(bytes: &[u8; 8]) -> u64 {
    u64::from_ne_bytes(*bytes)
}

impl Entry {
    /// A meter that has not been charged.
    pub(crate) fn new(hash: u64, claim: &Claim<'_>) -> Self {
        Self { hash, forget_at: Timestamp::EPOCH, name: Name::of(&claim.id), state: claim.meter.fresh() }
    }

    #[inline]
    pub(crate) fn is(&self, hash: u64, id: &MeterId<'_>) -> bool {
        self.hash == hash && self.name.is(id)
    }

    /// The state, if it is one that this claim's meter can read.
    pub(crate) fn state_for(&self, claim: &Claim<'_>) -> Option<&State> {
        Some(&self.state).filter(|state| claim.meter.owns(state))
    }

    pub(crate) fn charge(&mut self, claim: &Claim<'_>, now: Timestamp) -> Verdict {
        let charged = claim.meter.charge(&mut self.state, claim.cost, now);
        let verdict = claim.meter.verdict(&self.state, claim.cost, now, Some(charged));
        // After a charge this is `Meter::forget_at`, already worked out. It never falls: where claims differ in how
        // they count (a period was changed), what any of them was told holds.
        self.forget_at = self.forget_at.max(verdict.reset_at);
        verdict
    }

    pub(crate) fn refund(&mut self, refund: &Refund<'_>, now: Timestamp) {
        if refund.cost > 0 && refund.meter.owns(&self.state) {
            refund.meter.refund(&mut self.state, refund.cost, refund.receipt, now);
            self.forget_at = refund.meter.forget_at(&self.state);
        }
    }

    /// Whether it can no longer influence a decision, of claims that come a little late neither.
    pub(crate) fn has_expired(&self, now: Timestamp) -> bool {
        const SLACK: u64 = CLOCK_SLACK.as_secs() * 1_000_000_000;
        // In numbers, for `Timestamp` saturates where a debt may lie beyond.
        self.forget_at.as_nanos().saturating_add(SLACK) <= now.as_nanos()
    }

    /// How much is lost by forgetting it: when it would be forgotten, and of equals how much was charged lately.
    pub(crate) fn weight(&self) -> (Timestamp, u64) {
        let charged = match &self.state {
            State::Window(state) => state.counts.first().copied().unwrap_or(0),
            State::Bucket(_) => 0,
            State::Log(state) => state.units.len() as u64,
        };
        (self.forget_at, charged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_all_of_its_three_parts() {
        let long = "0123456789abcdefghijklmnopqrstuvwxyz";
        let mut names = Vec::new();
        for cut in 0..=long.len() {
            for again in cut..=long.len() {
                names.push((
                    long[..cut].to_owned(),
                    long[cut..again].to_owned(),
                    long.as_bytes()[again..].to_vec(),
                ));
            }
        }
        names.push(("a".to_owned(), "b".to_owned(), b"c".to_vec()));
        names.push(("b".to_owned(), "b".to_owned(), b"c".to_vec()));
        names.push(("a".to_owned(), "a".to_owned(), b"c".to_vec()));
        for place in 0..long.len() {
            let mut key = long.as_bytes().to_vec();
            key[place] ^= 1;
            names.push((String::new(), String::new(), key));
        }
        let ids = names.iter().map(|(namespace, scope, key)| MeterId { namespace, scope, key });
        let ids: Vec<MeterId<'_>> = ids.collect();
        for one in &ids {
            let name = Name::of(one);
            for other in &ids {
                assert_eq!(name.is(other), one == other, "{one:?} {other:?}");
            }
        }
    }
}
