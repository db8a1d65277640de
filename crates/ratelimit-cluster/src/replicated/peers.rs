//! The updates received from each peer: each is applied once, and gaps are detected.

use std::collections::BTreeMap;

use super::message::{NodeId, UpdateRange};

/// The maximum number of peers that are remembered. Beyond that, the least recently seen one is forgotten.
const MAX_PEERS: usize = 4_096;

/// The maximum number of gaps of one peer. Beyond that, the first one is given up.
const MAX_GAPS: usize = 256;

/// How often a gap is requested before it is given up.
const MAX_ATTEMPTS: u32 = 5;

/// How many gaps of one peer are requested in an interval.
const MAX_REQUESTS: usize = 16;

/// The update numbers of one peer, which start at 1 and are consecutive.
#[derive(Debug, Default)]
struct Peer {
    /// All updates up to this one have been applied or given up.
    applied: u64,
    /// Updates applied beyond that: ascending ranges with gaps between them.
    beyond: Vec<(u64, u64)>,
    /// The newest update that is known to exist.
    newest: u64,
    /// The oldest update that the peer can send again.
    oldest: u64,
    /// The interval in which a message of the peer was last received; `None` if it is only known from a state.
    last_seen: Option<u64>,
    has_left: bool,
    /// The newest update that was known at the end of the last interval. Missing updates up to this one are not just late.
    overdue_up_to: u64,
    /// The start of the first gap in the last request, and how often it was requested.
    requested: (u64, u32),
    /// Updates were given up, so the state of the peer is needed.
    is_lost: bool,
}

impl Peer {
    fn is_present(&self, intervals: u64, now: u64) -> bool {
        !self.has_left && !self.is_silent(intervals, now)
    }

    fn is_silent(&self, intervals: u64, now: u64) -> bool {
        self.last_seen.is_none_or(|seen| seen.saturating_add(intervals) < now)
    }

    fn is_new(&self, number: u64) -> bool {
        number > self.applied && !self.beyond.iter().any(|(first, last)| (*first..=*last).contains(&number))
    }

    /// Marks updates as applied, or as contained in a state.
    fn mark(&mut self, first: u64, last: u64) {
        self.newest = self.newest.max(last);
        if last <= self.applied || first > last {
            return;
        }
        let start = self.beyond.partition_point(|(_, before)| before.saturating_add(1) < first);
        let end = self.beyond.partition_point(|(after, _)| *after <= last.saturating_add(1));
        // Merge all ranges that it touches.
        let touched = &self.beyond[start..end.max(start)];
        let first = touched.first().map_or(first, |range| range.0.min(first));
        let last = touched.last().map_or(last, |range| range.1.max(last));
        self.beyond.splice(start..end.max(start), [(first, last)]);
        self.advance();
        if self.beyond.len() > MAX_GAPS {
            self.give_up(self.beyond[0].0 - 1);
        }
    }

    /// Advances over ranges that are now consecutive.
    fn advance(&mut self) {
        while let Some((first, last)) = self.beyond.first().copied()
            && first <= self.applied.saturating_add(1)
        {
            self.applied = self.applied.max(last);
            self.beyond.remove(0);
        }
    }

    /// The missing updates, up to the newest one that is known to exist.
    fn gaps(&self) -> impl Iterator<Item = (u64, u64)> {
        let befores = std::iter::once(self.applied).chain(self.beyond.iter().map(|(_, last)| *last));
        let afters = self.beyond.iter().map(|(first, _)| first - 1).chain([self.newest]);
        let gaps = befores.zip(afters).filter(|(before, after)| before < after);
        gaps.map(|(before, after)| (before + 1, after))
    }

    /// The gaps up to the newest update that was known at the last interval.
    fn overdue(&self) -> impl Iterator<Item = (u64, u64)> {
        let gaps = self.gaps().map(|(first, last)| (first, last.min(self.overdue_up_to)));
        gaps.filter(|(first, last)| first <= last)
    }

