//! Orders and renews certificates, on the control thread: one task for each issuer, one order at a time.
//!
//! A certificate serves until its last second, whatever fails. Failures are repeated after growing pauses.

use super::certificates::{self, Certificate};
use super::challenges::Board;
use super::issuer::{Issuer, KeySource};
use super::order::Ordered;
use super::state::{Folder, stem};
use acme::{AccountKey, Algorithm, Error, Identifier, Issued, Order, Schedule, Session, certificate_id};
use base::clock;
use http_client::{Client, Settings};
use http_engine::{Background, HttpPlan, LocalFuture};
use observe::{ErrorLog, Level};
use runtime::time::sleep;
use session_engine::upstreams::Resolving;
use std::collections::HashMap;
use std::fs::File;
use std::sync::{Arc, LazyLock, Mutex, PoisonError, Weak};
use std::time::{Duration, SystemTime};

/// Seconds until a failed order is repeated: at first, and at most.
const RETRY_FIRST: i64 = 5;
const RETRY_MOST: i64 = 3600;
/// Seconds between two questions for the renewal window: by default, least and most (nginx-acme has the same limits).
const WINDOW_DEFAULT: i64 = 12 * 3600;
const WINDOW_LEAST: i64 = 60;
const WINDOW_MOST: i64 = 24 * 3600;
/// The longest sleep: a clock that is set forward is noticed after it.
const SLEEP_MOST: i64 = 60;
/// Seconds between two looks for requests of operators.
const LOOK_SECONDS: u64 = 2;
/// Seconds until another try, while another process has the folder's lock.
const LOCKED: i64 = 10;
/// Seconds for all requests of an order.
const REQUEST_SECONDS: u64 = 60;

/// Generated account keys by issuer and server, for configurations without stored state.
static KEYS: LazyLock<Mutex<HashMap<(String, String, Algorithm), Arc<AccountKey>>>> = LazyLock::new(Mutex::default);

/// See the module's documentation.
pub struct Engine;

/// A certificate of an issuer, and when something is to be done about it.
struct Job {
    identifiers: Vec<Identifier>,
    key: Algorithm,
    certificate: Arc<Certificate>,
    stem: String,
    /// Seconds since 1970: the next order, and the next question for the renewal window.
    order_at: i64,
    window_at: i64,
    failures: u32,
    /// The last failure and its time, until an order succeeds.
    error: Option<(String, i64)>,
    /// An operator has asked for an order.
    wanted: bool,
}

/// The jobs of one issuer.
struct Desk {
    issuer: Arc<Issuer>,
    resolving: Resolving,
    folder: Option<Folder>,
    jobs: Vec<Job>,
    log: Arc<ErrorLog>,
    /// The folder's time when requests were last looked for.
    looked: Option<SystemTime>,
}

fn random() -> f64 {
    let [a, b, c, d, ..] = net::random::bytes16();
    f64::from(u32::from_le_bytes([a, b, c, d])) / f64::from(u32::MAX)
}

/// All orders of a plan, each once.
fn orders(plan: &HttpPlan) -> Vec<&Ordered> {
    let mut all: Vec<&Ordered> = Vec::new();
    for server in &plan.servers {
        let location = plan.locations.get(server.location);
        let Some(ordered) = location.and_then(|location| location.ext::<Ordered>()) else { continue };
        if !all.iter().any(|known| Arc::ptr_eq(&known.certificate, &ordered.certificate)) {
            all.push(ordered);
        }
    }
    all
}

impl Background<HttpPlan> for Engine {
    /// Loads stored certificates, so that the first handshakes have them; the others get a placeholder.
    fn prepare(self: Arc<Self>, plan: Arc<HttpPlan>) -> LocalFuture<()> {
        Box::pin(async move {
            for ordered in orders(&plan) {
                if ordered.certificate.is_set() {
                    continue;
                }
                let folder = ordered.issuer.state_path.clone().map(Folder);
                let stored = folder.and_then(|folder| folder.certificate(&stem(&ordered.identifiers, ordered.key)));
                if stored.is_none_or(|issued| ordered.certificate.set(&issued, false).is_err())
                    && let Ok(made) = acme::placeholder(&ordered.identifiers)
                {
                    let _ = ordered.certificate.set(&made, true);
                }
            }
        })
    }

