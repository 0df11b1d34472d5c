//! Certificates: requests for them, those of challenges, and placeholders.

use crate::identifier::Identifier;
use crate::key::Algorithm;
use rcgen::string::Ia5String;
use rcgen::{CertificateParams, CustomExtension, DistinguishedName, DnType, KeyPair, SanType};
use std::net::IpAddr;
use tls::x509::Certificate as Leaf;

/// An issued certificate.
#[derive(Clone, Debug)]
pub struct IssuedChain {
    /// The chain as PEM, leaf first.
    pub chain: String,
    /// The key as PEM.
    pub key: String,
}

/// Seconds by which a certificate may begin in the future: clocks differ.
const AHEAD_MAX: i64 = 86_400;

impl IssuedChain {
    /// Tells whether certificate and key belong together.
    pub fn is_pair(&self) -> bool {
        tls::certs::KeyPair::load(self.chain.as_bytes(), self.key.as_bytes(), &[]).is_ok()
    }

    /// Checks what an authority has sent, and returns the leaf: it belongs to the key, has all names, and is valid. `now`: seconds
    /// since 1970.
    ///
    /// # Errors
    /// A description of the fault.
    pub fn check(&self, identifiers: &[Identifier], now: i64) -> Result<Leaf, String> {
        let wrong = |why: String| format!("the server sent an unusable certificate: {why}");
        let pair = tls::certs::KeyPair::load(self.chain.as_bytes(), self.key.as_bytes(), &[]);
        let pair = pair.map_err(|why| wrong(why.to_string()))?;
        let leaf = pair.leaf().ok_or_else(|| wrong("it is empty".into()))?;
        let missing = identifiers.iter().find(|identifier| !is_for(leaf, identifier));
        if let Some(missing) = missing {
            return Err(wrong(format!("it is not for \"{missing}\"")));
        }
        if leaf.not_after <= now {
            return Err(wrong(format!("it has ended at {}", tls::x509::time::print_time(leaf.not_after))));
        }
        if leaf.not_before > now.saturating_add(AHEAD_MAX) {
            return Err(wrong(format!("it begins at {}", tls::x509::time::print_time(leaf.not_before))));
        }
        Ok(leaf.clone())
    }
}

/// Tells whether a certificate names an identifier.
pub fn is_for(leaf: &Leaf, identifier: &Identifier) -> bool {
    match identifier {
        Identifier::Dns(name) => leaf.extensions.dns_names.iter().any(|one| one.eq_ignore_ascii_case(name.as_bytes())),
        Identifier::Ip(IpAddr::V4(ip)) => leaf.extensions.addresses.iter().any(|one| *one == ip.octets()),
        Identifier::Ip(IpAddr::V6(ip)) => leaf.extensions.addresses.iter().any(|one| *one == ip.octets()),
    }
}

pub(crate) fn alternative(identifier: &Identifier) -> Result<SanType, String> {
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
pub fn challenge_certificate(identifier: &Identifier, digest: &[u8]) -> Result<IssuedChain, String> {
    let mut parameters = parameters(std::slice::from_ref(identifier))?;
    parameters.distinguished_name.push(DnType::CommonName, "ACME challenge");
    parameters.custom_extensions.push(CustomExtension::new_acme_identifier(digest));
    signed_by_itself(parameters)
}

/// Makes a certificate that signs itself, for the time before the first one is issued.
///
/// # Errors
/// The library's message.
pub fn placeholder_certificate(identifiers: &[Identifier]) -> Result<IssuedChain, String> {
    let mut parameters = parameters(identifiers)?;
    parameters.distinguished_name.push(DnType::CommonName, "certificate is being ordered");
    signed_by_itself(parameters)
}

fn signed_by_itself(parameters: CertificateParams) -> Result<IssuedChain, String> {
    let key = Algorithm::default().generate()?;
    let certificate = parameters.self_signed(&key).map_err(|e| e.to_string())?;
    Ok(IssuedChain { chain: certificate.pem(), key: key.serialize_pem() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn challenges_have_their_extension() {
        let identifier = Identifier::Dns("a.example".into());
        let made = challenge_certificate(&identifier, &[7; 32]).expect("made");
        let leaf = tls::certs::parse_certificates(made.chain.as_bytes()).expect("a certificate").remove(0);
        assert_eq!(leaf.extensions.dns_names, [b"a.example".to_vec()]);
        // id-pe-acmeIdentifier, critical, with an OCTET STRING of the digest in its value.
        let id = [0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x1f, 0x01, 0x01, 0xff, 0x04, 0x22, 0x04, 0x20, 7, 7];
        assert!(leaf.der().windows(id.len()).any(|window| window == id));
        assert!(tls::certs::KeyPair::load(made.chain.as_bytes(), made.key.as_bytes(), &[]).is_ok());
    }

    #[test]
    fn lies_of_authorities_are_found() {
        let names = |all: &[&str]| all.iter().filter_map(|name| Identifier::parse(name)).collect::<Vec<_>>();
        let made = placeholder_certificate(&names(&["a.example", "*.b.example", "127.0.0.1", "::1"])).expect("made");
        let leaf = made.check(&names(&["A.example", "*.b.example", "127.0.0.1", "::1"]), 1_700_000_000).expect("fine");
        let refused = |made: &IssuedChain, wanted: &[&str], now| made.check(&names(wanted), now).expect_err("refused");
        assert!(refused(&made, &["a.example", "c.example"], 1_700_000_000).ends_with("it is not for \"c.example\""));
        assert!(refused(&made, &["c.b.example"], 1_700_000_000).contains("not for"), "a wildcard is another name");
        assert!(refused(&made, &["127.0.0.2"], 1_700_000_000).contains("not for"));
        assert!(refused(&made, &["a.example"], leaf.not_after).contains("it has ended at"));
        assert!(refused(&made, &["a.example"], leaf.not_before - 2 * AHEAD_MAX).contains("it begins at"));
        let other = placeholder_certificate(&names(&["a.example"])).expect("made");
        let mixed = IssuedChain { chain: made.chain.clone(), key: other.key };
        assert!(refused(&mixed, &["a.example"], 1_700_000_000).contains("key values mismatch"));
        let broken = IssuedChain { chain: "x".into(), ..made };
        assert!(refused(&broken, &[], 0).contains("unusable"));
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
        assert!(placeholder_certificate(&identifiers).is_ok());
    }
}
