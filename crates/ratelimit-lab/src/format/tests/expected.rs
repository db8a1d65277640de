//! What is known of lines: a pattern, and a zone of times.

use super::*;

fn pattern(text: &str) -> Expected {
    Expected { pattern: Some(text.parse().unwrap()), ..Expected::default() }
}

#[test]
fn a_pattern_finds_the_fields_of_any_line() {
    let pipes = pattern(r"^(?<time>\S+) \| (?<request>.*?) \| from (?<ip>\S+)( as (?<tenant>\w+))?$");
    let lines = [
        "started",
        "2026-01-05T10:00:00Z | GET / HTTP/1.1 | from 192.0.2.2",
        "2026-01-05T10:00:00.250Z | POST /a b?c HTTP/1.1 | from 192.0.2.1:5 as t1",
    ];
    let fields = &["ip", "method", "path", "tenant", "status"];
    let expected = ["192.0.2.1:5", "POST", "/a b", "t1", "-"].map(str::to_owned).to_vec();
    assert_eq!(read_as(&pipes, &lines, fields), Ok((Format::Pattern, 1_767_607_200_250, expected)));
    assert_eq!(read_as(&pipes, &lines[..2], &["tenant"]).unwrap().2, ["-"]);
    let error = read_as(&pipes, &[lines[1], lines[0]], &[]);
    assert_eq!(error, Err("it does not match --pattern".to_owned()));
    let error = read_as(&pipes, &["noon | GET / HTTP/1.1 | from 192.0.2.2"], &[]).unwrap_err();
    assert!(error.starts_with("the time is neither"), "{error}");
    // The usual names are known, too; and the line may be of another format, or within what a collector writes.
    let usual = pattern(
        r#"^(?<remote_addr>[0-9.]+) (?<user>\S+) .*\[(?<time_local>[^\]]+)\] "(?<request_method>\S+) (?<uri>\S+)"#,
    );
    let line = r#"192.0.2.1 bob - [05/Jan/2026:10:00:00 +0000] "GET /a?b HTTP/1.1" 200 5"#;
    let docker =
        format!(r#"{{"log":{},"stream":"stdout","time":"x"}}"#, serde_json::to_string(line).unwrap());
    for line in [line, &docker, &format!("web-1  | {line}"), &format!("2026-01-05T10:00:07Z stdout F {line}")]
    {
        let values = ["192.0.2.1", "bob", "GET", "/a"].map(str::to_owned).to_vec();
        let read = read_as(&usual, &[line], &["ip", "user", "method", "path"]);
        assert_eq!(read, Ok((Format::Pattern, 1_767_607_200_000, values)), "{line}");
    }
    for (text, fields, why) in [
        (r"(?<ip>\S+)", &[][..], "no group of --pattern has the time"),
        (r"(?<time>\S+)", &["tenant"], "no group of --pattern has the name"),
        ("(?<time>x)y", &[], "--pattern matches none of the first lines"),
    ] {
        let error = read_as(&pattern(text), &lines, fields).unwrap_err();
        assert!(error.starts_with(why), "{text}: {error}");
    }
    for wrong in ["(?<time>", r"\S+ (\S+)"] {
        assert!(wrong.parse::<Pattern>().is_err(), "{wrong}");
    }
}

#[test]
fn times_without_an_offset_are_read_in_a_zone() {
    let zone = |name: &str| Expected {
        time_zone: Some(jiff::tz::TimeZone::get(name).unwrap()),
        ..Expected::default()
    };
    let no_offset = "the time has no offset; name its zone with --timezone, such as UTC";
    let haproxy = r#"192.0.2.1:5 [05/Jan/2026:11:00:00.250] in b/s 1/0/3/6/9 200 2 - - ---- 1/1/1/1/0 0/0 "GET / HTTP/1.1""#;
    for lines in [
        &[r#"{"time":"2026-01-05 11:00:00.250"}"#][..],
        &["time,ip", "2026-01-05 11:00:00.250,192.0.2.1"],
        &["time:2026-01-05 11:00:00.250\tip:192.0.2.1"],
        &[r#"192.0.2.1 - - [2026-01-05 11:00:00.250] "GET / HTTP/1.1" 200 5"#],
        &[r#"192.0.2.1 - - [05/Jan/2026:11:00:00.250] "GET / HTTP/1.1" 200 5"#],
        &[haproxy],
    ] {
        let read = |expected: &Expected| read_as(expected, lines, &[]).map(|(_, millis, _)| millis);
        assert_eq!(read(&zone("Europe/Berlin")), Ok(1_767_607_200_250), "{lines:?}");
        match lines == [haproxy] {
            true => assert_eq!(read(&Expected::default()), Ok(1_767_610_800_250)),
            false => assert_eq!(read(&Expected::default()), Err(no_offset.to_owned()), "{lines:?}"),
        }
    }
}
