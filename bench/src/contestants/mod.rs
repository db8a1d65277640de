//! Who is measured in process, each used as its documentation shows.

mod floor;
#[cfg(feature = "peers")]
mod governor;
#[cfg(feature = "peers")]
pub(crate) mod limitador;
mod memory_alone;
pub(crate) mod ours;
#[cfg(feature = "peers")]
mod throttlecrab;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

use crate::keys::Key;

/// What the limit lets pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Allow {
    /// Whatever is asked: a thousand million in an hour.
    Everything,
    /// Two of each key, and then hardly anything for an hour.
    Nothing,
}

impl Allow {
    /// Units in an hour, all of them at once if somebody likes.
    pub(crate) fn units(self) -> u32 {
        match self {
            Self::Everything => 1_000_000_000,
            Self::Nothing => 2,
        }
    }
}

/// A limiter, ready to be asked.
pub(crate) trait Limiter: Sync {
    /// One decision.
    fn check(&self, key: &Key) -> bool;

    /// Lets so much time pass that all keys are forgotten or may be. For limiters made by [`Contestant::short`].
    fn expire(&self) {}

    /// Forgets what has expired, if its user has to see to that.
    fn clean(&self) {}
}

/// Makes limiters of one kind.
pub(crate) trait Contestant {
    type Limiter: Limiter + 'static;
    type Short: Limiter + 'static;

    /// On its own clock, as its users have it.
    fn build(&self, allow: Allow) -> Self::Limiter;

    /// A hundred in a minute, on a clock that is moved by hand if it has one. If not, a hundred in a few seconds.
    fn short(&self) -> Self::Short;

    /// It gets one in so many of the keys where much work is the same for everybody, lest everybody wait for it.
    fn share(&self) -> u64 {
        1
    }
}

/// What is to be done with a contestant.
pub(crate) trait Visitor {
    type Output;

    fn visit(self, contestant: impl Contestant + 'static) -> Self::Output;
}

/// Ours with the default algorithm.
pub(crate) const OURS: &str = "ours";
/// Ours as a token bucket.
pub(crate) const OURS_GCRA: &str = "ours, gcra";
/// Ours with fixed windows.
pub(crate) const OURS_FIXED: &str = "ours, fixed";
/// The baseline of most ratios.
pub(crate) const GOVERNOR: &str = "governor, String";
/// What can be had with little code of one's own.
pub(crate) const FLOOR: &str = "floor";
/// What the machine itself makes a call wait for.
pub(crate) const MEMORY_ALONE: &str = "memory alone";

/// All that take part in most families.
pub(crate) const ALL: &[&str] = &[
    OURS,
    OURS_GCRA,
    OURS_FIXED,
    GOVERNOR,
    "governor, String, foldhash",
    "governor, u64",
    "throttlecrab",
    "limitador",
    FLOOR,
];

/// Whether this program was built with it.
pub(crate) fn is_built(name: &str) -> bool {
    cfg!(feature = "peers") || name.starts_with(OURS) || [FLOOR, MEMORY_ALONE].contains(&name)
}

/// Does it with the contestant of that name.
pub(crate) fn with<V: Visitor>(name: &str, visitor: V) -> Result<V::Output> {
    if let Some(options) = ours::options(name) {
        return Ok(visitor.visit(ours::Ours { options }));
    }
    Ok(match name {
        FLOOR => visitor.visit(floor::Sharded),
        MEMORY_ALONE => visitor.visit(memory_alone::MemoryAlone),
        #[cfg(feature = "peers")]
        GOVERNOR => visitor.visit(governor::Strings::<std::hash::RandomState>::default()),
        #[cfg(feature = "peers")]
        "governor, String, foldhash" => {
            visitor.visit(governor::Strings::<foldhash::fast::RandomState>::default())
        }
        #[cfg(feature = "peers")]
        "governor, u64" => visitor.visit(governor::Numbers),
        #[cfg(feature = "peers")]
        "throttlecrab" => visitor.visit(throttlecrab::Crab),
        #[cfg(feature = "peers")]
        "limitador" => visitor.visit(limitador::Limitador),
        unknown => bail!("there is no contestant {unknown:?} in this program"),
    })
}