    fn run(self: Arc<Self>, plan: Weak<HttpPlan>, log: Arc<ErrorLog>) -> LocalFuture<()> {
        Box::pin(async move {
            let mut desks: Vec<Desk> = Vec::new();
            if let Some(plan) = plan.upgrade() {
                certificates::forget_unused();
                for ordered in orders(&plan) {
                    let at = desks.iter().position(|desk| Arc::ptr_eq(&desk.issuer, &ordered.issuer));
                    let at = at.unwrap_or_else(|| {
                        desks.push(Desk {
                            issuer: Arc::clone(&ordered.issuer),
                            resolving: ordered.resolving.clone(),
                            folder: ordered.issuer.state_path.clone().map(Folder),
                            jobs: Vec::new(),
                            log: Arc::clone(&log),
                            looked: None,
                        });
                        desks.len() - 1
                    });
                    if let Some(desk) = desks.get_mut(at) {
                        desk.jobs.push(Job::new(ordered));
                    }
                }
            }
            drop(plan);
            let mut tasks = runtime::task::JoinSet::new();
            for desk in desks {
                tasks.spawn_local(desk.run());
            }
            while tasks.join_next().await.is_some() {}
        })
    }
}

impl Job {
    fn new(ordered: &Ordered) -> Job {
        let mut job = Job {
            identifiers: ordered.identifiers.clone(),
            key: ordered.key,
            certificate: Arc::clone(&ordered.certificate),
            stem: stem(&ordered.identifiers, ordered.key),
            order_at: 0,
            window_at: 0,
            failures: 0,
            error: None,
            wanted: false,
        };
        job.schedule();
        job
    }
    /// Plans the renewal by the certificate alone.
    fn schedule(&mut self) {
        self.order_at = match self.certificate.leaf() {
            Some(leaf) => Schedule::of(leaf.not_before, leaf.not_after, random()).at,
            None => 0,
        };
    }
    fn failed(&mut self, now: i64, asked: Option<Duration>) -> i64 {
        let pause = RETRY_FIRST.saturating_mul(1 << self.failures.min(20)).min(RETRY_MOST);
        self.failures = self.failures.saturating_add(1);
        let spread = (pause as f64 * (0.8 + 0.4 * random())) as i64;
        let asked = asked.and_then(|asked| i64::try_from(asked.as_secs()).ok()).unwrap_or(0);
        let pause = spread.max(1).max(asked.min(WINDOW_MOST));
        self.order_at = now.saturating_add(pause);
        pause
    }
    fn name(&self) -> String {
        self.identifiers.first().map_or_else(String::new, Identifier::to_string)
    }
}

impl Desk {
    fn say(&self, level: Level, words: std::fmt::Arguments<'_>) {
        self.log.log(level, 0, format_args!("acme issuer \"{}\": {words}", self.issuer.name));
    }

    fn client(&self) -> Client {
        let Resolving { resolver, timeout } = self.resolving.clone();
        Client::new(Settings {
            resolver: Some((resolver, timeout)),
            rules: Some(Arc::clone(&self.issuer.rules)),
            total: Duration::from_secs(REQUEST_SECONDS),
            ..Settings::default()
        })
    }

    async fn run(mut self) {
        let key = loop {
            match self.account_key().await {
                Ok(key) => break key,
                Err(why) => self.say(Level::Error, format_args!("no account key: {why}")),
            }
            sleep(Duration::from_secs(RETRY_MOST as u64)).await;
        };
        let issuer = Arc::clone(&self.issuer);
        let mut account = self.folder.as_ref().and_then(Folder::account_url);
        for index in 0..self.jobs.len() {
            let issued = self.jobs.get(index).is_some_and(|job| job.certificate.leaf().is_some());
            self.tell(index, if issued { "issued" } else { "waiting" }).await;
        }
        loop {
            let now = clock::unix_seconds();
            let due = |job: &Job| job.order_at <= now || (job.window_at <= now && job.certificate.leaf().is_some());
            if self.jobs.iter().any(due) {
                match self.lock().await {
                    Ok(lock) => {
                        let mut session = Session::new(self.client(), &issuer.uri, &key, account.clone());
                        for index in 0..self.jobs.len() {
                            self.window(index, &mut session).await;
                            clock::update();
                            let now = clock::unix_seconds();
                            if self.jobs.get(index).is_some_and(|job| job.order_at <= now) {
                                self.order(index, &mut session).await;
                            }
                        }
                        account = session.account().map(String::from);
                        drop(lock);
                    }
                    Err(why) => self.wait_for_lock(&why).await,
                }
            }
            self.pause().await;
        }
    }

