//! Limits: how many units, per which period, counted by which algorithm.

mod algorithm;
mod ban;
#[cfg(feature = "calendar")]
mod calendar;
#[cfg(not(feature = "calendar"))]
#[path = "calendar/absent.rs"]
mod calendar;
mod duration;
mod hints;
mod limits;
mod parse_error;
#[cfg(feature = "serde")]
mod serde;
mod spec;
mod text;

pub use algorithm::{Algorithm, Alignment};
pub(crate) use ban::Ban;
#[cfg(feature = "calendar")]
pub use calendar::Calendar;
pub use limits::{IntoLimits, Limits};
pub use parse_error::ParseLimitError;

pub use duration::parse_duration;

use std::sync::Arc;
use std::time::Duration;

#[cfg(not(feature = "calendar"))]
use self::calendar::Calendar;
use self::duration::nanos;
use self::spec::Spec;
use crate::key::stable_hash;
use crate::meter::{Meter, Window};
use crate::{LimitError, Timestamp};

/// The maximum length of a limit's name, in characters (ASCII).
const MAX_NAME: usize = 64;

/// How long a concurrency limit keeps the units of a holder that has crashed, unless its text or builder says otherwise.
const DEFAULT_LEASE: Duration = Duration::from_secs(60);

/// A limit: `quota` units per `period`, counted by an [`Algorithm`].
///
/// Write it as text, or use the constructor of its algorithm:
///
/// ```
/// use ratelimit_core::Limit;
/// use std::time::Duration;
///
/// let text: Limit = "10000 per 15 minutes".parse()?;
/// let built = Limit::sliding_window(10_000, Duration::from_secs(15 * 60)).build()?;
/// assert_eq!(text, built);
/// assert_eq!(built.to_string(), "10000/15min");
///
/// let bucket = Limit::token_bucket(100, Duration::from_secs(60)).burst(20).name("search").build()?;
/// assert_eq!(bucket.to_string(), "100/min burst 20 name search");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// | text | algorithm |
/// |---|---|
/// | `10/s` | sliding-window counter |
/// | `10/s fixed` | fixed window |
/// | `240/hour precision 1m` | segmented sliding window; with `strict` never more than 240 in any hour |
/// | `100/min log` | sliding log |
/// | `100/min burst 20` | token bucket (GCRA); `gcra` and `bucket` name it as well |
/// | `100/min leaky burst 20` | leaky bucket as a meter: refuses |
/// | `100/min queue burst 20` | leaky bucket as a queue: admits with a delay, evenly spaced |
/// | `100/min queue burst 20 immediate 5` | the same, but the first five have no delay |
/// | `20 at once` | concurrency limit; `lease 30s` sets how long a crashed holder keeps its units, by default a minute |
/// | `100/5h from first request` | fixed window that begins with a key's first request |
/// | `1000/h burst 5000 step 1h` | token bucket that is refilled once an hour |
/// | `1000 in total` | a count that never restarts |
/// | `1000/month`, `50/day in Europe/Berlin` | fixed window of the calendar (feature `calendar`) |
/// | `ban 10min after 5 in 1min` | a ban after refusals; `growing 2 up to 1day` makes repeated bans longer |
///
/// Each of them can be followed by `name WORD`, and windows by `staggered` or `offset DURATION`.
///
/// # What is counted together
///
/// A meter belongs to a key and to the [scope](Self::scope) of a limit: its algorithm, its period and its name. It does
/// not depend on the quota. A limit keeps its count if its quota or burst changes: after an increase, more units are
/// available immediately; after a decrease, none remain until enough time has passed. So plans (`100/min` and `3000/min`)
/// share a key's meter, and a customer who upgrades keeps what was used. What a bucket has admitted drains at the rate of
/// the limit that it was charged under. Two limits of the same algorithm and period on one key need different names.
///
/// A named bucket also keeps its count if the period changes. Windows and logs of another length are always different
/// ones: what a shorter one has forgotten would be missing in a longer one.
#[derive(Clone, Debug)]
#[repr(C)] // what each claim needs is side by side
pub struct Limit {
    meter: Meter,
    scope: Arc<str>,
    /// Whether `meter` is the same for all keys at all times, and is charged the request's cost: no staggered windows, no
    /// period of the calendar, no ban.
    is_plain: bool,
    spec: Arc<Spec>,
}

/// Builds a [`Limit`]; see its constructors.
#[derive(Clone, Debug)]
#[must_use = "call build()"]
pub struct LimitBuilder {
    spec: Spec,
    /// Whether the options fit the algorithm: the error of the last one that does not.
    options: Result<(), LimitError>,
}

