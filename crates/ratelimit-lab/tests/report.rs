//! `report`: the page says what `replay` says, whatever is in the log.

mod common;

use std::fs;

use common::html::Html;
use common::{lab, lab_with};
use serde_json::Value;

/// The page that these arguments give.
#[track_caller]
fn page(arguments: &[&str], input: &[u8]) -> (String, Html) {
    let ran = lab_with(&[&["report", "-o", "-"], arguments].concat(), input);
    let is_error = ran.stderr.contains("no request was read");
    assert!((ran.code == 0 && ran.stderr.is_empty()) || (ran.code == 1 && is_error), "{ran:?}");
    let html = Html::new(&ran.stdout);
    (ran.stdout, html)
}

/// A number as it is written for people.
fn number(text: &str) -> u64 {
    text.replace(',', "").parse().unwrap_or_else(|_| panic!("{text:?} is not a number"))
}

fn requests(times: impl IntoIterator<Item = u64>, key: &str) -> String {
    let line = |time| format!("{}\n", serde_json::json!({ "time": time, "ip": key }));
    times.into_iter().map(line).collect()
}

#[test]
fn the_numbers_are_those_of_replay() {
    let arguments = [
        "--requests",
        "20000",
        "--keys",
        "300",
        "--limit",
        "100/min",
        "--limit",
        "1/s; 50/min",
        "--by",
        "ip",
        "--by",
        "ip/24",
        "--suggest",
        "1%",
        "--top",
        "7",
    ];
    let json = lab(&[&["replay", "--json"], &arguments[..]].concat()).json();
    let (text, html) = page(&arguments, b"");
    let columns = json["columns"].as_array().unwrap();
    let summary = &html.rows(&["Limits", "By"])[0];
    assert_eq!((summary.len(), columns.len()), (4, 4));
    for (row, column) in summary.iter().zip(columns) {
        assert_eq!((&row[0], &row[1]), (&text_of(column, "limits"), &text_of(column, "by")));
        let names = [(2, "requests"), (3, "admitted"), (4, "refused"), (6, "keys"), (7, "keys_refused")];
        names.iter().for_each(|(at, name)| assert_eq!(number(&row[*at]), column[name], "{name}"));
        let answer = format!(
            "{} by {} would have refused {} of {} requests ({}), {} of {} ",
            row[0], row[1], row[4], row[2], row[5], row[7], row[6]
        );
        let answers = [html.texts("h1"), html.texts("p")].concat();
        assert!(answers.iter().any(|one| one.starts_with(&answer)), "{answer}: {answers:?}");
    }
    assert!(html.texts("h1")[0].starts_with("100/min by ip would have refused"), "the answer is first");
    for (rows, column) in html.rows(&["From, for"]).iter().zip(columns) {
        let sum = |at: usize| rows.iter().map(|row| number(&row[at])).sum::<u64>();
        assert_eq!(
            (sum(1), sum(3)),
            (column["requests"].as_u64().unwrap(), column["refused"].as_u64().unwrap())
        );
        assert!(sum(3) > 0 && rows.len() > 10, "{rows:?}");
    }
    let suggestions = json["suggestions"].as_array().unwrap();
    let whose = html.rows(&["Key", "Requests"]);
    let tops = columns.iter().chain(suggestions).filter(|one| !one["top"].as_array().unwrap().is_empty());
    let tops: Vec<&Value> = tops.collect();
    assert_eq!(whose.len(), tops.len());
    for (rows, one) in whose.iter().zip(tops) {
        for (row, key) in rows.iter().zip(one["top"].as_array().unwrap()) {
            assert_eq!(row[0], text_of(key, "key"));
            let names = [(1, "requests"), (2, "refused"), (4, "peak")];
            names.iter().for_each(|(at, name)| assert_eq!(number(&row[*at]), key[name], "{name}"));
        }
    }
    let tried = html.rows(&["Quota", "Refused"]);
    assert_eq!(tried.len(), suggestions.len());
    for (rows, one) in tried.iter().zip(suggestions) {
        assert!(text.contains(&format!("<code>{}</code>", text_of(one, "limit"))));
        for (row, tried) in rows.iter().zip(one["tried"].as_array().unwrap()) {
            let refused = &tried["refused"];
            assert_eq!(
                (number(&row[0]), number(&row[1])),
                (tried["quota"].as_u64().unwrap(), count(refused, "requests"))
            );
            assert_eq!(number(&row[3]), count(refused, "keys"));
        }
    }
}

