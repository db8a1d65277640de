//! Questions and answers in JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use ratelimit_core::Decision;
use ratelimit_tower::{Answered, Reason};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::checks::{Asking, Checks, Domain, Question, Refusal};
use crate::descriptors::{Descriptor, Matched};
use crate::metrics;

/// A question: under a policy, by descriptors, or under limits of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Check {
    pub(crate) domain: Option<String>,
    policy: Option<String>,
    plan: Option<String>,
    descriptors: Option<Vec<BTreeMap<String, String>>>,
    limits: Option<String>,
    key: Option<Key>,
    #[serde(default = "one")]
    cost: u64,
}

fn one() -> u64 {
    1
}

/// A client: one value, or one for each part of the policy's key.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Key {
    One(String),
    Several(Vec<String>),
}

/// Several questions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Batch {
    pub(crate) checks: Vec<Check>,
}

/// A receipt, and for a settlement the true cost.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Receipt {
    pub(crate) receipt: String,
    pub(crate) cost: Option<u64>,
}

/// The answer to a question.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Answer {
    allowed: bool,
    /// Whether the store was away, and this server decided by itself.
    degraded: bool,
    /// The limit that decided; none if nothing limits the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    limit: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    remaining: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reset_after_ms: Option<u64>,
    /// Until the same request is admitted.
    #[serde(skip_serializing_if = "Option::is_none")]
    retry_after_ms: Option<u64>,
    /// Until its turn, under a queue.
    #[serde(skip_serializing_if = "Option::is_none")]
    delay_ms: Option<u64>,
    /// The limits that refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    violated_policies: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    detail: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) receipt: Option<String>,
}

impl Check {
    /// What to decide.
    pub(crate) fn question(&self, checks: &Checks, domain: &Domain) -> Asking {
        let wrong = |text: &str| Err(Refusal::Bad(text.to_owned()));
        if self.plan.is_some() && self.policy.is_none() {
            return wrong("plan: it chooses the limits of a policy; add policy");
        }
        match (&self.policy, &self.descriptors, &self.limits) {
            (Some(policy), None, None) => {
                let Some(key) = &self.key else { return wrong("key: it is missing") };
                domain.by_policy(policy, &key.values(), self.cost, self.plan.as_deref())
            }
            (None, Some(descriptors), None) if self.key.is_none() => {
                let descriptors: Vec<Descriptor<'_>> = descriptors
                    .iter()
                    .map(|entries| Descriptor {
                        entries: entries.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect(),
                        cost: self.cost,
                        instead: None,
                    })
                    .collect();
                let matched = Matched::of(domain, &descriptors)?;
                metrics::unmatched("descriptor", matched.unmatched);
                Ok(matched.question)
            }
            (None, None, Some(_)) if !checks.allow_limits => {
                wrong("limits: this server does not take limits from requests; start it with --allow-limits")
            }
            (None, None, Some(limits)) => match &self.key {
                Some(Key::One(key)) => domain.by_limits(limits, key.as_bytes(), self.cost),
                _ => wrong("key: it is one string"),
            },
            _ => wrong("name one of: policy with key, descriptors, or limits with key"),
        }
    }
}

impl Key {
    fn values(&self) -> Vec<&[u8]> {
        match self {
            Self::One(value) => vec![value.as_bytes()],
            Self::Several(values) => values.iter().map(|value| value.as_bytes()).collect(),
        }
    }
}

impl Answer {
    /// The answer to a question, without its receipt.
    pub(crate) fn of(answered: &Answered<'_>) -> Self {
        let of_decision = answered.decision().map(Self::of_decision).unwrap_or_default();
        let delay = answered.delay();
        Self {
            allowed: answered.allowed(),
            retry_after_ms: answered.retry_after().map(millis),
            delay_ms: (!delay.is_zero()).then(|| millis(delay)),
            violated_policies: answered.violated_policies().map(str::to_owned).collect(),
            detail: answered.in_words(),
            ..of_decision
        }
    }

    fn of_decision(decision: &Decision<'_>) -> Self {
        Self {
            degraded: decision.degraded(),
            limit: Some(decision.limit()),
            remaining: Some(decision.remaining()),
            reset_after_ms: Some(millis(decision.reset_after())),
            ..Self::default()
        }
    }

    /// The answer to a question that was decided in this way, with its receipt.
    pub(crate) fn with_receipt(
        checks: &Checks,
        domain: &Domain,
        question: &Question,
        answered: &Answered<'_>,
    ) -> Self {
        Self { receipt: checks.receipt(domain, question, answered), ..Self::of(answered) }
    }
}

/// Milliseconds, rounded up, so that waiting for them is long enough.
fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

/// The status of an answer.
pub(crate) fn status(answered: &Answered<'_>) -> StatusCode {
    answered.reason().map_or(StatusCode::OK, Reason::status)
}

/// The status of what cannot be answered.
pub(crate) fn status_of(refusal: &Refusal) -> StatusCode {
    match refusal {
        Refusal::Bad(_) => StatusCode::BAD_REQUEST,
        Refusal::Unknown(_) => StatusCode::NOT_FOUND,
        Refusal::Used => StatusCode::CONFLICT,
        Refusal::Old(_) => StatusCode::GONE,
        Refusal::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
    }
}

/// A response of JSON.
pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    let body = serde_json::to_vec(value).unwrap_or_default();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

/// The response, or that of an error.
pub(crate) fn respond(answer: Result<Response, Refusal>) -> Response {
    answer.unwrap_or_else(|refusal| error(status_of(&refusal), &refusal.to_string()))
}

/// The response for what cannot be answered.
pub(crate) fn error(status: StatusCode, text: &str) -> Response {
    if status.is_client_error() {
        metrics::bad_request("http");
    }
    json_response(status, &json!({ "error": text }))
}
