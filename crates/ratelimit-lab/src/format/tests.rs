//! Tests of the formats, on lines that servers write.

mod expected;
mod json_lines;
mod servers;
mod wrapped;

use super::*;
use crate::field::Field;
use crate::record::LONGEST;

/// Reads these lines, and returns the format, and of the last line its time in milliseconds and its values of these
/// fields; `-` for those that it does not have.
fn read(lines: &[&str], fields: &[&str]) -> Result<(Format, u64, Vec<String>), String> {
    read_as(&Expected::default(), lines, fields)
}

/// The same of lines of which this is known.
fn read_as(
    expected: &Expected,
    lines: &[&str],
    fields: &[&str],
) -> Result<(Format, u64, Vec<String>), String> {
    let mut wanted = Wanted::time(None);
    let places: Vec<usize> = fields.iter().map(|name| wanted.add(Field::of_name(name))).collect();
    let bytes: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
    let mut parser = Parser::detect(&bytes, &wanted, expected).map_err(|error| error.to_string())?;
    let mut record = Record::default();
    let mut last = Line::Nothing;
    for line in bytes {
        last = parser.parse(line, &mut record);
    }
    let format = parser.format();
    match last {
        Line::Request => {
            let text =
                |place: &usize| String::from_utf8_lossy(record.get(*place).unwrap_or(b"-")).into_owned();
            Ok((format, record.time.as_nanos() / 1_000_000, places.iter().map(text).collect()))
        }
        Line::Nothing => Err("nothing".to_owned()),
        Line::Bad(reason) => Err(reason.to_owned()),
    }
}

const ALL: &[&str] = &["ip", "user", "method", "path", "status", "bytes", "referer", "agent"];

#[track_caller]
fn reads(line: &str, format: Format, millis: u64, values: [&str; 8]) {
    assert_eq!(read(&[line], ALL), Ok((format, millis, values.map(str::to_owned).to_vec())));
}

