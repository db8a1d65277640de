//! What has to be known about a kind of server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use async_trait::async_trait;
use rustix::process::Signal;

/// The names that a kind of server goes by.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// In messages, on command lines and for `Settings::images`.
    pub(crate) name: &'static str,
    /// The variable with its address; several are separated by commas.
    pub(crate) variable: &'static str,
    /// The official image.
    pub(crate) image: &'static str,
    /// The program, as it is called on the `PATH` and in the image.
    pub(crate) program: &'static str,
    /// The Debian package with the program.
    pub(crate) package: &'static str,
}

/// Where a server is to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place<'a> {
    /// The address to listen on: loopback for a process, all of them in a container.
    pub(crate) host: &'a str,
    /// The port to listen on, the same inside and outside of a container.
    pub(crate) port: u16,
    /// A folder that it may write to.
    pub(crate) folder: &'a str,
}

/// How to run one server.
#[async_trait]
pub(crate) trait Service: Send + Sync + 'static {
    /// The program's arguments.
    fn arguments(&self, place: Place<'_>) -> Vec<String>;

    /// Where the package puts its programs if not on the `PATH`: this folder, a version, `bin`.
    fn versions(&self) -> Option<&'static str> {
        None
    }

    /// Who runs the program if we are root and it refuses to run as root; `nobody` if there is no such user.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// What ends it when nobody needs it any more. Another signal than `KILL` has it clean up what outlives processes.
    fn farewell(&self) -> Signal {
        Signal::KILL
    }

    /// What the program, or the image's own start script, has to find in its environment.
    fn environment(&self, _place: Place<'_>) -> Vec<(String, String)> {
        Vec::new()
    }

    /// What has to be run once before a private process is started for the first time.
    fn preparation(&self, _program: &Path, _place: Place<'_>) -> Option<Command> {
        None
    }

    /// Comes back when the server answers as it should; what is wrong, if not.
    async fn ready(&self, address: SocketAddr) -> Result<(), String>;

    /// How clients name it.
    fn url(&self, address: SocketAddr) -> String;

    /// The service at an address that somebody else has given, or why this one cannot be had there.
    fn given(&self, url: &str) -> Result<Given, String>;
}

/// A server that somebody else runs.
pub(crate) struct Given {
    /// Host and port.
    pub(crate) authority: String,
    /// How to talk to it.
    pub(crate) service: std::sync::Arc<dyn Service>,
}
