//! A server as a private process of an installed program.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::guardian::Guardian;
use crate::package::last_lines;
use crate::port::Port;
use crate::server::{Body, Server};
use crate::service::{Place, Recipe, Service};

/// Starts them one after another, each at a port and in a folder of its own.
pub(crate) async fn start(
    recipe: &Recipe,
    program: &Path,
    services: &[Arc<dyn Service>],
) -> Result<Vec<Server>, String> {
    let mut servers = Vec::with_capacity(services.len());
    for service in services {
        let process = Process::new(program, service.as_ref())
            .map_err(|error| format!("{}: {error}", program.display()))?;
        process.launch()?;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, process.port.number()));
        eprintln!("{}: private process {} on {address}", recipe.name, program.display());
        let server = Server::started(recipe.name, address, Arc::clone(service), Box::new(process)).await;
        servers.push(server.map_err(|error| error.to_string())?);
    }
    Ok(servers)
}

struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    port: Port,
    folder: TempDir,
    running: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    _guardian: Guardian,
}

impl Process {
    fn new(program: &Path, service: &dyn Service) -> std::io::Result<Self> {
        let port = Port::reserve()?;
        let folder = tempfile::Builder::new().prefix("ratelimit-testbed-").tempdir()?;
        let place =
            Place { host: "127.0.0.1", port: port.number(), folder: &folder.path().to_string_lossy() };
        let arguments = service.arguments(place);
        Ok(Self { program: program.to_owned(), arguments, port, folder, running: Mutex::new(None) })
    }

    fn launch(&self) -> Result<(), String> {
        let mut running = self.lock();
        if let Some(Running { child, .. }) = running.as_mut()
            && matches!(child.try_wait(), Ok(None))
        {
            return Ok(());
        }
        *running = None;
        *running = Some(self.spawn().map_err(|error| format!("{}: {error}", self.program.display()))?);
        Ok(())
    }

    fn spawn(&self) -> std::io::Result<Running> {
        let log = File::options().create(true).append(true).open(self.log())?;
        let mut child = Command::new(&self.program)
            .args(&self.arguments)
            .current_dir(self.folder.path())
            .stdin(Stdio::null())
            .stdout(log.try_clone()?)
            .stderr(log)
            .process_group(0)
            .spawn()?;
        match Guardian::of_process(child.id(), &self.folder.path().to_string_lossy()) {
            Ok(guardian) => Ok(Running { child, _guardian: guardian }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn signal(&self, signal: Signal) -> Result<(), String> {
        let running = self.lock();
        let Running { child, .. } = running.as_ref().ok_or("it does not run")?;
        kill_process(Pid::from_child(child), signal).map_err(|error| error.to_string())
    }

    fn end(&self) {
        if let Some(Running { mut child, .. }) = self.lock().take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Body for Process {
    async fn kill(&self) -> Result<(), String> {
        self.end();
        Ok(())
    }

    async fn start(&self) -> Result<(), String> {
        self.launch()
    }

    async fn freeze(&self) -> Result<(), String> {
        self.signal(Signal::STOP)
    }

    async fn thaw(&self) -> Result<(), String> {
        self.signal(Signal::CONT)
    }

    async fn obituary(&self) -> Option<String> {
        let mut running = self.lock();
        let status = match running.as_mut() {
            Some(Running { child, .. }) => child.try_wait().ok()??.to_string(),
            None => "it was killed".to_owned(),
        };
        let log = std::fs::read(self.log()).unwrap_or_default();
        Some(format!("{status}\n{}", last_lines(&String::from_utf8_lossy(&log), 8)))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.end();
    }
}
