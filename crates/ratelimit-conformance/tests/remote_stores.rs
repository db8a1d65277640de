//! The cases about round trips and failures, on correct and broken stores behind a real socket.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ratelimit_conformance::{BoxError, Outcome, ReferenceStore, Server, Space, Subject, Suite};
use ratelimit_core::meter::Meter;
use ratelimit_core::store::Applied;
use ratelimit_core::store::{Answer, Claim, Claims, Decisions, Mode, Promises, Refund};
use ratelimit_core::{CounterStore, DynCounterStore, ErrorKind, StoreError, Timestamp};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Mutex, oneshot, watch};
use tokio::task::{JoinHandle, JoinSet};

/// The bug of a remote store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// Peeks first, then charges.
    TwoTrips,
    /// Declares exact decisions, but takes the second round trips of a conservative store.
    AsConservative,
    /// Takes one round trip more than a conservative store may, for these calls.
    OneMore(Call),
    /// Sends a batch slice by slice.
    TripForEachSlice,
    /// Sends a batch in parts of a hundred slices.
    TripForEachHundred,
    /// Repeats the second half of a large batch without an answer.
    RepeatsLargeBatches,
    /// Has no time limit.
    Patient,
    /// Never reconnects.
    GivesUp,
    /// Admits claims that it cannot send.
    FailsOpen,
    /// Connects for each claim.
    ConnectsAnew,
    /// Reports a claim without an answer as not charged.
    SureOfNothing,
    /// Repeats a call without an answer.
    AppliesTwice,
    /// Reports a call without an answer as not executed.
    DeniesApplied,
    /// Treats a missing answer as an admission or a success.
    TakesSilenceForYes,
    /// Answers a batch that it cannot send with one error.
    OneErrorForAll,
    /// Does nothing, and says so to nobody, if it cannot send a refund or a reset.
    ForgivesWithoutServer,
    /// Reads, then writes what it has decided on, whatever others have written in between.
    LostUpdates,
}

/// The kinds of call, by their round trips.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    Window,
    Bucket,
    Refusal,
    Peek,
    Refund,
    Reset,
}

/// A server that echoes each eight bytes. The meters are outside of it: a claim only needs the round trip.
struct Echo {
    address: SocketAddr,
    frozen: watch::Sender<bool>,
    running: Mutex<Option<Running>>,
}

/// Ends on request, with all of its connections.
struct Running {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl Echo {
    async fn new() -> Result<Self, BoxError> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let echo = Self {
            address: listener.local_addr()?,
            frozen: watch::Sender::new(false),
            running: Mutex::default(),
        };
        echo.serve(listener).await;
        Ok(echo)
    }

    async fn serve(&self, listener: TcpListener) {
        let frozen = self.frozen.subscribe();
        let (stop, mut stopped) = oneshot::channel();
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Some(Ok((connection, _))) = tokio::select! {
                accepted = listener.accept() => Some(accepted),
                _ = &mut stopped => None,
            } {
                connections.spawn(echo(connection, frozen.clone()));
            }
            drop(listener);
            // A running task would answer once more.
            connections.shutdown().await;
        });
        *self.running.lock().await = Some(Running { stop, task });
    }
}

async fn echo(mut connection: TcpStream, mut frozen: watch::Receiver<bool>) -> Option<()> {
    let mut word = [0; 8];
    loop {
        connection.read_exact(&mut word).await.ok()?;
        frozen.wait_for(|frozen| !frozen).await.ok()?;
        connection.write_all(&word).await.ok()?;
    }
}

#[async_trait]
impl Server for Echo {
    async fn kill(&self) -> Result<(), BoxError> {
        if let Some(Running { stop, task }) = self.running.lock().await.take() {
            let _ = stop.send(());
            task.await?;
        }
        self.frozen.send_replace(false);
        Ok(())
    }

    async fn start(&self) -> Result<(), BoxError> {
        self.serve(TcpListener::bind(self.address).await?).await;
        Ok(())
    }

    async fn freeze(&self) -> Result<(), BoxError> {
        self.frozen.send_replace(true);
        Ok(())
    }

    async fn thaw(&self) -> Result<(), BoxError> {
        self.frozen.send_replace(false);
        Ok(())
    }
}

#[derive(Debug)]
struct Wire {
    flaw: Flaw,
    decisions: Decisions,
    address: SocketAddr,
    connection: Mutex<Option<TcpStream>>,
    meters: Arc<ReferenceStore>,
}

