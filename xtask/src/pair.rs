//! Measures two services concurrently. Both share one processor, so the ratio of their requests per second is that of their
//! time for one request, and other load on the machine affects both. The load generators use another processor.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use tokio::runtime::Runtime;

use crate::settings::Install;

/// How pairs are measured.
#[derive(Args)]
pub(crate) struct Pairs {
    /// How often each pair of services is measured.
    #[arg(long, default_value_t = 11, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Duration of each measurement in seconds.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Concurrent connections to each service.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// The processor that the services share.
    #[arg(long, default_value_t = 0)]
    serve_on: u32,
    /// The processor of the load generators.
    #[arg(long, default_value_t = 1)]
    load_on: u32,
    #[command(flatten)]
    pub(crate) install: Install,
    /// The requests, as a script for wrk.
    #[arg(skip)]
    pub(crate) script: Option<PathBuf>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    requests_per_second: f64,
    /// Microseconds of processor time that the service used for one request.
    processor: f64,
}

impl Pairs {
    /// Finds wrk, or installs it if that is allowed.
    pub(crate) fn find_wrk(&self, runtime: &Runtime) -> Result<()> {
        runtime.block_on(self.install.testbed().client("wrk", "wrk"))?;
        Ok(())
    }

    /// Prints the headings for the lines of [`measure`](Self::measure).
    pub(crate) fn print_headings(&self) {
        println!(
            "two services share one processor, and get requests at the same time: {} times {} s, {} connections to each\n",
            self.repeats, self.seconds, self.connections
        );
        println!(
            "{:38} {:>10} {:>10} {:>7} {:>13} {:>15}",
            "requests per second, median", "first", "second", "ratio", "least..most", "processor time"
        );
    }

    /// Starts a service on the processor that the services share.
    pub(crate) fn serve(&self, program: &Command) -> Result<Server> {
        Server::start(program, self.serve_on)
    }

    /// Starts a service on the processor of the load generators.
    pub(crate) fn serve_beside(&self, program: &Command) -> Result<Server> {
        Server::start(program, self.load_on)
    }

    /// Measures two services and prints a line.
    pub(crate) fn measure(&self, names: &str, servers: [&Server; 2], goal: Option<f64>) -> Result<()> {
        self.round(servers, self.seconds)?; // to warm up
        let rounds = (0..self.repeats).map(|_| self.round(servers, self.seconds));
        Self::print(names, &rounds.collect::<Result<Vec<_>>>()?, goal);
        Ok(())
    }

    /// Measures two services, restarting them each time, and prints a line. A process is a few percent faster or slower for
    /// its whole life, depending on where it lies in memory.
    pub(crate) fn measure_anew(&self, names: &str, programs: [&Command; 2], goal: Option<f64>) -> Result<()> {
        let round = |_| {
            let [first, second] = programs.map(|program| self.serve(program));
            let servers = [&first?, &second?];
            self.round(servers, 1)?; // to warm up
            self.round(servers, self.seconds)
        };
        Self::print(names, &(0..self.repeats).map(round).collect::<Result<Vec<_>>>()?, goal);
        Ok(())
    }

    /// Both concurrently.
    fn round(&self, servers: [&Server; 2], seconds: u32) -> Result<[Figure; 2]> {
        let [first, second] = servers.map(|server| self.load_for(server, self.connections, seconds));
        Ok([first?.end()?, second?.end()?])
    }

    fn print(names: &str, rounds: &[[Figure; 2]], goal: Option<f64>) {
        let of = |figure: &dyn Fn(&[Figure; 2]) -> f64| {
            let mut all: Vec<f64> = rounds.iter().map(figure).collect();
            all.sort_by(f64::total_cmp);
            all
        };
        let ratios = of(&|[one, other]| one.requests_per_second / other.requests_per_second);
        let processor = median(&of(&|[one, other]| one.processor / other.processor));
        let ratio = median(&ratios);
        let verdict = match goal {
            Some(goal) if ratio >= goal => format!("  goal: at least {goal:.2}, reached"),
            Some(goal) => format!("  goal: at least {goal:.2}, NOT reached"),
            None => String::new(),
        };
        println!(
            "{names:38} {:>10.0} {:>10.0} {ratio:>7.3} {:>6.3}..{:<5.3} {processor:>15.3}{verdict}",
            median(&of(&|round| round[0].requests_per_second)),
            median(&of(&|round| round[1].requests_per_second)),
            ratios.first().copied().unwrap_or(f64::NAN),
            ratios.last().copied().unwrap_or(f64::NAN),
        );
    }

