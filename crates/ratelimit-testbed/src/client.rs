//! Programs that tests talk to servers with: curl, Python.

use std::path::PathBuf;

use crate::{Testbed, Unavailable, package, program};

impl Testbed {
    /// Where the program `name` is: the installed one, or that of the Debian `package` if installing is allowed.
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
                    None => tried.push(("package", format!("{package} is installed but brought no {name}"))),
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
