//! What requests are counted by.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ipnet::IpNet;

use crate::address::address;
use crate::clients::Clients;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// What requests are counted by, parsed from text such as `ip`, `user`, `ip,path`, `ip/24`, `all` or `field:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct By {
    text: String,
    parts: Vec<Dimension>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Dimension {
    Field(Field),
    /// The network of the client's address, with this many bits for IPv4 and for IPv6.
    Network {
        v4: u8,
        v6: u8,
    },
}

impl FromStr for By {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.trim();
        let parts = match text {
            "all" => Vec::new(),
            _ => text.split(',').map(|part| part_of(part.trim())).collect::<Result<_, _>>()?,
        };
        Ok(Self { text: text.to_owned(), parts })
    }
}

fn part_of(text: &str) -> Result<Dimension, String> {
    let bits = match text.strip_prefix("ip/") {
        Some(bits) => bits,
        None if text.is_empty() => return Err("a name is missing".to_owned()),
        None => return Ok(Dimension::Field(Field::of_name(text))),
    };
    let (v4, v6) = bits.split_once('/').unwrap_or((bits, "64"));
    let read = |bits: &str, most: u8| bits.parse().ok().filter(|bits| (1..=most).contains(bits));
    match (read(v4, 32), read(v6, 128)) {
        (Some(v4), Some(v6)) => Ok(Dimension::Network { v4, v6 }),
        _ => Err("networks are ip/BITS or ip/BITS/BITS-OF-IPV6, such as ip/24 or ip/24/48".to_owned()),
    }
}

/// By the client's address, `ip`.
impl Default for By {
    fn default() -> Self {
        Self { text: "ip".to_owned(), parts: vec![Dimension::Field(Field::Ip)] }
    }
}

impl fmt::Display for By {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// The maximum length of a value that is written into a key as it is, in bytes. Of a longer value, this is the length of
/// the part that is written before its hash.
const LONGEST: usize = 256;

/// Makes the keys of requests.
#[derive(Clone, Debug)]
pub(crate) struct KeyMaker {
    parts: Vec<(Dimension, usize)>,
    clients: Option<Clients>,
}

impl KeyMaker {
    /// Adds the fields that keys are made of to `wanted`.
    pub(crate) fn new(by: &By, clients: Option<Clients>, wanted: &mut Wanted) -> Self {
        let field = |part: &Dimension| match part {
            Dimension::Field(field) => field.clone(),
            Dimension::Network { .. } => Field::Ip,
        };
        let parts = by.parts.iter().map(|part| (part.clone(), wanted.add(field(part)))).collect();
        Self { parts, clients }
    }

    /// The value that the key of a request is made of, if it is the only one. If there is a key of these bytes, it is the key of
    /// the request: a key that is made of the bytes of a key is the same.
    pub(crate) fn only_value<'r>(&self, record: &'r Record) -> Option<&'r [u8]> {
        let [(_, index)] = &*self.parts else { return None };
        record.get(*index).filter(|value| self.clients.is_none() && value.len() <= LONGEST)
    }

    /// Writes the key of a request into `key`. Returns whether the request has all fields that it is counted by; in place
    /// of a missing value, the key has `-`. A key of several fields has spaces between the values, and a value with a
    /// space or a quote is in quotes, so that requests with different values have different keys.
    pub(crate) fn make(&self, record: &Record, key: &mut Vec<u8>) -> bool {
        key.clear();
        if self.parts.is_empty() {
            key.extend_from_slice(b"all");
        }
        let mut is_complete = true;
        for (at, (part, index)) in self.parts.iter().enumerate() {
            if at > 0 {
                key.push(b' ');
            }
            let value = record.get(*index);
            is_complete &= value.is_some();
            let value = value.unwrap_or(b"-");
            let begin = key.len();
            let is_client = matches!(part, Dimension::Network { .. } | Dimension::Field(Field::Ip));
            let found = self.clients.as_ref().filter(|_| is_client);
            let found =
                found.and_then(|clients| clients.client(value, record)).map(|found| found.to_string());
            let value = found.as_ref().map_or(value, |found| found.as_bytes());
            match part {
                Dimension::Network { v4, v6 } => network(value, *v4, *v6, key),
                Dimension::Field(Field::Ip) => client(value, key),
                Dimension::Field(_) => push(value, key),
            }
            if self.parts.len() > 1 {
                quote(key, begin);
            }
        }
        is_complete
    }
}

