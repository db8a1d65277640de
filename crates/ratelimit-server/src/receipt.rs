//! Receipts: what a check has charged, signed, so that a client can give it back and cannot make one up.
//!
//! A receipt is the unpadded base64url of a tag and of what it signs: when it was issued, the domain, the policies, and the
//! decision as bytes. It contains everything that is needed to give the units back, so that servers with the same key accept
//! each other's.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::StatusCode;
use ratelimit_core::{Decision, Timestamp};
use sha2::Sha256;

use crate::refusal::Refusal;

type HmacSha256 = Hmac<Sha256>;

/// How many bytes of the HMAC a receipt has.
const TAG: usize = 32;

/// The maximum length of a receipt. One of 64 limits is shorter.
const LONGEST: usize = 32 * 1_024;

/// How much a clock of another server may be ahead.
const AHEAD: Duration = Duration::from_secs(60);

/// Signs receipts, and checks them.
#[derive(Clone)]
pub(crate) struct Receipts {
    key: HmacSha256,
    lifetime: Duration,
}

/// What a genuine receipt says.
#[derive(Debug)]
pub(crate) struct Receipt {
    pub(crate) domain: String,
    /// The policies that were charged; none for limits in the request.
    pub(crate) policies: Vec<String>,
    pub(crate) decision: Decision<'static>,
    /// Tells receipts apart.
    pub(crate) id: [u8; TAG],
}

impl Receipts {
    /// Signs with this key.
    pub(crate) fn new(key: &[u8], lifetime: Duration) -> Self {
        // A key of any length is valid.
        let key = HmacSha256::new_from_slice(key).unwrap_or_else(|_| HmacSha256::new(&Default::default()));
        Self { key, lifetime }
    }

    /// The receipt of a decision; `None` if it has charged nothing.
    pub(crate) fn issue<'p>(
        &self,
        now: Timestamp,
        domain: &str,
        policies: impl Iterator<Item = &'p str>,
        decision: &Decision<'_>,
    ) -> Option<String> {
        // The tag is put in its place at the end.
        let mut bytes = Vec::with_capacity(256);
        bytes.extend([0; TAG]);
        bytes.extend(now.as_nanos().to_le_bytes());
        let policies: Vec<&str> = policies.collect();
        for part in [domain, &policies.join("\n")] {
            bytes.extend(u32::try_from(part.len()).ok()?.to_le_bytes());
            bytes.extend(part.as_bytes());
        }
        bytes.extend(decision.to_bytes()?);
        let tag = self.key.clone().chain_update(&bytes[TAG..]).finalize().into_bytes();
        bytes[..TAG].copy_from_slice(&tag);
        Some(URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Reads a receipt.
    pub(crate) fn read(&self, now: Timestamp, text: &str) -> Result<Receipt, Refusal> {
        if text.len() > LONGEST {
            return Err(forged());
        }
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| forged())?;
        let (id, signed) = bytes.split_first_chunk::<TAG>().ok_or_else(forged)?;
        // Compared in constant time.
        self.key.clone().chain_update(signed).verify_slice(id).map_err(|_| forged())?;
        let (issued, receipt) = parse(*id, signed).ok_or_else(forged)?;
        if now.since(issued) > self.lifetime || issued.since(now) > AHEAD {
            let text = "the receipt is too old: give units back sooner, or raise --receipt-lifetime";
            return Err(Refusal::new(StatusCode::GONE, text));
        }
        Ok(receipt)
    }
}

fn forged() -> Refusal {
    Refusal::bad(
        "this is not a receipt of this server: it was changed, or another server has issued it, or this one before it was \
         restarted. To share receipts, start all servers with the same --receipt-key",
    )
}

fn parse(id: [u8; TAG], signed: &[u8]) -> Option<(Timestamp, Receipt)> {
    let (issued, mut rest) = signed.split_first_chunk()?;
    let mut part = || {
        let (length, after) = rest.split_first_chunk()?;
        let (part, after) = after.split_at_checked(usize::try_from(u32::from_le_bytes(*length)).ok()?)?;
        rest = after;
        str::from_utf8(part).ok()
    };
    let (domain, policies) = (part()?.to_owned(), part()?);
    let policies = policies.split('\n').filter(|name| !name.is_empty()).map(str::to_owned).collect();
    let decision = Decision::from_bytes(rest)?;
    Some((Timestamp::derived(u64::from_le_bytes(*issued)), Receipt { domain, policies, decision, id }))
}

#[cfg(test)]
mod tests {
    use ratelimit_core::{Limits, ManualClock, RateLimiter, Request};
    use ratelimit_memory::MemoryStore;

    use super::*;

    const KEY: &[u8] = b"0123456789abcdef0123456789abcdef";

    fn issue(receipts: &Receipts, now: Timestamp) -> String {
        let limits: Limits = "10/min; 2 at once".parse().unwrap();
        let limiter = RateLimiter::without_limits(MemoryStore::new()).with_clock(ManualClock::at(now));
        let decision = limiter.check_now(Request::new("a").limits(&limits)).unwrap();
        receipts.issue(now, "d\u{f6}main", ["p", "q"].into_iter(), &decision).unwrap()
    }

    fn status(read: Result<Receipt, Refusal>) -> u16 {
        read.map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
    }

    #[test]
    fn a_receipt_is_read_until_it_is_old() {
        let (receipts, now) = (Receipts::new(KEY, Duration::from_secs(60)), Timestamp::from_secs(1_000));
        let text = issue(&receipts, now);
        let receipt = receipts.read(now, &text).unwrap();
        assert_eq!(
            (&*receipt.domain, receipt.policies),
            ("d\u{f6}main", vec!["p".to_owned(), "q".to_owned()])
        );
        assert_eq!(receipt.decision.each().len(), 2);
        let read = |seconds| status(receipts.read(Timestamp::from_secs(seconds), &text));
        assert_eq!((read(1_060), read(1_061), read(940)), (200, 410, 200));
        assert_eq!(read(939), 410, "issued by a clock that is far ahead");
    }

    #[test]
    fn no_byte_can_be_changed() {
        let (receipts, now) = (Receipts::new(KEY, Duration::from_secs(60)), Timestamp::from_secs(1_000));
        let text = issue(&receipts, now);
        let bytes = URL_SAFE_NO_PAD.decode(&text).unwrap();
        for place in 0..bytes.len() {
            let mut changed = bytes.clone();
            changed[place] ^= 1;
            let read = receipts.read(now, &URL_SAFE_NO_PAD.encode(&changed));
            assert_eq!(status(read), 400, "{place}");
        }
        let longer = text.clone() + "AAAA";
        for forged in ["", "a", "===", &text[..text.len() - 4], &longer, &"A".repeat(LONGEST + 1), "\u{e4}"] {
            assert_eq!(status(receipts.read(now, forged)), 400);
        }
        let other = Receipts::new(b"another key of thirty-two bytes.", Duration::from_secs(60));
        assert_eq!(status(other.read(now, &text)), 400);
    }
}