fn text_of(value: &Value, name: &str) -> String {
    value[name].as_str().unwrap().to_owned()
}

fn count(value: &Value, name: &str) -> u64 {
    value[name].as_u64().unwrap()
}

#[test]
fn algorithms_are_compared_as_by_compare() {
    let model = ["--requests", "20000", "--keys", "300"];
    let json = lab(&[&["compare", "--json", "--limit", "100/min"], &model[..]].concat()).json();
    // Of limits with the same quota and period there is one comparison; bans and calendars have none.
    let limits = ["100/min", "100/min burst 20; ban 10min after 3 in 1h", "5/month"];
    let limits: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let (_, html) = page(&[&["--compare"], &limits[..], &model].concat(), b"");
    let tables = html.rows(&["Limit", "Refused", "Wrongly admitted"]);
    assert_eq!(tables.len(), 1);
    let algorithms = json["algorithms"].as_array().unwrap();
    assert_eq!(tables[0].len(), algorithms.len());
    for (row, one) in tables[0].iter().zip(algorithms) {
        assert_eq!(row[0], text_of(one, "limit"));
        assert_eq!(row[4], format!("{:.2} x", one["overshoot"].as_f64().unwrap()));
        assert_eq!(
            (number(&row[5]), number(&row[6])),
            (count(one, "keys_above"), count(one, "keys_refused_wrongly"))
        );
    }
    // The page says which limits are left out, each once.
    let left_out = |html: &Html| -> Vec<String> {
        html.texts("p").into_iter().filter(|text| text.starts_with("Not compared: ")).collect()
    };
    let out = left_out(&html);
    assert!(
        out.len() == 2 && out[0].contains(": 5/month: only") && out[1].contains(": ban 10min"),
        "{out:?}"
    );
    let out = left_out(&page(&["-", "--compare", "--limit", "5/month", "--by", "ip", "--by", "all"], b"").1);
    assert_eq!(out.len(), 1, "{out:?}");
    // Not all algorithms can have this quota; the rest of the page is there.
    let (_, html) = page(&[&["--compare", "--limit", "2000000/s"], &model[..]].concat(), b"");
    assert!(html.texts("p").iter().any(|text| text.contains("not all algorithms can have")));
    assert_eq!(html.rows(&["Limits", "By"]).len(), 1);
}

/// What would be more than text in a page, in keys and in the names of files.
const HOSTILE: [&str; 8] = [
    "<script>alert(1)</script>",
    "\"><img src=x onerror=alert(1)>",
    "'onmouseover='alert(1)",
    "</td></table></style></title><svg onload=alert(1)>",
    "&lt;b&gt;&amp;",
    "<!-- -->]]>",
    "{{7*7}}",
    "\u{202e}reversed\u{0}",
];

#[test]
fn what_is_in_a_log_is_only_text() {
    let folder = tempfile::tempdir().unwrap();
    let name = "</title><b>&\"'.log";
    let path = folder.path().join(name);
    fs::create_dir(path.parent().unwrap()).unwrap(); // it is called `<`
    let lines: String = HOSTILE.iter().map(|key| requests([1_767_607_200; 3], key)).collect();
    fs::write(&path, lines + "<i>bad</i>\n").unwrap();
    let path = path.to_str().unwrap();
    let arguments = [path, "--limit", "1/min", "--limit", "2/h", "--suggest", "0%", "--compare"];
    let (text, html) = page(&arguments, b"");
    let json = lab(&[&["replay", "--json"], &arguments[..arguments.len() - 1]].concat()).json();
    let shown: Vec<String> = html.rows(&["Key"])[0].iter().map(|row| row[0].clone()).collect();
    let keys: Vec<String> =
        json["columns"][0]["top"].as_array().unwrap().iter().map(|key| text_of(key, "key")).collect();
    assert_eq!(shown, keys);
    assert!(shown.iter().any(|key| key == HOSTILE[0]) && shown.len() == HOSTILE.len(), "{shown:?}");
    assert!(html.texts("title")[0].contains(name) && html.texts("dd")[0].contains(name));
    loads_nothing(&text, &html);
}

