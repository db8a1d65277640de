//! `replay`: decisions, results and messages.

mod common;

use std::fs;

use common::{lab, lab_with};
use ratelimit_core::{Limits, ManualClock, RateLimiter, Request, Timestamp};
use ratelimit_lab::{
    Engine, LinesRead, LogText, Model, Plan, Reading, Spec, Traffic, Wanted, Written, read_one,
};
use ratelimit_memory::MemoryStore;
use serde_json::json;

/// Lines of the combined format, at these seconds of 2026-01-05 10:00.
fn log(requests: &[(u64, &str)]) -> String {
    let line = |(second, ip): &(u64, &str)| {
        format!(
            "{ip} - - [05/Jan/2026:10:{:02}:{:02} +0000] \"GET /a HTTP/1.1\" 200 5 \"-\" \"-\"\n",
            second / 60,
            second % 60
        )
    };
    requests.iter().map(line).collect()
}

#[test]
fn every_decision_is_that_of_a_limiter_driven_by_hand() {
    for model in [Model::Zipf, Model::Bursts, Model::StartOfMinute] {
        let spec = Spec { model, requests: 20_000, keys: 50, ..Spec::default() };
        for limits in [
            "20/min",
            "20/min fixed",
            "5/s; 100/min",
            "20/min log",
            "60/min burst 5",
            "60/min queue burst 5",
            "240/h precision 1m strict",
        ] {
            let limits: Limits = limits.parse().unwrap();
            let clock = ManualClock::default();
            let limiter = RateLimiter::new(MemoryStore::new(), limits.clone()).with_clock(clock.clone());
            let (mut admitted, mut refused, mut longest) = (0_u64, vec![0_u64; 50], None);
            for sample in Traffic::new(&spec).unwrap() {
                // The log has microseconds.
                clock.set(Timestamp::from_micros(sample.time.as_nanos() / 1_000));
                let key = format!("10.0.0.{}", sample.key);
                let decision = limiter.check_now(Request::new(&key)).unwrap();
                admitted += u64::from(decision.allowed());
                if !decision.allowed() {
                    refused[sample.key as usize] += 1;
                    longest = longest.max(decision.retry_after());
                }
            }
            let plan = Plan { limits: vec![limits], by: vec!["ip".parse().unwrap()], ..Plan::default() };
            let mut wanted = Wanted::time(None);
            let mut engine = Engine::new(&plan, &mut wanted).unwrap();
            let text = LogText::new(Traffic::new(&spec).unwrap(), spec.keys, Written::Json);
            let reading = Reading { wanted, strict: true, ..Reading::default() };
            read_one("log", text, &reading, &mut LinesRead::default(), &mut |record| engine.add(record))
                .unwrap();
            let (replayed, _) = engine.finish(50).unwrap();
            let column = &replayed.columns[0];
            assert_eq!((column.requests, column.admitted), (20_000, admitted), "{spec} {}", column.limits);
            assert_eq!(
                column.longest_wait,
                longest.map(|wait| wait.as_secs_f64()),
                "{spec} {}",
                column.limits
            );
            assert!(column.refused > 100 && column.admitted > 100, "both occur: {column:?}");
            for key in &column.top {
                let number: usize = key.key.rsplit('.').next().unwrap().parse().unwrap();
                assert_eq!(key.refused, refused[number], "{spec} {} {}", column.limits, key.key);
            }
            assert_eq!(column.keys_refused, refused.iter().filter(|count| **count > 0).count() as u64);
            let series: u64 = column.series.buckets.iter().map(|bucket| bucket.refused).sum();
            assert_eq!(series, column.refused);
        }
    }
}

