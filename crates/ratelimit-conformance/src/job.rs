//! A case to be run on a subject.

use std::sync::Arc;

use crate::bench::Bench;
use crate::case::Case;
use crate::control::Control;
use crate::failure::{CaseResult, Failure, with_sources};
use crate::journal::{Journal, Noted};
use crate::random;
use crate::subject::Subject;
use crate::suite::Suite;

/// One case on one subject.
#[derive(Clone)]
pub(crate) struct Job {
    pub(crate) case: Case,
    pub(crate) subject: Arc<dyn Subject>,
    pub(crate) control: Option<Arc<Control>>,
}

impl Job {
    /// Runs the case in a fresh space.
    pub(crate) async fn in_fresh_space(self, suite: Arc<Suite>, journal: Arc<Journal>) -> CaseResult {
        let space = self.subject.fresh().await.map_err(|error| cannot("make a space", &*error))?;
        let store = space.open().await.map_err(|error| cannot("open a store", &*error))?;
        let store = Noted::handle(store, &journal);
        let seed = suite.seed ^ random::hash(&self.case.name);
        let control = self.control.filter(|_| self.case.runs_alone());
        let reconnects = self.subject.reconnects();
        let bench = Bench { space, control, reconnects, store, suite, journal: journal.clone(), seed };
        self.case.run(bench).await.map_err(|failure| failure.followed_by(|| journal.reported()))
    }
}

fn cannot(what: &str, error: &(dyn std::error::Error + 'static)) -> Failure {
    Failure::new(format!("cannot {what}: {}", with_sources(error)))
}
