//! Slices on their way to the server: those that wait for a connection share the next statement.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use ratelimit_core::{Answer, Crowd, ErrorKind};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use crate::error::Failure;
use crate::link::Link;
use crate::take::{Take, are_plain};
use crate::wire::{self, Slice};

/// How many claims of different callers are put into one statement.
const TOGETHER: usize = 128;

/// How many may wait for the statement that is under way before a second connection is used; four times as many before a
/// third, and so on. Fewer, larger statements are cheaper for the server than many at once, but with one alone it would be
/// idle while answers are handed out.
const PATIENT: usize = 8;

/// While there are lately no more callers than this, each has a statement and a connection of its own: few of them lose more time
/// by waiting for one another than the server saves.
const FEW: usize = 4;

/// How long a slice waits for the statements that are under way if fewer wait: they may be held up by somebody's lock.
const PATIENCE: Duration = Duration::from_millis(2);

/// How long after its deadline a slice waits to be told why it has no answer: whoever carries it gives up at the deadline, and
/// knows whether it was sent.
const GRACE: Duration = Duration::from_millis(10);

type Answers = Vec<Result<Answer, Failure>>;

/// Where slices wait.
#[derive(Debug)]
pub(crate) struct Queue {
    link: Arc<Link>,
    state: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// Those that can go the short way, and the others: one of these would take all of a statement along.
    plain: VecDeque<Job>,
    mixed: VecDeque<Job>,
    workers: usize,
    crowd: Crowd,
}

impl Waiting {
    fn len(&self) -> usize {
        self.plain.len() + self.mixed.len()
    }

    /// How many may wait before there is one worker more.
    fn patience(&self) -> usize {
        match u32::try_from(self.workers) {
            _ if self.crowd.size() <= FEW => 0,
            Ok(0) => 0,
            Ok(workers) => PATIENT.saturating_mul(4_usize.saturating_pow(workers - 1)),
            Err(_) => usize::MAX,
        }
    }

    /// The queue whose first has waited for longer.
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
        let _presence = Presence(self);
        if let Some(worker) = self.push(Job { slices, deadline, sent: sent.clone(), reply }) {
            worker.begin(&sent).await;
        }
        let mut result = timeout(PATIENCE.min(self.link.timeout()), &mut answer).await;
        if result.is_err() {
            if !sent.load(Ordering::SeqCst)
                && let Some(worker) = self.add_worker(self.state())
            {
                tokio::spawn(worker.work());
            }
            result = timeout_at(deadline + GRACE, &mut answer).await;
        }
        match result {
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

    /// A worker if there has to be one more.
    fn push(self: &Arc<Self>, job: Job) -> Option<Worker> {
        let mut state = self.state();
        state.crowd.come();
        if are_plain(&job.slices) {
            state.plain.push_back(job);
        } else {
            state.mixed.push_back(job);
        }
        if state.len() > state.patience() { self.add_worker(state) } else { None }
    }

    fn add_worker(self: &Arc<Self>, mut state: MutexGuard<'_, Waiting>) -> Option<Worker> {
        let few = state.workers < self.link.config().connections.max(1);
        few.then(|| {
            state.workers += 1;
            Worker { queue: self.clone(), counted: true }
        })
    }

    fn state(&self) -> MutexGuard<'_, Waiting> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A caller who has come; when it goes, whether with an answer or without, it is no longer there.
struct Presence<'a>(&'a Queue);

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        self.0.state().crowd.leave();
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
                state.plain.clear();
                state.mixed.clear();
            }
        }
    }
}

/// A caller's own statement, sent by itself. If the caller goes away, a task takes it over.
struct Errand(Option<Pin<Box<dyn Future<Output = ()> + Send>>>);

impl Future for Errand {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let Some(errand) = &mut self.0 else { return Poll::Ready(()) };
        let polled = errand.as_mut().poll(context);
        if polled.is_ready() {
            self.0 = None;
        }
        polled
    }
}

impl Drop for Errand {
    fn drop(&mut self) {
        if let Some(errand) = self.0.take()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            runtime.spawn(errand);
        }
    }
}

