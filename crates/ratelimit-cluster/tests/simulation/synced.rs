//! A fleet of `Synced` nodes: slow round trips, partitions, lost answers, requests delivered twice, synchronizations that are
//! dropped, restarts.

use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use ratelimit_cluster::{SyncConfig, Synced};
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{CLOCK_SLACK, Claim, MeterId, Mode, Receipt, Refund, Verdict};
use ratelimit_core::{Limit, SyncCounterStore as _, Timestamp};
use ratelimit_memory::MemoryStore;

use crate::limits::{limit, period};
use crate::link::Link;
use crate::overs::{Admission, kept, overs};
use crate::random::Random;

const KEYS: usize = 2;
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// No trip takes more polls than this: six on the way there, and six on the way back, and one for the end.
const POLLS: u64 = 14;

/// What came of one seed, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    claims: u64,
    admitted: u64,
    /// Synchronizations that failed.
    failed: u64,
    /// Fleets in which more than the limit was admitted.
    beyond: u64,
    /// Fleets in which nothing goes wrong and every node came to know all, checked to the unit.
    agreed: u64,
    /// The most units beyond the limit, in hundredths of it: if nothing goes wrong, and if all does.
    worst: [u64; 2],
}

enum Event {
    Sync(usize),
    Poll(usize),
    Claim,
    /// Units of a log are given back: the key and the place of the admission.
    Refund(usize, usize),
    Mishap,
}

type Task = Pin<Box<dyn Future<Output = bool>>>;

/// One life of a node.
struct Life {
    node: Rc<Synced<Link>>,
    link: Link,
    is_over: bool,
    sync: Option<Task>,
    /// What it has charged and not begun to send, and what it is sending: each the key and its place there.
    unsent: Vec<(usize, usize)>,
    under_way: Vec<(usize, usize)>,
    /// The step at which the sync under way began.
    began: u64,
    /// The step at which the last sync of each key began that has ended well.
    asked: [Option<u64>; KEYS],
}

struct Fleet {
    random: Random,
    is_calm: bool,
    limit: Limit,
    shared: Arc<MemoryStore>,
    interval: u64,
    /// How many meters the store is asked about in one trip, and how many trips one after another that takes at most.
    batch: usize,
    trips: u64,
    lives: Vec<Life>,
    /// What is to happen, by time and then in the order in which it was planned.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
    now: Timestamp,
    step: u64,
    admitted: [Vec<Admission>; KEYS],
    /// Of each admission the step at which it was sent.
    sent_at: [Vec<Option<u64>>; KEYS],
    /// Of each admission the units of others that its node may not have known of.
    unseen: [Vec<u64>; KEYS],
    found: Found,
}

/// Runs one seed; what was wrong, if anything.
fn run(seed: u64) -> Result<Found, String> {
    let mut random = Random::new(seed);
    let count = if random.chance(800) { random.between(2, 8) } else { random.between(9, 50) };
    let limit = limit(&mut random);
    let period = period(&limit);
    let interval = (period / 200).max(1_000) * (random.between(1, 80) / random.between(1, 10)).max(1);
    // What there is to tell goes in one trip, or in one for each key at once and for each segment one after another.
    let (batch, trips) = match limit.meter_for(b"0") {
        Meter::Window(window) if window.carried() < 2 && random.chance(500) => {
            (1, u64::from(window.carried()) + 3)
        }
        _ => (500, 1),
    };
    let mut fleet = Fleet {
        is_calm: random.chance(500),
        random,
        limit,
        shared: Arc::new(MemoryStore::new()),
        interval,
        batch,
        trips,
        lives: Vec::new(),
        events: BTreeMap::new(),
        planned: 0,
        now: START,
        step: 0,
        admitted: [const { Vec::new() }; KEYS],
        sent_at: [const { Vec::new() }; KEYS],
        unseen: [const { Vec::new() }; KEYS],
        found: Found::default(),
    };
    (0..count).for_each(|_| fleet.begin());
    fleet.live((3 * period).min(interval * 3_000 / count), period);
    fleet.end()
}

impl Fleet {
    fn plan(&mut self, after: u64, event: Event) {
        self.planned += 1;
        self.events.insert((self.now.as_nanos() + after, self.planned), event);
    }

