//! Formats of servers that have one line for each request, with its fields always in the same places: one small parser each.

use memchr::memchr;

use super::clf::Rest;
use super::name::Format;
use super::target::{path, split_request};
use super::time::Times;
use crate::address::address;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// The fields of a line as they are in it; empty if the format does not have them.
#[derive(Debug, Default)]
struct Fields<'a> {
    time: &'a [u8],
    client: &'a [u8],
    user: &'a [u8],
    method: &'a [u8],
    target: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    agent: &'a [u8],
    referer: &'a [u8],
    duration: &'a [u8],
}

impl<'a> Fields<'a> {
    /// The same with this first line of a request.
    fn with(self, request: &'a [u8]) -> Self {
        let (method, target) = split_request(request);
        Self { method, target, ..self }
    }
}

type Parse = fn(Rest<'_>) -> Option<Fields<'_>>;

/// The formats, and their parsers.
const ALL: [(Format, Parse); 6] = [
    (Format::Haproxy, haproxy),
    (Format::Alb, alb),
    (Format::Elb, elb),
    (Format::Envoy, envoy),
    (Format::Squid, squid),
    (Format::Npm, npm),
];

/// The format of a line, if it is one of these.
pub(super) fn of_line(line: &[u8]) -> Option<Format> {
    let mut times = Times::default();
    let mut reads =
        |parse: &Parse| parse(Rest(line)).is_some_and(|fields| times.of_server(fields.time).is_some());
    ALL.iter().find_map(|(format, parse)| reads(parse).then_some(*format))
}

/// Reads a line of this format into the record.
pub(super) fn parse(
    format: Format,
    line: &[u8],
    wanted: &Wanted,
    times: &mut Times,
    record: &mut Record,
) -> Result<(), &'static str> {
    let parse = ALL.iter().find_map(|(known, parse)| (*known == format).then_some(parse));
    let fields =
        parse.and_then(|parse| parse(Rest(line))).ok_or("it is not of the format of the other lines")?;
    record.time = times.of_server(fields.time).ok_or_else(|| times.reason(fields.time))?;
    for (index, field) in wanted.fields().iter().enumerate().take(record.len()) {
        let value = match field {
            Field::Ip => fields.client,
            Field::User => fields.user,
            Field::Method => fields.method,
            Field::Path => path(fields.target),
            Field::Status => fields.status,
            Field::Bytes => fields.bytes,
            Field::Agent => fields.agent,
            Field::Referer => fields.referer,
            Field::Duration => fields.duration,
            Field::Time | Field::Named(_) => continue,
        };
        record.set(index, value);
    }
    Ok(())
}

fn is_status(word: &[u8]) -> bool {
    matches!(word, [_, _, _]) && word.iter().all(u8::is_ascii_digit)
}

