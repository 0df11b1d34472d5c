//! `acme_on_demand`: certificates for names that clients send (SNI) and the configuration does not have.
//!
//! A handshake looks its name up in a table. An unknown name enters a bounded queue, and the handshake waits in its
//! connection's entry; the control thread asks the operator's URL about the name, orders, and ends the wait.

use super::certificates::Certificate;
use super::issuer::Issuer;
use super::order::OrderedCertificate;
use acme::{Algorithm, Identifier, LocalAuthority};
use area::bucket::Rate;
use base::clock;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_client::{Client, Request, Settings, Url};
use http_engine::handler::CertificateResult;
use http_engine::plan::Location;
use resolver::ResolveRules;
use std::collections::{HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError, RwLock, Weak};
use std::time::Duration;
use tls::{ClientHello, ClientRules, ClientSettings, Wait};
use tls_directives::authorities;

/// Names in the queue; further handshakes fail.
const QUEUE_MAX: usize = 256;
/// Handshakes that wait for a name; further ones fail.
const WAITS_MAX: usize = 256;
/// Names that a table may have beyond the maximum of certificates (`max`). Refused and failed names without an order
/// are forgotten to make room.
const REFUSED_MAX: usize = 10_000;
/// Certificates of a server: by default, and at most.
const NAMES: usize = 1000;
const NAMES_MAX: usize = 1_000_000;
/// Orders: by default ten in a minute.
const RATE: Rate = Rate(10_000 / 60);
/// Seconds for which a refusal and a failure are remembered. A permission lasts as long as the certificate.
pub const REFUSED: i64 = 60;
pub const FAILED: i64 = 5;
/// Time for an answer of the operator's URL, and its length.
const ASK: Duration = Duration::from_secs(10);
const ANSWER_BYTES_MAX: usize = 64 * 1024;

/// The directive as written.
#[derive(Clone)]
pub struct DemandLine {
    pub issuer: String,
    ask: Url,
    rules: Option<Arc<ClientRules>>,
    rate: Rate,
    max: usize,
    key: Algorithm,
    /// `FILE:LINE` of the directive.
    place: String,
}

impl ValueKind for DemandLine {
    const SYNTAX: &'static str = "issuer ask=url [rate=rate] [max=number] [key=alg[:size]]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut ask, mut rate, mut max, mut key) = (None, RATE, NAMES, Algorithm::default());
        let mut issuer = String::new();
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            if index == 0 {
                issuer = text.into_owned();
                continue;
            }
            let wrong = || Problem::says(format!("invalid parameter \"{text}\"")).at(index);
            match text.split_once('=').ok_or_else(wrong)? {
                ("ask", url) => {
                    ask = Some(Url::parse(url).map_err(|why| Problem::says(format!("{why} in \"{url}\"")).at(index))?);
                }
                ("rate", text) => rate = Rate::parse(text).ok_or_else(|| wrong().hint("write a rate such as 10r/m"))?,
                ("max", text) => {
                    let number = text.parse().ok().filter(|number| (1..=NAMES_MAX).contains(number));
                    max = number.ok_or_else(wrong)?;
                }
                ("key", text) => {
                    let parsed = Algorithm::parse(text).unwrap_or_else(|| Err(format!("unsupported key \"{text}\"")));
                    key = parsed.map_err(|why| Problem::says(why).at(index))?;
                }
                _ => return Err(wrong()),
            }
        }
        let Some(ask) = ask else {
            let hint = "without \"ask\", strangers could order certificates for any name";
            return Err(Problem::directive("must have \"ask\" parameter").hint(hint));
        };
        let rules = match ask.tls {
            false => None,
            true => {
                let trusted = authorities::trusted_certificates(cx, None, "acme_on_demand")?;
                let settings = ClientSettings {
                    prefix: "ssl",
                    verify: true,
                    verify_depth: 10,
                    trusted,
                    ..ClientSettings::default()
                };
                let rules = ClientRules::build(&settings, &tls_directives::wall_clock(), &mut Vec::new());
                Some(rules.map_err(Problem::says)?)
            }
        };
        Ok(DemandLine { issuer, ask, rules, rate, max, key, place: cx.place() })
    }
}

