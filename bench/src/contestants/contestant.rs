//! The interface of the limiters under test.

use serde::{Deserialize, Serialize};

use crate::keys::Key;

/// What the limit admits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Allow {
    /// Every request of a measurement: 1,000,000,000 per hour.
    Everything,
    /// Hardly anything: 2 per hour and key.
    Nothing,
}

impl Allow {
    /// Units per hour, which may all be taken at once.
    pub(crate) fn units(self) -> u32 {
        match self {
            Self::Everything => 1_000_000_000,
            Self::Nothing => 2,
        }
    }
}

/// A limiter under test.
pub(crate) trait Limiter: Sync {
    /// Makes one decision.
    fn check(&self, key: &Key) -> bool;

    /// Lets enough time pass for all keys to expire. For limiters made by [`Contestant::short`].
    fn expire(&self) {}

    /// Removes expired keys, if the limiter leaves this to its user.
    fn clean(&self) {}
}

/// A kind of limiter.
pub(crate) trait Contestant {
    type Limiter: Limiter + 'static;
    type Short: Limiter + 'static;

    /// Builds a limiter on its default clock.
    fn build(&self, allow: Allow) -> Self::Limiter;

    /// Builds a limiter of 100 per minute on a manual clock, or of 100 in a few seconds if it has none.
    fn short(&self) -> Self::Short;

    /// Divides the number of keys for slow contestants.
    fn share(&self) -> u64 {
        1
    }
}

/// Limiters that are wrong, to test that measurements notice.
#[cfg(test)]
pub(crate) mod wrong {
    use super::{Allow, Contestant, Limiter};
    use crate::keys::Key;

    /// Gives the same answer to everything.
    #[derive(Clone, Copy)]
    pub(crate) struct Always(pub(crate) bool);

    impl Limiter for Always {
        fn check(&self, _: &Key) -> bool {
            self.0
        }
    }

    impl Contestant for Always {
        type Limiter = Self;
        type Short = Self;

        fn build(&self, _: Allow) -> Self {
            *self
        }

        fn short(&self) -> Self {
            *self
        }
    }
}
