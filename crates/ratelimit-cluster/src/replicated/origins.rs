//! Who has sent what: each message of each origin is applied once, and gaps are noticed.

use std::collections::BTreeMap;

use super::message::Id;

/// The most origins that are remembered; beyond that the one heard of longest ago is forgotten.
const MOST: usize = 4_096;

/// The most gaps of one origin; beyond that the first is given up.
const GAPS: usize = 256;

/// How often a gap is asked for before it is given up.
const ASKS: u32 = 5;

/// How many gaps of one origin are asked for at a beat.
const QUESTIONS: usize = 16;

/// The numbers of one origin's updates: from 1, one after another.
#[derive(Debug, Default)]
struct Origin {
    /// All up to this one have been applied or given up.
    seen: u64,
    /// Those applied beyond: ranges with gaps between them, ascending.
    beyond: Vec<(u64, u64)>,
    /// The newest that is known to exist.
    newest: u64,
    /// The oldest that the origin can still send again.
    oldest: u64,
    /// The beat at which it was last heard of.
    heard: u64,
    has_left: bool,
    /// The newest that was known to exist at the last beat: what is missing up to there is not just late.
    edge: u64,
    /// Where the first gap began that was asked for last, and how often it was.
    asked: (u64, u32),
    /// Updates were given up: what they said is to be had from the origin's state only.
    is_lost: bool,
}

impl Origin {
    fn is_new(&self, number: u64) -> bool {
        number > self.seen && !self.beyond.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }

    /// Updates have been applied, or are contained in what was.
    fn mark(&mut self, first: u64, last: u64) {
        self.newest = self.newest.max(last);
        if last <= self.seen || first > last {
            return;
        }
        let start = self.beyond.partition_point(|(_, before)| before.saturating_add(1) < first);
        let end = self.beyond.partition_point(|(after, _)| *after <= last.saturating_add(1));
        // All that it touches becomes one.
        let touched = &self.beyond[start..end.max(start)];
        let first = touched.first().map_or(first, |range| range.0.min(first));
        let last = touched.last().map_or(last, |range| range.1.max(last));
        self.beyond.splice(start..end.max(start), [(first, last)]);
        self.absorb();
        if self.beyond.len() > GAPS {
            self.give_up(self.beyond[0].0 - 1);
        }
    }

    /// Goes on over what was applied beyond and is now next.
    fn absorb(&mut self) {
        while let Some((first, last)) = self.beyond.first().copied()
            && first <= self.seen.saturating_add(1)
        {
            self.seen = self.seen.max(last);
            self.beyond.remove(0);
        }
    }

    /// What is missing first.
    fn gap(&self) -> Option<(u64, u64)> {
        match self.beyond.first() {
            Some((first, _)) => Some((self.seen + 1, first - 1)),
            None if self.newest > self.seen => Some((self.seen + 1, self.newest)),
            None => None,
        }
    }

    /// All that is missing and was known to exist at the last beat.
    fn overdue(&self) -> impl Iterator<Item = (u64, u64)> {
        let befores = std::iter::once(self.seen).chain(self.beyond.iter().map(|(_, last)| *last));
        let afters = self.beyond.iter().map(|(first, _)| first - 1).chain([self.newest]);
        let gaps = befores.zip(afters).filter(|(before, after)| before < after);
        gaps.map(|(before, after)| (before + 1, after.min(self.edge))).filter(|(first, last)| first <= last)
    }

    /// What was sent up to this number, and has not come, will not come.
    fn give_up(&mut self, number: u64) {
        while let Some((first, last)) = self.gap()
            && first <= number
        {
            self.seen = last.min(number);
            self.is_lost = true;
            self.absorb();
        }
    }
}

/// What this node knows of the others.
#[derive(Debug, Default)]
pub(crate) struct Origins {
    origins: BTreeMap<Id, Origin>,
    beat: u64,
}

/// Updates of an origin: the number of the first and of the last.
pub(crate) type Updates = (Id, u64, u64);

/// What is to be asked for after a beat.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Updates that have not come.
    pub(crate) updates: Vec<Updates>,
    /// Origins whose updates have been given up, and whose state is needed therefore.
    pub(crate) states: Vec<Id>,
}

impl Origins {
    fn origin(&mut self, id: Id) -> &mut Origin {
        if self.origins.len() >= MOST && !self.origins.contains_key(&id) {
            let oldest = self.origins.iter().min_by_key(|(_, origin)| origin.heard).map(|(id, _)| *id);
            oldest.map(|id| self.origins.remove(&id));
        }
        self.origins.entry(id).or_default()
    }

