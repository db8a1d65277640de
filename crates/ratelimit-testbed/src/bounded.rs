//! A time limit for each step of a conversation with a server.

use std::io;
use std::time::Duration;

/// How long a server may take for a step.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of a step, or why there is none.
pub(crate) async fn bounded<T>(step: impl Future<Output = io::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(TIMEOUT, step).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {TIMEOUT:?}")),
    }
}
