//! The short way: slices of one claim each, on windows of up to one carried segment and on buckets. See `take.sql`.

use ratelimit_core::{Answer, Meter, Mode, State, Timestamp, WindowState};
use smallvec::smallvec;

use crate::config::{PostgresConfig, TimeSource};
use crate::error::Failure;
use crate::link::{Call, Taken};
use crate::wire::{Ask, Slice, ask_numbers, bucket_state, signed, unsigned};

/// Slices that go the short way.
pub(crate) struct Take<'s> {
    slices: &'s [Slice],
    /// The places of the slices, those on one meter together and in their order.
    order: Vec<usize>,
    /// The meters: up to where in `order` the slices on each go.
    ends: Vec<usize>,
}

/// The only claim of a slice that can go the short way.
fn plain(slice: &Slice) -> Option<&Ask> {
    match slice.asks.as_slice() {
        [ask] if slice.mode == Mode::Charge && ask.cost > 0 => match ask.meter {
            Meter::Window(window) => (window.carried() <= 1).then_some(ask),
            Meter::Bucket(_) => Some(ask),
            Meter::Log(_) => None,
        },
        _ => None,
    }
}

/// Whether slices go the short way if those beside them do.
pub(crate) fn are_plain(slices: &[Slice]) -> bool {
    slices.iter().all(|slice| plain(slice).is_some())
}

/// Whether two claims on one meter are of one kind; of windows also the segments must be the same.
fn alike(one: &Meter, other: &Meter) -> bool {
    match (one, other) {
        (Meter::Window(one), Meter::Window(other)) => {
            let shape =
                |window: &ratelimit_core::Window| (window.segment(), window.offset(), window.carried());
            shape(one) == shape(other)
        }
        (Meter::Bucket(_), Meter::Bucket(_)) => true,
        _ => false,
    }
}

impl<'s> Take<'s> {
    /// `None` if one of them has to go the long way.
    pub(crate) fn new(slices: &'s [Slice]) -> Option<Self> {
        let asks: Vec<&Ask> = slices.iter().map(plain).collect::<Option<_>>()?;
        let mut order: Vec<usize> = (0..asks.len()).collect();
        order.sort_by(|one, other| asks[*one].name.cmp(&asks[*other].name));
        let mut ends = Vec::with_capacity(order.len());
        for place in 0..order.len() {
            match order.get(place + 1) {
                Some(next) if asks[*next].name == asks[order[place]].name => {
                    if !alike(&asks[*next].meter, &asks[order[place]].meter) {
                        return None;
                    }
                }
                _ => ends.push(place + 1),
            }
        }
        Some(Self { slices, order, ends })
    }

    pub(crate) fn call(&self, config: &PostgresConfig) -> Call {
        let mut claims = Vec::with_capacity(self.order.len() * 8);
        for place in &self.order {
            let slice = &self.slices[*place];
            claims.push(signed(slice.now.as_nanos()));
            claims.extend(ask_numbers(&slice.asks[0]));
        }
        let ids = self.ends.iter().map(|end| self.slices[self.order[end - 1]].asks[0].name.clone());
        Call::Take {
            ids: ids.collect(),
            lasts: self.ends.iter().map(|end| i32::try_from(*end).unwrap_or(i32::MAX)).collect(),
            claims,
            by_server: config.time == TimeSource::Server,
            slack: config.slack_micros(),
        }
    }

    /// What core says to the states that the server has seen. `None` for slices on meters that somebody else has changed
    /// meanwhile, or whose state is no such one.
    pub(crate) fn answers(&self, taken: &Taken) -> Result<Vec<Option<Answer>>, Failure> {
        let (clock, shapes, a, b, c, done) = taken;
        let meters = self.ends.len();
        if [shapes.len(), a.len(), b.len(), c.len()].iter().any(|count| *count != meters) {
            return Err(Failure::strange_reply());
        }
        let clock = match *clock {
            Some(clock) => {
                Some(unsigned(clock).map(Timestamp::from_nanos).ok_or_else(Failure::strange_reply)?)
            }
            None => None,
        };
        let mut answers = vec![None; self.slices.len()];
        let mut begin = 0;
        for (place, end) in self.ends.iter().enumerate() {
            let slices = &self.order[begin..*end];
            begin = *end;
            let ask = &self.slices[slices[0]].asks[0];
            let numbers = [a[place], b[place], c[place]];
            let Some(mut state) = state(&ask.meter, shapes[place], numbers) else { continue };
            let decided: Vec<Answer> =
                slices.iter().map(|slice| decide(&self.slices[*slice], &mut state, clock)).collect();
            let charged = decided.iter().any(|answer| answer.charged);
            if !charged || was_written(done.as_deref(), &ask.name) {
                for (slice, answer) in slices.iter().zip(decided) {
                    answers[*slice] = Some(answer);
                }
            }
        }
        Ok(answers)
    }
}

/// They come in ascending order.
fn was_written(done: Option<&[Vec<u8>]>, name: &[u8]) -> bool {
    done.is_some_and(|done| done.binary_search_by(|id| id.as_slice().cmp(name)).is_ok())
}

/// The state of a meter that the server has seen, `None` inside for one that it does not know.
fn state(meter: &Meter, shape: i32, [a, b, c]: [Option<i64>; 3]) -> Option<Option<State>> {
    if shape == 0 {
        return Some(None);
    }
    if shape != 1 {
        return None;
    }
    let state = match meter {
        Meter::Window(window) => {
            let at = Timestamp::from_nanos(unsigned(a?)?);
            let counts = match window.carried() {
                0 => smallvec![unsigned(b?)?],
                _ => smallvec![unsigned(b?)?, unsigned(c?)?],
            };
            State::Window(WindowState { at, counts })
        }
        Meter::Bucket(_) => bucket_state(&[a?, b?, c?])?,
        Meter::Log(_) => return None,
    };
    // By its bytes, core says whether it is a state at all.
    State::from_bytes(&state.to_bytes()).ok().map(Some)
}

fn decide(slice: &Slice, state: &mut Option<State>, clock: Option<Timestamp>) -> Answer {
    let Ask { meter, cost, .. } = &slice.asks[0];
    let now = clock.unwrap_or(slice.now);
    let fits = match state {
        Some(state) => meter.fits(state, *cost, now),
        None => *cost <= meter.limit(),
    };
    let charged = fits.then(|| meter.charge(state.get_or_insert_with(|| meter.fresh()), *cost, now));
    let verdict = match state {
        Some(state) => meter.verdict(state, *cost, now, charged),
        None => meter.verdict(&meter.fresh(), *cost, now, charged),
    };
    Answer { admitted: fits, charged: fits, now, verdicts: smallvec![verdict] }
}
