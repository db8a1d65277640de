//! The name of a request's plan.

use std::sync::Arc;

/// The name of a request's plan. Middleware around the layer inserts it into the request's extensions.
///
/// You get it from [`Config::plan`](super::Config::plan) or [`ConfigFile::plan`](super::ConfigFile::plan), which return
/// `None` if the file has no such plan. So you notice a wrong name where you look up the client; it cannot silently mean
/// "no limit".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanName(pub(super) Arc<str>);

impl PlanName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
