//! The limiters that are measured in process, each used as its documentation shows.

mod contestant;
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

#[cfg(test)]
pub(crate) use contestant::wrong;
pub(crate) use contestant::{Allow, Contestant, Limiter};
pub(crate) use ours::{OURS, OURS_FIXED, OURS_GCRA};

/// Work on a contestant of any type.
pub(crate) trait Visitor {
    type Output;

    fn visit(self, contestant: impl Contestant + 'static) -> Self::Output;
}

/// The baseline of most ratios.
pub(crate) const GOVERNOR: &str = "governor, String";
/// A minimal limiter, written by hand.
pub(crate) const FLOOR: &str = "floor";
/// Nothing but the memory of the keys.
pub(crate) const MEMORY_ALONE: &str = "memory alone";

/// The contestants of most families.
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

/// Whether this program contains the contestant.
pub(crate) fn is_built(name: &str) -> bool {
    cfg!(feature = "peers") || name.starts_with(OURS) || [FLOOR, MEMORY_ALONE].contains(&name)
}

/// Visits the contestant with this name.
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
