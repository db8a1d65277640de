//! Tests of the contents of files: each mistake is found, with its line and field.

use ratelimit_core::store::MAX_CLAIMS;

use super::{Config, Provided};
use crate::KeySource;

const GOOD_TOML: &str = r#"
on_store_failure = "open"
exempt = ["GET /health"]

[client]
trusted_proxies = ["10.0.0.0/8", "::1"]
header = "forwarded"
ipv4_prefix = 24
ipv6_prefix = 56

[headers]
families = ["draft-11", "x-ratelimit"]
reset = "unix-seconds"
on_admitted = false

[[policies]]
name = "address"
key = "address"
limit = ["50/s", "6000/min name minute"]
cost = { per_bytes = 1024, if_unknown = 8 }

[[policies]]
name = "requests"
key = ["api-key:x-api-key or address", "path"]
routes = ["POST /v1/{*rest}", "/search"]
refund = ["5xx", 404]
missing = "exempt"
shadow = true
settle = "bytes:1024"
settle_within = "90s"
unsettled = "refund"

[plans.free]
requests = "10/min"

[plans.paid]
requests = ["50/s", "3000/min burst 100"]
"#;

const GOOD_YAML: &str = r#"
on_store_failure: open
exempt: [GET /health]
client:
  trusted_proxies: [10.0.0.0/8, "::1"]
  header: forwarded
  ipv4_prefix: 24
  ipv6_prefix: 56
headers:
  families: [draft-11, x-ratelimit]
  reset: unix-seconds
  on_admitted: false
policies:
  - name: address
    key: address
    limit: [50/s, 6000/min name minute]
    cost: {per_bytes: 1024, if_unknown: 8}
  - name: requests
    key: ["api-key:x-api-key or address", path]
    routes: ["POST /v1/{*rest}", /search]
    refund: [5xx, 404]
    missing: exempt
    shadow: true
    settle: bytes:1024
    settle_within: 90s
    unsettled: refund
plans:
  free:
    requests: 10/min
  paid:
    requests: [50/s, 3000/min burst 100]
"#;

#[test]
fn toml_and_yaml_give_the_same_configuration() {
    let toml = Config::from_toml(GOOD_TOML, "a.toml").unwrap();
    let yaml = Config::from_yaml(GOOD_YAML, "a.yaml").unwrap();
    assert_eq!(format!("{toml:?}"), format!("{yaml:?}"));
    let said = format!("{toml:?}");
    for part in [
        r#"name: "address", by: address, plan: {"address:50/s": "50/s", "minute": "6000/min name minute"}"#,
        "cost: 1 per 1024 bytes, 8 if unknown",
        "by: api-key:x-api-key or address and path",
        r#"plan: {"requests.free": "10/min"}, chooses_plans: true, conditional: true, cost: 1, charge: refund if, missing: Some(Exempt), shadow: true, settle: Some(Settle { source: 1 per 1024 bytes of request and response, within: Some(90s), unsettled: Refund })"#,
        "families: [Draft11, XRateLimit], reset: UnixSeconds, on_admitted: false",
        "on_failure: Open",
    ] {
        assert!(said.contains(part), "{part}\nis not in\n{said}");
    }
    assert_eq!(toml.plan("free").unwrap().as_str(), "free");
    assert_eq!(toml.plan("gold"), None);
}

#[test]
fn the_documented_example_is_valid() {
    let lines = include_str!("mod.rs").lines().skip_while(|line| *line != "//! ```toml").skip(1);
    let example: Vec<&str> =
        lines.take_while(|line| *line != "//! ```").map(|line| line[3..].trim()).collect();
    let config = Config::from_toml(&example.join("\n"), "limits.toml").unwrap();
    assert_eq!(config.policies().each().len(), 3);
    assert!(config.plan("free").is_some() && config.plan("starter").is_some());
}

/// The error for a file, without the file's name: `line: field: message`.
fn toml(text: &str) -> String {
    let error = Config::from_toml(text, "limits.toml").unwrap_err().to_string();
    error.strip_prefix("limits.toml:").unwrap_or_else(|| panic!("{error}")).to_owned()
}

fn yaml(text: &str) -> String {
    let error = Config::from_yaml(text, "limits.yaml").unwrap_err().to_string();
    error.strip_prefix("limits.yaml:").unwrap_or_else(|| panic!("{error}")).to_owned()
}

