//! Fuzz targets: the rows that functions return, with any numbers in them.

use ratelimit_fuzz::{Input, any_slices, check_answer, check_answers, check_error, fuzz};

use crate::PostgresConfig;
use crate::decide::fast_path::FastPath;
use crate::wire::codec;
use crate::wire::reply::{Many, Reply};

/// Any number, most often one that is not negative.
fn signed(input: &mut Input<'_>) -> i64 {
    let sign = input.byte();
    let number = input.number().cast_signed();
    if sign == 255 { number.wrapping_neg() } else { number }
}

fn optional(input: &mut Input<'_>) -> Option<i64> {
    (input.byte() != 0).then(|| signed(input))
}

#[test]
fn replies() {
    fuzz!("src", "replies", |bytes| {
        let mut input = Input::new(bytes);
        let slices = any_slices(&mut input);
        let mut numbers = Vec::new();
        while !input.is_empty() {
            numbers.push(signed(&mut input));
        }
        check_answers(&slices, &codec::answers(&slices, &numbers));
    });
}

#[test]
fn fast_replies() {
    fuzz!("src", "fast_replies", |bytes| {
        let mut input = Input::new(bytes);
        let slices = any_slices(&mut input);
        let config = PostgresConfig::from_url("postgres://localhost/app").expect("an address");
        let Some(path) = FastPath::new(&slices, &config) else { return };
        let reply = if input.byte().is_multiple_of(2) {
            Reply::One((0..6).map(|_| optional(&mut input)).collect())
        } else {
            Reply::Many(Box::new(many(&mut input)))
        };
        match path.answers(reply) {
            Ok(answers) => {
                let decided = answers.iter().zip(&slices);
                decided
                    .for_each(|(answer, slice)| answer.iter().for_each(|answer| check_answer(slice, answer)));
            }
            Err(error) => check_error(&error),
        }
    });
}

fn many(input: &mut Input<'_>) -> Many {
    let count = input.byte() % 4;
    let places =
        |input: &mut Input<'_>| (0..count).map(|_| i32::from(input.byte().cast_signed())).collect::<Vec<_>>();
    let (taken, places_, shapes, done) = (places(input), places(input), places(input), places(input));
    let numbers = |input: &mut Input<'_>| (0..count).map(|_| signed(input)).collect();
    let nullable = |input: &mut Input<'_>| (0..count).map(|_| optional(input)).collect();
    Many {
        clock: optional(input),
        taken,
        x: numbers(input),
        y: numbers(input),
        z: nullable(input),
        places: places_,
        shapes,
        a: nullable(input),
        b: nullable(input),
        c: nullable(input),
        done,
        put: vec![input.one_of(&["secret", "other"]).as_bytes().to_vec()],
        trouble: None,
    }
}
