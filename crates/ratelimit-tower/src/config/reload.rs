//! A file that is reloaded when it changes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use arc_swap::ArcSwap;

use super::text::Format;
use super::watched::Watched;
use super::{Config, ConfigError, PlanName, Provided, few_units, observe};
use crate::{SharedPolicies, lock};

/// The maximum size of a file, in bytes.
const LARGEST: u64 = 1 << 20;

/// A configuration file in use. Clones share it.
///
/// ```no_run
/// use std::time::Duration;
///
/// use ratelimit_memory::MemoryStore;
/// use ratelimit_tower::RateLimitLayer;
/// use ratelimit_tower::config::ConfigFile;
///
/// # async fn serve() -> Result<(), Box<dyn std::error::Error>> {
/// let file = ConfigFile::open("limits.toml")?; // a broken file ends the program here, with file, line and field
/// let layer = RateLimitLayer::in_process(MemoryStore::new(), file.policies());
///
/// let watched = file.clone();
/// tokio::spawn(async move { watched.watch(Duration::from_secs(2)).await });
/// # let _ = layer;
/// # Ok(())
/// # }
/// ```
///
/// # Changes
/// [`reload`](Self::reload) replaces the policies if the file's content has changed; [`watch`](Self::watch) does so
/// periodically. Requests in progress complete under the policies that they started with.
///
/// Counts are stored by the policy's name, the kind of limit and the key. So a policy that did not change keeps its
/// counts whatever else changes. One whose quota changed keeps them, too: after an increase, more units are available
/// immediately; after a decrease below what is used, none remain until enough time has passed. A policy that is renamed, or
/// that counts in windows of another length, starts from zero; see [`Limit`](ratelimit_core::Limit).
///
/// If a policy counts by another key, a client keeps its count if the new key has the same value: a user id in another
/// header or from an extension, a secret that is now sent as a bearer token, an address that is grouped as before. Where
/// the value differs, the client starts from zero: by a user instead of an address, by two sources instead of one, or by
/// one of several alternatives. To start from zero in any case, rename the policy.
///
/// Lists of clients in files of their own are read again in the same way. If the path of such a file is relative, it starts
/// from the folder of the configuration file.
///
/// A file that cannot be used changes nothing: the policies and lists stay as they are, and the error is logged and
/// [counted](Self::failures), usually once for each broken content; twice if the file of a list breaks at the same time
/// as its configuration. If a new configuration cannot be used because of the file of a list, it is tried again when that
/// file changes or appears.
///
/// The content is compared, not the modification time. This also detects two changes within one tick of the file
/// system's clock, a mounted directory that is replaced as a whole, and changes on a network file system, where
/// notifications are late or missing. It costs reading a small file every few seconds.
#[derive(Clone, Debug)]
pub struct ConfigFile {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: Watched,
    format: Format,
    provided: Provided,
    policies: SharedPolicies,
    config: ArcSwap<Config>,
    /// The hash of the content that `config` was read from.
    hash: Mutex<String>,
    /// The file of a list because of which the content of `file` cannot be used.
    failed_list: Mutex<Option<Watched>>,
    replaced: AtomicU64,
    failures: AtomicU64,
}

/// What [`ConfigFile::reload`] did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reloaded {
    /// Nothing: the files are as they were at the last check. They may have been broken then.
    Unchanged,
    /// The policies, or the clients of a list, have been replaced by those of the new content.
    Replaced,
}

impl ConfigFile {
    /// Reads a file whose name ends in `.toml`, `.yaml` or `.yml`.
    ///
    /// # Errors
    /// If it cannot be read, is larger than 1 MiB, or is not a valid configuration.
    pub fn open(path: impl Into<PathBuf>) -> Result<Self, ConfigError> {
        Self::open_with(path, Provided::default())
    }

