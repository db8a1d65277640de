//! Slices on their way to the server: those that wait for a connection share the next statement.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ratelimit_core::{Answer, ErrorKind};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use crate::error::Failure;
use crate::link::Link;
use crate::wire::{self, Slice};

/// How many claims of different callers are put into one statement.
const TOGETHER: usize = 128;

type Answers = Vec<Result<Answer, Failure>>;

/// Where slices wait.
#[derive(Debug)]
pub(crate) struct Queue {
    link: Arc<Link>,
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    jobs: VecDeque<Job>,
    workers: usize,
}

/// The slices of one caller.
#[derive(Debug)]
struct Job {
    slices: Vec<Slice>,
    deadline: Instant,
    sent: Arc<AtomicBool>,
    reply: oneshot::Sender<Result<Answers, Failure>>,
}

impl Queue {
    pub(crate) fn new(link: Arc<Link>) -> Self {
        Self { link, state: Mutex::default() }
    }

    /// The answers to these slices, which stay together and in their order.
    ///
    /// Once they are on their way the future may be dropped: the statement runs to its end, and the connection stays good.
    pub(crate) async fn claim(self: &Arc<Self>, slices: Vec<Slice>) -> Result<Answers, Failure> {
        let deadline = Instant::now() + self.link.timeout();
        let sent = Arc::new(AtomicBool::new(false));
        let (reply, mut answer) = oneshot::channel();
        self.push(Job { slices, deadline, sent: sent.clone(), reply });
        match timeout_at(deadline, &mut answer).await {
            Ok(Ok(answers)) => answers,
            Ok(Err(_)) => {
                Err(Failure::new(ErrorKind::Unreachable, "the runtime is shutting down").maybe_applied())
            }
            Err(_) => {
                // A worker marks a job before it looks whether anybody waits: after this, "not sent" stays true.
                answer.close();
                let failure = Failure::new(ErrorKind::Timeout, "no answer within the time limit");
                let failure = failure.at(self.link.address());
                Err(if sent.load(Ordering::SeqCst) { failure.maybe_applied() } else { failure })
            }
        }
    }

    fn push(self: &Arc<Self>, job: Job) {
        let mut state = self.state();
        state.jobs.push_back(job);
        if state.workers < self.link.config().connections.max(1) {
            state.workers += 1;
            let worker = Worker { queue: self.clone(), counted: true };
            drop(state);
            tokio::spawn(worker.work());
        }
    }

    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Sends what waits until nothing does.
struct Worker {
    queue: Arc<Queue>,
    counted: bool,
}

impl Drop for Worker {
    /// The runtime ended in the middle of the work. If nobody else works, those who wait would wait in vain.
    fn drop(&mut self) {
        if self.counted {
            let mut state = self.queue.state();
            state.workers -= 1;
            if state.workers == 0 {
                state.jobs.clear();
            }
        }
    }
}

impl Worker {
    async fn work(mut self) {
        loop {
            let batch = self.batch();
            if !self.counted {
                return;
            }
            self.send(batch).await;
        }
    }

    /// The jobs of the next statement, in their order, without those that nobody waits for any more.
    ///
    /// If none waits, this worker no longer counts: seen and done under one lock, so that no job is left behind.
    fn batch(&mut self) -> Vec<Job> {
        let mut state = self.queue.state();
        let (mut batch, mut claims) = (Vec::new(), 0);
        while let Some(job) = state.jobs.front() {
            claims += job.slices.iter().map(Slice::len).sum::<usize>();
            if claims > TOGETHER && !batch.is_empty() {
                break;
            }
            let Some(job) = state.jobs.pop_front() else {
                break;
            };
            job.sent.store(true, Ordering::SeqCst);
            if !job.reply.is_closed() {
                batch.push(job);
            }
        }
        if batch.is_empty() {
            state.workers -= 1;
            self.counted = false;
        }
        batch
    }

    async fn send(&self, batch: Vec<Job>) {
        let link = &self.queue.link;
        let Some(deadline) = batch.iter().map(|job| job.deadline).max() else {
            return;
        };
        let slices: Vec<Slice> = batch.iter().flat_map(|job| job.slices.iter().cloned()).collect();
        let result = match link.run(&wire::claim_call(&slices, link.config()), deadline).await {
            Ok(numbers) => wire::answers(&slices, &numbers),
            Err(failure) => Err(failure),
        };
        let alone = batch.len() == 1;
        match result {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for job in batch {
                    let own = answers.by_ref().take(job.slices.len()).collect();
                    // Who has dropped the other end does not want to know.
                    let _ = job.reply.send(Ok(own));
                }
            }
            // A row that makes the whole statement fail is the fault of one of them: nothing was charged, so one by one.
            Err(failure) if failure.kind == ErrorKind::Corrupt && !alone => {
                for job in batch {
                    Box::pin(self.send(vec![job])).await;
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
