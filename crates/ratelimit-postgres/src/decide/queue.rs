//! The queue of slices for the server: slices that wait for a connection share the next statement.
//!
//! [`Batched`](ratelimit_core::layers::Batched) would not do: here the number of statements at once grows with the number of
//! callers that wait, slices for the fast path are not mixed with others, and the caller of a lone slice polls its statement
//! itself, which saves a tenth of the time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, fence};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ratelimit_core::kit::{RecentPeak, RunToEnd, halfway_to};
use ratelimit_core::store::Answer;
use ratelimit_core::{ErrorKind, StoreError};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::decide::fast_path::{FastPath, are_plain};
use crate::error::{self, ERRORS};
use crate::servers::link::Link;
use crate::wire::claims::OwnedClaims;
use crate::wire::codec;

/// The maximum number of claims in a shared statement.
const TOGETHER: usize = 128;

/// How many callers may wait for the statement under way before a second connection is used; four times as many before a
/// third, and so on. Fewer, larger statements are cheaper for the server than many concurrent ones, but with only one the
/// server would be idle while answers are handed out.
const WAITING_PER_WORKER: usize = 8;

/// With no more concurrent callers than this, each has its own statement and connection: so few callers lose more time by
/// waiting for each other than the server saves.
const FEW: usize = 4;

/// How long a slice waits for the statements under way before another connection is used for it, even if only few slices
/// wait: those statements may be blocked by a lock.
const MAX_WAIT: Duration = Duration::from_millis(2);

/// How long after its deadline a slice waits for the reason why it has no answer: the worker gives up at the deadline, and
/// knows whether the slice was sent.
const GRACE: Duration = Duration::from_millis(10);

type Answers = Vec<Result<Answer, StoreError>>;

/// The queue.
#[derive(Debug)]
pub(crate) struct Queue {
    link: Arc<Link>,
    state: Mutex<Waiting>,
    /// How many batches are polled by their callers.
    lent: AtomicUsize,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Slices for the fast path.
    plain: VecDeque<Job>,
    /// The others. They have their own queue, because one of them would put a whole statement on the general path.
    mixed: VecDeque<Job>,
    workers: usize,
    callers: RecentPeak,
}

impl Waiting {
    fn len(&self) -> usize {
        self.plain.len() + self.mixed.len()
    }

    /// How many jobs may wait before another worker is added.
    fn may_wait(&self) -> usize {
        match u32::try_from(self.workers) {
            _ if self.callers.get() <= FEW => 0,
            Ok(0) => 0,
            Ok(workers) => WAITING_PER_WORKER.saturating_mul(4_usize.saturating_pow(workers - 1)),
            Err(_) => usize::MAX,
        }
    }

    /// The queue whose first job has waited longer.
    fn next(&mut self) -> &mut VecDeque<Job> {
        match (self.plain.front(), self.mixed.front()) {
            (Some(plain), Some(mixed)) if mixed.deadline < plain.deadline => &mut self.mixed,
            (None, _) => &mut self.mixed,
            _ => &mut self.plain,
        }
    }
}

/// The slices of one caller.
#[derive(Debug)]
struct Job {
    slices: Vec<OwnedClaims>,
    deadline: Instant,
    progress: Arc<Progress>,
    reply: oneshot::Sender<Result<Answers, StoreError>>,
}

/// What has become of a job.
#[derive(Debug, Default)]
struct Progress {
    /// It belongs to the batch of a worker.
    taken: AtomicBool,
    /// It was sent, or is about to be.
    sent: AtomicBool,
}

