//! A hash table of meters by fingerprint: open addressing in buckets of seven.

use crate::kit::{Fingerprint, Slot};

/// Meters per bucket.
const WIDTH: usize = 7;

/// Buckets per block, the unit of allocation.
const BLOCK: usize = 8;

/// The lowest bit of each place's byte in a word of tags, and the highest one.
const ONES: u64 = 0x0001_0101_0101_0101;
const HIGHEST: u64 = 0x80 * ONES;

/// The maximum load of a table, in 64ths: 97 %.
const MOST: usize = 62;

/// A table with fewer blocks than this is small. A store of the usual 1,024 shards whose tables have all reached it takes
/// 27 MB.
const SMALL: usize = 12;

/// A small table grows by half, others by one part in this many.
const GROWTH: usize = 10;

/// Meters by fingerprint.
///
/// A bucket has places for seven meters, and one word of metadata: a tag for each meter (eight bits of its fingerprint,
/// never zero or one, so that all are compared at once) and the number of meters that found the bucket full and were stored
/// in a later one: they have *passed* it. A search ends at a bucket that no meter has passed. The words of all buckets are
/// stored together, about a byte per meter, and so stay in the processor's caches: finding a meter takes one access to main
/// memory, and finding that there is none usually takes none.
///
/// The upper bits of the fingerprint choose the bucket, so meters keep their order when the table grows, and growing is
/// one pass from the end to the beginning. It grows by a tenth, so it is 88 to 97 % full; one that doubles is 66 % full
/// on average. A small one grows by half, for little more memory and half the moves. All blocks have one size, so the
/// allocator can reuse what a shard frees. Blocks are kept until `shrink_to_fit`: allocators return memory in tens of
/// megabytes.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Table {
    /// For each bucket: a byte for each place, zero if it is free; the highest byte counts the meters that have passed it.
    tags: Vec<u64>,
    blocks: Blocks,
    len: usize,
}

/// The place of a meter: eight times its bucket's number, plus its index in the bucket. Valid until another is inserted.
pub(crate) type SlotIndex = usize;

/// The distance between the places of two buckets.
pub(crate) const STRIDE: usize = 8;

/// The meters of some buckets.
type Block = [[Slot; WIDTH]; BLOCK];