impl Wire {
    async fn exchange(&self) -> std::io::Result<()> {
        let mut connection = self.connection.lock().await;
        // Takes the connection out: an abandoned round trip must not leave its answer to the next one.
        let held = if self.flaw == Flaw::ConnectsAnew { None } else { connection.take() };
        let mut stream = match held {
            Some(stream) => stream,
            None if self.flaw == Flaw::GivesUp => return Err(std::io::ErrorKind::NotConnected.into()),
            None => TcpStream::connect(self.address).await?,
        };
        stream.write_all(&[7; 8]).await?;
        stream.read_exact(&mut [0; 8]).await?;
        *connection = Some(stream);
        Ok(())
    }

    /// Whether a call takes effect on the server before its answer is lost, like on most stores.
    fn applies_first(&self) -> bool {
        matches!(self.flaw, Flaw::AppliesTwice | Flaw::DeniesApplied)
    }

    /// Waits for the answer to a call. If it does not come, the call is repeated, or the error denies it.
    async fn is_again(&self) -> Result<bool, StoreError> {
        match self.trip().await {
            Ok(()) => Ok(false),
            Err(_) if self.flaw == Flaw::AppliesTwice => Ok(true),
            Err(error) => Err(error.not_applied()),
        }
    }

    /// The further round trips of a store without arithmetic on its server.
    async fn further(&self, call: Call) -> Result<(), StoreError> {
        if self.decisions != Decisions::Conservative && self.flaw != Flaw::AsConservative {
            return Ok(());
        }
        let needed = matches!(call, Call::Bucket | Call::Refusal | Call::Refund | Call::Reset);
        for _ in 0..u64::from(needed) + u64::from(self.flaw == Flaw::OneMore(call)) {
            self.trip().await?;
        }
        Ok(())
    }

    async fn trip(&self) -> Result<(), StoreError> {
        let wait = Duration::from_secs(if self.flaw == Flaw::Patient { 3_600 } else { 1 });
        let error = |kind| StoreError::new("wire", kind, "no trip").at(self.address.to_string());
        match tokio::time::timeout(wait, self.exchange()).await {
            Ok(Ok(())) => Ok(()),
            Ok(Err(_)) => Err(error(ErrorKind::Unreachable)),
            Err(_) if self.flaw == Flaw::SureOfNothing => Err(error(ErrorKind::Timeout).not_applied()),
            Err(_) => Err(error(ErrorKind::Timeout)),
        }
    }
}

fn is_window(claim: &Claim<'_>) -> bool {
    matches!(claim.meter, Meter::Window(_))
}

fn call_of(claims: &Claims<'_>, answer: &Answer) -> Call {
    match claims.mode() {
        Mode::Peek => Call::Peek,
        Mode::Charge if !answer.admitted => Call::Refusal,
        _ if claims.iter().all(is_window) => Call::Window,
        _ => Call::Bucket,
    }
}

impl CounterStore for Wire {
    fn promises(&self) -> Promises {
        Promises::new(self.decisions, self.meters.promises().time)
    }

    async fn claim(&self, claims: Claims<'_>) -> Result<Answer, StoreError> {
        if self.flaw == Flaw::LostUpdates && claims.mode() == Mode::Charge {
            let read = self.meters.claim(claims.with_mode(Mode::Peek)).await?;
            self.trip().await?;
            if read.admitted {
                let verdict = read.verdicts[0];
                let written =
                    [Claim { cost: verdict.limit - verdict.remaining + claims[0].cost, ..claims[0] }];
                self.meters.reset(claims).await?;
                let written = Claims::new(claims.now(), Mode::Force, &written).expect("one claim");
                return self.meters.claim(written).await;
            }
            return Ok(read);
        }
        if self.flaw == Flaw::TwoTrips {
            self.trip().await?;
        }
        if self.applies_first() {
            let done = self.meters.claim(claims).await;
            return if self.is_again().await? { self.meters.claim(claims).await } else { done };
        }
        match self.trip().await {
            Err(error) if self.flaw == Flaw::FailsOpen && error.applied() == Applied::No => {
                self.meters.claim(claims.with_mode(Mode::Force)).await
            }
            Err(error) if self.flaw != Flaw::TakesSilenceForYes => Err(error),
            Err(_) => {
                let answer = self.meters.claim(claims.with_mode(Mode::Peek)).await?;
                Ok(Answer { admitted: true, ..answer })
            }
            Ok(()) => {
                let foreseen = self.meters.claim(claims.with_mode(Mode::Peek)).await?;
                self.further(call_of(&claims, &foreseen)).await?;
                self.meters.claim(claims).await
            }
        }
    }

