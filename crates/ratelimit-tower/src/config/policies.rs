//! Builds policies from the structure of a file, and reports errors with their location.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use crate::Head;
use ratelimit_core::store::MAX_CLAIMS;
use ratelimit_core::{Algorithm, Limit, Limits};

use super::client_list::{ListFile, lists};
use super::de::Located;
use super::document::{Location, Problem};
use super::key::Keys;
use super::routes::Routes;
use super::settle::settle;
use super::{PlanName, Provided, file};
use crate::plan::is_name;
use crate::{
    Charge, Cost, Family, Grouping, Headers, OnFailure, Plan, Policies, Policy, Reset, TrustedProxies,
};

/// The contents of a file: policies and plans. See [the module](super) for the format. Lists of clients in files of their
/// own are read once, from the current directory if their path is relative; [`ConfigFile`](super::ConfigFile) reads them
/// again when they change.
///
/// ```
/// use ratelimit_tower::config::Config;
///
/// let config = Config::from_yaml("policies: [{name: address, key: address, limit: 100/min}]", "limits.yaml")?;
/// assert_eq!(config.policies().each().len(), 1);
/// # Ok::<(), ratelimit_tower::config::ConfigError>(())
/// ```
#[derive(Clone, Debug)]
pub struct Config {
    pub(super) policies: Policies,
    pub(super) plans: BTreeSet<Arc<str>>,
    /// The limits of each policy, by its name.
    pub(super) limits: BTreeMap<String, PolicyLimits>,
    /// The files of its lists of clients.
    pub(super) lists: Arc<[ListFile]>,
}

/// Builds the configuration of a file. Relative paths start from `folder`.
pub(super) fn build(file: &file::File, provided: &Provided, folder: &Path) -> Result<Config, Problem> {
    let proxies = proxies(&file.client)?;
    let keys = Keys { proxies: &proxies, provided };
    let exempt = Arc::new(routes(file.exempt.iter().map(|route| (&route.location, route.as_str())))?);
    plans_are_known(file)?;
    let mut policies = Vec::new();
    let mut limits = BTreeMap::new();
    let mut lines = BTreeMap::new();
    for policy in file.policies.iter() {
        if let Some(line) = lines.insert(policy.name.as_str(), policy.name.location.line) {
            let message =
                format!("two policies are called {:?}: the other one is in line {line}", *policy.name);
            return Err(Problem::at(&policy.name.location, message));
        }
        let own_limits = PolicyLimits::of(policy, &file.plans)?;
        let made = one(policy, &own_limits, &keys)?;
        policies.push(if file.exempt.is_empty() { made } else { made.except(on_every(exempt.clone())) });
        limits.insert(policy.name.value.clone(), own_limits);
    }
    if policies.is_empty() {
        return Err(Problem::at(
            &file.policies.location,
            "there is no policy: to limit nothing, leave out the layer",
        ));
    }
    // No request may have more limits than one check can hold, whatever its plan.
    let together = limits.values().map(PolicyLimits::most).sum::<usize>();
    if together > MAX_CLAIMS {
        let message =
            format!("there are {together} limits together: at most {MAX_CLAIMS} can be checked at once");
        return Err(Problem::at(&file.policies.location, message));
    }
    let mut policies =
        Policies::known(policies).headers(headers(&file.headers)?).on_failure(on_failure(file));
    let mut files = Vec::new();
    let sections = [(&file.deny, Policies::deny as fn(_, _) -> _), (&file.allow, Policies::allow)];
    for (section, add) in sections.into_iter().flat_map(|(all, add)| all.iter().map(move |one| (one, add))) {
        let (lists, list_file) = lists(section, &keys, folder)?;
        policies = lists.into_iter().fold(policies, add);
        files.extend(list_file);
    }
    Ok(Config {
        policies: if file.shadow { policies.in_shadow() } else { policies },
        plans: file.plans.keys().map(|plan| plan.as_str().into()).collect(),
        limits,
        lists: files.into(),
    })
}

/// The limits of a policy: its own, and those of each plan that names the policy, `None` if the plan is unlimited.
#[derive(Clone, Debug)]
pub(super) struct PolicyLimits {
    pub(super) default_limits: Option<Limits>,
    pub(super) plans: BTreeMap<String, Option<Limits>>,
}

impl PolicyLimits {
    fn of(policy: &file::Policy, plans: &Plans) -> Result<Self, Problem> {
        name(&policy.name.location, &policy.name)?;
        let default_limits = policy.limit.as_ref().map(limits).transpose()?;
        let said = plans.iter().filter_map(|(plan, said)| Some((plan, said.get(&**policy.name)?)));
        let plans = said.map(|(plan, texts)| {
            let is_unlimited = matches!(texts.each()[..], [(_, text)] if text.trim() == "unlimited");
            Ok((plan.clone(), if is_unlimited { None } else { Some(limits(texts)?) }))
        });
        Ok(Self { default_limits, plans: plans.collect::<Result<_, _>>()? })
    }

