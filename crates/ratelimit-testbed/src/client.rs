//! Client programs that tests use: curl, Python.

use std::path::PathBuf;

use crate::{Testbed, Unavailable, package, program};

impl Testbed {
    /// The path of the program `name`: the installed one, or that of the Debian `package` if installing is allowed.
    ///
    /// # Errors
    /// If it is not installed and cannot be.
    pub async fn client(&self, name: &'static str, package: &'static str) -> Result<PathBuf, Unavailable> {
        if let Some(found) = program::find(name) {
            return Ok(found);
        }
        let mut tried = vec![("installed", format!("there is no {name} on the PATH"))];
        if self.may_install() {
            match package::install(name, package).await {
                Ok(()) => match program::find(name) {
                    Some(found) => return Ok(found),
                    None => tried.push(("package", format!("{package} is installed but contains no {name}"))),
                },
                Err(reason) => tried.push(("package", reason)),
            }
        } else {
            tried.push(("package", "installing it is not allowed".to_owned()));
        }
        let advice =
            format!("Install {name}, or set RATELIMIT_INSTALL=1 to install the Debian package {package}.");
        Err(Unavailable { name, tried, advice })
    }
}

#[cfg(test)]
mod tests {
    use crate::{Settings, Testbed};

    #[tokio::test]
    async fn a_program_is_found_or_the_error_says_what_to_do() {
        let testbed = Testbed::new(Settings::default()); // nothing may be installed
        assert!(testbed.client("sh", "dash").await.expect("every system has one").ends_with("sh"));
        let error = testbed
            .client("no-such-program", "no-such-package")
            .await
            .expect_err("there is none")
            .to_string();
        for part in [
            "there is no no-such-program on the PATH",
            "not allowed",
            "RATELIMIT_INSTALL=1",
            "no-such-package",
        ] {
            assert!(error.contains(part), "{error}");
        }
    }
}
