//! The paths and agents of requests that wait for earlier ones.

use std::collections::VecDeque;

/// Holds texts, two for each request, about in the order in which they come and go.
#[derive(Debug, Default)]
pub(super) struct Texts {
    chunks: VecDeque<Chunk>,
    /// The number of the first chunk.
    first: u64,
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
    chunk: u64,
    begin: u32,
    lengths: [u16; 2],
}

/// The maximum length of a text in bytes. The rest of a longer one is cut off.
const LONGEST: usize = 256;

/// The length from which a chunk is full.
const FULL: usize = 1 << 16;

impl Texts {
    pub(super) fn add(&mut self, texts: [&[u8]; 2]) -> Place {
        if self.chunks.back().is_none_or(|last| last.bytes.len() >= FULL) {
            self.chunks.push_back(Chunk { bytes: std::mem::take(&mut self.empty), count: 0 });
        }
        let number = self.first + self.chunks.len() as u64 - 1;
        let mut place = Place { chunk: number, begin: 0, lengths: [0; 2] };
        if let Some(chunk) = self.chunks.back_mut() {
            chunk.count += 1;
            place.begin = u32::try_from(chunk.bytes.len()).unwrap_or_default();
            for (text, length) in texts.into_iter().zip(&mut place.lengths) {
                let text = text.get(..LONGEST).unwrap_or(text);
                *length = u16::try_from(text.len()).unwrap_or_default();
                chunk.bytes.extend_from_slice(text);
            }
        }
        place
    }

    pub(super) fn get(&self, place: Place) -> [&[u8]; 2] {
        let bytes =
            self.index(place).and_then(|at| self.chunks.get(at)).map_or(&[][..], |chunk| &chunk.bytes);
        let (begin, [first, second]) = (place.begin as usize, place.lengths.map(usize::from));
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
            self.first += 1;
        }
    }

    fn index(&self, place: Place) -> Option<usize> {
        usize::try_from(place.chunk.checked_sub(self.first)?).ok()
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
            places.push_back((nth, texts.add([path.as_bytes(), agent.as_bytes()])));
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
        assert!(texts.chunks.len() < 25, "{}", texts.chunks.len());
        places.drain(..).for_each(|(_, place)| texts.take(place));
        assert!(texts.chunks.is_empty());
    }
}
