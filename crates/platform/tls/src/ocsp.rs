//! OCSP (RFC 6960): requests, and checks of responses.

use crate::der::{self, BIT_STRING, ENUMERATED, INTEGER, OCTET_STRING, OID, Reader, SEQUENCE};
use crate::verify::verify_signature;
use crate::x509::{self, Certificate, name, time};
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use rustls::pki_types::CertificateDer;

/// id-sha1, and id-pkix-ocsp-basic.
const SHA1: &[u8] = &[0x2b, 0x0e, 0x03, 0x02, 0x1a];
const BASIC: &[u8] = &[0x2b, 0x06, 0x01, 0x05, 0x05, 0x07, 0x30, 0x01, 0x01];
/// In seconds.
const SKEW: i64 = 300;
/// In octets.
pub const RESPONSE_MAX: usize = 64 * 1024;
/// Maximum number of certificates and single responses examined.
const PARTS_MAX: usize = 64;

/// Status of a certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// Not revoked.
    Good,
    /// Revoked.
    Revoked,
    /// The responder does not know the certificate.
    Unknown,
}

/// Facts of a valid response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OcspResponse {
    /// Status of the certificate.
    pub status: Status,
    /// Seconds since 1970; `None`: newer information may be available at any time.
    pub next_update: Option<i64>,
}

/// A certificate in OCSP's terms: digests of its issuer, and its serial number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CertificateId {
    name_hash: Vec<u8>,
    key_hash: Vec<u8>,
    serial: Vec<u8>,
}

fn key_hash(certificate: &Certificate) -> Option<Vec<u8>> {
    let mut spki = Reader::new(certificate.spki()).enter(SEQUENCE)?;
    spki.next()?;
    let key = der::bits(spki.body(BIT_STRING)?)?;
    Some(digest(&SHA1_FOR_LEGACY_USE_ONLY, key).as_ref().to_vec())
}

impl CertificateId {
    /// Identifies a certificate of an issuer; `None` if the issuer's key cannot be read.
    pub fn of(certificate: &Certificate, issuer: &Certificate) -> Option<CertificateId> {
        Some(CertificateId {
            name_hash: digest(&SHA1_FOR_LEGACY_USE_ONLY, issuer.subject()).as_ref().to_vec(),
            key_hash: key_hash(issuer)?,
            serial: certificate.serial().to_vec(),
        })
    }

    fn der(&self) -> Vec<u8> {
        let algorithm = der::encode(SEQUENCE, &[der::encode(OID, SHA1), vec![0x05, 0x00]].concat());
        let parts = [
            algorithm,
            der::encode(OCTET_STRING, &self.name_hash),
            der::encode(OCTET_STRING, &self.key_hash),
            der::encode(INTEGER, &self.serial),
        ];
        der::encode(SEQUENCE, &parts.concat())
    }

    /// Request in DER for one certificate, without a nonce, so that responders may cache.
    pub fn request(&self) -> Vec<u8> {
        let one = der::encode(SEQUENCE, &self.der());
        let list = der::encode(SEQUENCE, &one);
        der::encode(SEQUENCE, &der::encode(SEQUENCE, &list))
    }

    /// Request as the last part of a URI (RFC 6960, appendix A.1).
    pub fn uri_part(&self) -> String {
        let mut out = String::new();
        for c in STANDARD.encode(self.request()).chars() {
            match c {
                '+' => out.push_str("%2B"),
                '/' => out.push_str("%2F"),
                '=' => out.push_str("%3D"),
                c => out.push(c),
            }
        }
        out
    }

    /// Compares with the id of a response, whatever its digest; requests use SHA-1.
    fn is(&self, id: &[u8]) -> bool {
        let mut r = Reader::new(id);
        let Some(mut algorithm) = r.enter(SEQUENCE) else { return false };
        algorithm.body(OID) == Some(SHA1)
            && r.body(OCTET_STRING) == Some(&self.name_hash[..])
            && r.body(OCTET_STRING) == Some(&self.key_hash[..])
            && r.body(INTEGER) == Some(&self.serial[..])
    }
}

/// Permitted signers of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Signer {
    /// The issuer, or its delegate (RFC 6960, 4.2.2.2).
    Authorised,
    /// Any valid signature (`ssl_stapling_verify off`: the client verifies).
    Any,
}

