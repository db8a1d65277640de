//! Formats of servers that have one line for each request, with its fields always in the same places: one small parser each.

use memchr::memchr;

use super::clf::{Rest, split_request, without_query};
use super::name::Format;
use super::time::{NO_TIME, Times};
use crate::address::address;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// The fields of a line as they are in it; empty if the format does not have them.
#[derive(Debug, Default)]
struct Fields<'a> {
    time: &'a [u8],
    client: &'a [u8],
    user: &'a [u8],
    /// The first line of the request.
    request: &'a [u8],
    status: &'a [u8],
    bytes: &'a [u8],
    agent: &'a [u8],
}

type Parse = fn(Rest<'_>) -> Option<Fields<'_>>;

/// The formats, and their parsers.
const ALL: [(Format, Parse); 5] = [
    (Format::Haproxy, haproxy),
    (Format::Alb, alb),
    (Format::Elb, elb),
    (Format::Envoy, envoy),
    (Format::Squid, squid),
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
    let parse = ALL.iter().find_map(|(own, parse)| (*own == format).then_some(parse));
    let fields =
        parse.and_then(|parse| parse(Rest(line))).ok_or("it is not of the format of the other lines")?;
    record.time = times.of_server(fields.time).ok_or(NO_TIME)?;
    let (method, target) = split_request(fields.request);
    for (index, field) in wanted.fields().iter().enumerate() {
        let value = match field {
            Field::Ip => fields.client,
            Field::User => fields.user,
            Field::Method => method,
            Field::Path => without_query(without_origin(target)),
            Field::Status => fields.status,
            Field::Bytes => fields.bytes,
            Field::Agent => fields.agent,
            Field::Referer | Field::Time | Field::Named(_) => continue,
        };
        record.set(index, value);
    }
    Ok(())
}

/// The target behind `https://host:port`.
fn without_origin(target: &[u8]) -> &[u8] {
    let Some(at) = memchr::memmem::find(target, b"://").filter(|at| *at < 8) else { return target };
    let rest = target.get(at + 3..).unwrap_or_default();
    memchr(b'/', rest).and_then(|at| rest.get(at..)).unwrap_or(b"/")
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
    is_http.then_some(Fields { time, client, request, status, bytes, ..Fields::default() })
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
    let [_, _, _, _, status, _, _, bytes] = std::array::from_fn(|_| rest.word());
    (is_status(status) || status == b"-").then_some(())?;
    let (request, agent) = (rest.quoted()?, rest.quoted()?);
    Some(Fields { time, client, request, status, bytes, agent, ..Fields::default() })
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
    let [_, _] = std::array::from_fn(|_| rest.word());
    let (client, agent) = (rest.quoted()?, rest.quoted()?);
    Some(Fields { time, client, request, status, bytes, agent, ..Fields::default() })
}

/// `time span client result/status bytes method url user ...`, Squid's own.
fn squid(mut rest: Rest<'_>) -> Option<Fields<'_>> {
    let [time, _, client, result, bytes] = std::array::from_fn(|_| rest.word());
    let status = result.get(memchr(b'/', result)? + 1..)?;
    address(client)?;
    is_status(status).then_some(())?;
    let text = rest.0.trim_ascii_start();
    let method = rest.word();
    let target = rest.word();
    let request = text.get(..method.len() + 1 + target.len())?;
    Some(Fields { time, client, user: rest.word(), request, status, bytes, ..Fields::default() })
}
