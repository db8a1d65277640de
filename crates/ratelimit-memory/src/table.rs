//! A table of meters by fingerprint: open addressing in buckets of seven.

use crate::fingerprint::Fingerprint;
use crate::slot::Slot;

/// Meters in a bucket.
const WIDTH: usize = 7;

/// Buckets in a block: what is allocated at once.
const BLOCK: usize = 8;

/// Each place's byte in a word of tags, and that byte's highest bit.
const ONES: u64 = 0x0001_0101_0101_0101;
const HIGHEST: u64 = 0x80 * ONES;

/// A table is at most this full, in 64ths: 97 %.
const MOST: usize = 62;

/// A table of fewer blocks than this is small. A store of the usual 1,024 shards whose tables have all reached it takes 27 MB.
const SMALL: usize = 12;

/// A small one grows by half, others by one part in so many.
const GROWTH: usize = 10;

/// Meters by fingerprint.
///
/// A bucket has places for seven meters, and one word beside them: a tag of each meter (eight bits of its fingerprint, never
/// zero or one, so that all are compared at once) and a count of the meters that found the bucket full and went on to the next one.
/// A search ends at a bucket that nobody has passed. The words lie together, a byte for each meter, and so near to the
/// processor that who looks for a meter waits for memory once, and who looks for one that is not there as a rule not
/// at all.
///
/// A bucket is chosen by how large the fingerprint is, so meters keep their order when the table grows, and growing is
/// one walk from its end to its beginning. It grows by a tenth: it is 88 to 97 % full, where one that doubles is 66 % on
/// average. While it is small it grows by half, for little memory more, and half as many moves. Its blocks all have one size, so that the allocator can use again what one shard gives back for another. It keeps
/// them until somebody asks for them: what an allocator gives back to the system it gives back tens of megabytes at a time.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Table {
    /// Of each bucket: a byte for each place, zero if it is free; the highest counts who has passed.
    tags: Vec<u64>,
    blocks: Blocks,
    len: usize,
}

/// Where a meter is: eight times its bucket's number, and its number in the bucket. Good until another is put in.
pub(crate) type Place = usize;

/// Between the places of two buckets.
pub(crate) const STRIDE: usize = 8;

/// The meters of some buckets.
type Block = [[Slot; WIDTH]; BLOCK];

/// Boxed, so that they stay where they are when there are more.
#[allow(clippy::vec_box)]
pub(crate) type Blocks = Vec<Box<Block>>;

impl Table {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more than the last place.
    pub(crate) fn end(&self) -> Place {
        self.buckets() * STRIDE
    }

    /// How many meters there is room for.
    fn room(&self) -> usize {
        self.buckets() * WIDTH
    }

    #[inline]
    fn buckets(&self) -> usize {
        self.tags.len()
    }

    #[inline]
    pub(crate) fn slot(&self, place: Place) -> &Slot {
        let bucket = place / STRIDE;
        &self.blocks[bucket / BLOCK][bucket % BLOCK][place % STRIDE]
    }

    #[inline]
    pub(crate) fn slot_mut(&mut self, place: Place) -> &mut Slot {
        let bucket = place / STRIDE;
        &mut self.blocks[bucket / BLOCK][bucket % BLOCK][place % STRIDE]
    }

    /// Whether there is a meter at this place.
    pub(crate) fn is_taken(&self, place: Place) -> bool {
        taken(self.tags[place / STRIDE]) >> (place % STRIDE * 8 + 7) & 1 == 1
    }

    /// The place of a meter.
    pub(crate) fn find(&self, print: Fingerprint) -> Option<Place> {
        self.search(print)
    }

    /// The place of a meter, and its slot.
    #[inline(always)]
    pub(crate) fn find_mut(&mut self, print: Fingerprint) -> Option<(Place, &mut Slot)> {
        let place = self.search(print)?;
        Some((place, self.slot_mut(place)))
    }