/// Checks a response about a certificate. `chain`: possible signers; `now`: seconds since 1970. Fails in OpenSSL's
/// words.
pub fn check_response(
    response: &[u8],
    id: &CertificateId,
    issuer: &Certificate,
    chain: &[Certificate],
    signer: Signer,
    now: i64,
) -> Result<OcspResponse, String> {
    let mut outer = Reader::new(response).enter(SEQUENCE).ok_or("d2i_OCSP_RESPONSE() failed")?;
    let status = outer.body(ENUMERATED).and_then(der::small).ok_or("d2i_OCSP_RESPONSE() failed")?;
    if status != 0 {
        let words = match status {
            1 => "malformedrequest",
            2 => "internalerror",
            3 => "trylater",
            5 => "sigrequired",
            6 => "unauthorized",
            _ => "(UNKNOWN)",
        };
        return Err(format!("OCSP response not successful ({status}: {words})"));
    }
    basic(&mut outer, id, issuer, chain, signer, now).ok_or("OCSP_response_get1_basic() failed")?
}

fn basic(
    outer: &mut Reader<'_>,
    id: &CertificateId,
    issuer: &Certificate,
    chain: &[Certificate],
    signer: Signer,
    now: i64,
) -> Option<Result<OcspResponse, String>> {
    let mut bytes = outer.enter(der::context(0))?.enter(SEQUENCE)?;
    if bytes.body(OID)? != BASIC {
        return None;
    }
    let mut basic = Reader::new(bytes.body(OCTET_STRING)?).enter(SEQUENCE)?;
    let data = basic.take(SEQUENCE)?;
    let algorithm = basic.body(SEQUENCE)?;
    let signature = der::bits(basic.body(BIT_STRING)?)?;
    let mut certificates = Vec::new();
    if let Some(mut wrapped) = basic.enter(der::context(0)) {
        let mut list = wrapped.enter(SEQUENCE)?;
        while let Some(one) = list.take(SEQUENCE) {
            if certificates.len() == PARTS_MAX {
                return None;
            }
            certificates.push(Certificate::parse(CertificateDer::from(one.whole.to_vec())).ok()?);
        }
    }

    let mut r = Reader::new(data.body);
    r.take(der::context(0));
    let responder = r.next()?;
    time::parse(r.next()?)?;
    let mut answers = r.enter(SEQUENCE)?;
    let mut found = None;
    for _ in 0..PARTS_MAX {
        let Some(mut one) = answers.enter(SEQUENCE) else { break };
        let name = one.body(SEQUENCE)?;
        let status = one.next()?.tag;
        let this_update = time::parse(one.next()?)?;
        let next_update = match one.enter(der::context(0)) {
            Some(mut wrapped) => Some(time::parse(wrapped.next()?)?),
            None => None,
        };
        if id.is(name) {
            found = Some((status, this_update, next_update));
        }
    }

    let is_responder = |c: &&Certificate| match responder.tag {
        0xa1 => name::same_name(responder.body, c.subject()),
        0xa2 => {
            Reader::new(responder.body).body(OCTET_STRING).is_some_and(|hash| key_hash(c).is_some_and(|k| k == hash))
        }
        _ => false,
    };
    let mut candidates = certificates.iter().chain(std::iter::once(issuer)).chain(chain).filter(is_responder);
    let by = candidates.find(|c| verify_signature(c.spki(), algorithm, data.whole, signature));
    let Some(by) = by else { return Some(Err("OCSP_basic_verify() failed".into())) };
    if signer == Signer::Authorised && !authorised(by, issuer, now) {
        return Some(Err("OCSP_basic_verify() failed (SSL: error:13800070:OCSP routines::root ca not trusted)".into()));
    }
    let Some((status, this_update, next_update)) = found else {
        return Some(Err("certificate status not found in the OCSP response".into()));
    };
    if this_update > now + SKEW || next_update.is_some_and(|at| at < now - SKEW) {
        return Some(Err("OCSP_check_validity() failed".into()));
    }
    let status = match status {
        0x80 => Status::Good,
        0xa1 => Status::Revoked,
        _ => Status::Unknown,
    };
    Some(Ok(OcspResponse { status, next_update }))
}

