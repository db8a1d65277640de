//! The ledger: what a node knows of each meter, and what it has not told the others yet.
//!
//! A claim is decided on the spot, on what is known: own units and those that others have told. What is charged is
//! also noted as *pending*. Each interval the node takes the pending units as [`Usage`]s and tells them; what others
//! tell is merged.
//!
//! - [`Ledger::take_each`] and [`Ledger::take_parts`] give what is pending, each meter once for each segment of time; from
//!   then on it counts as told. [`Ledger::put_back`] makes it pending again if it could not be told. All leave what is known
//!   as it is.
//! - [`Ledger::merge`] adds a usage of another node; whoever calls it sees to it that each is added once.
//! - [`Ledger::states`] gives what is known, a part after the other. [`Ledger::raise`] takes such a part in by maximum,
//!   so that it does no harm when it comes twice or overlaps with usages.
//!
//! The work of an interval is that of what was charged in it, never that of all meters.

mod answer;
#[cfg(test)]
mod changing_limits;
mod entry;
mod heard;
mod logbook;
mod lot;
mod merge;
mod print;
mod settle;
mod shard;
mod slab;
mod slice;
mod slot;
#[cfg(test)]
mod tests;
mod units;

use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};

use ratelimit_core::{
    Answer, Claim, Claims, ErrorKind, Meter, MeterId, Mode, Refund, State, StoreError, Timestamp, Verdict,
    Verdicts,
};

pub(crate) use self::answer::{answer, answer_now};
use self::heard::Heard;
use self::lot::{Held, Lots};
use self::print::{Print, Prints};
pub(crate) use self::settle::{Owed, Reading};
use self::shard::Room;
pub(crate) use self::units::Units;
use crate::names::Name;

/// What was charged to one meter on one node, and not told yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Usage {
    pub(crate) name: Name,
    /// How the meter counted when it was charged.
    pub(crate) meter: Meter,
    pub(crate) units: Units,
}

/// What a node knows of one meter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Known {
    pub(crate) name: Name,
    pub(crate) meter: Meter,
    pub(crate) state: State,
}

/// What a node knows of all meters.
pub(crate) struct Ledger {
    lots: Lots,
    prints: Prints,
    room: Room,
    walk: Walk,
}

/// Which shard is tidied next.
#[derive(Default)]
#[repr(align(128))]
struct Walk(AtomicUsize);

/// The most shards, and how many meters of a full ledger fall to each if there are fewer.
///
/// What each claim needs of its shard should still be near to the processor when the next claim on it comes; with four times
/// as many a check of 100,000 keys takes a tenth longer.
const SHARDS: usize = 256;
const SHARE: usize = 256;

/// How many meters are looked at in one go, and how many shards are visited for it.
const LOOKS: usize = 8;
const VISITS: usize = 16;

/// How many meters are looked at for one that makes room for another, and in an interval.
const SEARCHED: usize = 64;

impl Ledger {
    /// A ledger of at most so many meters; its secrets come from the seed, if there is one.
    pub(crate) fn new(max_keys: usize, seed: Option<u64>) -> Self {
        let shards = (max_keys / SHARE).clamp(1, SHARDS).next_power_of_two();
        Self {
            lots: Lots::new(shards),
            prints: Prints::new(seed),
            room: Room::new(max_keys),
            walk: Walk::default(),
        }
    }

    /// Of how many meters something is known.
    pub(crate) fn len(&self) -> usize {
        self.room.taken()
    }