/// The names of one issuer that servers get on demand; kept with each of these servers.
pub struct OnDemand {
    /// In the order in which they are tried.
    pub issuers: Vec<Arc<Issuer>>,
    pub resolving: Option<ResolveRules>,
    pub key: Algorithm,
    pub rate: Rate,
    pub max: usize,
    /// `FILE:LINE` of the directive.
    pub place: String,
    ask: Url,
    rules: Option<Arc<ClientRules>>,
    /// Servers with equal issuer and kind of key share their certificates.
    id: Arc<str>,
}

impl DemandLine {
    /// Joins the line with its issuers.
    pub fn bind(&self, issuers: Vec<Arc<Issuer>>, resolving: Option<ResolveRules>) -> OnDemand {
        let id = issuers.first().map(|first| format!("{} {} {}", first.name, first.source, self.key));
        OnDemand {
            issuers,
            resolving,
            key: self.key,
            rate: self.rate,
            max: self.max,
            place: self.place.clone(),
            ask: self.ask.clone(),
            rules: self.rules.clone(),
            id: id.unwrap_or_default().into(),
        }
    }
}

/// A decision about a name, for some seconds of the steady clock.
#[derive(Clone, Copy, PartialEq, Eq)]
enum NameVerdict {
    /// A handshake requested the name; the control thread decides.
    Asked,
    Serving,
    Refused(i64),
    Failed(i64),
}

struct DemandQueue {
    verdict: NameVerdict,
    waits: Vec<Weak<Wait>>,
}

/// A name of the table.
pub struct DemandName {
    pub certificate: Arc<Certificate>,
    /// Steady seconds of the last handshake, and of the last issue by this process.
    used: AtomicI64,
    issued: AtomicI64,
    state: Mutex<DemandQueue>,
}

impl DemandName {
    /// Ends the wait of all handshakes with a decision.
    fn decide(&self, verdict: NameVerdict) {
        let waits = {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            state.verdict = verdict;
            std::mem::take(&mut state.waits)
        };
        waits.iter().filter_map(Weak::upgrade).for_each(|wait| wait.end());
    }
    pub fn serve(&self) {
        self.decide(NameVerdict::Serving);
    }
    /// Refuses handshakes for some seconds.
    pub fn refuse(&self, seconds: i64) {
        self.decide(NameVerdict::Refused(steady_seconds().saturating_add(seconds)));
    }
    /// Refuses handshakes that wait for a decision which does not come.
    pub fn refuse_if_asked(&self, seconds: i64) {
        let is_asked = {
            let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            !matches!(state.verdict, NameVerdict::Refused(_) | NameVerdict::Failed(_))
        };
        if is_asked {
            self.refuse(seconds);
        }
    }
    /// Lets handshakes fail for some seconds.
    pub fn fail(&self, seconds: i64) {
        self.decide(NameVerdict::Failed(steady_seconds().saturating_add(seconds)));
    }
    pub fn note_issue(&self) {
        self.issued.store(steady_seconds(), Ordering::Relaxed);
    }
    pub fn issued(&self) -> i64 {
        self.issued.load(Ordering::Relaxed)
    }
    pub fn used(&self) -> i64 {
        self.used.load(Ordering::Relaxed)
    }
    /// Tells whether the certificate exists and has not ended.
    pub fn is_valid(&self) -> bool {
        self.certificate.leaf().is_some_and(|leaf| leaf.not_after > clock::unix_seconds())
    }
    /// Tells whether the table may forget the name: it is refused, and the scheduler has no orders for it. Their certificates
    /// would reach this name only, and a new one in its place would be asked about forever.
    fn is_forgettable(self: &Arc<Self>) -> bool {
        let state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        matches!(state.verdict, NameVerdict::Refused(_) | NameVerdict::Failed(_)) && Arc::strong_count(self) == 1
    }
}

