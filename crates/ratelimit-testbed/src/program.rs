//! Finds an installed program.

use std::path::{Path, PathBuf};

/// The path of a server's program: on the `PATH`, in Debian's directories for servers, or in `bin` of the newest of the
/// numbered directories of `versions`.
pub(crate) fn find_server(name: &str, versions: Option<&str>) -> Option<PathBuf> {
    find(name).or_else(|| newest(Path::new(versions?), name))
}

/// The path of `name`, on the `PATH` or in Debian's directories for servers.
pub(crate) fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/bin", "/usr/sbin", "/usr/local/bin"].map(PathBuf::from))
        .map(|folder| folder.join(name))
        .find(|file| file.is_file())
}

/// The program in `bin` of the highest of the numbered directories of `versions`.
fn newest(versions: &Path, name: &str) -> Option<PathBuf> {
    let numbered = std::fs::read_dir(versions).ok()?.flatten().filter_map(|entry| {
        let number: u32 = entry.file_name().to_str()?.parse().ok()?;
        let file = entry.path().join("bin").join(name);
        file.is_file().then_some((number, file))
    });
    numbered.max().map(|(_, file)| file)
}

#[cfg(test)]
mod tests {
    use super::newest;

    #[test]
    fn the_newest_version_that_has_the_program_is_found() {
        let folder = tempfile::tempdir().expect("a folder");
        for version in ["9", "15", "17", "old"] {
            std::fs::create_dir_all(folder.path().join(version).join("bin")).expect("a folder");
        }
        for version in ["9", "15", "old"] {
            std::fs::write(folder.path().join(version).join("bin/server"), "").expect("a file");
        }
        assert_eq!(newest(folder.path(), "server"), Some(folder.path().join("15/bin/server")));
        assert_eq!(newest(folder.path(), "other"), None);
    }
}
