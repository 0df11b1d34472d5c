//! `ssl_stapling`: fetches OCSP responses on the control thread (nginx: `ngx_ssl_stapling` fetches on demand). `loaded.rs` has the
//! responses of certificates that are loaded per connection.

use super::ServerTls;
use super::asking::Responder;
use super::loaded::{self, CAME, LeafId, LoadedStaples};
use crate::Session;
use crate::background::{Background, LocalFuture};
use crate::upstreams::Resolving;
use base::clock;
use observe::{ErrorLog, Level};
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;
use tls::certs::{CertificateSet, KeyPair};
use tls::ocsp::{CertificateId, OcspResponse, Signer, Status, check};
use tls::verify::signed;
use tls::x509::{Certificate, name};

/// Seconds until the next fetch after a failure, and at most after success.
const RETRY: i64 = 300;
const REFRESH: i64 = 3600;
/// Responses of loaded certificates that are fetched at a time.
const FETCHES_MAX: usize = 8;

pub struct Staples {
    /// Replaces the certificates' responders.
    pub responder: Option<Responder>,
    pub verify: bool,
    /// Possible issuers: `ssl_trusted_certificate` and `ssl_client_certificate`.
    pub known: Vec<Certificate>,
    /// Responses of certificates that are loaded per connection.
    pub loaded: LoadedStaples,
}

impl Staples {
    /// Adds the responses to certificates that were loaded for a handshake.
    pub fn staple(&self, set: CertificateSet) -> CertificateSet {
        let has_responder = |pair: &KeyPair| {
            self.responder.is_some() || pair.leaf().is_some_and(|leaf| !leaf.extensions.ocsp_uris.is_empty())
        };
        loaded::staple(set, |pair| if has_responder(pair) { self.loaded.response(pair) } else { None })
    }

    /// Issuer of a leaf, from its chain or the known ones.
    pub fn issuer(&self, chain: &[Certificate]) -> Option<Certificate> {
        let leaf = chain.first()?;
        let issued = |c: &&Certificate| {
            name::same(leaf.issuer(), c.subject())
                && signed(c.spki(), leaf.signature_algorithm(), leaf.tbs(), leaf.signature())
        };
        chain.iter().skip(1).chain(&self.known).find(issued).cloned()
    }

    /// Responder for a leaf. Fails with nginx's reason.
    pub fn responder(&self, leaf: &Certificate) -> Result<Responder, String> {
        if let Some(responder) = &self.responder {
            return Ok(responder.clone());
        }
        let Some(url) = leaf.extensions.ocsp_uris.first() else {
            return Err("no OCSP responder URL in the certificate".into());
        };
        Responder::parse(url)
    }
}

/// A plan whose servers may have certificates.
pub trait Certified: Send + Sync + 'static {
    type Session: Session;
    fn servers(&self) -> usize;
    fn tls(&self, server: usize) -> Option<&ServerTls<Self::Session>>;
    fn resolving(&self, server: usize) -> Option<Resolving>;
}

pub struct Stapler<P>(PhantomData<fn(P)>);

impl<P> Default for Stapler<P> {
    fn default() -> Self {
        Stapler(PhantomData)
    }
}

/// A configured certificate with the due time and the end of its response.
struct Due {
    server: usize,
    pair: usize,
    at: i64,
    end: i64,
}

impl<P: Certified> Background<P> for Stapler<P> {
    fn run(self: Arc<Self>, plan: Weak<P>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let (mut due, mut loads) = (Vec::new(), false);
            if let Some(plan) = plan.upgrade() {
                for (server, tls) in (0..plan.servers()).filter_map(|i| Some((i, plan.tls(i)?))) {
                    let (Some(_), Some(rules)) = (&tls.staples, &tls.rules) else { continue };
                    loads |= tls.certificates.is_some();
                    let pairs = 0..rules.certificates().pairs().len();
                    due.extend(pairs.map(|pair| Due { server, pair, at: 0, end: 0 }));
                }
            }
            while loads || !due.is_empty() {
                let mut came = pin!(CAME.notified());
                // Before the look at the certificates, so that none is missed.
                came.as_mut().enable();
                for one in &mut due {
                    if one.at > clock::unix_seconds() {
                        continue;
                    }
                    let Some(plan) = plan.upgrade() else { return };
                    one.at = renew(&*plan, one, &log).await;
                }
                let Some(plan) = plan.upgrade() else { return };
                let next = if loads { renew_loaded(&plan, &log).await } else { None };
                drop(plan);
                let now = clock::unix_seconds();
                let next = due.iter().map(|one| one.at).chain(next).min().unwrap_or(now + REFRESH);
                let wait = next.saturating_sub(now).clamp(1, REFRESH);
                let _ = runtime::time::timeout(Duration::from_secs(wait.unsigned_abs()), came).await;
                clock::update();
            }
        })
    }
}

fn after(answer: &OcspResponse, now: i64) -> i64 {
    now + answer.next_update.map_or(REFRESH, |end| (end - RETRY - now).clamp(RETRY, REFRESH))
}

