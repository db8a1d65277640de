//! The crate `limitador` on Redis.
//!
//! Its Redis storage does not build without RocksDB. So its own limiter runs here on a storage that sends the same commands:
//! a script that reads the counter and its lifetime, and then one that counts.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use async_trait::async_trait;
use limitador::AsyncRateLimiter;
use limitador::counter::Counter;
use limitador::limit::{Limit, Namespace};
use limitador::storage::{AsyncCounterStorage, Authorization, StorageErr};
use redis::Script;
use redis::aio::MultiplexedConnection;

use super::load::{Chooser, Remote};
use super::redis_connection;
use crate::contestants::limitador::{context, limit};

/// As in limitador 0.14.
const READ: &str = "local res = {} \
    for _, key in ipairs(KEYS) do \
      table.insert(res, redis.call('get', key)) \
      table.insert(res, redis.call('pttl', key)) \
    end \
    return res";

/// As in limitador 0.14.
const UPDATE: &str = "local c = redis.call('incrby', KEYS[1], ARGV[2]) \
    if c == tonumber(ARGV[2]) then \
      redis.call('expire', KEYS[1], ARGV[1], 'NX') \
      redis.call('sadd', KEYS[2], KEYS[1]) \
    end \
    return c";

pub(super) struct Limitador {
    limiter: AsyncRateLimiter,
    namespace: Namespace,
}

/// Connects the limiter.
pub(super) async fn connect(url: &str) -> Result<Limitador> {
    let storage = Storage { connection: redis_connection::connect(url).await? };
    let limiter = AsyncRateLimiter::new_with_storage(Box::new(storage));
    limiter.add_limit(limit(1_000_000_000, 3_600));
    Ok(Limitador { limiter, namespace: "bench".into() })
}

impl Remote for Limitador {
    async fn call(&self, keys: &mut Chooser) -> Result<u64> {
        let context = context(keys.one());
        let answer = self.limiter.check_rate_limited_and_update(&self.namespace, &context, 1).await;
        ensure!(!answer.map_err(|error| anyhow::anyhow!("{error}"))?.limited, "it was refused");
        Ok(1)
    }
}

struct Storage {
    connection: MultiplexedConnection,
}

/// Errors of the crate cannot be created outside of it. A panic ends the run like an error.
#[allow(clippy::needless_pass_by_value, reason = "it ends here")]
fn failed<T>(error: redis::RedisError) -> T {
    panic!("limitador: {error}")
}

#[async_trait]
impl AsyncCounterStorage for Storage {
    async fn check_and_update<'a>(
        &self,
        counters: &mut Vec<Counter>,
        delta: u64,
    ) -> std::result::Result<Authorization, StorageErr> {
        let mut connection = self.connection.clone();
        let key = |counter: &Counter| {
            let text = serde_json::to_string(counter).unwrap_or_default();
            format!("namespace:{{{}}},counter:{text}", counter.namespace().as_ref())
        };
        let keys: Vec<String> = counters.iter().map(key).collect();
        let read = Script::new(READ);
        let mut invocation = read.prepare_invoke();
        for key in &keys {
            invocation.key(key);
        }
        let values: Vec<Option<i64>> = invocation.invoke_async(&mut connection).await.unwrap_or_else(failed);
        for (counter, value) in counters.iter_mut().zip(values.chunks(2)) {
            let used = u64::try_from(value[0].unwrap_or(0)).unwrap_or(0);
            counter.set_remaining(counter.max_value().saturating_sub(used));
            let left = value.get(1).copied().flatten().and_then(|millis| u64::try_from(millis).ok());
            counter.set_expires_in(left.map_or(counter.window(), Duration::from_millis));
            if used + delta > counter.max_value() {
                return Ok(Authorization::Limited(None));
            }
        }
        let update = Script::new(UPDATE);
        for (counter, key) in counters.iter().zip(&keys) {
            let of_limit = serde_json::to_string(counter.limit()).unwrap_or_default();
            let of_limit = format!("namespace:{{bench}},counters_of_limit:{of_limit}");
            let mut invocation = update.key(key);
            invocation.key(of_limit).arg(counter.window().as_secs()).arg(delta);
            invocation.invoke_async::<i64>(&mut connection).await.unwrap_or_else(failed);
        }
        Ok(Authorization::Ok)
    }

    async fn is_within_limits(&self, _: &Counter, _: u64) -> std::result::Result<bool, StorageErr> {
        unreachable!("a check asks for nothing else")
    }

    async fn update_counter(&self, _: &Counter, _: u64) -> std::result::Result<(), StorageErr> {
        unreachable!("a check asks for nothing else")
    }

    async fn check<'a>(
        &self,
        _: &mut Vec<Counter>,
        _: u64,
    ) -> std::result::Result<Authorization, StorageErr> {
        unreachable!("a check asks for nothing else")
    }

    async fn get_counters(
        &self,
        _: &HashSet<Arc<Limit>>,
    ) -> std::result::Result<HashSet<Counter>, StorageErr> {
        unreachable!("a check asks for nothing else")
    }

    async fn delete_counters(&self, _: &HashSet<Arc<Limit>>) -> std::result::Result<(), StorageErr> {
        unreachable!("a check asks for nothing else")
    }

    async fn clear(&self) -> std::result::Result<(), StorageErr> {
        unreachable!("a check asks for nothing else")
    }
}