    /// Reads a file that can use names that the program provides.
    ///
    /// # Errors
    /// Like [`open`](Self::open).
    pub fn open_with(path: impl Into<PathBuf>, provided: Provided) -> Result<Self, ConfigError> {
        let path = path.into();
        let format = Format::of(&path).ok_or_else(|| {
            let message = "the file name must end in .toml, .yaml or .yml";
            ConfigError::unreadable(name(&path), io::Error::new(io::ErrorKind::InvalidInput, message))
        })?;
        let (file, content) = Watched::open(path.clone(), LARGEST);
        let bytes = content.map_err(|error| ConfigError::unreadable(name(&path), error))?;
        let config = understand(&path, &bytes, format, &provided)?;
        observe::no_reloads();
        let hash = Watched::hash(&bytes);
        observe::in_force(&name(&path), &hash, None);
        let inner = Inner {
            file,
            format,
            provided,
            policies: config.policies().clone().into(),
            config: ArcSwap::from_pointee(config),
            hash: Mutex::new(hash),
            failed_list: Mutex::default(),
            replaced: AtomicU64::new(0),
            failures: AtomicU64::new(0),
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// The policies, for [`RateLimitLayer::new`](crate::RateLimitLayer::new). They change with the file.
    pub fn policies(&self) -> SharedPolicies {
        self.inner.policies.clone()
    }

    /// The current contents.
    pub fn config(&self) -> Arc<Config> {
        self.inner.config.load_full()
    }

    /// Returns the plan of this name, to put into a request's extensions; `None` if the file currently has no such plan.
    pub fn plan(&self, name: &str) -> Option<PlanName> {
        self.inner.config.load().plan(name)
    }

    /// The first 12 digits of the SHA-256 of the content that is in force, which `sha256sum` prints for a file. For lists of
    /// clients in files of their own there is none.
    pub fn hash(&self) -> String {
        lock(&self.inner.hash).clone()
    }

    /// How often the policies, or the clients of a list, have been replaced since the file was opened.
    pub fn replaced(&self) -> u64 {
        self.inner.replaced.load(Ordering::Relaxed)
    }

    /// How often the file, or the file of a list, has changed and could not be used.
    pub fn failures(&self) -> u64 {
        self.inner.failures.load(Ordering::Relaxed)
    }

    /// Reads the file and the files of its lists of clients, and replaces what has changed. Blocks while reading.
    ///
    /// # Errors
    /// If a file has changed and cannot be used. Its policies or clients stay as they are; the error has been logged and
    /// counted.
    pub fn reload(&self) -> Result<Reloaded, ConfigError> {
        self.inner.reload(false)
    }

    /// Reloads the file at this interval, until the future is dropped. Run it on a task of its own.
    ///
    /// A changed content is used after two consecutive reads have returned it, so that a partly written file is not used. But
    /// a new configuration reads its lists of clients once: replace such a file by renaming another one.
    /// Errors are logged and counted. The file is read on a thread for blocking work, so a file system that hangs blocks no
    /// other task.
    pub async fn watch(&self, every: Duration) {
        loop {
            tokio::time::sleep(every.max(Duration::from_millis(1))).await;
            let file = self.clone();
            // It fails only when the runtime ends.
            let _ = tokio::task::spawn_blocking(move || file.reload_what_stays().is_ok()).await;
        }
    }

    /// Like [`reload`](Self::reload), but ignores content that was not there at the previous check.
    fn reload_what_stays(&self) -> Result<Reloaded, ConfigError> {
        self.inner.reload(true)
    }
}

impl Inner {
    fn reload(&self, settle: bool) -> Result<Reloaded, ConfigError> {
        let again = || lock(&self.failed_list).as_ref().is_some_and(|list| list.has_changed(settle));
        match self.file.changed_or(settle, again, |content| self.replace(content)) {
            // The new content has been read together with its lists.
            Some(Ok(())) => return Ok(Reloaded::Replaced),
            Some(Err(error)) => return Err(self.failed(error)),
            None => {}
        }
        let mut reloaded = Reloaded::Unchanged;
        let mut failure = None;
        for list in &*self.config.load().lists {
            match list.reload(settle) {
                Ok(false) => {}
                Ok(true) => {
                    reloaded = Reloaded::Replaced;
                    self.replaced(&list.name());
                }
                Err(error) => failure = Some(self.failed(error)),
            }
        }
        failure.map_or(Ok(reloaded), Err)
    }

    /// Uses the new content of the file, if it is valid.
    fn replace(&self, content: io::Result<Vec<u8>>) -> Result<(), ConfigError> {
        let path = self.file.path();
        let mut config =
            content.map_err(|error| ConfigError::unreadable(name(path), error)).and_then(|bytes| {
                let config = understand(path, &bytes, self.format, &self.provided)?;
                Ok((config, Watched::hash(&bytes)))
            });
        *lock(&self.failed_list) = config.as_mut().err().and_then(ConfigError::take_failed_list);
        let (config, hash) = config?;
        self.policies.replace(config.policies().clone());
        self.config.store(Arc::new(config));
        let before = std::mem::replace(&mut *lock(&self.hash), hash.clone());
        observe::in_force(&self.file.name(), &hash, (before != hash).then_some(&*before));
        self.replaced(&self.file.name());
        Ok(())
    }

    fn replaced(&self, name: &str) {
        self.replaced.fetch_add(1, Ordering::Relaxed);
        observe::replaced(name);
    }

    fn failed(&self, error: ConfigError) -> ConfigError {
        self.failures.fetch_add(1, Ordering::Relaxed);
        observe::failed(&error);
        error
    }
}

fn name(path: &Path) -> String {
    path.display().to_string()
}

/// The configuration in `bytes`.
fn understand(path: &Path, bytes: &[u8], format: Format, provided: &Provided) -> Result<Config, ConfigError> {
    let text = str::from_utf8(bytes).map_err(|error| {
        let line = bytes[..error.valid_up_to()].iter().filter(|byte| **byte == b'\n').count() + 1;
        ConfigError::wrong(name(path), super::document::Problem::in_line(line, "invalid UTF-8"))
    })?;
    let folder = path.parent().unwrap_or(Path::new(""));
    let config = Config::read(text, format, provided, folder);
    let config = config.map_err(|problem| ConfigError::wrong(name(path), problem))?;
    few_units::warn(&name(path), &config);
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn policies(count: usize) -> String {
        (0..count)
            .map(|index| format!("[[policies]]\nname = \"p{index}\"\nkey = \"path\"\nlimit = \"1/s\"\n"))
            .collect()
    }

    #[test]
    fn partially_written_files_are_not_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        fs::write(&path, policies(3)).unwrap();
        let file = ConfigFile::open(&path).unwrap();
        let known = || file.policies().current().each().len();
        for (count, expected) in
            [(3, 3), (1, 3), (2, 3), (1, 3), (3, 3), (1, 3), (1, 1), (1, 1), (0, 1), (2, 1), (2, 2)]
        {
            fs::write(&path, policies(count)).unwrap();
            file.reload_what_stays().unwrap();
            assert_eq!(known(), expected, "{count}");
        }
        fs::write(&path, "").unwrap();
        assert_eq!(file.reload_what_stays().unwrap(), Reloaded::Unchanged);
        file.reload_what_stays().unwrap_err();
        assert_eq!((file.replaced(), file.failures(), known()), (2, 1, 2));
        // An explicit reload uses the content immediately.
        fs::write(&path, policies(1)).unwrap();
        assert_eq!((file.reload().unwrap(), known()), (Reloaded::Replaced, 1));
    }

    #[test]
    fn a_list_that_appears_is_read_twice_before_its_configuration_is_used() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("limits.toml");
        fs::write(&path, policies(1)).unwrap();
        let file = ConfigFile::open(&path).unwrap();
        let known = || file.policies().current().each().len();
        let deny = "[[deny]]\nkey = \"address\"\nfile = \"denied.txt\"\n";
        fs::write(&path, policies(2) + deny).unwrap();
        assert_eq!(file.reload_what_stays().unwrap(), Reloaded::Unchanged);
        file.reload_what_stays().unwrap_err();
        for (clients, expected) in [
            ("192.0.2.1", Some(1)),
            ("nobody", Some(1)),
            ("nobody", None),
            ("192.0.2.1", Some(1)),
            ("192.0.2.1", Some(2)),
        ] {
            fs::write(folder.path().join("denied.txt"), clients).unwrap();
            assert_eq!(file.reload_what_stays().ok().map(|_| known()), expected, "{clients}");
        }
        assert_eq!((file.replaced(), file.failures()), (1, 2));
    }
}
