//! Parses keys as written in a file.

use http::HeaderName;

use super::Provided;
use super::document::{Location, Problem};
use crate::{KeySource, TrustedProxies};

/// What keys can be made of.
pub(super) struct Keys<'a> {
    pub(super) proxies: &'a TrustedProxies,
    pub(super) provided: &'a Provided,
}

impl Keys<'_> {
    /// The combined key of these strings.
    pub(super) fn all(&self, whole: &Location, texts: &[(&Location, &str)]) -> Result<KeySource, Problem> {
        let mut sources = texts.iter().map(|(location, text)| self.any(location, text));
        let first = sources
            .next()
            .unwrap_or_else(|| Err(Problem::at(whole, "the key is empty: give at least one source")))?;
        sources.try_fold(first, |key, source| Ok(key.and(source?)))
    }

    /// The first of several that is present: `api-key:x-api-key or address`.
    fn any(&self, location: &Location, text: &str) -> Result<KeySource, Problem> {
        let words: Vec<&str> = text.split(" or ").map(str::trim).collect();
        let (_, earlier) = words.split_last().unwrap_or((&"", &[]));
        if let Some(word) = earlier.iter().find(|word| matches!(**word, "everybody" | "path")) {
            let message = format!("{word} is never missing, so nothing after it is used: remove the rest");
            return Err(Problem::at(location, message));
        }
        let mut sources = words.into_iter().map(|word| self.one(location, word));
        let first = sources.next().unwrap_or_else(|| Err(self.unknown(location, text)))?;
        sources.try_fold(first, |key, source| Ok(key.or(source?)))
    }

    fn one(&self, location: &Location, word: &str) -> Result<KeySource, Problem> {
        let header_name = |name| header_name(name).map_err(|error| Problem::at(location, error));
        match word.split_once(':') {
            Some(("header", name)) => return Ok(KeySource::header(header_name(name)?)),
            Some(("api-key", name)) => return Ok(KeySource::api_key(header_name(name)?)),
            _ => {}
        }
        match word {
            "address" => Ok(KeySource::client_address(self.proxies.clone())),
            "bearer-token" => Ok(KeySource::bearer_token()),
            "everybody" => Ok(KeySource::everybody()),
            "path" => Ok(KeySource::path()),
            #[cfg(feature = "axum")]
            "path-template" => Ok(KeySource::path_template()),
            word => self.provided.key_of(word).ok_or_else(|| self.unknown(location, word)),
        }
    }

    fn unknown(&self, location: &Location, word: &str) -> Problem {
        let template = if cfg!(feature = "axum") { ", path-template" } else { "" };
        let provided: String = self.provided.keys.keys().map(|name| format!(", {name}")).collect();
        let message = format!(
            "unknown kind of key {word:?}: use address, bearer-token, everybody, path{template}{provided}, header:NAME, \
             api-key:NAME, or a key that the program provides (Provided::key)"
        );
        Problem { is_unknown_key: true, ..Problem::at(location, message) }
    }
}

/// Parses the name of a header.
pub(super) fn header_name(text: &str) -> Result<HeaderName, String> {
    let name = text.trim();
    name.parse().map_err(|_| format!("{name:?} is not a header name"))
}
