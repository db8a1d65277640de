//! A case: its name, what it tests, its requirements, and its code.

use std::sync::Arc;

use futures::future::BoxFuture;
use ratelimit_core::store::{Decisions, Time};

use crate::bench::Bench;
use crate::failure::{CaseResult, Failure};
use crate::kind::Kind;

type Run = Arc<dyn Fn(Bench) -> BoxFuture<'static, CaseResult> + Send + Sync>;

/// One case of the suite.
#[derive(Clone)]
pub(crate) struct Case {
    pub(crate) name: String,
    pub(crate) about: &'static str,
    needs: Vec<Need>,
    is_heavy: bool,
    waits: bool,
    run: Run,
}

/// A requirement of a case on the promises of the store or on the subject.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The store decides by the caller's time.
    CallerTime,
    /// The store decides by the caller's time, and detects late claims.
    OrderedTime,
    /// The store decides by the caller's time, and does not detect late claims.
    UnorderedTime,
    /// The store decides by the server's time.
    ServerTime,
    /// Claims on one key are decided exactly under contention.
    ExactPerKey,
    /// All nodes count together: none counts for itself.
    OneCount,
    /// The suite may stop and start the server. Such cases run alone.
    Control,
    /// The store reconnects by itself after its server was down.
    Reconnects,
}

impl Case {
    /// A case on a manual clock, like most.
    pub(crate) fn new<F, R>(name: impl Into<String>, about: &'static str, run: F) -> Self
    where
        F: Fn(Bench) -> R + Send + Sync + 'static,
        R: Future<Output = CaseResult> + Send + 'static,
    {
        let run: Run = Arc::new(move |bench| Box::pin(run(bench)));
        Self { name: name.into(), about, needs: vec![Need::CallerTime], is_heavy: false, waits: false, run }
    }

    /// One case for each of these kinds of limit.
    pub(crate) fn for_each<F, R>(kinds: &[Kind], name: &str, about: &'static str, run: F) -> Vec<Self>
    where
        F: Fn(Bench, Kind) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = CaseResult> + Send + 'static,
    {
        let one = |kind: &Kind| {
            let kind = *kind;
            let case = Self::new(format!("{name}-{}", kind.name()), about, move |bench| run(bench, kind));
            if kind.needs_one_count() { case.needs(Need::OneCount) } else { case }
        };
        kinds.iter().map(one).collect()
    }

    /// Adds a requirement.
    pub(crate) fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// Allows any clock.
    pub(crate) fn any_time(mut self) -> Self {
        self.needs.retain(|need| *need != Need::CallerTime);
        self
    }

    /// Requires a store that decides by its server's clock.
    pub(crate) fn server_time(self) -> Self {
        self.any_time().needs(Need::ServerTime)
    }

    /// Makes the case run alone, because its load would make other cases exceed their time limit.
    pub(crate) fn heavy(mut self) -> Self {
        self.is_heavy = true;
        self
    }

    /// Makes the case start early, because it waits for long.
    pub(crate) fn slow(mut self) -> Self {
        self.waits = true;
        self
    }

    /// Whether the case waits for long.
    pub(crate) fn waits(&self) -> bool {
        self.waits
    }

    /// Whether the case must run alone.
    pub(crate) fn runs_alone(&self) -> bool {
        self.is_heavy || self.needs.contains(&Need::Control)
    }

    /// Runs the case.
    pub(crate) async fn run(&self, bench: Bench) -> CaseResult {
        for need in &self.needs {
            need.check(&bench)?;
        }
        (self.run)(bench).await
    }
}

impl Need {
    fn check(self, bench: &Bench) -> CaseResult {
        let promises = bench.promises();
        let (met, why) = match self {
            Self::CallerTime => {
                (promises.time != Time::Server, "the store declares that it has its server's time")
            }
            Self::OrderedTime => (
                promises.time == Time::Caller && promises.monotonic,
                "the store does not declare that it knows when a claim is late",
            ),
            Self::UnorderedTime => {
                (!promises.monotonic, "the store declares that it knows when a claim is late")
            }
            Self::ServerTime => {
                (promises.time == Time::Server, "the store declares that it has the caller's time")
            }
            Self::ExactPerKey => (
                promises.decisions != Decisions::Conservative,
                "the store declares that it may refuse under contention",
            ),
            Self::OneCount => (
                promises.decisions != Decisions::Eventual,
                "the store declares that each of its nodes counts for itself",
            ),
            Self::Control => (true, ""), // found out by the case itself
            Self::Reconnects => (
                bench.reconnects,
                "the subject declares that its connection, once broken, is not replaced by the store",
            ),
        };
        if met { Ok(()) } else { Err(Failure::not_applicable(why)) }
    }
}
