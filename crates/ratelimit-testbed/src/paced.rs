//! Calls at a steady pace, whether or not earlier ones have ended, and trials that a busy machine does not fail.

use std::time::Duration;

use tokio::time::interval;

/// How slowly a trial runs, in turn.
const SCALES: [u32; 4] = [1, 2, 4, 8];

/// Runs a trial with all of its times multiplied by 1, and if it fails by 2, 4 and 8: a busy machine adds delays of its own,
/// which matter less the slower everything else is. A store that behaves wrongly fails at each of them.
///
/// # Panics
/// If all of them fail.
pub async fn at_some_scale(trial: impl AsyncFn(u32) -> Result<(), String>) {
    let mut failures = Vec::new();
    for scale in SCALES {
        match trial(scale).await {
            Ok(()) => return,
            Err(failure) => {
                println!("at scale {scale}: {failure}");
                failures.push(failure);
            }
        }
    }
    panic!("at all scales: {failures:#?}");
}

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
