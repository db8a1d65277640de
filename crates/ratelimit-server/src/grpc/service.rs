//! `ShouldRateLimit`.

use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, HeaderName, StatusCode};
use ratelimit_core::LimitStatus;
use ratelimit_tower::Answered;
use tonic::{Request, Response, Status};

use super::envoy::config::core::v3::HeaderValue;
use super::envoy::extensions::common::ratelimit::v3::RateLimitDescriptor;
use super::envoy::service::ratelimit::v3::rate_limit_response::{Code, DescriptorStatus};
use super::envoy::service::ratelimit::v3::rate_limit_service_server::RateLimitService;
use super::envoy::service::ratelimit::v3::{RateLimitRequest, RateLimitResponse};
use super::units;
use crate::checks::{Checks, Domain};
use crate::descriptors::{Descriptor, Matched};
use crate::metrics;
use crate::refusal::Refusal;

/// Answers Envoy.
pub(super) struct Service {
    pub(super) checks: Arc<Checks>,
    /// The header of the request in which the service behind Envoy gets the receipt.
    pub(super) receipt_header: Option<HeaderName>,
}

#[tonic::async_trait]
impl RateLimitService for Service {
    async fn should_rate_limit(
        &self,
        request: Request<RateLimitRequest>,
    ) -> Result<Response<RateLimitResponse>, Status> {
        let request = request.into_inner();
        let domain = self.checks.domain(Some(&request.domain));
        let Some(domain) = domain.filter(|domain| domain.rules().is_some()) else {
            metrics::unmatched("domain", 1);
            return Ok(Response::new(admitted(request.descriptors.len())));
        };
        self.decide(&domain, &request).await.map(Response::new).map_err(|refusal| status(&refusal))
    }
}

impl Service {
    async fn decide(
        &self,
        domain: &Domain,
        request: &RateLimitRequest,
    ) -> Result<RateLimitResponse, Refusal> {
        // Negative hits are returned after the decision about the others: they are not part of what is asked.
        let (mut positive, mut places, mut negative) = (Vec::new(), Vec::new(), Vec::new());
        for (place, descriptor) in request.descriptors.iter().enumerate() {
            let read = self.read(descriptor, request.hits_addend)?;
            if descriptor.is_negative_hits {
                negative.push(read);
            } else {
                places.push(place);
                positive.push(read);
            }
        }
        let matched = Matched::of(domain, &positive)?;
        metrics::unmatched("descriptor", matched.unmatched);
        let mut answered = domain.check(&matched.question).await;
        let mut response = admitted(request.descriptors.len());
        if !answered.allowed() {
            response.overall_code = Code::OverLimit.into();
        }
        for (index, place) in places.into_iter().enumerate() {
            response.statuses[place] = status_of(&matched, index, &answered);
        }
        response.request_headers_to_add.extend(self.receipt(domain, &matched, &answered));
        let mut fields = HeaderMap::new();
        answered.write_fields(&mut fields);
        response.response_headers_to_add =
            fields.iter().map(|(name, value)| header(name, value.as_bytes())).collect();
        if !negative.is_empty() {
            let returned = Matched::of(domain, &negative)?;
            metrics::unmatched("descriptor", returned.unmatched);
            domain.return_units(&returned.question).await?;
        }
        Ok(response)
    }

    fn read<'d>(&self, descriptor: &'d RateLimitDescriptor, hits: u32) -> Result<Descriptor<'d>, Refusal> {
        let cost = descriptor.hits_addend.unwrap_or(u64::from(hits.max(1)));
        let wanted = descriptor.limit.as_ref().filter(|_| self.checks.allow_limits);
        let instead = wanted.map(units::limit_of).transpose().map_err(Refusal::bad)?;
        let entries =
            descriptor.entries.iter().map(|entry| (entry.key.as_str(), entry.value.as_str())).collect();
        Ok(Descriptor { entries, cost, instead })
    }

    fn receipt(&self, domain: &Domain, matched: &Matched, answered: &Answered<'_>) -> Option<HeaderValue> {
        let name = self.receipt_header.as_ref()?;
        let receipt = self.checks.receipt(domain, &matched.question, answered)?;
        Some(header(name, receipt.as_bytes()))
    }
}

/// Everything may pass.
fn admitted(descriptors: usize) -> RateLimitResponse {
    let status = DescriptorStatus { code: Code::Ok.into(), ..DescriptorStatus::default() };
    RateLimitResponse {
        overall_code: Code::Ok.into(),
        statuses: vec![status; descriptors],
        ..RateLimitResponse::default()
    }
}

fn status_of(matched: &Matched, descriptor: usize, answered: &Answered<'_>) -> DescriptorStatus {
    let found = answered.decision().and_then(|decision| matched.deciding(descriptor, decision));
    let Some((limit, name)) = found else {
        // Nothing limits it, or nothing is known about it: then it has the answer of the whole request.
        let is_refused = answered.decision().is_none() && !answered.allowed();
        let code = if is_refused { Code::OverLimit } else { Code::Ok };
        return DescriptorStatus { code: code.into(), ..DescriptorStatus::default() };
    };
    DescriptorStatus {
        code: if limit.allowed() { Code::Ok } else { Code::OverLimit }.into(),
        current_limit: units::describe(limit.rule(), name),
        limit_remaining: u32::try_from(limit.remaining()).unwrap_or(u32::MAX),
        duration_until_reset: until_reset(&limit),
        quota: None,
    }
}

/// After a refusal, until the same request fits; otherwise until the limit is as good as new. `None` if that never happens.
fn until_reset(limit: &LimitStatus<'_>) -> Option<prost_types::Duration> {
    let wait = if limit.allowed() { Some(limit.reset_after()) } else { limit.retry_after() };
    // Longer than a century: a total.
    wait.filter(|wait| *wait < Duration::from_secs(3_155_760_000)).and_then(|wait| wait.try_into().ok())
}

fn header(name: &HeaderName, value: &[u8]) -> HeaderValue {
    let value = String::from_utf8_lossy(value).into_owned();
    HeaderValue { key: name.as_str().to_owned(), value, raw_value: Vec::new() }
}

/// Envoy then does what its `failure_mode_deny` says.
fn status(refusal: &Refusal) -> Status {
    if refusal.status == StatusCode::SERVICE_UNAVAILABLE {
        return Status::unavailable(refusal.to_string());
    }
    metrics::bad_request("grpc");
    Status::invalid_argument(refusal.to_string())
}
