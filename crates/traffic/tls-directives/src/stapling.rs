//! `ssl_stapling`: fetches OCSP responses on the control thread (nginx: `ngx_ssl_stapling` fetches on demand). `loaded.rs` has the
//! responses of certificates that are loaded per connection.

use super::ServerTls;
use super::asking::Responder;
use super::loaded::{self, CAME, LeafId, LoadedStaples};
use area::background::{Background, LocalFuture};
use base::clock;
use observe::{ErrorLog, Severity};
use resolver::ResolveRules;
use std::collections::VecDeque;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;
use tls::certs::{CertificateSet, KeyPair};
use tls::ocsp::{CertificateId, OcspResponse, Signer, Status, check_response};
use tls::verify::verify_signature;
use tls::x509::{Certificate, name};
use variables::AreaTypes;

/// Seconds until the next fetch after a failure, and at most after success.
const RETRY: i64 = 300;
const REFRESH: i64 = 3600;
/// Responses that are fetched at a time, in all and from one responder: one that hangs delays only the certificates that name it.
const FETCHES_MAX: usize = 64;
const FETCHES_OF_RESPONDER_MAX: usize = 8;

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
            name::same_name(leaf.issuer(), c.subject())
                && verify_signature(c.spki(), leaf.signature_algorithm(), leaf.tbs(), leaf.signature())
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
pub trait StapleOwner: Send + Sync + 'static {
    type Area: AreaTypes;
    fn servers(&self) -> usize;
    fn tls(&self, server: usize) -> Option<&ServerTls<Self::Area>>;
    fn resolving(&self, server: usize) -> Option<ResolveRules>;
}

pub struct Stapler<P>(PhantomData<fn(P)>);

impl<P> Default for Stapler<P> {
    fn default() -> Self {
        Stapler(PhantomData)
    }
}

/// A configured certificate, by the numbers of its server and of its pair.
struct StapleSettings {
    server: usize,
    pair: usize,
    /// Seconds since 1970: the next fetch, and the end of the response; `i64::MAX`: none.
    at: i64,
    end: i64,
}

/// A certificate whose response is due.
struct Due {
    server: usize,
    subject: StapleSubject,
    chain: Arc<Vec<Certificate>>,
    /// Host and port of the responder.
    host: String,
}

#[derive(Clone, Copy)]
enum StapleSubject {
    /// Index of [`Fetches::configured`].
    Configured(usize),
    Loaded(LeafId),
}

type FetchedResponse = Result<Option<(Vec<u8>, OcspResponse)>, String>;

/// The certificates of a plan, those that are due, and the fetches under way.
struct Fetches {
    configured: Vec<StapleSettings>,
    /// The plan has certificates that are loaded per connection.
    loads: bool,
    /// Seconds since 1970: the time of the next fetch that is neither queued nor under way.
    next: i64,
    queue: VecDeque<Due>,
    running: Vec<(Due, LocalFuture<FetchedResponse>)>,
}

impl<P: StapleOwner> Background<P> for Stapler<P> {
    fn run(self: Arc<Self>, plan: Weak<P>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut fetches = Fetches::of(plan.upgrade().as_deref());
            let mut changed = true;
            while fetches.loads || !fetches.configured.is_empty() {
                let mut came = pin!(CAME.notified());
                // Before the look at the certificates, so that none is missed.
                came.as_mut().enable();
                clock::update();
                let now = clock::unix_seconds();
                let Some(present) = plan.upgrade() else { return };
                let until_end = fetches.remove_ended(&*present, now);
                if changed || fetches.next <= now {
                    fetches.collect(&*present, now);
                }
                fetches.start(&present);
                drop(present);
                let wait = Duration::from_secs(
                    fetches.next.min(until_end).saturating_sub(now).clamp(1, REFRESH).unsigned_abs(),
                );
                let woken = runtime::time::with_timeout(wait, async {
                    tokio::select! {
                        biased;
                        ended = std::future::poll_fn(|cx| fetches.poll_ended(cx)) => Some(ended),
                        () = came => None,
                    }
                });
                changed = false;
                match woken.await {
                    Ok(Some((due, fetched))) => {
                        let Some(present) = plan.upgrade() else { return };
                        fetches.ended(&*present, &due, fetched, &log);
                    }
                    Ok(None) => changed = true,
                    Err(_) => {}
                }
            }
        })
    }
}

fn after(answer: &OcspResponse, now: i64) -> i64 {
    now + answer.next_update.map_or(REFRESH, |end| (end - RETRY - now).clamp(RETRY, REFRESH))
}

fn complain(log: &ErrorLog, why: &str) {
    log.log(Severity::Error, 0, format_args!("OCSP stapling: {why}"));
}

