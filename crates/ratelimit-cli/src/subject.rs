//! The limits of a command, and how the keys under them are written.

use anyhow::{anyhow, bail};
use ratelimit_core::{Limits, RateLimiter};
use ratelimit_stores::Store;
use ratelimit_tower::config::{Config, ConfigFile, Provided};
use ratelimit_tower::{KeySource, Policy};

use crate::args::Args;
use crate::text::{escape, unescape};

/// The limiter that every command uses.
pub(crate) type Limiter = RateLimiter<Store>;

/// Limits, and the policy of a file that they belong to, if any.
pub(crate) struct Subject {
    limits: Limits,
    policy: Option<Policy>,
}

/// A key.
pub(crate) struct Key {
    /// Its bytes in the store.
    pub(crate) bytes: Vec<u8>,
    /// Its text for the operator.
    pub(crate) shown: String,
}

impl Subject {
    /// Reads the limits that the arguments name.
    pub(crate) fn load(args: &Args) -> anyhow::Result<Self> {
        match (&args.limits.limits, &args.limits.config) {
            (Some(text), _) => {
                Ok(Self { limits: text.parse().map_err(|error| anyhow!("--limits: {error}"))?, policy: None })
            }
            (None, Some(file)) => {
                let config = ConfigFile::open_with(file, provided(&args.provided_key)).map_err(|error| {
                    let hint = match error.is_unknown_key() {
                        true => ": name it with --provided-key",
                        false => "",
                    };
                    anyhow!("{error}{hint}")
                })?;
                let config = config.config();
                let policy = choose(&config, args.policy.as_deref())?;
                let limits = limits(&config, policy, args.plan.as_deref())?.clone();
                Ok(Self { limits, policy: Some(policy.clone()) })
            }
            (None, None) => bail!("give the limits with --limits or --config"),
        }
    }

    /// A limiter with these limits.
    pub(crate) fn limiter(&self, store: Store, namespace: &str) -> Limiter {
        RateLimiter::new(store, self.limits.clone()).with_namespace(namespace)
    }

    /// The key that the operator has written.
    pub(crate) fn key(&self, text: &str, escaped: bool) -> anyhow::Result<Key> {
        let written = match escaped {
            false => text.as_bytes().to_vec(),
            true => unescape(text).ok_or_else(|| {
                anyhow!("a KEY is not valid with --escaped: write a byte as \\xNN and a backslash as \\\\")
            })?,
        };
        let Some(policy) = &self.policy else {
            return Ok(Key { shown: escape(&written), bytes: written });
        };
        let key = policy.key_of(&written).map_err(|error| {
            anyhow!("a KEY is not what the policy {} counts by ({}): {error}", policy.name(), policy.source())
        })?;
        self.shown(&key).ok_or_else(|| anyhow!("the policy {} cannot read its own key", policy.name()))
    }

    /// A key of the store as the operator can read and write it; `None` if it is not one of the policy. A secret is shown
    /// as its hash.
    pub(crate) fn shown(&self, key: &[u8]) -> Option<Key> {
        let shown = match &self.policy {
            Some(policy) => escape(&policy.client_of(key)?),
            None => escape(key),
        };
        Some(Key { bytes: key.to_vec(), shown })
    }
}

/// Stand-ins for what the program provides for its file.
fn provided(keys: &[String]) -> Provided {
    // No request is decided here, so the sources are never used.
    let source = || KeySource::function(|_| None::<&[u8]>);
    keys.iter().fold(Provided::default(), |provided, name| provided.key(name, source()))
}

fn choose<'c>(config: &'c Config, name: Option<&str>) -> anyhow::Result<&'c Policy> {
    let mut policies = config.policies().each();
    match name {
        Some(name) => policies
            .find(|policy| policy.name() == name)
            .ok_or_else(|| anyhow!("no policy is called {name:?}; the file has {}", described(config))),
        None if policies.len() == 1 => policies.next().ok_or_else(|| anyhow!("the file has no policy")),
        None => bail!("choose one of the file's policies with --policy: {}", described(config)),
    }
}

/// The policies and what they count by.
fn described(config: &Config) -> String {
    let each = config.policies().each().map(|policy| format!("{} (by {})", policy.name(), policy.source()));
    each.collect::<Vec<_>>().join(", ")
}

fn limits<'c>(config: &'c Config, policy: &Policy, plan: Option<&str>) -> anyhow::Result<&'c Limits> {
    let plans = config.plans().collect::<Vec<_>>().join(", ");
    if let Some(plan) = plan.filter(|plan| config.plan(plan).is_none()) {
        bail!("no plan is called {plan:?}; the file has {}", if plans.is_empty() { "none" } else { &plans });
    }
    config.limits(policy.name(), plan).ok_or_else(|| match plan {
        Some(plan) => anyhow!("the policy {} has no limit for the plan {plan}", policy.name()),
        None => anyhow!(
            "the limit of the policy {} depends on the plan; choose one with --plan: {plans}",
            policy.name()
        ),
    })
}
