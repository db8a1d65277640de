//! The replies of the fast path's functions.

use sqlx::postgres::{PgRow, Postgres};
use sqlx::{Decode, FromRow, Row, Type};

/// The reply to a call on the fast path.
#[derive(Debug)]
pub(crate) enum Reply {
    /// To [`TakeOne`](crate::wire::schema::Function::TakeOne).
    One(One),
    /// To [`Take`](crate::wire::schema::Function::Take).
    Many(Box<Many>),
}

impl FromRow<'_, PgRow> for Reply {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        Ok(if row.len() == 1 {
            Self::One(row.try_get(0)?)
        } else {
            Self::Many(Box::new(Many::from_row(row)?))
        })
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
