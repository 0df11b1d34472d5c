//! Certificates: requests for them, those of challenges, and placeholders.

use crate::identifier::Identifier;
use crate::key::Algorithm;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair, SanType};

/// An issued certificate.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The chain as PEM, leaf first.
    pub chain: String,
    /// The key as PEM.
    pub key: String,
}

fn alternative(identifier: &Identifier) -> Result<SanType, String> {
    match identifier {
        Identifier::Dns(name) => {
            Ia5String::try_from(name.as_str()).map(SanType::DnsName).map_err(|_| format!("invalid name \"{name}\""))
        }
        Identifier::Ip(ip) => Ok(SanType::IpAddress(*ip)),
    }
}

fn parameters(identifiers: &[Identifier]) -> Result<CertificateParams, String> {
    let mut parameters = CertificateParams::default();
    parameters.distinguished_name = DistinguishedName::new();
    parameters.subject_alt_names = identifiers.iter().map(alternative).collect::<Result<_, _>>()?;
    Ok(parameters)
}

/// Writes a certificate request in DER. `common_name`: the subject is the first identifier.
pub(crate) fn request(identifiers: &[Identifier], key: &KeyPair, common_name: bool) -> Result<Vec<u8>, String> {
    let mut parameters = parameters(identifiers)?;
    if let Some(first) = identifiers.first().filter(|_| common_name) {
        parameters.distinguished_name.push(DnType::CommonName, first.to_string());
    }
    let request = parameters.serialize_request(key).map_err(|e| e.to_string())?;
    Ok(request.der().to_vec())
}

/// Makes the certificate that answers a tls-alpn-01 challenge (RFC 8737, section 3), and its key, as PEM. `digest`: SHA-256
/// of the key authorization.
///
/// # Errors
/// The library's message.
pub fn challenge_certificate(identifier: &Identifier, digest: &[u8]) -> Result<Issued, String> {
    let mut parameters = parameters(std::slice::from_ref(identifier))?;
    parameters.distinguished_name.push(DnType::CommonName, "ACME challenge");
    parameters.custom_extensions.push(CustomExtension::new_acme_identifier(digest));
    signed_by_itself(parameters)
}

/// Makes a certificate that signs itself, for the time before the first one is issued.
///
/// # Errors
/// The library's message.
pub fn placeholder(identifiers: &[Identifier]) -> Result<Issued, String> {
    let mut parameters = parameters(identifiers)?;
    parameters.distinguished_name.push(DnType::CommonName, "certificate is being ordered");
    signed_by_itself(parameters)
}

fn signed_by_itself(parameters: CertificateParams) -> Result<Issued, String> {
    let key = Algorithm::default().generate()?;
    let certificate = parameters.self_signed(&key).map_err(|e| e.to_string())?;
    Ok(Issued { chain: certificate.pem(), key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_have_their_extension() {
        let identifier = Identifier::Dns("a.example".into());
        let made = challenge_certificate(&identifier, &[7; 32]).expect("made");
        let leaf = tls::certs::certificates(made.chain.as_bytes()).expect("a certificate").remove(0);
        assert_eq!(leaf.extensions.dns_names, [b"a.example".to_vec()]);
        // id-pe-acmeIdentifier, critical, with an OCTET STRING of the digest in its value.
        let id = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f, 0x01, 0x01, 0xff, 0x04, 0x22, 0x04, 0x20, 7, 7];
        assert!(leaf.der().windows(id.len()).any(|window| window == id));
        assert!(tls::certs::KeyPair::load(made.chain.as_bytes(), made.key.as_bytes(), &[]).is_ok());
    }

    #[test]
    fn requests_name_what_they_ask_for() {
        let key = Algorithm::default().generate().expect("a key");
        let identifiers = [Identifier::Dns("*.a.example".into()), Identifier::Ip([127, 0, 0, 1].into())];
        let has = |der: &[u8], text: &[u8]| der.windows(text.len()).any(|window| window == text);
        let request = |common| super::request(&identifiers, &key, common).expect("written");
        assert!(has(&request(false), b"*.a.example") && has(&request(false), &[0x87, 4, 127, 0, 0, 1]));
        // commonName
        assert!(!has(&request(false), &[0x55, 4, 3]) && has(&request(true), &[0x55, 4, 3]));
        assert!(placeholder(&identifiers).is_ok());
    }
}