/// A policy with `lines` from line 4 on.
fn with(lines: &str) -> String {
    format!("[[policies]]\nname = \"a\"\nkey = \"address\"\n{lines}\n")
}

#[track_caller]
fn check(error: &str, expected: &str) {
    assert!(error.starts_with(expected), "\n{error}\ndoes not begin with\n{expected}");
}

#[test]
fn syntax_errors_name_the_line() {
    check(&toml("policies = [\n"), "1: invalid TOML: unclosed array");
    check(&toml("shadow = true\n\nshadow = false\n"), "3: invalid TOML: duplicate key");
    check(&toml("a = 1\nb = \n"), "2: invalid TOML");
    check(&toml("[plans.free]\na = \"1/s\"\n[plans.free]\n"), "3: invalid TOML: duplicate key");
    check(
        &toml("shadow = 99999999999999999999999999999999999999999999"),
        "1: shadow: the number is too large",
    );
    check(&yaml("shadow: true\n\nshadow: false\n"), "3: invalid YAML: duplicate mapping key: shadow");
    check(&yaml("policies:\n\t- name: a"), "2: invalid YAML: tabs disallowed");
    check(&yaml("policies: [\n"), "1: invalid YAML: unclosed bracket");
    check(&yaml("shadow: true\n---\nshadow: true"), "3: invalid YAML: multiple YAML documents");
    check(&yaml("policies:\n  - *unknown"), "2: invalid YAML: alias references unknown anchor");
}

#[test]
fn expanding_texts_are_refused() {
    let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for depth in 1..7 {
        let earlier = format!("*a{}, ", depth - 1).repeat(10);
        text.push_str(&format!("a{depth}: &a{depth} [{earlier}]\n"));
    }
    assert!(yaml(&text).contains("invalid YAML: budget breached"));
}

#[test]
fn unknown_and_missing_fields_are_named() {
    check(&toml(""), "1: missing field `policies`");
    check(&yaml("# nothing"), "1: missing field `policies`");
    check(&toml("policies = []"), "1: policies: there is no policy");
    check(&toml("\nshado = true"), "2: shado: unknown field `shado`, expected one of `shadow`");
    check(
        &toml(&with("limits = \"1/s\"")),
        "4: policies[1].limits: unknown field `limits`, expected one of `name`",
    );
    check(&toml("[client]\n\ntrusted = []"), "3: client.trusted: unknown field `trusted`");
    check(
        &toml("[headers]\nfamilies = [\n\"draft-11\",\n\"old\"]"),
        "4: headers.families[2]: unknown variant `old`",
    );
    check(&toml("\n[[policies]]\nname = \"a\"\n"), "2: policies[1]: missing field `key`");
    check(&yaml("policies:\n\n  - name: a\n    limit: 1/s"), "3: policies[1]: missing field `key`");
    check(&yaml("policies:\n  - name: a\n    kee: address"), "3: policies[1].kee: unknown field `kee`");
    check(&toml(&with("cost = { per_bytes = 1 }")), "4: policies[1].cost: missing field `if_unknown`");
    check(&toml("\"a b\" = 1"), "1: \"a b\": unknown field `a b`");
}

#[test]
fn values_of_the_wrong_type_are_named() {
    check(&toml("shadow = 1"), "1: shadow: invalid type: integer, expected a boolean");
    check(&toml("shadow = 1979-05-27"), "1: shadow: invalid type: a date");
    check(
        &toml("on_store_failure = \"opne\""),
        "1: on_store_failure: unknown variant `opne`, expected `open` or `closed`",
    );
    check(&toml("policies = 3"), "1: policies: invalid type: integer");
    check(&toml("[[policies]]\nname = 7"), "2: policies[1].name: invalid type: integer, expected a string");
    check(
        &toml(&with("limit = 10")),
        "4: policies[1].limit: invalid type: integer, expected a string or a list",
    );
    check(&toml(&with("limit = [\n\"1/s\",\n2]")), "6: policies[1].limit[2]: invalid type: integer");
    check(&toml(&with("missing = \"ignore\"")), "4: policies[1].missing: unknown variant `ignore`");
    check(&yaml("policies: null"), "1: policies: invalid type: null");
    check(&yaml("policies:\n  - name: a\n    key: {address: 1}"), "3: policies[1].key: invalid type: map");
}

