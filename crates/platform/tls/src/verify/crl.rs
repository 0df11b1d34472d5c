//! Certificate revocation lists (RFC 5280, 5), versions 1 and 2.

use super::{VerifyVerdict, signature};
use crate::der::{self, BIT_STRING, BOOLEAN, ENUMERATED, INTEGER, OCTET_STRING, OID, Reader, SEQUENCE};
use crate::pem;
use crate::x509::{self, Certificate, time};
use std::collections::HashMap;
use std::ops::Range;

/// A certificate revocation list.
#[derive(Clone, Debug)]
pub struct RevocationList {
    der: Vec<u8>,
    tbs: Range<usize>,
    signature_algorithm: Range<usize>,
    signature: Range<usize>,
    issuer: Range<usize>,
    /// Time of issue, in seconds since 1970.
    pub this_update: i64,
    /// Time of the next list, in seconds since 1970.
    pub next_update: Option<i64>,
    /// Reasons (RFC 5280, 5.3.1); 0 if absent.
    entries: HashMap<Vec<u8>, u8>,
    unknown_critical: bool,
}

const REMOVE_FROM_CRL: u8 = 8;

impl RevocationList {
    /// Parses the lists of a PEM text. Fails with OpenSSL's message.
    pub fn all(text: &[u8]) -> Result<Vec<RevocationList>, String> {
        let mut all = Vec::new();
        for block in pem::parse_blocks(text).map_err(str::to_string)? {
            if block.label == "X509 CRL" {
                all.push(read(block.bytes).ok_or("not a certificate revocation list")?);
            }
        }
        if all.is_empty() { Err("no start line:Expecting: X509 CRL".into()) } else { Ok(all) }
    }

    /// Returns the issuer's encoded name.
    pub fn issuer(&self) -> &[u8] {
        self.der.get(self.issuer.clone()).unwrap_or_default()
    }

    /// Tells whether the list is valid at a time, in seconds since 1970.
    pub fn is_current(&self, now: i64) -> bool {
        self.this_update <= now && self.next_update.is_none_or(|at| at >= now)
    }

    /// Returns the number of revoked certificates.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Tells whether no certificate is revoked.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Checks the list, then a serial number (`check_crl`, `cert_crl`).
    pub(super) fn check(&self, serial: &[u8], issuer: &Certificate, now: i64) -> VerifyVerdict {
        let mut verdict = VerifyVerdict::OK;
        if issuer.extensions.key_usage.is_some_and(|bits| bits & x509::CRL_SIGN == 0) {
            verdict = VerifyVerdict::NO_CRL_SIGN;
        }
        if self.this_update > now {
            verdict = VerifyVerdict::CRL_NOT_YET_VALID;
        }
        if self.next_update.is_some_and(|at| at < now) {
            verdict = VerifyVerdict::CRL_EXPIRED;
        }
        let part = |range: &Range<usize>| self.der.get(range.clone()).unwrap_or_default();
        let algorithm = part(&self.signature_algorithm);
        if !signature::verify_signature(issuer.spki(), algorithm, part(&self.tbs), part(&self.signature)) {
            verdict = VerifyVerdict::BAD_CRL_SIGNATURE;
        }
        if self.unknown_critical {
            verdict = VerifyVerdict::CRITICAL_CRL_EXTENSION;
        }
        match self.entries.get(serial) {
            None | Some(&REMOVE_FROM_CRL) => verdict,
            Some(_) => VerifyVerdict::REVOKED,
        }
    }
}

fn read(der: Vec<u8>) -> Option<RevocationList> {
    let whole: &[u8] = &der;
    let mut outer = Reader::new(whole).enter(SEQUENCE)?;
    let tbs = outer.take(SEQUENCE)?;
    let algorithm = outer.body(SEQUENCE)?;
    let signature = der::bits(outer.body(BIT_STRING)?)?;
    let mut r = Reader::new(tbs.body);
    r.take(INTEGER);
    r.body(SEQUENCE)?;
    let issuer = r.take(SEQUENCE)?;
    let this_update = time::parse(r.next()?)?;
    let next_update = match r.peek() {
        Some(der::UTC_TIME | der::GENERALIZED_TIME) => Some(time::parse(r.next()?)?),
        _ => None,
    };
    let mut entries = HashMap::new();
    let mut unknown_critical = false;
    if let Some(mut list) = r.enter(SEQUENCE) {
        while let Some(mut entry) = list.enter(SEQUENCE) {
            let serial = entry.body(INTEGER)?.to_vec();
            time::parse(entry.next()?)?;
            let mut reason = 0;
            if let Some(mut extensions) = entry.enter(SEQUENCE) {
                while let Some(extension) = extensions.enter(SEQUENCE) {
                    let (oid, critical, value) = extension_of(extension)?;
                    match oid {
                        [0x55, 0x1d, 21] => {
                            reason = Reader::new(value).body(ENUMERATED).and_then(|b| b.first().copied()).unwrap_or(0);
                        }
                        // Certificate issuer of an indirect list, which is unsupported.
                        _ => unknown_critical |= critical,
                    }
                }
            }
            entries.insert(serial, reason);
        }
    }
    if let Some(mut wrapped) = r.enter(der::context(0)) {
        let mut extensions = wrapped.enter(SEQUENCE)?;
        while let Some(extension) = extensions.enter(SEQUENCE) {
            let (oid, critical, _) = extension_of(extension)?;
            // Accepts authority key and CRL number; refuses deltas and partial lists.
            unknown_critical |= critical && !matches!(oid, [0x55, 0x1d, 35 | 20]);
        }
    }
    let range = |part: &[u8]| {
        let start = (part.as_ptr() as usize).saturating_sub(whole.as_ptr() as usize);
        start..start + part.len()
    };
    Some(RevocationList {
        tbs: range(tbs.whole),
        signature_algorithm: range(algorithm),
        signature: range(signature),
        issuer: range(issuer.whole),
        this_update,
        next_update,
        entries,
        unknown_critical,
        der,
    })
}

fn extension_of(mut r: Reader<'_>) -> Option<(&[u8], bool, &[u8])> {
    let oid = r.body(OID)?;
    let critical = r.body(BOOLEAN).is_some_and(|b| b != [0]);
    Some((oid, critical, r.body(OCTET_STRING)?))
}
