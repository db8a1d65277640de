//! The code for Envoy's protocol is that of `proto/`. To write it again:
//! `RATELIMIT_GENERATE=1 cargo test -p ratelimit-server --test generated`.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use prost::Message as _;

#[test]
fn the_code_is_that_of_the_protocol() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let set = protox::compile(["envoy/service/ratelimit/v3/rls.proto"], [root.join("proto")]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    tonic_prost_build::configure()
        .include_file("mod.rs")
        .build_client(false)
        .out_dir(folder.path())
        .compile_fds(set.clone())
        .unwrap();
    let generated = [
        ("src/grpc/envoy.rs", in_one_file(folder.path()).into_bytes()),
        ("src/grpc/descriptors.bin", set.encode_to_vec()),
    ];
    for (path, content) in generated {
        let path = root.join(path);
        if std::env::var_os("RATELIMIT_GENERATE").is_some() {
            fs::write(&path, &content).unwrap();
        }
        assert!(fs::read(&path).unwrap_or_default() == content, "{} is not that of proto/", path.display());
    }
}

/// The content of the module `envoy`, with the files that it includes.
fn in_one_file(folder: &Path) -> String {
    let mut text = String::from("//! Envoy's protocol. @generated from `proto/` by the test `generated`.\n");
    let modules = fs::read_to_string(folder.join("mod.rs")).unwrap();
    let inner = modules.lines().skip_while(|line| *line != "pub mod envoy {").skip(1);
    for line in inner.take_while(|line| *line != "}") {
        match line.trim().strip_prefix("include!(\"").and_then(|rest| rest.strip_suffix("\");")) {
            Some(file) => text.push_str(&fs::read_to_string(folder.join(file)).unwrap()),
            None => writeln!(text, "{line}").unwrap(),
        }
    }
    text
}