/// Sets or removes the response of a configured certificate.
fn install<P: StapleOwner>(plan: &P, of: &StapleSettings, response: Option<Vec<u8>>) {
    let Some(rules) = plan.tls(of.server).and_then(|tls| tls.rules.as_ref()) else { return };
    let set = rules.certificates();
    let pairs = set.pairs().iter().enumerate();
    let stapled = pairs.map(|(i, p)| if i == of.pair { p.with_ocsp(response.clone()) } else { p.clone() });
    rules.replace_certificates(CertificateSet::new(stapled.collect()));
}

impl Fetches {
    fn of<P: StapleOwner>(plan: Option<&P>) -> Fetches {
        let (mut configured, mut loads) = (Vec::new(), false);
        for (server, tls) in plan.iter().flat_map(|plan| (0..plan.servers()).filter_map(|i| Some((i, plan.tls(i)?)))) {
            let (Some(_), Some(rules)) = (&tls.staples, &tls.rules) else { continue };
            loads |= tls.certificates.is_some();
            let pairs = 0..rules.certificates().pairs().len();
            configured.extend(pairs.map(|pair| StapleSettings { server, pair, at: 0, end: i64::MAX }));
        }
        Fetches { configured, loads, next: 0, queue: VecDeque::new(), running: Vec::new() }
    }

    /// Removes the responses that have ended, as nginx, which sends none of them: their fetches may be late. Returns the time of
    /// the next end.
    fn remove_ended<P: StapleOwner>(&mut self, plan: &P, now: i64) -> i64 {
        for one in self.configured.iter_mut().filter(|one| one.end <= now) {
            one.end = i64::MAX;
            install(plan, one, None);
        }
        self.configured.iter().map(|one| one.end).min().unwrap_or(i64::MAX)
    }

    /// Queues the certificates whose time of a fetch has come.
    fn collect<P: StapleOwner>(&mut self, plan: &P, now: i64) {
        let host = |staples: &Staples, chain: &[Certificate]| {
            let responder = chain.first().and_then(|leaf| staples.responder(leaf).ok());
            responder.map(|responder| responder.host().to_string()).unwrap_or_default()
        };
        for (index, one) in self.configured.iter_mut().enumerate().filter(|(_, one)| one.at <= now) {
            one.at = i64::MAX;
            let Some(tls) = plan.tls(one.server) else { continue };
            let (Some(staples), Some(rules)) = (&tls.staples, &tls.rules) else { continue };
            let set = rules.certificates();
            let Some(pair) = set.pairs().get(one.pair) else { continue };
            let (chain, host) = (Arc::clone(&pair.chain), host(staples, &pair.chain));
            self.queue.push_back(Due { server: one.server, subject: StapleSubject::Configured(index), chain, host });
        }
        let mut next = self.configured.iter().map(|one| one.at).min().unwrap_or(i64::MAX);
        for server in 0..plan.servers() {
            let Some(staples) = plan.tls(server).and_then(|tls| tls.staples.as_ref()) else { continue };
            for (id, chain) in staples.loaded.take_due(now) {
                let host = host(staples, &chain);
                self.queue.push_back(Due { server, subject: StapleSubject::Loaded(id), chain, host });
            }
            next = next.min(staples.loaded.next().unwrap_or(i64::MAX));
        }
        self.next = next;
    }

    /// Starts fetches within the limits.
    fn start<P: StapleOwner>(&mut self, plan: &Arc<P>) {
        let mut at = 0;
        while let Some(due) = self.queue.get(at).filter(|_| self.running.len() < FETCHES_MAX) {
            if self.running.iter().filter(|(other, _)| other.host == due.host).count() >= FETCHES_OF_RESPONDER_MAX {
                at += 1;
                continue;
            }
            let Some(due) = self.queue.remove(at) else { return };
            let (plan, server, chain) = (Arc::clone(plan), due.server, Arc::clone(&due.chain));
            let fetch = Box::pin(async move {
                let Some(staples) = plan.tls(server).and_then(|tls| tls.staples.as_ref()) else { return Ok(None) };
                fetch(staples, &chain, plan.resolving(server)).await
            });
            self.running.push((due, fetch));
        }
    }

    fn poll_ended(&mut self, cx: &mut Context<'_>) -> Poll<(Due, FetchedResponse)> {
        for at in 0..self.running.len() {
            let Some((_, fetch)) = self.running.get_mut(at) else { continue };
            if let Poll::Ready(fetched) = fetch.as_mut().poll(cx) {
                return Poll::Ready((self.running.swap_remove(at).0, fetched));
            }
        }
        Poll::Pending
    }

