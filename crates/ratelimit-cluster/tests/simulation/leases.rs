//! A fleet of nodes with leases: delays, partitions, lost answers, claims delivered twice, dropped calls, restarts.

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};
use std::time::Duration;

use ratelimit_cluster::{LeaseConfig, Leased};
use ratelimit_core::meter::{Meter, Window};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{CounterStore, Limit, Timestamp};
use ratelimit_memory::MemoryStore;

use crate::link::Link;
use crate::random::Random;
use crate::verdict::{Admitted, excess};

const STEPS: u64 = 3_000;
const KEYS: usize = 2;

/// What came of one seed.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    claims: u64,
    admitted: u64,
    errors: u64,
    /// Admitted without asking the store.
    local: u64,
    /// Units beyond the limit.
    excess: u64,
}

type Task = Pin<Box<dyn Future<Output = ()>>>;

#[derive(Default)]
struct Record {
    admitted: [Vec<Admitted>; KEYS],
    errors: u64,
    local: u64,
}

struct Fleet {
    random: Random,
    config: LeaseConfig,
    limit: Limit,
    links: Vec<Link>,
    nodes: Vec<Rc<Leased<Link>>>,
    /// Calls under way, each with the number of its node.
    tasks: Vec<(usize, Task)>,
    record: Rc<RefCell<Record>>,
    now: Timestamp,
    claims: u64,
}

/// Runs one seed.
fn run(seed: u64) -> Found {
    let mut fleet = Fleet::new(Random::new(seed));
    for _ in 0..STEPS {
        fleet.step();
    }
    fleet.end()
}

fn limit(random: &mut Random) -> Limit {
    let quota = random.between(5, 1_500);
    let period = Duration::from_millis(random.between(1, 50) * 200);
    let builder = match random.below(4) {
        0 => Limit::fixed_window(quota, period),
        1 => Limit::sliding_window(quota, period),
        2 => Limit::segmented_window(quota, period, period / 4),
        _ => Limit::segmented_window(quota, period, period / 4).strict(),
    };
    builder.build().expect("a limit")
}

impl Fleet {
    fn new(mut random: Random) -> Self {
        let shared = Arc::new(MemoryStore::new());
        let limit = limit(&mut random);
        let config = LeaseConfig::default()
            .min_limit(random.between(1, 100))
            .share(random.between(1, 8))
            .max_lease(random.between(1, 1_000))
            .target_duration(Duration::from_millis(random.between(10, 2_000)));
        let count = random.between(2, 50);
        let link = |_| Link::new(shared.clone(), Random::new(random.below(u64::MAX)));
        let links: Vec<Link> = (0..count).map(link).collect();
        let nodes = links.iter().map(|link| Rc::new(Leased::with_config(link.clone(), config))).collect();
        let (tasks, record) = (Vec::new(), Rc::default());
        let now = Timestamp::from_secs(1_800_000_000);
        Self { random, config, limit, links, nodes, tasks, record, now, claims: 0 }
    }

    fn window(&self) -> Window {
        match self.limit.meter_for(b"0") {
            Meter::Window(window) => window,
            _ => unreachable!("only windows are made"),
        }
    }

    fn step(&mut self) {
        // Some nodes are busier than others, as they are.
        let node = self.random.place(self.nodes.len());
        let node = if self.random.chance(700) { node / 8 } else { node };
        match self.random.below(1_000) {
            0..600 => self.claim(node),
            600..900 => self.poll(),
            900..960 => self.advance(),
            960..970 => self.drop_one(),
            970..980 => self.links[node].cut(self.random.chance(300)),
            980..984 => self.restart(node),
            _ => self.give_back(node),
        }
    }

    fn advance(&mut self) {
        let segment = self.window().segment();
        let step = match self.random.below(10) {
            0 => segment - self.window().place(self.now).1, // to the very first instant of the next
            1 => self.random.below(segment),
            _ => self.random.below(segment / 20),
        };
        self.now = self.now + Duration::from_nanos(step);
    }

