//! The table and the functions on the server: their names and their text.

use std::fmt::Write as _;
use std::sync::Arc;

use ratelimit_core::{ErrorKind, StoreError};
use sha2::{Digest, Sha256};

use crate::config::{Logged, PostgresConfig};
use crate::error::STORE;
use crate::take::MANY_ANSWERS;

/// In the order in which they are made. The names in them are those of the default configuration.
const PARTS: [&str; 11] = [
    include_str!("sql/table.sql"),
    include_str!("sql/state.sql"),
    include_str!("sql/window.sql"),
    include_str!("sql/bucket.sql"),
    include_str!("sql/log.sql"),
    include_str!("sql/meter.sql"),
    include_str!("sql/decide.sql"),
    include_str!("sql/claim.sql"),
    include_str!("sql/take.sql"),
    include_str!("sql/refund.sql"),
    include_str!("sql/prune.sql"),
];

/// What stands in more than one function: statements, and the variables that they need.
const STEP: &str = include_str!("sql/step.sql");
const STEP_VARIABLES: &str = "becomes bigint[]; now bigint; owed bigint; aged bigint; current bigint; previous bigint; \
    room bigint; fits boolean;";

/// What holds on our own connections, and what the functions that are called from outside set for their own duration: rows are
/// found by their name and in the order that they are given in, whatever the statistics say, and plans are made once.
pub(crate) const SETTINGS: [(&str, &str); 5] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// The longest prefix, so that all names keep within PostgreSQL's 63 bytes.
const MAX_PREFIX: usize = 32;

/// Where the table and the functions are.
#[derive(Debug)]
pub(crate) struct Names {
    schema: String,
    prefix: String,
    pub(crate) claim: Arc<str>,
    pub(crate) take: Arc<str>,
    pub(crate) take_one: Arc<str>,
    pub(crate) refund: Arc<str>,
    pub(crate) reset: Arc<str>,
    pub(crate) prune: Arc<str>,
}

impl Names {
    /// `own` for connections that have our settings.
    pub(crate) fn new(config: &PostgresConfig, own: bool) -> Result<Self, StoreError> {
        let PostgresConfig { schema, prefix, .. } = config;
        let refused = |message| Err(StoreError::new(STORE, ErrorKind::Unsupported, message));
        if schema.is_empty() || schema.len() > 63 || schema.contains(['\0', '\'', '"', '\\', '$']) {
            return refused("the schema must have a name of 1 to 63 bytes, without quotes, `\\` and `$`");
        }
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if prefix.len() > MAX_PREFIX
            || !prefix.bytes().all(good)
            || prefix.starts_with(|first: char| first.is_ascii_digit())
        {
            return refused(
                "the prefix may have lower-case letters, digits and `_`, not first a digit, at most 32",
            );
        }
        let call = |function: &str, arguments: &str| -> Arc<str> {
            format!("SELECT {}{prefix}{function}_v1({arguments})", quoted(schema)).into()
        };
        let take = format!("CALL {}{prefix}take_v1($1, $2, $3, $4, $5, $6, $7", quoted(schema));
        let take_one = if own { "take_one" } else { "take_one_pooled" };
        Ok(Self {
            schema: schema.clone(),
            prefix: prefix.clone(),
            claim: call("claim", "$1, $2, $3, $4, $5, $6"),
            take: format!("{take}{})", ", NULL".repeat(MANY_ANSWERS)).into(),
            take_one: call(take_one, "$1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15"),
            refund: call("refund", "$1, $2, $3, $4"),
            reset: call("reset", "$1"),
            prune: call("prune", "$1, $2"),
        })
    }

    /// All that has to be on the server, as one script.
    pub(crate) fn migration(&self, logged: Logged) -> String {
        let body = self.body(logged);
        let schema = &self.schema;
        let mut script = format!(
            "SELECT pg_advisory_xact_lock({LOCK});\n\
             DO $migration$ BEGIN\n\
             IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {}) THEN CREATE SCHEMA {}; END IF;\n\
             END $migration$;\n",
            literal(schema),
            quoted(schema).trim_end_matches('.'),
        );
        script.push_str(&body);
        // Writing to a string does not fail.
        let _ = writeln!(script, "COMMENT ON TABLE {} IS {};", self.table(), literal(&version(&body)));
        script
    }

    /// Answers whether the migration has been run.
    pub(crate) fn check(&self, logged: Logged) -> String {
        let table = literal(&self.table());
        let version = literal(&version(&self.body(logged)));
        format!("SELECT coalesce(obj_description(to_regclass({table}), 'pg_class') = {version}, false)")
    }

    fn body(&self, logged: Logged) -> String {
        let text = PARTS.join("\n").replace("@step@\n", STEP).replace("@step variables@", STEP_VARIABLES);
        let settings = SETTINGS.map(|(name, value)| format!("SET {name} = {value}")).join(" ");
        let settle =
            SETTINGS.map(|(name, value)| format!("set_config('{name}', '{value}', true)")).join(", ");
        let text = text.replace("@settings@", &settings).replace("@settle@", &settle);
        let text = text.replace("@prefix@", &self.prefix);
        let text = text.replace("ratelimit.", &format!("{}{}", quoted(&self.schema), self.prefix));
        match logged {
            Logged::Unlogged => text,
            Logged::Logged => text.replace("CREATE UNLOGGED TABLE", "CREATE TABLE"),
        }
    }

    fn table(&self) -> String {
        format!("{}{}meters", quoted(&self.schema), self.prefix)
    }
}

/// Two migrations of whatever schema wait for each other by this number.
const LOCK: i64 = 0x7261_7465_6c69_6d69;

/// What the table's comment says when the migration has been run: the version, and a digest of the text.
fn version(body: &str) -> String {
    let digest = Sha256::digest(body.as_bytes());
    let digest = digest.iter().take(8).fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    });
    format!("ratelimit-postgres schema 1 {digest}")
}

/// `schema` as the beginning of a qualified name.
fn quoted(schema: &str) -> String {
    format!("\"{schema}\".")
}

/// `text`, which has no quotes and no backslashes, as a literal.
fn literal(text: &str) -> String {
    format!("'{text}'")
}