impl Queue {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, state: Mutex::default(), lent: AtomicUsize::new(0) }
    }

    /// The answers to these slices, which stay together and in their order.
    ///
    /// Once they are sent, the future may be dropped: the statement runs to its end, and the connection stays usable.
    pub(crate) async fn claim(self: &Arc<Self>, slices: Vec<OwnedClaims>) -> Result<Answers, StoreError> {
        let deadline = self.link.deadline();
        let progress = Arc::new(Progress::default());
        let (reply, mut answer) = oneshot::channel();
        let _presence = CountedCaller(self);
        if let Some(worker) = self.push(Job { slices, deadline, progress: progress.clone(), reply }) {
            worker.begin(&progress).await;
        }
        let mut result = timeout(MAX_WAIT.min(self.link.config().timeout), &mut answer).await;
        if result.is_err() {
            if !progress.taken.load(Ordering::SeqCst)
                && let Some(worker) = self.add_worker(self.state())
            {
                tokio::spawn(worker.work());
            }
            // Above capacity, those who are sent have waited for as long as anybody may. Were that the whole time limit, nobody
            // would be left to take the answer.
            result = timeout_at(halfway_to(deadline), &mut answer).await;
            if result.is_err() && progress.taken.load(Ordering::SeqCst) {
                result = timeout_at(deadline + GRACE, &mut answer).await;
            }
        }
        match result {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => Err(ERRORS.stopped().maybe_applied()),
            Err(_) => {
                // A worker marks a job before it checks whether the caller still waits: after this, "not sent" stays true.
                answer.close();
                fence(Ordering::SeqCst);
                let late = if progress.sent.load(Ordering::SeqCst) {
                    ERRORS.late()
                } else if progress.taken.load(Ordering::SeqCst) {
                    ERRORS.late().not_applied()
                } else {
                    let message = "the check was not sent in time: too many checks were waiting";
                    ERRORS.of(ErrorKind::Timeout, message)
                };
                Err(late.at(self.link.address()))
            }
        }
    }

    /// Adds a job; returns a worker if another one is needed.
    fn push(self: &Arc<Self>, job: Job) -> Option<Worker> {
        let mut state = self.state();
        state.callers.enter();
        if are_plain(&job.slices) {
            state.plain.push_back(job);
        } else {
            state.mixed.push_back(job);
        }
        if state.len() > state.may_wait() { self.add_worker(state) } else { None }
    }

    fn add_worker(self: &Arc<Self>, mut state: MutexGuard<'_, Waiting>) -> Option<Worker> {
        let few = state.workers < self.link.connections();
        few.then(|| {
            state.workers += 1;
            Worker { queue: self.clone(), counted: true }
        })
    }

    /// Permits a caller to poll its batch unless it would then hold the last connection that does not depend on a caller.
    fn lend(self: &Arc<Self>) -> Option<Lent> {
        let more = |lent| (lent + 1 < self.link.connections()).then_some(lent + 1);
        let lent = self.lent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        lent.is_ok().then(|| Lent(self.clone()))
    }

    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Counts a caller until it is dropped, with or without an answer.
struct CountedCaller<'a>(&'a Queue);

impl Drop for CountedCaller<'_> {
    fn drop(&mut self) {
        self.0.state().callers.leave();
    }
}

/// A batch that its caller polls.
struct Lent(Arc<Queue>);

