//! Answers to authorities: http-01 in the first phase of every server, tls-alpn-01 in the handshake (RFC 8555, section 8.3;
//! RFC 8737). `dns.rs` answers dns-01.

use super::dns::Records;
use super::hook::Hook;
use super::issuer::Issuer;
use super::responder;
use super::shared_issuer::SharedIssuer;
use super::shared_table::{find_name, find_token, name_key, name_text, token_key};
use acme::{ChallengeKind, Identifier, SessionWork, Solver};
use aws_lc_rs::digest;
use bytes::Bytes;
use http_engine::{Flow, Handler, Request};
use http_types::Method;
use observe::{ErrorLog, Severity};
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, PoisonError, RwLock};
use tls::certs::{CertificateSet, KeyPair};
use tls::{Choice, ClientHello, ServerRules, ServerSettings};
use tokio::sync::Notify;

const PREFIX: &[u8] = b"/.well-known/acme-challenge/";
/// ALPN protocol of validations.
const ACME_TLS: &[u8] = b"acme-tls/1";

/// Key authorizations by token.
static TOKENS: LazyLock<RwLock<HashMap<String, Bytes>>> = LazyLock::new(RwLock::default);
/// Key authorizations and their certificates, by the name that the validating client sends: it sends nothing else, so that a name has one
/// challenge at a time.
static NAMES: LazyLock<RwLock<HashMap<String, (String, CertificateSet)>>> = LazyLock::new(RwLock::default);
/// Wakes orders that wait for a name.
static FREED: Notify = Notify::const_new();
/// Rules of validating handshakes.
static RULES: LazyLock<Option<Arc<ServerRules>>> = LazyLock::new(|| {
    let settings = ServerSettings {
        certificate_names: vec!["acme".into()],
        alpn: vec![ACME_TLS.to_vec()],
        ..ServerSettings::default()
    };
    ServerRules::build(&settings, &tls_directives::wall_clock(), &mut Vec::new()).ok()
});

/// Makes the challenges of an order answerable.
pub struct ChallengePublisher {
    kind: ChallengeKind,
    dns: Option<Arc<Records>>,
    /// Records of `dns-01` are those of the own responder.
    responds: bool,
    hook: Option<Rc<Hook>>,
    log: Arc<ErrorLog>,
    shared: Option<Arc<SharedIssuer>>,
}

impl ChallengePublisher {
    pub fn new(issuer: &Issuer, hook: Option<Rc<Hook>>, log: Arc<ErrorLog>) -> ChallengePublisher {
        ChallengePublisher {
            kind: issuer.challenge,
            dns: issuer.dns.clone(),
            responds: issuer.timing.is_some(),
            hook,
            log,
            shared: issuer.shared.clone(),
        }
    }
}

impl ChallengePublisher {
    /// Returns key and text of the challenge's record for other servers; `None` for a kind that they need not answer.
    fn record(&self, identifier: &Identifier, token: &str, authorization: &str) -> Option<(String, String)> {
        match self.kind {
            ChallengeKind::Http01 => Some((token_key(token), authorization.to_string())),
            ChallengeKind::TlsAlpn01 => {
                Some((name_key(&identifier.server_name()), name_text(identifier, authorization)))
            }
            ChallengeKind::Dns01 => None,
        }
    }
}

/// Answers tls-alpn-01, once no other order proves the name.
async fn answer_tls(identifier: &Identifier, authorization: &str) -> Result<(), String> {
    let digest = digest::digest(&digest::SHA256, authorization.as_bytes());
    let made = acme::challenge_certificate(identifier, digest.as_ref())?;
    let pair = KeyPair::load(made.chain.as_bytes(), made.key.as_bytes(), &[]).map_err(|e| e.to_string())?;
    let mut own = Some((authorization.to_string(), CertificateSet::new(vec![pair])));
    loop {
        // Before the look: a name that is freed meanwhile wakes it.
        let mut freed = pin!(FREED.notified());
        freed.as_mut().enable();
        if let Entry::Vacant(free) =
            NAMES.write().unwrap_or_else(PoisonError::into_inner).entry(identifier.server_name())
            && let Some(own) = own.take()
        {
            free.insert(own);
            return Ok(());
        }
        freed.await;
    }
}

