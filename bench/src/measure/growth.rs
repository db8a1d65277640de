//! The time of a decision while the number of keys grows.

use std::sync::atomic::AtomicBool;

use anyhow::Result;

use super::speed::{Asker, introduce};
use crate::contestants::{Allow, Contestant, Limiter};
use crate::keys::Order;
use crate::session::Session;

pub(super) struct Growth<L> {
    limiter: L,
    known: u64,
    asker: Asker,
    nanos: u64,
}

impl<L: Limiter> Growth<L> {
    pub(super) fn new(contestant: &impl Contestant<Limiter = L>, millis: u64) -> Self {
        let limiter = contestant.build(Allow::Everything);
        Self { limiter, known: 0, asker: Asker::new(None), nanos: millis * 1_000_000 }
    }
}

impl<L: Limiter> Session for Growth<L> {
    /// Measures with this number of keys, which never decreases.
    fn step(&mut self, keys: u64) -> Result<Vec<f64>> {
        if keys > self.known {
            introduce(&self.limiter, self.known, keys);
            self.known = keys;
            self.asker = Asker::new(Some(Order::uniform(keys, 1)));
        }
        let go_on = AtomicBool::new(false);
        self.asker.ask(&self.limiter, self.nanos, &go_on);
        let told = self.asker.ask(&self.limiter, self.nanos, &go_on);
        told.check(Allow::Everything)?;
        Ok(vec![told.each()])
    }
}
