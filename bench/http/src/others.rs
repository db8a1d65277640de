//! Code and data that replace those of the service in the near caches between two calls, as the kernel and other requests
//! do.

use std::hint::black_box;

/// Code and data that are run through from start to end.
pub(crate) struct Others {
    code: Vec<Step>,
    data: Vec<Line>,
}

type Step = fn(u64) -> u64;

/// The length of a cache line.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Line(u64);

/// The number of data lines: 32 kB.
const LINES: usize = 512;

impl Others {
    pub(crate) fn new() -> Self {
        Self { code: steps(), data: vec![Line(1); LINES] }
    }

    pub(crate) fn run(&self) {
        let number = self.code.iter().fold(black_box(1), |number, step| step(number));
        black_box(self.data.iter().fold(number, |sum, line| sum.wrapping_add(line.0)));
    }
}

/// A thousand different functions, each about as long as a cache line.
fn steps() -> Vec<Step> {
    macro_rules! rows {
        ($($row:literal)*) => { [$(row::<$row>()),*].concat() };
    }
    rows!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
          32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
}

fn row<const ROW: u64>() -> [Step; 16] {
    [
        step::<ROW, 0>,
        step::<ROW, 1>,
        step::<ROW, 2>,
        step::<ROW, 3>,
        step::<ROW, 4>,
        step::<ROW, 5>,
        step::<ROW, 6>,
        step::<ROW, 7>,
        step::<ROW, 8>,
        step::<ROW, 9>,
        step::<ROW, 10>,
        step::<ROW, 11>,
        step::<ROW, 12>,
        step::<ROW, 13>,
        step::<ROW, 14>,
        step::<ROW, 15>,
    ]
}

#[inline(never)]
fn step<const ROW: u64, const PLACE: u64>(number: u64) -> u64 {
    let salt = (ROW << 4 | PLACE).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (number ^ salt).rotate_left(7).wrapping_add(salt >> 3).wrapping_mul(salt | 1) ^ salt.rotate_left(31)
}
