//! Limits as strings in serde formats.

use ::serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::Limit;

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_a_string() {
        let limit: Limit = serde_json::from_str(r#""100/min burst 20""#).unwrap();
        assert_eq!(serde_json::to_string(&limit).unwrap(), r#""100/min burst 20""#);
        let error = serde_json::from_str::<Limit>(r#""100/year""#).unwrap_err().to_string();
        assert!(error.contains("expected a unit of time"), "{error}");
        assert!(serde_json::from_str::<Limit>("7").unwrap_err().to_string().contains("a limit such as"));
    }
}
