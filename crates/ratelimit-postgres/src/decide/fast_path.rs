//! The fast path: slices of one claim each, on windows of at most one carried segment and on buckets. See `take.sql`.

use ratelimit_core::meter::{Meter, State, WindowState};
use ratelimit_core::store::Time;
use ratelimit_core::store::{Answer, Mode};
use ratelimit_core::{StoreError, Timestamp};
use smallvec::smallvec;

use crate::config::PostgresConfig;
use crate::decide::certain_fit::CertainFit;
use crate::error;
use crate::wire::call::Argument::{BigInt, BigInts, Bytes, BytesList, Float, Floats, Ints};
use crate::wire::call::Call;
use crate::wire::claims::{OwnedClaim, OwnedClaims, claim_numbers, signed};
use crate::wire::codec::{bucket_state, by_server, slack, unsigned};
use crate::wire::reply::Reply;
use crate::wire::schema::Function;

/// The state of a meter that the server has read, and what it has charged.
#[derive(Clone)]
struct RowState {
    shape: i64,
    numbers: [Option<i64>; 3],
    charged: Charges,
}

/// What the server has charged to a meter.
#[derive(Clone, Copy, PartialEq)]
enum Charges {
    None,
    /// Those claims that fit, at least one.
    Fitting,
    All,
}

/// Slices for the fast path.
pub(crate) struct FastPath<'s> {
    slices: &'s [OwnedClaims],
    /// The indices of the slices, grouped by meter and in their order.
    order: Vec<usize>,
    /// For each meter, the end of its group in `order`.
    ends: Vec<usize>,
    /// For each meter, the states that its slices certainly fit.
    certain: Vec<CertainFit>,
}

/// The only claim of a slice, if it can take the fast path.
fn plain(slice: &OwnedClaims) -> Option<&OwnedClaim> {
    match slice.claims.as_slice() {
        [claim] if slice.mode == Mode::Charge && claim.cost > 0 => match claim.meter {
            Meter::Window(window) => (window.carried() <= 1).then_some(claim),
            Meter::Bucket(bucket) => (bucket.step() == 0).then_some(claim),
            Meter::Log(_) => None,
        },
        _ => None,
    }
}

/// Whether each of these slices can take the fast path by itself; [`FastPath::new`] checks them together.
pub(crate) fn are_plain(slices: &[OwnedClaims]) -> bool {
    slices.iter().all(|slice| plain(slice).is_some())
}

/// Whether two claims on one meter are of the same kind, and for windows have the same segments.
fn alike(one: &Meter, other: &Meter) -> bool {
    match (one, other) {
        (Meter::Window(one), Meter::Window(other)) => {
            let shape = |window: &ratelimit_core::meter::Window| {
                (window.segment(), window.offset(), window.carried())
            };
            shape(one) == shape(other)
        }
        (Meter::Bucket(_), Meter::Bucket(_)) => true,
        _ => false,
    }
}

impl<'s> FastPath<'s> {
    /// `None` if one of them needs the general path.
    pub(crate) fn new(slices: &'s [OwnedClaims], config: &PostgresConfig) -> Option<Self> {
        let claims: Vec<&OwnedClaim> = slices.iter().map(plain).collect::<Option<_>>()?;
        let mut order: Vec<usize> = (0..claims.len()).collect();
        order.sort_by(|one, other| claims[*one].key.cmp(&claims[*other].key));
        let mut ends = Vec::with_capacity(order.len());
        for place in 0..order.len() {
            match order.get(place + 1) {
                Some(next) if claims[*next].key == claims[order[place]].key => {
                    if !alike(&claims[*next].meter, &claims[order[place]].meter) {
                        return None;
                    }
                }
                _ => ends.push(place + 1),
            }
        }
        let mut begin = 0;
        let certain = ends.iter().map(|end| {
            let meter = order[std::mem::replace(&mut begin, *end)..*end].iter();
            match config.time {
                Time::Caller => CertainFit::of(meter.map(|place| &slices[*place]), config.slack_micros()),
                Time::Server => CertainFit::NONE,
            }
        });
        let certain = certain.collect();
        Some(Self { slices, order, ends, certain })
    }

    pub(crate) fn call(&self, config: &PostgresConfig) -> Call {
        if let ([slice], [certain]) = (self.slices, self.certain.as_slice()) {
            let CertainFit { since, until, share, keep, .. } = *certain;
            let mut arguments = Vec::with_capacity(15);
            arguments.push(Bytes(slice.claims[0].key.clone()));
            arguments.extend(numbers(slice).map(BigInt));
            arguments.extend([by_server(config), slack(config)]);
            arguments.extend([BigInt(since), BigInt(until), Float(share), BigInt(keep)]);
            return Call::new(Function::TakeOne, arguments);
        }
        let lasts = self.ends.iter().map(|end| i32::try_from(*end).unwrap_or(i32::MAX));
        let claims = self.order.iter().flat_map(|place| numbers(&self.slices[*place]));
        let arguments = [
            BytesList(self.names().map(<[u8]>::to_vec).collect()),
            Ints(lasts.collect()),
            BigInts(claims.collect()),
            BigInts(self.certain.iter().flat_map(CertainFit::numbers).collect()),
            Floats(self.certain.iter().map(|certain| certain.share).collect()),
            by_server(config),
            slack(config),
        ];
        Call::new(Function::Take, arguments)
    }