impl Drop for Lent {
    fn drop(&mut self) {
        self.0.lent.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Sends waiting jobs until there are none.
struct Worker {
    queue: Arc<Queue>,
    counted: bool,
}

impl Drop for Worker {
    /// The runtime shut down during the work. Without another worker, the waiting callers would never get an answer.
    fn drop(&mut self) {
        if self.counted {
            let mut state = self.queue.state();
            state.workers -= 1;
            if state.workers == 0 {
                state.plain.clear();
                state.mixed.clear();
            }
        }
    }
}

impl Worker {
    /// Sends the first batch and continues as a task. But a batch that contains only the caller's own job is polled by the
    /// caller: handing it over and waking up takes a tenth of the time of a lone call. Others do not depend on whether the
    /// caller's future is polled: their jobs are not in its statement, and one connection is left for them.
    ///
    /// `progress` is that of the caller's job.
    async fn begin(mut self, progress: &Arc<Progress>) {
        let batch = self.batch();
        if !self.counted {
            return;
        }
        let is_alone = matches!(batch.as_slice(), [job] if Arc::ptr_eq(&job.progress, progress));
        let lent = if is_alone { self.queue.lend() } else { None };
        let is_lent = lent.is_some();
        let first = async move {
            let _lent = lent;
            self.send(batch).await;
            let next = self.batch();
            if self.counted {
                tokio::spawn(async move {
                    self.send(next).await;
                    self.work().await;
                });
            }
        };
        if is_lent {
            RunToEnd::new(first).await;
        } else {
            tokio::spawn(first);
        }
    }

    async fn work(mut self) {
        loop {
            let batch = self.batch();
            if !self.counted {
                return;
            }
            self.send(batch).await;
        }
    }

    /// The jobs of the next statement, in their order, without abandoned ones.
    ///
    /// If there are none, this worker ends, and no longer counts as one. Both happen under one lock, so that no job is left
    /// behind.
    fn batch(&mut self) -> Vec<Job> {
        let mut state = self.queue.state();
        let (mut batch, mut claims) = (Vec::new(), 0);
        // All jobs of a queue may have been abandoned.
        while batch.is_empty() && state.len() > 0 {
            let jobs = state.next();
            while let Some(job) = jobs.pop_front_if(|job| {
                claims += job.slices.iter().map(|slice| slice.claims.len()).sum::<usize>();
                batch.is_empty() || claims <= TOGETHER
            }) {
                job.progress.taken.store(true, Ordering::SeqCst);
                if !job.reply.is_closed() {
                    batch.push(job);
                }
            }
        }
        if batch.is_empty() {
            state.workers -= 1;
            self.counted = false;
        }
        batch
    }

    async fn send(&self, mut batch: Vec<Job>) {
        let link = &self.queue.link;
        let Some(deadline) = batch.iter().map(|job| job.deadline).max() else {
            return;
        };
        // Without a connection nothing is sent, so nothing is charged.
        if let Err(failure) = link.ready(deadline).await {
            for job in batch {
                let _ = job.reply.send(Err(failure.clone()));
            }
            return;
        }
        // Marks the jobs before it drops abandoned ones: a caller that gives up an unmarked job reports it as not sent.
        batch.iter().for_each(|job| job.progress.sent.store(true, Ordering::SeqCst));
        fence(Ordering::SeqCst);
        batch.retain(|job| !job.reply.is_closed());
        if batch.is_empty() {
            return;
        }
        let slices: Vec<OwnedClaims> = batch.iter().flat_map(|job| job.slices.iter().cloned()).collect();
        match decide(link, &slices, deadline).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for job in batch {
                    let of_job = answers.by_ref().take(job.slices.len()).collect();
                    // A dropped receiver is ignored.
                    let _ = job.reply.send(Ok(of_job));
                }
            }
            Err(failure) => {
                for job in batch {
                    let _ = job.reply.send(Err(failure.clone()));
                }
            }
        }
    }
}

/// Decides slices in one statement, and in a second one those that the fast path left open.
async fn decide(link: &Link, slices: &[OwnedClaims], deadline: Instant) -> Result<Answers, StoreError> {
    let Some(take) = FastPath::new(slices, link.config()) else {
        return Ok(decide_long(link, slices, deadline).await);
    };
    let answers = match link.run(&take.call(link.config()), deadline).await {
        Ok(reply) => take.answers(reply)?,
        Err(error) if error::is_undone(&error) => vec![None; slices.len()],
        Err(failure) => return Err(failure),
    };
    let open = slices.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
    let open: Vec<OwnedClaims> = open.map(|(slice, _)| slice.clone()).collect();
    if open.is_empty() {
        return Ok(answers.into_iter().flatten().collect());
    }
    let mut rest = decide_long(link, &open, deadline).await.into_iter();
    let mut late = || rest.next().unwrap_or_else(|| Err(error::strange_reply()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(&mut late)).collect())
}

async fn decide_long(link: &Link, slices: &[OwnedClaims], deadline: Instant) -> Answers {
    match decide_together(link, slices, deadline).await {
        Ok(answers) => answers,
        // One of the rows makes the whole statement fail. Nothing was charged, so decides the slices one by one.
        Err(failure) if failure.kind() == ErrorKind::Corrupt && slices.len() > 1 => {
            let mut answers = Vec::with_capacity(slices.len());
            for slice in slices {
                let answer = decide_together(link, std::slice::from_ref(slice), deadline).await;
                answers.push(
                    answer.and_then(|mut answer| answer.pop().unwrap_or_else(|| Err(error::strange_reply()))),
                );
            }
            answers
        }
        Err(failure) => vec![Err(failure); slices.len()],
    }
}

async fn decide_together(
    link: &Link,
    slices: &[OwnedClaims],
    deadline: Instant,
) -> Result<Answers, StoreError> {
    let (numbers,): (Vec<i64>,) = link.run(&codec::claim_call(slices, link.config()), deadline).await?;
    codec::answers(slices, &numbers)
}
