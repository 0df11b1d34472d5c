//! The pid file, and the `-s` signals, which are sent to the process in it.

use crate::say;
use observe::os_error;
use rustix::process::{Pid, Signal, kill_process};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Suffix of the pid file's name while a new binary uses the name.
const OLD: &str = ".oldbin";

/// A failure that has been logged.
#[derive(Debug)]
pub struct LoggedFailure;

pub fn old_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OLD);
    name.into()
}

/// Mode 644 regardless of the umask: a user who can write the file could redirect signals.
fn created() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    // Opening a pipe without a reader fails, instead of waiting.
    options.create(true).mode(0o644).custom_flags(libc::O_NONBLOCK);
    options
}

/// Returns `false` after a logged failure.
pub fn write_pid(path: &Path) -> bool {
    let write = || {
        let text = format!("{}\n", std::process::id());
        let mut file = created().truncate(false).write(true).open(path)?;
        // A reader never finds the file empty: systemd reads it at any time.
        file.write_all(text.as_bytes())?;
        if file.metadata()?.is_file() { file.set_len(text.len() as u64) } else { Ok(()) }
    };
    match write() {
        Ok(()) => true,
        Err(e) => {
            say!(Emerg, "open() \"{}\" failed {}", path.display(), os_error(&e));
            false
        }
    }
}

/// `-t`: tests that the file can be written.
pub fn test_pidfile(path: &Path) -> bool {
    match created().append(true).open(path) {
        Ok(_) => true,
        Err(e) => {
            say!(Emerg, "open() \"{}\" failed {}", path.display(), os_error(&e));
            false
        }
    }
}

/// Tells whether a path is not a regular file: with `pid /dev/null`, root would otherwise remove or rename the device.
pub fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file())
}

pub fn remove_pidfile(path: &Path) {
    if is_special(path) {
        return;
    }
    if let Err(e) = std::fs::remove_file(path) {
        say!(Alert, "unlink() \"{}\" failed {}", path.display(), os_error(&e));
    }
}

/// Returns the process in a pid file, if the file can be read and contains a number.
pub fn read_pid(path: &Path) -> Option<Pid> {
    number(&text(path).ok()?)
}

fn text(path: &Path) -> std::io::Result<String> {
    Ok(String::from_utf8_lossy(&conf_syntax::read_regular(path)?).into_owned())
}

fn number(text: &str) -> Option<Pid> {
    let text = text.trim_end_matches(['\r', '\n']);
    text.parse::<i32>().ok().filter(|pid| *pid > 0).and_then(Pid::from_raw)
}

/// Returns the process in a pid file.
///
/// # Errors
/// The reason, which has been logged in nginx's words.
pub fn running_pid(path: &Path) -> Result<Pid, LoggedFailure> {
    let text = match text(path) {
        Ok(text) => text,
        Err(e) => {
            say!(Error, "open() \"{}\" failed {}", path.display(), os_error(&e));
            return Err(LoggedFailure);
        }
    };
    number(&text).ok_or_else(|| {
        let text = text.trim_end_matches(['\r', '\n']);
        say!(Error, "invalid PID number \"{text}\" in \"{}\"", path.display());
        LoggedFailure
    })
}

/// Sends a signal.
///
/// # Errors
/// The reason, which has been logged in nginx's words.
pub fn send_signal(pid: Pid, signal: Signal) -> Result<(), LoggedFailure> {
    kill_process(pid, signal).map_err(|e| {
        say!(Alert, "kill({}, {}) failed {}", pid.as_raw_nonzero(), signal.as_raw(), os_error(&e.into()));
        LoggedFailure
    })
}

/// Sends the signal of a `-s` command to the process in a pid file; returns the exit code.
pub fn signal_command(path: &Path, command: &str) -> i32 {
    let signal = match command {
        "stop" => Signal::TERM,
        "quit" => Signal::QUIT,
        "reopen" => Signal::USR1,
        _ => Signal::HUP,
    };
    i32::from(running_pid(path).and_then(|pid| send_signal(pid, signal)).is_err())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_old_masters_file() {
        assert_eq!(old_path(Path::new("/run/nginx.pid")), PathBuf::from("/run/nginx.pid.oldbin"));
    }

    #[test]
    fn written_read_and_refused() {
        let path = std::env::temp_dir().join(format!("tidegate-pid-{}", std::process::id()));
        assert!(write_pid(&path));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), format!("{}\n", std::process::id()));
        std::fs::write(&path, "x\n").expect("write");
        assert_eq!(signal_command(&path, "reload"), 1);
        remove_pidfile(&path);
        assert_eq!(signal_command(&path, "reload"), 1);
        assert!(!write_pid(Path::new("/none/such/pid")));
    }

    #[test]
    fn pid_paths_that_are_no_files_stay() {
        let path = std::env::temp_dir().join(format!("tidegate-pid-folder-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        let link = path.join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        remove_pidfile(&link);
        assert!(link.symlink_metadata().is_ok(), "a link to a device is kept");
        std::fs::remove_dir_all(&path).expect("removed");
    }
}
