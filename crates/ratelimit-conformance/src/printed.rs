//! Whether a text that is meant for people or logs contains a key.

use std::fmt::Write as _;

/// Whether a text contains these bytes as text, as a list of numbers or as hexadecimal digits.
pub(crate) fn shows(printed: &str, bytes: &[u8]) -> bool {
    let (mut hexadecimal, mut numbers) = (String::new(), Vec::new());
    for byte in bytes {
        let _ = write!(hexadecimal, "{byte:02x}"); // a string takes any text
        numbers.push(byte.to_string());
    }
    let printed_in_one_case = printed.to_ascii_lowercase();
    printed.contains(&*String::from_utf8_lossy(bytes))
        || printed.contains(&numbers.join(", "))
        || printed.contains(&numbers.join(","))
        || printed_in_one_case.contains(&hexadecimal)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_found_in_each_form() {
        let key = b"very-secret";
        for printed in [
            format!("{:?}", "a very-secret person"),
            format!("{:?}", [b"a ".as_slice(), key, b"!"].concat()),
            format!("{:?}", [b"a ".as_slice(), key].concat()).replace(' ', ""),
            "0x616a766572792d73656372657400".to_owned(),
            "\\x766572792D736563726574".to_owned(),
        ] {
            assert!(shows(&printed, key), "{printed}");
        }
        assert!(!shows("ReferenceStore { meters: 118, bytes: [118, 101, 114] }", key));
    }
}
