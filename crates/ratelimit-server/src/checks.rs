//! What the doors call: checks by policy, by descriptor or under limits in the request, and what is done with receipts.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::Context as _;
use http::StatusCode;
use ratelimit_core::store::Applied;
use ratelimit_core::{
    Algorithm, CheckError, Clock as _, Decision, ErrorKind, Limit, Limits, RateLimiter, Request, StoreError,
    SystemClock,
};
use ratelimit_tower::{Answered, Asked, Checker, Head, KeySource, Policies, Policy};

use sha2::{Digest as _, Sha256};

use crate::args::Args;
use crate::receipt::{Receipt, Receipts};
use crate::refusal::Refusal;
use crate::rules::{Rules, RulesFile};
use crate::store::Store;

/// How many domains without an option of their own are remembered. Further ones are answered as well, a little slower.
const REMEMBERED: usize = 1_000;

/// The maximum length of a domain that can be asked for, and of limits in a request.
const LONGEST_NAME: usize = 256;
const LONGEST_LIMITS: usize = 4_096;

/// Begins the keys that are not those of a file's policy, whose keys begin with the length of its name.
const OWN_KEY: u8 = 0xff;

/// The parts of a receipt, each of which is used once: what stays charged, and what is held under concurrency limits.
const PARTS: [&str; 2] = ["charged", "held"];

/// The name of limits in a request, in the fields of the response.
const IN_REQUEST: &str = "request";

/// All that can be asked.
pub(crate) struct Checks {
    store: Store,
    /// The domain of who names none.
    default: Arc<Domain>,
    /// The domains with an option of their own. If there are none, every domain is answered.
    listed: HashMap<String, Arc<Domain>>,
    others: Mutex<HashMap<String, Arc<Domain>>>,
    pub(crate) receipts: Receipts,
    pub(crate) allow_limits: bool,
    /// One receipt is used once in this time.
    once: Limits,
    /// The files, to read them again.
    pub(crate) files: Vec<Arc<RulesFile>>,
}

/// A namespace of counts, and the policies for it.
pub(crate) struct Domain {
    name: String,
    file: Option<Arc<RulesFile>>,
    pub(crate) checker: Checker<Store>,
}

/// What is to be decided.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) asked: Asked,
    /// Whether the policies are those of a file, and not limits of the request.
    pub(crate) is_of_file: bool,
}

/// Why nothing is to be decided, or what.
pub(crate) type Asking = Result<Question, Refusal>;

/// What to do with what a receipt says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Settlement {
    /// Give everything back.
    Refund,
    /// The true cost was this; what is held stays held.
    Settle(u64),
    /// Release what is held; the rest stays charged.
    Release,
}

impl Checks {
    /// Opens the files.
    pub(crate) fn new(args: &Args, store: Store, receipt_key: &[u8]) -> anyhow::Result<Self> {
        let mut files = Vec::new();
        let mut open = |path| {
            let file = RulesFile::open(path).map(Arc::new)?;
            files.push(file.clone());
            anyhow::Ok(file)
        };
        let file = args.config.as_deref().map(&mut open).transpose()?;
        let domain = |name: &str, file| Arc::new(Domain::new(name, file, &store));
        let mut listed = HashMap::new();
        for wanted in &args.domains {
            let file = wanted.file.as_deref().map(&mut open).transpose()?.or_else(|| file.clone());
            listed.insert(wanted.name.clone(), domain(&wanted.name, file));
        }
        let lifetime = args.receipt_lifetime + Duration::from_secs(120);
        let once = Limit::sliding_log(1, lifetime).name("receipt").build().context("--receipt-lifetime")?;
        Ok(Self {
            default: domain(&args.namespace, file),
            files,
            listed,
            others: Mutex::default(),
            receipts: Receipts::new(receipt_key, args.receipt_lifetime),
            allow_limits: args.allow_limits,
            once: once.into(),
            store,
        })
    }

    /// The domain of this name, or that of who names none; `None` if it is not one of those that the options list, or too
    /// long.
    pub(crate) fn domain(&self, name: Option<&str>) -> Option<Arc<Domain>> {
        let Some(name) = name.filter(|name| *name != self.default.name) else {
            return Some(self.default.clone());
        };
        if !self.listed.is_empty() {
            return self.listed.get(name).cloned();
        }
        if name.len() > LONGEST_NAME {
            return None;
        }
        let mut others = self.others.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(domain) = others.get(name) {
            return Some(domain.clone());
        }
        let domain = Arc::new(Domain::new(name, self.default.file.clone(), &self.store));
        if others.len() < REMEMBERED {
            others.insert(name.to_owned(), domain.clone());
        }
        Some(domain)
    }

