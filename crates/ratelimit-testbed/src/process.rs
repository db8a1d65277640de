//! A server as a private process of an installed program.

use std::fs::File;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use rustix::process::{Pid, Signal};
use tempfile::TempDir;

use crate::family;
use crate::guardian::Guardian;
use crate::package::last_lines;
use crate::port::Port;
use crate::server::{Body, Server};
use crate::service::{Placement, Recipe, Service};
use crate::user::User;

/// Starts them one after another, each with its own port and directory.
pub(crate) async fn start(
    recipe: &Recipe,
    program: &Path,
    services: &[Arc<dyn Service>],
) -> Result<Vec<Server>, String> {
    let mut servers = Vec::with_capacity(services.len());
    for service in services {
        servers.push(start_one(recipe.name, program, Arc::clone(service)).await?);
    }
    Ok(servers)
}

/// Starts one, with its own port and directory.
pub(crate) async fn start_one(
    name: &'static str,
    program: &Path,
    service: Arc<dyn Service>,
) -> Result<Server, String> {
    let process =
        Process::new(program, service.as_ref()).map_err(|error| format!("{}: {error}", program.display()))?;
    process.prepare(service.as_ref()).await?;
    process.launch()?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, process.port.number()));
    eprintln!("{name}: private process {} on {address}", program.display());
    let server = Server::started(name, address, service, Box::new(process)).await;
    server.map_err(|error| error.to_string())
}

struct Process {
    program: PathBuf,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    user: Option<User>,
    farewell: Signal,
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
        let user = User::instead_of_root(service.user());
        if let Some(user) = &user {
            std::os::unix::fs::chown(folder.path(), Some(user.id), Some(user.group))?;
        }
        let path = folder.path().to_string_lossy().into_owned();
        let place = place(&port, &path);
        let (arguments, environment) = (service.arguments(place), service.environment(place));
        Ok(Self {
            program: program.to_owned(),
            arguments,
            environment,
            user,
            farewell: service.farewell(),
            port,
            folder,
            running: Mutex::new(None),
        })
    }

    /// Prepares the directory once before the program is first started.
    async fn prepare(&self, service: &dyn Service) -> Result<(), String> {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let Some(mut command) = service.preparation(&self.program, place(&self.port, &folder)) else {
            return Ok(());
        };
        self.dress(&mut command);
        command.stdin(Stdio::null());
        let output = tokio::task::spawn_blocking(move || command.output()).await;
        let output = output.map_err(|error| error.to_string())?.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("preparing it failed, {}:\n{}", output.status, last_lines(&said, 8)))
    }

    /// Sets the user, the directory and the environment of the server's commands.
    fn dress(&self, command: &mut Command) {
        command.current_dir(self.folder.path()).envs(self.environment.iter().cloned());
        if let Some(user) = &self.user {
            command.uid(user.id).gid(user.group);
        }
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
        let mut command = Command::new(&self.program);
        self.dress(&mut command);
        command.args(&self.arguments).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let mut child = command.process_group(0).spawn()?;
        match Guardian::of_process(child.id(), &self.folder.path().to_string_lossy(), self.farewell) {
            Ok(guardian) => Ok(Running { child, _guardian: guardian }),
            Err(error) => {
                let _ = child.kill();
                let _ = child.wait();
                Err(error)
            }
        }
    }

    fn signal(&self, signal: fn(Pid) -> Result<(), String>) -> Result<(), String> {
        let running = self.lock();
        let Running { child, .. } = running.as_ref().ok_or("it does not run")?;
        signal(Pid::from_child(child))
    }

    /// Lets the process clean up and exit; kills it if it need not clean up or takes too long.
    fn dismiss(&self) {
        if self.farewell != Signal::KILL
            && let Some(Running { child, .. }) = self.lock().as_mut()
            && matches!(child.try_wait(), Ok(None))
        {
            family::dismiss(child, self.farewell);
        }
        self.end();
    }

    fn end(&self) {
        if let Some(Running { mut child, .. }) = self.lock().take() {
            // The id of a process that has exited may belong to another one by now.
            let children = match child.try_wait() {
                Ok(None) => family::kill_children(Pid::from_child(&child)),
                _ => Vec::new(),
            };
            let _ = child.kill();
            let _ = child.wait();
            family::wait_for(&children);
        }
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("server.log")
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The address and the directory of a process.
fn place<'a>(port: &Port, folder: &'a str) -> Placement<'a> {
    Placement { host: "127.0.0.1", port: port.number(), folder }
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
        self.signal(family::freeze)
    }

    async fn thaw(&self) -> Result<(), String> {
        self.signal(family::thaw)
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
        self.dismiss();
    }
}