    /// Something came from this one.
    pub(crate) fn heard(&mut self, id: Id) {
        let beat = self.beat;
        self.origin(id).heard = beat;
    }

    /// Whether an update has not been applied yet.
    pub(crate) fn is_new(&self, id: Id, number: u64) -> bool {
        self.origins.get(&id).map_or(number > 0, |origin| origin.is_new(number))
    }

    /// An update has been applied.
    pub(crate) fn mark(&mut self, id: Id, number: u64) {
        self.origin(id).mark(number, number);
    }

    /// An origin says which updates it has sent, and which of them it can send again.
    pub(crate) fn pulse(&mut self, id: Id, newest: u64, oldest: u64) {
        let origin = self.origin(id);
        origin.newest = origin.newest.max(newest);
        origin.oldest = origin.oldest.max(oldest);
        origin.has_left = false;
    }

    /// An origin has left: it is neither counted nor asked any more. What is still on its way is counted when it comes.
    pub(crate) fn left(&mut self, id: Id) {
        self.origin(id).has_left = true;
    }

    /// Updates of an origin, the first and the last of them, are contained in the state that was received.
    pub(crate) fn contained(&mut self, (id, first, last): Updates) {
        let beat = self.beat;
        let is_unknown = !self.origins.contains_key(&id);
        let origin = self.origin(id);
        if is_unknown {
            origin.heard = beat;
        }
        origin.mark(first, last);
    }

    /// All updates that have been applied.
    pub(crate) fn seen(&self) -> impl Iterator<Item = Updates> {
        self.origins.iter().flat_map(|(id, origin)| {
            let first = (origin.seen > 0).then_some((1, origin.seen));
            first.into_iter().chain(origin.beyond.iter().copied()).map(|(first, last)| (*id, first, last))
        })
    }

    /// Those heard of within the last `beats`, that have not left.
    pub(crate) fn present(&self, beats: u64) -> usize {
        let is_present =
            |origin: &&Origin| !origin.has_left && origin.heard.saturating_add(beats) >= self.beat;
        self.origins.values().filter(is_present).count()
    }

    /// An interval has passed in which nobody could be asked for anything.
    pub(crate) fn tick(&mut self) {
        self.beat += 1;
    }

