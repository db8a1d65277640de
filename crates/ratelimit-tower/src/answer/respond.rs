//! The response to a refused request.

use http::Response;

use super::refusal::{Refusal, Refused};
use super::{Answer, grpc};
use crate::{Head, headers};

/// Builds the complete response to a refused request, with its fields.
pub(crate) fn refuse<B>(answers: &impl Answer<B>, mut refused: Refused, request: Head<'_>) -> Response<B> {
    let mut response = answers.answer(&Refusal { refused: &refused, request });
    if !grpc::is_grpc(response.headers()) {
        headers::refusal(response.headers_mut(), refused.retry_after);
        refused.lines.write(response.headers_mut());
    }
    response
}
