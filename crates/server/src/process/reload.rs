//! Prepares a new configuration beside the running one: every step that can fail comes before the first change.

use crate::conf::source::Replay;
use crate::conf::{self, Config, Failure, Invocation};
use crate::keys::Keeper;
use crate::process::channel::Reload;
use crate::process::listeners::{Failed, Listeners, Purpose, SocketAssignment};
use crate::{report, say, voice};
use conf_schema::{Complaint, Store};
use conf_syntax::{Disk, Source};
use http_engine::plan::Folder;
use net::process::Account;
use observe::{LogFile, LogFiles, os};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::PathBuf;
use std::sync::Arc;

/// With the descriptors that they get on success.
pub type OpenLogs = Vec<(Arc<LogFile>, OwnedFd)>;

pub struct Unprepared {
    /// One line.
    pub why: String,
    /// Files and complaints, unless logs, folders or sockets are the reason.
    pub failure: Option<Failure>,
}

/// Reads and checks the configuration, opens its logs and sockets. Failures have been logged.
pub fn prepare(
    invocation: &Invocation,
    old: &Config,
    sockets: &Listeners,
    keeper: &Arc<Keeper>,
) -> Result<(Config, Listeners), Failed> {
    let prepared = prepare_from(&Disk, invocation, old, sockets, Purpose::Serve, keeper);
    let (config, listeners, warnings) = prepared.map_err(|unprepared| {
        if let Some(failure) = &unprepared.failure {
            report::log_failure(failure);
        }
        note_refused(&unprepared.why);
        Failed
    })?;
    report::log_warnings(&warnings, &config.texts.files);
    Ok((config, listeners))
}

/// [`prepare`] from any source. `Purpose::Test` is a rehearsal without effects.
pub fn prepare_from(
    source: &dyn Source,
    invocation: &Invocation,
    old: &Config,
    sockets: &Listeners,
    purpose: Purpose,
    keeper: &Arc<Keeper>,
) -> Result<(Config, Listeners, Vec<Complaint>), Unprepared> {
    keeper.begin();
    let store = Store { vault: Some(keeper.clone()), ..Store::default() };
    let reading = conf::read(source, store, invocation, old.logs.clone());
    let config = match reading.config {
        Ok(config) => config,
        Err(failure) => {
            return Err(Unprepared { why: report::first_line(&failure), failure: Some(failure) });
        }
    };
    let opened = || {
        let logs = open_logs(&config.logs)?;
        if purpose == Purpose::Serve {
            make_folders(&config)?;
        }
        let listeners = Listeners::open(&config.specs(), config.core.workers, sockets, purpose)?;
        Ok((logs, listeners))
    };
    let (result, errors) = voice::heard(opened);
    let (logs, listeners) = result.map_err(|_: Failed| Unprepared {
        why: errors.first().cloned().unwrap_or_else(|| "a log, a folder or a socket could not be opened".into()),
        failure: None,
    })?;
    if purpose == Purpose::Serve {
        commit_logs(logs);
        if config.core.key_isolation && !old.core.key_isolation {
            say!(
                Warn,
                "\"ssl_key_isolation\" requires a restart: this process has read keys, of which its children have copies"
            );
        }
    } else if !old.core.key_isolation {
        // A rehearsal's process needs no sockets.
        keeper.forget_unused();
    }
    Ok((config, listeners, reading.warnings))
}

pub fn note_refused(why: &str) {
    base::clock::update();
    metrics::Lifecycle::note_refused(base::clock::unix_millis(), why);
}

/// Opens all log files without activating them.
pub fn open_logs(files: &LogFiles) -> Result<OpenLogs, Failed> {
    let open = |file: &Arc<LogFile>| match observe::log_file::open(&file.path) {
        Ok(fd) => Ok((file.clone(), fd)),
        Err(e) => {
            say!(Emerg, "open() \"{}\" failed {}", file.path.display(), os(&e));
            Err(Failed)
        }
    };
    files.all().map(open).collect()
}

/// Creates the directories that the configuration writes to, owned by the worker's account (nginx: `ngx_create_paths`).
///
/// # Errors
/// A directory could not be created, which has been logged.
pub fn make_folders(config: &Config) -> Result<(), Failed> {
    let user = config.core.user.as_ref().filter(|_| rustix::process::geteuid().is_root());
    for Folder { path, needed } in config.http.iter().flat_map(|http| &http.folders) {
        let made = match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(("mkdir", e)),
            _ => Ok(()),
        };
        let owned = made.and_then(|()| {
            let uid = std::fs::metadata(path).map_err(|e| ("stat", e))?.uid();
            match user.filter(|user| user.uid != uid) {
                Some(user) => std::os::unix::fs::chown(path, Some(user.uid), None).map_err(|e| ("chown", e)),
                None => Ok(()),
            }
        });
        if let Err((what, e)) = owned {
            if *needed {
                say!(Emerg, "{what}() \"{}\" failed {}", path.display(), os(&e));
                return Err(Failed);
            }
            say!(Warn, "{what}() \"{}\" failed {}", path.display(), os(&e));
        }
    }
    Ok(())
}

pub fn commit_logs(logs: OpenLogs) {
    for (file, fd) in logs {
        file.set(fd);
    }
}

/// USR1: reopens every log file. A file that cannot be opened keeps its old descriptor. As in nginx, the worker's user
/// becomes the owner.
pub fn reopen_logs(files: &LogFiles, user: Option<&Account>) {
    for file in files.all() {
        let fd = match observe::log_file::open(&file.path) {
            Ok(fd) => fd,
            Err(e) => {
                say!(Emerg, "open() \"{}\" failed {}", file.path.display(), os(&e));
                continue;
            }
        };
        if let Some(user) = user
            && let Err(e) = std::os::unix::fs::fchown(&fd, Some(user.uid), None)
        {
            say!(Emerg, "chown(\"{}\", {}) failed {}", file.path.display(), user.uid, os(&e));
        }
        file.set(fd);
    }
}

pub fn log_copies(files: &LogFiles) -> Vec<(PathBuf, OwnedFd)> {
    let copy = |file: &Arc<LogFile>| Some((file.path.clone(), file.fd()?.as_fd().try_clone_to_owned().ok()?));
    files.all().filter_map(copy).collect()
}

pub fn hand_over(files: &LogFiles, descriptors: Vec<(PathBuf, OwnedFd)>) {
    for (path, fd) in descriptors {
        if let Some(file) = files.all().find(|file| file.path == path) {
            file.set(fd);
        }
    }
}

/// Builds the master's configuration from its texts, in the worker.
///
/// # Errors
/// The reason in one line. Rare, because the master has checked the same texts.
pub fn rebuild(
    order: Reload,
    invocation: &Invocation,
    old: &Config,
) -> Result<(Config, Listeners, Vec<(SocketAssignment, OwnedFd)>), String> {
    let Reload { texts, assignments, logs } = order;
    let came = texts.came.clone();
    let replay = Replay { files: &texts.files, matches: &texts.matches };
    let reading = conf::read(&replay, texts.store, invocation, old.logs.clone());
    let mut config = reading.config.map_err(|failure| report::first_line(&failure))?;
    config.texts.came = came;
    hand_over(&config.logs, logs);
    let listeners = Listeners::of_specs(&config.specs());
    if assignments
        .iter()
        .any(|(assignment, _)| assignment.listener >= listeners.all.len() || assignment.thread >= config.core.workers)
    {
        return Err("the sockets do not fit the configuration".into());
    }
    Ok((config, listeners, assignments))
}
