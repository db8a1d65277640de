//! Claims: the questions to a store.

use std::fmt;

use crate::{MAX_CLAIMS, Meter, MeterId, Mode, Timestamp};

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

/// Why a set of claims cannot be checked.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidClaims {
    /// There are no claims, or a key of the request has no limits.
    Empty,
    /// There are more than [`MAX_CLAIMS`].
    TooMany,
    /// Two claims are on the same meter: the request has one key twice, under limits of the same
    /// [scope](crate::Limit::scope).
    SameMeterTwice,
    /// A key is to be banned, but there is no [ban](crate::Algorithm::Ban) among its limits.
    NoBan,
}

impl fmt::Display for InvalidClaims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("nothing to check: give each key at least one limit"),
            Self::TooMany => write!(f, "too many limits in one check: at most {MAX_CLAIMS}"),
            Self::NoBan => f.write_str("nothing to ban by: none of the limits is a ban, such as \"ban 1h after 20 in 10min\""),
            Self::SameMeterTwice => f.write_str(
                "the same key is checked twice under limits of the same kind and period, which would count together: give the limits different names",
            ),
        }
    }
}

impl fmt::Debug for InvalidClaims {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        crate::kit::write_error(self, f)
    }
}

impl std::error::Error for InvalidClaims {}

impl<'a> Claims<'a> {
    /// Checks that `claims` can be decided together.
    ///
    /// # Errors
    /// If there are no claims, if there are more than [`MAX_CLAIMS`], or if two are on the same meter.
    pub fn new(now: Timestamp, mode: Mode, claims: &'a [Claim<'a>]) -> Result<Self, InvalidClaims> {
        if claims.is_empty() {
            return Err(InvalidClaims::Empty);
        }
        if claims.len() > MAX_CLAIMS {
            return Err(InvalidClaims::TooMany);
        }
        let mut rest = claims;
        while let [first, others @ ..] = rest {
            if others.iter().any(|other| other.id == first.id) {
                return Err(InvalidClaims::SameMeterTwice);
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
    pub receipt: Timestamp,
}
