//! Lists the meters in the table, for an operator's tool.

use ratelimit_core::kit::MeterScan;
use ratelimit_core::{MeterId, StoreError};

use crate::call::Argument::{BigInt, Bytes};
use crate::call::Call;
use crate::claims::names_of;
use crate::schema::Function;
use crate::store::PostgresStore;

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
        let [after, before] = names_of(namespace);
        let mut own = Range { after, before };
        while let Some(names) = self.page(&mut own, &mut scan, most).await? {
            for id in names.iter().filter_map(|name| MeterId::from_bytes(name)) {
                visit(&id);
            }
        }
        let [after, before] = DIGESTS.map(<[u8]>::to_vec);
        let mut digests = Range { after, before };
        while let Some(names) = self.page(&mut digests, &mut scan, most).await? {
            scan.digests += names.len();
        }
        Ok(scan)
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
        let wanted = i64::try_from(count + 1).unwrap_or(i64::MAX);
        let arguments = [Bytes(range.after.clone()), Bytes(range.before.clone()), BigInt(wanted)];
        let call = Call::new(Function::Names, arguments);
        let (mut names,): (Vec<Vec<u8>>,) = self.link().run(&call, self.link().deadline()).await?;
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