impl Worker {
    /// Sends the first batch and goes on as a task; but what the caller asks for itself, alone, it sends itself: to hand it over
    /// and to be told takes a tenth of the time of a lone call. Others do not depend on whether the caller's future is polled: they
    /// are not in its statement, and it does not hold the only connection.
    ///
    /// `sent` is the mark of the caller's job.
    async fn begin(mut self, sent: &Arc<AtomicBool>) {
        let batch = self.batch();
        if !self.counted {
            return;
        }
        let others = self.queue.link.config().connections > 1;
        let own = others && matches!(batch.as_slice(), [job] if Arc::ptr_eq(&job.sent, sent));
        let first = async move {
            self.send(batch).await;
            let next = self.batch();
            if self.counted {
                tokio::spawn(async move {
                    self.send(next).await;
                    self.work().await;
                });
            }
        };
        if own {
            Errand(Some(Box::pin(first))).await;
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

    /// The jobs of the next statement, in their order, without those that nobody waits for any more.
    ///
    /// If none waits, this worker no longer counts: seen and done under one lock, so that no job is left behind.
    fn batch(&mut self) -> Vec<Job> {
        let mut state = self.queue.state();
        let (mut batch, mut claims) = (Vec::new(), 0);
        let mut jobs = state.next();
        loop {
            let Some(job) = jobs.front() else {
                // All of them may have been given up.
                if batch.is_empty() && state.len() > 0 {
                    jobs = state.next();
                    continue;
                }
                break;
            };
            claims += job.slices.iter().map(Slice::len).sum::<usize>();
            if claims > TOGETHER && !batch.is_empty() {
                break;
            }
            let Some(job) = jobs.pop_front() else {
                break;
            };
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

    async fn send(&self, mut batch: Vec<Job>) {
        let link = &self.queue.link;
        let Some(deadline) = batch.iter().map(|job| job.deadline).max() else {
            return;
        };
        // Without a connection nothing is sent, and so nothing charged.
        if let Err(failure) = link.ready(deadline).await {
            for job in batch {
                let _ = job.reply.send(Err(failure.clone()));
            }
            return;
        }
        // First marked, then looked at: who has given up an unmarked job was told that it is not sent.
        batch.iter().for_each(|job| job.sent.store(true, Ordering::SeqCst));
        batch.retain(|job| !job.reply.is_closed());
        if batch.is_empty() {
            return;
        }
        let slices: Vec<Slice> = batch.iter().flat_map(|job| job.slices.iter().cloned()).collect();
        match decide(link, &slices, deadline).await {
            Ok(answers) => {
                let mut answers = answers.into_iter();
                for job in batch {
                    let own = answers.by_ref().take(job.slices.len()).collect();
                    // Who has dropped the other end does not want to know.
                    let _ = job.reply.send(Ok(own));
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

/// Decides slices in one statement; in a second one those that the short way left open.
async fn decide(link: &Link, slices: &[Slice], deadline: Instant) -> Result<Answers, Failure> {
    let Some(take) = Take::new(slices, link.config()) else {
        return Ok(decide_long(link, slices, deadline).await);
    };
    let answers = match link.run(&take.call(link.config()), deadline).await {
        Ok(reply) => take.answers(reply)?,
        Err(failure) if failure.is_undone() => vec![None; slices.len()],
        Err(failure) => return Err(failure),
    };
    let open = slices.iter().zip(&answers).filter(|(_, answer)| answer.is_none());
    let open: Vec<Slice> = open.map(|(slice, _)| slice.clone()).collect();
    if open.is_empty() {
        return Ok(answers.into_iter().flatten().collect());
    }
    let mut rest = decide_long(link, &open, deadline).await.into_iter();
    let mut late = || rest.next().unwrap_or_else(|| Err(Failure::strange_reply()));
    Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(&mut late)).collect())
}

async fn decide_long(link: &Link, slices: &[Slice], deadline: Instant) -> Answers {
    match decide_together(link, slices, deadline).await {
        Ok(answers) => answers,
        // A row that makes the whole statement fail is the fault of one of them: nothing was charged, so one by one.
        Err(failure) if failure.kind == ErrorKind::Corrupt && slices.len() > 1 => {
            let mut answers = Vec::with_capacity(slices.len());
            for slice in slices {
                let answer = decide_together(link, std::slice::from_ref(slice), deadline).await;
                answers
                    .push(answer.and_then(|mut answer| {
                        answer.pop().unwrap_or_else(|| Err(Failure::strange_reply()))
                    }));
            }
            answers
        }
        Err(failure) => vec![Err(failure); slices.len()],
    }
}

async fn decide_together(link: &Link, slices: &[Slice], deadline: Instant) -> Result<Answers, Failure> {
    let reply = link.run(&wire::claim_call(slices, link.config()), deadline).await?;
    wire::answers(slices, &reply.numbers()?)
}
