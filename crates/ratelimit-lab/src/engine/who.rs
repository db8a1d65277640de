//! Who is refused: the path and the agent that most of the refused requests of a key have.

use smallvec::SmallVec;

use super::keys::Keys;
use super::outcome::{Mostly, printable};
use super::texts::{Place, Texts};
use crate::field::Field;
use crate::record::{Record, Wanted};

/// What is told of a key.
const FIELDS: [Field; 2] = [Field::Path, Field::Agent];

/// The maximum number of different paths, and of different agents, that are known. Others are not counted.
const MOST: usize = 1 << 20;

/// The paths and the agents of requests that wait, and numbers for those of the refused ones.
pub(super) struct Who {
    indices: [usize; FIELDS.len()],
    waiting: Texts,
    known: [Keys; FIELDS.len()],
}

impl Who {
    /// Adds the path and the agent to `wanted`.
    pub(super) fn new(wanted: &mut Wanted) -> Self {
        let indices = wanted.add_for_some(FIELDS);
        Self { indices, waiting: Texts::default(), known: Default::default() }
    }

    /// Keeps what a request has until it is decided.
    pub(super) fn keep(&mut self, record: &Record) -> Option<Place> {
        self.waiting.add(self.indices.map(|index| record.get(index).unwrap_or_default()))
    }

    /// Counts a refused request.
    pub(super) fn refuse(&mut self, place: Place, counts: &mut Counts) {
        let texts = self.waiting.get(place);
        counts.of += 1;
        for ((text, known), frequent) in texts.into_iter().zip(&mut self.known).zip(&mut counts.frequent) {
            if !text.is_empty()
                && let Some(number) = known.number_within(text, MOST)
            {
                frequent.add(number);
            }
        }
    }

    /// Forgets a request, which is decided.
    pub(super) fn forget(&mut self, place: Place) {
        self.waiting.take(place);
    }

    /// The path and the agent that these counts have most of.
    pub(super) fn outcome(&self, counts: &Counts) -> [Option<Mostly>; FIELDS.len()] {
        std::array::from_fn(|nth| {
            let texts = self.known.get(nth)?;
            let (number, refused) = counts.frequent.get(nth)?.most()?;
            Some(Mostly { value: printable(texts.get(number)), refused, of: counts.of })
        })
    }
}

/// Counts the paths and the agents of the refused requests of a key.
#[derive(Debug, Default)]
pub(super) struct Counts {
    frequent: [Frequent; FIELDS.len()],
    /// The refused requests of which the path and the agent were read.
    of: u64,
}

/// How many numbers are counted at once.
const COUNTED: usize = 8;

/// Finds the number that comes most often, in little space: a new number takes the place of the rarest one, and its count
/// (the algorithm Space-Saving).
#[derive(Debug, Default)]
struct Frequent(SmallVec<[Candidate; 2]>);

#[derive(Clone, Copy, Debug)]
struct Candidate {
    number: u32,
    /// At most this often.
    count: u32,
    /// By how much that may be too many.
    error: u32,
}

impl Frequent {
    fn add(&mut self, number: u32) {
        if let Some(slot) = self.0.iter_mut().find(|slot| slot.number == number) {
            slot.count = slot.count.saturating_add(1);
        } else if self.0.len() < COUNTED {
            self.0.push(Candidate { number, count: 1, error: 0 });
        } else if let Some(rarest) = self.0.iter_mut().min_by_key(|slot| slot.count) {
            *rarest = Candidate { number, count: rarest.count.saturating_add(1), error: rarest.count };
        }
    }

    /// The number that has come most often, and how often at least; `None` if it is not certain which one that is.
    fn most(&self) -> Option<(u32, u64)> {
        let most = self.0.iter().max_by_key(|slot| slot.count - slot.error)?;
        let least = most.count - most.error;
        let others = self.0.iter().filter(|slot| slot.number != most.number).map(|slot| slot.count);
        // A number without a slot has come as often as the rarest one at most. Of two that are equal, none is the most frequent.
        let is_certain = others.max().is_none_or(|other| other < least);
        is_certain.then_some((most.number, least.into()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn most(numbers: impl IntoIterator<Item = u32>) -> Option<(u32, u64)> {
        let mut frequent = Frequent::default();
        numbers.into_iter().for_each(|number| frequent.add(number));
        frequent.most()
    }

    #[test]
    fn the_most_frequent_is_found() {
        assert_eq!(most([]), None);
        assert_eq!(most([7]), Some((7, 1)));
        assert_eq!(most([1, 2, 2, 3, 1, 2]), Some((2, 3)));
        assert_eq!(most([1, 2]), None);
        // Among a thousand others, and not counted too often.
        let (number, times) =
            most((0..2_000).map(|nth| if nth % 2 == 0 { 9 } else { 10_000 + nth })).unwrap();
        assert!(number == 9 && (1..=1_000).contains(&times), "{times}");
        // Nothing is certain of many different ones.
        assert_eq!(most(0..1_000), None);
    }
}
