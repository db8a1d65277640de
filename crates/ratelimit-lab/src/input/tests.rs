//! Tests of reading files.

use std::io::Write as _;
use std::path::PathBuf;

use flate2::Compression;
use flate2::write::GzEncoder;

use super::requests::{DESCRIBED, TOO_LONG};
use super::*;
use crate::record::{LONGEST, Wanted};

fn line(second: u64) -> String {
    format!("{{\"time\":{second},\"ip\":\"192.0.2.1\"}}\n")
}

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).unwrap();
    encoder.finish().unwrap()
}

fn zstd(text: &str) -> Vec<u8> {
    zstd::encode_all(text.as_bytes(), 1).unwrap()
}

/// A skippable frame of four bytes, as pzstd writes one before each frame.
fn zstd_skipped() -> [u8; 12] {
    [0x50, 0x2a, 0x4d, 0x18, 4, 0, 0, 0, 1, 2, 3, 4]
}

struct Folder(tempfile::TempDir);

impl Folder {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn file(&self, name: &str, bytes: impl AsRef<[u8]>) -> Source {
        let path: PathBuf = self.0.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        Source::File(path)
    }
}

/// The seconds of all requests, and what was read.
fn seconds(sources: &[Source], strict: bool) -> anyhow::Result<(Vec<u64>, LinesRead)> {
    let reading = Reading { wanted: Wanted::time(None), strict, ..Reading::default() };
    let mut seconds = Vec::new();
    let bytes = Arc::new(AtomicU64::new(0));
    let lines = read(sources, &reading, &bytes, |record| {
        seconds.push(record.time.as_nanos() / 1_000_000_000);
        Ok(())
    })?;
    let sizes = sources.iter().map(Source::size).sum::<Option<u64>>();
    assert!(sizes.is_none_or(|sizes| bytes_read(&bytes) <= sizes));
    Ok((seconds, lines))
}

#[test]
fn files_in_a_row_are_decompressed_by_their_first_bytes() {
    let folder = Folder::new();
    let text = |range: std::ops::Range<u64>| range.map(line).collect::<String>();
    let sources = [
        folder.file("plain.gz", text(0..10)),
        // Two members of gzip, as `cat` of two files gives.
        folder.file("gzip", [gzip(&text(10..20)), gzip(&text(20..30))].concat()),
        folder.file("zstd.log", zstd(&text(30..40))),
        folder.file("frames", [&zstd_skipped()[..], &zstd(&text(40..50)), &zstd(&text(50..60))].concat()),
        folder.file("empty", ""),
    ];
    let (seconds, lines) = seconds(&sources, true).unwrap();
    assert_eq!(seconds, (0..60).collect::<Vec<_>>());
    assert_eq!((lines.lines, lines.requests, lines.bad), (60, 60, 0));
}

#[test]
fn bad_lines_are_counted_and_the_first_are_described() {
    let folder = Folder::new();
    let long = "x".repeat(LONGEST + 5);
    let text = format!("{}nonsense\n{}{long}\n\n# comment\n{}{{\"time\":1", line(1), line(2), line(3));
    let source = folder.file("bad.log", &text);
    let name = source.name();
    let (read, lines) = seconds(std::slice::from_ref(&source), false).unwrap();
    assert_eq!((read, lines.lines, lines.requests, lines.bad), (vec![1, 2, 3], 8, 3, 3));
    let described: Vec<(u64, &str)> = lines.first_bad.iter().map(|bad| (bad.line, &*bad.reason)).collect();
    assert_eq!(described, [(2, "it is not a JSON object"), (4, TOO_LONG), (8, "it is not a JSON object")]);
    let error = seconds(&[source], true).unwrap_err().to_string();
    assert_eq!(error, format!("{name}, line 2: it is not a JSON object"));
    // Many more bad lines than are described.
    let many = folder.file("many.log", line(1) + &"nonsense\n".repeat(1_000));
    let (_, lines) = seconds(&[many], false).unwrap();
    assert_eq!((lines.bad, lines.first_bad.len()), (1_000, DESCRIBED));
}

