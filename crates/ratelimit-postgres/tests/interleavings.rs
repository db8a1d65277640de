//! Calls that meet other transactions in a certain order: each test holds rows until a call waits for them.

mod common;

use std::time::Duration;

use common::Schema;
use ratelimit_core::meter::{Meter, Window};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode, Receipt, Refund};
use ratelimit_core::{CounterStore, Timestamp};
use ratelimit_postgres::PostgresStore;
use sqlx::{AssertSqlSafe, Executor, PgConnection};

const SEGMENT: Duration = Duration::from_secs(3_600);
const NOW: Timestamp = Timestamp::from_secs(1_000_000);

/// One unit of ten an hour.
fn claim(key: &[u8]) -> Claim<'_> {
    let nanos = u64::try_from(SEGMENT.as_nanos()).unwrap();
    let meter = Meter::Window(Window::new(10, nanos, 0, false, 0).unwrap());
    Claim { id: MeterId { namespace: "", scope: "s", key }, cost: 1, meter }
}

async fn charge_at(store: &PostgresStore, key: &[u8], now: Timestamp) {
    let claims = [claim(key)];
    assert!(store.claim(Claims::new(now, Mode::Charge, &claims).unwrap()).await.unwrap().admitted);
}

async fn charge(store: &PostgresStore, key: &[u8]) {
    charge_at(store, key, NOW).await;
}

/// How many units of each of these keys remain.
async fn remaining(store: &PostgresStore, keys: [&[u8]; 3]) -> Vec<u64> {
    let claims = keys.map(claim);
    let answer = store.claim(Claims::new(NOW, Mode::Peek, &claims).unwrap()).await.unwrap();
    answer.verdicts.iter().map(|verdict| verdict.remaining).collect()
}

/// A transaction that holds rows, and a connection that watches who waits for it.
struct Holder {
    table: String,
    transaction: PgConnection,
    watcher: PgConnection,
}

impl Holder {
    async fn begin(schema: &Schema) -> Self {
        let mut transaction = schema.connection().await;
        transaction.execute("BEGIN").await.unwrap();
        let table = format!("\"{}\".meters", schema.name);
        Self { table, transaction, watcher: schema.connection().await }
    }

    /// Runs SQL in the transaction, with `{s}` replaced by the table.
    async fn run(&mut self, sql: &str) {
        let sql = sql.replace("{s}", &self.table);
        self.transaction.execute(AssertSqlSafe(sql)).await.unwrap();
    }

    /// Locks the row with the first name that nobody has locked.
    async fn lock_first(&mut self) {
        self.run("SELECT FROM {s} ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED").await;
    }

    async fn is_waited_for(&mut self) -> bool {
        let pid: i32 =
            sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut self.transaction).await.unwrap();
        let sql = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
        let count: i64 = sqlx::query_scalar(sql).bind(pid).fetch_one(&mut self.watcher).await.unwrap();
        count > 0
    }

    async fn end(mut self, sql: &str) {
        self.run(sql).await;
    }
}

/// Two meters are charged for the first time while a refund of them waits for the row of a third one.
#[tokio::test(flavor = "multi_thread")]
async fn a_refund_loses_no_charge_of_a_meter_that_appears_meanwhile() {
    let schema = Schema::new();
    let store = schema.store().await;
    charge(&store, b"c").await;
    let [mut third, mut first] = [Holder::begin(&schema).await, Holder::begin(&schema).await];
    third.lock_first().await;
    let refunding = tokio::spawn({
        let store = store.clone();
        async move {
            let refunds = [&b"a"[..], b"b", b"c"].map(|key| {
                let Claim { id, cost, meter } = claim(key);
                Refund { id, cost, meter, receipt: Receipt::at(NOW) }
            });
            store.refund(NOW, &refunds).await
        }
    });
    while !third.is_waited_for().await {}
    charge(&store, b"a").await;
    charge(&store, b"b").await;
    first.lock_first().await;
    third.end("ROLLBACK").await;
    // It writes the third meter only. If it writes the others as well, it waits for the first one.
    while !refunding.is_finished() && !first.is_waited_for().await {}
    charge(&store, b"b").await;
    first.end("ROLLBACK").await;
    refunding.await.unwrap().unwrap();
    assert_eq!(remaining(&store, [b"a", b"b", b"c"]).await, [9, 8, 10]);
}

