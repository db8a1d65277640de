//! The user for a server that refuses to run as root.

/// A user of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct User {
    pub(crate) id: u32,
    pub(crate) group: u32,
}

impl User {
    /// The user of this name, or else `nobody`. `None` if this process does not run as root, or without a name.
    pub(crate) fn instead_of_root(name: Option<&str>) -> Option<Self> {
        let name = name.filter(|_| rustix::process::geteuid().is_root())?;
        let known = std::fs::read_to_string("/etc/passwd").unwrap_or_default();
        find(&known, name).or_else(|| find(&known, "nobody"))
    }
}

/// The user in the lines of `/etc/passwd`.
fn find(known: &str, name: &str) -> Option<User> {
    known.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next()? != name {
            return None;
        }
        Some(User { id: fields.nth(1)?.parse().ok()?, group: fields.next()?.parse().ok()? })
    })
}

#[cfg(test)]
mod tests {
    use super::{User, find};

    #[test]
    fn a_user_is_found_by_the_whole_name() {
        let known = "root:x:0:0::/:/bin/sh\nnobody2:x:9:9::/:\nnobody:x:65534:65533::/:\n";
        assert_eq!(find(known, "nobody"), Some(User { id: 65534, group: 65533 }));
        assert_eq!(find(known, "postgres"), None);
    }
}