#[test]
fn a_file_may_begin_with_a_mark_and_with_lines_that_are_nothing() {
    let folder = Folder::new();
    let mark = "\u{feff}";
    let clf = "192.0.2.1 - - [05/Jan/2026:10:00:00 +0000] \"GET / HTTP/1.1\" 200 5\n";
    for (name, text, expected) in [
        ("json", format!("{mark}{}{}", line(1), line(2)), vec![1, 2]),
        ("combined", format!("{mark}{clf}{clf}"), vec![1_767_607_200; 2]),
        ("csv", format!("{mark}\"time\",ip\r\n5,a\r\n6,b\r"), vec![5, 6]),
        ("mark", mark.to_owned(), vec![]),
        ("empty lines", format!("{}{}", "\n".repeat(100), line(3)), vec![3]),
        ("comments", format!("{}{}", "# comment\n".repeat(100), line(4)), vec![4]),
        (
            "w3c",
            "#Version: 1.0\n#Fields: date time c-ip\n1970-01-01 00:00:07 192.0.2.1\n".to_owned(),
            vec![7],
        ),
        ("only comments", "# comment\n\n".repeat(100), vec![]),
        // Zeros, as a crash can leave them.
        ("zeros", format!("{}{}{}", "\0".repeat(5_000), line(5), line(6)), vec![5, 6]),
        ("only zeros", "\0".repeat(5_000), vec![]),
    ] {
        let (read, lines) = seconds(&[folder.file(name, &text)], true).unwrap();
        assert_eq!((read, lines.lines), (expected, text.lines().count() as u64), "{name}");
    }
    let text = "\n".repeat(30) + &line(1) + "nonsense\n";
    let (_, lines) = seconds(&[folder.file("numbers", &text)], false).unwrap();
    assert_eq!(lines.first_bad[0].line, 32);
    // The mark is not a part of the client in the first line.
    let source = folder.file("key", format!("{mark}{clf}"));
    let mut wanted = Wanted::time(None);
    let ip = wanted.add(crate::field::Field::Ip);
    let reading = Reading { wanted, strict: true, ..Reading::default() };
    let each = |record: &Record| {
        assert_eq!(record.get(ip), Some(&b"192.0.2.1"[..]));
        Ok(())
    };
    read(&[source], &reading, &Arc::default(), each).unwrap();
}

#[test]
fn utf_16_is_read() {
    let folder = Folder::new();
    // Units of a pair on both sides of the end of a buffer, at even and odd places.
    for before in ["", "x", "é"] {
        let letters = format!("{before}{}", "\u{1f980}".repeat(100_000));
        let text = format!("\u{feff}{}{{\"time\":2,\"ip\":\"{letters}\"}}\r\n", line(1));
        let bytes = |unit: fn(u16) -> [u8; 2]| text.encode_utf16().flat_map(unit).collect::<Vec<u8>>();
        for bytes in [bytes(u16::to_le_bytes), bytes(u16::to_be_bytes)] {
            let mut wanted = Wanted::time(None);
            let ip = wanted.add(crate::field::Field::Ip);
            let reading = Reading { wanted, strict: true, ..Reading::default() };
            let mut last = Vec::new();
            let source = folder.file("wide", &bytes);
            let each = |record: &Record| {
                last = record.get(ip).unwrap().to_vec();
                Ok(())
            };
            let lines = read(std::slice::from_ref(&source), &reading, &Arc::default(), each).unwrap();
            assert_eq!((lines.requests, lines.bad), (2, 0));
            assert!(last == letters.as_bytes(), "{before}");
            // A file that ends within a letter.
            let short = folder.file("short", &bytes[..bytes.len() - 5]);
            let (read, _) = seconds(&[short], false).unwrap();
            assert_eq!(read, [1]);
        }
    }
}

/// A container prints what it does before its server takes requests.
#[test]
fn a_log_may_begin_with_other_lines() {
    let folder = Folder::new();
    let started = "/docker-entrypoint.sh: Launching\n".repeat(300);
    let (read, lines) = seconds(&[folder.file("started", started + &line(1) + &line(2))], false).unwrap();
    assert_eq!((read, lines.bad), (vec![1, 2], 300));
    // Not more of them than a mebibyte has room for.
    let long = format!("{}\n", "x".repeat(100_000)).repeat(100);
    let error = seconds(&[folder.file("long", long + &line(1))], false).unwrap_err();
    assert!(format!("{error:#}").contains("cannot tell its format"), "{error:#}");
}

