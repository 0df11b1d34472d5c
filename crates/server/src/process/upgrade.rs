//! Upgrades the binary without closing a socket (USR2; nginx: `ngx_exec_new_binary`).
//!
//! Listening sockets are passed in nginx's environment variable, so that Tidegate can follow nginx and nginx can follow
//! Tidegate.

use crate::conf::CorePlan;
use crate::process::control_api::{self, ControlApi};
use crate::process::listeners::Listeners;
use crate::process::neighbours::{self, Neighbours};
use crate::process::{pidfile, supervisor, worker_process};
use crate::say;
use observe::os_error;
use std::ffi::OsString;
use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

/// nginx's variable, such as `6;7;8;`.
pub const VARIABLE: &str = "NGINX";

#[derive(Clone, Debug)]
pub struct Program {
    pub path: PathBuf,
    pub arguments: Vec<OsString>,
}

impl Program {
    /// Reads them from this process. A name without a slash was found in PATH and stands for the running file.
    pub fn of(arguments: &[OsString]) -> Program {
        let named = arguments.first().map(PathBuf::from).unwrap_or_default();
        let path = if named.as_os_str().as_encoded_bytes().contains(&b'/') {
            named
        } else {
            std::env::current_exe().unwrap_or(named)
        };
        Program { path, arguments: arguments.to_vec() }
    }
}

/// Returns the sockets that the previous program left open, if any.
pub fn inherited_listeners() -> Option<Listeners> {
    let text = std::env::var(VARIABLE).ok()?;
    say!(Notice, "using inherited sockets from \"{text}\"");
    let mut numbers = Vec::new();
    for word in text.split([';', ':']).filter(|word| !word.is_empty()) {
        match word.parse::<i32>() {
            Ok(number) => numbers.push(number),
            Err(_) => {
                say!(
                    Emerg,
                    "invalid socket number \"{word}\" in {VARIABLE} environment variable, ignoring the rest of the variable"
                );
                break;
            }
        }
    }
    Some(Listeners::inherit(&numbers))
}

/// Starts the new program with the sockets; returns its process id.
pub fn start_program(
    program: &Program,
    core: &CorePlan,
    listeners: &Listeners,
    neighbours: &mut Neighbours,
    control_api: Option<&ControlApi>,
) -> Option<i32> {
    let (pid_file, old) = (&core.pid, pidfile::old_path(&core.pid));
    let name = program.path.display();
    if !pidfile::is_special(pid_file)
        && let Err(e) = std::fs::rename(pid_file, &old)
    {
        say!(
            Alert,
            "rename() {} to {} failed before executing new binary process \"{name}\" {}",
            pid_file.display(),
            old.display(),
            os_error(&e)
        );
        return None;
    }
    let sockets = || listeners.all.iter().flat_map(|l| &l.sockets);
    let mark = |flags| {
        for socket in sockets() {
            let _ = rustix::io::fcntl_setfd(socket.as_fd(), flags);
        }
        for socket in neighbours.socket().into_iter().chain(control_api.map(ControlApi::listener)) {
            let _ = rustix::io::fcntl_setfd(socket, flags);
        }
    };
    let numbers: String = sockets().map(|socket| format!("{};", socket.as_raw_fd())).collect();
    mark(rustix::io::FdFlags::empty());
    if let Some(api) = control_api {
        api.permit_signals();
    }
    listeners.set_messages(false);
    let spawned = std::process::Command::new(&program.path)
        .args(program.arguments.iter().skip(1))
        .env_clear()
        .envs(worker_process::keep_environment(core))
        .env(VARIABLE, numbers)
        .envs(crate::confinement::for_new_binary())
        .envs(supervisor::for_new_binary())
        .envs(control_api.map(|api| (control_api::VARIABLE, api.listener().as_raw_fd().to_string())))
        .envs(neighbours.socket().map(|socket| (neighbours::VARIABLE, socket.as_raw_fd().to_string())))
        .spawn();
    mark(rustix::io::FdFlags::CLOEXEC);
    match spawned {
        Ok(child) => {
            say!(Notice, "start new binary process {}", child.id());
            neighbours.hand_over();
            i32::try_from(child.id()).ok()
        }
        Err(e) => {
            say!(Alert, "execve() failed while executing new binary process \"{name}\" {}", os_error(&e));
            restore_program(core, listeners, "an attempt to execute");
            None
        }
    }
}

/// The new program has ended: restores the pid file and the sockets.
pub fn restore_program(core: &CorePlan, listeners: &Listeners, after: &str) {
    listeners.set_messages(true);
    let old = pidfile::old_path(&core.pid);
    if !pidfile::is_special(&core.pid)
        && let Err(e) = std::fs::rename(&old, &core.pid)
    {
        say!(
            Alert,
            "rename() {} back to {} failed after {after} new binary process {}",
            old.display(),
            core.pid.display(),
            os_error(&e)
        );
    }
}
