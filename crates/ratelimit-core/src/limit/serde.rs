//! Limits as strings in serde formats; several limits also as a list of strings.
//!
//! [`Limits`] can only be deserialized from a self-describing format, such as JSON, whose input says whether it contains a
//! string or a list.

use ::serde::de::value::SeqAccessDeserializer;
use ::serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::{Limit, Limits};

impl Serialize for Limit {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limit {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Limit;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a limit such as \"10/s\" or \"100/min burst 20\"")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limit, E> {
                text.parse().map_err(E::custom)
            }
        }
        deserializer.deserialize_str(Visitor)
    }
}

impl Serialize for Limits {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Limits {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> de::Visitor<'de> for Visitor {
            type Value = Limits;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("limits such as \"10/s; 1000/h\", or a list of them")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Limits, E> {
                text.parse().map_err(E::custom)
            }

            fn visit_seq<A: de::SeqAccess<'de>>(self, list: A) -> Result<Limits, A::Error> {
                let limits = Vec::<Limit>::deserialize(SeqAccessDeserializer::new(list))?;
                Limits::new(limits).map_err(de::Error::custom)
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_string() {
        let limit: Limit = serde_json::from_str(r#""100/min burst 20""#).unwrap();
        assert_eq!(serde_json::to_string(&limit).unwrap(), r#""100/min burst 20""#);
        let error = serde_json::from_str::<Limit>(r#""100/fortnight""#).unwrap_err().to_string();
        assert!(error.contains("expected a unit of time"), "{error}");
        assert!(serde_json::from_str::<Limit>("7").unwrap_err().to_string().contains("a limit such as"));
    }

    #[test]
    fn several_limits_are_a_string_or_a_list() {
        let limits: Limits = serde_json::from_str(r#""10/s; 1000/h""#).unwrap();
        assert_eq!(serde_json::to_string(&limits).unwrap(), r#""10/s; 1000/h""#);
        assert_eq!(serde_json::from_str::<Limits>(r#"["10/s", "1000/h"]"#).unwrap(), limits);
        let error = |text| serde_json::from_str::<Limits>(text).unwrap_err().to_string();
        assert!(error(r#"["10/s", "10/fortnight"]"#).contains("expected a unit of time"));
        assert!(error(r#"["10/s", "20/s"]"#).contains("different names"));
        assert!(error("[]").contains("at least one limit"));
        assert!(error("7").contains("limits such as"));
    }
}
