//! `cargo xtask services`: servers for manual experiments.

use std::fs::{self, File};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use clap::{Args, Subcommand};
use ratelimit_testbed::{Row, Testbed, table};

use crate::settings::Install;
use crate::workspace::target;

#[derive(Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    action: Action,
}

#[derive(Subcommand)]
enum Action {
    /// Start servers that keep running, and print their addresses.
    Up {
        /// The servers to start; all by default.
        #[arg(value_name = "NAME")]
        names: Vec<String>,
        #[command(flatten)]
        install: Install,
    },
    /// Stop the servers that `up` has started.
    Down,
    /// Print the addresses of the servers that `up` has started.
    Status,
    /// Keep the servers running until the file with their addresses is deleted; started by `up`.
    #[command(hide = true)]
    Hold { names: Vec<String> },
}

const POLL: Duration = Duration::from_millis(100);

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    match &arguments.action {
        Action::Up { names, install } => up(names, *install),
        Action::Down => down(),
        Action::Status => status(),
        Action::Hold { names } => hold(names),
    }
}

/// The file with the addresses, as lines for a shell. The holder runs while it exists.
fn addresses() -> PathBuf {
    target().join("services.env")
}

/// The log of the holder.
fn log() -> PathBuf {
    target().join("services.log")
}

/// Locked by the holder for its whole life.
fn lock() -> Result<File> {
    fs::create_dir_all(target())?;
    let file = target().join("services.lock");
    File::options().write(true).create(true).truncate(false).open(file).context("services.lock")
}

fn is_held() -> Result<bool> {
    Ok(lock()?.try_lock().is_err())
}

fn up(names: &[String], install: Install) -> Result<()> {
    rows(names)?;
    ensure!(!is_held()?, "services are up already; `cargo xtask services down` stops them");
    let _ = fs::remove_file(addresses());
    let output = File::create(log())?;
    let mut command = Command::new(std::env::current_exe()?);
    command.args(["services", "hold"]).args(names);
    let mut command = install.apply_to(command);
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output).process_group(0);
    let mut holder = command.spawn()?;
    while !addresses().exists() {
        if let Some(status) = holder.try_wait()? {
            bail!("no services ({status}):\n{}", fs::read_to_string(log())?.trim_end());
        }
        sleep(POLL);
    }
    eprint!("{}", fs::read_to_string(log())?);
    status()
}

fn down() -> Result<()> {
    if !is_held()? {
        println!("no services are up");
        return Ok(());
    }
    for _ in 0..600 {
        // Each time: services that are starting write it later.
        let _ = fs::remove_file(addresses());
        if !is_held()? {
            println!("stopped");
            return Ok(());
        }
        sleep(POLL);
    }
    bail!("the services have not stopped within a minute; {} may tell why", log().display())
}

fn status() -> Result<()> {
    match is_held()? {
        true => print!(
            "{}",
            fs::read_to_string(addresses()).unwrap_or_else(|_| "starting or stopping\n".to_owned())
        ),
        false => println!("no services are up"),
    }
    Ok(())
}

fn hold(names: &[String]) -> Result<()> {
    let rows = rows(names)?;
    let lock = lock()?;
    ensure!(lock.try_lock().is_ok(), "services are up already");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let testbed = Testbed::from_env();
        let mut held = Vec::new();
        let mut lines = String::new();
        for row in rows {
            let servers = row.obtain(&testbed).await?;
            let urls: Vec<&str> = servers.iter().map(|server| server.url()).collect();
            lines.push_str(&format!("export {}={}\n", row.variable, urls.join(",")));
            held.extend(servers);
        }
        let unfinished = addresses().with_extension("part");
        fs::write(&unfinished, lines)?;
        fs::rename(&unfinished, addresses())?;
        while addresses().exists() {
            tokio::time::sleep(POLL).await;
        }
        Ok(())
    })
}

fn rows(names: &[String]) -> Result<Vec<Row>> {
    let rows = table();
    if let Some(unknown) = names.iter().find(|name| !rows.iter().any(|row| row.name == **name)) {
        let known: Vec<&str> = rows.iter().map(|row| row.name).collect();
        bail!("there is no service {unknown:?}; the services are {}", known.join(", "));
    }
    Ok(rows.into_iter().filter(|row| names.is_empty() || names.iter().any(|name| name == row.name)).collect())
}
