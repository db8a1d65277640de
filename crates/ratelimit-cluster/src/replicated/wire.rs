//! The encoding of numbers and bytes in messages.
//!
//! | what | how |
//! |---|---|
//! | number | unsigned, up to 64 bits: seven bits a byte, the lowest first, the top bit set on all bytes but the last (LEB128) |
//! | signed number | *n* as `2n`, *-n* as `2n - 1` (zigzag), then as a number |
//! | bytes | their count as a number, then the bytes |
//! | text | bytes that are UTF-8 |

/// The bytes are not a message of this version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

pub(crate) fn put_number(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(low_bits(number) | 0x80);
        number >>= 7;
    }
    out.push(low_bits(number));
}

fn low_bits(number: u64) -> u8 {
    number.to_le_bytes()[0] & 0x7f
}

pub(crate) fn put_signed(out: &mut Vec<u8>, number: i64) {
    put_number(out, (number.cast_unsigned() << 1) ^ (number >> 63).cast_unsigned());
}

pub(crate) fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put_number(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Reads from the front of a message. A length is accepted only if that many bytes follow.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn byte(&mut self) -> Result<u8, Malformed> {
        let (first, rest) = self.0.split_first().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    /// One byte: zero or one.
    pub(crate) fn flag(&mut self) -> Result<bool, Malformed> {
        match self.byte()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Malformed),
        }
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (first, rest) = self.0.split_first_chunk().ok_or(Malformed)?;
        self.0 = rest;
        Ok(*first)
    }

    pub(crate) fn number(&mut self) -> Result<u64, Malformed> {
        let mut number = 0;
        for shift in (0..u64::BITS).step_by(7) {
            let byte = self.byte()?;
            let bits = u64::from(byte & 0x7f);
            if (bits << shift) >> shift != bits {
                return Err(Malformed);
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Ok(number);
            }
        }
        Err(Malformed)
    }

    pub(crate) fn signed(&mut self) -> Result<i64, Malformed> {
        let number = self.number()?;
        Ok((number >> 1).cast_signed() ^ -((number & 1).cast_signed()))
    }

    pub(crate) fn bytes(&mut self) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(self.number()?).map_err(|_| Malformed)?;
        let (first, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(first)
    }

    pub(crate) fn text(&mut self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_round_trip(number: u64, signed: i64, bytes: Vec<u8>, text in "[ -~]{0,40}") {
            let mut out = Vec::new();
            put_number(&mut out, number);
            put_signed(&mut out, signed);
            put_bytes(&mut out, &bytes);
            put_bytes(&mut out, text.as_bytes());
            let mut reader = Reader::new(&out);
            prop_assert_eq!(reader.number(), Ok(number));
            prop_assert_eq!(reader.signed(), Ok(signed));
            prop_assert_eq!(reader.bytes(), Ok(&bytes[..]));
            prop_assert_eq!(reader.text(), Ok(&text[..]));
            prop_assert!(reader.is_empty());
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes: Vec<u8>) {
            let read = |get: fn(&mut Reader<'_>) -> bool| {
                let mut reader = Reader::new(&bytes);
                while get(&mut reader) {}
            };
            read(|reader| reader.number().is_ok());
            read(|reader| reader.signed().is_ok());
            read(|reader| reader.bytes().is_ok());
            read(|reader| reader.text().is_ok());
        }
    }

    #[test]
    fn numbers_beyond_64_bits_are_refused() {
        for (number, length) in [(0, 1), (0x7f, 1), (0x80, 2), (u64::MAX, 10)] {
            let mut out = Vec::new();
            put_number(&mut out, number);
            assert_eq!((out.len(), Reader::new(&out).number()), (length, Ok(number)));
        }
        let beyond = [0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02];
        assert_eq!(Reader::new(&beyond).number(), Err(Malformed));
        assert_eq!(Reader::new(&[0x80; 20]).number(), Err(Malformed));
    }

    #[test]
    fn a_length_beyond_the_message_is_refused() {
        let mut out = Vec::new();
        put_number(&mut out, u64::MAX);
        assert_eq!(Reader::new(&out).bytes(), Err(Malformed));
        assert_eq!(Reader::new(&[3, 1, 2]).bytes(), Err(Malformed));
        assert_eq!(Reader::new(&[1, 0xff]).text(), Err(Malformed));
    }
}
