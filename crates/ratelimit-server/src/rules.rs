//! The policies of a file, as this server uses them: charged before the request, and found by name or by descriptor.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use ratelimit_tower::config::{Config, ConfigError, ConfigFile};
use ratelimit_tower::{Plan, Policies, Policy};

use crate::entries::{self, Entry};

/// The policies that are in force.
#[derive(Debug)]
pub(crate) struct Rules {
    /// What the file says.
    pub(crate) config: Arc<Config>,
    /// All policies.
    pub(crate) policies: Arc<Policies>,
    /// Those that can be checked by the head of a request.
    pub(crate) by_head: Arc<Policies>,
    /// What a descriptor needs for each policy, in their order; `None` for a policy that no descriptor is for.
    entries: Vec<Option<Vec<Entry>>>,
}

impl Rules {
    fn new(config: Arc<Config>) -> Self {
        let policies = config.policies().clone().without_responses();
        let by_head = Arc::new(policies.clone().retain(|policy| !entries::names_entries(policy)));
        let entries = policies.each().map(entries::of_policy).collect();
        Self { config, policies: Arc::new(policies), by_head, entries }
    }

    /// The policies for this descriptor, each with the values that it counts by.
    pub(crate) fn of_descriptor<'s: 'd, 'd>(
        &'s self,
        descriptor: &'d [(&'d str, &'d str)],
    ) -> impl Iterator<Item = (&'s Policy, Vec<&'d [u8]>)> {
        let each = self.policies.each().zip(&self.entries);
        each.filter_map(move |(policy, entries)| {
            Some((policy, entries::values(entries.as_ref()?, descriptor)?))
        })
    }

    /// Under which limits a policy counts: `None` if it does not apply to this plan, `Some(None)` under its own.
    pub(crate) fn plan_of(&self, policy: &Policy, plan: Option<&str>) -> Option<Option<Plan>> {
        let limits = self.config.limits(policy.name(), plan)?;
        if plan.is_none() || self.config.limits(policy.name(), None) == Some(limits) {
            return Some(None);
        }
        let name = format!("{}.{}", policy.name(), plan.unwrap_or_default());
        Some(Plan::new(&name, limits.clone()).or_else(|_| Plan::new(policy.name(), limits.clone())).ok())
    }

    /// Whether a policy refuses nothing.
    pub(crate) fn is_shadow(&self, policy: &Policy) -> bool {
        policy.is_shadow() || self.policies.is_shadow()
    }
}

/// A file of policies that is read again when it changes.
#[derive(Debug)]
pub(crate) struct RulesFile {
    file: ConfigFile,
    current: ArcSwap<Rules>,
}

impl RulesFile {
    pub(crate) fn open(path: &Path) -> Result<Self, ConfigError> {
        let file = ConfigFile::open_with(path, entries::provided())?;
        let current = ArcSwap::from_pointee(Rules::new(file.config()));
        Ok(Self { file, current })
    }

    /// The rules in force.
    pub(crate) fn current(&self) -> Arc<Rules> {
        let config = self.file.config();
        let current = self.current.load();
        if Arc::ptr_eq(&current.config, &config) {
            return current.clone();
        }
        // Several may do so at once: they make the same.
        let rules = Arc::new(Rules::new(config));
        self.current.store(rules.clone());
        rules
    }

    /// Reads the file again at this interval, until the future is dropped.
    pub(crate) async fn watch(&self, every: Duration) {
        self.file.watch(every).await;
    }
}