#[test]
fn what_can_be_read_of_a_truncated_file_is_read() {
    let folder = Folder::new();
    let whole = (0..100_000).map(|number| line(number * 7_919 % 100_003)).collect::<String>();
    for (name, bytes) in [("gzip", gzip(&whole)), ("zstd", zstd(&whole))] {
        let source = folder.file(name, &bytes[..bytes.len() * 2 / 3]);
        let (read, lines) = seconds(std::slice::from_ref(&source), false).unwrap();
        assert!((10_000..100_000).contains(&read.len()), "{name}: {}", read.len());
        assert_eq!(lines.incomplete.len(), 1, "{name}");
        assert!(lines.incomplete[0].contains("reading ended after line"), "{:?}", lines.incomplete);
        assert_eq!(lines.bad, 0, "half a line is none");
        assert!(seconds(&[source], true).is_err(), "{name}");
    }
}

#[test]
fn a_file_that_is_truncated_within_the_first_lines_is_read_as_far_as_it_goes() {
    let folder = Folder::new();
    let whole = gzip(&line(1));
    for end in 2..whole.len() {
        let source = folder.file("short", &whole[..end]);
        let (read, lines) = seconds(std::slice::from_ref(&source), false).unwrap();
        assert!(read.len() <= 1 && lines.incomplete.len() == 1 && lines.bad == 0, "{end}: {lines:?}");
        assert!(seconds(&[source], true).is_err(), "{end}");
    }
}

#[test]
fn binary_and_missing_files_and_folders_are_errors() {
    let folder = Folder::new();
    let mut state = 1_u32;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    })
    .take(100_000)
    .collect();
    for (source, why) in [
        (folder.file("noise", &noise), "binary"),
        (folder.file("long", "x".repeat(LONGEST + 1)), "longer than a mebibyte"),
        (Source::File(folder.0.path().join("missing")), "cannot be opened"),
        (Source::File(folder.0.path().to_owned()), "it is a folder"),
    ] {
        let error = seconds(&[source], false).unwrap_err();
        assert!(format!("{error:#}").contains(why), "{error:#}");
    }
}

#[test]
fn several_logs_are_merged_by_time() {
    let folder = Folder::new();
    let text = |seconds: &[u64]| seconds.iter().copied().map(line).collect::<String>();
    let all = [
        folder.file("newest", text(&[300, 301])),
        folder.file("one server", text(&[100, 103, 102, 250])),
        folder.file("another server", format!("nonsense\n{}", text(&[101, 103, 299, 400]))),
        folder.file("empty", ""),
        folder.file("without requests", "# comment\n"),
    ];
    let expected = [100, 101, 103, 102, 103, 250, 299, 300, 301, 400];
    let mut order = [0, 1, 2, 3, 4];
    for _ in 0..5 {
        order.rotate_left(1);
        let sources = order.map(|nth| all[nth].clone());
        let (seconds, lines) = seconds(&sources, false).unwrap();
        assert_eq!(seconds, expected, "{order:?}");
        assert_eq!((lines.lines, lines.requests, lines.bad), (12, 10, 1));
    }
    // A pipe can be read only once, and is merged, too.
    let pipe = folder.0.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let writer = std::thread::spawn({
        let (pipe, text) = (pipe.clone(), text(&[99, 260]));
        move || std::fs::write(pipe, text)
    });
    let sources = [all[1].clone(), Source::File(pipe)];
    assert_eq!(seconds(&sources, true).unwrap().0, [99, 100, 103, 102, 250, 260]);
    writer.join().unwrap().unwrap();
}

#[test]
fn only_logs_that_overlap_are_open_at_once() {
    let folder = Folder::new();
    let sources: Vec<Source> =
        (0..2_000_u64).map(|nth| folder.file(&nth.to_string(), line(nth) + &line(nth + 1))).collect();
    let (seconds, _) = seconds(&sources, true).unwrap();
    assert!(seconds.is_sorted() && seconds.len() == 4_000);
}

#[test]
fn a_wrong_name_is_an_error_before_anything_is_read() {
    let folder = Folder::new();
    let sources = [folder.file("right", line(1)), Source::File(folder.0.path().join("wrong"))];
    let reading = Reading { wanted: Wanted::time(None), strict: false, ..Reading::default() };
    let error = read(&sources, &reading, &Arc::default(), |_| panic!("it was read")).unwrap_err();
    assert!(error.to_string().contains("wrong: cannot be opened"), "{error:#}");
}
