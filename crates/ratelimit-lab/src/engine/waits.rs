//! How long refused requests would have had to wait, as a histogram.

use std::time::Duration;

/// A histogram of waits. Each power of two of nanoseconds is divided into eight classes, and a quantile is the upper end
/// of its class, so it is at most 12.5 % too long.
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    /// Classes and their counts, in the order of the classes. Only classes with waits are kept.
    classes: Vec<(u16, u32)>,
    count: u64,
    longest: u64,
}

impl Waits {
    pub(crate) fn add(&mut self, wait: Duration) {
        let nanos = u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX);
        self.longest = self.longest.max(nanos);
        self.count += 1;
        self.add_to(class(nanos), 1);
    }

    fn add_to(&mut self, class: u16, more: u32) {
        match self.classes.binary_search_by_key(&class, |(class, _)| *class) {
            Ok(at) => {
                if let Some((_, count)) = self.classes.get_mut(at) {
                    *count = count.saturating_add(more);
                }
            }
            Err(at) => self.classes.insert(at, (class, more)),
        }
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        self.longest = self.longest.max(other.longest);
        self.count += other.count;
        other.classes.iter().for_each(|(class, count)| self.add_to(*class, *count));
    }

    /// The longest wait, in seconds; `None` without waits.
    pub(crate) fn longest_seconds(&self) -> Option<f64> {
        self.longest().map(|wait| wait.as_secs_f64())
    }

    /// The median, in seconds; at most 12.5 % too long. `None` without waits.
    pub(crate) fn median_seconds(&self) -> Option<f64> {
        self.median().map(|wait| wait.as_secs_f64())
    }

    /// The longest wait; `None` without waits.
    pub(crate) fn longest(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(self.longest))
    }

    /// The median: the upper end of its class, or the longest wait if that is less.
    fn median(&self) -> Option<Duration> {
        let mut before = 0_u64;
        let middle = self.classes.iter().find(|(_, count)| {
            before += u64::from(*count);
            before * 2 >= self.count
        });
        middle.map(|(class, _)| Duration::from_nanos(top(*class).min(self.longest)))
    }
}

/// The class of a wait. The first eight classes are the numbers below eight; then there are eight for each power of two.
#[allow(clippy::cast_possible_truncation)] // below 500
fn class(nanos: u64) -> u16 {
    let Some(power) = nanos.checked_ilog2().filter(|power| *power >= 3) else {
        return (nanos & 7) as u16;
    };
    ((power - 2) * 8) as u16 + ((nanos >> (power - 3)) & 7) as u16
}

/// The greatest wait of a class, in nanoseconds.
fn top(class: u16) -> u64 {
    let (power, part) = (u32::from(class) / 8, u64::from(class) % 8);
    match power {
        0 => part,
        _ => u64::try_from((u128::from(8 + part + 1) << (power - 1)) - 1).unwrap_or(u64::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_are_in_order_and_within_an_eighth() {
        let powers = (0..64)
            .flat_map(|power| (0..16).map(move |part| (1_u64 << power) | ((1_u64 << power) / 16 * part)));
        let mut numbers: Vec<u64> = powers.chain(0..10_000).chain([u64::MAX]).collect();
        numbers.sort_unstable();
        for pair in numbers.windows(2) {
            assert!(class(pair[0]) <= class(pair[1]), "{pair:?}");
        }
        for number in numbers {
            let top = top(class(number));
            assert!(number <= top && top - number <= number / 8, "{number} is at most {top}");
        }
    }

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        let mut waits = Waits::default();
        assert_eq!((waits.median(), waits.longest()), (None, None));
        for millis in [1_u64, 2, 3, 400, 500] {
            waits.add(Duration::from_millis(millis));
        }
        let mut twice = waits.clone();
        twice.merge(&waits);
        assert_eq!((twice.median(), twice.longest(), twice.count), (waits.median(), waits.longest(), 10));
        let median = waits.median().unwrap();
        assert!((Duration::from_millis(3)..Duration::from_micros(3_400)).contains(&median), "{median:?}");
        assert_eq!(waits.longest(), Some(Duration::from_millis(500)));
    }
}
