//! Stores that keep a lock when a call is dropped.

use super::flaw::Call;

flaws! {
    OfClaims "latch": "a dropped claim keeps the lock", "cancelled/others-go-on" {
        fn latched(&self, call: Call) -> bool {
            call == Call::Claim
        }
    }
    OfBatches "batch-latch": "a dropped batch keeps the lock of batches", "dropped/batches-whole-or-not-at-all" {
        fn latched(&self, call: Call) -> bool {
            call == Call::Batch
        }
    }
    OfRefunds "refund-latch": "a dropped refund keeps the lock of refunds",
        "dropped/refunds-whole-or-not-at-all" {
        fn latched(&self, call: Call) -> bool {
            call == Call::Refund
        }
    }
    OfResets "reset-latch": "a dropped reset keeps the lock of resets", "dropped/resets-whole-or-not-at-all" {
        fn latched(&self, call: Call) -> bool {
            call == Call::Reset
        }
    }
}
