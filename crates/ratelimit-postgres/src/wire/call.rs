//! The calls of the functions on the server: one statement for each, prepared or as text.

use sqlx::AssertSqlSafe;
use sqlx::postgres::{PgArguments, PgConnection, PgRow, Postgres};
use sqlx::query::Query;

use crate::error;
use crate::wire::schema::{Function, Names};
use crate::wire::text;

/// One call of one function.
#[derive(Debug)]
pub(crate) struct Call {
    function: Function,
    /// In the order of the function's parameters.
    arguments: Vec<Argument>,
}

/// An argument of a function.
#[derive(Debug)]
pub(crate) enum Argument {
    Bool(bool),
    Int(i32),
    BigInt(i64),
    Float(f64),
    Bytes(Vec<u8>),
    Ints(Vec<i32>),
    BigInts(Vec<i64>),
    Floats(Vec<f64>),
    BytesList(Vec<Vec<u8>>),
}

impl Call {
    pub(crate) fn new(function: Function, arguments: impl Into<Vec<Argument>>) -> Self {
        Self { function, arguments: arguments.into() }
    }

    /// Whether this error leaves open what was charged: half of the call is committed before the rest begins, and the server
    /// may cancel it in between.
    pub(crate) fn may_be_half_done(&self, error: &sqlx::Error) -> bool {
        matches!(self.function, Function::Take) && error::is_cancelled(error)
    }

    /// Sends it and returns its row. It is a prepared statement, which is one round trip if the connection has prepared it;
    /// or a text if the connection is `pooled`, which is one round trip on any connection and leaves nothing on it.
    pub(crate) async fn send(
        &self,
        connection: &mut PgConnection,
        names: &Names,
        pooled: bool,
    ) -> Result<PgRow, sqlx::Error> {
        let statement = names.statement(self.function, pooled);
        // Reads to the end of the reply, not just to its row: the statement is committed after that.
        let mut rows = if pooled {
            let literals: Vec<_> = self.arguments.iter().map(Argument::literal).collect();
            let text = text::fill(statement, &literals);
            sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(connection).await?
        } else {
            let query = sqlx::query(AssertSqlSafe(statement.clone()));
            let query = self.arguments.iter().fold(query, |query, argument| argument.bind(query));
            query.fetch_all(connection).await?
        };
        rows.pop().ok_or(sqlx::Error::RowNotFound)
    }
}

impl Argument {
    fn bind<'q>(&'q self, query: Query<'q, Postgres, PgArguments>) -> Query<'q, Postgres, PgArguments> {
        match self {
            Self::Bool(value) => query.bind(value),
            Self::Int(value) => query.bind(value),
            Self::BigInt(value) => query.bind(value),
            Self::Float(value) => query.bind(value),
            Self::Bytes(value) => query.bind(value),
            Self::Ints(values) => query.bind(values),
            Self::BigInts(values) => query.bind(values),
            Self::Floats(values) => query.bind(values),
            Self::BytesList(values) => query.bind(values),
        }
    }

    fn literal(&self) -> String {
        match self {
            Self::Bool(value) => text::one(value),
            Self::Int(value) => text::one(value),
            Self::BigInt(value) => text::one(value),
            Self::Float(value) => text::one(value),
            Self::Bytes(value) => text::bytes(value),
            Self::Ints(values) => text::array(values),
            Self::BigInts(values) => text::array(values),
            Self::Floats(values) => text::array(values),
            Self::BytesList(values) => text::bytes_array(values),
        }
    }
}
