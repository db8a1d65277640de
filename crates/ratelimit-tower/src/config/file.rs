//! The structure of a file: its fields as written, before they are interpreted.

use std::collections::BTreeMap;
use std::fmt;
use std::num::NonZeroU64;

use serde::Deserialize;
use serde::de::value::MapAccessDeserializer;
use serde::de::{self, Deserializer, Unexpected, Visitor};

use super::de::Located;
use super::document::Location;
use crate::{Family, Missing, Reset};

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    #[serde(default)]
    pub(super) shadow: bool,
    #[serde(default)]
    pub(super) on_store_failure: Option<StoreFailure>,
    /// Routes to which no policy applies.
    #[serde(default)]
    pub(super) exempt: Vec<Located<String>>,
    #[serde(default)]
    pub(super) client: Client,
    #[serde(default)]
    pub(super) headers: Headers,
    /// Clients that are refused.
    #[serde(default)]
    pub(super) deny: Vec<Located<Clients>>,
    /// Clients to which no policy applies.
    #[serde(default)]
    pub(super) allow: Vec<Located<Clients>>,
    pub(super) policies: Located<Vec<Located<Policy>>>,
    /// For each plan, the limits of some policies.
    #[serde(default)]
    pub(super) plans: BTreeMap<String, Located<BTreeMap<String, Located<Texts>>>>,
}

/// One of `policies`.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Policy {
    pub(super) name: Located<String>,
    pub(super) limit: Option<Located<Texts>>,
    pub(super) key: Located<Texts>,
    pub(super) cost: Option<Located<Cost>>,
    /// The routes that it applies to; all routes if omitted.
    pub(super) routes: Option<Located<Texts>>,
    /// Count a request only if its response has one of these statuses.
    pub(super) count_only: Option<Located<Vec<Statuses>>>,
    /// Refund a request if its response has one of these statuses.
    pub(super) refund: Option<Located<Vec<Statuses>>>,
    /// Where its true cost comes from.
    pub(super) settle: Option<Located<String>>,
    pub(super) settle_within: Option<Located<String>>,
    pub(super) unsettled: Option<Located<Unsettled>>,
    pub(super) missing: Option<Missing>,
    #[serde(default)]
    pub(super) shadow: bool,
}

/// A list of clients, here or in a file of its own, or both.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Clients {
    pub(super) key: Located<Texts>,
    #[serde(default)]
    pub(super) clients: Vec<Located<String>>,
    pub(super) file: Option<Located<String>>,
}

/// How to identify the client.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Client {
    #[serde(default)]
    pub(super) trusted_proxies: Vec<Located<String>>,
    pub(super) header: Option<Located<String>>,
    pub(super) ipv4_prefix: Option<Located<u64>>,
    pub(super) ipv6_prefix: Option<Located<u64>>,
}

/// Which fields to send to clients.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Headers {
    pub(super) families: Option<Vec<Family>>,
    pub(super) reset: Option<Located<Reset>>,
    pub(super) on_admitted: Option<Located<bool>>,
}

/// What happens when the store does not answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum StoreFailure {
    Open,
    Closed,
}

/// A string or a list of strings.
#[derive(Debug)]
pub(super) enum Texts {
    One(String),
    Many(Vec<Located<String>>),
}

impl Located<Texts> {
    /// The strings, each with its location.
    pub(super) fn each(&self) -> Vec<(&Location, &str)> {
        match &self.value {
            Texts::One(text) => vec![(&self.location, text)],
            Texts::Many(texts) => texts.iter().map(|text| (&text.location, text.as_str())).collect(),
        }
    }
}

impl<'de> Deserialize<'de> for Texts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;
        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Texts;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list of strings")
            }

            fn visit_str<E>(self, text: &str) -> Result<Texts, E> {
                Ok(Texts::One(text.to_owned()))
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, mut list: A) -> Result<Texts, A::Error> {
                let mut texts = Vec::new();
                while let Some(text) = list.next_element()? {
                    texts.push(text);
                }
                Ok(Texts::Many(texts))
            }
        }
        deserializer.deserialize_any(OneOrMany)
    }
}

/// A status, or a class of statuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Statuses {
    /// The first status.
    pub(super) first: u16,
    /// The last status.
    pub(super) last: u16,
}

impl<'de> Deserialize<'de> for Statuses {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrWord {
            expected: "a status from 100 to 599, or a class from \"1xx\" to \"5xx\"",
            number: |status| match u16::try_from(status) {
                Ok(status @ 100..=599) => Some(Self { first: status, last: status }),
                _ => None,
            },
            word: |class| match class.as_bytes() {
                [digit @ b'1'..=b'5', b'x', b'x'] => {
                    let first = u16::from(digit - b'0') * 100;
                    Some(Self { first, last: first + 99 })
                }
                _ => None,
            },
        })
    }
}

/// What to charge if the true cost is not known.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unsettled(pub(super) crate::Unsettled);

impl<'de> Deserialize<'de> for Unsettled {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(NumberOrWord {
            expected: "\"keep\", \"refund\" or a number of units",
            number: |units| Some(Self(crate::Unsettled::Charge(units))),
            word: |word| match word {
                "keep" => Some(Self(crate::Unsettled::Keep)),
                "refund" => Some(Self(crate::Unsettled::Refund)),
                _ => None,
            },
        })
    }
}

/// Reads a value that is a number or a word.
struct NumberOrWord<T> {
    /// What the value can be.
    expected: &'static str,
    number: fn(u64) -> Option<T>,
    word: fn(&str) -> Option<T>,
}

impl<T> Visitor<'_> for NumberOrWord<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_u64<E: de::Error>(self, number: u64) -> Result<T, E> {
        (self.number)(number).ok_or_else(|| E::invalid_value(Unexpected::Unsigned(number), &self))
    }

    fn visit_str<E: de::Error>(self, word: &str) -> Result<T, E> {
        (self.word)(word).ok_or_else(|| E::invalid_value(Unexpected::Str(word), &self))
    }
}

/// What a request costs.
#[derive(Debug)]
pub(super) enum Cost {
    Known(crate::Cost),
    /// The name of one that the program provides.
    Provided(String),
}

/// One unit per this many bytes of the body.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Bytes {
    per_bytes: NonZeroU64,
    /// The cost of a body of unknown length.
    if_unknown: NonZeroU64,
}

impl<'de> Deserialize<'de> for Cost {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct NumberTableOrName;
        impl<'de> Visitor<'de> for NumberTableOrName {
            type Value = Cost;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(
                    "a number of units of at least 1, a table with per_bytes and if_unknown, or the name of a cost that the \
                     program provides",
                )
            }

            fn visit_u64<E: de::Error>(self, units: u64) -> Result<Cost, E> {
                match units {
                    0 => Err(E::invalid_value(Unexpected::Unsigned(0), &self)),
                    units => Ok(Cost::Known(crate::Cost::units(units))),
                }
            }

            fn visit_str<E: de::Error>(self, name: &str) -> Result<Cost, E> {
                Ok(Cost::Provided(name.to_owned()))
            }

            fn visit_map<A: de::MapAccess<'de>>(self, map: A) -> Result<Cost, A::Error> {
                let Bytes { per_bytes, if_unknown } = Bytes::deserialize(MapAccessDeserializer::new(map))?;
                Ok(Cost::Known(crate::Cost::content_length(per_bytes, if_unknown.get())))
            }
        }
        deserializer.deserialize_any(NumberTableOrName)
    }
}
