//! Slices of claims made from an input, and what is true of every answer to them.

use ratelimit_core::kit::{OwnedClaim, OwnedClaims};
use ratelimit_core::store::{Answer, Mode};
use ratelimit_core::{ErrorKind, StoreError, Timestamp};

use crate::{Input, any_meter, check_verdict};

/// What the keys of all claims begin with.
const SECRET: &str = "secret";

/// Takes slices of claims off an input, as callers may have asked for them. Their keys are secrets.
pub fn any_slices(input: &mut Input<'_>) -> Vec<OwnedClaims<Vec<u8>>> {
    let count = 1 + input.byte() % 3;
    (0..count).map(|_| any_slice(input)).collect()
}

fn any_slice(input: &mut Input<'_>) -> OwnedClaims<Vec<u8>> {
    let mode = *input.one_of(&[Mode::Charge, Mode::Charge, Mode::Peek, Mode::Force]);
    let now = Timestamp::from_nanos(input.number());
    let count = 1 + input.byte() % 2;
    let claims = (0..count).map(|_| any_claim(input)).collect();
    OwnedClaims { now, mode, claims }
}

fn any_claim(input: &mut Input<'_>) -> OwnedClaim<Vec<u8>> {
    let meter = any_meter(input);
    OwnedClaim { key: [SECRET.as_bytes(), &[input.byte() % 2]].concat(), cost: input.number(), meter }
}

/// Checks what is true of all answers to some slices, in their order, and of an error instead of them.
///
/// # Panics
/// If it is not.
pub fn check_answers(
    slices: &[OwnedClaims<Vec<u8>>],
    outcome: &Result<Vec<Result<Answer, StoreError>>, StoreError>,
) {
    match outcome {
        Ok(answers) => answers.iter().zip(slices).for_each(|(answer, slice)| check_answer(slice, answer)),
        Err(error) => check_error(error),
    }
}

/// Checks what is true of every answer of a store, and of its errors.
///
/// # Panics
/// If it is not.
pub fn check_answer(slice: &OwnedClaims<Vec<u8>>, outcome: &Result<Answer, StoreError>) {
    match outcome {
        Ok(answer) => {
            assert_eq!(answer.verdicts.len(), slice.claims.len());
            assert_eq!(answer.charged, answer.admitted && slice.mode != Mode::Peek);
            for (claim, verdict) in slice.claims.iter().zip(&answer.verdicts) {
                check_verdict(verdict, &claim.meter, answer.now);
            }
        }
        Err(error) => check_error(error),
    }
}

/// Checks an error about what a server has sent: it says so, and shows no key.
///
/// # Panics
/// If it does not.
pub fn check_error(error: &StoreError) {
    assert!(matches!(error.kind(), ErrorKind::Corrupt | ErrorKind::Server), "{error}");
    assert!(!error.to_string().contains(SECRET), "{error}");
}
