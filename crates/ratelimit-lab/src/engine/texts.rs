//! The paths and agents of requests that wait for earlier ones.

use std::collections::VecDeque;
use std::num::NonZero;

/// Holds texts, two for each request, about in the order in which they come and go.
#[derive(Debug, Default)]
pub(super) struct Texts {
    chunks: VecDeque<Chunk>,
    /// How many chunks came before the first one.
    before: u32,
    /// The space of a chunk that is empty.
    empty: Vec<u8>,
}

#[derive(Debug, Default)]
struct Chunk {
    bytes: Vec<u8>,
    /// The number of pairs that were not taken yet.
    count: u32,
}

/// Where a pair of texts is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    /// The number of its chunk, from one.
    chunk: NonZero<u32>,
    begin: u16,
    lengths: [u8; 2],
}

/// The maximum length of a text in bytes. The rest of a longer one is cut off.
const LONGEST: usize = 255;

/// The length from which a chunk is full.
const FULL: usize = 1 << 15;

impl Texts {
    /// Adds a pair; `None` if there is no number for its chunk.
    pub(super) fn add(&mut self, texts: [&[u8]; 2]) -> Option<Place> {
        if self.chunks.back().is_none_or(|last| last.bytes.len() >= FULL) {
            self.chunks.push_back(Chunk { bytes: std::mem::take(&mut self.empty), count: 0 });
        }
        let number = self.before.checked_add(u32::try_from(self.chunks.len()).ok()?)?;
        let chunk = self.chunks.back_mut()?;
        let begin = u16::try_from(chunk.bytes.len()).ok()?;
        let texts = texts.map(|text| text.get(..LONGEST).unwrap_or(text));
        texts.iter().for_each(|text| chunk.bytes.extend_from_slice(text));
        chunk.count += 1;
        let lengths = texts.map(|text| u8::try_from(text.len()).unwrap_or(u8::MAX));
        Some(Place { chunk: NonZero::new(number)?, begin, lengths })
    }

    pub(super) fn get(&self, place: Place) -> [&[u8]; 2] {
        let bytes =
            self.index(place).and_then(|at| self.chunks.get(at)).map_or(&[][..], |chunk| &chunk.bytes);
        let (begin, [first, second]) = (usize::from(place.begin), place.lengths.map(usize::from));
        let middle = begin + first;
        [begin..middle, middle..middle + second].map(|range| bytes.get(range).unwrap_or_default())
    }

    /// Gives the space of a pair back.
    pub(super) fn take(&mut self, place: Place) {
        if let Some(chunk) = self.index(place).and_then(|at| self.chunks.get_mut(at)) {
            chunk.count -= 1;
        }
        while let Some(mut chunk) = self.chunks.pop_front_if(|chunk| chunk.count == 0) {
            chunk.bytes.clear();
            self.empty = chunk.bytes;
            self.before += 1;
        }
    }

    fn index(&self, place: Place) -> Option<usize> {
        let before = place.chunk.get() - 1;
        usize::try_from(before.checked_sub(self.before)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_held_until_they_are_taken() {
        let mut texts = Texts::default();
        let text = |nth: u32| (format!("/path/{nth}"), "agent ".repeat(nth as usize % 60));
        let mut places = VecDeque::new();
        for nth in 0..20_000 {
            let (path, agent) = text(nth);
            places.push_back((nth, texts.add([path.as_bytes(), agent.as_bytes()]).unwrap()));
            // Each fifth is taken out of order.
            let at = if nth % 5 == 0 { places.len() / 2 } else { 0 };
            if places.len() > 3_000
                && let Some((nth, place)) = places.remove(at)
            {
                let (path, agent) = text(nth);
                let agent = &agent.as_bytes()[..agent.len().min(LONGEST)];
                assert_eq!(texts.get(place), [path.as_bytes(), agent], "{nth}");
                texts.take(place);
            }
        }
        assert!(texts.chunks.len() < 50, "{}", texts.chunks.len());
        places.drain(..).for_each(|(_, place)| texts.take(place));
        assert!(texts.chunks.is_empty());
    }
}
