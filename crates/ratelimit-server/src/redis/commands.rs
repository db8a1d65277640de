//! The commands, and their answers.

use std::io::Write as _;
use std::sync::Arc;

use ratelimit_tower::Answered;

use super::throttle::{self, Numbers, number, numbers};
use crate::checks::Checks;
use crate::metrics;
use crate::refusal::Refusal;

/// The commands, as `COMMAND` lists them: name, arguments with the name (at least that many if negative), the place of the key.
const COMMANDS: [(&str, i64, i64); 10] = [
    ("cl.throttle", -5, 1),
    ("rl.check", -3, 2),
    ("ping", -1, 0),
    ("echo", 2, 0),
    ("quit", -1, 0),
    ("hello", -1, 0),
    ("command", -1, 0),
    ("client", -2, 0),
    ("select", 2, 0),
    ("auth", -2, 0),
];

/// The error for a command that is not here.
const UNKNOWN: &str = "unknown command: this is a ratelimit-server, with CL.THROTTLE, RL.CHECK and PING";

/// A command that was begun, with its arguments.
pub(crate) enum Begun<'a> {
    Answered(Vec<u8>),
    Throttle(Vec<&'a [u8]>),
    Check(Vec<&'a [u8]>),
}

/// What a connection remembers.
pub(crate) struct Session {
    checks: Arc<Checks>,
    /// Whether the client asked for the third version of the protocol.
    is_version_3: bool,
    pub(crate) has_quit: bool,
}

impl Session {
    pub(crate) fn new(checks: Arc<Checks>) -> Self {
        Self { checks, is_version_3: false, has_quit: false }
    }

    /// Begins a command. What it changes about the connection, it changes now.
    pub(crate) fn begin<'a>(&mut self, arguments: &[&'a [u8]]) -> Begun<'a> {
        let Some((name, arguments)) = arguments.split_first() else { return Begun::Answered(Vec::new()) };
        let mut answer = Vec::new();
        let out = &mut answer;
        match &*name.to_ascii_lowercase() {
            b"cl.throttle" => return Begun::Throttle(arguments.to_vec()),
            b"rl.check" => return Begun::Check(arguments.to_vec()),
            b"ping" => match arguments {
                [] => out.extend(b"+PONG\r\n"),
                [text] => bulk(out, text),
                _ => error(out, "usage: PING [text]"),
            },
            b"echo" => match arguments {
                [text] => bulk(out, text),
                _ => error(out, "usage: ECHO text"),
            },
            b"quit" => {
                self.has_quit = true;
                out.extend(b"+OK\r\n");
            }
            b"hello" => self.hello(arguments, out),
            b"command" => command(arguments, out),
            // Clients say who they are, and choose a database; neither means anything here.
            b"client" => out.extend(b"+OK\r\n"),
            b"select" => match arguments {
                [b"0"] => out.extend(b"+OK\r\n"),
                _ => error(out, "there is only database 0"),
            },
            b"auth" => error(out, "this server has no password: remove it from the client's address"),
            _ => error(out, UNKNOWN),
        }
        Begun::Answered(answer)
    }

    /// The answer to a command.
    pub(crate) async fn finish(&self, begun: Begun<'_>) -> Vec<u8> {
        let numbers = match begun {
            Begun::Answered(answer) => return answer,
            Begun::Throttle(arguments) => self.throttle(&arguments).await,
            Begun::Check(arguments) => self.check(&arguments).await,
        };
        let mut answer = Vec::new();
        match numbers {
            Ok(numbers) => integers(&mut answer, &numbers),
            Err(text) => error(&mut answer, &text),
        }
        answer
    }

    async fn throttle(&self, arguments: &[&[u8]]) -> Result<Numbers, String> {
        let usage = "usage: CL.THROTTLE key max_burst count period [quantity]";
        let (key, rest) = arguments.split_first().ok_or(usage)?;
        let domain = self.checks.known_domain(None).map_err(|refusal| refusal.to_string())?;
        throttle::decide(domain.checker.limiter(), key, rest).await
    }

    async fn check(&self, arguments: &[&[u8]]) -> Result<Numbers, String> {
        let (policy, key, cost) = match *arguments {
            [policy, key] => (policy, key, 1),
            [policy, key, cost] => (policy, key, number("cost", cost)?),
            _ => return Err("usage: RL.CHECK policy key [cost]".to_owned()),
        };
        let policy = str::from_utf8(policy).map_err(|_| "no policy has this name")?;
        let text = |refusal: Refusal| refusal.to_string();
        let domain = self.checks.known_domain(None).map_err(text)?;
        let question = domain.by_policy(policy, &[key], cost, None).map_err(text)?;
        let answered = domain.check(&question).await;
        of_answer(&answered)
    }

    fn hello(&mut self, arguments: &[&[u8]], out: &mut Vec<u8>) {
        match arguments.first() {
            None => {}
            Some(&b"2") => self.is_version_3 = false,
            Some(&b"3") => self.is_version_3 = true,
            Some(_) => return out.extend(b"-NOPROTO unsupported protocol version\r\n"),
        }
        let (head, version) = if self.is_version_3 { ("%5", ":3\r\n") } else { ("*10", ":2\r\n") };
        let _ = write!(out, "{head}\r\n");
        let texts = concat!(
            "server ratelimit mode standalone role master version ",
            env!("CARGO_PKG_VERSION"),
            " proto"
        );
        texts.split(' ').for_each(|text| bulk(out, text.as_bytes()));
        out.extend(version.as_bytes());
    }
}

/// The numbers of an answer under policies.
fn of_answer(answered: &Answered<'_>) -> Result<Numbers, String> {
    match (answered.decision(), answered.in_words()) {
        (Some(decision), _) => Ok(numbers(decision)),
        // The store did not answer, and the file says what to do.
        (None, Some(words)) => Err(words),
        (None, None) => Ok([0, i64::MAX, i64::MAX, -1, 0]),
    }
}

/// `COMMAND`, `COMMAND COUNT` and `COMMAND DOCS`, which clients call to complete what people type.
fn command(arguments: &[&[u8]], out: &mut Vec<u8>) {
    match arguments.first().map(|name| name.to_ascii_lowercase()).as_deref() {
        None => {
            let _ = write!(out, "*{}\r\n", COMMANDS.len());
            for (name, arity, key) in COMMANDS {
                out.extend(b"*6\r\n");
                bulk(out, name.as_bytes());
                let _ = write!(out, ":{arity}\r\n*0\r\n:{key}\r\n:{key}\r\n:{key}\r\n");
            }
        }
        Some(b"count") => out.extend(format!(":{}\r\n", COMMANDS.len()).as_bytes()),
        Some(b"docs") => out.extend(b"*0\r\n"),
        Some(_) => error(out, "COMMAND has only COUNT and DOCS here"),
    }
}

fn integers(out: &mut Vec<u8>, numbers: &Numbers) {
    out.extend(b"*5\r\n");
    for number in numbers {
        let _ = write!(out, ":{number}\r\n");
    }
}

fn bulk(out: &mut Vec<u8>, text: &[u8]) {
    let _ = write!(out, "${}\r\n", text.len());
    out.extend(text);
    out.extend(b"\r\n");
}

/// An error, in one line.
pub(crate) fn error(out: &mut Vec<u8>, text: &str) {
    metrics::bad_request("redis");
    let line = text.replace(char::is_control, " ");
    let _ = write!(out, "-ERR {line}\r\n");
}
