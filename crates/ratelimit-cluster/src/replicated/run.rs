//! The task of a node: broadcasts once an interval and receives in between.

use std::time::Duration;

use futures_util::future::join;
use ratelimit_core::clock::Timer;

use super::store::Replicated;
use super::transport::Transport;

impl<T: Transport> Replicated<T> {
    /// Receives messages forever, and broadcasts immediately and then each time `interval` has passed. Spawn this as a
    /// task. After an error it tries again; [`outage`](Self::outage) shows the error.
    pub async fn run<C: Timer>(&self, clock: C, interval: Duration) {
        let broadcast = async {
            loop {
                let _ = self.broadcast(clock.now()).await;
                clock.sleep(interval).await;
            }
        };
        join(broadcast, self.listen(&clock)).await;
    }
}