/// Asserts that nothing in a page is loaded or run.
#[track_caller]
fn loads_nothing(text: &str, html: &Html) {
    let known = [
        "html",
        "head",
        "meta",
        "title",
        "style",
        "body",
        "header",
        "main",
        "section",
        "article",
        "footer",
        "figure",
        "figcaption",
        "details",
        "summary",
        "h1",
        "h2",
        "h3",
        "h4",
        "p",
        "span",
        "strong",
        "code",
        "dl",
        "dt",
        "dd",
        "div",
        "table",
        "thead",
        "tbody",
        "tr",
        "th",
        "td",
        "svg",
        "line",
        "polyline",
        "polygon",
        "circle",
        "text",
    ];
    let attributes = [
        "lang",
        "charset",
        "http-equiv",
        "content",
        "name",
        "class",
        "id",
        "role",
        "aria-label",
        "tabindex",
        "scope",
        "width",
        "height",
        "viewbox",
        "xmlns",
        "opacity",
        "fill",
        "stroke",
        "stroke-width",
        "points",
        "x",
        "y",
        "x1",
        "y1",
        "x2",
        "y2",
        "dy",
        "cx",
        "cy",
        "r",
        "text-anchor",
        "font-family",
        "font-size",
    ];
    for element in html.elements() {
        assert!(known.contains(&&*element.name), "{element:?}");
        for (name, value) in &element.attributes {
            assert!(attributes.contains(&&*name.to_lowercase()), "{name}={value}");
            let is_address = value.contains("//") && name != "xmlns" && name != "aria-label";
            assert!(!is_address && !value.contains("url("), "{name}={value}");
        }
    }
    for style in html.texts("style") {
        assert!(!style.contains("url(") && !style.contains("@import"), "{style}");
    }
    assert_eq!(html.texts("style").len(), 1);
    assert!(text.contains("content=\"default-src 'none'; style-src 'unsafe-inline'\""));
}

#[test]
fn the_style_sheet_knows_every_colour_of_a_plot() {
    let (_, html) = page(&["--requests", "20000", "--limit", "100/min", "--suggest", "1%"], b"");
    let style = html.texts("style").concat();
    let elements = html.elements();
    let plots = elements
        .iter()
        .filter(|one| matches!(&*one.name, "line" | "polyline" | "polygon" | "circle" | "text"));
    let attributes = plots.flat_map(|one| &one.attributes);
    let mut count = 0;
    for (name, value) in
        attributes.filter(|(name, value)| matches!(&**name, "fill" | "stroke") && value != "none")
    {
        assert!(style.contains(&format!("svg [{name}=\"{value}\"]")), "{name}={value}");
        count += 1;
    }
    assert!(count > 50, "{count} colours");
}

#[test]
fn every_log_has_a_page() {
    let day = 86_400;
    let begin = 1_767_607_200;
    let logs = [
        ("empty", String::new(), "There are no requests in the log"),
        (
            "only bad lines",
            "{\"a\":1}\n{\"a\":2}\n".to_owned(),
            "nothing was decided: 2 lines could not be read.",
        ),
        ("one request", requests([begin], "a"), "would have refused 0 of 1 request (0 %), 0 of 1 client."),
        (
            "one instant",
            requests([begin; 5], "a"),
            "would have refused 4 of 5 requests (80.00 %), 1 of 1 client.",
        ),
        ("2,049 buckets", requests((0..2_049).map(|at| begin + at), "a"), "of 2,049 requests"),
        ("ten years", requests((0..3_650).map(|at| begin + at * day), "a"), "of 3,650 requests"),
        ("1970", requests([0, 1], "a"), "of 2 requests"),
        ("the last instant", requests([1, 4_000_000_000], "a"), "of 2 requests"),
    ];
    for (name, log, answer) in logs {
        let (text, html) = page(&["-", "--limit", "1/min", "--suggest", "1%", "--compare"], log.as_bytes());
        assert!(html.texts("h1")[0].contains(answer), "{name}: {:?}", html.texts("h1"));
        loads_nothing(&text, &html);
        // A plot for each size, with a picture's text and a table.
        let figures = html.texts("figure").len();
        let elements = html.elements();
        let pictures = elements.iter().filter(|one| one.attributes.contains(&("role".into(), "img".into())));
        let labelled = pictures
            .filter(|one| one.attributes.iter().any(|(name, text)| name == "aria-label" && text.len() > 20));
        assert_eq!((labelled.count(), html.texts("svg").len()), (2 * figures, 2 * figures), "{name}");
        assert_eq!(html.texts("details").len(), figures, "{name}");
        let has_requests = !html.rows(&["Limits"]).is_empty() && number(&html.rows(&["Limits"])[0][0][2]) > 0;
        assert_eq!(figures > 0, has_requests, "{name}");
    }
}

