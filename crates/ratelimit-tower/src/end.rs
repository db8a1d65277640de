//! How a request has ended: what a closure can read to determine its true cost.

use std::time::Duration;

use http::{Extensions, HeaderMap, StatusCode};

/// How a request has ended, for [`Settle::function`](crate::Settle::function). A view: nothing is copied.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct End<'a> {
    /// The status of the response.
    pub status: StatusCode,
    /// The header fields of the response.
    pub headers: &'a HeaderMap,
    /// The response's extensions, as set by the service.
    pub extensions: &'a Extensions,
    /// The trailers of the response, if its body had any.
    pub trailers: Option<&'a HeaderMap>,
    /// How many bytes of the response's body were passed to the server.
    pub response_bytes: u64,
    /// The time from the call of the service to the end of the body.
    pub elapsed: Duration,
    /// Whether the body was read to its end, or as far as its `Content-Length` or its size hint says. If not, the client has
    /// probably disconnected, or the body has failed. A response that is sent without a body (to `HEAD`, or with the status
    /// 204 or 304) is complete, even if the service has given it one.
    pub complete: bool,
}
