//! The policies of a configuration file, decided by the layer that a service uses.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use anyhow::Context as _;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, Uri, Version};
use ratelimit_core::{RateLimiter, Timestamp};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::config::{Config, PlanName};
use ratelimit_tower::{Charged, Head, PeerAddress, Policy, RateLimit, RateLimitLayer, Reason, Refusal};
use tokio::runtime::{Builder, Runtime};
use tower_layer::Layer as _;
use tower_service::Service;

use super::body::Sized;
use super::clock::ReplayClock;
use super::decided::Decided;
use super::ends::Ends;
use super::limits::{hold, shortest};
use super::policies::PolicyCounts;
use super::provided::ProvidedKeys;
use crate::address::address;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// A request of a log, as the layer sees it. Its body is the response in the log.
pub(crate) type HttpRequest = Request<Answer>;

/// The response in the log.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Answer {
    status: StatusCode,
    bytes: usize,
    /// The true cost, if the handler records it.
    cost: Option<u64>,
}

type Answers = fn(&Refusal<'_>) -> Response<Sized>;

/// The layer around a service that responds with the statuses of the log.
pub(crate) struct Layered {
    service: RateLimit<Logged, MemoryStore, ReplayClock, Answers>,
    clock: ReplayClock,
    /// The shortest period of the limits.
    pub(crate) shortest: Duration,
    pub(super) counts: PolicyCounts,
    /// Whether a policy depends on when requests end.
    pub(crate) needs_ends: bool,
    /// Whether a policy settles.
    pub(crate) settles: bool,
    /// Requests in progress.
    sending: Ends<Response<Sized>>,
    /// Releases what they hold, if there is a concurrency limit.
    runtime: Option<Runtime>,
    /// The policies with a concurrency limit.
    pub(crate) holding: Vec<String>,
}

impl Layered {
    /// The policies of this file; `None` if a log does not tell enough for any of them. Also returns what is not replayed, as text
    /// for people. With `enforce_shadow`, policies in shadow refuse as the others do.
    ///
    /// # Errors
    /// If the policies cannot be replayed together.
    pub(crate) fn new(
        config: &Config,
        enforce_shadow: bool,
        clock: ReplayClock,
    ) -> anyhow::Result<(Option<Self>, Vec<String>)> {
        let (mut all, mut not_replayed) = (Vec::new(), Vec::new());
        let (mut left_out, mut holding, mut settling) = (Vec::new(), Vec::new(), Vec::new());
        for policy in config.policies().each() {
            if let Some(reason) = cannot_be_replayed(policy) {
                left_out.push(policy.name());
                not_replayed.push(reason);
                continue;
            }
            let plans = std::iter::once(None).chain(config.plans().map(Some));
            let limits: Vec<_> = plans.filter_map(|plan| config.limits(policy.name(), plan)).collect();
            if limits.iter().any(|limits| hold(limits)) {
                holding.push(policy.name().to_owned());
            }
            settling.extend(policy.settles().map(|_| policy.name()));
            all.extend(limits.into_iter().flat_map(|limits| limits.iter()));
        }
        not_replayed.extend(settling.iter().map(|name| {
            format!(
                "the true costs of {name}, if they are not the size of the response, the time that it took, or what --settle-field \
                 names: then a request costs what `unsettled` says, by default the estimate"
            )
        }));
        if left_out.len() == config.policies().each().len() {
            return Ok((None, not_replayed));
        }
        let needs_ends = !holding.is_empty() || !settling.is_empty();
        let policies = config.policies().clone().retain(|policy| !left_out.contains(&policy.name()));
        let counts = PolicyCounts::new(&policies, config)?;
        let policies = if enforce_shadow { policies.out_of_shadow() } else { policies };
        let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(clock.clone());
        let layer = RateLimitLayer::in_process(limiter, policies).answer_with(answer as Answers);
        let runtime = || Builder::new_current_thread().enable_time().build();
        let layered = Self {
            service: layer.with_body(Sized::measured).layer(Logged),
            clock,
            shortest: shortest(all.into_iter()),
            counts,
            needs_ends,
            settles: !settling.is_empty(),
            sending: Ends::default(),
            runtime: (!holding.is_empty()).then(runtime).transpose()?,
            holding,
        };
        Ok((Some(layered), not_replayed))
    }

    pub(crate) fn decide(
        &mut self,
        request: HttpRequest,
        now: Timestamp,
        duration: Duration,
    ) -> anyhow::Result<Decided> {
        while let Some((time, response)) = self.sending.next(now) {
            self.clock.set(time);
            self.end(response);
        }
        self.clock.set(now);
        self.counts.add(&Head::of(&request));
        let entered = self.runtime.as_ref().map(Runtime::enter);
        let polled = pin!(self.service.call(request)).poll(&mut Context::from_waker(Waker::noop()));
        drop(entered);
        let mut response = match polled {
            Poll::Ready(Ok(response)) => response,
            Poll::Ready(Err(never)) => match never {},
            Poll::Pending => anyhow::bail!("the layer waits for what a replay does not have"),
        };
        if let Some(decided) = response.extensions_mut().remove::<Decided>() {
            return Ok(decided);
        }
        let delay = self.clock.slept();
        match self.needs_ends && !(delay + duration).is_zero() {
            true => self.sending.add(now + delay + duration, response),
            false => self.end(response),
        }
        self.run();
        Ok(Decided { is_admitted: true, is_delayed: !delay.is_zero(), delay, ..Decided::default() })
    }

    /// Ends a request: its response has been sent.
    fn end(&self, mut response: Response<Sized>) {
        response.body_mut().read();
        drop(response);
        self.run();
    }

    /// Lets the tasks run that hold units, and that release those which are held no longer.
    fn run(&self) {
        if let Some(runtime) = &self.runtime {
            runtime.block_on(async {
                for _ in 0..TURNS {
                    tokio::task::yield_now().await;
                }
            });
        }
    }
}

/// A task that holds units needs fewer turns than this to release them.
const TURNS: usize = 4;

/// Why a log does not tell enough to replay a policy; `None` if it does.
fn cannot_be_replayed(policy: &Policy) -> Option<String> {
    let source = policy.source().to_string();
    source.split(' ').any(|word| word == "path-template").then(|| {
        format!(
            "policy {}: a log does not say which route a request has matched; replay a copy of the file with the key `path` in \
             place of `path-template`",
            policy.name()
        )
    })
}

/// The response to a refused request, with the decision as an extension.
fn answer(refusal: &Refusal<'_>) -> Response<Sized> {
    let refused_otherwise = !matches!(refusal.reason(), Reason::QuotaExceeded | Reason::Banned);
    let refused_by = match refusal.reason() {
        _ if !refused_otherwise => refusal.violated_policies().map(str::to_owned).collect(),
        Reason::Denied => vec!["(403: the client is in a list of those to refuse)".to_owned()],
        Reason::Unidentified => vec!["(400: the client did not send what is counted by)".to_owned()],
        _ => vec!["(500: the request has no address or other part that the policies count by)".to_owned()],
    };
    let mut response = Response::new(Sized::Zeros(0));
    *response.status_mut() = refusal.reason().status();
    let wait = refusal.retry_after();
    response.extensions_mut().insert(Decided { wait, refused_otherwise, refused_by, ..Decided::default() });
    response
}

/// The service: responds as the log says.
#[derive(Clone, Copy)]
struct Logged;

impl Service<HttpRequest> for Logged {
    type Response = Response<Sized>;
    type Error = Infallible;
    type Future = Ready<Result<Response<Sized>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: HttpRequest) -> Self::Future {
        let Answer { status, bytes, cost } = *request.body();
        if let Some(cost) = cost {
            Charged::of(request.extensions()).settle(cost);
        }
        let mut response = Response::new(Sized::Zeros(bytes));
        *response.status_mut() = status;
        ready(Ok(response))
    }
}