    /// A node begins its life.
    fn begin(&mut self) {
        let link = Link::new(self.shared.clone(), Random::new(self.random.below(u64::MAX)));
        if self.is_calm {
            link.calm();
        }
        let (seed, batch) = (Some(self.random.below(u64::MAX)), self.batch);
        let config = SyncConfig::default().seed(seed).batch_size(batch);
        self.lives.push(Life {
            node: Rc::new(Synced::with_config(link.clone(), config)),
            link,
            is_over: false,
            sync: None,
            unsent: Vec::new(),
            under_way: Vec::new(),
            began: 0,
            asked: [None; KEYS],
        });
        let first = self.random.below(self.interval);
        self.plan(first, Event::Sync(self.lives.len() - 1));
    }

    fn live(&mut self, length: u64, period: u64) {
        // From half of what may be admitted to four times as much, in units of 1.8 each.
        let capacity = u128::from(self.limit.burst()) * KEYS as u128 * u128::from(period + length);
        let capacity = u64::try_from(capacity / u128::from(period)).unwrap_or(u64::MAX);
        for _ in 0..(capacity * self.random.between(5, 40) / 18).clamp(50, 1_500) {
            let after = self.random.below(length);
            self.plan(after, Event::Claim);
        }
        for _ in 0..if self.is_calm { 0 } else { self.random.between(3, 30) } {
            let after = self.random.below(length);
            self.plan(after, Event::Mishap);
        }
        self.run_until(self.now + Duration::from_nanos(length));
    }

    fn run_until(&mut self, end: Timestamp) {
        while let Some(next) = self.events.first_entry()
            && next.key().0 < end.as_nanos()
        {
            let ((at, _), event) = next.remove_entry();
            self.now = Timestamp::from_nanos(at);
            self.step += 1;
            match event {
                Event::Sync(life) if !self.lives[life].is_over => self.sync(life),
                Event::Poll(life) if !self.lives[life].is_over => self.poll(life),
                Event::Claim => self.claim(),
                Event::Refund(key, place) => self.refund(key, place),
                Event::Mishap => self.mishap(),
                Event::Sync(_) | Event::Poll(_) => {} // of a life that is over
            }
        }
        self.now = end;
    }

    fn sync(&mut self, nth: usize) {
        let (now, step) = (self.now, self.step);
        let life = &mut self.lives[nth];
        if life.sync.is_none() {
            let node = life.node.clone();
            life.sync = Some(Box::pin(async move { node.sync(now).await.is_ok() }));
            life.under_way = std::mem::take(&mut life.unsent);
            life.began = step;
            self.poll(nth);
        }
        self.plan(self.interval, Event::Sync(nth));
    }

    fn poll(&mut self, nth: usize) {
        let life = &mut self.lives[nth];
        let Some(sync) = &mut life.sync else { return };
        let polled = sync.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        let std::task::Poll::Ready(is_well) = polled else {
            let after = self.random.below(self.interval / (POLLS * self.trips));
            self.plan(after, Event::Poll(nth));
            return;
        };
        life.sync = None;
        let under_way = std::mem::take(&mut life.under_way);
        if !is_well {
            self.found.failed += 1;
            life.unsent.extend(under_way); // some of it may have been sent: what is unseen is only checked if all is well
            return;
        }
        for (key, place) in under_way {
            life.asked[key] = Some(life.began);
            self.sent_at[key][place] = Some(self.step);
        }
    }

    fn claim(&mut self) {
        let alive: Vec<usize> = (0..self.lives.len()).filter(|life| !self.lives[*life].is_over).collect();
        let by = alive[self.random.place(alive.len())];
        let key = self.random.place(KEYS);
        let cost = if self.random.chance(900) { 1 } else { self.random.between(1, 9) };
        self.found.claims += 1;
        let (admitted, verdict) = self.decide(by, key, cost, Mode::Charge);
        if !admitted {
            return;
        }
        // Others' units that were not sent before this node last asked.
        let asked = self.lives[by].asked[key];
        let is_unseen = |(one, sent): &(&Admission, &Option<u64>)| {
            one.by != by && sent.zip(asked).is_none_or(|(sent, asked)| sent > asked)
        };
        let all = self.admitted[key].iter().zip(&self.sent_at[key]);
        let unseen = all.filter(is_unseen).map(|(one, _)| one.cost).sum();
        self.unseen[key].push(unseen);
        self.lives[by].unsent.push((key, self.admitted[key].len()));
        let receipt = verdict.receipt;
        self.admitted[key].push(Admission { at: self.now, cost, by, receipt, returned: None });
        self.sent_at[key].push(None);
        if let Meter::Log(log) = self.limit.meter_for(b"0")
            && self.random.chance(300)
        {
            let after = self.random.below(log.window());
            self.plan(after, Event::Refund(key, self.admitted[key].len() - 1));
        }
    }

