//! Processes: fork, signals, accounts, environment, inherited sockets: calls without a safe function in `rustix`. Most
//! require a single thread, which [`single_threaded`] checks.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::sync::{Mutex, OnceLock, PoisonError};

/// The result of [`fork_process`], in either process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork {
    /// The parent, with the child's id.
    Parent(i32),
    /// The child.
    Child,
}

/// Tells whether the process has one thread, as most functions of this module require.
pub fn single_threaded() -> bool {
    match std::fs::read_dir("/proc/self/task") {
        Ok(tasks) => tasks.count() == 1,
        Err(_) => single_by_unshare(),
    }
}

/// Asks the kernel in a chroot without `/proc`: the flag alone changes nothing, and fails in a process with several
/// threads (unshare(2)).
fn single_by_unshare() -> bool {
    // SAFETY: the call takes a number, and unshares nothing.
    unsafe { libc::unshare(libc::CLONE_THREAD) == 0 }
}

/// Forks. Fails in a process with several threads.
pub fn fork_process() -> io::Result<Fork> {
    if !single_threaded() {
        return Err(io::Error::other("fork of a process with several threads"));
    }
    // SAFETY: the process has this one thread (checked above), so that no lock can be held by a thread that the child
    // lacks, and the child may go on to run any code.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            crate::random::forget();
            Ok(Fork::Child)
        }
        pid => Ok(Fork::Parent(pid)),
    }
}

/// Returns the kernel's number of this thread.
pub fn thread_id() -> i32 {
    rustix::thread::gettid().as_raw_nonzero().get()
}

/// In microseconds; `None`: the thread has ended.
pub fn cpu_micros_of(tid: i32) -> Option<u64> {
    // Linux' number of a thread's clock (`CPUCLOCK_PERTHREAD_MASK | CPUCLOCK_SCHED`, include/linux/posix-timers.h).
    let clock = (!tid << 3) | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the result; the kernel checks the clock.
    let failed = unsafe { libc::clock_gettime(clock, &raw mut time) } != 0;
    (!failed).then(|| time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000)
}

/// In microseconds.
pub fn cpu_micros() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    time.tv_sec as u64 * 1_000_000 + time.tv_nsec as u64 / 1000
}

/// Signals read from a descriptor; blocked in all threads started later.
#[derive(Debug)]
pub struct Signals {
    fd: OwnedFd,
}

/// A received signal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedSignal {
    /// Number of the signal.
    pub signal: i32,
    /// Sending process; 0 for the kernel.
    pub sender: u32,
}

