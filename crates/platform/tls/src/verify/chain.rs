//! Builds and checks the path from a leaf to an anchor.

use super::crl::RevocationList;
use super::{VerifyVerdict, signature};
use crate::der::{self, Reader, SEQUENCE};
use crate::x509::{self, Certificate, name};

/// Purpose of a certificate, which its extensions must permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// Client authentication.
    Client,
    /// Server authentication.
    Server,
    /// OCSP responders: any purpose; extended key usage is checked elsewhere.
    Any,
}

/// Candidates per issuer: many anchors may share a name.
const CANDIDATES_MAX: usize = 32;
/// Longest path, whatever `depth` says.
const PATH_MAX: usize = 100;
/// Peer certificates examined at most.
const PEER_MAX: usize = 64;
/// Cost of comparing the names of a chain with its constraints: bytes of both, and [`COMPARISON_BYTES`] for each pair.
/// The peer sends both, thousands of each; OpenSSL stops at 2^20 pairs.
const CONSTRAINT_BYTES_MAX: usize = 16 * 1024 * 1024;
const COMPARISON_BYTES: usize = 16;

/// Trust anchors, revocation lists, maximum depth.
#[derive(Clone, Debug, Default)]
pub struct Trust {
    /// Authorities whose certificates end a chain.
    pub anchors: Vec<Certificate>,
    /// If not empty, every certificate of a chain needs one.
    pub revocations: Vec<RevocationList>,
    /// Certificates between leaf and anchor (`ssl_verify_depth`).
    pub depth: u32,
}

struct Path<'a> {
    certificates: Vec<&'a Certificate>,
    /// Certificates of the path that the peer sent.
    foreign: usize,
    trusted: bool,
}

impl Trust {
    /// Verifies the peer's chain, leaf first. `now`: seconds since 1970. Like nginx's callback, continues after an
    /// error; the last one counts.
    pub fn verify(&self, chain: &[Certificate], now: i64, purpose: Purpose) -> VerifyVerdict {
        let chain = chain.get(..chain.len().min(PEER_MAX)).unwrap_or(chain);
        let Some((leaf, others)) = chain.split_first() else { return VerifyVerdict::NO_LOCAL_ISSUER };
        let path = self.build(leaf, others, now);
        let mut verdict = self.reached(&path);
        let mut note = |found: VerifyVerdict| {
            if !found.is_ok() {
                verdict = found;
            }
        };
        note(extensions(&path, purpose));
        if !self.revocations.is_empty() {
            note(self.revoked(&path, now));
        }
        note(signatures(&path, now));
        note(constraints(&path));
        verdict
    }

    /// Verified path from leaf to anchor; meaningful only if [`Trust::verify`] succeeds.
    pub fn path(&self, chain: &[Certificate], now: i64) -> Vec<Certificate> {
        let Some((leaf, others)) = chain.split_first() else { return Vec::new() };
        self.build(leaf, others, now).certificates.into_iter().cloned().collect()
    }