#[test]
fn a_page_without_proposals_says_so() {
    let arguments = ["-", "--suggest", "1%", "--by", "user", "--skip-missing"];
    let (_, html) = page(&arguments, requests([1_767_607_200], "a").as_bytes());
    assert_eq!(html.texts("h1"), ["No limit could be proposed."]);
}

#[test]
fn ten_limits_are_less_than_a_mebibyte() {
    // The longest keys, each byte of which is written as five, and as many buckets as there can be.
    let log: String = (0..4_100_u64)
        .map(|at| {
            let time = 1_767_607_200.0 + at as f64 / 2.002;
            let key = format!("{:\"<300}{}", "", at % 12);
            format!("{}\n", serde_json::json!({ "time": time, "ip": key }))
        })
        .collect();
    let limits: Vec<String> = (1..=10).map(|quota| format!("{quota}/min")).collect();
    let limits: Vec<&str> = limits.iter().flat_map(|limit| ["--limit", limit]).collect();
    let arguments = [&["-", "--suggest", "1%", "--compare"], &limits[..]].concat();
    let (text, html) = page(&arguments, log.as_bytes());
    assert_eq!(html.rows(&["Key"]).len(), 20);
    assert_eq!(html.rows(&["Key"])[0].len(), 10);
    assert!(text.len() < 1 << 20, "{} bytes", text.len());
}

#[test]
fn keys_can_be_hidden() {
    let log = requests([1_767_607_200; 5], "secret-a") + &requests([1_767_607_201; 9], "secret-b");
    let arguments = ["-", "--limit", "7/min log", "--limit", "1/min log", "--hide-keys"];
    let (text, html) = page(&arguments, log.as_bytes());
    assert!(!text.contains("secret"));
    let keys: Vec<Vec<String>> =
        html.rows(&["Key"]).iter().map(|rows| rows.iter().map(|row| row[0].clone()).collect()).collect();
    // The one of the first table is the first of the second.
    assert_eq!(keys, [vec!["key 1"], vec!["key 1", "key 2"]]);
    let (text, _) = page(&arguments[..5], log.as_bytes());
    assert!(text.contains("secret-a"));
    let (text, html) = page(&[&arguments[..5], &["--top", "0"]].concat(), log.as_bytes());
    assert!(!text.contains("secret") && html.rows(&["Key"]).is_empty());
    assert!(html.texts("h1")[0].contains("would have refused 2 of 14 requests"), "{:?}", html.texts("h1"));
}

#[test]
fn policies_are_named_and_counted() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("limits.toml");
    fs::write(&config, "[[policies]]\nname = \"each\"\nkey = \"address\"\nlimit = \"2/min log\"\n").unwrap();
    let log = requests([1_767_607_200; 5], "192.0.2.1");
    let (_, html) = page(&["-", "--policies", config.to_str().unwrap()], log.as_bytes());
    let answer = format!("The policies of {} would have refused 3 of 5 requests", config.display());
    assert!(html.texts("h1")[0].starts_with(&answer), "{:?}", html.texts("h1"));
    assert!(html.texts("p").iter().any(|text| text.ends_with("each refused 3")), "{:?}", html.texts("p"));
}

#[test]
fn the_page_is_written_to_a_file_and_is_the_same_each_time() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("page.html");
    let run = || {
        let ran = lab(&[
            "report",
            "--requests",
            "5000",
            "--limit",
            "10/min",
            "--compare",
            "-o",
            path.to_str().unwrap(),
        ]);
        assert_eq!((ran.code, &*ran.stderr), (0, ""), "{ran:?}");
        let written = fs::read_to_string(&path).unwrap();
        assert!(ran.stdout.starts_with(&format!("{}: ", path.display())), "{}", ran.stdout);
        written
    };
    assert_eq!(run(), run());
    lab(&["report", "--limit", "1/s", "--requests", "10", "-o", "missing/folder/page.html"])
        .fails(1, "missing/folder/page.html: cannot be written");
    lab(&["report"]).fails(1, "nothing to replay");
    lab(&["report", "--suggest", "1%", "--compare", "-o", "-"]).fails(1, "--compare needs --limit");
    lab(&["report", "--limit", "1/s", "--json"]).fails(2, "unexpected argument '--json'");
}
