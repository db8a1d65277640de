//! Parses YAML into a document.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, Spanned};

use super::document::{Key, MOST_LEVELS, Node, Place, Problem, Value, element_of, field_of};

/// Parses YAML. Checks YAML's own rules (duplicate keys, undefined aliases); the library bounds aliases.
pub(super) fn read(text: &str) -> Result<Node, Problem> {
    // The library's own bound, 64 levels, takes more than the 2 MiB of a thread's stack without optimisation.
    let options = serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        with_snippet: false,
        budget: serde_saphyr::budget! { max_depth: MOST_LEVELS },
    };
    let raw: Option<Spanned<Raw>> = serde_saphyr::from_str_with_options(text, options).map_err(|error| {
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
    let raw = raw.map_or(Raw::Table(Vec::new()), |spanned| spanned.value);
    Ok(Node { place: Place { line: 1, field: String::new() }, value: value(raw, "") })
}

/// A value of any type, as serde passes it on.
enum Raw {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f64),
    Text(String),
    List(Vec<Spanned<Raw>>),
    Table(Vec<(Spanned<String>, Spanned<Raw>)>),
}

fn line(location: Location) -> usize {
    usize::try_from(location.line()).unwrap_or(usize::MAX)
}

fn node(raw: Spanned<Raw>, field: String) -> Node {
    let value = value(raw.value, &field);
    Node { place: Place { line: line(raw.referenced), field }, value }
}

fn value(raw: Raw, field: &str) -> Value {
    match raw {
        Raw::Null => Value::Null,
        Raw::Bool(truth) => Value::Bool(truth),
        Raw::Integer(number) => Value::Integer(number),
        Raw::Float(number) => Value::Float(number),
        Raw::Text(text) => Value::Text(text),
        Raw::List(elements) => {
            let elements = elements.into_iter().enumerate();
            Value::List(elements.map(|(index, element)| node(element, element_of(field, index))).collect())
        }
        Raw::Table(entries) => {
            let entry = |(key, value): (Spanned<String>, _)| {
                let place = Place { line: line(key.referenced), field: field_of(field, &key.value) };
                let value = node(value, place.field.clone());
                (Key { place, name: key.value }, value)
            };
            Value::Table(entries.into_iter().map(entry).collect())
        }
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = Raw;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_none<E>(self) -> Result<Raw, E> {
        Ok(Raw::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Raw, D::Error> {
        Raw::deserialize(deserializer)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Raw, E> {
        Ok(Raw::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Raw, E> {
        Ok(Raw::Integer(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Raw, E> {
        Ok(Raw::Integer(number.into()))
    }

    fn visit_i128<E>(self, number: i128) -> Result<Raw, E> {
        Ok(Raw::Integer(number))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Raw, E> {
        Ok(Raw::Float(number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Raw, E> {
        Ok(Raw::Text(text.to_owned()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Raw, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = sequence.next_element()? {
            elements.push(element);
        }
        Ok(Raw::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Raw, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(Raw::Table(entries))
    }
}