    #[inline]
    fn shard(&self, print: Print) -> Held<'_> {
        self.lots.hold(print.shard(self.lots.len()))
    }

    /// Decides a slice, as [`SyncCounterStore::claim_now`](ratelimit_core::SyncCounterStore::claim_now).
    pub(crate) fn claim_now(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        let (now, mode) = (claims.now(), claims.mode());
        if let [claim] = &*claims {
            let (admitted, verdict) =
                self.claim_one_now(now, mode, &claim.id, claim.cost, &claim.meter, |decided| decided)?;
            let charged = admitted && mode != Mode::Peek;
            return Ok(Answer { admitted, charged, now, verdicts: Verdicts::from_iter([verdict]) });
        }
        if mode != Mode::Peek {
            self.make_room(claims.len(), now);
        }
        slice::decide(self, claims)
    }

    /// As [`SyncCounterStore::claim_one_now`](ratelimit_core::SyncCounterStore::claim_one_now).
    #[inline]
    pub(crate) fn claim_one_now<R>(
        &self,
        now: Timestamp,
        mode: Mode,
        id: &MeterId<'_>,
        cost: u64,
        meter: &Meter,
        then: impl FnOnce(Result<(bool, Verdict), StoreError>) -> R,
    ) -> R {
        let claim = &Claim { id: *id, cost, meter: *meter };
        let print = self.prints.of(id);
        let mut shard = self.shard(print);
        let Some((admitted, verdict, tidy)) = shard.claim_here(print, claim, now, mode) else {
            return then(self.claim_unusual(now, mode, claim, print, shard));
        };
        drop(shard);
        if tidy {
            self.tidy(now);
        }
        then(Ok((admitted, verdict)))
    }

    /// A claim on a meter that is not known, or that is not decided in its slot.
    #[inline(never)]
    fn claim_unusual(
        &self,
        now: Timestamp,
        mode: Mode,
        claim: &Claim<'_>,
        print: Print,
        mut shard: Held<'_>,
    ) -> Result<(bool, Verdict), StoreError> {
        let decided = shard.claim_opened(print, claim, now, mode);
        drop(shard);
        let Some((admitted, verdict, tidy)) = decided else {
            return self.claim_new(now, mode, claim, print);
        };
        if tidy {
            self.tidy(now);
        }
        Ok((admitted, verdict))
    }

    /// A claim on a meter that was not known a moment ago.
    fn claim_new(
        &self,
        now: Timestamp,
        mode: Mode,
        claim: &Claim<'_>,
        print: Print,
    ) -> Result<(bool, Verdict), StoreError> {
        let admitted = mode == Mode::Force || claim.cost <= claim.meter.limit();
        if !admitted || mode == Mode::Peek || claim.cost == 0 {
            let verdict = claim.meter.verdict(&claim.meter.fresh(), claim.cost, now, None);
            return Ok((admitted, verdict));
        }
        self.make_room(1, now);
        let mut shard = self.shard(print);
        // Another thread may have made it in the meantime.
        if !shard.is_known(print) && !shard.make(print, || Name::new(&claim.id), &claim.meter, &self.room) {
            return Err(full());
        }
        let decided = shard.claim(print, claim, now, mode);
        decided.map(|(admitted, verdict, _)| (admitted, verdict)).ok_or_else(full)
    }

    /// Gives units back.
    pub(crate) fn refund_now(&self, now: Timestamp, refunds: &[Refund<'_>]) {
        for refund in refunds {
            let print = self.prints.of(&refund.id);
            self.shard(print).refund(print, refund, now);
        }
    }

    /// Forgets meters, and what was not told of them. Nobody else is told.
    pub(crate) fn reset_now(&self, claims: Claims<'_>) {
        for claim in claims.iter() {
            let print = self.prints.of(&claim.id);
            self.shard(print).remove(print, &self.room);
        }
    }

    /// Takes all that is pending, in parts of so many. All of one meter is in one part, and so may be more: all of a shard in
    /// which a meter has something pending twice.
    pub(crate) fn take_parts(&self, most: usize) -> Vec<Vec<Usage>> {
        let mut parts: Vec<Vec<Usage>> = Vec::new();
        for number in self.lots.telling() {
            let mut taken = Vec::new();
            let each = |name: &Name, meter: &Meter, units| {
                taken.push(Usage { name: name.clone(), meter: *meter, units });
            };
            let is_each_once = self.lots.hold(number).take(each);
            let mut rest = taken.into_iter();
            while rest.len() > 0 {
                let room = parts.last().map_or(0, |part| most.saturating_sub(part.len()));
                let fits = room >= if is_each_once { 1 } else { rest.len() };
                if !fits {
                    parts.push(Vec::new());
                }
                let wanted = match (is_each_once, fits) {
                    (true, true) => room,
                    (true, false) => most.max(1),
                    (false, _) => rest.len(),
                };
                if let Some(part) = parts.last_mut() {
                    part.extend(rest.by_ref().take(wanted));
                }
            }
        }
        parts
    }

    /// Takes all that is pending, one after another. Checks of other meters wait meanwhile, so it is not for long work.
    pub(crate) fn take_each(&self, mut each: impl FnMut(&Name, &Meter, Units)) {
        for number in self.lots.telling() {
            self.lots.hold(number).take(&mut each);
        }
    }

    /// Makes pending again what was taken and could not be told. What was reset meanwhile is gone.
    pub(crate) fn put_back(&self, usages: impl IntoIterator<Item = Usage>) {
        for usage in usages {
            let print = self.prints.of(&usage.name.id());
            self.shard(print).put_back(print, usage);
        }
    }

    /// Adds what another node has charged. Gives how many could not be counted: there is no room for a further meter, or here
    /// the meter counts in other segments.
    pub(crate) fn merge<'a>(&self, mut told: impl Iterator<Item = (MeterId<'a>, Meter, Units)>) -> u64 {
        let mut heard = Heard::default();
        let mut uncounted = 0;
        while heard.gather(&self.prints, &mut told) {
            let order = heard.by_shard(self.lots.len());
            let shard = |number: &u32| heard.at(*number).print.shard(self.lots.len());
            for some in order.chunk_by(|one, other| shard(one) == shard(other)) {
                let mut held = self.lots.hold(shard(&some[0]));
                held.reserve(some.iter().map(|number| heard.at(*number).print), &self.room);
                for told in some.iter().map(|number| heard.at(*number)) {
                    let (id, meter) = heard.meter(told);
                    let is_counted = held.merge((told.print, &id), meter, &told.units, &self.room);
                    uncounted += u64::from(!is_counted);
                }
            }
        }
        uncounted
    }

    /// Takes in what another node knows, by maximum; what is pending here is counted beside it. `false` as
    /// [`merge`](Self::merge).
    pub(crate) fn raise(&self, id: &MeterId<'_>, meter: &Meter, state: State) -> bool {
        let print = self.prints.of(id);
        self.shard(print).raise((print, id), meter, state, &self.room)
    }

    /// What is known, the part with this number; `None` after the last one.
    pub(crate) fn states(&self, part: usize) -> Option<Vec<Known>> {
        (part < self.lots.len()).then(|| self.lots.hold(part).states())
    }

    /// Goes on with the walk round the ledger, further than a claim does: once an interval, so that what is over is forgotten
    /// with little traffic, too.
    pub(crate) fn forget(&self, now: Timestamp) {
        self.walk(SEARCHED, SEARCHED, now);
    }

    /// Goes on with the walk round the ledger for a few steps.
    #[cold]
    fn tidy(&self, now: Timestamp) {
        self.walk(LOOKS, VISITS, now);
    }

    /// Tidies up before so many meters come; further where there is no room for them.
    fn make_room(&self, wanted: usize, now: Timestamp) {
        self.tidy(now);
        if !self.room.is_there_for(wanted) {
            self.walk(SEARCHED, self.lots.len(), now);
        }
    }

    /// Holds no lock when it is called, and waits for none.
    fn walk(&self, most_looks: usize, most_visits: usize, now: Timestamp) {
        let start = self.walk.0.load(Ordering::Relaxed);
        let (mut looks, mut visits) = (0, 0);
        while looks < most_looks && visits < most_visits.min(self.lots.len()) {
            let number = start.wrapping_add(visits) & (self.lots.len() - 1);
            visits += 1;
            if let Some(mut shard) = self.lots.try_hold(number) {
                looks += shard.sweep(most_looks - looks, now, &self.room);
            }
        }
        self.walk.0.store(start.wrapping_add(visits), Ordering::Relaxed);
    }
}

impl Usage {
    /// Whether it can still change a decision on this state.
    fn matters_to(&self, state: &State) -> bool {
        match (&self.meter, state, self.units) {
            (Meter::Window(window), State::Window(state), Units::Window { segment, .. }) => {
                window.place(state.at).0.saturating_sub(segment) <= u64::from(window.carried())
            }
            _ => true,
        }
    }
}

impl fmt::Debug for Ledger {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("len", &self.len()).finish_non_exhaustive()
    }
}

#[cold]
fn full() -> StoreError {
    StoreError::new("cluster", ErrorKind::Full, "there is no room for another key; raise `max_keys`")
}
