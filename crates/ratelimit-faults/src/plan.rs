//! The plan of a run: what happens when, for how long, under which load. It depends on its seed alone.

use std::fmt;
use std::time::Duration;

use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};

use crate::fault::Fault;
use crate::target::Target;

/// A span of load with one fault in it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Phase {
    pub(crate) number: usize,
    pub(crate) fault: Fault,
    /// Milliseconds of load before the fault.
    pub(crate) before: u64,
    /// How many milliseconds the fault lasts.
    pub(crate) lasts: u64,
    /// The quota of the long limits of single keys.
    pub(crate) quota: u64,
    /// Mean milliseconds between two calls of a task.
    pub(crate) pause: u64,
    /// How many of a thousand calls are dropped.
    pub(crate) dropped: u32,
    /// The random number from which a fault makes its choices: which server, which policy, after how many bytes.
    pub(crate) choice: u64,
}

/// The phases of one target.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) target: Target,
    pub(crate) phases: Vec<Phase>,
}

/// The plan of these targets for `seconds` in total. Each target gets a share of the time by its number of faults. Its
/// first phase has no fault, and at least one phase with a fault follows.
pub(crate) fn plan(targets: &[Target], seconds: u64, seed: u64) -> Vec<Plan> {
    let all: usize = targets.iter().map(|target| target.faults().len()).sum();
    let parts = targets.iter().map(|target| {
        let share = seconds * 1000 * target.faults().len() as u64 / all.max(1) as u64;
        // Each target has a seed of its own, so that its plan does not depend on the other targets.
        let name = target
            .name()
            .bytes()
            .fold(seed, |hash, byte| hash.wrapping_mul(31).wrapping_add(u64::from(byte)));
        let phases = phases(target.faults(), Duration::from_millis(share), ChaCha8Rng::seed_from_u64(name));
        Plan { target: *target, phases }
    });
    parts.collect()
}

fn phases(faults: &[Fault], time: Duration, mut random: ChaCha8Rng) -> Vec<Phase> {
    let mut phases = vec![phase(0, Fault::Nothing, &mut random)];
    let mut left = time.saturating_sub(phases[0].takes());
    loop {
        // Each round has every fault once, in another order.
        let mut round = faults.to_vec();
        round.shuffle(&mut random);
        for fault in round {
            let next = phase(phases.len(), fault, &mut random);
            if phases.len() > 1 && next.takes() > left {
                return phases;
            }
            left = left.saturating_sub(next.takes());
            phases.push(next);
        }
    }
}

fn phase(number: usize, fault: Fault, random: &mut ChaCha8Rng) -> Phase {
    let usually = if random.random_bool(0.3) { random.random_range(10..100) } else { 0 };
    Phase {
        number,
        fault,
        before: random.random_range(300..1_200),
        // Filling a server takes a while.
        lasts: random.random_range(200..2_500) + if fault == Fault::Evicting { 1_500 } else { 0 },
        quota: random.random_range(40..300),
        pause: random.random_range(3..20),
        dropped: if fault == Fault::Dropped { 500 } else { usually },
        choice: random.random(),
    }
}

impl Phase {
    /// About how long it takes.
    fn takes(&self) -> Duration {
        Duration::from_millis(self.before + self.lasts) + self.fault.overhead()
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Phase { number, fault, before, lasts, quota, pause, dropped, choice } in &self.phases {
            writeln!(
                f,
                "{:15} {number:3}  {fault:16} after {before:4} ms for {lasts:4} ms; quota {quota:3}, a call each {pause:2} ms, \
                 {dropped:3} ‰ dropped, choice {choice:016x}",
                self.target.name(),
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_has_one_plan() {
        let shown = |targets: &[Target], seed| {
            plan(targets, 300, seed).iter().map(ToString::to_string).collect::<Vec<_>>()
        };
        let two = [Target::Redis, Target::Memory];
        assert_eq!(shown(&two, 7), shown(&two, 7));
        assert_ne!(shown(&two, 7), shown(&two, 8));
    }

    #[test]
    fn every_target_has_a_fault_even_if_there_is_no_time() {
        for plan in plan(&[Target::Redis, Target::RedisSentinel, Target::Memory], 0, 1) {
            assert_eq!(plan.phases[0].fault, Fault::Nothing);
            assert_eq!(plan.phases.len(), 2, "{plan}");
        }
    }

    #[test]
    fn a_long_run_has_every_fault() {
        for plan in plan(&[Target::Redis], 200, 1) {
            for fault in plan.target.faults() {
                assert!(plan.phases.iter().any(|phase| phase.fault == *fault), "{fault} in {plan}");
            }
        }
    }
}
