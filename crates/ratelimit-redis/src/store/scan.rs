//! Lists the meters of a server or of a cluster, for an operator's tool.

use std::sync::Arc;
use std::time::Duration;

use ratelimit_core::kit::MeterScan;
use ratelimit_core::store::MeterId;
use ratelimit_core::{ErrorKind, StoreError};
use redis::{Value, cmd};
use tokio::time::Instant;

use crate::decide::calls::Calls;
use crate::error::ERRORS;
use crate::servers::server::Server;
use crate::store::RedisStore;
use crate::wire::keys::{StoredKey, pattern_of};
use crate::wire::value::{list, text};

/// How many keys a server reads for one `SCAN`. It does nothing else meanwhile.
const PAGE: usize = 1_000;

/// A server, or the node of a cluster, and how far it has been read.
struct Progress {
    /// `None` is the only server.
    node: Option<Arc<Server>>,
    /// The cursor of `SCAN`.
    cursor: u64,
    /// Whether all of it has been read. A cursor of zero means that only in a reply.
    has_ended: bool,
}

impl Progress {
    fn begin(node: Option<Arc<Server>>) -> Self {
        Self { node, cursor: 0, has_ended: false }
    }
}

impl RedisStore {
    /// Calls `visit` with the name of each meter of this namespace. Stops after about `most` keys, counted over all nodes
    /// of a cluster.
    ///
    /// For tools, not for decisions: it reads every key of the database, also those of other programs, in steps of 1,000
    /// with `SCAN`. A server is busy for well below a millisecond with each step. A meter that is charged meanwhile may be
    /// visited twice or not at all. Meters whose namespace and key together exceed 200 bytes are only
    /// [counted](MeterScan::digests), those of all namespaces. Names contain keys, which may be personal data.
    ///
    /// # Errors
    /// If a server does not answer or forbids `SCAN`. [`ErrorKind::Unsupported`] if the store uses your own
    /// [connection](Self::with_cluster_connection) or pool to a cluster: that sends a `SCAN` to any one of the nodes.
    pub async fn scan_meters(
        &self,
        namespace: &str,
        most: usize,
        mut visit: impl FnMut(&MeterId<'_>) + Send,
    ) -> Result<MeterScan, StoreError> {
        let calls = self.calls();
        let mut scan = MeterScan::default();
        let mut open = begin(calls).await?;
        while scan.looked_at < most && !open.is_empty() {
            for progress in &mut open {
                let count = most.saturating_sub(scan.looked_at).min(PAGE);
                if count == 0 {
                    break;
                }
                for name in page(calls, progress, count, None).await? {
                    scan.looked_at += 1;
                    match StoredKey::read(&calls.prefix, &name) {
                        StoredKey::Meter { namespace: stored, scope, key } if stored == namespace => {
                            visit(&MeterId { namespace, scope: &scope, key: &key });
                        }
                        StoredKey::Digest => scan.digests += 1,
                        StoredKey::Meter { .. } | StoredKey::Other => {}
                    }
                }
            }
            open.retain(|progress| !progress.has_ended);
        }
        scan.more = !open.is_empty();
        Ok(scan)
    }

    /// Calls `visit` with the name of each meter of this key, in whichever namespace and scope it is: for people who look for
    /// the limits under which a client is counted.
    ///
    /// **Slow.** The server goes through all names of its database, in steps of 1,000 with `SCAN` and `MATCH`, each of which
    /// keeps it busy for well below a millisecond. Stops after `most` names or after this time, and says in
    /// [`more`](MeterScan::more) whether names are left. Does not find meters whose namespace and key together exceed 200
    /// bytes. A meter may be visited twice.
    ///
    /// # Errors
    /// As [`scan_meters`](Self::scan_meters).
    pub async fn meters_of(
        &self,
        key: &[u8],
        most: usize,
        within: Duration,
        mut visit: impl FnMut(&MeterId<'_>) + Send,
    ) -> Result<MeterScan, StoreError> {
        let (calls, until) = (self.calls(), Instant::now() + within);
        let pattern = pattern_of(&calls.prefix, key);
        let mut scan = MeterScan::default();
        let mut open = begin(calls).await?;
        while !open.is_empty() {
            for progress in &mut open {
                let count = most.saturating_sub(scan.looked_at).min(PAGE);
                if count == 0 || Instant::now() >= until {
                    scan.more = true;
                    return Ok(scan);
                }
                scan.looked_at += count;
                for name in page(calls, progress, count, Some(&pattern)).await? {
                    if let StoredKey::Meter { namespace, scope, key: stored } =
                        StoredKey::read(&calls.prefix, &name)
                        && stored == key
                    {
                        visit(&MeterId { namespace: &namespace, scope: &scope, key });
                    }
                }
            }
            open.retain(|progress| !progress.has_ended);
        }
        Ok(scan)
    }
}

/// The servers to read, from their beginning.
async fn begin(calls: &Calls) -> Result<Vec<Progress>, StoreError> {
    if let Some(cluster) = calls.link.cluster() {
        let mut nodes = cluster.serving();
        if nodes.is_empty() {
            // The store has not been used yet.
            cluster.connect(calls.deadline()).await?;
            nodes = cluster.serving();
        }
        return Ok(nodes.into_iter().map(|node| Progress::begin(Some(node))).collect());
    }
    if calls.link.has_slots() {
        let message = "the meters of a cluster cannot be listed over a connection of your own; open the store with an address";
        return Err(ERRORS.of(ErrorKind::Unsupported, message).at(calls.link.address()));
    }
    Ok(vec![Progress::begin(None)])
}

/// The next keys of a server: of as many as `count`, those that match the pattern, if there is one.
async fn page(
    calls: &Calls,
    progress: &mut Progress,
    count: usize,
    pattern: Option<&[u8]>,
) -> Result<Vec<Vec<u8>>, StoreError> {
    let mut scan = cmd("SCAN");
    scan.arg(progress.cursor).arg("COUNT").arg(count);
    if let Some(pattern) = pattern {
        scan.arg("MATCH").arg(pattern);
    }
    let reply = match &progress.node {
        Some(node) => node.send(&scan, calls.deadline()).await,
        None => calls.link.send(scan, calls.deadline()).await,
    };
    let reply = reply.map_err(|failure| match failure.kind() {
        ErrorKind::Denied => {
            let message = "the user may not list keys; it needs the command SCAN";
            ERRORS.of(ErrorKind::Denied, message).at(calls.link.address())
        }
        _ => failure,
    })?;
    let (cursor, names) = read(&reply).ok_or_else(|| {
        ERRORS.of(ErrorKind::Server, "the reply to SCAN is not a list of keys").at(calls.link.address())
    })?;
    (progress.cursor, progress.has_ended) = (cursor, cursor == 0);
    Ok(names)
}

/// The cursor and the keys in a reply.
fn read(reply: &Value) -> Option<(u64, Vec<Vec<u8>>)> {
    let [cursor, names] = list(reply)? else { return None };
    let bytes = |name: &Value| if let Value::BulkString(bytes) = name { Some(bytes.clone()) } else { None };
    Some((text(cursor)?.parse().ok()?, list(names)?.iter().map(bytes).collect::<Option<_>>()?))
}
