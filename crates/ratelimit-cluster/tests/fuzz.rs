//! A fuzz target: a node that receives any messages, in any order.

use futures::executor::block_on;
use ratelimit_cluster::{Hub, ReplicaConfig, Replicated};
use ratelimit_core::store::{Claim, Claims, MeterId, Mode};
use ratelimit_core::{Limit, SyncCounterStore as _, Timestamp};
use ratelimit_fuzz::{Input, check_verdict, fuzz};

const NOW: Timestamp = Timestamp::from_secs(1_800_000_000);
const MAX_KEYS: usize = 20;
const LIMITS: [&str; 4] = ["100/min fixed", "100/min precision 15s", "100/min burst 100", "100/min log"];

/// The input is messages, each after two bytes: what to do before it, and its length.
#[test]
fn messages() {
    fuzz!("tests", "messages", |bytes| {
        let config = ReplicaConfig::default().max_keys(MAX_KEYS).history_bytes(4_096).id(7);
        let node = Replicated::with_config(Hub::new().transport(), config);
        let mut input = Input::new(bytes);
        while !input.is_empty() {
            if input.byte() % 4 == 1 {
                block_on(node.broadcast(NOW)).expect("a hub");
            }
            let message = input.some();
            let (before, stats) = (node.len(), node.stats());
            block_on(node.receive(message, NOW));
            let after = node.stats();
            assert!(node.len() <= MAX_KEYS);
            let is_update = message.get(1) == Some(&1);
            if is_update && after.malformed > stats.malformed {
                assert_eq!(node.len(), before, "a malformed update is not applied in part");
            }
        }
        // Whatever it counts now, it can decide.
        for text in LIMITS {
            let limit: Limit = text.parse().expect("a limit");
            for key in [&b"k"[..], b"other"] {
                let id = MeterId { namespace: "", scope: limit.scope(), key };
                let meter = limit.meter_for(key);
                for (mode, now) in [
                    (Mode::Peek, NOW),
                    (Mode::Charge, NOW),
                    (Mode::Force, NOW),
                    (Mode::Charge, Timestamp::MAX),
                ] {
                    let claims = [Claim { id, cost: 1, meter }];
                    let claims = Claims::new(now, mode, &claims).expect("a claim");
                    if let Ok(answer) = node.claim_now(claims) {
                        check_verdict(&answer.verdicts[0], &meter, now);
                    }
                }
            }
        }
    });
}