/// Asserts who the client and the user of a line are that begins so.
fn reads_front(front: &str, ip: &str, user: &str) {
    let line = format!(r#"{front} [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#);
    reads(&line, Format::Combined, 1_767_607_200_000, [ip, user, "GET", "/", "200", "5", "-", "-"]);
}

#[test]
fn the_common_format_is_read() {
    reads(
        r#"127.0.0.1 - frank [10/Oct/2000:13:55:36 -0700] "GET /apache_pb.gif HTTP/1.0" 200 2326"#,
        Format::Combined,
        971_211_336_000,
        ["127.0.0.1", "frank", "GET", "/apache_pb.gif", "200", "2326", "-", "-"],
    );
}

#[test]
fn the_combined_format_is_read() {
    // From nginx: an address of IPv6, a query, and one more field at the end.
    reads(
        r#"2001:db8::7 - - [05/Jan/2026:10:00:00 +0100] "POST /login?next=%2F HTTP/2.0" 302 0 "https://example.org/" "Mozilla/5.0 (X11)" 0.012"#,
        Format::Combined,
        1_767_603_600_000,
        ["2001:db8::7", "-", "POST", "/login", "302", "0", "https://example.org/", "Mozilla/5.0 (X11)"],
    );
    // Apache escapes quotes, nginx writes them as \x22. A client can send what is not HTTP.
    reads(
        r#"192.0.2.1 - "j doe" [05/Jan/2026:10:00:00 +0000] "GET /a\"b HTTP/1.1" 404 - "-" "say \"hi\"""#,
        Format::Combined,
        1_767_607_200_000,
        ["192.0.2.1", "\"j doe\"", "GET", "/a\\\"b", "404", "-", "-", "say \\\"hi\\\""],
    );
    reads(
        r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "\x16\x03\x01" 400 157 "-" "-""#,
        Format::Combined,
        1_767_607_200_000,
        ["192.0.2.1", "-", "-", "\\x16\\x03\\x01", "400", "157", "-", "-"],
    );
    // Apache and morgan, if the client has gone before the response.
    reads(
        r#"::1 - - [05/Jan/2026:10:00:00 +0000] "GET /slow HTTP/1.1" - - "-" "curl/8""#,
        Format::Combined,
        1_767_607_200_000,
        ["::1", "-", "GET", "/slow", "-", "-", "-", "curl/8"],
    );
    // Apache's vhost_combined.
    reads(
        r#"www.example.org:443 192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5 "-" "curl/8""#,
        Format::Combined,
        1_767_607_200_000,
        ["192.0.2.1", "-", "GET", "/", "200", "5", "-", "curl/8"],
    );
}

/// nginx's `[$time_iso8601]`, and Apache's `[%{%d/%b/%Y:%T}t.%{msec_frac}t %{%z}t]`.
#[test]
fn the_combined_format_may_have_another_time() {
    for (time, millis) in [
        ("2026-01-05T10:00:00+00:00", 1_767_607_200_000),
        ("2026-01-05T10:00:00.250Z", 1_767_607_200_250),
        ("05/Jan/2026:10:00:00.250 +0000", 1_767_607_200_250),
    ] {
        reads(
            &format!(r#"192.0.2.1 - [x] [{time}] "GET /a HTTP/1.1" 200 5 "-" "curl""#),
            Format::Combined,
            millis,
            ["192.0.2.1", "[x]", "GET", "/a", "200", "5", "-", "curl"],
        );
    }
}

#[test]
fn a_user_may_have_any_name() {
    for user in ["[", "[admin]", "a ] b", "x [01/Jan/2020:00:00:00 +0000]", "[01/Jan/2020:00:00:00 +0000] x"]
    {
        reads(
            &format!(
                r#"192.0.2.1 - {user} [05/Jan/2026:10:00:00 +0000] "GET /[a] HTTP/1.1" 401 7 "-" "[x]""#
            ),
            Format::Combined,
            1_767_607_200_000,
            ["192.0.2.1", user, "GET", "/[a]", "401", "7", "-", "[x]"],
        );
    }
}

#[test]
fn a_virtual_host_is_not_the_client() {
    for (front, ip, user) in [
        ("www.example.org 192.0.2.1 - -", "192.0.2.1", "-"),
        ("www.example.org 192.0.2.1 - alice", "192.0.2.1", "alice"),
        ("www.example.org 2001:db8::7 - John Smith", "2001:db8::7", "John Smith"),
        ("www.example.org:443 client.example - -", "client.example", "-"),
        ("[2001:db8::1]:443 192.0.2.1 - -", "192.0.2.1", "-"),
        // No virtual host, although the client's address looks like one, or the user's name has spaces.
        ("2001:db8::7:80 - -", "2001:db8::7:80", "-"),
        ("192.0.2.1:5555 - John Smith", "192.0.2.1:5555", "John Smith"),
        ("192.0.2.1 - John Smith", "192.0.2.1", "John Smith"),
        ("client.example - 192.0.2.9 x", "client.example", "192.0.2.9 x"),
    ] {
        reads_front(front, ip, user);
    }
}

/// Clients behind proxies must not go missing from a log that has others, too.
#[test]
fn a_list_of_addresses_is_one_field() {
    for (front, ip, user) in [
        ("203.0.113.9, 10.0.0.1 - -", "203.0.113.9, 10.0.0.1", "-"),
        ("203.0.113.9, 10.0.0.1, 10.0.0.2 - John Smith", "203.0.113.9, 10.0.0.1, 10.0.0.2", "John Smith"),
        ("203.0.113.9,10.0.0.1 - -", "203.0.113.9,10.0.0.1", "-"),
        ("2001:db8::7, 10.0.0.1 - -", "2001:db8::7, 10.0.0.1", "-"),
        ("unknown, 10.0.0.1 - -", "unknown, 10.0.0.1", "-"),
        ("www.example.org 203.0.113.9, 10.0.0.1 - alice", "203.0.113.9, 10.0.0.1", "alice"),
        ("www.example.org:443 203.0.113.9, 10.0.0.1 - -", "203.0.113.9, 10.0.0.1", "-"),
    ] {
        reads_front(front, ip, user);
    }
}

/// With an address as the host that a request is for, one line alone does not tell which of the two is the client.
#[test]
fn whether_the_client_or_the_host_comes_first_is_decided_for_the_file() {
    let after = r#"[05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
    for (fronts, ip, user) in [
        // nginx's `$remote_addr $host - $remote_user`.
        (&["192.0.2.7 www.example.org - -", "192.0.2.8 198.51.100.1 - bob"][..], "192.0.2.8", "bob"),
        (&["192.0.2.7 198.51.100.1 - -", "192.0.2.8 198.51.100.1 - John Smith"], "192.0.2.8", "John Smith"),
        (&["192.0.2.8 www.example.org - bob"], "192.0.2.8", "bob"),
        (&["192.0.2.7, 10.0.0.1 www.example.org - -", "192.0.2.8 198.51.100.1 - -"], "192.0.2.8", "-"),
        // lighttpd's `%h %V %u`.
        (&["192.0.2.7 www.example.org -", "192.0.2.8 198.51.100.1 John Smith"], "192.0.2.8", "John Smith"),
        (&["192.0.2.7 198.51.100.1 -", "192.0.2.8 198.51.100.1:80 -"], "192.0.2.8", "-"),
        // Virtual hosts, one of which is an address.
        (&["www.example.org 192.0.2.7 - -", "198.51.100.1 192.0.2.8 - bob"], "192.0.2.8", "bob"),
        (&["198.51.100.1 192.0.2.7 - -", "198.51.100.1 192.0.2.8 - bob"], "192.0.2.8", "bob"),
        (&["198.51.100.1:80 192.0.2.7 - -", "198.51.100.1:80 192.0.2.8 - bob"], "192.0.2.8", "bob"),
        // Names of clients that the server has looked up.
        (&["www.example.org 192.0.2.7 - -", "www.example.org client.example - bob"], "client.example", "bob"),
        (&["www.example.org 192.0.2.7 - -", "198.51.100.1 client.example - bob"], "client.example", "bob"),
        // Neither.
        (&["192.0.2.7 - -", "192.0.2.8 - 192.0.2.9 - x"], "192.0.2.8", "192.0.2.9 - x"),
        (&["192.0.2.7 joe bob", "192.0.2.8 joe bob"], "192.0.2.8", "bob"),
    ] {
        let lines: Vec<String> = fronts.iter().map(|front| format!("{front} {after}")).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(read(&lines, &["ip", "user"]).unwrap().2, [ip, user], "{fronts:?}");
    }
}

#[test]
fn quotes_around_a_line_are_not_a_part_of_it() {
    let line = r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET /a HTTP/1.1" 200 5 "" "say \"hi\" there""#;
    for quoted in [
        serde_json::to_string(line).unwrap(),
        format!("\"{}\"", line.replace('"', "\"\"")),
        format!("\"{line}\""),
    ] {
        let values = read(&[&quoted, &quoted], &["ip", "path", "agent"]).unwrap().2;
        assert_eq!(values, ["192.0.2.1", "/a", r#"say \"hi\" there"#], "{quoted}");
    }
    let json = serde_json::to_string(r#"{"time":1767607200,"ip":"192.0.2.1"}"#).unwrap();
    assert_eq!(read(&[&json], &["ip"]).unwrap().2, ["192.0.2.1"]);
}

/// A client chooses the name with which it tries to log in. With a search to the end of the line for each bracket, this takes
/// longer than anybody waits.
#[test]
fn a_name_of_brackets_is_read_in_time() {
    let good = r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
    let line = format!("192.0.2.1 - {}]", "[".repeat(1_000_000));
    assert!(read(&[good, &line], ALL).is_err_and(|error| error.contains("the time is not like")));
}

#[test]
fn bytes_that_are_not_utf8_are_read() {
    let wanted = {
        let mut wanted = Wanted::time(None);
        wanted.add(Field::Path);
        wanted
    };
    let mut record = Record::default();
    for (line, path) in [
        (&b"{\"time\":1767607200,\"path\":\"/\xff\xc3\\n\"}"[..], &b"/\\xff\\xc3\n"[..]),
        (b"{\"agent\":\"\xff\",\"time\":1767607200,\"path\":\"/\"}", b"/"),
        // nginx and Apache write such bytes, quotes and control characters with escapes that JSON does not have.
        (b"{\"agent\":\"a\\x22\",\"time\":1767607200,\"path\":\"/\xff\"}", b"/\\xff"),
        (br#"{"agent":"\v","time":1767607200,"path":"/\xC3\"\\x\u0041\v"}"#, b"/\\xC3\"\\xA\\v"),
        (br#"{"time":1767607200,"path":"/\\x41"}"#, b"/\\x41"),
        (b"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] \"GET /\xff HTTP/1.1\" 200 5", b"/\xff"),
    ] {
        let mut parser = Parser::detect(&[line], &wanted, &Expected::default()).unwrap();
        assert_eq!(parser.parse(line, &mut record), Line::Request, "{}", line.escape_ascii());
        assert_eq!(record.get(1), Some(path), "{}", line.escape_ascii());
    }
    let mut parser = Parser::detect(&[b"{\"time\":1}"], &wanted, &Expected::default()).unwrap();
    for line in [
        &b"{\"time\":1767607200,\xff\"path\":\"/\"}"[..],
        b"{\"time\":1767607200} \xff",
        br#"{"time":1,"path":"\"#,
    ] {
        assert!(matches!(parser.parse(line, &mut record), Line::Bad(_)), "{}", line.escape_ascii());
    }
}

#[test]
fn a_value_may_be_as_long_as_a_line() {
    let long = "x".repeat(LONGEST - 20);
    for lines in [
        [r#"{"time":1}"#.to_owned(), format!(r#"{{"time":1,"ip":"{long}"}}"#)],
        ["time,ip".to_owned(), format!("1,\"{long}\"")],
    ] {
        let (_, _, values) = read(&[&lines[0], &lines[1]], &["ip"]).unwrap();
        assert_eq!(values[0].len(), long.len());
    }
}

#[test]
fn csv_is_read_by_its_header() {
    let (format, millis, values) = read(
        &[
            "timestamp,client_ip,\"method\",url,tenant",
            r#"2026-01-05T10:00:00.5Z,192.0.2.1,GET,"/a,""b""?c",t 1"#,
        ],
        &["ip", "method", "path", "tenant", "user"],
    )
    .unwrap();
    assert_eq!((format, millis), (Format::Csv, 1_767_607_200_500));
    assert_eq!(values, ["192.0.2.1", "GET", "/a,\"b\"", "t 1", "-"]);
    let (_, _, values) = read(&["ip;time", "a,b;1767607200"], &["ip"]).unwrap();
    assert_eq!(values, ["a,b"]);
    let (_, millis, values) =
        read(&["time, ip, user", " 1767607200 , 192.0.2.1,\t"], &["ip", "user"]).unwrap();
    assert_eq!((millis, values), (1_767_607_200_000, vec!["192.0.2.1".to_owned(), "-".to_owned()]));
    let (format, _, values) = read(&["user,time", "{a},1767607200"], &["user"]).unwrap();
    assert_eq!((format, &*values[0]), (Format::Csv, "{a}"));
    assert_eq!(
        read(&["time,ip", "1,2,3"], &[]),
        Err("it has another number of columns than the header".to_owned())
    );
    assert_eq!(read(&["time,ip", "time,ip"], &[]), Err("it is the header again".to_owned()));
    for line in ["1,\"a", "\"1,a", "1,\"a\"\""] {
        let error = read(&["time,ip", line], &[]).unwrap_err();
        assert!(error.starts_with("a quote is not closed"), "{line}: {error}");
    }
}

#[test]
fn labels_come_in_any_order() {
    let lines = [
        "time:1767607200\tip:192.0.2.1\tpath:/a",
        "ip:192.0.2.2\ttime:1767607200\tpath:/b",
        "pathx:/x\tpath:/c\ttime:1767607200\tip:192.0.2.3",
        "pathx:/x\tpath:/d\tip:192.0.2.4\ttime:1767607200\tpath:/e",
    ];
    for (count, values) in [
        (1, ["192.0.2.1", "/a"]),
        (2, ["192.0.2.2", "/b"]),
        (3, ["192.0.2.3", "/c"]),
        (4, ["192.0.2.4", "/d"]),
    ] {
        assert_eq!(read(&lines[..count], &["ip", "path"]).unwrap().2, values);
    }
    let error = read(&[lines[0], "time:1767607200\tip192.0.2.1"], &[]).unwrap_err();
    assert_eq!(error, "a value between tabs has no label");
}

#[test]
fn other_lines_are_bad_and_say_why() {
    let good = r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
    for (line, why) in [
        ("192.0.2.1 - - GET /", "there is no [time]"),
        ("192.0.2.1 - - [05/Jan/2026", "there is no ] after the time"),
        (r#"192.0.2.1 - - [yesterday] "GET / HTTP/1.1" 200 5"#, "the time is not like"),
        (r#"192.0.2.1 [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#, "there is no `host ident user`"),
        (r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1"#, "there is no \"request\""),
        (r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 2"#, "there is no status"),
    ] {
        let error = read(&[good, line], ALL).unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
    }
    // What a collector puts before a line is no client.
    for before in ["web-1  | ", "Jan 15 10:00:00 web1 nginx: "] {
        let error = read(&[good, &format!("{before}{good}")], ALL).unwrap_err();
        assert!(error.contains("there is no `host ident user`"), "{before}: {error}");
    }
    // Every beginning of a line is read or bad, and nothing else.
    for end in 0..good.len() {
        let _ = read(&[good, &good[..end]], ALL);
    }
    let good = r#"{"time":1767607200}"#;
    for (line, why) in [
        (r#"{"time":1767607200"#, "not a JSON object"),
        (r#"{"time":1767607200} x"#, "something follows"),
        (r#"{"at":1767607200}"#, "no time"),
        (r#"{"time":"noon"}"#, "neither RFC 3339"),
        (r#"{"time":"2026-01-05T10:00:00"}"#, "the time has no offset; name its zone with --timezone"),
        (r#"{"time":{"a":1}}"#, "no time"),
        (r#""text""#, "no time"),
    ] {
        let error = read(&[good, line], ALL).unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
    }
    let deep = "[".repeat(100_000);
    assert!(read(&[good, &format!("{{\"time\":{deep}")], ALL).is_err(), "no stack overflow");
}

#[test]
fn unknown_formats_and_fields_are_errors() {
    for (lines, fields, why) in [
        (&["hello"][..], &[][..], "cannot tell its format"),
        (&["hello"], &[], "--pattern '^(?<ip>"),
        (&["hello"], &[], "jq -c '{time: .at"),
        (&["\0\x01binary"], &[], "binary"),
        (&["[", r#"{"time":1},"#, r#"{"time":2}"#, "]"], &[], "jq -c '.[]'"),
        (&[r#" [ {"time":1}, {"time":2}]"#], &[], "jq -c '.[]'"),
        (&["{", r#""time":1"#, "}"], &[], "jq -c . FILE"),
        (&[""], &[], "first lines are empty"),
        (
            &[r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#],
            &["tenant"],
            "no field of the name \"tenant\"",
        ),
        (&["time,ip"], &["tenant"], "no column \"tenant\""),
    ] {
        let error = read(lines, fields).unwrap_err();
        assert!(error.contains(why), "{lines:?}: {error}");
    }
}

#[test]
fn a_line_with_a_zero_does_not_hide_the_format_of_others() {
    let lines = ["{\"time\":1,\0", "{\"time\":2}"];
    assert_eq!(read(&lines, &[]), Ok((Format::Json, 2_000, Vec::new())));
    assert!(read(&lines[..1], &[]).unwrap_err().contains("binary"));
}

#[test]
fn comments_and_empty_lines_are_nothing() {
    let good = r#"192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
    for line in ["", "  ", "# a comment"] {
        assert_eq!(read(&[good, line], &[]), Err("nothing".to_owned()));
    }
}

#[test]
fn a_request_may_begin_as_a_comment_does() {
    let user = |lines: &[&str]| read(lines, &["user"]).map(|(format, _, values)| (format, values[0].clone()));
    let csv = |user: &str| Ok((Format::Csv, user.to_owned()));
    assert_eq!(user(&["# a, time", "user,time", "#1,1767607200"]), csv("#1"));
    assert_eq!(user(&["user,time", "a,1", " #1,2"]), csv("#1"));
    // The logs of W3C repeat their comments.
    for comment in ["#Fields: time\tuser", "#Date: 2026-01-05 10:00:00"] {
        assert_eq!(user(&["time\tuser", "1\ta", comment]), Err("nothing".to_owned()), "{comment}");
        assert_eq!(user(&["time\tuser", "1\ta", comment, "2\tb"]), csv("b"));
    }
}

#[test]
fn no_line_panics() {
    let lines: [&[&str]; 3] = [
        &[r#"192.0.2.1 - frank [05/Jan/2026:10:00:00 +0100] "GET /a\"b?c HTTP/1.1" 200 5 "-" "curl \"8\"""#],
        &[
            r#"{"ts":1767607200.25,"request":{"remote_ip":"192.0.2.1","headers":{"User-Agent":["a",1,null]}},"status":2e2}"#,
        ],
        &["time,ip,path", "2026-01-05T10:00:00.5Z,\"192.0.2.1\",/a?b"],
    ];
    let mut wanted = Wanted::time(None);
    for name in ALL {
        wanted.add(Field::of_name(name));
    }
    let mut state = 1_u32;
    let mut random = |below: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % below
    };
    let mut requests = 0;
    for lines in lines {
        let bytes: Vec<&[u8]> = lines.iter().map(|line| line.as_bytes()).collect();
        let mut parser = Parser::detect(&bytes, &wanted, &Expected::default()).unwrap();
        let mut record = Record::default();
        for line in &bytes {
            parser.parse(line, &mut record);
        }
        let last = bytes.last().unwrap();
        for _ in 0..20_000 {
            let mut line = last.to_vec();
            for _ in 0..=random(3) {
                let at = random(line.len().max(1));
                if line.is_empty() {
                    break;
                }
                match random(4) {
                    0 => line[at] ^= 1 << random(8),
                    1 => drop(line.remove(at)),
                    2 => line.insert(at, *b" \"\\[]{}:,-/"[random(11)..].first().unwrap()),
                    _ => line.truncate(at.max(1)),
                }
            }
            requests += usize::from(parser.parse(&line, &mut record) == Line::Request);
        }
    }
    assert!((5_000..50_000).contains(&requests), "some are good, and some are not: {requests}");
}
