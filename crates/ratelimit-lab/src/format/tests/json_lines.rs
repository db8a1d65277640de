//! JSON, with the names that servers and collectors give to its fields.

use super::*;

#[test]
fn json_of_usual_servers_is_read() {
    // Caddy
    reads(
        r#"{"level":"info","ts":1767607200.25,"logger":"http.log.access","request":{"remote_ip":"192.0.2.1","client_ip":"192.0.2.9","method":"GET","uri":"/a?b=1","headers":{"User-Agent":["curl/8","x"],"Referer":[]}},"bytes_read":0,"user_id":"","size":12,"status":200}"#,
        Format::Json,
        1_767_607_200_250,
        ["192.0.2.9", "-", "GET", "/a", "200", "12", "-", "curl/8"],
    );
    // Traefik
    reads(
        r#"{"ClientHost":"192.0.2.1","ClientUsername":"-","DownstreamContentSize":2,"DownstreamStatus":200,"RequestMethod":"GET","RequestPath":"/","StartUTC":"2026-01-05T10:00:00.5Z","request_Referer":"https://example.org/","request_User-Agent":"curl/8","time":"2026-01-05T10:00:01Z"}"#,
        Format::Json,
        1_767_607_200_500,
        ["192.0.2.1", "-", "GET", "/", "200", "2", "https://example.org/", "curl/8"],
    );
    // Istio
    reads(
        r#"{"authority":"api.example","host":"api","bytes_sent":12,"downstream_remote_address":"192.0.2.1:5555","method":"GET","path":"/a?b","response_code":200,"start_time":"2026-01-05T10:00:00.250Z","user_agent":"curl/8"}"#,
        Format::Json,
        1_767_607_200_250,
        ["192.0.2.1:5555", "-", "GET", "/a", "200", "12", "-", "curl/8"],
    );
    // The host that a request is for is not the one that it comes from.
    reads(r#"{"time":1767607200,"host":"192.0.2.1"}"#, Format::Json, 1_767_607_200_000, ["-"; 8]);
    // nginx with its own `log_format`
    reads(
        r#"{"time_iso8601":"2026-01-05T10:00:00+00:00","remote_addr":"192.0.2.1","remote_user":"ann\u00e9","request_method":"GET","request_uri":"/q?x","status":"200","body_bytes_sent":"7","http_referer":"","http_user_agent":"curl"}"#,
        Format::Json,
        1_767_607_200_000,
        ["192.0.2.1", "anné", "GET", "/q", "200", "7", "-", "curl"],
    );
    // The time in milliseconds counts, not the one in whole seconds.
    reads(
        r#"{"time_iso8601":"2026-01-05T10:00:00+00:00","time_local":"05/Jan/2026:10:00:00 +0000","msec":"1767607200.125"}"#,
        Format::Json,
        1_767_607_200_125,
        ["-"; 8],
    );
}

/// nginx has a variable with all of the first line of a request.
#[test]
fn the_first_line_of_a_request_may_be_one_field() {
    for (fields, method, path) in [
        (r#""request":"POST /login?a=b HTTP/1.1""#, "POST", "/login"),
        (r#""request":"GET /\xff","request_method":"-""#, "GET", r"/\xff"),
        // Fields of their own come first, wherever they are.
        (r#""request":"GET /a HTTP/1.1","request_uri":"/b?c""#, "GET", "/b"),
        (r#""request_method":"PUT","request":"GET /a HTTP/1.1""#, "PUT", "/a"),
        // Not such a line, but the number or the name of a request, or Caddy's object.
        (r#""request":17"#, "-", "-"),
        (r#""request":"7f3a""#, "-", "-"),
        (r#""request":{"method":"PUT","uri":"/c","proto":"HTTP/1.1"}"#, "PUT", "/c"),
    ] {
        let (_, _, values) =
            read(&[&format!("{{\"time\":1,{fields}}}")], &["method", "path", "request"]).unwrap();
        assert_eq!(values[..2], [method, path], "{fields}");
        // The field itself can be counted by, too.
        assert_eq!(values[2] == "-", fields.contains('{'), "{fields}");
    }
}

/// Fluentd calls the client of Apache `host`, and the one of nginx `remote`.
#[test]
fn json_of_fluentd_is_read() {
    let apache = r#"{"user":null,"method":"GET","code":200,"size":777,"host":"192.168.0.1","path":"/","referer":null,"agent":"Opera/12.0","time":"28/Feb/2013:12:00:00 +0900"}"#;
    let values = |ip: &'static str| [ip, "-", "GET", "/", "200", "777", "-", "Opera/12.0"];
    reads(apache, Format::Json, 1_362_020_400_000, values("192.168.0.1"));
    for (host, ip) in [
        ("192.168.0.1:5555", "192.168.0.1:5555"),
        ("[2001:db8::7]:443", "[2001:db8::7]:443"),
        // The host that a request is for, or a client whose address has been replaced by its name.
        ("api.example", "-"),
        ("api.example:443", "-"),
        ("-", "-"),
    ] {
        let line = apache.replace("192.168.0.1", host);
        reads(&line, Format::Json, 1_362_020_400_000, values(ip));
    }
    // Any other name of the client comes first.
    for name in ["remote", "client_ip"] {
        let line = apache.replace("\"user\"", &format!("\"{name}\":\"127.0.0.1\",\"user\""));
        reads(&line, Format::Json, 1_362_020_400_000, values("127.0.0.1"));
    }
}

/// An overflow of the stack would abort the replay.
#[test]
fn deeply_nested_json_is_no_request() {
    let good = r#"{"time": 1767603600, "ip": "10.0.0.1"}"#;
    for depth in [60, 1_000, 100_000, 1_000_000] {
        for (open, close) in [("[", "]"), (r#"{"ip":"#, "}")] {
            for name in ["ip", "other"] {
                let value = format!("{}1{}", open.repeat(depth), close.repeat(depth));
                let line = format!(r#"{{"time": 1767603600, "{name}": {value}}}"#);
                let parse = move || read(&[good, &line], &["ip"]).is_ok();
                let thread = std::thread::Builder::new().stack_size(256 << 10).spawn(parse).unwrap();
                // What is not wanted is skipped without recursion.
                let is_skipped = name == "other" || open != "[";
                assert_eq!(thread.join().unwrap(), is_skipped || depth == 60, "{name} {depth} {open}");
            }
        }
    }
}

#[test]
fn fields_of_json_are_found_by_dots_and_by_whole_names() {
    let line = r#"{"time":1767607200,"a":{"b":{"c":"deep"},"n":-5,"t":true},"a.b":"flat","list":["first","second"],"x":null}"#;
    let (_, _, values) = read(&[line], &["a.b.c", "a.b", "a.n", "a.t", "list", "x", "none"]).unwrap();
    assert_eq!(values, ["deep", "flat", "-5", "true", "first", "-", "-"]);
}

/// Elastic's schema, Cloudflare's Logpush, Google Cloud's load balancers, and Amazon's in SQL.
#[test]
fn json_of_clouds_is_read() {
    let ecs = r#"{"@timestamp":"2026-01-05T10:00:00.250Z","message":"GET /a","source":{"ip":"192.0.2.1","port":5},"user":{"name":"bob"},"http":{"request":{"method":"GET","referrer":"https://example.org/"},"response":{"status_code":200,"body":{"bytes":12}}},"url":{"original":"/a?b","path":"/a"},"user_agent":{"original":"curl/8"},"host":{"name":"web1"}}"#;
    let expected = ["192.0.2.1", "bob", "GET", "/a", "200", "12", "https://example.org/", "curl/8"];
    reads(ecs, Format::Json, 1_767_607_200_250, expected);
    reads(&ecs.replace("\"source\"", "\"client\""), Format::Json, 1_767_607_200_250, expected);
    reads(
        r#"{"@timestamp":"2026-01-05T10:00:00Z","client.ip":"192.0.2.1","url.original":"https://example.org/a?b=//c"}"#,
        Format::Json,
        1_767_607_200_000,
        ["192.0.2.1", "-", "-", "/a", "-", "-", "-", "-"],
    );
    for time in ["\"2026-01-05T10:00:00.25Z\"", "1767607200250000000"] {
        let log_push = format!(
            r#"{{"ClientIP":"192.0.2.1","ClientRequestHost":"example.org","ClientRequestMethod":"GET","ClientRequestURI":"/a?b","ClientRequestReferer":"","ClientRequestUserAgent":"curl/8","EdgeEndTimestamp":"2026-01-05T10:00:01Z","EdgeResponseBytes":12,"EdgeResponseStatus":200,"EdgeStartTimestamp":{time},"RayID":"1"}}"#
        );
        let expected = ["192.0.2.1", "-", "GET", "/a", "200", "12", "-", "curl/8"];
        reads(&log_push, Format::Json, 1_767_607_200_250, expected);
    }
    reads(
        r#"{"httpRequest":{"latency":"0.1s","remoteIp":"192.0.2.1","requestMethod":"GET","requestSize":"7","requestUrl":"https://example.org?a=/b","responseSize":"12","status":200,"userAgent":"curl/8"},"insertId":"1","timestamp":"2026-01-05T10:00:00.250Z"}"#,
        Format::Json,
        1_767_607_200_250,
        ["192.0.2.1", "-", "GET", "/", "200", "12", "-", "curl/8"],
    );
    let lines = [
        "type,time,elb,client_ip,client_port,elb_status_code,received_bytes,sent_bytes,request_verb,request_url,user_agent",
        r#""h2","2026-01-05T10:00:00.250000Z","app/a/1","192.0.2.1","5","200","7","12","GET","https://example.org:443/a?b","curl/8""#,
    ];
    let expected = ["192.0.2.1", "-", "GET", "/a", "200", "12", "-", "curl/8"].map(str::to_owned).to_vec();
    assert_eq!(read(&lines, ALL), Ok((Format::Csv, 1_767_607_200_250, expected)));
}
