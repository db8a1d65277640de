//! A policy: which requests it applies to, what it counts them by, and under which limits.

use std::fmt;
use std::sync::Arc;

use crate::Head;
use ratelimit_core::Limits;

use crate::absent::Absent;
use crate::charge::When;
use crate::key::KeyBytes;
use crate::plan::{is_name, shown};
use crate::policy_check::PolicyCheck;
use crate::{Charge, Cost, KeySource, Plan, PolicyError, Settle, TrustedProxies, observe};

type Condition = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;
type Choice = Arc<dyn Fn(&Head<'_>) -> Option<Plan> + Send + Sync>;

/// What to do with a request that does not have what a policy counts by, such as a header or the peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "config", derive(serde::Deserialize), serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Missing {
    /// Refuse it: with 400 if the client did not send it, with 500 (and an error in the log) if the program did not
    /// provide it.
    Refuse,
    /// Count all such requests together, as one client. Those that have a header several times are among them.
    Share,
    /// Do not apply the policy to it. But refuse it with 400 if it has a header several times of which the policy needs one:
    /// otherwise a client would evade the policy by sending its key twice.
    Exempt,
}

/// A policy: which requests it applies to, what it counts them by, under which limits, and at what cost. See the
/// [crate's documentation](crate) for an example.
///
/// The policy's name is part of the key. So two policies never share a count, and a policy that keeps its name keeps
/// its counts when others are added or removed.
#[derive(Clone)]
#[repr(C)] // what each request needs is side by side
pub struct Policy {
    shadow: bool,
    missing: Option<Missing>,
    plan: Plan,
    cost: Cost,
    condition: Option<Condition>,
    choice: Option<Choice>,
    charge: Charge,
    settle: Option<Settle>,
    /// The prefix of each of its keys.
    prefix: KeyBytes,
    source: KeySource,
    name: Arc<str>,
    checks: observe::Checks,
}

/// How a policy applies to a request.
pub(crate) enum Applied {
    /// It does not apply to the request.
    No,
    /// It has to be checked.
    Yes,
    /// The key is missing, so the request is refused.
    Refuse(Absent),
}

impl Policy {
    /// Counts requests by `source` under `limits`: a [`Plan`], or limits, which become a plan with the policy's name.
    /// The name is 1 to 64 letters, digits, `.`, `_` or `-`.
    ///
    /// A [ban](ratelimit_core::Algorithm::Ban) among the limits counts only the refusals of the policy's other limits, not
    /// those of other policies. Without other limits it never refuses.
    ///
    /// # Errors
    /// If the name is empty, too long or has other characters.
    pub fn new(name: &str, source: KeySource, limits: impl IntoPlan) -> Result<Self, PolicyError> {
        if !is_name(name) {
            return Err(PolicyError::BadName(shown(name)));
        }
        Ok(Self::known(name, source, limits.into_plan(name)))
    }

    /// Creates a policy whose name is known to be valid.
    pub(crate) fn known(name: &str, source: KeySource, plan: Plan) -> Self {
        let mut prefix = KeyBytes::new();
        prefix.part(name.as_bytes());
        let name: Arc<str> = name.into();
        Self {
            checks: observe::Checks::of(&name),
            name,
            source,
            plan,
            choice: None,
            condition: None,
            cost: Cost::default(),
            charge: Charge::default(),
            settle: None,
            missing: None,
            shadow: false,
            prefix,
        }
    }

    /// A policy of these limits alone, by the peer's address. The limits are part of its keys, so that two of them on one
    /// store do not share a count by accident.
    pub(crate) fn plain(limits: Limits) -> Self {
        let mut prefix = KeyBytes::new();
        prefix.part(format!("default {limits}").as_bytes());
        let by_address = KeySource::client_address(TrustedProxies::none());
        Self { prefix, ..Self::known("default", by_address, Plan::known("default", limits)) }
    }

