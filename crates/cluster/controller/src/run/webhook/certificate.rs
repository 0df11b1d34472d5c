//! Certificate and key of the webhook, read again when their files change.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustls::ServerConfig;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::super::logs;

/// Files of a certificate chain and its key, in PEM.
pub struct CertificateFiles {
    certificate: PathBuf,
    key: PathBuf,
    state: Mutex<CertificateState>,
}

#[derive(Default)]
struct CertificateState {
    /// Identities of both files when they were last read.
    read: Option<[FileIdentity; 2]>,
    /// The last pair that could be read.
    config: Option<Arc<ServerConfig>>,
}

/// Inode, length, and time of the last change (s, ns). A mounted Secret changes by another inode.
type FileIdentity = (u64, u64, i64, i64);

impl CertificateFiles {
    pub fn new(certificate: PathBuf, key: PathBuf) -> CertificateFiles {
        CertificateFiles { certificate, key, state: Mutex::default() }
    }

    /// Returns the settings for the next connection. Files that have changed are read again; those that cannot be read are
    /// reported once, and the last good ones stay in use. `None` as long as there were none.
    pub fn current(&self) -> Option<Arc<ServerConfig>> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = identity(&self.certificate).and_then(|first| Ok([first, identity(&self.key)?]));
        let now = now.unwrap_or_default();
        if state.read != Some(now) {
            state.read = Some(now);
            match self.load() {
                Ok(config) => {
                    logs::info(
                        "the certificate of the webhook is read",
                        &[("file", &self.certificate.to_string_lossy())],
                    );
                    state.config = Some(config);
                }
                Err(error) => logs::error("the certificate of the webhook cannot be read", &[("error", &error)]),
            }
        }
        state.config.clone()
    }

    fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let error = |path: &Path, error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        let chain: Result<Vec<CertificateDer<'static>>, _> =
            CertificateDer::pem_file_iter(&self.certificate).and_then(Iterator::collect);
        let chain = chain.map_err(|cause| error(&self.certificate, &cause))?;
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|cause| error(&self.key, &cause))?;
        let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key);
        let mut config = config.map_err(|cause| error(&self.certificate, &cause))?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

fn identity(path: &Path) -> std::io::Result<FileIdentity> {
    let metadata = fs::metadata(path)?;
    Ok((metadata.ino(), metadata.len(), metadata.mtime(), metadata.mtime_nsec()))
}
