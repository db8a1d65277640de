//! `examples/fastapi`, as uvicorn runs it.

use std::path::{Path, PathBuf};

use ratelimit_testbed::{Application, PYTHON_PACKAGES, Server};

use crate::python::python;
use crate::server_with;
use crate::surroundings::{Browser, RateLimitServer};

/// The directory of the example.
fn example() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/fastapi")
}

/// The example, with these limits.
async fn service(limits: &RateLimitServer) -> Server {
    let folder = example().to_string_lossy().into_owned();
    let arguments = ["-m", "uvicorn", "app:app", "--port", "<port>", "--app-dir", &folder];
    let environment = [
        ("LIMITS_HTTP", format!("http://{}", limits.http())),
        ("LIMITS_REDIS", format!("redis://{}", limits.redis())),
    ];
    let application = Application {
        program: python().await.program().to_owned(),
        arguments: arguments.map(str::to_owned).to_vec(),
        environment: environment.map(|(name, value)| (name.to_owned(), value)).to_vec(),
        ready: "/live".to_owned(),
    };
    application.start().await.unwrap_or_else(|error| panic!("{error}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn both_dependencies_share_the_count_of_a_key() {
    let limits = std::fs::read_to_string(example().join("limits.toml")).expect("a file");
    let (server, browser) = (server_with(&limits).await, Browser::new());
    let service = service(&server).await;
    for (path, left) in [("/http", 4), ("/redis", 3), ("/http", 2), ("/redis", 1), ("/http", 0)] {
        let answer = browser.get(service.address(), path, "alice").await;
        assert_eq!((answer.status, answer.body.as_str()), (200, "\"served\""), "{answer:?}");
        let field = match path {
            "/http" => answer.field("ratelimit").contains(&format!(";r={left};")),
            _ => answer.field("x-ratelimit-remaining") == left.to_string(),
        };
        assert!(field, "{path}: {answer:?}");
    }
    for path in ["/http", "/redis"] {
        let answer = browser.get(service.address(), path, "alice").await;
        assert_eq!(answer.status, 429, "{path}: {answer:?}");
        assert!(
            (1..=86_400).contains(&answer.field("retry-after").parse().unwrap_or(0)),
            "{path}: {answer:?}"
        );
        assert_eq!(browser.get(service.address(), path, "bob").await.status, 200, "another key");
        assert_eq!(browser.get(service.address(), path, "").await.status, 422, "FastAPI wants the header");
    }
    server.process.kill().await.expect("kill");
    for path in ["/http", "/redis"] {
        let answer = browser.get(service.address(), path, "alice").await;
        assert_eq!(answer.status, 200, "who cannot be counted is served: {answer:?}");
    }
}

#[test]
fn the_example_asks_for_the_versions_that_are_tested() {
    let requirements = std::fs::read_to_string(example().join("requirements.txt")).expect("a file");
    for requirement in requirements.lines() {
        assert!(PYTHON_PACKAGES.contains(&requirement), "{requirement} is not tested");
    }
}
