//! The table and the functions on the server: their names and their SQL.

use std::fmt::Write as _;
use std::sync::Arc;

use ratelimit_core::StoreError;
use sha2::{Digest, Sha256};

use crate::config::{Logged, PostgresConfig};
use crate::error::ERRORS;
use crate::wire::reply::MANY_ANSWERS;

/// The SQL of the schema, in the order of creation. The names in it are those of the default configuration.
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

/// Text that several functions share: statements, and the variables that they need.
const STEP: &str = include_str!("sql/step.sql");
const STEP_VARIABLES: &str = "becomes bigint[]; now bigint; owed bigint; aged bigint; current bigint; previous bigint; \
    room bigint; fits boolean;";

/// The settings of our own connections. With them rows are found by name and in the given order, whatever the statistics
/// say, and plans are made once. A function that is called on a connection without them sets them itself, until it returns
/// or its transaction ends.
pub(crate) const SETTINGS: [(&str, &str); 5] = [
    ("enable_seqscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
    ("jit", "off"),
    ("plan_cache_mode", "force_generic_plan"),
];

/// The longest prefix with which all names fit into PostgreSQL's 63 bytes.
const MAX_PREFIX: usize = 32;

/// What a call does on the server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Function {
    Claim,
    /// See `take.sql`.
    Take,
    TakeOne,
    Refund,
    Reset,
    Prune,
    /// Reads the names after the first argument and before the second, at most as many as the third, in their order.
    Names,
}

/// The names of the table and the functions, and the statements that call them.
#[derive(Debug)]
pub(crate) struct Names {
    schema: String,
    prefix: String,
    claim: Arc<str>,
    take: Arc<str>,
    take_one: Arc<str>,
    /// `take_one` for a connection without our settings.
    take_one_pooled: Arc<str>,
    refund: Arc<str>,
    reset: Arc<str>,
    prune: Arc<str>,
    names: Arc<str>,
    /// `names` for a connection that may have other settings for text.
    names_pooled: Arc<str>,
}

impl PostgresConfig {
    /// The SQL that [`PostgresStore::migrate`](crate::PostgresStore::migrate) runs, for your own migrations: one script of
    /// many statements, to run in one transaction. You may run it again. It fails, and changes nothing, if the functions are of
    /// a newer version of this crate, or if it would have to wait for long.
    ///
    /// # Errors
    /// If the schema or the prefix is not a valid name.
    pub fn migration(&self) -> Result<String, StoreError> {
        Ok(Names::new(self)?.migration(self.logged))
    }
}

impl Names {
    pub(crate) fn new(config: &PostgresConfig) -> Result<Self, StoreError> {
        let PostgresConfig { schema, prefix, .. } = config;
        let refused = |message| Err(ERRORS.misconfigured(message));
        if schema.is_empty() || schema.len() > 63 || schema.contains(['\0', '\'', '"', '\\', '$']) {
            return refused("the schema must have a name of 1 to 63 bytes, without quotes, `\\` and `$`");
        }
        let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_';
        if prefix.len() > MAX_PREFIX
            || !prefix.bytes().all(good)
            || prefix.starts_with(|first: char| first.is_ascii_digit())
        {
            return refused(
                "the prefix may contain only lower-case letters, digits and `_`, must not begin with a digit, and has at most 32 bytes",
            );
        }
        let qualified = format!("{}{prefix}", quoted(schema));
        let call = |function: &str, arguments: usize| -> Arc<str> {
            format!("SELECT {qualified}{function}_v1({})", placeholders(arguments)).into()
        };
        let take = format!("{}{}", placeholders(7), ", NULL".repeat(MANY_ANSWERS));
        let page = format!("SELECT id FROM {qualified}meters WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3");
        let names = format!("SELECT coalesce(array_agg(id ORDER BY id), '{{}}') FROM ({page}) AS page");
        Ok(Self {
            schema: schema.clone(),
            prefix: prefix.clone(),
            claim: call("claim", 6),
            take: format!("CALL {qualified}take_v1({take})").into(),
            take_one: call("take_one", 15),
            take_one_pooled: call("take_one_pooled", 15),
            refund: call("refund", 4),
            reset: call("reset", 1),
            prune: call("prune", 2),
            names_pooled: format!("SELECT set_config('bytea_output', 'hex', true); {names}").into(),
            names: names.into(),
        })
    }