    /// Like [`domain`](Self::domain), with an error that says what is wrong.
    pub(crate) fn known_domain(&self, name: Option<&str>) -> Result<Arc<Domain>, Refusal> {
        self.domain(name).ok_or_else(|| {
            Refusal::unknown("no such domain: add it with --domain, with a name of at most 256 bytes")
        })
    }

    /// A question that it answers, in JSON: of a policy whose key is one value.
    pub(crate) fn example(&self) -> String {
        let rules = self.default.rules();
        let mut policies = rules.iter().flat_map(|rules| rules.policies.each());
        match policies.find(|policy| policy.source().names().len() == 1) {
            Some(policy) => format!(r#"{{"policy": "{}", "key": "192.0.2.1"}}"#, policy.name()),
            None => r#"{"limits": "10/min", "key": "user:7"}"#.to_owned(),
        }
    }

    /// The receipt of what was charged.
    pub(crate) fn receipt(
        &self,
        domain: &Domain,
        question: &Question,
        answered: &Answered<'_>,
    ) -> Option<String> {
        let decision = answered.decision()?;
        let names = question.asked.each().map(|(name, _)| name).filter(|_| question.is_of_file);
        self.receipts.issue(SystemClock::new().now(), &domain.name, names, decision)
    }

    /// Does this with what a receipt says.
    pub(crate) async fn settle(&self, text: &str, settlement: Settlement) -> Result<(), Refusal> {
        let receipt = self.receipts.read(SystemClock::new().now(), text)?;
        let domain = self
            .domain(Some(&receipt.domain))
            .ok_or_else(|| Refusal::unknown("the receipt is of a domain that this server does not answer"))?;
        domain.knows(&receipt)?;
        // The true cost of each part; `None` for one that stays as it is.
        let wanted = match settlement {
            Settlement::Refund => [Some(0), Some(0)],
            Settlement::Settle(units) => [Some(units), None],
            Settlement::Release => [None, Some(0)],
        };
        let mut open = [None; 2];
        for place in (0..PARTS.len()).filter(|place| wanted[*place].is_some()) {
            match self.spend(&domain, &receipt, PARTS[place]).await {
                Ok(is_open) => open[place] = wanted[place].filter(|_| is_open),
                Err(refusal) => {
                    self.unspend(&domain, &receipt, open).await;
                    return Err(refusal);
                }
            }
        }
        if open == [None; 2] {
            let text =
                "the receipt was used before: each is good for one refund or settlement, and one release";
            return Err(Refusal::new(StatusCode::CONFLICT, text));
        }
        let [charged, held] = open;
        let each = domain.checker.limiter().settle_each(&receipt.decision, |limit| {
            if limit.rule().algorithm() == Algorithm::Concurrency { held } else { charged }
        });
        let outcome = each.await;
        if outcome.as_ref().is_err_and(|error| error.applied() == Applied::No) {
            self.unspend(&domain, &receipt, open).await;
        }
        Ok(outcome.map_err(CheckError::from)?)
    }

    /// Marks a part of a receipt as used, in the store, so that no server accepts it again. Returns whether it was unused. A mark
    /// in the memory of one server would bind none of the others.
    async fn spend(&self, domain: &Domain, receipt: &Receipt, part: &str) -> Result<bool, Refusal> {
        let key = spent_key(receipt, part);
        let decision = domain.checker.limiter().check(Request::new(&key).limits(&self.once)).await?;
        if decision.degraded() {
            let away = "without it, nobody knows whether the receipt was used before; try again later";
            let error = StoreError::new("the store", ErrorKind::Unreachable, away).not_applied();
            return Err(CheckError::from(error).into());
        }
        Ok(decision.allowed())
    }

    /// Makes these parts usable again, because nothing was done with them.
    async fn unspend(&self, domain: &Domain, receipt: &Receipt, parts: [Option<u64>; 2]) {
        for (part, _) in PARTS.iter().zip(parts).filter(|(_, was_open)| was_open.is_some()) {
            let key = spent_key(receipt, part);
            // If this fails, the units stay charged: never too many are admitted.
            let _ = domain.checker.limiter().reset(Request::new(&key).limits(&self.once)).await;
        }
    }
}

fn spent_key(receipt: &Receipt, part: &str) -> Vec<u8> {
    [&[OWN_KEY][..], b"receipt:", part.as_bytes(), &receipt.id].concat()
}

impl Domain {
    fn new(name: &str, file: Option<Arc<RulesFile>>, store: &Store) -> Self {
        let limiter = RateLimiter::without_limits(store.clone()).with_namespace(name);
        Self { name: name.to_owned(), file, checker: Checker::new(limiter) }
    }

    /// The policies in force; `None` without a file.
    pub(crate) fn rules(&self) -> Option<Arc<Rules>> {
        self.file.as_ref().map(|file| file.current())
    }

    pub(crate) fn known_rules(&self) -> Result<Arc<Rules>, Refusal> {
        self.rules().ok_or_else(|| Refusal::unknown("there is no file of policies: start with --config FILE"))
    }

