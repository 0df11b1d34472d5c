//! `ssl_stapling`: answers about a server's own certificates are fetched on the control thread and sent with them (nginx:
//! `ngx_ssl_stapling`, which fetches when a client asks).

use super::asking::Responder;
use crate::shared::resolving::Resolving;
use base::clock;
use http_engine::plan::Background;
use http_engine::request::LocalFuture;
use http_engine::{HttpPlan, tls::ServerTls};
use observe::{ErrorLog, Level};
use std::any::Any;
use std::sync::{Arc, Weak};
use std::time::Duration;
use tls::certs::{CertificateSet, KeyPair};
use tls::ocsp::{CertificateId, Signer, Status, check};
use tls::verify::signed;
use tls::x509::{Certificate, name};

/// How long until an answer is fetched again: after a failure, and at most after success.
const RETRY: i64 = 300;
const REFRESH: i64 = 3600;

/// What one server asks; kept in its [`ServerTls`].
pub struct Staples {
    /// In place of what certificates say.
    pub responder: Option<Responder>,
    pub verify: bool,
    /// Certificates of `ssl_trusted_certificate` and `ssl_client_certificate`: the issuer may be among them.
    pub known: Vec<Certificate>,
}

impl Staples {
    /// The issuer of a leaf: from its chain, or from those that are known.
    pub fn issuer(&self, pair: &KeyPair) -> Option<Certificate> {
        let leaf = pair.leaf()?;
        let issued = |c: &&Certificate| {
            name::same(leaf.issuer(), c.subject())
                && signed(c.spki(), leaf.signature_algorithm(), leaf.tbs(), leaf.signature())
        };
        pair.chain.iter().skip(1).chain(&self.known).find(issued).cloned()
    }

    /// Whom to ask about a leaf.
    ///
    /// # Errors
    /// nginx's reason for not asking.
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

/// Fetches the answers of all servers, again and again.
pub struct Stapler;

/// A certificate whose answer is due at some time.
struct Due {
    server: usize,
    pair: usize,
    at: i64,
}

fn staples(tls: &ServerTls) -> Option<&Staples> {
    tls.extension.as_ref().and_then(|e: &Arc<dyn Any + Send + Sync>| e.downcast_ref())
}

impl Background for Stapler {
    fn run(self: Arc<Self>, plan: Weak<HttpPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut due = Vec::new();
            if let Some(plan) = plan.upgrade() {
                for (server, tls) in plan.servers.iter().enumerate().filter_map(|(i, s)| Some((i, s.tls.as_ref()?))) {
                    let (Some(_), Some(rules)) = (staples(tls), &tls.rules) else { continue };
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
                        + match fetch(&plan, one).await {
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

/// Fetches one answer and puts it where handshakes find it; when it ends.
async fn fetch(plan: &HttpPlan, due: &Due) -> Result<Option<i64>, String> {
    let server = plan.servers.get(due.server).ok_or("no server")?;
    let tls = server.tls.as_ref().ok_or("no TLS")?;
    let (staples, rules) = (staples(tls).ok_or("no stapling")?, tls.rules.as_ref().ok_or("no rules")?);
    let set = rules.certificates();
    let pair = set.pairs().get(due.pair).ok_or("no certificate")?;
    let leaf = pair.leaf().ok_or("no certificate")?;
    // Neither is worth a word each hour: the configuration's test has said it.
    let (Some(issuer), Ok(responder)) = (staples.issuer(pair), staples.responder(leaf)) else { return Ok(None) };
    let id = CertificateId::of(leaf, &issuer).ok_or("OCSP_cert_to_id() failed")?;
    let resolving = plan.locations.get(server.location).and_then(|l| l.thing::<Resolving>()).cloned();
    let response = responder.ask(&id, resolving.as_ref()).await?;
    let signer = if staples.verify { Signer::Authorised } else { Signer::Any };
    let chain: Vec<Certificate> = pair.chain.iter().chain(&staples.known).cloned().collect();
    let answer = check(&response, &id, &issuer, &chain, signer, clock::unix_seconds())?;
    if answer.status != Status::Good {
        return Err(format!("certificate status \"{:?}\" in the OCSP response", answer.status).to_lowercase());
    }
    // Another certificate of the set may have been given its answer meanwhile.
    let set = rules.certificates();
    let pairs = set.pairs().iter().enumerate();
    let stapled = pairs.map(|(i, p)| if i == due.pair { p.with_ocsp(Some(response.clone())) } else { p.clone() });
    rules.replace_certificates(CertificateSet::new(stapled.collect()));
    Ok(answer.next_update)
}