/// Makes requests from the lines of a log.
pub(crate) struct RequestMaker {
    ip: usize,
    method: usize,
    path: usize,
    status: usize,
    bytes: usize,
    /// The index of the field with the true cost.
    settle: Option<usize>,
    /// Header fields, each with the index of the field of the log that has its value.
    headers: Vec<(HeaderName, usize)>,
    /// The index of the field of the log that names a plan, and the plans of the file by their names.
    plan: Option<(usize, Vec<(String, PlanName)>)>,
    provided: ProvidedKeys,
    pub(crate) assumed: Assumed,
    /// The options that name a field of the log, each with its index, until a request has a value in it.
    without_values: Vec<(String, usize)>,
}

/// How many requests of the log lack a part of a request, or have one that no request can have. Each part then is the
/// usual one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Assumed {
    /// Taken as 200.
    pub(crate) statuses: u64,
    /// Taken as GET.
    pub(crate) methods: u64,
    /// Taken as `/`.
    pub(crate) paths: u64,
    /// Taken as no plan.
    pub(crate) plans: u64,
    /// Taken as nothing.
    pub(crate) sizes: u64,
}

impl RequestMaker {
    /// Adds the fields that requests are made from to `wanted`. Each of `headers` is `NAME=FIELD`: a header field, and
    /// the field of the log that has its value.
    ///
    /// # Errors
    /// If one of `headers` is not of that form.
    pub(crate) fn new(
        wanted: &mut Wanted,
        headers: &[String],
        plan_field: Option<&str>,
        settle_field: Option<&str>,
        provided: ProvidedKeys,
        config: &Config,
    ) -> anyhow::Result<Self> {
        let mut usual = vec![
            (http::header::USER_AGENT, wanted.add(Field::Agent)),
            (http::header::REFERER, wanted.add(Field::Referer)),
        ];
        let mut without_values = Vec::new();
        for text in headers {
            let (name, field) =
                text.split_once('=').with_context(|| format!("--header {text}: write NAME=FIELD"))?;
            let name = name.parse::<HeaderName>().with_context(|| format!("--header {text}"))?;
            usual.retain(|(header, _)| *header != name);
            let index = wanted.add(Field::of_name(field));
            usual.push((name, index));
            without_values.push((format!("--header {text}"), index));
        }
        let plan_field = plan_field.map(|field| (field, wanted.add(Field::of_name(field))));
        without_values.extend(plan_field.map(|(field, index)| (format!("--plan-field {field}"), index)));
        without_values
            .extend(provided.fields().map(|(name, index)| (format!("--provided-key {name}"), index)));
        let settle = settle_field.map(|field| (field, wanted.add(Field::of_name(field))));
        without_values.extend(settle.map(|(field, index)| (format!("--settle-field {field}"), index)));
        let plans = config.plans().filter_map(|name| Some((name.to_owned(), config.plan(name)?))).collect();
        Ok(Self {
            ip: wanted.add(Field::Ip),
            method: wanted.add(Field::Method),
            path: wanted.add(Field::Path),
            status: wanted.add(Field::Status),
            bytes: wanted.add(Field::Bytes),
            settle: settle.map(|(_, index)| index),
            headers: usual,
            plan: plan_field.map(|(_, index)| (index, plans)),
            provided,
            assumed: Assumed::default(),
            without_values,
        })
    }

