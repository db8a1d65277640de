//! Describes a kind of server.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use async_trait::async_trait;
use rustix::process::Signal;

use crate::wheel::Wheel;

/// The names for a kind of server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recipe {
    /// In messages, on command lines and in `Settings::images`.
    pub(crate) name: &'static str,
    /// The variable with its address; several addresses are separated by commas. Empty if it is always started.
    pub(crate) variable: &'static str,
    /// The official image; empty if there is none.
    pub(crate) image: &'static str,
    /// The name of the program, on the `PATH` and in the image.
    pub(crate) program: &'static str,
    /// The Debian package with the program.
    pub(crate) package: &'static str,
    /// The Python package that the program comes from, if any, instead of a Debian package or the `PATH`.
    pub(crate) wheel: Option<Wheel>,
}

/// Where a server should run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement<'a> {
    /// The address to listen on: loopback for a process, all addresses in a container.
    pub(crate) host: &'a str,
    /// The port to listen on, the same inside and outside of a container.
    pub(crate) port: u16,
    /// A directory that it may write to.
    pub(crate) folder: &'a str,
}

/// How to run one server.
#[async_trait]
pub(crate) trait Service: Send + Sync + 'static {
    /// The program's arguments.
    fn arguments(&self, place: Placement<'_>) -> Vec<String>;

    /// Where the package puts its programs if not on the `PATH`: this directory, a version, `bin`.
    fn versions(&self) -> Option<&'static str> {
        None
    }

    /// The user that runs the program if we are root and it refuses to run as root; `nobody` if that user does not exist.
    fn user(&self) -> Option<&'static str> {
        None
    }

    /// The signal that stops it when it is no longer needed. With a signal other than `KILL` it can free what outlives a
    /// process, such as shared memory.
    fn farewell(&self) -> Signal {
        Signal::KILL
    }

    /// The environment of the program, or of the image's start script.
    fn environment(&self, _place: Placement<'_>) -> Vec<(String, String)> {
        Vec::new()
    }

    /// A command to run once before a private process is first started.
    fn preparation(&self, _program: &Path, _place: Placement<'_>) -> Option<Command> {
        None
    }

    /// Returns when the server answers as it should, or what is wrong.
    async fn ready(&self, address: SocketAddr) -> Result<(), String>;

    /// Its address for clients.
    fn url(&self, address: SocketAddr) -> String;

    /// The service at an address, or why it cannot be this service.
    fn at_address(&self, _url: &str) -> Result<External, String> {
        Err("it cannot be found by an address".to_owned())
    }
}

/// A server that runs elsewhere, at a known address.
pub(crate) struct External {
    /// Host and port.
    pub(crate) authority: String,
    /// How to talk to it.
    pub(crate) service: std::sync::Arc<dyn Service>,
}
