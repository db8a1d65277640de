//! Meters made from an input, and what is true of every verdict.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::{Bucket, Log, MAX_PERIOD_NANOS, MAX_UNITS, Meter, Window};
use ratelimit_core::store::Verdict;

use crate::Input;

/// Takes a meter of any kind off an input.
///
/// # Panics
/// Never: all numbers are within their bounds.
pub fn any_meter(input: &mut Input<'_>) -> Meter {
    let meter = match input.byte() % 8 {
        0..3 => {
            let carried = u32::try_from(*input.one_of(&[0, 1, 1, 2, 5, 3_600])).unwrap();
            let segment = input.within(1, MAX_PERIOD_NANOS / 1_000 / u64::from(carried.max(1))) * 1_000;
            let offset = input.within(0, segment / 1_000 - 1) * 1_000;
            Window::new(input.within(1, MAX_UNITS), segment, carried, input.byte().is_multiple_of(2), offset)
                .map(Meter::Window)
        }
        3..6 => {
            let interval = input.within(1, MAX_PERIOD_NANOS);
            let burst = input.within(1, ((1 << 61) / interval).min(MAX_UNITS));
            let immediate = if input.byte().is_multiple_of(2) { u64::MAX } else { input.within(1, burst) };
            Bucket::with_interval(interval, burst).map(|it| Meter::Bucket(it.with_immediate(immediate)))
        }
        6 if input.byte().is_multiple_of(2) => {
            // What does not fit is built without steps.
            let (units, step) = (input.within(1, MAX_UNITS), input.within(1, MAX_PERIOD_NANOS));
            let burst = input.within(1, MAX_UNITS);
            Bucket::in_steps(units, step, burst).or_else(|_| Bucket::in_total(burst)).map(Meter::Bucket)
        }
        6 => Bucket::gate(input.within(1, MAX_PERIOD_NANOS)).map(Meter::Bucket),
        // Short, because a log has an entry for each unit.
        _ => {
            Log::new(*input.one_of(&[1, 5, 1_000, 3_000]), input.within(1, MAX_PERIOD_NANOS)).map(Meter::Log)
        }
    };
    meter.expect("its numbers are within their bounds")
}

/// Checks what is true of every verdict.
///
/// # Panics
/// If it is not.
pub fn check_verdict(verdict: &Verdict, meter: &Meter, now: Timestamp) {
    assert!(verdict.limit == meter.limit() && verdict.remaining <= verdict.limit, "{verdict:?}");
    let latest = i64::MAX.cast_unsigned() + MAX_PERIOD_NANOS + 1;
    assert!(now <= verdict.reset_at && verdict.reset_at.as_nanos() <= latest, "{verdict:?}");
    assert!(verdict.fits_at.is_none_or(|at| now <= at && at.as_nanos() <= latest), "{verdict:?}");
    assert!(now <= verdict.ready_at && verdict.receipt.instant().as_nanos() <= latest, "{verdict:?}");
}
