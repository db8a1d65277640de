//! All policies of a service, and how they are exchanged while it runs.

use std::collections::BTreeSet;
use std::error::Error;
use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use ratelimit_core::MAX_CLAIMS;

use crate::{Headers, OnFailure, Policy};

/// The policies of a service, and what clients are told.
///
/// All that apply to a request are admitted together or not at all. Immutable; [`SharedPolicies`] exchanges them.
#[derive(Clone, Debug)]
pub struct Policies {
    pub(crate) policies: Vec<Policy>,
    pub(crate) headers: Headers,
    pub(crate) on_failure: OnFailure,
    pub(crate) shadow: bool,
}

/// Why a policy or plan cannot be made.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PolicyError {
    /// A name is empty, too long or has other characters than letters, digits, `.`, `_` and `-`.
    BadName(String),
    /// Two policies have the same name.
    SameName(String),
    /// There is no policy at all.
    NoPolicies,
    /// The policies have more limits than one check can hold.
    TooManyLimits(usize),
}

impl fmt::Display for PolicyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadName(name) => {
                write!(
                    f,
                    "a policy or plan cannot be called {name:?}: a name is 1 to 64 letters, digits, '.', '_' or '-'"
                )
            }
            Self::SameName(name) => {
                write!(
                    f,
                    "two policies are called {name:?}: they would count together, so give them different names"
                )
            }
            Self::NoPolicies => f.write_str("there is no policy: to limit nothing, leave out the layer"),
            Self::TooManyLimits(limits) => {
                write!(
                    f,
                    "the policies have {limits} limits together: at most {MAX_CLAIMS} can be checked at once"
                )
            }
        }
    }
}

impl Error for PolicyError {}

impl Policies {
    /// These policies. Their order decides nothing.
    ///
    /// # Errors
    /// If there is none, if two have one name, or if they have more than 64 limits together.
    pub fn new(policies: impl IntoIterator<Item = Policy>) -> Result<Self, PolicyError> {
        let policies: Vec<Policy> = policies.into_iter().collect();
        if policies.is_empty() {
            return Err(PolicyError::NoPolicies);
        }
        let mut names = BTreeSet::new();
        if let Some(policy) = policies.iter().find(|policy| !names.insert(policy.name())) {
            return Err(PolicyError::SameName(policy.name().to_owned()));
        }
        let limits = policies.iter().map(|policy| policy.limits().len()).sum();
        if limits > MAX_CLAIMS {
            return Err(PolicyError::TooManyLimits(limits));
        }
        Ok(Self::known(policies))
    }

    /// The same for policies that are known to be good.
    pub(crate) fn known(policies: Vec<Policy>) -> Self {
        Self { policies, headers: Headers::default(), on_failure: OnFailure::default(), shadow: false }
    }

    /// With these fields on answers.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// With this when the store does not answer; [`OnFailure::closed`] by default.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// All of them [in shadow](Policy::in_shadow).
    #[must_use]
    pub fn in_shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// The only policy, if it only charges before a request is served, and not in shadow: the usual case.
    #[inline]
    pub(crate) fn alone(&self) -> Option<&Policy> {
        match &self.policies[..] {
            [policy] if policy.is_usual() && !self.shadow => Some(policy),
            _ => None,
        }
    }

    /// The policies.
    pub fn each(&self) -> impl ExactSizeIterator<Item = &Policy> {
        self.policies.iter()
    }
}

/// Policies that can be exchanged while requests come in. Clones share them.
///
/// Requests that were begun end under the policies that they began under. Counts are kept in the store by the policy's
/// name, the kind of limit and the key, so what did not change keeps its counts.
///
/// ```
/// use ratelimit_core::Limit;
/// use ratelimit_tower::{KeySource, Policies, Policy, SharedPolicies};
///
/// let of = |limit: &str| -> Result<Policies, Box<dyn std::error::Error>> {
///     Ok(Policies::new([Policy::new("all", KeySource::everybody(), limit.parse::<Limit>()?)?])?)
/// };
/// let shared = SharedPolicies::from(of("100/s")?); // given to `RateLimitLayer::with_policies`
/// shared.replace(of("200/s")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedPolicies(Arc<Exchange>);

/// Most policies are never exchanged, and then nobody has to take hold of them to look at them.
#[derive(Debug)]
struct Exchange {
    /// They stay here, also when there are others.
    first: Arc<Policies>,
    /// Those that came after them.
    later: OnceLock<ArcSwap<Policies>>,
}

impl SharedPolicies {
    /// From now on these.
    pub fn replace(&self, policies: Policies) {
        let policies = Arc::new(policies);
        self.0.later.get_or_init(|| ArcSwap::new(policies.clone())).store(policies);
    }

    /// Those of now.
    pub fn current(&self) -> Arc<Policies> {
        self.look(Arc::clone)
    }

    /// A short look at those of now.
    #[inline]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Arc<Policies>) -> T) -> T {
        match self.0.later.get() {
            None => look(&self.0.first),
            Some(later) => look(&later.load()),
        }
    }
}

impl From<Policies> for SharedPolicies {
    fn from(policies: Policies) -> Self {
        Self(Arc::new(Exchange { first: Arc::new(policies), later: OnceLock::new() }))
    }
}
