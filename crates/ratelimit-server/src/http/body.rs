//! Questions and answers in JSON.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use http_body_util::Full;
use ratelimit_core::Decision;
use ratelimit_tower::{Answered, Reason};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::checks::{Asking, Checks, Domain};
use crate::descriptors::{Descriptor, Matched};
use crate::metrics;
use crate::refusal::Refusal;

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
#[derive(Debug, Serialize)]
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
    receipt: Option<String>,
}

impl Check {
    /// What to decide.
    pub(crate) fn question(&self, checks: &Checks, domain: &Domain) -> Asking {
        let wrong = |text: &str| Err(Refusal::bad(text));
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
    /// The answer to a question, with its receipt if there is one.
    pub(crate) fn of(answered: &Answered<'_>, receipt: Option<String>) -> Self {
        let (decision, delay) = (answered.decision(), answered.delay());
        Self {
            allowed: answered.allowed(),
            degraded: decision.is_some_and(Decision::degraded),
            limit: decision.map(Decision::limit),
            remaining: decision.map(Decision::remaining),
            reset_after_ms: decision.map(|decision| millis(decision.reset_after())),
            retry_after_ms: answered.retry_after().map(millis),
            delay_ms: (!delay.is_zero()).then(|| millis(delay)),
            violated_policies: answered.violated_policies().map(str::to_owned).collect(),
            detail: answered.in_words(),
            receipt,
        }
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

/// A response; all bodies are complete.
pub(crate) type Response = http::Response<Full<Bytes>>;

/// A response of JSON.
pub(crate) fn json_response(status: StatusCode, value: &impl Serialize) -> Response {
    // Most answers are no longer.
    let mut body = Vec::with_capacity(512);
    let _ = serde_json::to_writer(&mut body, value);
    response(status, "application/json", body)
}

/// A response of this type.
pub(crate) fn response(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

/// The response for what is not answered.
pub(crate) fn refuse(refusal: &Refusal) -> Response {
    if refusal.status.is_client_error() {
        metrics::bad_request("http");
    }
    json_response(refusal.status, &json!({ "error": refusal.to_string() }))
}