    /// Builds upward: anchors first, then the peer's certificates (`build_chain`).
    fn build<'a>(&'a self, leaf: &'a Certificate, others: &'a [Certificate], now: i64) -> Path<'a> {
        let mut path = Path { certificates: vec![leaf], foreign: 1, trusted: false };
        let limit = (self.depth as usize).saturating_add(1).min(PATH_MAX);
        let mut current = leaf;
        while path.certificates.len() <= limit {
            let own = self_signed(current);
            let from_anchors = path.foreign < path.certificates.len();
            if let Some(anchor) = best(&self.anchors, current, &[], now) {
                if own {
                    // Only the identical certificate: another of that name is an impostor.
                    if let Some(same) = self.anchors.iter().find(|a| a.der() == current.der()) {
                        path.certificates.pop();
                        path.certificates.push(same);
                        path.foreign = path.foreign.min(path.certificates.len() - 1);
                        path.trusted = true;
                    }
                    break;
                }
                if !path.certificates.iter().any(|c| c.der() == anchor.der()) {
                    path.certificates.push(anchor);
                    current = anchor;
                    if self_signed(anchor) {
                        path.trusted = true;
                        break;
                    }
                    continue;
                }
            }
            if own || from_anchors {
                break;
            }
            let Some(issuer) = best(others, current, &path.certificates, now) else { break };
            path.certificates.push(issuer);
            path.foreign += 1;
            current = issuer;
        }
        path
    }

    /// Reason for a missing anchor; a chain that is too long lacks its issuer, the last error.
    fn reached(&self, path: &Path<'_>) -> VerifyVerdict {
        if path.trusted {
            return VerifyVerdict::OK;
        }
        let length = path.certificates.len();
        match path.certificates.last() {
            Some(last) if self_signed(last) && length == 1 => VerifyVerdict::SELF_SIGNED,
            Some(last) if self_signed(last) => VerifyVerdict::SELF_SIGNED_IN_CHAIN,
            _ if path.foreign < length => VerifyVerdict::UNABLE_TO_GET_ISSUER,
            _ => VerifyVerdict::NO_LOCAL_ISSUER,
        }
    }

    /// Checks each certificate against its issuer's newest list (`check_revocation` with `CRL_CHECK_ALL`).
    fn revoked(&self, path: &Path<'_>, now: i64) -> VerifyVerdict {
        let mut verdict = VerifyVerdict::OK;
        for (index, certificate) in path.certificates.iter().enumerate() {
            let of_issuer = self.revocations.iter().filter(|l| name::same_name(l.issuer(), certificate.issuer()));
            let list = of_issuer.max_by_key(|l| (l.is_current(now), l.this_update));
            let Some(list) = list else {
                verdict = VerifyVerdict::NO_CRL;
                continue;
            };
            let issuer = match path.certificates.get(index + 1) {
                Some(issuer) => issuer,
                None if certificate.self_issued() => certificate,
                // Checks the list with the last certificate all the same, as OpenSSL does for callbacks that continue.
                None => {
                    verdict = VerifyVerdict::NO_CRL_ISSUER;
                    certificate
                }
            };
            let found = list.check(certificate.serial(), issuer, now);
            if !found.is_ok() {
                verdict = found;
            }
        }
        verdict
    }
}

fn self_signed(certificate: &Certificate) -> bool {
    certificate.self_issued() && issued_by(certificate, certificate)
}

/// Tells whether a certificate can be another's issuer: name, key identifier, permission to sign (`X509_check_issued`).
fn issued_by(subject: &Certificate, issuer: &Certificate) -> bool {
    let (s, i) = (&subject.extensions, &issuer.extensions);
    name::same_name(subject.issuer(), issuer.subject())
        && match (&s.authority_key_id, &i.subject_key_id) {
            (Some(a), Some(b)) => a == b,
            _ => true,
        }
        && i.key_usage.is_none_or(|bits| bits & x509::KEY_CERT_SIGN != 0)
}

fn signed_by(subject: &Certificate, issuer: &Certificate) -> bool {
    signature::verify_signature(issuer.spki(), subject.signature_algorithm(), subject.tbs(), subject.signature())
}

/// Best issuer: matching key first, then valid time.
fn best<'a>(
    all: &'a [Certificate],
    subject: &Certificate,
    taken: &[&Certificate],
    now: i64,
) -> Option<&'a Certificate> {
    let fits = all.iter().filter(|c| issued_by(subject, c) && !taken.iter().any(|t| t.der() == c.der()));
    let mut candidates: Vec<&Certificate> = fits.take(CANDIDATES_MAX).collect();
    if candidates.len() > 1 {
        let valid = |c: &Certificate| c.not_before <= now && now <= c.not_after;
        candidates.sort_by_key(|c| std::cmp::Reverse((signed_by(subject, c), valid(c), c.not_after)));
    }
    candidates.first().copied()
}