    /// Takes the lock of the folder; without a folder there is none.
    async fn lock(&self) -> Result<Option<File>, String> {
        let Some(folder) = self.folder.clone() else { return Ok(None) };
        let locked = blocking(move || {
            let lock = folder.lock()?;
            if lock.is_some() {
                folder.tidy()?;
            }
            Ok(lock)
        });
        match locked.await {
            Ok(Some(lock)) => Ok(Some(lock)),
            Ok(None) => Err("another process has its lock".into()),
            Err(e) => Err(e.to_string()),
        }
    }

    /// Leaves orders to the process that has the lock, and takes its certificates over.
    async fn wait_for_lock(&mut self, why: &str) {
        let now = clock::unix_seconds();
        self.say(Level::Info, format_args!("the state is not available: {why}"));
        for index in 0..self.jobs.len() {
            let Some(job) = self.jobs.get(index) else { return };
            if job.order_at <= now || job.window_at <= now {
                self.adopt(index).await;
                if let Some(job) = self.jobs.get_mut(index) {
                    job.order_at = job.order_at.max(now + LOCKED);
                    job.window_at = job.window_at.max(now + LOCKED);
                }
            }
        }
    }

    /// Takes a certificate over that another process has stored. `true`: it is newer than the present one.
    async fn adopt(&mut self, index: usize) -> bool {
        let Some(folder) = self.folder.clone() else { return false };
        let Some(stem) = self.jobs.get(index).map(|job| job.stem.clone()) else { return false };
        let Ok(Some(stored)) = blocking(move || Ok(folder.certificate(&stem))).await else { return false };
        let Some(job) = self.jobs.get_mut(index) else { return false };
        let leaves = tls::certs::certificates(stored.chain.as_bytes()).unwrap_or_default();
        let newer = match (leaves.first(), job.certificate.leaf()) {
            (Some(stored), Some(own)) => stored.not_after > own.not_after,
            (stored, None) => stored.is_some(),
            (None, Some(_)) => false,
        };
        if !newer || job.certificate.set(&stored, false).is_err() {
            return false;
        }
        job.failures = 0;
        job.error = None;
        job.schedule();
        true
    }

    /// Sleeps until the next time that something is due, or an operator asks for an order.
    async fn pause(&mut self) {
        clock::update();
        let now = clock::unix_seconds();
        let next = self.jobs.iter().map(|job| match job.certificate.leaf() {
            Some(_) => job.order_at.min(job.window_at),
            None => job.order_at,
        });
        let until = now.saturating_add(next.min().unwrap_or(i64::MAX).saturating_sub(now).clamp(1, SLEEP_MOST));
        loop {
            let left = u64::try_from(until.saturating_sub(clock::unix_seconds())).unwrap_or(0);
            if self.take_requests().await || left == 0 {
                return;
            }
            let most = if self.folder.is_some() { LOOK_SECONDS } else { SLEEP_MOST as u64 };
            sleep(Duration::from_secs(left.min(most))).await;
            clock::update();
        }
    }

