//! Certificates and authorities: checked here, since one that the server cannot load makes it refuse a whole
//! configuration.

use std::fmt;

use rustls::crypto::aws_lc_rs::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// Path of a file without its extension, of names with slashes between them: `shop/tls`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileName(String);

impl FileName {
    /// Joins parts by slashes. A part cannot leave its folder: bytes other than letters, digits, hyphens and dots inside
    /// a part are written in hexadecimal.
    pub fn new(parts: &[&str]) -> FileName {
        let mut name = String::new();
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                name.push('/');
            }
            for (at, byte) in part.bytes().enumerate() {
                match byte {
                    b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' => name.push(char::from(byte)),
                    b'.' if at > 0 => name.push('.'),
                    _ => name.push_str(&format!("_{byte:02x}")),
                }
            }
        }
        FileName(name)
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the path of the certificate chain, relative to the folder of nginx.conf.
    pub fn certificate_path(&self) -> String {
        format!("certificates/{self}.crt")
    }

    /// Returns the path of the private key.
    pub fn key_path(&self) -> String {
        format!("certificates/{self}.key")
    }

    /// Returns the path of a file of authorities.
    pub fn authority_path(&self) -> String {
        format!("authorities/{self}.crt")
    }

    /// Returns the path of a file of users.
    pub fn password_path(&self) -> String {
        format!("passwords/{self}.key")
    }
}

impl fmt::Display for FileName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Chain and private key, in PEM.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate {
    chain: Vec<u8>,
    key: Vec<u8>,
}

impl fmt::Debug for Certificate {
    /// Leaves the key out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").field("chain", &self.chain.len()).finish_non_exhaustive()
    }
}

impl Certificate {
    /// Checks a chain and its key.
    ///
    /// # Errors
    /// If one of them is no PEM, or the key is not the key of the first certificate.
    pub fn from_pem(chain: &[u8], key: &[u8]) -> Result<Certificate, String> {
        let certificates = certificates(chain)?;
        if certificates.is_empty() {
            return Err("no certificate in PEM".into());
        }
        let private = PrivateKeyDer::from_pem_slice(key).map_err(|_| "no private key in PEM".to_owned())?;
        CertifiedKey::from_der(certificates, private, &default_provider())
            .map_err(|error| format!("certificate and key: {error}"))?;
        Ok(Certificate { chain: chain.to_vec(), key: key.to_vec() })
    }

    /// Returns the chain in PEM.
    pub fn chain(&self) -> &[u8] {
        &self.chain
    }

    /// Returns the private key in PEM: write it for its owner only.
    pub fn key(&self) -> &[u8] {
        &self.key
    }
}

/// Certificates of authorities, in PEM.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Authority {
    bundle: Vec<u8>,
}

impl Authority {
    /// Checks a bundle.
    ///
    /// # Errors
    /// If it has no certificate, or a certificate that is none.
    pub fn from_pem(bundle: &[u8]) -> Result<Authority, String> {
        let found = certificates(bundle)?;
        if found.is_empty() {
            return Err("no certificate in PEM".into());
        }
        let mut roots = rustls::RootCertStore::empty();
        for certificate in found {
            roots.add(certificate).map_err(|error| format!("no certificate of an authority: {error}"))?;
        }
        Ok(Authority { bundle: bundle.to_vec() })
    }

    /// Joins bundles.
    pub fn join(parts: &[Authority]) -> Authority {
        let mut bundle = Vec::new();
        for part in parts {
            bundle.extend_from_slice(&part.bundle);
            if bundle.last() != Some(&b'\n') {
                bundle.push(b'\n');
            }
        }
        Authority { bundle }
    }

    /// Returns the bundle in PEM.
    pub fn bundle(&self) -> &[u8] {
        &self.bundle
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, String> {
    CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>().map_err(|error| format!("invalid PEM: {error}"))
}
