//! Builds policies from the structure of a file, and reports errors with their place.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use crate::Head;
use ratelimit_core::{Limit, Limits, MAX_CLAIMS};

use super::client_list::{ListFile, lists};
use super::de::Located;
use super::document::{Place, Problem};
use super::key::Keys;
use super::routes::Routes;
use super::settle::settle;
use super::watched::Watched;
use super::{PlanName, Provided, file};
use crate::plan::is_name;
use crate::{Charge, Cost, Grouping, Headers, OnFailure, Plan, Policies, Policy, TrustedProxies};

/// Builds the policies of a file, and the files of its lists. Relative paths start from `folder`. If the file of a list
/// cannot be used, it is left in `failed`.
pub(super) fn build(
    file: &file::File,
    provided: &Provided,
    folder: &Path,
    failed: &mut Option<Watched>,
) -> Result<(Policies, Vec<ListFile>), Problem> {
    let proxies = proxies(&file.client)?;
    let keys = Keys { proxies: &proxies, provided };
    let exempt = Arc::new(routes(file.exempt.iter().map(|route| (&route.place, route.as_str())))?);
    plans_are_known(file)?;
    let mut policies = Vec::new();
    let mut lines = BTreeMap::new();
    for policy in file.policies.iter() {
        if let Some(line) = lines.insert(policy.name.as_str(), policy.name.place.line) {
            let message =
                format!("two policies are called {:?}: the other one is in line {line}", *policy.name);
            return Err(Problem::at(&policy.name.place, message));
        }
        let made = one(policy, &file.plans, &keys)?;
        policies.push(if file.exempt.is_empty() { made } else { made.except(on(exempt.clone())) });
    }
    if policies.is_empty() {
        return Err(Problem::at(
            &file.policies.place,
            "there is no policy: to limit nothing, leave out the layer",
        ));
    }
    few_enough(file)?;
    let mut policies =
        Policies::known(policies).headers(headers(&file.headers)).on_failure(on_failure(file, provided)?);
    let mut files = Vec::new();
    let sections = [(&file.deny, Policies::deny as fn(_, _) -> _), (&file.allow, Policies::allow)];
    for (section, add) in sections.into_iter().flat_map(|(all, add)| all.iter().map(move |one| (one, add))) {
        let (lists, list_file) = lists(section, &keys, folder, failed)?;
        policies = lists.into_iter().fold(policies, add);
        files.extend(list_file);
    }
    Ok((if file.shadow { policies.in_shadow() } else { policies }, files))
}

/// The limits of each policy: its own, and those of each plan that names the policy.
pub(super) fn limits_by_plan(file: &file::File) -> Result<LimitsByPlan, Problem> {
    let mut all = LimitsByPlan::new();
    for policy in file.policies.iter() {
        let own = policy.limit.iter().map(|texts| (None, texts));
        let said =
            file.plans.iter().filter_map(|(plan, said)| Some((Some(&**plan), said.get(&**policy.name)?)));
        for (plan, texts) in own.chain(said) {
            let limits = if plan.is_some() { of_plan(texts)? } else { Some(limits(texts)?) };
            all.insert((policy.name.value.clone(), plan.map(str::to_owned)), limits);
        }
    }
    Ok(all)
}

/// The limits of a policy, by its name and the name of a plan; `None` if the plan is unlimited.
pub(super) type LimitsByPlan = BTreeMap<(String, Option<String>), Option<Limits>>;