/// The names of one [`OnDemand::id`]. Each has limits of its own.
type NameTable = HashMap<String, Arc<DemandName>>;

static NAMES_OF_ALL: LazyLock<RwLock<HashMap<Arc<str>, NameTable>>> = LazyLock::new(RwLock::default);
static QUEUE: Mutex<VecDeque<HandshakeName>> = Mutex::new(VecDeque::new());
static CAME: LazyLock<tokio::sync::Notify> = LazyLock::new(tokio::sync::Notify::new);

/// A name requested by a handshake.
pub struct HandshakeName {
    pub demand: Arc<OnDemand>,
    pub text: String,
    pub name: Arc<DemandName>,
}

/// Returns the seconds of a clock that is never set.
pub fn steady_seconds() -> i64 {
    i64::try_from(clock::now().0 / 1_000_000).unwrap_or(i64::MAX)
}

/// Waits until a name is in the queue.
pub async fn await_name() {
    CAME.notified().await;
}

/// Takes the next name of the queue that was not forgotten meanwhile.
pub fn take_name() -> Option<HandshakeName> {
    loop {
        let asked = QUEUE.lock().unwrap_or_else(PoisonError::into_inner).pop_front()?;
        if find(&asked.demand, &asked.text).is_some_and(|name| Arc::ptr_eq(&name, &asked.name)) {
            return Some(asked);
        }
    }
}

/// A name on demand of a configuration, which may have a certificate.
pub struct DemandCertificate {
    pub demand: Arc<OnDemand>,
    pub text: String,
    pub name: Arc<DemandName>,
}

/// Forgets the names that no configuration has, and those whose question was interrupted by a reload. Returns the
/// others, all of which have certificates. A name that a handshake enters afterwards is not among them: its URL has to
/// permit it first.
pub fn forget_unused(demands: &[Arc<OnDemand>]) -> Vec<DemandCertificate> {
    QUEUE.lock().unwrap_or_else(PoisonError::into_inner).clear();
    let mut kept = Vec::new();
    let mut all = NAMES_OF_ALL.write().unwrap_or_else(PoisonError::into_inner);
    all.retain(|id, names| {
        let demand = demands.iter().find(|demand| demand.id == *id);
        names.retain(|text, name| match demand.filter(|_| name.is_valid()) {
            Some(demand) => {
                kept.push(DemandCertificate { demand: Arc::clone(demand), text: text.clone(), name: Arc::clone(name) });
                true
            }
            None => {
                // A waiting handshake asks again.
                name.fail(0);
                false
            }
        });
        !names.is_empty()
    });
    kept
}

pub fn forget_name(demand: &OnDemand, text: &str) {
    let mut all = NAMES_OF_ALL.write().unwrap_or_else(PoisonError::into_inner);
    if let Some(names) = all.get_mut(&demand.id) {
        names.remove(text);
    }
}

fn find(demand: &OnDemand, text: &str) -> Option<Arc<DemandName>> {
    NAMES_OF_ALL.read().unwrap_or_else(PoisonError::into_inner).get(&demand.id)?.get(text).cloned()
}

impl OnDemand {
    pub fn id(&self) -> &Arc<str> {
        &self.id
    }

    /// Folder of the certificates, beside those of the configuration.
    pub fn folder(&self) -> Option<PathBuf> {
        self.issuers.first()?.state_path.as_ref().map(|path| path.join("on-demand"))
    }

    /// Asks the operator's URL about a name. `Err`: no answer.
    pub async fn ask(&self, name: &str) -> Result<bool, String> {
        let mut url = self.ask.clone();
        let joint = if url.target.contains('?') { '&' } else { '?' };
        url.target = format!("{}{joint}domain={name}", url.target);
        let mut settings = Settings {
            resolver: self.resolving.clone().map(|ResolveRules { resolver, timeout }| (resolver, timeout)),
            rules: self.rules.clone(),
            connect: ASK,
            total: ASK,
            ..Settings::default()
        };
        settings.limits.body = ANSWER_BYTES_MAX;
        let answer = Client::new(settings).ask(&Request::new("GET", url)).await.map_err(|why| why.to_string())?;
        match answer.status() {
            200..300 => Ok(true),
            500.. => Err(format!("status {}", answer.status())),
            _ => Ok(false),
        }
    }