/// OpenSSL's `check_chain`: critical extensions, authorities, purposes, path lengths.
fn extensions(path: &Path<'_>, purpose: Purpose) -> VerifyVerdict {
    let mut verdict = VerifyVerdict::OK;
    let mut intermediates: u64 = 0;
    for (index, certificate) in path.certificates.iter().enumerate() {
        let e = &certificate.extensions;
        if e.unknown_critical {
            verdict = VerifyVerdict::CRITICAL_EXTENSION;
        }
        if index > 0 && !may_issue(certificate) {
            verdict = VerifyVerdict::INVALID_CA;
        }
        if !suits(certificate, purpose, index > 0) {
            verdict = VerifyVerdict::PURPOSE;
        }
        if index > 1 && e.path_length.is_some_and(|max| intermediates > max) {
            verdict = VerifyVerdict::PATH_LENGTH;
        }
        if index > 0 && !certificate.self_issued() {
            intermediates += 1;
        }
    }
    verdict
}

/// `X509_check_ca`: `CA:TRUE`; without it, the right to sign, or a self-signed version 1.
fn may_issue(certificate: &Certificate) -> bool {
    let e = &certificate.extensions;
    if e.key_usage.is_some_and(|bits| bits & x509::KEY_CERT_SIGN == 0) {
        return false;
    }
    match e.basic_constraints {
        Some(authority) => authority,
        None => e.key_usage.is_some() || (certificate.version == 1 && self_signed(certificate)),
    }
}

/// `X509_check_purpose`; an authority must be allowed to issue.
fn suits(certificate: &Certificate, purpose: Purpose, authority: bool) -> bool {
    let e = &certificate.extensions;
    let (usage, keys) = match purpose {
        Purpose::Client => (x509::CLIENT_AUTH, x509::DIGITAL_SIGNATURE | x509::KEY_AGREEMENT),
        Purpose::Server => (x509::SERVER_AUTH, x509::DIGITAL_SIGNATURE | x509::KEY_ENCIPHERMENT | x509::KEY_AGREEMENT),
        Purpose::Any => return true,
    };
    let extended = e
        .extended_key_usage
        .as_ref()
        .is_none_or(|all| all.iter().any(|u| u == usage || (authority && u == x509::ANY_USAGE)));
    extended && if authority { may_issue(certificate) } else { e.key_usage.is_none_or(|bits| bits & keys != 0) }
}

/// Verifies signatures and times from the anchor down (`internal_verify`).
fn signatures(path: &Path<'_>, now: i64) -> VerifyVerdict {
    let mut verdict = VerifyVerdict::OK;
    let Some(last) = path.certificates.last() else { return VerifyVerdict::UNVERIFIED_LEAF };
    let top = self_signed(last);
    // A lone leaf is not verified, but its time is checked: that error comes last.
    let is_alone = !top && path.certificates.len() == 1;
    if is_alone {
        verdict = VerifyVerdict::UNVERIFIED_LEAF;
    }
    for (index, certificate) in path.certificates.iter().enumerate().rev() {
        match path.certificates.get(index + 1) {
            Some(issuer) if !signed_by(certificate, issuer) => verdict = VerifyVerdict::BAD_SIGNATURE,
            // An anchor's own signature means nothing.
            None if !top && !is_alone => continue,
            _ => {}
        }
        if certificate.not_before > now {
            verdict = VerifyVerdict::NOT_YET_VALID;
        }
        if certificate.not_after < now {
            verdict = VerifyVerdict::EXPIRED;
        }
    }
    verdict
}

/// Name constraints of authorities (RFC 5280, 4.2.1.10).
fn constraints(path: &Path<'_>) -> VerifyVerdict {
    let Some(leaf) = path.certificates.first() else { return VerifyVerdict::OK };
    let mut left = CONSTRAINT_BYTES_MAX;
    for (index, authority) in path.certificates.iter().enumerate().skip(1) {
        let Some(value) = &authority.extensions.name_constraints else { continue };
        for below in path.certificates.iter().take(index) {
            if below.self_issued() && below.der() != leaf.der() {
                continue;
            }
            let found = constrained(value, below, &mut left);
            if !found.is_ok() {
                return found;
            }
        }
    }
    VerifyVerdict::OK
}