/// Puts the part of a key from `begin` into quotes, if it has a space or a quote in it. A quote in it is doubled.
fn quote(key: &mut Vec<u8>, begin: usize) {
    let part = key.get(begin..).unwrap_or_default();
    if memchr::memchr2(b' ', b'"', part).is_none() {
        return;
    }
    let part = part.to_vec();
    key.truncate(begin);
    key.push(b'"');
    for byte in part {
        key.push(byte);
        if byte == b'"' {
            key.push(b'"');
        }
    }
    key.push(b'"');
}

/// Appends a value; if it is longer than [`LONGEST`], its first bytes and a hash of all of it.
fn push(value: &[u8], key: &mut Vec<u8>) {
    match value.get(..LONGEST) {
        Some(begin) if value.len() > LONGEST => {
            use std::hash::BuildHasher as _;
            key.extend_from_slice(begin);
            let hash = foldhash::quality::FixedState::default().hash_one(value);
            key.extend_from_slice(format!("…{hash:016x}").as_bytes());
        }
        _ => key.extend_from_slice(value),
    }
}

/// Appends the client with an address, as a policy by `address` counts it: an address of IPv4, also if it is written as one
/// of IPv6, or a network of IPv6 of 64 bits. Appends the value itself if it is not an address.
fn client(value: &[u8], key: &mut Vec<u8>) {
    match address(value).map(|address| address.to_canonical()) {
        Some(IpAddr::V4(address)) => key.extend_from_slice(address.to_string().as_bytes()),
        Some(IpAddr::V6(_)) => network(value, 32, 64, key),
        None => push(value, key),
    }
}

