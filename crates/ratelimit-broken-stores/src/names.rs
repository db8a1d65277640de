//! Stores in which two keys share a meter, or one key harms another.

use std::hash::{DefaultHasher, Hash, Hasher};

use ratelimit_core::store::MeterId;

/// The name of the same meter with another key.
fn with_key(id: &MeterId<'_>, key: &[u8]) -> Vec<u8> {
    MeterId { key, ..*id }.to_bytes()
}

/// The name of the same meter in another namespace.
fn within(id: &MeterId<'_>, namespace: &str) -> Vec<u8> {
    MeterId { namespace, ..*id }.to_bytes()
}

/// The name of the same meter under another scope.
fn under(id: &MeterId<'_>, scope: &str) -> Vec<u8> {
    MeterId { scope, ..*id }.to_bytes()
}

/// FNV-1a in 32 bits.
fn short_hash(key: &[u8]) -> u32 {
    key.iter().fold(0x811c_9dc5, |hash: u32, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// With `%41` read as `A`.
fn percent_decoded(key: &[u8]) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = key;
    while let [first, tail @ ..] = rest {
        let hex = tail.get(..2).filter(|_| *first == b'%').and_then(|hex| std::str::from_utf8(hex).ok());
        match hex.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
            Some(byte) => {
                decoded.push(byte);
                rest = &tail[2..];
            }
            None => {
                decoded.push(*first);
                rest = tail;
            }
        }
    }
    decoded
}

/// The name of the same meter with another key if the key is text.
fn with_text(id: &MeterId<'_>, change: impl Fn(&str) -> String) -> Vec<u8> {
    std::str::from_utf8(id.key).map_or_else(|_| id.to_bytes(), |text| with_key(id, change(text).as_bytes()))
}

/// Whether UTF-8 needs four bytes for a character.
fn is_wide(sign: char) -> bool {
    sign.len_utf8() == 4
}

/// The text with one character in place of all that are wide.
fn narrow(text: &str) -> String {
    text.replace(is_wide, "\u{fffd}")
}

/// The number with that text, as a number of 64-bit floating point.
fn as_float(text: &str) -> Option<String> {
    let number: u64 = text.parse().ok().filter(|number: &u64| number.to_string() == text)?;
    #[expect(clippy::cast_precision_loss, reason = "this is the flaw")]
    let float = number as f64;
    Some(float.to_string())
}