    /// Gives units of a log back that still count, on the node that admitted them.
    fn refund(&mut self, key: usize, place: usize) {
        let one = &mut self.admitted[key][place];
        let (life, meter) = (&self.lives[one.by], self.limit.meter_for(b"0"));
        let has_left = one.at.as_nanos() + period(&self.limit) < self.now.as_nanos();
        if life.is_over || one.returned.is_some() || has_left {
            return;
        }
        let name = [u8::try_from(key).unwrap_or(0)];
        let id = MeterId { namespace: "", scope: self.limit.scope(), key: &name };
        life.node.refund_now(self.now, &[Refund { id, cost: one.cost, meter, receipt: one.receipt }]);
        one.returned = Some(self.now);
    }

    /// All units of a log are given back: then nothing is in the store but what has left on its own node.
    fn give_back(&mut self, window: u64) -> Result<(), String> {
        for key in 0..KEYS {
            (0..self.admitted[key].len()).for_each(|place| self.refund(key, place));
        }
        self.events.retain(|_, event| matches!(event, Event::Sync(_) | Event::Poll(_)));
        self.run_until(self.now + Duration::from_nanos(4 * self.interval));
        for (key, admitted) in self.admitted.iter().enumerate() {
            let most = kept(admitted, self.now, window, (0, 8 * self.interval));
            let name = [u8::try_from(key).unwrap_or(0)];
            let id = MeterId { namespace: "", scope: self.limit.scope(), key: &name };
            let meter = self.limit.meter_for(b"0");
            let peek = self.shared.claim_one_now(self.now, Mode::Peek, &id, 0, &meter);
            let used = meter.limit() - peek.expect("an answer").1.remaining;
            if used > most {
                let text = self.describe();
                return Err(format!("the store counts {used} units that nobody holds, not {most}: {text}"));
            }
        }
        Ok(())
    }

    /// Whether it is admitted, and the verdict.
    fn decide(&self, by: usize, key: usize, cost: u64, mode: Mode) -> (bool, Verdict) {
        let name = [u8::try_from(key).unwrap_or(0)];
        let id = MeterId { namespace: "", scope: self.limit.scope(), key: &name };
        let claim = Claim { id, cost, meter: self.limit.meter_for(b"0") };
        self.lives[by]
            .node
            .claim_one_now(self.now, mode, &claim.id, claim.cost, &claim.meter)
            .expect("an answer")
    }

    fn mishap(&mut self) {
        let nth = self.random.place(self.lives.len());
        let life = &mut self.lives[nth];
        match self.random.below(10) {
            0..4 => life.link.cut(true),
            4..6 => self.lives.iter().for_each(|life| life.link.cut(false)),
            6..8 => life.sync = None, // it is dropped on the way
            _ if !life.is_over => {
                (life.is_over, life.sync) = (true, None);
                self.begin();
            }
            _ => {}
        }
    }

    fn end(mut self) -> Result<Found, String> {
        let meter = self.limit.meter_for(b"0");
        for key in 0..KEYS {
            let admitted = &self.admitted[key];
            self.found.admitted += admitted.len() as u64;
            for (place, over) in overs(&meter, admitted).into_iter().enumerate().filter(|(_, over)| *over > 0)
            {
                let is_seen = self.is_calm && self.is_bounded_by_what_is_unseen(&meter);
                let bound =
                    if is_seen { self.unseen[key][place] } else { alone(&meter, &admitted[..=place]) };
                if over > bound {
                    let (at, text) = (admitted[place].at.since(START), self.describe());
                    return Err(format!(
                        "{over} units beyond {}, and not {bound}, at {at:?}: {text}",
                        self.limit
                    ));
                }
                self.found.beyond = 1;
                let worst = &mut self.found.worst[usize::from(!self.is_calm)];
                *worst = (*worst).max(over * 100 / meter.limit());
            }
        }
        if self.is_calm && self.is_bounded_by_what_is_unseen(&meter) {
            self.found.agreed = u64::from(self.agree(&meter)?);
        }
        if let (true, Meter::Log(log)) = (self.is_calm, &meter) {
            self.give_back(log.window())?;
        }
        Ok(self.found)
    }