    /// An interval has passed. A gap that was there at the last beat, too, is asked for; one that has been asked for in
    /// vain is given up. Those not heard of within the last `beats` are not asked.
    pub(crate) fn beat(&mut self, beats: u64) -> Missing {
        self.tick();
        let mut missing = Missing::default();
        for (id, origin) in &mut self.origins {
            if origin.has_left || origin.heard.saturating_add(beats) < self.beat {
                continue;
            }
            if origin.oldest > 0 {
                origin.give_up(origin.oldest - 1);
            }
            let overdue = origin.overdue().next();
            if let Some((first, last)) = overdue {
                let asks = if origin.asked.0 == first { origin.asked.1 + 1 } else { 1 };
                origin.asked = (first, asks);
                if asks > ASKS {
                    origin.give_up(last);
                }
                let gaps = origin.overdue().take(QUESTIONS);
                missing.updates.extend(gaps.map(|(first, last)| (*id, first, last)));
            }
            origin.edge = origin.newest;
            if std::mem::take(&mut origin.is_lost) {
                missing.states.push(*id);
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: Id = Id([1; 16]);

    fn apply(origins: &mut Origins, number: u64) -> bool {
        origins.heard(A);
        let is_new = origins.is_new(A, number);
        if is_new {
            origins.mark(A, number);
        }
        is_new
    }

    proptest! {
        #[test]
        fn each_is_applied_once_whatever_the_order(numbers in prop::collection::vec(1..40_u64, 0..200)) {
            let mut origins = Origins::default();
            let mut applied = std::collections::BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(apply(&mut origins, number), applied.insert(number));
                let next = (1..).find(|number| !applied.contains(number)).unwrap();
                let seen = origins.seen().next().filter(|(_, first, _)| *first == 1);
                prop_assert_eq!(seen.map_or(0, |(_, _, last)| last), next - 1);
                prop_assert_eq!(origins.seen().map(|(_, first, last)| last - first + 1).sum::<u64>(), applied.len() as u64);
                let origin = &origins.origins[&A];
                prop_assert!(origin.beyond.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            }
        }

        #[test]
        fn any_numbers_are_borne(numbers in prop::collection::vec((0..4_u8, any::<u64>()), 0..50)) {
            let mut origins = Origins::default();
            for (what, number) in numbers {
                match what {
                    0 => drop(apply(&mut origins, number)),
                    1 => origins.pulse(A, number, number / 2),
                    2 => origins.contained((A, number / 3, number)),
                    _ => drop(origins.beat(10)),
                }
            }
        }
    }

    #[test]
    fn a_gap_is_asked_for_when_it_has_lasted_a_beat() {
        let mut origins = Origins::default();
        for number in [1, 2, 5] {
            assert!(apply(&mut origins, number));
        }
        assert_eq!(origins.beat(10), Missing::default(), "it may just be late");
        assert_eq!(origins.beat(10).updates, [(A, 3, 4)]);
        assert!(apply(&mut origins, 3) && apply(&mut origins, 4));
        assert!(!apply(&mut origins, 3));
        assert_eq!(origins.beat(10), Missing::default());
    }

    #[test]
    fn a_pulse_shows_that_the_last_ones_are_missing() {
        let mut origins = Origins::default();
        assert!(apply(&mut origins, 1));
        origins.pulse(A, 3, 1);
        assert!(apply(&mut origins, 3));
        origins.pulse(A, 5, 1);
        origins.beat(10);
        assert_eq!(origins.beat(10).updates, [(A, 2, 2), (A, 4, 5)], "all gaps at once");
    }

    #[test]
    fn what_nobody_keeps_any_more_is_given_up_for_the_state() {
        let mut origins = Origins::default();
        assert!(apply(&mut origins, 1) && apply(&mut origins, 9));
        assert_eq!(origins.beat(10), Missing::default());
        origins.pulse(A, 9, 6);
        assert_eq!(origins.beat(10), Missing { updates: vec![(A, 6, 8)], states: vec![A] });
        assert!(!apply(&mut origins, 5) && apply(&mut origins, 6));
    }

    #[test]
    fn what_is_asked_for_in_vain_is_given_up() {
        let mut origins = Origins::default();
        assert!(apply(&mut origins, 3));
        let mut asked = 0;
        let lost = (0..20).find(|_| {
            origins.heard(A);
            let missing = origins.beat(10);
            asked += missing.updates.len();
            !missing.states.is_empty()
        });
        assert!(lost.is_some());
        assert_eq!(asked, 5);
        assert_eq!(origins.seen().next(), Some((A, 1, 3)));
    }

    #[test]
    fn who_is_silent_or_has_left_is_neither_counted_nor_asked() {
        let mut origins = Origins::default();
        assert!(apply(&mut origins, 2));
        assert_eq!(origins.present(2), 1);
        origins.beat(2);
        origins.beat(2);
        assert_eq!(origins.present(2), 1);
        assert_eq!(origins.beat(2), Missing::default());
        assert_eq!(origins.present(2), 0);
        assert!(!apply(&mut origins, 2), "its numbers are remembered");
        assert_eq!(origins.present(2), 1);
        origins.left(A);
        assert_eq!(origins.present(2), 0);
        assert!(apply(&mut origins, 1), "its farewell came first");
        assert_eq!(origins.beat(2), Missing::default());
    }

    #[test]
    fn a_state_contains_updates() {
        let mut origins = Origins::default();
        assert!(apply(&mut origins, 7) && apply(&mut origins, 11));
        origins.contained((A, 1, 9));
        origins.contained((A, 14, 20));
        assert!(!apply(&mut origins, 8) && !apply(&mut origins, 15));
        assert!(apply(&mut origins, 10) && apply(&mut origins, 13));
        assert_eq!(origins.seen().collect::<Vec<_>>(), [(A, 1, 11), (A, 13, 20)]);
        origins.contained((A, 2, 12));
        assert_eq!(origins.seen().collect::<Vec<_>>(), [(A, 1, 20)]);
    }

    #[test]
    fn their_number_is_bounded() {
        let mut origins = Origins::default();
        for number in 0..2 * MOST {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(number as u64).to_be_bytes());
            origins.heard(Id(id));
        }
        assert_eq!(origins.origins.len(), MOST);
        for number in (1..3 * GAPS as u64).map(|number| 2 * number) {
            origins.mark(A, number);
        }
        assert!(origins.origins[&A].beyond.len() <= GAPS);
    }
}