/// A meter is charged for the first time, and its row is locked, while a reset of it waits for the row of another meter. The
/// reset must not wait for it too: whoever has locked it may be waiting for a row that the reset has locked.
#[tokio::test(flavor = "multi_thread")]
async fn a_reset_does_not_wait_for_a_meter_that_appears_meanwhile() {
    let schema = Schema::new();
    let store = schema.store().await;
    charge(&store, b"a").await;
    charge(&store, b"c").await;
    let [mut first, mut second] = [Holder::begin(&schema).await, Holder::begin(&schema).await];
    first.lock_first().await;
    // The reset meets a later version of the row than it has read.
    first
        .run("UPDATE {s} SET forget_at = forget_at WHERE id = (SELECT id FROM {s} ORDER BY id LIMIT 1)")
        .await;
    let resetting = tokio::spawn({
        let store = store.clone();
        async move {
            let claims = [&b"a"[..], b"b", b"c"].map(claim);
            store.reset(Claims::new(NOW, Mode::Charge, &claims).unwrap()).await
        }
    });
    while !first.is_waited_for().await {}
    charge(&store, b"b").await;
    second.lock_first().await;
    first.end("COMMIT").await;
    resetting.await.unwrap().unwrap();
    second.end("ROLLBACK").await;
    assert_eq!(remaining(&store, [b"a", b"b", b"c"]).await, [10, 9, 10]);
}

/// Of three meters in one call, the first is charged immediately. The second has no row, and waits for another transaction that
/// inserts one. Meanwhile the third is deleted, so that what the call has written to the others is rolled back.
#[tokio::test(flavor = "multi_thread")]
async fn charges_that_are_rolled_back_are_made_again() {
    let schema = Schema::new();
    let store = schema.store().await;
    let earlier = Timestamp::from_nanos(NOW.as_nanos() - u64::try_from(SEGMENT.as_nanos()).unwrap());
    charge(&store, b"b").await;
    charge(&store, b"a").await;
    charge_at(&store, b"c", earlier).await;
    let [mut holder, mut other] = [Holder::begin(&schema).await, Holder::begin(&schema).await];
    // "b" becomes a row that is not committed.
    let second = "(SELECT id FROM {s} ORDER BY id OFFSET 1 LIMIT 1)";
    let keep = format!("CREATE TEMP TABLE kept ON COMMIT DROP AS SELECT * FROM {{s}} WHERE id = {second}");
    holder.run(&keep).await;
    other.run(&format!("DELETE FROM {{s}} WHERE id = {second}")).await;
    other.run("COMMIT; BEGIN").await;
    holder.run("INSERT INTO {s} SELECT * FROM kept").await;
    let charging = tokio::spawn({
        let store = store.clone();
        async move {
            let claims = [&b"a"[..], b"b", b"c"].map(|key| [claim(key)]);
            let slices = claims.each_ref().map(|claim| Claims::new(NOW, Mode::Charge, claim).unwrap());
            store.claim_many(&slices).await
        }
    });
    while !holder.is_waited_for().await {}
    other.run("DELETE FROM {s} WHERE id = (SELECT id FROM {s} ORDER BY id DESC LIMIT 1)").await;
    other.end("COMMIT").await;
    holder.end("ROLLBACK").await;
    for answer in charging.await.unwrap() {
        assert!(answer.unwrap().admitted);
    }
    assert_eq!(remaining(&store, [b"a", b"b", b"c"]).await, [8, 9, 9]);
}
