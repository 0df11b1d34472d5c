//! One issuer at work: its account, its sessions, or its local authority. On the control thread.

use super::challenges::ChallengePublisher;
use super::client;
use super::demand::steady_seconds;
use super::issuer::{Issuer, KeySource, SignerSource};
use super::renewal_info::RenewalAnswer;
use super::state::IssuerFolder;
use acme::{AccountKey, AcmeOrder, AcmeSession, Algorithm, Error, FailureCause, IssuedChain, LocalAuthority};
use base::clock;
use http_client::{Client, Settings, Url};
use http_engine::HttpPlan;
use observe::{ErrorLog, Severity};
use resolver::ResolveRules;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::Duration;

/// Seconds for a request.
const REQUEST_SECONDS: u64 = 60;
/// Seconds for an order, and for each of its identifiers in addition: an authority that is slow at each step does not hold the state's
/// lock, nor keep the next issuer from being tried.
const ORDER_SECONDS: u64 = 900;
const IDENTIFIER_SECONDS: u64 = 600;
/// Seconds for which a session is used: the server's directory may change.
const SESSION_SECONDS: i64 = 600;
/// Orders at a time, of each issuer.
pub const ORDERS_MAX: usize = 8;

/// Account keys that nothing stores, by issuer and server.
static KEYS: LazyLock<Mutex<HashMap<(String, String, Algorithm), Arc<AccountKey>>>> = LazyLock::new(Mutex::default);
/// Local authorities that nothing stores, by issuer.
static AUTHORITIES: LazyLock<Mutex<HashMap<String, Arc<LocalAuthority>>>> = LazyLock::new(Mutex::default);

thread_local! {
    /// Held while an account is opened, by the thumbprint of its key.
    static OPENING: RefCell<HashMap<String, Rc<tokio::sync::Mutex<()>>>> = RefCell::default();
}

/// Returns the lock of a key. Several issuers may share a key, and authorities fail if its account is registered twice at once.
fn opening_of(thumbprint: &str) -> Rc<tokio::sync::Mutex<()>> {
    OPENING.with_borrow_mut(|locks| {
        locks.retain(|_, lock| Rc::strong_count(lock) > 1);
        Rc::clone(locks.entry(thumbprint.to_string()).or_default())
    })
}

/// A failed order: the reason, and its cause.
pub struct OrderFailure {
    pub error: Error,
    pub cause: FailureCause,
}

impl From<Error> for OrderFailure {
    fn from(error: Error) -> OrderFailure {
        let cause = error.cause();
        OrderFailure { error, cause }
    }
}

/// See the module's documentation.
pub struct IssuerClient {
    pub issuer: Arc<Issuer>,
    /// Has the locations of hooks.
    plan: Weak<HttpPlan>,
    resolving: Option<ResolveRules>,
    folder: Option<IssuerFolder>,
    log: Arc<ErrorLog>,
    key: RefCell<Option<Arc<AccountKey>>>,
    account: RefCell<Option<String>>,
    /// Held while the key or the account is made: once for all orders.
    opening: tokio::sync::Mutex<()>,
    /// Idle sessions, each with the steady time of its beginning.
    idle: RefCell<Vec<(i64, AcmeSession)>>,
}

impl IssuerClient {
    pub fn new(
        issuer: Arc<Issuer>,
        plan: &Weak<HttpPlan>,
        resolving: Option<ResolveRules>,
        log: Arc<ErrorLog>,
    ) -> IssuerClient {
        IssuerClient {
            folder: issuer.state_path.clone().map(IssuerFolder),
            issuer,
            plan: plan.clone(),
            resolving,
            log,
            key: RefCell::default(),
            account: RefCell::default(),
            opening: tokio::sync::Mutex::new(()),
            idle: RefCell::default(),
        }
    }

    pub fn log(&self) -> &ErrorLog {
        &self.log
    }

    pub fn say(&self, level: Severity, words: std::fmt::Arguments<'_>) {
        self.log.log(level, 0, format_args!("acme issuer \"{}\": {words}", self.issuer.name));
    }

    /// Orders a certificate.
    pub async fn issue(&self, order: &AcmeOrder) -> Result<IssuedChain, OrderFailure> {
        let url = match &self.issuer.source {
            SignerSource::Server(url) => url.clone(),
            SignerSource::Local(life) => {
                let (issuer, folder) = (Arc::clone(&self.issuer), self.folder.clone());
                let (order, life) = (order.clone(), *life);
                let made = run_blocking(move || Ok(issue_locally(&issuer, folder.as_ref(), &order, life)));
                let made = made.await.map_err(|e| e.to_string()).and_then(|made| made);
                return made.map_err(|why| OrderFailure { error: Error::Local(why), cause: FailureCause::Task });
            }
        };
        let (since, mut session) = self.session(url).await?;
        let patience = self.issuer.dns.as_ref().map_or(Duration::ZERO, |records| records.patience());
        let each = Duration::from_secs(IDENTIFIER_SECONDS) + patience;
        let identifiers = u32::try_from(order.identifiers.len()).unwrap_or(u32::MAX);
        let limit = Duration::from_secs(ORDER_SECONDS) + each.saturating_mul(identifiers);
        match runtime::time::with_timeout(limit, self.issue_by(&mut session, order)).await {
            Ok(issued) => {
                self.keep(since, session);
                issued
            }
            Err(_) => Err(OrderFailure { error: Error::TimedOut("the order"), cause: FailureCause::Issuer }),
        }
    }

