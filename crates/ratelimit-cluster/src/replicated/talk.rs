//! What a node is about to say, and to whom it has listened: all of the conversation but the sending.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::message::{self, Id};
use super::origins::{Origins, Updates};
use super::outbox::Outbox;

/// Messages as they are sent.
pub(crate) type Messages = Vec<Arc<[u8]>>;

/// How many beats the answer to a question is waited for.
const WAIT: u64 = 3;

/// How often it is asked whether anybody is here.
const HELLOS: u32 = 2;

/// Of how many nodes it is remembered what they have asked.
const MOST_TOLD: usize = 4_096;

/// How many beats a node that joins tries to learn the state.
const JOINING: u64 = 12;

/// One node's side of the conversation.
#[derive(Debug)]
pub(crate) struct Talk {
    pub(crate) id: Id,
    /// Intervals that have passed.
    pub(crate) beat: u64,
    pub(crate) origins: Origins,
    pub(crate) outbox: Outbox,
    /// What a node keeps in mind until it has joined.
    pub(crate) joining: Option<Joining>,
    /// The state that is being learned.
    fetch: Option<Fetch>,
    /// Nodes whose state is wanted next.
    wanted: BTreeSet<Id>,
    /// How often this node has asked for a state.
    questions: u64,
    /// The last question of each node that was told the state.
    told: BTreeMap<Id, u64>,
    /// How many beats a silent node is still counted.
    patience: u64,
    /// How often updates were given up.
    pub(crate) given_up: u64,
}

/// A node that joins.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    hellos: u32,
    /// Who has answered, and has not been asked for the state.
    here: VecDeque<Id>,
    /// Updates that have come meanwhile: the state may contain them.
    held: Messages,
    bytes: usize,
}

/// A state that comes in parts.
#[derive(Debug)]
struct Fetch {
    from: Id,
    question: u64,
    /// The beat at which something of it came last.
    since: u64,
    /// The messages, which are taken in when all are there: half of a state, and then another one, would count what comes
    /// beside it twice.
    parts: BTreeMap<u64, Arc<[u8]>>,
    bytes: usize,
    last: Option<u64>,
    seen: Vec<Updates>,
}

/// A whole state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Learned {
    /// The messages with the states of meters.
    pub(crate) states: Messages,
    /// Updates that were held until it came, to be counted after it.
    pub(crate) held: Messages,
}

impl Talk {
    pub(crate) fn new(id: Id, keep: usize, patience: u64) -> Self {
        Self {
            id,
            beat: 0,
            origins: Origins::default(),
            outbox: Outbox::new(keep),
            joining: Some(Joining::default()),
            fetch: None,
            wanted: BTreeSet::new(),
            questions: 0,
            told: BTreeMap::new(),
            patience,
            given_up: 0,
        }
    }

    /// How many others there are.
    pub(crate) fn peers(&self) -> usize {
        self.origins.present(self.patience)
    }

    /// An interval has passed: what is to be asked. With it come the updates that were held, if it joins without the state.
    pub(crate) fn beat(&mut self) -> (Messages, Messages) {
        self.beat += 1;
        let mut questions = Vec::new();
        if self.fetch.as_ref().is_some_and(|fetch| fetch.since + WAIT <= self.beat) {
            self.fetch = None; // another one, or the same once more
        }
        if self.joining.is_some() {
            // What is held seems to be missing.
            self.origins.tick();
            let held = self.join(&mut questions);
            return (questions, held);
        }
        let missing = self.origins.beat(self.patience);
        self.given_up += missing.states.len() as u64;
        let updates = missing.updates.into_iter();
        questions
            .extend(updates.map(|(from, first, last)| message::again(self.id, from, first, last).into()));
        self.wanted.extend(missing.states);
        if self.fetch.is_none()
            && let Some(from) = self.wanted.pop_first()
        {
            questions.push(self.ask(from));
        }
        (questions, Vec::new())
    }

    fn join(&mut self, questions: &mut Messages) -> Messages {
        let Some(joining) = &mut self.joining else { return Vec::new() };
        if self.fetch.is_some() {
            return Vec::new();
        }
        if self.beat > JOINING {
            return self.joined();
        }
        if let Some(from) = joining.here.pop_front() {
            questions.push(self.ask(from));
        } else if joining.hellos < HELLOS {
            joining.hellos += 1;
            questions.push(message::hello(self.id).into());
        } else {
            return self.joined();
        }
        Vec::new()
    }

    /// It has joined; gives the updates that were held.
    pub(crate) fn joined(&mut self) -> Messages {
        self.joining.take().map_or_else(Vec::new, |joining| joining.held)
    }

    fn ask(&mut self, from: Id) -> Arc<[u8]> {
        self.questions += 1;
        let (question, since) = (self.questions, self.beat);
        let (parts, seen) = (BTreeMap::new(), Vec::new());
        self.fetch = Some(Fetch { from, question, since, parts, bytes: 0, last: None, seen });
        message::ask(self.id, from, question).into()
    }

    /// Whether an update has to wait until the state has come. At most so many bytes wait; what is beyond is asked for later,
    /// as if it had been lost: counted before the state is raised it would be lost in it.
    pub(crate) fn holds(&mut self, update: &[u8], most: usize) -> bool {
        let Some(joining) = &mut self.joining else { return false };
        if joining.bytes + update.len() <= most {
            joining.bytes += update.len();
            joining.held.push(update.into());
        }
        true
    }

