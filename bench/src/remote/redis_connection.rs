//! The connection of bare scripts and of limitador.

use anyhow::Result;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{AsyncConnectionConfig, Client, IntoConnectionInfo as _};

/// Connects with the settings of our store: all calls share the connection, without a delay to fill packets.
pub(super) async fn connect(url: &str) -> Result<MultiplexedConnection> {
    let info = url.into_connection_info()?.set_tcp_settings(TcpSettings::default().set_nodelay(true));
    let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1_024);
    Ok(Client::open(info)?.get_multiplexed_async_connection_with_config(&config).await?)
}