    /// The options that name a field in which no request has had a value.
    pub(crate) fn fields_without_values(&self) -> Vec<String> {
        self.without_values.iter().map(|(option, _)| option.clone()).collect()
    }

    pub(crate) fn make(&mut self, record: &Record) -> HttpRequest {
        self.without_values.retain(|(_, index)| record.get(*index).is_none());
        let text = |index: usize| record.get(index).and_then(|value| std::str::from_utf8(value).ok());
        let status = text(self.status).and_then(|status| status.parse::<StatusCode>().ok());
        let method = text(self.method).and_then(|method| method.parse::<Method>().ok());
        let uri = text(self.path).and_then(|path| path.parse::<Uri>().ok());
        self.assumed.statuses += u64::from(status.is_none());
        self.assumed.methods += u64::from(method.is_none());
        self.assumed.paths += u64::from(uri.is_none());
        let bytes = text(self.bytes).and_then(|bytes| bytes.parse().ok());
        self.assumed.sizes += u64::from(bytes.is_none());
        let mut request = Request::new(Answer {
            status: status.unwrap_or_default(),
            bytes: bytes.unwrap_or(0),
            cost: self.settle.and_then(text).and_then(|cost| cost.parse().ok()),
        });
        // In HTTP/1 a request without a length would have no body, but a log may just not have the length.
        *request.version_mut() = Version::HTTP_2;
        *request.method_mut() = method.unwrap_or_default();
        *request.uri_mut() = uri.unwrap_or_default();
        for (name, index) in &self.headers {
            if let Some(value) = record.get(*index).and_then(|value| HeaderValue::from_bytes(value).ok()) {
                request.headers_mut().insert(name.clone(), value);
            }
        }
        let extensions = request.extensions_mut();
        if let Some(values) = self.provided.values(record) {
            extensions.insert(values);
        }
        if let Some(address) = record.get(self.ip).and_then(address) {
            extensions.insert(PeerAddress(address));
        }
        if let Some((index, plans)) = &self.plan
            && let Some(name) = record.get(*index)
        {
            match plans.iter().find(|(plan_name, _)| plan_name.as_bytes() == name) {
                Some((_, plan)) => drop(extensions.insert(plan.clone())),
                None => self.assumed.plans += 1,
            }
        }
        request
    }
}
