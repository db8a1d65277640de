//! Reads the entries that proxies wrote, from the right, where the nearest proxy wrote.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use super::entry;

/// The maximum number of entries to read. Real chains have two or three.
const MOST_ENTRIES: usize = 64;

/// The maximum length of an entry, in bytes: enough for an element of `Forwarded` with a host name of 253 bytes and more.
const LONGEST_ENTRY: usize = 1_024;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

/// The client that a header reports.
pub(super) struct Found {
    pub(super) client: IpAddr,
    /// Whether an entry is not an address, so that the client is the proxy that wrote it.
    pub(super) is_malformed: bool,
}

pub(super) fn x_forwarded_for(trusts: impl Fn(IpAddr) -> bool, peer: IpAddr, headers: &HeaderMap) -> Found {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| Entries::new(line.as_bytes(), Quotes::Ordinary));
    walk(trusts, peer, entries.map(|text| text.and_then(entry::address)))
}

pub(super) fn forwarded(trusts: impl Fn(IpAddr) -> bool, peer: IpAddr, headers: &HeaderMap) -> Found {
    let lines = headers.get_all(FORWARDED).iter().rev();
    let elements = lines.flat_map(|line| Entries::new(line.as_bytes(), Quotes::HideCommas));
    walk(trusts, peer, elements.map(|text| text.and_then(entry::forwarded_for)))
}

/// The address in a header that occurs once; otherwise the peer.
pub(super) fn single(name: &HeaderName, peer: IpAddr, headers: &HeaderMap) -> Found {
    let mut lines = headers.get_all(name).iter();
    let Some(line) = lines.next() else { return Found { client: peer, is_malformed: false } };
    let address = match lines.next() {
        None if line.len() <= LONGEST_ENTRY => entry::address(line.as_bytes()),
        _ => None,
    };
    Found { client: address.unwrap_or(peer), is_malformed: address.is_none() }
}

/// The client: the first address that is not trusted. If there is none, the last address before an entry that is not an
/// address, or before the end.
fn walk(
    trusts: impl Fn(IpAddr) -> bool,
    peer: IpAddr,
    entries: impl Iterator<Item = Option<IpAddr>>,
) -> Found {
    let mut client = peer;
    for address in entries.take(MOST_ENTRIES) {
        let Some(address) = address else { return Found { client, is_malformed: true } };
        client = address;
        if !trusts(address) {
            break;
        }
    }
    Found { client, is_malformed: false }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    /// A quote is an ordinary character.
    Ordinary,
    /// A comma between quotes is not a separator.
    HideCommas,
}

/// The entries of a line from right to left; `None` for one that is too long.
///
/// Quotes are paired from the right as well. The client's part is on the left, so a quote that the client left open
/// cannot swallow what a proxy wrote.
struct Entries<'a> {
    rest: Option<&'a [u8]>,
    quotes: Quotes,
}

impl<'a> Entries<'a> {
    fn new(line: &'a [u8], quotes: Quotes) -> Self {
        Self { rest: Some(line), quotes }
    }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Option<&'a [u8]>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.rest.take()?;
        let mut in_quotes = false;
        for at in (0..rest.len()).rev() {
            if rest.len() - at - 1 > LONGEST_ENTRY {
                return Some(None);
            }
            match rest[at] {
                b'"' if self.quotes == Quotes::HideCommas && !is_escaped(&rest[..at]) => {
                    in_quotes = !in_quotes;
                }
                b',' if !in_quotes => {
                    self.rest = Some(&rest[..at]);
                    return Some(Some(&rest[at + 1..]));
                }
                _ => {}
            }
        }
        Some(Some(rest).filter(|rest| rest.len() <= LONGEST_ENTRY))
    }
}

/// Whether what follows `before` is escaped: it is preceded by an odd number of backslashes.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take(LONGEST_ENTRY).take_while(|byte| **byte == b'\\').count() % 2 == 1
}
