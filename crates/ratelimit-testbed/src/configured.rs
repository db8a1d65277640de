//! Programs that are started with a text in which `<port>` stands for their port and `<folder>` for their directory.

use std::process::Command;

use crate::service::Placement;

/// `text`, with the port and the directory.
pub(crate) fn filled(text: &str, place: Placement<'_>) -> String {
    text.replace("<port>", &place.port.to_string()).replace("<folder>", place.folder)
}

/// A command that writes `text` into the file `name` in the server's directory.
pub(crate) fn write(name: &str, text: &str) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "printf %s \"$1\" > \"$2\"", "write", text, name]);
    command
}

#[cfg(test)]
mod tests {
    use super::{Placement, filled};

    #[test]
    fn port_and_folder_are_filled_in() {
        let place = Placement { host: "127.0.0.1", port: 80, folder: "/there" };
        assert_eq!(filled("<port> <port>, <folder>/x, <other>", place), "80 80, /there/x, <other>");
    }
}