impl Limit {
    /// A fixed window; see [`Algorithm::FixedWindow`].
    pub fn fixed_window(quota: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(quota, period, Algorithm::FixedWindow)
    }

    /// A sliding-window counter; see [`Algorithm::SlidingWindow`].
    pub fn sliding_window(quota: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(quota, period, Algorithm::SlidingWindow)
    }

    /// A segmented sliding window; see [`Algorithm::SegmentedWindow`].
    pub fn segmented_window(quota: u64, period: Duration, precision: Duration) -> LimitBuilder {
        LimitBuilder::new(quota, period, Algorithm::SegmentedWindow { precision, strict: false })
    }

    /// A sliding log; see [`Algorithm::SlidingLog`].
    pub fn sliding_log(quota: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(quota, period, Algorithm::SlidingLog)
    }

    /// A token bucket (GCRA); see [`Algorithm::TokenBucket`]. Its burst is the quota unless you set it.
    pub fn token_bucket(quota: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(quota, period, Algorithm::TokenBucket)
    }

    /// A leaky bucket as a meter; see [`Algorithm::LeakyBucket`]. Its burst is the quota unless you set it.
    pub fn leaky_bucket(quota: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(quota, period, Algorithm::LeakyBucket)
    }

    /// A fixed window that is a period of the calendar.
    ///
    /// Each window is a meter of its own. The limiter's clock chooses the window, even if the store decides by its server's
    /// time.
    #[cfg(feature = "calendar")]
    pub fn calendar(quota: u64, calendar: Calendar) -> LimitBuilder {
        LimitBuilder::of_calendar(quota, calendar)
    }

    /// A concurrency limit: at most `quota` units held at once; see [`Algorithm::Concurrency`]. The lease is a minute
    /// unless you set [another](LimitBuilder::lease).
    pub fn concurrency(quota: u64) -> LimitBuilder {
        LimitBuilder::new(quota, DEFAULT_LEASE, Algorithm::Concurrency)
    }

