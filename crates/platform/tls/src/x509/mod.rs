//! X.509 certificates, versions 1 to 3 (RFC 5280), as OpenSSL reads them; parts are ranges of their bytes.

pub mod name;
pub mod time;

use crate::der::{self, BIT_STRING, BOOLEAN, INTEGER, OCTET_STRING, OID, Reader, SEQUENCE};
use rustls::pki_types::CertificateDer;
use std::net::IpAddr;
use std::ops::Range;

/// Maximum number of extensions per certificate.
const EXTENSIONS_MAX: usize = 64;
/// Names per certificate that are examined.
const NAMES_MAX: usize = 4096;

/// Parsed certificate; shares its bytes with rustls.
#[derive(Clone, Debug)]
pub struct Certificate {
    der: CertificateDer<'static>,
    /// Version, from 1.
    pub version: u8,
    tbs: Range<usize>,
    serial: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    issuer: Range<usize>,
    subject: Range<usize>,
    spki: Range<usize>,
    /// Begin of the validity, in seconds since 1970.
    pub not_before: i64,
    /// End of the validity, in seconds since 1970.
    pub not_after: i64,
    /// Extensions that are examined.
    pub extensions: Extensions,
}

/// The extensions of a certificate, as far as they are examined.
#[derive(Clone, Debug, Default)]
pub struct Extensions {
    /// `basicConstraints` with `CA:TRUE`; `None` if absent.
    pub basic_constraints: Option<bool>,
    /// `pathLenConstraint`: authorities that may follow below.
    pub path_length: Option<u64>,
    /// Bits of `keyUsage`, digitalSignature in bit 15.
    pub key_usage: Option<u16>,
    /// OIDs of `extKeyUsage`.
    pub extended_key_usage: Option<Vec<Vec<u8>>>,
    /// DNS names among the alternative names.
    pub dns_names: Vec<Vec<u8>>,
    /// 4 or 16 octets each.
    pub addresses: Vec<Vec<u8>>,
    /// Uniform resource identifiers among the alternative names, such as those of SPIFFE.
    pub uris: Vec<Vec<u8>>,
    /// Subject key identifier.
    pub subject_key_id: Option<Vec<u8>>,
    /// Authority key identifier.
    pub authority_key_id: Option<Vec<u8>>,
    /// `OCSP - URI` of authority information access.
    pub ocsp_uris: Vec<String>,
    /// `CA Issuers - URI` of authority information access.
    pub issuer_uris: Vec<String>,
    /// `TLS feature` status_request: must be stapled (RFC 7633).
    pub must_staple: bool,
    /// There is a critical extension that is not examined: verification fails.
    pub unknown_critical: bool,
    /// Encoded name constraints.
    pub name_constraints: Option<Vec<u8>>,
}

/// `keyUsage`: the key may sign certificates.
pub const KEY_CERT_SIGN: u16 = 1 << 10;
/// `keyUsage`: the key may sign revocation lists.
pub const CRL_SIGN: u16 = 1 << 9;
/// `keyUsage`: the key may sign data.
pub const DIGITAL_SIGNATURE: u16 = 1 << 15;
/// `keyUsage`: the key may encrypt keys.
pub const KEY_ENCIPHERMENT: u16 = 1 << 13;
/// `keyUsage`: the key may agree on keys.
pub const KEY_AGREEMENT: u16 = 1 << 11;

/// id-kp-serverAuth.
pub const SERVER_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x01];
/// id-kp-clientAuth.
pub const CLIENT_AUTH: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x02];
/// anyExtendedKeyUsage.
pub const ANY_USAGE: &[u8] = &[0x55, 0x1d, 0x25, 0x00];
/// id-kp-OCSPSigning.
pub const OCSP_SIGNING: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x03, 0x09];

/// Range of a part within the whole, which must contain it.
fn range(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
    start..start + part.len()
}

