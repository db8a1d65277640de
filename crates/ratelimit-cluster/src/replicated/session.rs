//! The state of the exchange with the other nodes, without any I/O: joining, requests, and held updates.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::message::{self, NodeId, UpdateRange};
use super::outbox::Outbox;
use super::peers::Peers;

/// Encoded messages.
pub(crate) type Messages = Vec<Arc<[u8]>>;

/// The timeout of a state request, in intervals.
const TIMEOUT: u64 = 3;

/// How often the state of a node is requested after updates of it were lost.
const MAX_ATTEMPTS: u32 = 5;

/// How many hello messages a node sends while it joins, if no peer has charged anything.
const MIN_HELLOS: u32 = 2;

/// The same if a peer has: it may not have received the first ones.
const MAX_HELLOS: u32 = 5;

/// The maximum number of nodes whose last request is remembered.
const MAX_ANSWERED: usize = 4_096;

/// How many intervals a state request waits for missing updates. Each is given up earlier, but others may follow.
const MAX_POSTPONED: u32 = 12;

/// After this many intervals a node joins without the state of another one.
const MAX_JOINING: u64 = 12;

/// A node's exchange with its peers.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) id: NodeId,
    pub(crate) peers: Peers,
    pub(crate) outbox: Outbox,
    /// Updates that cannot be applied before earlier ones of their sender.
    early: BTreeMap<(NodeId, u64), Arc<[u8]>>,
    early_bytes: usize,
    /// Present until the node has joined.
    pub(crate) joining: Option<Joining>,
    /// The state that is being received.
    fetch: Option<Fetch>,
    /// Nodes whose state has to be requested next, and how often it was requested without success.
    wanted: BTreeMap<NodeId, u32>,
    /// For how many intervals these requests have waited.
    postponed: u32,
    /// The nodes that join and were not offered the state so far.
    declined: BTreeSet<NodeId>,
    /// The number of state requests of this node.
    requests: u64,
    /// The last answered request of each node.
    answered: BTreeMap<NodeId, u64>,
    /// The number of silent intervals after which a peer counts as gone.
    silent_intervals: u64,
    /// How often updates were given up.
    pub(crate) given_up: u64,
    /// How many received states were too long.
    pub(crate) dropped_states: u64,
}

/// The progress of joining.
#[derive(Debug, Default)]
pub(crate) struct Joining {
    hellos: u32,
    /// Nodes that offered their state and have not been asked for it.
    offers: VecDeque<NodeId>,
    /// Updates received in the meantime, which the state may contain.
    held: Messages,
    bytes: usize,
}

/// A state that is received in parts.
#[derive(Debug)]
struct Fetch {
    from: NodeId,
    request: u64,
    /// How often the state was requested before without success.
    attempts: u32,
    /// The interval in which the last part was received.
    since: u64,
    /// The messages. They are applied when all have been received: if a part of one state were applied and then a whole
    /// other state, updates in between could count twice.
    parts: BTreeMap<u64, Arc<[u8]>>,
    bytes: usize,
    last: Option<u64>,
    contained: Vec<UpdateRange>,
}

/// A complete state.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FullState {
    /// The messages with the states of meters.
    pub(crate) states: Messages,
    /// Updates that were held until the state was complete, to be applied after it.
    pub(crate) held: Messages,
}

impl Session {
    pub(crate) fn new(id: NodeId, history_bytes: usize, silent_intervals: u64) -> Self {
        Self {
            id,
            peers: Peers::default(),
            outbox: Outbox::new(history_bytes),
            early: BTreeMap::new(),
            early_bytes: 0,
            joining: Some(Joining::default()),
            fetch: None,
            wanted: BTreeMap::new(),
            postponed: 0,
            declined: BTreeSet::new(),
            requests: 0,
            answered: BTreeMap::new(),
            silent_intervals,
            given_up: 0,
            dropped_states: 0,
        }
    }

    /// The number of other nodes.
    pub(crate) fn peer_count(&self) -> usize {
        self.peers.count_present(self.silent_intervals)
    }

