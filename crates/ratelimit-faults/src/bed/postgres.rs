//! One PostgreSQL server.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use async_trait::async_trait;
use ratelimit_testbed::{Postgres, Server, Testbed};
use rustix::process::{Pid, Signal, kill_process};
use sqlx::{Connection as _, PgConnection};
use tokio::net::TcpStream;

use super::base::{Harm, again, disturb, freeze, kill, now, through, unknown, wait};
use crate::crew::Crew;
use crate::fault::Fault;
use crate::plan::Phase;
use crate::proxy::Proxy;

/// How long a server may take to end.
const END: Duration = Duration::from_secs(30);

/// A server, and the proxy in front of it for one of the workers.
pub(super) struct Bed {
    server: Server,
    proxy: Proxy,
    is_logged: bool,
}

impl Bed {
    pub(super) async fn start(testbed: &Testbed, is_logged: bool) -> Result<Self> {
        let server = testbed.postgres_with(Postgres::default()).await?;
        let proxy = Proxy::start(server.address()).await?;
        Ok(Self { server, proxy, is_logged })
    }

    async fn connect(&self) -> Result<PgConnection> {
        PgConnection::connect(self.server.url()).await.context("the administrator cannot connect")
    }

    /// Shuts it down, as a service manager does, and waits until it has ended.
    async fn end(&self) -> Result<()> {
        let file = "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int";
        let id: i32 = sqlx::query_scalar(file).fetch_one(&mut self.connect().await?).await?;
        kill_process(Pid::from_raw(id).context("the server has no process id")?, Signal::INT)?;
        let gone = async {
            while TcpStream::connect(self.server.address()).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        };
        if tokio::time::timeout(END, gone).await.is_err() {
            bail!("the server has not ended within {END:?}");
        }
        Ok(())
    }
}

#[async_trait(?Send)]
impl super::base::Bed for Bed {
    fn url(&self, worker: usize) -> String {
        let url = through(self.server.url(), worker, self.server.address(), &self.proxy);
        if self.is_logged { format!("{url}?logged=true") } else { url }
    }

    async fn inflict(&self, phase: &Phase, _crew: &Crew) -> Result<Harm> {
        let from = now();
        match phase.fault {
            Fault::Killed => {
                kill(&self.server, phase).await?;
                // After a crash it empties unlogged tables.
                Ok(if self.is_logged { Harm::without_loss(from) } else { Harm::with_loss(from, None) })
            }
            Fault::Restarted => {
                self.end().await?;
                wait(phase).await;
                self.server.kill().await?;
                self.server.start().await?;
                Ok(Harm::without_loss(from))
            }
            Fault::Frozen => freeze(&self.server, phase).await,
            Fault::SessionsEnded => {
                let mut connection = self.connect().await?;
                let others = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                              WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
                again(phase, Duration::from_millis(150), async || {
                    sqlx::query(others).execute(&mut connection).await?;
                    Ok(())
                })
                .await?;
                Ok(Harm::without_loss(from))
            }
            Fault::Cut | Fault::Stalled => disturb(&self.proxy, phase).await,
            other => unknown(other),
        }
    }

    async fn connections(&self) -> Result<Vec<u64>> {
        let others = "SELECT count(*) FROM pg_stat_activity \
                      WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
        let count: i64 = sqlx::query_scalar(others).fetch_one(&mut self.connect().await?).await?;
        Ok(vec![u64::try_from(count)?])
    }
}
