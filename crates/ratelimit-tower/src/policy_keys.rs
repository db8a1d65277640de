//! The keys of a policy in a store, for tools that look clients up.

use crate::key::{KeyBytes, MISSING, Part};
use crate::{ParseClientError, Policy};

impl Policy {
    /// Returns the key under which the policy counts a client, in the store: for tools that look up or reset a client.
    ///
    /// `client` is what the policy counts by, as bytes:
    ///
    /// | [source](Self::source) | `client` |
    /// |---|---|
    /// | `address` | the address; the policy's [grouping](crate::Grouping) applies |
    /// | `header:NAME`, `path`, `path-template` | the value, or `sha256:` and its hash if it is longer than 64 bytes |
    /// | `api-key:NAME`, `bearer-token` | the secret, or `sha256:` and its hash |
    /// | `everybody` | `everybody` |
    /// | provided by the program | the bytes that the program returns |
    /// | several together | their values in order, with ` + ` between them |
    /// | alternatives | which one, and its value: `address=192.0.2.1`; sources of the program need different [names](crate::KeySource::named) |
    /// | any, for requests without it | `(missing)` |
    ///
    /// Write `literal:` before a value that looks like something else: `literal:(missing)` is the value `(missing)`,
    /// `literal:sha256:…` a value that begins like a hash, and `literal:literal:a` the value `literal:a`. With
    /// several sources together, it stands before the value that it is for; only the first value may contain ` + `.
    ///
    /// ```
    /// use ratelimit_core::Limit;
    /// use ratelimit_tower::{KeySource, Policy, TrustedProxies};
    ///
    /// let address = KeySource::client_address(TrustedProxies::none());
    /// let policy = Policy::new("address", address, "100/min".parse::<Limit>()?)?;
    /// let key = policy.key_of(b"2001:db8::1")?;
    /// assert_eq!(policy.client_of(&key).as_deref(), Some(&b"2001:db8::/64"[..]));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// If `client` is not what the source counts by. The error says what to write, and does not quote `client`.
    pub fn key_of(&self, client: &[u8]) -> Result<Vec<u8>, ParseClientError> {
        let mut key = KeyBytes::new();
        key.begin_with(self.prefix());
        if client == MISSING {
            key.absent();
        } else {
            self.source().write_text(client, &mut key)?;
        }
        Ok(key.as_ref().to_vec())
    }

    /// Returns the key of the client that has these values, one for each of the source's [names](crate::KeySource::names), as a
    /// request sends them: unlike in the text of [`key_of`](Self::key_of), nothing in them is read as something else. A source
    /// that is one of several alternatives takes such a text, too.
    ///
    /// # Errors
    /// If there is not one value for each name, or if a value is not what the source counts by.
    pub fn key_of_values(&self, values: &[&[u8]]) -> Result<Vec<u8>, ParseClientError> {
        let mut key = KeyBytes::new();
        key.begin_with(self.prefix());
        self.source().write_values(values, &mut key)?;
        Ok(key.as_ref().to_vec())
    }

