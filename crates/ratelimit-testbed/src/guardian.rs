//! Cleans up after this process if it dies without doing so itself.

use std::io::{self, Write as _};
use std::os::unix::process::CommandExt as _;
use std::process::{Child, ChildStdin, Command, Stdio};

use rustix::process::Signal;

/// A shell that waits at a pipe. The kernel closes the pipe when this process ends, however it ends, and then the shell
/// does what it was started for. It is in a process group of its own, so that Ctrl-C does not reach it.
///
/// `prctl(PR_SET_PDEATHSIG)` would not do: it fires when the *thread* ends that started the server, and the threads of a
/// runtime come and go.
pub(crate) struct Guardian {
    shell: Child,
    pipe: Option<ChildStdin>,
}

/// A line means that there is nothing left to do, the end of the pipe that this process is gone.
const WAIT: &str = "if read -r _; then exit 0; fi; ";

impl Guardian {
    /// Ends a process with all its children and removes its folder.
    pub(crate) fn of_process(id: u32, folder: &str, farewell: Signal) -> io::Result<Self> {
        let farewell = farewell.as_raw().to_string();
        Self::start(include_str!("guardian.sh"), &[&id.to_string(), folder, &farewell])
    }

    /// Removes a container.
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
    /// Sends it home: its owner has cleaned up.
    fn drop(&mut self) {
        if let Some(mut pipe) = self.pipe.take() {
            let _ = pipe.write_all(b"done\n");
        }
        let _ = self.shell.wait();
    }
}