/// The issuer, or a certificate that it issued for OCSP.
fn authorised(by: &Certificate, issuer: &Certificate, now: i64) -> bool {
    if by.spki() == issuer.spki() && name::same_name(by.subject(), issuer.subject()) {
        return true;
    }
    let usages = by.extensions.extended_key_usage.as_deref().unwrap_or_default();
    usages.iter().any(|usage| usage == x509::OCSP_SIGNING)
        && name::same_name(by.issuer(), issuer.subject())
        && verify_signature(issuer.spki(), by.signature_algorithm(), by.tbs(), by.signature())
        && by.not_before <= now
        && now <= by.not_after
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Authority, TestCertificate, openssl};
    use std::path::Path;

    /// Response of the `openssl` program; `index`: its database.
    fn answered(
        directory: &Path,
        authority: &Authority,
        signer: &TestCertificate,
        leaf: &TestCertificate,
        index: &str,
    ) -> Option<Vec<u8>> {
        let put = |name: &str, bytes: &[u8]| {
            let path = directory.join(name);
            std::fs::write(&path, bytes).expect("written");
            path.display().to_string()
        };
        let (root, certificate) =
            (put("root.pem", authority.pem.as_bytes()), put("leaf.pem", leaf.certificate.as_bytes()));
        let (by, key) = (put("by.pem", signer.certificate.as_bytes()), put("by.key", signer.key.as_bytes()));
        let (index, out) = (put("index", index.as_bytes()), directory.join("resp").display().to_string());
        let request = directory.join("req").display().to_string();
        openssl(&["ocsp", "-issuer", &root, "-cert", &certificate, "-reqout", &request], b"")?;
        openssl(
            &[
                "ocsp", "-index", &index, "-CA", &root, "-rsigner", &by, "-rkey", &key, "-reqin", &request, "-respout",
                &out, "-ndays", "1",
            ],
            b"",
        )?;
        let ours = CertificateId::of(&leaf_of(leaf), &authority.certificate()).expect("an id");
        let theirs = std::fs::read(request).expect("a request");
        assert!(theirs.windows(ours.der().len()).any(|w| w == ours.der()));
        std::fs::read(out).ok()
    }

    fn leaf_of(issued: &TestCertificate) -> Certificate {
        Certificate::parse(issued.certificate_der()).expect("a certificate")
    }

    fn now() -> i64 {
        std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("after 1970").as_secs() as i64
    }

    #[test]
    fn answers_are_believed_from_whom_may_give_them() {
        let directory = std::env::temp_dir().join(format!("tidegate-ocsp-{}", std::process::id()));
        std::fs::create_dir_all(&directory).expect("a directory");
        let root = Authority::new("root");
        let leaf = root.client("user");
        let mut params = rcgen::CertificateParams::default();
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::OcspSigning];
        let delegate = root.issue(params);
        let stranger = root.client("stranger");
        let issuer = root.certificate();
        let id = CertificateId::of(&leaf_of(&leaf), &issuer).expect("an id");
        let serial = leaf_of(&leaf).serial_hex();
        let valid = format!("V\t351231235959Z\t\t{serial}\tunknown\t/CN=user\n");
        let revoked = format!("R\t351231235959Z\t250101000000Z\t{serial}\tunknown\t/CN=user\n");
        let ask = |signer: &TestCertificate, index: &str| answered(&directory, &root, signer, &leaf, index);
        let judge = |response: &[u8], who, at| check_response(response, &id, &issuer, &[], who, at).map(|a| a.status);
        let Some(good) = ask(&delegate, &valid) else { return };
        assert_eq!(judge(&good, Signer::Authorised, now()), Ok(Status::Good));
        assert_eq!(judge(&ask(&delegate, &revoked).expect("asked"), Signer::Authorised, now()), Ok(Status::Revoked));
        assert_eq!(judge(&ask(&delegate, "").expect("asked"), Signer::Authorised, now()), Ok(Status::Unknown));
        let strange = ask(&stranger, &valid).expect("asked");
        assert!(judge(&strange, Signer::Authorised, now()).is_err());
        assert_eq!(judge(&strange, Signer::Any, now()), Ok(Status::Good));
        assert_eq!(judge(&good, Signer::Authorised, now() + 2 * 86_400), Err("OCSP_check_validity() failed".into()));
        let other = CertificateId::of(&leaf_of(&root.client("other")), &issuer).expect("an id");
        let about_other = check_response(&good, &other, &issuer, &[], Signer::Authorised, now());
        assert_eq!(about_other, Err("certificate status not found in the OCSP response".into()));
        for cut in 0..good.len() {
            assert!(check_response(&good[..cut], &id, &issuer, &[], Signer::Any, now()).is_err(), "{cut}");
        }
        let mut bent = good.clone();
        for at in 0..bent.len() {
            bent[at] ^= 1;
            let found = check_response(&bent, &id, &issuer, &[], Signer::Authorised, now());
            assert!(
                found.is_err()
                    || found == Ok(check_response(&good, &id, &issuer, &[], Signer::Authorised, now()).expect("good")),
                "{at}"
            );
            bent[at] ^= 1;
        }
        let _ = std::fs::remove_dir_all(&directory);
    }

    #[test]
    fn requests_stand_in_uris() {
        let id = CertificateId { name_hash: vec![0xfb; 20], key_hash: vec![0xff; 20], serial: vec![1] };
        let part = id.uri_part();
        assert!(part.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'%'), "{part}");
        assert!(part.contains("%2B") && part.contains("%2F"));
    }
}
