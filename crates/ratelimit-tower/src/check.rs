//! Passes the checks of all policies on a request to a limiter, in as few round trips as possible.

use std::sync::Arc;

use crate::Head;
use ratelimit_core::store::Mode;
use ratelimit_core::{Algorithm, CheckError, Decision, LimitStatus, Request};
use smallvec::SmallVec;

use crate::answer::Refused;
use crate::charge::When;
use crate::counted::Places;
use crate::limiter::Limiter;
use crate::observe;
use crate::policies::Listed;
use crate::policy::Applied;
use crate::policy_check::PolicyCheck;
use crate::{Plan, Policies, Policy};

pub(crate) type PolicyChecks = SmallVec<[PolicyCheck; 1]>;

/// All checks of one request, and the limiter that they are for.
pub(crate) struct AllChecks {
    pub(crate) limiter: Arc<dyn Limiter>,
    pub(crate) policies: Arc<Policies>,
    pub(crate) checks: PolicyChecks,
    /// The policies that a layer around this one has checked.
    pub(crate) before: Places,
}

/// The checks of all policies for `request`, except those that have counted it before; or a refusal that needs none.
pub(crate) fn checks(
    policies: &Policies,
    request: &Head<'_>,
    before: Places,
) -> Result<PolicyChecks, Refused> {
    let mut checks = PolicyChecks::new();
    match policies.listed(request) {
        Listed::No => {}
        Listed::Allowed => return Ok(checks),
        Listed::Denied { twice } => return Err(Refused::denied(twice)),
        Listed::Unknown(absent) => return Err(Refused::absent(absent)),
    }
    for (index, policy) in policies.policies.iter().enumerate().filter(|(index, _)| !before.contains(*index))
    {
        let mut check = PolicyCheck::new(index);
        match policy.apply(request, &mut check) {
            Applied::Yes => checks.push(check),
            Applied::Refuse(absent) if !policies.shadow => return Err(Refused::absent(absent)),
            Applied::No | Applied::Refuse(_) => {}
        }
    }
    Ok(checks)
}

/// Checks that are decided together.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct CheckBatch {
    pub(crate) shadow: bool,
    pub(crate) mode: Mode,
    /// The policy, if it is itself in shadow: it is decided alone, because a refusal would hide those of the others.
    alone: Option<usize>,
}

/// Checks that charge nothing yet come first, so that a refusal charges nothing. Those in shadow come last, for
/// requests that are admitted; after these rounds, those of policies that are themselves in shadow.
const ROUNDS: [CheckBatch; 4] = [
    CheckBatch { shadow: false, mode: Mode::Peek, alone: None },
    CheckBatch { shadow: false, mode: Mode::Charge, alone: None },
    CheckBatch { shadow: true, mode: Mode::Peek, alone: None },
    CheckBatch { shadow: true, mode: Mode::Charge, alone: None },
];

impl PolicyCheck {
    pub(crate) fn policy<'a>(&self, policies: &'a Policies) -> &'a Policy {
        &policies.policies[self.policy]
    }

    pub(crate) fn plan<'a>(&'a self, policies: &'a Policies) -> &'a Plan {
        self.plan.as_ref().unwrap_or_else(|| self.policy(policies).plan())
    }

    /// The limiter request of this check.
    #[inline]
    pub(crate) fn request<'a>(&'a self, policies: &'a Policies) -> Request<'a, 'a> {
        Request::new(&self.key).cost(self.cost).limits(self.plan(policies).limits())
    }

    /// Whether the outcome of the request determines what it is charged, or it holds units until its end.
    pub(crate) fn has_end(&self, policies: &Policies) -> bool {
        self.policy(policies).has_end(self.plan(policies))
    }

    pub(crate) fn round(&self, policies: &Policies) -> CheckBatch {
        let policy = self.policy(policies);
        let mode = if matches!(policy.when(), When::OnlyIf(_)) { Mode::Peek } else { Mode::Charge };
        let alone = policy.is_shadow().then_some(self.policy);
        CheckBatch { shadow: policies.shadow || policy.is_shadow(), mode, alone }
    }
}