    /// Tells whether a name can have a certificate by the issuers at all.
    fn takes(&self, name: &str) -> bool {
        let Some(Identifier::Dns(name)) = Identifier::parse(name) else { return false };
        let plain = name.bytes().all(|c| c.is_ascii_alphanumeric() || b"-.".contains(&c));
        let identifier = Identifier::Dns(name.clone());
        let is_local = LocalAuthority::permits(&identifier);
        plain && (name.contains('.') || is_local) && self.issuers.iter().all(|issuer| is_local || !issuer.is_local())
    }
}

/// Decides about a handshake with a server: `None` if its certificate is not gotten on demand.
pub fn decide_handshake(location: &Location, hello: &ClientHello) -> Option<CertificateResult> {
    let demand = location.ext::<Arc<OnDemand>>()?;
    let sent = hello.server_name.as_deref()?;
    let text = sent.strip_suffix('.').unwrap_or(sent).to_ascii_lowercase();
    if location.ext::<OrderedCertificate>().is_some_and(|ordered| ordered.covers(&text)) {
        return None;
    }
    Some(decide(demand, text))
}

/// Decides about a handshake with a name in lower case.
fn decide(demand: &Arc<OnDemand>, text: String) -> CertificateResult {
    let name = match find(demand, &text) {
        Some(name) => name,
        None if !demand.takes(&text) => return CertificateResult::Refused,
        None => match enter(demand, &text) {
            Some(name) => name,
            None => return CertificateResult::Failed,
        },
    };
    let now = steady_seconds();
    name.used.store(now, Ordering::Relaxed);
    let mut state = name.state.lock().unwrap_or_else(PoisonError::into_inner);
    let is_new = match state.verdict {
        NameVerdict::Serving => match name.certificate.set_of_handshake().filter(|_| name.is_valid()) {
            Some(set) => return CertificateResult::Known(set),
            None => true,
        },
        NameVerdict::Refused(until) if until > now => return CertificateResult::Refused,
        NameVerdict::Failed(until) if until > now => return CertificateResult::Failed,
        NameVerdict::Refused(_) | NameVerdict::Failed(_) => true,
        NameVerdict::Asked => false,
    };
    state.waits.retain(|wait| wait.strong_count() > 0);
    if state.waits.len() >= WAITS_MAX {
        return CertificateResult::Failed;
    }
    let wait = Arc::new(Wait::default());
    if is_new {
        let mut queue = QUEUE.lock().unwrap_or_else(PoisonError::into_inner);
        if queue.len() >= QUEUE_MAX {
            state.verdict = NameVerdict::Failed(now);
            return CertificateResult::Failed;
        }
        queue.push_back(HandshakeName { demand: Arc::clone(demand), text, name: Arc::clone(&name) });
        drop(queue);
        state.verdict = NameVerdict::Asked;
        CAME.notify_one();
    }
    state.waits.push(Arc::downgrade(&wait));
    CertificateResult::Wait(wait)
}