    /// Uses a response, and plans the next fetch.
    fn ended<P: StapleOwner>(&mut self, plan: &P, due: &Due, fetched: FetchedResponse, log: &ErrorLog) {
        clock::update();
        let now = clock::unix_seconds();
        let at = match &fetched {
            Ok(None) => i64::MAX,
            Ok(Some((_, answer))) => after(answer, now),
            Err(why) => {
                complain(log, why);
                now + RETRY
            }
        };
        let response = fetched.ok().flatten().map(|(octets, answer)| (octets, answer.next_update.unwrap_or(i64::MAX)));
        self.next = self.next.min(at);
        match due.subject {
            StapleSubject::Configured(index) => {
                let Some(one) = self.configured.get_mut(index) else { return };
                one.at = at;
                if let Some((octets, end)) = response {
                    one.end = end;
                    install(plan, one, Some(octets));
                }
            }
            StapleSubject::Loaded(id) => {
                let Some(staples) = plan.tls(due.server).and_then(|tls| tls.staples.as_ref()) else { return };
                match response {
                    Some((octets, end)) => staples.loaded.put(&id, octets, end, at),
                    None => staples.loaded.postpone(&id, at),
                }
            }
        }
    }
}

/// Fetches a response; `None`: the certificate has no issuer or responder, as the configuration's test has told.
async fn fetch(staples: &Staples, chain: &[Certificate], resolving: Option<ResolveRules>) -> FetchedResponse {
    let Some(leaf) = chain.first() else { return Ok(None) };
    let (Some(issuer), Ok(responder)) = (staples.issuer(chain), staples.responder(leaf)) else { return Ok(None) };
    let id = CertificateId::of(leaf, &issuer).ok_or("OCSP_cert_to_id() failed")?;
    let response = responder.ask(&id, resolving.as_ref()).await?;
    let signer = if staples.verify { Signer::Authorised } else { Signer::Any };
    let chain: Vec<Certificate> = chain.iter().chain(&staples.known).cloned().collect();
    let answer = check_response(&response, &id, &issuer, &chain, signer, clock::unix_seconds())?;
    if answer.status != Status::Good {
        let status = if answer.status == Status::Revoked { "revoked" } else { "unknown" };
        return Err(format!("certificate status \"{status}\" in the OCSP response"));
    }
    Ok(Some((response, answer)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tls::{ServerRules, ServerSettings, VerifyClient};
    use variables::testing::TestArea;

    struct TestPlan(Vec<ServerTls<TestArea>>);

    impl StapleOwner for TestPlan {
        type Area = TestArea;
        fn servers(&self) -> usize {
            self.0.len()
        }
        fn tls(&self, server: usize) -> Option<&ServerTls<TestArea>> {
            self.0.get(server)
        }
        fn resolving(&self, _: usize) -> Option<ResolveRules> {
            None
        }
    }

    /// A plan of servers with certificates of these responders.
    fn plan(responders: &[&str]) -> Arc<TestPlan> {
        let made = rcgen::generate_simple_self_signed(["a.test".to_string()]).expect("made");
        let pair = KeyPair::load(made.cert.pem().as_bytes(), made.signing_key.serialize_pem().as_bytes(), &[]);
        let pair = pair.expect("a pair");
        let server = |responder: &&str| {
            let settings = ServerSettings { certificates: vec![pair.clone()], ..ServerSettings::default() };
            let rules = ServerRules::build(&settings, &crate::wall_clock(), &mut Vec::new()).expect("rules");
            let staples = Staples {
                responder: Some(Responder::parse(responder).expect("a URL")),
                verify: false,
                known: pair.chain.to_vec(),
                loaded: LoadedStaples::default(),
            };
            ServerTls {
                verify: VerifyClient::Off,
                rules: Some(rules),
                names: Vec::new(),
                staples: Some(staples),
                certificates: None,
            }
        };
        Arc::new(TestPlan(responders.iter().map(server).collect()))
    }

    fn shown(plan: &TestPlan) -> Option<Vec<u8>> {
        let set = plan.tls(0)?.rules.as_ref()?.certificates();
        set.pairs().first()?.ocsp().map(<[u8]>::to_vec)
    }

    #[test]
    fn responses_of_configured_certificates_end() {
        let (plan, log) = (plan(&["http://127.0.0.1:1/"]), ErrorLog::new(Vec::new()));
        clock::update();
        let now = clock::unix_seconds();
        let mut fetches = Fetches::of(Some(&*plan));
        fetches.collect(&*plan, now);
        let due = fetches.queue.pop_front().expect("due");
        let answer = OcspResponse { status: Status::Good, next_update: Some(now + 60) };
        fetches.ended(&*plan, &due, Ok(Some((vec![1], answer))), &log);
        assert_eq!((fetches.remove_ended(&*plan, now + 59), shown(&plan)), (now + 60, Some(vec![1])));
        // A failed fetch leaves the response to its end, a late one too.
        fetches.ended(&*plan, &due, Err("no answer".into()), &log);
        assert_eq!((shown(&plan), fetches.configured[0].at), (Some(vec![1]), now + RETRY));
        assert_eq!((fetches.remove_ended(&*plan, now + 60), shown(&plan)), (i64::MAX, None));
    }
}
