//! A file with sliding windows of a few units is used, with a warning. In an executable of its own: other tests log as well.

use std::fs;
use std::io::{self, Write};
use std::sync::{Arc, Mutex};

use ratelimit_tower::config::ConfigFile;

#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Log {
    /// The warnings since the last call.
    fn lines(&self) -> Vec<String> {
        let bytes = std::mem::take(&mut *self.0.lock().unwrap());
        let text = String::from_utf8(bytes).unwrap();
        text.lines().filter(|line| line.contains("WARN")).map(str::to_owned).collect()
    }
}

#[test]
fn a_file_with_a_sliding_window_of_few_units_is_used_with_a_warning() {
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _logging = tracing::subscriber::set_default(subscriber);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("limits.yaml");
    let write = |limit: &str, plan: &str| {
        let text = format!(
            "policies: [{{name: log-in, key: path, limit: {limit}}}]\nplans: {{free: {{log-in: {plan}}}}}"
        );
        fs::write(&path, text).unwrap();
    };

    write("5/15min", "1/day name daily");
    let file = ConfigFile::open(&path).unwrap();
    let lines = log.lines();
    assert_eq!(lines.len(), 2, "{lines:#?}");
    for limit in ["limit=5/15min", "limit=1/d name daily"] {
        let says =
            |line: &&String| line.contains("WARN") && line.contains("limits.yaml") && line.contains(limit);
        assert!(lines.iter().any(|line| says(&line) && line.contains("policy=\"log-in\"")), "{lines:#?}");
    }

    // None of these has the fault: enough units, another way to count, nothing to admit.
    for limit in
        ["10/min", "5/15min log", "1/day bucket", "1/day fixed", "5/h precision 1min", "0/s", "1 at once"]
    {
        write(limit, "100/min");
        file.reload().unwrap();
        let lines = log.lines();
        assert!(!lines.iter().any(|line| line.contains("WARN")), "{limit}: {lines:#?}");
    }

    write("100/min", "9/h");
    file.reload().unwrap();
    assert_eq!(log.lines().iter().filter(|line| line.contains("limit=9/h")).count(), 1);
}
