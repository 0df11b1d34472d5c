//! Runs the orders of a plan, as the agenda decides: several at a time, one per certificate, with the next issuer after
//! a failure. Receives orders from operators and names from handshakes.

use super::demand::{self, DemandCertificate, DemandName, HandshakeName, OnDemand};
use super::issuer::Issuer;
use super::issuer_client::{IssuerClient, ORDERS_MAX, OrderFailure, run_blocking};
use super::job::{CertificateJob, CertificateStore, agenda_now, random_share};
use super::order::OrderedCertificate;
use super::renewal_info::{self, Advice, Renewal, RenewalAnswer};
use super::running_tasks::RunningTasks;
use super::shared_issuer::SharedIssuer;
use super::shared_table;
use super::state::{IssuerFolder, file_stem};
use super::tasks::{self, TaskOutcome, Work};
use acme::{Agenda, FailureCause, Identifier, IssuerLimits, TaskId, certificate_id};
use http_engine::HttpPlan;
use observe::{ErrorLog, Severity};
use std::cell::{Cell, RefCell};
use std::collections::{BTreeSet, HashMap};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::{self, Arc};
use std::task::Poll;
use std::time::Duration;

/// Questions for renewal windows at a time.
const WINDOWS_MAX: usize = 4;
/// Questions about names on demand at a time.
const ASKS_MAX: usize = 8;
/// The longest sleep: a clock that is set forward is noticed after it.
const SLEEP_MOST: i64 = 60;
/// Seconds between two looks for requests of operators.
const LOOK_SECONDS: u64 = 2;
/// Seconds after which a failed order is repeated where it is not.
const NEVER: i64 = 10 * 365 * 86_400;
/// Seconds between tries to store certificates that could not be stored.
const SAVE_SECONDS: i64 = 10;
/// Seconds until another try, while another process has the folder's lock, or another server its turn.
const LOCKED: i64 = 10;
/// Seconds until another try, while the store is gone.
const STORE_PAUSE: i64 = 60;
/// Seconds for which a handshake waits for the beginning of an order.
const PATIENCE: i64 = 10;
/// Failed orders of a name on demand, after which a handshake has to ask again, and the seconds until it can.
const DEMAND_TRIES_MAX: u32 = 3;
const DEMAND_PAUSE: i64 = 3600;

fn limits(issuer: &Issuer) -> IssuerLimits {
    let retry = issuer.timing.map(|timing| timing.retry.unwrap_or(NEVER));
    IssuerLimits { orders_max: ORDERS_MAX, retry }
}

fn shared_of(issuers: &[Arc<Issuer>]) -> Option<Arc<SharedIssuer>> {
    issuers.first().and_then(|issuer| issuer.shared.clone())
}

/// Tokens for orders on demand, by demand.
struct Allowance {
    /// Thousandths of an order.
    left: u64,
    at: i64,
}

/// See the module's documentation.
pub struct Scheduler {
    clients: Vec<Rc<IssuerClient>>,
    agenda: Agenda,
    jobs: HashMap<TaskId, Rc<CertificateJob>>,
    stores: Vec<Rc<CertificateStore>>,
    /// Questions for renewal windows, by the steady clock.
    windows: BTreeSet<(i64, TaskId)>,
    on_demand: HashMap<(Arc<str>, String), TaskId>,
    allowances: HashMap<Arc<str>, Allowance>,
    running: RunningTasks,
    log: Arc<ErrorLog>,
    /// Folders of names on demand, to be freed of certificates that have ended.
    swept: Vec<Rc<CertificateStore>>,
    /// Steady time of the last look for requests of operators.
    looked_at: i64,
    /// Steady time of the next try to store certificates.
    save_at: i64,
}

