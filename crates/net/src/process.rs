//! Processes: fork, signals as a descriptor, the account of the workers, the environment, inherited sockets.
//!
//! What `rustix` offers safely is called where it is needed; here stands the rest. Most of it demands that the process has
//! one thread only, which [`single_threaded`] checks instead of believing.

use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

/// Which side of a fork we are on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The process that called, with the child's id.
    Parent(i32),
    Child,
}

/// Whether the calling thread is the only one of its process.
pub fn single_threaded() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|tasks| tasks.count() == 1)
}

/// Splits the process in two.
///
/// # Errors
/// When the process has more than one thread, or as `fork` gives them.
pub fn fork() -> io::Result<Fork> {
    if !single_threaded() {
        return Err(io::Error::other("fork of a process with several threads"));
    }
    // SAFETY: the process has this one thread (checked above), so that no lock can be held by a thread that the child
    // lacks, and the child may go on to run any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Signals that are read from a descriptor instead of interrupting; they are blocked in every thread made from now on.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

/// A signal that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub signal: i32,
    /// The process that sent it; 0 when the kernel did.
    pub sender: u32,
}

impl Signals {
    /// Blocks the signals in the calling thread (and in those that it starts later) and opens the descriptor.
    ///
    /// # Errors
    /// As `sigprocmask` and `signalfd` give them.
    pub fn block(signals: &[i32]) -> io::Result<Signals> {
        let set = signal_set(signals);
        // SAFETY: `set` is initialised and outlives both calls; a null old set is allowed; the descriptor that signalfd
        // returns is new and nobody else's.
        unsafe {
            let error = libc::pthread_sigmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            if error != 0 {
                return Err(io::Error::from_raw_os_error(error));
            }
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Signals { fd: OwnedFd::from_raw_fd(fd) })
        }
    }

    /// The next signal, if one is waiting.
    pub fn next(&self) -> Option<Received> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.fd, &mut bytes) {
                Ok(n) if n == bytes.len() => break,
                Err(rustix::io::Errno::INTR) => {}
                _ => return None,
            }
        }
        // Fixed by the kernel's interface: ssi_signo at 0, ssi_pid at 12.
        let word = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(four)
        };
        Some(Received { signal: word(0) as i32, sender: word(12) })
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn signal_set(signals: &[i32]) -> libc::sigset_t {
    // SAFETY: sigemptyset initialises the set, which is plain data; sigaddset only sets bits of it, and refuses numbers
    // that are no signals.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        for signal in signals {
            libc::sigaddset(&mut set, *signal);
        }
        set
    }
}

/// Lets a command's process be told to end (TERM) when the thread that starts it ends, however that happens: a helper does not
/// outlive the program it helps. The thread must live as long as the process should.
pub fn end_with_parent(command: &mut std::process::Command) {
    use std::os::unix::process::CommandExt as _;
    let parent = std::process::id() as i32;
    // SAFETY: between fork and exec only prctl and getppid are called, both async-signal-safe, and no memory is allocated
    // (an error without message is made of a number).
    unsafe {
        command.pre_exec(move || {
            if libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGTERM) != 0 {
                return Err(io::Error::last_os_error());
            }
            // The parent may have ended before the call.
            if libc::getppid() != parent { Err(io::Error::from_raw_os_error(libc::ESRCH)) } else { Ok(()) }
        });
    }
}

/// A user of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    pub name: String,
    pub uid: u32,
    /// The group of the user's entry.
    pub gid: u32,
}

/// Looks a user up by name (`getpwnam`); `None` when there is none.
///
/// # Errors
/// When the look-up fails.
pub fn user(name: &str) -> io::Result<Option<Account>> {
    let Ok(text) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0 as libc::c_char; 16 * 1024];
    // SAFETY: all pointers point to live, writable memory of the sizes given; the entry's own pointers (into `buffer`) are
    // not kept.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        match libc::getpwnam_r(text.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) {
            0 if found.is_null() => Ok(None),
            0 => Ok(Some(Account { name: name.into(), uid: entry.pw_uid, gid: entry.pw_gid })),
            libc::ENOENT | libc::ESRCH => Ok(None),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Looks a group's number up by name (`getgrnam`); `None` when there is none.