/// `client:port [time] frontend backend/server timers status bytes ... "request"`, the HTTP format of HAProxy.
fn haproxy(mut rest: Rest<'_>) -> Option<Fields<'_>> {
    let (client, time) = (rest.word(), rest.word());
    let time = time.strip_prefix(b"[")?.strip_suffix(b"]")?;
    address(client)?;
    let (_frontend, server, timers) = (rest.word(), rest.word(), rest.word());
    let (status, bytes) = (rest.word(), rest.word());
    let is_http = server.contains(&b'/') && timers.contains(&b'/') && (is_status(status) || status == b"-1");
    let request = rest.0.get(memchr::memmem::find(rest.0, b" \"")?..)?;
    let request = Rest(request).quoted().or_else(|| request.get(2..))?; // a long request is cut off
    let duration = timers.rsplit(|byte| matches!(byte, b'/' | b'+')).next()?;
    is_http.then_some(Fields { time, client, status, bytes, duration, ..Fields::default() }.with(request))
}

/// `type time balancer client:port target:port ...`, of Amazon's Application Load Balancer.
fn alb(mut rest: Rest<'_>) -> Option<Fields<'_>> {
    matches!(rest.word(), b"http" | b"https" | b"h2" | b"grpcs" | b"ws" | b"wss").then_some(())?;
    elb(rest)
}

/// `time balancer client:port target:port 3 spans status status-of-target received sent "request" "agent"`, of Amazon's Classic
/// Load Balancer.
fn elb(mut rest: Rest<'_>) -> Option<Fields<'_>> {
    let (time, _balancer, client) = (rest.word(), rest.word(), rest.word());
    address(client)?;
    let _target = rest.word();
    let before = rest.0.trim_ascii_start();
    let [_, _, _] = std::array::from_fn(|_| rest.word());
    let duration = &before[..before.len() - rest.0.len()];
    let [status, _, _, bytes] = std::array::from_fn(|_| rest.word());
    (is_status(status) || status == b"-").then_some(())?;
    let (request, agent) = (rest.quoted()?, rest.quoted()?);
    Some(Fields { time, client, status, bytes, agent, duration, ..Fields::default() }.with(request))
}

/// `[time] "request" status flags received sent span span-of-upstream "forwarded-for" "agent" ...`, Envoy's default. Istio has
/// two more words behind the flags, and the failure of the transport in quotes.
fn envoy(mut rest: Rest<'_>) -> Option<Fields<'_>> {
    let time = rest.word().strip_prefix(b"[")?.strip_suffix(b"]")?;
    let (request, status) = (rest.quoted()?, rest.word());
    is_status(status).then_some(())?;
    let [_flags, _, mut bytes] = std::array::from_fn(|_| rest.word());
    if rest.quoted().is_some() {
        [_, bytes] = std::array::from_fn(|_| rest.word());
    }
    let [duration, _] = std::array::from_fn(|_| rest.word());
    let client = rest.quoted()?;
    // It does not escape quotes in the agent.
    let (agent, _) = until(rest.0.strip_prefix(b" \"")?, b"\" \"")?;
    Some(Fields { time, client, status, bytes, agent, duration, ..Fields::default() }.with(request))
}

/// `time span client result/status bytes method url user ...`, Squid's own.
fn squid(mut rest: Rest<'_>) -> Option<Fields<'_>> {
    let [time, duration, client, result, bytes] = std::array::from_fn(|_| rest.word());
    let status = result.get(memchr(b'/', result)? + 1..)?;
    address(client)?;
    is_status(status).then_some(())?;
    let (method, target, user) = (rest.word(), rest.word(), rest.word());
    Some(Fields { time, client, user, method, target, status, bytes, duration, ..Fields::default() })
}

/// `[time] cache status-of-target status - method scheme host "target" [Client address] [Length bytes] [Gzip ratio] [Sent-to
/// server] "agent" "referer"`, of Nginx Proxy Manager; of hosts that it does not pass on, without the cache and the target.
fn npm(mut rest: Rest<'_>) -> Option<Fields<'_>> {
    let (time, after) = until(rest.0.strip_prefix(b"[")?, b"] ")?;
    let mut status = &b""[..];
    rest.0 = after;
    loop {
        match rest.word() {
            b"" => return None,
            b"-" if is_status(status) => break,
            word => status = word,
        }
    }
    let (method, _scheme, _host, target) = (rest.word(), rest.word(), rest.word(), rest.quoted()?);
    let (client, after) = until(rest.0.strip_prefix(b" [Client ")?, b"] [Length ")?;
    let (bytes, after) = until(after, b"]")?;
    rest.0 = after.get(memchr(b'"', after)?..)?;
    let (agent, referer) = (rest.quoted()?, rest.quoted()?);
    Some(Fields { time, client, method, target, status, bytes, agent, referer, ..Fields::default() })
}

/// The text before this one, and the text after it.
fn until<'a>(text: &'a [u8], end: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = memchr::memmem::find(text, end)?;
    Some((text.get(..at)?, text.get(at + end.len()..)?))
}
