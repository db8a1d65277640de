//! On a terminal: the question before a reset, and the screen of a watch.

mod common;

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::process::{Child, ExitStatus, Stdio};

use common::{Cli, namespace};
use ratelimit_testbed::Testbed;
use rustix::fs::{Mode, OFlags, open};
use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// The program on a terminal of its own.
struct OnTerminal {
    process: Child,
    terminal: File,
    seen: String,
}

impl OnTerminal {
    fn start(cli: &Cli, arguments: &[&str]) -> Self {
        let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&terminal).unwrap();
        unlockpt(&terminal).unwrap();
        let name = ptsname(&terminal, Vec::new()).unwrap();
        let end: OwnedFd = open(&*name, OFlags::RDWR | OFlags::NOCTTY, Mode::empty()).unwrap();
        let mut command = cli.command(arguments);
        let [input, output] = [(); 2].map(|()| Stdio::from(end.try_clone().unwrap()));
        let process = command.stdin(input).stdout(output).stderr(Stdio::from(end)).spawn().unwrap();
        Self { process, terminal: terminal.into(), seen: String::new() }
    }

    /// Waits until the screen has shown this, and returns what came before it.
    fn wait_for(&mut self, text: &str) -> String {
        let mut buffer = [0; 1024];
        loop {
            if let Some((before, after)) = self.seen.split_once(text) {
                let (before, after) = (before.to_owned(), after.to_owned());
                self.seen = after;
                return before;
            }
            // At the end of the program, Linux reports an error.
            match self.terminal.read(&mut buffer) {
                Ok(count @ 1..) => self.seen += &String::from_utf8_lossy(&buffer[..count]),
                ended => panic!("{ended:?} before {text:?}; the screen: {:?}", self.seen),
            }
        }
    }

    fn type_in(&mut self, text: &str) {
        self.terminal.write_all(text.as_bytes()).unwrap();
    }

    fn end(&mut self) -> ExitStatus {
        self.process.wait().unwrap()
    }
}

impl Drop for OnTerminal {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reset_asks_first() {
    let server = Testbed::from_env().redis().await.unwrap();
    let cli = Cli::on(&server.patient_url(), &namespace("terminal"), "10/30d fixed");
    let used = || cli.run(&["peek", "k1", "--json"]).only_json()["limits"][0]["used"].as_u64().unwrap();
    assert_eq!(cli.run(&["charge", "k1", "3"]).code, 0);
    for (answer, code, left) in [("\n", 1, 3), ("no\n", 1, 3), ("yesterday\n", 1, 3), ("y\n", 0, 0)] {
        let mut reset = OnTerminal::start(&cli, &["reset", "k1", "k2"]);
        reset.wait_for("Forget what k1, k2 has used under 10/30d fixed? [y/N] ");
        assert_eq!(used(), 3);
        reset.type_in(answer);
        reset.wait_for(if code == 0 { "USED BEFORE" } else { "nothing was reset" });
        assert_eq!((reset.end().code(), used()), (Some(code), left), "{answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_watch_redraws_the_screen() {
    let server = Testbed::from_env().redis().await.unwrap();
    let cli = Cli::on(&server.patient_url(), &namespace("terminal"), "10/30d fixed");
    let mut watch = OnTerminal::start(&cli, &["watch", "k", "--interval", "0.1"]);
    watch.wait_for("\x1b[H\x1b[2J");
    let first = watch.wait_for("\x1b[H\x1b[2J");
    assert!(first.contains("REMAINING") && first.contains("  0         10 "), "{first:?}");
    assert_eq!(cli.run(&["charge", "k", "3"]).code, 0);
    watch.wait_for("  3          7 ");
    kill_process(Pid::from_child(&watch.process), Signal::INT).unwrap();
    assert_eq!(watch.end().code(), Some(0));
}