    /// Ends an interval. Returns the requests to send, and the held updates if the node now joins without a state.
    pub(crate) fn end_interval(&mut self) -> (Messages, Messages) {
        let mut requests = Vec::new();
        let late = self.fetch.take_if(|fetch| fetch.since + TIMEOUT <= self.peers.interval + 1); // with this one
        if self.joining.is_some() {
            // Held updates are not marked, so they would look like gaps.
            self.peers.skip_interval();
            let held = self.join(&mut requests);
            return (requests, held);
        }
        let missing = self.peers.end_interval(self.silent_intervals);
        self.early.retain(|(sender, _), _| !self.peers.is_silent(*sender, self.silent_intervals));
        self.early_bytes = self.early.values().map(|message| message.len()).sum();
        self.given_up += missing.states.len() as u64;
        let updates = missing.updates.into_iter();
        requests
            .extend(updates.map(|(from, first, last)| message::resend(self.id, from, first, last).into()));
        self.wanted.extend(missing.states.into_iter().map(|from| (from, 0)));
        if let Some(Fetch { from, attempts, .. }) = late
            && attempts + 1 < MAX_ATTEMPTS
            && self.peers.is_present(from, self.silent_intervals)
        {
            self.wanted.entry(from).or_insert(attempts + 1);
        }
        // The state contains what this node misses of others: received later, it would count twice.
        let waits = self.postponed < MAX_POSTPONED && self.peers.have_gaps(self.silent_intervals);
        if self.fetch.is_none()
            && let Some(next) = self.wanted.first_entry()
        {
            if waits {
                self.postponed += 1;
            } else {
                let (from, attempts) = next.remove_entry();
                if self.wanted.is_empty() {
                    self.postponed = 0;
                }
                requests.push(self.request_state(from, attempts));
            }
        }
        (requests, Vec::new())
    }

    fn join(&mut self, requests: &mut Messages) -> Messages {
        let Some(joining) = &mut self.joining else { return Vec::new() };
        if self.fetch.is_some() {
            return Vec::new();
        }
        if self.peers.interval > MAX_JOINING {
            return self.finish_joining();
        }
        if let Some(from) = joining.offers.pop_front() {
            requests.push(self.request_state(from, 0));
        } else if joining.hellos < MIN_HELLOS
            || joining.hellos < MAX_HELLOS && self.peers.have_gaps(self.silent_intervals)
        {
            joining.hellos += 1;
            requests.push(message::hello(self.id).into());
        } else {
            return self.finish_joining();
        }
        Vec::new()
    }

    /// Ends joining. Returns the held updates.
    pub(crate) fn finish_joining(&mut self) -> Messages {
        self.joining.take().map_or_else(Vec::new, |joining| joining.held)
    }

    fn request_state(&mut self, from: NodeId, attempts: u32) -> Arc<[u8]> {
        self.requests += 1;
        let (request, since) = (self.requests, self.peers.interval);
        let (parts, contained) = (BTreeMap::new(), Vec::new());
        self.fetch = Some(Fetch { from, request, attempts, since, parts, bytes: 0, last: None, contained });
        message::state_request(self.id, from, request).into()
    }

    /// Holds an update if the node is still joining; `false` if it is not. If it were applied before the state, it could
    /// be lost: a state is merged by maximum, not by addition. Updates beyond `max` bytes are dropped, and requested
    /// later like lost ones.
    pub(crate) fn hold(&mut self, update: &[u8], max: usize) -> bool {
        let Some(joining) = &mut self.joining else { return false };
        if joining.bytes + update.len() <= max {
            joining.bytes += update.len();
            joining.held.push(update.into());
        }
        true
    }

    /// Keeps an update until the earlier ones of its sender have been applied. Updates beyond `max` bytes are dropped, and
    /// requested later like lost ones.
    pub(crate) fn keep_early(&mut self, update: (NodeId, u64), message: &[u8], max: usize) {
        if self.early_bytes + message.len() <= max && !self.early.contains_key(&update) {
            self.early_bytes += message.len();
            self.early.insert(update, message.into());
        }
    }

    /// Removes an early update that no longer has to wait.
    pub(crate) fn take_next(&mut self) -> Option<Arc<[u8]>> {
        let is_due = |(sender, number): &&(NodeId, u64)| self.peers.applied_before(*sender, *number);
        let due = self.early.keys().find(is_due).copied()?;
        let message = self.early.remove(&due)?;
        self.early_bytes -= message.len();
        Some(message)
    }

