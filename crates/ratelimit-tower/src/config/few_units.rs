//! Warns of limits of a few units in sliding windows: they make clients wait for longer than a period.

use ratelimit_core::{Algorithm, Limit};

use super::Config;

/// The least quota without a warning. A client that has used such a limit up waits for a tenth of a period more than a
/// period, at most.
const ENOUGH: u64 = 10;

/// Warns of each such limit in `file`.
#[cfg_attr(not(feature = "tracing"), allow(unused_variables))]
pub(super) fn warn(file: &str, config: &Config) {
    for (policy, limits) in &config.limits {
        for limit in limits.each().flat_map(|limits| limits.iter()).filter(|limit| is_of_few_units(limit)) {
            #[cfg(feature = "tracing")]
            tracing::warn!(
                file,
                policy,
                %limit,
                "with so few units, clients may wait for longer than the period: add `log`, `bucket` or `fixed` to the limit"
            );
        }
    }
}

fn is_of_few_units(limit: &Limit) -> bool {
    limit.algorithm() == Algorithm::SlidingWindow && (1..ENOUGH).contains(&limit.quota())
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use std::fs;
    use std::io::{self, Write};
    use std::sync::{Arc, Mutex};

    use crate::config::ConfigFile;

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
        /// The lines since the last call.
        fn lines(&self) -> Vec<String> {
            let bytes = std::mem::take(&mut *self.0.lock().unwrap());
            String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
        }
    }

    #[test]
    fn a_file_with_a_sliding_window_of_few_units_is_used_with_a_warning() {
        let log = Log::default();
        let writer = log.clone();
        let subscriber =
            tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
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
            let says = |line: &&String| {
                line.contains("WARN") && line.contains("limits.yaml") && line.contains(limit)
            };
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
}
