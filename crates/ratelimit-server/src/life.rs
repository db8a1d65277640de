//! The life of the server: start, serve, drain, end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use tokio::signal::unix::{self, SignalKind};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic_health::server::HealthReporter;

use crate::args::Args;
use crate::checks::Checks;
use crate::listen::{Bounds, Ending, Phase, bind};
use crate::store::Member;
use crate::{grpc, http, metrics, redis, tls};

/// How often files are read again.
const RELOAD: Duration = Duration::from_secs(1);

/// How long giving back to the store may take at the end.
const LEAVE: Duration = Duration::from_secs(2);

/// Where the server listens.
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Addresses {
    /// HTTP.
    pub http: Option<SocketAddr>,
    /// gRPC.
    pub grpc: Option<SocketAddr>,
    /// The Redis protocol.
    pub redis: Option<SocketAddr>,
    /// What changes counts.
    pub admin: Option<SocketAddr>,
}

/// A server that runs.
#[derive(Debug)]
pub struct Server {
    args: Args,
    addresses: Addresses,
    ending: watch::Sender<Phase>,
    doors: JoinSet<()>,
    background: JoinSet<()>,
    member: Member,
    health: HealthReporter,
    /// A question that it answers, in JSON.
    example: String,
}

impl Server {
    /// Starts. The store need not answer yet.
    ///
    /// # Errors
    /// If a file or an option is wrong, or an address is in use.
    pub async fn start(args: Args) -> anyhow::Result<Self> {
        // First, so that what is counted at the start is counted.
        metrics::handle();
        let member = Member::open(&args).context("--store")?;
        let receipt_key = match &args.receipt_key {
            Some(key) => key.0.clone(),
            None => {
                let mut random_key = vec![0; 32];
                getrandom::fill(&mut random_key).context("no random numbers")?;
                random_key
            }
        };
        let checks = Arc::new(Checks::new(&args, member.store.clone(), &receipt_key)?);
        let (on_http, http) = bind(args.http, "--http").await?;
        let (on_grpc, grpc) = bind(args.grpc, "--grpc").await?;
        let (on_redis, redis) = bind(args.redis, "--redis").await?;
        let (on_admin, admin) = bind(args.admin, "--admin").await?;
        let addresses = Addresses { http, grpc, redis, admin };
        let (sender, ending) = Ending::new();
        let (connections, tls) = (usize::try_from(args.connections)?, tls::acceptor(&args)?);
        let bounds = Bounds { connections, idle: args.idle, tls };
        let (calls, health) = grpc::Door::new(checks.clone(), args.receipt_header.clone()).await?;
        let mut doors = JoinSet::new();
        for (listener, is_admin) in [(on_http, false), (on_admin, true)] {
            let (checks, ending) = (checks.clone(), ending.clone());
            let door = http::Door { checks, ending, longest: args.idle, is_admin };
            listener.map(|listener| doors.spawn(door.serve(listener, bounds.clone())));
        }
        on_grpc.map(|listener| doors.spawn(calls.serve(listener, bounds.clone(), ending.clone())));
        on_redis.map(|listener| doors.spawn(redis::listen(listener, checks.clone(), bounds, ending)));
        let mut background = JoinSet::new();
        for file in checks.files.clone() {
            background.spawn(async move { file.watch(RELOAD).await });
        }
        let counting = member.clone();
        background.spawn(async move { counting.run().await });
        background.spawn(metrics::tidy());
        let example = checks.example();
        Ok(Self { args, addresses, ending: sender, doors, background, member, health, example })
    }

    /// Where it listens: with port 0 in an option, the port that the system chose.
    pub fn addresses(&self) -> Addresses {
        self.addresses
    }

    /// Ends: no longer ready, serves what has begun, gives back what the store can use. Takes no longer than `--linger`,
    /// `--drain` and two seconds.
    ///
    /// # Errors
    /// If the store did not take back what this server held. It is free when its time has passed.
    pub async fn end(mut self) -> anyhow::Result<()> {
        grpc::not_ready(&self.health).await;
        let _ = self.ending.send(Phase::Leaving);
        tokio::time::sleep(self.args.linger).await;
        let _ = self.ending.send(Phase::Ending);
        let drained =
            timeout(self.args.drain, async { while self.doors.join_next().await.is_some() {} }).await;
        if drained.is_err() {
            tracing::warn!("connections were still open after the time of --drain, and are closed");
        }
        self.doors.shutdown().await;
        self.background.shutdown().await;
        let left = timeout(LEAVE, self.member.leave()).await;
        left.context("the store did not answer in time")?.context("the store took nothing back")
    }

    /// The lines to try.
    pub fn greeting(&self) -> String {
        let Addresses { http, grpc, redis, admin } = self.addresses;
        let body = &self.example;
        let lines = [
            http.map(|at| format!("HTTP on {at}, try:\n  curl -i http://{at}/v1/check -d '{body}'")),
            redis.map(|at| {
                let (host, port) = (at.ip(), at.port());
                format!("Redis protocol on {at}, try:\n  redis-cli -h {host} -p {port} CL.THROTTLE user:7 15 30 60")
            }),
            grpc.map(|at| {
                format!(
                    "gRPC on {at}, for Envoy's filter envoy.filters.http.ratelimit:\n  rate_limit_service: {{ \
                     transport_api_version: V3, grpc_service: {{ envoy_grpc: {{ cluster_name: ratelimit }} }} }}"
                )
            }),
            admin.map(|at| format!("administration on {at}")),
            Some("Ctrl-C ends it".to_owned()),
        ];
        lines.into_iter().flatten().collect::<Vec<_>>().join("\n")
    }
}

/// Completes on Ctrl-C or SIGTERM, which from now on do not end the process immediately.
pub(crate) fn signal() -> io::Result<impl Future<Output = ()>> {
    let (mut interrupt, mut terminate) =
        (unix::signal(SignalKind::interrupt())?, unix::signal(SignalKind::terminate())?);
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}