    /// Gives up all missing updates up to this number.
    fn give_up(&mut self, number: u64) {
        loop {
            let gap = self.gaps().next();
            let Some((_, last)) = gap.filter(|(first, _)| *first <= number) else { return };
            self.applied = last.min(number);
            self.is_lost = true;
            self.advance();
        }
    }
}

/// The other nodes.
#[derive(Debug, Default)]
pub(crate) struct Peers {
    peers: BTreeMap<NodeId, Peer>,
    /// The number of intervals that have passed.
    pub(crate) interval: u64,
}

/// What has to be requested after an interval.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    /// Missing updates.
    pub(crate) updates: Vec<UpdateRange>,
    /// Peers whose state is needed because updates were given up.
    pub(crate) states: Vec<NodeId>,
}

impl Peers {
    fn peer(&mut self, id: NodeId) -> &mut Peer {
        if self.peers.len() >= MAX_PEERS && !self.peers.contains_key(&id) {
            let oldest = self.peers.iter().min_by_key(|(_, peer)| peer.last_seen).map(|(id, _)| *id);
            oldest.map(|id| self.peers.remove(&id));
        }
        self.peers.entry(id).or_default()
    }

    /// Records that a message of this peer was received.
    pub(crate) fn mark_seen(&mut self, id: NodeId) {
        let interval = self.interval;
        self.peer(id).last_seen = Some(interval);
    }

    /// Whether an update has not been applied.
    pub(crate) fn is_new(&self, id: NodeId, number: u64) -> bool {
        self.peers.get(&id).map_or(number > 0, |peer| peer.is_new(number))
    }

    /// Records that an update exists.
    pub(crate) fn mark_known(&mut self, id: NodeId, number: u64) {
        let peer = self.peer(id);
        peer.newest = peer.newest.max(number);
    }

    /// Whether all updates before this one have been applied or given up.
    pub(crate) fn applied_before(&self, id: NodeId, number: u64) -> bool {
        self.peers.get(&id).map_or(0, |peer| peer.applied).saturating_add(1) >= number
    }

    /// Marks an update as applied.
    pub(crate) fn mark(&mut self, id: NodeId, number: u64) {
        self.peer(id).mark(number, number);
    }

    /// Handles a heartbeat: which updates the peer has sent, and which of them it can send again.
    pub(crate) fn heartbeat(&mut self, id: NodeId, newest: u64, oldest: u64) {
        let peer = self.peer(id);
        peer.newest = peer.newest.max(newest);
        peer.oldest = peer.oldest.max(oldest);
        peer.has_left = false;
    }

    /// Marks a peer as gone: it no longer counts and receives no requests. Its messages in transit are still applied.
    pub(crate) fn leave(&mut self, id: NodeId) {
        self.peer(id).has_left = true;
    }

    /// Marks updates as contained in a received state.
    pub(crate) fn mark_contained(&mut self, (id, first, last): UpdateRange) {
        self.peer(id).mark(first, last);
    }

    /// All applied updates.
    pub(crate) fn applied(&self) -> impl Iterator<Item = UpdateRange> {
        self.peers.iter().flat_map(|(id, peer)| {
            let first = (peer.applied > 0).then_some((1, peer.applied));
            first.into_iter().chain(peer.beyond.iter().copied()).map(|(first, last)| (*id, first, last))
        })
    }

    /// The number of peers that were seen in the last `intervals` and have not left.
    pub(crate) fn count_present(&self, intervals: u64) -> usize {
        self.peers.values().filter(|peer| peer.is_present(intervals, self.interval)).count()
    }

    /// Whether this peer was seen in the last `intervals` and has not left.
    pub(crate) fn is_present(&self, id: NodeId, intervals: u64) -> bool {
        self.peers.get(&id).is_some_and(|peer| peer.is_present(intervals, self.interval))
    }

