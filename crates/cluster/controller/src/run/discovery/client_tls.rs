//! TLS towards engines and Consul: authorities, the client's certificate, and words for what fails.

use std::error::Error;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{AlertDescription, CertificateError, ClientConfig, RootCertStore};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::json_client::chain;

/// Authorities of the operating system.
const SYSTEM_AUTHORITIES: &str = "/etc/ssl/certs/ca-certificates.crt";

/// Files of a TLS client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TlsFiles {
    /// Authorities; without it, the system's.
    pub authority: Option<PathBuf>,
    pub certificate: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Name in the server's certificate; without it, that of the address.
    pub server_name: Option<String>,
}

/// TLS side of a client.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
    authority: PathBuf,
    has_certificate: bool,
    server_name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Reads the files.
    ///
    /// # Errors
    /// If a file cannot be read, has no certificate or key, or certificate and key do not fit. Names the file.
    pub fn new(files: &TlsFiles) -> Result<ClientTls, String> {
        let failed = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let authority = files.authority.clone().unwrap_or_else(|| SYSTEM_AUTHORITIES.into());
        let mut roots = RootCertStore::empty();
        for certificate in CertificateDer::pem_file_iter(&authority).map_err(|error| failed(&authority, &error))? {
            // Some of the system's may have forms that are not supported.
            let _ = roots.add(certificate.map_err(|error| failed(&authority, &error))?);
        }
        if roots.is_empty() {
            return Err(failed(&authority, &"no certificate of an authority"));
        }
        let builder = ClientConfig::builder().with_root_certificates(roots);
        let config = match (&files.certificate, &files.key) {
            (Some(certificate), Some(key)) => {
                let chain = CertificateDer::pem_file_iter(certificate).map_err(|error| failed(certificate, &error))?;
                let chain: Result<Vec<_>, _> = chain.collect();
                let chain = chain.map_err(|error| failed(certificate, &error))?;
                if chain.is_empty() {
                    return Err(failed(certificate, &"no certificate"));
                }
                let private = PrivateKeyDer::from_pem_file(key).map_err(|error| failed(key, &error))?;
                builder.with_client_auth_cert(chain, private).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => {
                        failed(key, &format_args!("not the key of {}", certificate.display()))
                    }
                    error => failed(certificate, &error),
                })?
            }
            (None, None) => builder.with_no_client_auth(),
            (Some(file), None) => return Err(failed(file, &"a certificate without a key")),
            (None, Some(file)) => return Err(failed(file, &"a key without a certificate")),
        };
        let server_name = match files.server_name.clone() {
            Some(name) => {
                Some(ServerName::try_from(name.clone()).map_err(|error| format!("server name {name}: {error}"))?)
            }
            None => None,
        };
        let has_certificate = files.certificate.is_some();
        Ok(ClientTls { connector: TlsConnector::from(Arc::new(config)), authority, has_certificate, server_name })
    }

    /// Makes the handshake over a connection to a host.
    ///
    /// # Errors
    /// Why it failed, for the log.
    pub async fn connect(&self, host: &str, stream: TcpStream) -> Result<TlsStream<TcpStream>, String> {
        let name = match &self.server_name {
            Some(name) => name.clone(),
            None => ServerName::try_from(host.to_owned()).map_err(|error| error.to_string())?,
        };
        self.connector.connect(name, stream).await.map_err(|error| self.reason(&error))
    }

    /// Writes why a handshake, or the first exchange behind it, failed.
    pub fn reason(&self, error: &(dyn Error + 'static)) -> String {
        let Some(fault) = tls_fault(error) else {
            let words = chain(error);
            return match self.has_certificate {
                true => words,
                // Servers may close before they have said so.
                false => format!("{words} (does the server ask for a certificate of this client?)"),
            };
        };
        match fault {
            rustls::Error::InvalidCertificate(fault) => self.certificate_reason(fault),
            rustls::Error::AlertReceived(AlertDescription::CertificateRequired) => {
                "the server asks for a certificate of this client".into()
            }
            rustls::Error::AlertReceived(alert) if !self.has_certificate => {
                format!("the server refuses this client ({alert:?}); it may ask for a certificate")
            }
            rustls::Error::AlertReceived(AlertDescription::UnknownCA) => {
                "the server does not know the authority of this client's certificate".into()
            }
            rustls::Error::AlertReceived(AlertDescription::CertificateExpired) => {
                "this client's certificate has expired".into()
            }
            rustls::Error::AlertReceived(alert) => format!("the server refuses this client's certificate ({alert:?})"),
            rustls::Error::InvalidMessage(_) => format!("the server does not speak TLS ({fault})"),
            fault => fault.to_string(),
        }
    }

    fn certificate_reason(&self, fault: &CertificateError) -> String {
        match fault {
            CertificateError::UnknownIssuer => {
                format!("the server's certificate is signed by no authority of {}", self.authority.display())
            }
            CertificateError::Expired | CertificateError::ExpiredContext { .. } => {
                format!("the server's certificate has expired ({fault})")
            }
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. } => {
                format!("the server's certificate is not valid yet ({fault})")
            }
            CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. } => {
                format!("the server's certificate has another name ({fault})")
            }
            fault => format!("the server's certificate is not accepted ({fault})"),
        }
    }
}

/// Finds the error of TLS among an error and its causes; one of I/O has it inside.
fn tls_fault<'a>(error: &'a (dyn Error + 'static)) -> Option<&'a rustls::Error> {
    let mut next = Some(error);
    while let Some(cause) = next {
        let inner = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
        let inside = inner.and_then(|inner| inner.downcast_ref::<rustls::Error>());
        if let Some(fault) = cause.downcast_ref::<rustls::Error>().or(inside) {
            return Some(fault);
        }
        next = cause.source();
    }
    None
}
