//! Allowed system calls of each kind of process, and names for messages.

pub type Calls = &'static [(i64, &'static str)];

macro_rules! calls {
    ($($name:ident)*) => { &[$((libc::$name, stringify!($name))),*] };
}

/// Calls of a process that serves. Some are further restricted by arguments (`filter.rs`).
pub const WORKER: &[Calls] = &[
    // Descriptors that are open: files, sockets, pipes.
    calls! {
        SYS_read SYS_write SYS_readv SYS_writev SYS_pread64 SYS_pwrite64 SYS_preadv SYS_pwritev SYS_preadv2 SYS_pwritev2
        SYS_close SYS_close_range SYS_lseek SYS_sendfile SYS_splice SYS_tee SYS_copy_file_range SYS_fcntl SYS_ioctl SYS_dup
        SYS_dup3 SYS_pipe2 SYS_flock SYS_fsync SYS_fdatasync SYS_sync_file_range SYS_fallocate SYS_ftruncate SYS_fadvise64
        SYS_readahead
    },
    // Files: which of them is up to Landlock and to the user of the process.
    calls! {
        SYS_openat SYS_openat2 SYS_newfstatat SYS_fstat SYS_statx SYS_statfs SYS_fstatfs SYS_readlinkat SYS_faccessat
        SYS_faccessat2 SYS_getdents64 SYS_getcwd SYS_umask SYS_renameat SYS_renameat2 SYS_unlinkat SYS_mkdirat SYS_linkat
        SYS_symlinkat SYS_fchmod SYS_fchmodat SYS_fchown SYS_fchownat SYS_utimensat SYS_truncate SYS_setxattr SYS_lsetxattr
        SYS_fsetxattr SYS_getxattr SYS_lgetxattr SYS_fgetxattr SYS_listxattr SYS_llistxattr SYS_flistxattr SYS_removexattr
        SYS_lremovexattr SYS_fremovexattr SYS_inotify_init1 SYS_inotify_add_watch SYS_inotify_rm_watch SYS_memfd_create
    },
    calls! {
        SYS_socket SYS_socketpair SYS_bind SYS_connect SYS_accept SYS_accept4 SYS_shutdown SYS_getsockname SYS_getpeername
        SYS_getsockopt SYS_setsockopt SYS_sendto SYS_recvfrom SYS_sendmsg SYS_recvmsg SYS_sendmmsg SYS_recvmmsg
    },
    // Events and time.
    calls! {
        SYS_epoll_create1 SYS_epoll_ctl SYS_epoll_pwait SYS_epoll_pwait2 SYS_ppoll SYS_pselect6 SYS_eventfd2 SYS_signalfd4
        SYS_timerfd_create SYS_timerfd_settime SYS_timerfd_gettime SYS_clock_gettime SYS_clock_getres SYS_clock_nanosleep
        SYS_nanosleep SYS_gettimeofday SYS_times SYS_restart_syscall
    },
    // Memory and threads.
    calls! {
        SYS_brk SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_mincore SYS_futex SYS_futex_waitv SYS_clone
        SYS_clone3 SYS_set_robust_list SYS_get_robust_list SYS_rseq SYS_membarrier SYS_sched_yield SYS_sched_getaffinity
        SYS_sched_setaffinity SYS_getcpu SYS_set_tid_address SYS_exit SYS_exit_group
    },
    // Signals.
    calls! {
        SYS_rt_sigaction SYS_rt_sigprocmask SYS_rt_sigreturn SYS_rt_sigpending SYS_rt_sigtimedwait SYS_sigaltstack
        SYS_tgkill SYS_kill
    },
    // Facts of the process and the machine.
    calls! {
        SYS_getpid SYS_getppid SYS_gettid SYS_getuid SYS_geteuid SYS_getgid SYS_getegid SYS_getgroups SYS_getresuid
        SYS_getresgid SYS_getpriority SYS_getrlimit SYS_getrusage SYS_prlimit64 SYS_prctl SYS_capget SYS_uname SYS_sysinfo
        SYS_getrandom
    },
    // Threads of a pool lower their own priority; nothing raises one without a capability.
    calls! {
        SYS_setpriority
    },
    #[cfg(target_arch = "x86_64")]
    calls! {
        SYS_open SYS_creat SYS_stat SYS_lstat SYS_access SYS_readlink SYS_rename SYS_unlink SYS_mkdir SYS_rmdir SYS_link SYS_symlink
        SYS_chmod SYS_chown SYS_lchown SYS_utime SYS_utimes SYS_futimesat SYS_getdents SYS_dup2 SYS_pipe SYS_poll SYS_select
        SYS_epoll_create SYS_epoll_wait SYS_eventfd SYS_signalfd SYS_inotify_init SYS_time SYS_arch_prctl
    },
];

