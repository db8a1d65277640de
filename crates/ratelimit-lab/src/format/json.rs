//! Reads the wanted fields of a JSON object, also in objects within it, without building the others.

use std::fmt;
use std::io::Write as _;
use std::ops::Range;

use foldhash::fast::FixedState;
use hashbrown::HashMap;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::target::{set_request, value_of};
use super::time::Times;
use crate::address::address;
use crate::field::Field;
use crate::record::{Record, Wanted};

/// The names of the wanted fields.
#[derive(Debug)]
pub(super) struct Names {
    root: Tree,
    /// For each field the places of the values that have its names, in the order of the names.
    places: Vec<Range<usize>>,
    /// The places of values in nanoseconds.
    in_nanos: Vec<usize>,
}

/// Names as a tree: a name leads to places, or to names within it.
#[derive(Debug, Default)]
struct Tree {
    /// The places for the value that has this name, and the fields that they are of.
    places: Vec<(usize, Option<Field>)>,
    within: HashMap<Box<str>, Tree, FixedState>,
}

/// What Fluentd calls the client and the status in Apache's logs. Elsewhere `host` is the one that a request is for, even if it
/// is an address; but hardly next to `code`. `request` is nginx's name for the first line of a request. The places of these
/// are behind those of the wanted fields.
const ASIDE: [&str; 3] = ["host", "code", "request"];

impl Names {
    pub(super) fn of(wanted: &Wanted) -> Self {
        let (mut root, mut places, mut in_nanos, mut next) = (Tree::default(), Vec::new(), Vec::new(), 0);
        for field in wanted.fields() {
            let first = next;
            for name in wanted.names(field) {
                let place = (
                    next,
                    matches!(field, Field::Path | Field::Method | Field::Duration).then(|| field.clone()),
                );
                // A name with dots leads into objects, but may also be the whole name of a field.
                if name.contains('.') {
                    root.add(&mut name.split('.'), place.clone());
                }
                root.add(&mut std::iter::once(name), place);
                in_nanos.extend(field.is_in_nanos(name).then_some(next));
                next += 1;
            }
            places.push(first..next);
        }
        for (place, name) in ASIDE.into_iter().enumerate() {
            root.add(&mut std::iter::once(name), (next + place, None));
        }
        Self { root, places, in_nanos }
    }

    /// The place behind those of the wanted fields.
    fn end(&self) -> usize {
        self.places.last().map_or(0, |places| places.end)
    }
}

impl Tree {
    fn add<'n>(&mut self, path: &mut impl Iterator<Item = &'n str>, place: (usize, Option<Field>)) {
        let Some(name) = path.next() else { return self.places.push(place) };
        self.within.entry(name.into()).or_default().add(path, place);
    }

    fn get(&self, name: &str) -> Option<&Self> {
        self.within.get(name)
    }
}

/// Reads a line, which is one object. `found` is space for the values of all names.
pub(super) fn parse(
    line: &[u8],
    wanted: &Wanted,
    names: &Names,
    times: &mut Times,
    record: &mut Record,
    found: &mut Record,
) -> Result<(), &'static str> {
    let mut read = |line: &[u8]| {
        found.clear(names.end() + ASIDE.len());
        let mut reader = serde_json::Deserializer::from_slice(line);
        Reader { names: &names.root, found }
            .deserialize(&mut reader)
            .map_err(|_| "it is not a JSON object")?;
        reader.end().map_err(|_| "something follows the JSON object")
    };
    match read(line) {
        // Servers write bytes of a request that are not UTF-8 or, as nginx and Apache do, escapes that JSON does not have.
        Err(_) if line.contains(&b'\\') || std::str::from_utf8(line).is_err() => {
            read(escaped(line).as_bytes())
        }
        result => result,
    }?;
    for (index, places) in names.places.iter().enumerate() {
        if let Some((at, value)) = places.clone().find_map(|at| Some((at, found.get(at)?))) {
            record.set_with(index, |text| {
                text.extend_from_slice(value);
                text.extend_from_slice(if names.in_nanos.contains(&at) { b"ns" } else { b"" });
            });
        }
    }
    let [host, code, request] = [0, 1, 2].map(|place| found.get(names.end() + place));
    if let (Some(host), Some(_)) = (host, code)
        && address(host).is_some()
        && let Some(ip) = wanted.fields().iter().position(|field| *field == Field::Ip)
        && wanted.only_name(&Field::Ip).is_none()
    {
        record.set(ip, host);
    }
    // Without a space, it is hardly the first line of a request.
    if let Some(request) = request.filter(|request| request.contains(&b' ')) {
        set_request(record, wanted, request);
    }
    let time = record.get(Wanted::TIME).ok_or_else(|| match wanted.fields().first() {
        Some(Field::Time) => "there is no time; name its field with --time-field",
        _ => "there is no time in the field that --time-field names",
    })?;
    record.time = times.any(time).ok_or_else(|| times.reason(time))?;
    Ok(())
}

