//! Of which lines all fields are read, if some fields are not needed of each.

/// The number of lines at the beginning of which all fields are read; then it is one in [`ONE_IN`].
const FIRST: u64 = 100_000;
const ONE_IN: u64 = 8;

/// Chooses lines: not in a fixed distance, since requests may come in turn.
#[derive(Debug, Default)]
pub(super) struct Sample {
    lines: u64,
    state: u64,
}

impl Sample {
    pub(super) fn next(&mut self) -> bool {
        self.lines += 1;
        if self.lines <= FIRST {
            return true;
        }
        // A linear congruential generator, whose upper bits are good.
        self.state =
            self.state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.state >> 32).is_multiple_of(ONE_IN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_eight_is_chosen_after_the_first() {
        let mut some = Sample::default();
        assert!((0..FIRST).all(|_| some.next()));
        let chosen: Vec<bool> = (0..80_000).map(|_| some.next()).collect();
        for turn in 0..4 {
            let count = chosen.iter().skip(turn).step_by(4).filter(|one| **one).count();
            assert!((2_300..2_700).contains(&count), "{turn}: {count}");
        }
    }
}
