//! The time of a decision.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Result, ensure};

use crate::contestants::{Allow, Contestant, Limiter};
use crate::job::Keys;
use crate::keys::{BLOCK, Key, Order};
use crate::session::{Session, figure};
use crate::stopwatch::Stopwatch;

/// The requests of one thread.
pub(super) struct Asker {
    block: Vec<Key>,
    /// `None` for a single key.
    order: Option<Order>,
}

/// The answers, and their time.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Told {
    nanos: u64,
    decisions: u64,
    admitted: u64,
}

impl Told {
    pub(super) fn each(self) -> f64 {
        figure(self.nanos) / figure(self.decisions.max(1))
    }

    /// Checks the answers.
    pub(super) fn check(self, allow: Allow) -> Result<()> {
        check_answers(self.admitted, self.decisions, allow)
    }
}

/// The figures are meaningless if the answers are wrong.
pub(super) fn check_answers(admitted: u64, decisions: u64, allow: Allow) -> Result<()> {
    let right = match allow {
        Allow::Everything => admitted == decisions,
        // A window may end during the measurement.
        Allow::Nothing => admitted <= decisions / 100,
    };
    ensure!(right, "{admitted} of {decisions} were admitted, and the limit allows {allow:?}");
    Ok(())
}

impl Asker {
    pub(super) fn new(order: Option<Order>) -> Self {
        let mut block = vec![Key::default(); BLOCK];
        block.iter_mut().for_each(|key| key.set(1_234));
        Self { block, order }
    }

    /// Makes requests for about this time, or until `stop`. Only the requests are measured.
    pub(super) fn ask(&mut self, limiter: &impl Limiter, nanos: u64, stop: &AtomicBool) -> Told {
        let mut told = Told::default();
        while told.nanos < nanos && !stop.load(Ordering::Relaxed) {
            if let Some(order) = &mut self.order {
                order.fill(&mut self.block);
            }
            told.admitted += ask_block(limiter, &self.block, &mut told.nanos);
            told.decisions += figure_of(self.block.len());
        }
        told
    }
}

fn figure_of(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

/// Requests each key. Returns the number of admissions, and adds the time.
#[inline(never)]
fn ask_block(limiter: &impl Limiter, block: &[Key], nanos: &mut u64) -> u64 {
    let start = Stopwatch::start();
    let admitted = block.iter().filter(|key| limiter.check(key)).count();
    *nanos += start.nanos();
    figure_of(admitted)
}

/// Requests each key up to `to` once.
pub(super) fn introduce(limiter: &impl Limiter, from: u64, to: u64) {
    let mut key = Key::default();
    for number in from..to {
        key.set(number);
        limiter.check(&key);
    }
}

/// Decisions on known keys.
pub(super) struct Known<L> {
    limiter: L,
    askers: Vec<Asker>,
    allow: Allow,
    nanos: u64,
}

impl<L: Limiter> Known<L> {
    pub(super) fn new(
        contestant: &impl Contestant<Limiter = L>,
        keys: Keys,
        threads: usize,
        allow: Allow,
        millis: u64,
    ) -> Self {
        let limiter = contestant.build(allow);
        let order = |thread| match keys {
            Keys::One => None,
            Keys::Uniform(count) => Some(Order::uniform(count, thread)),
            Keys::Zipf(count) => Some(Order::zipf(count, thread)),
        };
        if let Keys::Uniform(count) | Keys::Zipf(count) = keys {
            introduce(&limiter, 0, count);
        }
        let askers = (0..figure_of(threads)).map(|thread| Asker::new(order(thread))).collect();
        Self { limiter, askers, allow, nanos: millis * 1_000_000 }
    }
}

impl<L: Limiter> Session for Known<L> {
    fn step(&mut self, _: u64) -> Result<Vec<f64>> {
        // Warm up: other processes have used the caches since the last measurement.
        round(&self.limiter, &mut self.askers, self.nanos / 2);
        let told = round(&self.limiter, &mut self.askers, self.nanos);
        let all = told.into_iter().fold(Told::default(), |all, told| Told {
            nanos: all.nanos + told.nanos,
            decisions: all.decisions + told.decisions,
            admitted: all.admitted + told.admitted,
        });
        all.check(self.allow)?;
        Ok(vec![all.each()])
    }
}

/// Runs all threads concurrently, until the first of them is done.
fn round(limiter: &impl Limiter, askers: &mut [Asker], nanos: u64) -> Vec<Told> {
    let stop = AtomicBool::new(false);
    if let [asker] = askers {
        return vec![asker.ask(limiter, nanos, &stop)];
    }
    let barrier = Barrier::new(askers.len());
    let ask = |asker: &mut Asker| {
        barrier.wait();
        let told = asker.ask(limiter, nanos, &stop);
        stop.store(true, Ordering::Relaxed);
        told
    };
    std::thread::scope(|scope| {
        let ask = &ask;
        let threads: Vec<_> = askers.iter_mut().map(|asker| scope.spawn(move || ask(asker))).collect();
        threads.into_iter().filter_map(|thread| thread.join().ok()).collect()
    })
}

/// Decisions on new keys, starting with an empty limiter.
pub(super) struct Unseen<C: Contestant> {
    contestant: C,
    limiter: Option<C::Limiter>,
    keys: u64,
    block: Vec<Key>,
}

impl<C: Contestant> Unseen<C> {
    pub(super) fn new(contestant: C, keys: u64) -> Self {
        let keys = keys / contestant.share();
        Self { contestant, limiter: None, keys, block: vec![Key::default(); BLOCK] }
    }
}

impl<C: Contestant> Session for Unseen<C> {
    fn step(&mut self, _: u64) -> Result<Vec<f64>> {
        self.limiter = None;
        let limiter = self.limiter.insert(self.contestant.build(Allow::Everything));
        let mut told = Told::default();
        while told.decisions < self.keys {
            for (number, key) in (told.decisions..).zip(&mut self.block) {
                key.set(number);
            }
            told.admitted += ask_block(limiter, &self.block, &mut told.nanos);
            told.decisions += figure_of(BLOCK);
        }
        told.check(Allow::Everything)?;
        Ok(vec![told.each()])
    }
}
