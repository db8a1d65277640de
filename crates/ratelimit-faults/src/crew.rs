//! The workers, as the coordinator sees them.

use std::collections::HashSet;
use std::fs::File;
use std::io::Read as _;
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::Mutex;

use crate::history::{Entry, SIZE, Used};
use crate::load::KeyId;
use crate::stack::{Broken, Stack};
use crate::worker::{Order, Reply};

/// How long a worker may take to carry out an order. It gives up calls that take too long.
const PATIENCE: Duration = Duration::from_secs(120);

/// The workers of a target.
pub(crate) struct Crew {
    members: Vec<Member>,
    _folder: TempDir,
}

struct Member {
    pipes: Mutex<Pipes>,
    records: std::sync::Mutex<Records>,
    _child: Child,
}

struct Pipes {
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
}

/// The part of a file that has not been read yet.
struct Records {
    file: File,
    rest: Vec<u8>,
}

impl Crew {
    /// Starts a worker for each address.
    pub(crate) async fn start(
        urls: &[String],
        stack: Stack,
        broken: Option<Broken>,
        seed: u64,
    ) -> Result<Self> {
        let folder = tempfile::Builder::new().prefix("ratelimit-faults-").tempdir()?;
        let mut members = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            let path = folder.path().join(format!("{index}.calls"));
            let mut command = Command::new(std::env::current_exe()?);
            command.args([
                "worker",
                "--index",
                &index.to_string(),
                "--url",
                url,
                "--seed",
                &seed.to_string(),
            ]);
            command.arg("--stack").arg(word(&stack)).arg("--file").arg(&path);
            if let Some(broken) = broken {
                command.arg("--broken").arg(word(&broken));
            }
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
            let mut child = command.spawn().context("a worker does not start")?;
            let input = child.stdin.take().context("a worker has no input")?;
            let output = BufReader::new(child.stdout.take().context("a worker has no output")?).lines();
            let mut pipes = Pipes { input, output };
            pipes.reply().await?;
            let records = Records { file: File::open(&path)?, rest: Vec::new() };
            members.push(Member { pipes: Mutex::new(pipes), records: records.into(), _child: child });
        }
        Ok(Self { members, _folder: folder })
    }

    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.members.len()
    }

    /// Gives all of them an order.
    pub(crate) async fn tell(&self, order: &Order) -> Result<Vec<Reply>> {
        let all = self.members.iter().map(async |member| member.pipes.lock().await.ask(order).await);
        futures::future::try_join_all(all).await
    }

    /// Gives one of them an order.
    pub(crate) async fn tell_one(&self, worker: usize, order: &Order) -> Result<Reply> {
        let member = self.members.get(worker).context("there is no such worker")?;
        member.pipes.lock().await.ask(order).await
    }

    /// What each key of a long limit has used, and the keys whose server does not answer.
    pub(crate) async fn count(&self) -> Result<(Used, HashSet<KeyId>)> {
        let Reply::Counted(counted) = self.tell_one(0, &Order::Count).await? else {
            bail!("a worker does not count");
        };
        let (mut used, mut away) = (Used::new(), HashSet::new());
        for (class, number, units) in counted {
            let key = KeyId { class, number };
            match units {
                Some(units) => drop(used.insert(key, units)),
                None => drop(away.insert(key)),
            }
        }
        Ok((used, away))
    }

    /// The records since the last call of this function, each with its worker.
    pub(crate) fn records(&self) -> Result<Vec<(usize, Entry)>> {
        let mut all = Vec::new();
        for (worker, member) in self.members.iter().enumerate() {
            let mut records = member.records.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            let Records { file, rest } = &mut *records;
            file.read_to_end(rest)?;
            let whole = rest.len() - rest.len() % SIZE;
            for bytes in rest.drain(..whole).as_slice().as_chunks::<SIZE>().0 {
                all.push((worker, Entry::decode(worker, bytes).context("a record cannot be read")?));
            }
        }
        Ok(all)
    }
}

impl Pipes {
    async fn ask(&mut self, order: &Order) -> Result<Reply> {
        let mut line = serde_json::to_string(order)?;
        line.push('\n');
        self.input.write_all(line.as_bytes()).await.context("a worker has ended")?;
        self.reply().await
    }

    async fn reply(&mut self) -> Result<Reply> {
        let line = tokio::time::timeout(PATIENCE, self.output.next_line()).await;
        let line =
            line.context("a worker does not answer: its calls block it")??.context("a worker has ended")?;
        Ok(serde_json::from_str(&line)?)
    }
}

/// The value as a word on the command line.
fn word(value: &impl clap::ValueEnum) -> String {
    value.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}
