//! The walk over what proxies wrote, from the right, where the nearest one did.

use std::net::IpAddr;

use http::header::FORWARDED;
use http::{HeaderMap, HeaderName};

use super::{TrustedProxies, entry};

/// The most entries that are looked at. Real chains have two or three.
const MOST_ENTRIES: usize = 64;

/// The longest entry, in bytes: an element of `Forwarded` with a host's name of 253 bytes and more fits.
const LONGEST_ENTRY: usize = 1_024;

const X_FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");

pub(super) fn x_forwarded_for(proxies: &TrustedProxies, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let lines = headers.get_all(X_FORWARDED_FOR).iter().rev();
    let entries = lines.flat_map(|line| Entries::new(line.as_bytes(), Quotes::Ordinary));
    walk(proxies, peer, entries.map(|text| text.and_then(entry::address)))
}

pub(super) fn forwarded(proxies: &TrustedProxies, peer: IpAddr, headers: &HeaderMap) -> IpAddr {
    let lines = headers.get_all(FORWARDED).iter().rev();
    let elements = lines.flat_map(|line| Entries::new(line.as_bytes(), Quotes::HideCommas));
    walk(proxies, peer, elements.map(|text| text.and_then(entry::forwarded_for)))
}

/// The address in a header that is there once.
pub(super) fn single(name: &HeaderName, headers: &HeaderMap) -> Option<IpAddr> {
    let mut lines = headers.get_all(name).iter();
    let line = lines.next().filter(|line| line.len() <= LONGEST_ENTRY)?;
    if lines.next().is_some() { None } else { entry::address(line.as_bytes()) }
}

/// The first address that is not trusted, or the last one that is before something else or the end.
fn walk(proxies: &TrustedProxies, peer: IpAddr, entries: impl Iterator<Item = Option<IpAddr>>) -> IpAddr {
    let mut client = peer;
    for address in entries.take(MOST_ENTRIES) {
        let Some(address) = address else { break };
        client = address;
        if !proxies.trusts(address) {
            break;
        }
    }
    client
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Quotes {
    /// A quote is a character like others.
    Ordinary,
    /// A comma between quotes separates nothing.
    HideCommas,
}

/// The entries of a line from right to left; `None` for one that is too long.
///
/// Quotes are paired from the right as well: what a client wrote stands on the left, so a quote that it left open can
/// swallow nothing that a proxy wrote.
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

/// Whether what follows `before` is escaped: an odd number of backslashes stands in front of it.
fn is_escaped(before: &[u8]) -> bool {
    before.iter().rev().take(LONGEST_ENTRY).take_while(|byte| **byte == b'\\').count() % 2 == 1
}