    /// Handles an offer of the state. Returns the request for it, if it is needed now.
    pub(crate) fn offered(&mut self, from: NodeId) -> Option<Arc<[u8]>> {
        let joining = self.joining.as_mut()?;
        if self.fetch.is_some() {
            if joining.offers.len() < 16 {
                joining.offers.push_back(from);
            }
            return None;
        }
        Some(self.request_state(from, 0))
    }

    /// Whether this node should offer its state to one that joins. While it lacks updates that were given up, which its state
    /// would declare as contained, only if that node asks again: nobody else has offered.
    pub(crate) fn should_offer(&mut self, to: NodeId) -> bool {
        let is_whole = self.fetch.is_none() && self.wanted.is_empty();
        if is_whole || self.declined.len() >= MAX_ANSWERED {
            self.declined.clear();
        }
        self.joining.is_none() && (is_whole || !self.declined.insert(to))
    }

    /// Whether this node should send its state for a request of another node: once for each request, because the parts of
    /// two answers must not be mixed.
    pub(crate) fn should_answer(&mut self, to: NodeId, request: u64) -> bool {
        if self.answered.len() >= MAX_ANSWERED {
            self.answered.clear();
        }
        let last = self.answered.entry(to).or_default();
        let is_new = request > *last;
        *last = request.max(*last);
        is_new
    }

    /// Whether this node waits for this answer.
    pub(crate) fn awaits(&self, from: NodeId, request: u64) -> bool {
        self.fetch.as_ref().is_some_and(|fetch| fetch.from == from && fetch.request == request)
    }

