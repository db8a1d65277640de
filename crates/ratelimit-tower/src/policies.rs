//! The policies of a service, and how to replace them at run time.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use http::HeaderName;
use ratelimit_core::{Limit, Limits, MAX_CLAIMS};

use crate::absent::Absent;
use crate::{ClientList, Head, Headers, OnFailure, Policy, PolicyError, observe};

/// The policies of a service, and what to report to clients.
///
/// All policies that apply to a request are admitted together or not at all. Immutable; use [`SharedPolicies`] to replace them.
#[derive(Clone, Debug)]
pub struct Policies {
    pub(crate) policies: Vec<Policy>,
    pub(crate) headers: Headers,
    pub(crate) on_failure: OnFailure,
    pub(crate) shadow: bool,
    deny: Vec<ClientList>,
    allow: Vec<ClientList>,
    /// The headers to remove from each response, and the policies that settle by them: clients must not see them.
    pub(crate) taken: Vec<(usize, HeaderName)>,
}

/// What the lists of clients say about a request.
pub(crate) enum Listed {
    No,
    /// No policy applies to it.
    Allowed,
    /// It is refused: its client is in a list, or has sent the header several times by which the list identifies clients.
    Denied {
        twice: Option<HeaderName>,
    },
    /// The program did not provide what a list of clients to refuse identifies them by.
    Unknown(Absent),
}

impl Policies {
    /// Combines these policies. Their order decides nothing.
    ///
    /// # Errors
    /// If there are no policies, if two have the same name, if they have more than 64 limits together, or if one has a
    /// fixed [cost](crate::Cost) that its own limits can never admit.
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
        let never_fits =
            |policy: &Policy| Some((policy.name().to_owned(), policy.never_fits(policy.limits())?));
        if let Some((policy, problem)) = policies.iter().find_map(never_fits) {
            return Err(PolicyError::NeverFits { policy, problem });
        }
        Ok(Self::known(policies))
    }

    /// Creates policies that are known to be valid.
    pub(crate) fn known(policies: Vec<Policy>) -> Self {
        let taken = policies.iter().enumerate();
        let taken =
            taken.filter_map(|(place, policy)| Some((place, policy.settles()?.taken_header()?.clone())));
        let taken = taken.collect();
        Self {
            policies,
            taken,
            headers: Headers::default(),
            on_failure: OnFailure::default(),
            shadow: false,
            deny: Vec::new(),
            allow: Vec::new(),
        }
    }

    /// Sets the fields on responses.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.headers = headers;
        self
    }

    /// Sets what to do if the store does not answer; by default [`OnFailure::closed`] with one second.
    #[must_use]
    pub fn on_failure(mut self, on_failure: OnFailure) -> Self {
        self.on_failure = on_failure;
        self
    }

    /// Refuses the clients of this list with 403, before any policy is checked. You can call it several times. If the list
    /// identifies clients by a header, a request that has it more than once is refused as well; the answer and the log name
    /// the header. If the program does not provide what the list identifies clients by, such as the peer's address or an
    /// extension, the request is refused with 500. If only some requests have it, use
    /// [`KeySource::function`](crate::KeySource::function), which returns `None` for the others.
    ///
    /// If the policies are [in shadow](Self::in_shadow), it only counts and logs what it would refuse.
    #[must_use]
    pub fn deny(mut self, clients: ClientList) -> Self {
        self.deny.push(clients);
        self
    }

    /// Applies no policy to the clients of this list, unless they are [denied](Self::deny). You can call it several times.
    #[must_use]
    pub fn allow(mut self, clients: ClientList) -> Self {
        self.allow.push(clients);
        self
    }

    /// Puts all policies, and the lists of [denied](Self::deny) clients, [in shadow](Policy::in_shadow).
    #[must_use]
    pub fn in_shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// Takes all policies out of [shadow](Policy::in_shadow): for tools that show what policies would refuse.
    #[must_use]
    pub fn out_of_shadow(mut self) -> Self {
        self.shadow = false;
        self.policies = self.policies.into_iter().map(Policy::out_of_shadow).collect();
        self
    }

    /// Charges each policy before the request is served, and leaves it at that: for programs that do not see the response, such
    /// as one that decides for [others](crate::Checker).
    #[must_use]
    pub fn without_responses(mut self) -> Self {
        self.policies = self.policies.into_iter().map(Policy::without_response).collect();
        self.taken.clear();
        self
    }

    /// Reports to clients and handles failures of the store as `other` does.
    #[must_use]
    pub fn like(mut self, other: &Self) -> Self {
        self.headers = other.headers.clone();
        self.on_failure = other.on_failure.clone();
        self
    }

    /// Keeps only the policies for which this is true. Unlike [`new`](Self::new), it may leave none: then nothing is limited.
    #[must_use]
    pub fn retain(self, keep: impl Fn(&Policy) -> bool) -> Self {
        let Self { policies, headers, on_failure, shadow, deny, allow, .. } = self;
        let policies = policies.into_iter().filter(|policy| keep(policy)).collect();
        Self { headers, on_failure, shadow, deny, allow, ..Self::known(policies) }
    }

    fn has_lists(&self) -> bool {
        !self.deny.is_empty() || !self.allow.is_empty()
    }

    /// What the lists say about a request.
    #[inline]
    pub(crate) fn listed(&self, request: &Head<'_>) -> Listed {
        if self.has_lists() { self.find(request) } else { Listed::No }
    }

    #[inline(never)]
    fn find(&self, request: &Head<'_>) -> Listed {
        let mut unknown = None;
        // The first list that applies to the request, and the header that is the reason, if it is one.
        let mut first = |lists: &[ClientList], name, denies: bool, refuses: bool| {
            lists.iter().find_map(|list| match list.find(request) {
                Ok(is_listed) => is_listed.then_some(None),
                Err(Absent::Client(_)) => None,
                Err(Absent::Several(header)) => {
                    observe::listed_by_several(denies, &header);
                    denies.then_some(Some(header))
                }
                Err(absent @ Absent::Program(what)) => {
                    if refuses {
                        observe::unidentified(name, &absent);
                        unknown = Some(absent);
                    } else {
                        observe::unlisted(name, what);
                    }
                    None
                }
            })
        };
        if let Some(twice) = first(&self.deny, "deny", true, !self.shadow) {
            observe::denied(self.shadow);
            if !self.shadow {
                return Listed::Denied { twice };
            }
        }
        let is_allowed = first(&self.allow, "allow", false, false).is_some();
        match unknown {
            Some(absent) => Listed::Unknown(absent),
            None if is_allowed => Listed::Allowed,
            None => Listed::No,
        }
    }

    /// The policy of this name.
    pub fn get(&self, name: &str) -> Option<&Policy> {
        self.policies.iter().find(|policy| policy.name() == name)
    }

    /// Whether all policies are [in shadow](Self::in_shadow).
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// The policies.
    pub fn each(&self) -> impl ExactSizeIterator<Item = &Policy> {
        self.policies.iter()
    }
}