/// Boxed, so that they stay in place when blocks are added.
#[allow(clippy::vec_box)]
pub(crate) type Blocks = Vec<Box<Block>>;

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more than the last place.
    pub(crate) fn end(&self) -> SlotIndex {
        self.buckets() * STRIDE
    }

    /// The number of places.
    fn room(&self) -> usize {
        self.buckets() * WIDTH
    }

    #[inline]
    fn buckets(&self) -> usize {
        self.tags.len()
    }

    #[inline]
    pub(crate) fn slot(&self, place: SlotIndex) -> &Slot {
        let bucket = place / STRIDE;
        &self.blocks[bucket / BLOCK][bucket % BLOCK][place % STRIDE]
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, place: SlotIndex) -> &mut Slot {
        let bucket = place / STRIDE;
        &mut self.blocks[bucket / BLOCK][bucket % BLOCK][place % STRIDE]
    }

    /// Whether there is a meter at this place.
    pub(crate) fn is_taken(&self, place: SlotIndex) -> bool {
        taken(self.tags[place / STRIDE]) >> (place % STRIDE * 8 + 7) & 1 == 1
    }

    /// The place of a meter.
    pub(crate) fn find(&self, fingerprint: Fingerprint) -> Option<SlotIndex> {
        self.search(fingerprint)
    }

    /// The place of a meter, and its slot.
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, fingerprint: Fingerprint) -> Option<(SlotIndex, &mut Slot)> {
        let place = self.search(fingerprint)?;
        Some((place, self.slot_mut(place)))
    }

    #[inline(always)]
    fn search(&self, fingerprint: Fingerprint) -> Option<SlotIndex> {
        let wanted = fingerprint.tag() * ONES;
        let mut bucket = home(fingerprint.kept(), self.buckets());
        for _ in 0..self.buckets() {
            let tags = self.tags[bucket];
            // A byte is zero where the tag is the wanted one. A free place's tag never is.
            let differ = tags ^ wanted;
            // Finds the bytes that are zero, and also a byte of one directly after such a byte. That byte is not from a
            // free place: its tag would differ by the wanted one, which is at least two.
            let mut equal = differ.wrapping_sub(ONES) & !differ & HIGHEST;
            while equal != 0 {
                let place = bucket * STRIDE + equal.trailing_zeros() as usize / 8;
                if self.slot(place).is(fingerprint) {
                    return Some(place);
                }
                equal &= equal - 1;
            }
            if passed(tags) == 0 {
                return None;
            }
            bucket = self.next(bucket);
        }
        None
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

    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets() { 0 } else { bucket + 1 }
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

/// How many meters have passed this bucket because it was full; 255 means 255 or more.
fn passed(tags: u64) -> u64 {
    tags >> 56
}

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

/// The bucket where a search begins: as far into the table as `high` is into the range of 32-bit numbers.
#[inline]
fn home(high: u32, buckets: usize) -> usize {
    usize::try_from((u64::from(high) * buckets as u64) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use crate::kit::CompactState;

    /// Inserts and removes meters at random, and compares the table with a map.
    fn compare(fingerprints: impl Fn(u32) -> Fingerprint, keys: u32, steps: u32) {
        let steps = if cfg!(miri) { steps / 50 } else { steps };
        let (mut table, mut model) = (Table::default(), HashMap::new());
        let mut random = 1_u64;
        for step in 0..steps {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // First more are inserted than removed, later the other way round.
            let key = u32::try_from(random >> 33).unwrap() % keys;
            let comes = (random >> 20) % 8 < if step < steps / 2 { 6 } else { 2 };
            let (fingerprint, found) = (fingerprints(key), table.find(fingerprints(key)));
            assert_eq!(found.map(|place| table.slot(place).forget_at), model.get(&key).copied(), "{key}");
            match found {
                None if comes => {
                    let place = table.insert(fingerprint, Slot::new(fingerprint, CompactState::default()));
                    table.slot_mut(place).forget_at = step;
                    model.insert(key, step);
                }
                Some(place) if !comes => {
                    table.remove(place);
                    model.remove(&key);
                    if step % 64 == 0 {
                        table.shrink_to_fit();
                    }
                }
                _ => {}
            }
            assert_eq!(table.len(), model.len());
        }
        let mut taken = Vec::new();
        let mut place = 0;
        while place < table.end() {
            let found = table.taken_from(place, 3);
            taken.extend(found.ok());
            place = found.map_or_else(|after| after, |found| found + 1);
        }
        let all: Vec<SlotIndex> = (0..table.end()).filter(|place| table.is_taken(*place)).collect();
        assert_eq!((all.len(), taken), (model.len(), all));
        for (key, step) in model {
            assert_eq!(table.find(fingerprints(key)).map(|place| table.slot(place).forget_at), Some(step));
        }
    }

    #[test]
    fn meters_are_found_after_insertions_and_removals() {
        let spread = |key: u32| Fingerprint {
            low: key.into(),
            high: u64::from(key.wrapping_mul(0x9e37_79b9)) << 32 | u64::from(key.wrapping_mul(0x85eb_ca6b)),
        };
        compare(spread, 3_000, 100_000);
        compare(spread, 20, 20_000);
    }

    #[test]
    fn colliding_meters_are_found() {
        compare(|key| Fingerprint { low: key.into(), high: u64::from(key / 50) << 32 }, 400, 50_000);
        compare(
            |key| Fingerprint { low: key.into(), high: u64::from(u32::MAX - key % 2 * 64) << 32 },
            400,
            50_000,
        );
        compare(
            |key| Fingerprint { low: 7, high: u64::from(key << 20) << 32 | u64::from(key << 24) },
            400,
            50_000,
        );
    }

    #[test]
    fn a_growing_table_has_few_idle_slots() {
        let mut table = Table::default();
        for key in 0..if cfg!(miri) { 500 } else { 10_000_u32 } {
            let fingerprint = Fingerprint {
                low: key.into(),
                high: u64::from(key.wrapping_mul(0x9e37_79b9)) << 32 | u64::from(key),
            };
            table.insert(fingerprint, Slot::new(fingerprint, CompactState::default()));
            let (idle, small) = (table.room() - table.len(), table.blocks.len() <= SMALL);
            let most = if small { table.room() * 2 / 5 } else { table.room() / 6 };
            assert!(idle < most + BLOCK * WIDTH, "{idle} of {}", table.room());
        }
    }
}
