//! The result of a call that was made in parts.

use crate::{Applied, StoreError};

/// The first failure of the parts of a call, such as a refund on several servers. If any part has been applied, or may have
/// been, so may the call.
///
/// # Errors
/// If one of them has failed.
pub fn all_of(results: impl IntoIterator<Item = Result<(), StoreError>>) -> Result<(), StoreError> {
    let (mut is_made, mut first) = (false, None);
    for result in results {
        is_made |= result.as_ref().err().is_none_or(|failure| failure.applied() == Applied::Unknown);
        first = first.or(result.err());
    }
    first.map_or(Ok(()), |failure| Err(if is_made { failure.maybe_applied() } else { failure }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ErrorKind;

    #[test]
    fn a_failure_says_nothing_was_applied_only_if_no_part_was() {
        let failed = |kind| Err(StoreError::new("test", kind, "it failed").not_applied());
        let (down, late) = (ErrorKind::Unreachable, ErrorKind::Timeout);
        assert!(all_of([Ok(()), Ok(())]).is_ok());
        for (results, applied) in [
            ([failed(down), failed(down)], Applied::No),
            ([failed(down), Ok(())], Applied::Unknown),
            ([Ok(()), failed(down)], Applied::Unknown),
            ([failed(down), failed(late).map_err(StoreError::maybe_applied)], Applied::Unknown),
        ] {
            let failure = all_of(results).unwrap_err();
            assert_eq!((failure.kind(), failure.applied()), (down, applied));
        }
    }
}
