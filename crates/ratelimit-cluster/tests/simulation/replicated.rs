//! A fleet of replicated nodes: delays, messages repeated, out of order and lost, partitions, sending that fails,
//! restarts with and without leaving.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::executor::block_on;
use ratelimit_cluster::{ReplicaConfig, Replicated};
use ratelimit_core::meter::Meter;
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Refund};
use ratelimit_core::{Limit, SyncCounterStore as _, Timestamp};

use crate::limits::{limit, period};
use crate::overs::{Admission, kept, overs};
use crate::post::Post;
use crate::random::Random;

const KEYS: usize = 2;
const START: Timestamp = Timestamp::from_secs(1_800_000_000);

/// What befalls a fleet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Weather {
    /// Messages are late, repeated and out of order, and all come.
    Calm,
    /// The same, and nodes join and leave.
    Growing,
    /// Some messages are lost.
    Lossy,
    /// All of it, partitions, sending that fails, and restarts.
    Rough,
}

/// What came of one seed, or of several.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    claims: u64,
    admitted: u64,
    /// Updates that came once more.
    repeated: u64,
    /// Fleets in which more than the limit was admitted.
    beyond: u64,
    /// The most units beyond the limit, in hundredths of it.
    worst: u64,
    /// Fleets after which every node knew all, checked to the unit.
    agreed: u64,
}

enum Event {
    Broadcast(usize),
    Receive(usize, Arc<[u8]>),
    Claim,
    /// Units of a log are given back: the key and the place of the admission.
    Refund(usize, usize),
    Mishap,
}

/// One life of a node.
struct Life {
    node: Replicated<Post>,
    post: Post,
    /// Only nodes of the same side receive each other's messages.
    side: u64,
    begun: Timestamp,
    is_over: bool,
    /// Whether it is asked for decisions.
    is_ready: bool,
}

struct Fleet {
    random: Random,
    weather: Weather,
    limit: Limit,
    /// The time in which a limit's units come, in nanoseconds.
    period: u64,
    interval: u64,
    /// The longest that a message takes.
    delay: u64,
    lives: Vec<Life>,
    /// What is to happen, by time and then in the order in which it was planned.
    events: BTreeMap<(u64, u64), Event>,
    planned: u64,
    now: Timestamp,
    admitted: [Vec<Admission>; KEYS],
    claims: u64,
    /// A node has left, so nobody joins any more.
    left: bool,
    /// Lives that have ended, and of which something may be known to nobody.
    lost: u64,
}

/// Runs one seed; what was wrong, if anything.
fn run(seed: u64) -> Result<Found, String> {
    let mut random = Random::new(seed);
    let count = if random.chance(800) { random.between(2, 8) } else { random.between(9, 50) };
    let mut fleet = Fleet::new(random, count);
    let rounds = (6_000 / (count * count)).clamp(6, 60);
    fleet.live(rounds);
    fleet.end()
}

impl Fleet {
    fn new(mut random: Random, count: u64) -> Self {
        let limit = limit(&mut random);
        let period = period(&limit);
        let interval = (period / 200).max(1) * (random.between(1, 80) / random.between(1, 10)).max(1);
        let delay = interval / 100 * random.below(150);
        let all = [Weather::Calm, Weather::Growing, Weather::Lossy, Weather::Rough];
        let weather = all[random.place(all.len())];
        let (lives, events) = (Vec::new(), BTreeMap::new());
        let (admitted, now) = ([const { Vec::new() }; KEYS], START);
        let (claims, lost, planned) = (0, 0, 0);
        let mut fleet = Self {
            random,
            weather,
            limit,
            period,
            interval,
            delay,
            lives,
            events,
            planned,
            now,
            admitted,
            claims,
            left: false,
            lost,
        };
        (0..count).for_each(|_| fleet.begin());
        fleet
    }

    fn plan(&mut self, after: u64, event: Event) {
        self.planned += 1;
        self.events.insert((self.now.as_nanos() + after, self.planned), event);
    }

    /// A node begins its life.
    fn begin(&mut self) {
        let id = Some(u128::from(self.random.below(u64::MAX)));
        let keep = if self.random.chance(900) { 1 << 20 } else { 500 };
        let post = Post::default();
        let node = Replicated::with_config(post.clone(), ReplicaConfig::default().id(id).history_bytes(keep));
        self.lives.push(Life { node, post, side: 0, begun: self.now, is_over: false, is_ready: false });
        let first = self.random.below(self.interval);
        self.plan(first, Event::Broadcast(self.lives.len() - 1));
    }

