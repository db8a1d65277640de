//! W3C's format, and those of single servers.

use super::*;

#[test]
fn the_extended_format_of_w3c_is_read() {
    // IIS
    let iis = [
        "#Software: Microsoft Internet Information Services 10.0",
        "#Version: 1.0",
        "#Date: 2026-01-05 10:00:00",
        "#Fields: date time s-ip cs-method cs-uri-stem cs-uri-query s-port cs-username c-ip cs(User-Agent) cs(Referer) sc-status sc-bytes time-taken",
        "2026-01-05 10:00:00 198.51.100.1 GET /a b=c 443 bob 192.0.2.1 curl/8+(x) https://example.org/ 200 5 15",
    ];
    let expected = ["192.0.2.1", "bob", "GET", "/a", "200", "5", "https://example.org/", "curl/8+(x)"];
    let expected = expected.map(str::to_owned).to_vec();
    assert_eq!(read(&iis, ALL), Ok((Format::W3c, 1_767_607_200_000, expected)));
    assert_eq!(read(&iis, &["s-port", "time-taken"]).unwrap().2, ["443", "15"]);
    // It has started again, with other columns.
    let again = [&iis[..], &["#Fields: date time c-ip", "2026-01-05 10:00:00.250 192.0.2.2"]].concat();
    let (_, millis, values) = read(&again, &["ip", "path"]).unwrap();
    assert_eq!((millis, values), (1_767_607_200_250, vec!["192.0.2.2".to_owned(), "-".to_owned()]));
    // CloudFront
    let cloud_front = [
        "#Version: 1.0",
        "#Fields: date time x-edge-location sc-bytes c-ip cs-method cs(Host) cs-uri-stem sc-status cs(Referer) cs(User-Agent)",
        "2026-01-05\t10:00:00\tFRA2\t5\t2001:db8::1\tGET\td1.example\t/a\t200\t-\tcurl/8%20(x)",
    ];
    let expected = ["2001:db8::1", "-", "GET", "/a", "200", "5", "-", "curl/8%20(x)"];
    let expected = expected.map(str::to_owned).to_vec();
    assert_eq!(read(&cloud_front, ALL), Ok((Format::W3c, 1_767_607_200_000, expected)));
    for (lines, why) in [
        (&["#Fields: date time c-ip", "2026-01-05 10:00:00"][..], "another number of columns"),
        (&["#Fields: date time c-ip", "2026-01-05 noon 192.0.2.1"], "are not like 2026-01-05 10:00:00"),
        (&["#Fields: time c-ip", "10:00:00 192.0.2.1"], "do not name `date` and `time`"),
        (
            &["#Fields: date time c-ip", "2026-01-05 10:00:00 192.0.2.1", "#Fields: c-ip"],
            "it does not name columns",
        ),
    ] {
        let error = read(lines, &[]).unwrap_err();
        assert!(error.contains(why), "{lines:?}: {error}");
    }
    assert!(read(&iis, &["tenant"]).unwrap_err().contains("it has no column \"tenant\""));
}

