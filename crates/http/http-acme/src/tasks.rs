//! Tasks of the scheduler: an order from its lock to the stored certificate, and the question about a name on demand.

use super::demand::{HandshakeName, OnDemand};
use super::issuer_client::{IssuerClient, OrderFailure, run_blocking};
use super::job::{CertificateJob, NoLock, make_order as order_of};
use super::renewal_info::RenewalAnswer;
use super::shared_issuer::OrderTurn;
use super::state::{IssuerFolder, file_stem};
use acme::{Error, FailureCause, Identifier, IssuedChain, TaskId};
use base::clock;
use observe::{ErrorLog, Severity};
use std::rc::Rc;
use std::sync::Arc;

/// A task, for the scheduler when it ends.
pub enum Work {
    Order(acme::DueOrder),
    /// The question when a certificate should be renewed, with its identifier.
    Window(TaskId, String),
    /// The question whether a name may have a certificate.
    Question(HandshakeName),
    /// Storing a state.
    Status,
    /// Taking a certificate over from another server.
    Adoption(TaskId),
}

impl Work {
    pub fn is_window(&self) -> bool {
        matches!(self, Work::Window(..))
    }
    pub fn is_question(&self) -> bool {
        matches!(self, Work::Question(_))
    }
}

/// A certificate that is in use.
pub struct IssuedCertificate {
    pub not_stored: Option<String>,
}

