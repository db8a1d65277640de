//! The processor's instructions of a decision, as valgrind counts them: other processes do not change them.

use std::process::Command;

use anyhow::{Context as _, Result, bail, ensure};

use crate::contestants::{self, Allow, Contestant, Limiter, Visitor};
use crate::keys::Key;
use crate::session::{Session, figure};

/// The word on the command line with which this program makes decisions and does nothing else.
pub(crate) const WORD: &str = "only-decide";

/// The number of decisions. A run of twice as many shows what the start of the program takes.
const DECISIONS: u64 = 100_000;

/// Instructions per decision on one busy key: of one that is admitted, and of one that is refused.
pub(super) struct Instructions {
    pub(super) contestant: String,
}

impl Session for Instructions {
    fn step(&mut self, _: u64) -> Result<Vec<f64>> {
        [Allow::Everything, Allow::Nothing].into_iter().map(|allow| each(&self.contestant, allow)).collect()
    }
}

fn each(contestant: &str, allow: Allow) -> Result<f64> {
    let (few, many) = (counted(contestant, allow, DECISIONS)?, counted(contestant, allow, 2 * DECISIONS)?);
    Ok((figure(many) - figure(few)) / figure(DECISIONS))
}

/// The instructions of a process that makes this many decisions.
fn counted(contestant: &str, allow: Allow, decisions: u64) -> Result<u64> {
    let program = std::env::current_exe().context("the path of this program")?;
    let mut command = Command::new("valgrind");
    command.args(["--tool=callgrind", "--callgrind-out-file=/dev/null"]).arg(program).arg(WORD);
    command.arg(contestant).arg(serde_json::to_string(&allow)?).arg(decisions.to_string());
    let output = command.output().context("valgrind does not run; install it: apt-get install valgrind")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "valgrind ended with {}: {said}", output.status);
    match said.lines().find_map(|line| line.split_once("Collected : ")) {
        Some((_, count)) => count.trim().parse().with_context(|| format!("{count:?}")),
        None => bail!("valgrind counted nothing: {said}"),
    }
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
        let admitted = (0..self.decisions).filter(|_| limiter.check(std::hint::black_box(&key))).count();
        super::speed::check_answers(u64::try_from(admitted)?, self.decisions, self.allow)
    }
}
