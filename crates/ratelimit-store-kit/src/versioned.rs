//! A state with a version that changes with each write.

use ratelimit_core::meter::{CorruptState, State};

use crate::random::random;

/// A state as the server has it, with the version of the write.
///
/// A version is drawn at random for each write and never comes back, also not after a reset or an expiry. A counter that
/// starts again at one would: a caller that still knows version 1 of a meter which was reset, and was then charged once by
/// somebody else, would overwrite that charge.
///
/// ```
/// use ratelimit_core::Limit;
/// use ratelimit_core::meter::State;
/// use ratelimit_store_kit::Versioned;
///
/// let limit: Limit = "10/s".parse()?;
/// let first = Versioned::new(limit.meter_for(b"user:7").fresh());
/// let second = Versioned::new(first.state.clone());
/// assert_ne!(first.version, second.version);
/// assert_eq!(Versioned::from_bytes(&first.to_bytes()), Ok(first));
/// # Ok::<(), ratelimit_core::ParseLimitError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Versioned {
    /// The version: eight bytes that no other write has.
    pub version: [u8; 8],
    /// The state.
    pub state: State,
}

impl Versioned {
    /// A state to write, with a version of its own.
    pub fn new(state: State) -> Self {
        Self { version: random().to_be_bytes(), state }
    }

    /// The version and then the state, for a server that compares the first eight bytes of a value.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.version[..], &self.state.to_bytes()].concat()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) has returned.
    ///
    /// # Errors
    /// [`CorruptState`] if it is something else.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CorruptState> {
        let (version, state) = bytes.split_first_chunk().ok_or(CorruptState)?;
        Ok(Self { version: *version, state: State::from_bytes(state)? })
    }
}
