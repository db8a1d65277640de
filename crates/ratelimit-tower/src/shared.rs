//! The state that a layer and its services share: the limiter, the policies, the responses.

use std::sync::Arc;

use crate::SharedPolicies;
use crate::limiter::Core;
use crate::measured::BodyTypes;

/// The state that a layer shares with all services that it has created.
pub(crate) struct Shared<S, C, A> {
    pub(crate) core: Arc<Core<S, C>>,
    pub(crate) policies: SharedPolicies,
    pub(crate) answers: Arc<A>,
    pub(crate) bodies: Arc<BodyTypes>,
}