/// Policies that can be replaced at run time. Clones share them.
///
/// Requests in progress complete under the policies that they started with. Counts are stored by the policy's name, the
/// kind of limit and the key, so policies that did not change keep their counts.
///
/// ```
/// use ratelimit_core::Limit;
/// use ratelimit_tower::{KeySource, Policies, Policy, SharedPolicies};
///
/// let of = |limit: &str| -> Result<Policies, Box<dyn std::error::Error>> {
///     Ok(Policies::new([Policy::new("all", KeySource::everybody(), limit.parse::<Limit>()?)?])?)
/// };
/// let shared = SharedPolicies::from(of("100/s")?); // given to `RateLimitLayer::new`
/// shared.replace(of("200/s")?);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct SharedPolicies(Arc<CurrentPolicies>);

/// Most policies are never replaced, and are then read without going through an `ArcSwap`.
#[derive(Debug)]
struct CurrentPolicies {
    /// The first policies stay here, even after they have been replaced.
    first: Arc<Policies>,
    /// The current policies, if the first ones were replaced.
    later: OnceLock<ArcSwap<Policies>>,
}

impl SharedPolicies {
    /// Replaces the policies.
    pub fn replace(&self, policies: Policies) {
        let policies = Arc::new(policies);
        self.0.later.get_or_init(|| ArcSwap::new(policies.clone())).store(policies);
    }

    /// Returns the current policies.
    pub fn current(&self) -> Arc<Policies> {
        self.look(Arc::clone)
    }

    /// Calls `look` with the current policies.
    #[inline]
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Arc<Policies>) -> T) -> T {
        match self.0.later.get() {
            None => look(&self.0.first),
            Some(later) => look(&later.load()),
        }
    }
}

/// Applies limits to each peer's address (IPv6: to each /64 network), as a policy with the name `default`. Different limits
/// have different counts, also on one store; equal ones count together, as the instances of a service have to. To count
/// them apart, or to keep the counts when the limits change, create a [`Policy`] with a name.
impl From<Limits> for SharedPolicies {
    fn from(limits: Limits) -> Self {
        Policies::known(vec![Policy::plain(limits)]).into()
    }
}

/// Applies a limit to each peer's address, as [several](#impl-From<Limits>-for-SharedPolicies) do.
impl From<Limit> for SharedPolicies {
    fn from(limit: Limit) -> Self {
        Limits::from(limit).into()
    }
}

/// Shares a copy of the policies.
impl From<&Policies> for SharedPolicies {
    fn from(policies: &Policies) -> Self {
        policies.clone().into()
    }
}

impl From<Policies> for SharedPolicies {
    fn from(policies: Policies) -> Self {
        Self(Arc::new(CurrentPolicies { first: Arc::new(policies), later: OnceLock::new() }))
    }
}
