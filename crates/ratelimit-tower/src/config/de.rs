//! Deserialises a document into the structure of a file. Each error has its place.

use std::fmt;
use std::ops::Deref;

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, IntoDeserializer, MapAccess, SeqAccess,
    Unexpected, Visitor,
};
use serde::{Deserialize, forward_to_deserialize_any};

use super::document::{Key, Node, Place, Problem, Value};

/// Deserialises `T` from a document.
pub(super) fn from_node<T: DeserializeOwned>(node: &Node) -> Result<T, Problem> {
    T::deserialize(Reader { node })
}

/// A value together with its place, for checks that are possible only after everything has been read.
#[derive(Clone, Debug)]
pub(super) struct Located<T> {
    pub(super) place: Place,
    pub(super) value: T,
}

impl<T> Deref for Located<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

/// The name with which [`Located`] requests its place from [`Reader`]. No field can have this name.
const LOCATED: &str = "\0located";

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Located<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Parts<T>(std::marker::PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Parts<T> {
            type Value = Located<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a value and its place")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut parts: A) -> Result<Located<T>, A::Error> {
                let (line, field) = parts.next_entry()?.ok_or_else(|| de::Error::custom("no place"))?;
                let ((), value) = parts.next_entry()?.ok_or_else(|| de::Error::custom("no value"))?;
                Ok(Located { place: Place { line, field }, value })
            }
        }
        deserializer.deserialize_newtype_struct(LOCATED, Parts(std::marker::PhantomData))
    }
}

impl de::Error for Problem {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Self { place: None, message: message.to_string() }
    }
}

#[derive(Clone, Copy)]
struct Reader<'a> {
    node: &'a Node,
}

impl<'a> Reader<'a> {
    fn here<T>(self, result: Result<T, Problem>) -> Result<T, Problem> {
        result.map_err(|problem| problem.or_at(&self.node.place))
    }

    fn any<'de, V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match &self.node.value {
            Value::Null => visitor.visit_unit(),
            Value::Bool(truth) => visitor.visit_bool(*truth),
            Value::Integer(number) => match (u64::try_from(*number), i64::try_from(*number)) {
                (Ok(number), _) => visitor.visit_u64(number),
                (_, Ok(number)) => visitor.visit_i64(number),
                _ => visitor.visit_i128(*number),
            },
            Value::Float(number) => visitor.visit_f64(*number),
            Value::Text(text) => visitor.visit_str(text),
            Value::Date => Err(de::Error::invalid_type(Unexpected::Other("a date"), &visitor)),
            Value::List(elements) => visitor.visit_seq(Elements { rest: elements.iter() }),
            Value::Table(entries) => visitor.visit_map(Entries { rest: entries.iter(), value: None }),
        }
    }
}

impl<'de> Deserializer<'de> for Reader<'_> {
    type Error = Problem;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        self.here(self.any(visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Problem> {
        match self.node.value {
            Value::Null => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Problem> {
        match name {
            LOCATED => self.here(visitor.visit_map(Parts { node: self.node, given: 0 })),
            _ => self.here(visitor.visit_newtype_struct(self)),
        }
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Problem> {
        let Value::Text(text) = &self.node.value else { return self.deserialize_any(visitor) };
        let word: StrDeserializer<'_, Problem> = text.as_str().into_deserializer();
        self.here(visitor.visit_enum(word))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit unit_struct seq tuple
        tuple_struct map struct identifier ignored_any
    }
}

/// The parts of a [`Located`]: line and field, then the value.
struct Parts<'a> {
    node: &'a Node,
    given: u8,
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        self.given += 1;
        match self.given {
            1 => seed.deserialize(self.node.place.line.into_deserializer()).map(Some),
            _ => seed.deserialize(().into_deserializer()).map(Some),
        }
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        match self.given {
            1 => seed.deserialize(self.node.place.field.as_str().into_deserializer()),
            _ => seed.deserialize(Reader { node: self.node }),
        }
    }
}

struct Elements<'a> {
    rest: std::slice::Iter<'a, Node>,
}

impl<'de> SeqAccess<'de> for Elements<'_> {
    type Error = Problem;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Problem> {
        self.rest.next().map(|node| seed.deserialize(Reader { node })).transpose()
    }
}

struct Entries<'a> {
    rest: std::slice::Iter<'a, (Key, Node)>,
    value: Option<&'a Node>,
}

impl<'de> MapAccess<'de> for Entries<'_> {
    type Error = Problem;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Problem> {
        let Some((key, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(value);
        let name: StrDeserializer<'_, Problem> = key.name.as_str().into_deserializer();
        seed.deserialize(name).map(Some).map_err(|problem| problem.or_at(&key.place))
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Problem> {
        let node =
            self.value.take().ok_or_else(|| <Problem as de::Error>::custom("a value before its key"))?;
        seed.deserialize(Reader { node })
    }
}
