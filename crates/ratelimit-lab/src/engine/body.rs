//! The bodies of responses, as a log knows them: only their sizes.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use bytes::Buf;
use http_body::{Body, Frame};
use ratelimit_tower::MeasuredBody;

/// A body of zeros.
pub(super) enum Sized {
    /// This many are left.
    Zeros(usize),
    /// The layer counts them.
    Measured(Pin<Box<MeasuredBody<Self>>>),
}

impl Sized {
    pub(super) fn measured(body: MeasuredBody<Self>) -> Self {
        Self::Measured(Box::pin(body))
    }

    /// Reads all of it, as a server does that sends it.
    pub(super) fn read(&mut self) {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(_)) = Pin::new(&mut *self).poll_frame(&mut context) {}
    }
}

impl Body for Sized {
    type Data = Zeros;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Zeros>, Infallible>>> {
        match &mut *self {
            Self::Zeros(0) => Poll::Ready(None),
            Self::Zeros(left) => Poll::Ready(Some(Ok(Frame::data(Zeros(std::mem::take(left)))))),
            Self::Measured(body) => body.as_mut().poll_frame(context),
        }
    }

    /// An empty one, too, ends only when it is read: until then its request is in progress.
    fn is_end_stream(&self) -> bool {
        false
    }
}

/// Zeros that take no space.
pub(super) struct Zeros(usize);

impl Buf for Zeros {
    fn remaining(&self) -> usize {
        self.0
    }

    fn chunk(&self) -> &[u8] {
        const SOME: &[u8] = &[0; 64];
        &SOME[..self.0.min(SOME.len())]
    }

    fn advance(&mut self, count: usize) {
        self.0 -= count;
    }
}
