//! Trusted certificates of the system, for requests that the server makes for itself.

use conf_schema::{Cx, Problem};
use std::path::{Path, PathBuf};
use tls::x509::Certificate;

/// Bundles in the places of the common distributions.
const BUNDLES: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Loads the trusted certificates of a file, or of the system's bundle; `user` names their user in messages.
///
/// # Errors
/// No bundle is installed; the file has no readable certificate.
pub fn trusted_certificates(cx: &mut Cx, file: Option<PathBuf>, user: &str) -> Result<Vec<Certificate>, Problem> {
    let bundle = || BUNDLES.iter().map(PathBuf::from).find(|path| path.is_file());
    let file = file.or_else(bundle).ok_or_else(|| {
        Problem::says(format!("no bundle of trusted certificates is installed for {user}"))
            .hint("install the package \"ca-certificates\", or write \"ssl_trusted_certificate\"")
    })?;
    load(cx, &file).map_err(Problem::says)
}

fn load(cx: &mut Cx, file: &Path) -> Result<Vec<Certificate>, String> {
    let failed = |why: String| format!("cannot load certificate \"{}\": {why}", file.display());
    let text = cx.store.read_pem(file, None).map_err(|e| failed(e.to_string()))?;
    // A bundle may have certificates of forms that are not read; one is enough to begin with.
    let all = tls::certs::parse_certificates(&text).map_err(failed)?;
    if all.is_empty() { Err(failed("it has no certificate".into())) } else { Ok(all) }
}
