//! Configurations of the API are judged in a child of the master with a time limit: a look-up of a name, a network disk or
//! an expression that takes too long holds only the child.
//!
//! The child reads the candidate as a dry run, writes its outcome to a pipe and ends. The master reads the pipe between its
//! other events, and prepares an accepted configuration itself.

use super::Master;
use super::changes::ConfigChange;
use crate::conf::layout::Layout;
use crate::conf::{Config, Invocation};
use crate::generations::attachments::{AttachedContents, AttachedFiles};
use crate::generations::candidate::Candidate;
use crate::generations::message::ChangeOutcome;
use crate::keys::Keeper;
use crate::process::listeners::{Listeners, Purpose};
use crate::process::reload::{self, ReloadFailure};
use crate::{report, say};
use http_api::ConfigRefusal;
use net::process::{Fork, fork_process};
use observe::os_error;
use rustix::io::Errno;
use rustix::pipe::PipeFlags;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Longest time of a judgement.
const JUDGEMENT_MAX: Duration = Duration::from_secs(20);
/// Bytes of an outcome at most: the texts of a configuration, and complaints.
const OUTCOME_BYTES_MAX: usize = 64 << 20;

/// A child that judges a configuration.
pub struct Judgement {
    pid: i32,
    pipe: OwnedFd,
    bytes: Vec<u8>,
    until: Instant,
    worker: i32,
    ticket: u64,
    change: ConfigChange,
    candidate: Candidate,
}