    fn keep(&self, since: i64, session: AcmeSession) {
        if self.idle.borrow().len() < ORDERS_MAX {
            self.idle.borrow_mut().push((since, session));
        }
    }

    async fn issue_by(&self, session: &mut AcmeSession, order: &AcmeOrder) -> Result<IssuedChain, OrderFailure> {
        let hook = self.plan.upgrade().and_then(|plan| client::issuer_hook(&plan, &self.issuer));
        let board = ChallengePublisher::new(&self.issuer, hook, Arc::clone(&self.log));
        let account = session.account().map(String::from);
        let lost = match session.order(order, &board).await {
            // The server has lost or deactivated the account.
            Err(why) if why.is_unknown_account() => account,
            done => return Ok(done?),
        };
        self.open(session, lost).await?;
        Ok(session.order(order, &board).await?)
    }

    /// Asks when the authority wants a certificate to be renewed.
    pub async fn window(&self, id: &str) -> RenewalAnswer {
        let SignerSource::Server(url) = &self.issuer.source else { return Ok(None) };
        let (since, mut session) = self.session(url.clone()).await.map_err(|failed| failed.error)?;
        let asked = session.renewal_window(id).await;
        self.keep(since, session);
        asked
    }

    /// Returns a session with an open account.
    async fn session(&self, url: Url) -> Result<(i64, AcmeSession), OrderFailure> {
        clock::update();
        let now = steady_seconds();
        self.idle.borrow_mut().retain(|(since, _)| now.saturating_sub(*since) < SESSION_SECONDS);
        if let Some(idle) = self.idle.borrow_mut().pop() {
            return Ok(idle);
        }
        let of_issuer = |why: String| OrderFailure {
            error: Error::Local(format!("no account key: {why}")),
            cause: FailureCause::Issuer,
        };
        let key = {
            let _one = self.opening.lock().await;
            self.account_key(&url).await.map_err(of_issuer)?
        };
        let mut session = AcmeSession::new(self.client(), url, key, self.account.borrow().clone());
        if session.account().is_none() {
            self.open(&mut session, None).await?;
        }
        Ok((now, session))
    }

    fn client(&self) -> Client {
        Client::new(Settings {
            resolver: self.resolving.clone().map(|ResolveRules { resolver, timeout }| (resolver, timeout)),
            rules: Some(Arc::clone(&self.issuer.rules)),
            total: Duration::from_secs(REQUEST_SECONDS),
            limits: self.issuer.limits,
            ..Settings::default()
        })
    }

    /// Opens the account, once for all orders that wait for it. `lost`: the URL that the server does not know.
    async fn open(&self, session: &mut AcmeSession, lost: Option<String>) -> Result<(), OrderFailure> {
        let _one = self.opening.lock().await;
        let known = self.account.borrow().clone();
        if known.is_some() && known != lost {
            session.use_account(known);
            return Ok(());
        }
        let thumbprint = self.key.borrow().as_ref().map(|key| key.thumbprint().to_string()).unwrap_or_default();
        let opening = opening_of(&thumbprint);
        let _same_key = opening.lock().await;
        match session.open_account(&self.issuer.account).await {
            Ok(new) => {
                let what = if new { "registered" } else { "found" };
                let url = session.account().unwrap_or_default().to_string();
                self.say(Severity::Info, format_args!("account \"{url}\" {what}"));
                *self.account.borrow_mut() = Some(url.clone());
                let account = format!("{url}\n{thumbprint}\n{}\n", self.issuer.source);
                if let Some(folder) = self.folder.clone()
                    && let Err(why) = run_blocking(move || folder.store_account(&account)).await
                {
                    self.say(Severity::Error, format_args!("the account's URL is not stored: {why}"));
                }
                Ok(())
            }
            Err(error) => {
                if let Some(terms) = session.terms().filter(|_| !self.issuer.account.agreed) {
                    let words = "the terms of service are not accepted (\"accept_terms_of_service\")";
                    self.say(Severity::Warn, format_args!("{words}: {terms}"));
                }
                let cause =
                    if error.cause() == FailureCause::Limits { FailureCause::Limits } else { FailureCause::Issuer };
                Err(OrderFailure { error, cause })
            }
        }
    }

