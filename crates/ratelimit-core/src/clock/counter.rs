//! A clock that reads the processor's counter, at a third of the cost of reading the operating system's clock.

use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::sync::{LazyLock, Mutex, PoisonError, TryLockError};
use std::time::{Instant, SystemTime};

/// The counter of this process.
pub(super) static COUNTER: LazyLock<Counter> = LazyLock::new(Counter::new);

/// How much slower than the monotonic clock the counter is made to run: one part in a million. So each adjustment is a step
/// forward of this size, and the counter never has to go back. If it is ahead all the same, it runs so much
/// slower that the monotonic clock has caught up by the next adjustment.
const BEHIND: u64 = 1_000_000;

/// Time between two adjustments, in nanoseconds.
const SPAN: u64 = 1_000_000_000;

/// Nanoseconds since creation, read from the processor's counter and adjusted to the monotonic clock once a second.
///
/// While a machine is suspended, its monotonic clock may stop although the counter goes on. If the wall clock agrees that so
/// much time has passed, the counter is right, and the monotonic clock stays behind by that much.
///
/// On a processor without a counter that runs evenly, `quanta` reads the monotonic clock instead.
///
/// All fields that a reading needs are on one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Counter {
    /// Odd while the line is being written.
    version: AtomicU64,
    line: Calibration,
    raw: quanta::Clock,
    origin: Instant,
    adjusting: Mutex<Sample>,
}

/// A linear function of the processor's counter `raw`: `nanos + (raw - begin) x rate / 2^32` nanoseconds.
#[derive(Debug)]
struct Calibration {
    begin: AtomicU64,
    nanos: AtomicU64,
    rate: AtomicU64,
    /// How far the processor's counter advances in [`SPAN`].
    span: AtomicU64,
}

/// How far a reading of the processor's counter may be before the line's begin although the counter has not gone back: this
/// thread read it before another thread set that begin.
const SLIP: u64 = 10_000_000;

impl Calibration {
    fn new(begin: u64, rate: u64) -> Self {
        let line = Self { begin: begin.into(), nanos: 0.into(), rate: 0.into(), span: 0.into() };
        line.set_rate(rate);
        line
    }

    fn set_rate(&self, rate: u64) {
        self.rate.store(rate, Ordering::Relaxed);
        self.span.store((SPAN << 32) / rate.max(1), Ordering::Relaxed);
    }

    /// The value at `raw`, and its distance from the line's begin; `None` if `raw` is far before it.
    fn at(&self, raw: u64) -> Option<(u64, u64)> {
        let begin = self.begin.load(Ordering::Relaxed);
        let nanos = self.nanos.load(Ordering::Relaxed);
        let rate = self.rate.load(Ordering::Relaxed);
        match raw.checked_sub(begin) {
            Some(counted) => {
                let passed = (u128::from(counted) * u128::from(rate)) >> 32;
                let passed = u64::try_from(passed).unwrap_or(u64::MAX);
                Some((nanos.saturating_add(passed), passed))
            }
            None if begin - raw < SLIP => Some((nanos, 0)),
            None => None,
        }
    }
}

/// Both clocks, read together.
#[derive(Clone, Copy, Debug)]
struct Sample {
    raw: u64,
    nanos: u64,
    /// The part of `nanos` that the monotonic clock did not count.
    missed: u64,
    /// The wall clock, in nanoseconds since 1970.
    wall: u64,
}

impl Counter {
    fn new() -> Self {
        let raw = if cfg!(miri) { quanta::Clock::mock().0 } else { quanta::Clock::new() };
        // The nanoseconds in which the processor's counter counts to 2^32, as measured by the library.
        let rate = raw.delta_as_nanos(0, 1 << 32);
        let origin = Instant::now();
        let begin = raw.raw();
        let line = Calibration::new(begin, rate - rate / BEHIND);
        let adjusting = Mutex::new(Sample { raw: begin, nanos: 0, missed: 0, wall: wall() });
        Self { raw, origin, version: AtomicU64::new(0), line, adjusting }
    }