/// Adds a name to the table; `None`: it is full.
fn enter(demand: &OnDemand, text: &str) -> Option<Arc<DemandName>> {
    let mut all = NAMES_OF_ALL.write().unwrap_or_else(PoisonError::into_inner);
    let names = all.entry(Arc::clone(&demand.id)).or_default();
    if let Some(known) = names.get(text) {
        return Some(Arc::clone(known));
    }
    let most = demand.max.saturating_add(REFUSED_MAX);
    if names.len() >= most {
        names.retain(|_, name| !name.is_forgettable());
    }
    if names.len() >= most {
        return None;
    }
    let name = Arc::new(DemandName {
        certificate: Arc::default(),
        used: AtomicI64::new(steady_seconds()),
        issued: AtomicI64::new(0),
        state: Mutex::new(DemandQueue { verdict: NameVerdict::Failed(i64::MIN), waits: Vec::new() }),
    });
    names.insert(text.to_string(), Arc::clone(&name));
    Some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(id: &str, max: usize) -> Arc<OnDemand> {
        let ask = Url::parse("http://127.0.0.1:1/").expect("a URL");
        let (issuers, id, key) = (Vec::new(), id.into(), Algorithm::default());
        Arc::new(OnDemand {
            issuers,
            resolving: None,
            key,
            rate: RATE,
            max,
            place: String::new(),
            ask,
            rules: None,
            id,
        })
    }

    fn wait_of(certifying: CertificateResult) -> Arc<Wait> {
        match certifying {
            CertificateResult::Wait(wait) => wait,
            _ => panic!("no wait"),
        }
    }

    /// One test, because the table and the queue are those of the process.
    #[test]
    fn strangers_meet_limits() {
        clock::update();
        let one = demand("one", 10);
        let ask = |name: &str| decide(&one, name.to_string());
        // Handshakes of a name. Those that have gone make room.
        let mut waits: Vec<Arc<Wait>> = (0..WAITS_MAX).map(|_| wait_of(ask("a.test"))).collect();
        assert!(matches!(ask("a.test"), CertificateResult::Failed));
        waits.pop();
        waits.push(wait_of(ask("a.test")));
        assert!(matches!(ask("a.test"), CertificateResult::Failed));
        // Names in the queue, in which a name is once.
        for n in 1..QUEUE_MAX {
            waits.push(wait_of(ask(&format!("n{n}.test"))));
        }
        assert!(matches!(ask("late.test"), CertificateResult::Failed));
        let first = take_name().expect("a name");
        assert_eq!(first.text, "a.test");
        waits.push(wait_of(ask("late.test")));
        assert!(matches!(ask("later.test"), CertificateResult::Failed));
        // A decision ends all waits of its name at once.
        first.name.refuse(REFUSED);
        assert_eq!(waits.iter().filter(|wait| wait.is_over()).count(), WAITS_MAX);
        assert!(matches!(ask("a.test"), CertificateResult::Refused));
        while let Some(asked) = take_name() {
            asked.name.fail(FAILED);
        }
        assert!(waits.iter().all(|wait| wait.is_over()) && matches!(ask("n1.test"), CertificateResult::Failed));
        // Names without a certificate: refused ones are forgotten for new ones, those being asked about are not.
        forget_unused(&[]);
        let two = demand("two", 5);
        let enter_one = |n: usize| enter(&two, &format!("n{n}.test"));
        let most = REFUSED_MAX + two.max;
        for n in 0..most {
            enter_one(n).expect("room").state.lock().expect("not poisoned").verdict = NameVerdict::Asked;
        }
        assert!(enter_one(most).is_none());
        // A name with orders stays, whose certificates it serves.
        let with_orders = enter_one(1).expect("known");
        with_orders.fail(FAILED);
        assert!(enter_one(most).is_none());
        enter_one(0).expect("known").refuse(REFUSED);
        enter_one(most).expect("room").state.lock().expect("not poisoned").verdict = NameVerdict::Asked;
        assert!(Arc::ptr_eq(&with_orders, &enter_one(1).expect("known")));
        let entered = || NAMES_OF_ALL.read().expect("not poisoned").get(&two.id).map_or(0, HashMap::len);
        assert_eq!(entered(), most);
        // The names of another issuer, or with another kind of key, take no room.
        let three = demand("three", 5);
        assert!(enter(&three, "a.test").is_some() && enter_one(most + 1).is_none());
        // Names that wait for their URL's answer are not kept: they would be ordered without it.
        assert!(forget_unused(std::slice::from_ref(&two)).is_empty());
        assert_eq!(entered(), 0);
    }
}