    /// Chooses a plan for each request with a closure; if it returns `None`, the policy's own plan applies. The closure
    /// can read what earlier middleware has put into the request's extensions, such as the client's account.
    ///
    /// At most 64 limits can be checked at once. If the chosen plans of all policies have more, the request is answered
    /// with 500.
    #[must_use]
    pub fn plans(mut self, choice: impl Fn(&Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        self.choice = Some(Arc::new(choice));
        self
    }

    /// Applies the policy only to requests for which this is true: a route ([`Head::any_path`]), a method. If you call it
    /// twice, both must be true.
    #[must_use]
    pub fn only(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(match self.condition.take() {
            None => Arc::new(condition),
            Some(other) => Arc::new(move |request: &Head<'_>| other(request) && condition(request)),
        });
        self
    }

    /// Exempts requests for which this is true: health checks ([`Head::every_path`]), your office's network.
    #[must_use]
    pub fn except(self, exempt: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only(move |request| !exempt(request))
    }

    /// Sets what a request costs; one unit by default.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// Sets when a request is charged; before it is served by default.
    #[must_use]
    pub fn charge(mut self, charge: Charge) -> Self {
        self.charge = charge;
        self
    }

    /// Replaces the cost by the true one when the request has ended; by default, the [cost](Self::cost) remains charged.
    #[must_use]
    pub fn settle(mut self, settle: Settle) -> Self {
        self.settle = Some(settle);
        self
    }

    /// Sets what to do with requests that do not have what the policy counts by.
    ///
    /// By default, a request is [refused](Missing::Refuse) if the program should have provided what is missing (no peer
    /// address, no matched route, no extension: a mistake that should be noticed). It is refused, too, if the client has
    /// sent a header several times of which the policy needs one: otherwise a client with a key would have a second quota,
    /// that of the requests without a key. Requests whose client did not send it are counted [together](Missing::Share).
    #[must_use]
    pub fn when_missing(mut self, missing: Missing) -> Self {
        self.missing = Some(missing);
        self
    }

    /// Puts the policy in shadow: it decides, counts and logs, but never refuses. It does not charge what it would have
    /// refused, and reports nothing to clients.
    ///
    /// Policies in shadow are checked only for requests that all other policies admit. That takes a round trip of its own.
    /// Each of them decides by itself, so that none hides what another would refuse.
    #[must_use]
    pub fn in_shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    pub(crate) fn out_of_shadow(mut self) -> Self {
        self.shadow = false;
        self
    }

    /// The policy's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limits of the policy's own plan, which apply unless [`plans`](Self::plans) chooses another one.
    pub fn limits(&self) -> &Limits {
        self.plan.limits()
    }

    /// What it counts requests by.
    pub fn source(&self) -> &KeySource {
        &self.source
    }

    /// The prefix of each of its keys.
    pub(crate) fn prefix(&self) -> &KeyBytes {
        &self.prefix
    }

    /// What is wrong if its cost never fits these limits.
    pub(crate) fn never_fits(&self, limits: &Limits) -> Option<String> {
        self.cost.never_fits(limits)
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Counts its checks.
    pub(crate) fn checks(&self) -> &observe::Checks {
        &self.checks
    }

    /// Whether the policy is itself [in shadow](Self::in_shadow).
    pub fn is_shadow(&self) -> bool {
        self.shadow
    }

    /// Whether what is charged depends on the response: see [`charge`](Self::charge) and [`settle`](Self::settle).
    pub fn needs_response(&self) -> bool {
        !matches!(self.charge.0, When::Before) || self.settle.is_some()
    }

    pub(crate) fn without_response(mut self) -> Self {
        self.charge = Charge::before();
        self.settle = None;
        self
    }

    pub(crate) fn when(&self) -> &When {
        &self.charge.0
    }

    /// How the policy settles, if it does: see [`settle`](Self::settle).
    pub fn settles(&self) -> Option<&Settle> {
        self.settle.as_ref()
    }

    /// Whether the outcome of a request under `plan` determines what it is charged, or it holds units until its end.
    #[inline]
    pub(crate) fn has_end(&self, plan: &Plan) -> bool {
        !matches!(self.charge.0, When::Before) || self.settle.is_some() || plan.holds()
    }

    /// Writes the check of `request` into a new `check`. In place, so that it is not moved after it was written.
    #[inline]
    pub(crate) fn apply(&self, request: &Head<'_>, check: &mut PolicyCheck) -> Applied {
        if self.condition.as_ref().is_some_and(|condition| !condition(request)) {
            return Applied::No;
        }
        check.key.begin_with(&self.prefix);
        if let Err(absent) = self.source.extract(request, &mut check.key)
            && let Some(instead) = self.instead(absent, &mut check.key)
        {
            return instead;
        }
        check.plan = self.choice.as_ref().and_then(|choice| choice(request));
        check.cost = self.cost.of(request);
        Applied::Yes
    }

    /// What to do with a request that does not have what the policy counts by; `None` if it is counted all the same.
    #[cold]
    fn instead(&self, absent: Absent, key: &mut KeyBytes) -> Option<Applied> {
        let is_several = matches!(absent, Absent::Several(_));
        // If the program has chosen what to do with such requests, they need no warning.
        let is_wanted = match self.missing {
            Some(Missing::Share) => true,
            Some(Missing::Exempt) => !is_several,
            _ => false,
        };
        if !is_wanted {
            observe::unidentified(&self.name, &absent);
        } else if let (Some(Missing::Exempt), Absent::Program(what)) = (self.missing, &absent) {
            observe::exempt(&self.name, what);
        }
        let usual = if matches!(absent, Absent::Client(_)) { Missing::Share } else { Missing::Refuse };
        match self.missing.unwrap_or(usual) {
            Missing::Refuse if self.shadow => Some(Applied::No),
            Missing::Exempt if !is_several || self.shadow => Some(Applied::No),
            Missing::Refuse | Missing::Exempt => Some(Applied::Refuse(absent)),
            Missing::Share => {
                key.absent();
                None
            }
        }
    }
}

impl fmt::Debug for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Policy")
            .field("name", &self.name)
            .field("by", &self.source)
            .field("plan", &self.plan)
            .field("chooses_plans", &self.choice.is_some())
            .field("conditional", &self.condition.is_some())
            .field("cost", &self.cost)
            .field("charge", &self.charge)
            .field("missing", &self.missing)
            .field("shadow", &self.shadow)
            .field("settle", &self.settle)
            .finish()
    }
}

/// Limits or a plan: what a policy can be built from.
pub trait IntoPlan {
    /// Converts into a plan, with the name `name` if it has none.
    fn into_plan(self, name: &str) -> Plan;
}

impl IntoPlan for Plan {
    fn into_plan(self, _: &str) -> Plan {
        self
    }
}

impl<L: Into<Limits>> IntoPlan for L {
    fn into_plan(self, name: &str) -> Plan {
        Plan::known(name, self.into())
    }
}
