//! The short way: slices of one claim each, on windows of up to one carried segment and on buckets. See `take.sql`.

use ratelimit_core::{Answer, Meter, Mode, State, Timestamp, WindowState};
use smallvec::smallvec;
use sqlx::postgres::{PgRow, Postgres};
use sqlx::{Decode, FromRow, Row, Type};

use crate::config::{PostgresConfig, TimeSource};
use crate::error::Failure;
use crate::link::{Call, Reply};
use crate::sure::Sure;
use crate::wire::{Ask, Slice, ask_numbers, bucket_state, signed, unsigned};

/// What `take_one_v1` answers: whether it was written, the clock, the shape, the numbers a, b and c; or 2 for one that was
/// charged at once, nothing, the shape and the numbers of the state since then.
pub(crate) type One = Vec<Option<i64>>;

/// What `take_v1` answers; see there.
#[derive(Debug)]
pub(crate) struct Many {
    clock: Option<i64>,
    taken: Vec<i32>,
    x: Vec<i64>,
    y: Vec<i64>,
    z: Vec<Option<i64>>,
    places: Vec<i32>,
    shapes: Vec<i32>,
    a: Vec<Option<i64>>,
    b: Vec<Option<i64>>,
    c: Vec<Option<i64>>,
    done: Vec<i32>,
    put: Vec<Vec<u8>>,
    trouble: Option<String>,
}

/// An array of the answer; none is an empty one.
fn list<'r, T>(row: &'r PgRow, name: &str) -> Result<Vec<T>, sqlx::Error>
where
    Vec<T>: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get::<Option<_>, _>(name).map(Option::unwrap_or_default)
}

impl FromRow<'_, PgRow> for Many {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            clock: row.try_get("clock")?,
            taken: list(row, "taken")?,
            x: list(row, "x")?,
            y: list(row, "y")?,
            z: list(row, "z")?,
            places: list(row, "places")?,
            shapes: list(row, "shapes")?,
            a: list(row, "a")?,
            b: list(row, "b")?,
            c: list(row, "c")?,
            done: list(row, "done")?,
            put: list(row, "put")?,
            trouble: row.try_get("trouble")?,
        })
    }
}

/// How many answers those are.
pub(crate) const MANY_ANSWERS: usize = 13;

/// What the server has seen of a meter, and what it has done.
#[derive(Clone)]
struct Seen {
    shape: i64,
    numbers: [Option<i64>; 3],
    charged: Charges,
}

/// What the server has charged to a meter.
#[derive(Clone, Copy, PartialEq)]
enum Charges {
    None,
    /// Those that fit, if any did.
    Fitting,
    All,
}

