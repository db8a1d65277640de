//! Validates a configuration.

use std::borrow::Cow;

use ratelimit_core::StoreError;

use crate::config::MemcachedConfig;
use crate::config::address::Address;
use crate::error::ERRORS;

/// The longest prefix: keys have at most 250 bytes.
const LONGEST_PREFIX: usize = 64;

/// The addresses of the servers, if the whole configuration is valid.
pub(crate) fn addresses(config: &MemcachedConfig) -> Result<Vec<Address>, StoreError> {
    let addresses = servers(&config.servers)?;
    prefix(config)?;
    let wrong = log_in(config).map(Cow::from).or_else(|| tls(config, &addresses));
    wrong.map_or(Ok(addresses), |message| Err(ERRORS.misconfigured(message)))
}

fn servers(texts: &[String]) -> Result<Vec<Address>, StoreError> {
    let mut addresses = Vec::with_capacity(texts.len());
    for text in texts {
        match Address::parse(text) {
            Some(address) if !addresses.contains(&address) => addresses.push(address),
            Some(_) => return Err(ERRORS.misconfigured("a server is named twice")),
            None => {
                return Err(ERRORS.misconfigured(
                    "an address is not valid; it looks like memcached://user:password@host:11211,host:11211 or \
                     memcached+unix:///path/to/socket, with %40 for an @ in the password",
                ));
            }
        }
    }
    if addresses.is_empty() { Err(ERRORS.misconfigured("no server is configured")) } else { Ok(addresses) }
}

/// Fails if the prefix is not valid.
pub(crate) fn prefix(MemcachedConfig { prefix, .. }: &MemcachedConfig) -> Result<(), StoreError> {
    if prefix.len() > LONGEST_PREFIX || !prefix.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err(ERRORS.misconfigured("the prefix is not valid: up to 64 visible ASCII characters"));
    }
    if prefix.contains(['!', '#']) {
        return Err(ERRORS.misconfigured("the prefix must not contain `!` or `#`"));
    }
    Ok(())
}

fn log_in(config: &MemcachedConfig) -> Option<&'static str> {
    match (&config.user, &config.password) {
        (None, Some(_)) => Some("a password needs a `user`"),
        // The server reads up to the first space as the user.
        (Some(user), _) if user.is_empty() || user.contains(' ') => {
            Some("`user` must not be empty or contain a space")
        }
        _ => None,
    }
}

fn tls(config: &MemcachedConfig, addresses: &[Address]) -> Option<Cow<'static, str>> {
    if config.client_certificate.is_some() != config.client_key.is_some() {
        return Some("`client_certificate` and `client_key` must be set together".into());
    }
    if !config.tls {
        return config.certificates().without_tls("memcacheds://").map(Cow::from);
    }
    if !cfg!(feature = "tls") {
        return Some("TLS needs the feature `tls` of the crate ratelimit-memcached".into());
    }
    let has_socket = addresses.iter().any(|address| matches!(address, Address::Unix(_)));
    has_socket.then_some("TLS is not supported on a Unix socket".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(config: &MemcachedConfig) -> String {
        addresses(config).err().map(|failure| failure.to_string()).unwrap_or_default()
    }

    #[test]
    fn prefixes_are_checked() {
        for (prefix, valid) in
            [("", true), ("rl:", true), ("a b", false), ("a!", false), ("#", false), ("ä", false)]
        {
            let config = MemcachedConfig::default().prefix(prefix);
            assert_eq!(addresses(&config).is_ok(), valid, "{prefix}");
        }
    }

    #[test]
    fn configuration_errors_do_not_contain_secrets() {
        let new = MemcachedConfig::of;
        let secret = || Some("secret".to_owned());
        for (config, reported) in [
            (new("a,a:11211"), "named twice"),
            (new("a,,b"), "not valid"),
            (new("me:se@secret@a"), "%40"),
            (new("me:secret@a,you:secret@b"), "not valid"),
            (new("a").servers(Vec::<String>::new()), "no server"),
            (new("a").password(secret()), "needs a `user`"),
            (new(":secret@a"), "must not be empty"),
            (new("m%20e:secret@a"), "a space"),
            (new("a").client_key(Some(b"secret".to_vec())), "set together"),
            (new("a").authorities(Some(b"secret".to_vec())), "need TLS"),
            (
                new("a").client_key(Some(b"secret".to_vec())).client_certificate(Some(b"secret".to_vec())),
                "need TLS",
            ),
        ] {
            let message = message(&config);
            assert!(message.contains(reported) && !message.contains("secret"), "{message}");
        }
        assert_eq!(message(&new("memcached+unix://me:secret@/a")), "");
        let reported = if cfg!(feature = "tls") { "on a Unix socket" } else { "the feature `tls`" };
        assert!(message(&new("/a").tls(true)).contains(reported));
    }
}
