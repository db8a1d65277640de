//! Turns decisions into the verdict on a request.

use std::sync::Arc;
use std::time::Duration;

use http::HeaderName;
use ratelimit_core::{CheckError, Decision};
use smallvec::SmallVec;

use crate::absent::Absent;
use crate::answer::{Reason, Refused};
use crate::check::{Checked, is_held};
use crate::headers::{Lines, PlanStatus};
use crate::policy_check::PolicyCheck;
use crate::settle::After;
use crate::{OnFailure, Policies, observe};

/// The verdict on a request.
pub(crate) enum Verdict {
    /// Let it through after a delay, and add these fields to the response.
    Pass { lines: Lines, delay: Duration },
    /// Refuse it.
    Refuse(Refused),
}

/// The verdict on a request, and what to do when the request has ended.
pub(crate) struct Decided {
    pub(crate) verdict: Verdict,
    pub(crate) after: Option<After>,
}

impl Refused {
    pub(crate) fn without_limits(reason: Reason) -> Self {
        Self { reason, violated: Vec::new(), retry_after: None, lines: Lines::default(), absent: None }
    }

    /// The client is in a list of those to refuse, or has sent this header several times, so that it is not known.
    pub(crate) fn denied(twice: Option<HeaderName>) -> Self {
        Self { absent: twice.map(Absent::Several), ..Self::without_limits(Reason::Denied) }
    }

    /// The key is missing, so nothing could be charged.
    pub(crate) fn absent(absent: Absent) -> Self {
        let reason = match absent {
            Absent::Client(_) | Absent::Several(_) => Reason::Unidentified,
            Absent::Program(_) => Reason::Misconfigured,
        };
        Self { absent: Some(absent), ..Self::without_limits(reason) }
    }
}

/// The verdict for these decisions.
pub(crate) fn decided(policies: &Policies, checks: &[PolicyCheck], checked: &Checked<'_>) -> Verdict {
    let decisions = || checked.0.iter().map(|(round, decision)| (*round, decision));
    let refusal = checked.refusal();
    if decisions().any(|(_, decision)| decision.degraded()) {
        observe::degraded();
    }
    let mut standings: SmallVec<[PlanStatus<'_>; 2]> = SmallVec::new();
    for (round, decision) in decisions() {
        let mut first = 0;
        for check in checks.iter().filter(|check| check.round(policies) == round) {
            let standing = PlanStatus { plan: check.plan(policies), decision, first };
            first += standing.plan.limits().len();
            if !decision.allowed() {
                names(&standing).for_each(|name| observe::refused(name, round.shadow));
            }
            if !round.shadow && (refusal.is_none() || !decision.allowed()) {
                standings.push(standing);
            }
        }
    }
    let Some((_, refusal)) = refusal else {
        if !checked.0.is_empty() {
            observe::admitted();
        }
        let delays = decisions().filter(|(round, _)| !round.shadow).map(|(_, decision)| decision.delay());
        return Verdict::Pass {
            lines: admitted_lines(policies, &standings),
            delay: delays.max().unwrap_or_default(),
        };
    };
    refused(policies, &standings, refusal)
}

/// The verdict for a decision that was not made to charge, on these checks in their order. It is not counted.
pub(crate) fn looked<'c>(
    policies: &'c Policies,
    checks: impl Iterator<Item = &'c PolicyCheck>,
    decision: &'c Decision<'_>,
) -> Verdict {
    let mut first = 0;
    let standings: SmallVec<[PlanStatus<'_>; 2]> = checks
        .map(|check| {
            let standing = PlanStatus { plan: check.plan(policies), decision, first };
            first += standing.plan.limits().len();
            standing
        })
        .collect();
    if decision.allowed() {
        return Verdict::Pass { lines: policies.headers.lines(&standings), delay: decision.delay() };
    }
    refused(policies, &standings, decision)
}

fn admitted_lines(policies: &Policies, standings: &[PlanStatus<'_>]) -> Lines {
    if policies.headers.on_admitted { policies.headers.lines(standings) } else { Lines::default() }
}

fn refused(policies: &Policies, standings: &[PlanStatus<'_>], decision: &Decision<'_>) -> Verdict {
    Verdict::Refuse(Refused {
        reason: if decision.each().any(|limit| limit.rule().is_ban() && !limit.allowed()) {
            Reason::Banned
        } else {
            Reason::QuotaExceeded
        },
        violated: standings.iter().flat_map(names).cloned().collect(),
        retry_after: retry_after(decision),
        lines: policies.headers.lines(standings),
        absent: None,
    })
}

/// How long to wait: until no limit refuses the request any more. At most a second for a concurrency limit, because its
/// units may be released at any moment.
fn retry_after(decision: &Decision<'_>) -> Option<Duration> {
    let refusing = decision.each().filter(|limit| !limit.allowed());
    let mut waits = refusing.map(|limit| {
        let wait = limit.retry_after()?;
        Some(if is_held(&limit) { wait.min(Duration::from_secs(1)) } else { wait })
    });
    waits.try_fold(Duration::ZERO, |longest, wait| wait.map(|wait| longest.max(wait)))
}

/// The names of the plan's limits in a standing.
fn names<'a>(standing: &'a PlanStatus<'a>) -> impl Iterator<Item = &'a Arc<str>> {
    standing.each().filter_map(|(place, _)| standing.plan.name(place))
}

/// The verdict without a decision.
pub(crate) fn failed(policies: &Policies, checks: &[PolicyCheck], error: &CheckError) -> Verdict {
    if !matches!(error, CheckError::Store(_)) {
        observe::failed(error, "closed");
        return Verdict::Refuse(Refused::without_limits(Reason::Misconfigured));
    }
    let retry_after = match policies.on_failure {
        OnFailure::Open => {
            observe::failed(error, "open");
            return Verdict::Pass { lines: Lines::default(), delay: Duration::ZERO };
        }
        OnFailure::Closed { retry_after } => retry_after,
    };
    observe::failed(error, "closed");
    let enforced =
        checks.iter().filter(|check| !check.round(policies).shadow).map(|check| check.plan(policies));
    Verdict::Refuse(Refused {
        reason: Reason::StoreUnavailable,
        violated: enforced
            .flat_map(|plan| (0..plan.limits().len()).filter_map(|place| plan.name(place)))
            .cloned()
            .collect(),
        retry_after: Some(retry_after),
        lines: Lines::default(),
        absent: None,
    })
}
