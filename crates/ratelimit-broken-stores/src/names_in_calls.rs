//! Stores that use another name for a meter in one of their calls.

use ratelimit_core::store::MeterId;

use super::flaw::Call;

fn without_space(id: &MeterId<'_>) -> Vec<u8> {
    MeterId { namespace: "", ..*id }.to_bytes()
}

fn lower(id: &MeterId<'_>) -> Vec<u8> {
    MeterId { key: &id.key.to_ascii_lowercase(), ..*id }.to_bytes()
}

fn as_text(id: &MeterId<'_>) -> Vec<u8> {
    MeterId { key: String::from_utf8_lossy(id.key).as_bytes(), ..*id }.to_bytes()
}

fn replaced(id: &MeterId<'_>, from: &str, to: &str) -> Vec<u8> {
    match std::str::from_utf8(id.key) {
        Ok(text) => MeterId { key: text.replace(from, to).as_bytes(), ..*id }.to_bytes(),
        Err(_) => id.to_bytes(),
    }
}

flaws! {
    ResetWithoutSpace "reset-without-name-space": "a reset forgets the name space",
        "names/name-spaces-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Reset { without_space(id) } else { id.to_bytes() }
        }
    }
    RefundWithoutSpace "refund-without-name-space": "a refund forgets the name space",
        "names/name-spaces-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Refund { without_space(id) } else { id.to_bytes() }
        }
    }
    BatchWithoutSpace "batch-without-name-space": "a batch forgets the name space",
        "names/name-spaces-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Batch { without_space(id) } else { id.to_bytes() }
        }
    }
    ResetInLower "reset-in-lower-case": "a reset looks for the key in lower case",
        "names/encodings-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Reset { lower(id) } else { id.to_bytes() }
        }
    }
    BatchInLower "batch-in-lower-case": "a batch looks for keys in lower case",
        "names/encodings-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Batch { lower(id) } else { id.to_bytes() }
        }
    }
    ResetComposed "reset-composed": "a reset composes letters and accents", "names/encodings-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Reset { replaced(id, "e\u{301}", "é") } else { id.to_bytes() }
        }
    }
    BatchFolded "batch-folded": "a batch looks for keys by the letters of their upper case",
        "names/encodings-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Batch { replaced(id, "ß", "SS") } else { id.to_bytes() }
        }
    }
    RefundAsText "refund-as-text": "a refund makes the key text", "names/encodings-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            if call == Call::Refund { as_text(id) } else { id.to_bytes() }
        }
    }
    RefundCut "refund-cut": "a refund cuts keys to 128 bytes", "names/long-in-every-operation" {
        fn name_in(&self, call: Call, id: &MeterId<'_>) -> Vec<u8> {
            let key = &id.key[..id.key.len().min(128)];
            if call == Call::Refund { MeterId { key, ..*id }.to_bytes() } else { id.to_bytes() }
        }
    }
}
