//! Node.js with a client for Redis, from Debian's packages.

use std::path::Path;
use std::process::{Command, Stdio};

use crate::{Testbed, Unavailable, package};

const NAME: &str = "node";

/// Where Debian's packages have the libraries.
const MODULES: &str = "/usr/share/nodejs";

/// The package with the client for Redis.
const PACKAGE: &str = "node-redis";

impl Testbed {
    /// A command that runs Node.js, to which the script and its arguments have to be added. `require("redis")` is node-redis.
    ///
    /// # Errors
    /// If it is not installed and cannot be.
    pub async fn node(&self) -> Result<Command, Unavailable> {
        let program = self.client(NAME, "nodejs").await?;
        if !Path::new(MODULES).join("redis").is_dir() {
            let unavailable = |reason: String| Unavailable {
                name: NAME,
                tried: vec![("package", reason)],
                advice: format!(
                    "Install the Debian package {PACKAGE}, or set RATELIMIT_INSTALL=1 to allow it."
                ),
            };
            if !self.may_install() {
                return Err(unavailable(format!("installing {PACKAGE} is not allowed")));
            }
            package::install(NAME, PACKAGE).await.map_err(unavailable)?;
        }
        let mut command = Command::new(program);
        command.env("NODE_PATH", MODULES).stdin(Stdio::null());
        Ok(command)
    }
}
