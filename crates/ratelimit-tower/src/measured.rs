//! Bodies whose bytes and end are observed, and how to put them in the place of a service's own bodies.

use std::any::Any;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Buf as _;
use http::HeaderMap;
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;

/// Observes a body.
pub(crate) trait Watch: Send + Sync {
    /// This many bytes were read.
    fn data(&self, bytes: u64);

    /// These trailers were read.
    fn trailers(&self, _: &HeaderMap) {}

    /// The body has ended, or was dropped before its end. Called once.
    fn end(&self, _complete: bool) {}
}

pin_project! {
    /// A body that reports to the layer how many bytes were read from it, its trailers, and when it ends or is dropped. It
    /// changes nothing. See [`RateLimitLayer::with_body`](crate::RateLimitLayer::with_body).
    pub struct MeasuredBody<B> {
        // Dropped as soon as it has ended, before the request is settled: what its `Drop` records still counts.
        #[pin]
        body: Option<B>,
        // Declared after the body, so that it is dropped after the body.
        watching: Watching,
    }
}

struct Watching {
    watch: Option<Box<dyn Watch>>,
    /// The bytes that are still to come, if the length is known.
    left: Option<u64>,
    complete: bool,
}

impl Watching {
    fn end(&mut self) {
        if let Some(watch) = self.watch.take() {
            watch.end(self.complete);
        }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        self.end();
    }
}

impl<B: Body> Body for MeasuredBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        let mut this = self.project();
        let Some(mut body) = this.body.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        let frame = ready!(body.as_mut().poll_frame(context));
        match (&frame, &this.watching.watch) {
            (None, _) => {
                this.body.set(None);
                this.watching.complete = true;
                this.watching.end();
            }
            (Some(Ok(frame)), Some(watch)) => {
                if let Some(data) = frame.data_ref() {
                    let bytes = u64::try_from(data.remaining()).unwrap_or(u64::MAX);
                    watch.data(bytes);
                    this.watching.left = this.watching.left.map(|left| left.saturating_sub(bytes));
                }
                if let Some(trailers) = frame.trailers_ref() {
                    watch.trailers(trailers);
                }
                // Servers need not poll again after the last frame, nor when they have sent as much as they announced.
                this.watching.complete |=
                    frame.is_trailers() || body.is_end_stream() || this.watching.left == Some(0);
            }
            (Some(Err(_)), _) => this.watching.complete = false,
            (Some(Ok(_)), None) => {}
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(Body::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map_or_else(|| SizeHint::with_exact(0), Body::size_hint)
    }
}

impl<B> fmt::Debug for MeasuredBody<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MeasuredBody").finish_non_exhaustive()
    }
}

/// The types of bodies that can be measured while the body keeps its type: those that can hold any body.
#[derive(Clone)]
pub(crate) struct BodyTypes(Vec<Arc<dyn Any + Send + Sync>>);

/// Replaces a body by a measured one of the same type.
struct Replace<B>(Box<dyn Fn(B, Watching) -> B + Send + Sync>);

impl BodyTypes {
    /// The types of the frameworks whose features are enabled.
    pub(crate) fn of_frameworks() -> Self {
        #[allow(unused_mut)] // without such a feature
        let mut types = Self(Vec::new());
        #[cfg(feature = "axum")]
        types.add(axum::body::Body::new::<MeasuredBody<axum::body::Body>>);
        #[cfg(feature = "tonic")]
        types.add(tonic::body::Body::new::<MeasuredBody<tonic::body::Body>>);
        types
    }

    pub(crate) fn add<B: Body + 'static>(
        &mut self,
        new: impl Fn(MeasuredBody<B>) -> B + Send + Sync + 'static,
    ) {
        let replace = move |body: B, mut watching: Watching| {
            if body.is_end_stream() {
                watching.complete = true;
                watching.end();
                return body;
            }
            watching.left = watching.left.or_else(|| body.size_hint().exact());
            watching.complete = watching.left == Some(0);
            new(MeasuredBody { body: Some(body), watching })
        };
        self.0.push(Arc::new(Replace(Box::new(replace))));
    }

    /// Whether bodies of this type can be measured.
    pub(crate) fn know<B: 'static>(&self) -> bool {
        self.find::<B>().is_some()
    }

    /// Measures this body, if its type is [known](Self::know). `length` is what the head says of its length.
    pub(crate) fn measure<B: 'static>(&self, body: B, length: Option<u64>, watch: Box<dyn Watch>) -> B {
        match self.find() {
            Some(Replace(replace)) => {
                replace(body, Watching { watch: Some(watch), left: length, complete: false })
            }
            None => body,
        }
    }

    fn find<B: 'static>(&self) -> Option<&Replace<B>> {
        self.0.iter().rev().find_map(|known| known.downcast_ref())
    }
}
