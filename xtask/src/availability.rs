//! Which servers are available to the tests here.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};

use crate::executables::Executable;
use crate::settings::Servers;

/// The example that checks which servers are available.
const EXAMPLE: &str = "available";

/// The servers among `needed` that are not available, each with the reason. Installs packages if that is allowed.
pub(crate) fn missing(
    executables: &[Executable],
    servers: &Servers,
    needed: &BTreeSet<String>,
) -> Result<BTreeMap<String, String>> {
    if needed.is_empty() {
        return Ok(BTreeMap::new());
    }
    println!("trying which servers can be had: {}", needed.iter().cloned().collect::<Vec<_>>().join(", "));
    let example = executables.iter().find(|executable| executable.name == EXAMPLE && !executable.is_test);
    let example = example.context("the example `available` of ratelimit-testbed was not built")?;
    let mut command = servers.apply_to(example.command());
    // Tests stop and freeze their own servers, which are processes.
    let output = command.args(needed).env("RATELIMIT_ONLY", "process").stderr(Stdio::inherit()).output();
    let output = output.context("the example `available` of ratelimit-testbed")?;
    ensure!(
        output.status.success(),
        "the example `available` of ratelimit-testbed ended with {}",
        output.status
    );
    Ok(read(&String::from_utf8_lossy(&output.stdout)))
}

fn read(printed: &str) -> BTreeMap<String, String> {
    let lines = printed.lines().filter_map(|line| line.split_once('\t'));
    lines
        .filter(|(_, outcome)| *outcome != "ok")
        .map(|(name, why)| (name.to_owned(), why.to_owned()))
        .collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn servers_that_are_not_ok_are_missing() {
        let missing = super::read("redis\tok\nmemcached\tthere is no memcached on the PATH\n");
        assert_eq!(
            missing.into_iter().collect::<Vec<_>>(),
            [("memcached".to_owned(), "there is no memcached on the PATH".to_owned())]
        );
    }
}
