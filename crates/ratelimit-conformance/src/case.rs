//! A case: a name, what it proves, what it needs, and the code.

use std::sync::Arc;

use futures::future::BoxFuture;
use ratelimit_core::{Decisions, Promises, Time};

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
    run: Run,
}

/// What a store must promise, or a subject offer, for a case to be run on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// The store decides by the caller's time.
    CallerTime,
    /// By the caller's time, and it knows when a claim is late.
    OrderedTime,
    /// By the caller's time, and it does not know when a claim is late.
    UnorderedTime,
    /// The store decides by the server's time.
    ServerTime,
    /// Claims on one key are decided exactly under contention.
    ExactPerKey,
    /// The suite may stop and start the server. Such cases run alone.
    Control,
}

impl Case {
    /// A case on a clock that is moved by hand, which most are.
    pub(crate) fn new<F, R>(name: impl Into<String>, about: &'static str, run: F) -> Self
    where
        F: Fn(Bench) -> R + Send + Sync + 'static,
        R: Future<Output = CaseResult> + Send + 'static,
    {
        let run: Run = Arc::new(move |bench| Box::pin(run(bench)));
        Self { name: name.into(), about, needs: vec![Need::CallerTime], run }
    }

    /// The same case once for each of these kinds of limit.
    pub(crate) fn for_each<F, R>(kinds: &[Kind], name: &str, about: &'static str, run: F) -> Vec<Self>
    where
        F: Fn(Bench, Kind) -> R + Copy + Send + Sync + 'static,
        R: Future<Output = CaseResult> + Send + 'static,
    {
        let one = |kind: &Kind| {
            let kind = *kind;
            Self::new(format!("{name}-{}", kind.name()), about, move |bench| run(bench, kind))
        };
        kinds.iter().map(one).collect()
    }

    /// The same case, which also needs this.
    pub(crate) fn needs(mut self, need: Need) -> Self {
        self.needs.push(need);
        self
    }

    /// The same case, which can do with any clock.
    pub(crate) fn any_time(mut self) -> Self {
        self.needs.retain(|need| *need != Need::CallerTime);
        self
    }

    /// The same case, only for stores that use their server's clock.
    pub(crate) fn server_time(self) -> Self {
        self.any_time().needs(Need::ServerTime)
    }

    /// Whether the case has to run alone.
    pub(crate) fn runs_alone(&self) -> bool {
        self.needs.contains(&Need::Control)
    }

    /// Runs it.
    pub(crate) async fn run(&self, bench: Bench) -> CaseResult {
        for need in &self.needs {
            need.check(bench.promises())?;
        }
        (self.run)(bench).await
    }
}

impl Need {
    fn check(self, promises: Promises) -> CaseResult {
        let (met, why) = match self {
            Self::CallerTime => {
                (promises.time != Time::Server, "the store declares that it has its server's time")
            }
            Self::OrderedTime => (
                promises.time == Time::Caller,
                "the store does not declare that it knows when a claim is late",
            ),
            Self::UnorderedTime => (
                promises.time == Time::CallerUnordered,
                "the store declares that it knows when a claim is late",
            ),
            Self::ServerTime => {
                (promises.time == Time::Server, "the store declares that it has the caller's time")
            }
            Self::ExactPerKey => (
                promises.decisions != Decisions::Conservative,
                "the store declares that it may refuse under contention",
            ),
            Self::Control => (true, ""), // found out by the case itself
        };
        if met { Ok(()) } else { Err(Failure::not_applicable(why)) }
    }
}
