//! One policy: which requests it is for, what it counts them by, and under which limits.

use std::fmt;
use std::sync::Arc;

use crate::Head;
use ratelimit_core::Limits;

use crate::charge::When;
use crate::check::Ask;
use crate::key::{Absent, KeyBytes};
use crate::plan::{is_name, shown};
use crate::{Charge, Cost, KeySource, Plan, PolicyError, observe};

type Condition = Arc<dyn Fn(&Head<'_>) -> bool + Send + Sync>;
type Choice = Arc<dyn Fn(&Head<'_>) -> Option<Plan> + Send + Sync>;

/// What becomes of a request that does not have what a policy counts by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Missing {
    /// It is refused: with 400 if the client did not send it, with 500 (and an error in the log) if the program did not
    /// provide it.
    Refuse,
    /// All such requests are counted together, as one client.
    Share,
    /// The policy does not apply to it.
    Exempt,
}

/// A policy: requests, what they are counted by, limits, cost. See the [crate's documentation](crate) for an example.
///
/// The policy's name is part of the key, so two policies never share a count, and a policy that keeps its name keeps its
/// counts when others come and go.
#[derive(Clone)]
#[repr(C)] // what each request needs is side by side
pub struct Policy {
    shadow: bool,
    missing: Option<Missing>,
    plan: Plan,
    cost: Cost,
    condition: Option<Condition>,
    choice: Option<Choice>,
    /// What each of its keys begins with.
    prefix: KeyBytes,
    source: KeySource,
    charge: Charge,
    name: Arc<str>,
}

/// What a policy asks for one request.
pub(crate) enum Applied {
    /// It is not for this request.
    No,
    /// It asks.
    Yes,
    /// Nobody can be charged, and so it is refused.
    Refuse(Absent),
}

impl Policy {
    /// Requests counted by `source` under `limits`: a [`Plan`], or limits (then they are a plan of the policy's name).
    /// The name is 1 to 64 letters, digits, `.`, `_` or `-`.
    ///
    /// # Errors
    /// If the name has other characters.
    pub fn new(name: &str, source: KeySource, limits: impl IntoPlan) -> Result<Self, PolicyError> {
        if !is_name(name) {
            return Err(PolicyError::BadName(shown(name)));
        }
        Ok(Self::known(name, source, limits.into_plan(name)))
    }

    /// The same for a name that is known to be good.
    pub(crate) fn known(name: &str, source: KeySource, plan: Plan) -> Self {
        let mut prefix = KeyBytes::new();
        prefix.part(name.as_bytes());
        Self {
            name: name.into(),
            source,
            plan,
            choice: None,
            condition: None,
            cost: Cost::default(),
            charge: Charge::default(),
            missing: None,
            shadow: false,
            prefix,
        }
    }

    /// The plan that a closure chooses for each request; where it chooses none, the policy's own. By then earlier middleware
    /// may have found out who the client is.
    #[must_use]
    pub fn plans(mut self, choice: impl Fn(&Head<'_>) -> Option<Plan> + Send + Sync + 'static) -> Self {
        self.choice = Some(Arc::new(choice));
        self
    }

    /// Only for requests of which this is true: a route, a method. Said twice, both have to be true.
    #[must_use]
    pub fn only(mut self, condition: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.condition = Some(match self.condition.take() {
            None => Arc::new(condition),
            Some(other) => Arc::new(move |request: &Head<'_>| other(request) && condition(request)),
        });
        self
    }

    /// Not for requests of which this is true: health checks, the office's own network.
    #[must_use]
    pub fn except(self, exempt: impl Fn(&Head<'_>) -> bool + Send + Sync + 'static) -> Self {
        self.only(move |request| !exempt(request))
    }

    /// What a request costs; one unit by default.
    #[must_use]
    pub fn cost(mut self, cost: Cost) -> Self {
        self.cost = cost;
        self
    }

    /// When it is charged; before it is served by default.
    #[must_use]
    pub fn charge(mut self, charge: Charge) -> Self {
        self.charge = charge;
        self
    }

    /// What becomes of requests that do not have what is counted by. By default they are [refused](Missing::Refuse) if the
    /// program did not provide it (no peer address, no matched route, no extension: a mistake that had better be noticed),
    /// and counted [together](Missing::Share) if the client did not send it.
    #[must_use]
    pub fn when_missing(mut self, missing: Missing) -> Self {
        self.missing = Some(missing);
        self
    }

    /// In shadow: it decides, counts and logs, and never refuses. What it would have refused it does not charge, and clients
    /// are told nothing of it. It takes a trip of its own.
    #[must_use]
    pub fn in_shadow(mut self) -> Self {
        self.shadow = true;
        self
    }

    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The limits where no others are chosen.
    pub fn limits(&self) -> &Limits {
        self.plan.limits()
    }

    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn is_shadow(&self) -> bool {
        self.shadow
    }

    pub(crate) fn when(&self) -> &When {
        &self.charge.0
    }

    /// Whether it only charges, before a request is served, and is not in shadow: the usual case.
    #[inline]
    pub(crate) fn is_usual(&self) -> bool {
        !self.shadow && matches!(self.charge.0, When::Before)
    }

    /// Writes what it asks for `request` into an ask that is new. In place: what was just written is not moved.
    #[inline]
    pub(crate) fn apply(&self, request: &Head<'_>, ask: &mut Ask) -> Applied {
        if self.condition.as_ref().is_some_and(|condition| !condition(request)) {
            return Applied::No;
        }
        ask.key.begin_with(&self.prefix);
        if let Err(absent) = self.source.extract(request, &mut ask.key)
            && let Some(instead) = self.instead(absent, &mut ask.key)
        {
            return instead;
        }
        ask.plan = self.choice.as_ref().and_then(|choice| choice(request));
        ask.cost = self.cost.of(request);
        Applied::Yes
    }

    /// What becomes of a request that does not have what is counted by, unless it is counted all the same.
    #[cold]
    fn instead(&self, absent: Absent, key: &mut KeyBytes) -> Option<Applied> {
        observe::unidentified(&self.name, absent);
        let usual = if absent == Absent::Client { Missing::Share } else { Missing::Refuse };
        match self.missing.unwrap_or(usual) {
            Missing::Refuse if self.shadow => Some(Applied::No),
            Missing::Refuse => Some(Applied::Refuse(absent)),
            Missing::Exempt => Some(Applied::No),
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
            .finish()
    }
}

/// Limits or a plan: what a policy can be made of.
pub trait IntoPlan {
    /// The plan; called `name` if it has no name.
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
