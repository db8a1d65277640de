//! The requests of a model, generated one after another in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Duration;

use anyhow::Context as _;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp, Geometric, Zipf};
use ratelimit_core::Timestamp;

use super::{BEGIN, MOST_KEYS, Model, Spec};

/// A generated request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Sample {
    /// The time of the request.
    pub time: Timestamp,
    /// The number of its key, from 0. The numbers of attackers come after those of all other keys.
    pub key: u32,
    /// The number of failed attempts before it. In a burst it is 0 for the first request and 1 for the others.
    pub attempt: u8,
    /// Whether its response is 503.
    pub fails: bool,
    /// A random number, from which its path, user agent and size follow.
    pub noise: u16,
}

/// An iterator over the requests of a model. Its memory does not grow with the number of requests.
pub struct Traffic {
    spec: Spec,
    random: ChaCha8Rng,
    gap: Exp<f64>,
    zipf: Zipf<f64>,
    in_burst: Exp<f64>,
    burst: Geometric,
    /// The time since the beginning, without the times at which the model has no requests.
    active: Duration,
    /// The requests that follow from earlier ones, such as retries. Others may still come before them.
    later: BinaryHeap<Reverse<Sample>>,
    /// The next request that does not follow from an earlier one.
    next: Option<Sample>,
    left: u64,
    end: Timestamp,
}

const DAY: f64 = 86_400.0;
const MINUTE: u64 = 60_000_000_000;
const SECOND: u64 = 1_000_000_000;
/// How far the rate goes above and below its mean in a day, as a part of the mean.
const SWING: f64 = 0.8;
const BURST: f64 = 20.0;
const IN_BURST: f64 = 0.02;
const FAILS: f64 = 0.3;
const ATTEMPTS: u8 = 5;
/// The number of attackers, whose keys come after the others.
pub(super) const ATTACKERS: u32 = 3;
const ATTACKS: f64 = 0.3;

impl Traffic {
    /// The requests of this specification.
    ///
    /// # Errors
    /// If a number in it is out of its range.
    pub fn new(spec: &Spec) -> anyhow::Result<Self> {
        anyhow::ensure!(
            (1..=MOST_KEYS).contains(&spec.keys),
            "there are from 1 to {MOST_KEYS} keys, not {}",
            spec.keys
        );
        anyhow::ensure!(
            (1e-6..=1e9).contains(&spec.rate),
            "the rate is from 0.000001 to 1000000000 requests a second, not {}",
            spec.rate
        );
        // At the times at which the model has requests, they come this much faster than on average; bursts come this much
        // less often.
        let faster = match spec.model {
            Model::Diurnal => 1.0 + SWING,
            Model::Boundary => 60.0 / 2.0,
            Model::StartOfMinute => 60.0 / 5.0,
            Model::Bursts => 1.0 / BURST,
            Model::Poisson | Model::Zipf | Model::Retrying | Model::Attackers => 1.0,
        };
        let length = spec
            .duration
            .map(|seconds| Duration::try_from_secs_f64(seconds).context("--duration"))
            .transpose()?;
        let mut traffic = Self {
            spec: spec.clone(),
            random: ChaCha8Rng::seed_from_u64(spec.seed),
            gap: Exp::new(spec.rate * faster)?,
            zipf: Zipf::new(f64::from(spec.keys), 1.1)?,
            in_burst: Exp::new(1.0 / IN_BURST)?,
            burst: Geometric::new(1.0 / BURST)?,
            active: Duration::ZERO,
            later: BinaryHeap::new(),
            next: None,
            left: spec.requests,
            end: length.map_or(Timestamp::MAX, |length| BEGIN + length),
        };
        traffic.next = Some(traffic.first_hand());
        Ok(traffic)
    }

    /// Generates the next request that does not follow from an earlier one.
    fn first_hand(&mut self) -> Sample {
        let time = loop {
            self.active += Duration::try_from_secs_f64(self.gap.sample(&mut self.random)).unwrap_or_default();
            let active = u64::try_from(self.active.as_nanos()).unwrap_or(u64::MAX);
            match self.spec.model {
                Model::Diurnal => {
                    let share = (1.0
                        - SWING * (self.active.as_secs_f64() / DAY * std::f64::consts::TAU).cos())
                        / (1.0 + SWING);
                    if self.random.random::<f64>() < share {
                        break active;
                    }
                }
                // Requests come from 59 s of each minute to 1 s of the next one, or from 0 s to 5 s of each minute.
                Model::Boundary => break in_windows(active, 2 * SECOND).saturating_add(59 * SECOND),
                Model::StartOfMinute => break in_windows(active, 5 * SECOND),
                _ => break active,
            }
        };
        let key = match self.spec.model {
            Model::Poisson => self.random.random_range(0..self.spec.keys),
            Model::Attackers if self.random.random::<f64>() < ATTACKS => {
                self.spec.keys + self.random.random_range(0..ATTACKERS)
            }
            _ => self.by_zipf(),
        };
        let fails = self.fails();
        Sample {
            time: BEGIN + Duration::from_nanos(time),
            key,
            attempt: 0,
            fails,
            noise: self.random.random(),
        }
    }

    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // from 1 to the number of keys
    fn by_zipf(&mut self) -> u32 {
        (self.zipf.sample(&mut self.random) as u32).clamp(1, self.spec.keys) - 1
    }

    fn fails(&mut self) -> bool {
        self.spec.model == Model::Retrying && self.random.random::<f64>() < FAILS
    }

    /// Generates what follows from a request: the rest of its burst, or its retry.
    fn follow(&mut self, sample: Sample) {
        match self.spec.model {
            Model::Bursts if sample.attempt == 0 => {
                let mut time = sample.time;
                for _ in 0..self.burst.sample(&mut self.random) {
                    let gap = self.in_burst.sample(&mut self.random);
                    time = time + Duration::try_from_secs_f64(gap).unwrap_or_default();
                    let noise = self.random.random();
                    self.later.push(Reverse(Sample { time, attempt: 1, noise, ..sample }));
                }
            }
            Model::Retrying if sample.fails && sample.attempt + 1 < ATTEMPTS => {
                let time = sample.time + Duration::from_secs(1 << sample.attempt);
                let fails = self.fails();
                self.later.push(Reverse(Sample { time, attempt: sample.attempt + 1, fails, ..sample }));
            }
            _ => {}
        }
    }
}

/// The instant at which `active` has passed, if time passes only in windows of this length at the beginning of each minute.
fn in_windows(active: u64, length: u64) -> u64 {
    (active / length).saturating_mul(MINUTE).saturating_add(active % length)
}

impl Iterator for Traffic {
    type Item = Sample;

    fn next(&mut self) -> Option<Sample> {
        self.left = self.left.checked_sub(1)?;
        let sample = match (self.later.peek(), self.next) {
            (Some(Reverse(later)), Some(next)) if later.time < next.time => self.later.pop()?.0,
            (_, Some(next)) => {
                self.next = Some(self.first_hand());
                next
            }
            (_, None) => return None,
        };
        if sample.time >= self.end {
            self.left = 0;
            return None;
        }
        self.follow(sample);
        Some(sample)
    }
}
