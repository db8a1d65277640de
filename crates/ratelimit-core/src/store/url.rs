//! Options in the query of a store's URL: `redis://cache/?timeout=200ms&prefix=api:`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use super::error::{ErrorKind, StoreError};
use crate::limit::parse_duration;

/// A store's URL, with options as its query. For authors of stores that are configured by a URL.
///
/// Names and values are percent-decoded; a `+` stays a plus. Errors name the option and say what it takes, but never quote
/// a value, which may be a password.
///
/// ```
/// use ratelimit_core::store::StoreUrl;
/// use std::time::Duration;
///
/// const OPTIONS: &[&str] = &["prefix", "timeout"];
///
/// let url = StoreUrl::parse("mystore", "mystore://cache.internal/?timeout=200ms&prefix=api%3A")?;
/// assert_eq!(url.base(), "mystore://cache.internal/");
/// let (mut prefix, mut timeout) = (String::new(), Duration::from_secs(1));
/// for option in url.options() {
///     match option.name() {
///         "prefix" => prefix = option.text().to_owned(),
///         "timeout" => timeout = option.duration()?,
///         _ => return Err(option.unknown(OPTIONS)),
///     }
/// }
/// assert_eq!((prefix.as_str(), timeout), ("api:", Duration::from_millis(200)));
///
/// let url = StoreUrl::parse("mystore", "mystore://cache.internal/?timout=200ms")?;
/// assert_eq!(
///     url.options()[0].unknown(OPTIONS).to_string(),
///     "mystore is misconfigured: there is no option `timout`; the options are `prefix`, `timeout`",
/// );
/// # Ok::<(), ratelimit_core::StoreError>(())
/// ```
pub struct StoreUrl<'a> {
    base: &'a str,
    options: Vec<UrlOption<'a>>,
}

/// An option of a [`StoreUrl`].
pub struct UrlOption<'a> {
    store: &'static str,
    written: &'a str,
    name: Cow<'a, str>,
    value: Cow<'a, str>,
}

impl<'a> StoreUrl<'a> {
    /// Splits `url` into the part that names the server, and the options. `store` is the store's name in errors.
    ///
    /// # Errors
    /// If an option has no name or occurs twice, or if its percent-encoding is not valid. Also if there is an `@` after the
    /// first `/`, `#` or `?` behind the scheme: this is probably part of a password, which nothing may quote. Write it as
    /// `%2F`, `%23` or `%3F`, and an `@` in a path or in an option as `%40`.
    pub fn parse(store: &'static str, url: &'a str) -> Result<Self, StoreError> {
        let (base, query) = url.split_once('?').unwrap_or((url, ""));
        if query.contains('@') {
            let message = "the address has an `@` after its `?`: write a `?` in a password as `%3F`, and an `@` in an option as `%40`";
            return Err(misconfigured(store, message));
        }
        let address = base.split_once("://").map_or(base, |(_, address)| address);
        if address.split_once(['/', '#']).is_some_and(|(_, path)| path.contains('@')) {
            let message = "the address has an `@` after a `/` or `#`: in a password, write a `/` as `%2F` and a `#` as `%23`; in a path, an `@` as `%40`";
            return Err(misconfigured(store, message));
        }
        let mut options: Vec<UrlOption<'a>> = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (Some(name), Some(value)) = (decoded(name), decoded(value)) else {
                return Err(misconfigured(store, "an option of the address is not valid percent-encoding"));
            };
            if name.is_empty() {
                return Err(misconfigured(store, "an option of the address has no name"));
            }
            if options.iter().any(|option| option.name == name) {
                return Err(misconfigured(store, format!("the option `{name}` is given twice")));
            }
            options.push(UrlOption { store, written: pair, name, value });
        }
        Ok(Self { base, options })
    }

    /// Returns the URL without its options.
    pub fn base(&self) -> &'a str {
        self.base
    }

    /// Returns the URL with only the options in `names`, in their original spelling. Pass it to a client library that reads
    /// these options itself.
    pub fn base_with(&self, names: &[&str]) -> String {
        let kept = self.options.iter().filter(|option| names.contains(&option.name()));
        // Other parsers take a plus for a space.
        let query: Vec<_> = kept.map(|option| option.written.replace('+', "%2B")).collect();
        let question_mark = if query.is_empty() { "" } else { "?" };
        format!("{}{question_mark}{}", self.base, query.join("&"))
    }

    /// The options, in the order of the URL.
    pub fn options(&self) -> &[UrlOption<'a>] {
        &self.options
    }
}

impl fmt::Debug for StoreUrl<'_> {
    /// Shows neither the URL nor the values: they may contain passwords.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreUrl").field("options", &self.options).finish_non_exhaustive()
    }
}