impl Certificate {
    /// Fails with the fault.
    pub fn parse(der: CertificateDer<'static>) -> Result<Certificate, &'static str> {
        read(der).ok_or("not a certificate")?
    }

    /// Returns the encoded certificate.
    pub fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }
    fn part(&self, range: &Range<usize>) -> &[u8] {
        self.der.get(range.clone()).unwrap_or_default()
    }
    /// Returns the signed part.
    pub fn tbs(&self) -> &[u8] {
        self.part(&self.tbs)
    }
    /// Returns the octets of the serial number.
    pub fn serial(&self) -> &[u8] {
        self.part(&self.serial)
    }
    /// Returns the encoded signature algorithm.
    pub fn signature_algorithm(&self) -> &[u8] {
        self.part(&self.signature_algorithm)
    }
    /// Returns the octets of the signature.
    pub fn signature(&self) -> &[u8] {
        self.part(&self.signature)
    }
    /// Returns the issuer's encoded name.
    pub fn issuer(&self) -> &[u8] {
        self.part(&self.issuer)
    }
    /// Returns the subject's encoded name.
    pub fn subject(&self) -> &[u8] {
        self.part(&self.subject)
    }
    /// Returns the encoded public key with its algorithm.
    pub fn spki(&self) -> &[u8] {
        self.part(&self.spki)
    }
    /// Returns the object identifier of the key's algorithm.
    pub fn key_algorithm(&self) -> &[u8] {
        let mut reader = Reader::new(self.spki());
        let found = reader.enter(SEQUENCE).and_then(|mut r| r.enter(SEQUENCE)).and_then(|mut r| r.body(OID));
        found.unwrap_or_default()
    }
    /// Object identifier of an ECDSA key's curve.
    pub fn key_curve(&self) -> Option<&[u8]> {
        let mut algorithm = Reader::new(self.spki()).enter(SEQUENCE)?.enter(SEQUENCE)?;
        const ECDSA: [u8; 7] = [0x2a, 0x86, 0x48, 0xce, 0x3d, 2, 1];
        (algorithm.body(OID)? == ECDSA).then(|| algorithm.body(OID)).flatten()
    }
    /// Tells whether issuer and subject have one name.
    pub fn self_issued(&self) -> bool {
        name::same_name(self.issuer(), self.subject())
    }
    /// Returns the last common name of the subject.
    pub fn common_name(&self) -> Option<String> {
        name::common_names(self.subject()).pop()
    }
    /// Returns the names and addresses of the certificate; without any, its common name.
    pub fn names(&self) -> Vec<String> {
        let address = |bytes: &Vec<u8>| match bytes.len() {
            4 => <[u8; 4]>::try_from(bytes.as_slice()).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            16 => <[u8; 16]>::try_from(bytes.as_slice()).ok().map(|bytes| IpAddr::from(bytes).to_string()),
            _ => None,
        };
        let dns = self.extensions.dns_names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
        let all: Vec<String> = dns.chain(self.extensions.addresses.iter().filter_map(address)).collect();
        if all.is_empty() { self.common_name().into_iter().collect() } else { all }
    }
    /// Serial number in hexadecimal, as `openssl x509 -serial`.
    pub fn serial_hex(&self) -> String {
        let bytes = self.serial();
        let bytes = if bytes.len() > 1 && bytes.first() == Some(&0) { bytes.get(1..).unwrap_or(bytes) } else { bytes };
        if bytes.is_empty() { "00".into() } else { crate::hex_upper(bytes) }
    }
    /// SHA-1 in lower-case hexadecimal (`$ssl_client_fingerprint`).
    pub fn fingerprint(&self) -> String {
        let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA1_FOR_LEGACY_USE_ONLY, &self.der);
        crate::hex_lower(digest.as_ref())
    }
}

fn read(der: CertificateDer<'static>) -> Option<Result<Certificate, &'static str>> {
    let whole: &[u8] = &der;
    let mut outer = Reader::new(whole);
    let mut certificate = outer.enter(SEQUENCE)?;
    if !outer.is_empty() {
        return Some(Err("bytes after the certificate"));
    }
    let tbs = certificate.take(SEQUENCE)?;
    let algorithm = certificate.body(SEQUENCE)?;
    let signature = der::bits(certificate.body(BIT_STRING)?)?;

    let mut r = Reader::new(tbs.body);
    let version = match r.enter(der::context(0)) {
        None => 1,
        Some(mut v) => match der::small(v.body(INTEGER)?)? {
            n @ 0..=2 => n as u8 + 1,
            _ => return Some(Err("unknown version of a certificate")),
        },
    };
    let serial = r.body(INTEGER)?;
    let inner_algorithm = r.body(SEQUENCE)?;
    if inner_algorithm != algorithm {
        return Some(Err("the two signature algorithms of a certificate differ"));
    }
    let issuer = r.take(SEQUENCE)?;
    let mut validity = r.enter(SEQUENCE)?;
    let not_before = time::parse(validity.next()?)?;
    let not_after = time::parse(validity.next()?)?;
    let subject = r.take(SEQUENCE)?;
    let spki = r.take(SEQUENCE)?;
    // issuerUniqueID and subjectUniqueID of version 2.
    while matches!(r.peek(), Some(0x81 | 0x82 | 0xa1 | 0xa2)) {
        r.next()?;
    }
    let mut extensions = Extensions::default();
    if let Some(mut wrapped) = r.enter(der::context(3)) {
        let mut list = wrapped.enter(SEQUENCE)?;
        let mut count = 0;
        while !list.is_empty() {
            count += 1;
            if count > EXTENSIONS_MAX {
                return Some(Err("too many extensions in a certificate"));
            }
            extension(list.enter(SEQUENCE)?, &mut extensions)?;
        }
    }
    let parsed = Certificate {
        version,
        tbs: range(whole, tbs.whole),
        serial: range(whole, serial),
        signature_algorithm: range(whole, algorithm),
        signature: range(whole, signature),
        issuer: range(whole, issuer.whole),
        subject: range(whole, subject.whole),
        spki: range(whole, spki.whole),
        not_before,
        not_after,
        extensions,
        der: CertificateDer::from(Vec::new()),
    };
    Some(Ok(Certificate { der, ..parsed }))
}

/// Last arc of extensions below 2.5.29.
const CE: &[u8] = &[0x55, 0x1d];
const AUTHORITY_INFO: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x01];
const TLS_FEATURE: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x01, 0x18];

