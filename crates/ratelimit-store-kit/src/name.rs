//! Names of meters for databases that limit the length of a key.

use ratelimit_core::store::MeterId;
use sha2::{Digest, Sha256};

/// The name of a meter for a database whose keys have at most `longest` bytes, at least 33:
/// [`to_bytes`](MeterId::to_bytes), or if that is longer, `#` and its SHA-256.
///
/// Different meters have different names: a name that is no digest begins with a digit.
///
/// ```
/// use ratelimit_core::store::MeterId;
/// use ratelimit_store_kit::bounded_name;
///
/// let name = |key| bounded_name(&MeterId { namespace: "api", scope: "60s", key }, 200);
/// assert_eq!(name(b"user:7"), MeterId { namespace: "api", scope: "60s", key: b"user:7" }.to_bytes());
/// assert_eq!(name(&[b'x'; 300]).len(), 33);
/// assert_ne!(name(&[b'x'; 300]), name(&[b'x'; 301]));
/// ```
pub fn bounded_name(id: &MeterId<'_>, longest: usize) -> Vec<u8> {
    let name = id.to_bytes();
    if name.len() <= longest {
        return name;
    }
    [b"#", &Sha256::digest(&name)[..]].concat()
}