    /// Nanoseconds since the counter was created.
    #[inline]
    pub(super) fn nanos(&self) -> u64 {
        // Miri has no instruction that reads the processor's counter.
        if cfg!(miri) {
            return u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX);
        }
        let raw = self.raw.raw();
        let version = self.version.load(Ordering::Acquire);
        let begin = self.line.begin.load(Ordering::Relaxed);
        let nanos = self.line.nanos.load(Ordering::Relaxed);
        let rate = self.line.rate.load(Ordering::Relaxed);
        let span = self.line.span.load(Ordering::Relaxed);
        fence(Ordering::Acquire);
        let changed = self.version.load(Ordering::Relaxed) ^ version;
        // Far larger than any span if `raw` is before the line's begin.
        let counted = raw.wrapping_sub(begin);
        if changed | version & 1 == 0 && counted < span {
            // 64 bits have room for four spans.
            return nanos + ((counted * rate) >> 32);
        }
        self.nanos_in_full(raw)
    }

    #[cold]
    fn nanos_in_full(&self, raw: u64) -> u64 {
        match self.reading(raw) {
            Some((nanos, passed)) if passed < SPAN => nanos,
            _ => self.adjust(),
        }
    }

    /// The reading at `raw`, and its distance from the line's begin; `None` if the counter has gone back.
    fn reading(&self, raw: u64) -> Option<(u64, u64)> {
        loop {
            let version = self.version.load(Ordering::Acquire);
            let reading = self.line.at(raw);
            fence(Ordering::Acquire);
            if version.is_multiple_of(2) && self.version.load(Ordering::Relaxed) == version {
                return reading;
            }
            // The line is being written. That takes some nanoseconds, unless the writer was preempted.
            std::thread::yield_now();
        }
    }

    /// Fits a new line to the monotonic clock. If another thread is doing so already, uses the old line, which is still
    /// good enough.
    #[cold]
    fn adjust(&self) -> u64 {
        let mut last = match self.adjusting.try_lock() {
            Ok(last) => last,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                if let Some((nanos, _)) = self.reading(self.raw.raw()) {
                    return nanos;
                }
                self.adjusting.lock().unwrap_or_else(PoisonError::into_inner)
            }
        };
        let mut now = self.real(last.missed);
        // Only one thread at a time changes the line.
        let reading = self.line.at(now.raw).map_or(now.nanos, |(nanos, _)| nanos);
        let behind = now.nanos.saturating_sub(reading);
        let mut ahead = reading.saturating_sub(now.nanos);
        // What the wall clock counted, and the monotonic clock did not.
        let jumped = now.wall.saturating_sub(last.wall).saturating_sub(now.nanos - last.nanos);
        if ahead >= SPAN && jumped >= ahead / 2 {
            // The machine was suspended.
            now = Sample { nanos: reading, missed: now.missed + ahead, ..now };
            ahead = 0;
        }
        let usual = self.raw.delta_as_nanos(0, 1 << 32);
        let measured = match (now.raw.checked_sub(last.raw), now.nanos - last.nanos) {
            (Some(counted), passed) if counted > 0 && passed >= SPAN / 2 => {
                u64::try_from((u128::from(passed) << 32) / u128::from(counted)).unwrap_or(u64::MAX)
            }
            _ => usual,
        };
        // Otherwise the rate that was measured is not one: one of the two clocks has stopped for a time.
        let rate = if measured.abs_diff(usual) < usual / 2 { measured } else { usual };
        let slower = u128::from(rate) * u128::from(ahead) / u128::from(SPAN);
        let slower = rate / BEHIND + u64::try_from(slower).unwrap_or(rate);
        self.version.fetch_add(1, Ordering::Relaxed);
        fence(Ordering::Release);
        // The new line begins at the current value of the old one or above it, so no thread ever sees time go back.
        let begin = self.raw.raw();
        let nanos = match self.line.at(begin) {
            Some((nanos, _)) => nanos.saturating_add(behind),
            // The old line may have been read up to a span after its begin.
            None => self.line.nanos.load(Ordering::Relaxed).saturating_add(SPAN).max(now.nanos),
        };
        self.line.begin.store(begin, Ordering::Relaxed);
        self.line.nanos.store(nanos, Ordering::Relaxed);
        self.line.set_rate(rate - slower.min(rate / 2));
        self.version.fetch_add(1, Ordering::Release);
        *last = now;
        nanos
    }

    /// Reads both clocks at the present instant. Takes the one of three readings during which the counter advanced
    /// least, because the thread may be preempted in the middle of one. `missed` is what the monotonic clock did not count.
    fn real(&self, missed: u64) -> Sample {
        let readings = [(); 3].map(|()| {
            let before = self.raw.raw();
            let nanos =
                u64::try_from(self.origin.elapsed().as_nanos()).unwrap_or(u64::MAX).saturating_add(missed);
            (self.raw.raw().saturating_sub(before), Sample { raw: before, nanos, missed, wall: 0 })
        });
        let [first, ..] = readings;
        let (width, sample) = readings.into_iter().min_by_key(|(width, _)| *width).unwrap_or(first);
        Sample { raw: sample.raw + width / 2, wall: wall(), ..sample }
    }
}

