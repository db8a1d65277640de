//! Routes: which requests a policy applies to, as written in a file.

use http::Method;
use matchit::Router;

/// A set of routes, each `METHOD /path`. Paths have axum's syntax: `/users/{id}`, `/files/{*path}`.
#[derive(Clone, Debug, Default)]
pub(crate) struct Routes {
    /// The paths of each method, and of all methods.
    paths: Vec<(Option<Method>, Router<()>)>,
}

const METHODS: [Method; 9] = [
    Method::GET,
    Method::HEAD,
    Method::POST,
    Method::PUT,
    Method::PATCH,
    Method::DELETE,
    Method::OPTIONS,
    Method::CONNECT,
    Method::TRACE,
];

impl Routes {
    /// Adds a route. The error says what is wrong with it.
    pub(super) fn add(&mut self, text: &str) -> Result<(), String> {
        let (method, path) = split(text)?;
        let location = self.paths.iter().position(|(known, _)| *known == method).unwrap_or_else(|| {
            self.paths.push((method, Router::new()));
            self.paths.len() - 1
        });
        match self.paths[location].1.insert(path, ()) {
            Ok(()) => Ok(()),
            Err(matchit::InsertError::Conflict { with }) => {
                Err(format!("the route {text:?} matches the same requests as {with:?} above"))
            }
            Err(error) => Err(format!("the route {text:?} is not valid: {error}")),
        }
    }

    /// Whether a request with this method and path is on one of the routes. `GET` includes `HEAD`.
    ///
    /// Paths are compared as in routers: `//login` and `/%6Cogin` are not `/login`.
    pub(crate) fn contain(&self, method: &Method, path: &str) -> bool {
        self.paths.iter().any(|(known, paths)| {
            let is_meant = match known {
                None => true,
                Some(known) => known == method || (*known == Method::GET && *method == Method::HEAD),
            };
            is_meant && paths.at(path).is_ok()
        })
    }
}

/// Splits a route into method, if any, and path.
fn split(text: &str) -> Result<(Option<Method>, &str), String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let (method, path) = match words[..] {
        [path] => (None, path),
        [word, path] => {
            let method = METHODS.iter().find(|method| method.as_str() == word).ok_or_else(|| {
                format!(
                    "{word:?} is not a method: use {}, or leave it out for all",
                    METHODS.each_ref().map(Method::as_str).join(", ")
                )
            })?;
            (Some(method.clone()), path)
        }
        _ => return Err(format!("{text:?} is not a route: write \"/path\" or \"GET /path\"")),
    };
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err(format!("{path:?} is not a path: a path begins with '/' and has no query"));
    }
    // The syntax of other routers.
    if let Some(segment) = path.split('/').find(|segment| segment.starts_with(['*', ':'])) {
        return Err(format!(
            "{segment:?} would match only itself: write \"{{id}}\" for one segment, \"{{*rest}}\" for the rest of the path"
        ));
    }
    Ok((method, path))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn routes(texts: &[&str]) -> Routes {
        let mut routes = Routes::default();
        texts.iter().for_each(|text| routes.add(text).unwrap());
        routes
    }

    #[test]
    fn a_route_is_a_path_with_an_optional_method() {
        let routes = routes(&[
            "POST /login",
            "/search",
            "GET /users/{id}",
            "DELETE /users/{id}",
            "/pkg.Service/{*method}",
            "/v1/messages:send",
        ]);
        for (method, path) in [
            (Method::POST, "/login"),
            (Method::GET, "/search"),
            (Method::POST, "/search"),
            (Method::GET, "/users/7"),
            (Method::HEAD, "/users/7"),
            (Method::DELETE, "/users/7"),
            (Method::POST, "/pkg.Service/Call"),
            (Method::POST, "/pkg.Service/a/b"),
            (Method::POST, "/v1/messages:send"),
        ] {
            assert!(routes.contain(&method, path), "{method} {path}");
        }
        for (method, path) in [
            (Method::GET, "/login"),
            (Method::POST, "/login/"),
            (Method::POST, "//login"),
            (Method::POST, "/%6Cogin"),
            (Method::PUT, "/users/7"),
            (Method::GET, "/users/"),
            (Method::GET, "/users/7/posts"),
            (Method::POST, "/pkg.Service/"),
            (Method::POST, ""),
            (Method::OPTIONS, "*"),
        ] {
            assert!(!routes.contain(&method, path), "{method} {path}");
        }
    }

    #[test]
    fn errors_explain_invalid_routes() {
        let mut routes = routes(&["GET /users/{id}"]);
        for (text, expected) in [
            ("", "\"/path\" or \"GET /path\""),
            ("GET /a b", "\"/path\" or \"GET /path\""),
            ("get /a", "\"get\" is not a method: use GET, HEAD"),
            ("GET a", "\"a\" is not a path"),
            ("/a?b=c", "\"/a?b=c\" is not a path"),
            ("/api/*", "\"*\" would match only itself: write \"{id}\""),
            (
                "POST /users/:id/posts",
                "\":id\" would match only itself: write \"{id}\" for one segment, \"{*rest}\"",
            ),
            ("/files/*path", "\"*path\" would match only itself"),
            ("/{a", "the route \"/{a\" is not valid"),
            ("/{*rest}/a", "the route \"/{*rest}/a\" is not valid"),
            ("GET /users/{name}", "matches the same requests as \"/users/{id}\" above"),
        ] {
            let error = routes.add(text).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]

        #[test]
        fn any_routes_and_paths_can_be_matched(
            texts in proptest::collection::vec("(GET )?/[/{}*a:\\\\%\u{e9}-]{0,10}", 0..6),
            path in "[/{}*a:%\u{e9}-]{0,10}",
        ) {
            let mut routes = Routes::default();
            let added = texts.iter().filter(|text| routes.add(text).is_ok()).count();
            prop_assert!(!routes.contain(&Method::GET, &path) || added > 0);
            for text in texts.iter().filter(|text| !text.contains(['{', '}', '*', ':'])) {
                let path = text.trim_start_matches("GET ");
                prop_assert!(routes.contain(&Method::GET, path), "{} in {:?}", path, texts);
            }
        }
    }
}
