//! A child process: another instance of this program, which measures one contestant on request.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child as Process, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};

use crate::job::Job;
use crate::measure::session;

/// The time limit of a measurement.
const LIMIT: Duration = Duration::from_secs(180);

/// The word on the command line that starts a child.
pub(crate) const WORD: &str = "measure-one";

/// The parent's end of a child. Dropping it ends the process.
pub(crate) struct Child {
    name: String,
    process: Process,
    orders: Option<ChildStdin>,
    answers: Receiver<String>,
}

impl Child {
    /// Starts a child, and returns when it is ready.
    pub(crate) fn start(contestant: &str, job: &Job) -> Result<Self> {
        let program = std::env::current_exe().context("the path of this program")?;
        let mut command = Command::new(program);
        command.arg(WORD).arg(contestant).arg(serde_json::to_string(job)?);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = process.stdin.take();
        let output = process.stdout.take().context("its output")?;
        let (sender, answers) = channel();
        std::thread::spawn(move || {
            BufReader::new(output).lines().map_while(Result::ok).try_for_each(|line| sender.send(line))
        });
        let child = Self { name: contestant.to_owned(), process, orders, answers };
        child.answer()?;
        Ok(child)
    }

    /// Makes one measurement.
    pub(crate) fn step(&mut self, argument: u64) -> Result<Vec<f64>> {
        let orders = self.orders.as_mut().context("its input")?;
        writeln!(orders, "{argument}").with_context(|| format!("{} has ended", self.name))?;
        self.answer()
    }

    /// The next answer: figures or an error. Not-a-number is `null` in JSON.
    fn answer(&self) -> Result<Vec<f64>> {
        let line = self.answers.recv_timeout(LIMIT).map_err(|error| match error {
            RecvTimeoutError::Timeout => anyhow!("{}: no figure within {LIMIT:?}", self.name),
            RecvTimeoutError::Disconnected => anyhow!("{}: its process has ended", self.name),
        })?;
        let answer: std::result::Result<Vec<Option<f64>>, String> = serde_json::from_str(&line)?;
        match answer {
            Ok(figures) => Ok(figures.into_iter().map(|figure| figure.unwrap_or(f64::NAN)).collect()),
            Err(problem) => bail!("{}: {problem}", self.name),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The child process: makes a measurement for each line of its input.
pub(crate) fn serve(contestant: &str, job: &str) -> Result<()> {
    let job: Job = serde_json::from_str(job).context("the job")?;
    let mut session = match session(contestant, &job) {
        Ok(session) => session,
        Err(error) => return say(Err(&error)),
    };
    say(Ok(Vec::new()))?;
    for line in std::io::stdin().lock().lines() {
        let argument = line?.trim().parse().context("an argument")?;
        let outcome = session.step(argument);
        say(outcome.as_ref().map(Vec::clone))?;
    }
    // Exits without dropping the contestant, which may take long.
    std::process::exit(0)
}

fn say(outcome: std::result::Result<Vec<f64>, &anyhow::Error>) -> Result<()> {
    let outcome = outcome.map_err(|error| format!("{error:#}"));
    println!("{}", serde_json::to_string(&outcome)?);
    std::io::stdout().flush().context("the parent")
}
