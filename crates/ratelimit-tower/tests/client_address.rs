//! The client's address, with headers of every kind: no header that a client can write creates a new client.

use std::net::IpAddr;

use http::{HeaderMap, HeaderName, HeaderValue};
use proptest::collection::vec;
use proptest::prelude::*;
use ratelimit_tower::{ForwardedHeader, Grouping, TrustedProxies};

const NETWORKS: [&str; 3] = ["10.0.0.0/8", "2001:db8:1::/48", "192.0.2.77"];

fn proxies() -> TrustedProxies {
    TrustedProxies::parse(NETWORKS).unwrap()
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn headers(name: &str, lines: &[&str]) -> HeaderMap {
    let name: HeaderName = name.parse().unwrap();
    lines.iter().map(|line| (name.clone(), HeaderValue::from_bytes(line.as_bytes()).unwrap())).collect()
}

fn forwarded_for(lines: &[&str]) -> String {
    proxies().client(ip("10.0.0.1"), &headers("x-forwarded-for", lines)).to_string()
}

fn forwarded(lines: &[&str]) -> String {
    let proxies = proxies().with_header(ForwardedHeader::Forwarded);
    proxies.client(ip("10.0.0.1"), &headers("forwarded", lines)).to_string()
}

fn connecting_ip(lines: &[&str]) -> String {
    let proxies = proxies().with_header("cf-connecting-ip".parse().unwrap());
    proxies.client(ip("10.0.0.1"), &headers("cf-connecting-ip", lines)).to_string()
}

#[test]
fn without_proxies_no_header_is_read() {
    for header in ["x-forwarded-for", "forwarded", "x-real-ip"] {
        let proxies = TrustedProxies::none().with_header(header.parse().unwrap());
        let headers = headers(header, &["192.0.2.1", "for=192.0.2.1"]);
        assert_eq!(proxies.client(ip("203.0.113.5"), &headers), ip("203.0.113.5"), "{header}");
    }
}

#[test]
fn trusted_hops_are_skipped_from_the_right_over_all_lines() {
    assert_eq!(forwarded_for(&[]), "10.0.0.1");
    assert_eq!(forwarded_for(&["203.0.113.5"]), "203.0.113.5");
    assert_eq!(forwarded_for(&["1.1.1.1, 203.0.113.5"]), "203.0.113.5");
    assert_eq!(forwarded_for(&["1.1.1.1, 203.0.113.5, 10.9.9.9,192.0.2.77"]), "203.0.113.5");
    assert_eq!(forwarded_for(&["1.1.1.1", "203.0.113.5, 10.9.9.9", "10.1.1.1"]), "203.0.113.5");
    assert_eq!(forwarded_for(&["203.0.113.5, 2001:db8:1::5"]), "203.0.113.5");
    assert_eq!(forwarded_for(&["203.0.113.5:4711, [2001:db8:1::5]:80"]), "203.0.113.5");
    assert_eq!(forwarded_for(&["10.0.0.9, 10.0.0.8"]), "10.0.0.9", "all trusted: the leftmost");
}

#[test]
fn the_walk_stops_at_an_invalid_address() {
    assert_eq!(forwarded_for(&["unknown"]), "10.0.0.1");
    assert_eq!(forwarded_for(&["203.0.113.5, unknown, 10.0.0.8"]), "10.0.0.8");
    assert_eq!(forwarded_for(&["203.0.113.5", ""]), "10.0.0.1");
    assert_eq!(forwarded_for(&["203.0.113.5,, 10.0.0.8"]), "10.0.0.8");
    assert_eq!(forwarded_for(&["203.0.113.5, 203.0.113.6 10.0.0.8"]), "10.0.0.1");
    assert_eq!(forwarded(&["for=203.0.113.5, for=_hidden, for=10.0.0.8"]), "10.0.0.8");
    assert_eq!(forwarded(&["for=203.0.113.5, by=10.0.0.8"]), "10.0.0.1");
}

#[test]
fn forwarded_is_parsed_as_in_rfc_7239() {
    assert_eq!(forwarded(&["for=192.0.2.60;proto=http;by=203.0.113.43"]), "192.0.2.60");
    assert_eq!(forwarded(&["For=\"[2001:db8:cafe::17]:4711\""]), "2001:db8:cafe::17");
    assert_eq!(forwarded(&["for=192.0.2.43, for=\"[2001:db8:1::101]\""]), "192.0.2.43");
    assert_eq!(
        forwarded(&["for=192.0.2.43;host=\"a,b\", for=10.0.0.8;host=\"c,for=1.1.1.1\""]),
        "192.0.2.43"
    );
    assert_eq!(forwarded(&[r#"for=192.0.2.43, for=10.0.0.9;host="a\\", for=10.0.0.8"#]), "192.0.2.43");
    // An unterminated quote or an escape of the client swallows nothing that a proxy wrote.
    for opened in ["for=\"evil", "for=1.1.1.1;host=\"", "\"", "for=\"\\", "\\"] {
        let line = format!("{opened}, for=203.0.113.5, for=\"10.0.0.8:80\"");
        assert_eq!(forwarded(&[&line]), "203.0.113.5", "{opened}");
        assert_eq!(forwarded(&[opened, "for=203.0.113.5"]), "203.0.113.5", "{opened}");
    }
}

#[test]
fn headers_of_a_single_address_must_contain_exactly_one() {
    assert_eq!(connecting_ip(&["203.0.113.5"]), "203.0.113.5");
    assert_eq!(connecting_ip(&["2001:db8::1"]), "2001:db8::1");
    for lines in [&[][..], &["203.0.113.5, 203.0.113.6"], &["203.0.113.5", "203.0.113.5"], &["unknown"]] {
        assert_eq!(connecting_ip(lines), "10.0.0.1", "{lines:?}");
    }
}

#[test]
fn only_the_configured_header_is_read() {
    let mut headers = headers("x-forwarded-for", &["203.0.113.5"]);
    for name in ["forwarded", "x-real-ip", "cf-connecting-ip", "x-client-ip"] {
        headers.append(name, HeaderValue::from_static("1.1.1.1"));
        headers.append(name, HeaderValue::from_static("for=1.1.1.1"));
    }
    assert_eq!(proxies().client(ip("10.0.0.1"), &headers), ip("203.0.113.5"));
}

#[test]
fn ipv4_mapped_addresses_are_ipv4_addresses() {
    let headers = headers("x-forwarded-for", &["::ffff:203.0.113.5, ::ffff:10.0.0.8"]);
    assert_eq!(proxies().client(ip("::ffff:10.0.0.1"), &headers), ip("203.0.113.5"));
    assert_eq!(TrustedProxies::none().client(ip("::ffff:10.0.0.1"), &headers), ip("10.0.0.1"));
    let mapped = TrustedProxies::parse(["::ffff:10.0.0.0/104"]).unwrap();
    assert_eq!(mapped.client(ip("10.0.0.1"), &headers), ip("203.0.113.5"));
}

#[test]
fn enormous_headers_are_read_up_to_a_bound() {
    let long = "1".repeat(1 << 20);
    assert_eq!(forwarded_for(&[&long]), "10.0.0.1");
    assert_eq!(forwarded_for(&[&format!("{long}, 203.0.113.5")]), "203.0.113.5");
    assert_eq!(forwarded(&[&format!("for=203.0.113.5;host=\"{}\"", "\\\"".repeat(1 << 20))]), "10.0.0.1");
    let chain = |proxies: usize| format!("203.0.113.5{}", ", 10.0.0.8".repeat(proxies));
    assert_eq!(forwarded_for(&[&chain(63)]), "203.0.113.5");
    assert_eq!(forwarded_for(&[&chain(64)]), "10.0.0.8");
    let padded = |spaces: usize| format!("{}203.0.113.5", " ".repeat(spaces - "203.0.113.5".len()));
    assert_eq!(forwarded_for(&[&format!("1.1.1.1,{}", padded(1_024))]), "203.0.113.5");
    assert_eq!(forwarded_for(&[&format!("1.1.1.1,{}", padded(1_025))]), "10.0.0.1");
    assert_eq!(forwarded_for(&[&padded(1_025)]), "10.0.0.1");
}

#[test]
fn addresses_are_grouped_by_network() {
    let proxies = TrustedProxies::none();
    assert_eq!(proxies.group(ip("2001:db8:1:2::3")), proxies.group(ip("2001:db8:1:2:ffff::")));
    assert_ne!(proxies.group(ip("2001:db8:1:2::3")), proxies.group(ip("2001:db8:1:3::3")));
    assert_ne!(proxies.group(ip("192.0.2.1")), proxies.group(ip("192.0.2.2")));
    assert_eq!(proxies.group(ip("::ffff:192.0.2.1")), proxies.group(ip("192.0.2.1")));
    assert_eq!(proxies.group(ip("192.0.2.1")).as_ref(), [192, 0, 2, 1, 32]);
    let wide = proxies.with_grouping(Grouping::default().ipv4_prefix(24).ipv6_prefix(56));
    assert_eq!(wide.group(ip("192.0.2.1")).to_string(), "192.0.2.0/24");
    assert_eq!(wide.group(ip("2001:db8:0:1ff::1")).to_string(), "2001:db8:0:100::/56");
    assert_eq!(wide.group(ip("2001:db8:0:1ff::1")).address(), ip("2001:db8:0:100::"));
}

#[test]
fn a_bad_network_is_named() {
    for bad in ["", "10.0.0.0/33", "2001:db8::/129", "10.0.0.0/", "proxy.internal", "10.0.0"] {
        let error = TrustedProxies::parse(["10.0.0.0/8", bad]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{bad:?} is not a network")), "{error}");
    }
    assert!("x y".parse::<ForwardedHeader>().is_err());
}

#[test]
fn debug_output_hides_the_address() {
    let network = TrustedProxies::none().group(ip("192.0.2.1"));
    assert_eq!(format!("{network:?}"), "ClientNetwork(IPv4, /32)");
}

/// Bytes that a header line can contain, mostly those with a special meaning.
fn line() -> impl Strategy<Value = Vec<u8>> {
    let meaningful = prop::sample::select(&b"0123456789abcdef.:,;=\"\\[]_ for"[..]);
    let byte = prop_oneof![
        8 => meaningful,
        1 => (b' '..=u8::MAX).prop_map(|byte| if byte == 0x7f { b'\t' } else { byte }),
    ];
    let piece = prop_oneof![
        vec(byte, 0..12),
        prop::sample::select(
            &["10.0.0.9", "for=10.0.0.9", "203.0.113.5", "for=1.1.1.1", ", ", "unknown"][..]
        )
        .prop_map(|text| text.as_bytes().to_vec()),
    ];
    vec(piece, 0..6).prop_map(|pieces| pieces.concat())
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![any::<[u8; 4]>().prop_map(IpAddr::from), any::<[u8; 16]>().prop_map(IpAddr::from)]
}

fn header() -> impl Strategy<Value = &'static str> {
    prop::sample::select(&["x-forwarded-for", "forwarded", "cf-connecting-ip"][..])
}

fn is_trusted(address: IpAddr) -> bool {
    let trusted = |network: &str| match network.parse::<ipnet::IpNet>() {
        Ok(network) => network.contains(&address),
        Err(_) => ip(network) == address,
    };
    NETWORKS.into_iter().any(trusted)
}

/// An address in one of the forms in which a proxy may write it.
fn written(header: &str, address: IpAddr, port: Option<u16>) -> String {
    let node = match (address, port) {
        (address, None) if address.is_ipv4() || header != "forwarded" => address.to_string(),
        (IpAddr::V4(address), Some(port)) => format!("{address}:{port}"),
        (address, None) => format!("[{address}]"),
        (IpAddr::V6(address), Some(port)) => format!("[{address}]:{port}"),
    };
    match header {
        "forwarded" => format!("for=\"{node}\";proto=https;host=\"a,\\\"b\""),
        _ => node,
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn an_untrusted_peer_is_the_client_whatever_headers_it_sends(
        peer in address(), header in header(), lines in vec((header(), line()), 0..6),
    ) {
        let peer = peer.to_canonical();
        prop_assume!(!is_trusted(peer));
        let mut headers = HeaderMap::new();
        for (name, line) in lines {
            headers.append(name, HeaderValue::from_bytes(&line).unwrap());
        }
        let proxies = proxies().with_header(header.parse().unwrap());
        prop_assert_eq!(proxies.client(peer, &headers), peer);
    }

    #[test]
    fn spoofed_entries_to_the_left_change_nothing(
        header in prop::sample::select(&["x-forwarded-for", "forwarded"][..]),
        client in address(),
        port: Option<u16>,
        hops in vec((0_u32..1 << 24, any::<bool>()), 0..4),
        spoofed in vec(line(), 0..4),
        appended: bool,
    ) {
        let client = client.to_canonical();
        prop_assume!(!is_trusted(client));
        // The proxies append the client, then each other, each on a new line or on the last existing one.
        let mut lines = spoofed;
        let hops = hops.into_iter().map(|(low, own_line)| (IpAddr::from((10_u32 << 24 | low).to_be_bytes()), own_line));
        for (address, own_line) in [(client, !appended)].into_iter().chain(hops) {
            let entry = written(header, address, port);
            match lines.last_mut() {
                Some(line) if !own_line => line.extend(format!(", {entry}").bytes()),
                _ => lines.push(entry.into_bytes()),
            }
        }
        let mut headers = HeaderMap::new();
        for line in lines {
            headers.append(header, HeaderValue::from_bytes(&line).unwrap());
        }
        let proxies = proxies().with_header(header.parse().unwrap());
        prop_assert_eq!(proxies.client(ip("10.0.0.1"), &headers), client);
    }
}