/// The decisions of the rounds so far. A refusal ends the rounds; one in shadow still lets the policies decide that are
/// themselves in shadow.
#[derive(Default)]
pub(crate) struct Checked<'l>(pub(crate) SmallVec<[(CheckBatch, Decision<'l>); 1]>);

impl<'l> Checked<'l> {
    /// The decision that refuses the request.
    pub(crate) fn refusal(&self) -> Option<&(CheckBatch, Decision<'l>)> {
        self.0.iter().find(|(round, decision)| !round.shadow && !decision.allowed())
    }

    /// The decisions, if something remains to be done with an admitted request at its end.
    pub(crate) fn kept(self, policies: &Policies, checks: &[PolicyCheck]) -> Option<Checked<'static>> {
        let have_end = checks.iter().any(|check| check.has_end(policies)) || !policies.taken.is_empty();
        let owned = |(round, decision): (CheckBatch, Decision<'_>)| (round, decision.into_owned());
        (self.refusal().is_none() && have_end).then(|| Checked(self.0.into_iter().map(owned).collect()))
    }
}

/// Whether this decision holds units of a concurrency limit.
pub(crate) fn holds(decision: &Decision<'_>) -> bool {
    decision.charged() && decision.each().any(|limit| is_held(&limit) && limit.cost() > 0)
}

/// Whether this limit is a concurrency limit, whose units are released and never settled.
pub(crate) fn is_held(limit: &LimitStatus<'_>) -> bool {
    limit.rule().algorithm() == Algorithm::Concurrency
}

/// Checks round by round, until one refuses.
pub(crate) async fn check_all<'l>(
    limiter: &'l dyn Limiter,
    policies: &'l Policies,
    checks: &'l [PolicyCheck],
) -> Result<Checked<'l>, CheckError> {
    let mut checked = Checked::default();
    for round in ROUNDS {
        let of_round = checks.iter().filter(|check| check.round(policies) == round);
        let Some(request) = request(policies, of_round) else { continue };
        let at_once = if round.mode == Mode::Charge { limiter.check_at_once(&request) } else { None };
        let decided = match at_once {
            Some(decided) => decided,
            None => limiter.decide(&request, round.mode).await,
        };
        match decided {
            Ok(decision) if decision.allowed() => checked.0.push((round, decision)),
            Ok(decision) if round.shadow => {
                // As without shadow, nothing else is charged, not even at the end of the request.
                checked.0.clear();
                checked.0.push((round, decision));
                break;
            }
            Ok(decision) => {
                checked.0.push((round, decision));
                return Ok(checked);
            }
            Err(error) if round.shadow => observe::shadow_failed(&error),
            Err(error) => return Err(error),
        }
    }
    check_alone(limiter, policies, checks, &mut checked).await;
    Ok(checked)
}

/// Checks the policies that are themselves in shadow.
async fn check_alone<'l>(
    limiter: &'l dyn Limiter,
    policies: &'l Policies,
    checks: &'l [PolicyCheck],
    checked: &mut Checked<'l>,
) {
    for mode in [Mode::Peek, Mode::Charge] {
        let of_mode = checks.iter().map(|check| (check.round(policies), check.request(policies)));
        let of_mode = of_mode.filter(|(round, _)| round.alone.is_some() && round.mode == mode);
        let (rounds, requests): (Vec<_>, Vec<_>) = of_mode.unzip();
        if requests.is_empty() {
            continue;
        }
        for (round, decided) in rounds.into_iter().zip(limiter.decide_each(&requests, mode).await) {
            match decided {
                Ok(decision) => checked.0.push((round, decision)),
                Err(error) => observe::shadow_failed(&error),
            }
        }
    }
}

/// Combines these checks, in their order, into one limiter request.
pub(crate) fn request<'a>(
    policies: &'a Policies,
    checks: impl IntoIterator<Item = &'a PolicyCheck>,
) -> Option<Request<'a, 'a>> {
    let mut parts = checks.into_iter().map(|check| check.request(policies));
    let first = parts.next()?;
    Some(parts.fold(first, Request::and))
}