    #[inline(always)]
    fn search(&self, print: Fingerprint) -> Option<Place> {
        let wanted = print.tag() * ONES;
        let mut bucket = home(print.kept(), self.buckets());
        for _ in 0..self.buckets() {
            let tags = self.tags[bucket];
            // A byte is zero where the tag is the wanted one, which a free place's is not.
            let differ = tags ^ wanted;
            // Finds the bytes that are zero, and of those right behind one also a byte of one. That is no free place's: its tag
            // would differ by the wanted one, which is two at least.
            let mut equal = differ.wrapping_sub(ONES) & !differ & HIGHEST;
            while equal != 0 {
                let place = bucket * STRIDE + equal.trailing_zeros() as usize / 8;
                if self.slot(place).is(print) {
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

    /// Whether it grows when another is put in: then meters change their places.
    pub(crate) fn is_full(&self) -> bool {
        (self.len + 1) * 64 > self.room() * MOST
    }

    /// Puts a meter where there is none of this fingerprint yet.
    ///
    /// Inlined, so that the slot goes from where it is made to where it is kept, by registers.
    #[inline(always)]
    pub(crate) fn insert(&mut self, print: Fingerprint, slot: Slot) -> Place {
        let place = self.take_place(print);
        *self.slot_mut(place) = slot;
        place
    }

    /// A place for a meter that is not there yet. It is taken from now on.
    #[inline]
    fn take_place(&mut self, print: Fingerprint) -> Place {
        if self.is_full() {
            self.grow();
        }
        self.len += 1;
        self.take_place_from(home(print.kept(), self.buckets()), print.tag())
    }

    /// Removes a meter.
    pub(crate) fn remove(&mut self, place: Place) -> Slot {
        let (last, nth) = (place / STRIDE, place % STRIDE);
        let mut bucket = home(self.slot(place).high, self.buckets());
        while bucket != last {
            let tags = &mut self.tags[bucket];
            // A count that has reached its end is not to be trusted, and stays.
            if passed(*tags) < PASSED_MOST {
                *tags -= PASSED_ONE;
            }
            bucket = self.next(bucket);
        }
        self.tags[last] &= !(0xff << (nth * 8));
        self.len -= 1;
        std::mem::take(self.slot_mut(place))
    }

    /// The first place from this one on where there is a meter, if it is in one of the next so many buckets; otherwise the place
    /// behind those.
    pub(crate) fn taken_from(&self, place: Place, buckets: usize) -> Result<Place, Place> {
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

    /// Gives the blocks that are not needed for the meters that there are.
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
            let place = self.take_place_from(home(slot.high, self.buckets()), tag);
            *self.slot_mut(place) = slot;
        }
        idle
    }

    fn next(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets() { 0 } else { bucket + 1 }
    }

    /// A place in the first bucket from its home on that has room. There must be one.
    #[inline]
    fn take_place_from(&mut self, home: usize, tag: u64) -> Place {
        let mut bucket = home;
        loop {
            if let Some(place) = self.take_place_in(bucket, tag) {
                return place;
            }
            bucket = self.next(bucket);
        }
    }

    /// A place in a bucket; if it is full, it counts that a meter has passed it.
    #[inline]
    fn take_place_in(&mut self, bucket: usize, tag: u64) -> Option<Place> {
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

    /// The meters of a bucket whose tags were these, and their tags.
    fn meters(&self, bucket: usize, tags: u64) -> impl Iterator<Item = (u64, Slot)> + use<> {
        let meters = self.blocks[bucket / BLOCK][bucket % BLOCK];
        let tags = (0..WIDTH).map(move |nth| (tags >> (nth * 8)) & 0xff);
        tags.zip(meters).filter(|(tag, _)| *tag != 0)
    }

    /// Adds blocks, and moves every meter to its new bucket, the last ones first: all that is behind the one that is just
    /// being moved is in the new order already.
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

    /// Moves the meters of a bucket to where they belong, but for those that have to wait until all are in the new order.
    #[inline]
    fn spread(&mut self, bucket: usize, later: &mut Vec<(usize, u64, Slot)>) {
        let mut tags = std::mem::take(&mut self.tags[bucket]);
        for nth in 0..WIDTH {
            let tag = tags & 0xff;
            if tag != 0 {
                // What stays in its bucket comes to this place or to one before it, which has been read.
                let slot = self.blocks[bucket / BLOCK][bucket % BLOCK][nth];
                let home = home(slot.high, self.buckets());
                // Those that had passed their home may belong before this bucket; those that would pass the end belong
                // to the beginning, which is still to come.
                let place = if home < bucket { Err(home) } else { self.append_from(home, tag).ok_or(0) };
                match place {
                    Ok(place) => *self.slot_mut(place) = slot,
                    Err(from) => later.push((from, tag, slot)),
                }
            }
            tags >>= 8;
        }
    }

    /// A place in the first bucket from its home on that has room, where those that have come were put one after another.
    #[inline]
    fn append_from(&mut self, home: usize, tag: u64) -> Option<Place> {
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

    /// Looks at all meters of a block at once, so that who looks at one after another then does not wait for memory each time.
    fn touch(&self, block: usize) {
        let slots = self.blocks[block].iter().flatten();
        std::hint::black_box(slots.fold(0, |all, slot| all ^ slot.high));
    }
}

const PASSED_ONE: u64 = 1 << 56;
const PASSED_MOST: u64 = 0xff;

/// How many meters have passed this bucket because it was full; 255 may be more.
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

/// Which places of a bucket are taken: the highest bit of each byte that is not zero.
#[inline]
fn taken(tags: u64) -> u64 {
    // What is not zero carries into its byte's highest bit, and no further.
    let carried = (tags & (0x7f * ONES)) + 0x7f * ONES;
    (carried | tags) & HIGHEST
}

/// The bucket where a search begins: as far into the table as `high` is into the 32-bit numbers.
#[inline]
fn home(high: u32, buckets: usize) -> usize {
    usize::try_from((u64::from(high) * buckets as u64) >> 32).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// Puts meters in and takes them out at random, and compares with a map.
    fn compare(prints: impl Fn(u32) -> Fingerprint, keys: u32, steps: u32) {
        let (mut table, mut model) = (Table::default(), HashMap::new());
        let mut random = 1_u64;
        for step in 0..steps {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // More come than go, and later the other way round.
            let key = u32::try_from(random >> 33).unwrap() % keys;
            let comes = (random >> 20) % 8 < if step < steps / 2 { 6 } else { 2 };
            let (print, found) = (prints(key), table.find(prints(key)));
            assert_eq!(found.map(|place| table.slot(place).forget_at), model.get(&key).copied(), "{key}");
            match found {
                None if comes => {
                    let place = table.insert(print, Slot::new(print));
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
        let all: Vec<Place> = (0..table.end()).filter(|place| table.is_taken(*place)).collect();
        assert_eq!((all.len(), taken), (model.len(), all));
        for (key, step) in model {
            assert_eq!(table.find(prints(key)).map(|place| table.slot(place).forget_at), Some(step));
        }
    }

    #[test]
    fn meters_are_found_whatever_came_and_went() {
        let spread = |key: u32| Fingerprint {
            low: key.into(),
            high: u64::from(key.wrapping_mul(0x9e37_79b9)) << 32 | u64::from(key.wrapping_mul(0x85eb_ca6b)),
        };
        compare(spread, 3_000, 100_000);
        compare(spread, 20, 20_000);
    }

    #[test]
    fn meters_are_found_among_those_that_collide() {
        compare(|key| Fingerprint { low: key.into(), high: u64::from(key / 50) << 32 }, 400, 50_000);
        compare(
            |key| Fingerprint { low: key.into(), high: u64::from(u32::MAX - key % 2) << 32 },
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
    fn a_full_table_is_nearly_full() {
        let mut table = Table::default();
        for key in 0..10_000_u32 {
            let print = Fingerprint {
                low: key.into(),
                high: u64::from(key.wrapping_mul(0x9e37_79b9)) << 32 | u64::from(key),
            };
            table.insert(print, Slot::new(print));
            let (idle, small) = (table.room() - table.len(), table.blocks.len() <= SMALL);
            let most = if small { table.room() * 2 / 5 } else { table.room() / 6 };
            assert!(idle < most + BLOCK * WIDTH, "{idle} of {}", table.room());
        }
    }
}
