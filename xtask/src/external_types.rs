//! `cargo xtask external-types`: the types of other crates in the public API of the published crates.
//!
//! A new major version of such a crate is a new major version of ours. So each has to be listed in the crate's
//! `Cargo.toml`, under `package.metadata.cargo_check_external_types`, and no others may appear. The API is read from
//! rustdoc's JSON, which requires a nightly toolchain.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use clap::Args;
use serde_json::Value;

use crate::step::shown;
use crate::workspace::{list, metadata, published, root, target, text};

/// Available to every program.
const STANDARD: &[&str] = &["alloc", "core", "std"];

#[derive(Args)]
pub(crate) struct Arguments {
    /// The toolchain for rustdoc's JSON.
    #[arg(long, default_value = "nightly")]
    toolchain: String,
}

/// Runs the command.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let metadata = metadata(&["--no-deps"])?;
    let packages = published(&metadata);
    let names: Vec<String> = packages.iter().map(|package| text(&package["name"])).collect();
    let folder = document(&names, &arguments.toolchain)?;
    let mut problems = Vec::new();
    for (package, name) in packages.iter().zip(&names) {
        let file = folder.join(name.replace('-', "_")).with_extension("json");
        let json = std::fs::read(&file).with_context(|| file.display().to_string())?;
        let interface = serde_json::from_slice(&json).with_context(|| file.display().to_string())?;
        let found = external_types(&interface).with_context(|| file.display().to_string())?;
        let rules = &package["metadata"]["cargo_check_external_types"]["allowed_external_types"];
        let rules: Vec<String> = list(rules).iter().map(text).collect();
        println!("{name}:");
        for (path, place) in &found {
            println!("    {path:60} in {place}");
        }
        problems.extend(disagreements(name, &found, &rules));
    }
    ensure!(problems.is_empty(), "{}", problems.join("\n"));
    Ok(())
}

/// Documents these crates with all features as rustdoc's JSON; returns the directory.
fn document(packages: &[String], toolchain: &str) -> Result<PathBuf> {
    let folder = target().join("nightly");
    let mut doc = Command::new("rustup");
    doc.current_dir(root())
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("CARGO")
        .env("RUSTDOCFLAGS", "-Z unstable-options --output-format json --cap-lints allow")
        .args(["run", toolchain, "cargo", "doc", "--no-deps", "--lib", "--all-features", "--target-dir"])
        .arg(&folder)
        .args(packages.iter().flat_map(|name| ["--package", name]));
    let status = doc.status().with_context(|| shown(&doc))?;
    ensure!(status.success(), "{} ended with {status}; is the toolchain there?", shown(&doc));
    Ok(folder.join("doc"))
}

/// The paths of the types and traits of other crates, each with an item that uses it.
fn external_types(interface: &Value) -> Result<BTreeMap<String, String>> {
    let items = interface["index"].as_object().context("there is no index")?;
    ensure!(!items.is_empty(), "the index is empty");
    let mut found = BTreeMap::new();
    for item in items.values().filter(|item| item["crate_id"] == 0 && is_written(item)) {
        let place = place(interface, item);
        visit(&item["inner"], &mut |id| {
            let Some(path) = interface["paths"].get(id.to_string()) else { return };
            let from = &interface["external_crates"][path["crate_id"].to_string()]["name"];
            if path["crate_id"] != 0 && !STANDARD.contains(&text(from).as_str()) {
                let segments: Vec<String> = list(&path["path"]).iter().map(text).collect();
                found.entry(segments.join("::")).or_insert_with(|| place.clone());
            }
        });
    }
    Ok(found)
}

/// Excludes what the compiler generates: auto traits, and other crates' blanket implementations.
fn is_written(item: &Value) -> bool {
    let implementation = &item["inner"]["impl"];
    implementation["is_synthetic"] != true && implementation["blanket_impl"].is_null()
}

/// A name that can be searched for.
fn place(interface: &Value, item: &Value) -> String {
    let path = interface["paths"].get(item["id"].to_string());
    let path: Vec<String> =
        path.map(|path| list(&path["path"]).iter().map(text).collect()).unwrap_or_default();
    let implemented = &item["inner"]["impl"]["for"]["resolved_path"]["path"];
    match (path.as_slice(), text(&item["name"])) {
        ([], name) if name.is_empty() && implemented.is_string() => format!("impl for {}", text(implemented)),
        ([], name) if name.is_empty() => text(&item["inner"]["use"]["source"]),
        ([], name) => name,
        (path, _) => path.join("::"),
    }
}

/// All ids of types and traits in `value`.
fn visit(value: &Value, tell: &mut impl FnMut(u64)) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| visit(value, tell)),
        Value::Object(fields) => {
            fields.get("id").and_then(Value::as_u64).into_iter().for_each(&mut *tell);
            fields.values().for_each(|value| visit(value, tell));
        }
        _ => {}
    }
}

/// The types that are not allowed, and the rules that allow nothing.
fn disagreements(package: &str, found: &BTreeMap<String, String>, rules: &[String]) -> Vec<String> {
    let allows = |rule: &String, path: &String| match rule.strip_suffix('*') {
        Some(start) => path.starts_with(start),
        None => rule == path,
    };
    let unknown = found.iter().filter(|(path, _)| !rules.iter().any(|rule| allows(rule, path)));
    let unknown = unknown.map(|(path, place)| {
        format!("{package}: {path} is in the interface (see {place}) and not among `allowed_external_types`")
    });
    let idle = rules.iter().filter(|rule| !found.keys().any(|path| allows(rule, path)));
    let idle = idle
        .map(|rule| format!("{package}: `allowed_external_types` has {rule}, which is not in the interface"));
    unknown.chain(idle).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{disagreements, external_types};

    #[test]
    fn external_types_are_found_in_every_position() {
        let reference = |id: u64| json!({ "resolved_path": { "path": "X", "id": id, "args": null } });
        let interface = json!({
            "external_crates": { "1": { "name": "std" }, "2": { "name": "http" } },
            "paths": {
                "0": { "crate_id": 0, "path": ["mine", "f"] },
                "7": { "crate_id": 1, "path": ["std", "time", "Duration"] },
                "8": { "crate_id": 2, "path": ["http", "method", "Method"] },
                "9": { "crate_id": 2, "path": ["http", "uri", "Uri"] },
            },
            "index": {
                "0": { "id": 0, "crate_id": 0, "name": "f", "inner": { "function": { "sig": {
                    "inputs": [["a", reference(7)], ["b", { "borrowed_ref": { "type": reference(8) } }]],
                } } } },
                "1": { "id": 1, "crate_id": 0, "name": null, "inner": { "impl": {
                    "is_synthetic": false, "blanket_impl": { "generic": "T" }, "trait": { "path": "Y", "id": 9 },
                } } },
            },
        });
        let found = external_types(&interface).expect("an index");
        assert_eq!(
            found.into_iter().collect::<Vec<_>>(),
            [("http::method::Method".into(), "mine::f".into())]
        );
        assert!(external_types(&json!({ "index": {} })).is_err());
    }

    #[test]
    fn unlisted_types_and_unused_entries_are_reported() {
        let found = [("http::method::Method".to_owned(), "mine::f".to_owned())].into();
        assert!(disagreements("mine", &found, &["http::*".to_owned()]).is_empty());
        let told = disagreements("mine", &found, &["http::uri::*".to_owned()]);
        assert_eq!(told.len(), 2, "{told:?}");
        assert!(told[0].contains("http::method::Method") && told[1].contains("http::uri::*"), "{told:?}");
    }
}