/// Appends the network of an address; the value itself if it is not an address.
fn network(value: &[u8], v4: u8, v6: u8, key: &mut Vec<u8>) {
    let network = address(value).map(|address| address.to_canonical()).and_then(|address| {
        let bits = if address.is_ipv4() { v4 } else { v6 };
        IpNet::new(address, bits).ok()
    });
    match network {
        Some(network) => key.extend_from_slice(network.trunc().to_string().as_bytes()),
        None => push(value, key),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What makes the keys, and the record of a line with these fields.
    fn made(by: &str, fields: &[(&str, &str)]) -> (KeyMaker, Record) {
        let by: By = by.parse().unwrap();
        let mut wanted = Wanted::time(None);
        let maker = KeyMaker::new(&by, None, &mut wanted);
        let mut record = Record::default();
        record.clear(wanted.fields().len());
        for (index, field) in wanted.fields().iter().enumerate().skip(1) {
            if let Some((_, value)) = fields.iter().find(|(name, _)| Field::of_name(name) == *field) {
                record.set(index, value.as_bytes());
            }
        }
        (maker, record)
    }

    fn key(by: &str, fields: &[(&str, &str)]) -> (String, bool) {
        let (maker, record) = made(by, fields);
        let mut key = Vec::new();
        let is_complete = maker.make(&record, &mut key);
        (String::from_utf8(key).unwrap(), is_complete)
    }

    fn only_value(by: &str, fields: &[(&str, &str)]) -> Option<Vec<u8>> {
        let (maker, record) = made(by, fields);
        maker.only_value(&record).map(<[u8]>::to_vec)
    }

    #[test]
    fn keys_are_made_of_what_they_name() {
        let fields = &[("ip", "192.0.2.7"), ("path", "/a"), ("user", "-"), ("field:tenant", "t1")];
        assert_eq!(key("all", fields), ("all".into(), true));
        assert_eq!(key("ip", fields), ("192.0.2.7".into(), true));
        assert_eq!(key("ip,path", fields), ("192.0.2.7 /a".into(), true));
        assert_eq!(key("user", fields), ("-".into(), false));
        assert_eq!(key("tenant", fields), ("t1".into(), true));
        assert_eq!(key("ip/24,field:tenant", fields), ("192.0.2.0/24 t1".into(), true));
        assert_eq!(key("ip/24", &[("ip", "2001:db8:1:2:3::9")]).0, "2001:db8:1:2::/64");
        assert_eq!(key("ip/24/48", &[("ip", "2001:db8:1:2:3::9")]).0, "2001:db8:1::/48");
        assert_eq!(key("ip/24", &[("ip", "::ffff:192.0.2.7")]).0, "192.0.2.0/24");
        assert_eq!(key("ip/24", &[("ip", "client.example")]).0, "client.example");
        assert_eq!(key("ip/24", &[("ip", "fe80::1%eth0")]).0, "fe80::/64");
        for (by, with_port, expected) in [
            ("ip", "192.0.2.7:5555", "192.0.2.7"),
            ("ip", "[2001:db8::9]:443", "2001:db8::/64"),
            ("ip/24", "192.0.2.7:5555", "192.0.2.0/24"),
            ("ip", "2001:db8::9:443", "2001:db8::/64"),
            ("ip", "client.example:80", "client.example:80"),
            ("user", "192.0.2.7:5555", "192.0.2.7:5555"),
        ] {
            assert_eq!(key(by, &[(by.split('/').next().unwrap(), with_port)]).0, expected);
        }
    }

    /// As a policy by `address` counts it.
    #[test]
    fn a_client_has_one_key_however_its_address_is_written() {
        let client = |ip: &str| key("ip", &[("ip", ip)]).0;
        for ip in
            ["192.0.2.7", "192.0.2.7:5555", "::ffff:192.0.2.7", "[::ffff:c000:207]:80", "::FFFF:C000:0207"]
        {
            assert_eq!(client(ip), "192.0.2.7", "{ip}");
        }
        for ip in ["2001:db8::9", "2001:DB8:0:0::1", "[2001:db8::9]", "[2001:db8::7]:443", "2001:db8::1%eth0"]
        {
            assert_eq!(client(ip), "2001:db8::/64", "{ip}");
        }
        assert_eq!(client("fe80::1%eth0"), "fe80::/64");
        for ip in [
            "192.0.2.07",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.7.",
            "client.example",
            "1.2.3.4.5",
            "1..2.3",
            "1.2.3.4x",
        ] {
            assert_eq!(client(ip), ip);
        }
    }

    /// Otherwise a value that is a key must not be taken as it is.
    #[test]
    fn the_key_of_a_key_is_the_same() {
        let long = "x".repeat(LONGEST + 1);
        for value in
            ["192.0.2.7", "192.0.2.7:5", "[2001:db8::9]:443", "client.example", "a \"b\"", "a,b", &*long]
        {
            for by in ["ip", "ip/24", "user", "path", "status"] {
                let name = by.split('/').next().unwrap();
                let made = key(by, &[(name, value)]).0;
                if made.len() <= LONGEST {
                    assert_eq!(key(by, &[(name, &made)]).0, made, "{by} {value}");
                }
                assert_eq!(only_value(by, &[(name, value)]).is_some(), value != long, "{by} {value}");
            }
        }
        assert_eq!(only_value("ip,user", &[("ip", "192.0.2.7"), ("user", "a")]), None);
        assert_eq!(only_value("ip", &[("ip", "-")]), None);
        assert_eq!(only_value("all", &[]), None);
    }

    #[test]
    fn keys_of_several_fields_are_different_if_a_field_is() {
        let pairs = [
            ("a b", "c"),
            ("a", "b c"),
            ("a", "b"),
            ("a\" \"b", "c"),
            ("a", "b\" \"c"),
            ("\"a\"", "b"),
            ("a\"", "b"),
            ("\"a b\"", "c"),
            ("a", "\"b c\""),
            ("-", "b"),
        ];
        let keys = pairs.map(|(user, path)| key("user,path", &[("user", user), ("path", path)]).0);
        assert_eq!(keys[..3], ["\"a b\" c", "a \"b c\"", "a b"]);
        assert_eq!(keys.iter().collect::<std::collections::BTreeSet<_>>().len(), keys.len(), "{keys:?}");
        // A key of one field needs no quotes.
        assert_eq!(key("user", &[("user", "a \"b\"")]).0, "a \"b\"");
    }

    #[test]
    fn long_values_stay_different() {
        let [a, b] = ["a", "b"].map(|end| "x".repeat(10_000) + end);
        let [a, b] = [&a, &b].map(|path| key("path", &[("path", path)]).0);
        assert!(a != b && a.len() < 300, "{a} {b}");
    }

    #[test]
    fn wrong_networks_are_refused() {
        for wrong in ["", "ip,", "ip/0", "ip/33", "ip/x", "ip/24/129", "ip/24/48/1"] {
            assert!(wrong.parse::<By>().is_err(), "{wrong}");
        }
    }
}
