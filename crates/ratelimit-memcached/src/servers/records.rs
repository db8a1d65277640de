//! Splits the bytes for TLS into pieces, each of which is sent in its own records.
//!
//! Memcached before 1.6.39 may read past a command's value into the rest of the record. That rest then stays in OpenSSL
//! while the server waits for the network, so commands in it are not answered until more is sent. For this reason no record
//! contains the end of such a value and anything after it. A piece of whole commands that is smaller than the server's
//! buffer is read with one call; a larger command is a piece of its own.

/// Half of the server's buffer.
const MOST: usize = 8 * 1024;

/// The size of the first piece in bytes.
pub(crate) fn first_piece(bytes: &[u8]) -> usize {
    let mut piece = 0;
    while piece < bytes.len() {
        let end = piece + first_command(&bytes[piece..]);
        if end > MOST && piece > 0 {
            break;
        }
        piece = end;
    }
    piece
}

/// The size of the first command in bytes: its line, and the value of a write.
fn first_command(bytes: &[u8]) -> usize {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return bytes.len() };
    let line = &bytes[..end];
    let value = if line.starts_with(b"ms ") {
        let size = line.split(|byte| *byte == b' ').nth(2).and_then(|size| std::str::from_utf8(size).ok());
        size.and_then(|size| size.parse::<usize>().ok()).map_or(0, |size| size.saturating_add(2))
    } else {
        0
    };
    (end + 1).saturating_add(value).min(bytes.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::commands::Command;
    use proptest::prelude::*;

    fn write(size: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        // A value may look like lines.
        let value = b"ms k 9\r\n".repeat(size / 8 + 1);
        let command = Command::Write { value: value[..size].to_vec(), unique: Some(1), lifetime: 60 };
        command.encode("k", 7, &mut bytes);
        bytes
    }

    proptest! {
        #[test]
        fn pieces_are_whole_commands_and_small_or_a_single_one(
            sizes in prop::collection::vec(0_usize..20_000, 0..30),
        ) {
            let commands: Vec<Vec<u8>> = sizes.iter().map(|size| write(*size)).collect();
            let bytes = commands.concat();
            let (mut rest, mut next) = (&bytes[..], commands.iter());
            while !rest.is_empty() {
                let piece = first_piece(rest);
                let (mut size, mut count) = (0, 0);
                while size < piece {
                    size += next.next().expect("a command").len();
                    count += 1;
                }
                prop_assert_eq!(size, piece);
                prop_assert!(piece <= MOST || count == 1);
                rest = &rest[piece..];
            }
        }

        #[test]
        fn any_bytes_are_split_into_nonempty_pieces(begin in "(ms k )?[0-9]{0,22}\r?\n?", bytes: Vec<u8>) {
            let bytes = [begin.into_bytes(), bytes].concat();
            let piece = first_piece(&bytes);
            prop_assert!(piece <= bytes.len() && (piece > 0 || bytes.is_empty()));
        }
    }
}
