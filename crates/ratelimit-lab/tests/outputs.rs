//! Where results are written: what cannot be is said first, and is no panic.

mod common;

use std::fs;

use common::lab;

#[test]
fn a_long_replay_does_not_fail_at_its_end() {
    // Nothing is read before these are known.
    let run = |arguments: &[&str]| lab(&[arguments, &["missing.log"]].concat());
    run(&["replay", "--limit", "5/s", "--csv", "missing/folder/keys.csv"])
        .fails(1, "missing/folder/keys.csv: cannot be written");
    run(&["report", "--limit", "5/s", "-o", "/"]).fails(1, "/: cannot be written");
    run(&["replay", "--suggest", "1%", "--limit", "5 in total"])
        .fails(1, "no search for limits of this kind");
    run(&["compare", "--limit", "2000000/s"]).fails(1, "not all algorithms can have");
    // Neither a new file is left behind nor an old one changed.
    let folder = tempfile::tempdir().unwrap();
    let (old, new) = (folder.path().join("old.csv"), folder.path().join("new.csv"));
    fs::write(&old, "old").unwrap();
    for path in [&old, &new] {
        run(&["replay", "--limit", "5/s", "--csv", path.to_str().unwrap()])
            .fails(1, "missing.log: cannot be opened");
    }
    assert!(!new.exists() && fs::read_to_string(&old).unwrap() == "old");
}

#[test]
fn outputs_that_cannot_be_written_are_no_panic() {
    let folder = tempfile::tempdir().unwrap();
    let page = folder.path().join("page.html");
    let page = page.to_str().unwrap();
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    for arguments in [
        &["replay", "--limit", "5/s"][..],
        &["replay", "--limit", "5/s", "--json"],
        &["report", "--limit", "5/s", "-o", page],
        &["report", "--limit", "5/s", "-o", "-"],
        &["compare"],
        &["generate"],
        &["measure"],
    ] {
        let arguments = [arguments, &["--requests", "100"]].concat();
        let ran = common::lab_to(&arguments, full().into(), std::process::Stdio::piped());
        let message = "standard output: cannot be written: No space left on device";
        assert!(ran.code == 1 && ran.stderr.contains(message), "{arguments:?}: {ran:?}");
        // A reader that has gone, such as `head`, is no failure.
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ran = common::lab_to(&arguments, writer.into(), full().into());
        assert_eq!(ran.code, 0, "{arguments:?}");
    }
}
