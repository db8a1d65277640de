//! Generated requests as a log.

use std::io::{self, Read, Write as _};
use std::net::Ipv4Addr;

use super::traffic::{ATTACKERS, Sample, Traffic};

/// What a generated log looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Written {
    /// The combined log format, in which times are whole seconds
    Combined,
    /// One JSON object on each line, with microseconds
    Json,
}

/// A generated log, which is read like a file.
pub struct LogText {
    traffic: Traffic,
    keys: u32,
    written: Written,
    /// The second of the last line, in seconds since 1970, and in `date` its text.
    second: u64,
    date: String,
    line: Vec<u8>,
    returned: usize,
}

const PATHS: [&str; 8] =
    ["/", "/search", "/api/items", "/api/items/17", "/login", "/cart", "/static/app.js", "/static/app.css"];
const AGENTS: [&str; 3] = [
    "Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0",
    "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15",
    "curl/8.7.1",
];

impl LogText {
    /// A log of these requests. `keys` is the number of keys in their [`Spec`](crate::Spec).
    pub fn new(traffic: Traffic, keys: u32, written: Written) -> Self {
        Self { traffic, keys, written, second: u64::MAX, date: String::new(), line: Vec::new(), returned: 0 }
    }

    fn write(&mut self, sample: Sample) -> io::Result<()> {
        let nanos = sample.time.as_nanos();
        if self.second != nanos / 1_000_000_000 {
            self.second = nanos / 1_000_000_000;
            let second = i64::try_from(self.second).unwrap_or_default();
            let time = jiff::Timestamp::from_second(second).unwrap_or(jiff::Timestamp::MAX);
            let format = match self.written {
                Written::Combined => "%d/%b/%Y:%H:%M:%S +0000",
                Written::Json => "%Y-%m-%dT%H:%M:%S",
            };
            self.date = time.strftime(format).to_string();
        }
        let (date, line) = (&self.date, &mut self.line);
        let ip = address(sample.key, self.keys);
        let noise = usize::from(sample.noise);
        let path = PATHS.get(noise % PATHS.len()).unwrap_or(&"/");
        let agent = AGENTS.get(noise / PATHS.len() % AGENTS.len()).unwrap_or(&"-");
        let status = if sample.fails { 503 } else { 200 };
        let bytes = noise % 10_000 + 200;
        // One in four keys has a user.
        let user = sample.key.is_multiple_of(4).then_some(sample.key);
        match self.written {
            Written::Combined => {
                write!(line, "{ip} - ")?;
                match user {
                    Some(user) => write!(line, "user{user}")?,
                    None => write!(line, "-")?,
                }
                writeln!(line, " [{date}] \"GET {path} HTTP/1.1\" {status} {bytes} \"-\" \"{agent}\"")
            }
            Written::Json => {
                let micros = nanos % 1_000_000_000 / 1_000;
                write!(line, "{{\"time\":\"{date}.{micros:06}Z\",\"ip\":\"{ip}\"")?;
                if let Some(user) = user {
                    write!(line, ",\"user\":\"user{user}\"")?;
                }
                writeln!(
                    line,
                    ",\"method\":\"GET\",\"path\":\"{path}\",\"status\":{status},\"bytes\":{bytes},\"agent\":\"{agent}\"}}"
                )
            }
        }
    }
}

/// The address of a key: in 10.0.0.0/8, and for attackers in 203.0.113.0/24.
fn address(key: u32, keys: u32) -> Ipv4Addr {
    match key.checked_sub(keys) {
        Some(attacker) if attacker < ATTACKERS => Ipv4Addr::from(0xcb00_7101 + attacker),
        _ => Ipv4Addr::from(0x0a00_0000 | (key & 0x00ff_ffff)),
    }
}

impl Read for LogText {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.returned == self.line.len() {
            (self.returned, _) = (0, self.line.clear());
            while self.line.len() < 1 << 15 {
                let Some(sample) = self.traffic.next() else { break };
                self.write(sample)?;
            }
        }
        let mut rest = self.line.get(self.returned..).unwrap_or_default();
        let count = rest.read(buffer)?;
        self.returned += count;
        Ok(count)
    }
}
