//! The name of a request's plan.

use std::sync::Arc;

/// The name of a request's plan. Middleware around the layer inserts it into the request's extensions.
///
/// You get it from [`Config::plan`](super::Config::plan) or [`ConfigFile::plan`](super::ConfigFile::plan), which return
/// `None` if the file has no such plan. So you notice a wrong name where you look up the client.
///
/// Look the name up for each request, and do not keep it. After a reload it may name a plan that is no longer in the file.
/// Such a request counts as one without a plan: each policy applies its own limit, and a policy that has limits only for
/// plans does not apply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PlanName(pub(super) Arc<str>);

impl PlanName {
    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}
