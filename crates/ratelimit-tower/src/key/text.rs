//! Keys as text: how an operator names a client, and how a tool shows the client of a key.

use std::fmt;
use std::net::IpAddr;

use super::bytes::Part;
use super::{KeyBytes, KeySource, Source};
use crate::TrustedProxies;

/// Between the parts of a key that counts by several sources.
const AND: &[u8] = b" + ";

/// Instead of a part that is stored as its hash.
const HASH: &[u8] = b"sha256:";

/// Before a value that would otherwise be read as something else: as a hash, as [`MISSING`], or as a value after this word.
const LITERAL: &[u8] = b"literal:";

/// The client that stands for all requests without what the policy counts by.
pub(crate) const MISSING: &[u8] = b"(missing)";

/// Why a text does not name a client of a policy: [`Policy::key_of`](crate::Policy::key_of).
#[derive(Clone, PartialEq, Eq)]
pub struct ParseClientError(String);

impl fmt::Display for ParseClientError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ParseClientError {
    /// The text and that of the sources, because a program whose `main` returns an error prints this.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ratelimit_core::kit::write_error(self, f)
    }
}

impl std::error::Error for ParseClientError {}

impl ParseClientError {
    pub(crate) fn no_network() -> Self {
        wrong("write an address, such as 192.0.2.1, or a network, such as 10.0.0.0/8 or 2001:db8::/32")
    }

    pub(crate) fn missing() -> Self {
        wrong(
            "requests without what the list identifies clients by are in no list: write `literal:(missing)` for a client \
             with this name",
        )
    }
}

fn wrong(expected: impl Into<String>) -> ParseClientError {
    ParseClientError(expected.into())
}

impl KeySource {
    /// Appends the key of the client that `text` names.
    pub(crate) fn write_text(&self, text: &[u8], key: &mut KeyBytes) -> Result<(), ParseClientError> {
        match &self.0 {
            Source::Everybody if text == b"everybody" => Ok(()),
            Source::Everybody => Err(wrong("all requests are counted together: write `everybody`")),
            Source::Client(proxies) => write_address(proxies, text, key),
            Source::Secret(_) | Source::Bearer => {
                match hash_of(text)? {
                    Some(hash) => key.hash_of_secret(&hash),
                    None => key.secret(value_of(text)),
                }
                Ok(())
            }
            Source::Both(both) => {
                let (first, second) = split(text, both.1.parts())
                    .ok_or_else(|| wrong(format!("write the parts of `{self}` as `FIRST + SECOND`")))?;
                both.0.write_text(first, key)?;
                both.1.write_text(second, key)
            }
            Source::Either(either) => {
                let (choice, source, text) = match (either.0.alternative(text), either.1.alternative(text)) {
                    (Some(text), None) => (0, &either.0, text),
                    (None, Some(text)) => (1, &either.1, text),
                    (Some(_), Some(_)) => {
                        return Err(wrong(format!(
                            "it can be a client of either part of `{self}`: give the sources different names (KeySource::named)"
                        )));
                    }
                    (None, None) => {
                        let ways = [&either.0, &either.1]
                            .map(|source| source.to_string().replace(" or ", "=VALUE` or `"));
                        return Err(wrong(format!(
                            "write which of them it is: `{}=VALUE`",
                            ways.join("=VALUE` or `")
                        )));
                    }
                };
                key.choice(choice);
                source.write_text(text, key)
            }
            _ => {
                match hash_of(text)? {
                    Some(hash) => key.hash_of_long_part(&hash),
                    None => key.part(value_of(text)),
                }
                Ok(())
            }
        }
    }

    /// Appends the key of the client that has these values, as a request sends them: nothing in them is read as something
    /// else. Sources that are alternatives take a text, as in [`write_text`](Self::write_text).
    pub(crate) fn write_values(&self, values: &[&[u8]], key: &mut KeyBytes) -> Result<(), ParseClientError> {
        if let Source::Both(both) = &self.0 {
            let (first, second) = values.split_at(both.0.parts().min(values.len()));
            both.0.write_values(first, key)?;
            return both.1.write_values(second, key);
        }
        let &[value] = values else { return Err(wrong(format!("give one value for `{self}`"))) };
        match &self.0 {
            Source::Everybody => {}
            Source::Client(proxies) => write_address(proxies, value, key)?,
            Source::Secret(_) | Source::Bearer => key.secret(value),
            Source::Either(_) => self.write_text(value, key)?,
            _ => key.part(value),
        }
        Ok(())
    }

    /// Appends the name of each source that it counts by together: see [`KeySource::and`].
    pub(crate) fn collect_names(&self, names: &mut Vec<String>) {
        match &self.0 {
            Source::Both(both) => {
                both.0.collect_names(names);
                both.1.collect_names(names);
            }
            _ => names.push(self.to_string()),
        }
    }

    /// How many parts its text has.
    fn parts(&self) -> usize {
        if let Source::Both(both) = &self.0 { both.0.parts() + both.1.parts() } else { 1 }
    }

