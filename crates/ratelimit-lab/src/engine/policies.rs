//! Counts, for each policy of a configuration file, the requests that it applies to, and what they lack.

use std::sync::Arc;

use ratelimit_tower::config::{Config, PlanName};
use ratelimit_tower::{Asked, Head, Missing, Policies, Policy, PolicyError};
use serde::{Deserialize, Serialize};

/// What a policy of a configuration file had to do with the requests.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyOutcome {
    /// Its name.
    pub name: String,
    /// What it counts by, as text.
    pub key: String,
    /// Requests that it applies to, by their method and path and the like; also those of clients that a list exempts or refuses.
    pub requests: u64,
    /// Those of them that do not have what it counts by.
    pub without_key: u64,
    /// Those of them without a plan; `None` if no plan of the file has limits of its own for this policy.
    pub without_plan: Option<u64>,
}

/// Counts the requests of each policy.
pub(super) struct PolicyCounts {
    counts: Vec<PolicyOutcome>,
    /// The policies, each of which applies only to requests with its key.
    with_key: Arc<Policies>,
    /// The policies, each of which applies also to others.
    all: Arc<Policies>,
}

impl PolicyCounts {
    /// Counts for these policies of this file.
    pub(super) fn new(policies: &Policies, config: &Config) -> Result<Self, PolicyError> {
        // In shadow, so that none refuses a request before the others have seen it.
        let copies = |missing: fn() -> Missing| {
            let copy = |policy: &Policy| policy.clone().when_missing(missing()).in_shadow();
            Policies::new(policies.each().map(copy)).map(Arc::new)
        };
        let counts = policies.each().map(|policy| {
            let limits = |plan| config.limits(policy.name(), plan);
            let has_plans = config.plans().any(|plan| limits(Some(plan)) != limits(None));
            PolicyOutcome {
                name: policy.name().to_owned(),
                key: policy.source().to_string(),
                without_plan: has_plans.then_some(0),
                ..PolicyOutcome::default()
            }
        });
        Ok(Self {
            counts: counts.collect(),
            with_key: copies(|| Missing::Exempt)?,
            all: copies(|| Missing::Share)?,
        })
    }

    pub(super) fn add(&mut self, head: &Head<'_>) {
        let has_plan = head.extensions.get::<PlanName>().is_some();
        let with_key = Asked::of_request(self.with_key.clone(), head);
        let mut with_key = with_key.each().map(|(name, _)| name).peekable();
        // Nearly always all policies apply.
        let all = (with_key.len() < self.counts.len()).then(|| Asked::of_request(self.all.clone(), head));
        let mut all = all.as_ref().map(|all| all.each().map(|(name, _)| name).peekable());
        // Both have the policies in their order.
        for count in &mut self.counts {
            let has_key = with_key.next_if(|name| *name == count.name).is_some();
            let applies = all.as_mut().is_none_or(|all| all.next_if(|name| *name == count.name).is_some());
            if applies {
                count.requests += 1;
                count.without_key += u64::from(!has_key);
                if let Some(without_plan) = &mut count.without_plan {
                    *without_plan += u64::from(!has_plan);
                }
            }
        }
    }

    pub(super) fn into_outcomes(self) -> Vec<PolicyOutcome> {
        self.counts
    }
}
