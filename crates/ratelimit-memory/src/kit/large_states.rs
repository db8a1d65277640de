//! States that are too large for a slot.

use ratelimit_core::meter::{LogState, State};

use super::{CompactState, Fingerprint, Slab, Slot};

/// The states that are too large for their slots: logs, windows of many segments, and buckets of several rates. The slots
/// refer to them by number.
#[derive(Debug, Default)]
pub struct LargeStates(Slab<State>);

impl LargeStates {
    /// A meter with a state that is stored here. Its expiry is not set yet.
    pub fn insert(&mut self, fingerprint: Fingerprint, state: State) -> Slot {
        Slot::new(fingerprint, CompactState::elsewhere(self.0.insert(state)))
    }

    /// Calls `f` with the state of a slot.
    #[inline]
    pub fn read<R>(&self, slot: &Slot, f: impl FnOnce(&State) -> R) -> R {
        match slot.state.state() {
            Ok(state) => f(&state),
            Err(number) => f(self.0.at(number)),
        }
    }

    /// Calls `f` with the state of a slot, and stores its changes.
    pub fn update<R>(&mut self, slot: &mut Slot, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.take(slot);
        let result = f(&mut state);
        self.keep(slot, state);
        result
    }

    /// Takes the state of a slot, which has to be put back by [`keep`](Self::keep).
    pub fn take(&mut self, slot: &Slot) -> State {
        let nothing = State::Log(LogState::default());
        slot.state.state().unwrap_or_else(|number| std::mem::replace(self.0.at_mut(number), nothing))
    }

    /// Stores a state in its slot if it fits, otherwise here.
    pub fn keep(&mut self, slot: &mut Slot, state: State) {
        match (CompactState::of(&state), slot.state.number()) {
            (Some(compact), _) => {
                self.remove(slot);
                slot.state = compact;
            }
            (None, Some(number)) => *self.0.at_mut(number) = state,
            (None, None) => slot.state = CompactState::elsewhere(self.0.insert(state)),
        }
    }

    /// Drops the state of a slot that is removed.
    pub fn remove(&mut self, slot: &Slot) {
        slot.state.number().map(|number| self.0.remove(number));
    }

    /// Frees the memory that the states do not need.
    pub fn shrink_to_fit(&mut self) {
        self.0.shrink_to_fit();
    }
}