    /// The names of the meters, in their order.
    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.ends.iter().map(|end| self.slices[self.order[end - 1]].claims[0].key.as_slice())
    }

    /// The decisions of core on the states that the server has read. `None` for slices on meters that have been changed
    /// concurrently, whose state is not one of these kinds, or that were not reached.
    pub(crate) fn answers(
        &self,
        reply: Reply,
    ) -> Result<Vec<Option<Result<Answer, StoreError>>>, StoreError> {
        let trouble = match &reply {
            Reply::Many(many) => many.trouble.as_deref().map(error::from_answer),
            _ => None,
        };
        // The general path is another attempt.
        let trouble = trouble.filter(|error| !error::is_undone(error));
        let (clock, seen) = self.seen(reply).ok_or_else(error::strange_reply)?;
        let clock = match clock {
            Some(clock) => Some(unsigned(clock).map(Timestamp::from_nanos).ok_or_else(error::strange_reply)?),
            None => None,
        };
        let mut answers = vec![None; self.slices.len()];
        let mut begin = 0;
        for (seen, end) in seen.iter().zip(&self.ends) {
            let slices = &self.order[begin..*end];
            begin = *end;
            let claim = &self.slices[slices[0]].claims[0];
            let Some(seen) = seen else {
                let failed = trouble.clone().map(Err);
                slices.iter().for_each(|slice| answers[*slice] = failed.clone());
                continue;
            };
            let Some(mut state) = state(&claim.meter, seen) else { continue };
            let decided: Vec<Answer> =
                slices.iter().map(|slice| decide(&self.slices[*slice], &mut state, clock)).collect();
            let charged = decided.iter().filter(|answer| answer.charged).count();
            match seen.charged {
                Charges::None if charged > 0 => continue,
                Charges::Fitting if charged == 0 => return Err(error::strange_reply()),
                Charges::All if charged < decided.len() => return Err(error::strange_reply()),
                _ => {}
            }
            for (slice, answer) in slices.iter().zip(decided) {
                answers[*slice] = Some(Ok(answer));
            }
        }
        Ok(answers)
    }

    /// The server's clock, and the states that it has read. `None` if the reply does not match this call.
    fn seen(&self, reply: Reply) -> Option<(Option<i64>, Vec<Option<RowState>>)> {
        match reply {
            Reply::One(numbers) => {
                let [written, clock, shape, numbers @ ..] = <[_; 6]>::try_from(numbers).ok()?;
                let seen = match (written?, numbers) {
                    (2, [Some(x), Some(y), z]) => self.before(0, [x, y], z)?,
                    (2, _) => return None,
                    (0, _) => RowState { shape: shape?, numbers, charged: Charges::None },
                    _ => RowState { shape: shape?, numbers, charged: Charges::Fitting },
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
                    *seen.get_mut(place_of(place)?)? =
                        Some(RowState { shape, numbers, charged: Charges::None });
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
        }
    }

    /// The state of a meter before charges that certainly fitted, computed from the state after them.
    fn before(&self, place: usize, [at, sum]: [i64; 2], carried: Option<i64>) -> Option<RowState> {
        let certain = self.certain.get(place)?;
        // If the newest charge was before all of these, its instant does not matter: a window's was in the same segment,
        // and a bucket's debt has drained up to now. Otherwise this is its instant, as for a single charge.
        let before = if at > certain.until { certain.since } else { at };
        let numbers = [Some(before), Some(sum.checked_sub(certain.more)?), carried];
        Some(RowState { shape: 1, numbers, charged: Charges::All })
    }
}

/// The encoding of a claim: the caller's time, then its numbers.
fn numbers(slice: &OwnedClaims) -> [i64; 8] {
    let mut numbers = [signed(slice.now.as_nanos()); 8];
    numbers[1..].copy_from_slice(&claim_numbers(&slice.claims[0]));
    numbers
}

/// The state of a meter that the server has read.
fn state(meter: &Meter, seen: &RowState) -> Option<State> {
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
    // Core validates the bytes of a state.
    State::from_bytes(&state.to_bytes()).ok()
}

fn decide(slice: &OwnedClaims, state: &mut State, clock: Option<Timestamp>) -> Answer {
    let OwnedClaim { meter, cost, .. } = &slice.claims[0];
    let now = clock.unwrap_or(slice.now);
    let (admitted, verdict) = meter.claim(state, *cost, now, Mode::Charge);
    Answer { admitted, charged: admitted, now, verdicts: smallvec![verdict] }
}