    /// A ban: a key that is refused `refusals` times within a period is refused for `duration`; see [`Algorithm::Ban`].
    ///
    /// ```
    /// use ratelimit_core::{Limit, Limits};
    /// use std::time::Duration;
    ///
    /// let minute = Duration::from_secs(60);
    /// let ban = Limit::ban(5, minute, 10 * minute).growing(2, 24 * 60 * minute).build()?;
    /// assert_eq!(ban.to_string(), "ban 10min after 5 in 1min growing 2 up to 1d");
    /// let limits = Limits::new(["100/min".parse()?, ban])?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ban(refusals: u64, within: Duration, duration: Duration) -> LimitBuilder {
        LimitBuilder::new(refusals, within, Algorithm::Ban { duration, factor: 1, longest: duration })
    }

    /// A count that never restarts: `quota` units in total; see [`Algorithm::Total`].
    pub fn total(quota: u64) -> LimitBuilder {
        LimitBuilder::new(quota, Duration::ZERO, Algorithm::Total)
    }

    /// A leaky bucket as a queue; see [`Algorithm::LeakyQueue`]. Its burst is the quota unless you set it.
    pub fn leaky_queue(quota: u64, period: Duration) -> LimitBuilder {
        LimitBuilder::new(quota, period, Algorithm::LeakyQueue)
    }

    /// Units per period. For a ban, the number of refusals that start it.
    pub fn quota(&self) -> u64 {
        self.spec.quota
    }

    /// The period; zero if the limit has none ([`Algorithm::Total`]).
    ///
    /// For a period of the calendar, this is the longest that it can be without a change of clocks: 31 days for a month.
    /// In the limits of a [`Decision`](crate::Decision), it is the exact length of the window.
    pub fn period(&self) -> Duration {
        self.spec.period
    }

    /// How units are counted.
    pub fn algorithm(&self) -> Algorithm {
        self.spec.algorithm
    }

    /// The maximum number of units at once: the burst of a bucket or queue, zero of a ban, otherwise the quota.
    pub fn burst(&self) -> u64 {
        self.meter.limit()
    }

    /// How many units of its burst a queue admits without a delay, if this was [set](LimitBuilder::immediate); otherwise it
    /// is one.
    pub fn immediate(&self) -> Option<u64> {
        self.spec.immediate
    }

    /// The time between two refills of a token bucket; `None` if it is refilled continuously.
    pub fn step(&self) -> Option<Duration> {
        self.spec.step
    }

    /// Where windows begin.
    pub fn alignment(&self) -> Alignment {
        self.spec.alignment
    }

    /// The limit's name, if it has one.
    pub fn name(&self) -> Option<&str> {
        self.spec.name.as_deref()
    }

    /// The part of a meter's name that comes from the limit: its name if it has one, its algorithm and its period, as in
    /// `sliding:1min`, `search=sliding:1min` or `search=bucket`. ASCII.
    ///
    /// The quota and the burst are not part of it. Neither is the period of a named bucket or queue.
    pub fn scope(&self) -> &str {
        &self.scope
    }

    /// The limit's meter, if it is the same for all keys at all times, and is charged the request's cost. `None` for staggered
    /// windows, for a period of the calendar that has not been replaced by its window, and for a ban.
    #[inline]
    pub(crate) fn common_meter(&self) -> Option<&Meter> {
        self.is_plain.then_some(&self.meter)
    }

    /// Whether it is a [ban](Algorithm::Ban), which counts refusals and no units.
    #[inline]
    pub fn is_ban(&self) -> bool {
        self.spec.is_ban()
    }

    /// The meters of a ban, if it is one.
    pub(crate) fn ban_meters(&self) -> Option<Ban> {
        Ban::new(self.spec.algorithm, self.spec.quota, self.spec.period, &self.scope)
    }

    /// How many units a request of this cost charges.
    pub(crate) fn cost_of(&self, cost: u64) -> u64 {
        if self.is_ban() { 0 } else { cost }
    }

    /// Whether the limit has to be replaced by its window [at](Self::at) the instant of a check.
    #[inline]
    pub(crate) fn depends_on_time(&self) -> bool {
        self.spec.alignment == Alignment::Calendar && self.spec.calendar.is_some()
    }

    /// Returns the limit as it is at `now`: for a period of the calendar, the window that contains `now`. Any other limit
    /// is returned as it is.
    ///
    /// [`RateLimiter`](crate::RateLimiter) calls this for you.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Self {
        let window = if self.depends_on_time() { self.window_at(now) } else { None };
        window.unwrap_or_else(|| self.clone())
    }

    /// For a period of the calendar, the limit in the window that contains `now`. This also works on the limit of an earlier
    /// window.
    pub(crate) fn window_at(&self, now: Timestamp) -> Option<Self> {
        let calendar = self.spec.calendar.as_ref()?;
        let window = calendar.window(now);
        let second = 1_000_000_000;
        let length = (window.end - window.begin).saturating_mul(second);
        // The segments of this length that begin with this window.
        let offset = length - window.begin.saturating_mul(second).checked_rem(length).unwrap_or(0);
        let meter = Window::new(self.spec.quota, length, 0, false, offset % length.max(1));
        Some(Self {
            meter: meter.map_or(self.meter, Meter::Window),
            scope: format!("{}:{}", self.spec.scope(), window.first_day).into(),
            is_plain: true,
            spec: Arc::new(Spec {
                period: Duration::from_nanos(length),
                alignment: Alignment::Epoch,
                ..(*self.spec).clone()
            }),
        })
    }

    /// This limit for a request of `cost` units that waits at most `longest_wait` for its turn. Reduces the burst of a queue, so
    /// that it refuses what would have to wait longer. Returns any other limit unchanged.
    pub(crate) fn within(&self, longest_wait: Duration, cost: u64) -> Self {
        let mut limit = self.clone();
        if let Meter::Bucket(bucket) = self.meter
            && bucket.is_queue()
        {
            let waiting = nanos(longest_wait) / bucket.interval();
            let burst = bucket.immediate().max(cost).saturating_add(waiting).min(bucket.burst());
            limit.meter = bucket.with_rate(bucket.interval(), burst).map_or(self.meter, Meter::Bucket);
            Arc::make_mut(&mut limit.spec).burst = Some(burst);
        }
        limit
    }

    /// Whether admitted requests may have to wait for their turn.
    pub(crate) fn is_queue(&self) -> bool {
        matches!(self.meter, Meter::Bucket(bucket) if bucket.is_queue())
    }

    /// Returns the meter that counts `key`. It depends on the key only if the limit is staggered. For a period of the
    /// calendar, first call [`at`](Self::at).
    pub fn meter_for(&self, key: &[u8]) -> Meter {
        match self.meter {
            Meter::Window(window) if self.spec.alignment == Alignment::Staggered => {
                Meter::Window(window.staggered(stable_hash(key)))
            }
            meter => meter,
        }
    }
}

impl PartialEq for Limit {
    fn eq(&self, other: &Self) -> bool {
        self.spec == other.spec
    }
}

impl Eq for Limit {}

impl LimitBuilder {
    fn new(quota: u64, period: Duration, algorithm: Algorithm) -> Self {
        let alignment = Alignment::Epoch;
        let spec = Spec {
            quota,
            period,
            algorithm,
            burst: None,
            immediate: None,
            step: None,
            alignment,
            name: None,
            calendar: None,
        };
        Self { spec, options: Ok(()) }
    }