/// Compares the names of a certificate with constraints. `left`: the rest of [`CONSTRAINT_BYTES_MAX`].
fn constrained(value: &[u8], certificate: &Certificate, left: &mut usize) -> VerifyVerdict {
    let Some(mut both) = Reader::new(value).enter(SEQUENCE) else { return VerifyVerdict::CONSTRAINT_TYPE };
    let permitted = both.body(der::context(0)).unwrap_or_default();
    let excluded = both.body(der::context(1)).unwrap_or_default();
    let mut names: Vec<(u8, Vec<u8>)> = Vec::new();
    let e = &certificate.extensions;
    names.extend(e.dns_names.iter().map(|n| (0x82, n.clone())));
    names.extend(e.addresses.iter().map(|a| (0x87, a.clone())));
    if e.dns_names.is_empty() {
        // A common name that may be a host follows the rules of hosts.
        let common = name::common_names(certificate.subject()).into_iter().filter(|n| host_like(n));
        names.extend(common.map(|n| (0x82, n.into_bytes())));
    }
    names.push((0xa4, certificate.subject().to_vec()));
    for (kind, name) in names {
        let mut of_kind = 0;
        let mut allowed = false;
        for (tree, is_permitted) in [(permitted, true), (excluded, false)] {
            let mut trees = Reader::new(tree);
            while let Some(mut subtree) = trees.enter(SEQUENCE) {
                let Some(base) = subtree.next() else { return VerifyVerdict::CONSTRAINT_TYPE };
                let Some(rest) = left.checked_sub(name.len() + base.body.len() + COMPARISON_BYTES) else {
                    return VerifyVerdict::UNSPECIFIED;
                };
                *left = rest;
                if !matches!(base.tag, 0x82 | 0x87 | 0xa4) {
                    return VerifyVerdict::CONSTRAINT_TYPE;
                }
                if base.tag != kind {
                    continue;
                }
                let within = within(kind, &name, base.body);
                if is_permitted {
                    of_kind += 1;
                    allowed |= within;
                } else if within {
                    return VerifyVerdict::EXCLUDED;
                }
            }
        }
        if of_kind > 0 && !allowed {
            return VerifyVerdict::NOT_PERMITTED;
        }
    }
    VerifyVerdict::OK
}

fn host_like(name: &str) -> bool {
    name.contains('.') && name.bytes().all(|c| c.is_ascii_alphanumeric() || matches!(c, b'.' | b'-' | b'_' | b'*'))
}

fn within(kind: u8, name: &[u8], base: &[u8]) -> bool {
    match kind {
        0x82 => {
            let tail = name.len().checked_sub(base.len()).and_then(|at| name.get(at..)).unwrap_or_default();
            base.is_empty()
                || (tail.eq_ignore_ascii_case(base)
                    && (tail.len() == name.len()
                        || base.first() == Some(&b'.')
                        || name.get(name.len() - base.len() - 1) == Some(&b'.')))
        }
        0x87 => {
            let Some((address, mask)) = base.split_at_checked(base.len() / 2) else { return false };
            address.len() == name.len() && name.iter().zip(address).zip(mask).all(|((n, a), m)| n & m == a & m)
        }
        // Directory name: the base is a prefix, set by set.
        _ => {
            let (Some(mut outer), Some(mut inner)) =
                (Reader::new(name).enter(SEQUENCE), Reader::new(base).enter(SEQUENCE))
            else {
                return false;
            };
            while let Some(want) = inner.next() {
                let Some(have) = outer.next() else { return false };
                let wrap = |set: &[u8]| der::encode(SEQUENCE, set);
                if !name::same_name(&wrap(want.whole), &wrap(have.whole)) {
                    return false;
                }
            }
            true
        }
    }
}

#[cfg(test)]
#[path = "chain_tests.rs"]
mod tests;