    /// The statement that calls a function, with its arguments as `$1`, `$2`, …; `pooled` for connections without our
    /// settings.
    pub(crate) fn statement(&self, function: Function, pooled: bool) -> &Arc<str> {
        match function {
            Function::Claim => &self.claim,
            Function::Take => &self.take,
            Function::TakeOne if pooled => &self.take_one_pooled,
            Function::TakeOne => &self.take_one,
            Function::Refund => &self.refund,
            Function::Reset => &self.reset,
            Function::Prune => &self.prune,
            Function::Names if pooled => &self.names_pooled,
            Function::Names => &self.names,
        }
    }

    /// The statements of the calls that programs wait for.
    pub(crate) fn to_prepare(&self) -> [&Arc<str>; 5] {
        [&self.take_one, &self.take, &self.claim, &self.refund, &self.reset]
    }

    /// The whole schema as one script.
    pub(crate) fn migration(&self, logged: Logged) -> String {
        let (schema, table) = (&self.schema, self.table());
        format!(
            "-- One migration at a time. It fails rather than wait long for a transaction that uses the table: calls would have to\n\
             -- wait behind it.\n\
             DO $migration$ BEGIN\n\
             PERFORM set_config('lock_timeout', '30s', true);\n\
             PERFORM pg_advisory_xact_lock({LOCK});\n\
             PERFORM set_config('lock_timeout', '2s', true);\n\
             IF {newer} THEN\n\
             RAISE EXCEPTION 'the functions are of a newer version than this script: %', {comment} USING ERRCODE = 'RL002';\n\
             END IF;\n\
             IF NOT EXISTS (SELECT FROM pg_namespace WHERE nspname = {name}) THEN CREATE SCHEMA {quoted}; END IF;\n\
             END $migration$;\n\
             {body}COMMENT ON TABLE {table} IS {version};\n",
            newer = self.is_newer(),
            comment = self.comment(),
            name = literal(schema),
            quoted = quoted(schema).trim_end_matches('.'),
            body = self.body(logged),
            version = literal(&self.version()),
        )
    }

    /// A query that returns whether the migration of this version or of a newer one has been run.
    pub(crate) fn check(&self) -> String {
        let (comment, version, newer) = (self.comment(), literal(&self.version()), self.is_newer());
        format!("SELECT coalesce({comment} = {version}, false) OR {newer}")
    }

    /// An expression: the comment of the table, which is its version.
    fn comment(&self) -> String {
        format!("obj_description(to_regclass({}), 'pg_class')", literal(&self.table()))
    }

    /// An expression: whether the functions are of a newer version.
    fn is_newer(&self) -> String {
        let comment = self.comment();
        let version = VERSION.split(['-', '+']).next().unwrap_or_default();
        format!(
            "coalesce(string_to_array(substring({comment} from '^ratelimit-postgres ([0-9]+[.][0-9]+[.][0-9]+)'), '.')::int[] \
             > string_to_array('{version}', '.')::int[], false)"
        )
    }

    /// The comment of the table after the migration: the version, and a digest of the SQL. Whether the table is logged is not
    /// a part of it, because that stays as it is.
    fn version(&self) -> String {
        let digest = Sha256::digest(self.body(Logged::Unlogged).as_bytes());
        let digest = digest.iter().take(8).fold(String::new(), |mut text, byte| {
            // Writing to a string does not fail.
            let _ = write!(text, "{byte:02x}");
            text
        });
        format!("ratelimit-postgres {VERSION} {digest}")
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

/// The version of the functions is that of the crate: each version keeps their names and arguments, or uses new names.
const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The advisory lock that serialises migrations of any schema.
const LOCK: i64 = 0x7261_7465_6c69_6d69;

/// `$1, $2, …`, this many.
fn placeholders(number: usize) -> String {
    (1..=number).map(|nth| format!("${nth}")).collect::<Vec<_>>().join(", ")
}

/// `schema` as the first part of a qualified name.
fn quoted(schema: &str) -> String {
    format!("\"{schema}\".")
}

/// `text`, which contains no quotes and no backslashes, as a literal.
fn literal(text: &str) -> String {
    format!("'{text}'")
}