/// Stops answering; the challenge of another order stays.
fn forget_tls(identifier: &Identifier, authorization: &str) {
    let mut names = NAMES.write().unwrap_or_else(PoisonError::into_inner);
    if let Entry::Occupied(known) = names.entry(identifier.server_name())
        && known.get().0 == authorization
    {
        known.remove();
    }
    drop(names);
    FREED.notify_waiters();
}

impl Solver for ChallengePublisher {
    fn present(&self, identifier: &Identifier, token: &str, authorization: &str) -> SessionWork<Result<(), String>> {
        let done = match (self.kind, &self.dns) {
            (ChallengeKind::Http01, _) => {
                let text = Bytes::copy_from_slice(authorization.as_bytes());
                TOKENS.write().unwrap_or_else(PoisonError::into_inner).insert(token.into(), text);
                Ok(())
            }
            (ChallengeKind::TlsAlpn01, _) => Ok(()),
            (ChallengeKind::Dns01, Some(records)) => return records.clone().add(identifier, authorization),
            (ChallengeKind::Dns01, None) if self.responds => responder::add_challenge(identifier, authorization),
            (ChallengeKind::Dns01, None) => Err("no way to change DNS records".into()),
        };
        let (kind, hook, identifier) = (self.kind, self.hook.clone(), identifier.clone());
        let (token, authorization) = (token.to_string(), authorization.to_string());
        let shared = self.shared.clone().zip(self.record(&identifier, &token, &authorization));
        let log = self.log.clone();
        Box::pin(async move {
            done?;
            if kind == ChallengeKind::TlsAlpn01 {
                answer_tls(&identifier, &authorization).await?;
            }
            if let Some((shared, (key, text))) = shared {
                shared.tell_challenge(&key, &text, &log).await;
            }
            match hook {
                Some(hook) => hook.add(kind, &identifier, &token, &authorization).await,
                None => Ok(()),
            }
        })
    }
    fn remove(&self, identifier: &Identifier, token: &str, authorization: &str) -> SessionWork<()> {
        if let (Some(shared), Some((key, _))) = (&self.shared, self.record(identifier, token, authorization)) {
            shared.end_challenge(&key, &self.log);
        }
        match (self.kind, &self.dns) {
            (ChallengeKind::Http01, _) => {
                TOKENS.write().unwrap_or_else(PoisonError::into_inner).remove(token);
            }
            (ChallengeKind::TlsAlpn01, _) => {
                forget_tls(identifier, authorization);
            }
            (ChallengeKind::Dns01, Some(records)) => return records.clone().remove(identifier, authorization),
            (ChallengeKind::Dns01, None) => responder::remove_challenge(identifier, authorization),
        }
        let Some(hook) = self.hook.clone() else { return Box::pin(std::future::ready(())) };
        let (kind, identifier, log) = (self.kind, identifier.clone(), self.log.clone());
        let (token, authorization) = (token.to_string(), authorization.to_string());
        Box::pin(async move {
            // The certificate does not depend on it.
            if let Err(why) = hook.remove(kind, &identifier, &token, &authorization).await {
                log.log(Severity::Warn, 0, format_args!("{why}"));
            }
        })
    }
}

/// Chooses the rules of a validating handshake; `None` for all others.
pub fn choose_challenge(hello: &ClientHello) -> Option<Choice> {
    if hello.alpn.len() != 1 || hello.alpn.first().is_none_or(|protocol| protocol != ACME_TLS) {
        return None;
    }
    let name = hello.server_name.as_deref().unwrap_or_default();
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    let own = NAMES.read().unwrap_or_else(PoisonError::into_inner).get(&name).map(|(_, set)| set.clone());
    let set = own.or_else(|| find_name(&name))?;
    Some(Choice::WithCertificates(Arc::clone(RULES.as_ref()?), set))
}

/// Answers http-01 before any rule of the configuration.
pub struct TokenHandler;

impl Handler for TokenHandler {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Declined;
        }
        let Some(token) = r.target.path().strip_prefix(PREFIX).and_then(|token| std::str::from_utf8(token).ok()) else {
            return Flow::Declined;
        };
        let found = TOKENS.read().unwrap_or_else(PoisonError::into_inner).get(token).cloned();
        let Some(authorization) = found.or_else(|| find_token(token)) else { return Flow::Declined };
        r.discard_body();
        r.reply.set_keep_alive(false);
        r.respond(200, "text/plain", authorization)
    }
}
