//! Plans: named limits, and how headers describe them.

use std::fmt;
use std::sync::Arc;

use http::HeaderValue;
use ratelimit_core::{Algorithm, Alignment, Limit, Limits};

use crate::PolicyError;
use crate::field::{self, Field};

/// Named limits, prepared for reporting to clients. Cheap to clone.
///
/// In `RateLimit-Policy`, in `violated-policies` and in metrics, a limit has its own name if there is one. Otherwise it
/// has the plan's name, followed by the limit's text if the plan has several: `"paid:50/s"`; a ban is `"paid:ban"`.
///
/// Plans of one policy share a client's count if their limits are of the same kind, so a client that changes its plan
/// keeps what was used; see [`Limit`].
///
/// ```
/// use ratelimit_core::{Limit, Limits};
/// use ratelimit_tower::Plan;
///
/// let free = Plan::new("free", "100/min".parse::<Limit>()?)?;
/// assert_eq!(free.names().collect::<Vec<_>>(), ["free"]);
///
/// let paid = Plan::new("paid", Limits::new(["50/s".parse()?, "100000/day name daily".parse()?])?)?;
/// assert_eq!(paid.names().collect::<Vec<_>>(), ["paid:50/s", "daily"]);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct Plan(Arc<Inner>);

struct Inner {
    limits: Limits,
    items: Box<[Item]>,
    /// The value of `RateLimit-Policy`; `None` if all limits are bans.
    field: Option<HeaderValue>,
    /// Whether a limit is a concurrency limit, whose units are held until the request has ended.
    holds: bool,
}

struct Item {
    name: Arc<str>,
    /// The beginning of its item in `RateLimit`, up to what remains.
    remains: Box<[u8]>,
}

impl Plan {
    /// Creates a plan of these limits. The name is 1 to 64 letters, digits, `.`, `_` or `-`.
    ///
    /// # Errors
    /// If the name is empty, too long or has other characters.
    pub fn new(name: &str, limits: impl Into<Limits>) -> Result<Self, PolicyError> {
        if is_name(name) {
            Ok(Self::known(name, limits.into()))
        } else {
            Err(PolicyError::BadName(shown(name)))
        }
    }

    /// Creates a plan whose name is known to be valid.
    pub(crate) fn known(name: &str, limits: Limits) -> Self {
        let alone = limits.iter().filter(|limit| !limit.is_ban()).count() <= 1;
        let items: Box<[Item]> = limits.iter().map(|limit| Item::new(name, limit, alone)).collect();
        let mut policy = Field::new();
        // A ban is no quota.
        for (item, limit) in items.iter().zip(limits.iter()).filter(|(_, limit)| !limit.is_ban()) {
            if !policy.is_empty() {
                policy.extend_from_slice(b", ");
            }
            item.describe(limit, &mut policy);
        }
        let holds = limits.iter().any(|limit| limit.algorithm() == Algorithm::Concurrency);
        let field = if policy.is_empty() { None } else { field::value(&policy) };
        Self(Arc::new(Inner { limits, items, field, holds }))
    }

    /// The limits.
    pub fn limits(&self) -> &Limits {
        &self.0.limits
    }

    /// The name of each limit, in their order.
    pub fn names(&self) -> impl ExactSizeIterator<Item = &str> {
        self.0.items.iter().map(|item| &*item.name)
    }

    pub(crate) fn name(&self, place: usize) -> Option<&Arc<str>> {
        self.0.items.get(place).map(|item| &item.name)
    }

    /// The beginning of a limit's item in `RateLimit`, up to what remains.
    pub(crate) fn remains(&self, place: usize) -> &[u8] {
        self.0.items.get(place).map_or(b"", |item| &item.remains)
    }

    /// Whether units have to be released when a request has ended: a limit is a concurrency limit.
    #[inline]
    pub(crate) fn holds(&self) -> bool {
        self.0.holds
    }

    /// The plan without its concurrency limits; `None` if it has no others.
    pub(crate) fn without_held(&self) -> Option<Self> {
        let others = self.limits().iter().filter(|limit| limit.algorithm() != Algorithm::Concurrency);
        Some(Self::known("", Limits::new(others.cloned()).ok()?))
    }

    pub(crate) fn field(&self) -> Option<&HeaderValue> {
        self.0.field.as_ref()
    }
}

impl Item {
    fn new(plan: &str, limit: &Limit, alone: bool) -> Self {
        let name: Arc<str> = match limit.name() {
            Some(name) => name.into(),
            None if limit.is_ban() => format!("{plan}:ban").into(),
            None if alone => plan.into(),
            None => format!("{plan}:{limit}").into(),
        };
        let mut remains = Field::new();
        field::string(&mut remains, &name);
        remains.extend_from_slice(b";r=");
        Self { name, remains: remains.as_slice().into() }
    }

    /// Appends the limit's item of `RateLimit-Policy`.
    fn describe(&self, limit: &Limit, policy: &mut Field) {
        field::string(policy, &self.name);
        policy.extend_from_slice(b";q=");
        field::integer(policy, limit.quota());
        if limit.algorithm() == Algorithm::Concurrency {
            policy.extend_from_slice(b";qu=\"concurrent-requests\"");
        } else if limit.alignment() != Alignment::Calendar
            && limit.period().subsec_nanos() == 0
            && !limit.period().is_zero()
        {
            policy.extend_from_slice(b";w=");
            field::integer(policy, limit.period().as_secs());
        }
        if limit.burst() != limit.quota() {
            policy.extend_from_slice(b";burst-units=");
            field::integer(policy, limit.burst());
        }
    }
}

impl fmt::Debug for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.names().zip(self.limits().iter().map(ToString::to_string))).finish()
    }
}

/// The rule for the names of limits, policies and plans.
pub(crate) fn is_name(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=64).contains(&name.len()) && name.bytes().all(good)
}

/// The beginning of an invalid name, for an error message.
pub(crate) fn shown(name: &str) -> String {
    name.chars().take(80).collect()
}
