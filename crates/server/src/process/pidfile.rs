//! The pid file, and the `-s` signals, which are sent to the process in it.

use crate::process::signals;
use crate::say;
use observe::os;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

/// Suffix of the pid file's name while a new binary uses the name.
const OLD: &str = ".oldbin";

pub fn old_path(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(OLD);
    name.into()
}

/// Mode 644 regardless of the umask: a user who can write the file could redirect signals.
fn created() -> std::fs::OpenOptions {
    let mut options = std::fs::OpenOptions::new();
    options.create(true).mode(0o644);
    options
}

/// Returns `false` after a logged failure.
pub fn write(path: &Path) -> bool {
    let write = || {
        let mut file = created().truncate(true).write(true).open(path)?;
        file.write_all(format!("{}\n", std::process::id()).as_bytes())
    };
    match write() {
        Ok(()) => true,
        Err(e) => {
            say!(Emerg, "open() \"{}\" failed {}", path.display(), os(&e));
            false
        }
    }
}

/// `-t`: tests that the file can be written.
pub fn test(path: &Path) -> bool {
    match created().append(true).open(path) {
        Ok(_) => true,
        Err(e) => {
            say!(Emerg, "open() \"{}\" failed {}", path.display(), os(&e));
            false
        }
    }
}

/// Tells whether a path is not a regular file: with `pid /dev/null`, root would otherwise remove or rename the device.
pub fn is_special(path: &Path) -> bool {
    path.metadata().is_ok_and(|found| !found.is_file())
}

pub fn remove(path: &Path) {
    if is_special(path) {
        return;
    }
    if let Err(e) = std::fs::remove_file(path) {
        say!(Alert, "unlink() \"{}\" failed {}", path.display(), os(&e));
    }
}

/// Returns the exit code.
pub fn signal(path: &Path, command: &str) -> i32 {
    let text = match std::fs::read_to_string(path) {
        Ok(text) => text,
        Err(e) => {
            say!(Error, "open() \"{}\" failed {}", path.display(), os(&e));
            return 1;
        }
    };
    let text = text.trim_end_matches(['\r', '\n']);
    let Some(pid) = text.parse::<i32>().ok().filter(|pid| *pid > 0).and_then(rustix::process::Pid::from_raw) else {
        say!(Error, "invalid PID number \"{text}\" in \"{}\"", path.display());
        return 1;
    };
    let (signal, number) = match command {
        "stop" => (rustix::process::Signal::TERM, signals::TERM),
        "quit" => (rustix::process::Signal::QUIT, signals::QUIT),
        "reopen" => (rustix::process::Signal::USR1, signals::USR1),
        _ => (rustix::process::Signal::HUP, signals::HUP),
    };
    match rustix::process::kill_process(pid, signal) {
        Ok(()) => 0,
        Err(e) => {
            say!(Alert, "kill({}, {number}) failed {}", pid.as_raw_nonzero(), os(&e.into()));
            1
        }
    }
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
        assert!(write(&path));
        assert_eq!(std::fs::read_to_string(&path).expect("read"), format!("{}\n", std::process::id()));
        std::fs::write(&path, "x\n").expect("write");
        assert_eq!(signal(&path, "reload"), 1);
        remove(&path);
        assert_eq!(signal(&path, "reload"), 1);
        assert!(!write(Path::new("/none/such/pid")));
    }

    #[test]
    fn what_is_no_file_is_not_removed() {
        let path = std::env::temp_dir().join(format!("tidegate-pid-folder-{}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        let link = path.join("link");
        std::os::unix::fs::symlink("/dev/null", &link).expect("a link");
        remove(&link);
        assert!(link.symlink_metadata().is_ok(), "a link to a device is kept");
        std::fs::remove_dir_all(&path).expect("removed");
    }
}