impl Judgement {
    pub fn until(&self) -> Instant {
        self.until
    }
    pub fn pipe(&self) -> BorrowedFd<'_> {
        self.pipe.as_fd()
    }
    fn kill(&self) {
        if let Some(pid) = Pid::from_raw(self.pid) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    /// Reads what the child has written. Returns `true` at its end.
    fn is_over(&mut self) -> bool {
        let mut part = [0; 16 << 10];
        loop {
            match rustix::io::read(&self.pipe, &mut part) {
                Ok(0) => return true,
                Ok(_) if self.bytes.len() > OUTCOME_BYTES_MAX => return true,
                Ok(n) => self.bytes.extend_from_slice(part.get(..n).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return false,
                Err(_) => return true,
            }
        }
    }
}

/// A judged change, whose request awaits its outcome.
pub struct JudgedChange {
    pub worker: i32,
    pub ticket: u64,
    pub change: ConfigChange,
    pub candidate: Candidate,
    pub outcome: Result<ChangeOutcome, ConfigRefusal>,
}

impl Master {
    /// Starts a child that writes the attachments of a candidate and judges it. [`Master::take_judged`] returns its outcome.
    ///
    /// # Errors
    /// No child could be started.
    pub fn judge(
        &mut self,
        worker: i32,
        ticket: u64,
        mut change: ConfigChange,
        candidate: Candidate,
        active: u64,
    ) -> Result<(), ConfigRefusal> {
        let failed = |call: &str, e: &std::io::Error| {
            say!(Alert, "{call}() failed while judging a configuration {}", os_error(e));
            ConfigRefusal::internal(format!("{call}() failed {}", os_error(e)))
        };
        let (pipe, theirs) =
            rustix::pipe::pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(|e| failed("pipe", &e.into()))?;
        match fork_process().map_err(|e| failed("fork", &e))? {
            Fork::Parent(pid) => {
                self.judges.push(pid);
                let until = Instant::now() + JUDGEMENT_MAX;
                // The child writes them.
                change.attached.contents.clear();
                self.judgement =
                    Some(Judgement { pid, pipe, bytes: Vec::new(), until, worker, ticket, change, candidate });
                Ok(())
            }
            Fork::Child => {
                drop(pipe);
                // A panic must not unwind into the master's loop, whose end removes files of the running server.
                let judged = catch_unwind(AssertUnwindSafe(|| {
                    net::title::set(&format!("{}: configuration check", crate::messages::program_name()));
                    self.keeper.leave();
                    let keeper = Arc::new(Keeper::default());
                    let is_rehearsal = change.terms.dry_run;
                    let outcome = outcome_of(
                        &candidate,
                        &change.attached,
                        &self.invocation,
                        &self.config,
                        &self.listeners,
                        &keeper,
                        is_rehearsal,
                        active,
                    );
                    keeper.stop();
                    let written = write_all(&theirs, outcome.write().bytes());
                    // The end of a large process takes longer than the master needs to wait.
                    drop(theirs);
                    written
                }));
                std::process::exit(i32::from(!matches!(judged, Ok(Ok(())))))
            }
        }
    }

    /// Takes the change whose judgement has ended, or has taken too long.
    pub fn take_judged(&mut self, now: Instant) -> Option<JudgedChange> {
        let judgement = self.judgement.as_mut()?;
        let is_over = judgement.is_over();
        if !is_over && judgement.until > now {
            return None;
        }
        let judgement = self.judgement.take()?;
        let outcome = match ChangeOutcome::read(&judgement.bytes).filter(|_| is_over) {
            Some(outcome) => Ok(outcome),
            None => {
                judgement.kill();
                let seconds = JUDGEMENT_MAX.as_secs();
                let words = match is_over {
                    true => "the check of the configuration ended without a result; the error log may have the reason"
                        .into(),
                    false => {
                        format!("the configuration could not be checked within {seconds} s; \"tidegate -t\" shows more")
                    }
                };
                say!(Error, "api: {words}");
                Err(ConfigRefusal::new(400, "ConfigInvalid", words))
            }
        };
        let Judgement { worker, ticket, change, candidate, .. } = judgement;
        Some(JudgedChange { worker, ticket, change, candidate, outcome })
    }
}

fn write_all(pipe: &OwnedFd, mut bytes: &[u8]) -> Result<(), Errno> {
    rustix::fs::fcntl_setfl(pipe, rustix::fs::OFlags::empty())?;
    while !bytes.is_empty() {
        match rustix::io::write(pipe, bytes) {
            Ok(n) => bytes = bytes.get(n..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn outcome_of(
    candidate: &Candidate,
    attached: &AttachedContents,
    invocation: &Invocation,
    config: &Config,
    listeners: &Listeners,
    keeper: &Arc<Keeper>,
    is_rehearsal: bool,
    active: u64,
) -> ChangeOutcome {
    let files = AttachedFiles(candidate.layout.attachments());
    let refused = |refusal| ChangeOutcome { ticket: 0, result: Err(refusal), texts: None };
    let new = match files.write(candidate, attached) {
        Ok(new) => new,
        Err(refusal) => return refused(refusal),
    };
    let outcome = judged(candidate, &files, invocation, config, listeners, keeper, is_rehearsal, active);
    if is_rehearsal || outcome.result.is_err() {
        files.remove(&new);
    }
    outcome
}

fn judged(
    candidate: &Candidate,
    files: &AttachedFiles,
    invocation: &Invocation,
    config: &Config,
    listeners: &Listeners,
    keeper: &Arc<Keeper>,
    is_rehearsal: bool,
    active: u64,
) -> ChangeOutcome {
    let refused = |refusal| ChangeOutcome { ticket: 0, result: Err(refusal), texts: None };
    let prepared = reload::prepare_from(candidate, invocation, config, listeners, Purpose::Test, keeper);
    match prepared {
        Ok((config, _, mut warnings)) if is_rehearsal => {
            warnings.extend(candidate.complaints());
            let shown = |path: &std::path::Path| candidate.layout.shown(path);
            let warnings = report::complaints_json(&warnings, &config.texts.files, shown);
            // Keys of certificates are excluded from the comparison.
            let mut texts = config.texts;
            texts.store.files.clear();
            let value = json!({ "dry_run": true, "generation": active, "warnings": warnings });
            ChangeOutcome { ticket: 0, result: Ok(value), texts: Some(texts) }
        }
        Ok((config, ..)) => {
            let user = config.core.user.as_ref().filter(|_| rustix::process::geteuid().is_root());
            match user.map_or(Ok(()), |user| files.hand_over(candidate, user.uid)) {
                Ok(()) => ChangeOutcome { ticket: 0, result: Ok(Value::Null), texts: None },
                Err(refusal) => refused(refusal),
            }
        }
        Err(unprepared) => refused(refusal_of(unprepared, &candidate.layout)),
    }
}

/// Words the failure of a candidate for the API's client.
pub fn refusal_of(unprepared: ReloadFailure, layout: &Layout) -> ConfigRefusal {
    let ReloadFailure { why, mut failure, is_address } = unprepared;
    let why = layout.without_digests(&why);
    for complaint in failure.iter_mut().flat_map(|failure| &mut failure.complaints) {
        complaint.text = layout.without_digests(&complaint.text);
    }
    let shown = |path: &std::path::Path| layout.shown(path);
    let complaints = failure.map(|failure| report::complaints_json(&failure.complaints, &failure.files, shown));
    let complaints = complaints.unwrap_or_else(|| json!([{ "level": "emerg", "reason": why }]));
    let (status, code) = match is_address {
        true => (409, "AddressUnavailable"),
        false => (400, "ConfigInvalid"),
    };
    ConfigRefusal { complaints: Some(complaints), ..ConfigRefusal::new(status, code, why) }
}
