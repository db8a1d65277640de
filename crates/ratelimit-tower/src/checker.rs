//! Checks for requests that another program serves.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use ratelimit_core::clock::Timer;
use ratelimit_core::{CheckError, CounterStore, Decision, RateLimiter, SystemClock};

use crate::absent::Absent;
use crate::answer::{Reason, Refused};
use crate::check::{PolicyChecks, check_all, checks, request};
use crate::counted::Places;
use crate::headers::{self, Lines};
use crate::key::KeyBytes;
use crate::limiter::Core;
use crate::policy_check::PolicyCheck;
use crate::verdict::{Verdict, decided, failed, looked};
use crate::{Head, IntoLimiter, Plan, Policies, observe};

/// Decides under policies without serving the request: for a program that answers whether a request may pass, which another
/// one serves, such as a gateway.
///
/// It decides as the layer does: all policies together, those in shadow by themselves, with the same metrics. What depends on
/// the response ([`Charge`](crate::Charge), [`Settle`](crate::Settle)) it cannot do: use
/// [`Policies::without_responses`], and give back or settle the [decision](Answered::decision) yourself.
///
/// ```
/// use std::sync::Arc;
///
/// use ratelimit_core::Limit;
/// use ratelimit_tower::{Asked, Checker, KeySource, Policies, Policy};
///
/// # async fn example(store: impl ratelimit_core::CounterStore + 'static) -> Result<(), Box<dyn std::error::Error>> {
/// let user = KeySource::header(http::HeaderName::from_static("x-user"));
/// let policies = Policies::new([Policy::new("user", user, "100/min".parse::<Limit>()?)?])?;
///
/// let policies = Arc::new(policies.without_responses());
/// let user = policies.get("user").ok_or("no such policy")?;
/// let asked = Asked::of(policies.clone()).policy("user", &user.key_of(b"7")?, 1, None);
/// let checker = Checker::new(store);
/// if let Some(wait) = checker.check(&asked).await.retry_after() {
///     println!("wait {wait:?}");
/// }
/// # Ok(())
/// # }
/// ```
pub struct Checker<S, C = SystemClock> {
    core: Core<S, C>,
}

/// What to decide together: policies, each for a client.
#[derive(Clone)]
pub struct Asked {
    policies: Arc<Policies>,
    checks: PolicyChecks,
    /// Why the request is refused whatever the limits say.
    refused: Option<(Reason, Option<Absent>)>,
}

/// The answer to a check: whether the request may pass, and what to report to the client.
pub struct Answered<'a> {
    verdict: Verdict,
    decision: Option<Decision<'a>>,
}

impl Asked {
    /// Nothing yet, under these policies.
    pub fn of(policies: Arc<Policies>) -> Self {
        Self { policies, checks: PolicyChecks::new(), refused: None }
    }

    /// Adds the policy of this name for the client with this [key](crate::Policy::key_of), at this cost; with other limits than
    /// its own if there is a `plan`. Changes nothing if there is no such policy.
    #[must_use]
    pub fn policy(mut self, name: &str, key: &[u8], cost: u64, plan: Option<Plan>) -> Self {
        let place = self.policies.policies.iter().position(|policy| policy.name() == name);
        self.checks.extend(place.map(|policy| PolicyCheck { policy, plan, key: KeyBytes::of(key), cost }));
        self
    }

    /// All policies that apply to a request, as the layer checks them. Lists of clients apply, too.
    pub fn of_request(policies: Arc<Policies>, head: &Head<'_>) -> Self {
        match checks(&policies, head, Places::default()) {
            Ok(checks) => Self { policies, checks, refused: None },
            Err(Refused { reason, absent, .. }) => {
                Self { policies, checks: PolicyChecks::new(), refused: Some((reason, absent)) }
            }
        }
    }

    /// The policies, whether they apply or not.
    pub fn policies(&self) -> &Arc<Policies> {
        &self.policies
    }

    /// The name of each policy that applies, in their order, and the limits that it is checked under.
    pub fn each(&self) -> impl ExactSizeIterator<Item = (&str, &Plan)> {
        self.checks.iter().map(|check| (check.policy(&self.policies).name(), check.plan(&self.policies)))
    }

    /// The limiter request of all policies that are not in shadow; `None` if there are none.
    pub fn request(&self) -> Option<ratelimit_core::Request<'_, '_>> {
        request(&self.policies, self.enforced())
    }

    /// The checks of policies that are not in shadow.
    fn enforced(&self) -> impl Iterator<Item = &PolicyCheck> {
        self.checks.iter().filter(|check| !check.round(&self.policies).shadow)
    }
}

