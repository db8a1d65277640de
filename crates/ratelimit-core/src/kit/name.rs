//! Names of meters that own their data.

use std::fmt;
use std::sync::Arc;

use crate::MeterId;

/// A [`MeterId`] that owns its parts, in 40 bytes. A name of up to 36 bytes is stored inline; a longer one is shared by its
/// clones.
///
/// ```
/// use ratelimit_core::store::MeterId;
/// use ratelimit_core::kit::OwnedName;
///
/// let id = MeterId { namespace: "api", scope: "60s", key: b"user:7" };
/// assert_eq!(OwnedName::new(&id).id(), id);
/// ```
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct OwnedName(NameBytes);

#[derive(Clone, PartialEq, Eq, Hash)]
enum NameBytes {
    Short { length: u8, namespace_end: u8, scope_end: u8, bytes: [u8; SHORT] },
    Long { bytes: Arc<[u8]>, namespace_end: usize, scope_end: usize },
}

/// The most bytes of a short name.
const SHORT: usize = 36;

const _: () = assert!(size_of::<OwnedName>() == 40);

impl OwnedName {
    /// Copies a name.
    pub fn new(id: &MeterId<'_>) -> Self {
        let parts = [id.namespace.as_bytes(), id.scope.as_bytes(), id.key];
        let namespace_end = id.namespace.len();
        let scope_end = namespace_end + id.scope.len();
        let length = scope_end + id.key.len();
        let short = |end: usize| u8::try_from(end).ok().filter(|end| usize::from(*end) <= SHORT);
        match [length, namespace_end, scope_end].map(short) {
            [Some(length), Some(namespace_end), Some(scope_end)] => {
                let mut bytes = [0; SHORT];
                let all = parts.into_iter().flatten();
                bytes.iter_mut().zip(all).for_each(|(to, from)| *to = *from);
                Self(NameBytes::Short { length, namespace_end, scope_end, bytes })
            }
            _ => Self(NameBytes::Long { bytes: parts.concat().into(), namespace_end, scope_end }),
        }
    }

    /// The bytes, and the ends of the namespace and the scope in them.
    #[inline]
    fn parts(&self) -> (&[u8], usize, usize) {
        match &self.0 {
            NameBytes::Short { length, namespace_end, scope_end, bytes } => {
                (&bytes[..usize::from(*length)], (*namespace_end).into(), (*scope_end).into())
            }
            NameBytes::Long { bytes, namespace_end, scope_end } => (bytes, *namespace_end, *scope_end),
        }
    }

    /// The name, borrowed.
    #[inline]
    pub fn id(&self) -> MeterId<'_> {
        let (bytes, namespace_end, scope_end) = self.parts();
        let (names, key) = bytes.split_at(scope_end);
        let (namespace, scope) = names.split_at(namespace_end);
        // Both were copied from strings.
        let text = |bytes| std::str::from_utf8(bytes).unwrap_or_default();
        MeterId { namespace: text(namespace), scope: text(scope), key }
    }

    /// Whether this is the name `id`.
    pub fn is(&self, id: &MeterId<'_>) -> bool {
        let (bytes, namespace_end, scope_end) = self.parts();
        let (names, key) = bytes.split_at(scope_end);
        let (namespace, scope) = names.split_at(namespace_end);
        let ends = (id.namespace.len(), id.namespace.len() + id.scope.len());
        ends == (namespace_end, scope_end)
            && key == id.key
            && scope == id.scope.as_bytes()
            && namespace == id.namespace.as_bytes()
    }
}

impl fmt::Debug for OwnedName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id().fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_and_long_names_round_trip() {
        for (namespace, scope, length) in
            [("", "", 0), ("n", "fixed:1s", 27), ("n", "fixed:1s", 28), ("", "s", 300)]
        {
            let key = vec![7; length];
            let id = MeterId { namespace, scope, key: &key };
            let name = OwnedName::new(&id);
            assert_eq!((name.id(), name.is(&id), &name), (id, true, &name.clone()));
            assert_eq!(matches!(name.0, NameBytes::Short { .. }), length < 28, "{length}");
            for other in [MeterId { namespace: "x", ..id }, MeterId { key: b"x", ..id }] {
                assert!(name != OwnedName::new(&other) && !name.is(&other));
            }
        }
        let id = |namespace, scope| MeterId { namespace, scope, key: b"k" };
        assert!(OwnedName::new(&id("a", "b")) != OwnedName::new(&id("", "ab")));
    }
}
