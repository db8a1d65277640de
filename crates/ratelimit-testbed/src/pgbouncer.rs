//! PgBouncer, in front of a PostgreSQL server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use async_trait::async_trait;

use crate::postgres::greet;
use crate::server::Server;
use crate::service::{Placement, Recipe, Service};
use crate::{Testbed, Unavailable};

static RECIPE: Recipe = Recipe {
    name: "pgbouncer",
    variable: "",
    image: "pgbouncer",
    program: "pgbouncer",
    package: "pgbouncer",
    wheel: None,
};

/// The options of a PgBouncer. By default it runs in transaction mode, gives transactions up to eight connections to the
/// server in turn, and accepts all clients.
///
/// ```
/// let forgiving = ratelimit_testbed::PgBouncer {
///     settings: vec!["ignore_startup_parameters = options".into()],
/// };
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PgBouncer {
    /// Further lines of its configuration file, which take precedence.
    pub settings: Vec<String>,
}

impl Testbed {
    /// Starts a PgBouncer, as a process, in front of `postgres`, a server without a password.
    ///
    /// # Errors
    /// If it cannot be installed or started.
    pub async fn pgbouncer(&self, postgres: &Server, pgbouncer: PgBouncer) -> Result<Server, Unavailable> {
        let service = Before { postgres: postgres.clone(), pgbouncer };
        self.as_process().start_one(&RECIPE, Arc::new(service)).await
    }
}

struct Before {
    postgres: Server,
    pgbouncer: PgBouncer,
}

impl Before {
    fn settings(&self, place: Placement<'_>) -> String {
        let server = self.postgres.address();
        let further = self.pgbouncer.settings.join("\n");
        // Of two lines for the same setting, the later one applies.
        format!(
            "[databases]\n\
             * = host={} port={} user=postgres\n\
             [pgbouncer]\n\
             listen_addr = {}\n\
             listen_port = {}\n\
             unix_socket_dir =\n\
             auth_type = any\n\
             pool_mode = transaction\n\
             default_pool_size = 8\n\
             max_client_conn = 500\n\
             server_round_robin = 1\n\
             {further}\n",
            server.ip(),
            server.port(),
            place.host,
            place.port,
        )
    }
}

#[async_trait]
impl Service for Before {
    fn arguments(&self, place: Placement<'_>) -> Vec<String> {
        vec![format!("{}/pgbouncer.ini", place.folder)]
    }

    fn user(&self) -> Option<&'static str> {
        Some("postgres")
    }

    fn preparation(&self, _program: &Path, place: Placement<'_>) -> Option<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", "printf %s \"$1\" > \"$2\"", "write", &self.settings(place)]);
        command.args(self.arguments(place));
        Some(command)
    }

    async fn ready(&self, address: SocketAddr) -> Result<(), String> {
        greet(address, "postgres", "postgres").await
    }

    fn url(&self, address: SocketAddr) -> String {
        format!("postgres://postgres@{address}/postgres")
    }
}