fn extension(mut r: Reader<'_>, out: &mut Extensions) -> Option<()> {
    let oid = r.body(OID)?;
    let critical = r.body(BOOLEAN).is_some_and(|b| b != [0]);
    let value = r.body(OCTET_STRING)?;
    let mut v = Reader::new(value);
    match (oid.strip_prefix(CE), oid) {
        (Some([19]), _) => {
            let mut inner = v.enter(SEQUENCE)?;
            out.basic_constraints = Some(inner.body(BOOLEAN).is_some_and(|b| b != [0]));
            if let Some(length) = inner.body(INTEGER) {
                out.path_length = Some(der::small(length)?);
            }
        }
        (Some([15]), _) => {
            let body = v.body(BIT_STRING)?;
            let high = body.get(1).copied().unwrap_or(0);
            let low = body.get(2).copied().unwrap_or(0);
            out.key_usage = Some(u16::from_be_bytes([high, low]));
        }
        (Some([37]), _) => {
            let mut inner = v.enter(SEQUENCE)?;
            let mut all = Vec::new();
            while let Some(usage) = inner.body(OID) {
                all.push(usage.to_vec());
            }
            out.extended_key_usage = Some(all);
        }
        (Some([17]), _) => {
            let mut inner = v.enter(SEQUENCE)?;
            while let Some(name) = inner.next() {
                if out.dns_names.len() + out.addresses.len() + out.uris.len() >= NAMES_MAX {
                    return None;
                }
                match name.tag {
                    0x82 => out.dns_names.push(name.body.to_vec()),
                    0x87 => out.addresses.push(name.body.to_vec()),
                    0x86 => out.uris.push(name.body.to_vec()),
                    _ => {}
                }
            }
        }
        (Some([14]), _) => out.subject_key_id = Some(v.body(OCTET_STRING)?.to_vec()),
        (Some([35]), _) => {
            let mut inner = v.enter(SEQUENCE)?;
            out.authority_key_id = inner.body(0x80).map(<[u8]>::to_vec);
        }
        (Some([30]), _) => out.name_constraints = Some(value.to_vec()),
        // issuerAltName, subjectDirectoryAttributes, CRL distribution points, certificatePolicies, freshestCRL: known
        // and irrelevant, as in OpenSSL's `supported_nids`.
        (Some([18 | 9 | 31 | 32 | 46]), _) => {}
        (_, AUTHORITY_INFO) => {
            let mut inner = v.enter(SEQUENCE)?;
            while let Some(mut one) = inner.enter(SEQUENCE) {
                let (Some(method), Some(place)) = (one.body(OID), one.next()) else { continue };
                let (0x86, Ok(uri)) = (place.tag, std::str::from_utf8(place.body)) else { continue };
                match method.last() {
                    Some(1) => out.ocsp_uris.push(uri.to_string()),
                    Some(2) => out.issuer_uris.push(uri.to_string()),
                    _ => {}
                }
            }
        }
        (_, TLS_FEATURE) => {
            let mut inner = v.enter(SEQUENCE)?;
            while let Some(feature) = inner.body(INTEGER) {
                out.must_staple |= der::small(feature) == Some(5);
            }
        }
        _ => out.unknown_critical |= critical,
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing;

    #[test]
    fn a_certificate_of_version_1_is_read() {
        let Some(pair) = testing::openssl_v1("localhost") else { return };
        let certificate = Certificate::parse(pair.certificate_der()).expect("read");
        assert_eq!(certificate.version, 1);
        assert!(certificate.self_issued());
        assert_eq!(certificate.common_name().as_deref(), Some("localhost"));
        assert!(certificate.not_after > certificate.not_before);
    }

    #[test]
    fn names_and_constraints_are_read() {
        let authority = testing::Authority::new("root");
        let issued = authority.server(&["a.example", "*.b.example"]);
        let leaf = Certificate::parse(issued.certificate_der()).expect("leaf");
        assert_eq!(leaf.version, 3);
        assert_eq!(leaf.extensions.dns_names, [b"a.example".to_vec(), b"*.b.example".to_vec()]);
        let root = Certificate::parse(authority.der()).expect("root");
        assert_eq!(root.extensions.basic_constraints, Some(true));
        assert!(root.extensions.key_usage.is_some_and(|bits| bits & KEY_CERT_SIGN != 0));
        assert!(name::same_name(leaf.issuer(), root.subject()));
    }

    #[test]
    fn a_cut_certificate_is_refused() {
        let authority = testing::Authority::new("root");
        let der = authority.der();
        for cut in 0..der.len() {
            assert!(Certificate::parse(CertificateDer::from(der[..cut].to_vec())).is_err(), "{cut}");
        }
    }
}