/// The end of a task.
pub enum TaskOutcome {
    Issued(IssuedCertificate),
    /// Another process has ordered a newer certificate, which is in use now.
    Adopted,
    /// Another process orders.
    Locked,
    /// Another server orders.
    TakenTurn,
    /// The order waits for the store that servers share.
    NoStore,
    /// A name on demand that is not used, or may not have a certificate any more.
    Unwanted(&'static str),
    Failed(OrderFailure),
    Window(RenewalAnswer),
    Allowed(Option<IssuedChain>),
    Denied,
    /// No answer, with the reason.
    Unknown(String),
    Told,
}

/// Adopts a certificate that another process has stored. Returns `true` if it is newer than the present one.
async fn adopt(job: &CertificateJob, folder: &IssuerFolder) -> bool {
    let (folder, stem) = (folder.clone(), job.stem.clone());
    let Ok(Some(stored)) = run_blocking(move || Ok(folder.certificate(&stem))).await else { return false };
    is_newer(job, &stored) && job.certificate.set(&stored, false).is_ok()
}

fn is_newer(job: &CertificateJob, other: &IssuedChain) -> bool {
    let leaves = tls::certs::parse_certificates(other.chain.as_bytes()).unwrap_or_default();
    match (leaves.first(), job.certificate.leaf()) {
        (Some(other), Some(own)) => other.not_after > own.not_after,
        (other, None) => other.is_some(),
        (None, Some(_)) => false,
    }
}

fn is_older(other: &IssuedChain, own: &tls::x509::Certificate) -> bool {
    let leaves = tls::certs::parse_certificates(other.chain.as_bytes()).unwrap_or_default();
    leaves.first().is_none_or(|other| other.not_after < own.not_after)
}

/// Tells whether another server has told a newer certificate.
pub fn has_newer(job: &CertificateJob, log: &ErrorLog) -> bool {
    let told = job.shared.as_ref().and_then(|shared| shared.certificate(&job.stem, log));
    told.is_some_and(|told| is_newer(job, &told))
}

/// Takes a newer certificate over that another server has told, and stores it.
pub async fn take_shared(job: &CertificateJob, log: &ErrorLog) -> TaskOutcome {
    let told = job.shared.as_ref().and_then(|shared| shared.certificate(&job.stem, log));
    let Some(told) = told.filter(|told| is_newer(job, told)) else { return TaskOutcome::Told };
    clock::update();
    let used = told.check(&job.identifiers, clock::unix_seconds()).and_then(|_| job.certificate.set(&told, false));
    if let Err(why) = used {
        let name = job.name();
        log.log(
            Severity::Error,
            0,
            format_args!("the certificate of another server for \"{name}\" is not used: {why}"),
        );
        return TaskOutcome::Told;
    }
    if let Err(why) = store(job, told).await {
        log.log(Severity::Error, 0, format_args!("the certificate for \"{}\" is not stored: {why}", job.name()));
        job.certificate.set_unsaved(true);
    }
    TaskOutcome::Adopted
}

/// Stores a certificate.
async fn store(job: &CertificateJob, issued: IssuedChain) -> Result<(), String> {
    let Some(store) = &job.store else { return Ok(()) };
    let (folder, stem) = (store.folder.clone(), job.stem.clone());
    let as_angie = job.timing.is_some();
    let path = folder.0.display().to_string();
    let work = move || {
        folder.store(&stem, &issued)?;
        if as_angie { folder.store_as_angie(&issued) } else { Ok(()) }
    };
    run_blocking(work).await.map_err(|e| format!("{path}: {e}"))
}

/// Stores a certificate that could not be stored when it was issued. `Ok(false)`: it need not be.
///
/// # Errors
/// The fault, which was reported before.
pub async fn save_certificate(job: &CertificateJob) -> Result<bool, String> {
    let Some(folder) = &job.store else { return Ok(false) };
    let Ok(_lock) = folder.lock().await else { return Ok(false) };
    // Another process may have ordered a newer one meanwhile.
    if !adopt(job, &folder.folder).await {
        let Some(issued) = job.certificate.unsaved() else { return Ok(false) };
        store(job, issued).await?;
    }
    job.certificate.set_unsaved(false);
    Ok(true)
}

/// Makes an order, at this server's turn. `status`: its state for operators.
pub async fn run_order(
    job: Rc<CertificateJob>,
    issuer_client: Rc<IssuerClient>,
    replaces: Option<String>,
    status: String,
) -> TaskOutcome {
    let Some(shared) = job.shared.clone() else { return order_here(job, issuer_client, replaces, status).await };
    let leaf = job.certificate.leaf();
    let turn = shared.take_turn(&job.stem, leaf.as_deref(), job.wanted.get()).await;
    match turn {
        OrderTurn::Taken => return TaskOutcome::TakenTurn,
        OrderTurn::Later => return TaskOutcome::NoStore,
        OrderTurn::Leased(_) | OrderTurn::Alone => {}
    }
    // The previous holder of the turn may have ordered.
    let log = issuer_client.log();
    let outcome = match job.wanted.get() {
        false if has_newer(&job, log) => take_shared(&job, log).await,
        _ => {
            let order = order_here(Rc::clone(&job), Rc::clone(&issuer_client), replaces, status);
            shared.run_with_lease(&turn, order).await
        }
    };
    if let (TaskOutcome::Issued(_) | TaskOutcome::Adopted, Some(leaf)) = (&outcome, job.certificate.leaf())
        && let Some(issued) = job.certificate.texts()
        && shared.certificate(&job.stem, log).is_none_or(|told| is_older(&told, &leaf))
    {
        shared.tell_certificate(&job.stem, &issued, leaf.not_after, log);
    }
    shared.end_turn(turn).await;
    outcome
}

/// Makes an order. `status`: its state for operators.
async fn order_here(
    job: Rc<CertificateJob>,
    issuer_client: Rc<IssuerClient>,
    replaces: Option<String>,
    status: String,
) -> TaskOutcome {
    let wanted = job.wanted.take();
    let mut lock = None;
    if let Some(store) = &job.store {
        if !wanted && adopt(&job, &store.folder).await {
            return TaskOutcome::Adopted;
        }
        lock = match store.lock().await {
            Ok(lock) => Some(lock),
            Err(NoLock::Taken) => {
                job.wanted.set(wanted);
                return TaskOutcome::Locked;
            }
            // An order whose certificate is not kept would be repeated at every start, against the authority's limits.
            Err(NoLock::Refused(why)) => {
                let error = Error::Local(format!("the state cannot be stored: {why}"));
                return TaskOutcome::Failed(OrderFailure { error, cause: FailureCause::Task });
            }
        };
        // The previous owner of the lock may have ordered.
        if !wanted && adopt(&job, &store.folder).await {
            return TaskOutcome::Adopted;
        }
    }
    if let Some((demand, name)) = &job.on_demand
        && job.certificate.leaf().is_some()
        && !wanted
    {
        if name.used() < name.issued() {
            return TaskOutcome::Unwanted("it is not used");
        }
        match demand.ask(&job.name()).await {
            Ok(true) => {}
            Ok(false) => return TaskOutcome::Unwanted("it is refused"),
            Err(why) => {
                let error = Error::Local(format!("{why} while asking about the name on demand"));
                return TaskOutcome::Failed(OrderFailure { error, cause: FailureCause::Task });
            }
        }
    }
    if let Some(store) = &job.store {
        let (folder, stem) = (store.folder.clone(), job.stem.clone());
        // For operators only; a failure is reported with the certificate's.
        let _ = run_blocking(move || folder.store_status(&stem, &status)).await;
    }
    let issued = match issuer_client.issue(&order_of(&job.identifiers, job.key, &issuer_client.issuer, replaces)).await
    {
        Ok(issued) => issued,
        Err(failed) => return TaskOutcome::Failed(failed),
    };
    clock::update();
    let used = issued.check(&job.identifiers, clock::unix_seconds()).and_then(|_| job.certificate.set(&issued, false));
    if let Err(why) = used {
        return TaskOutcome::Failed(Error::Protocol(why).into());
    }
    let not_stored = store(&job, issued).await.err();
    job.certificate.set_unsaved(not_stored.is_some());
    if let Some((_, name)) = &job.on_demand {
        name.note_issue();
    }
    drop(lock);
    TaskOutcome::Issued(IssuedCertificate { not_stored })
}

/// Asks about a name on demand, and looks for its stored certificate.
pub async fn ask_demand(demand: &Arc<OnDemand>, name: &str, log: &ErrorLog) -> TaskOutcome {
    match demand.ask(name).await {
        Ok(true) => {}
        Ok(false) => return TaskOutcome::Denied,
        Err(why) => return TaskOutcome::Unknown(why),
    }
    let stem = file_stem(&[Identifier::Dns(name.to_string())], demand.key);
    let shared = demand.issuers.first().and_then(|issuer| issuer.shared.as_ref());
    let told = shared.and_then(|shared| shared.certificate(&stem, log));
    let Some(folder) = demand.folder().map(IssuerFolder) else { return TaskOutcome::Allowed(told) };
    let stored = run_blocking(move || Ok(folder.certificate(&stem))).await;
    TaskOutcome::Allowed(stored.ok().flatten().or(told))
}
