//! Text in addresses.

/// Encodes `text` for an address.
pub(crate) fn percent_encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes()
        .map(|byte| if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

/// The inverse.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [byte, tail @ ..] = rest {
        let code = tail.get(..2).and_then(|code| std::str::from_utf8(code).ok());
        match code.and_then(|code| u8::from_str_radix(code, 16).ok()) {
            Some(decoded) if *byte == b'%' => {
                bytes.push(decoded);
                rest = &tail[2..];
            }
            _ => {
                bytes.push(*byte);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Host and port; the port is `usual` if none follows the host.
pub(crate) fn with_port(host: &str, usual: u16) -> String {
    // The end of an IPv6 address in brackets is not a number.
    let has_port = host.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
    if has_port { host.to_owned() } else { format!("{host}:{usual}") }
}

#[cfg(test)]
mod tests {
    use super::{percent_decoded, percent_encoded};

    #[test]
    fn passwords_round_trip_through_an_address() {
        let password = "a%b:c@d/é %41";
        assert_eq!(percent_decoded(&percent_encoded(password)), password);
    }
}