    /// Sends requests to a service over few connections while a pair is measured.
    pub(crate) fn keep_busy<'s>(&self, server: &'s Server, connections: u32) -> Result<Load<'s>> {
        let seconds = (self.repeats + 1) * (self.seconds + 1);
        self.load_for(server, connections, seconds)
    }

    fn load_for<'s>(&self, server: &'s Server, connections: u32, seconds: u32) -> Result<Load<'s>> {
        let before = server.processor_time()?;
        let script = self.script.iter().flat_map(|script| ["-s".into(), script.clone().into_os_string()]);
        let wrk = on_processor(self.load_on)
            .arg("wrk")
            .args(["-t1", &format!("-c{connections}"), &format!("-d{seconds}s")])
            .args(script)
            .arg(format!("http://{}/", server.address))
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        Ok(Load { server, wrk: Some(wrk), before })
    }
}

/// A running service, which is stopped when this is dropped.
pub(crate) struct Server {
    child: Child,
    pub(crate) address: String,
    /// Services that watch it exit when it closes, even if this process is killed.
    _stdin: Option<ChildStdin>,
    /// Kept open, because it may print more.
    stdout: BufReader<ChildStdout>,
}

impl Server {
    fn start(program: &Command, processor: u32) -> Result<Self> {
        let mut child = on_processor(processor)
            .arg(program.get_program())
            .args(program.get_args())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{program:?}"))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let stdout = BufReader::new(stdout.context("its output is a pipe")?);
        let mut server = Self { child, address: String::new(), _stdin: stdin, stdout };
        server.stdout.read_line(&mut server.address)?;
        // The first line is the address or contains it.
        let address = server.address.trim().split("http://").last().and_then(|rest| rest.split(',').next());
        server.address = address.unwrap_or_default().to_owned();
        ensure!(!server.address.is_empty(), "{program:?} did not start");
        Ok(server)
    }

    /// Seconds of processor time that the service has used so far.
    fn processor_time(&self) -> Result<f64> {
        let mut nanos = 0.0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let statistics = fs::read_to_string(thread?.path().join("schedstat"))?;
            let used = statistics.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
            nanos += used.context("the kernel does not report the processor time")?;
        }
        Ok(nanos / 1e9)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.child.kill();
        _ = self.child.wait();
    }
}

/// A program that sends requests to a service, and is stopped when this is dropped.
pub(crate) struct Load<'s> {
    server: &'s Server,
    wrk: Option<Child>,
    /// The processor time that the service had used before.
    before: f64,
}

impl Load<'_> {
    fn end(mut self) -> Result<Figure> {
        let wrk = self.wrk.take().context("the load has already ended")?;
        let output = wrk.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "wrk: {}", String::from_utf8_lossy(&output.stderr));
        let processor = self.server.processor_time()? - self.before;
        for wrong in ["Non-2xx", "Socket errors"] {
            ensure!(!text.contains(wrong), "not every request got its answer:\n{text}");
        }
        let requests_per_second = number(&text, "Requests/sec:").context("wrk's output has changed")?;
        let requests = text
            .lines()
            .find(|line| line.contains(" requests in "))
            .and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
            .context("wrk's output has changed")?;
        Ok(Figure { requests_per_second, processor: processor * 1e6 / requests })
    }
}

impl Drop for Load<'_> {
    fn drop(&mut self) {
        if let Some(wrk) = &mut self.wrk {
            _ = wrk.kill();
            _ = wrk.wait();
        }
    }
}

/// Runs a command on one processor, with `taskset` of Debian's util-linux.
fn on_processor(number: u32) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &number.to_string()]);
    command
}

fn number(text: &str, label: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim().strip_prefix(label)?.trim().parse().ok())
}

/// The median of sorted numbers.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}
