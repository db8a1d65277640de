//! Where the store counts a key, if nobody has used the limits that were asked for.

use std::collections::BTreeSet;
use std::time::Duration;

use ratelimit_core::Clock as _;
use serde::Serialize;

use crate::store::Opened;
use crate::subject::{Key, Limiter};
use crate::table::Table;
use crate::text::escape;

/// How many names a search goes through, and for how long.
const MOST: usize = 1_000_000;
const WITHIN: Duration = Duration::from_secs(2);

/// How many places the text names.
const SHOWN: usize = 20;

/// Keys of this length may have names that are digests.
const LONG: usize = 100;

const NOT_USED: &str = "Nobody has used these limits, or what was used is over.";

/// The other namespaces and kinds of limits under which the store counts a key.
#[derive(Serialize)]
pub(crate) struct Elsewhere {
    meters: BTreeSet<Place>,
    /// Whether the store was searched to its end.
    complete: bool,
    /// Why it was not.
    #[serde(skip)]
    incomplete_because: Option<String>,
}

#[derive(Serialize, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    namespace: String,
    scope: String,
    /// Whether it is a count of a window of `Synced`.
    synced: bool,
}

impl Elsewhere {
    /// Searches the store. Never fails: the status of the key is there all the same.
    pub(crate) async fn find(opened: &Opened, limiter: &Limiter, key: &Key) -> Self {
        let now = limiter.clock().now();
        let asked: BTreeSet<String> =
            limiter.limits().iter().map(|limit| limit.at(now).scope().to_owned()).collect();
        let mut meters = BTreeSet::new();
        let searched = opened.meters_of(&key.bytes, MOST, WITHIN, |id| {
            if id.namespace == limiter.namespace() && asked.contains(id.scope) {
                return; // empty, or over
            }
            // `Synced` has a window for each segment: `scope#segment`.
            let (scope, synced) = match id.scope.rsplit_once('#') {
                Some((scope, _)) => (scope, true),
                None => (id.scope, false),
            };
            meters.insert(Place { namespace: id.namespace.to_owned(), scope: scope.to_owned(), synced });
        });
        let incomplete_because = match searched.await {
            Ok(Some(scan)) if scan.more => {
                Some(format!("The search has ended after {WITHIN:?}; there are more names in the store."))
            }
            Ok(Some(_)) if key.bytes.len() > LONG => {
                Some("Names longer than 200 bytes are stored as digests, which a search does not find.".to_owned())
            }
            Ok(Some(_)) => None,
            Ok(None) => Some(
                "This store cannot list its keys, because its server has no command for that: it is not known what else it counts."
                    .to_owned(),
            ),
            Err(error) => Some(format!("The store could not be searched: {error}")),
        };
        Self { meters, complete: incomplete_because.is_none(), incomplete_because }
    }

    /// What to print after the status of a key in this namespace.
    pub(crate) fn text(&self, namespace: &str) -> String {
        let mut text = match (self.meters.is_empty(), self.complete) {
            (true, true) => format!("{NOT_USED} The store has no other count of this key.\n"),
            (true, false) => {
                format!(
                    "{NOT_USED} Are the namespace, {}, and the limits those of your program?\n",
                    shown(namespace)
                )
            }
            (false, _) => format!("{NOT_USED} The store counts this key elsewhere:\n{}", self.table()),
        };
        if let Some(because) = &self.incomplete_because {
            text += because;
            text.push('\n');
        }
        text
    }

    fn table(&self) -> String {
        let mut table = Table::new(&["NAMESPACE", "KIND OF LIMIT"]).with_text_last();
        for Place { namespace, scope, synced } in self.meters.iter().take(SHOWN) {
            let of = if *synced { " (of Synced)" } else { "" };
            table.row([shown(namespace), format!("{}{of}", escape(scope.as_bytes()))]);
        }
        match self.meters.len().saturating_sub(SHOWN) {
            0 => table.to_string(),
            more => format!("{table}and {more} more\n"),
        }
    }
}

/// A namespace in quotes, because it may be empty.
fn shown(namespace: &str) -> String {
    format!("\"{}\"", escape(namespace.as_bytes()))
}
