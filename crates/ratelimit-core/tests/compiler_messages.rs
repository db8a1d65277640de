//! What the compiler says to those who pass the wrong thing: each of our sentences is in its message.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Programs with one mistake each, and our sentences about it.
const MISTAKES: [(&str, &str, &[&str]); 3] = [
    (
        "store",
        "use ratelimit_core::{Limit, RateLimiter};
         pub fn make(limit: Limit) { let _ = RateLimiter::new(7, limit); }",
        &["`{integer}` is not a store"],
    ),
    (
        "waiting",
        "use ratelimit_core::{DynCounterStore, RateLimiter};
         pub fn ask(limiter: &RateLimiter<std::sync::Arc<dyn DynCounterStore>>) { let _ = limiter.check_now(\"k\"); }",
        &[
            "DynCounterStore` cannot answer without waiting",
            "this store, or a layer of it, waits for a server",
            "on every store the methods without `_now` work: `limiter.check(key).await?`",
        ],
    ),
    (
        "limit",
        "use ratelimit_core::{CounterStore, RateLimiter};
         pub fn make<S: CounterStore>(store: S) -> RateLimiter<S> { RateLimiter::new(store, \"10/s\") }",
        &["`&str` is not a limit", "parse a text: `\"10/s; 1000/h\".parse::<Limits>()?`"],
    ),
];

/// A package whose binaries are the programs, and one more that is right: otherwise anything might be the matter.
#[test]
fn mistakes_get_our_sentences() {
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compiler_messages");
    fs::create_dir_all(folder.join("src/bin")).unwrap();
    // The versions of the workspace, of which the registry's files are there.
    fs::copy(package.join("../../Cargo.lock"), folder.join("Cargo.lock")).unwrap();
    let manifest = format!(
        "[package]\nname = \"compiler_messages\"\nedition = \"2024\"\n[workspace]\n\
         [dependencies]\nratelimit-core = {{ path = {package:?} }}\n"
    );
    fs::write(folder.join("Cargo.toml"), manifest).unwrap();
    let right = "use ratelimit_core::{CounterStore, Limit, RateLimiter};
                 pub fn make<S: CounterStore>(store: S, limit: Limit) -> RateLimiter<S> { RateLimiter::new(store, limit) }";
    for (name, program) in
        MISTAKES.map(|(name, program, _)| (name, program)).into_iter().chain([("right", right)])
    {
        fs::write(folder.join(format!("src/bin/{name}.rs")), format!("{program}\nfn main() {{}}\n")).unwrap();
    }
    let check = |name: &str| {
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["check", "--quiet", "--offline", "--color", "never", "--bin", name]);
        cargo.current_dir(&folder).env("CARGO_TARGET_DIR", folder.join("target")).env_remove("RUSTFLAGS");
        let output = cargo.output().unwrap();
        (output.status.success(), String::from_utf8(output.stderr).unwrap())
    };
    let (is_right, said) = check("right");
    assert!(is_right, "{said}");
    for (name, _, sentences) in MISTAKES {
        let (is_right, said) = check(name);
        assert!(!is_right, "{name} is accepted");
        for sentence in sentences {
            assert!(said.contains(sentence), "{sentence:?} is not in the message:\n{said}");
        }
    }
}
