//! Restrictions of the process itself: seccomp filters, the count of refused calls, privileges that `execve` cannot
//! regain. The lists of allowed calls are in `sandbox`.

use rustix::event::{EventfdFlags, eventfd};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

/// System call numbers that are told apart; others are counted in the last cell.
const NUMBERS: usize = 512;

static REFUSED: [AtomicU64; NUMBERS] = [const { AtomicU64::new(0) }; NUMBERS];
/// Descriptor of the counter that wakes the reader; -1: none.
static WAKE: AtomicI32 = AtomicI32::new(-1);
static FATAL: AtomicBool = AtomicBool::new(false);

/// Calls from this number on are newer than the lists: C libraries that try them fall back to older ones after ENOSYS.
const NEWER: i64 = 450;

/// Instruction of a filter: code, jump if true, jump if false, operand (`struct sock_filter`).
pub type Instruction = (u16, u8, u8, u32);

/// Tells whether the kernel filters system calls and can return a trap.
pub fn has_filters() -> bool {
    let action = libc::SECCOMP_RET_TRAP;
    // SAFETY: the kernel reads one u32 from the pointer and changes nothing.
    unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_GET_ACTION_AVAIL, 0, &raw const action) == 0 }
}

/// Tells whether system calls of this thread are filtered.
pub fn is_filtered() -> bool {
    // SAFETY: takes numbers only.
    unsafe { libc::prctl(libc::PR_GET_SECCOMP, 0, 0, 0, 0) == libc::SECCOMP_MODE_FILTER as libc::c_int }
}

/// Version of the kernel's Landlock interface; 0 without Landlock.
pub fn landlock_version() -> u32 {
    const VERSION: libc::c_ulong = 1;
    // SAFETY: with this flag the call takes no pointer and no size, and returns a number.
    let version =
        unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, std::ptr::null::<libc::c_void>(), 0usize, VERSION) };
    u32::try_from(version).unwrap_or(0)
}

/// Forbids this thread, and threads and processes that it starts, to gain privileges by `execve`.
pub fn no_new_privileges() -> io::Result<()> {
    // SAFETY: takes numbers only.
    match unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Adds a filter to this thread, and to threads and processes that it starts. It requires [`no_new_privileges`].
///
/// # Errors
/// The kernel has no filters, or refuses this one.
pub fn filter(program: &[Instruction]) -> io::Result<()> {
    let mut code: Vec<libc::sock_filter> =
        program.iter().map(|&(code, jt, jf, k)| libc::sock_filter { code, jt, jf, k }).collect();
    let length = u16::try_from(code.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog { len: length, filter: code.as_mut_ptr() };
    // Without the flag, kernels before 5.16 disable speculation for the thread, which no untrusted code shares.
    for flags in [libc::SECCOMP_FILTER_FLAG_SPEC_ALLOW, 0] {
        // SAFETY: `program` and `code` live until the call returns; the kernel copies both.
        let done =
            unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, flags, &raw const program) };
        if done == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        if flags == 0 || error.raw_os_error() != Some(libc::EINVAL) {
            return Err(error);
        }
    }
    Ok(())
}

/// Has calls that a filter traps fail with EPERM and counts them; calls that are newer than this program fail with
/// ENOSYS, uncounted. With `fatal`, the process reports the call on its standard error stream and aborts. The
/// descriptor, new in each process, becomes readable after a refused call.
pub fn count_refused(fatal: bool) -> io::Result<OwnedFd> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    // A copy that is never closed: a handler may use its number at any time.
    let own = event.try_clone()?;
    WAKE.store(own.as_raw_fd(), Ordering::Relaxed);
    std::mem::forget(own);
    FATAL.store(fatal, Ordering::Relaxed);
    for count in &REFUSED {
        count.store(0, Ordering::Relaxed);
    }
    // SAFETY: the action is plain data, initialised before the call; the handler has the type that SA_SIGINFO requires.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = refused as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_RESTART;
        libc::sigemptyset(&mut action.sa_mask);
        if libc::sigaction(libc::SIGSYS, &action, std::ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(event)
}

/// Refused calls by number, and how many of each.
pub fn refused_calls() -> Vec<(usize, u64)> {
    let counts = REFUSED.iter().enumerate().map(|(number, count)| (number, count.load(Ordering::Relaxed)));
    counts.filter(|(_, count)| *count > 0).collect()
}

/// Calls that a confined process must not get through, for tests.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Escape {
    /// execve().
    Execve,
    /// ptrace().
    Ptrace,
    /// process_vm_readv(): another process's memory.
    ReadProcess,
    /// unshare() of the user namespace.
    UserNamespace,
    /// unshare() of the mount namespace.
    MountNamespace,
    /// New namespaces by clone(), for a new process.
    CloneNamespace,
    /// setns().
    JoinNamespace,
    /// mount().
    Mount,
    /// io_uring_setup().
    IoUring,
    /// bpf().
    Bpf,
    /// keyctl().
    Keyring,
    /// userfaultfd().
    PageFaults,
    /// perf_event_open().
    Counters,
    /// pidfd_getfd(): another process's descriptor.
    TakeDescriptor,
    /// fork().
    Fork,
    /// kill() of another process.
    Signal,
    /// socket() of raw packets.
    RawSocket,
}