flaws! {
    BareSeparator "bare-separator": "names are joined with a separator that may be in them",
        "keys/triples-are-injective" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            [id.namespace.as_bytes(), b":", id.scope.as_bytes(), b":", id.key].concat()
        }
    }
    TextKeys "text-keys": "keys are made text", "keys/no-text" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, String::from_utf8_lossy(id.key).as_bytes())
        }
    }
    FoldedKeys "folded-keys": "keys are compared without case", "keys/alike-as-text" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, &id.key.to_ascii_lowercase())
        }
    }
    ShortKeys "short-keys": "keys are cut to 250 bytes", "keys/long-keys-differ-at-the-end" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, &id.key[..id.key.len().min(250)])
        }
    }
    TrimmedKeys "trimmed-keys": "white space is trimmed", "keys/white-space" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, id.key.trim_ascii())
        }
    }
    PanicsOnEmpty "panics": "the empty key panics", "keys/lengths" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            assert!(!id.key.is_empty(), "the key is empty");
            id.to_bytes()
        }
    }
    ResetsByPrefix "resets-by-prefix": "a reset forgets all keys that begin with its own", "resets/no-prefixes" {
        const RESETS_PREFIXES: bool = true;
    }
    EmptyIsDefault "empty-is-default": "no key is the key `default`", "names/placeholders-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, if id.key.is_empty() { b"default" } else { id.key })
        }
    }
    NamelessSpace "nameless-is-default": "no name space is the one called `default`",
        "names/placeholders-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            within(id, if id.namespace.is_empty() { "default" } else { id.namespace })
        }
    }
    EndAtNul "keys-end-at-nul": "keys end at the first NUL", "names/placeholders-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, id.key.split(|byte| *byte == 0).next().unwrap_or_default())
        }
    }
    Decoded "decoded-keys": "keys are percent-decoded", "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, &percent_decoded(id.key))
        }
    }
    HexKeys "hex-keys": "keys that are no text are stored in hex", "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            let hex = || id.key.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
            if std::str::from_utf8(id.key).is_ok() { id.to_bytes() } else { with_key(id, hex().as_bytes()) }
        }
    }
    TrailingSlash "trailing-slash": "a slash at the end is dropped", "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, id.key.strip_suffix(b"/").unwrap_or(id.key))
        }
    }
    BothEnds "both-ends": "of long keys both ends are kept", "names/long-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            match id.key.len() {
                ..=80 => id.to_bytes(),
                length => with_key(id, &[&id.key[..40], b"..", &id.key[length - 40..]].concat()),
            }
        }
    }
    SixtyFour "sixty-four-bytes": "keys are cut to 64 bytes", "names/long-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, &id.key[..id.key.len().min(64)])
        }
    }
    ShortSpaces "short-name-spaces": "name spaces are cut to 64 bytes", "names/long-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            within(id, &id.namespace[..id.namespace.len().min(64)])
        }
    }
    FoldedSpaces "folded-name-spaces": "name spaces are compared without case",
        "names/name-spaces-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            within(id, &id.namespace.to_ascii_lowercase())
        }
    }
    FlatLimits "flat-limits": "dots in the names of limits become underscores",
        "names/limits-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            under(id, &id.scope.replace('.', "_"))
        }
    }
    ShortLimits "short-limits": "names of limits are cut to 32 bytes", "names/limits-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            under(id, &id.scope[..id.scope.len().min(32)])
        }
    }
    AsciiSpaces "ascii-name-spaces": "name spaces are kept in ASCII", "names/name-spaces-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            within(id, &id.namespace.replace(|sign: char| !sign.is_ascii(), "?"))
        }
    }
    ComposedSpaces "composed-name-spaces": "accents in name spaces are composed",
        "names/name-spaces-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            within(id, &id.namespace.replace("e\u{301}", "é"))
        }
    }
    TwoHundred "name-spaces-of-255-bytes": "name spaces are cut to 255 bytes", "names/long-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            within(id, &id.namespace[..id.namespace.len().min(255)])
        }
    }
    ShortScopes "scopes-of-64-bytes": "names of limits are cut to 64 bytes together with their periods",
        "names/limits-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            under(id, &id.scope[..id.scope.len().min(64)])
        }
    }
    Hashed "hashed-keys": "keys are hashed to 32 bits", "names/hashes-that-collide" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_key(id, &short_hash(id.key).to_le_bytes())
        }
    }
    HashedNames "hashed-names": "names are hashed to 24 bits of the usual hash", "names/tens-of-thousands" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            let mut hasher = DefaultHasher::new();
            id.to_bytes().hash(&mut hasher);
            (hasher.finish() % (1 << 24)).to_le_bytes().to_vec()
        }
    }
    Sixteen "sixteen-bits": "meters are in a table of 65,536 places without their names",
        "names/tens-of-thousands" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            (short_hash(&id.to_bytes()) % 65_536).to_le_bytes().to_vec()
        }
    }
    EqualEmoji "equal-emoji": "all characters of four bytes are equal", "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_text(id, narrow)
        }
    }
    EndAtEmoji "keys-end-at-emoji": "keys end at the first character of four bytes",
        "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_text(id, |text| text.split(is_wide).next().unwrap_or_default().to_owned())
        }
    }
    EqualEmojiSpaces "equal-emoji-in-name-spaces": "in name spaces all characters of four bytes are equal",
        "names/name-spaces-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            within(id, &narrow(id.namespace))
        }
    }
    Floats "keys-as-floats": "keys that are numbers become numbers of floating point",
        "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_text(id, |text| as_float(text).unwrap_or_else(|| text.to_owned()))
        }
    }
    Invisible "invisible-characters": "characters of no width are left out", "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_text(id, |text| text.replace(['\u{200b}', '\u{200c}', '\u{200d}', '\u{feff}'], ""))
        }
    }
    Paths "normal-paths": "keys are normalized like paths", "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_text(id, |text| text.replace("/./", "/"))
        }
    }
    Quotes "doubled-quotes": "a doubled quote is read as one", "names/encodings-in-every-operation" {
        fn name(&self, id: &MeterId<'_>) -> Vec<u8> {
            with_text(id, |text| text.replace("''", "'"))
        }
    }
}
