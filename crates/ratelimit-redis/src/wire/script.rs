//! The scripts, and how they are called.

use std::sync::LazyLock;

use redis::{Arg, Cmd, Script as Hashed, cmd};

/// A script and its hash.
pub(crate) struct Script {
    body: &'static str,
    hash: String,
}

impl Script {
    fn new(body: &'static str) -> Self {
        Self { body, hash: Hashed::new(body).get_hash().to_owned() }
    }

    /// A call by hash; keys and arguments follow.
    pub(crate) fn call(&self, keys: usize) -> Cmd {
        let mut call = cmd("EVALSHA");
        call.arg(&self.hash).arg(keys);
        call
    }

    /// The command that loads the script.
    pub(crate) fn load(&self) -> Cmd {
        let mut load = cmd("SCRIPT");
        load.arg("LOAD").arg(self.body);
        load
    }
}

/// Decides slices of claims.
pub(crate) static CLAIM: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        // Creating functions takes time, so only the calls that need these do it.
        "local function general(KEYS, ARGV)\n",
        include_str!("scripts/numbers.lua"),
        include_str!("scripts/window.lua"),
        include_str!("scripts/debt.lua"),
        include_str!("scripts/bucket.lua"),
        include_str!("scripts/log.lua"),
        include_str!("scripts/claim.lua"),
        "end\n",
        include_str!("scripts/fast.lua"),
    ))
});

/// Gives units back.
pub(crate) static REFUND: LazyLock<Script> = LazyLock::new(|| {
    Script::new(concat!(
        include_str!("scripts/numbers.lua"),
        include_str!("scripts/debt.lua"),
        include_str!("scripts/refund.lua"),
    ))
});

/// The same call with the whole script instead of its hash, for a server that does not have the script. `None` if `call` is
/// not a call by hash.
pub(crate) fn in_full(call: &Cmd) -> Option<Cmd> {
    let mut arguments = arguments(call);
    let hash = arguments.nth(1)?;
    let script = [&CLAIM, &REFUND].into_iter().find(|script| script.hash.as_bytes() == hash)?;
    let mut full = cmd("EVAL");
    full.arg(script.body);
    arguments.for_each(|argument| _ = full.arg(argument));
    Some(full)
}

/// The first key of a script call or an `UNLINK`.
pub(crate) fn first_key(call: &Cmd) -> &[u8] {
    let mut arguments = arguments(call);
    let is_script = arguments.next().is_some_and(|name| name.starts_with(b"EVAL"));
    arguments.nth(if is_script { 2 } else { 0 }).unwrap_or_default()
}

fn arguments(call: &Cmd) -> impl Iterator<Item = &[u8]> {
    call.args_iter().filter_map(|argument| if let Arg::Simple(bytes) = argument { Some(bytes) } else { None })
}