/// A line in which `\xNN` and other escapes that JSON does not have are text, as is `\xNN` in place of each byte that is not
/// UTF-8.
fn escaped(line: &[u8]) -> String {
    let mut text = String::with_capacity(line.len());
    for chunk in line.utf8_chunks() {
        let mut letters = chunk.valid().chars().peekable();
        while let Some(letter) = letters.next() {
            text.push(letter);
            if letter == '\\' {
                text.push(letters.next_if(|next| "\"\\/bfnrtu".contains(*next)).unwrap_or('\\'));
            }
        }
        chunk.invalid().iter().for_each(|byte| text.push_str(&format!("\\\\x{byte:02x}")));
    }
    text
}

struct Reader<'a> {
    names: &'a Tree,
    found: &'a mut Record,
}

impl Reader<'_> {
    fn set(&mut self, value: &[u8]) {
        for (place, field) in &self.names.places {
            self.found.set(*place, field.as_ref().map_or(value, |field| value_of(field, value)));
        }
    }

    fn set_number(&mut self, number: impl fmt::Display) {
        for (place, _) in &self.names.places {
            // Writing to memory does not fail.
            self.found.set_with(*place, |text| drop(write!(text, "{number}")));
        }
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Reader<'_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(names) = map.next_key_seed(Name(self.names))? {
            match names {
                Some(names) => map.next_value_seed(Reader { names, found: &mut *self.found })?,
                None => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(())
    }

    /// Reads only the first element of a list: Caddy writes the values of a header field as one.
    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        if list.next_element_seed(Reader { names: self.names, found: self.found })?.is_some() {
            while list.next_element::<IgnoredAny>()?.is_some() {}
        }
        Ok(())
    }

    fn visit_str<E>(mut self, value: &str) -> Result<(), E> {
        self.set(value.as_bytes());
        Ok(())
    }

    fn visit_u64<E>(mut self, value: u64) -> Result<(), E> {
        self.set_number(value);
        Ok(())
    }

    fn visit_i64<E>(mut self, value: i64) -> Result<(), E> {
        self.set_number(value);
        Ok(())
    }

    fn visit_f64<E>(mut self, value: f64) -> Result<(), E> {
        // A point may say that a duration is of seconds.
        let is_duration = self.names.places.iter().any(|(_, field)| *field == Some(Field::Duration));
        match is_duration && value.fract() == 0.0 {
            true => self.set_number(format_args!("{value:.1}")),
            false => self.set_number(value),
        }
        Ok(())
    }

    fn visit_bool<E>(mut self, value: bool) -> Result<(), E> {
        self.set_number(value);
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads a name in an object, and gives what is wanted under it.
struct Name<'a>(&'a Tree);

impl<'de, 'a> DeserializeSeed<'de> for Name<'a> {
    type Value = Option<&'a Tree>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<'a> Visitor<'_> for Name<'a> {
    type Value = Option<&'a Tree>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        Ok(self.0.get(name))
    }
}
