//! Division by a number that is known in advance, as a multiplication.

/// A divisor that is used often. Not zero.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Divisor {
    by: u64,
    /// 2<sup>64</sup> - 1 divided by `by`, rounded down.
    reciprocal: u64,
}

impl Divisor {
    /// Prepares divisions by `by`, or by one if it is zero.
    pub(super) const fn new(by: u64) -> Self {
        let by = if by == 0 { 1 } else { by };
        Self { by, reciprocal: u64::MAX / by }
    }

    pub(super) const fn get(self) -> u64 {
        self.by
    }

    /// Returns `number / by` and `number % by`.
    ///
    /// With `r` the reciprocal, 2<sup>64</sup>/by - r is less than 1 + 1/by, so number * r / 2<sup>64</sup> is less
    /// than two below number / by: the quotient is at most two too small, and the remainder shows by how much.
    #[inline]
    pub(super) fn divide(self, number: u64) -> (u64, u64) {
        let mut quotient = high(u128::from(number) * u128::from(self.reciprocal));
        let mut rest = number - quotient * self.by;
        while rest >= self.by {
            quotient += 1;
            rest -= self.by;
        }
        (quotient, rest)
    }
}

/// The upper 64 bits.
#[inline]
const fn high(product: u128) -> u64 {
    (product >> 64) as u64
}

impl std::fmt::Debug for Divisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.by.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Divisor;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 200 } else { 20_000 }))]
        #[test]
        fn quotient_and_remainder_are_exact(
            number: u64, by: u64, small in 1..1_000_000_u64, shift in 0..64_u32,
        ) {
            for by in [by.max(1), small, (by >> shift).max(1)] {
                for number in [number, number >> shift, number - number % by, (number - number % by).wrapping_sub(1)] {
                    prop_assert_eq!(Divisor::new(by).divide(number), (number / by, number % by));
                }
            }
        }
    }

    #[test]
    fn quotient_and_remainder_are_exact_at_the_extremes() {
        for by in [1, 2, 3, 999, 1_000, 1 << 32, (1 << 63) - 1, 1 << 63, u64::MAX - 1, u64::MAX] {
            for number in [0, 1, by - 1, by, by.saturating_mul(2), u64::MAX - 1, u64::MAX] {
                assert_eq!(Divisor::new(by).divide(number), (number / by, number % by), "{number} / {by}");
            }
        }
    }
}
