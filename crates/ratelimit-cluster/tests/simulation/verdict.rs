//! What was admitted, held against the limit by definition.

use ratelimit_core::Timestamp;
use ratelimit_core::meter::Window;

/// Units admitted at an instant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Admitted {
    pub(crate) at: Timestamp,
    pub(crate) cost: u64,
}

/// By how much at most, in units, the limit was exceeded: at each admission the units of the segments up to it, the oldest
/// weighted by its overlap and rounded down, beyond the limit.
pub(crate) fn excess(window: &Window, mut admitted: Vec<Admitted>) -> u64 {
    admitted.sort_by_key(|units| units.at);
    let mut segments: Vec<(u64, u64)> = Vec::new();
    let mut worst = 0;
    for units in admitted {
        let (index, elapsed) = window.place(units.at);
        match segments.last_mut() {
            Some((last, count)) if *last == index => *count += units.cost,
            _ => segments.push((index, units.cost)),
        }
        let (length, carried) = (u128::from(window.segment()), u64::from(window.carried()));
        let mut scaled = 0;
        for (segment, count) in segments.iter().rev().take_while(|(segment, _)| segment + carried >= index) {
            let is_weighted = segment + carried == index && carried > 0 && !window.strict();
            let weight = if is_weighted { length - u128::from(elapsed) } else { length };
            scaled += u128::from(*count) * weight;
        }
        let over = scaled.saturating_sub(u128::from(window.limit()) * length).div_ceil(length);
        worst = worst.max(u64::try_from(over).unwrap_or(u64::MAX));
    }
    worst
}
