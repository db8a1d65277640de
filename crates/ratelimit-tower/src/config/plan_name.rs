//! The name of a request's plan.

use std::sync::Arc;

/// The plan of a request, as an extension of it. Middleware around the layer inserts it.
///
/// You get it from [`Config::plan`](super::Config::plan) or [`ConfigFile::plan`](super::ConfigFile::plan). So a plan
/// that the file does not have is noticed where the client is looked up, and cannot silently mean "no limit".
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanName(pub(super) Arc<str>);

impl PlanName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
