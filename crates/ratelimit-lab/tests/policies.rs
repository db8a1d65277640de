//! `replay --policies`: what the layer decides, and what it cannot know.

mod common;

use std::fs;

use common::{lab, lab_with};
use serde_json::json;

#[test]
fn the_policies_of_a_configuration_file_decide_as_the_layer_does() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    fs::write(
        &config,
        r#"
        exempt = ["GET /health"]
        [[policies]]
        name = "address"
        key = "address"
        limit = "3/min log"
        [[policies]]
        name = "log-in"
        key = "address"
        limit = "1/min log"
        routes = ["POST /login"]
        count_only = [401]
        [[policies]]
        name = "tenant"
        key = "header:x-tenant"
        limit = "1/min log"
        missing = "exempt"
        shadow = true
        "#,
    )
    .unwrap();
    let line = |second: u64, request: &str, status: u16, tenant: &str| {
        let (method, path) = request.split_once(' ').unwrap();
        format!(
            "{{\"time\":{},\"ip\":\"192.0.2.1\",\"method\":\"{method}\",\"path\":\"{path}\",\"status\":{status},\"t\":\"{tenant}\"}}\n",
            1_767_607_200 + second
        )
    };
    let text: String = [
        line(0, "GET /health", 200, "-"), // exempt
        line(1, "POST /login", 200, "-"), // not counted by log-in
        line(2, "POST /login", 401, "-"), // counted
        line(3, "POST /login", 200, "-"), // refused by log-in
        line(4, "GET /a", 200, "t1"),     // the third of the address
        line(5, "GET /a", 200, "-"),      // refused by address
        line(65, "GET /a", 200, "t2"),
        line(66, "GET /a", 200, "t2"), // refused by tenant, if it is not in shadow
    ]
    .concat();
    let run = |more: &[&str]| {
        let arguments = [
            &["replay", "-", "--json", "--policies", config.to_str().unwrap(), "--header", "x-tenant=t"],
            more,
        ]
        .concat();
        let result = lab_with(&arguments, text.as_bytes()).json();
        (result["columns"][0]["admitted"].clone(), result["columns"][0]["refused_by"].clone())
    };
    assert_eq!(run(&[]), (json!(6), json!({"address": 1, "log-in": 1})));
    assert_eq!(run(&["--enforce-shadow"]), (json!(5), json!({"address": 1, "log-in": 1, "tenant": 1})));
}

