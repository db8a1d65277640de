//! What one policy checks for one request.

use crate::Plan;
use crate::key::KeyBytes;

/// What one policy checks for one request.
#[derive(Clone)]
pub(crate) struct PolicyCheck {
    /// The index of the policy.
    pub(crate) policy: usize,
    /// The chosen plan, if any.
    pub(crate) plan: Option<Plan>,
    pub(crate) key: KeyBytes,
    pub(crate) cost: u64,
}

impl PolicyCheck {
    /// A check for the policy at this index, which fills in the rest.
    #[inline]
    pub(crate) fn new(policy: usize) -> Self {
        Self { policy, plan: None, key: KeyBytes::new(), cost: 0 }
    }
}
