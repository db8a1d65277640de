//! Installs a server's Debian package.

use std::process::{Command, Stdio};

use crate::program;

/// Installs `package` without starting a service.
pub(crate) async fn install(name: &str, package: &'static str) -> Result<(), String> {
    if program::find("apt-get").is_none() {
        return Err("this is no Debian system: there is no apt-get".to_owned());
    }
    let mut command = shell()?;
    eprintln!("{name}: installing the Debian package {package}");
    let output = tokio::task::spawn_blocking(move || {
        command.args(["-c", include_str!("package.sh"), "install", package]).stdin(Stdio::null()).output()
    })
    .await
    .map_err(|error| error.to_string())?
    .map_err(|error| format!("apt-get could not be run: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("installing {package} failed:\n{}", last_lines(&String::from_utf8_lossy(&output.stderr), 5)))
}

/// A shell that is allowed to install packages.
fn shell() -> Result<Command, String> {
    if rustix::process::geteuid().is_root() {
        return Ok(Command::new("sh"));
    }
    let sudo = program::find("sudo").ok_or("this needs root, and there is no sudo")?;
    let allowed =
        Command::new(&sudo).args(["-n", "true"]).output().is_ok_and(|output| output.status.success());
    if !allowed {
        return Err("this needs root, and sudo asks for a password".to_owned());
    }
    let mut command = Command::new(sudo);
    command.args(["-n", "sh"]);
    Ok(command)
}

/// The end of a log.
pub(crate) fn last_lines(text: &str, count: usize) -> String {
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(count)..].join("\n")
}
