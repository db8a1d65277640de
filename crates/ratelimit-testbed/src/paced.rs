//! Calls at a steady pace, whether or not earlier ones have ended.

use std::time::Duration;

use tokio::time::interval;

/// Begins `number` calls, one each time `pace` has passed, as tasks. Returns their outputs in the order in which they began.
///
/// # Panics
/// If a call panics.
pub async fn paced<F>(pace: Duration, number: usize, mut call: impl FnMut() -> F) -> Vec<F::Output>
where
    F: Future<Output: Send + 'static> + Send + 'static,
{
    let (mut pace, mut calls) = (interval(pace), Vec::with_capacity(number));
    for _ in 0..number {
        pace.tick().await;
        calls.push(tokio::spawn(call()));
    }
    let mut outputs = Vec::with_capacity(number);
    for call in calls {
        outputs.push(call.await.unwrap_or_else(|error| panic!("{error}")));
    }
    outputs
}
