//! The short way: slices of one claim each, on windows of up to one carried segment and on buckets. See `take.sql`.

use ratelimit_core::{Answer, Meter, Mode, State, Timestamp, WindowState};
use smallvec::smallvec;

use crate::config::{PostgresConfig, TimeSource};
use crate::error::Failure;
use crate::link::{Call, Reply};
use crate::wire::{Ask, Slice, ask_numbers, bucket_state, signed, unsigned};

/// What `take_one_v1` answers: whether it was written, the clock, the shape, the numbers a, b and c.
pub(crate) type One = Vec<Option<i64>>;

/// What `take_v1` answers: the clock, the shapes, the numbers a, b and c, the meters that were written: their places, or their
/// names in ascending order.
pub(crate) type Many = (
    Option<i64>,
    Vec<i32>,
    Vec<Option<i64>>,
    Vec<Option<i64>>,
    Vec<Option<i64>>,
    Option<Vec<i32>>,
    Option<Vec<Vec<u8>>>,
);

/// What the server has seen of a meter, and whether it has written it.
struct Seen {
    shape: i64,
    numbers: [Option<i64>; 3],
    written: bool,
}

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
        let (by_server, slack) = (config.time == TimeSource::Server, config.slack_micros());
        if let [slice] = self.slices {
            let id = slice.asks[0].name.clone();
            return Call::TakeOne { id, claim: numbers(slice), by_server, slack };
        }
        Call::Take {
            ids: self.names().map(<[u8]>::to_vec).collect(),
            lasts: self.ends.iter().map(|end| i32::try_from(*end).unwrap_or(i32::MAX)).collect(),
            claims: self.order.iter().flat_map(|place| numbers(&self.slices[*place])).collect(),
            by_server,
            slack,
        }
    }

    /// Those of the meters, in their order.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().map(|end| self.slices[self.order[end - 1]].asks[0].name.as_slice())
    }

    /// What core says to the states that the server has seen. `None` for slices on meters that somebody else has changed
    /// meanwhile, or whose state is no such one.
    pub(crate) fn answers(&self, reply: Reply) -> Result<Vec<Option<Answer>>, Failure> {
        let (clock, seen) = self.seen(reply).ok_or_else(Failure::strange_reply)?;
        let clock = match clock {
            Some(clock) => {
                Some(unsigned(clock).map(Timestamp::from_nanos).ok_or_else(Failure::strange_reply)?)
            }
            None => None,
        };
        let mut answers = vec![None; self.slices.len()];
        let mut begin = 0;
        for (seen, end) in seen.iter().zip(&self.ends) {
            let slices = &self.order[begin..*end];
            begin = *end;
            let ask = &self.slices[slices[0]].asks[0];
            let Some(mut state) = state(&ask.meter, seen) else { continue };
            let decided: Vec<Answer> =
                slices.iter().map(|slice| decide(&self.slices[*slice], &mut state, clock)).collect();
            match (decided.iter().any(|answer| answer.charged), seen.written) {
                (true, false) => continue,
                (false, true) => return Err(Failure::strange_reply()),
                _ => {}
            }
            for (slice, answer) in slices.iter().zip(decided) {
                answers[*slice] = Some(answer);
            }
        }
        Ok(answers)
    }

    /// The server's clock, and what it has seen of each meter. `None` if the reply is none to this call.
    fn seen(&self, reply: Reply) -> Option<(Option<i64>, Vec<Seen>)> {
        match reply {
            Reply::One(numbers) => {
                let [written, clock, shape, numbers @ ..] = <[_; 6]>::try_from(numbers).ok()?;
                let seen = Seen { shape: shape?, numbers, written: written? == 1 };
                (self.ends.len() == 1).then(|| (clock, vec![seen]))
            }
            Reply::Many((clock, shapes, a, b, c, done, put)) => {
                let meters = self.ends.len();
                if [shapes.len(), a.len(), b.len(), c.len()].iter().any(|count| *count != meters) {
                    return None;
                }
                let shape = |place: usize| i64::from(shapes[place]);
                let numbers = |place: usize| [a[place], b[place], c[place]];
                let seen = |place| Seen { shape: shape(place), numbers: numbers(place), written: false };
                let mut seen: Vec<Seen> = (0..meters).map(seen).collect();
                for place in done.unwrap_or_default() {
                    seen.get_mut(usize::try_from(place).ok()?.checked_sub(1)?)?.written = true;
                }
                if let Some(put) = put {
                    for (seen, name) in seen.iter_mut().zip(self.names()) {
                        seen.written = put.binary_search_by(|id| id.as_slice().cmp(name)).is_ok();
                    }
                }
                Some((clock, seen))
            }
            Reply::Numbers(_) => None,
        }
    }
}

/// A claim as it travels: the caller's time, then what it asks for.
fn numbers(slice: &Slice) -> [i64; 8] {
    let mut numbers = [signed(slice.now.as_nanos()); 8];
    numbers[1..].copy_from_slice(&ask_numbers(&slice.asks[0]));
    numbers
}

/// The state of a meter that the server has seen, `None` inside for one that it does not know.
fn state(meter: &Meter, seen: &Seen) -> Option<Option<State>> {
    match seen.shape {
        0 => return Some(None),
        1 => {}
        _ => return None,
    }
    let [a, b, c] = seen.numbers;
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
