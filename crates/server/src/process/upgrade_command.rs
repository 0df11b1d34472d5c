//! `-s upgrade`: the steps of nginx's procedure for a new binary, each of which waits for the one before. USR2 starts the
//! new binary; once its workers run, QUIT ends the old master, which finishes its requests.

use crate::process::pidfile::{self, LoggedFailure};
use load::observe::processes::child_processes;
use rustix::process::{Pid, Signal, test_kill_process};
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

const GLANCE: Duration = Duration::from_millis(20);
/// Time for the old master to react to USR2 by renaming its pid file.
const REACTION_MAX: Duration = Duration::from_secs(5);
/// Time for the new binary to read its configuration and to start its workers.
const START_MAX: Duration = Duration::from_secs(60);
/// Time that the new master and a worker must live before the old master is ended.
const PROBATION: Duration = Duration::from_secs(1);

const NOT_FOLLOWED: &str =
    "the new binary was not started or has ended, and the old one serves on; the error log has the reason";

/// Upgrades the running server, whose pid file is `path`. `has_workers`: the new binary's configuration starts processes
/// beside the master.
///
/// # Errors
/// The reason; `None` if it has been logged. The old master serves, unless the message says that it has ended.
pub fn upgrade_server(path: &Path, has_workers: bool) -> Result<String, Option<String>> {
    // Kernels without CONFIG_PROC_CHILDREN do not tell.
    let has_workers = has_workers && Path::new("/proc/thread-self/children").exists();
    let old = pidfile::running_pid(path).map_err(|LoggedFailure| None)?;
    pidfile::send_signal(old, Signal::USR2).map_err(|LoggedFailure| None)?;
    let old_path = pidfile::old_path(path);
    let begun = || if names(&old_path, old) { UpgradeCheck::Done(()) } else { UpgradeCheck::Wait };
    until(REACTION_MAX, old, begun).map_err(|failure| failure.or_else(|| Some(NOT_FOLLOWED.into())))?;
    let new = until(START_MAX, old, || match pidfile::read_pid(path) {
        Some(new) if new == old => UpgradeCheck::Failed(NOT_FOLLOWED.into()),
        Some(new) if !has_workers || !children_of(new).is_empty() => UpgradeCheck::Done(new),
        _ => UpgradeCheck::Wait,
    })
    .map_err(|failure| failure.or_else(|| Some("the new binary starts no worker; both masters run".into())))?;
    let begun = Instant::now();
    while begun.elapsed() < PROBATION {
        if names(path, old) || test_kill_process(new).is_err() {
            return Err(Some(NOT_FOLLOWED.into()));
        }
        sleep(GLANCE);
    }
    if has_workers && children_of(new).is_empty() {
        return Err(Some("the workers of the new binary have ended; both masters run".into()));
    }
    pidfile::send_signal(old, Signal::QUIT).map_err(|LoggedFailure| None)?;
    Ok(format!(
        "the master process {} has followed {}, which finishes its requests and exits",
        number(new),
        number(old)
    ))
}

enum UpgradeCheck<T> {
    Done(T),
    Wait,
    Failed(String),
}

/// Repeats a check. Fails with a reason, or with `None` when the time is over.
fn until<T>(limit: Duration, old: Pid, check: impl Fn() -> UpgradeCheck<T>) -> Result<T, Option<String>> {
    let begun = Instant::now();
    loop {
        match check() {
            UpgradeCheck::Done(value) => return Ok(value),
            UpgradeCheck::Failed(reason) => return Err(Some(reason)),
            UpgradeCheck::Wait if test_kill_process(old).is_err() => {
                return Err(Some(format!("the master process {} has ended", number(old))));
            }
            UpgradeCheck::Wait if begun.elapsed() > limit => return Err(None),
            UpgradeCheck::Wait => sleep(GLANCE),
        }
    }
}

fn names(path: &Path, pid: Pid) -> bool {
    pidfile::read_pid(path) == Some(pid)
}

fn children_of(pid: Pid) -> Vec<u32> {
    u32::try_from(number(pid)).map(child_processes).unwrap_or_default()
}

fn number(pid: Pid) -> i32 {
    pid.as_raw_nonzero().get()
}