#[cfg(debug_assertions)]
impl Escape {
    /// All calls.
    pub const ALL: [Escape; 17] = [
        Escape::Execve,
        Escape::Ptrace,
        Escape::ReadProcess,
        Escape::UserNamespace,
        Escape::MountNamespace,
        Escape::CloneNamespace,
        Escape::JoinNamespace,
        Escape::Mount,
        Escape::IoUring,
        Escape::Bpf,
        Escape::Keyring,
        Escape::PageFaults,
        Escape::Counters,
        Escape::TakeDescriptor,
        Escape::Fork,
        Escape::Signal,
        Escape::RawSocket,
    ];

    /// Makes the call. A successful fork ends the child at once.
    ///
    /// # Errors
    /// The kernel's, as expected.
    pub fn attempt(self) -> io::Result<()> {
        let none = std::ptr::null::<libc::c_void>();
        // SAFETY: the calls get numbers, null pointers and constant strings; those that would succeed change this
        // process only, and the child of a fork ends without running further code.
        let result = unsafe {
            match self {
                // Fails after the filter at the latest: there is no such file.
                Escape::Execve => libc::syscall(libc::SYS_execve, c"/none/such".as_ptr(), none, none),
                Escape::Ptrace => libc::syscall(libc::SYS_ptrace, libc::PTRACE_TRACEME, 0, none, none),
                Escape::ReadProcess => libc::syscall(libc::SYS_process_vm_readv, 1, none, 0, none, 0, 0),
                Escape::UserNamespace => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWUSER),
                Escape::MountNamespace => libc::syscall(libc::SYS_unshare, libc::CLONE_NEWNS),
                Escape::CloneNamespace => {
                    let flags = libc::CLONE_NEWUSER | libc::SIGCHLD;
                    let child = libc::syscall(libc::SYS_clone, flags, none, none, none, none);
                    if child == 0 {
                        libc::_exit(0);
                    }
                    child
                }
                Escape::JoinNamespace => libc::syscall(libc::SYS_setns, -1, libc::CLONE_NEWNET),
                Escape::Mount => libc::syscall(libc::SYS_mount, none, none, none, 0, none),
                Escape::IoUring => libc::syscall(libc::SYS_io_uring_setup, 1, none),
                Escape::Bpf => libc::syscall(libc::SYS_bpf, 0, none, 0),
                Escape::Keyring => libc::syscall(libc::SYS_keyctl, 0, -3, 0),
                Escape::PageFaults => libc::syscall(libc::SYS_userfaultfd, 0),
                Escape::Counters => libc::syscall(libc::SYS_perf_event_open, none, 0, -1, -1, 0),
                Escape::TakeDescriptor => libc::syscall(libc::SYS_pidfd_getfd, -1, 0, 0),
                // Signal 0 looks only.
                Escape::Signal => libc::syscall(libc::SYS_kill, libc::getppid(), 0),
                Escape::Fork => {
                    let child = libc::syscall(libc::SYS_clone, libc::SIGCHLD, none, none, none, none);
                    if child == 0 {
                        libc::_exit(0);
                    }
                    child
                }
                Escape::RawSocket => libc::syscall(libc::SYS_socket, libc::AF_PACKET, libc::SOCK_RAW, 0),
            }
        };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

/// Handles SIGSYS. Only async-signal-safe: it touches atomics, the interrupted context, and `write`.
extern "C" fn refused(_signal: libc::c_int, _info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes the interrupted thread's context, which lives until the handler
    // returns, and restores the registers from it. `__errno_location` belongs to this thread.
    unsafe {
        let context = &mut *context.cast::<libc::ucontext_t>();
        #[cfg(target_arch = "x86_64")]
        let number = {
            let slot = &mut context.uc_mcontext.gregs[libc::REG_RAX as usize];
            let number = *slot;
            *slot = -i64::from(error_of(number));
            number
        };
        #[cfg(target_arch = "aarch64")]
        let number = {
            let number = context.uc_mcontext.regs[8] as i64;
            context.uc_mcontext.regs[0] = (-i64::from(error_of(number))) as u64;
            number
        };
        if number >= NEWER {
            return;
        }
        let slot = usize::try_from(number).unwrap_or(NUMBERS - 1).min(NUMBERS - 1);
        REFUSED[slot].fetch_add(1, Ordering::Relaxed);
        if FATAL.load(Ordering::Relaxed) {
            say_number(slot);
            libc::abort();
        }
        let wake = WAKE.load(Ordering::Relaxed);
        if wake >= 0 {
            let saved = *libc::__errno_location();
            let one = 1u64;
            libc::write(wake, (&raw const one).cast(), size_of::<u64>());
            *libc::__errno_location() = saved;
        }
    }
}

fn error_of(number: i64) -> libc::c_int {
    if number >= NEWER { libc::ENOSYS } else { libc::EPERM }
}

/// Writes the number of a call to the standard error stream, without an allocation.
fn say_number(number: usize) {
    let mut line = *b"sandbox: refused system call ...\n";
    let digits = [number / 100 % 10, number / 10 % 10, number % 10];
    for (to, digit) in line[29..32].iter_mut().zip(digits) {
        *to = b'0' + digit as u8;
    }
    // SAFETY: the buffer is live and of that length.
    unsafe { libc::write(2, line.as_ptr().cast(), line.len()) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_answers_what_it_has() {
        // A kernel without either answers no instead of failing.
        let _ = has_filters();
        assert!(landlock_version() < 1000);
    }
}