    /// Somebody can tell the state: the question for it, if it is to be put.
    pub(crate) fn here(&mut self, from: Id) -> Option<Arc<[u8]>> {
        let joining = self.joining.as_mut()?;
        if self.fetch.is_some() {
            if joining.here.len() < 16 {
                joining.here.push_back(from);
            }
            return None;
        }
        Some(self.ask(from))
    }

    /// Whether this node is to tell its state to another one: once for each question, for the parts of two answers do not
    /// go together.
    pub(crate) fn tells(&mut self, to: Id, question: u64) -> bool {
        if self.told.len() >= MOST_TOLD {
            self.told.clear();
        }
        let last = self.told.entry(to).or_default();
        let is_new = question > *last;
        *last = question.max(*last);
        is_new
    }

    /// Whether this node waits for this answer.
    pub(crate) fn learns_from(&self, from: Id, question: u64) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.from == from && fetch.question == question)
    }

    /// A part of the state has come; gives the whole of it when none is missing any more. At most so many bytes are waited
    /// for.
    pub(crate) fn learned(
        &mut self,
        (part, is_last): (u64, bool),
        seen: impl Iterator<Item = Updates>,
        message: &[u8],
        most: usize,
    ) -> Option<Learned> {
        let (id, beat) = (self.id, self.beat);
        let fetch = self.fetch.as_mut()?;
        fetch.since = beat;
        if fetch.parts.insert(part, message.into()).is_none() {
            fetch.bytes += message.len();
            fetch.seen.extend(seen.filter(|(origin, ..)| *origin != id));
        }
        if is_last {
            fetch.last = Some(part);
        }
        if fetch.bytes > most {
            self.fetch = None;
            return None;
        }
        let count = fetch.last?.checked_add(1)?;
        if fetch.parts.range(..count).count() as u64 != count {
            return None;
        }
        let Fetch { parts, seen, .. } = self.fetch.take()?;
        if self.joining.is_some() {
            // It knew nothing before, so the state holds these updates whole.
            seen.into_iter().for_each(|updates| self.origins.contained(updates));
        }
        Some(Learned { states: parts.into_values().collect(), held: self.joined() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: Id = Id([1; 16]);
    const ONE: Id = Id([2; 16]);
    const OTHER: Id = Id([3; 16]);

    fn question(talk: &mut Talk) -> Messages {
        talk.beat().0
    }

    fn joined(talk: &Talk) -> bool {
        talk.joining.is_none()
    }

    #[test]
    fn who_is_alone_asks_twice_and_goes_on() {
        let mut talk = Talk::new(ME, 100, 10);
        let hello: Messages = vec![message::hello(ME).into()];
        assert_eq!(question(&mut talk), hello);
        assert!(talk.holds(&[7], 100));
        assert_eq!(question(&mut talk), hello);
        assert!(!joined(&talk));
        assert_eq!(talk.beat(), (vec![], vec![[7].into()]), "what was held is counted then");
        assert!(joined(&talk) && !talk.holds(&[7], 100));
    }

    #[test]
    fn the_parts_of_two_answers_do_not_go_together() {
        let mut talk = Talk::new(ME, 100, 10);
        question(&mut talk);
        assert_eq!(talk.here(ONE), Some(message::ask(ME, ONE, 1).into()));
        assert_eq!(talk.here(OTHER), None);
        assert!(talk.learns_from(ONE, 1) && !talk.learns_from(OTHER, 1));
        assert_eq!(talk.learned((0, false), [].into_iter(), &[5], 100), None);
        for _ in 0..2 {
            assert!(question(&mut talk).is_empty());
        }
        assert_eq!(question(&mut talk), [message::ask(ME, OTHER, 2).into()], "the first is silent");
        assert!(!talk.learns_from(ONE, 1) && talk.learns_from(OTHER, 2));
        let last = talk.learned((1, true), [(ONE, 1, 4)].into_iter(), &[7], 100);
        assert_eq!(last, None, "part 0 has come of another answer only");
        assert!(!joined(&talk));
        let states = vec![[6].into(), [7].into()];
        let learned = Learned { states, held: vec![] };
        assert_eq!(talk.learned((0, false), [].into_iter(), &[6], 100), Some(learned));
        assert!(joined(&talk));
        assert_eq!(talk.origins.seen().collect::<Vec<_>>(), [(ONE, 1, 4)]);

        assert!(talk.tells(ONE, 3) && !talk.tells(ONE, 3) && !talk.tells(ONE, 2));
        assert!(talk.tells(ONE, 4) && talk.tells(OTHER, 1));
    }

    #[test]
    fn a_state_is_no_longer_than_it_may_be_and_its_numbers_are_borne() {
        let mut talk = Talk::new(ME, 100, 10);
        question(&mut talk);
        assert!(talk.here(ONE).is_some());
        assert_eq!(talk.learned((u64::MAX, true), [].into_iter(), &[1], 10), None);
        assert!(talk.learns_from(ONE, 1));
        assert_eq!(talk.learned((3, false), [].into_iter(), &[1; 10], 10), None);
        assert!(!talk.learns_from(ONE, 1), "it is too long");
    }
}