impl Scheduler {
    pub fn new(
        orders: &[&OrderedCertificate],
        demands: Vec<Arc<OnDemand>>,
        plan: &sync::Weak<HttpPlan>,
        log: &Arc<ErrorLog>,
    ) -> Scheduler {
        let mut clients: Vec<Rc<IssuerClient>> = Vec::new();
        let all = orders.iter().map(|ordered| (&ordered.issuers, &ordered.resolving));
        for (issuers, resolving) in all.chain(demands.iter().map(|demand| (&demand.issuers, &demand.resolving))) {
            for issuer in issuers {
                if !clients.iter().any(|client| Arc::ptr_eq(&client.issuer, issuer)) {
                    clients.push(Rc::new(IssuerClient::new(
                        Arc::clone(issuer),
                        plan,
                        resolving.clone(),
                        Arc::clone(log),
                    )));
                }
            }
        }
        let mut scheduler = Scheduler {
            agenda: Agenda::new(&clients.iter().map(|client| limits(&client.issuer)).collect::<Vec<_>>()),
            clients,
            jobs: HashMap::new(),
            stores: Vec::new(),
            windows: BTreeSet::new(),
            on_demand: HashMap::new(),
            allowances: HashMap::new(),
            running: RunningTasks::default(),
            log: Arc::clone(log),
            swept: Vec::new(),
            looked_at: i64::MIN,
            save_at: i64::MIN,
        };
        for ordered in orders {
            let job = CertificateJob {
                identifiers: ordered.identifiers.clone(),
                key: ordered.key,
                certificate: Arc::clone(&ordered.certificate),
                stem: file_stem(&ordered.identifiers, ordered.key),
                store: scheduler
                    .store(ordered.issuers.first().and_then(|issuer| issuer.state_path.clone()).map(IssuerFolder)),
                home: 0,
                timing: ordered.issuers.first().and_then(|issuer| issuer.timing),
                served_by: Cell::new(None),
                state: Cell::new("waiting"),
                error: RefCell::default(),
                questions_failed: Cell::default(),
                is_suggested: Cell::default(),
                explanation: RefCell::default(),
                wanted: Cell::new(false),
                on_demand: None,
                shared: shared_of(&ordered.issuers),
                number_seen: Cell::new(0),
            };
            scheduler.add(job, &ordered.issuers, false);
        }
        for DemandCertificate { demand, text, name } in demand::forget_unused(&demands) {
            scheduler.add_on_demand(HandshakeName { demand, text, name }, false);
        }
        for demand in demands {
            let store = scheduler.store(demand.folder().map(IssuerFolder));
            scheduler.swept.extend(store);
        }
        scheduler
    }

    fn store(&mut self, folder: Option<IssuerFolder>) -> Option<Rc<CertificateStore>> {
        let folder = folder?;
        if let Some(known) = self.stores.iter().find(|store| store.folder.0 == folder.0) {
            return Some(Rc::clone(known));
        }
        let lock = tokio::sync::Mutex::new(Weak::new());
        let store = Rc::new(CertificateStore { folder, lock, looked: Cell::new(None) });
        self.stores.push(Rc::clone(&store));
        Some(store)
    }

    fn add(&mut self, mut job: CertificateJob, issuers: &[Arc<Issuer>], urgent: bool) -> TaskId {
        let place_of =
            |issuer: &Arc<Issuer>| self.clients.iter().position(|client| Arc::ptr_eq(&client.issuer, issuer));
        let order: Vec<usize> = issuers.iter().filter_map(place_of).collect();
        job.home = order.first().copied().unwrap_or(0);
        let mut at = job.renewal();
        if let Some(leaf) = job.certificate.leaf() {
            // The state of an earlier process tells who has issued.
            let by = job.source().map(|source| order.iter().copied().find(|at| self.source(*at) == source));
            match by {
                // For other names: used until there is a new one, which replaces nothing.
                _ if !job.identifiers.iter().all(|name| acme::is_for(&leaf, name)) => at = 0,
                None => job.served_by.set(Some(job.home)),
                Some(Some(by)) => job.served_by.set(Some(by)),
                // Issued by a server that is no longer configured, such as a staging server: used until there is a new
                // one.
                Some(None) => at = 0,
            }
        }
        let is_enabled = job.timing.is_none_or(|timing| timing.enabled);
        match job.timing {
            _ if !is_enabled => at = i64::MAX,
            Some(timing) if timing.on_load => at = 0,
            _ => {}
        }
        let id = self.agenda.add(&order, at, urgent);
        // The authority's window would move the next order of a disabled client, which has none.
        if is_enabled && job.served_by.get().is_some() {
            self.windows.insert((0, id));
        }
        self.jobs.insert(id, Rc::new(job));
        id
    }

