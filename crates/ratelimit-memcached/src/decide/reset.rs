//! Resets meters.
//!
//! A bucket or log is deleted. A window's counter cannot be deleted: other callers may have reserved units in it that they
//! are about to take back, and they would take them from a new counter. So a mark replaces the counter, and from then on
//! the segment is counted under a name with this mark; see [`window`](crate::decide::window).

use ratelimit_core::StoreError;
use ratelimit_core::kit::all_of;
use ratelimit_core::meter::Meter;
use ratelimit_core::store::Claims;
use tokio::time::Instant;

use crate::decide::claims::MeterLocation;
use crate::decide::space::Space;
use crate::decide::window::{Counters, counters, life};
use crate::servers::Batch;
use crate::wire::commands::Command;
use crate::wire::keys::{MARK, since_reset};
use crate::wire::reply::Counter;

/// Resets the meters of these claims as of their instant: in one round trip, or two if a meter was reset before. The newest
/// counter of a window comes first, see [`window`](crate::decide::window).
pub(crate) async fn forget(space: &Space, claims: Claims<'_>, deadline: Instant) -> Result<(), StoreError> {
    let (mut batch, mark) = (Batch::new(&space.servers), new_mark());
    let (mut places, mut former) = (Vec::new(), Vec::new());
    for claim in claims.iter() {
        let MeterLocation { name, server } = space.location(&claim.id);
        let Meter::Window(window) = &claim.meter else {
            places.push(batch.push(server, &name, Command::Delete));
            continue;
        };
        let Counters { live, past } = counters(&name, window, claims.now());
        // The newest segment may begin after this instant.
        let lifetime = space.lifetimes.token(life(window).saturating_add(window.segment()));
        for key in live {
            let before = batch.push(server, &key, Command::ReadCounter);
            let reset = Command::Reset { mark: mark.clone(), lifetime };
            places.push(batch.push(server, &key, reset));
            former.push((server, key, before, lifetime));
        }
        places.extend(past.iter().map(|key| batch.push(server, key, Command::Delete)));
    }
    let answers = batch.send(deadline).await;
    all_of(places.into_iter().map(|place| answers.reply(place).clone().map(drop)))?;
    let mut batch = Batch::new(&space.servers);
    for (server, key, before, lifetime) in former {
        if let Ok(Counter::Reset(former)) =
            answers.reply(before).as_ref().map_err(StoreError::clone)?.counter()
        {
            // Claims that have read the former mark are on their way to this counter. They must not create it again.
            let reset = Command::Reset { mark: mark.clone(), lifetime };
            batch.push(server, &since_reset(&key, former), reset);
        }
    }
    batch.send(deadline).await;
    Ok(())
}

/// A mark that no other reset has.
fn new_mark() -> String {
    use std::hash::{BuildHasher, RandomState};
    format!("{:0MARK$x}", RandomState::new().hash_one(MARK))
}