    /// Returns the account's key: of the configuration, of an earlier configuration, stored, or new. The caller holds `opening`.
    async fn account_key(&self, url: &Url) -> Result<Arc<AccountKey>, String> {
        if let Some(key) = &*self.key.borrow() {
            return Ok(Arc::clone(key));
        }
        let key = match &self.issuer.key {
            KeySource::Loaded(key) => Arc::clone(key),
            KeySource::Generated(algorithm) => self.generated_key(url, *algorithm).await?,
        };
        if let Some(folder) = self.folder.clone() {
            let stored = run_blocking(move || Ok(folder.account())).await.map_err(|e| e.to_string())?;
            // Of another key or another server, the URL would be refused.
            let own = [key.thumbprint().to_string(), self.issuer.source.to_string()];
            let own = stored.filter(|lines| lines.iter().skip(1).zip(&own).all(|(stored, own)| stored == own));
            *self.account.borrow_mut() = own.and_then(|lines| lines.into_iter().next());
        }
        *self.key.borrow_mut() = Some(Arc::clone(&key));
        Ok(key)
    }

    /// Returns the account's key of the servers that share the issuer, if this one has none yet.
    async fn shared_key(&self, algorithm: Algorithm) -> Result<Option<String>, String> {
        let Some(shared) = &self.issuer.shared else { return Ok(None) };
        let folder = self.folder.clone();
        let stored = run_blocking(move || Ok(folder.and_then(|folder| folder.account_key())));
        match stored.await.map_err(|e| e.to_string())? {
            Some(pem) => {
                shared.tell_account(&pem, &self.log);
                Ok(None)
            }
            None => shared.account_key(algorithm, &self.log).await,
        }
    }

    async fn generated_key(&self, url: &Url, algorithm: Algorithm) -> Result<Arc<AccountKey>, String> {
        let id = (self.issuer.name.clone(), url.to_string(), algorithm);
        let known = KEYS.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(key) = known {
            return Ok(key);
        }
        let told = self.shared_key(algorithm).await?;
        let folder = self.folder.clone();
        let made = run_blocking(move || {
            let load = |folder: &IssuerFolder, pem: String| {
                let remedy = "remove it to have a new account";
                let failed = |why| format!("{}: {why}; {remedy}", folder.account_key_file().display());
                AccountKey::load(pem.as_bytes()).map_err(failed)
            };
            if let Some(folder) = &folder
                && let Some(pem) = folder.account_key()
            {
                return Ok(load(folder, pem));
            }
            let own = match told {
                Some(pem) => AccountKey::load(pem.as_bytes()),
                None => AccountKey::generate(algorithm),
            };
            match (&folder, own) {
                (Some(folder), Ok(key)) => {
                    let stored = folder.store_account_key(&key.pem())?;
                    Ok(load(folder, stored))
                }
                (_, key) => Ok(key),
            }
        });
        let failed = |e: std::io::Error| match &self.folder {
            Some(folder) => format!("{}: {e}", folder.0.display()),
            None => e.to_string(),
        };
        let key = Arc::new(made.await.map_err(failed)??);
        KEYS.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&key));
        Ok(key)
    }
}

/// Issues a certificate by the local authority, which is made on first use. Blocks for files.
pub fn issue_locally(
    issuer: &Issuer,
    folder: Option<&IssuerFolder>,
    order: &AcmeOrder,
    life: i64,
) -> Result<IssuedChain, String> {
    clock::update();
    let now = clock::unix_seconds();
    let authority = match folder {
        Some(folder) => Arc::new(folder.authority(now)?),
        None => {
            let mut all = AUTHORITIES.lock().unwrap_or_else(PoisonError::into_inner);
            match all.get(&issuer.name).filter(|known| known.is_usable(now)) {
                Some(known) => Arc::clone(known),
                None => {
                    let made = Arc::new(LocalAuthority::create(now)?);
                    all.insert(issuer.name.clone(), Arc::clone(&made));
                    made
                }
            }
        }
    };
    authority.issue(&order.identifiers, order.key, life, now)
}

/// Runs work that may block on a thread of the default pool.
pub async fn run_blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> std::io::Result<T> {
    let pool = net::pool::find_pool(net::pool::DEFAULT).ok_or_else(|| std::io::Error::other("no thread pool"))?;
    let job = pool.run(work).map_err(|_| std::io::Error::other("the thread pool is full"))?;
    job.await.map_err(|_| std::io::Error::other("the work was lost"))?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn issuers_with_one_key_open_their_account_one_after_the_other() {
        let (one, two, other) = (opening_of("a"), opening_of("a"), opening_of("b"));
        let held = one.try_lock();
        assert!(held.is_ok() && two.try_lock().is_err() && other.try_lock().is_ok());
        drop(held);
        drop((one, two, other));
        let _next = opening_of("c");
        assert_eq!(OPENING.with_borrow(HashMap::len), 1, "locks that nothing holds are dropped");
    }
}
