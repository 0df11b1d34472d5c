//! Tasks of the scheduler: an order from its lock to the stored certificate, and the question about a name on demand.

use super::demand::{Asked, OnDemand};
use super::issuer_client::{Failed, IssuerClient, blocking};
use super::job::{Job, NoLock, order as order_of};
use super::renewal_info::Answer;
use super::state::{Folder, stem};
use acme::{Error, FailureCause, Identifier, Issued, TaskId};
use base::clock;
use std::rc::Rc;
use std::sync::Arc;

/// A task, for the scheduler when it ends.
pub enum Work {
    Order(acme::DueOrder),
    /// The question when a certificate should be renewed, with its identifier.
    Window(TaskId, String),
    /// The question whether a name may have a certificate.
    Question(Asked),
    /// Storing a state.
    Status,
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
pub struct Done {
    pub not_stored: Option<String>,
}

/// The end of a task.
pub enum Outcome {
    Issued(Done),
    /// Another process has ordered a newer certificate, which is in use now.
    Adopted,
    /// Another process orders.
    Locked,
    /// A name on demand that is not used, or may not have a certificate any more.
    Unwanted(&'static str),
    Failed(Failed),
    Window(Answer),
    Allowed(Option<Issued>),
    Denied,
    /// No answer, with the reason.
    Unknown(String),
    Told,
}

/// Adopts a certificate that another process has stored. Returns `true` if it is newer than the present one.
async fn adopt(job: &Job, folder: &Folder) -> bool {
    let (folder, stem) = (folder.clone(), job.stem.clone());
    let Ok(Some(stored)) = blocking(move || Ok(folder.certificate(&stem))).await else { return false };
    let leaves = tls::certs::certificates(stored.chain.as_bytes()).unwrap_or_default();
    let newer = match (leaves.first(), job.certificate.leaf()) {
        (Some(stored), Some(own)) => stored.not_after > own.not_after,
        (stored, None) => stored.is_some(),
        (None, Some(_)) => false,
    };
    newer && job.certificate.set(&stored, false).is_ok()
}

/// Stores a certificate.
async fn store(job: &Job, issued: Issued) -> Result<(), String> {
    let Some(store) = &job.store else { return Ok(()) };
    let (folder, stem) = (store.folder.clone(), job.stem.clone());
    let as_angie = job.timing.is_some();
    let path = folder.0.display().to_string();
    let work = move || {
        folder.store(&stem, &issued)?;
        if as_angie { folder.store_as_angie(&issued) } else { Ok(()) }
    };
    blocking(work).await.map_err(|e| format!("{path}: {e}"))
}

/// Stores a certificate that could not be stored when it was issued. `Ok(false)`: it need not be.
///
/// # Errors
/// The fault, which was reported before.
pub async fn save(job: &Job) -> Result<bool, String> {
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

/// Makes an order. `status`: its state for operators.
pub async fn order(job: Rc<Job>, issuer_client: Rc<IssuerClient>, replaces: Option<String>, status: String) -> Outcome {
    let wanted = job.wanted.take();
    let mut lock = None;
    if let Some(store) = &job.store {
        if !wanted && adopt(&job, &store.folder).await {
            return Outcome::Adopted;
        }
        lock = match store.lock().await {
            Ok(lock) => Some(lock),
            Err(NoLock::Taken) => {
                job.wanted.set(wanted);
                return Outcome::Locked;
            }
            // An order whose certificate is not kept would be repeated at every start, against the authority's limits.
            Err(NoLock::Refused(why)) => {
                let error = Error::Local(format!("the state cannot be stored: {why}"));
                return Outcome::Failed(Failed { error, cause: FailureCause::Task });
            }
        };
        // The previous owner of the lock may have ordered.
        if !wanted && adopt(&job, &store.folder).await {
            return Outcome::Adopted;
        }
    }
    if let Some((demand, name)) = &job.on_demand
        && job.certificate.leaf().is_some()
        && !wanted
    {
        if name.used() < name.issued() {
            return Outcome::Unwanted("it is not used");
        }
        match demand.ask(&job.name()).await {
            Ok(true) => {}
            Ok(false) => return Outcome::Unwanted("it is refused"),
            Err(why) => {
                let error = Error::Local(format!("{why} while asking about the name on demand"));
                return Outcome::Failed(Failed { error, cause: FailureCause::Task });
            }
        }
    }
    if let Some(store) = &job.store {
        let (folder, stem) = (store.folder.clone(), job.stem.clone());
        // For operators only; a failure is reported with the certificate's.
        let _ = blocking(move || folder.store_status(&stem, &status)).await;
    }
    let issued = match issuer_client.issue(&order_of(&job.identifiers, job.key, &issuer_client.issuer, replaces)).await
    {
        Ok(issued) => issued,
        Err(failed) => return Outcome::Failed(failed),
    };
    clock::update();
    let used = issued.check(&job.identifiers, clock::unix_seconds()).and_then(|_| job.certificate.set(&issued, false));
    if let Err(why) = used {
        return Outcome::Failed(Error::Protocol(why).into());
    }
    let not_stored = store(&job, issued).await.err();
    job.certificate.set_unsaved(not_stored.is_some());
    if let Some((_, name)) = &job.on_demand {
        name.note_issue();
    }
    drop(lock);
    Outcome::Issued(Done { not_stored })
}

/// Asks about a name on demand, and looks for its stored certificate.
pub async fn ask(demand: &Arc<OnDemand>, name: &str) -> Outcome {
    match demand.ask(name).await {
        Ok(true) => {}
        Ok(false) => return Outcome::Denied,
        Err(why) => return Outcome::Unknown(why),
    }
    let Some(folder) = demand.folder().map(Folder) else { return Outcome::Allowed(None) };
    let stem = stem(&[Identifier::Dns(name.to_string())], demand.key);
    let stored = blocking(move || Ok(folder.certificate(&stem))).await;
    Outcome::Allowed(stored.ok().flatten())
}
