//! Puts all that the policies ask for one request to a limiter, in as few trips as can be.

use crate::Head;
use ratelimit_core::{CheckError, Decision, Request};
use smallvec::SmallVec;

use crate::ask::{How, Tell};
use crate::charge::When;
use crate::key::{Absent, KeyBytes};
use crate::observe;
use crate::policy::Applied;
use crate::{Plan, Policies, Policy};

/// What one policy asks for one request.
#[derive(Clone)]
pub(crate) struct Ask {
    /// The policy's place.
    pub(crate) policy: usize,
    /// A plan that was chosen.
    pub(crate) plan: Option<Plan>,
    pub(crate) key: KeyBytes,
    pub(crate) cost: u64,
}

pub(crate) type Asks = SmallVec<[Ask; 1]>;

/// What all policies ask for `request`; or what is missing for that.
pub(crate) fn asks(policies: &Policies, request: &Head<'_>) -> Result<Asks, Absent> {
    let mut asks = Asks::new();
    for (index, policy) in policies.policies.iter().enumerate() {
        let mut ask = Ask::new(index);
        match policy.apply(request, &mut ask) {
            Applied::Yes => asks.push(ask),
            Applied::Refuse(absent) if !policies.shadow => return Err(absent),
            Applied::No | Applied::Refuse(_) => {}
        }
    }
    Ok(asks)
}

/// Claims that go to the store together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Round {
    pub(crate) shadow: bool,
    pub(crate) how: How,
}

/// What charges nothing yet is asked first, so that a refusal charges nothing; what is in shadow comes last, for requests
/// that get through.
const ROUNDS: [Round; 4] = [
    Round { shadow: false, how: How::Look },
    Round { shadow: false, how: How::Take },
    Round { shadow: true, how: How::Look },
    Round { shadow: true, how: How::Take },
];

impl Ask {
    /// For the policy at this place, which is to write the rest.
    #[inline]
    pub(crate) fn new(policy: usize) -> Self {
        Self { policy, plan: None, key: KeyBytes::new(), cost: 0 }
    }

    pub(crate) fn policy<'a>(&self, policies: &'a Policies) -> &'a Policy {
        &policies.policies[self.policy]
    }

    pub(crate) fn plan<'a>(&'a self, policies: &'a Policies) -> &'a Plan {
        self.plan.as_ref().unwrap_or_else(|| self.policy(policies).plan())
    }

    /// The request that it makes.
    #[inline]
    pub(crate) fn request<'a>(&'a self, policies: &'a Policies) -> Request<'a, 'a> {
        Request::new(&self.key).cost(self.cost).limits(self.plan(policies).limits())
    }

    /// Whether it is only to be charged before the request is served, and not in shadow: the usual case.
    pub(crate) fn is_usual(&self, policies: &Policies) -> bool {
        !policies.shadow && self.policy(policies).is_usual()
    }

    pub(crate) fn round(&self, policies: &Policies) -> Round {
        let policy = self.policy(policies);
        let how = if matches!(policy.when(), When::OnlyIf(_)) { How::Look } else { How::Take };
        Round { shadow: policies.shadow || policy.is_shadow(), how }
    }
}

/// The decisions of the rounds that were made. A refusal that counts is the last one that does not only shadow.
#[derive(Default)]
pub(crate) struct Checked<'l>(pub(crate) SmallVec<[(Round, Decision<'l>); 1]>);

impl<'l> Checked<'l> {
    /// The decision that refuses the request.
    pub(crate) fn refusal(&self) -> Option<&(Round, Decision<'l>)> {
        self.0.iter().find(|(round, decision)| !round.shadow && !decision.allowed())
    }

    /// The decisions, if it depends on how the request ends what becomes of them.
    pub(crate) fn kept(self, policies: &Policies, asks: &[Ask]) -> Option<Checked<'static>> {
        let depends = |ask: &Ask| !matches!(ask.policy(policies).when(), When::Before);
        let depends = self.refusal().is_none() && asks.iter().any(depends);
        let own = |(round, decision): (Round, Decision<'_>)| (round, decision.into_owned());
        depends.then(|| Checked(self.0.into_iter().map(own).collect()))
    }
}

/// Asks round by round, until one refuses.
pub(crate) async fn check<'l>(
    tell: &'l impl Tell,
    policies: &'l Policies,
    asks: &'l [Ask],
) -> Result<Checked<'l>, CheckError> {
    let mut checked = Checked::default();
    for round in ROUNDS {
        let own = asks.iter().filter(|ask| ask.round(policies) == round);
        let Some(request) = request(policies, own) else { continue };
        match tell.ask(&request, round.how).await {
            Ok(decision) => {
                let ends = !decision.allowed() && !round.shadow;
                checked.0.push((round, decision));
                if ends {
                    break;
                }
            }
            Err(error) if round.shadow => observe::shadow_failed(&error),
            Err(error) => return Err(error),
        }
    }
    Ok(checked)
}

/// The request of these asks, in their order.
pub(crate) fn request<'a>(
    policies: &'a Policies,
    asks: impl IntoIterator<Item = &'a Ask>,
) -> Option<Request<'a, 'a>> {
    let mut parts = asks.into_iter().map(|ask| ask.request(policies));
    let first = parts.next()?;
    Some(parts.fold(first, Request::and))
}
