//! The servers of a target, and how each fault is caused.

mod base;
mod cluster;
mod evictions;
mod memcached;
mod postgres;
mod redis;
mod sentinel;

use anyhow::Result;
use async_trait::async_trait;
use ratelimit_testbed::{Settings, Testbed};

use self::base::unknown;
pub(crate) use self::base::{Bed, Harm, now};
use crate::crew::Crew;
use crate::plan::Phase;
use crate::target::Target;

/// Starts servers of our own. Those that are given by an address must not be killed, and those in containers cannot be.
pub(crate) fn testbed(install: bool) -> Testbed {
    let from_env = Settings::from_env();
    let install = install || from_env.install;
    Testbed::new(Settings { addresses: Default::default(), images: Default::default(), install, ..from_env })
}

/// Starts the servers of a target.
pub(crate) async fn start(target: Target, testbed: &Testbed) -> Result<Box<dyn Bed>> {
    Ok(match target {
        Target::Memory => Box::new(Memory),
        Target::Redis | Target::RedisFallback => Box::new(redis::Bed::start(testbed, false).await?),
        Target::RedisAof => Box::new(redis::Bed::start(testbed, true).await?),
        Target::RedisCluster => Box::new(cluster::Bed::start(testbed).await?),
        Target::RedisSentinel => Box::new(sentinel::Bed::start(testbed).await?),
        Target::Postgres => Box::new(postgres::Bed::start(testbed, false).await?),
        Target::PostgresLogged => Box::new(postgres::Bed::start(testbed, true).await?),
        Target::Memcached => Box::new(memcached::Bed::start(testbed).await?),
        Target::MemcachedPair => Box::new(memcached::Pair::start(testbed).await?),
    })
}

/// No server.
struct Memory;

#[async_trait(?Send)]
impl Bed for Memory {
    fn url(&self, _worker: usize) -> String {
        "memory:".to_owned()
    }

    async fn inflict(&self, phase: &Phase, _crew: &Crew) -> Result<Harm> {
        unknown(phase.fault)
    }

    async fn connections(&self) -> Result<Vec<u64>> {
        Ok(Vec::new())
    }
}
