//! `cargo xtask http-bench`: what the HTTP layer costs, beside the bare service and beside tower_governor.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use clap::Args;

use crate::workspace::{cargo, target};

#[derive(Args)]
pub(crate) struct Arguments {
    /// How often each service is measured.
    #[arg(long, default_value_t = 31, value_parser = clap::value_parser!(u32).range(1..))]
    repeats: u32,
    /// Seconds that each measurement takes: short, so that those that are compared are near each other.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
    /// Connections that send requests at once.
    #[arg(long, default_value_t = 32, value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// Install the Debian package wrk if it is missing.
    #[arg(long)]
    install: bool,
}

/// The services, as the program calls them, and what they are.
const CONTESTANTS: [(&str, &str); 7] = [
    ("bare", "no limiter"),
    ("empty", "a layer that does nothing"),
    ("ours", "ratelimit-tower, as by default: with fields"),
    ("ours-silent", "ratelimit-tower without fields"),
    ("ours-around", "ratelimit-tower, as by default, around the router"),
    ("governor", "tower_governor, as by default: without fields"),
    ("governor-headers", "tower_governor with fields"),
];

/// Ratios, first by second, and what this project wants to reach.
const GOALS: [(&str, &str, Option<f64>); 6] = [
    ("ours", "bare", Some(0.97)),
    ("ours-around", "bare", Some(0.97)),
    ("ours-silent", "bare", Some(0.97)),
    ("empty", "bare", None),
    ("ours", "governor-headers", Some(1.0)),
    ("ours-silent", "governor", Some(1.0)),
];

/// One measurement.
#[derive(Clone, Copy, Debug, Default)]
struct Figure {
    requests_per_second: f64,
    /// Microseconds of processor time that the service took for one request.
    processor: f64,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let wrk = wrk(arguments.install)?;
    let built = cargo().args(["build", "--release", "--package", "ratelimit-http-bench"]).status()?;
    ensure!(built.success(), "ratelimit-http-bench was not built");
    let servers = CONTESTANTS.iter().map(|(name, _)| Server::start(name)).collect::<Result<Vec<_>>>()?;
    let mut figures: Vec<Vec<Figure>> = vec![Vec::new(); servers.len()];
    for repeat in 0..=arguments.repeats {
        for (server, figures) in servers.iter().zip(&mut figures) {
            let figure = server.measure(&wrk, arguments)?;
            // The first round only warms up.
            if repeat > 0 {
                figures.push(figure);
            }
        }
    }
    drop(servers);
    print(&figures, arguments);
    print_calls()
}

/// Calls the services without a network, and prints what their layers take.
fn print_calls() -> Result<()> {
    let output = Command::new(program()).arg("calls").output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let median = |wanted: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(wanted)?.strip_prefix(' '))?;
        line.split_whitespace().next()?.parse::<f64>().ok()
    };
    let bare = median("bare").context("the bare service was not measured")?;
    println!("\ncalled without a network, nanoseconds for each request\n");
    println!("{:16} {:>8} {:>17} {:>11}", "service", "median", "least..most", "beyond bare");
    for line in text.lines() {
        if let [name, median, least, most] = line.split_whitespace().collect::<Vec<_>>()[..] {
            let beyond = median.parse::<f64>()? - bare;
            println!("{name:16} {median:>8} {least:>8}..{most:<7} {beyond:>11.0}");
        }
    }
    Ok(())
}

fn program() -> PathBuf {
    target().join("release/ratelimit-http-bench")
}

/// A service that runs, and ends when this is dropped.
struct Server {
    name: &'static str,
    child: Child,
    address: String,
    /// It ends when this closes, also if this process is killed.
    _stdin: Option<ChildStdin>,
}