#[test]
fn each_limit_is_tried_by_each_key() {
    let text = log(&[(0, "192.0.2.1"), (1, "192.0.2.2"), (2, "192.0.2.1"), (3, "198.51.100.1")]);
    let arguments = [
        "replay",
        "-",
        "--json",
        "--limit",
        "1/min log",
        "--limit",
        "2/min log",
        "--by",
        "ip",
        "--by",
        "ip/24",
    ];
    let result = lab_with(&arguments, text.as_bytes()).json();
    let rows: Vec<_> = result["columns"]
        .as_array()
        .unwrap()
        .iter()
        .map(|column| {
            json!([column["limits"], column["by"], column["admitted"], column["refused"], column["keys"]])
        })
        .collect();
    assert_eq!(
        rows,
        [
            json!(["1/min log", "ip", 3, 1, 3]),
            json!(["2/min log", "ip", 4, 0, 3]),
            json!(["1/min log", "ip/24", 2, 2, 2]),
            json!(["2/min log", "ip/24", 3, 1, 2]),
        ]
    );
    assert_eq!(result["first"], 1_767_607_200_000_000_000_u64);
    assert_eq!(result["last"], 1_767_607_203_000_000_000_u64);
    let top = &result["columns"][0]["top"][0];
    assert_eq!((&top["key"], &top["requests"], &top["peak"]), (&json!("192.0.2.1"), &json!(2), &json!(2)));
    // The first unit leaves a nanosecond after a minute.
    assert_eq!(top["longest_wait"], 58.000000001);
}

