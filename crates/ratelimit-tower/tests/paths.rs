//! Requests whose path is rewritten before the layer sees it: no spelling of a path evades a limit.

mod support;

use axum::Router;
use axum::routing::any;
use http::{Method, Request, Uri};
use ratelimit_memory::MemoryStore;
use ratelimit_tower::config::Config;
use ratelimit_tower::{KeySource, Policies, Policy, RateLimitLayer, SharedPolicies};
use tower::{Layer as _, ServiceExt as _};

use support::*;

/// Joins slashes and removes the last one, as `NormalizePath` of tower-http does.
fn normalized(uri: &Uri) -> Uri {
    let segments: Vec<&str> = uri.path().split('/').filter(|segment| !segment.is_empty()).collect();
    format!("/{}", segments.join("/")).parse().unwrap()
}

/// A router that knows one path, behind the layer, and around it a middleware that rewrites paths.
fn rewriting(
    layer: RateLimitLayer<MemoryStore, ratelimit_core::ManualClock>,
    path: &str,
    rewrite: fn(&Uri) -> Uri,
) -> impl tower::Service<
    axum::extract::Request,
    Response = axum::response::Response,
    Error = std::convert::Infallible,
    Future: Send,
> + Clone
+ Send
+ Sync
+ 'static {
    let router = Router::new().route(path, any(|| async { "welcome" })).layer(layer);
    let rewriting = tower::util::MapRequestLayer::new(move |mut request: axum::extract::Request| {
        *request.uri_mut() = rewrite(request.uri());
        request
    });
    rewriting.layer(router)
}

fn under(file: &str) -> RateLimitLayer<MemoryStore, ratelimit_core::ManualClock> {
    let config = Config::from_yaml(file, "limits.yaml").unwrap();
    layer_under(&clock(), config.policies().clone())
}

async fn status(app: &Router, method: Method, path: &str) -> u16 {
    let request = Request::builder().method(method).uri(path);
    let request = request.body(axum::body::Body::empty()).unwrap();
    app.clone().oneshot(request).await.unwrap().status().as_u16()
}

async fn posts(app: &Router, paths: &[&str]) -> Vec<u16> {
    let mut statuses = Vec::new();
    for path in paths {
        statuses.push(status(app, Method::POST, path).await);
    }
    statuses
}

const LOG_IN: &str = "policies: [{name: p, key: everybody, limit: 1/min, routes: POST /login}]";

#[tokio::test]
async fn a_route_is_limited_however_its_path_is_spelled() {
    for spelling in ["/login/", "//login", "/login//", "///login///"] {
        let app = Router::new().fallback_service(rewriting(under(LOG_IN), "/login", normalized));
        assert_eq!(posts(&app, &["/login", spelling]).await, [200, 429], "{spelling}");
        let app = Router::new().fallback_service(rewriting(under(LOG_IN), "/login", normalized));
        assert_eq!(posts(&app, &[spelling, "/login"]).await, [200, 429], "{spelling}");
    }
}

#[tokio::test]
async fn a_route_is_limited_whether_it_names_the_path_before_or_after_a_rewrite() {
    let to_login = |_: &Uri| "/auth/login".parse().unwrap();
    for route in ["/login", "/auth/login"] {
        let file = format!("policies: [{{name: p, key: everybody, limit: 1/min, routes: POST {route}}}]");
        let app = Router::new().fallback_service(rewriting(under(&file), "/auth/login", to_login));
        assert_eq!(posts(&app, &["/login", "/login"]).await, [200, 429], "{route}");
    }
}