fn one(policy: &Located<file::Policy>, plans: &Plans, keys: &Keys<'_>) -> Result<Policy, Problem> {
    name(&policy.name.place, &policy.name)?;
    let own = policy.limit.as_ref().map(limits).transpose()?;
    let plans = plans_of(&policy.name, plans)?;
    let source = keys.all(&policy.key.place, &policy.key.each())?;
    let is_for_all = own.is_some();
    // Without limits of its own, the policy applies only to requests with one of its plans, so any of them can be its
    // default.
    let plan = own.map(|limits| Plan::known(&policy.name, limits));
    let plan = plan.or_else(|| plans.values().flatten().next().cloned());
    let Some(plan) = plan else {
        return Err(Problem::at(&policy.place, "the policy has no limit: set `limit`, or one in a plan"));
    };
    let mut made = Policy::known(&policy.name, source, plan).cost(cost(policy.cost)).charge(charge(policy)?);
    if let Some(settle) = settle(policy)? {
        made = made.settle(settle);
    }
    if let Some(texts) = &policy.routes {
        if texts.each().is_empty() {
            return Err(Problem::at(&texts.place, "there is no route: omit `routes` to apply to all"));
        }
        made = made.only(on(Arc::new(routes(texts.each().into_iter())?)));
    }
    if let Some(missing) = policy.missing {
        made = made.when_missing(missing);
    }
    if !plans.is_empty() {
        let is_limited = plans.values().all(Option::is_some);
        let plans = Arc::new(plans);
        if !is_for_all || !is_limited {
            let plans = plans.clone();
            made = made.only(move |request| chosen(&plans, request).map_or(is_for_all, Option::is_some));
        }
        made = made.plans(move |request| chosen(&plans, request)?.clone());
    }
    Ok(if policy.shadow { made.in_shadow() } else { made })
}

type Plans = BTreeMap<String, Located<BTreeMap<String, Located<file::Texts>>>>;

/// The plan that earlier middleware has chosen for a request; `Some(None)` if it is unlimited.
fn chosen<'p>(plans: &'p BTreeMap<String, Option<Plan>>, request: &Head<'_>) -> Option<&'p Option<Plan>> {
    plans.get(request.extensions.get::<PlanName>()?.as_str())
}

/// The limits that each plan sets for the policy `name`; `None` if the plan is unlimited.
fn plans_of(name: &str, plans: &Plans) -> Result<BTreeMap<String, Option<Plan>>, Problem> {
    let said = plans.iter().filter_map(|(plan, said)| said.get(name).map(|texts| (plan, texts)));
    said.map(|(plan, texts)| {
        let limits = of_plan(texts)?;
        Ok((plan.clone(), limits.map(|limits| Plan::known(&format!("{name}.{plan}"), limits))))
    })
    .collect()
}

/// The limits of a plan for a policy; `None` if it is unlimited.
fn of_plan(texts: &Located<file::Texts>) -> Result<Option<Limits>, Problem> {
    match texts.each()[..] {
        [(_, text)] if text.trim() == "unlimited" => Ok(None),
        _ => limits(texts).map(Some),
    }
}

fn plans_are_known(file: &file::File) -> Result<(), Problem> {
    for (plan, said) in &file.plans {
        name(&said.place, plan)?;
        for (policy, texts) in said.iter() {
            if !file.policies.iter().any(|known| *known.name == *policy) {
                let known: Vec<&str> = file.policies.iter().map(|policy| policy.name.as_str()).collect();
                let message = format!("no policy is called {policy:?}; use one of {}", known.join(", "));
                return Err(Problem::at(&texts.place, message));
            }
        }
    }
    Ok(())
}

/// Checks that no request can have more limits than one check can hold, whatever its plan.
fn few_enough(file: &file::File) -> Result<(), Problem> {
    let of = |policy: &file::Policy| {
        let plans = file.plans.values().filter_map(|said| said.get(policy.name.as_str()));
        policy
            .limit
            .iter()
            .chain(plans)
            .map(|texts| of_plan(texts).map(|limits| limits.map_or(0, |limits| limits.len())))
            .try_fold(0, |most, count| count.map(|count| most.max(count)))
    };
    let together = file.policies.iter().map(|policy| of(policy)).sum::<Result<usize, Problem>>()?;
    if together <= MAX_CLAIMS {
        return Ok(());
    }
    let message =
        format!("there are {together} limits together: at most {MAX_CLAIMS} can be checked at once");
    Err(Problem::at(&file.policies.place, message))
}

fn name(place: &Place, name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    Err(Problem::at(place, format!("the name {name:?} is not 1 to 64 letters, digits, '.', '_' or '-'")))
}

fn limits(texts: &Located<file::Texts>) -> Result<Limits, Problem> {
    let mut limits: Vec<Limit> = Vec::new();
    for (place, text) in texts.each() {
        let read: Limits = text.parse().map_err(|error| Problem::at(place, format!("{error}")))?;
        limits.extend(read.iter().cloned());
    }
    Limits::new(limits).map_err(|error| Problem::at(&texts.place, error.to_string()))
}