fn complain(log: &ErrorLog, why: &str) {
    log.log(Level::Error, 0, format_args!("OCSP stapling: {why}"));
}

/// Fetches and installs the response of a configured certificate; returns the time of the next fetch.
async fn renew<P: Certified>(plan: &P, due: &mut Due, log: &ErrorLog) -> i64 {
    let Some(tls) = plan.tls(due.server) else { return i64::MAX };
    let (Some(staples), Some(rules)) = (&tls.staples, &tls.rules) else { return i64::MAX };
    let set = rules.certificates();
    let Some(pair) = set.pairs().get(due.pair) else { return i64::MAX };
    let install = |response: Option<Vec<u8>>| {
        // Another certificate of the set may have changed meanwhile.
        let set = rules.certificates();
        let pairs = set.pairs().iter().enumerate();
        let stapled = pairs.map(|(i, p)| if i == due.pair { p.with_ocsp(response.clone()) } else { p.clone() });
        rules.replace_certificates(CertificateSet::new(stapled.collect()));
    };
    let fetched = fetch(staples, &pair.chain, plan.resolving(due.server)).await;
    let now = clock::unix_seconds();
    match fetched {
        Ok(None) => i64::MAX,
        Ok(Some((response, answer))) => {
            install(Some(response));
            due.end = answer.next_update.unwrap_or(i64::MAX);
            after(&answer, now)
        }
        Err(why) => {
            complain(log, &why);
            // As nginx, which sends no response that has ended.
            if due.end <= now && pair.ocsp().is_some() {
                install(None);
            }
            now + RETRY
        }
    }
}

/// Fetches the responses of loaded certificates that are due; returns the time of the next fetch.
async fn renew_loaded<P: Certified>(plan: &Arc<P>, log: &Arc<ErrorLog>) -> Option<i64> {
    let mut jobs = Vec::new();
    for server in 0..plan.servers() {
        let Some(staples) = plan.tls(server).and_then(|tls| tls.staples.as_ref()) else { continue };
        for (id, chain) in staples.loaded.due(clock::unix_seconds()) {
            jobs.push((server, id, chain));
        }
    }
    let mut jobs = jobs.into_iter();
    let mut start = || {
        let (server, id, chain) = jobs.next()?;
        let (plan, log) = (Arc::clone(plan), Arc::clone(log));
        let job: LocalFuture<()> = Box::pin(async move { renew_one(&*plan, server, &id, &chain, &log).await });
        Some(job)
    };
    let mut running: Vec<LocalFuture<()>> = (0..FETCHES_MAX).map_while(|_| start()).collect();
    std::future::poll_fn(|cx| {
        let mut at = 0;
        while let Some(job) = running.get_mut(at) {
            if job.as_mut().poll(cx).is_pending() {
                at += 1;
                continue;
            }
            drop(running.swap_remove(at));
            running.extend(start());
        }
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    (0..plan.servers()).filter_map(|server| plan.tls(server)?.staples.as_ref()?.loaded.next()).min()
}

async fn renew_one<P: Certified>(plan: &P, server: usize, id: &LeafId, chain: &[Certificate], log: &ErrorLog) {
    let Some(staples) = plan.tls(server).and_then(|tls| tls.staples.as_ref()) else { return };
    let fetched = fetch(staples, chain, plan.resolving(server)).await;
    let now = clock::unix_seconds();
    match fetched {
        Ok(None) => staples.loaded.postpone(id, i64::MAX),
        Ok(Some((response, answer))) => {
            staples.loaded.put(id, response, answer.next_update.unwrap_or(i64::MAX), after(&answer, now));
        }
        Err(why) => {
            complain(log, &why);
            staples.loaded.postpone(id, now + RETRY);
        }
    }
}

/// Fetches a response; `None`: the certificate has no issuer or responder, as the configuration's test has told.
async fn fetch(
    staples: &Staples,
    chain: &[Certificate],
    resolving: Option<Resolving>,
) -> Result<Option<(Vec<u8>, OcspResponse)>, String> {
    let Some(leaf) = chain.first() else { return Ok(None) };
    let (Some(issuer), Ok(responder)) = (staples.issuer(chain), staples.responder(leaf)) else { return Ok(None) };
    let id = CertificateId::of(leaf, &issuer).ok_or("OCSP_cert_to_id() failed")?;
    let response = responder.ask(&id, resolving.as_ref()).await?;
    let signer = if staples.verify { Signer::Authorised } else { Signer::Any };
    let chain: Vec<Certificate> = chain.iter().chain(&staples.known).cloned().collect();
    let answer = check(&response, &id, &issuer, &chain, signer, clock::unix_seconds())?;
    if answer.status != Status::Good {
        let status = if answer.status == Status::Revoked { "revoked" } else { "unknown" };
        return Err(format!("certificate status \"{status}\" in the OCSP response"));
    }
    Ok(Some((response, answer)))
}