    /// The text to pass to this source if `text` names it as the alternative: `address=192.0.2.1`. For alternatives
    /// themselves, the whole `text`.
    fn alternative<'t>(&self, text: &'t [u8]) -> Option<&'t [u8]> {
        if let Source::Either(either) = &self.0 {
            let is_one = either.0.alternative(text).or_else(|| either.1.alternative(text)).is_some();
            return is_one.then_some(text);
        }
        text.strip_prefix(self.to_string().as_bytes())?.strip_prefix(b"=")
    }

    /// Splits this source's part off a key. Returns it as the text from which [`write_text`](Self::write_text) makes it.
    pub(crate) fn read_text(&self, key: &mut &[u8]) -> Option<Vec<u8>> {
        match &self.0 {
            Source::Everybody => Some(b"everybody".to_vec()),
            Source::Both(both) => {
                let [first, second] = [both.0.read_text(key)?, both.1.read_text(key)?];
                Some([&first, AND, &second].concat())
            }
            Source::Either(either) => {
                let source = match key.split_off_first()? {
                    0 => &either.0,
                    1 => &either.1,
                    _ => return None,
                };
                let text = source.read_text(key)?;
                let is_nested = matches!(source.0, Source::Either(_));
                Some(if is_nested { text } else { [source.to_string().as_bytes(), b"=", &text].concat() })
            }
            Source::Client(_) => match Part::split_off(key)? {
                Part::Plain(&[a, b, c, d, prefix, 0, 0]) => Some(network([a, b, c, d].into(), prefix)),
                Part::Plain(bytes) => {
                    let (address, prefix) = bytes.split_first_chunk::<16>()?;
                    let [prefix] = prefix else { return None };
                    Some(network((*address).into(), *prefix))
                }
                _ => None,
            },
            _ => match Part::split_off(key)? {
                Part::Plain(value) => Some(value_text(value)),
                Part::Hash(hash) => Some(hash_text(hash)),
                Part::Absent => None,
            },
        }
    }
}

/// Splits off the last `parts` parts.
fn split(text: &[u8], parts: usize) -> Option<(&[u8], &[u8])> {
    let mut end = text.len();
    for _ in 0..parts {
        end = text[..end].windows(AND.len()).rposition(|window| window == AND)?;
    }
    Some((&text[..end], &text[end + AND.len()..]))
}

fn write_address(proxies: &TrustedProxies, text: &[u8], key: &mut KeyBytes) -> Result<(), ParseClientError> {
    let text = str::from_utf8(text).unwrap_or_default();
    let (address, prefix) =
        text.split_once('/').map_or((text, None), |(address, prefix)| (address, Some(prefix)));
    let address: IpAddr =
        address.parse().map_err(|_| wrong("write an address, such as 192.0.2.1 or 2001:db8::1"))?;
    let network = proxies.group(address);
    if prefix.is_some_and(|prefix| prefix != network.prefix().to_string()) {
        return Err(wrong(format!(
            "addresses are counted by their first {} bits: write only the address",
            network.prefix()
        )));
    }
    key.network(&network);
    Ok(())
}

/// An address, or the network that counts as one client.
fn network(address: IpAddr, prefix: u8) -> Vec<u8> {
    let whole = if address.is_ipv4() { 32 } else { 128 };
    if prefix == whole { address.to_string() } else { format!("{address}/{prefix}") }.into_bytes()
}

/// A value as text.
fn value_text(value: &[u8]) -> Vec<u8> {
    let is_special = value == MISSING || value.starts_with(LITERAL) || value.starts_with(HASH);
    [if is_special { LITERAL } else { &[] }, value].concat()
}

/// The value that a text stands for.
fn value_of(text: &[u8]) -> &[u8] {
    text.strip_prefix(LITERAL).unwrap_or(text)
}

fn hash_text(hash: &[u8]) -> Vec<u8> {
    let digits = hash.iter().map(|byte| format!("{byte:02x}"));
    let digits: String = digits.collect();
    [HASH, digits.as_bytes()].concat()
}

/// The hash that [`hash_text`] has written; `None` if the text is a value.
///
/// A mistyped hash is an error: as a value, it would be that of no client, and a list of denied clients would not deny it.
fn hash_of(text: &[u8]) -> Result<Option<[u8; 32]>, ParseClientError> {
    let Some(digits) = text.strip_prefix(HASH) else { return Ok(None) };
    let hash = bytes_of(digits).ok_or_else(|| {
        wrong(
            "after `sha256:` there are 64 hexadecimal digits: write `literal:` before a value that begins so",
        )
    });
    hash.map(Some)
}

fn bytes_of(digits: &[u8]) -> Option<[u8; 32]> {
    let digit = |digit: &u8| char::from(*digit).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let digits: Vec<u8> = digits.iter().map(digit).collect::<Option<_>>()?;
    let (pairs, []) = digits.as_chunks::<2>() else { return None };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}

impl fmt::Display for KeySource {
    /// The words with which a configuration file names this source. A source that the program provides without a name is
    /// `provided`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Source::Everybody => f.write_str("everybody"),
            Source::Client(_) => f.write_str("address"),
            Source::Header(name) => write!(f, "header:{name}"),
            Source::Secret(name) => write!(f, "api-key:{name}"),
            Source::Bearer => f.write_str("bearer-token"),
            Source::Path => f.write_str("path"),
            #[cfg(feature = "axum")]
            Source::Template => f.write_str("path-template"),
            Source::Provided(name, _) => f.write_str(name),
            Source::Both(both) => write!(f, "{} and {}", both.0, both.1),
            Source::Either(either) => write!(f, "{} or {}", either.0, either.1),
        }
    }
}
