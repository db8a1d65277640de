//! The task of a node: broadcasts once an interval and receives in between.

use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ratelimit_core::Timer;

use super::store::Replicated;
use super::transport::Transport;

impl<T: Transport> Replicated<T> {
    /// Receives messages forever, and broadcasts immediately and then each time `interval` has passed. Spawn this as a
    /// task. After an error it tries again.
    pub async fn run<C: Timer>(&self, clock: C, interval: Duration) {
        let broadcast = async {
            loop {
                let _ = self.broadcast(clock.now()).await;
                clock.sleep(interval).await;
            }
        };
        let (mut listen, mut broadcast) = (pin!(self.listen(&clock)), pin!(broadcast));
        poll_fn(|context| -> Poll<()> {
            let _: Poll<()> = broadcast.as_mut().poll(context);
            let _: Poll<()> = listen.as_mut().poll(context);
            Poll::Pending
        })
        .await;
    }
}
