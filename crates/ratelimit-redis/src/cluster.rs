//! The connection to a cluster, and which keys may travel together there.

use std::time::Duration;

use ratelimit_core::ErrorKind;
use redis::aio::ConnectionLike;
use redis::cluster::{ClusterClient, ClusterClientBuilder};
use redis::cluster_async::ClusterConnection;
use redis::cluster_routing::{MultipleNodeRoutingInfo, RoutingInfo};
use redis::io::tcp::TcpSettings;
use redis::{Cmd, RedisError, RedisResult, ServerErrorKind, Value};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use crate::config::RedisConfig;
use crate::error::Failure;
use crate::link::info;
use crate::script::{CLAIM, REFUND, Script};
use crate::stream::keepalive;

/// How often the client follows a slot that has moved, or tries a node again, within the time limit.
const RETRIES: u32 = 2;

/// How long it waits before that, in milliseconds.
const PAUSE: (u64, u64) = (5, 50);

/// A cluster and its connections.
pub(crate) struct Cluster {
    client: ClusterClient,
    address: String,
    current: Mutex<Option<ClusterConnection>>,
}

impl Cluster {
    pub(crate) fn new(config: &RedisConfig) -> Result<Self, Failure> {
        let nodes = config.urls.iter().map(|url| info(url)).collect::<Result<Vec<_>, _>>()?;
        let addresses: Vec<_> = nodes.iter().map(|node| node.addr().to_string()).collect();
        let builder = ClusterClientBuilder::new(nodes)
            .retries(RETRIES)
            .min_retry_wait(PAUSE.0)
            .max_retry_wait(PAUSE.1)
            .connection_timeout(config.timeout)
            .response_timeout(config.timeout)
            .tcp_settings(tcp_settings(config.timeout));
        #[cfg(feature = "tls")]
        let builder = crate::tls::for_cluster(builder, config);
        let address = addresses.join(",");
        let client = builder.build().map_err(|error| Failure::from_redis(error).at(&address))?;
        Ok(Self { client, address, current: Mutex::new(None) })
    }

    pub(crate) fn address(&self) -> &str {
        &self.address
    }

    pub(crate) async fn connect(&self, deadline: Instant) -> Result<(), Failure> {
        self.connection(deadline).await.map(drop)
    }

    pub(crate) async fn run(&self, script: &Script, call: Cmd, deadline: Instant) -> Result<Value, Failure> {
        match self.try_send(&call, deadline).await? {
            Err(error) if error.kind() == ServerErrorKind::NoScript.into() => {
                self.try_send(&script.call_in_full(&call), deadline).await?
            }
            reply => reply,
        }
        .map_err(|error| self.failure(error))
    }

    pub(crate) async fn send(&self, cmd: &Cmd, deadline: Instant) -> Result<Value, Failure> {
        self.try_send(cmd, deadline).await?.map_err(|error| self.failure(error))
    }

    async fn try_send(&self, cmd: &Cmd, deadline: Instant) -> Result<RedisResult<Value>, Failure> {
        let mut connection = self.connection(deadline).await?;
        match timeout_at(deadline, connection.req_packed_command(cmd)).await {
            Ok(reply) => Ok(reply.and_then(Value::extract_error)),
            Err(_) => {
                let late = Failure::new(ErrorKind::Timeout, "no answer within the time limit");
                Err(late.at(&self.address).maybe_applied())
            }
        }
    }

    /// The connections in use, or new ones. They mend themselves, node by node.
    async fn connection(&self, deadline: Instant) -> Result<ClusterConnection, Failure> {
        let connect = async {
            let mut current = self.current.lock().await;
            if let Some(connection) = &*current {
                return Ok(connection.clone());
            }
            let mut connection = self.client.get_async_connection().await?;
            for script in [&*CLAIM, &*REFUND] {
                let everywhere = RoutingInfo::MultiNode((MultipleNodeRoutingInfo::AllMasters, None));
                // A node that does not take it now gets it with the first call.
                let _ = connection.route_command(script.load(), everywhere).await;
            }
            *current = Some(connection.clone());
            Ok(connection)
        };
        match timeout_at(deadline, connect).await {
            Ok(Ok(connection)) => Ok(connection),
            Ok(Err(error)) => Err(Failure::from_redis(error).at(&self.address)),
            Err(_) => {
                Err(Failure::new(ErrorKind::Timeout, "no connection within the time limit").at(&self.address))
            }
        }
    }

    fn failure(&self, error: RedisError) -> Failure {
        let sent = error.is_io_error() && !error.is_connection_refusal();
        let failure = Failure::from_redis(error).at(&self.address);
        if sent { failure.maybe_applied() } else { failure }
    }
}

fn tcp_settings(timeout: Duration) -> TcpSettings {
    let settings = TcpSettings::default().set_nodelay(true).set_keepalive(keepalive());
    // Packets that nobody acknowledges: the connection is given up, and the next call makes another.
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    let settings = settings.set_user_timeout(timeout);
    #[cfg(not(any(target_os = "android", target_os = "fuchsia", target_os = "linux")))]
    let _ = timeout;
    settings
}
