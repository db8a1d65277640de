//! Parses YAML into a document.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, NonFiniteFloatPolicy, Spanned};

use super::document::{Lined, MOST_LEVELS, Node, Problem, Value};

/// Parses YAML. Checks YAML's own rules (duplicate keys, undefined aliases); the library bounds aliases.
pub(super) fn read(text: &str) -> Result<Node, Problem> {
    // The library's own bound, 64 levels, takes more than the 2 MiB of a thread's stack without optimisation.
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        // The library's own error quotes the number, which may be a client: `5e84402111938475`.
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MOST_LEVELS },
    };
    let node: Option<Node> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
        let line = error.location().map_or(1, line);
        let message = error.render();
        // Recognised by its text, which is the same if an alias leads there.
        if message.contains("budget breached: Depth") {
            return Problem::too_deep(line);
        }
        // The library's message continues with advice for programmers.
        let message = message.split([';', ',']).next().unwrap_or(&message);
        Problem::in_line(line, format!("invalid YAML: {message}"))
    })?;
    Ok(Node { line: 1, value: node.map_or(Value::Table(Vec::new()), |node| node.value) })
}

fn line(location: Location) -> usize {
    usize::try_from(location.line()).unwrap_or(usize::MAX)
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Lined<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let Spanned { referenced, value, .. } = Spanned::deserialize(deserializer)?;
        Ok(Self { line: line(referenced), value })
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ValueVisitor)
    }
}

struct ValueVisitor;

impl<'de> Visitor<'de> for ValueVisitor {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Integer(number.into()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Value, E> {
        Ok(Value::Integer(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Value::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Value, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(Value::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Value::Table(entries))
    }
}