fn routes<'a>(texts: impl Iterator<Item = (&'a Place, &'a str)>) -> Result<Routes, Problem> {
    let mut routes = Routes::default();
    for (place, text) in texts {
        routes.add(text).map_err(|error| Problem::at(place, error))?;
    }
    Ok(routes)
}

fn on(routes: Arc<Routes>) -> impl Fn(&Head<'_>) -> bool + Send + Sync + 'static {
    move |request| routes.contain(request.method, request.uri.path())
}

fn cost(cost: file::Cost) -> Cost {
    match cost {
        file::Cost::Units(units) => Cost::units(units),
        file::Cost::Bytes(bytes) => Cost::content_length(bytes.per_bytes, bytes.if_unknown.get()),
    }
}

fn charge(policy: &file::Policy) -> Result<Charge, Problem> {
    let is_one = |of: &[file::Statuses], status: Option<http::StatusCode>| {
        status.is_some_and(|status| of.iter().any(|some| (some.first..=some.last).contains(&status.as_u16())))
    };
    match (&policy.count_only, &policy.refund) {
        (None, None) => Ok(Charge::before()),
        (Some(of), None) => {
            let of = of.value.clone();
            Ok(Charge::only_if(move |outcome| is_one(&of, outcome.status())))
        }
        (None, Some(of)) => {
            let of = of.value.clone();
            Ok(Charge::refund_if(move |outcome| is_one(&of, outcome.status())))
        }
        (Some(_), Some(of)) => {
            Err(Problem::at(&of.place, "it cannot be combined with count_only: choose one"))
        }
    }
}

fn proxies(client: &file::Client) -> Result<TrustedProxies, Problem> {
    let mut proxies = Vec::new();
    for text in &client.trusted_proxies {
        let network = crate::client_address::parse_network(text);
        proxies.push(network.map_err(|error| Problem::at(&text.place, error.to_string()))?);
    }
    let mut proxies: TrustedProxies = proxies.into_iter().collect();
    if let Some(header) = &client.header {
        let known = header
            .parse()
            .map_err(|_| Problem::at(&header.place, format!("{:?} is not a header name", **header)))?;
        if client.trusted_proxies.is_empty() {
            let message =
                "it is read from trusted proxies only, and there are none: add client.trusted_proxies";
            return Err(Problem::at(&header.place, message));
        }
        proxies = proxies.with_header(known);
    }
    let usual = Grouping::default();
    let ipv4_prefix = prefix(client.ipv4_prefix.as_ref(), usual.ipv4_prefix, 32)?;
    let ipv6_prefix = prefix(client.ipv6_prefix.as_ref(), usual.ipv6_prefix, 128)?;
    Ok(proxies.with_grouping(Grouping { ipv4_prefix, ipv6_prefix }))
}

fn prefix(bits: Option<&Located<u64>>, usual: u8, most: u8) -> Result<u8, Problem> {
    let Some(bits) = bits else { return Ok(usual) };
    let known = u8::try_from(bits.value).ok().filter(|known| (1..=most).contains(known));
    known.ok_or_else(|| Problem::at(&bits.place, format!("{} is invalid: use 1 to {most}", bits.value)))
}

fn headers(file: &file::Headers) -> Headers {
    let mut headers = Headers::default();
    headers.families = file.families.clone().unwrap_or(headers.families);
    headers.on_admitted = file.on_admitted.unwrap_or(headers.on_admitted);
    headers.reset = file.reset.unwrap_or(headers.reset);
    headers
}

fn on_failure(file: &file::File, provided: &Provided) -> Result<OnFailure, Problem> {
    let Some(said) = &file.on_store_failure else { return Ok(OnFailure::default()) };
    match (said.value, &provided.fallback) {
        (file::StoreFailure::Closed, _) => Ok(OnFailure::default()),
        (file::StoreFailure::Open, _) => Ok(OnFailure::Open),
        (file::StoreFailure::Fallback, Some(fallback)) => Ok(OnFailure::Fallback(fallback.clone())),
        (file::StoreFailure::Fallback, None) => {
            Err(Problem::at(&said.place, "this program provides no fallback limiter: use open or closed"))
        }
    }
}