#[test]
fn formats_of_other_servers_are_read() {
    let haproxy = r#"192.0.2.1:33317 [05/Jan/2026:10:00:00.250] http-in static/srv1 10/0/30/69/109 200 2750 - - ---- 1/1/1/1/0 0/0 {1wt.eu} {} "GET /a?b HTTP/1.1""#;
    let haproxy_values = ["192.0.2.1:33317", "-", "GET", "/a", "200", "2750", "-"];
    for line in [haproxy.to_owned(), format!("Jan  5 10:00:07 lb1 haproxy[14389]: {haproxy}")] {
        reads_all(&line, Format::Haproxy, 1_767_607_200_250, haproxy_values);
    }
    let refused =
        haproxy.replace("static/srv1", "http-in/<NOSRV>").replace(r#""GET /a?b HTTP/1.1""#, r#""<BADREQ>""#);
    let values = ["192.0.2.1:33317", "-", "-", "<BADREQ>", "200", "2750", "-"];
    reads_all(&refused, Format::Haproxy, 1_767_607_200_250, values);
    reads_all(
        r#"https 2026-01-05T10:00:00.250000Z app/lb/50dc6c495c0c9188 192.0.2.1:2817 10.0.0.1:80 0.086 0.048 0.037 200 200 0 57 "GET https://www.example.com:443/a?b HTTP/1.1" "curl/8 \"x\"" ECDHE-RSA-AES128-GCM-SHA256 TLSv1.2"#,
        Format::Alb,
        1_767_607_200_250,
        ["192.0.2.1:2817", "-", "GET", "/a", "200", "57", r#"curl/8 \"x\""#],
    );
    // No target has answered.
    reads_all(
        r#"http 2026-01-05T10:00:00.250000Z app/lb/50dc6c495c0c9188 192.0.2.1:2817 - -1 -1 -1 503 - 34 366 "GET http://www.example.com:80 HTTP/1.1" "-" - -"#,
        Format::Alb,
        1_767_607_200_250,
        ["192.0.2.1:2817", "-", "GET", "/", "503", "366", "-"],
    );
    reads_all(
        r#"2026-01-05T10:00:00.250000Z my-lb 192.0.2.1:2817 10.0.0.1:80 0.000073 0.001048 0.000057 200 200 0 29 "GET http://www.example.com:80/a HTTP/1.1" "curl/7.38.0" - -"#,
        Format::Elb,
        1_767_607_200_250,
        ["192.0.2.1:2817", "-", "GET", "/a", "200", "29", "curl/7.38.0"],
    );
    reads_all(
        r#"[2026-01-05T10:00:00.250Z] "POST /a?b HTTP/2" 204 - 154 7 226 100 "192.0.2.1" "nsq2http" "cc21d9b0" "locations" "tcp://10.0.2.1:80""#,
        Format::Envoy,
        1_767_607_200_250,
        ["192.0.2.1", "-", "POST", "/a", "204", "7", "nsq2http"],
    );
    reads_all(
        r#"[2026-01-05T10:00:00.250Z] "GET /a HTTP/1.1" 200 - via_upstream - "-" 0 7 5 4 "192.0.2.1, 10.0.0.1" "curl" "id" "host" "10.0.0.2:80" outbound - - - -"#,
        Format::Envoy,
        1_767_607_200_250,
        ["192.0.2.1, 10.0.0.1", "-", "GET", "/a", "200", "7", "curl"],
    );
    reads_all(
        "1767607200.250    109 192.0.2.1 TCP_MISS/200 3242 GET http://www.example.com/a?b bob HIER_DIRECT/203.0.113.1 text/html",
        Format::Squid,
        1_767_607_200_250,
        ["192.0.2.1", "bob", "GET", "/a", "200", "3242", "-"],
    );
    let values = ["192.0.2.1", "-", "GET", "/a", "200", "57", "curl/8"];
    for statuses in ["- 200 200", "200", "HIT - 200", "- 502, 200 200"] {
        let line = format!(
            r#"[05/Jan/2026:10:00:00 +0000] {statuses} - GET https www.example.com "/a?b" [Client 192.0.2.1] [Length 57] [Gzip -] [Sent-to 10.0.0.5] "curl/8" "-""#
        );
        reads_all(&line, Format::Npm, 1_767_607_200_000, values);
    }
    assert!(
        read(&[haproxy], &["tenant"]).unwrap_err().contains("its format has no field of the name \"tenant\"")
    );
    let error = read(&[haproxy, "192.0.2.1:1 connected"], &[]).unwrap_err();
    assert!(error.contains("not of the format of the other lines"), "{error}");
}

#[track_caller]
fn reads_all(line: &str, format: Format, millis: u64, values: [&str; 7]) {
    let names = ["ip", "user", "method", "path", "status", "bytes", "agent"];
    let expected = Ok((format, millis, values.map(str::to_owned).to_vec()));
    assert_eq!(read(&[line], &names), expected);
    // Every beginning of a line is read or bad, and nothing else.
    for end in 0..line.len() {
        let _ = read(&[line, &line[..end]], &names);
    }
}

#[test]
fn labeled_values_are_read() {
    reads(
        "host:192.0.2.1\tuser:bob\ttime:[05/Jan/2026:10:00:00 +0000]\treq:GET /a?b:c HTTP/1.1\tstatus:200\tsize:5\treferer:-\tua:curl/8",
        Format::Ltsv,
        1_767_607_200_000,
        ["192.0.2.1", "bob", "GET", "/a", "200", "5", "-", "curl/8"],
    );
    // Labels of their own for the method and the path, and the host that the request is for.
    let line = "time:2026-01-05T10:00:00.25Z\thost:www.example.com\tremote_addr:192.0.2.1\treq:PUT /x HTTP/1.1\tmethod:GET\turi:/a?b\tx_tenant:t:1";
    let (_, millis, values) = read(&[line, line], &["ip", "method", "path", "x_tenant", "user"]).unwrap();
    assert_eq!(
        (millis, values),
        (1_767_607_200_250, ["192.0.2.1", "GET", "/a", "t:1", "-"].map(str::to_owned).to_vec())
    );
    for (bad, why) in [
        ("host:192.0.2.1\tstatus:200", "there is no time"),
        ("time:noon\thost:192.0.2.1", "the time is neither"),
        ("time:2026-01-05T10:00:00.25Z\thost", "a value between tabs has no label"),
    ] {
        let error = read(&[line, bad], &[]).unwrap_err();
        assert!(error.starts_with(why), "{bad}: {error}");
    }
}