    pub(super) fn each(&self) -> impl Iterator<Item = &Limits> {
        self.plans.values().chain([&self.default_limits]).flatten()
    }

    /// The largest number of limits that a request can have.
    fn most(&self) -> usize {
        self.each().map(|limits| limits.len()).max().unwrap_or(0)
    }
}

fn one(policy: &Located<file::Policy>, limits: &PolicyLimits, keys: &Keys<'_>) -> Result<Policy, Problem> {
    let name = &policy.name.value;
    let made = |(plan, limits): (&String, &Option<Limits>)| {
        (plan.clone(), limits.clone().map(|limits| Plan::known(&format!("{name}.{plan}"), limits)))
    };
    let plans: BTreeMap<String, Option<Plan>> = limits.plans.iter().map(made).collect();
    let source = keys.all(&policy.key.location, &policy.key.each())?;
    let is_for_all = limits.default_limits.is_some();
    // Without limits of its own, the policy applies only to requests with one of its plans, so any of them can be its
    // default.
    let plan = limits.default_limits.clone().map(|limits| Plan::known(name, limits));
    let plan = plan.or_else(|| plans.values().flatten().next().cloned());
    let Some(plan) = plan else {
        return Err(Problem::at(&policy.location, "the policy has no limit: set `limit`, or one in a plan"));
    };
    let mut made = Policy::known(name, source, plan).charge(charge(policy)?);
    if let Some(cost) = &policy.cost {
        made = made.cost(cost_of(cost, keys.provided)?);
        if let Some(problem) = limits.each().find_map(|limits| made.never_fits(limits)) {
            return Err(Problem::at(&cost.location, problem));
        }
    }
    suit(policy, limits)?;
    if let Some(settle) = settle(policy)? {
        made = made.settle(settle);
    }
    if let Some(texts) = &policy.routes {
        if texts.each().is_empty() {
            return Err(Problem::at(&texts.location, "there is no route: omit `routes` to apply to all"));
        }
        made = made.only(on_any(routes(texts.each().into_iter())?));
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

fn cost_of(cost: &Located<file::Cost>, provided: &Provided) -> Result<Cost, Problem> {
    let name = match &cost.value {
        file::Cost::Known(cost) => return Ok(cost.clone()),
        file::Cost::Provided(name) => name,
    };
    provided.costs.get(name).cloned().ok_or_else(|| {
        let known: Vec<&str> = provided.costs.keys().map(String::as_str).collect();
        let advice = match known[..] {
            [] => "the program provides none (Provided::cost)".to_owned(),
            _ => format!(
                "use {}, a number of units, or a table with per_bytes and if_unknown",
                known.join(", ")
            ),
        };
        Problem::at(&cost.location, format!("unknown cost {name:?}: {advice}"))
    })
}

/// Checks that the policy has no setting that does nothing under its limits, or makes them do nothing.
fn suit(policy: &file::Policy, limits: &PolicyLimits) -> Result<(), Problem> {
    let each = || limits.each().flat_map(|limits| limits.iter());
    let is_held = |limit: &Limit| limit.algorithm() == Algorithm::Concurrency;
    if let Some(of) = &policy.count_only
        && let Some(held) = each().find(|limit| is_held(limit))
    {
        let message = format!(
            "with it, the limit \"{held}\" would refuse nothing, because no request holds a unit: give that limit a policy \
             of its own"
        );
        return Err(Problem::at(&of.location, message));
    }
    let correction = policy.refund.as_ref().map(|of| &of.location);
    let correction = correction.or(policy.settle.as_ref().map(|settle| &settle.location));
    if let Some(location) = correction
        && each().all(|limit| is_held(limit) || limit.is_ban())
    {
        let message = "it has nothing to correct: requests in progress release what they hold by themselves. Remove it, or \
                       add a limit of another kind";
        return Err(Problem::at(location, message));
    }
    Ok(())
}

type Plans = BTreeMap<String, Located<BTreeMap<String, Located<file::Texts>>>>;

/// The plan that earlier middleware has chosen for a request; `Some(None)` if it is unlimited.
fn chosen<'p>(plans: &'p BTreeMap<String, Option<Plan>>, request: &Head<'_>) -> Option<&'p Option<Plan>> {
    plans.get(request.extensions.get::<PlanName>()?.as_str())
}

fn plans_are_known(file: &file::File) -> Result<(), Problem> {
    for (plan, said) in &file.plans {
        name(&said.location, plan)?;
        for (policy, texts) in said.iter() {
            if !file.policies.iter().any(|known| *known.name == *policy) {
                let known: Vec<&str> = file.policies.iter().map(|policy| policy.name.as_str()).collect();
                let message = format!("no policy is called {policy:?}; use one of {}", known.join(", "));
                return Err(Problem::at(&texts.location, message));
            }
        }
    }
    Ok(())
}

fn name(location: &Location, name: &str) -> Result<(), Problem> {
    if is_name(name) {
        return Ok(());
    }
    Err(Problem::at(location, format!("the name {name:?} is not 1 to 64 letters, digits, '.', '_' or '-'")))
}

fn limits(texts: &Located<file::Texts>) -> Result<Limits, Problem> {
    let mut limits: Vec<Limit> = Vec::new();
    for (location, text) in texts.each() {
        let read: Limits = text.parse().map_err(|error| Problem::at(location, format!("{error}")))?;
        limits.extend(read.iter().cloned());
    }
    let limits = Limits::new(limits).map_err(|error| Problem::at(&texts.location, error.to_string()))?;
    if limits.iter().all(Limit::is_ban) {
        let message =
            "a ban counts the refusals of the other limits of this policy, and there are none: add one";
        return Err(Problem::at(&texts.location, message));
    }
    Ok(limits)
}

fn routes<'a>(texts: impl Iterator<Item = (&'a Location, &'a str)>) -> Result<Routes, Problem> {
    let mut routes = Routes::default();
    for (location, text) in texts {
        routes.add(text).map_err(|error| Problem::at(location, error))?;
    }
    Ok(routes)
}

/// Whether a policy of these routes is for a request.
fn on_any(routes: Routes) -> impl Fn(&Head<'_>) -> bool + Send + Sync + 'static {
    move |request| request.any_path(|path| routes.contain(request.method, path))
}

/// Whether these routes exempt a request.
fn on_every(routes: Arc<Routes>) -> impl Fn(&Head<'_>) -> bool + Send + Sync + 'static {
    move |request| request.every_path(|path| routes.contain(request.method, path))
}

fn charge(policy: &file::Policy) -> Result<Charge, Problem> {
    let is_one = |of: &[file::Statuses], status: Option<http::StatusCode>| {
        status.is_some_and(|status| of.iter().any(|some| (some.first..=some.last).contains(&status.as_u16())))
    };
    let listed = [&policy.count_only, &policy.refund];
    if let Some(empty) = listed.into_iter().flatten().find(|of| of.value.is_empty()) {
        return Err(Problem::at(&empty.location, "there is no status: name one, or leave the field out"));
    }
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
            Err(Problem::at(&of.location, "it cannot be combined with count_only: choose one"))
        }
    }
}

fn proxies(client: &file::Client) -> Result<TrustedProxies, Problem> {
    let mut proxies = Vec::new();
    for text in &client.trusted_proxies {
        let network = crate::client_address::parse_network(text);
        proxies.push(network.map_err(|error| Problem::at(&text.location, error.to_string()))?);
    }
    let mut proxies: TrustedProxies = proxies.into_iter().collect();
    if let Some(header) = &client.header {
        let known = header
            .parse()
            .map_err(|_| Problem::at(&header.location, format!("{:?} is not a header name", **header)))?;
        if client.trusted_proxies.is_empty() {
            let message =
                "it is read from trusted proxies only, and there are none: add client.trusted_proxies";
            return Err(Problem::at(&header.location, message));
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
    known.ok_or_else(|| Problem::at(&bits.location, format!("{} is invalid: use 1 to {most}", bits.value)))
}

fn headers(file: &file::Headers) -> Result<Headers, Problem> {
    let mut headers = Headers::default();
    headers.families = file.families.clone().unwrap_or(headers.families);
    if let Some(on_admitted) = &file.on_admitted {
        if headers.families.is_empty() {
            let message =
                "headers.families is empty, so there are no fields to send: name a family, or remove it";
            return Err(Problem::at(&on_admitted.location, message));
        }
        headers.on_admitted = on_admitted.value;
    }
    if let Some(reset) = &file.reset {
        let has_reset = headers.families.iter().any(|family| match family {
            Family::RateLimit | Family::XRateLimit => true,
            Family::Draft11 => false,
        });
        if reset.value != Reset::default() && !has_reset {
            let message =
                "it is for the families ratelimit and x-ratelimit: add one to headers.families, or remove it";
            return Err(Problem::at(&reset.location, message));
        }
        headers.reset = reset.value;
    }
    Ok(headers)
}

fn on_failure(file: &file::File) -> OnFailure {
    match file.on_store_failure {
        None | Some(file::StoreFailure::Closed) => OnFailure::default(),
        Some(file::StoreFailure::Open) => OnFailure::Open,
    }
}