fn wall() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_counter_follows_the_monotonic_clock() {
        let counter = Counter::new();
        let mut last = 0;
        for _ in 0..300 {
            std::thread::sleep(Duration::from_millis(10));
            let before = counter.origin.elapsed();
            let nanos = counter.nanos();
            let after = counter.origin.elapsed();
            assert!(nanos >= last, "{nanos} after {last}");
            last = nanos;
            // It may be behind by a few microseconds, or by 500 if the machine's clock has just begun to be slewed.
            let (low, high) = (before.as_nanos() - 1_000_000, after.as_nanos() + 1_000_000);
            assert!((low..=high).contains(&u128::from(nanos)), "{low} <= {nanos} <= {high}");
        }
    }

    #[test]
    fn a_rate_that_is_too_fast_is_corrected() {
        let counter = Counter::new();
        for too_fast in [1_000, 100_000, 10_000_000] {
            let rate = counter.line.rate.load(Ordering::Relaxed);
            counter.line.set_rate(rate + rate / too_fast);
            std::thread::sleep(Duration::from_millis(1_100));
            let first = counter.nanos();
            // The line has been adjusted: no step back, and now at most as far behind as it was ahead.
            std::thread::sleep(Duration::from_millis(1_100));
            let (before, nanos) = (counter.origin.elapsed(), counter.nanos());
            assert!(nanos >= first);
            let ahead = 1_100_000_000 / u128::from(too_fast);
            assert!(
                u128::from(nanos) + 2 * ahead + 200_000 >= before.as_nanos(),
                "{nanos} {before:?} {too_fast}"
            );
        }
    }

    /// The processor's counter has gone on while the machine was suspended, and its monotonic clock has not.
    #[test]
    fn after_a_suspension_the_clock_goes_on_at_its_usual_rate() {
        let counter = Counter::new();
        for awake in [600, 100] {
            std::thread::sleep(Duration::from_millis(awake));
            let before = counter.nanos();
            let suspended = 10 * counter.line.span.load(Ordering::Relaxed);
            counter.line.begin.fetch_sub(suspended, Ordering::Relaxed);
            {
                let mut last = counter.adjusting.lock().unwrap();
                (last.raw, last.wall) = (last.raw - suspended, last.wall - 10 * SPAN);
            }
            let first = counter.nanos();
            assert!(first - before > 9 * SPAN, "{first} after {before}");
            for _ in 0..2 {
                let (awake, first) = (Instant::now(), counter.nanos());
                std::thread::sleep(Duration::from_millis(1_100));
                let passed = Duration::from_nanos(counter.nanos() - first);
                let (least, most) =
                    (Duration::from_millis(1_050), awake.elapsed() + Duration::from_millis(50));
                assert!((least..most).contains(&passed), "{passed:?} of {most:?}");
            }
        }
    }

    /// Nobody has read the clock for long, and its rate was measured while the machine's clock was slewed.
    #[test]
    fn a_clock_that_is_ahead_without_a_suspension_is_corrected() {
        let counter = Counter::new();
        std::thread::sleep(Duration::from_millis(1_100));
        counter.nanos();
        let rate = counter.line.rate.load(Ordering::Relaxed);
        counter.line.set_rate(2 * rate);
        std::thread::sleep(Duration::from_millis(1_300));
        let ahead = |counter: &Counter| {
            let real = u64::try_from(counter.origin.elapsed().as_nanos()).unwrap();
            counter.nanos().saturating_sub(real)
        };
        assert!(ahead(&counter) > SPAN);
        std::thread::sleep(Duration::from_millis(2_700));
        counter.nanos();
        std::thread::sleep(Duration::from_millis(1_100));
        assert!(ahead(&counter) < SPAN / 10, "{}", ahead(&counter));
    }

    #[test]
    fn a_rate_that_the_library_has_measured_wrongly_is_corrected() {
        let counter = Counter::new();
        for wrong in [5, 4, 3] {
            let begin = counter.raw.raw();
            let rate = counter.raw.delta_as_nanos(0, 1 << 32);
            counter.line.set_rate(rate - rate / wrong);
            while counter.raw.delta_as_nanos(begin, counter.raw.raw()) < 3 * SPAN {
                counter.nanos();
                std::thread::sleep(Duration::from_millis(50));
            }
            let (before, nanos) = (counter.origin.elapsed(), counter.nanos());
            assert!(u128::from(nanos) + 1_000_000 >= before.as_nanos(), "{nanos} {before:?}");
        }
    }

    #[test]
    fn concurrent_adjustments_never_make_time_go_back() {
        let counter = Counter::new();
        // Too steep at first, so that the next line is flatter.
        let rate = counter.line.rate.load(Ordering::Relaxed);
        counter.line.set_rate(rate + rate / 100);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    let mut last = 0;
                    while last < 2_200_000_000 {
                        let nanos = counter.nanos();
                        assert!(nanos >= last, "{nanos} after {last}");
                        last = nanos;
                    }
                });
            }
        });
    }

    #[test]
    fn readers_never_see_a_partial_adjustment() {
        let (counter, over) = (Counter::new(), AtomicBool::new(false));
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last = 0;
                    while !over.load(Ordering::Relaxed) {
                        let nanos = counter.nanos();
                        assert!(nanos >= last, "{nanos} after {last}");
                        last = nanos;
                    }
                });
            }
            let until = Instant::now() + Duration::from_secs(1);
            while Instant::now() < until {
                counter.adjust();
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