/// Slices that go the short way.
pub(crate) struct Take<'s> {
    slices: &'s [Slice],
    /// The places of the slices, those on one meter together and in their order.
    order: Vec<usize>,
    /// The meters: up to where in `order` the slices on each go.
    ends: Vec<usize>,
    /// Which states of each meter its slices surely fit.
    sure: Vec<Sure>,
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
    pub(crate) fn new(slices: &'s [Slice], config: &PostgresConfig) -> Option<Self> {
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
        let mut begin = 0;
        let sure = ends.iter().map(|end| {
            let meter = order[std::mem::replace(&mut begin, *end)..*end].iter();
            match config.time {
                TimeSource::Caller => Sure::of(meter.map(|place| &slices[*place]), config.slack_micros()),
                TimeSource::Server => Sure::NONE,
            }
        });
        let sure = sure.collect();
        Some(Self { slices, order, ends, sure })
    }

    pub(crate) fn call(&self, config: &PostgresConfig) -> Call {
        let (by_server, slack) = (config.time == TimeSource::Server, config.slack_micros());
        if let ([slice], [sure]) = (self.slices, self.sure.as_slice()) {
            let id = slice.asks[0].name.clone();
            return Call::TakeOne { id, claim: numbers(slice), by_server, slack, sure: *sure };
        }
        Call::Take {
            ids: self.names().map(<[u8]>::to_vec).collect(),
            lasts: self.ends.iter().map(|end| i32::try_from(*end).unwrap_or(i32::MAX)).collect(),
            claims: self.order.iter().flat_map(|place| numbers(&self.slices[*place])).collect(),
            sure: self.sure.iter().flat_map(Sure::numbers).collect(),
            shares: self.sure.iter().map(|sure| sure.share).collect(),
            by_server,
            slack,
        }
    }

    /// Those of the meters, in their order.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().map(|end| self.slices[self.order[end - 1]].asks[0].name.as_slice())
    }

    /// What core says to the states that the server has seen. `None` for slices on meters that somebody else has changed
    /// meanwhile, whose state is no such one, or whose turn did not come.
    pub(crate) fn answers(&self, reply: Reply) -> Result<Vec<Option<Result<Answer, Failure>>>, Failure> {
        let trouble = match &reply {
            Reply::Many(many) => many.trouble.as_deref().map(Failure::told),
            _ => None,
        };
        // The long way is another try.
        let trouble = trouble.filter(|failure| !failure.is_undone());
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
            let Some(seen) = seen else {
                let failed = trouble.clone().map(Err);
                slices.iter().for_each(|slice| answers[*slice] = failed.clone());
                continue;
            };
            let Some(mut state) = state(&ask.meter, seen) else { continue };
            let decided: Vec<Answer> =
                slices.iter().map(|slice| decide(&self.slices[*slice], &mut state, clock)).collect();
            let charged = decided.iter().filter(|answer| answer.charged).count();
            match seen.charged {
                Charges::None if charged > 0 => continue,
                Charges::Fitting if charged == 0 => return Err(Failure::strange_reply()),
                Charges::All if charged < decided.len() => return Err(Failure::strange_reply()),
                _ => {}
            }
            for (slice, answer) in slices.iter().zip(decided) {
                answers[*slice] = Some(Ok(answer));
            }
        }
        Ok(answers)
    }

    /// The server's clock, and what it has seen of each meter. `None` if the reply is none to this call.
    fn seen(&self, reply: Reply) -> Option<(Option<i64>, Vec<Option<Seen>>)> {
        match reply {
            Reply::One(numbers) => {
                let [written, clock, shape, numbers @ ..] = <[_; 6]>::try_from(numbers).ok()?;
                let seen = match (written?, numbers) {
                    (2, [Some(x), Some(y), z]) => self.before(0, [x, y], z)?,
                    (2, _) => return None,
                    (0, _) => Seen { shape: shape?, numbers, charged: Charges::None },
                    _ => Seen { shape: shape?, numbers, charged: Charges::Fitting },
                };
                (self.ends.len() == 1).then(|| (clock, vec![Some(seen)]))
            }
            Reply::Many(many) => {
                let mut seen = vec![None; self.ends.len()];
                let place_of = |place: i32| usize::try_from(place).ok()?.checked_sub(1);
                for (nth, place) in many.taken.into_iter().enumerate() {
                    let place = place_of(place)?;
                    let before =
                        self.before(place, [*many.x.get(nth)?, *many.y.get(nth)?], *many.z.get(nth)?)?;
                    *seen.get_mut(place)? = Some(before);
                }
                for (nth, place) in many.places.into_iter().enumerate() {
                    let shape = i64::from(*many.shapes.get(nth)?);
                    let numbers = [*many.a.get(nth)?, *many.b.get(nth)?, *many.c.get(nth)?];
                    *seen.get_mut(place_of(place)?)? = Some(Seen { shape, numbers, charged: Charges::None });
                }
                for place in many.done {
                    seen.get_mut(place_of(place)?)?.as_mut()?.charged = Charges::Fitting;
                }
                for (seen, name) in seen.iter_mut().zip(self.names()) {
                    if many.put.binary_search_by(|id| id.as_slice().cmp(name)).is_ok() {
                        seen.as_mut()?.charged = Charges::Fitting;
                    }
                }
                Some((many.clock, seen))
            }
            Reply::Numbers(_) => None,
        }
    }

    /// What there was of a meter all of whose charges surely fitted, from what there is now.
    fn before(&self, place: usize, [at, sum]: [i64; 2], carried: Option<i64>) -> Option<Seen> {
        let sure = self.sure.get(place)?;
        // Where the newest charge was before all of these, it does not matter when: in a window it was in the same segment, and
        // from what a bucket owed all has drained that could until now. Otherwise this is its instant, as for a single charge.
        let before = if at > sure.until { sure.since } else { at };
        let numbers = [Some(before), Some(sum.checked_sub(sure.more)?), carried];
        Some(Seen { shape: 1, numbers, charged: Charges::All })
    }
}

/// A claim as it travels: the caller's time, then what it asks for.
fn numbers(slice: &Slice) -> [i64; 8] {
    let mut numbers = [signed(slice.now.as_nanos()); 8];
    numbers[1..].copy_from_slice(&ask_numbers(&slice.asks[0]));
    numbers
}

/// The state of a meter that the server has seen.
fn state(meter: &Meter, seen: &Seen) -> Option<State> {
    match seen.shape {
        0 => return Some(meter.fresh()),
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
        Meter::Bucket(_) => return bucket_state(&[a?, b?, c?]),
        Meter::Log(_) => return None,
    };
    // By its bytes, core says whether it is a state at all.
    State::from_bytes(&state.to_bytes()).ok()
}

fn decide(slice: &Slice, state: &mut State, clock: Option<Timestamp>) -> Answer {
    let Ask { meter, cost, .. } = &slice.asks[0];
    let now = clock.unwrap_or(slice.now);
    let (admitted, verdict) = meter.claim(state, *cost, now, Mode::Charge);
    Answer { admitted, charged: admitted, now, verdicts: smallvec![verdict] }
}
