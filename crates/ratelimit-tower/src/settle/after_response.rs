//! Settles a request when its response's body has ended, or when [`within`](crate::Settle::within) is over.

use std::mem;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use http::response::Parts;
use http::{HeaderMap, Response};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

use super::pending::Pending;
use super::true_costs::NotSettled;
use crate::measured::Watch;
use crate::true_cost::Source;
use crate::{End, lock, observe};

/// A request whose response is being sent.
struct Sending {
    pending: Arc<Pending>,
    /// The checks that are not settled yet. The code that removes one settles it.
    open: Mutex<NotSettled>,
    /// The head of the response, if a function needs it when the body has ended; otherwise an empty one.
    head: Parts,
    trailers: OnceLock<HeaderMap>,
    /// The task that settles when the time to do so is over.
    waiting: OnceLock<AbortHandle>,
    runtime: Option<Handle>,
}

/// Observes the body of this response, and settles the checks in `open`.
pub(super) fn watch(pending: &Arc<Pending>, head: &Parts, open: NotSettled) -> Box<dyn Watch> {
    let settles = || open.iter().filter_map(|place| pending.settles(*place));
    let is_function = settles().any(|settle| matches!(settle.source, Source::Function(_)));
    let mut times: Vec<Duration> = settles().filter_map(|settle| settle.within).collect();
    times.sort_unstable();
    times.dedup();
    let sending = Arc::new(Sending {
        pending: pending.clone(),
        head: if is_function { head.clone() } else { Response::new(()).into_parts().0 },
        open: Mutex::new(open),
        trailers: OnceLock::new(),
        waiting: OnceLock::new(),
        runtime: Handle::try_current().ok(),
    });
    if !times.is_empty() {
        wait(&sending, times);
    }
    Box::new(SendingBody(sending))
}

/// Spawns a task that settles, after each of these times, the checks whose time is over and that are not settled yet.
fn wait(sending: &Arc<Sending>, times: Vec<Duration>) {
    let Some(runtime) = &sending.runtime else {
        observe::unsettled(&"there is no tokio runtime: the time in which to settle is not observed");
        return;
    };
    let in_task = sending.clone();
    let task = runtime.spawn(async move {
        let mut waited = Duration::ZERO;
        for time in times {
            in_task.pending.limiter.sleep(time.saturating_sub(waited)).await;
            waited = time;
            in_task.time_out(time);
        }
    });
    let _ = sending.waiting.set(task.abort_handle());
}

impl Sending {
    fn time_out(&self, time: Duration) {
        let is_over = |place: &usize| {
            let within = self.pending.settles(*place).and_then(|settle| settle.within);
            within.is_some_and(|within| within <= time)
        };
        let over: NotSettled = {
            let mut open = lock(&self.open);
            let (over, rest) = mem::take(&mut *open).into_iter().partition(is_over);
            *open = rest;
            over
        };
        let costs = self.pending.at_time_out(&over);
        self.pending.clone().settle_apart(costs, self.runtime.as_ref());
    }
}

/// The part that the body owns.
struct SendingBody(Arc<Sending>);

impl Watch for SendingBody {
    fn data(&self, bytes: u64) {
        self.0.pending.response_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    fn trailers(&self, trailers: &HeaderMap) {
        let _ = self.0.trailers.set(trailers.clone());
    }

    fn end(&self, complete: bool) {
        let sending = &*self.0;
        if !complete {
            sending.pending.is_cut_short();
        }
        let open = mem::take(&mut *lock(&sending.open));
        // Settlements that it has started continue on tasks of their own.
        if let Some(waiting) = sending.waiting.get() {
            waiting.abort();
        }
        let end = End {
            status: sending.head.status,
            headers: &sending.head.headers,
            extensions: &sending.head.extensions,
            trailers: sending.trailers.get(),
            response_bytes: sending.pending.response_bytes.load(Ordering::Relaxed),
            elapsed: sending.pending.elapsed(),
            complete,
        };
        let costs = sending.pending.at_end(&open, &end);
        sending.pending.clone().settle_apart(costs, sending.runtime.as_ref());
    }
}