/// Additional calls of the master: it starts workers, changes users, binds addresses and, on USR2, starts another
/// program, which inherits the filter. The list therefore suffices for an ordinary service, including nginx.
pub const MASTER: &[Calls] = &[
    calls! {
        SYS_execve SYS_execveat SYS_tkill SYS_wait4 SYS_waitid SYS_setsid SYS_setpgid SYS_getpgid SYS_getsid SYS_listen SYS_setuid
        SYS_setgid SYS_setreuid SYS_setregid SYS_setresuid SYS_setresgid SYS_setgroups SYS_setfsuid SYS_setfsgid SYS_capset
        SYS_setrlimit SYS_chdir SYS_fchdir SYS_chroot SYS_mknodat SYS_rt_sigqueueinfo SYS_rt_tgsigqueueinfo
        SYS_rt_sigsuspend SYS_pidfd_open SYS_pidfd_send_signal SYS_getitimer SYS_setitimer SYS_timer_create SYS_timer_settime
        SYS_timer_gettime SYS_timer_getoverrun SYS_timer_delete SYS_sched_getparam SYS_sched_setparam
        SYS_sched_getscheduler SYS_sched_setscheduler SYS_sched_get_priority_max SYS_sched_get_priority_min SYS_sched_getattr
        SYS_sched_setattr SYS_ioprio_get SYS_ioprio_set SYS_io_setup SYS_io_submit SYS_io_getevents
        SYS_io_cancel SYS_io_destroy SYS_shmget SYS_shmat SYS_shmdt SYS_shmctl SYS_semget SYS_semop SYS_semctl SYS_semtimedop
        SYS_msync SYS_mlock SYS_mlock2 SYS_munlock SYS_mlockall SYS_munlockall SYS_get_mempolicy SYS_mbind SYS_sync SYS_syncfs
        SYS_sethostname SYS_personality SYS_landlock_create_ruleset SYS_landlock_add_rule SYS_landlock_restrict_self SYS_seccomp
    },
    #[cfg(target_arch = "x86_64")]
    calls! { SYS_fork SYS_vfork SYS_mknod SYS_getpgrp SYS_alarm SYS_pause },
];

/// Calls of the key process: packets, signatures, threads. It opens no file and no connection.
pub const KEYS: &[Calls] = &[
    calls! {
        // Packets of the master and of workers, and the files in them.
        SYS_recvmsg SYS_sendmsg SYS_ppoll SYS_read SYS_write SYS_close SYS_lseek SYS_fstat SYS_newfstatat SYS_statx SYS_fcntl SYS_memfd_create
        // A thread for each worker thread; the allocator.
        SYS_clone SYS_clone3 SYS_set_robust_list SYS_rseq SYS_futex SYS_mmap SYS_munmap SYS_mremap SYS_mprotect SYS_madvise SYS_brk
        SYS_membarrier SYS_sched_yield SYS_sched_getaffinity SYS_getcpu SYS_sigaltstack SYS_prctl SYS_exit SYS_exit_group
        // Random numbers of signatures, time, panics.
        SYS_getrandom SYS_clock_gettime SYS_gettimeofday SYS_restart_syscall SYS_rt_sigprocmask SYS_rt_sigaction SYS_rt_sigreturn
        SYS_getpid SYS_gettid SYS_tgkill
    },
    #[cfg(target_arch = "x86_64")]
    calls! { SYS_poll SYS_stat SYS_time },
];

/// Additional calls of a key process whose configuration names keys by variables.
pub const KEYS_OPEN: &[Calls] = &[
    calls! { SYS_openat },
    #[cfg(target_arch = "x86_64")]
    calls! { SYS_open },
];

/// Calls that no process needs, named in messages.
const NAMED: Calls = calls! {
    SYS_ptrace SYS_process_vm_readv SYS_process_vm_writev SYS_bpf SYS_keyctl SYS_add_key SYS_request_key SYS_mount SYS_umount2
    SYS_setns SYS_unshare SYS_io_uring_setup SYS_io_uring_enter SYS_io_uring_register SYS_userfaultfd SYS_perf_event_open
    SYS_init_module SYS_finit_module SYS_delete_module SYS_kexec_load SYS_reboot SYS_pivot_root SYS_swapon SYS_acct
    SYS_settimeofday SYS_clock_settime SYS_open_by_handle_at SYS_name_to_handle_at SYS_pidfd_getfd SYS_process_madvise
    SYS_fanotify_init SYS_quotactl SYS_vhangup SYS_kcmp SYS_setdomainname SYS_memfd_secret SYS_pkey_alloc SYS_pkey_mprotect
};

/// Name of a system call, or its number.
pub fn call_name(number: usize) -> String {
    let all = WORKER.iter().chain(MASTER).copied().chain([NAMED]).flatten();
    let found = all.into_iter().find(|(known, _)| usize::try_from(*known) == Ok(number));
    found.map_or_else(|| format!("number {number}"), |(_, name)| name.trim_start_matches("SYS_").to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn no_list_allows_what_no_process_needs() {
        let allowed: BTreeSet<i64> =
            WORKER.iter().chain(MASTER).copied().flatten().map(|(number, _)| *number).collect();
        for (number, name) in NAMED {
            assert!(!allowed.contains(number), "{name}");
        }
        let worker: BTreeSet<i64> = WORKER.iter().copied().flatten().map(|(number, _)| *number).collect();
        let keys: BTreeSet<i64> = KEYS.iter().chain(KEYS_OPEN).copied().flatten().map(|(number, _)| *number).collect();
        assert!(keys.is_subset(&worker), "{:?}", keys.difference(&worker).collect::<Vec<_>>());
        for number in [libc::SYS_socket, libc::SYS_connect, libc::SYS_bind, libc::SYS_unlinkat, libc::SYS_kill] {
            assert!(!keys.contains(&number), "{}", call_name(number as usize));
        }
        for number in [libc::SYS_execve, libc::SYS_setuid, libc::SYS_chroot, libc::SYS_listen, libc::SYS_seccomp] {
            assert!(!worker.contains(&number), "{}", call_name(number as usize));
        }
    }

    #[test]
    fn calls_have_names() {
        assert_eq!(call_name(libc::SYS_execve as usize), "execve");
        assert_eq!(call_name(libc::SYS_ptrace as usize), "ptrace");
        assert_eq!(call_name(511), "number 511");
    }
}