#[test]
fn each_policy_says_what_its_requests_lack() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.yaml");
    let text = r#"
        policies:
          - {name: key, key: "api-key:x-api-key", limit: 1/min log}
          - {name: own, key: "header:x-tenant", limit: 1/min log, missing: exempt, routes: ["GET /own"]}
          - {name: must, key: "header:x-tenant", limit: 9/min log, missing: refuse, routes: ["GET /must"]}
          - {name: address, key: address, limit: 1000/min}
          - {name: held, key: address, limit: 5 at once}
        plans: {paid: {key: 9/min}}
        "#;
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let line = |path: &str, more: &str| {
        format!("{{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"path\":\"{path}\"{more}}}\n")
    };
    let log = [
        line("/own", r#","t":"a","k":"1""#),
        line("/own", r#","k":"2","p":"paid""#),
        line("/must", ""),
        line("/must", r#","t":"b""#),
        line("/", ""),
    ]
    .concat();
    let arguments =
        ["replay", "-", "--policies", config, "--header", "x-api-key=k", "--header", "x-tenant=t"];
    let result =
        lab_with(&[&arguments[..], &["--json", "--plan-field", "p"]].concat(), log.as_bytes()).json();
    let policy = |name: &str, key: &str, requests: u64, without_key: u64, without_plan: serde_json::Value| json!({"name": name, "key": key, "requests": requests, "without_key": without_key, "without_plan": without_plan});
    let expected = [
        policy("key", "api-key:x-api-key", 5, 3, json!(4)),
        policy("own", "header:x-tenant", 2, 1, json!(null)),
        policy("must", "header:x-tenant", 2, 1, json!(null)),
        policy("address", "address", 5, 0, json!(null)),
        policy("held", "address", 5, 0, json!(null)),
    ];
    assert_eq!(result["columns"][0]["policies"], json!(expected));
    let said = lab_with(&arguments, log.as_bytes()).stdout;
    for text in [
        "3 of 5 requests of key without api-key:x-api-key; if the log has that, name the field, as with --header",
        "none of 5 requests of key has a plan; if the log has it, name the field with --plan-field",
        "not replayed are concurrency limits of policy held: no request has a duration, so it is not known",
    ] {
        assert!(said.contains(&format!("{config}: {text}")), "{text}: {said}");
    }
    let row = said.lines().find(|line| line.starts_with("key ")).unwrap();
    // Two of those without a key: they are counted together. One more of them is refused by `must`.
    let row: Vec<&str> = row.split_whitespace().collect();
    assert_eq!(row, ["key", "api-key:x-api-key", "5", "3", "5", "1"], "{said}");
    let page = lab_with(&[&["report", "-o", "-"], &arguments[1..]].concat(), log.as_bytes()).stdout;
    assert!(page.contains("api-key:x-api-key</td>") && page.contains("Without plan"), "{page}");
}

#[test]
fn by_ip_and_by_address_mean_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    fs::write(&config, "[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"1/min log\"\n").unwrap();
    let addresses = [
        "192.0.2.7",
        "::ffff:192.0.2.7",
        "192.0.2.7:80",
        "[::ffff:192.0.2.7]:80",
        "192.0.2.8",
        "2001:db8::1",
        "2001:db8::2",
        "[2001:db8::3]:80",
        "[2001:db8::3]",
        "2001:DB8:0::4",
        "2001:db8:0:1::1",
    ];
    let log = addresses.map(|ip| format!("{{\"time\":1767607200,\"ip\":\"{ip}\"}}\n")).concat();
    let arguments = [
        "replay",
        "-",
        "--json",
        "--limit",
        "1/min log",
        "--by",
        "ip",
        "--policies",
        config.to_str().unwrap(),
    ];
    let result = lab_with(&arguments, log.as_bytes()).json();
    let counts =
        |nth: usize| ["refused", "keys", "keys_refused"].map(|name| result["columns"][nth][name].clone());
    assert_eq!(
        (counts(0), counts(1)),
        ([7, 4, 2].map(|count| json!(count)), [7, 4, 2].map(|count| json!(count)))
    );
}

/// A log does not say whether a request had a body, unless it has its length.
#[test]
fn a_body_of_unknown_length_costs_what_the_policy_says() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"10/min log\"\n\
                cost = { per_bytes = 1, if_unknown = 4 }\n";
    fs::write(&config, text).unwrap();
    let arguments =
        ["replay", "-", "--json", "--policies", config.to_str().unwrap(), "--header", "content-length=n"];
    let admitted = |line: &str| {
        lab_with(&arguments, line.repeat(12).as_bytes()).json()["columns"][0]["admitted"].clone()
    };
    assert_eq!(admitted("{\"time\":1767607200,\"ip\":\"192.0.2.1\"}\n"), json!(2));
    assert_eq!(admitted("{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"n\":0}\n"), json!(10));
}

#[test]
fn true_costs_are_said_not_to_be_replayed() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let policy = |name: &str, more: &str| {
        format!(
            "[[policies]]\nname = \"{name}\"\nkey = \"address\"\nlimit = \"10/min log\"\ncost = 4\n{more}\n"
        )
    };
    let settles = "settle = \"header:x-cost\"";
    let text = policy("plain", "")
        + &policy("kept", settles)
        + &policy("free", &format!("{settles}\nunsettled = \"refund\""));
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let log = "{\"time\":1767607200,\"ip\":\"192.0.2.1\"}\n".repeat(3);
    let result = lab_with(&["replay", "-", "--json", "--policies", config], log.as_bytes()).json();
    // As it says: what is refunded if it is not settled costs nothing.
    assert_eq!(result["columns"][0]["refused_by"], json!({"plain": 1, "kept": 1}));
    let said = lab_with(&["replay", "-", "--policies", config], log.as_bytes()).stdout;
    for name in ["kept", "free"] {
        assert!(said.contains(&format!("{config}: not replayed are the true costs of {name}, ")), "{said}");
    }
    assert!(!said.contains("true costs of plain"), "{said}");
    let page = lab_with(&["report", "-", "-o", "-", "--policies", config], log.as_bytes()).stdout;
    assert!(page.contains("not replayed are the true costs of kept"));
}

