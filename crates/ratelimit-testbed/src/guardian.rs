//! Cleans up after this process if it is killed.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Signal;

/// A shell that waits on a pipe. When this process ends in any way, the kernel closes the pipe and the shell cleans up. It
/// has its own process group, so that Ctrl-C does not reach it.
///
/// `prctl(PR_SET_PDEATHSIG)` would not work: it fires when the *thread* that started the server ends, and a runtime starts
/// and ends threads.
pub(crate) struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
}

/// A line means that there is nothing left to do; the end of the pipe means that this process has ended.
const WAIT: &str = "if read -r _; then exit 0; fi; ";

impl Guardian {
    /// A guardian that ends a process with all of its children, and removes its directory.
    pub(crate) fn of_process(id: u32, folder: &str, farewell: Signal) -> io::Result<Self> {
        let farewell = farewell.as_raw().to_string();
        Self::start(include_str!("guardian.sh"), &[&id.to_string(), folder, &farewell])
    }

    /// A guardian that removes a container.
    #[cfg(feature = "docker")]
    pub(crate) fn of_container(docker: &str, id: &str) -> io::Result<Self> {
        Self::start("\"$1\" rm --force --volumes \"$2\"", &[docker, id])
    }

    fn start(script: &str, arguments: &[&str]) -> io::Result<Self> {
        let mut shell = Command::new("sh")
            .args(["-c", &format!("{WAIT}{script}"), "guardian"])
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()?;
        let pipe = shell.stdin.take();
        Ok(Self { shell, pipe })
    }
}

impl Drop for Guardian {
    /// Lets the shell exit without a clean-up: the owner has cleaned up.
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
