//! Stores in which two keys share a meter, or one key harms another.

use ratelimit_core::MeterId;

use super::{BrokenStore, Flaw};

pub(super) fn all() -> Vec<BrokenStore> {
    vec![
        BrokenStore::new::<BareSeparator>(
            "bare-separator",
            "names are joined with a separator that may be in them",
            "keys/triples-are-injective",
        ),
        BrokenStore::new::<TextKeys>("text-keys", "keys are made text", "keys/no-text"),
        BrokenStore::new::<FoldedKeys>("folded-keys", "keys are compared without case", "keys/alike-as-text"),
        BrokenStore::new::<ShortKeys>(
            "short-keys",
            "keys are cut to 250 bytes",
            "keys/long-keys-differ-at-the-end",
        ),
        BrokenStore::new::<TrimmedKeys>("trimmed-keys", "white space is trimmed", "keys/white-space"),
        BrokenStore::new::<PanicsOnEmpty>("panics", "the empty key panics", "keys/lengths"),
        BrokenStore::new::<ResetsByPrefix>(
            "resets-by-prefix",
            "a reset forgets all keys that begin with its own",
            "resets/no-prefixes",
        ),
    ]
}

/// The name of the same meter with another key.
fn with_key(id: &MeterId<'_>, key: &[u8]) -> Vec<u8> {
    MeterId { key, ..*id }.to_bytes()
}

#[derive(Debug, Default)]
struct BareSeparator;

impl Flaw for BareSeparator {
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        [id.namespace.as_bytes(), b":", id.scope.as_bytes(), b":", id.key].concat()
    }
}

#[derive(Debug, Default)]
struct TextKeys;

impl Flaw for TextKeys {
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        with_key(id, String::from_utf8_lossy(id.key).as_bytes())
    }
}

#[derive(Debug, Default)]
struct FoldedKeys;

impl Flaw for FoldedKeys {
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        with_key(id, &id.key.to_ascii_lowercase())
    }
}

#[derive(Debug, Default)]
struct ShortKeys;

impl Flaw for ShortKeys {
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        with_key(id, &id.key[..id.key.len().min(250)])
    }
}

#[derive(Debug, Default)]
struct TrimmedKeys;

impl Flaw for TrimmedKeys {
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        with_key(id, id.key.trim_ascii())
    }
}

#[derive(Debug, Default)]
struct PanicsOnEmpty;

impl Flaw for PanicsOnEmpty {
    fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
        assert!(!id.key.is_empty(), "the key is empty");
        id.to_bytes()
    }
}

#[derive(Debug, Default)]
struct ResetsByPrefix;

impl Flaw for ResetsByPrefix {
    fn resets(&self, name: &[u8], other: &[u8]) -> bool {
        other.starts_with(name)
    }
}