///
/// # Errors
/// When the look-up fails.
pub fn group(name: &str) -> io::Result<Option<u32>> {
    let Ok(text) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0 as libc::c_char; 64 * 1024];
    // SAFETY: as in `user`.
    unsafe {
        let mut entry: libc::group = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        match libc::getgrnam_r(text.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) {
            0 if found.is_null() => Ok(None),
            0 => Ok(Some(entry.gr_gid)),
            libc::ENOENT | libc::ESRCH => Ok(None),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// Becomes a user for good: the supplementary groups of `name`, then the group, then the user.
///
/// # Errors
/// As `initgroups`, `setgid` and `setuid` give them, with the call's name.
pub fn become_user(name: &str, uid: u32, gid: u32) -> Result<(), (&'static str, io::Error)> {
    let text = CString::new(name).map_err(|e| ("initgroups()", io::Error::other(e)))?;
    // SAFETY: `text` is a C string that outlives the call; the other two take numbers.
    unsafe {
        if libc::setgid(gid) != 0 {
            return Err(("setgid()", io::Error::last_os_error()));
        }
        if libc::initgroups(text.as_ptr(), gid) != 0 {
            return Err(("initgroups()", io::Error::last_os_error()));
        }
        if libc::setuid(uid) != 0 {
            return Err(("setuid()", io::Error::last_os_error()));
        }
    }
    Ok(())
}

/// Replaces the environment.
///
/// # Errors
/// When the process has more than one thread.
pub fn set_environment(variables: &[(OsString, OsString)]) -> io::Result<()> {
    if !single_threaded() {
        return Err(io::Error::other("the environment of a process with several threads"));
    }
    let old: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).collect();
    let bad = |name: &OsStr| name.is_empty() || name.as_encoded_bytes().contains(&b'=');
    // SAFETY: the process has this one thread (checked above), so that nobody reads the environment meanwhile.
    unsafe {
        for name in old.iter().filter(|name| !bad(name)) {
            std::env::remove_var(name);
        }
        for (name, value) in variables.iter().filter(|(name, _)| !bad(name)) {
            std::env::set_var(name, value);
        }
    }
    Ok(())
}

/// Takes over a descriptor that an earlier program left open for us (the `NGINX` environment variable).
///
/// # Errors
/// When there is no such descriptor, or when one number is asked for twice.
pub fn inherit(fd: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: [AtomicBool; 1024] = [const { AtomicBool::new(false) }; 1024];
    let slot = usize::try_from(fd).ok().filter(|fd| *fd > 2).and_then(|fd| TAKEN.get(fd));
    let Some(slot) = slot else {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    };
    // SAFETY: F_GETFD takes no pointer and fails on a number that is not open.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    if slot.swap(true, Ordering::Relaxed) {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    // SAFETY: the descriptor is open, is none of the standard three, and is handed out once only (TAKEN). The caller calls
    // this at start, for numbers that the environment names, before the program has opened descriptors of its own.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Names the process in `ps` and `top` (15 bytes).
pub fn set_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// The machine's name, in lower case.
pub fn host_name() -> &'static [u8] {
    static NAME: std::sync::OnceLock<Vec<u8>> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        std::fs::read("/proc/sys/kernel/hostname").map(|n| n.trim_ascii().to_ascii_lowercase()).unwrap_or_default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_and_strangers_are_not() {
        let root = user("root").expect("look-up").expect("root exists");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(group("root").expect("look-up"), Some(0));
        assert_eq!(user("no-such-user-here").expect("look-up"), None);
        assert_eq!(group("no-such-group-here").expect("look-up"), None);
    }

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // The test runner has several threads.
        assert!(fork().is_err());
        assert!(set_environment(&[]).is_err());
    }

    #[test]
    fn standard_and_closed_descriptors_are_not_inherited() {
        assert!(inherit(0).is_err());
        assert!(inherit(-1).is_err());
        assert!(inherit(1000).is_err());
    }
}
