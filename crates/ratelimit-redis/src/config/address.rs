//! The address of one server.

use redis::{ConnectionInfo, IntoConnectionInfo};

use ratelimit_core::StoreError;

use crate::error::{self, ERRORS};

/// Reads the address of one server.
pub(crate) fn info(url: &str) -> Result<ConnectionInfo, StoreError> {
    let host =
        url.split_once("://").map_or("", |(_, rest)| rest.split(['/', '?']).next().unwrap_or_default());
    if !url.starts_with("redis+unix:") && host.rsplit('@').next().is_some_and(|host| host.contains(',')) {
        return Err(ERRORS.misconfigured(
            "the address names several servers; that of a cluster begins with redis+cluster://, that of sentinels with \
             redis+sentinel://",
        ));
    }
    url.into_connection_info().map_err(error::from_redis)
}
