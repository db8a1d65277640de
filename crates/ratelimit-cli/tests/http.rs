//! Keys of the HTTP layer, by its configuration file.

mod common;

use std::path::PathBuf;

use axum::Router;
use axum::body::Body;
use axum::http::Request;
use axum::routing::get;
use common::{Cli, namespace};
use ratelimit_redis::{RateLimiter, RedisStore};
use ratelimit_testbed::Testbed;
use ratelimit_tower::config::{Config, Provided};
use ratelimit_tower::{KeySource, PeerAddress, RateLimitLayer};
use serde_json::Value;
use tower::ServiceExt as _;

/// Long periods, so that none ends during a test.
const FILE: &str = r#"
[client]
ipv4_prefix = 24

[[policies]]
name = "address"
key = "address"
limit = ["100/30d fixed", "500/60d fixed"]

[[policies]]
name = "user"
key = "header:x-user"
limit = "200/30d fixed"

[[policies]]
name = "customer"
key = "api-key:x-api-key"

[[policies]]
name = "tenant"
key = "tenant"
limit = "300/30d fixed"

[[policies]]
name = "both"
key = ["address", "path"]
limit = "400/30d fixed"

[plans.free]
customer = "10/30d fixed"

[plans.paid]
customer = "1000/30d fixed"
"#;

struct File {
    folder: tempfile::TempDir,
}

impl File {
    fn new(text: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("limits.toml"), text).unwrap();
        Self { folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("limits.toml")
    }

    fn cli(&self, url: &str, namespace: &str, arguments: &[&str]) -> Cli {
        let path = self.path();
        let options = [
            "--store",
            url,
            "--namespace",
            namespace,
            "--config",
            path.to_str().unwrap(),
            "--provided-key",
            "tenant",
        ];
        Cli::new(&[&options[..], arguments].concat())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_is_found_by_what_each_policy_counts_by() {
    let server = Testbed::from_env().redis().await.unwrap();
    let (url, namespace, file) = (&*server.patient_url(), namespace("http"), File::new(FILE));
    let provided = Provided::default().key("tenant", KeySource::function(|_| Some("t1")));
    let config = Config::from_toml_with(FILE, "limits.toml", &provided).unwrap();
    let store = RedisStore::connect(url).await.unwrap();
    let limiter = RateLimiter::without_limits(store).with_namespace(&namespace);
    let layer = RateLimitLayer::new(limiter, config.policies().clone());
    let app: Router = Router::new().route("/search", get(|| async { "found" })).layer(layer);
    for _ in 0..3 {
        let request = Request::get("/search?q=1").header("x-user", "Zoë").header("x-api-key", "s3cret");
        let request = request.extension(PeerAddress("192.0.2.7".parse().unwrap()));
        let request = request.extension(config.plan("free").unwrap()).body(Body::empty()).unwrap();
        assert_eq!(app.clone().oneshot(request).await.unwrap().status(), 200);
    }
    let hash = "sha256:1ec1c26b50d5d3c58d9583181af8076655fe00756bf7285940ba3670f99fcba0";
    for (arguments, key, shown, limits) in [
        (&["--policy", "address"][..], "192.0.2.99", "192.0.2.0/24", &["100/30d fixed", "500/60d fixed"][..]),
        (
            &["--policy", "address", "--plan", "free"],
            "192.0.2.0/24",
            "192.0.2.0/24",
            &["100/30d fixed", "500/60d fixed"],
        ),
        (&["--policy", "user"], "Zoë", "Zoë", &["200/30d fixed"]),
        (&["--policy", "customer", "--plan", "free"], "s3cret", hash, &["10/30d fixed"]),
        (&["--policy", "customer", "--plan", "paid"], hash, hash, &["1000/30d fixed"]),
        (&["--policy", "tenant"], "t1", "t1", &["300/30d fixed"]),
        (&["--policy", "both"], "192.0.2.1 + /search", "192.0.2.0/24 + /search", &["400/30d fixed"]),
    ] {
        let cli = file.cli(url, &namespace, arguments);
        let ran = cli.run(&["peek", key, "--json"]);
        assert!(!ran.stdout.contains("s3cret"));
        let status = ran.only_json();
        let rows = status["limits"].as_array().unwrap();
        let texts: Vec<&str> = rows.iter().map(|row| row["limit"].as_str().unwrap()).collect();
        assert_eq!((&status["key"], &texts[..]), (&Value::from(shown), limits));
        assert!(rows.iter().all(|row| row["used"] == 3), "{arguments:?}: {status}");
        // The same client in a list, and no other policy's.
        let list = cli.run(&["list", "--scan", "1000000", "--json"]).only_json();
        assert_eq!(list["keys"].as_array().unwrap().len(), 1, "{list}");
        assert_eq!(list["keys"][0]["key"], shown);
    }
}

#[test]
fn errors_list_policies_plans_and_what_is_counted_by() {
    let file = File::new(FILE);
    let fails = |arguments: &[&str], said: &[&str]| {
        let ran = file.cli("redis://127.0.0.1:1/", "", arguments).run(&["peek", "s3cret"]);
        ran.fails(1, said);
        assert!(!ran.stderr.contains("s3cret"), "{ran:?}");
    };
    let described = "address (by address), user (by header:x-user), customer (by api-key:x-api-key), tenant (by tenant), \
                     both (by address and path)";
    fails(&[], &["choose one of the file's policies with --policy", described]);
    fails(&["--policy", "users"], &["no policy is called \"users\"", described]);
    fails(
        &["--policy", "address"],
        &["the policy address counts by (address): write an address, such as 192.0.2.1"],
    );
    fails(&["--policy", "both"], &["write the parts of `address and path` as `FIRST + SECOND`"]);
    fails(&["--policy", "customer"], &["depends on the plan; choose one with --plan: free, paid"]);
    fails(&["--policy", "user", "--plan", "gold"], &["no plan is called \"gold\"; the file has free, paid"]);
    let broken = File::new("[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"1/0s\"");
    broken
        .cli("redis://127.0.0.1:1/", "", &[])
        .run(&["peek", "k"])
        .fails(1, &["limits.toml:4: policies[1].limit: the limit \"1/0s\" is not possible"]);
    let missing = Cli::new(&["--store", "redis://h", "--config", "/no/such.toml"]).run(&["peek", "k"]);
    missing.fails(1, &["/no/such.toml: cannot be read"]);
}
