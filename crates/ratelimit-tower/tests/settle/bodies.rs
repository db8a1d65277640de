//! Bodies that do what a test says, step by step.

use std::collections::VecDeque;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;

pub(crate) type Body = UnsyncBoxBody<Bytes, String>;

/// What a body does when it is polled.
pub(crate) enum Step {
    /// Yields this many bytes.
    Bytes(usize),
    Trailers(HeaderMap),
    /// Does something and goes on.
    Run(Box<dyn FnMut() + Send>),
    Fail,
    Panic,
    /// Yields nothing, ever.
    Hang,
}

struct Script {
    steps: VecDeque<Step>,
    /// Whether it says how long it is.
    hints: bool,
    /// Called when it is dropped.
    at_drop: Option<Box<dyn FnOnce() + Send>>,
}

/// A body of these steps. Its end shows only when it is polled again, as with most streams.
pub(crate) fn body(steps: impl IntoIterator<Item = Step>) -> Body {
    Body::new(Script { steps: steps.into_iter().collect(), hints: true, at_drop: None })
}

/// The same, and does not say how long it is.
pub(crate) fn body_without_hint(steps: impl IntoIterator<Item = Step>) -> Body {
    Body::new(Script { steps: steps.into_iter().collect(), hints: false, at_drop: None })
}

/// The same, and calls `at_drop` when it is dropped.
pub(crate) fn body_with_drop(
    steps: impl IntoIterator<Item = Step>,
    at_drop: impl FnOnce() + Send + 'static,
) -> Body {
    let at_drop = Some(Box::new(at_drop) as _);
    Body::new(Script { steps: steps.into_iter().collect(), hints: true, at_drop })
}

pub(crate) fn run(run: impl FnMut() + Send + 'static) -> Step {
    Step::Run(Box::new(run))
}

impl HttpBody for Script {
    type Data = Bytes;
    type Error = String;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, String>>> {
        loop {
            return match self.steps.front_mut() {
                Some(Step::Hang) => Poll::Pending,
                _ => match self.steps.pop_front() {
                    None | Some(Step::Hang) => Poll::Ready(None),
                    Some(Step::Bytes(count)) => Poll::Ready(Some(Ok(Frame::data(vec![b'.'; count].into())))),
                    Some(Step::Trailers(trailers)) => Poll::Ready(Some(Ok(Frame::trailers(trailers)))),
                    Some(Step::Fail) => Poll::Ready(Some(Err("the body failed".to_owned()))),
                    Some(Step::Panic) => panic!("the body panics, as the test wants"),
                    Some(Step::Run(mut run)) => {
                        run();
                        continue;
                    }
                },
            };
        }
    }

    fn size_hint(&self) -> SizeHint {
        let bytes =
            self.steps.iter().map(|step| if let Step::Bytes(count) = step { *count as u64 } else { 0 });
        if self.hints { SizeHint::with_exact(bytes.sum()) } else { SizeHint::default() }
    }
}

impl Drop for Script {
    fn drop(&mut self) {
        if let Some(at_drop) = self.at_drop.take() {
            at_drop();
        }
    }
}
