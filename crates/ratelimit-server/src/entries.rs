//! Which policies a descriptor is for: a policy's key names the entries that it needs.

use ratelimit_tower::config::Provided;
use ratelimit_tower::{KeySource, Policy};

/// A part of a policy's key, as an entry that a descriptor has to have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    /// The name of the entry.
    key: String,
    value: Wanted,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Wanted {
    /// Any value; each is counted by itself.
    Any,
    Exactly(String),
    /// Any value that begins so; each is counted by itself.
    Begins(String),
}

impl Entry {
    /// Reads a word of a file that names no built-in key: `tenant`, `route=login`, `path=/api/*`.
    fn parse(word: &str) -> Option<Self> {
        let (key, value) = word.split_once('=').map_or((word, None), |(key, value)| (key, Some(value)));
        let good = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
        if !(1..=64).contains(&key.len()) || !key.bytes().all(good) {
            return None;
        }
        let value = match value {
            None | Some("*") => Wanted::Any,
            Some(value) => match value.strip_suffix('*') {
                Some(beginning) => Wanted::Begins(beginning.to_owned()),
                None => Wanted::Exactly(value.to_owned()),
            },
        };
        Some(Self { key: key.to_owned(), value })
    }

    /// The entry for a part of a key, as the file names it.
    fn of(name: &str) -> Option<Self> {
        let any = |key: &str| Some(Self { key: key.to_owned(), value: Wanted::Any });
        match name {
            // Envoy's name for it.
            "address" => any("remote_address"),
            _ => match name.split_once(':') {
                Some(("header" | "api-key", header)) => any(header),
                _ => Self::parse(name),
            },
        }
    }

    fn takes(&self, key: &str, value: &str) -> bool {
        let is_wanted = match &self.value {
            Wanted::Any => true,
            Wanted::Exactly(wanted) => wanted == value,
            Wanted::Begins(beginning) => value.starts_with(beginning.as_str()),
        };
        is_wanted && self.key == key
    }
}

/// The entries that a descriptor needs for a policy; `None` if no descriptor can be for it.
pub(crate) fn of_policy(policy: &Policy) -> Option<Vec<Entry>> {
    policy.source().names().iter().map(|name| Entry::of(name)).collect()
}

/// The values of these entries in a descriptor that has them and no others, in the order of `entries`.
pub(crate) fn values<'d>(entries: &[Entry], descriptor: &[(&str, &'d str)]) -> Option<Vec<&'d [u8]>> {
    if entries.len() != descriptor.len() {
        return None;
    }
    let mut rest = descriptor.to_vec();
    let take = |entry: &Entry| {
        let place = rest.iter().position(|(key, value)| entry.takes(key, value))?;
        Some(rest.swap_remove(place).1.as_bytes())
    };
    entries.iter().map(take).collect()
}

/// Lets a file name entries of descriptors as keys.
pub(crate) fn provided() -> Provided {
    // A request by HTTP has no entries: `names_entries` exempts it.
    Provided::default()
        .other_keys(|word| Entry::parse(word).map(|_| KeySource::function(|_| Option::<&[u8]>::None)))
}

/// Whether a policy counts by entries of descriptors, which the head of a request does not have.
pub(crate) fn names_entries(policy: &Policy) -> bool {
    let is_built_in = |word: &str| {
        matches!(word, "address" | "bearer-token" | "everybody" | "path")
            || word.starts_with("header:")
            || word.starts_with("api-key:")
    };
    !policy.source().names().iter().flat_map(|name| name.split(" or ")).all(is_built_in)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratelimit_tower::config::Config;

    fn policy(key: &str) -> Result<Policy, String> {
        let file = format!("[[policies]]\nname = \"p\"\nkey = {key}\nlimit = \"1/s\"");
        let config = Config::from_toml_with(&file, "limits.toml", &provided());
        Ok(config.map_err(|error| error.to_string())?.policies().each().next().cloned().unwrap())
    }

    #[test]
    fn descriptors_with_exactly_these_entries_match() {
        for (key, descriptor, expected) in [
            (r#""tenant""#, &[("tenant", "a")][..], Some(vec!["a"])),
            (r#""tenant""#, &[("tenant", "a"), ("route", "b")], None),
            (r#""tenant""#, &[], None),
            (r#""tenant""#, &[("user", "a")], None),
            (
                r#"["tenant", "route=login"]"#,
                &[("route", "login"), ("tenant", "a")],
                Some(vec!["a", "login"]),
            ),
            (r#"["tenant", "route=login"]"#, &[("tenant", "a"), ("route", "other")], None),
            (r#"["tenant", "route=login"]"#, &[("tenant", "a"), ("tenant", "a")], None),
            (r#""path=/api/*""#, &[("path", "/api/users")], Some(vec!["/api/users"])),
            (r#""path=/api/*""#, &[("path", "/home")], None),
            (r#""tenant=*""#, &[("tenant", "")], Some(vec![""])),
            (r#""address""#, &[("remote_address", "192.0.2.1")], Some(vec!["192.0.2.1"])),
            (r#""header:x-user""#, &[("x-user", "7")], Some(vec!["7"])),
            (r#""everybody""#, &[("everybody", "")], Some(vec![""])),
        ] {
            let entries = of_policy(&policy(key).unwrap()).unwrap();
            let values = values(&entries, descriptor);
            let values =
                values.map(|values| values.iter().map(|value| str::from_utf8(value).unwrap()).collect());
            assert_eq!(values, expected, "{key} {descriptor:?}");
        }
    }

    #[test]
    fn words_with_other_characters_are_errors_of_the_file() {
        for key in [r#""tenant id""#, r#""tenänt""#, r#""""#, r#""=x""#] {
            assert!(policy(key).unwrap_err().contains("limits.toml:3"), "{key}");
        }
    }

    #[test]
    fn policies_by_entries_are_told_from_others() {
        for (key, expected) in [
            (r#""tenant""#, true),
            (r#"["address", "route=login"]"#, true),
            (r#""api-key:x-key or address""#, false),
            (r#""api-key:x-key or tenant""#, true),
            (r#"["path", "address"]"#, false),
        ] {
            assert_eq!(names_entries(&policy(key).unwrap()), expected, "{key}");
        }
    }
}
