//! Certificates for servers and clients that use TLS.

use std::path::{Path, PathBuf};

use rcgen::{BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use tempfile::TempDir;

/// A new authority, with a certificate for a server at `localhost` or `127.0.0.1` and one for a client.
///
/// Every user can read the files, so that a server that does not run as root can read its key. They are deleted when this
/// is dropped.
///
/// ```
/// let certificates = ratelimit_testbed::Certificates::new()?;
/// let authority = std::fs::read_to_string(certificates.authority())?;
/// assert!(authority.starts_with("-----BEGIN CERTIFICATE-----"));
/// # Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
/// ```
pub struct Certificates {
    folder: TempDir,
}

type Error = Box<dyn std::error::Error + Send + Sync>;

impl Certificates {
    /// Creates the keys and the certificates.
    ///
    /// # Errors
    /// If the files cannot be written.
    pub fn new() -> Result<Self, Error> {
        Self::of(&["localhost", "127.0.0.1"])
    }

    /// Creates them for a server with only these names or addresses.
    ///
    /// # Errors
    /// If one of them is not valid, or the files cannot be written.
    pub fn of(names: &[&str]) -> Result<Self, Error> {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let folder = tempfile::Builder::new().prefix("ratelimit-certificates-").tempdir()?;
        open_to_all(folder.path(), 0o755)?;
        let certificates = Self { folder };

        let mut authority = CertificateParams::new(Vec::new())?;
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        authority.distinguished_name.push(DnType::CommonName, "ratelimit tests");
        let key = KeyPair::generate()?;
        let certificate = authority.self_signed(&key)?;
        certificates.write("authority.pem", &certificate.pem())?;
        let issuer = Issuer::new(authority, key);

        for (name, purpose) in
            [("server", ExtendedKeyUsagePurpose::ServerAuth), ("client", ExtendedKeyUsagePurpose::ClientAuth)]
        {
            let mut params = CertificateParams::new(names.clone())?;
            params.distinguished_name.push(DnType::CommonName, name);
            params.extended_key_usages = vec![purpose];
            let key = KeyPair::generate()?;
            let certificate = params.signed_by(&key, &issuer)?;
            certificates.write(&format!("{name}.pem"), &certificate.pem())?;
            certificates.write(&format!("{name}.key"), &key.serialize_pem())?;
        }
        Ok(certificates)
    }

    /// The certificate of the authority that has signed the others.
    pub fn authority(&self) -> PathBuf {
        self.path("authority.pem")
    }

    /// The server's certificate.
    pub fn server(&self) -> PathBuf {
        self.path("server.pem")
    }

    /// The server's key.
    pub fn server_key(&self) -> PathBuf {
        self.path("server.key")
    }

    /// The certificate of a client named `client`.
    pub fn client(&self) -> PathBuf {
        self.path("client.pem")
    }

    /// The client's key.
    pub fn client_key(&self) -> PathBuf {
        self.path("client.key")
    }

    /// A socket in the same directory, for reaching a server whose port accepts only TLS.
    pub(crate) fn socket(&self, port: u16) -> PathBuf {
        self.path(&format!("{port}.sock"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> std::io::Result<()> {
        let path = self.path(name);
        std::fs::write(&path, text)?;
        open_to_all(&path, 0o644)
    }
}

fn open_to_all(path: &Path, mode: u32) -> std::io::Result<()> {
    std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode))
}