/// An API key that is not quoted may be a number too large for YAML.
#[test]
fn errors_in_yaml_quote_no_client() {
    for client in
        ["5e84402111938475", "-5e84402111938475", ".inf", "84402111938475000000000000000000000000000000"]
    {
        let error = yaml(&format!("allow:\n  - key: api-key:x-key\n    clients: [{client}]\npolicies: []"));
        assert!(
            error.starts_with("3: allow[1].clients[1]: ") && !error.contains("84402111938475"),
            "{error}"
        );
    }
}

/// A field whose value was deleted does not mean that the field is not set: a policy for one route would be one for all.
#[test]
fn fields_without_a_value_are_errors() {
    let policy = "policies:\n  - name: a\n    key: address\n    limit: 1/s\n";
    for field in ["routes", "count_only", "refund", "settle", "settle_within", "unsettled", "missing", "cost"]
    {
        let expected = format!("5: policies[1].{field}: invalid type: null, expected ");
        check(&yaml(&format!("{policy}    {field}:\n")), &expected);
    }
    for field in ["on_store_failure", "exempt", "client", "headers", "deny", "plans"] {
        check(&yaml(&format!("{policy}{field}:\n")), &format!("5: {field}: invalid type: null, expected "));
    }
    let json = r#"{"policies": [{"name": "a", "key": "address", "limit": "1/s", "routes": null}]}"#;
    check(&yaml(json), "1: policies[1].routes: invalid type: null, expected a string or a list of strings");
}

#[test]
fn invalid_limits_are_errors_when_the_file_is_read() {
    let error = toml(&with("limit = \"5/s burst 0\""));
    check(
        &error,
        "4: policies[1].limit: the limit \"5/s burst 0\" is not possible: the burst must be at least 1, not 0",
    );
    let error = toml(&with("limit = [\n  \"10/s\",\n  \"20/fortnight\"\n]"));
    check(&error, "6: policies[1].limit[2]: cannot read the limit \"20/fortnight\"");
    check(
        &toml(&with("limit = [\"1/s\", \"2/s\"]")),
        "4: policies[1].limit: two of the limits are of the same kind",
    );
    check(&toml(&with("limit = []")), "4: policies[1].limit: at least one limit");
    check(
        &toml(&with("limit = \"1/s; 0/h log\"")),
        "4: policies[1].limit: limit 2 of \"1/s; 0/h log\" is not possible",
    );
    check(&toml(&with("")), "1: policies[1]: the policy has no limit");
    let alone = "a ban counts the refusals of the other limits of this policy, and there are none: add one";
    let bans = "[\"ban 1h after 5 in 1min\", \"ban 1d after 9 in 1h name b\"]";
    check(&toml(&with("limit = \"ban 1h after 5 in 1min\"")), &format!("4: policies[1].limit: {alone}"));
    check(
        &toml(&format!("{}[plans.free]\na = {bans}", with("limit = \"1/s\""))),
        &format!("6: plans.free.a: {alone}"),
    );
    let error = toml(&format!("{}\n[plans.free]\n\na = \"5/min burst 0\"", with("")));
    check(&error, "8: plans.free.a: the limit \"5/min burst 0\" is not possible");
    let error = yaml("policies:\n  - name: a\n    key: address\n    limit: 99999999999999999999/s");
    check(&error, "4: policies[1].limit: cannot read the limit");
}

