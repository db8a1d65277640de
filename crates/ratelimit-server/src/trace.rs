//! The log, and the identifier of each request in it.

use std::io::{self, IsTerminal as _};

use http::HeaderMap;
use tracing::Span;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::SubscriberExt as _;
use tracing_subscriber::util::SubscriberInitExt as _;

/// The header that names a request, and the maximum length of a name.
const HEADER: &str = "x-request-id";
const LONGEST: usize = 128;

/// Begins to log on stderr. Details are of this project only: those of others may contain what clients have sent.
pub(crate) fn begin(level: LevelFilter) {
    let targets = Targets::new().with_default(level.min(LevelFilter::INFO)).with_target("ratelimit", level);
    let lines =
        tracing_subscriber::fmt::layer().with_writer(io::stderr).with_ansi(io::stderr().is_terminal());
    tracing_subscriber::registry().with(lines).with(targets).init();
}

/// The span of a request. One that the client has named is in all lines about the request; any other one costs nothing unless
/// details are logged.
pub(crate) fn request(headers: &HeaderMap) -> Span {
    let sent = headers.get(HEADER).and_then(|id| id.to_str().ok());
    match sent.filter(|id| is_sane(id)) {
        Some(id) => tracing::info_span!("request", id),
        None => {
            tracing::debug_span!("request", id = format!("{:016x}", getrandom::u64().unwrap_or_default()))
        }
    }
}

/// Whether it can stand in a line without being taken for something else.
fn is_sane(id: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(&byte);
    (1..=LONGEST).contains(&id.len()) && id.bytes().all(good)
}