#[test]
fn refusals_for_other_reasons_than_a_limit_are_said_to_be_such() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = r#"
        deny = [{ key = "address", clients = ["203.0.113.7"] }]
        [[policies]]
        name = "address"
        key = "address"
        limit = "9/min"
        [[policies]]
        name = "tenant"
        key = "header:x-tenant"
        limit = "9/min"
        missing = "refuse"
        routes = ["GET /tenant"]
        [[policies]]
        name = "big"
        key = "address"
        limit = "9/min"
        cost = { per_bytes = 1, if_unknown = 1 }
        routes = ["GET /big"]
        "#;
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let log = r#"{"time":1767607200,"ip":"203.0.113.7","path":"/"}
        {"time":1767607200,"ip":"203.0.113.7","path":"/"}
        {"time":1767607200,"ip":"192.0.2.1","path":"/tenant"}
        {"time":1767607200,"path":"/"}
        {"time":1767607200,"ip":"192.0.2.1","path":"/big","n":10}
        {"time":1767607200,"ip":"192.0.2.1","path":"/"}"#;
    let arguments = ["replay", "-", "--policies", config, "--header", "content-length=n"];
    let column = lab_with(&[&arguments[..], &["--json"]].concat(), log.as_bytes()).json();
    let column = &column["columns"][0];
    assert_eq!((&column["refused"], &column["never"]), (&json!(5), &json!(1)), "{column}");
    let said = lab_with(&arguments, log.as_bytes()).stdout;
    for remark in [
        " by ip: 1 request never admitted, however long the wait",
        // Policies have their own keys: these are only those of the table.
        " by ip: 1 request without that, shown together as one key; if another field has it, name that with --ip-field or --by",
        ": 2 requests refused with 403: the client is in a list of those to refuse",
        ": 1 request refused with 400: the client did not send what is counted by",
        ": 1 request refused with 500: the request has no address or other part that the policies count by",
        ": big refused 1",
    ] {
        assert!(said.contains(&format!("{config}{remark}\n")), "{remark}: {said}");
    }
}

#[test]
fn requests_that_wait_in_a_queue_come_to_their_end() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "[[policies]]\nname = \"queue\"\nkey = \"address\"\nlimit = \"60/min queue burst 3\"\nrefund = [503]\n";
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let log =
        |status: u16| format!("{{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"status\":{status}}}\n").repeat(5);
    let run = |status: u16| {
        let arguments = ["replay", "-", "--json", "--keep-seconds", "--policies", config];
        let result = lab_with(&arguments, log(status).as_bytes()).json();
        ["refused", "delayed", "longest_delay"].map(|name| result["columns"][0][name].clone())
    };
    // Three turns, a second apart. Those that fail give theirs back.
    assert_eq!(run(200), [json!(2), json!(2), json!(2.0)]);
    assert_eq!(run(503), [json!(0), json!(0), json!(0.0)]);
}

#[test]
fn what_a_program_provides_for_its_file_comes_from_the_log() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "[[policies]]\nname = \"own\"\nkey = \"tenant\"\nlimit = \"1/min log\"\n\
                missing = \"exempt\"\n";
    fs::write(&config, text).unwrap();
    let config = config.to_str().unwrap();
    let log: String = ["a", "b", "a", "-", "-"]
        .iter()
        .map(|tenant| format!("{{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"at\":{{\"t\":\"{tenant}\"}}}}\n"))
        .collect();
    let replay = |more: &[&str]| {
        lab_with(&[&["replay", "-", "--json", "--policies", config], more].concat(), log.as_bytes())
    };
    let column = &replay(&["--provided-key", "tenant=at.t"]).json()["columns"][0];
    assert_eq!((&column["requests"], &column["refused_by"]), (&json!(5), &json!({"own": 1})));
    replay(&[]).fails(1, "unknown kind of key \"tenant\"");
    replay(&["--provided-key", "tenant"]).fails(1, "--provided-key tenant: write NAME=FIELD");
    replay(&[]).fails(1, "with --provided-key");
}