    /// A log does not say how many of its units came since it was asked last. A store forgets a bucket when it has drained and
    /// the slack has passed, and takes later units for the first.
    fn is_bounded_by_what_is_unseen(&self, meter: &Meter) -> bool {
        match meter {
            Meter::Window(_) => true,
            Meter::Bucket(_) => Duration::from_nanos(2 * self.interval) <= CLOCK_SLACK,
            Meter::Log(_) => false,
        }
    }

    fn describe(&self) -> String {
        let weather = if self.is_calm { "calm" } else { "rough" };
        format!("{weather}, {} lives, interval {:?}", self.lives.len(), Duration::from_nanos(self.interval))
    }

    /// Each node charges once more and synchronizes: the last one then knows all that was admitted, of windows
    /// to the unit, of others at least. Returns whether any of it counts still.
    fn agree(&mut self, meter: &Meter) -> Result<bool, String> {
        self.events.retain(|_, event| matches!(event, Event::Sync(_) | Event::Poll(_)));
        self.run_until(self.now + Duration::from_nanos(4 * self.interval));
        let last = self.lives.len() - 1;
        for key in 0..KEYS {
            self.decide(last, key, 1, Mode::Force);
            let (at, by) = (self.now, last);
            self.admitted[key].push(Admission { at, cost: 1, by, receipt: Receipt::at(at), returned: None });
        }
        self.run_until(self.now + Duration::from_nanos(4 * self.interval));
        let mut counts = false;
        for key in 0..KEYS {
            let mut state = meter.fresh();
            for one in &self.admitted[key] {
                meter.charge(&mut state, one.cost, one.at);
            }
            let expected = meter.verdict(&state, 0, self.now, None).remaining;
            let found = self.decide(last, key, 0, Mode::Peek).1.remaining;
            counts |= expected < meter.limit();
            let is_window = matches!(meter, Meter::Window(_));
            if found > expected || is_window && found < expected {
                let (limit, text) = (&self.limit, self.describe());
                return Err(format!(
                    "{found} left of {limit} on the node that synchronized last, and not {expected}: {text}"
                ));
            }
        }
        Ok(counts)
    }
}

/// Each life by itself stays within the limit: what all of those may admit beyond it that admitted something that counts.
fn alone(meter: &Meter, admitted: &[Admission]) -> u64 {
    let now = admitted[admitted.len() - 1].at.as_nanos();
    let (most, span) = match meter {
        Meter::Window(window) => (window.limit(), window.segment() * (u64::from(window.carried()) + 1)),
        Meter::Bucket(bucket) => {
            let passed = now - START.as_nanos();
            (bucket.burst() + passed.div_ceil(bucket.interval()), passed)
        }
        Meter::Log(log) => (log.limit(), log.window()),
    };
    let begin = now.saturating_sub(span);
    let counting = admitted.iter().filter(|one| one.at.as_nanos() >= begin);
    let lives: std::collections::BTreeSet<usize> = counting.map(|one| one.by).collect();
    most * (lives.len() as u64 - 1)
}

/// Runs so many seeds; how many failed.
pub(crate) fn run_all(first: u64, count: u64) -> u64 {
    let (mut all, mut failed) = (Found::default(), 0);
    for seed in first..first.saturating_add(count) {
        match run(seed) {
            Ok(found) => {
                all = Found {
                    claims: all.claims + found.claims,
                    admitted: all.admitted + found.admitted,
                    failed: all.failed + found.failed,
                    beyond: all.beyond + found.beyond,
                    agreed: all.agreed + found.agreed,
                    worst: [all.worst[0].max(found.worst[0]), all.worst[1].max(found.worst[1])],
                }
            }
            Err(problem) => {
                failed += 1;
                println!("FAIL synced --seed {seed}: {problem}");
            }
        }
        let done = seed - first + 1;
        if done.is_multiple_of(1_000) {
            println!("synced: {done} of {count} seeds");
        }
    }
    let [calm, rough] = all.worst;
    println!(
        "synced: {count} seeds, at most {calm} % of the limit beyond it, {rough} % in partitions; {all:?}"
    );
    // A run in which nothing was contended, nothing failed or nobody came to agree would prove nothing.
    let is_vacuous = all.admitted * 5 < all.claims
        || all.beyond * 4 < count
        || all.agreed * 5 < count
        || all.failed < count;
    if count >= 100 && is_vacuous {
        println!("FAIL synced: too little was admitted, contended or failed for this to prove anything");
        failed += 1;
    }
    failed
}
