//! Fuzz targets: requests of the Redis protocol.

use ratelimit_fuzz::fuzz;
use ratelimit_server::redis::split_off;

/// Whatever arrives, requests are split off one by one, the same ones however the bytes arrive, and nothing is kept for ever.
#[test]
fn requests() {
    fuzz!("tests", "requests", |bytes| {
        let mut rest = bytes;
        while !rest.is_empty() {
            match split_off(rest) {
                Ok(Some((arguments, length))) => {
                    assert!((1..=rest.len()).contains(&length));
                    assert!(arguments.iter().map(|argument| argument.len()).sum::<usize>() < length);
                    // Complete only with its last byte.
                    assert_eq!(split_off(&rest[..length]), Ok(Some((arguments, length))));
                    assert_eq!(split_off(&rest[..length - 1]), Ok(None));
                    rest = &rest[length..];
                }
                Ok(None) => {
                    let ended = [rest, &[b'\n'; 70_000]].concat();
                    assert!(!matches!(split_off(&ended), Ok(None)), "it waits for ever");
                    break;
                }
                Err(error) => {
                    let longer = [rest, b"\r\n"].concat();
                    assert_eq!(split_off(&longer), Err(error), "what is wrong stays wrong");
                    break;
                }
            }
        }
    });
}