#[test]
fn names_are_unique_and_plans_name_policies() {
    let twice = format!("{}{}", with("limit = \"1/s\""), with("limit = \"2/s\""));
    check(&toml(&twice), "6: policies[2].name: two policies are called \"a\": the other one is in line 2");
    let error = toml(&format!("{}[plans.free]\nb = \"1/s\"\n", with("limit = \"1/s\"")));
    check(&error, "6: plans.free.b: no policy is called \"b\"; use one of a");
    // An alias is wrong where it is used.
    let error = yaml(
        "policies:\n  - {name: &a x, key: address, limit: 1/s}\n  - {name: *a, key: address, limit: 1/s}",
    );
    check(&error, "3: policies[2].name: two policies are called \"x\": the other one is in line 2");
    let error = toml("[[policies]]\nname = \"a b\"\nkey = \"address\"\nlimit = \"1/s\"");
    check(&error, "2: policies[1].name: the name \"a b\" is not");
    check(
        &toml(&format!("{}[plans.\"\"]\n", with("limit = \"1/s\""))),
        "5: plans.\"\": the name \"\" is not",
    );
    let limits: Vec<String> = (0..=MAX_CLAIMS).map(|index| format!("\"1/s name n{index}\"")).collect();
    let half = limits.len() / 2;
    let (first, second) = (limits[..half].join(","), limits[half..].join(","));
    let other = with(&format!("limit = [{first}]")).replace("\"a\"", "\"b\"");
    let error = toml(&format!("{other}{}[plans.big]\na = [{second}]", with("limit = \"1/s\"")));
    check(&error, "1: policies: there are 65 limits together");
    // Several limits in one text count as several.
    let in_one_text = |limits: &str| format!("\"{}\"", limits.replace('"', "").replace(',', "; "));
    let other = with(&format!("limit = {}", in_one_text(&first))).replace("\"a\"", "\"b\"");
    let error = toml(&format!("{other}{}", with(&format!("limit = {}", in_one_text(&second)))));
    check(&error, "1: policies: there are 65 limits together");
}

#[test]
fn keys_costs_and_routes_are_checked() {
    let with_key = |key: &str| format!("[[policies]]\nname = \"a\"\nlimit = \"1/s\"\nkey = {key}\n");
    check(
        &toml(&with_key("\"adress\"")),
        "4: policies[1].key: unknown kind of key \"adress\": use address, bearer-token",
    );
    check(
        &toml(&with_key("[\"address\",\n\"header\"]")),
        "5: policies[1].key[2]: unknown kind of key \"header\"",
    );
    check(&toml(&with_key("\"header:x y\"")), "4: policies[1].key: \"x y\" is not a header name");
    check(&toml(&with_key("\"api-key:\"")), "4: policies[1].key: \"\" is not a header name");
    check(&toml(&with_key("\"address or \"")), "4: policies[1].key: unknown kind of key");
    check(&toml(&with_key("[]")), "4: policies[1].key: the key is empty");
    let with = |lines: &str| with(&format!("limit = \"1/s\"\n{lines}"));
    check(&toml(&with("cost = 0")), "5: policies[1].cost: invalid value: integer `0`");
    check(&toml(&with("cost = -1")), "5: policies[1].cost: invalid type: integer");
    check(&toml(&with("cost = 1.5")), "5: policies[1].cost: invalid type: number with a point");
    check(
        &toml(&with("cost = { per_bytes = 0, if_unknown = 1 }")),
        "5: policies[1].cost.per_bytes: invalid value",
    );
    check(&toml(&with("routes = [\n\"/a\",\n\"GTE /b\"]")), "7: policies[1].routes[2]: \"GTE\" is not a");
    check(&toml(&with("routes = []")), "5: policies[1].routes: there is no route");
    check(&toml(&with("refund = [\"6xx\"]")), "5: policies[1].refund[1]: invalid value: string \"6xx\"");
    check(&toml(&with("refund = [99]")), "5: policies[1].refund[1]: invalid value: integer `99`");
    check(&toml(&with("count_only = []")), "5: policies[1].count_only: there is no status");
    check(&toml(&with("refund = []")), "5: policies[1].refund: there is no status");
    check(&toml(&with("count_only = [401]\nrefund = [500]")), "6: policies[1].refund: it cannot be combined");
    check(&toml("exempt = [\"health\"]\npolicies = []"), "1: exempt[1]: \"health\" is not a path");
}

#[test]
fn costs_that_never_fit_are_errors() {
    let never = |most| format!("a request of 50 units never fits the limit {most} at once: lower the cost");
    let error = toml(&with("limit = \"10/min\"\ncost = 50"));
    check(&error, &format!("5: policies[1].cost: {}", never("\"10/min\", which admits at most 10")));
    let error = toml(&with("limit = \"20 at once; 100000/min\"\ncost = 50"));
    check(&error, &format!("5: policies[1].cost: {}", never("\"20 at once\", which admits at most 20")));
    let plans = "[plans.free]\na = \"10/min burst 9\"\n[plans.paid]\na = \"50/min\"";
    let error = toml(&format!("{}{plans}", with("cost = 50")));
    check(&error, &format!("4: policies[1].cost: {}", never("\"10/min burst 9\", which admits at most 9")));
    // A quota of zero means to refuse everything.
    let zero = format!("{}[plans.none]\na = \"0/s\"", with("limit = \"50/min\"\ncost = 50"));
    Config::from_toml(&zero, "limits.toml").unwrap();
}

