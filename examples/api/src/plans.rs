//! Who may ask how often: the plans, and the API keys that have them.

use ratelimit_core::{Limit, Limits, ParseLimitError};

/// The free plan.
pub(crate) const FREE: &str = "10/min";
/// A key on the free plan.
pub(crate) const FREE_KEY: &str = "free-demo";

const STARTER: &str = "3000/min";
const STARTER_KEY: &str = "starter-demo";

/// Coarse, for everybody: what one address may send, whichever keys it uses.
const ADDRESS: &str = "6000/min name address";

/// A plan that a customer can have. Plans share the count of a key: who upgrades keeps what was used.
pub(crate) struct Plan {
    /// The plan's name.
    pub(crate) name: &'static str,
    /// Its limits.
    pub(crate) limits: Limits,
}

/// All plans, and the limit of each client address.
pub(crate) struct Plans {
    free: Plan,
    starter: Plan,
    /// The limit of each client address.
    pub(crate) address: Limits,
}

impl Plans {
    /// The plans of this service.
    pub(crate) fn new() -> Result<Self, ParseLimitError> {
        let plan = |name, text: &str| text.parse::<Limit>().map(|limit| Plan { name, limits: limit.into() });
        Ok(Self {
            free: plan("free", FREE)?,
            starter: plan("starter", STARTER)?,
            address: ADDRESS.parse::<Limit>()?.into(),
        })
    }

    /// The plan that `api_key` has; a real service asks its database.
    pub(crate) fn of(&self, api_key: &str) -> Option<&Plan> {
        match api_key {
            FREE_KEY => Some(&self.free),
            STARTER_KEY => Some(&self.starter),
            _ => None,
        }
    }
}
