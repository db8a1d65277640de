//! What a program provides for its configuration file: keys, whose values come from the log.

use anyhow::Context as _;
use ratelimit_tower::KeySource;
use ratelimit_tower::config::Provided;

use crate::field::Field;
use crate::record::{Record, Wanted};

/// The kinds of keys that a program provides: their names in the file, and the indices of the fields with their values.
pub(crate) struct ProvidedKeys(Vec<(String, usize)>);

/// The values of these keys for a request, as an extension of it.
#[derive(Clone)]
pub(crate) struct Values(Vec<Option<Box<[u8]>>>);

impl ProvidedKeys {
    /// Adds the fields with the values to `wanted`. Each of `keys` is `NAME=FIELD`.
    ///
    /// # Errors
    /// If one of `keys` is not of that form.
    pub(crate) fn new(wanted: &mut Wanted, keys: &[String]) -> anyhow::Result<Self> {
        let keys = keys.iter().map(|text| {
            let (name, field) =
                text.split_once('=').with_context(|| format!("--provided-key {text}: write NAME=FIELD"))?;
            Ok((name.to_owned(), wanted.add(Field::of_name(field))))
        });
        keys.collect::<anyhow::Result<_>>().map(Self)
    }

    /// What the file is read with.
    pub(crate) fn provided(&self) -> Provided {
        self.0.iter().enumerate().fold(Provided::default(), |provided, (nth, (name, _))| {
            provided.key(
                name,
                KeySource::function(move |head| head.extensions.get::<Values>()?.0.get(nth)?.clone()),
            )
        })
    }

    /// The names of the keys, and the indices of the fields with their values.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&str, usize)> {
        self.0.iter().map(|(name, index)| (name.as_str(), *index))
    }

    /// The values that a line has; `None` if no keys are provided.
    pub(crate) fn values(&self, record: &Record) -> Option<Values> {
        let values = self.0.iter().map(|(_, index)| record.get(*index).map(Box::from));
        (!self.0.is_empty()).then(|| Values(values.collect()))
    }
}
