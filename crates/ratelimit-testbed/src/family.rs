//! Signals to a process and all of its descendants, even outside its process group.

use std::collections::BTreeSet;
use std::process::Child;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process, test_kill_process};

/// How long killed processes may take to exit.
const END: Duration = Duration::from_secs(10);
const POLL: Duration = Duration::from_millis(5);

/// Stops a process and all of its descendants, the process itself first, so that it starts no further ones. Returns when
/// all of their threads have stopped: a thread on another processor runs for a moment longer, long enough to answer.
pub(crate) fn freeze(parent: Pid) -> Result<(), String> {
    signal(parent, Signal::STOP)?;
    let stopped = stop_children(parent);
    let mut left = END.as_millis() / POLL.as_millis();
    while left > 0 && stopped.iter().chain([&parent]).any(|pid| !stands_still(*pid)) {
        std::thread::sleep(POLL);
        left -= 1;
    }
    if left == 0 { Err("it does not stand still".to_owned()) } else { Ok(()) }
}

/// Lets a process and all of its descendants continue, the process itself last, so that it finds its children unchanged.
pub(crate) fn thaw(parent: Pid) -> Result<(), String> {
    for child in children(parent) {
        let _ = signal(child, Signal::CONT);
    }
    signal(parent, Signal::CONT)
}

/// Sends a signal that should end the process, thaws it before, and waits up to [`END`] for it to exit.
pub(crate) fn dismiss(child: &mut Child, farewell: Signal) {
    let pid = Pid::from_child(child);
    let _ = thaw(pid);
    let _ = signal(pid, farewell);
    let mut left = END.as_millis() / POLL.as_millis();
    while left > 0 && matches!(child.try_wait(), Ok(None)) {
        std::thread::sleep(POLL);
        left -= 1;
    }
}

/// Kills the descendants of a process, and leaves the process itself stopped, for its owner to kill. Returns the killed
/// processes, which may still be exiting.
pub(crate) fn kill_children(parent: Pid) -> Vec<Pid> {
    let _ = signal(parent, Signal::STOP);
    let stopped = stop_children(parent);
    for child in &stopped {
        let _ = signal(*child, Signal::KILL);
    }
    stopped
}

/// Waits until these have exited, which frees their ports and shared memory.
pub(crate) fn wait_for(pids: &[Pid]) {
    let mut left = END.as_millis() / POLL.as_millis();
    while left > 0 && pids.iter().any(|pid| is_alive(*pid)) {
        std::thread::sleep(POLL);
        left -= 1;
    }
}

/// Stops the descendants until none is running any more. The parent is stopped already, so it starts no further ones.
fn stop_children(parent: Pid) -> Vec<Pid> {
    let mut stopped = BTreeSet::new();
    loop {
        let before = stopped.len();
        for child in children(parent) {
            if stopped.insert(child.as_raw_nonzero()) {
                let _ = signal(child, Signal::STOP);
            }
        }
        if stopped.len() == before {
            return stopped.into_iter().filter_map(|raw| Pid::from_raw(raw.get())).collect();
        }
    }
}

fn signal(pid: Pid, signal: Signal) -> Result<(), String> {
    kill_process(pid, signal).map_err(|error| error.to_string())
}

/// Whether all threads of a process are stopped, or it has exited. Always true on systems other than Linux, which do not
/// report that.
fn stands_still(pid: Pid) -> bool {
    let Ok(threads) = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())) else { return true };
    threads.flatten().all(|thread| {
        let stat = std::fs::read_to_string(thread.path().join("stat"));
        stat.is_ok_and(|stat| after_name(&stat).is_some_and(|rest| rest.starts_with(['T', 't', 'Z', 'X'])))
    })
}

/// Whether it is running, and not just waiting to be reaped by its parent.
fn is_alive(pid: Pid) -> bool {
    match std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero())) {
        Ok(stat) => !after_name(&stat).is_some_and(|rest| rest.starts_with(['Z', 'X'])),
        Err(_) => !has_proc() && test_kill_process(pid).is_ok(),
    }
}

/// All processes that descend from `parent`.
fn children(parent: Pid) -> Vec<Pid> {
    let mut family = BTreeSet::from([parent.as_raw_nonzero().get()]);
    let pairs = if has_proc() { pairs_of_proc() } else { pairs_of_ps() };
    // A child may precede its parent in the list.
    loop {
        let before = family.len();
        family.extend(
            pairs
                .iter()
                .filter(|(_, parent)| family.contains(parent))
                .map(|(pid, _)| *pid)
                .collect::<Vec<_>>(),
        );
        if family.len() == before {
            break;
        }
    }
    family.remove(&parent.as_raw_nonzero().get());
    family.into_iter().filter_map(Pid::from_raw).collect()
}

fn has_proc() -> bool {
    std::path::Path::new("/proc/self/stat").exists()
}

/// Each process and its parent, from Linux.
fn pairs_of_proc() -> Vec<(i32, i32)> {
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    let pair = |entry: std::fs::DirEntry| {
        let pid = entry.file_name().to_str()?.parse().ok()?;
        let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
        Some((pid, after_name(&stat)?.split(' ').nth(1)?.parse().ok()?))
    };
    entries.flatten().filter_map(pair).collect()
}

/// The fields after the name, which may contain anything: state, parent and so on.
fn after_name(stat: &str) -> Option<&str> {
    stat.rsplit_once(") ").map(|(_, rest)| rest)
}

/// The same from `ps`, for other systems.
fn pairs_of_ps() -> Vec<(i32, i32)> {
    let Ok(output) = std::process::Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output() else {
        return Vec::new();
    };
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let pair = |line: &str| {
        let mut numbers = line.split_whitespace().map(|number| number.parse().ok());
        Some((numbers.next()??, numbers.next()??))
    };
    text.lines().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{Pid, children, kill_children, pairs_of_proc, pairs_of_ps, wait_for};

    #[test]
    fn children_that_left_the_group_are_found_and_killed() {
        let script = "setsid sleep 600 & sleep 600 & wait";
        let mut parent = Command::new("sh").args(["-c", script]).spawn().expect("sh");
        let pid = Pid::from_child(&parent);
        while children(pid).len() < 2 {
            std::thread::sleep(super::POLL);
        }
        let killed = kill_children(pid);
        parent.kill().expect("kill");
        parent.wait().expect("wait");
        wait_for(&killed);
        assert_eq!(killed.len(), 2);
        assert!(killed.iter().all(|pid| !super::is_alive(*pid)));
    }

    #[test]
    fn both_process_lists_contain_this_process() {
        let this =
            (i32::try_from(std::process::id()).expect("a pid"), std::os::unix::process::parent_id() as i32);
        if super::has_proc() {
            assert!(pairs_of_proc().contains(&this));
        }
        if Command::new("ps").arg("-A").output().is_ok() {
            assert!(pairs_of_ps().contains(&this));
        }
    }
}