    async fn claim_many(&self, slices: &[Claims<'_>]) -> Vec<Result<Answer, StoreError>> {
        if self.flaw == Flaw::RepeatsLargeBatches && slices.len() > 100 {
            let done = self.meters.claim_many(slices).await;
            if self.trip().await.is_err() {
                self.meters.claim_many(&slices[slices.len() / 2..]).await;
            }
            return done;
        }
        let is_second = self.decisions == Decisions::Conservative
            && slices.iter().any(|claims| !claims.iter().all(is_window));
        let trips = match self.flaw {
            Flaw::TripForEachSlice => slices.len(),
            Flaw::TripForEachHundred => slices.len().div_ceil(100),
            _ => 1 + usize::from(is_second),
        };
        for _ in 0..trips {
            if self.applies_first() {
                let done = self.meters.claim_many(slices).await;
                let none = |_: &Claims<'_>| Err(StoreError::new("wire", ErrorKind::Unreachable, "no trip"));
                return match self.is_again().await {
                    Ok(false) => done,
                    Ok(true) => self.meters.claim_many(slices).await,
                    Err(_) => slices.iter().map(none).collect(),
                };
            }
            if self.trip().await.is_err() {
                if self.flaw == Flaw::OneErrorForAll {
                    return vec![Err(StoreError::new("wire", ErrorKind::Unreachable, "no trip"))];
                }
                let late = |_: &Claims<'_>| Err(StoreError::new("wire", ErrorKind::Timeout, "no trip"));
                return slices.iter().map(late).collect();
            }
        }
        self.meters.claim_many(slices).await
    }

    async fn refund(&self, now: Timestamp, refunds: &[Refund<'_>]) -> Result<(), StoreError> {
        if refunds.is_empty() {
            return Ok(());
        }
        if self.applies_first() {
            let done = self.meters.refund(now, refunds).await;
            return if self.is_again().await? { self.meters.refund(now, refunds).await } else { done };
        }
        match self.trip().await {
            Err(_) if self.flaw == Flaw::TakesSilenceForYes => return Ok(()),
            Err(error) if self.flaw == Flaw::ForgivesWithoutServer && error.applied() == Applied::No => {
                return Ok(());
            }
            ended => ended?,
        }
        if refunds.iter().any(|refund| !matches!(refund.meter, Meter::Window(_))) {
            self.further(Call::Refund).await?;
        }
        self.meters.refund(now, refunds).await
    }

    async fn reset(&self, claims: Claims<'_>) -> Result<(), StoreError> {
        if self.applies_first() {
            let done = self.meters.reset(claims).await;
            return if self.is_again().await? { self.meters.reset(claims).await } else { done };
        }
        self.trip().await?;
        if claims.iter().any(is_window) {
            self.further(Call::Reset).await?;
        }
        self.meters.reset(claims).await
    }
}

struct Remote {
    flaw: Flaw,
    decisions: Decisions,
    echo: Arc<Echo>,
}

struct RemoteSpace {
    flaw: Flaw,
    decisions: Decisions,
    echo: Arc<Echo>,
    meters: Arc<ReferenceStore>,
}

#[async_trait]
impl Subject for Remote {
    fn name(&self) -> &str {
        "remote"
    }

    async fn fresh(&self) -> Result<Arc<dyn Space>, BoxError> {
        Ok(Arc::new(RemoteSpace {
            flaw: self.flaw,
            decisions: self.decisions,
            echo: self.echo.clone(),
            meters: Arc::default(),
        }))
    }

    fn server(&self) -> Option<Arc<dyn Server>> {
        Some(self.echo.clone())
    }
}

#[async_trait]
impl Space for RemoteSpace {
    async fn open(&self) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        self.open_at(self.echo.address).await
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.echo.address)
    }

    async fn open_at(&self, address: SocketAddr) -> Result<Arc<dyn DynCounterStore>, BoxError> {
        let connection = Mutex::new(Some(TcpStream::connect(address).await?));
        let meters = self.meters.clone();
        Ok(Arc::new(Wire { flaw: self.flaw, decisions: self.decisions, address, connection, meters }))
    }
}

