//! A hash table of meters by fingerprint: open addressing in buckets of seven.

mod change;

use crate::kit::{Fingerprint, Slot};

/// Meters per bucket.
const WIDTH: usize = 7;

/// Buckets per block, the unit of allocation.
const BLOCK: usize = 8;

/// The lowest bit of each place's byte in a word of tags, and the highest one.
const ONES: u64 = 0x0001_0101_0101_0101;
const HIGHEST: u64 = 0x80 * ONES;

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

    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets() { 0 } else { bucket + 1 }
    }
}

/// How many meters have passed this bucket because it was full; 255 means 255 or more.
fn passed(tags: u64) -> u64 {
    tags >> 56
}

/// The bucket where a search begins: as far into the table as `high` is into the range of 32-bit numbers.
#[inline]
fn home(high: u32, buckets: usize) -> usize {
    usize::try_from((u64::from(high) * buckets as u64) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests;
