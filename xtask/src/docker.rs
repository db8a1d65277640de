//! What Docker can give the tests: whether a daemon runs here, and which images it has or can pull.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ratelimit_testbed::official_images;

/// The prefix of the images that `cargo xtask images` builds.
const LOCAL: &str = "ratelimit-local/";

/// Whether a Docker daemon listens on this machine. If not, its client need not be built.
pub(crate) fn has_docker() -> bool {
    let host = std::env::var("DOCKER_HOST").unwrap_or_else(|_| "unix:///var/run/docker.sock".to_owned());
    host.strip_prefix("unix://").is_some_and(|path| UnixStream::connect(path).is_ok())
}

/// Whether there is no official image here, nor one of this machine's packages instead, and none can be pulled.
pub(crate) fn has_no_image() -> bool {
    static NONE: OnceLock<bool> = OnceLock::new();
    *NONE.get_or_init(|| official_images().iter().all(|image| is_missing(image)) && !registry_answers())
}

/// Whether some official image has to be pulled.
pub(crate) fn lacks_an_image() -> bool {
    official_images().iter().any(|image| is_missing(image))
}

fn is_missing(image: &str) -> bool {
    !is_present(image) && !is_present(&format!("{LOCAL}{image}"))
}

/// Whether this image is on this machine.
pub(crate) fn is_present(image: &str) -> bool {
    let mut inspect = Command::new("docker");
    inspect.args(["image", "inspect", image]).stdout(Stdio::null()).stderr(Stdio::null());
    // Without the command, nobody can tell; the tests ask the daemon themselves.
    inspect.status().is_ok_and(|status| status.success()) || !has_command()
}

fn has_command() -> bool {
    let version = Command::new("docker").arg("--version").stdout(Stdio::null()).status();
    version.is_ok_and(|status| status.success())
}

/// Whether official images can be pulled. Asks the registry once, and says in one line if it does not answer.
pub(crate) fn registry_answers() -> bool {
    static ANSWERS: OnceLock<bool> = OnceLock::new();
    *ANSWERS.get_or_init(|| {
        let image = official_images()[0];
        let outcome = Command::new("timeout").args(["60", "docker", "pull", "--quiet", image]).output();
        let why = match outcome {
            Ok(output) if output.status.success() => return true,
            Ok(output) => reason(&String::from_utf8_lossy(&output.stderr)).to_owned(),
            Err(error) => error.to_string(),
        };
        println!("no containers, because {image} cannot be pulled: {why}");
        false
    })
}

/// The last line of what the command printed.
fn reason(printed: &str) -> &str {
    printed.trim_end().lines().next_back().unwrap_or("no answer within a minute")
}

#[cfg(test)]
mod tests {
    use super::reason;

    #[test]
    fn a_registry_that_does_not_answer_is_told_in_one_line() {
        assert_eq!(reason("Pulling\nError: no such host\n"), "Error: no such host");
        assert_eq!(reason(""), "no answer within a minute");
    }
}
