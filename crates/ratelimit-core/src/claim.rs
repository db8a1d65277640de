//! Claims: the questions to a store.

use std::fmt;

use crate::{LimitError, MAX_CLAIMS, Meter, MeterId, Mode, Receipt, Timestamp};

/// The question to a store: may `cost` units be taken from this meter? Plain data, which you can send to any server.
#[derive(Clone, Copy, Debug)]
pub struct Claim<'a> {
    /// The meter's name.
    pub id: MeterId<'a>,
    /// How many units. A cost of zero charges nothing, and always fits except at a [gate](crate::meter::Bucket::gate).
    pub cost: u64,
    /// How the meter counts under the present limit.
    pub meter: Meter,
}

/// One to [`MAX_CLAIMS`] claims on different meters, which a store admits as a whole or not at all, at one instant.
///
/// Dereferences to a slice of [`Claim`]s.
#[derive(Clone, Copy)]
pub struct Claims<'a> {
    now: Timestamp,
    mode: Mode,
    claims: &'a [Claim<'a>],
}

impl<'a> Claims<'a> {
    /// Checks that `claims` can be decided together.
    ///
    /// # Errors
    /// If there are no claims, if there are more than [`MAX_CLAIMS`], or if two are on the same meter.
    pub fn new(now: Timestamp, mode: Mode, claims: &'a [Claim<'a>]) -> Result<Self, LimitError> {
        if claims.is_empty() {
            return Err(LimitError::NoLimits);
        }
        if claims.len() > MAX_CLAIMS {
            return Err(LimitError::TooManyLimits);
        }
        let mut rest = claims;
        while let [first, others @ ..] = rest {
            if others.iter().any(|other| other.id == first.id) {
                return Err(LimitError::SameMeterTwice);
            }
            rest = others;
        }
        Ok(Self { now, mode, claims })
    }

    /// Claims that are known to be valid: not empty, not too many, no meter twice.
    #[inline]
    pub(crate) fn known(now: Timestamp, mode: Mode, claims: &'a [Claim<'a>]) -> Self {
        Self { now, mode, claims }
    }

    /// The caller's time.
    pub fn now(&self) -> Timestamp {
        self.now
    }

    /// Whether and how to charge.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Returns the same claims in another mode.
    #[must_use]
    pub fn with_mode(self, mode: Mode) -> Self {
        Self { mode, ..self }
    }

    /// Returns the same claims at another instant, for stores that use a clock of their own.
    #[must_use]
    pub fn at(self, now: Timestamp) -> Self {
        Self { now, ..self }
    }
}

impl<'a> std::ops::Deref for Claims<'a> {
    type Target = [Claim<'a>];

    fn deref(&self) -> &Self::Target {
        self.claims
    }
}

impl fmt::Debug for Claims<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} at {:?} of {:?}", self.mode, self.now, self.claims)
    }
}

/// Units to return to a meter.
#[derive(Clone, Copy, Debug)]
pub struct Refund<'a> {
    /// The meter's name.
    pub id: MeterId<'a>,
    /// How many units.
    pub cost: u64,
    /// How the meter counted when they were charged.
    pub meter: Meter,
    /// The receipt of the verdict that admitted them.
    pub receipt: Receipt,
}
