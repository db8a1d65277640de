//! Addresses as logs have them: with ports, brackets and zones.

use std::net::{IpAddr, SocketAddr};

/// The address in `192.0.2.1:5555` or `[2001:db8::1]:5555`; any other value as it is. Each connection of a client has a port
/// of its own.
fn without_port(value: &[u8]) -> &[u8] {
    let is_with_port = |text: &str| text.parse::<SocketAddr>().is_ok();
    if !str::from_utf8(value).is_ok_and(is_with_port) {
        return value;
    }
    let end = value.iter().rposition(|byte| *byte == b':').unwrap_or(value.len());
    let address = &value[..end];
    without_brackets(address)
}

fn without_brackets(address: &[u8]) -> &[u8] {
    address.strip_prefix(b"[").and_then(|inner| inner.strip_suffix(b"]")).unwrap_or(address)
}

/// Reads an address. A port, brackets, and a zone as in `fe80::1%eth0`, are ignored.
pub(crate) fn address(value: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(without_brackets(without_port(value))).ok()?;
    text.split('%').next()?.parse().ok()
}
