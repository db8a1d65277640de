//! Charges, refunds and settles once the outcome of a request is known.

mod after_response;
mod pending;
mod true_costs;

use std::sync::Arc;

use http::header::CONTENT_LENGTH;
use http::{Request, Response};

use self::after_response::watch;
use self::pending::Pending;
use crate::BoxFuture;
use crate::charge::Outcome;
use crate::check::{AllChecks, Checked};
use crate::cost::number;
use crate::measured::BodyTypes;
use crate::observe;

/// What remains to be done when the outcome of a request is known. Dropping this is an outcome, too: [`Outcome::Dropped`].
pub(crate) struct After(Arc<Pending>);

impl After {
    /// `None` if nothing was [kept](Checked::kept): then nothing depends on the outcome.
    pub(crate) fn new(checks: AllChecks, kept: Option<Checked<'static>>) -> Option<Self> {
        kept.map(|checked| Self(Arc::new(Pending::new(checks, checked))))
    }

    /// Lets the handler of this request record its cost, and counts the bytes of its body, if a policy settles by them. The
    /// service is called now.
    pub(crate) fn begin<B: 'static>(
        &mut self,
        mut request: Request<B>,
        bodies: &Arc<BodyTypes>,
    ) -> Request<B> {
        // Nothing else has it yet.
        let Some(pending) = Arc::get_mut(&mut self.0) else { return request };
        pending.begin(&mut request, bodies);
        if !pending.needs_request_bytes() {
            return request;
        }
        if !bodies.know::<B>() {
            observe::unsettled(
                &"request bodies of this type cannot be counted: see `RateLimitLayer::with_body`",
            );
            return request;
        }
        let watch = pending.count_request_bytes();
        request.map(|body| bodies.measure(body, None, watch))
    }

    /// Records that the service is called only now: the request has waited for its turn.
    pub(crate) fn is_called(&mut self) {
        if let Some(pending) = Arc::get_mut(&mut self.0) {
            pending.is_called();
        }
    }

    /// Charges, refunds and settles for this outcome. Returns a future for what the caller has to wait for, if anything.
    /// What depends on the response's body is done when the body has ended.
    pub(crate) fn finish<B: 'static, E>(
        self,
        answer: Result<Response<B>, E>,
    ) -> (Result<Response<B>, E>, Option<BoxFuture<()>>) {
        let pending = self.0.clone();
        pending.set_answered();
        let (answer, costs) = match answer {
            Ok(answer) => {
                let (answer, costs) = finish_response(&pending, answer);
                (Ok(answer), costs)
            }
            Err(error) => (Err(error), pending.at_no_response(Outcome::Failed)),
        };
        (answer, pending.settle_awaited(costs))
    }
}

/// The response, whose body is observed if a charge depends on it, and the true costs that are known already.
fn finish_response<B: 'static>(
    pending: &Arc<Pending>,
    mut answer: Response<B>,
) -> (Response<B>, pending::TrueCosts) {
    let (mut costs, open) = pending.at_response(&mut answer);
    if open.is_empty() && !pending.holds() {
        return (answer, costs);
    }
    match pending.bodies() {
        Some(bodies) if bodies.know::<B>() => {
            let (head, body) = answer.into_parts();
            let length = match pending.sends_no_body(head.status) {
                true => Some(0),
                false => number(&head.headers, &CONTENT_LENGTH),
            };
            let body = bodies.measure(body, length, watch(pending, &head, open));
            (Response::from_parts(head, body), costs)
        }
        _ => {
            observe::unsettled(
                &"response bodies of this type cannot be observed: see `RateLimitLayer::with_body`",
            );
            costs.extend(pending.without_end(&open));
            (answer, costs)
        }
    }
}

impl Drop for After {
    fn drop(&mut self) {
        if !self.0.is_answered() {
            let costs = self.0.at_no_response(Outcome::Dropped);
            self.0.clone().settle_apart(costs, None);
        }
    }
}
