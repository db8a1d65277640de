//! Lists the meters in the table, for an operator's tool: ranges of an index, where Redis has only a cursor over all keys. What
//! both report is a [`MeterScan`].

use std::time::Duration;

use ratelimit_core::StoreError;
use ratelimit_core::kit::MeterScan;
use ratelimit_core::store::MeterId;
use tokio::time::Instant;

use crate::store::PostgresStore;
use crate::wire::call::Argument::{BigInt, Bytes};
use crate::wire::call::Call;
use crate::wire::claims::{all_names, name_of, names_of, only_name};
use crate::wire::schema::Function;

/// How many names one statement reads.
const PAGE: usize = 1_000;

/// Between these are the names that were replaced by a digest.
const DIGESTS: [&[u8]; 2] = [b"#", b"$"];

impl PostgresStore {
    /// Calls `visit` with the name of each meter of this namespace, in the order of their names, until it has read `most`
    /// names. Expired meters that have not been [pruned](Self::prune) are among them.
    ///
    /// For tools, not for decisions: it reads the index of the table in steps of 1,000 names, without locks. Meters whose
    /// names exceed 200 bytes are only [counted](MeterScan::digests), those of all namespaces. Names contain keys, which
    /// may be personal data.
    ///
    /// # Errors
    /// If the server does not answer, or if the table is missing.
    pub async fn scan_meters(
        &self,
        namespace: &str,
        most: usize,
        mut visit: impl FnMut(&MeterId<'_>) + Send,
    ) -> Result<MeterScan, StoreError> {
        let mut scan = MeterScan::default();
        let mut of_namespace = Range::from(names_of(namespace));
        while let Some(names) = self.page(&mut of_namespace, &mut scan, most).await? {
            for id in names.iter().filter_map(|name| MeterId::from_bytes(name)) {
                visit(&id);
            }
        }
        let mut digests = Range::from(DIGESTS.map(<[u8]>::to_vec));
        while let Some(names) = self.page(&mut digests, &mut scan, most).await? {
            scan.digests += names.len();
        }
        Ok(scan)
    }

    /// Calls `visit` with the name of each meter of this key, in whichever namespace and scope it is: for people who look for
    /// the limits under which a client is counted.
    ///
    /// **Slow.** It finds each namespace and scope in the index of the table, one after another, and then the key in it: two
    /// statements for each, which read one row each. Stops after as many as `most` of them, or after this time, and says in
    /// [`more`](MeterScan::more) whether there are others. Does not find meters in a namespace and scope in which all names
    /// exceed 200 bytes. [`looked_at`](MeterScan::looked_at) is the number of names that it has read.
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
        let until = Instant::now() + within;
        let mut scan = MeterScan::default();
        let mut rest = Range::from(all_names());
        for scopes in 0.. {
            let Some(name) = self.first(&rest, &mut scan).await? else { break };
            if scopes == most || Instant::now() >= until {
                scan.more = true;
                break;
            }
            let Some(found) = MeterId::from_bytes(&name) else {
                rest.after.clone_from(&name); // of another program
                continue;
            };
            let id = MeterId { key, ..found };
            if self.first(&only_name(&name_of(&id)).into(), &mut scan).await?.is_some() {
                visit(&id);
            }
            // After the names of this namespace and scope.
            rest.after = MeterId { key: &[0xff; 256], ..found }.to_bytes();
        }
        Ok(scan)
    }

    /// The first name of a range.
    async fn first(&self, range: &Range, scan: &mut MeterScan) -> Result<Option<Vec<u8>>, StoreError> {
        let mut names = self.names(range, 1).await?;
        scan.looked_at += names.len();
        Ok(names.pop())
    }

    /// The first names of a range, at most `count`.
    async fn names(&self, range: &Range, count: usize) -> Result<Vec<Vec<u8>>, StoreError> {
        let count = BigInt(i64::try_from(count).unwrap_or(i64::MAX));
        let arguments = [Bytes(range.after.clone()), Bytes(range.before.clone()), count];
        let call = Call::new(Function::Names, arguments);
        let (names,): (Vec<Vec<u8>>,) = self.link().run(&call, self.link().deadline()).await?;
        Ok(names)
    }

    /// The next names of a range; `None` at its end, or if `most` names have been read.
    async fn page(
        &self,
        range: &mut Range,
        scan: &mut MeterScan,
        most: usize,
    ) -> Result<Option<Vec<Vec<u8>>>, StoreError> {
        let count = most.saturating_sub(scan.looked_at).min(PAGE);
        // The statement reads one name more than needed, to see whether there are more.
        let mut names = self.names(range, count + 1).await?;
        let goes_on = names.len() > count;
        names.truncate(count);
        scan.looked_at += names.len();
        scan.more |= goes_on && scan.looked_at >= most;
        match names.last() {
            Some(last) => range.after.clone_from(last),
            None => return Ok(None),
        }
        Ok(Some(names))
    }
}

/// Names between these two, without them.
struct Range {
    after: Vec<u8>,
    before: Vec<u8>,
}

impl From<[Vec<u8>; 2]> for Range {
    fn from([after, before]: [Vec<u8>; 2]) -> Self {
        Self { after, before }
    }
}