    /// Whether updates of peers that were seen in the last `intervals` are missing.
    pub(crate) fn have_gaps(&self, intervals: u64) -> bool {
        let mut present = self.peers.values().filter(|peer| peer.is_present(intervals, self.interval));
        present.any(|peer| peer.gaps().next().is_some())
    }

    /// Whether no message of this peer was received in the last `intervals`.
    pub(crate) fn is_silent(&self, id: NodeId, intervals: u64) -> bool {
        self.peers.get(&id).is_none_or(|peer| peer.is_silent(intervals, self.interval))
    }

    /// Ends an interval without requests.
    pub(crate) fn skip_interval(&mut self) {
        self.interval += 1;
    }

    /// Ends an interval, and returns what to request: gaps that existed at the end of the previous interval already. A
    /// gap is given up after several requests without success. Nothing is requested from peers that were not seen in the
    /// last `intervals`.
    pub(crate) fn end_interval(&mut self, intervals: u64) -> Missing {
        self.skip_interval();
        let mut missing = Missing::default();
        for (id, peer) in &mut self.peers {
            if !peer.is_present(intervals, self.interval) {
                continue;
            }
            if peer.oldest > 0 {
                peer.give_up(peer.oldest - 1);
            }
            let overdue = peer.overdue().next();
            if let Some((first, last)) = overdue {
                let attempts = if peer.requested.0 == first { peer.requested.1 + 1 } else { 1 };
                peer.requested = (first, attempts);
                if attempts > MAX_ATTEMPTS {
                    peer.give_up(last);
                }
                let gaps = peer.overdue().take(MAX_REQUESTS);
                missing.updates.extend(gaps.map(|(first, last)| (*id, first, last)));
            }
            peer.overdue_up_to = peer.newest;
            if std::mem::take(&mut peer.is_lost) {
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

    const A: NodeId = NodeId([1; 16]);

    fn apply(peers: &mut Peers, number: u64) -> bool {
        peers.mark_seen(A);
        let is_new = peers.is_new(A, number);
        if is_new {
            peers.mark(A, number);
        }
        is_new
    }

    proptest! {
        #[test]
        fn every_update_is_applied_once_in_any_order(numbers in prop::collection::vec(1..40_u64, 0..200)) {
            let mut peers = Peers::default();
            let mut applied = std::collections::BTreeSet::new();
            for number in numbers {
                prop_assert_eq!(apply(&mut peers, number), applied.insert(number));
                let next = (1..).find(|number| !applied.contains(number)).unwrap();
                let seen = peers.applied().next().filter(|(_, first, _)| *first == 1);
                prop_assert_eq!(seen.map_or(0, |(_, _, last)| last), next - 1);
                prop_assert_eq!(peers.applied().map(|(_, first, last)| last - first + 1).sum::<u64>(), applied.len() as u64);
                let peer = &peers.peers[&A];
                prop_assert!(peer.beyond.windows(2).all(|pair| pair[0].1 + 1 < pair[1].0));
            }
        }

        #[test]
        fn arbitrary_numbers_do_not_panic(numbers in prop::collection::vec((0..4_u8, any::<u64>()), 0..50)) {
            let mut peers = Peers::default();
            for (what, number) in numbers {
                match what {
                    0 => drop(apply(&mut peers, number)),
                    1 => peers.heartbeat(A, number, number / 2),
                    2 => peers.mark_contained((A, number / 3, number)),
                    _ => drop(peers.end_interval(10)),
                }
            }
        }
    }

    #[test]
    fn a_gap_is_requested_when_it_has_lasted_an_interval() {
        let mut peers = Peers::default();
        for number in [1, 2, 5] {
            assert!(apply(&mut peers, number));
        }
        assert_eq!(peers.end_interval(10), Missing::default(), "it may just be late");
        assert_eq!(peers.end_interval(10).updates, [(A, 3, 4)]);
        assert!(apply(&mut peers, 3) && apply(&mut peers, 4));
        assert!(!apply(&mut peers, 3));
        assert_eq!(peers.end_interval(10), Missing::default());
    }

    #[test]
    fn a_heartbeat_shows_that_the_last_updates_are_missing() {
        let mut peers = Peers::default();
        assert!(apply(&mut peers, 1));
        peers.heartbeat(A, 3, 1);
        assert!(apply(&mut peers, 3));
        peers.heartbeat(A, 5, 1);
        peers.end_interval(10);
        assert_eq!(peers.end_interval(10).updates, [(A, 2, 2), (A, 4, 5)], "all gaps at once");
    }

    #[test]
    fn updates_that_no_node_keeps_are_replaced_by_the_state() {
        let mut peers = Peers::default();
        assert!(apply(&mut peers, 1) && apply(&mut peers, 9));
        assert_eq!(peers.end_interval(10), Missing::default());
        peers.heartbeat(A, 9, 6);
        assert_eq!(peers.end_interval(10), Missing { updates: vec![(A, 6, 8)], states: vec![A] });
        assert!(!apply(&mut peers, 5) && apply(&mut peers, 6));
    }

    #[test]
    fn unanswered_requests_are_given_up() {
        let mut peers = Peers::default();
        assert!(apply(&mut peers, 3));
        let mut asked = 0;
        let lost = (0..20).find(|_| {
            peers.mark_seen(A);
            let missing = peers.end_interval(10);
            asked += missing.updates.len();
            !missing.states.is_empty()
        });
        assert!(lost.is_some());
        assert_eq!(asked, 5);
        assert_eq!(peers.applied().next(), Some((A, 1, 3)));
    }

    #[test]
    fn silent_and_departed_peers_are_not_counted_and_get_no_requests() {
        let mut peers = Peers::default();
        assert!(apply(&mut peers, 2));
        assert_eq!(peers.count_present(2), 1);
        peers.end_interval(2);
        peers.end_interval(2);
        assert_eq!(peers.count_present(2), 1);
        assert_eq!(peers.end_interval(2), Missing::default());
        assert_eq!(peers.count_present(2), 0);
        assert!(!apply(&mut peers, 2), "its numbers are remembered");
        assert_eq!(peers.count_present(2), 1);
        peers.leave(A);
        assert_eq!(peers.count_present(2), 0);
        assert!(apply(&mut peers, 1), "its leave message came first");
        assert_eq!(peers.end_interval(2), Missing::default());
    }

    #[test]
    fn a_state_contains_updates() {
        let mut peers = Peers::default();
        assert!(apply(&mut peers, 7) && apply(&mut peers, 11));
        peers.mark_contained((A, 1, 9));
        peers.mark_contained((A, 14, 20));
        assert!(!apply(&mut peers, 8) && !apply(&mut peers, 15));
        assert!(apply(&mut peers, 10) && apply(&mut peers, 13));
        assert_eq!(peers.applied().collect::<Vec<_>>(), [(A, 1, 11), (A, 13, 20)]);
        peers.mark_contained((A, 2, 12));
        assert_eq!(peers.applied().collect::<Vec<_>>(), [(A, 1, 20)]);
    }

    #[test]
    fn peers_in_a_state_are_counted_from_their_first_message_on() {
        let mut peers = Peers::default();
        peers.mark_contained((A, 1, 9));
        assert_eq!(peers.count_present(10), 0);
        assert!(!apply(&mut peers, 9));
        assert_eq!(peers.count_present(10), 1);
    }

    #[test]
    fn the_numbers_of_peers_and_gaps_are_bounded() {
        let mut peers = Peers::default();
        for number in 0..2 * MAX_PEERS {
            let mut id = [0; 16];
            id[..8].copy_from_slice(&(number as u64).to_be_bytes());
            peers.mark_seen(NodeId(id));
        }
        assert_eq!(peers.peers.len(), MAX_PEERS);
        for number in (1..3 * MAX_GAPS as u64).map(|number| 2 * number) {
            peers.mark(A, number);
        }
        assert!(peers.peers[&A].beyond.len() <= MAX_GAPS);
    }
}