    /// Adds a part of the state. Returns the state when it is complete. A state of more than `max` bytes is dropped.
    pub(crate) fn add_part(
        &mut self,
        (part, is_last): (u64, bool),
        contained: Vec<UpdateRange>,
        message: &[u8],
        max: usize,
    ) -> Option<FullState> {
        let (id, interval) = (self.id, self.peers.interval);
        let fetch = self.fetch.as_mut()?;
        fetch.since = interval;
        if fetch.parts.insert(part, message.into()).is_none() {
            fetch.bytes += message.len();
            fetch.contained.extend(contained.into_iter().filter(|(peer, ..)| *peer != id));
        }
        if is_last {
            fetch.last = Some(part);
        }
        if fetch.bytes > max {
            self.fetch = None;
            self.dropped_states += 1;
            return None;
        }
        let count = fetch.last?.checked_add(1)?;
        if fetch.parts.range(..count).count() as u64 != count {
            return None;
        }
        let Fetch { parts, contained, .. } = self.fetch.take()?;
        if self.joining.is_some() {
            // The node had no units before, so the state contains these updates completely.
            contained.into_iter().for_each(|updates| self.peers.mark_contained(updates));
        }
        Some(FullState { states: parts.into_values().collect(), held: self.finish_joining() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ME: NodeId = NodeId([1; 16]);
    const ONE: NodeId = NodeId([2; 16]);
    const OTHER: NodeId = NodeId([3; 16]);

    fn request(session: &mut Session) -> Messages {
        session.end_interval().0
    }

    fn joined(session: &Session) -> bool {
        session.joining.is_none()
    }

    #[test]
    fn a_single_node_sends_hello_twice_and_joins() {
        let mut session = Session::new(ME, 100, 10);
        let hello: Messages = vec![message::hello(ME).into()];
        assert_eq!(request(&mut session), hello);
        assert!(session.hold(&[7], 100));
        assert_eq!(request(&mut session), hello);
        assert!(!joined(&session));
        assert_eq!(session.end_interval(), (vec![], vec![[7].into()]), "held updates are applied then");
        assert!(joined(&session) && !session.hold(&[7], 100));
    }

    #[test]
    fn a_node_that_misses_updates_sends_five_hellos() {
        for (leaves, expected) in [(false, 5), (true, 2)] {
            let mut session = Session::new(ME, 100, 10);
            session.peers.mark_seen(ONE);
            session.peers.heartbeat(ONE, 1, 1);
            if leaves {
                session.peers.leave(ONE);
            }
            let sent = std::iter::from_fn(|| session.end_interval().0.pop()).take(9).count();
            assert_eq!((sent, joined(&session)), (expected, true));
        }
    }

    #[test]
    fn the_parts_of_two_answers_are_not_mixed() {
        let mut session = Session::new(ME, 100, 10);
        request(&mut session);
        assert_eq!(session.offered(ONE), Some(message::state_request(ME, ONE, 1).into()));
        assert_eq!(session.offered(OTHER), None);
        assert!(session.awaits(ONE, 1) && !session.awaits(OTHER, 1));
        assert_eq!(session.add_part((0, false), vec![], &[5], 100), None);
        for _ in 0..2 {
            assert!(request(&mut session).is_empty());
        }
        assert_eq!(
            request(&mut session),
            [message::state_request(ME, OTHER, 2).into()],
            "the first is silent"
        );
        assert!(!session.awaits(ONE, 1) && session.awaits(OTHER, 2));
        let last = session.add_part((1, true), vec![(ONE, 1, 4)], &[7], 100);
        assert_eq!(last, None, "part 0 is of the other answer");
        assert!(!joined(&session));
        let states = vec![[6].into(), [7].into()];
        let state = FullState { states, held: vec![] };
        assert_eq!(session.add_part((0, false), vec![], &[6], 100), Some(state));
        assert!(joined(&session));
        assert_eq!(session.peers.applied().collect::<Vec<_>>(), [(ONE, 1, 4)]);

        assert!(
            session.should_answer(ONE, 3) && !session.should_answer(ONE, 3) && !session.should_answer(ONE, 2)
        );
        assert!(session.should_answer(ONE, 4) && session.should_answer(OTHER, 1));
    }

    #[test]
    fn a_state_that_does_not_arrive_is_requested_again_while_its_node_is_present() {
        for (leaves_at, expected) in [(99, &[0, 3, 6, 9, 12][..]), (4, &[0, 3])] {
            let mut session = Session::new(ME, 100, 10);
            session.finish_joining();
            session.peers.mark(ONE, 9);
            session.peers.heartbeat(ONE, 9, 9);
            let mut requested = Vec::new();
            for interval in 0..40 {
                session.peers.mark_seen(ONE);
                if interval == leaves_at {
                    session.peers.leave(ONE);
                }
                requested.extend(request(&mut session).iter().map(|_| interval));
            }
            assert_eq!(requested, expected);
        }
    }

    #[test]
    fn a_state_request_waits_for_missing_updates_of_other_nodes() {
        for (misses_for, requested_at) in [(3, 3), (99, 12)] {
            let mut session = Session::new(ME, 100, 10);
            session.finish_joining();
            session.peers.mark_seen(ONE);
            session.peers.mark(ONE, 9);
            session.peers.heartbeat(ONE, 9, 9);
            let mut requested = Vec::new();
            for interval in 0..20 {
                session.peers.mark_seen(OTHER);
                session.peers.mark_known(OTHER, interval + 1);
                if interval >= misses_for {
                    session.peers.mark_contained((OTHER, 1, interval + 1));
                } else if interval > 0 {
                    session.peers.mark(OTHER, interval); // the newest is missing each time
                }
                let requests = request(&mut session);
                requested.extend(requests.iter().any(|message| message[1] == 6).then_some(interval));
            }
            assert_eq!(requested.first(), Some(&requested_at));
        }
    }

    #[test]
    fn a_state_without_given_up_updates_is_offered_only_to_a_node_that_asks_again() {
        let mut session = Session::new(ME, 100, 10);
        assert!(!session.should_offer(ONE) && !session.should_offer(ONE), "it is joining itself");
        session.finish_joining();
        assert!(session.should_offer(ONE));
        session.peers.mark_seen(OTHER);
        session.peers.mark(OTHER, 9);
        session.peers.heartbeat(OTHER, 9, 9);
        assert_eq!(request(&mut session).len(), 1);
        assert!(!session.should_offer(ONE) && !session.should_offer(ME), "two join at once");
        assert!(session.should_offer(ONE) && session.should_offer(ME));
        assert!(session.add_part((0, true), vec![], &[7], 100).is_some());
        assert!(session.should_offer(OTHER));
    }

    #[test]
    fn the_length_of_a_state_is_bounded_and_any_part_numbers_are_accepted() {
        let mut session = Session::new(ME, 100, 10);
        request(&mut session);
        assert!(session.offered(ONE).is_some());
        assert_eq!(session.add_part((u64::MAX, true), vec![], &[1], 10), None);
        assert!(session.awaits(ONE, 1));
        assert_eq!(session.add_part((3, false), vec![], &[1; 10], 10), None);
        assert!(!session.awaits(ONE, 1), "it is too long");
        assert_eq!(session.dropped_states, 1);
    }
}
