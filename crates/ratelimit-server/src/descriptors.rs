//! Checks by descriptors: each is matched with the policies of the file, and all of them are admitted together.

use ratelimit_core::store::MAX_CLAIMS;
use ratelimit_core::{Decision, Limit, LimitStatus};
use ratelimit_tower::{Asked, Plan};

use crate::checks::{Domain, Question};
use crate::refusal::Refusal;
use crate::rules::Rules;

/// A descriptor: its entries, and what it costs.
pub(crate) struct Descriptor<'d> {
    pub(crate) entries: Vec<(&'d str, &'d str)>,
    pub(crate) cost: u64,
    /// Instead of the limits of the policies that it matches.
    pub(crate) instead: Option<Limit>,
}

/// What to decide about some descriptors, and which of it belongs to which of them.
pub(crate) struct Matched {
    pub(crate) question: Question,
    /// For each descriptor, the places of its policies among those that are not in shadow.
    places: Vec<Vec<usize>>,
    /// How many descriptors match no policy.
    pub(crate) unmatched: u64,
    /// The names of the limits of each policy that is not in shadow.
    plans: Vec<Plan>,
}

/// One policy, for one client.
struct Check {
    policy: String,
    key: Vec<u8>,
    cost: u64,
    plan: Option<Plan>,
    /// The descriptors that ask for it.
    descriptors: Vec<usize>,
}

impl Matched {
    /// Finds the policies for each descriptor. Descriptors that ask for the same count are one check, at the sum of their
    /// costs.
    pub(crate) fn of(domain: &Domain, descriptors: &[Descriptor<'_>]) -> Result<Self, Refusal> {
        let rules = domain.known_rules()?;
        let (mut checks, mut unmatched) = (Vec::<Check>::new(), 0);
        for (place, descriptor) in descriptors.iter().enumerate() {
            let found = checks_of(&rules, place, descriptor)?;
            unmatched += u64::from(found.is_empty());
            for check in found {
                let same = |known: &&mut Check| known.policy == check.policy && known.key == check.key;
                match checks.iter_mut().find(same) {
                    Some(known) => {
                        known.cost = known.cost.saturating_add(check.cost);
                        known.descriptors.push(place);
                    }
                    None => checks.push(check),
                }
            }
        }
        let mut asked = Asked::of(rules.policies.clone());
        let (mut places, mut plans) = (vec![Vec::new(); descriptors.len()], Vec::new());
        for Check { policy, key, cost, plan, descriptors } in checks {
            asked = asked.policy(&policy, &key, cost, plan);
            let is_shadow = rules.policies.get(&policy).is_none_or(|policy| rules.is_shadow(policy));
            if let (false, Some((_, plan))) = (is_shadow, asked.each().last()) {
                descriptors.into_iter().for_each(|descriptor| places[descriptor].push(plans.len()));
                plans.push(plan.clone());
            }
        }
        let limits: usize = asked.each().map(|(_, plan)| plan.limits().len()).sum();
        if limits > MAX_CLAIMS {
            return Err(Refusal::bad(format!(
                "the descriptors ask for {limits} limits together: at most {MAX_CLAIMS} can be checked at once"
            )));
        }
        Ok(Self { question: Question { asked, is_of_file: true }, places, unmatched, plans })
    }

    /// The limit that decided about a descriptor, and its name; `None` if it matches no policy that is in force.
    pub(crate) fn deciding<'d>(
        &'d self,
        descriptor: usize,
        decision: &'d Decision<'_>,
    ) -> Option<(LimitStatus<'d>, &'d str)> {
        let places = self.places.get(descriptor)?;
        let statuses = decision.each().filter(|status| places.contains(&status.key_index()));
        // Those that refuse come first: for ever, or longest. Then the least remaining decides.
        let rank = |status: &LimitStatus<'_>| {
            let wait = status.retry_after().map_or(u128::MAX, |wait| wait.as_nanos());
            (status.allowed(), std::cmp::Reverse(if status.allowed() { 0 } else { wait }), status.remaining())
        };
        let status = statuses.min_by_key(rank)?;
        let first = decision.each().position(|other| other.key_index() == status.key_index())?;
        let name = self.plans.get(status.key_index())?.names().nth(status.index() - first)?;
        Some((status, name))
    }
}

fn checks_of(rules: &Rules, place: usize, descriptor: &Descriptor<'_>) -> Result<Vec<Check>, Refusal> {
    let mut checks = Vec::new();
    for (policy, values) in rules.of_descriptor(&descriptor.entries) {
        let plan = match &descriptor.instead {
            Some(limit) => Some(Plan::new(policy.name(), limit.clone()).map_err(Refusal::bad)?),
            None => match rules.plan_of(policy, None) {
                Some(plan) => plan,
                None => continue,
            },
        };
        let key = policy
            .key_of_values(&values)
            .map_err(|error| Refusal::bad(format!("policy {}: {error}", policy.name())))?;
        let (policy, cost) = (policy.name().to_owned(), descriptor.cost);
        checks.push(Check { policy, key, cost, plan, descriptors: vec![place] });
    }
    Ok(checks)
}