#[test]
fn requests_are_counted_by_address_only_if_nothing_else_is_named() {
    let by = |more: &[&str]| -> Vec<String> {
        let input = b"{\"time\":1767607200,\"ip\":\"a\",\"tenant\":\"t\"}\n";
        let arguments = [&["replay", "-", "--json", "--limit", "1/min"], more].concat();
        let result = lab_with(&arguments, input).json();
        result["columns"]
            .as_array()
            .unwrap()
            .iter()
            .map(|column| column["by"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(by(&[]), ["ip"]);
    assert_eq!(by(&["--key-field", "tenant"]), ["field:tenant"]);
    assert_eq!(by(&["--by", "ip", "--key-field", "tenant"]), ["ip", "field:tenant"]);
}

#[test]
fn lines_out_of_order_are_decided_in_order_within_the_bound() {
    // In the order of their times all fit. If the last one is decided at the latest time, three are in one minute.
    let text = log(&[(0, "a"), (70, "a"), (81, "a"), (5, "a")]);
    let refused = |bound: &str| {
        let result = lab_with(
            &["replay", "-", "--json", "--limit", "2/min log", "--out-of-order", bound],
            text.as_bytes(),
        )
        .json();
        (result["columns"][0]["refused"].as_u64().unwrap(), result["too_late"].as_u64().unwrap())
    };
    assert_eq!(refused("2min"), (0, 0));
    assert_eq!(refused("10s"), (1, 1));
    assert_eq!(refused("0s"), (1, 1));
}

/// Apache writes a line when a request ends, with the time at which it began.
#[test]
fn a_file_that_is_more_out_of_order_is_read_again_with_the_bound_that_it_needs() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("access.log");
    let text = log(&[(0, "a"), (70, "a"), (81, "a"), (5, "a")]);
    fs::write(&path, &text).unwrap();
    let path = path.to_str().unwrap();
    let refused = |file: &str, more: &[&str]| {
        let arguments = [&["replay", file, "--json", "--limit", "2/min log"], more].concat();
        let result = lab_with(&arguments, text.as_bytes()).json();
        assert_eq!(
            (&result["lines"]["requests"], &result["late_by"]),
            (&json!(4), &json!(76_000_000_000_u64))
        );
        (result["columns"][0]["refused"].as_u64().unwrap(), result["too_late"].as_u64().unwrap())
    };
    assert_eq!(refused(path, &[]), (0, 0));
    // Neither a pipe nor a bound that was set: then what suffices is said, and does suffice.
    for (file, more) in [("-", &[][..]), (path, &["--out-of-order", "10s"])] {
        assert_eq!(refused(file, more), (1, 1), "{file}");
        let arguments = [&["replay", file, "--suggest", "1%"], more].concat();
        let said = lab_with(&arguments, text.as_bytes()).stdout;
        let note = "Out of order by more than --out-of-order: 1 request (25.00 %), decided at the latest time until then; set \
                    --out-of-order 76s, or";
        assert!(said.contains(note), "{said}");
        // A quarter of the requests in a burst that is not in the log is nothing to propose a limit from.
        assert!(said.contains("Not proposed: too many requests were decided at another time"), "{said}");
        assert!(!said.contains("At most 1%"), "{said}");
    }
    for bound in ["76s", "1d"] {
        assert_eq!(refused("-", &["--out-of-order", bound]), (0, 0));
    }
    let said = lab(&["replay", path, "--suggest", "1%"]).stdout;
    assert!(
        said.contains("Out of order by up to 76 s: the log was read twice") && said.contains("At most 1%"),
        "{said}"
    );
    let compared = lab(&["compare", path, "--json"]).json();
    assert_eq!(compared["too_late"], 0);
}

#[test]
fn costs_come_from_a_field() {
    let text = "{\"time\":1767607200,\"ip\":\"a\",\"bytes\":600}\n{\"time\":1767607201,\"ip\":\"a\",\"bytes\":600}\n\
                {\"time\":1767607202,\"ip\":\"a\",\"bytes\":400}\n{\"time\":1767607203,\"ip\":\"a\",\"bytes\":5000}\n";
    let arguments = ["replay", "-", "--json", "--limit", "1000/min log", "--cost-field", "bytes"];
    let result = lab_with(&arguments, text.as_bytes()).json();
    let column = &result["columns"][0];
    assert_eq!(
        (&column["admitted"], &column["refused"], &column["never"]),
        (&json!(2), &json!(2), &json!(1))
    );
}

#[test]
fn costs_beyond_any_limit_are_never_admitted() {
    let line = |cost: &str| format!("{{\"time\":1767607200,\"ip\":\"a\",\"n\":{cost}}}\n");
    let too_much = ["1000000000000000", "18446744073709551615", "\"99999999999999999999\""];
    let text: String = ["5"].iter().chain(&too_much).map(|cost| line(cost)).collect();
    for limit in ["100/min", "999999999999999/min", "100/min log", "100/min bucket", "100/min queue"] {
        let arguments = ["replay", "-", "--limit", limit, "--cost-field", "n"];
        let result = lab_with(&[&arguments[..], &["--json"]].concat(), text.as_bytes()).json();
        let column = &result["columns"][0];
        assert_eq!((&column["admitted"], &column["never"]), (&json!(1), &json!(3)), "{limit}: {column}");
        let said = lab_with(&arguments, text.as_bytes()).stdout;
        assert!(said.contains("3 requests never admitted, however long the wait"), "{said}");
    }
    let suggest = ["replay", "-", "--suggest", "1%", "--cost-field", "n"];
    let said = lab_with(&suggest, text.as_bytes()).stdout;
    assert!(said.contains("Not proposed: 1/min: no quota up to 999999999999999 refuses so little"), "{said}");
}

#[test]
fn costs_that_cannot_be_read_are_pointed_out() {
    let costs = ["7", "\"7\"", "-5", "1.5", "\"x\"", "null", "99999999999999999999", "18446744073709551616"];
    let line = |cost: &str| format!("{{\"time\":1767607200,\"ip\":\"a\",\"n\":{cost}}}\n");
    let text: String = costs.iter().map(|cost| line(cost)).collect();
    let arguments = ["replay", "-", "--limit", "18/min log", "--cost-field", "n"];
    let result = lab_with(&[&arguments[..], &["--json"]].concat(), text.as_bytes()).json();
    let column = &result["columns"][0];
    // Seven, seven, and four times one. More than there are numbers for can never be admitted.
    assert_eq!(
        (&result["without_cost"], &column["admitted"], &column["never"]),
        (&json!(4), &json!(6), &json!(2))
    );
    let said = lab_with(&arguments, text.as_bytes()).stdout;
    assert!(
        said.contains("Without a whole number in --cost-field: 4 requests, at a cost of one each"),
        "{said}"
    );
}

#[test]
fn bans_are_replayed() {
    // Two refusals ban the key for ten minutes; without the ban the last request fits.
    let text = log(&[(0, "a"), (1, "a"), (2, "a"), (90, "a")]);
    let refused = |limit: &str| {
        let result =
            lab_with(&["replay", "-", "--json", "--suggest", "1%", "--limit", limit], text.as_bytes()).json();
        (result["columns"][0]["refused"].clone(), result["suggestions"].as_array().unwrap().len())
    };
    assert_eq!(refused("1/min log"), (json!(2), 1));
    assert_eq!(refused("1/min log; ban 10min after 2 in 1min"), (json!(3), 1));
}

#[test]
fn the_peak_of_a_limit_in_total_is_not_of_a_period() {
    let text = log(&[(0, "a"), (1, "a"), (90, "a")]);
    for (limit, heading) in [
        ("1/min log", "PEAK (60 s)"),
        ("1 in total", "PEAK (IN TOTAL)"),
        ("1 in total; 1/s", "PEAK (IN TOTAL)"),
    ] {
        let said = lab_with(&["replay", "-", "--limit", limit], text.as_bytes()).stdout;
        assert!(said.contains(&format!("SHARE  {heading}  MEDIAN WAIT")), "{limit}: {said}");
    }
    let page = lab_with(&["report", "-", "-o", "-", "--limit", "1 in total"], text.as_bytes()).stdout;
    assert!(page.contains("Peak (in total)"), "{page}");
}

#[test]
fn requests_without_a_key_are_counted_together_or_left_out() {
    let text = log(&[(0, "a"), (1, "b"), (2, "c")]);
    let run = |more: &[&str]| {
        let arguments = [&["replay", "-", "--json", "--limit", "1/min log", "--by", "user"], more].concat();
        let result = lab_with(&arguments, text.as_bytes()).json();
        ["requests", "refused", "unidentified"].map(|name| result["columns"][0][name].as_u64().unwrap())
    };
    assert_eq!(run(&[]), [3, 2, 3]);
    assert_eq!(run(&["--skip-missing"]), [0, 0, 3]);
}

#[test]
fn the_first_command_works_on_an_empty_machine() {
    let ran = lab(&["replay", "--limit", "100/min", "--by", "ip"]);
    assert_eq!((ran.code, &*ran.stderr), (0, ""));
    for said in [
        "100,000 requests in 100,000 lines of generated traffic (--model zipf --seed 1",
        "Refused most: 100/min by ip",
    ] {
        assert!(ran.stdout.contains(said), "{said}: {}", ran.stdout);
    }
}

#[test]
fn whole_seconds_are_pointed_out_where_they_matter() {
    let note = "All times are whole seconds";
    let says = |limit: &str, input: &str| {
        lab_with(&["replay", "-", "--limit", limit], input.as_bytes()).stdout.contains(note)
    };
    let text = log(&[(0, "a"), (1, "a")]);
    assert!(says("10/s", &text) && !says("10/min", &text) && !says("10/s", ""));
    assert!(says("1000/h; 10/s", &text), "the shorter one matters");
    let said = lab_with(&["replay", "-", "--limit", "10/min"], log(&[(0, "a"), (0, "a")]).as_bytes()).stdout;
    assert!(
        said.contains("the requests of each second are spread evenly over it, unless you set --keep-seconds"),
        "{said}"
    );
    assert!(!says("10/s", "{\"time\":1767607200,\"ip\":\"a\"}\n{\"time\":1767607200.5,\"ip\":\"a\"}\n"));
}

/// The same traffic in microseconds is the truth.
#[test]
fn requests_of_a_whole_second_are_decided_nearly_as_they_came() {
    let folder = tempfile::tempdir().unwrap();
    for (model, limit) in [
        ("poisson", "10/s"),
        ("zipf", "10/s"),
        ("zipf", "5/s log"),
        ("zipf", "10/s burst 2"),
        ("diurnal", "5/s log"),
    ] {
        let refused = |format: &str, more: &[&str]| {
            let model = ["--model", model, "--requests", "20000", "--keys", "20", "--rate", "150"];
            let path = folder.path().join(format);
            let text = lab(&[&["generate", "--format", format], &model[..]].concat()).stdout;
            fs::write(&path, text).unwrap();
            let arguments = ["replay", path.to_str().unwrap(), "--json", "--limit", limit];
            let result = lab(&[&arguments[..], more].concat()).json();
            (result["columns"][0]["refused"].as_u64().unwrap(), result["spread"].as_bool().unwrap())
        };
        let ((truth, _), (spread, is_spread)) = (refused("json", &[]), refused("combined", &[]));
        let (kept, is_kept) = refused("combined", &["--keep-seconds"]);
        assert!(is_spread && !is_kept);
        let (far, near) = (kept.abs_diff(truth), spread.abs_diff(truth));
        assert!(far > 100 && near * 4 < far, "{model} {limit}: {truth}, spread {spread}, kept {kept}");
    }
}

#[test]
fn results_are_written_as_csv() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("keys.csv");
    let text = log(&[(0, "a"), (1, "a"), (2, "\"x,y\""), (3, "\"x,y\""), (4, "\"x,y\"")]);
    let ran =
        lab_with(&["replay", "-", "--limit", "1/min log", "--csv", path.to_str().unwrap()], text.as_bytes());
    assert_eq!(ran.code, 0, "{ran:?}");
    let written = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = written.lines().collect();
    assert_eq!(
        lines[0],
        "limits,by,key,requests,refused,peak,median_wait_seconds,longest_wait_seconds,path,agent"
    );
    assert!(lines[1].starts_with("1/min log,ip,\"\"\"x,y\"\"\",3,2,3,"), "{written}");
    assert!(lines[2].starts_with("1/min log,ip,a,2,1,2,"), "{written}");
    assert_eq!(lines.len(), 3);
}

#[test]
fn a_hundred_thousand_keys_that_appear_once_are_admitted() {
    let text: String =
        (0..100_000).map(|number| format!("{{\"time\":1767607200,\"ip\":\"{number}\"}}\n")).collect();
    let result =
        lab_with(&["replay", "-", "--json", "--limit", "1/min", "--suggest", "1%"], text.as_bytes()).json();
    let column = &result["columns"][0];
    assert_eq!((&column["keys"], &column["refused"]), (&json!(100_000), &json!(0)));
    assert_eq!(result["suggestions"][0]["limit"], "1/min");
}

#[test]
fn an_empty_log_has_no_requests() {
    let result =
        lab_with(&["replay", "-", "--json", "--limit", "1/min", "--suggest", "1%"], b"").json_of_nothing();
    assert_eq!((&result["first"], &result["columns"][0]["requests"]), (&json!(null), &json!(0)));
    let ran = lab_with(&["replay", "-", "--limit", "1/min"], b"\n\n");
    assert!(ran.code == 1 && ran.stdout.starts_with("0 requests in 2 lines of standard input"), "{ran:?}");
    assert_eq!(ran.stderr, "error: standard input: no request was read; 0 bad lines are left out\n");
}

#[test]
fn a_log_of_which_nearly_nothing_was_read_is_an_error_after_the_results() {
    let line = log(&[(0, "a")]);
    for (bad, code) in [(0, 0), (9, 0), (10, 1), (1_000, 1)] {
        let text = line.clone() + &"nonsense\n".repeat(bad);
        for arguments in [
            &["replay", "-", "--limit", "1/min"][..],
            &["report", "-", "-o", "-", "--limit", "1/min"],
            &["compare", "-", "--limit", "1/min"],
        ] {
            if arguments[0] == "compare" && bad != 10 {
                continue; // it takes seconds
            }
            let ran = lab_with(arguments, text.as_bytes());
            assert_eq!(ran.code, code, "{bad} {arguments:?}: {ran:?}");
            assert!(ran.stdout.contains("1 request"), "{ran:?}");
            let said = format!("nearly nothing was read: 1 request, and {} left out", count(bad));
            assert_eq!(ran.stderr.contains(&said), code == 1, "{ran:?}");
        }
    }
    fn count(bad: usize) -> String {
        if bad == 1_000 { "1,000 bad lines".to_owned() } else { format!("{bad} bad lines") }
    }
    let array = format!("[\n{}]\n", "{\"time\":1767607200,\"ip\":\"192.0.2.1\"},\n".repeat(40));
    lab_with(&["replay", "-", "--limit", "1/min"], array.as_bytes())
        .fails(1, "standard input: it is an array of JSON: write each of its objects on a line, as with `jq -c '.[]' FILE");
}

#[test]
fn advice_on_fields_is_not_of_options_that_are_set_or_cannot_work() {
    let run = |arguments: &[&str], text: &str| {
        let ran = lab_with(&[&["replay", "-", "--limit", "1/min"], arguments].concat(), text.as_bytes());
        ran.stdout + &ran.stderr
    };
    let at = ["--time-field", "at"];
    let json = "{\"time\":1767607200,\"ip\":\"192.0.2.1\"}\n";
    let said = run(&at, json);
    assert!(said.contains("there is no time in the field that --time-field names"), "{said}");
    let said = run(&at, "time,ip\n1767607200,192.0.2.1\n");
    assert!(said.contains("the first line has no CSV column \"at\", which --time-field names"), "{said}");
    let said = run(&["--format", "csv"], "when,ip\n1767607200,192.0.2.1\n");
    assert!(
        said.contains("the first line does not name a CSV column with the time; set --time-field"),
        "{said}"
    );
    let advice = "if another field has it, name that with --ip-field or --by";
    let said = run(&["--by", "user"], json);
    assert!(said.contains(advice), "{said}");
    let said = run(&["--by", "user"], &log(&[(0, "192.0.2.1")]));
    let rest = "1 request without that, counted together as one key, or leave them out with --skip-missing\n";
    assert!(said.contains(rest) && !said.contains(advice), "{said}");
}

#[test]
fn mistakes_are_explained() {
    let line = log(&[(0, "a")]);
    let run = |arguments: &[&str]| lab_with(&[&["replay", "-"], arguments].concat(), line.as_bytes());
    assert!(lab(&["--help"]).stdout.contains("2 if the arguments cannot be read, 1 after any other error"));
    run(&[]).fails(1, "nothing to replay: give --limit, --policies or --suggest");
    run(&["-", "--limit", "5/s"]).fails(1, "standard input can be read only once: write `-` only once");
    run(&["--limit", "10/fortnight"]).fails(2, "expected a unit of time");
    run(&["--limit", "5/s", "--by", "ip/33"]).fails(2, "networks are ip/BITS");
    run(&["--limit", "5/s", "--by", "tenant"])
        .fails(1, "standard input: the combined log format has no field of the name \"tenant\"");
    run(&["--limit", "5/s", "--time-field", "at"]).fails(1, "no field of the name \"at\"");
    lab(&["replay", "--limit", "5/s", "--time-field", "at"]).fails(2, "<FILE>");
    run(&["--suggest", "1"]).fails(2, "write a share as");
    run(&["--suggest", "100%"]).fails(2, "a share is below 100%");
    run(&["--limit", "1/s", "--format", "csv"]).fails(1, "does not name a CSV column with the time");
    run(&["--policies", "missing.toml"]).fails(1, "missing.toml: cannot be read");
    lab(&["replay", "missing.log", "--limit", "5/s"]).fails(1, "missing.log: cannot be opened");
    lab_with(&["replay", "-", "--limit", "5/s", "--strict"], (line.clone() + "x\n").as_bytes())
        .fails(1, "standard input, line 2: there is no [time]");
    lab_with(&["replay", "-", "--limit", "5/s"], b"a\0b\0c").fails(1, "standard input: it is binary");
    run(&["--limit", "5/s", "--by", "field:ip"]).fails(1, "no field of the name \"ip\", only ip, user");
}

#[test]
fn a_plan_that_counts_by_nothing_counts_by_address() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.toml");
    fs::write(&path, "[[policies]]\nname = \"each\"\nkey = \"address\"\nlimit = \"1/min log\"\n").unwrap();
    let plan = Plan { limits: vec!["2/min log".parse().unwrap()], policies: Some(path), ..Plan::default() };
    let mut wanted = Wanted::time(None);
    let mut engine = Engine::new(&plan, &mut wanted).unwrap();
    let text = log(&[(0, "192.0.2.1"), (1, "192.0.2.1"), (2, "192.0.2.1"), (3, "192.0.2.2")]);
    let reading = Reading { wanted, strict: true, ..Reading::default() };
    let mut lines = LinesRead::default();
    read_one("log", text.as_bytes(), &reading, &mut lines, &mut |record| engine.add(record)).unwrap();
    let (replayed, _) = engine.finish(9).unwrap();
    let columns =
        replayed.columns.iter().map(|one| (&*one.by, one.refused, one.unidentified, &*one.top[0].key));
    assert_eq!(columns.collect::<Vec<_>>(), [("ip", 1, 0, "192.0.2.1"), ("ip", 2, 0, "192.0.2.1")]);
}
