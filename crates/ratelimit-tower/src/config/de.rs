//! Deserialises a document into the structure of a file. Each error has its location.

use std::borrow::Cow;
use std::fmt;
use std::ops::Deref;

use serde::de::value::{MapDeserializer, SeqDeserializer, StrDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};

use super::document::{Lined, Location, Node, Problem, Value};

const TOO_LARGE: &str = "the number is too large";

/// Deserialises `T` from a document.
pub(super) fn from_node<T: DeserializeOwned>(node: &Node) -> Result<T, Problem> {
    T::deserialize(Reader::of(node, String::new()))
}

/// A value together with its location, for checks that are possible only after everything has been read.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub(super) location: Location,
    pub(super) value: T,
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    /// Asks [`Reader`] for a tuple, which no field is otherwise.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let (line, field, value) = Deserialize::deserialize(deserializer)?;
        Ok(Self { location: Location { line, field }, value })
    }
}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self::new(None, message.to_string())
    }

    /// Says what kind of value it is, and not the value: it may be a secret, such as a client in a list.
    fn invalid_type(unexpected: Unexpected<'_>, expected: &dyn de::Expected) -> Self {
        let kind = match unexpected {
            Unexpected::Bool(_) => "boolean",
            Unexpected::Unsigned(_) | Unexpected::Signed(_) => "integer",
            Unexpected::Float(_) => "number with a point",
            Unexpected::Str(_) => "string",
            Unexpected::Seq => "list",
            Unexpected::Map => "map",
            Unexpected::Other(kind) => kind,
            _ => "value",
        };
        Self::custom(format_args!("invalid type: {kind}, expected {expected}"))
    }
}

/// Reads a value, or the key of a table.
struct Reader<'a> {
    location: Location,
    value: Cow<'a, Value>,
}

impl<'a> Reader<'a> {
    fn of(node: &'a Node, field: String) -> Self {
        Self { location: Location { line: node.line, field }, value: Cow::Borrowed(&node.value) }
    }

    /// Readers of the key and of the value of an entry of this table.
    fn entry<'e>(&self, (key, node): &'e (Lined<String>, Node)) -> (Reader<'e>, Reader<'e>) {
        let name = &key.value;
        let is_plain = !name.is_empty()
            && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte));
        let name = if is_plain { name.clone() } else { format!("{name:?}") };
        let table = &self.location.field;
        let field = if table.is_empty() { name } else { format!("{table}.{name}") };
        let location = Location { line: key.line, field: field.clone() };
        (Reader { location, value: Cow::Owned(Value::Text(key.value.clone())) }, Reader::of(node, field))
    }

    fn any<'de, V: Visitor<'de>>(&self, visitor: V) -> Result<V::Value, Problem> {
        match &*self.value {
            Value::Null => Err(de::Error::invalid_type(Unexpected::Other("null"), &visitor)),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                // No field takes one, and `visit_i128` would answer with the number.
                _ => Err(de::Error::custom(TOO_LARGE)),
            },
            Value::TooLarge => Err(de::Error::custom(TOO_LARGE)),
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::Date => Err(de::Error::invalid_type(Unexpected::Other("a date"), &visitor)),
            Value::List(elements) => {
                let element =
                    |(index, node)| Reader::of(node, format!("{}[{}]", self.location.field, index + 1));
                visitor.visit_seq(SeqDeserializer::new((0_usize..).zip(elements).map(element)))
            }
            Value::Table(entries) => {
                visitor.visit_map(MapDeserializer::new(entries.iter().map(|entry| self.entry(entry))))
            }
        }
    }
}

impl<'de> IntoDeserializer<'de, Problem> for Reader<'_> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.any(visitor).map_err(|problem| problem.or_at(&self.location))
    }

    /// A field without a value is an error. If it meant that the field is not set, a policy for some routes would become
    /// one for all when they are deleted.
    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        visitor.visit_some(self)
    }

    /// The parts of a [`Located`].
    fn deserialize_tuple<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Problem> {
        let part = |value| Reader { location: self.location.clone(), value: Cow::Owned(value) };
        let line = part(Value::Integer(self.location.line as i128));
        let field = part(Value::Text(self.location.field.clone()));
        visitor.visit_seq(SeqDeserializer::new([line, field, self].into_iter()))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let Value::Text(text) = &*self.value else { return self.deserialize_any(visitor) };
        let word: StrDeserializer<'_, Problem> = text.as_str().into_deserializer();
        visitor.visit_enum(word).map_err(|problem| problem.or_at(&self.location))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct newtype_struct
        seq tuple_struct map struct identifier ignored_any
    }
}
