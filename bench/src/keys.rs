//! The keys of all requests, and their order.

use std::fmt::Write as _;

/// A key as a string and as a number.
#[derive(Clone, Debug, Default)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) number: u64,
}

impl Key {
    /// Sets the key to `user:0001234`, without an allocation.
    pub(crate) fn set(&mut self, number: u64) {
        self.number = number;
        self.text.clear();
        let _ = write!(self.text, "user:{number:07}");
    }
}

/// The number of keys that are prepared at a time. They are in the nearest cache when they are used, like a key that was
/// just read from a request. The preparation is not measured.
pub(crate) const BLOCK: usize = 256;

/// Pseudo-random numbers that are the same in every run (splitmix64).
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `bound`. The bias is negligible.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        u64::try_from((u128::from(self.next()) * u128::from(bound)) >> 64).unwrap_or(0)
    }
}

/// The number of indices that are drawn before the measurement and then repeated. Fewer if there are few keys.
const DRAWN: u64 = 1 << 20;

fn draws(keys: u64) -> std::ops::Range<u64> {
    0..DRAWN.min(keys.saturating_mul(32))
}

/// The sequence of the requested keys.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    indices: Vec<u32>,
    next: usize,
}

impl Order {
    /// All keys equally often.
    pub(crate) fn uniform(keys: u64, seed: u64) -> Self {
        let mut random = Random(seed);
        let index = |_| u32::try_from(random.below(keys)).unwrap_or(0);
        Self { indices: draws(keys).map(index).collect(), next: 0 }
    }

    /// The n-th key n times less often than the first (Zipf's law, exponent 1).
    #[allow(clippy::cast_precision_loss, reason = "a distribution, not a decision")]
    pub(crate) fn zipf(keys: u64, seed: u64) -> Self {
        let mut random = Random(seed);
        let mut total = 0.0;
        let sums: Vec<f64> = (1..=keys)
            .map(|rank| {
                total += 1.0 / rank as f64;
                total
            })
            .collect();
        let index = |_| {
            let drawn = (random.next() >> 11) as f64 / (1_u64 << 53) as f64 * total;
            let rank = sums.partition_point(|sum| *sum <= drawn).min(sums.len() - 1);
            u32::try_from(rank).unwrap_or(0)
        };
        Self { indices: draws(keys).map(index).collect(), next: 0 }
    }

    /// Prepares the next keys.
    pub(crate) fn fill(&mut self, block: &mut [Key]) {
        for key in block {
            key.set(u64::from(self.indices[self.next]));
            self.next = (self.next + 1) % self.indices.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zipf_draws_the_first_key_most_often_and_none_out_of_range() {
        let order = Order::zipf(100_000, 7);
        let count = |index| order.indices.iter().filter(|drawn| **drawn == index).count();
        // One in 12.09 (the harmonic number of 100,000), and half of that.
        assert!((84_000..90_000).contains(&count(0)), "{}", count(0));
        assert!((41_000..46_000).contains(&count(1)), "{}", count(1));
        assert!(order.indices.iter().all(|index| *index < 100_000));
    }

    #[test]
    fn uniform_order_draws_every_key() {
        let mut order = Order::uniform(10, 7);
        let mut block = vec![Key::default(); BLOCK];
        order.fill(&mut block);
        for number in 0..10 {
            assert!(
                block.iter().any(|key| key.number == number && key.text == format!("user:000000{number}"))
            );
        }
    }
}
