//! Prepares a new configuration beside the running one: every step that can fail comes before the first change.

use crate::codec::SocketAssignment;
use crate::conf::source::Replay;
use crate::conf::{self, ConfFailure, Config, Invocation};
use crate::keys::Keeper;
use crate::process::channel::Reload;
use crate::process::listeners::{ListenFailure, Listeners, Purpose};
use crate::{messages, report, say};
use conf_schema::{Complaint, TextStore};
use conf_syntax::{Disk, TextSource};
use http_engine::plan::{Folder, NewFile};
use net::process::UserAccount;
use observe::{LogFile, LogFiles, Severity, os_error};
use rustix::fs::{Mode, OFlags};
use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files of a folder whose owner is changed with the folder's.
const FILES_HANDED_MAX: usize = 10_000;

/// With the descriptors that they get on success.
pub type OpenLogs = Vec<(Arc<LogFile>, OwnedFd)>;

pub struct ReloadFailure {
    /// One line.
    pub why: String,
    /// Files and complaints, unless logs, folders or sockets are the reason.
    pub failure: Option<ConfFailure>,
    /// An address could not be bound: the same configuration may be accepted later.
    pub is_address: bool,
}

/// Reads and checks the configuration, opens its logs and sockets. Failures have been logged.
pub fn prepare_reload(
    invocation: &Invocation,
    old: &Config,
    sockets: &Listeners,
    keeper: &Arc<Keeper>,
) -> Result<(Config, Listeners), ListenFailure> {
    let prepared = prepare_from(&Disk, invocation, old, sockets, Purpose::Serve, keeper);
    let (config, listeners, warnings) = prepared.map_err(|unprepared| {
        if let Some(failure) = &unprepared.failure {
            report::log_failure(failure);
        }
        note_refused(&unprepared.why);
        ListenFailure
    })?;
    report::log_warnings(&warnings, &config.texts.files);
    Ok((config, listeners))
}

