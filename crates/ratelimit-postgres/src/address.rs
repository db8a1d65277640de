//! The address of a server in a form that may be shown.

use sqlx::postgres::PgConnectOptions;

/// Host, port and database, without the password. Without a database, the server uses the one that is named like the user.
pub(crate) fn address_of(options: &PgConnectOptions) -> String {
    let host = match options.get_socket() {
        Some(socket) => socket.display().to_string(),
        None => options.get_host().to_owned(),
    };
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{host}:{}/{database}", options.get_port())
}