/// axum strips the prefix, and what is behind it is rewritten.
#[tokio::test]
async fn a_route_in_a_nested_service_is_limited_however_its_path_is_spelled() {
    for (nested, route, sent) in [
        ("/api", "/api/login", "/api/login"),
        ("/api", "/login", "/api/login"), // as the nested service sees it
        ("/t/{tenant}", "/t/{tenant}/login", "/t/7/login"),
    ] {
        let file =
            format!(r#"policies: [{{name: p, key: everybody, limit: 1/min, routes: "POST {route}"}}]"#);
        for spelling in [format!("{sent}/"), sent.replace("/login", "//login")] {
            let app = Router::new().nest_service(nested, rewriting(under(&file), "/login", normalized));
            assert_eq!(posts(&app, &[sent, &spelling]).await, [200, 429], "{spelling} as {route}");
            let app = Router::new().nest_service(nested, rewriting(under(&file), "/login", normalized));
            assert_eq!(posts(&app, &[&spelling, sent]).await, [200, 429], "{spelling} as {route}");
        }
    }
}

/// Otherwise a client could write a path that is exempt, and reach another one.
#[tokio::test]
async fn a_request_is_exempt_only_if_its_path_is_before_and_after_a_rewrite() {
    let file = "{exempt: [/health], policies: [{name: p, key: everybody, limit: 1/min}]}";
    for (path, sent) in [("/work", "/health"), ("/health", "/work")] {
        let rewrite = match path {
            "/work" => |_: &Uri| "/work".parse().unwrap(),
            _ => |_: &Uri| "/health".parse().unwrap(),
        };
        let app = Router::new().fallback_service(rewriting(under(file), path, rewrite));
        assert_eq!(posts(&app, &[sent, sent]).await, [200, 429], "{sent} becomes {path}");
    }
    let app = Router::new().fallback_service(rewriting(under(file), "/health", normalized));
    assert_eq!(posts(&app, &["/health", "/health"]).await, [200, 200]);
    // A prefix that axum strips is no rewrite.
    let nested = "{exempt: [/api/health], policies: [{name: p, key: everybody, limit: 1/min}]}";
    let inner = || Router::new().route("/health", any(|| async { "well" })).layer(under(nested));
    for app in [Router::new().nest("/api", inner()), Router::new().nest_service("/api", inner())] {
        assert_eq!(posts(&app, &["/api/health", "/api/health"]).await, [200, 200]);
    }
}

/// The key is the path that the service handles, so all spellings of it are one.
#[tokio::test]
async fn many_spellings_of_one_path_have_one_count() {
    let by_path = || {
        layer_under(
            &clock(),
            Policies::new([Policy::new("p", KeySource::path(), limit("3/min")).unwrap()]).unwrap(),
        )
    };
    let spellings: Vec<String> = (0..50).map(|more| format!("/search{}", "/".repeat(more))).collect();
    let apps = [
        ("", Router::new().fallback_service(rewriting(by_path(), "/search", normalized))),
        ("/api", Router::new().nest_service("/api", rewriting(by_path(), "/search", normalized))),
        ("/t/7", Router::new().nest_service("/t/{tenant}", rewriting(by_path(), "/search", normalized))),
    ];
    for (prefix, app) in apps {
        let mut admitted = 0;
        for spelling in &spellings {
            admitted += u32::from(status(&app, Method::GET, &format!("{prefix}{spelling}")).await == 200);
        }
        assert_eq!(admitted, 3, "{prefix}");
    }
}

#[tokio::test]
async fn paths_with_different_prefixes_have_different_counts() {
    let by_path = Policies::new([Policy::new("p", KeySource::path(), limit("1/min")).unwrap()]).unwrap();
    let layer = layer_under(&clock(), SharedPolicies::from(by_path));
    let inner = || Router::new().route("/a", any(|| async { "a" })).layer(layer.clone());
    let app = Router::new().nest("/t/{tenant}", inner()).nest("/v1", inner()).merge(inner());
    assert_eq!(posts(&app, &["/t/1/a", "/t/2/a", "/v1/a", "/a"]).await, [200; 4]);
    assert_eq!(posts(&app, &["/t/1/a", "/t/2/a", "/v1/a", "/a"]).await, [429; 4]);
}
