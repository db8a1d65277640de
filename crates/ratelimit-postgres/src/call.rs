//! The calls of the functions on the server: one statement for each, prepared or as text.

use std::sync::Arc;

use sqlx::postgres::{PgConnection, PgRow};
use sqlx::{AssertSqlSafe, FromRow as _, Row as _};

use crate::certain_fit::CertainFit;
use crate::reply::{Many, Reply};
use crate::schema::Names;
use crate::text;

/// One call of one function.
#[derive(Debug)]
pub(crate) enum Call {
    Claim {
        ids: Vec<Vec<u8>>,
        writes: i32,
        slices: Vec<i64>,
        claims: Vec<i64>,
        by_server: bool,
        slack: i64,
    },
    /// See `take.sql`.
    FastPath {
        ids: Vec<Vec<u8>>,
        lasts: Vec<i32>,
        claims: Vec<i64>,
        certain: Vec<i64>,
        shares: Vec<f64>,
        by_server: bool,
        slack: i64,
    },
    FastPathOne {
        id: Vec<u8>,
        claim: [i64; 8],
        by_server: bool,
        slack: i64,
        certain: CertainFit,
    },
    Refund {
        ids: Vec<Vec<u8>>,
        now: i64,
        refunds: Vec<i64>,
        by_server: bool,
    },
    Reset {
        ids: Vec<Vec<u8>>,
    },
    Prune {
        first: i64,
        blocks: i64,
    },
    /// Reads names in their order.
    Names {
        after: Vec<u8>,
        before: Vec<u8>,
        most: i64,
    },
}

impl Call {
    /// The statement, with its arguments as `$1`, `$2`, …; `pooled` for connections without our settings.
    fn statement<'n>(&self, names: &'n Names, pooled: bool) -> &'n Arc<str> {
        match self {
            Self::FastPathOne { .. } if pooled => &names.take_one_pooled,
            Self::Claim { .. } => &names.claim,
            Self::FastPath { .. } => &names.take,
            Self::FastPathOne { .. } => &names.take_one,
            Self::Refund { .. } => &names.refund,
            Self::Reset { .. } => &names.reset,
            Self::Prune { .. } => &names.prune,
            Self::Names { .. } => &names.names,
        }
    }

    fn reply(&self, row: &PgRow) -> Result<Reply, sqlx::Error> {
        Ok(match self {
            Self::FastPathOne { .. } => Reply::One(row.try_get(0)?),
            Self::FastPath { .. } => Reply::Many(Box::new(Many::from_row(row)?)),
            Self::Names { .. } => Reply::Names(row.try_get(0)?),
            _ => Reply::Numbers(row.try_get(0)?),
        })
    }

    /// Sends it as a prepared statement: one round trip if the connection has prepared it.
    pub(crate) async fn send(
        &self,
        connection: &mut PgConnection,
        names: &Names,
    ) -> Result<Reply, sqlx::Error> {
        let query = sqlx::query(AssertSqlSafe(self.statement(names, false).clone()));
        let query = match self {
            Self::FastPathOne { id, claim, by_server, slack, certain } => {
                let query = claim.iter().fold(query.bind(id), |query, number| query.bind(number));
                let query = query.bind(by_server).bind(slack);
                query.bind(certain.since).bind(certain.until).bind(certain.share).bind(certain.keep)
            }
            Self::FastPath { ids, lasts, claims, certain, shares, by_server, slack } => {
                let query = query.bind(ids).bind(lasts).bind(claims).bind(certain).bind(shares);
                query.bind(by_server).bind(slack)
            }
            Self::Claim { ids, writes, slices, claims, by_server, slack } => {
                query.bind(ids).bind(writes).bind(slices).bind(claims).bind(by_server).bind(slack)
            }
            Self::Refund { ids, now, refunds, by_server } => {
                query.bind(ids).bind(now).bind(refunds).bind(by_server)
            }
            Self::Reset { ids } => query.bind(ids),
            Self::Prune { first, blocks } => query.bind(first).bind(blocks),
            Self::Names { after, before, most } => query.bind(after).bind(before).bind(most),
        };
        // Reads to the end of the reply, not just to its row: the statement is committed after that.
        self.last(&query.fetch_all(connection).await?)
    }

    /// Sends it as text: one round trip on any connection, and nothing is left on the connection.
    pub(crate) async fn send_text(
        &self,
        connection: &mut PgConnection,
        names: &Names,
    ) -> Result<Reply, sqlx::Error> {
        let text = text::fill(self.statement(names, true), &self.literals());
        self.last(&sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(connection).await?)
    }

    fn last(&self, rows: &[PgRow]) -> Result<Reply, sqlx::Error> {
        rows.last().map_or(Err(sqlx::Error::RowNotFound), |row| self.reply(row))
    }

    /// The arguments as literals.
    fn literals(&self) -> Vec<String> {
        use text::{array, bytes, bytes_array, one};
        match self {
            Self::FastPathOne { id, claim, by_server, slack, certain } => {
                let mut literals = vec![bytes(id)];
                literals.extend(claim.iter().map(one));
                literals.extend([one(by_server), one(slack), one(&certain.since), one(&certain.until)]);
                literals.extend([one(&certain.share), one(&certain.keep)]);
                literals
            }
            Self::FastPath { ids, lasts, claims, certain, shares, by_server, slack } => {
                let lists = [bytes_array(ids), array(lasts), array(claims), array(certain), array(shares)];
                lists.into_iter().chain([one(by_server), one(slack)]).collect()
            }
            Self::Claim { ids, writes, slices, claims, by_server, slack } => {
                let lists = [bytes_array(ids), one(writes), array(slices), array(claims)];
                lists.into_iter().chain([one(by_server), one(slack)]).collect()
            }
            Self::Refund { ids, now, refunds, by_server } => {
                vec![bytes_array(ids), one(now), array(refunds), one(by_server)]
            }
            Self::Reset { ids } => vec![bytes_array(ids)],
            Self::Prune { first, blocks } => vec![one(first), one(blocks)],
            Self::Names { after, before, most } => vec![bytes(after), bytes(before), one(most)],
        }
    }
}