    fn live(&mut self, rounds: u64) {
        // They have found each other before the first claim.
        let begin = 6 * self.interval + 4 * self.delay;
        self.run_until(self.now + Duration::from_nanos(begin));
        let length = (rounds * self.interval).min(3 * self.period);
        // From half of what may be admitted to four times as much, in units of 1.8 each.
        let capacity = u128::from(self.limit.burst()) * KEYS as u128 * u128::from(self.period + length);
        let capacity = u64::try_from(capacity / u128::from(self.period)).unwrap_or(u64::MAX);
        for _ in 0..(capacity * self.random.between(5, 40) / 18).clamp(50, 1_500) {
            let after = self.random.below(length);
            self.plan(after, Event::Claim);
        }
        let mishaps = match self.weather {
            Weather::Calm => 0,
            Weather::Growing | Weather::Lossy => 3,
            Weather::Rough => self.random.between(3, 30),
        };
        for _ in 0..mishaps {
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
            match event {
                Event::Broadcast(life) if !self.lives[life].is_over => {
                    let _ = block_on(self.lives[life].node.broadcast(self.now));
                    self.post(life);
                    self.plan(self.interval, Event::Broadcast(life));
                }
                Event::Receive(life, message) if !self.lives[life].is_over => {
                    block_on(self.lives[life].node.receive(&message, self.now));
                    self.lives[life].is_ready |= self.lives[life].node.has_joined();
                    self.post(life);
                }
                Event::Claim => self.claim(),
                Event::Refund(key, place) => self.refund(key, place),
                Event::Mishap => self.mishap(),
                Event::Broadcast(_) | Event::Receive(..) => {} // of a life that is over
            }
        }
        self.now = end;
    }

    /// Schedules the messages that a node has sent.
    fn post(&mut self, from: usize) {
        let is_lossy = matches!(self.weather, Weather::Lossy | Weather::Rough);
        for message in self.lives[from].post.take() {
            for to in 0..self.lives.len() {
                let is_cut = self.lives[to].side != self.lives[from].side;
                if self.lives[to].is_over || is_cut || is_lossy && self.random.chance(50) {
                    continue;
                }
                for _ in 0..=u64::from(self.random.chance(30)) {
                    let after = self.random.below(self.delay + 1);
                    self.plan(after, Event::Receive(to, message.clone()));
                }
            }
        }
    }

    fn claim(&mut self) {
        let ready: Vec<usize> = (0..self.lives.len())
            .filter(|life| {
                !self.lives[*life].is_over && (self.lives[*life].is_ready || self.weather == Weather::Rough)
            })
            .collect();
        if ready.is_empty() {
            return;
        }
        let by = ready[self.random.place(ready.len())];
        let key = self.random.place(KEYS);
        let cost = if self.random.chance(900) { 1 } else { self.random.between(1, 9) };
        let name = [u8::try_from(key).unwrap_or(0)];
        let id = MeterId { namespace: "", scope: self.limit.scope(), key: &name };
        let claims = [Claim { id, cost, meter: self.limit.meter_for(b"0") }];
        let claims = Claims::new(self.now, Mode::Charge, &claims).expect("a slice");
        self.claims += 1;
        let answer = self.lives[by].node.claim_now(claims).expect("an answer");
        if answer.admitted {
            let receipt = answer.verdicts[0].receipt;
            self.admitted[key].push(Admission { at: self.now, cost, by, receipt, returned: None });
            if matches!(self.limit.meter_for(b"0"), Meter::Log(_)) && self.random.chance(300) {
                let after = self.random.below(self.period);
                self.plan(after, Event::Refund(key, self.admitted[key].len() - 1));
            }
        }
    }

    /// Gives units back that still count, on the node that admitted them.
    fn refund(&mut self, key: usize, place: usize) {
        let one = &mut self.admitted[key][place];
        let life = &self.lives[one.by];
        if life.is_over || one.returned.is_some() || one.at.as_nanos() + self.period < self.now.as_nanos() {
            return;
        }
        let name = [u8::try_from(key).unwrap_or(0)];
        let id = MeterId { namespace: "", scope: self.limit.scope(), key: &name };
        let meter = self.limit.meter_for(b"0");
        life.node.refund_now(self.now, &[Refund { id, cost: one.cost, meter, receipt: one.receipt }]);
        one.returned = Some(self.now);
    }