#[test]
fn settings_that_do_nothing_are_errors() {
    let held = "4: policies[1].count_only: with it, the limit \"20 at once\" would refuse nothing";
    check(&toml(&with("count_only = [401]\nlimit = \"20 at once; 9/s\"")), held);
    let in_plan = format!("{}[plans.free]\na = \"20 at once\"", with("count_only = [401]\nlimit = \"9/s\""));
    check(&toml(&in_plan), held);

    for field in ["refund = [500]", "settle = \"handler\""] {
        let name = field.split(' ').next().unwrap();
        for limits in ["20 at once", "20 at once; ban 1h after 5 in 1min"] {
            let expected = format!("4: policies[1].{name}: it has nothing to correct");
            check(&toml(&with(&format!("{field}\nlimit = {limits:?}"))), &expected);
        }
        let both = with(&format!("{field}\nlimit = \"20 at once; 9/s\""));
        Config::from_toml(&both, "limits.toml").unwrap();
    }

    let with = |lines: &str| with(&format!("limit = \"1/s\"\n{lines}"));
    for settle in ["header:x-cost", "take-header:x-cost"] {
        let error = toml(&with(&format!("settle = {settle:?}\nsettle_within = \"9s\"")));
        check(&error, "6: policies[1].settle_within: it does nothing: a cost from a header");
    }
    for key in ["everybody or address", "bearer-token or path or address"] {
        let error = toml(&with("").replace("\"address\"", &format!("{key:?}")));
        let word = if key.contains("path") { "path" } else { "everybody" };
        check(&error, &format!("3: policies[1].key: {word} is never missing, so nothing after it is used"));
    }
    Config::from_toml(&with("").replace("\"address\"", "\"address or path\""), "limits.toml").unwrap();

    let headers = |lines: &str| format!("[headers]\n{lines}\n{}", with(""));
    for families in ["", "families = []", "families = [\"draft-11\"]"] {
        let error = toml(&headers(&format!("reset = \"unix-seconds\"\n{families}")));
        check(&error, "2: headers.reset: it is for the families ratelimit and x-ratelimit");
    }
    for on_admitted in [true, false] {
        let error = toml(&headers(&format!("on_admitted = {on_admitted}\nfamilies = []")));
        check(&error, "2: headers.on_admitted: headers.families is empty");
    }
}

#[test]
fn client_settings_are_checked() {
    let with = |lines: &str| format!("{}[client]\n{lines}\n", with("limit = \"1/s\""));
    check(
        &toml(&with("trusted_proxies = [\n\"10.0.0.0/8\",\n\"10.0.0.0/33\"]")),
        "8: client.trusted_proxies[2]: \"10.0.0.0/33\" is not a network",
    );
    check(
        &toml(&with("header = \"x-forwarded-for\"")),
        "6: client.header: it is read from trusted proxies only",
    );
    check(
        &toml(&with("trusted_proxies = [\"::1\"]\nheader = \"x y\"")),
        "7: client.header: \"x y\" is not a header name",
    );
    check(&toml(&with("ipv4_prefix = 33")), "6: client.ipv4_prefix: 33 is invalid: use 1 to 32");
    check(&toml(&with("ipv6_prefix = 0")), "6: client.ipv6_prefix: 0 is invalid: use 1 to 128");
    check(
        &toml(&with("ipv6_prefix = 18446744073709551616")),
        "6: client.ipv6_prefix: the number is too large",
    );
}

#[test]
fn key_sources_of_the_program_can_be_named() {
    let text = "[[policies]]\nname = \"a\"\nkey = \"tenant or address\"\nlimit = \"1/s\"";
    let error = toml(text);
    assert!(error.contains("unknown kind of key \"tenant\"") && error.contains("Provided::key"), "{error}");
    let provided = Provided::default().key("tenant", KeySource::everybody());
    Config::from_toml_with(text, "limits.toml", &provided).unwrap();
    let error =
        Config::from_toml_with(&text.replace("tenant", "tennant"), "limits.toml", &provided).unwrap_err();
    assert!(
        error.to_string().contains("path, tenant, header:NAME")
            || error.to_string().contains("path-template, tenant"),
        "{error}"
    );
}