#[test]
fn requests_without_a_status_a_method_or_a_path_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    fs::write(&config, "[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"9/s\"\n").unwrap();
    let config = config.to_str().unwrap();
    let log = r#"{"time":1767607200,"ip":"192.0.2.1","method":"GET","path":"/","status":200}
        {"time":1767607200,"ip":"192.0.2.1","method":"GET","path":"/","result":500}
        {"time":1767607200,"ip":"192.0.2.1","verb":"PUT","path":"/","status":"none"}
        {"time":1767607200,"ip":"192.0.2.1","method":"GET","path":"no path","status":200}"#;
    let said = lab_with(&["replay", "-", "--policies", config], log.as_bytes()).stdout;
    for note in [
        "Without a status: 2 requests, taken as 200\n",
        "Without a method: 1 request, taken as GET\n",
        "Without a path: 1 request, taken as /\n",
    ] {
        assert!(said.contains(note), "{note}: {said}");
    }
    let json = lab_with(&["replay", "-", "--json", "--policies", config], log.as_bytes()).json();
    let counts = ["without_status", "without_method", "without_path"].map(|name| json[name].clone());
    assert_eq!(counts, [json!(2), json!(1), json!(1)]);
    // Limits alone need none of these.
    let json = lab_with(&["replay", "-", "--json", "--limit", "9/s"], log.as_bytes()).json();
    assert_eq!(json["without_status"], 0);
}

#[test]
fn names_of_plans_that_the_file_lacks_are_counted() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.yaml");
    fs::write(&config, "policies: [{name: a, key: address, limit: 1/h}]\nplans: {paid: {a: 9/h}}").unwrap();
    let line = |plan: &str| format!("{{\"time\":1767607200,\"ip\":\"192.0.2.1\"{plan}}}\n");
    let log = [r#","p":"paid""#, r#","p":"Paid""#, "", r#","p":"free""#].map(line).concat();
    let arguments = ["replay", "-", "--policies", config.to_str().unwrap(), "--plan-field", "p"];
    let said = lab_with(&arguments, log.as_bytes()).stdout;
    let note = "With a plan in --plan-field that the policies lack: 2 requests, decided without a plan\n";
    assert!(said.contains(note), "{said}");
    let json = lab_with(&[&arguments[..], &["--json"]].concat(), log.as_bytes()).json();
    assert_eq!(json["without_plan"], 2);
}

#[test]
fn fields_that_no_request_has_are_pointed_out() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    let text = "[[policies]]\nname = \"own\"\nkey = \"tenant\"\nlimit = \"9/s\"\nmissing = \"exempt\"\n";
    fs::write(&config, text).unwrap();
    // A field that only some requests have is usual.
    let log = "{\"time\":1767607200,\"ip\":\"192.0.2.1\",\"h\":\"x\"}\n{\"time\":1767607201,\"ip\":\"192.0.2.1\"}\n";
    let config = config.to_str().unwrap();
    let fields =
        ["--header", "x-a=h", "--header", "x-b=g", "--plan-field", "p", "--provided-key", "tenant=t"];
    let arguments = [&["replay", "-", "--policies", config], &fields[..]].concat();
    let said = lab_with(&arguments, log.as_bytes()).stdout;
    for option in ["--header x-b=g", "--plan-field p", "--provided-key tenant"] {
        assert!(
            said.contains(&format!("No request has a value in the field of {option}\n")),
            "{option}: {said}"
        );
    }
    assert_eq!(said.matches("No request has").count(), 3, "{said}");
    let json = |log: &str| lab_with(&[&arguments[..], &["--json"]].concat(), log.as_bytes());
    let missing = json(log).json()["fields_without_values"].clone();
    assert_eq!(missing, json!(["--header x-b=g", "--plan-field p", "--provided-key tenant"]));
    assert_eq!(json("").json_of_nothing()["fields_without_values"], json!([]));
}

#[test]
fn options_that_do_nothing_to_policies_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    fs::write(&config, "[[policies]]\nname = \"a\"\nkey = \"address\"\nlimit = \"9/s\"\n").unwrap();
    let run = |more: &[&str]| {
        let policies = ["replay", "--requests", "10", "--policies", config.to_str().unwrap()];
        lab(&[&policies[..], more].concat())
    };
    run(&["--skip-missing"]).fails(1, "--skip-missing is for --limit and --suggest");
    for more in [["--by", "user", "--by", "ip"], ["--by", "ip", "--key-field", "ip"]] {
        run(&more).fails(1, "more than one --by or --key-field is for --limit and --suggest");
        assert_eq!(run(&[&more[..], &["--limit", "9/s"]].concat()).code, 0);
    }
    assert_eq!(run(&["--by", "user"]).code, 0);
}