impl<S: CounterStore + 'static, C: Timer + 'static> Checker<S, C> {
    /// Counts in this store, or with this limiter. If the limiter has limits, they do not apply.
    pub fn new(limiter: impl IntoLimiter<S, C>) -> Self {
        Self { core: Core::new(limiter.into_limiter(), None) }
    }

    /// The limiter, to give back and settle decisions.
    pub fn limiter(&self) -> &RateLimiter<S, C> {
        &self.core.limiter
    }

    /// Decides, and charges what is admitted.
    pub async fn check<'a>(&'a self, asked: &'a Asked) -> Answered<'a> {
        let Asked { policies, checks, refused } = asked;
        if let Some((reason, absent)) = refused {
            let refused = Refused { absent: absent.clone(), ..Refused::without_limits(*reason) };
            return Answered { verdict: Verdict::Refuse(refused), decision: None };
        }
        if checks.is_empty() {
            return Answered::nothing();
        }
        observe::checked(checks.iter().map(|check| check.policy(policies).checks()));
        match observe::span(check_all(&self.core, policies, checks)).await {
            Ok(checked) => {
                let verdict = decided(policies, checks, &checked);
                let enforced = checked.0.into_iter().find(|(round, _)| !round.shadow);
                Answered { verdict, decision: enforced.map(|(_, decision)| decision) }
            }
            Err(error) => Answered { verdict: failed(policies, checks, &error), decision: None },
        }
    }

    /// How the limits stand; charges nothing. Policies in shadow are not asked.
    ///
    /// # Errors
    /// If the store did not answer.
    pub async fn peek<'a>(&'a self, asked: &'a Asked) -> Result<Answered<'a>, CheckError> {
        let Some(request) = asked.request() else { return Ok(Answered::nothing()) };
        let decision = self.core.limiter.peek(request).await?;
        let verdict = looked(&asked.policies, asked.enforced(), &decision);
        Ok(Answered { verdict, decision: Some(decision) })
    }
}

impl<'a> Answered<'a> {
    /// No policy applies.
    fn nothing() -> Self {
        Self { verdict: Verdict::Pass { lines: Lines::default(), delay: Duration::ZERO }, decision: None }
    }

    /// Whether the request may pass.
    pub fn allowed(&self) -> bool {
        self.refused().is_none()
    }

    /// Why it may not.
    pub fn reason(&self) -> Option<Reason> {
        self.refused().map(|refused| refused.reason)
    }

    /// Why it may not, and what the client can do, in one sentence.
    pub fn in_words(&self) -> Option<String> {
        self.refused().map(Refused::in_words)
    }

    /// How long to wait until the same request is admitted if nothing else is charged: see
    /// [`Refusal::retry_after`](crate::Refusal::retry_after).
    pub fn retry_after(&self) -> Option<Duration> {
        self.refused()?.retry_after
    }

    /// How long the request has to wait for its turn, if it may pass and a limit is a leaky queue.
    pub fn delay(&self) -> Duration {
        match &self.verdict {
            Verdict::Pass { delay, .. } => *delay,
            Verdict::Refuse(_) => Duration::ZERO,
        }
    }

    /// The names of the limits that refused, as in [`Plan`].
    pub fn violated_policies(&self) -> impl Iterator<Item = &str> {
        self.refused().into_iter().flat_map(|refused| refused.violated.iter().map(|name| &**name))
    }

    /// The decision under the policies that are not in shadow; `None` if no policy applies or the store did not answer.
    pub fn decision(&self) -> Option<&Decision<'a>> {
        self.decision.as_ref()
    }

    /// Adds the fields that the layer would add to the response: see [`Headers`](crate::Headers). They are added once.
    pub fn write_fields(&mut self, fields: &mut HeaderMap) {
        match &mut self.verdict {
            Verdict::Pass { lines, .. } => lines.write(fields),
            Verdict::Refuse(refused) => {
                headers::refusal(fields, refused.retry_after);
                refused.lines.write(fields);
            }
        }
    }

    fn refused(&self) -> Option<&Refused> {
        match &self.verdict {
            Verdict::Pass { .. } => None,
            Verdict::Refuse(refused) => Some(refused),
        }
    }
}

impl<S, C> fmt::Debug for Checker<S, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Checker").finish_non_exhaustive()
    }
}

impl fmt::Debug for Asked {
    /// Keys identify people: they are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.checks.iter().map(|check| check.policy(&self.policies).name());
        f.debug_list().entries(names).finish()
    }
}

impl fmt::Debug for Answered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answered")
            .field("reason", &self.reason())
            .field("decision", &self.decision)
            .finish_non_exhaustive()
    }
}
