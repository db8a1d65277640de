//! The certificates of a configuration.

use std::fmt;

/// The certificates that a store's configuration has for encrypted connections, in PEM form.
///
/// ```
/// use ratelimit_store_kit::Certificates;
///
/// let certificates = Certificates { authorities: Some(b"-----BEGIN CERTIFICATE-----"), ..Certificates::default() };
/// assert_eq!(
///     certificates.without_tls("mystores://").as_deref(),
///     Some("`authorities`, `client_certificate` and `client_key` need TLS: an address that begins with mystores://"),
/// );
/// assert_eq!(Certificates::default().without_tls("mystores://"), None);
/// ```
#[derive(Clone, Copy, Default)]
pub struct Certificates<'a> {
    /// Those of the authorities to trust, instead of the machine's.
    pub authorities: Option<&'a [u8]>,
    /// The client's, for servers that ask for one, with any intermediate certificates after it.
    pub client_certificate: Option<&'a [u8]>,
    /// The private key of the client's certificate.
    pub client_key: Option<&'a [u8]>,
}

impl Certificates<'_> {
    /// What is wrong with them if connections are not encrypted: that there are any. `address` is how an address for TLS begins.
    pub fn without_tls(&self, address: &str) -> Option<String> {
        let all = [self.authorities, self.client_certificate, self.client_key];
        all.iter().any(Option::is_some).then(|| {
            format!(
                "`authorities`, `client_certificate` and `client_key` need TLS: an address that begins with {address}"
            )
        })
    }
}

impl fmt::Debug for Certificates<'_> {
    // A derived one would print the private key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificates")
            .field("authorities", &self.authorities.map(<[u8]>::len))
            .field("client_certificate", &self.client_certificate.map(<[u8]>::len))
            .field("client_key", &self.client_key.map(|_| "hidden"))
            .finish()
    }
}