    fn source(&self, issuer: usize) -> String {
        self.clients.get(issuer).map(|client| client.issuer.source.to_string()).unwrap_or_default()
    }

    fn issuer_name(&self, issuer: usize) -> &str {
        self.clients.get(issuer).map_or("", |client| client.issuer.name.as_str())
    }

    pub async fn run(mut self) {
        self.tell_first();
        for store in self.swept.drain(..).collect::<Vec<_>>() {
            let at = agenda_now().wall;
            self.spawn(Work::Status, async move {
                let folder = store.folder.clone();
                let _ = run_blocking(move || {
                    folder.remove_ended(at);
                    Ok(())
                })
                .await;
                TaskOutcome::Told
            });
        }
        loop {
            self.take_wishes().await;
            self.save_again();
            self.take_shared();
            self.take_asked();
            self.begin_orders();
            self.begin_windows();
            self.wait().await;
        }
    }

    /// Waits for the end of a task, the next due time, or a name on demand.
    async fn wait(&mut self) {
        let at = agenda_now();
        let window = self.windows.first().filter(|_| self.running.count(Work::is_window) < WINDOWS_MAX);
        let window = window.map_or(SLEEP_MOST, |(due, _)| due.saturating_sub(at.steady).max(0));
        let idle = self.agenda.idle_for(at, SLEEP_MOST).min(window);
        let most = if self.stores.is_empty() { SLEEP_MOST as u64 } else { LOOK_SECONDS };
        // Due orders without a free slot start when a task ends.
        let limit = match u64::try_from(idle).unwrap_or(0) {
            0 => 1,
            seconds => seconds.min(most),
        };
        let asks = self.running.count(Work::is_question);
        let ended = runtime::time::with_timeout(Duration::from_secs(limit), async {
            let (mut next, mut came) = (pin!(self.running.next()), pin!(demand::await_name()));
            let mut shared = pin!(shared_table::certificate_came());
            std::future::poll_fn(|cx| match next.as_mut().poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Some(ended)),
                Poll::Pending if shared.as_mut().poll(cx).is_ready() => Poll::Ready(None),
                Poll::Pending if asks < ASKS_MAX => came.as_mut().poll(cx).map(|()| None),
                Poll::Pending => Poll::Pending,
            })
            .await
        });
        if let Ok(Some((work, outcome))) = ended.await {
            self.ended(work, outcome);
        }
    }

    fn spawn(&mut self, work: Work, task: impl Future<Output = TaskOutcome> + 'static) {
        self.running.push(work, runtime::task::spawn_local(task));
    }

    fn begin_orders(&mut self) {
        while let Some(order) = self.agenda.start(agenda_now()) {
            let (Some(job), Some(client)) = (self.jobs.get(&order.task), self.clients.get(order.issuer)) else {
                self.agenda.postponed(order.task, agenda_now(), SLEEP_MOST);
                continue;
            };
            let (job, client) = (Rc::clone(job), Rc::clone(client));
            let replaces = job.served_by.get().filter(|by| *by == order.issuer).and_then(|_| job.certificate.leaf());
            let replaces = replaces.and_then(|leaf| certificate_id(&leaf));
            let status = self.status(order.task, &job, "ordering");
            job.certificate.set_status(&status);
            self.spawn(Work::Order(order), tasks::run_order(job, client, replaces, status));
        }
    }

    fn begin_windows(&mut self) {
        let at = agenda_now();
        while self.running.count(Work::is_window) < WINDOWS_MAX
            && let Some((_, id)) = self.windows.first().copied().filter(|(due, _)| *due <= at.steady)
        {
            self.windows.pop_first();
            let Some(job) = self.jobs.get(&id) else { continue };
            let client = job.served_by.get().and_then(|by| self.clients.get(by)).cloned();
            let certificate = job.certificate.leaf().and_then(|leaf| certificate_id(&leaf));
            if let (Some(client), Some(certificate)) = (client.filter(|client| !client.issuer.is_local()), certificate)
            {
                let work = Work::Window(id, certificate.clone());
                self.spawn(work, async move { TaskOutcome::Window(client.window(&certificate).await) });
            }
        }
    }

    fn ended(&mut self, work: Work, outcome: Option<TaskOutcome>) {
        let at = agenda_now();
        match (work, outcome) {
            (Work::Order(order), Some(TaskOutcome::Issued(issued))) => self.issued(order, issued),
            (Work::Order(order), Some(TaskOutcome::Adopted)) => {
                self.agenda.postponed(order.task, at, 0);
                self.renewed(order.task);
                let name = self.jobs.get(&order.task).map(|job| job.name()).unwrap_or_default();
                let words = format_args!("took a certificate for \"{name}\" over from another process");
                self.say(order.issuer, Severity::Notice, words);
            }
            (Work::Adoption(id), Some(TaskOutcome::Adopted)) => {
                if let Some(job) = self.jobs.get(&id).cloned() {
                    job.served_by.set(job.served_by.get().or(Some(job.home)));
                    // An order that has begun meanwhile plans the renewal.
                    if !self.agenda.is_active(id) {
                        self.renewed(id);
                    }
                    let words = format_args!("took a certificate for \"{}\" over from another server", job.name());
                    self.say(job.home, Severity::Notice, words);
                }
            }
            (Work::Adoption(_), _) => {}
            (Work::Order(order), Some(TaskOutcome::TakenTurn)) => {
                self.say(order.issuer, Severity::Info, format_args!("another server orders"));
                self.agenda.postponed(order.task, at, LOCKED);
            }
            (Work::Order(order), Some(TaskOutcome::NoStore)) => {
                let name = self.jobs.get(&order.task).map(|job| job.name()).unwrap_or_default();
                let words = format_args!("the renewal for \"{name}\" waits for the store of \"shared_store\"");
                self.say(order.issuer, Severity::Warn, words);
                self.agenda.postponed(order.task, at, STORE_PAUSE);
            }
            (Work::Order(order), Some(TaskOutcome::Locked)) => {
                self.say(order.issuer, Severity::Info, format_args!("another process orders with this state"));
                self.agenda.postponed(order.task, at, LOCKED);
            }
            (Work::Order(order), Some(TaskOutcome::Unwanted(why))) => {
                let name = self.jobs.get(&order.task).map(|job| job.name()).unwrap_or_default();
                self.say(order.issuer, Severity::Notice, format_args!("\"{name}\" is not renewed: {why}"));
                self.agenda.postponed(order.task, at, 0);
                self.drop_on_demand(order.task);
            }
            (Work::Order(order), Some(TaskOutcome::Failed(failed))) => self.failed(order, &failed),
            (Work::Order(order), _) => {
                self.agenda.failed(order, at, FailureCause::Task, None, random_share());
            }
            (Work::Window(id, of), Some(TaskOutcome::Window(answer))) => self.window(id, &of, &answer),
            (Work::Window(id, _), _) => drop(self.windows.insert((at.steady + renewal_info::DEFAULT_SECONDS, id))),
            (Work::Question(asked), Some(TaskOutcome::Allowed(stored))) => self.allowed(asked, stored),
            (Work::Question(asked), Some(TaskOutcome::Denied)) => {
                self.log.log(
                    Severity::Info,
                    0,
                    format_args!("no certificate on demand for \"{}\": refused", asked.text),
                );
                asked.name.refuse(demand::REFUSED);
            }
            (Work::Question(asked), Some(TaskOutcome::Unknown(why))) => {
                let text = &asked.text;
                self.log.log(
                    Severity::Error,
                    0,
                    format_args!("{why} while asking about the name \"{text}\" on demand"),
                );
                asked.name.fail(demand::FAILED);
            }
            (Work::Question(asked), _) => asked.name.fail(demand::FAILED),
            (Work::Status, _) => {}
        }
    }

    fn say(&self, issuer: usize, level: Severity, words: std::fmt::Arguments<'_>) {
        if let Some(client) = self.clients.get(issuer) {
            client.say(level, words);
        }
    }

    /// Plans the renewal of a new certificate, asks for its window, and lets waiting handshakes use it.
    fn renewed(&mut self, id: TaskId) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        job.error.take();
        job.is_suggested.set(false);
        job.questions_failed.set(0);
        self.agenda.renew_at(id, job.renewal());
        self.windows.retain(|(_, other)| *other != id);
        self.windows.insert((agenda_now().steady, id));
        if let Some((_, name)) = &job.on_demand {
            name.serve();
        }
        self.tell(id, "issued");
    }

    fn issued(&mut self, order: acme::DueOrder, issued: tasks::IssuedCertificate) {
        let at = agenda_now();
        let Some(job) = self.jobs.get(&order.task).cloned() else { return };
        job.served_by.set(Some(order.issuer));
        let ends = job.certificate.leaf().map_or(0, |leaf| leaf.not_after);
        self.agenda.succeeded(order, at, job.renewal(), ends);
        job.error.take();
        job.is_suggested.set(false);
        job.questions_failed.set(0);
        self.windows.retain(|(_, other)| *other != order.task);
        self.windows.insert((at.steady, order.task));
        let name = job.name();
        let until = tls::x509::time::print_time(ends);
        self.say(
            order.issuer,
            Severity::Notice,
            format_args!("issued a certificate for \"{name}\", valid until {until}"),
        );
        if let Some(why) = issued.not_stored {
            let words = format_args!("the certificate for \"{name}\" is not stored: {why}");
            self.say(order.issuer, Severity::Error, words);
        }
        if let Some((_, name)) = &job.on_demand {
            name.serve();
        }
        self.tell(order.task, "issued");
    }

    fn failed(&mut self, order: acme::DueOrder, failed: &OrderFailure) {
        let at = agenda_now();
        let Some(job) = self.jobs.get(&order.task).cloned() else { return };
        let why = &failed.error;
        let asked = why.retry_after().map(|after| i64::try_from(after.as_secs()).unwrap_or(i64::MAX));
        let asked = asked.map(|asked| asked.min(self.patience(&job, failed.cause, at.wall)));
        let pause = self.agenda.failed(order, at, failed.cause, asked, random_share());
        *job.error.borrow_mut() = Some((why.to_string(), at.wall));
        let (name, issuer) = (job.name(), self.issuer_name(order.issuer));
        let next = match pause < NEVER / 2 {
            true => format!("next try in {pause} s"),
            false => "not repeated (\"retry_after_error=off\")".to_string(),
        };
        self.log.log(
            Severity::Warn,
            0,
            format_args!("{why} while ordering a certificate for \"{name}\" of acme issuer \"{issuer}\", {next}"),
        );
        self.tell(order.task, "failed");
        if let Some((_, name)) = &job.on_demand
            && !name.is_valid()
            && pause > 0
        {
            let is_over = self.agenda.failures(order.task) >= DEMAND_TRIES_MAX;
            name.fail(if is_over { DEMAND_PAUSE } else { pause });
            if is_over {
                self.drop_on_demand(order.task);
            }
        }
    }

    /// Returns the longest pause that an issuer may ask for after a failure: half of the time that the certificate has left, or that the
    /// first of all has whose orders wait. A pause of the issuer's choice must not let a certificate end.
    fn patience(&self, job: &Rc<CertificateJob>, cause: FailureCause, now: i64) -> i64 {
        let left = |job: &Rc<CertificateJob>| {
            job.certificate.leaf().map(|leaf| leaf.not_after.saturating_sub(now)).filter(|left| *left > 0)
        };
        let least = match cause {
            FailureCause::Issuer => self.jobs.values().filter_map(left).min(),
            FailureCause::Task | FailureCause::Limits => left(job),
        };
        least.map_or(i64::MAX, |left| left / 2)
    }

    /// Follows an answer about the renewal window. `of`: the certificate that the question was about.
    fn window(&mut self, id: TaskId, of: &str, answer: &RenewalAnswer) {
        let at = agenda_now();
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        // A certificate that was replaced meanwhile has a question of its own.
        let Some(leaf) = job.certificate.leaf().filter(|leaf| certificate_id(leaf).as_deref() == Some(of)) else {
            return;
        };
        let (name, by) = (job.name(), job.served_by.get().unwrap_or(job.home));
        let failures = job.questions_failed.get();
        let advice = Advice::of(answer, (leaf.not_before, leaf.not_after), at.wall, failures, random_share());
        job.questions_failed.set(if answer.is_err() { failures.saturating_add(1) } else { 0 });
        if let Some(why) = &advice.complaint {
            self.say(by, Severity::Warn, format_args!("renewal information of \"{name}\" failed: {why}"));
        }
        match advice.renewal {
            Renewal::At(suggested) => {
                let life = leaf.not_after.saturating_sub(leaf.not_before);
                self.agenda.suggest(id, at, suggested, life);
                job.is_suggested.set(true);
                self.tell(id, job.state.get());
            }
            Renewal::ByCertificate if job.is_suggested.replace(false) => {
                self.agenda.renew_by(id, job.renewal());
                self.tell(id, job.state.get());
            }
            Renewal::ByCertificate | Renewal::Unchanged => {}
        }
        let explanation = answer.as_ref().ok().and_then(|window| window.as_ref()?.explanation.clone());
        if let Some(url) = &explanation
            && *job.explanation.borrow() != explanation
        {
            let words = format_args!("the renewal window of \"{name}\" is explained at {url}");
            self.say(by, Severity::Notice, words);
        }
        job.explanation.replace(explanation);
        self.windows.retain(|(_, other)| *other != id);
        self.windows.insert((at.steady.saturating_add(advice.again), id));
    }

    /// Describes the orders of a certificate. Orders that the configuration has disabled have no next one.
    fn status(&self, id: TaskId, job: &CertificateJob, state: &str) -> String {
        let error = job.error.borrow();
        let at = agenda_now();
        let next = Some(self.agenda.next_order(id, at)).filter(|next| *next < at.wall.saturating_add(NEVER / 2));
        let is_enabled = job.timing.is_none_or(|timing| timing.enabled);
        let state = match next {
            _ if !is_enabled => "disabled",
            None if state == "failed" => "disabled after a failure",
            _ => state,
        };
        let text = serde_json::json!({
            "issuer": self.issuer_name(job.home), "state": state, "failures": self.agenda.failures(id),
            "served_by": job.served_by.get().map(|by| self.issuer_name(by)),
            "source": job.served_by.get().map(|by| self.source(by)),
            "next_order": next.filter(|_| is_enabled),
            "error": error.as_ref().map(|(why, _)| why), "error_at": error.as_ref().map(|(_, at)| at),
            "process": std::process::id(),
        });
        format!("{text}\n")
    }

    /// Publishes the state of a certificate's orders: for the API, and in a file for `tidegate certificates`.
    fn tell(&mut self, id: TaskId, state: &'static str) {
        let Some(job) = self.jobs.get(&id).cloned() else { return };
        let status = self.status(id, &job, state);
        job.state.set(state);
        job.certificate.set_status(&status);
        let Some(store) = job.store.clone() else { return };
        let log = Arc::clone(&self.log);
        self.spawn(Work::Status, async move {
            let (folder, stem) = (store.folder.clone(), job.stem.clone());
            let path = folder.0.display().to_string();
            if let Err(why) = run_blocking(move || folder.store_status(&stem, &status)).await {
                log.log(Severity::Error, 0, format_args!("the state of an order is not stored: {path}: {why}"));
            }
            TaskOutcome::Told
        });
    }

    /// Stores the states at the start, in one task. Those of issued certificates stay as they are: thousands may be there.
    fn tell_first(&mut self) {
        let mut states = Vec::new();
        for (id, job) in &self.jobs {
            let is_issued = job.certificate.leaf().is_some();
            let state = if is_issued { "issued" } else { "waiting" };
            let status = self.status(*id, job, state);
            job.state.set(state);
            job.certificate.set_status(&status);
            if let Some(store) = &job.store {
                let stays = is_issued && job.timing.is_none_or(|timing| timing.enabled);
                states.push((store.folder.clone(), job.stem.clone(), stays, status));
            }
        }
        self.spawn(Work::Status, async move {
            let stored = run_blocking(move || {
                for (folder, stem, stays, text) in states {
                    if !stays || folder.status(&stem).is_none() {
                        folder.store_status(&stem, &text)?;
                    }
                }
                Ok(())
            });
            // Later failures are only logged.
            let _ = stored.await;
            TaskOutcome::Told
        });
    }

    /// Stores certificates for which there was no room.
    fn save_again(&mut self) {
        let at = agenda_now().steady;
        if at < self.save_at {
            return;
        }
        self.save_at = at.saturating_add(SAVE_SECONDS);
        let unsaved = self.jobs.values().filter(|job| job.certificate.unsaved().is_some());
        for job in unsaved.take(ORDERS_MAX).cloned().collect::<Vec<_>>() {
            let log = Arc::clone(&self.log);
            self.spawn(Work::Status, async move {
                if let Ok(true) = tasks::save_certificate(&job).await {
                    log.log(Severity::Notice, 0, format_args!("the certificate for \"{}\" is stored now", job.name()));
                    if let (Some(store), Some(status)) = (&job.store, job.certificate.status()) {
                        let (folder, stem) = (store.folder.clone(), job.stem.clone());
                        // For operators only.
                        let _ = run_blocking(move || folder.store_status(&stem, &status)).await;
                    }
                }
                TaskOutcome::Told
            });
        }
    }

    /// Takes requests of operators (`tidegate certificates --renew`).
    async fn take_wishes(&mut self) {
        let at = agenda_now().steady;
        if at.saturating_sub(self.looked_at) < LOOK_SECONDS as i64 {
            return;
        }
        self.looked_at = at;
        let mut wanted = Vec::new();
        for store in &self.stores {
            let (folder, looked) = (store.folder.clone(), store.looked.get());
            let taken = run_blocking(move || {
                let changed = folder.changed();
                // Before the search: a request that comes meanwhile changes the time again.
                Ok(match changed == looked {
                    true => (changed, Vec::new()),
                    false => (changed, folder.take_requests()?),
                })
            });
            let Ok((changed, stems)) = taken.await else { continue };
            // A change of the last moment may be followed by one with an equal time.
            store.looked.set(changed.filter(|at| at.elapsed().is_ok_and(|age| age > Duration::from_secs(1))));
            let of_store = |job: &Rc<CertificateJob>| job.store.as_ref().is_some_and(|own| Rc::ptr_eq(own, store));
            let jobs = self.jobs.iter().filter(|(_, job)| of_store(job) && stems.contains(&job.stem));
            wanted.extend(jobs.map(|(id, job)| (*id, Rc::clone(job))));
        }
        for (id, job) in wanted {
            if job.timing.is_some_and(|timing| !timing.enabled) {
                let words = format_args!("\"{}\" is not ordered: the client has \"enabled=off\"", job.name());
                self.say(job.home, Severity::Warn, words);
                continue;
            }
            job.wanted.set(true);
            self.agenda.hurry(id);
        }
    }

    /// Takes certificates over that other servers have told.
    fn take_shared(&mut self) {
        let has_changed = |job: &&Rc<CertificateJob>| {
            let number = job.shared.as_ref().map_or(0, |shared| shared.certificate_number(&job.stem));
            job.number_seen.replace(number) != number
        };
        // An order looks itself; it would begin in vain, if the certificate changed meanwhile.
        let all = self.jobs.iter().filter(|(id, job)| !self.agenda.is_active(**id) && has_changed(job));
        let newer: Vec<(TaskId, Rc<CertificateJob>)> = all.map(|(id, job)| (*id, Rc::clone(job))).collect();
        for (id, job) in newer {
            if !tasks::has_newer(&job, &self.log) {
                continue;
            }
            let log = Arc::clone(&self.log);
            self.spawn(Work::Adoption(id), async move { tasks::take_shared(&job, &log).await });
        }
    }

    /// Starts the requests to `ask` URLs for names that handshakes requested.
    fn take_asked(&mut self) {
        while self.running.count(Work::is_question) < ASKS_MAX {
            let Some(asked) = demand::take_name() else { return };
            let known = self.on_demand.get(&(Arc::clone(asked.demand.id()), asked.text.clone())).copied();
            if let Some(id) = known {
                // It has ended, or failed before.
                self.urge(id, &asked.name);
                continue;
            }
            let (demand, text) = (Arc::clone(&asked.demand), asked.text.clone());
            let log = Arc::clone(&self.log);
            self.spawn(Work::Question(asked), async move { tasks::ask_demand(&demand, &text, &log).await });
        }
    }

    /// A name may have a certificate: uses the stored one, or orders it.
    fn allowed(&mut self, asked: HandshakeName, stored: Option<acme::IssuedChain>) {
        if let Some(stored) = stored
            && asked.name.certificate.set(&stored, false).is_ok()
            && asked.name.is_valid()
        {
            asked.name.serve();
            self.make_room(&asked.demand);
            self.add_on_demand(asked, false);
            return;
        }
        if !self.may_order(&asked.demand) {
            let text = &asked.text;
            self.log.log(
                Severity::Warn,
                0,
                format_args!("no certificate on demand for \"{text}\": the rate is exceeded"),
            );
            asked.name.fail(demand::FAILED);
            return;
        }
        self.make_room(&asked.demand);
        let name = Arc::clone(&asked.name);
        let id = self.add_on_demand(asked, true);
        self.urge(id, &name);
    }

    /// Orders for handshakes that wait; they fail if the order has to wait itself.
    fn urge(&mut self, id: TaskId, name: &DemandName) {
        let pause = self.agenda.urge(id, agenda_now());
        if pause > PATIENCE {
            name.fail(pause.min(SLEEP_MOST));
        }
    }

    fn add_on_demand(&mut self, asked: HandshakeName, urgent: bool) -> TaskId {
        let HandshakeName { demand, text, name } = asked;
        let identifiers = vec![Identifier::Dns(text.clone())];
        let job = CertificateJob {
            stem: file_stem(&identifiers, demand.key),
            identifiers,
            key: demand.key,
            certificate: Arc::clone(&name.certificate),
            store: self.store(demand.folder().map(IssuerFolder)),
            home: 0,
            timing: None,
            served_by: Cell::new(None),
            state: Cell::new("waiting"),
            error: RefCell::default(),
            questions_failed: Cell::default(),
            is_suggested: Cell::default(),
            explanation: RefCell::default(),
            wanted: Cell::new(false),
            on_demand: Some((Arc::clone(&demand), name)),
            shared: shared_of(&demand.issuers),
            number_seen: Cell::new(0),
        };
        let issuers = demand.issuers.clone();
        let id = self.add(job, &issuers, urgent);
        self.on_demand.insert((Arc::clone(demand.id()), text), id);
        id
    }

    fn may_order(&mut self, demand: &OnDemand) -> bool {
        let at = demand::steady_seconds();
        // A minute's orders may come at once.
        let most = demand.rate.0.saturating_mul(60).div_ceil(1000).max(1).saturating_mul(1000);
        let allowance = self.allowances.entry(Arc::clone(demand.id())).or_insert(Allowance { left: most, at });
        let passed = u64::try_from(at.saturating_sub(allowance.at)).unwrap_or(0);
        allowance.left = allowance.left.saturating_add(passed.saturating_mul(demand.rate.0)).min(most);
        allowance.at = at;
        if allowance.left < 1000 {
            return false;
        }
        allowance.left -= 1000;
        true
    }

    /// Drops the least recently used name if the maximum is reached. Its files stay.
    fn make_room(&mut self, demand: &OnDemand) {
        let own: Vec<_> = self.on_demand.iter().filter(|((id, _), _)| id == demand.id()).collect();
        if own.len() < demand.max {
            return;
        }
        let used = |id: TaskId| self.jobs.get(&id).and_then(|job| job.on_demand.as_ref()).map(|(_, name)| name.used());
        let idle = own.iter().filter(|(_, id)| !self.agenda.is_active(**id));
        if let Some(id) = idle.min_by_key(|(_, id)| used(**id)).map(|(_, id)| **id) {
            self.drop_on_demand(id);
        }
    }

    fn drop_on_demand(&mut self, id: TaskId) {
        if !self.agenda.remove(id) {
            return;
        }
        self.windows.retain(|(_, other)| *other != id);
        let Some(job) = self.jobs.remove(&id) else { return };
        let Some((demand, name)) = &job.on_demand else { return };
        let text = job.name();
        self.on_demand.remove(&(Arc::clone(demand.id()), text.clone()));
        // A failed name stays in the table, so that it is not tried again at once.
        match name.is_valid() {
            true => demand::forget_name(demand, &text),
            false => name.refuse_if_asked(demand::REFUSED),
        }
    }
}
