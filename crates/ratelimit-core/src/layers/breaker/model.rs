//! The circuit, with all interleavings of its threads and all values that the memory model allows them to read, as `loom`
//! explores them.
//!
//! The source is compiled a second time, with the types of `loom`: so the tests need no build of their own.
#![allow(clippy::duplicate_mod, dead_code)]

use loom::sync::Arc;
use loom::thread;

use self::circuit::{Circuit, Outcome};
use super::{BreakerConfig, refusal};
use crate::{Clock, ErrorKind, StoreError, Timestamp};

mod sync {
    pub(super) use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
    pub(super) use loom::sync::{Mutex, MutexGuard};
}

#[path = "circuit.rs"]
mod circuit;

struct At(u64);

impl Clock for At {
    fn now(&self) -> Timestamp {
        Timestamp::from_secs(self.0)
    }
}

const START: At = At(1);
/// All pauses that began at the start are over.
const LATER: At = At(1_000);

fn failure() -> StoreError {
    StoreError::new("model", ErrorKind::Unreachable, "away")
}

fn fail(circuit: &Circuit) {
    circuit.enter(&START).unwrap().ended(Outcome::Failed(&failure()));
}

fn circuit(failures: u32) -> Arc<Circuit> {
    Arc::new(Circuit::new(BreakerConfig::default().failures(failures)))
}

/// Runs `first` and `second` at the same time, in every possible interleaving, and then `end`.
fn check(
    circuit: impl Fn() -> Arc<Circuit> + Sync + Send + 'static,
    first: fn(&Circuit) -> bool,
    second: fn(&Circuit) -> bool,
    end: fn(&Circuit, bool, bool),
) {
    loom::model(move || {
        let circuit = circuit();
        let other = {
            let circuit = circuit.clone();
            thread::spawn(move || first(&circuit))
        };
        let second = second(&circuit);
        let first = other.join().unwrap();
        end(&circuit, first, second);
    });
}

#[test]
fn failures_at_the_same_time_are_all_counted() {
    let one = |circuit: &Circuit| {
        fail(circuit);
        true
    };
    check(|| circuit(2), one, one, |circuit, _, _| assert!(!circuit.is_closed()));
}

fn open() -> Arc<Circuit> {
    let circuit = circuit(1);
    fail(&circuit);
    circuit
}

#[test]
fn one_call_probes_at_a_time() {
    // The probe is still in progress when both have entered.
    let enter = |circuit: &Circuit| circuit.enter(&LATER).map(std::mem::forget).is_ok();
    check(open, enter, enter, |_, first, second| assert!(first != second, "{first} and {second}"));
}

#[test]
fn a_dropped_probe_lets_another_one_in() {
    let drop = |circuit: &Circuit| circuit.enter(&LATER).map(drop).is_ok();
    check(open, drop, drop, |circuit, first, second| {
        assert!(first || second);
        assert!(circuit.enter(&At(2_000)).is_ok());
    });
}

#[test]
fn a_probe_that_is_answered_closes_whatever_older_calls_report() {
    loom::model(|| {
        let circuit = circuit(1);
        let old = circuit.enter(&START).unwrap();
        fail(&circuit);
        let prober = {
            let circuit = circuit.clone();
            thread::spawn(move || circuit.enter(&LATER).unwrap().ended(Outcome::Answered))
        };
        old.ended(Outcome::Failed(&failure()));
        prober.join().unwrap();
        assert!(circuit.is_closed());
    });
}
