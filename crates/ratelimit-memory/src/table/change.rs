//! How a table changes: meters are inserted and removed, it grows and shrinks.

use super::{BLOCK, Blocks, HIGHEST, ONES, STRIDE, SlotIndex, Table, WIDTH, home, passed};
use crate::kit::{Fingerprint, Slot};

/// The maximum load of a table, in 64ths: 97 %.
const MOST: usize = 62;

/// A table with fewer blocks than this is small. A store of the usual 1,024 shards whose tables have all reached it takes
/// 27 MB.
pub(super) const SMALL: usize = 12;

/// A small table grows by half, others by one part in this many.
const GROWTH: usize = 10;

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more than the last place.
    pub(crate) fn end(&self) -> SlotIndex {
        self.buckets() * STRIDE
    }

    /// The number of places.
    pub(super) fn room(&self) -> usize {
        self.buckets() * WIDTH
    }

    /// Whether there is a meter at this place.
    pub(crate) fn is_taken(&self, place: SlotIndex) -> bool {
        taken(self.tags[place / STRIDE]) >> (place % STRIDE * 8 + 7) & 1 == 1
    }

    /// Whether inserting another meter makes the table grow, which moves meters.
    pub(crate) fn is_full(&self) -> bool {
        (self.len + 1) * 64 > self.room() * MOST
    }

    /// Inserts a meter. There must be none with this fingerprint yet.
    ///
    /// Inlined, so that the slot is passed in registers from where it is made to where it is stored.
    #[inline(always)]
    pub(crate) fn insert(&mut self, fingerprint: Fingerprint, slot: Slot) -> SlotIndex {
        let place = self.take_place(fingerprint);
        *self.slot_mut(place) = slot;
        place
    }

    /// Finds and marks a place for a new meter.
    #[inline]
    fn take_place(&mut self, fingerprint: Fingerprint) -> SlotIndex {
        if self.is_full() {
            self.grow();
        }
        self.len += 1;
        self.take_place_from(home(fingerprint.kept(), self.buckets()), fingerprint.tag())
    }

    /// Removes a meter.
    pub(crate) fn remove(&mut self, place: SlotIndex) -> Slot {
        let (last, nth) = (place / STRIDE, place % STRIDE);
        let mut bucket = home(self.slot(place).kept(), self.buckets());
        while bucket != last {
            let tags = &mut self.tags[bucket];
            // A count that has reached its maximum is no longer reliable, and stays.
            if passed(*tags) < PASSED_MOST {
                *tags -= PASSED_ONE;
            }
            bucket = self.next(bucket);
        }
        self.tags[last] &= !(0xff << (nth * 8));
        self.len -= 1;
        std::mem::take(self.slot_mut(place))
    }

    /// Returns the first occupied place from this one on, if it is in one of the next `buckets` buckets; otherwise the
    /// place after those.
    pub(crate) fn taken_from(&self, place: SlotIndex, buckets: usize) -> Result<SlotIndex, SlotIndex> {
        let (first, end) = (place / STRIDE, (place / STRIDE + buckets).min(self.buckets()));
        let mut before = place % STRIDE * 8;
        for bucket in first..end {
            let taken = taken(self.tags[bucket]) & (!0 << before);
            if taken != 0 {
                return Ok(bucket * STRIDE + taken.trailing_zeros() as usize / 8);
            }
            before = 0;
        }
        Err(end * STRIDE)
    }

    /// Removes and returns the blocks that the current meters do not need.
    pub(crate) fn shrink_to_fit(&mut self) -> Blocks {
        let wanted = (self.len * 64).div_ceil(MOST * BLOCK * WIDTH);
        if wanted >= self.blocks.len() {
            return Blocks::new();
        }
        let mut all = Vec::with_capacity(self.len);
        for bucket in 0..self.buckets() {
            let tags = std::mem::take(&mut self.tags[bucket]);
            all.extend(self.meters(bucket, tags));
        }
        let idle = self.blocks.split_off(wanted);
        self.blocks.shrink_to_fit();
        self.tags.truncate(wanted * BLOCK);
        self.tags.shrink_to_fit();
        for (tag, slot) in all {
            let place = self.take_place_from(home(slot.kept(), self.buckets()), tag);
            *self.slot_mut(place) = slot;
        }
        idle
    }

    /// Takes a place in the first bucket with room, starting at its home. There must be one.
    #[inline]
    fn take_place_from(&mut self, home: usize, tag: u64) -> SlotIndex {
        let mut bucket = home;
        loop {
            if let Some(place) = self.take_place_in(bucket, tag) {
                return place;
            }
            bucket = self.next(bucket);
        }
    }

    /// Takes a place in a bucket. If the bucket is full, counts that a meter has passed it.
    #[inline]
    fn take_place_in(&mut self, bucket: usize, tag: u64) -> Option<SlotIndex> {
        let tags = &mut self.tags[bucket];
        let free = !taken(*tags) & HIGHEST;
        if free == 0 {
            pass(tags);
            return None;
        }
        let nth = free.trailing_zeros() as usize / 8;
        *tags |= tag << (nth * 8);
        Some(bucket * STRIDE + nth)
    }

    /// The meters of a bucket that had these tags, and their tags.
    fn meters(&self, bucket: usize, tags: u64) -> impl Iterator<Item = (u64, Slot)> + use<> {
        let meters = self.blocks[bucket / BLOCK][bucket % BLOCK];
        let tags = (0..WIDTH).map(move |nth| (tags >> (nth * 8)) & 0xff);
        tags.zip(meters).filter(|(tag, _)| *tag != 0)
    }

    /// Adds blocks and moves every meter to its new bucket, the last ones first: all meters behind the one that is
    /// being moved are already in the new order.
    #[cold]
    #[inline(never)]
    fn grow(&mut self) {
        let old = self.buckets();
        let blocks = self.blocks.len();
        let more = if blocks < SMALL { blocks.div_ceil(2) } else { blocks / GROWTH }.max(1);
        self.blocks.extend(std::iter::repeat_with(Box::default).take(more));
        let buckets = self.blocks.len() * BLOCK;
        self.tags.resize(buckets, 0);
        let mut later = Vec::new();
        for block in (0..old / BLOCK).rev() {
            self.touch(block.saturating_sub(1));
            for nth in (0..BLOCK).rev() {
                self.spread(block * BLOCK + nth, &mut later);
            }
        }
        for (from, tag, slot) in later {
            let place = self.take_place_from(from, tag);
            *self.slot_mut(place) = slot;
        }
    }

    /// Moves the meters of a bucket to where they belong, except for those that must wait until all others are in the new
    /// order.
    #[inline]
    fn spread(&mut self, bucket: usize, later: &mut Vec<(usize, u64, Slot)>) {
        let mut tags = std::mem::take(&mut self.tags[bucket]);
        for nth in 0..WIDTH {
            let tag = tags & 0xff;
            if tag != 0 {
                // A meter that stays in its bucket moves to this place or to an earlier one, which has been read already.
                let slot = self.blocks[bucket / BLOCK][bucket % BLOCK][nth];
                let home = home(slot.kept(), self.buckets());
                // Meters that had passed their home may belong before this bucket. Meters that would pass the end
                // belong to the beginning, which has not been moved yet.
                let place = if home < bucket { Err(home) } else { self.append_from(home, tag).ok_or(0) };
                match place {
                    Ok(place) => *self.slot_mut(place) = slot,
                    Err(from) => later.push((from, tag, slot)),
                }
            }
            tags >>= 8;
        }
    }

    /// Takes a place in the first bucket with room, starting at its home. The places in use are contiguous here.
    #[inline]
    fn append_from(&mut self, home: usize, tag: u64) -> Option<SlotIndex> {
        for (behind, tags) in self.tags[home..].iter_mut().enumerate() {
            let nth = WIDTH.saturating_sub((*tags << 8).leading_zeros() as usize / 8);
            if nth < WIDTH {
                *tags |= tag << (nth * 8);
                return Some((home + behind) * STRIDE + nth);
            }
            pass(tags);
        }
        None
    }

    /// Reads all meters of a block at once, so that reading them one after another does not wait for memory each time.
    fn touch(&self, block: usize) {
        let slots = self.blocks[block].iter().flatten();
        std::hint::black_box(slots.fold(0, |all, slot| all ^ slot.kept()));
    }
}

const PASSED_ONE: u64 = 1 << 56;
const PASSED_MOST: u64 = 0xff;

/// Counts that a meter has passed this bucket.
#[inline]
fn pass(tags: &mut u64) {
    if passed(*tags) < PASSED_MOST {
        *tags += PASSED_ONE;
    }
}

/// The occupied places of a bucket: the highest bit of each byte that is not zero.
#[inline]
fn taken(tags: u64) -> u64 {
    // A byte that is not zero carries into its own highest bit, and no further.
    let carried = (tags & (0x7f * ONES)) + 0x7f * ONES;
    (carried | tags) & HIGHEST
}
