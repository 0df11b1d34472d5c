//! `ssl_ocsp`: checks client certificates' revocation with their authorities, once per connection (nginx:
//! `ngx_ssl_ocsp_validate`).

use super::asking::Responder;
use base::clock;
use observe::Severity;
use resolver::ResolveRules;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use tls::PeerCertificate;
use tls::ocsp::{CertificateId, OcspResponse, Signer, Status, check_response};
use tls::x509::Certificate;
use variables::Session;

const FAILED: &str = "certificate status request failed";
/// Approximate memory per cache entry.
const ENTRY_BYTES: u64 = 256;

/// `ssl_ocsp_cache`: responses by certificate, until they expire.
#[derive(Debug)]
pub struct Answers {
    entries_max: usize,
    by_id: Mutex<HashMap<CertificateId, OcspResponse>>,
}

impl Answers {
    pub fn new(size: u64) -> Answers {
        Answers { entries_max: usize::try_from(size / ENTRY_BYTES).unwrap_or(usize::MAX), by_id: Mutex::default() }
    }
    fn get(&self, id: &CertificateId, now: i64) -> Option<Status> {
        let answers = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        answers.get(id).filter(|a| a.next_update.is_some_and(|end| end > now)).map(|a| a.status)
    }
    /// Does not keep a response without expiry, which may be outdated at any time.
    fn put(&self, id: CertificateId, answer: OcspResponse, now: i64) {
        if answer.next_update.is_none_or(|end| end <= now) {
            return;
        }
        let mut answers = self.by_id.lock().unwrap_or_else(PoisonError::into_inner);
        if answers.len() >= self.entries_max {
            answers.retain(|_, a| a.next_update.is_some_and(|end| end > now));
        }
        if answers.len() < self.entries_max {
            answers.insert(id, answer);
        }
    }
}

pub struct AskAuthorities {
    /// Checks only the client's own certificate (`leaf`).
    pub leaf: bool,
    /// Replaces the certificates' responders.
    pub responder: Option<Responder>,
    pub answers: Option<Arc<Answers>>,
}

impl AskAuthorities {
    async fn status(
        &self,
        certificate: &Certificate,
        path: &[Certificate],
        at: usize,
        resolving: Option<&ResolveRules>,
    ) -> Result<Status, String> {
        let issuer = path.get(at + 1).ok_or("no issuer of the certificate")?;
        let id = CertificateId::of(certificate, issuer).ok_or("OCSP_cert_to_id() failed")?;
        if let Some(status) = self.answers.as_ref().and_then(|a| a.get(&id, clock::unix_seconds())) {
            return Ok(status);
        }
        let own;
        let responder = match &self.responder {
            Some(responder) => responder,
            None => {
                let url = certificate.extensions.ocsp_uris.first().ok_or("no OCSP responder URL in certificate")?;
                own = Responder::parse(url).map_err(|why| format!("{why} in certificate"))?;
                &own
            }
        };
        let response = responder.ask(&id, resolving).await?;
        let now = clock::unix_seconds();
        let answer = check_response(&response, &id, issuer, path, Signer::Authorised, now)?;
        if let Some(answers) = &self.answers {
            answers.put(id, answer, now);
        }
        Ok(answer.status)
    }

    /// Reason for refusing the certificate, if any.
    pub async fn fault<S: Session>(
        &self,
        s: &S,
        peer: &PeerCertificate,
        resolving: Option<ResolveRules>,
    ) -> Option<&'static str> {
        let asked = if self.leaf { 1 } else { peer.path.len() };
        // The anchor needs no check.
        let below = peer.path.len().saturating_sub(1);
        for (at, certificate) in peer.path.iter().enumerate().take(asked.min(below)) {
            match self.status(certificate, &peer.path, at, resolving.as_ref()).await {
                Ok(Status::Good) => {}
                Ok(Status::Revoked) => return Some("certificate revoked"),
                Ok(Status::Unknown) => return Some("certificate status unknown"),
                Err(why) => {
                    s.log(Severity::Error, format_args!("{why}"));
                    return Some(FAILED);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_kept_until_they_end() {
        let key = rcgen::KeyPair::generate().expect("a key");
        let der = rcgen::CertificateParams::default().self_signed(&key).expect("signed").der().clone();
        let certificate = Certificate::parse(der).expect("a certificate");
        let id = CertificateId::of(&certificate, &certificate).expect("an id");
        let answers = Answers::new(ENTRY_BYTES);
        let answer = |next_update| OcspResponse { status: Status::Good, next_update };
        answers.put(id.clone(), answer(None), 10);
        assert_eq!(answers.get(&id, 10), None);
        answers.put(id.clone(), answer(Some(20)), 10);
        assert_eq!((answers.get(&id, 19), answers.get(&id, 20)), (Some(Status::Good), None));
    }
}