    fn unsuitable(&mut self, option: &'static str, needs: &'static str) {
        self.options = Err(LimitError::Unsuitable { option, needs });
    }

    fn of_calendar(quota: u64, calendar: Calendar) -> Self {
        let mut builder = Self::new(quota, calendar.longest(), Algorithm::FixedWindow);
        builder.spec.alignment = Alignment::Calendar;
        builder.spec.calendar = Some(calendar);
        builder
    }

    /// Sets how many units are admitted at once; for buckets and queues. By default the quota.
    pub fn burst(mut self, units: u64) -> Self {
        self.spec.burst = Some(units);
        self
    }

    /// Sets how many units of its burst a queue admits without a delay; by default one. A request that costs more waits
    /// until the queue is empty.
    ///
    /// The queue is then like a token bucket with a burst of `units`, except that a request that does not fit waits for
    /// its turn instead of being refused. nginx calls this option `delay`.
    pub fn immediate(mut self, units: u64) -> Self {
        self.spec.immediate = Some(units);
        self
    }

    /// Refills a token bucket only once per `step`, with all tokens of that time; their number must be whole. The first
    /// step begins with the first charge. A charge that finds the bucket with all of its tokens begins a new step.
    pub fn step(mut self, step: Duration) -> Self {
        self.spec.step = Some(step);
        self
    }

    /// Sets how long the units of a concurrency limit are held if they are neither released nor renewed.
    ///
    /// For other algorithms [`build`](Self::build) returns an error.
    pub fn lease(mut self, lease: Duration) -> Self {
        match self.spec.algorithm {
            Algorithm::Concurrency => self.spec.period = lease,
            _ => self.unsuitable("a lease", "a concurrency limit"),
        }
        self
    }

    /// Makes each further ban of a key `factor` times as long as the one before, but not longer than `longest`. After 32 bans
    /// it is `longest`.
    ///
    /// If the factor is less than 2, and for other algorithms, [`build`](Self::build) returns an error.
    pub fn growing(mut self, factor: u32, longest: Duration) -> Self {
        match self.spec.algorithm {
            Algorithm::Ban { duration, .. } => {
                self.spec.algorithm = Algorithm::Ban { duration, factor, longest }
            }
            _ => self.unsuitable("a growing length", "a ban"),
        }
        self
    }

    /// Counts the oldest segment in full, so that *any* span as long as the period admits at most the quota; for segmented
    /// windows.
    ///
    /// For other algorithms [`build`](Self::build) returns an error.
    pub fn strict(mut self) -> Self {
        match &mut self.spec.algorithm {
            Algorithm::SegmentedWindow { strict, .. } => *strict = true,
            _ => self.unsuitable("strict", "a segmented window"),
        }
        self
    }

    /// Sets where windows begin.
    pub fn alignment(mut self, alignment: Alignment) -> Self {
        self.spec.alignment = alignment;
        self
    }

    /// Starts each key's windows at a different instant: [`Alignment::Staggered`].
    pub fn staggered(self) -> Self {
        self.alignment(Alignment::Staggered)
    }

    /// Starts each key's windows with its first request: [`Alignment::FirstRequest`].
    pub fn from_first_request(self) -> Self {
        self.alignment(Alignment::FirstRequest)
    }

    /// Names the limit: 1 to 64 ASCII letters, digits, `.`, `_` or `-`. See [`Limit`] for the effect of a name.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.spec.name = Some(name.into().into_boxed_str());
        self
    }

    /// Builds the limit.
    ///
    /// # Errors
    /// If a number is zero or too large, if the algorithm cannot represent the limit, if an option does not apply to
    /// the algorithm, or if the name is not valid. Only windows may have a quota of zero, which then
    /// admit nothing; windows from the first request may not.
    pub fn build(self) -> Result<Limit, LimitError> {
        let Self { mut spec, options } = self;
        options?;
        if spec.name.as_deref().is_some_and(|name| !is_name(name)) {
            return Err(LimitError::BadName);
        }
        spec.check_calendar()?;
        spec.alignment = spec.reduced_alignment();
        let meter = spec.meter()?;
        let scope = spec.scope().into();
        let is_plain =
            !spec.is_ban() && !matches!(spec.alignment, Alignment::Staggered | Alignment::Calendar);
        Ok(Limit { meter, scope, is_plain, spec: Arc::new(spec) })
    }
}

fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    !name.is_empty() && name.len() <= MAX_NAME && name.bytes().all(good)
}