    fn mishap(&mut self) {
        let life = self.random.place(self.lives.len());
        match self.weather {
            Weather::Calm | Weather::Lossy => {}
            Weather::Growing => {
                // What was under way between a node that leaves and one that joins would come to neither's peers.
                let newest = self.lives.iter().map(|life| life.begun).max().unwrap_or(START);
                let is_quiet = self.now.as_nanos() > newest.as_nanos() + self.growing();
                let others = self.lives.iter().filter(|life| !life.is_over).count();
                if self.left || is_quiet && others > 1 && self.random.chance(300) {
                    if !self.left && !self.lives[life].is_over {
                        block_on(self.lives[life].node.leave(self.now)).expect("it is sent");
                        self.post(life);
                        (self.lives[life].is_over, self.left) = (true, true);
                    }
                } else {
                    self.begin();
                }
            }
            Weather::Rough => match self.random.below(10) {
                0..3 => self.lives[life].side = self.random.below(3),
                3..5 => self.lives.iter_mut().for_each(|life| life.side = 0),
                5..8 => {
                    let (fails, is_ambiguous) = (self.random.chance(600), self.random.chance(500));
                    self.lives[life].post.fail(fails, is_ambiguous);
                }
                _ if !self.lives[life].is_over => {
                    if self.random.chance(500) {
                        let _ = block_on(self.lives[life].node.leave(self.now));
                        self.post(life);
                    }
                    self.lives[life].is_over = true;
                    self.lost += 1; // a farewell may not arrive, and nobody can repeat it
                    self.begin();
                }
                _ => {}
            },
        }
    }

    fn end(mut self) -> Result<Found, String> {
        let mut found = Found { claims: self.claims, ..Found::default() };
        let meter = self.limit.meter_for(b"0");
        for admitted in &self.admitted {
            found.admitted += admitted.len() as u64;
            for (place, over) in overs(&meter, admitted).into_iter().enumerate().filter(|(_, over)| *over > 0)
            {
                let bound = self.bound(&meter, &admitted[..=place]);
                if over > bound {
                    let (limit, at) = (&self.limit, admitted[place].at.since(START));
                    return Err(format!(
                        "{over} units beyond {limit}, and not {bound}, at {at:?}: {}",
                        self.describe()
                    ));
                }
                found.beyond = 1;
                found.worst = found.worst.max(over * 100 / meter.limit());
            }
        }
        let text = self.describe();
        self.settle();
        let stats = |life: &Life| life.node.stats();
        found.repeated = self.lives.iter().map(|life| stats(life).repeated).sum();
        if self.lost == 0 && self.lives.iter().all(|life| stats(life).given_up == 0) {
            found.agreed = u64::from(self.agree(&meter).map_err(|problem| format!("{problem}: {text}"))?);
            if let Meter::Log(log) = meter {
                self.give_back(log.window()).map_err(|problem| format!("{problem}: {text}"))?;
            }
        }
        Ok(found)
    }

    fn describe(&self) -> String {
        let (interval, delay) = (Duration::from_nanos(self.interval), Duration::from_nanos(self.delay));
        format!("{:?}, {} lives, interval {interval:?}, delay {delay:?}", self.weather, self.lives.len())
    }

    /// How long it may take until a node that joins knows all.
    fn growing(&self) -> u64 {
        10 * self.interval + 8 * self.delay
    }

    /// The most units beyond the limit that the last of these admissions may have led to.
    fn bound(&self, meter: &Meter, admitted: &[Admission]) -> u64 {
        let last = admitted[admitted.len() - 1];
        let now = last.at.as_nanos();
        let unseen = match self.weather {
            // Updates with refunds wait for earlier ones.
            Weather::Calm if !matches!(meter, Meter::Log(_)) => self.interval + self.delay,
            Weather::Calm | Weather::Growing => self.growing(),
            Weather::Lossy | Weather::Rough => {
                // Each life by itself stays within the limit.
                let (most, span) = match meter {
                    Meter::Window(window) => {
                        (window.limit(), window.segment() * (u64::from(window.carried()) + 1))
                    }
                    Meter::Bucket(bucket) => {
                        let passed = now - START.as_nanos();
                        (bucket.burst() + passed.div_ceil(bucket.interval()), passed)
                    }
                    Meter::Log(log) => (log.limit(), log.window()),
                };
                let begin = now.saturating_sub(span);
                let mut lives: Vec<usize> =
                    admitted.iter().filter(|one| one.at.as_nanos() >= begin).map(|one| one.by).collect();
                lives.sort_unstable();
                lives.dedup();
                return most * (lives.len() as u64 - 1);
            }
        };
        // Each node knows all but what the others have admitted of late.
        let is_unseen = |one: &&Admission| one.by != last.by && one.at.as_nanos() + unseen >= now;
        admitted.iter().filter(is_unseen).map(|one| one.cost).sum()
    }

