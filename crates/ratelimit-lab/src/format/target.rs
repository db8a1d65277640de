//! The method and the path of a request, as logs write them: by themselves, in its first line, or in a URL.

use memchr::{memchr, memrchr};

use crate::field::Field;
use crate::record::{Record, Wanted};

/// The method and the target of `GET /path HTTP/1.1`. A client can send any other text: without a space, all of it is the
/// target.
pub(super) fn split_request(request: &[u8]) -> (&[u8], &[u8]) {
    let Some(at) = memchr(b' ', request) else { return (b"", request) };
    let (method, rest) = (&request[..at], &request[at + 1..]);
    let end = memrchr(b' ', rest).unwrap_or(rest.len());
    (method, rest.get(..end).unwrap_or_default())
}

/// The path of a target: without what follows `?`, and without `https://host:port`.
pub(super) fn path(target: &[u8]) -> &[u8] {
    without_query(without_origin(target))
}

/// What a field of a log says: of one with the path, or with the method, only that, if it has a URL or the first line of the
/// request.
pub(super) fn value_of<'v>(field: &Field, value: &'v [u8]) -> &'v [u8] {
    match field {
        Field::Path => path(if is_first_line(value) { split_request(value).1 } else { value }),
        Field::Method if is_first_line(value) => split_request(value).0,
        _ => value,
    }
}

/// Sets a field to what its column says, if it is read of this line.
pub(super) fn set_column(record: &mut Record, wanted: &Wanted, index: usize, value: &[u8]) {
    if let Some(field) = wanted.fields().get(index).filter(|_| index < record.len()) {
        record.set(index, value_of(field, value));
    }
}

/// Sets the method and the path by the first line of a request, unless they are set already or have other fields of their own.
pub(super) fn set_request(record: &mut Record, wanted: &Wanted, request: &[u8]) {
    let (method, target) = split_request(request);
    for (index, field) in wanted.fields().iter().enumerate() {
        match field {
            _ if wanted.only_name(field).is_some() => {}
            Field::Method => record.set(index, method),
            Field::Path => record.set(index, path(target)),
            _ => {}
        }
    }
}

fn is_first_line(value: &[u8]) -> bool {
    memrchr(b' ', value).is_some_and(|at| value[at + 1..].starts_with(b"HTTP/"))
}

fn without_query(target: &[u8]) -> &[u8] {
    &target[..memchr(b'?', target).unwrap_or(target.len())]
}

fn without_origin(target: &[u8]) -> &[u8] {
    if target.starts_with(b"/") {
        return target; // as nearly all do
    }
    let Some(at) = memchr::memmem::find(target, b"://").filter(|at| *at < 8) else { return target };
    let rest = target.get(at + 3..).unwrap_or_default();
    match rest.iter().position(|byte| matches!(byte, b'/' | b'?')) {
        Some(at) if rest[at] == b'/' => &rest[at..],
        _ => b"/",
    }
}
