//! Lines within what containers, the journal, syslog and collectors write.

use super::*;

/// A request that a server wrote, in what collectors put around it.
#[test]
fn requests_are_read_within_what_collectors_write() {
    let combined = r#"192.0.2.1 - - [28/Nov/2026:02:00:00 +0000] "GET /a HTTP/1.1" 200 5 "-" "say \"hi\"""#;
    let json = r#"{"time":1795831200,"ip":"192.0.2.1","path":"/a"}"#;
    let quoted = |line: &str| serde_json::to_string(line).unwrap();
    let docker = |line: &str| {
        let time = "2026-11-28T02:00:07.123456789Z";
        format!(r#"{{"log":{},"stream":"stdout","time":"{time}"}}"#, quoted(&format!("{line}\n")))
    };
    let started = docker("/docker-entrypoint.sh: Configuration complete").replace("stdout", "stderr");
    let one = |before: &str| format!(r#"{{"MESSAGE":{},"_PID":"7"}}"#, quoted(before));
    for (line, format) in [(combined, Format::Combined), (json, Format::Json)] {
        let text = |before: &str| format!("{before}{line}");
        for (other, wrapped) in [
            (&*started, docker(line)),
            // journalctl -o json, which writes a line that is not UTF-8 as numbers, and other collectors.
            (
                &one("started"),
                format!(r#"{{"__REALTIME_TIMESTAMP":"1795831207000000","MESSAGE":{}}}"#, quoted(line)),
            ),
            (&one("started"), format!(r#"{{"MESSAGE":{:?}}}"#, line.as_bytes())),
            ("{}", format!(r#"{{"@timestamp":"2026-11-28T02:00:07Z","message":{}}}"#, quoted(line))),
            ("{}", format!(r#"{{"log":{},"time":"2026-11-28T02:00:07Z"}}"#, quoted(line))),
            ("2026-11-28T02:00:07.5Z stderr F started", text("2026-11-28T02:00:07.123456789Z stdout F ")),
            ("2026-11-28T02:00:07.5+01:00 stderr F started", text("2026-11-28T02:00:07.1+01:00 stdout F ")),
            ("web-1  | started", text("web-1  | ")),
            ("db-1   | 2026-11-28T02:00:07Z started", text("web-1  | 2026-11-28T02:00:07.123Z ")),
            ("Nov 28 02:00:07 web1 systemd[1]: Started", text("Nov 28 02:00:07 web1 nginx[77]: ")),
            ("x", text("<190>Nov  8 02:00:07 web1 nginx: ")),
            ("x", text("<190>Nov 28 02:00:07 nginx: ")),
            ("x", text("2026-11-28T02:00:07.123456+00:00 web1 nginx: ")),
            ("x", text("2026-11-28T02:00:07+0000 web1 nginx[7]: ")),
            ("x", text("<190>1 2026-11-28T02:00:07.1Z web1 nginx 77 - - ")),
            ("x", text("<190>1 2026-11-28T02:00:07.1Z web1 nginx 77 - [a@1 b=\"c\"] \u{feff}")),
            ("x", text("[pod/web-5d/nginx] ")),
            ("x", text("2026-11-28T02:00:07.1Z ")),
        ] {
            let read = read(&[other, &wrapped], &["ip", "path"]);
            let expected = vec!["192.0.2.1".to_owned(), "/a".to_owned()];
            assert_eq!(read, Ok((format, 1_795_831_200_000, expected)), "{wrapped}");
        }
    }
    assert_eq!(read(&[&docker(combined)], &["agent"]).unwrap().2, [r#"say \"hi\""#]);
}

#[test]
fn an_object_that_is_a_request_itself_is_not_taken_apart() {
    let line = r#"{"time":1795831200,"ip":"192.0.2.9","log":"192.0.2.1 - - [28/Nov/2026:02:00:00 +0000] \"GET / HTTP/1.1\" 200 5"}"#;
    assert_eq!(read(&[line], &["ip"]).unwrap().2, ["192.0.2.9"]);
    // Nor is one with a field that is named.
    let named = line.replace("\"ip\"", "\"tenant\"");
    assert_eq!(read(&[&named], &["tenant", "path"]).unwrap().2, ["192.0.2.9", "-"]);
    assert_eq!(read(&[&named], &["ip"]).unwrap().2, ["192.0.2.1"]);
    let nested = named.replace("\"log\"", "\"request\":{\"client_ip\":\"192.0.2.8\"},\"log\"");
    assert_eq!(read(&[&nested], &["ip"]).unwrap().2, ["192.0.2.8"]);
}

/// Docker and the runtimes of Kubernetes write a line of more than 16 KiB in parts.
#[test]
fn parts_of_a_line_are_put_together() {
    let path = format!("/{}", "x".repeat(40_000));
    let long = format!(r#"192.0.2.1 - - [28/Nov/2026:02:00:00 +0000] "GET {path} HTTP/1.1" 200 5"#);
    let good = r#"192.0.2.1 - - [28/Nov/2026:02:00:00 +0000] "GET / HTTP/1.1" 200 5"#;
    let parts = [&long[..16_384], &long[16_384..32_768], &long[32_768..]];
    let docker = |text: &str, end: &str| {
        let text = serde_json::to_string(&format!("{text}{end}")).unwrap();
        format!(r#"{{"log":{text},"stream":"stdout","time":"x"}}"#)
    };
    let other = r#"{"log":"of another stream\n","stream":"stderr","time":"x"}"#.to_owned();
    let cri = |text: &str, tag: &str| format!("2026-11-28T02:00:07.5Z stdout {tag} {text}");
    for lines in [
        vec![docker(good, "\n"), docker(parts[0], ""), other, docker(parts[1], ""), docker(parts[2], "\n")],
        vec![cri(good, "F"), cri(parts[0], "P"), cri(parts[1], "P"), cri(parts[2], "F")],
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        assert_eq!(read(&lines, &["path"]).unwrap().2[0], path);
        // What has no end is bounded.
        let endless = [vec![lines[0]], vec![lines[1]; LONGEST / 16_384]].concat();
        assert_eq!(read(&endless, &["path"]).unwrap_err(), "its parts are longer than a mebibyte");
    }
}
