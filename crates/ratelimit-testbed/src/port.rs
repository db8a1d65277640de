//! Reserves a port.

use std::collections::hash_map::RandomState;
use std::fs::{self, File};
use std::hash::{BuildHasher as _, Hasher as _};
use std::io;
use std::net::{Ipv4Addr, TcpListener};

/// Below the kernel's range for the ports of outgoing connections (32768 and up on Linux). Otherwise a client that keeps
/// connecting to a killed server would sooner or later be assigned that very port and connect to itself. The range is as
/// wide as the distance between a cluster node's port and its bus, so no port is the bus of another one.
const FIRST: u16 = 11_000;
const COUNT: u16 = 10_000;

/// The distance of a Redis Cluster node's bus from its port.
const BUS: u16 = 10_000;

/// A free port of the loopback interface that no other reservation gets while this one is held.
#[derive(Debug)]
pub struct Port {
    number: u16,
    // Held only for its lock, which ends when the file is closed.
    _lock: File,
}

impl Port {
    /// Reserves a port; the one 10,000 above it is free as well.
    ///
    /// # Errors
    /// If there is no free port, or the folder of the reservations cannot be written.
    pub fn reserve() -> io::Result<Self> {
        let folder =
            std::env::temp_dir().join(format!("ratelimit-testbed-{}", rustix::process::getuid().as_raw()));
        fs::create_dir_all(&folder)?;
        for _ in 0..200 {
            let number = FIRST + random_below(COUNT);
            let lock = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(folder.join(format!("port-{number}")))?;
            if lock.try_lock().is_ok() && is_free(number) && is_free(number + BUS) {
                return Ok(Self { number, _lock: lock });
            }
        }
        Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("no free port between {FIRST} and {}", FIRST + COUNT),
        ))
    }

    /// The port's number.
    pub fn number(&self) -> u16 {
        self.number
    }
}

fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

fn random_below(bound: u16) -> u16 {
    let bits = RandomState::new().build_hasher().finish();
    u16::try_from(bits % u64::from(bound)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::Port;

    #[test]
    fn reserved_ports_are_distinct() {
        let ports: Vec<Port> = (0..50).map(|_| Port::reserve().expect("a free port")).collect();
        let distinct: BTreeSet<u16> = ports.iter().map(Port::number).collect();
        assert_eq!(distinct.len(), ports.len());
    }
}
