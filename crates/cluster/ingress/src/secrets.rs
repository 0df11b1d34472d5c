//! Certificates, authorities and passwords of Secrets.

use cluster_model::{Authority, Certificate, FileName, Model};
use cluster_objects::types::{ConfigMap, Secret};
use cluster_objects::{ObjectName, ObjectSet};

/// Files of Secrets that paths use.
pub(crate) struct Secrets<'a> {
    set: &'a ObjectSet,
}

/// Files of a Secret with certificates.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Credentials {
    pub certificate: Option<FileName>,
    pub authority: Option<FileName>,
}

impl<'a> Secrets<'a> {
    pub fn new(set: &'a ObjectSet) -> Secrets<'a> {
        Secrets { set }
    }

    fn get(&self, name: &ObjectName) -> Result<&'a Secret, String> {
        let secret = self.set.get::<Secret>(&name.namespace, &name.name);
        secret.map(std::convert::AsRef::as_ref).ok_or_else(|| format!("Secret {name} does not exist"))
    }

    /// Adds the certificate of a Secret, and returns its file.
    pub fn certificate(&self, name: &ObjectName, model: &mut Model) -> Result<FileName, String> {
        let file = FileName::new(&[&name.namespace, &name.name]);
        if model.certificates.contains_key(&file) {
            return Ok(file);
        }
        let secret = self.get(name)?;
        let part = |key: &str| data(secret, key).ok_or_else(|| format!("Secret {name} has no {key}"));
        let certificate = Certificate::from_pem(&part("tls.crt")?, &part("tls.key")?)
            .map_err(|error| format!("Secret {name}: {error}"))?;
        model.certificates.insert(file.clone(), certificate);
        Ok(file)
    }

    /// Adds the certificate and the authorities of a Secret; one of them must be there.
    pub fn credentials(&self, name: &ObjectName, model: &mut Model) -> Result<Credentials, String> {
        let secret = self.get(name)?;
        let certificate = match data(secret, "tls.crt") {
            Some(_) => Some(self.certificate(name, model)?),
            None => None,
        };
        let authority = match data(secret, "ca.crt") {
            Some(bundle) => {
                let file = FileName::new(&[&name.namespace, &name.name]);
                let authority =
                    Authority::from_pem(&bundle).map_err(|error| format!("Secret {name}: ca.crt: {error}"))?;
                model.authorities.insert(file.clone(), authority);
                Some(file)
            }
            None => None,
        };
        if certificate.is_none() && authority.is_none() {
            return Err(format!("Secret {name} has neither tls.crt nor ca.crt"));
        }
        Ok(Credentials { certificate, authority })
    }

    /// Adds the users of a Secret, and returns their file.
    pub fn users(&self, name: &ObjectName, is_map: bool, model: &mut Model) -> Result<FileName, String> {
        let secret = self.get(name)?;
        let kind = if is_map { "map" } else { "file" };
        let users = if is_map {
            let mut lines = Vec::new();
            for (user, hash) in secret.data.iter().flatten() {
                lines.extend_from_slice(user.as_bytes());
                lines.push(b':');
                lines.extend_from_slice(&hash.0);
                lines.push(b'\n');
            }
            lines
        } else {
            data(secret, "auth").ok_or_else(|| format!("Secret {name} has no auth"))?
        };
        let file = FileName::new(&[&name.namespace, &name.name, kind]);
        model.passwords.insert(file.clone(), users);
        Ok(file)
    }

    /// Returns the entries of a ConfigMap whose names may be header fields.
    pub fn config_map(&self, name: &ObjectName) -> Result<Vec<(String, String)>, String> {
        let map = self.set.get::<ConfigMap>(&name.namespace, &name.name);
        let map = map.ok_or_else(|| format!("ConfigMap {name} does not exist"))?;
        Ok(map.data.iter().flatten().map(|(key, value)| (key.clone(), value.clone())).collect())
    }
}

fn data(secret: &Secret, key: &str) -> Option<Vec<u8>> {
    let data = secret.data.as_ref().and_then(|data| data.get(key)).map(|bytes| bytes.0.clone());
    data.or_else(|| secret.string_data.as_ref().and_then(|data| data.get(key)).map(|text| text.clone().into_bytes()))
}

/// Returns the object that an annotation names: `NAME`, or `NAMESPACE/NAME` of its own namespace.
///
/// # Errors
/// If it is of another namespace.
pub(crate) fn own_name(namespace: &str, value: &str) -> Result<ObjectName, String> {
    match value.split_once('/') {
        None => Ok(ObjectName::new(namespace, value)),
        Some((other, name)) if other == namespace => Ok(ObjectName::new(namespace, name)),
        Some(_) => Err(format!("\"{}\" is of another namespace", value.escape_debug())),
    }
}

/// Tells whether a certificate is one of a host: by its alternative names.
pub(crate) fn covers(certificate: &Certificate, host: &str) -> bool {
    use rustls::pki_types::pem::PemObject as _;
    let Some(Ok(leaf)) = rustls::pki_types::CertificateDer::pem_slice_iter(certificate.chain()).next() else {
        return false;
    };
    let Ok(parsed) = rustls::server::ParsedCertificate::try_from(&leaf) else { return false };
    let name = host.strip_prefix("*.").map_or(host.to_owned(), |rest| format!("wildcard.{rest}"));
    let Ok(name) = rustls::pki_types::ServerName::try_from(name) else { return false };
    rustls::client::verify_server_name(&parsed, &name).is_ok()
}