/// [`prepare_reload`] from any source. `Purpose::Test` is a rehearsal without effects.
pub fn prepare_from(
    source: &dyn TextSource,
    invocation: &Invocation,
    old: &Config,
    sockets: &Listeners,
    purpose: Purpose,
    keeper: &Arc<Keeper>,
) -> Result<(Config, Listeners, Vec<Complaint>), ReloadFailure> {
    keeper.begin();
    let store = TextStore { key_reader: Some(keeper.clone()), ..TextStore::default() };
    let reading = conf::read_config(source, store, invocation, old.logs.clone());
    let config = match reading.config {
        Ok(config) => config,
        Err(failure) => {
            return Err(ReloadFailure { why: report::first_line(&failure), failure: Some(failure), is_address: false });
        }
    };
    let mut is_address = false;
    let opened = || {
        let logs = open_logs(&config.logs)?;
        if purpose == Purpose::Serve {
            make_folders(&config)?;
        }
        is_address = true;
        let listeners = Listeners::open(&config.specs(), config.core.workers, sockets, purpose)?;
        Ok((logs, listeners))
    };
    let (result, errors) = messages::collect_messages(Severity::Emerg, opened);
    let (logs, listeners) = result.map_err(|_: ListenFailure| ReloadFailure {
        why: errors
            .into_iter()
            .next()
            .map_or_else(|| "a log, a folder or a socket could not be opened".into(), |error| error.words),
        failure: None,
        is_address,
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
pub fn open_logs(files: &LogFiles) -> Result<OpenLogs, ListenFailure> {
    let open = |file: &Arc<LogFile>| match file.descriptor() {
        Ok(fd) => Ok((file.clone(), fd)),
        Err(e) => {
            let place = files.place_suffix(&file.path);
            say!(Emerg, "open() \"{}\" failed {}{place}", file.path.display(), os_error(&e));
            Err(ListenFailure)
        }
    };
    files.all().map(open).collect()
}

/// Creates the directories that the configuration writes to, owned by the worker's account (nginx: `ngx_create_paths`).
///
/// # Errors
/// A directory could not be created, which has been logged.
pub fn make_folders(config: &Config) -> Result<(), ListenFailure> {
    let user = config.core.user.as_ref().filter(|_| rustix::process::geteuid().is_root());
    for Folder { path, needed, is_state } in config.http.iter().flat_map(|http| &http.folders) {
        if let Some(parent) = path.parent().filter(|parent| *is_state && !parent.exists()) {
            // A failure is that of the folder.
            let _ = std::fs::DirBuilder::new().recursive(true).mode(0o755).create(parent);
        }
        let made = match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => Err(("mkdir", e)),
            _ => Ok(()),
        };
        let owned = made.and_then(|()| {
            let uid = std::fs::metadata(path).map_err(|e| ("stat", e))?.uid();
            match user.filter(|user| user.uid != uid) {
                Some(user) => {
                    if *is_state {
                        hand_files_over(path, uid, user);
                    }
                    std::os::unix::fs::chown(path, Some(user.uid), None).map_err(|e| ("chown", e))
                }
                None => Ok(()),
            }
        });
        if let Err((what, e)) = owned {
            if *needed {
                say!(Emerg, "{what}() \"{}\" failed {}", path.display(), os_error(&e));
                return Err(ListenFailure);
            }
            say!(Warn, "{what}() \"{}\" failed {}", path.display(), os_error(&e));
        }
    }
    make_files(config)
}

/// `-t`: tests that missing directories can be created, and removes them again. Warns where a start does.
///
/// # Errors
/// A directory that a start needs cannot be created, which has been logged.
pub fn test_folders(config: &Config) -> Result<(), ListenFailure> {
    let folders = config.http.iter().flat_map(|http| &http.folders);
    // A start creates missing parents of state.
    let tested = folders.filter(|folder| !folder.is_state || has_parent(&folder.path));
    for Folder { path, needed, .. } in tested {
        match std::fs::DirBuilder::new().mode(0o700).create(path) {
            Ok(()) => drop(std::fs::remove_dir(path)),
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
            Err(e) if *needed => {
                say!(Emerg, "mkdir() \"{}\" failed {}", path.display(), os_error(&e));
                return Err(ListenFailure);
            }
            Err(e) => say!(Warn, "mkdir() \"{}\" failed {}", path.display(), os_error(&e)),
        }
    }
    Ok(())
}

fn has_parent(path: &Path) -> bool {
    path.parent().is_none_or(Path::exists)
}

/// Gives the files of a folder to the worker's account, before the folder itself: state that another server, or another account, has left
/// there. Only files of the folder's owner, each with one name: none that could be put there to be given away.
fn hand_files_over(folder: &Path, owner: u32, user: &UserAccount) {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().take(FILES_HANDED_MAX) {
        let Ok(file) = rustix::fs::open(entry.path(), flags, Mode::empty()).map(std::fs::File::from) else { continue };
        let own = file.metadata().is_ok_and(|found| found.is_file() && found.uid() == owner && found.nlink() == 1);
        if own && let Err(e) = std::os::unix::fs::fchown(&file, Some(user.uid), None) {
            say!(Warn, "chown(\"{}\", {}) failed {}", entry.path().display(), user.uid, os_error(&e));
        }
    }
}

/// Creates the files that the configuration names and that do not exist or are empty, readable by the owner of their folder alone.
fn make_files(config: &Config) -> Result<(), ListenFailure> {
    for NewFile { path, content } in config.http.iter().flat_map(|http| &http.new_files) {
        let mut temporary = path.clone().into_os_string();
        temporary.push(format!(".{}", std::process::id()));
        // Of an earlier process with this number.
        let _ = std::fs::remove_file(&temporary);
        let made = (|| {
            let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&temporary)?;
            file.write_all(content)?;
            // In a folder of the worker, the file is the worker's.
            let folder = path.parent().unwrap_or(Path::new("/"));
            if rustix::process::geteuid().is_root() {
                std::os::unix::fs::fchown(&file, Some(std::fs::metadata(folder)?.uid()), None)?;
            }
            file.sync_all()?;
            match std::fs::metadata(path) {
                Ok(found) if found.len() > 0 => Err(std::io::ErrorKind::AlreadyExists.into()),
                _ => std::fs::rename(&temporary, path),
            }
        })();
        match made {
            Ok(()) => say!(Notice, "created \"{}\"", path.display()),
            Err(e) => {
                let _ = std::fs::remove_file(&temporary);
                say!(Emerg, "cannot create \"{}\" {}", path.display(), os_error(&e));
                return Err(ListenFailure);
            }
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
pub fn reopen_logs(files: &LogFiles, user: Option<&UserAccount>) {
    for file in files.all() {
        let fd = match file.descriptor() {
            Ok(fd) => fd,
            Err(e) => {
                let place = files.place_suffix(&file.path);
                say!(Emerg, "open() \"{}\" failed {}{place}", file.path.display(), os_error(&e));
                continue;
            }
        };
        if let Some(user) = user
            && let Err(e) = std::os::unix::fs::fchown(&fd, Some(user.uid), None)
        {
            say!(Emerg, "chown(\"{}\", {}) failed {}", file.path.display(), user.uid, os_error(&e));
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
pub fn rebuild_config(
    order: Reload,
    invocation: &Invocation,
    old: &Config,
) -> Result<(Config, Listeners, Vec<(SocketAssignment, OwnedFd)>), String> {
    let Reload { texts, assignments, logs } = order;
    let came = texts.came.clone();
    let replay = Replay { files: &texts.files, matches: &texts.matches };
    let reading = conf::read_config(&replay, texts.store, invocation, old.logs.clone());
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
