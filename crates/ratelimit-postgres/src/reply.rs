//! The replies of the functions on the server.

use sqlx::postgres::{PgRow, Postgres};
use sqlx::{Decode, FromRow, Row, Type};

use ratelimit_core::StoreError;

use crate::error;

/// The reply of a function.
#[derive(Debug)]
pub(crate) enum Reply {
    Numbers(Vec<i64>),
    /// The reply to [`Call::FastPathOne`](crate::call::Call::FastPathOne).
    One(One),
    /// The reply to [`Call::FastPath`](crate::call::Call::FastPath).
    Many(Box<Many>),
    /// The reply to [`Call::Names`](crate::call::Call::Names).
    Names(Vec<Vec<u8>>),
}

impl Reply {
    /// The numbers in the reply to any call except those of the fast path and [`Call::Names`](crate::call::Call::Names).
    pub(crate) fn numbers(self) -> Result<Vec<i64>, StoreError> {
        match self {
            Self::Numbers(numbers) => Ok(numbers),
            Self::One(_) | Self::Many(_) | Self::Names(_) => Err(error::strange_reply()),
        }
    }

    /// The names in the reply to [`Call::Names`](crate::call::Call::Names).
    pub(crate) fn names(self) -> Result<Vec<Vec<u8>>, StoreError> {
        if let Self::Names(names) = self { Ok(names) } else { Err(error::strange_reply()) }
    }
}

/// The reply of `take_one_v1`: whether the state was written (0 or 1), the clock, the shape, and the numbers a, b and c of
/// the state before; or, if the first `UPDATE` charged the claim, 2, NULL, the shape, and the numbers of the state after.
pub(crate) type One = Vec<Option<i64>>;

/// The reply of `take_v1`; see there.
#[derive(Debug)]
pub(crate) struct Many {
    pub(crate) clock: Option<i64>,
    pub(crate) taken: Vec<i32>,
    pub(crate) x: Vec<i64>,
    pub(crate) y: Vec<i64>,
    pub(crate) z: Vec<Option<i64>>,
    pub(crate) places: Vec<i32>,
    pub(crate) shapes: Vec<i32>,
    pub(crate) a: Vec<Option<i64>>,
    pub(crate) b: Vec<Option<i64>>,
    pub(crate) c: Vec<Option<i64>>,
    pub(crate) done: Vec<i32>,
    pub(crate) put: Vec<Vec<u8>>,
    pub(crate) trouble: Option<String>,
}

/// An array of the reply; NULL is an empty one.
fn list<'r, T>(row: &'r PgRow, name: &str) -> Result<Vec<T>, sqlx::Error>
where
    Vec<T>: Decode<'r, Postgres> + Type<Postgres>,
{
    row.try_get::<Option<_>, _>(name).map(Option::unwrap_or_default)
}

impl FromRow<'_, PgRow> for Many {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(Self {
            clock: row.try_get("clock")?,
            taken: list(row, "taken")?,
            x: list(row, "x")?,
            y: list(row, "y")?,
            z: list(row, "z")?,
            places: list(row, "places")?,
            shapes: list(row, "shapes")?,
            a: list(row, "a")?,
            b: list(row, "b")?,
            c: list(row, "c")?,
            done: list(row, "done")?,
            put: list(row, "put")?,
            trouble: row.try_get("trouble")?,
        })
    }
}

/// The number of columns of that reply.
pub(crate) const MANY_ANSWERS: usize = 13;
