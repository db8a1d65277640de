//! A server that the test starts as a process of its own.

use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

use crate::subject::{BoxError, Server};

/// How long a server may take until it accepts connections.
const START: Duration = Duration::from_secs(60);

/// A server that runs as a child process, for [`Subject::server`](crate::Subject::server): the suite kills, starts, freezes
/// and thaws it. It is killed when this value is dropped, and on Unix also when the test is killed.
///
/// Signals reach the process and those that it has started, unless they have left its process group. Freezing works on Unix
/// only.
///
/// ```no_run
/// use std::process::Command;
///
/// use ratelimit_conformance::{BoxError, ChildProcess};
///
/// # async fn example() -> Result<(), BoxError> {
/// let server = ChildProcess::start(|address| {
///     let mut command = Command::new("redis-server");
///     command.args(["--port", &address.port().to_string(), "--save", ""]);
///     command
/// })
/// .await?;
/// println!("it accepts connections at {}", server.address());
/// # Ok(())
/// # }
/// ```
pub struct ChildProcess {
    address: SocketAddr,
    command: Box<dyn Fn(SocketAddr) -> Command + Send + Sync>,
    running: Mutex<Option<Running>>,
}

struct Running {
    child: Child,
    /// Kills the group when the pipe to it is closed: when this process ends, in whatever way.
    guardian: Option<Child>,
}

impl ChildProcess {
    /// Starts the program that `command` returns, at a free port of the loopback interface, and waits until it accepts
    /// connections there. A later [`start`](Server::start) calls `command` again, with the same address.
    ///
    /// Redirect the output in `command` if you do not want it among that of the test.
    ///
    /// # Errors
    /// If there is no free port, the program cannot be started, ends, or accepts no connection within a minute.
    pub async fn start(
        command: impl Fn(SocketAddr) -> Command + Send + Sync + 'static,
    ) -> Result<Self, BoxError> {
        let address = free_address()?;
        let server = Self { address, command: Box::new(command), running: Mutex::new(None) };
        Server::start(&server).await?;
        Ok(server)
    }

    /// Where it accepts connections.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    fn lock(&self) -> MutexGuard<'_, Option<Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn launch(&self) -> io::Result<()> {
        let mut running = self.lock();
        if running.as_mut().is_some_and(|running| matches!(running.child.try_wait(), Ok(None))) {
            return Ok(());
        }
        end(running.take());
        let mut command = (self.command)(self.address);
        command.stdin(Stdio::null());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let child = command.spawn()?;
        let guardian = guardian(child.id()).inspect_err(|_| drop(signal(child.id(), "KILL")))?;
        *running = Some(Running { child, guardian });
        Ok(())
    }

    /// Fails if the process has ended.
    fn check(&self) -> Result<(), BoxError> {
        match self.lock().as_mut().map(|running| running.child.try_wait()) {
            Some(Ok(None)) => Ok(()),
            Some(Ok(Some(status))) => Err(format!("the server has ended: {status}").into()),
            Some(Err(error)) => Err(error.into()),
            None => Err("the server does not run".into()),
        }
    }

    fn signal(&self, name: &str) -> Result<(), BoxError> {
        self.check()?;
        let id = self.lock().as_ref().map(|running| running.child.id()).ok_or("the server does not run")?;
        Ok(signal(id, name)?)
    }
}

#[async_trait]
impl Server for ChildProcess {
    async fn kill(&self) -> Result<(), BoxError> {
        end(self.lock().take());
        Ok(())
    }

    async fn start(&self) -> Result<(), BoxError> {
        self.launch()?;
        let accepts = async {
            while TcpStream::connect(self.address).await.is_err() {
                self.check()?;
                sleep(Duration::from_millis(20)).await;
            }
            self.check()
        };
        let late = || format!("the server accepts no connection at {} within {START:?}", self.address);
        timeout(START, accepts).await.map_err(|_| late())?
    }

    async fn freeze(&self) -> Result<(), BoxError> {
        self.signal("STOP")
    }

    async fn thaw(&self) -> Result<(), BoxError> {
        self.signal("CONT")
    }
}

impl Drop for ChildProcess {
    fn drop(&mut self) {
        end(self.lock().take());
    }
}

impl fmt::Debug for ChildProcess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ChildProcess at {}", self.address)
    }
}

/// Kills the process with its group, and waits until it has ended.
fn end(running: Option<Running>) {
    let Some(Running { mut child, guardian }) = running else { return };
    // The id of a process that has ended may belong to another one once it was waited for.
    if matches!(child.try_wait(), Ok(None)) {
        let _ = signal(child.id(), "KILL");
    }
    let _ = child.kill();
    let _ = child.wait();
    if let Some(mut guardian) = guardian {
        let _ = guardian.kill();
        let _ = guardian.wait();
    }
}

/// Sends a signal to the group of a process.
#[cfg(unix)]
fn signal(id: u32, name: &str) -> io::Result<()> {
    let sent = Command::new("kill").args(["-s", name, "--", &format!("-{id}")]).status()?;
    if sent.success() { Ok(()) } else { Err(io::Error::other(format!("kill -s {name}: {sent}"))) }
}

#[cfg(not(unix))]
fn signal(_id: u32, name: &str) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::Unsupported, format!("there is no signal {name} on this system")))
}

/// A shell that waits for the end of its input, which comes when this process ends, and then kills the group.
#[cfg(unix)]
fn guardian(id: u32) -> io::Result<Option<Child>> {
    let mut shell = Command::new("sh");
    shell.args(["-c", "read -r _; kill -s KILL -- \"-$1\"", "guardian", &id.to_string()]);
    std::os::unix::process::CommandExt::process_group(&mut shell, 0);
    shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map(Some)
}

#[cfg(not(unix))]
fn guardian(_id: u32) -> io::Result<Option<Child>> {
    Ok(None)
}

/// A port of the loopback interface that was free a moment ago.
///
/// It is below the usual range of outgoing connections. Otherwise a client that keeps connecting to a killed server would
/// sooner or later get that very port, and connect to itself.
fn free_address() -> io::Result<SocketAddr> {
    use std::hash::{BuildHasher, RandomState};
    let mut failed = io::Error::from(io::ErrorKind::AddrInUse);
    for _ in 0..200 {
        let port = 21_000 + u16::try_from(RandomState::new().hash_one(()) % 10_000).unwrap_or_default();
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        match TcpListener::bind(address) {
            Ok(_) => return Ok(address),
            Err(error) => failed = error,
        }
    }
    Err(failed)
}