    /// What to decide under a policy: for the client with these values, one for each part of the policy's key, or with a
    /// single text of all parts.
    pub(crate) fn by_policy(&self, name: &str, client: &[&[u8]], cost: u64, plan: Option<&str>) -> Asking {
        let rules = self.known_rules()?;
        let Some(policy) = rules.policies.get(name) else {
            let known: Vec<&str> = rules.policies.each().map(Policy::name).collect();
            return Err(Refusal::unknown(format!(
                "no policy is called {name:?}; use one of {}",
                known.join(", ")
            )));
        };
        if plan.is_some_and(|plan| rules.config.plan(plan).is_none()) {
            return Err(Refusal::unknown("the file has no such plan"));
        }
        let parts = policy.source().names().len();
        let key = match client {
            [text] if parts > 1 => policy.key_of(text),
            values => policy.key_of_values(values),
        };
        let key = key.map_err(|error| Refusal::bad(format!("key: {error}")))?;
        let asked = Asked::of(rules.policies.clone());
        let asked = match rules.plan_of(policy, plan) {
            Some(plan) => asked.policy(name, &key, cost, plan),
            None => asked,
        };
        Ok(Question { asked, is_of_file: true })
    }

    /// What to decide under limits of the request. Limits of the same kind share the counts of a key.
    pub(crate) fn by_limits(&self, limits: &str, key: &[u8], cost: u64) -> Asking {
        if limits.len() > LONGEST_LIMITS {
            return Err(Refusal::bad(format!("limits: the text is longer than {LONGEST_LIMITS} bytes")));
        }
        let limits: Limits = limits.parse().map_err(|error| Refusal::bad(format!("limits: {error}")))?;
        let source = KeySource::function(|_| Option::<&[u8]>::None);
        let made = Policy::new(IN_REQUEST, source, limits).map_err(Refusal::bad)?;
        let key = own_key(&made.key_of_values(&[key]).map_err(Refusal::bad)?);
        let policies = Policies::new([made]).map_err(|error| Refusal::bad(format!("limits: {error}")))?;
        let policies = match self.rules() {
            Some(rules) => policies.like(&rules.policies),
            None => policies,
        };
        Ok(Question {
            asked: Asked::of(Arc::new(policies)).policy(IN_REQUEST, &key, cost, None),
            is_of_file: false,
        })
    }

    /// What to decide about a request with this head.
    pub(crate) fn by_head(&self, head: &Head<'_>) -> Asking {
        let rules = self.known_rules()?;
        Ok(Question { asked: Asked::of_request(rules.by_head.clone(), head), is_of_file: true })
    }

    /// Decides, and charges what is admitted.
    pub(crate) async fn check<'a>(&'a self, question: &'a Question) -> Answered<'a> {
        let answered = self.checker.check(&question.asked).await;
        let degraded = answered.decision().is_some_and(Decision::degraded);
        tracing::debug!(policies = ?question.asked, allowed = answered.allowed(), degraded, "decided");
        answered
    }

    /// How the limits stand; charges nothing.
    pub(crate) async fn peek<'a>(&'a self, question: &'a Question) -> Result<Answered<'a>, Refusal> {
        Ok(self.checker.peek(&question.asked).await?)
    }

    /// Sets the counts of a question's client to zero.
    pub(crate) async fn reset(&self, question: &Question) -> Result<(), Refusal> {
        let Some(request) = question.asked.request() else { return Ok(()) };
        Ok(self.checker.limiter().reset(request).await?)
    }

    /// Returns the cost of a question without a receipt.
    pub(crate) async fn return_units(&self, question: &Question) -> Result<(), Refusal> {
        let Some(request) = question.asked.request() else { return Ok(()) };
        Ok(self.checker.limiter().return_units(request).await?)
    }

    /// Whether the file still has the policies of a receipt.
    fn knows(&self, receipt: &Receipt) -> Result<(), Refusal> {
        if receipt.policies.is_empty() {
            return Ok(());
        }
        let rules = self.known_rules()?;
        let unknown = receipt.policies.iter().find(|name| rules.policies.get(name).is_none());
        match unknown {
            Some(name) => Err(Refusal::unknown(format!(
                "the receipt is of the policy {name:?}, which the file of this server does not have"
            ))),
            None => Ok(()),
        }
    }
}

/// A key that no policy of a file has.
fn own_key(key: &[u8]) -> Vec<u8> {
    [&[OWN_KEY], key].concat()
}

/// The key of a client that is throttled: its hash if it is long, as that of a policy's client.
pub(crate) fn throttled_key(client: &[u8]) -> Vec<u8> {
    match client.len() {
        ..=64 => own_key(&[b"cl.throttle:", client].concat()),
        _ => own_key(&[b"cl.throttle#", &Sha256::digest(client)[..]].concat()),
    }
}
