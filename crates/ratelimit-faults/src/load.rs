//! The load of the workers: limits of every kind, on few and on many keys.

use ratelimit_core::Limit;

use crate::rule::Rule;

const NANOS: u64 = 1_000_000_000;
const DAY: u64 = 24 * 3600 * NANOS;

/// The quota of a short limit: so far below the load that it is always used up.
const PER_SECOND: u64 = 15;

/// The number of keys of a class with many.
const MANY: u16 = 150;

/// Keys under one limit.
#[derive(Clone, Debug)]
pub(crate) struct Class {
    /// The limit as text.
    pub(crate) text: String,
    /// What the limit allows.
    pub(crate) rule: Rule,
    /// How many keys there are.
    pub(crate) keys: u16,
    /// The number of calls under it, relative to the other classes.
    pub(crate) share: u32,
    /// Whether the period is so long that no quota becomes free during a phase. Then every charge can be counted
    /// afterwards.
    pub(crate) is_long: bool,
}

/// All classes; the long limits of few keys have this quota.
pub(crate) fn classes(quota: u64) -> Vec<Class> {
    let long = |text: String, rule, keys, share| Class { text, rule, keys, share, is_long: true };
    let short = |text: String, rule| Class { text, rule, keys: 1, share: 4, is_long: false };
    let fixed = |quota, period| Rule::Fixed { quota, period };
    let sliding = |quota, period| Rule::Sliding { quota, period };
    let log = |quota, period| Rule::Log { quota, period };
    let bucket = |burst, period: u64| Rule::Bucket { burst, interval: period / burst };
    vec![
        long(format!("{quota}/d log"), log(quota, DAY), 1, 8),
        long(format!("{quota}/d bucket"), bucket(quota, DAY), 1, 8),
        long(format!("{quota}/d fixed"), fixed(quota, DAY), 1, 8),
        long(format!("{quota}/d sliding"), sliding(quota, DAY), 1, 8),
        long(format!("{quota}/d precision 6h strict"), log(quota, DAY), 1, 8),
        long("6/d log".to_owned(), log(6, DAY), MANY, 12),
        long("6/d bucket".to_owned(), bucket(6, DAY), MANY, 12),
        long("6/d fixed".to_owned(), fixed(6, DAY), MANY, 12),
        short(format!("{PER_SECOND}/s log"), log(PER_SECOND, NANOS)),
        short(format!("{PER_SECOND}/s bucket"), bucket(PER_SECOND, NANOS)),
        short(format!("{PER_SECOND}/s fixed"), fixed(PER_SECOND, NANOS)),
        short(format!("{PER_SECOND}/s sliding"), sliding(PER_SECOND, NANOS)),
    ]
}

impl Class {
    /// The limit.
    ///
    /// # Errors
    /// If the text is not one.
    pub(crate) fn limit(&self) -> anyhow::Result<Limit> {
        Ok(self.text.parse()?)
    }
}

/// One key, by its class and its number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct KeyId {
    pub(crate) class: u8,
    pub(crate) number: u16,
}

impl KeyId {
    /// The key in a phase. Each phase has keys of its own, so that it begins with full quotas.
    pub(crate) fn text(self, phase: usize) -> String {
        format!("{phase}.{}.{}", self.class, self.number)
    }

    /// The key of this phase in the name of a meter on a server.
    pub(crate) fn find(name: &str, phase: usize) -> Option<Self> {
        name.split(|other: char| !other.is_ascii_digit() && other != '.').find_map(|part| {
            let (of, rest) = part.split_once('.')?;
            let (class, number) = rest.split_once('.')?;
            let key = Self { class: class.parse().ok()?, number: number.parse().ok()? };
            (of.parse() == Ok(phase)).then_some(key)
        })
    }

    /// All keys of these classes.
    pub(crate) fn all(classes: &[Class]) -> impl Iterator<Item = (Self, &Class)> {
        classes.iter().zip(0_u8..).flat_map(|(class, index)| {
            (0..class.keys).map(move |number| (Self { class: index, number }, class))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::{KeyId, classes};

    #[test]
    fn keys_are_found_in_the_names_of_meters() {
        let key = KeyId { class: 7, number: 12 };
        assert_eq!(key.text(3), "3.7.12");
        for name in ["rl:{faults:3.7.12}log:86400s", "rl!faults!fixed:1d!3.7.12!19000"] {
            assert_eq!(KeyId::find(name, 3), Some(key), "{name}");
            assert_eq!(KeyId::find(name, 4), None, "{name}");
        }
        assert_eq!(KeyId::find("filler3", 3), None);
    }

    #[test]
    fn every_class_is_a_limit() {
        for class in classes(40) {
            assert!(class.limit().is_ok(), "{}", class.text);
        }
    }
}
