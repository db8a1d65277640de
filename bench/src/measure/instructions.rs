//! The processor's instructions of a decision, as valgrind counts them: other processes do not change them.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::contestants::{self, Allow, Contestant, Limiter, Visitor};
use crate::keys::Key;
use crate::session::{Session, figure};

/// The word on the command line with which this program makes decisions and does nothing else.
pub(crate) const WORD: &str = "only-decide";

/// The number of decisions.
const DECISIONS: u64 = 100_000;

/// The function whose instructions are counted, and those of what it calls: not the start of the program, in which clocks are
/// calibrated for as long as that takes.
const COUNTED: &str = "--toggle-collect=*only_decide*";

/// Instructions per decision on one busy key: of one that is admitted, and of one that is refused.
pub(super) struct Instructions {
    pub(super) contestant: String,
}

impl Session for Instructions {
    fn step(&mut self, _: u64) -> Result<Vec<f64>> {
        [Allow::Everything, Allow::Nothing].into_iter().map(|allow| each(&self.contestant, allow)).collect()
    }
}

/// The instructions of a decision, in a process that makes this many of them.
fn each(contestant: &str, allow: Allow) -> Result<f64> {
    let program = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null", COUNTED]).arg(program).arg(WORD);
    command.arg(contestant).arg(serde_json::to_string(&allow)?).arg(DECISIONS.to_string());
    let output = command.output().context("valgrind does not run; install it: apt-get install valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind ended with {}: {said}", output.status);
    let count: u64 = match said.lines().find_map(|line| line.split_once("Collected : ")) {
        Some((_, count)) => count.trim().parse().with_context(|| format!("{count:?}"))?,
        None => bail!("valgrind counted nothing: {said}"),
    };
    ensure!(count > DECISIONS, "valgrind counted only {count} instructions: it did not find the function");
    Ok(figure(count) / figure(DECISIONS))
}

/// Makes decisions, in the process that valgrind runs.
pub(crate) fn decide(contestant: &str, allow: &str, decisions: &str) -> Result<()> {
    let (allow, decisions) = (serde_json::from_str(allow)?, decisions.parse()?);
    contestants::with(contestant, Decide { allow, decisions })?
}

struct Decide {
    allow: Allow,
    decisions: u64,
}

impl Visitor for Decide {
    type Output = Result<()>;

    fn visit(self, contestant: impl Contestant + 'static) -> Result<()> {
        let limiter = contestant.build(self.allow);
        // As long as a key often is: 19 bytes.
        let key = Key { text: "customer:0001234567".to_owned(), number: 1_234_567 };
        // The first ones make the meter and show its refusals to all threads.
        let first = (0..FIRST).filter(|_| limiter.check(&key)).count();
        let admitted = first + only_decide(&limiter, &key, self.decisions);
        super::speed::check_answers(u64::try_from(admitted)?, FIRST + self.decisions, self.allow)
    }
}

/// How many decisions are made before those that are counted.
const FIRST: u64 = 10;

/// Returns how many were admitted.
#[inline(never)]
fn only_decide(limiter: &impl Limiter, key: &Key, decisions: u64) -> usize {
    (0..decisions).filter(|_| limiter.check(std::hint::black_box(key))).count()
}