    /// The inverse of [`key_of`](Self::key_of): returns the client of a key in the store. `None` if it is not a key of this
    /// policy. A secret, and any other value of more than 64 bytes, is returned as its hash.
    pub fn client_of(&self, key: &[u8]) -> Option<Vec<u8>> {
        let parts = key.strip_prefix(self.prefix().as_ref())?;
        let mut rest = parts;
        if matches!(Part::split_off(&mut rest), Some(Part::Absent)) && rest.is_empty() {
            return Some(MISSING.to_vec());
        }
        rest = parts;
        self.source().read_text(&mut rest).filter(|_| rest.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, Request};
    use ratelimit_core::Limit;

    use crate::policy::Applied;
    use crate::policy_check::PolicyCheck;
    use crate::{Grouping, Head, KeySource, PeerAddress, Policy, TrustedProxies};

    fn policy(source: KeySource) -> Policy {
        Policy::new("p", source, "1/s".parse::<Limit>().unwrap()).unwrap()
    }

    /// The key of a request, as the layer builds it.
    fn layer_key(policy: &Policy, request: &Request<()>) -> Vec<u8> {
        let mut check = PolicyCheck::new(0);
        assert!(matches!(policy.apply(&Head::of(request), &mut check), Applied::Yes));
        check.key.as_ref().to_vec()
    }

    fn request(peer: &str, headers: &[(&'static str, &str)]) -> Request<()> {
        let mut request = Request::builder().uri("/search?q=1");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        request.extension(PeerAddress(peer.parse().unwrap())).body(()).unwrap()
    }

    #[test]
    fn a_client_has_the_key_that_the_layer_builds_for_its_requests() {
        let address = || KeySource::client_address(TrustedProxies::none());
        let coarse = KeySource::client_address(
            TrustedProxies::none().with_grouping(Grouping { ipv4_prefix: 24, ipv6_prefix: 48 }),
        );
        let user = || KeySource::header(HeaderName::from_static("x-user"));
        let key = || KeySource::api_key(HeaderName::from_static("x-key"));
        let long = "x".repeat(70);
        let hash = |text: &str| {
            use sha2::Digest as _;
            let digits =
                sha2::Sha256::digest(text).iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            format!("sha256:{digits}")
        };
        let v4 =
            request("192.0.2.9", &[("x-user", "7"), ("x-key", "secret"), ("authorization", "Bearer secret")]);
        let v6 = request("2001:db8:1:2::9", &[("x-user", &long)]);
        let hashed = hash("secret");
        let like_missing = request("192.0.2.9", &[("x-user", "(missing)")]);
        let like_literal = request("192.0.2.9", &[("x-user", "literal:7")]);
        let like_short_hash = request("192.0.2.9", &[("x-user", "sha256:1ec1")]);
        let like_hash = request("192.0.2.9", &[("x-user", &hashed), ("x-key", &hashed)]);
        let literal = |text: &str| format!("literal:{text}");
        // The source, a request, the client as an operator writes it, and as a tool shows it.
        let cases = [
            (address(), &v4, "192.0.2.9", "192.0.2.9"),
            (address(), &v4, "::ffff:192.0.2.9", "192.0.2.9"),
            (address(), &v6, "2001:db8:1:2::9", "2001:db8:1:2::/64"),
            (coarse.clone(), &v4, "192.0.2.77", "192.0.2.0/24"),
            (coarse, &v6, "2001:db8:1::/48", "2001:db8:1::/48"),
            (user(), &v4, "7", "7"),
            (user(), &v6, &long, &hash(&long)),
            (user(), &v6, &hash(&long), &hash(&long)),
            (user(), &like_short_hash, "literal:sha256:1ec1", "literal:sha256:1ec1"),
            (key(), &v4, "secret", &hashed),
            (key(), &v4, &hashed, &hashed),
            (KeySource::bearer_token(), &v4, "secret", &hashed),
            (KeySource::path(), &v4, "/search", "/search"),
            (KeySource::everybody(), &v4, "everybody", "everybody"),
            (KeySource::function(|_| Some("t1")), &v4, "t1", "t1"),
            (
                address().and(user()).and(KeySource::path()),
                &v4,
                "192.0.2.9 + 7 + /search",
                "192.0.2.9 + 7 + /search",
            ),
            (
                KeySource::path().and(address().and(user())),
                &v4,
                "/search + 192.0.2.9 + 7",
                "/search + 192.0.2.9 + 7",
            ),
            (key().or(user()).or(address()), &v4, "api-key:x-key=secret", &format!("api-key:x-key={hashed}")),
            (
                key().or(user()).or(address()),
                &request("192.0.2.9", &[]),
                "address=192.0.2.9",
                "address=192.0.2.9",
            ),
            (
                key().or(user()).or(address()),
                &request("::1", &[("x-user", "7")]),
                "header:x-user=7",
                "header:x-user=7",
            ),
            // Values that look like something else.
            (user(), &like_missing, "literal:(missing)", "literal:(missing)"),
            (user(), &like_literal, "literal:literal:7", "literal:literal:7"),
            (user(), &v4, "literal:7", "7"),
            (user(), &like_hash, &literal(&hashed), &hash(&hashed)),
            (key(), &like_hash, &literal(&hashed), &hash(&hashed)),
            (
                address().and(user()),
                &like_missing,
                "192.0.2.9 + literal:(missing)",
                "192.0.2.9 + literal:(missing)",
            ),
            (
                user().or(address()),
                &like_missing,
                "header:x-user=literal:(missing)",
                "header:x-user=literal:(missing)",
            ),
        ];
        for (source, request, client, shown) in cases {
            let policy = policy(source);
            let key = policy.key_of(client.as_bytes()).unwrap_or_else(|error| panic!("{client}: {error}"));
            assert_eq!(key, layer_key(&policy, request), "{client} by {}", policy.source());
            assert_eq!(policy.client_of(&key).unwrap(), shown.as_bytes());
            let again = policy.key_of(shown.as_bytes());
            assert_eq!(again.unwrap(), key, "what is shown can be written");
        }
        for (source, client) in [(user(), "7"), (key(), "secret")] {
            let policy = policy(source);
            let padded = request("192.0.2.9", &[("x-user", " \t7 "), ("x-key", "secret\t")]);
            assert_eq!(policy.key_of(client.as_bytes()).unwrap(), layer_key(&policy, &padded));
        }
        let policy = policy(user());
        let missing = layer_key(&policy, &request("192.0.2.9", &[]));
        assert_eq!(policy.client_of(&missing).unwrap(), b"(missing)");
        assert_eq!(policy.key_of(b"(missing)").unwrap(), missing);
    }

    #[test]
    fn values_make_the_key_that_the_layer_builds() {
        let address = || KeySource::client_address(TrustedProxies::none());
        let user = || KeySource::header(HeaderName::from_static("x-user"));
        let key = || KeySource::api_key(HeaderName::from_static("x-key"));
        for value in ["7", "a + b", "(missing)", "literal:7", "sha256:1ec1", &"x".repeat(70)] {
            let request = request("192.0.2.9", &[("x-user", value), ("x-key", value)]);
            for (source, values) in [
                (user(), &[value][..]),
                (key(), &[value]),
                (address().and(user()), &["192.0.2.9", value]),
                (user().and(address().and(key())), &[value, "192.0.2.9", value]),
            ] {
                let policy = policy(source);
                let bytes: Vec<&[u8]> = values.iter().map(|value| value.as_bytes()).collect();
                assert_eq!(policy.source().names().len(), values.len());
                assert_eq!(policy.key_of_values(&bytes).unwrap(), layer_key(&policy, &request), "{values:?}");
                assert!(policy.key_of_values(&bytes[1..]).is_err());
                assert!(policy.key_of_values(&[&bytes[..], &[b"more"]].concat()).is_err());
            }
        }
        let either = policy(key().or(address()));
        assert_eq!(
            either.key_of_values(&[b"address=192.0.2.9"]).unwrap(),
            either.key_of(b"address=192.0.2.9").unwrap()
        );
        assert!(policy(address()).key_of_values(&[b"nowhere"]).is_err());
    }

    /// Otherwise a deny list would deny the client of another source.
    #[cfg(feature = "config")]
    #[test]
    fn each_source_of_the_program_has_a_name_of_its_own() {
        use crate::config::{Config, Provided};

        let user = |request: &Head<'_>| request.headers.get("x-user").cloned();
        let provided = Provided::default()
            .key("user", KeySource::function(user))
            .key("tenant", KeySource::function(|_| Some("7")));
        let file = "policies: [{name: p, key: user or tenant, limit: 1/s}]";
        let config = Config::from_yaml_with(file, "limits.yaml", &provided).unwrap();
        let policy = config.policies().each().next().unwrap();
        let mut keys = Vec::new();
        for (headers, client) in [(&[][..], "tenant=7"), (&[("x-user", "7")], "user=7")] {
            let key = layer_key(policy, &request("192.0.2.9", headers));
            assert_eq!(policy.client_of(&key).unwrap(), client.as_bytes());
            assert_eq!(policy.key_of(client.as_bytes()).unwrap(), key);
            keys.push(key);
        }
        assert_ne!(keys[0], keys[1]);
    }

    #[test]
    fn other_texts_and_other_keys_are_refused() {
        let address = || KeySource::client_address(TrustedProxies::none());
        let by_both = address().and(KeySource::path());
        let by_either = KeySource::bearer_token().or(address()).or(KeySource::path());
        let provided = || KeySource::function(|_| Some("s3cret"));
        let alike = provided().or(address()).or(provided());
        for (source, client, expected) in [
            (alike, "provided=s3cret", "give the sources different names"),
            (address(), "s3cret", "192.0.2.1"),
            (KeySource::path(), "sha256:s3cret", "64 hexadecimal digits"),
            (address(), "2001:db8::/48", "first 64 bits"),
            (KeySource::everybody(), "s3cret", "`everybody`"),
            (by_both, "s3cret", "`address and path` as `FIRST + SECOND`"),
            (by_either, "s3cret", "`bearer-token=VALUE` or `address=VALUE` or `path=VALUE`"),
        ] {
            let error = policy(source).key_of(client.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
        let policy = policy(address());
        for key in [
            &b""[..],
            b"\x01p",
            b"\x01q\x07\xc0\0\x02\x09\x20\0\0",
            b"\x01p\x01a",
            b"\x01p\x07\xc0\0\x02\x09\x20\0\0x",
        ] {
            assert_eq!(policy.client_of(key), None, "{key:?}");
        }
    }
}