    fn claim(&mut self, node: usize) {
        let key = self.random.place(KEYS);
        let cost = if self.random.chance(900) { 1 } else { self.random.between(1, 20) };
        let (store, limit, now) = (self.nodes[node].clone(), self.limit.clone(), self.now);
        let record = self.record.clone();
        let link = self.links[node].clone();
        self.claims += 1;
        let task = async move {
            let name = [u8::try_from(key).unwrap_or(0)];
            let id = MeterId { namespace: "", scope: limit.scope(), key: &name };
            let claims = [Claim { id, cost, meter: limit.meter_for(b"0") }];
            let claims = Claims::new(now, Mode::Charge, &claims).expect("a slice");
            let before = link.trips();
            let mut call = std::pin::pin!(store.claim(claims));
            // What needs no trip is answered at once, so nobody else can have made one meanwhile.
            let mut trips = 0;
            let answer = poll_fn(|context| {
                let polled = call.as_mut().poll(context);
                trips = link.trips() - before;
                polled
            })
            .await;
            match answer {
                Ok(answer) if answer.admitted => {
                    let at = answer.verdicts[0].receipt.instant();
                    record.borrow_mut().local += u64::from(trips == 0);
                    record.borrow_mut().admitted[key].push(Admitted { at, cost });
                }
                Ok(_) => {}
                Err(_) => record.borrow_mut().errors += 1,
            }
        };
        self.tasks.push((node, Box::pin(task)));
        self.poll_at(self.tasks.len() - 1);
    }

    fn give_back(&mut self, node: usize) {
        let (store, now) = (self.nodes[node].clone(), self.now);
        self.tasks.push((node, Box::pin(async move { drop(store.give_back(now).await) })));
    }

    fn poll(&mut self) {
        if !self.tasks.is_empty() {
            let place = self.random.place(self.tasks.len());
            self.poll_at(place);
        }
    }

    fn poll_at(&mut self, place: usize) {
        let mut context = Context::from_waker(Waker::noop());
        if self.tasks[place].1.as_mut().poll(&mut context).is_ready() {
            drop(self.tasks.swap_remove(place));
        }
    }

    /// A caller gives up.
    fn drop_one(&mut self) {
        if !self.tasks.is_empty() {
            let place = self.random.place(self.tasks.len());
            drop(self.tasks.swap_remove(place));
        }
    }

    /// The process ends, and with it its calls and its leases; another one takes its place.
    fn restart(&mut self, node: usize) {
        self.tasks.retain(|(of, _)| *of != node);
        self.nodes[node] = Rc::new(Leased::with_config(self.links[node].clone(), self.config));
    }

    fn end(mut self) -> Found {
        while !self.tasks.is_empty() {
            self.poll();
        }
        let window = self.window();
        let record = self.record.take();
        let admitted = record.admitted.iter().map(|units| units.len() as u64).sum();
        let excess = record.admitted.into_iter().map(|units| excess(&window, units)).max().unwrap_or(0);
        Found { claims: self.claims, admitted, errors: record.errors, local: record.local, excess }
    }
}

/// Runs so many seeds; how many failed.
pub(crate) fn run_all(first: u64, count: u64) -> u64 {
    let (mut all, mut failed) = (Found::default(), 0);
    for seed in first..first.saturating_add(count) {
        let found = run(seed);
        if found.excess > 0 {
            failed += 1;
            println!("FAIL leases --seed {seed}: {} units beyond the limit, {found:?}", found.excess);
        }
        all = Found {
            claims: all.claims + found.claims,
            admitted: all.admitted + found.admitted,
            errors: all.errors + found.errors,
            local: all.local + found.local,
            excess: all.excess.max(found.excess),
        };
        let done = seed - first + 1;
        if done.is_multiple_of(1_000) {
            println!("leases: {done} of {count} seeds");
        }
    }
    println!("leases: {count} seeds, at most {} units beyond the limit; {all:?}", all.excess);
    // A run in which nothing was leased would prove nothing.
    let is_vacuous = count >= 100 && (all.admitted * 5 < all.claims || all.local * 10 < all.admitted);
    if is_vacuous {
        println!("FAIL leases: too little was admitted or leased for this to prove anything");
        failed += 1;
    }
    failed
}
