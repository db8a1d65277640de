//! Bytes as a source of numbers and choices, for targets whose input has a structure.

/// Takes values off the front of an input. At its end, everything is zero.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a>(&'a [u8]);

impl<'a> Input<'a> {
    /// Takes values from these bytes.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// Whether all bytes have been taken.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        self.bytes(1).first().copied().unwrap_or(0)
    }

    /// A number of any size: its first byte says how many bytes it has, from none to eight.
    pub fn number(&mut self) -> u64 {
        let size = usize::from(self.byte() % 9);
        self.bytes(size).iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
    }

    /// A number within these bounds.
    pub fn within(&mut self, from: u64, to: u64) -> u64 {
        let span = to.saturating_sub(from).saturating_add(1);
        from + self.number() % span
    }

    /// One of these.
    pub fn one_of<'c, T>(&mut self, choices: &'c [T]) -> &'c T {
        &choices[usize::from(self.byte()) % choices.len()]
    }

    /// Some bytes, after a byte that says how many.
    pub fn some(&mut self) -> &'a [u8] {
        let size = usize::from(self.byte());
        self.bytes(size)
    }

    /// All that is left.
    pub fn rest(&mut self) -> &'a [u8] {
        self.bytes(usize::MAX)
    }

    fn bytes(&mut self, size: usize) -> &'a [u8] {
        let (taken, rest) = self.0.split_at(size.min(self.0.len()));
        self.0 = rest;
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_taken_in_order_and_then_zero() {
        let mut input = Input::new(&[7, 2, 1, 0, 1, 200, 3, b'a', b'b']);
        assert_eq!((input.byte(), input.number(), input.within(10, 19)), (7, 256, 10));
        assert_eq!((input.some(), input.is_empty()), (&b"ab"[..], true));
        assert_eq!((input.number(), *input.one_of(&["a", "b"]), input.rest()), (0, "a", &b""[..]));
    }
}