impl Signals {
    /// Blocks signals in this thread (and later ones), and opens the descriptor.
    pub fn block(signals: &[i32]) -> io::Result<Signals> {
        let set = signal_set(signals);
        // SAFETY: `set` is initialised and outlives both calls; a null old set is allowed; the descriptor that signalfd
        // returns is new and has no other owner.
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

    /// Takes the next signal, without waiting; `None`: there is none.
    pub fn next(&self) -> Option<ReceivedSignal> {
        let mut bytes = [0u8; size_of::<libc::signalfd_siginfo>()];
        loop {
            match rustix::io::read(&self.fd, &mut bytes) {
                Ok(n) if n == bytes.len() => break,
                Err(rustix::io::Errno::INTR) => {}
                _ => return None,
            }
        }
        // Kernel interface: ssi_signo at 0, ssi_pid at 12.
        let word = |at: usize| {
            let mut four = [0; 4];
            four.copy_from_slice(&bytes[at..at + 4]);
            u32::from_ne_bytes(four)
        };
        Some(ReceivedSignal { signal: word(0) as i32, sender: word(12) })
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

/// Sends TERM to a command's process when the starting thread ends, so that helpers never outlive the program. The
/// thread must live as long as the process.
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

static STATUS: OnceLock<Option<File>> = OnceLock::new();

/// Opens this process's memory account, which a confined process can no longer open.
pub fn watch_memory() {
    STATUS.get_or_init(|| File::open("/proc/self/status").ok());
}

/// In bytes; `None` without [`watch_memory`].
pub fn resident_bytes() -> Option<u64> {
    use std::os::unix::fs::FileExt as _;
    let mut text = [0; 4096];
    let length = STATUS.get()?.as_ref()?.read_at(&mut text, 0).ok()?;
    let text = String::from_utf8_lossy(text.get(..length)?);
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB"))?;
    Some(line.parse::<u64>().ok()? << 10)
}

/// An account of the system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserAccount {
    /// Its name.
    pub name: String,
    /// Number of the user.
    pub uid: u32,
    /// Number of the user's group.
    pub gid: u32,
}

/// `getpwnam`
pub fn find_user(name: &str) -> io::Result<Option<UserAccount>> {
    let Ok(text) = CString::new(name) else { return Ok(None) };
    let mut buffer = vec![0 as libc::c_char; 16 * 1024];
    // SAFETY: all pointers point to live, writable memory of the sizes given; the entry's own pointers (into `buffer`) are
    // not kept.
    unsafe {
        let mut entry: libc::passwd = std::mem::zeroed();
        let mut found = std::ptr::null_mut();
        match libc::getpwnam_r(text.as_ptr(), &mut entry, buffer.as_mut_ptr(), buffer.len(), &mut found) {
            0 if found.is_null() => Ok(None),
            0 => Ok(Some(UserAccount { name: name.into(), uid: entry.pw_uid, gid: entry.pw_gid })),
            libc::ENOENT | libc::ESRCH => Ok(None),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }
}

/// `getgrnam`
pub fn find_group(name: &str) -> io::Result<Option<u32>> {
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

/// Becomes a user permanently: supplementary groups of `name`, group, user. Errors name the call.
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

/// Replaces the environment. Fails in a process with several threads.
pub fn set_environment(variables: &[(OsString, OsString)]) -> io::Result<()> {
    if !single_threaded() {
        return Err(io::Error::other("the environment of a process with several threads"));
    }
    let old: Vec<OsString> = std::env::vars_os().map(|(name, _)| name).collect();
    let bad = |name: &OsStr| name.is_empty() || name.as_encoded_bytes().contains(&b'=');
    // SAFETY: the process has only this thread (checked above), so that no other thread reads the environment.
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

/// Takes a descriptor inherited from an earlier program (`NGINX` variable). Fails if it is not open, taken twice, or one of
/// this program's own: those have `FD_CLOEXEC`, with which no descriptor is inherited.
pub fn inherit_descriptor(fd: RawFd) -> io::Result<OwnedFd> {
    static TAKEN: Mutex<BTreeSet<RawFd>> = Mutex::new(BTreeSet::new());
    let refused = || io::Error::from_raw_os_error(libc::EBADF);
    if fd <= 2 {
        return Err(refused());
    }
    let mut taken = TAKEN.lock().unwrap_or_else(PoisonError::into_inner);
    // SAFETY: F_GETFD takes no pointer and fails on a number that is not open.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 {
        return Err(io::Error::last_os_error());
    }
    if flags & libc::FD_CLOEXEC != 0 || !taken.insert(fd) {
        return Err(refused());
    }
    // SAFETY: the descriptor is open and none of the standard three. No value owns it: the program opens its descriptors
    // with FD_CLOEXEC, as `std` and `rustix` do, and this one lacked the flag; it is handed out once only (TAKEN),
    // although an upgrade clears the flag of the sockets that it passes on.
    let owned = unsafe { OwnedFd::from_raw_fd(fd) };
    rustix::io::fcntl_setfd(&owned, rustix::io::FdFlags::CLOEXEC)?;
    Ok(owned)
}

/// Continues a new process, the child of a fork, with `kept` and the standard descriptors alone, and ends it with the code
/// that `run` returns. The owners of closed descriptors are not dropped, because this never returns, nor used: `run` captures
/// nothing, and `data` has no descriptors. `run` gets the error if the others could not be closed.
pub fn run_alone<T, const N: usize>(
    kept: [OwnedFd; N],
    data: &T,
    run: fn([OwnedFd; N], &T, io::Result<()>) -> i32,
) -> ! {
    let closed = close_all_but(&kept);
    std::process::exit(run(kept, data, closed))
}

/// Closes all descriptors but the standard three and those of `keep`.
fn close_all_but(keep: &[OwnedFd]) -> io::Result<()> {
    if !single_threaded() {
        return Err(io::Error::other("closing the descriptors of a process with several threads"));
    }
    let mut kept: Vec<u32> = keep.iter().filter_map(|fd| u32::try_from(fd.as_raw_fd()).ok()).collect();
    kept.sort_unstable();
    let mut from = 3;
    for end in kept.into_iter().map(Some).chain([None]) {
        let last = end.map_or(u32::MAX, |fd| fd.saturating_sub(1));
        if end != Some(from) && from <= last {
            // SAFETY: takes numbers. Only `run_alone` calls this, in a process with one thread that it ends: values that own
            // closed descriptors are not used or dropped.
            if unsafe { libc::syscall(libc::SYS_close_range, from, last, 0) } != 0 {
                return Err(io::Error::last_os_error());
            }
        }
        from = end.map_or(u32::MAX, |fd| fd + 1).max(from);
    }
    Ok(())
}

/// Names the process in `ps` and `top` (15 bytes).
pub fn set_name(name: &CStr) {
    let _ = rustix::thread::set_name(name);
}

/// In lower case.
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
        let root = find_user("root").expect("look-up").expect("root exists");
        assert_eq!((root.uid, root.gid), (0, 0));
        assert_eq!(find_group("root").expect("look-up"), Some(0));
        assert_eq!(find_user("no-such-user-here").expect("look-up"), None);
        assert_eq!(find_group("no-such-group-here").expect("look-up"), None);
    }

    #[test]
    fn a_process_with_threads_is_not_forked() {
        // The test runner has several threads.
        assert!(fork_process().is_err());
        assert!(set_environment(&[]).is_err());
    }

    #[test]
    fn standard_and_closed_descriptors_are_not_inherited() {
        assert!(inherit_descriptor(0).is_err());
        assert!(inherit_descriptor(-1).is_err());
        assert!(inherit_descriptor(1000).is_err());
    }

    #[test]
    fn descriptors_of_any_number_are_inherited_once_and_own_ones_never() {
        use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
        let limit = getrlimit(Resource::Nofile);
        setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }).expect("a limit");
        let file = File::open("/dev/null").expect("a file");
        assert!(inherit_descriptor(file.as_raw_fd()).is_err(), "the program's own");
        // SAFETY: duplicates an open descriptor; the copy has no owner yet.
        let copy = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_DUPFD, 1500) };
        assert!(copy >= 1500, "{}", io::Error::last_os_error());
        let taken = inherit_descriptor(copy).expect("inherited");
        assert_eq!(taken.as_raw_fd(), copy);
        assert!(rustix::io::fcntl_getfd(&taken).expect("flags").contains(rustix::io::FdFlags::CLOEXEC));
        assert!(inherit_descriptor(copy).is_err(), "twice");
    }
}