impl Server {
    fn start(name: &'static str) -> Result<Self> {
        let program = program();
        let mut child = Command::new(&program)
            .args(["serve", name])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| program.display().to_string())?;
        let mut address = String::new();
        if let Some(stdout) = child.stdout.take() {
            BufReader::new(stdout).read_line(&mut address)?;
        }
        let stdin = child.stdin.take();
        let server = Self { name, child, address: address.trim().to_owned(), _stdin: stdin };
        ensure!(!server.address.is_empty(), "{name} did not start");
        Ok(server)
    }

    fn measure(&self, wrk: &str, arguments: &Arguments) -> Result<Figure> {
        let before = self.processor_time()?;
        let output = Command::new(wrk)
            .args(["-t1", &format!("-c{}", arguments.connections), &format!("-d{}s", arguments.seconds)])
            .arg(format!("http://{}/", self.address))
            .output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        ensure!(output.status.success(), "wrk: {}", String::from_utf8_lossy(&output.stderr));
        let processor = self.processor_time()? - before;
        for wrong in ["Non-2xx", "Socket errors"] {
            ensure!(!text.contains(wrong), "{}: not every request got its answer:\n{text}", self.name);
        }
        let requests_per_second = number(&text, "Requests/sec:").context("wrk's output has changed")?;
        let requests = text
            .lines()
            .find(|line| line.contains(" requests in "))
            .and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok())
            .context("wrk's output has changed")?;
        Ok(Figure { requests_per_second, processor: processor * 1e6 / requests })
    }

    /// Seconds of processor time that the service has taken so far.
    fn processor_time(&self) -> Result<f64> {
        let mut nanos = 0.0;
        for thread in fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            let statistics = fs::read_to_string(thread?.path().join("schedstat"))?;
            let own = statistics.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
            nanos += own.context("the kernel does not tell the processor time")?;
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

fn number(text: &str, label: &str) -> Option<f64> {
    text.lines().find_map(|line| line.trim().strip_prefix(label)?.trim().parse().ok())
}

fn print(figures: &[Vec<Figure>], arguments: &Arguments) {
    println!(
        "{} repeats of {} s in turn, {} connections, 1 thread that serves, wrk on the same machine\n",
        arguments.repeats, arguments.seconds, arguments.connections
    );
    println!("{:16} {:>10} {:>21} {:>13}  what", "service", "requests/s", "least..most", "processor us");
    for ((name, what), figures) in CONTESTANTS.iter().zip(figures) {
        let speeds = sorted(figures, |figure| figure.requests_per_second);
        let (least, most) = (speeds.first().copied().unwrap_or(0.0), speeds.last().copied().unwrap_or(0.0));
        let processor = median(&sorted(figures, |figure| figure.processor));
        println!("{name:16} {:>10.0} {least:>10.0}..{most:<9.0} {processor:>13.2}  {what}", median(&speeds));
    }
    println!(
        "\nratios: median of those of each round (requests/s: more is better; processor time: less is better)"
    );
    for (first, second, goal) in GOALS {
        let of = |name| CONTESTANTS.iter().zip(figures).find(|((own, _), _)| *own == name);
        let (Some((_, first_figures)), Some((_, second_figures))) = (of(first), of(second)) else { continue };
        let rounds = || first_figures.iter().zip(second_figures);
        let mut speed: Vec<f64> =
            rounds().map(|(a, b)| a.requests_per_second / b.requests_per_second).collect();
        let mut processor: Vec<f64> = rounds().map(|(a, b)| a.processor / b.processor).collect();
        speed.sort_by(f64::total_cmp);
        processor.sort_by(f64::total_cmp);
        let ratio = median(&speed);
        let verdict = match goal {
            Some(goal) if ratio >= goal => format!(" (goal: at least {goal:.2}, reached)"),
            Some(goal) => format!(" (goal: at least {goal:.2}, NOT reached)"),
            None => String::new(),
        };
        let processor = median(&processor);
        println!("{first:>14} / {second:16} requests/s {ratio:.3}{verdict}, processor time {processor:.3}");
    }
}

fn sorted(figures: &[Figure], of: impl Fn(&Figure) -> f64) -> Vec<f64> {
    let mut numbers: Vec<f64> = figures.iter().map(of).collect();
    numbers.sort_by(f64::total_cmp);
    numbers
}

/// The middle of sorted numbers.
fn median(sorted: &[f64]) -> f64 {
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// The program wrk, installed first if it may be.
fn wrk(install: bool) -> Result<String> {
    let found = || Command::new("wrk").arg("-v").output().is_ok();
    if found() {
        return Ok("wrk".to_owned());
    }
    if !install {
        bail!("wrk is missing: install the Debian package wrk, or say --install");
    }
    let root = Command::new("id").arg("-u").output().is_ok_and(|output| output.stdout == b"0\n");
    let mut command = if root { Command::new("apt-get") } else { Command::new("sudo") };
    if !root {
        command.args(["-n", "apt-get"]);
    }
    command.args(["install", "-q", "-y", "--no-install-recommends", "wrk"]);
    let status = command.env("DEBIAN_FRONTEND", "noninteractive").status().context("apt-get")?;
    ensure!(status.success() && found(), "wrk could not be installed: apt-get ended with {status}");
    Ok("wrk".to_owned())
}
