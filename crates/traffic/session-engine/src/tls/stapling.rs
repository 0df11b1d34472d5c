//! `ssl_stapling`: fetches OCSP responses on the control thread (nginx: `ngx_ssl_stapling` fetches on demand).

use super::ServerTls;
use super::asking::Responder;
use crate::Session;
use crate::background::{Background, LocalFuture};
use crate::upstreams::Resolving;
use base::clock;
use observe::{ErrorLog, Level};
use std::marker::PhantomData;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tls::certs::{CertificateSet, KeyPair};
use tls::ocsp::{CertificateId, Signer, Status, check};
use tls::verify::signed;
use tls::x509::{Certificate, name};

/// Seconds until the next fetch after a failure, and at most after success.
const RETRY: i64 = 300;
const REFRESH: i64 = 3600;

/// Stapling of a server.
pub struct Staples {
    /// Replaces the certificates' responders.
    pub responder: Option<Responder>,
    pub verify: bool,
    /// Possible issuers: `ssl_trusted_certificate` and `ssl_client_certificate`.
    pub known: Vec<Certificate>,
}

impl Staples {
    /// Issuer of a leaf, from its chain or the known ones.
    pub fn issuer(&self, pair: &KeyPair) -> Option<Certificate> {
        let leaf = pair.leaf()?;
        let issued = |c: &&Certificate| {
            name::same(leaf.issuer(), c.subject())
                && signed(c.spki(), leaf.signature_algorithm(), leaf.tbs(), leaf.signature())
        };
        pair.chain.iter().skip(1).chain(&self.known).find(issued).cloned()
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

/// Repeatedly fetches the responses of a plan's servers.
pub struct Stapler<P>(PhantomData<fn(P)>);

impl<P> Default for Stapler<P> {
    fn default() -> Self {
        Stapler(PhantomData)
    }
}

/// A certificate with the due time of its response.
struct Due {
    server: usize,
    pair: usize,
    at: i64,
}

impl<P: Certified> Background<P> for Stapler<P> {
    fn run(self: Arc<Self>, plan: Weak<P>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut due = Vec::new();
            if let Some(plan) = plan.upgrade() {
                for (server, tls) in (0..plan.servers()).filter_map(|i| Some((i, plan.tls(i)?))) {
                    let (Some(_), Some(rules)) = (&tls.staples, &tls.rules) else { continue };
                    due.extend((0..rules.certificates().pairs().len()).map(|pair| Due { server, pair, at: 0 }));
                }
            }
            loop {
                for one in &mut due {
                    if one.at > clock::unix_seconds() {
                        continue;
                    }
                    let Some(plan) = plan.upgrade() else { return };
                    let now = clock::unix_seconds();
                    one.at = now
                        + match fetch(&*plan, one).await {
                            Ok(end) => end.map_or(REFRESH, |end| (end - RETRY - now).clamp(RETRY, REFRESH)),
                            Err(why) => {
                                log.log(Level::Error, 0, format_args!("OCSP stapling: {why}"));
                                RETRY
                            }
                        };
                }
                let Some(next) = due.iter().map(|one| one.at).min() else { return };
                let wait = u64::try_from(next - clock::unix_seconds()).unwrap_or(0).max(1);
                runtime::time::sleep(Duration::from_secs(wait)).await;
                clock::update();
            }
        })
    }
}

/// Fetches and installs a response; returns its expiry.
async fn fetch<P: Certified>(plan: &P, due: &Due) -> Result<Option<i64>, String> {
    let tls = plan.tls(due.server).ok_or("no TLS")?;
    let (staples, rules) = (tls.staples.as_ref().ok_or("no stapling")?, tls.rules.as_ref().ok_or("no rules")?);
    let set = rules.certificates();
    let pair = set.pairs().get(due.pair).ok_or("no certificate")?;
    let leaf = pair.leaf().ok_or("no certificate")?;
    // Reported by the configuration's test already.
    let (Some(issuer), Ok(responder)) = (staples.issuer(pair), staples.responder(leaf)) else { return Ok(None) };
    let id = CertificateId::of(leaf, &issuer).ok_or("OCSP_cert_to_id() failed")?;
    let resolving = plan.resolving(due.server);
    let response = responder.ask(&id, resolving.as_ref()).await?;
    let signer = if staples.verify { Signer::Authorised } else { Signer::Any };
    let chain: Vec<Certificate> = pair.chain.iter().chain(&staples.known).cloned().collect();
    let answer = check(&response, &id, &issuer, &chain, signer, clock::unix_seconds())?;
    if answer.status != Status::Good {
        return Err(format!("certificate status \"{:?}\" in the OCSP response", answer.status).to_lowercase());
    }
    // Another certificate of the set may have changed meanwhile.
    let set = rules.certificates();
    let pairs = set.pairs().iter().enumerate();
    let stapled = pairs.map(|(i, p)| if i == due.pair { p.with_ocsp(Some(response.clone())) } else { p.clone() });
    rules.replace_certificates(CertificateSet::new(stapled.collect()));
    Ok(answer.next_update)
}
