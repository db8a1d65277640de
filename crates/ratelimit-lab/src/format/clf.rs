//! The common and combined log formats of Apache and nginx, with or without the virtual host in front.

use memchr::memchr;
use ratelimit_core::Timestamp;

use super::time::Times;
use crate::by::address;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// Reads a line `host ident user [time] "request" status bytes "referer" "agent"`. The last three may be missing, and
/// more fields may follow.
pub(super) fn parse(
    line: &[u8],
    wanted: &Wanted,
    times: &mut Times,
    record: &mut Record,
) -> Result<(), &'static str> {
    let (front, time, rest) = split_at_time(line, times)?;
    record.time = time;
    let front = Front::of(front).ok_or("there is no `host ident user` before the time")?;
    let mut rest = Rest(rest);
    let request = rest.quoted().ok_or("there is no \"request\" after the time")?;
    let (status, bytes) = (rest.word(), rest.word());
    let is_number = matches!(status, [_, _, _]) && status.iter().all(u8::is_ascii_digit);
    if !is_number && status != b"-" {
        return Err("there is no status after the request");
    }
    let (referer, agent) = (rest.quoted(), rest.quoted());
    let (method, target) = split_request(request);
    for (index, field) in wanted.fields().iter().enumerate() {
        let value = match field {
            Field::Ip => front.host,
            Field::User => front.user,
            Field::Method => method,
            Field::Path => without_query(target),
            Field::Status => status,
            Field::Bytes => bytes,
            Field::Referer => referer.unwrap_or_default(),
            Field::Agent => agent.unwrap_or_default(),
            Field::Time | Field::Named(_) => continue,
        };
        record.set(index, value);
    }
    Ok(())
}

/// Splits a line into the text before `[time]`, the time, and the text after it. The name of a user may contain a `[` or
/// even a time in brackets, but only the time of the request has a quote after it, since servers escape the quotes in a
/// name.
fn split_at_time<'a>(
    line: &'a [u8],
    times: &mut Times,
) -> Result<(&'a [u8], Timestamp, &'a [u8]), &'static str> {
    let mut reason = "there is no [time]";
    let mut close = 0;
    for open in memchr::memchr_iter(b'[', line) {
        // Searched for again only behind the last one, since a name may have many `[`.
        if close < open {
            let Some(at) = memchr(b']', line.get(open..).unwrap_or_default()) else {
                reason = "there is no ] after the time";
                break;
            };
            close = open + at;
        }
        let after = line.get(close + 1..).unwrap_or_default();
        match times.clf(line.get(open + 1..close).unwrap_or_default()) {
            Some(time) if after.trim_ascii_start().starts_with(b"\"") => {
                return Ok((line.get(..open).unwrap_or_default(), time, after));
            }
            Some(_) => reason = "there is no \"request\" after the time",
            None => reason = "the time is not like 10/Oct/2000:13:55:36 -0700",
        }
    }
    Err(reason)
}

/// The part of a target before `?`.
pub(super) fn without_query(target: &[u8]) -> &[u8] {
    target.split(|byte| *byte == b'?').next().unwrap_or_default()
}

/// The fields before the time that are used.
struct Front<'a> {
    host: &'a [u8],
    user: &'a [u8],
}

impl<'a> Front<'a> {
    fn of(text: &'a [u8]) -> Option<Self> {
        let text = text.trim_ascii();
        let (first, rest) = split(text)?;
        let (second, third) = split(rest)?;
        // `%v:%p %h %l %u`, which Debian's Apache calls vhost_combined, or `%v %h %l %u`. In `%h %l %u`, the second field is
        // almost always `-`, and a name in the third may have spaces.
        let has_port = first.iter().rposition(|byte| *byte == b':').is_some_and(|at| {
            let (host, port) = (first.get(..at).unwrap_or_default(), first.get(at + 1..).unwrap_or_default());
            let is_host = memchr(b':', host).is_none() || (host.starts_with(b"[") && host.ends_with(b"]"));
            is_host && !port.is_empty() && port.iter().all(u8::is_ascii_digit)
        });
        if let Some((_, user)) = split(third)
            && second != b"-"
            && !first.ends_with(b",")
            && (has_port || address(second).is_some())
        {
            return Some(Self { host: second, user });
        }
        // Otherwise a collector has put something before the line, or the first field is a list of addresses.
        let is_front = !third.is_empty() && (second == b"-" || address(first).is_some());
        is_front.then_some(Self { host: first, user: third })
    }
}

fn split(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = memchr(b' ', text)?;
    Some((text.get(..at)?, text.get(at + 1..)?))
}

/// The text after the time that is not read yet.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    /// The text between the next two quotes; `None` if the next word does not begin with a quote. Quotes within it are
    /// escaped by a backslash.
    fn quoted(&mut self) -> Option<&'a [u8]> {
        let text = self.0.trim_ascii_start().strip_prefix(b"\"")?;
        let mut from = 0;
        loop {
            let at = from + memchr(b'"', text.get(from..)?)?;
            let content = text.get(..at)?;
            let slashes = content.iter().rev().take_while(|byte| **byte == b'\\').count();
            if slashes % 2 == 0 {
                self.0 = text.get(at + 1..)?;
                return Some(content);
            }
            from = at + 1;
        }
    }

    /// The next word; empty at the end.
    fn word(&mut self) -> &'a [u8] {
        let text = self.0.trim_ascii_start();
        let end = memchr(b' ', text).unwrap_or(text.len());
        let (word, rest) = text.split_at(end);
        self.0 = rest;
        word
    }
}

/// The method and the target of `GET /path HTTP/1.1`. A client can send any other text: without a space, all of it is the
/// target.
pub(super) fn split_request(request: &[u8]) -> (&[u8], &[u8]) {
    let Some((method, rest)) = split(request) else { return (b"", request) };
    let end = memchr::memrchr(b' ', rest).unwrap_or(rest.len());
    (method, rest.get(..end).unwrap_or_default())
}