async fn run(flaw: Flaw, decisions: Decisions, filters: &[&str]) -> Vec<(String, Outcome)> {
    let remote = Remote { flaw, decisions, echo: Arc::new(Echo::new().await.unwrap()) };
    let report = Suite::default().filters(filters.iter().copied()).run(&[Arc::new(remote)]).await;
    assert!(!report.cases.is_empty());
    report.cases.into_iter().map(|case| (case.case, case.outcome)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sound_remote_store_passes_trips_and_failures() {
    for (case, outcome) in run(
        Flaw::None,
        Decisions::Exact,
        &["trips/", "failures/", "cancelled/", "dropped/", "held/", "lost-answers/"],
    )
    .await
    {
        assert_eq!(outcome, Outcome::Passed, "{case}");
    }
}

/// A conservative store may take the second round trip that it needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_sound_conservative_store_passes_trips() {
    for (case, outcome) in run(Flaw::None, Decisions::Conservative, &["trips/"]).await {
        let passed = outcome == Outcome::Passed;
        let reads_the_log = case == "trips/bytes-do-not-grow" && matches!(outcome, Outcome::NotApplicable(_));
        assert!(passed || reads_the_log, "{case}: {outcome:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn broken_remote_stores_are_caught() {
    use Decisions::{Conservative, Exact};
    let expected = [
        (Flaw::TwoTrips, Exact, "trips/one-for-a-claim-fixed"),
        (Flaw::TripForEachSlice, Exact, "trips/one-for-a-batch"),
        (Flaw::TripForEachHundred, Exact, "trips/one-for-a-batch"),
        (Flaw::ConnectsAnew, Exact, "trips/no-connection-for-each"),
        (Flaw::Patient, Exact, "failures/frozen"),
        (Flaw::Patient, Exact, "failures/every-method"),
        (Flaw::GivesUp, Exact, "failures/started-again"),
        (Flaw::OneErrorForAll, Exact, "failures/every-method"),
        (Flaw::ForgivesWithoutServer, Exact, "failures/every-method"),
        (Flaw::LostUpdates, Conservative, "held/next-to-charges"),
        (Flaw::LostUpdates, Conservative, "held/next-to-resets"),
        (Flaw::FailsOpen, Exact, "failures/killed"),
        (Flaw::SureOfNothing, Exact, "failures/frozen"),
        (Flaw::AppliesTwice, Exact, "lost-answers/a-claim"),
        (Flaw::AppliesTwice, Exact, "lost-answers/a-forced-charge"),
        (Flaw::AppliesTwice, Exact, "lost-answers/a-slice"),
        (Flaw::AppliesTwice, Exact, "lost-answers/a-batch"),
        (Flaw::RepeatsLargeBatches, Exact, "lost-answers/a-large-batch"),
        (Flaw::AppliesTwice, Exact, "lost-answers/a-refund"),
        (Flaw::DeniesApplied, Exact, "lost-answers/a-claim"),
        (Flaw::DeniesApplied, Exact, "lost-answers/a-batch"),
        (Flaw::DeniesApplied, Exact, "lost-answers/a-reset"),
        (Flaw::TakesSilenceForYes, Exact, "lost-answers/a-claim"),
        (Flaw::Patient, Exact, "lost-answers/too-late"),
        (Flaw::AppliesTwice, Exact, "lost-answers/too-late"),
        (Flaw::DeniesApplied, Exact, "lost-answers/too-late"),
        (Flaw::TakesSilenceForYes, Exact, "lost-answers/a-refund"),
        // The round trips of a conservative store are one too many for an exact one.
        (Flaw::AsConservative, Exact, "trips/one-for-a-claim-fixed"),
        (Flaw::AsConservative, Exact, "trips/one-for-a-claim-bucket"),
        (Flaw::AsConservative, Exact, "trips/one-for-refund-and-reset"),
        // A conservative store is bounded as well.
        (Flaw::TwoTrips, Conservative, "trips/one-for-a-claim-fixed"),
        (Flaw::TripForEachSlice, Conservative, "trips/one-for-a-batch"),
        (Flaw::OneMore(Call::Window), Conservative, "trips/one-for-three-limits"),
        (Flaw::OneMore(Call::Bucket), Conservative, "trips/one-for-a-claim-log"),
        (Flaw::OneMore(Call::Refusal), Conservative, "trips/one-for-a-claim-sliding"),
        (Flaw::OneMore(Call::Peek), Conservative, "trips/one-for-a-claim-bucket"),
        (Flaw::OneMore(Call::Refund), Conservative, "trips/one-for-refund-and-reset"),
        (Flaw::OneMore(Call::Reset), Conservative, "trips/one-for-refund-and-reset"),
        (Flaw::OneMore(Call::Refund), Conservative, "trips/one-for-refund-and-reset-of-several"),
        (Flaw::AsConservative, Exact, "trips/one-for-refund-and-reset-of-several"),
    ];
    let caught = expected
        .map(|(flaw, decisions, case)| async move { (flaw, decisions, run(flaw, decisions, &[case]).await) });
    for (flaw, decisions, cases) in futures::future::join_all(caught).await {
        for (case, outcome) in cases {
            println!("{flaw:?} {decisions:?} {case}: {outcome:?}");
            assert!(
                matches!(outcome, Outcome::Failed(_)),
                "{flaw:?}, {decisions:?}, is not caught by {case}: {outcome:?}"
            );
        }
    }
}
