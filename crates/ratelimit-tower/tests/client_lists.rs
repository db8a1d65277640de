//! Lists of clients that are refused, or that no policy applies to.

mod support;

use std::net::IpAddr;

use http::{HeaderName, Request, StatusCode};
use proptest::prelude::*;
use ratelimit_tower::{
    ClientList, ForwardedHeader, Head, KeySource, PeerAddress, Policies, Policy, TrustedProxies,
};

use support::*;

fn address() -> KeySource {
    KeySource::client_address(TrustedProxies::none())
}

fn api_key() -> KeySource {
    KeySource::api_key(HeaderName::from_static("x-api-key"))
}

fn one_a_minute() -> Policies {
    Policies::new([Policy::new("address", address(), limit("1/min")).unwrap()]).unwrap()
}

fn from(peer: &str) -> Request<Body> {
    let mut request = request(&[]);
    request.extensions_mut().insert(PeerAddress(peer.parse().unwrap()));
    request
}

fn contains(list: &ClientList, request: &Request<Body>) -> bool {
    list.contains(&Head::of(request))
}

#[tokio::test]
async fn denied_clients_get_403_and_allowed_ones_are_not_counted() {
    let denied = ClientList::new(address(), ["192.0.2.0/24"]).unwrap();
    let allowed = ClientList::new(api_key(), ["s3cret"]).unwrap();
    let policies = one_a_minute().deny(denied.clone()).allow(allowed);
    let service = service(&layer_under(&clock(), policies));
    let key = [("x-api-key", "s3cret")];
    let response = send(&service, request(&key)).await;
    assert_eq!(response.status(), StatusCode::FORBIDDEN, "a client in both lists is denied");
    assert!(response.headers().get("retry-after").is_none(), "waiting does not help");
    let body = text(response).await;
    assert!(body.contains(r#""status":403"#) && !body.contains("192.0.2"), "{body}");

    denied.replace(["198.51.100.7"]).unwrap();
    assert_eq!(statuses(&service, 3, &key).await, [200; 3], "no policy applies");
    assert_eq!(statuses(&service, 2, &[("x-api-key", "another")]).await, [200, 429]);
    let error = denied.replace(["192.0.2.0/24", "", "no network"]).unwrap_err();
    assert_eq!(error.line(), 3);
    assert_eq!(statuses(&service, 1, &key).await, [200], "a list with an error replaces nothing");
}

#[tokio::test]
async fn a_key_that_is_sent_twice_evades_no_list_and_is_in_none() {
    let leaked = ClientList::new(api_key(), ["leaked"]).unwrap();
    let allowed = ClientList::new(api_key(), ["s3cret"]).unwrap();
    let denies = service(&layer_under(&clock(), one_a_minute().deny(leaked)));
    let allows = service(&layer_under(&clock(), one_a_minute().allow(allowed.clone())));
    for other in ["leaked", "s3cret", ""] {
        let denied = [("x-api-key", "leaked"), ("x-api-key", other)];
        assert_eq!(statuses(&denies, 1, &denied).await, [403]);
    }
    let both = [("x-api-key", "s3cret"), ("x-api-key", "s3cret")];
    assert_eq!(statuses(&allows, 2, &both).await, [200, 429]);
    assert!(contains(&allowed, &request(&both[..1])) && !contains(&allowed, &request(&both)));
}

/// Otherwise denied clients would be let through by a service that was set up wrongly.
#[tokio::test]
async fn what_the_program_does_not_provide_lets_nobody_evade_a_deny_list() {
    let list = ClientList::new(address(), ["192.0.2.1"]).unwrap();
    let by_key = || Policies::new([Policy::new("key", api_key(), limit("9/min")).unwrap()]).unwrap();
    let leaked = ClientList::new(api_key(), ["leaked"]).unwrap();
    for (policies, key, expected) in [
        (by_key().deny(list.clone()), "s3cret", 500),
        (by_key().deny(list.clone()).deny(leaked.clone()), "leaked", 403),
        (by_key().deny(list.clone()).in_shadow(), "s3cret", 200),
        (by_key().allow(list), "s3cret", 200),
    ] {
        let service = service(&layer_under(&clock(), policies));
        let request = Request::builder().header("x-api-key", key).body(Body::default()).unwrap();
        assert_eq!(send(&service, request).await.status().as_u16(), expected);
    }
}

#[tokio::test]
async fn grpc_requests_are_told_that_permission_is_denied() {
    let denied = ClientList::new(address(), ["192.0.2.1"]).unwrap();
    let service = service(&layer_under(&clock(), one_a_minute().deny(denied)));
    let response = send(&service, grpc_request("application/grpc")).await;
    assert_eq!((response.status(), only(response.headers(), "grpc-status")), (StatusCode::OK, "7"));
}

#[tokio::test]
async fn lists_in_shadow_refuse_nobody() {
    let denied = ClientList::new(address(), ["192.0.2.1"]).unwrap();
    let service = service(&layer_under(&clock(), one_a_minute().deny(denied).in_shadow()));
    assert_eq!(statuses(&service, 2, &[]).await, [200; 2]);
}

#[test]
fn addresses_are_compared_in_full_and_as_the_trusted_proxies_report_them() {
    let proxies = TrustedProxies::parse(["10.0.0.0/8"]).unwrap().with_header(ForwardedHeader::XForwardedFor);
    let list = ClientList::new(
        KeySource::client_address(proxies),
        "# comment\n\n 203.0.113.7 \n2001:db8::1\n::ffff:198.51.100.0/120\n192.0.2.77/24".lines(),
    )
    .unwrap();
    for (peer, is_in) in [
        ("203.0.113.7", true),
        ("::ffff:203.0.113.7", true),
        ("203.0.113.8", false),
        ("2001:db8::1", true),
        ("2001:db8::2", false),
        ("198.51.100.255", true),
        ("192.0.2.1", true),
        ("10.0.0.1", false),
    ] {
        assert_eq!(contains(&list, &from(peer)), is_in, "{peer}");
    }
    let mut proxied = from("10.0.0.1");
    proxied.headers_mut().insert("x-forwarded-for", "203.0.113.7".parse().unwrap());
    assert!(contains(&list, &proxied));
    let mut forged = from("203.0.113.8");
    forged.headers_mut().insert("x-forwarded-for", "203.0.113.7".parse().unwrap());
    assert!(!contains(&list, &forged));
}

#[test]
fn secrets_can_be_written_as_their_hashes_and_no_error_quotes_them() {
    let hash = "sha256:1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
    let list = ClientList::new(api_key(), [hash]).unwrap();
    assert!(contains(&list, &request(&[("x-api-key", "s3cret")])));
    assert!(!contains(&list, &request(&[("x-api-key", hash)])));
    assert!(!contains(&list, &request(&[])));
    let either = api_key().or(address());
    let error = ClientList::new(either, ["s3cret"]).unwrap_err().to_string();
    assert!(error.starts_with("line 1") && !error.contains("s3cret"), "{error}");
    assert!(!format!("{list:?}").contains("1ec1c2"), "{list:?}");
}

/// Otherwise a deny list with a mistyped hash would refuse nobody.
#[test]
fn a_hash_has_64_digits_and_is_a_value_only_as_a_literal() {
    let user = || KeySource::header(HeaderName::from_static("x-user"));
    for source in [api_key(), user()] {
        for wrong in ["sha256:1ec1c26b", &format!("sha256:{}", "x".repeat(64)), "sha256:"] {
            let error = ClientList::new(source.clone(), [wrong]).unwrap_err().to_string();
            assert!(error.contains("64 hexadecimal digits") && !error.contains("1ec1c2"), "{error}");
        }
    }
    let list = ClientList::new(user(), ["literal:sha256:1ec1c26b"]).unwrap();
    assert!(contains(&list, &request(&[("x-user", "sha256:1ec1c26b")])));
}

proptest! {
    #[test]
    fn a_list_contains_what_one_of_its_networks_contains(
        networks in prop::collection::vec((any::<[u8; 4]>(), 0_u8..=32, any::<bool>()), 0..12),
        nearby in any::<[u8; 4]>(),
        pick in any::<prop::sample::Index>(),
        flipped in 0_u32..32,
    ) {
        let text = |(bytes, prefix, v6): &([u8; 4], u8, bool)| match v6 {
            false => format!("{}/{prefix}", IpAddr::from(*bytes)),
            true => format!("2001:db8:{:x}:{:x}::/{}", bytes[0], bytes[1], 32 + prefix),
        };
        let texts: Vec<String> = networks.iter().map(text).collect();
        let list = ClientList::new(address(), &texts).unwrap();
        let known: Vec<ipnet::IpNet> = texts.iter().map(|text| text.parse().unwrap()).collect();
        let bytes = networks.get(pick.index(networks.len().max(1))).map_or(nearby, |network| network.0);
        let v4 = std::net::Ipv4Addr::from_bits(u32::from_be_bytes(bytes) ^ (1 << flipped));
        for address in [nearby.into(), bytes.into(), v4.into(), format!("2001:db8:{:x}::1", bytes[0]).parse().unwrap()] {
            let address: IpAddr = address;
            let expected = known.iter().any(|network| network.contains(&address));
            prop_assert_eq!(contains(&list, &from(&address.to_string())), expected, "{} in {:?}", address, texts);
        }
    }
}

#[cfg(feature = "config")]
mod files {
    use std::fs;
    use std::path::Path;

    use ratelimit_tower::config::{Config, ConfigFile, Reloaded};

    use super::*;

    const CONFIG: &str = r#"
allow = [{ key = "api-key:x-api-key", clients = ["s3cret"] }]

[[deny]]
key = "address"
clients = ["198.51.100.0/24"]
file = "denied.txt"

[[policies]]
name = "address"
key = "address"
limit = "1/min"
"#;

    async fn status(file: &ConfigFile, request: Request<Body>) -> u16 {
        send(&service(&layer_under(&clock(), file.policies())), request).await.status().as_u16()
    }

    fn written(folder: &Path, denied: &str) -> ConfigFile {
        fs::write(folder.join("limits.toml"), CONFIG).unwrap();
        fs::write(folder.join("denied.txt"), denied).unwrap();
        ConfigFile::open(folder.join("limits.toml")).unwrap()
    }

    #[tokio::test]
    async fn the_file_of_a_list_is_read_again_when_it_changes() {
        let folder = tempfile::tempdir().unwrap();
        let file = written(folder.path(), "203.0.113.7");
        for (peer, expected) in [("203.0.113.7", 403), ("198.51.100.9", 403), ("203.0.113.8", 200)] {
            assert_eq!(status(&file, from(peer)).await, expected, "{peer}");
        }
        fs::write(folder.path().join("denied.txt"), "203.0.113.8\n").unwrap();
        assert_eq!(file.reload().unwrap(), Reloaded::Replaced);
        assert_eq!(file.reload().unwrap(), Reloaded::Unchanged);
        for (peer, expected) in [("203.0.113.7", 200), ("198.51.100.9", 403), ("203.0.113.8", 403)] {
            assert_eq!(status(&file, from(peer)).await, expected, "{peer}");
        }
        fs::write(folder.path().join("denied.txt"), "203.0.113.9\nno network").unwrap();
        let error = file.reload().unwrap_err().to_string();
        assert!(error.contains("denied.txt:2: ") && error.contains("2001:db8::/32"), "{error}");
        fs::remove_file(folder.path().join("denied.txt")).unwrap();
        let error = file.reload().unwrap_err().to_string();
        assert!(error.contains("denied.txt: cannot be read"), "{error}");
        assert_eq!((file.replaced(), file.failures()), (1, 2));
        assert_eq!(status(&file, from("203.0.113.8")).await, 403, "the clients stay");
    }

    #[tokio::test]
    async fn a_byte_order_mark_is_no_part_of_the_first_client() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("keys.txt"), "\u{feff}leaked\n").unwrap();
        let config = CONFIG
            .replace("\"denied.txt\"", "\"keys.txt\"")
            .replace("key = \"address\"\nclients = [\"198.51.100.0/24\"]", "key = \"api-key:x-api-key\"");
        fs::write(folder.path().join("limits.toml"), config).unwrap();
        let file = ConfigFile::open(folder.path().join("limits.toml")).unwrap();
        assert_eq!(status(&file, request(&[("x-api-key", "leaked")])).await, 403);
        fs::write(folder.path().join("keys.txt"), "\u{feff}# all of them\nother\n").unwrap();
        file.reload().unwrap();
        assert_eq!(status(&file, request(&[("x-api-key", "other")])).await, 403);
    }

    #[tokio::test]
    async fn a_new_configuration_reads_its_lists() {
        let folder = tempfile::tempdir().unwrap();
        let file = written(folder.path(), "203.0.113.7");
        fs::write(folder.path().join("other.txt"), "203.0.113.8").unwrap();
        fs::write(folder.path().join("limits.toml"), CONFIG.replace("denied.txt", "other.txt")).unwrap();
        assert_eq!(file.reload().unwrap(), Reloaded::Replaced);
        assert_eq!(status(&file, from("203.0.113.8")).await, 403);
        assert_eq!(status(&file, from("203.0.113.7")).await, 200);
        fs::write(folder.path().join("other.txt"), "").unwrap();
        assert_eq!(file.reload().unwrap(), Reloaded::Replaced);
        assert_eq!(status(&file, from("203.0.113.8")).await, 200);
    }

    #[tokio::test]
    async fn a_failed_configuration_is_tried_again_when_a_file_that_it_names_changes() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &str| fs::write(folder.path().join(name), text).unwrap();
        let file = written(folder.path(), "203.0.113.7");
        write("limits.toml", &CONFIG.replace("denied.txt", "other.txt"));
        let error = file.reload().unwrap_err().to_string();
        assert!(error.contains("other.txt: cannot be read"), "{error}");
        assert_eq!(file.reload().unwrap(), Reloaded::Unchanged, "nothing has changed");
        // Meanwhile the lists in use follow their files.
        write("denied.txt", "203.0.113.9");
        assert_eq!(file.reload().unwrap(), Reloaded::Replaced);
        assert_eq!(status(&file, from("203.0.113.9")).await, 403);

        write("other.txt", "no network");
        let error = file.reload().unwrap_err().to_string();
        assert!(error.contains("other.txt: line 1 names no client"), "{error}");
        assert_eq!(file.reload().unwrap(), Reloaded::Unchanged);
        write("other.txt", "203.0.113.8");
        assert_eq!(file.reload().unwrap(), Reloaded::Replaced);
        assert_eq!((file.replaced(), file.failures()), (2, 2));
        for (peer, expected) in [("203.0.113.8", 403), ("203.0.113.9", 200)] {
            assert_eq!(status(&file, from(peer)).await, expected, "{peer}");
        }
        assert_eq!(file.reload().unwrap(), Reloaded::Unchanged);
        write("other.txt", "");
        assert_eq!(file.reload().unwrap(), Reloaded::Replaced);
        assert_eq!(status(&file, from("203.0.113.8")).await, 200);
    }

    #[test]
    fn errors_name_the_place_and_quote_no_client() {
        let config = CONFIG.replace(r#"file = "denied.txt""#, "");
        for (was, is, expected) in [
            (r#""s3cret""#, "83920174655", "allow[1].clients[1]: invalid type: integer, expected a string"),
            (r#""s3cret""#, "83920174655000000000000", "allow[1].clients[1]: the number is too large"),
            (
                r#""s3cret""#,
                "83920174655.5",
                "allow[1].clients[1]: invalid type: number with a point, expected",
            ),
            (r#"["s3cret"]"#, "83920174655", "allow[1].clients: invalid type: integer, expected a sequence"),
            (
                r#"["s3cret"]"#,
                r#""83920174655""#,
                "allow[1].clients: invalid type: string, expected a sequence",
            ),
            ("\n[[pol", "file = 'none.txt'\n[[pol", "deny[1].file: none.txt: cannot be read"),
            (r#""s3cret""#, r#""(missing)""#, "allow[1].clients[1]: requests without what the list"),
            (r#""s3cret""#, r##""#s3cret""##, "allow[1].clients[1]: only a `file` has comments"),
            (r#""s3cret""#, r#"" ""#, "allow[1].clients[1]: it is empty"),
            (r#""198.51.100.0/24""#, r#""198.51.100.0/33""#, "deny[1].clients[1]: write an address"),
            (r#", clients = ["s3cret"]"#, "", "allow[1].key: there are no clients"),
            (r#""api-key:x-api-key""#, r#""api-keys""#, "allow[1].key: unknown kind of key"),
        ] {
            let error = Config::from_toml(&config.replace(was, is), "limits.toml").unwrap_err().to_string();
            assert!(error.starts_with("limits.toml:") && error.contains(expected), "{error}");
            assert!(!error.contains("83920174655"), "{error}");
            assert!(!error.contains("198.51.100") && !error.contains("s3cret"), "{error}");
        }
    }
}
