//! Lists of clients in a configuration file, or in files of their own.

use std::io;
use std::path::Path;

use super::document::Problem;
use super::key::Keys;
use super::watched::Watched;
use super::{ConfigError, file};
use crate::{ClientList, KeySource};

/// The maximum size of a list's file, in bytes.
const LARGEST: u64 = 32 << 20;

/// A list that is in a file of its own, and changes with it.
#[derive(Debug)]
pub(super) struct ListFile {
    file: Watched,
    list: ClientList,
}

/// The lists of a section, and the file of the one that has one. Relative paths start from `folder`.
pub(super) fn lists(
    section: &file::Clients,
    keys: &Keys<'_>,
    folder: &Path,
) -> Result<(Vec<ClientList>, Option<ListFile>), Problem> {
    let source = keys.all(&section.key.location, &section.key.each())?;
    let mut lists = Vec::new();
    for client in &section.clients {
        // `ClientList` skips such lines.
        let problem = match client.trim() {
            text if !text.is_empty() && !text.starts_with('#') => continue,
            _ if source.is_address() => "it is no address: remove it",
            "" => "it is empty: remove it, or write `literal:` for the empty value",
            _ => {
                "only a `file` has comments: remove it, or write `literal:` before a client that begins with `#`"
            }
        };
        return Err(Problem::at(&client.location, problem));
    }
    if !section.clients.is_empty() {
        let clients = section.clients.iter().map(|client| client.as_str());
        lists.push(ClientList::new(source.clone(), clients).map_err(|error| {
            let client = section.clients.get(error.line() - 1);
            Problem::at(
                client.map_or(&section.key.location, |client| &client.location),
                error.problem().to_string(),
            )
        })?);
    }
    let Some(path) = &section.file else {
        if lists.is_empty() {
            return Err(Problem::at(
                &section.key.location,
                "there are no clients: set `clients`, `file` or both",
            ));
        }
        return Ok((lists, None));
    };
    let (file, content) = Watched::open(folder.join(path.as_str()), LARGEST);
    match read(source, content) {
        Ok(list) => {
            lists.push(list.clone());
            Ok((lists, Some(ListFile { file, list })))
        }
        Err(what) => {
            let problem = Problem::at(&path.location, format!("{}: {what}", **path));
            Err(Problem { failed_list: Some(Box::new(file)), ..problem })
        }
    }
}

/// The list with this content, or what is wrong with it.
fn read(source: KeySource, content: io::Result<Vec<u8>>) -> Result<ClientList, String> {
    let content = content.map_err(|error| format!("cannot be read: {error}"))?;
    let text = text(&content).map_err(|error| error.to_string())?;
    ClientList::new(source, text.lines()).map_err(|error| error.to_string())
}

impl ListFile {
    /// Replaces the list if its file has changed. Returns whether it did. If the file cannot be used, the list stays as
    /// it is.
    pub(super) fn reload(&self, settle: bool) -> Result<bool, ConfigError> {
        self.file.changed(settle, |content| self.replace(content)).transpose().map(|done| done.is_some())
    }

    fn replace(&self, content: io::Result<Vec<u8>>) -> Result<(), ConfigError> {
        let content = content.map_err(|error| ConfigError::unreadable(self.name(), error))?;
        let text = text(&content).map_err(|error| ConfigError::unreadable(self.name(), error))?;
        self.list.replace(text.lines()).map_err(|error| {
            ConfigError::wrong(self.name(), Problem::in_line(error.line(), error.problem().to_string()))
        })
    }

    pub(super) fn name(&self) -> String {
        self.file.name()
    }
}

/// The text of a list's file, without the byte order mark that some editors write at its start.
fn text(content: &[u8]) -> io::Result<&str> {
    let text = str::from_utf8(content);
    let text = text.map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "invalid UTF-8"))?;
    Ok(text.strip_prefix('\u{feff}').unwrap_or(text))
}