    /// All is well again for a while.
    fn settle(&mut self) {
        let newest = self.lives.iter().map(|life| life.begun).max().unwrap_or(START);
        let joining = Duration::from_nanos(self.growing());
        self.weather = Weather::Calm;
        self.events.retain(|_, event| matches!(event, Event::Broadcast(_) | Event::Receive(..)));
        for life in &mut self.lives {
            life.side = 0;
            life.post.fail(false, false);
        }
        // What is under way may come that late.
        let delay = std::mem::replace(&mut self.delay, self.interval / 10);
        let end = self.now + Duration::from_nanos(7 * self.interval + delay);
        self.run_until(end.max(newest + joining));
    }

    /// All units of a log are given back: then nothing counts but what has left on its own node.
    fn give_back(&mut self, window: u64) -> Result<(), String> {
        for key in 0..KEYS {
            (0..self.admitted[key].len()).for_each(|place| self.refund(key, place));
        }
        self.settle();
        for (key, admitted) in self.admitted.iter().enumerate() {
            // Refunds that arrive after their units have left are ignored.
            let most = kept(admitted, self.now, window, (self.growing(), self.growing()));
            let name = [u8::try_from(key).unwrap_or(0)];
            let id = MeterId { namespace: "", scope: self.limit.scope(), key: &name };
            let meter = self.limit.meter_for(b"0");
            let claims = [Claim { id, cost: 0, meter }];
            let claims = Claims::new(self.now, Mode::Peek, &claims).expect("a slice");
            for (number, life) in self.lives.iter().enumerate().filter(|(_, life)| !life.is_over) {
                let left = life.node.claim_now(claims).expect("an answer").verdicts[0].remaining;
                let used = meter.limit() - left;
                if used > most {
                    return Err(format!("node {number} counts {used} units that nobody holds, not {most}"));
                }
            }
        }
        Ok(())
    }

    /// Every node knows all that was admitted: of windows to the unit, of others at least. Returns whether any of it counts
    /// still.
    fn agree(&self, meter: &Meter) -> Result<bool, String> {
        let mut counts = false;
        for (key, admitted) in self.admitted.iter().enumerate() {
            let mut state = meter.fresh();
            for one in admitted.iter().filter(|one| one.returned.is_none()) {
                meter.charge(&mut state, one.cost, one.at);
            }
            let expected = meter.verdict(&state, 0, self.now, None).remaining;
            counts |= expected < meter.limit();
            let name = [u8::try_from(key).unwrap_or(0)];
            let id = MeterId { namespace: "", scope: self.limit.scope(), key: &name };
            let claims = [Claim { id, cost: 0, meter: *meter }];
            let claims = Claims::new(self.now, Mode::Peek, &claims).expect("a slice");
            for (number, life) in self.lives.iter().enumerate().filter(|(_, life)| !life.is_over) {
                let remaining = life.node.claim_now(claims).expect("an answer").verdicts[0].remaining;
                let is_window = matches!(meter, Meter::Window(_));
                if remaining > expected || is_window && remaining < expected {
                    let (limit, stats) = (&self.limit, life.node.stats());
                    let begun = life.begun.since(START);
                    return Err(format!(
                        "node {number}, begun at {begun:?}, sees {remaining} left of {limit}, not {expected}; {stats:?}"
                    ));
                }
            }
        }
        Ok(counts)
    }
}

/// Runs so many seeds; how many failed.
pub(crate) fn run_all(first: u64, count: u64) -> u64 {
    let (mut all, mut failed) = (Found::default(), 0);
    let mut worst = (0, 0);
    for seed in first..first.saturating_add(count) {
        match run(seed) {
            Ok(found) => {
                worst = worst.max((found.worst, seed));
                all = Found {
                    claims: all.claims + found.claims,
                    admitted: all.admitted + found.admitted,
                    repeated: all.repeated + found.repeated,
                    beyond: all.beyond + found.beyond,
                    worst: all.worst.max(found.worst),
                    agreed: all.agreed + found.agreed,
                };
            }
            Err(problem) => {
                failed += 1;
                println!("FAIL replicated --seed {seed}: {problem}");
            }
        }
        let done = seed - first + 1;
        if done.is_multiple_of(1_000) {
            println!("replicated: {done} of {count} seeds");
        }
    }
    let (worst, seed) = worst;
    println!("replicated: {count} seeds, at most {worst} % of the limit beyond it, in seed {seed}; {all:?}");
    // A run in which nothing was contended, or nobody came to agree, would prove nothing.
    let is_vacuous = all.admitted * 5 < all.claims
        || all.beyond * 4 < count
        || all.agreed * 5 < count
        || all.repeated == 0;
    if count >= 100 && is_vacuous {
        println!("FAIL replicated: too little was admitted or contended for this to prove anything");
        failed += 1;
    }
    failed
}
