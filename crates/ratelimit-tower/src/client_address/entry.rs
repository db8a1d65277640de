//! One entry of a forwarding header: an address with optional port, brackets and quotes, or nothing.

use std::net::IpAddr;
use std::str;

/// Parses an address as proxies write it: `192.0.2.1`, `192.0.2.1:443`, `2001:db8::1`, `[2001:db8::1]`,
/// `[2001:db8::1]:443`, each also in quotes. Returns `None` for anything else.
pub(super) fn address(entry: &[u8]) -> Option<IpAddr> {
    node(unquoted(entry.trim_ascii())?)
}

/// Parses the parameter `for` of an element of `Forwarded`: `proto=https;for="[2001:db8::1]:443"`.
///
/// Returns `None` if there is none or more than one, or if it is not an address (`unknown`, `_hidden`).
pub(super) fn forwarded_for(element: &[u8]) -> Option<IpAddr> {
    let mut found = None;
    for pair in split_outside_quotes(element, b';') {
        let Some(at) = pair.iter().position(|byte| *byte == b'=') else { continue };
        if !pair[..at].trim_ascii().eq_ignore_ascii_case(b"for") {
            continue;
        }
        if found.is_some() {
            return None;
        }
        found = Some(&pair[at + 1..]);
    }
    address(found?)
}

/// Parses an address, with optional brackets and port. The port may be obfuscated (`192.0.2.1:_web`), as RFC 7239 allows.
fn node(text: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(text).ok()?;
    let address = if let Some(rest) = text.strip_prefix('[') {
        let (inner, port) = rest.split_once(']')?;
        let is_port = port.is_empty() || port.strip_prefix(':').is_some_and(is_port);
        IpAddr::V6(inner.parse().ok().filter(|_| is_port)?)
    } else if let Ok(address) = text.parse::<IpAddr>() {
        address
    } else {
        let (inner, port) = text.rsplit_once(':')?;
        IpAddr::V4(inner.parse().ok().filter(|_| is_port(port))?)
    };
    Some(address.to_canonical())
}

fn is_port(text: &str) -> bool {
    match text.strip_prefix('_') {
        Some(hidden) => !hidden.is_empty() && hidden.bytes().all(is_hidden_byte),
        None => {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
        }
    }
}

fn is_hidden_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"._-".contains(&byte)
}

/// Removes the quotes. A quote at only one end makes the text malformed; an address needs no escapes.
fn unquoted(text: &[u8]) -> Option<&[u8]> {
    match text {
        [b'"', inner @ .., b'"'] => Some(inner),
        [b'"', ..] | [.., b'"'] => None,
        _ => Some(text),
    }
}

/// Splits at separators that are outside of quotes.
fn split_outside_quotes(text: &[u8], separator: u8) -> impl Iterator<Item = &[u8]> {
    let (mut in_quotes, mut escaped) = (false, false);
    text.split(move |byte| {
        let was_escaped = std::mem::replace(&mut escaped, false);
        match byte {
            b'\\' if in_quotes && !was_escaped => escaped = true,
            b'"' if !was_escaped => in_quotes = !in_quotes,
            byte if *byte == separator && !in_quotes => return true,
            _ => {}
        }
        false
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_read_with_its_port_brackets_and_quotes() {
        for (text, expected) in [
            ("192.0.2.1", "192.0.2.1"),
            (" 192.0.2.1\t", "192.0.2.1"),
            ("192.0.2.1:443", "192.0.2.1"),
            ("\"192.0.2.1:443\"", "192.0.2.1"),
            ("192.0.2.1:_web-1", "192.0.2.1"),
            ("2001:DB8::1", "2001:db8::1"),
            ("[2001:db8::1]", "2001:db8::1"),
            ("[2001:db8::1]:65535", "2001:db8::1"),
            ("\"[2001:db8::1]:_p\"", "2001:db8::1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("[::ffff:c000:201]:80", "192.0.2.1"),
        ] {
            assert_eq!(address(text.as_bytes()), Some(expected.parse().unwrap()), "{text}");
        }
    }

    #[test]
    fn invalid_addresses_are_ignored() {
        for text in [
            "",
            " ",
            "unknown",
            "_hidden",
            "_192.0.2.1",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.01",
            "0x7f.1",
            "3221225985",
            "192.0.2.1:",
            "192.0.2.1:65536",
            "192.0.2.1:+1",
            "192.0.2.1:_",
            "192.0.2.1:80:80",
            "192.0.2.1/32",
            "[192.0.2.1]",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]80",
            "[2001:db8::1]:",
            "[fe80::1%eth0]",
            "fe80::1%1",
            "\"192.0.2.1",
            "192.0.2.1\"",
            "\"\"192.0.2.1\"\"",
            "192.0.2.1 192.0.2.2",
            "localhost",
            "\"",
        ] {
            assert_eq!(address(text.as_bytes()), None, "{text}");
        }
        assert_eq!(address(b"192.0.2.1\xff"), None);
    }

    #[test]
    fn the_for_parameter_is_found_among_others() {
        for (element, expected) in [
            ("for=192.0.2.1", Some("192.0.2.1")),
            ("FOR=192.0.2.1;proto=https;by=10.0.0.1", Some("192.0.2.1")),
            ("proto=http; For=\"[2001:db8::1]:4711\" ;host=\"a;for=1.1.1.1\"", Some("2001:db8::1")),
            ("host=\"\\\";for=1.1.1.1\";for=192.0.2.1", Some("192.0.2.1")),
            ("for=unknown", None),
            ("for=_gazonk", None),
            ("for=\"_gazonk:80\"", None),
            ("for=192.0.2.1;for=192.0.2.2", None),
            ("by=10.0.0.1", None),
            ("host=\";for=192.0.2.1", None),
            ("192.0.2.1", None),
            ("", None),
        ] {
            let expected = expected.map(|address| address.parse::<IpAddr>().unwrap());
            assert_eq!(forwarded_for(element.as_bytes()), expected, "{element}");
        }
    }
}
