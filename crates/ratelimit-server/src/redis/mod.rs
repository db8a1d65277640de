//! The door for clients of Redis.

mod commands;
mod connection;
mod request;
mod throttle;

use std::sync::Arc;

use tokio::net::TcpListener;

use crate::checks::Checks;
use crate::listen::{Bounds, Ending, accept};

#[doc(hidden)] // for fuzz targets
pub use request::{ProtocolError, SplitOff, split_off};

/// Answers until the server ends.
pub(crate) async fn serve(listener: TcpListener, checks: Arc<Checks>, bounds: Bounds, ending: Ending) {
    let (of_end, idle) = (ending.clone(), bounds.idle);
    accept(listener, bounds, ending, move |stream, _| {
        connection::serve(stream, checks.clone(), idle, of_end.clone())
    })
    .await;
}