    /// Takes requests of operators (`tidegate certificates --renew`). `true`: there is one.
    async fn take_requests(&mut self) -> bool {
        let (Some(folder), looked) = (self.folder.clone(), self.looked) else { return false };
        let taken = blocking(move || {
            let changed = folder.changed();
            // Before the search: a request that comes meanwhile changes the time again.
            Ok(match changed == looked {
                true => (changed, Vec::new()),
                false => (changed, folder.take_requests()?),
            })
        });
        let Ok((changed, stems)) = taken.await else { return false };
        // A change of the last moment may be followed by one with an equal time.
        self.looked = changed.filter(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(1)));
        let mut any = false;
        for job in self.jobs.iter_mut().filter(|job| stems.contains(&job.stem)) {
            (job.order_at, job.wanted, any) = (0, true, true);
        }
        any
    }

    /// Stores the state of a certificate's orders, for `tidegate certificates`.
    async fn tell(&self, index: usize, state: &str) {
        let (Some(folder), Some(job)) = (self.folder.clone(), self.jobs.get(index)) else { return };
        let stem = job.stem.clone();
        let text = serde_json::json!({
            "issuer": self.issuer.name, "state": state, "failures": job.failures, "next_order": job.order_at,
            "error": job.error.as_ref().map(|(why, _)| why), "error_at": job.error.as_ref().map(|(_, at)| at),
            "process": std::process::id(),
        });
        if let Err(why) = blocking(move || folder.store_status(&stem, &format!("{text}\n"))).await {
            self.say(Level::Error, format_args!("the state of an order is not stored: {why}"));
        }
    }

    /// Asks when the authority wants a certificate to be renewed, if it is time to.
    async fn window(&mut self, index: usize, session: &mut Session<'_>) {
        let now = clock::unix_seconds();
        let Some(job) = self.jobs.get_mut(index).filter(|job| job.window_at <= now) else { return };
        let Some(leaf) = job.certificate.leaf() else { return };
        let Some(id) = certificate_id(&leaf) else {
            job.window_at = i64::MAX;
            return;
        };
        let asked = session.renewal_window(&id).await;
        let wait = |after: Option<Duration>| {
            let seconds = after.and_then(|after| i64::try_from(after.as_secs()).ok()).unwrap_or(WINDOW_DEFAULT);
            now.saturating_add(seconds.clamp(WINDOW_LEAST, WINDOW_MOST))
        };
        match asked {
            Ok(Some((start, end, after))) => {
                job.window_at = wait(after);
                let suggested = Schedule::within(start, end, now, random()).at;
                // Never later than the certificate allows; a failed order keeps its own time.
                if job.failures == 0 {
                    job.order_at = suggested.min(leaf.not_after.saturating_sub(1));
                }
            }
            // The server does not tell; it may learn to.
            Ok(None) => job.window_at = wait(Some(Duration::from_secs(WINDOW_MOST as u64))),
            Err(why) => {
                job.window_at = wait(None);
                let name = job.name();
                self.say(Level::Warn, format_args!("renewal information of \"{name}\" failed: {why}"));
            }
        }
    }

    async fn order(&mut self, index: usize, session: &mut Session<'_>) {
        let issuer = Arc::clone(&self.issuer);
        let wanted = self.jobs.get_mut(index).is_some_and(|job| std::mem::take(&mut job.wanted));
        if !wanted && self.adopt(index).await {
            let name = self.jobs.get(index).map(Job::name).unwrap_or_default();
            self.say(Level::Notice, format_args!("took a certificate for \"{name}\" over from another process"));
            self.tell(index, "issued").await;
            return;
        }
        self.tell(index, "ordering").await;
        let Some(job) = self.jobs.get(index) else { return };
        let (name, stem) = (job.name(), job.stem.clone());
        let order = Order {
            identifiers: job.identifiers.clone(),
            key: job.key,
            challenge: issuer.challenge,
            profile: issuer.profile.clone(),
            common_name: issuer.common_name,
            preferred_chain: issuer.preferred_chain.clone(),
            replaces: job.certificate.leaf().and_then(|leaf| certificate_id(&leaf)),
        };
        let issued = self.issue(&order, session).await;
        clock::update();
        let now = clock::unix_seconds();
        let Some(job) = self.jobs.get_mut(index) else { return };
        match issued.and_then(|issued| job.certificate.set(&issued, false).map(|()| issued).map_err(Error::Protocol)) {
            Ok(issued) => {
                job.failures = 0;
                job.error = None;
                job.schedule();
                job.window_at = now;
                let until = job.certificate.leaf().map_or(0, |leaf| leaf.not_after);
                let until = tls::x509::time::print(until);
                self.say(Level::Notice, format_args!("issued a certificate for \"{name}\", valid until {until}"));
                if let Some(folder) = self.folder.clone() {
                    let stored = blocking(move || folder.store(&stem, &issued)).await;
                    if let Err(why) = stored {
                        self.say(Level::Error, format_args!("the certificate for \"{name}\" is not stored: {why}"));
                    }
                }
                self.tell(index, "issued").await;
            }
            Err(why) => {
                let pause = job.failed(now, why.retry_after());
                job.error = Some((why.to_string(), now));
                let issuer = &self.issuer.name;
                self.log.log(
                    Level::Warn,
                    0,
                    format_args!("{why} while ordering a certificate for \"{name}\" of acme issuer \"{issuer}\", next try in {pause} s"),
                );
                self.tell(index, "failed").await;
            }
        }
    }

    async fn issue(&mut self, order: &Order, session: &mut Session<'_>) -> Result<Issued, Error> {
        let board = Board { kind: self.issuer.challenge, dns: self.issuer.dns.clone() };
        if session.account().is_some() {
            match session.order(order, &board).await {
                // The server has lost or deactivated the account.
                Err(why) if why.is_unknown_account() => {}
                done => return done,
            }
        }
        self.open_account(session).await?;
        session.order(order, &board).await
    }

    async fn open_account(&self, session: &mut Session<'_>) -> Result<(), Error> {
        match session.open_account(&self.issuer.account).await {
            Ok(new) => {
                let what = if new { "registered" } else { "found" };
                let url = session.account().unwrap_or_default().to_string();
                self.say(Level::Info, format_args!("account \"{url}\" {what}"));
                if let Some(folder) = self.folder.clone()
                    && let Err(why) = blocking(move || folder.store_account_url(&url)).await
                {
                    self.say(Level::Error, format_args!("the account's URL is not stored: {why}"));
                }
                Ok(())
            }
            Err(why) => {
                if let Some(terms) = session.terms().filter(|_| !self.issuer.account.agreed) {
                    let words = "the terms of service are not accepted (\"accept_terms_of_service\")";
                    self.say(Level::Warn, format_args!("{words}: {terms}"));
                }
                Err(why)
            }
        }
    }

    /// Returns the account's key: of the configuration, of an earlier configuration, stored, or new.
    async fn account_key(&self) -> Result<Arc<AccountKey>, String> {
        let algorithm = match &self.issuer.key {
            KeySource::Loaded(key) => return Ok(Arc::clone(key)),
            KeySource::Generated(algorithm) => *algorithm,
        };
        let id = (self.issuer.name.clone(), self.issuer.uri.to_string(), algorithm);
        let known = KEYS.lock().unwrap_or_else(PoisonError::into_inner).get(&id).cloned();
        if let Some(key) = known {
            return Ok(key);
        }
        let folder = self.folder.clone();
        let made = blocking(move || {
            if let Some(pem) = folder.as_ref().and_then(Folder::account_key) {
                return Ok(AccountKey::load(pem.as_bytes()));
            }
            let key = AccountKey::generate(algorithm);
            if let (Some(folder), Ok(key)) = (&folder, &key) {
                folder.store_account_key(&key.pem())?;
            }
            Ok(key)
        });
        let key = Arc::new(made.await.map_err(|e| e.to_string())??);
        KEYS.lock().unwrap_or_else(PoisonError::into_inner).insert(id, Arc::clone(&key));
        Ok(key)
    }
}

/// Runs work that may block on a thread of the default pool.
async fn blocking<T: Send + 'static>(work: impl FnOnce() -> std::io::Result<T> + Send + 'static) -> std::io::Result<T> {
    let pool = net::pool::named(net::pool::DEFAULT).ok_or_else(|| std::io::Error::other("no thread pool"))?;
    let job = pool.run(work).map_err(|_| std::io::Error::other("the thread pool is full"))?;
    job.await.map_err(|_| std::io::Error::other("the work was lost"))?
}
