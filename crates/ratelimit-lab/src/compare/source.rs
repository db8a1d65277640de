//! Sources of requests. Each has its own generator of random numbers, so its requests do not depend on the others.

use std::time::Duration;

use clap::ValueEnum;
use rand::{RngExt as _, SeedableRng as _};
use rand_chacha::ChaCha8Rng;
use rand_distr::{Distribution as _, Exp, Geometric};
use ratelimit_core::{Limit, Timestamp};
use serde::Serialize;

use crate::model::BEGIN;

/// Which traffic to measure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Traffics {
    /// Sources whose rates follow Zipf's law (the n-th sends 1 / n of what the first sends): half of them at random by a daily
    /// curve, a quarter in bursts of 20 on average, 15 % at an interval, 10 % in the first five seconds of a minute
    Mix,
    /// Sources whose rates follow Zipf's law, all of them at random by a daily curve
    Steady,
    /// Sources that send at random, at constant rates that are spread evenly between half the limit and one and a half
    Near,
    /// The same rates, but all requests of a minute come in its first five seconds
    StartOfMinute,
}

/// The sources of a measurement.
#[derive(Clone, Debug, Serialize)]
pub struct Sources {
    /// How the sources send.
    pub traffic: Traffics,
    /// The number of sources.
    pub count: u64,
    /// Requests of all of them together in a day, on average.
    pub requests: u64,
    /// The seed of the generators, which are ChaCha with 8 rounds; each source has its own stream.
    pub seed: u64,
    /// Requests per second: of the first source if rates follow Zipf's law, otherwise the rate of the limit.
    rate: f64,
}

/// The length of the traffic: a day.
const DAY: Duration = Duration::from_secs(86_400);
/// How far the rate goes above and below its mean in a day, as a part of the mean.
const SWING: f64 = 0.8;

impl Sources {
    /// Sources that together send so many requests in a day, on average. `count` is the number of sources; it is not used
    /// for traffic whose rates are near the limit, where the number of sources follows from the number of requests.
    #[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)] // far from their bounds
    pub fn new(traffic: Traffics, count: u64, requests: u64, seed: u64, limit: &Limit) -> Self {
        let a_second = requests as f64 / DAY.as_secs_f64();
        let of_limit = limit.quota() as f64 / limit.period().as_secs_f64();
        let (count, rate) = match traffic {
            Traffics::Mix | Traffics::Steady => {
                let shares: f64 = (1..=count).map(|nth| 1.0 / nth as f64).sum();
                (count, a_second / shares.max(1.0))
            }
            Traffics::Near | Traffics::StartOfMinute => {
                ((a_second / of_limit).ceil().max(1.0) as u64, of_limit)
            }
        };
        Self { traffic, count, requests, seed, rate }
    }

    /// The times at which the source with this number, from 0, sends: an iterator in the order of the times.
    pub(crate) fn times(&self, nth: u64) -> anyhow::Result<Times> {
        let mut random = ChaCha8Rng::seed_from_u64(self.seed);
        random.set_stream(nth);
        let rate = self.rate(nth, &mut random);
        let kind = match (self.traffic, nth % 20) {
            (Traffics::Near, _) => Kind::Even,
            (Traffics::StartOfMinute, _) | (Traffics::Mix, 18..) => Kind::StartOfMinute,
            (Traffics::Mix, 10..15) => Kind::Bursts,
            (Traffics::Mix, 15..18) => Kind::Interval,
            (Traffics::Mix | Traffics::Steady, _) => Kind::Curve,
        };
        let faster = match kind {
            Kind::Curve => 1.0 + SWING,
            Kind::StartOfMinute => 12.0,
            Kind::Bursts => 1.0 / 20.0,
            Kind::Even | Kind::Interval => 1.0,
        };
        Ok(Times {
            kind,
            gap: Exp::new(rate * faster)?,
            interval: 1.0 / rate,
            in_burst: Exp::new(50.0)?,
            burst: Geometric::new(1.0 / 20.0)?,
            left_of_burst: 0,
            random,
            active: Duration::ZERO,
            last: Duration::ZERO,
        })
    }

    /// The requests of the source with this number per second, on average.
    #[allow(clippy::cast_precision_loss)] // far from its bounds
    fn rate(&self, nth: u64, random: &mut ChaCha8Rng) -> f64 {
        match self.traffic {
            Traffics::Mix | Traffics::Steady => self.rate / (nth + 1) as f64,
            Traffics::Near | Traffics::StartOfMinute => self.rate * random.random_range(0.5..1.5),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Even,
    Curve,
    Bursts,
    Interval,
    StartOfMinute,
}

/// The times at which a source sends.
pub(crate) struct Times {
    kind: Kind,
    random: ChaCha8Rng,
    gap: Exp<f64>,
    /// The mean time between two requests, in seconds.
    interval: f64,
    in_burst: Exp<f64>,
    burst: Geometric,
    left_of_burst: u64,
    /// The time since the beginning, without the times at which the source sends nothing.
    active: Duration,
    last: Duration,
}

impl Times {
    fn wait(&mut self) {
        let gap = match self.kind {
            Kind::Interval => self.interval * self.random.random_range(0.9..1.1),
            _ => self.gap.sample(&mut self.random),
        };
        self.active += Duration::try_from_secs_f64(gap).unwrap_or(DAY);
    }
}

impl Iterator for Times {
    type Item = Timestamp;

    fn next(&mut self) -> Option<Timestamp> {
        let time = if self.left_of_burst > 0 {
            self.left_of_burst -= 1;
            self.last
                + Duration::try_from_secs_f64(self.in_burst.sample(&mut self.random)).unwrap_or_default()
        } else {
            self.wait();
            match self.kind {
                Kind::Curve => {
                    let day = DAY.as_secs_f64();
                    while self.active < DAY {
                        let angle = self.active.as_secs_f64() / day * std::f64::consts::TAU;
                        if self.random.random::<f64>() < (1.0 - SWING * angle.cos()) / (1.0 + SWING) {
                            break;
                        }
                        self.wait();
                    }
                }
                Kind::Bursts => self.left_of_burst = self.burst.sample(&mut self.random),
                Kind::Even | Kind::Interval | Kind::StartOfMinute => {}
            }
            match self.kind {
                Kind::StartOfMinute => {
                    let minutes = self.active.as_secs() / 5;
                    self.active + Duration::from_secs(minutes.saturating_mul(55))
                }
                _ => self.active,
            }
        };
        // A burst can begin before the last one has ended. Then its first request comes when that one ends, so that times
        // do not go back.
        self.last = time.max(self.last);
        (self.last < DAY).then(|| BEGIN + self.last)
    }
}