impl UrlOption<'_> {
    /// The option's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The option's value as text.
    pub fn text(&self) -> &str {
        &self.value
    }

    /// Parses the value as a duration with a unit, as in the text of a limit: `500ms`, `2s`, `15min`.
    ///
    /// # Errors
    /// If it is not a duration.
    pub fn duration(&self) -> Result<Duration, StoreError> {
        parse_duration(&self.value)
            .ok_or_else(|| self.expected("a length of time with its unit, as in `500ms` or `2s`"))
    }

    /// Parses the value as a number.
    ///
    /// # Errors
    /// If it is not a whole number that `T` can hold.
    pub fn number<T: FromStr>(&self) -> Result<T, StoreError> {
        self.value.parse().map_err(|_| self.expected("a whole number that is not too large"))
    }

    /// Parses the value as `true` or `false`. A name without a value means `true`.
    ///
    /// # Errors
    /// If it is neither.
    pub fn flag(&self) -> Result<bool, StoreError> {
        match &*self.value {
            "true" | "" => Ok(true),
            "false" => Ok(false),
            _ => Err(self.expected("`true` or `false`")),
        }
    }

    /// Parses the value as one of the names in `choices`, and returns what belongs to that name.
    ///
    /// # Errors
    /// If it is none of them.
    pub fn one_of<T: Clone>(&self, choices: &[(&str, T)]) -> Result<T, StoreError> {
        match choices.iter().find(|(name, _)| *name == self.value) {
            Some((_, choice)) => Ok(choice.clone()),
            None => Err(self.expected(&listed(choices.iter().map(|(name, _)| *name), " or "))),
        }
    }

    /// Returns the error for an option that the store does not have. It lists the `known` options.
    pub fn unknown(&self, known: &[&str]) -> StoreError {
        let known = listed(known.iter().copied(), ", ");
        misconfigured(self.store, format!("there is no option `{}`; the options are {known}", self.name))
    }

    /// Returns the error for an invalid value. `expected` says what the option takes.
    pub fn expected(&self, expected: &str) -> StoreError {
        misconfigured(self.store, format!("the option `{}` takes {expected}", self.name))
    }
}

impl fmt::Debug for UrlOption<'_> {
    /// Does not show the value.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

fn misconfigured(store: &'static str, message: impl Into<Cow<'static, str>>) -> StoreError {
    StoreError::new(store, ErrorKind::Misconfigured, message)
}

fn listed<'a>(names: impl Iterator<Item = &'a str>, between: &str) -> String {
    names.map(|name| format!("`{name}`")).collect::<Vec<_>>().join(between)
}

/// Decodes percent-encoding; `None` if it is not valid, or not UTF-8.
fn decoded(text: &str) -> Option<Cow<'_, str>> {
    if !text.contains('%') {
        return Some(Cow::Borrowed(text));
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || char::from(rest.next()?).to_digit(16);
        bytes.push(u8::try_from(digit()? * 16 + digit()?).ok()?);
    }
    String::from_utf8(bytes).ok().map(Cow::Owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(url: &'static str) -> StoreUrl<'static> {
        StoreUrl::parse("mystore", url).unwrap_or_else(|error| panic!("{url}: {error}"))
    }

    #[test]
    fn an_address_without_a_query_has_no_options() {
        for url in ["memory:", "redis://a/0", "redis://a?", "redis://a?&&"] {
            let read = one(url);
            assert_eq!(read.base(), url.split('?').next().unwrap_or_default());
            assert!(read.options().is_empty(), "{url}");
        }
    }

    #[test]
    fn option_values_are_parsed_by_type() {
        let url = one("s://?a=1%30&b=2s&c&d=false&e=x%20y+z");
        assert_eq!(
            (url.base_with(&["e", "a"]), url.base_with(&[])),
            ("s://?a=1%30&e=x%20y%2Bz".into(), "s://".into())
        );
        let [a, b, c, d, e] = url.options() else { panic!("five options") };
        assert_eq!((a.number::<u8>().ok(), b.duration().ok()), (Some(10), Some(Duration::from_secs(2))));
        assert_eq!((c.flag().ok(), d.flag().ok(), e.text()), (Some(true), Some(false), "x y+z"));
        assert_eq!(d.one_of(&[("true", 1), ("false", 2)]).ok(), Some(2));
    }

    #[test]
    fn errors_name_the_valid_values_and_do_not_quote_the_wrong_one() {
        let url = one("s://?a=s3cret");
        let [option] = url.options() else { panic!("one option") };
        let errors = [
            (option.number::<u64>().err(), "a whole number"),
            (option.duration().err(), "`500ms`"),
            (option.flag().err(), "`true` or `false`"),
            (option.one_of(&[("caller", 1), ("server", 2)]).err(), "`caller` or `server`"),
            (Some(option.unknown(&["b", "c"])), "`b`, `c`"),
        ];
        for (error, expected) in errors {
            let error = error.expect(expected);
            assert_eq!((error.kind(), error.is_retryable()), (ErrorKind::Misconfigured, false));
            let error = error.to_string();
            assert!(
                error.contains("`a`") && error.contains(expected) && !error.contains("s3cret"),
                "{error}"
            );
        }
        assert!(!format!("{url:?}").contains("s3cret"));
    }

    #[test]
    fn invalid_queries_are_errors() {
        for (url, expected) in [
            ("s://?a=%zz", "percent-encoding"),
            ("s://?a=%f", "percent-encoding"),
            ("s://?a=%ff", "percent-encoding"),
            ("s://?=1", "no name"),
            ("s://?a=1&a=2", "twice"),
            ("s://user:1?s3cret@host/?a=1", "`%3F`"),
            ("s://user:?s3cret=1&s3cret=2@host", "`%3F`"),
            ("s://user:/s3cret@host/?a=1", "`%2F`"),
            ("s://user:1@2/s3cret@host", "`%2F`"),
            ("s://user:#s3cret@host", "`%23`"),
            ("s:/user:s3cret@host", "`%2F`"),
        ] {
            let error = StoreUrl::parse("mystore", url).expect_err(url).to_string();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        }
    }
}
