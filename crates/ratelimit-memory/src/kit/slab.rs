//! Values by number.

/// Values by number. The numbers of removed values are reused.
#[derive(Debug)]
pub struct Slab<T> {
    values: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    /// Adds a value, and returns its number.
    pub fn insert(&mut self, value: T) -> u32 {
        let number = self.free.pop().unwrap_or_else(|| {
            self.values.push(None);
            // A shard has fewer meters than that.
            u32::try_from(self.values.len() - 1).expect("fewer values than numbers")
        });
        self.values[number as usize] = Some(value);
        number
    }

    /// Removes the value with a number that is in use.
    pub fn remove(&mut self, number: u32) -> T {
        self.free.push(number);
        self.values[number as usize].take().expect("a slot refers to an existing value")
    }

    /// The value with a number that is in use.
    #[inline]
    pub fn at(&self, number: u32) -> &T {
        self.values[number as usize].as_ref().expect("a slot refers to an existing value")
    }

    /// The value with a number that is in use, to change it.
    #[inline]
    pub fn at_mut(&mut self, number: u32) -> &mut T {
        self.values[number as usize].as_mut().expect("a slot refers to an existing value")
    }

    /// The values with the lowest numbers, up to `count` numbers.
    pub fn first(&self, count: usize) -> impl Iterator<Item = (u32, &T)> {
        (0..)
            .zip(self.values.iter().take(count))
            .filter_map(|(number, value)| Some((number, value.as_ref()?)))
    }

    /// Frees the memory that the values do not need.
    pub fn shrink_to_fit(&mut self) {
        while let Some(None) = self.values.last() {
            self.values.pop();
        }
        self.values.shrink_to_fit();
        self.free.retain(|number| (*number as usize) < self.values.len());
        self.free.shrink_to_fit();
    }
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { values: Vec::new(), free: Vec::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_reused_and_only_the_last_ones_are_given_up() {
        let mut slab = Slab::default();
        assert_eq!(["a", "b", "c"].map(|value| slab.insert(value)), [0, 1, 2]);
        assert_eq!((slab.remove(1), slab.insert("d"), slab.insert("e")), ("b", 1, 3));
        *slab.at_mut(3) = "f";
        assert_eq!((*slab.at(1), slab.remove(3), slab.remove(0)), ("d", "f", "a"));
        slab.shrink_to_fit();
        assert_eq!(slab.first(2).collect::<Vec<_>>(), [(1, &"d")]);
        assert_eq!([slab.insert("g"), slab.insert("h")], [0, 3]);
    }
}
