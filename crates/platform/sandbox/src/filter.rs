//! From lists of calls to filters.

use crate::calls::{self, Calls};
use crate::{Mode, Process};
use net::confine::{self, Instruction};
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::collections::BTreeMap;
use std::io;

/// ioctl requests of the standard library, the resolver and the socket code.
const REQUESTS: &[u64] = &[
    libc::FIONBIO,
    libc::FIONREAD,
    libc::FIOCLEX,
    libc::FIONCLEX,
    libc::TCGETS,
    libc::TIOCGWINSZ,
    libc::TIOCOUTQ,
    0x8910, // SIOCGIFNAME
    0x8933, // SIOCGIFINDEX
];

/// Requests of prctl that change nothing but names, and those that read.
const CONTROLS: &[i32] = &[
    libc::PR_SET_NAME,
    libc::PR_GET_NAME,
    libc::PR_GET_DUMPABLE,
    libc::PR_GET_NO_NEW_PRIVS,
    libc::PR_CAPBSET_READ,
    libc::PR_SET_VMA,
    libc::PR_SET_PDEATHSIG,
];

/// Namespace flags of clone.
const NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
    libc::CLONE_NEWCGROUP,
];

/// Adds the filters of a kind of process to this thread.
///
/// # Errors
/// The kernel refuses them, or the architecture is unknown.
pub fn install_filters(process: Process, mode: Mode, counted: bool) -> io::Result<()> {
    programs(process, mode, counted)?.iter().try_for_each(|program| confine::filter(program))
}

/// Number that identifies the filters of a kind of process (FNV-1a).
///
/// # Errors
/// The architecture is unknown.
pub fn filter_fingerprint(process: Process, mode: Mode, counted: bool) -> io::Result<u64> {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for (code, jt, jf, k) in programs(process, mode, counted)?.into_iter().flatten() {
        for part in [u64::from(code), u64::from(jt), u64::from(jf), u64::from(k)] {
            hash = (hash ^ part).wrapping_mul(0x0100_0000_01b3);
        }
    }
    Ok(hash)
}

/// Filters in the order of their installation. The last one decides, and allows workers no further filter.
fn programs(process: Process, mode: Mode, counted: bool) -> io::Result<Vec<Vec<Instruction>>> {
    let refused = match mode {
        Mode::Log => SeccompAction::Log,
        _ if counted => SeccompAction::Trap,
        _ => SeccompAction::Errno(libc::EPERM as u32),
    };
    let architecture = || TargetArch::try_from(std::env::consts::ARCH).map_err(io::Error::other);
    let mut out = Vec::new();
    // These filters set an error without a signal: the C library blocks signals around both calls, and a blocked SIGSYS ends the process.
    // Flags of clone3 are in memory, out of a filter's reach: the C library then falls back to clone.
    for (rules, error) in [((libc::SYS_clone3, Vec::new()), libc::ENOSYS), (clones(process)?, libc::EPERM)] {
        let action = SeccompAction::Errno(error as u32);
        let filter = SeccompFilter::new(BTreeMap::from([rules]), SeccompAction::Allow, action, architecture()?);
        out.push(instructions(filter.and_then(BpfProgram::try_from))?);
    }
    let filter = SeccompFilter::new(rules(process)?, refused, SeccompAction::Allow, architecture()?);
    out.push(instructions(filter.and_then(BpfProgram::try_from))?);
    Ok(out)
}

fn instructions(program: Result<BpfProgram, seccompiler::BackendError>) -> io::Result<Vec<Instruction>> {
    let program = program.map_err(io::Error::other)?;
    Ok(program.iter().map(|line| (line.code, line.jt, line.jf, line.k)).collect())
}

type FilterRules = BTreeMap<i64, Vec<SeccompRule>>;

fn rules(process: Process) -> io::Result<FilterRules> {
    let mut rules = FilterRules::new();
    let mut allow =
        |lists: &[Calls]| rules.extend(lists.iter().copied().flatten().map(|(call, _)| (*call, Vec::new())));
    match process {
        Process::Master => {
            allow(calls::WORKER);
            allow(calls::MASTER);
            // Only the question whether there are other threads, in a chroot without `/proc`.
            let thread = libc::CLONE_THREAD as u64;
            let asks = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::Eq, thread);
            rules.insert(libc::SYS_unshare, vec![all(vec![asks])?]);
        }
        Process::Worker => {
            allow(calls::WORKER);
            restrict(&mut rules)?;
        }
        Process::Keys { opens } => {
            allow(calls::KEYS);
            if opens {
                allow(calls::KEYS_OPEN);
            }
            let all = restricted()?;
            rules.retain(|call, _| *call != libc::SYS_prctl && *call != libc::SYS_tgkill);
            rules.extend(all.into_iter().filter(|(call, _)| [libc::SYS_prctl, libc::SYS_tgkill].contains(call)));
        }
    }
    Ok(rules)
}

/// A rule that requires all conditions.
fn all(conditions: Vec<Result<SeccompCondition, seccompiler::BackendError>>) -> io::Result<SeccompRule> {
    let conditions: Result<Vec<_>, _> = conditions.into_iter().collect();
    conditions.and_then(SeccompRule::new).map_err(io::Error::other)
}

/// Refused uses of clone: for namespaces, and for processes instead of threads except in the master.
fn clones(process: Process) -> io::Result<(i64, Vec<SeccompRule>)> {
    let has = |flag: u64, value: u64| {
        all(vec![SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), value)])
    };
    let mut rules = Vec::new();
    if process != Process::Master {
        rules.push(has(libc::CLONE_THREAD as u64, 0)?);
    }
    for flag in NAMESPACES {
        rules.push(has(flag as u64, flag as u64)?);
    }
    Ok((libc::SYS_clone, rules))
}

/// Restricts calls of a worker by arguments. Calls of every request have none: the kernel then remembers the verdict.
fn restrict(rules: &mut FilterRules) -> io::Result<()> {
    rules.extend(restricted()?);
    Ok(())
}

fn restricted() -> io::Result<FilterRules> {
    let mut rules = FilterRules::new();
    use SeccompCmpArgLen::Dword;
    use SeccompCmpOp::{Eq, MaskedEq};
    let test = |index, length, operator, value| SeccompCondition::new(index, length, operator, value);
    let value = |number: i32| number as u32 as u64;
    // Streams and datagrams, and the C library's resolver (netlink).
    let mut sockets = Vec::new();
    for domain in [libc::AF_UNIX, libc::AF_INET, libc::AF_INET6] {
        for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
            sockets.push(all(vec![test(0, Dword, Eq, value(domain)), test(1, Dword, MaskedEq(0xf), value(kind))])?);
        }
    }
    let route = value(libc::NETLINK_ROUTE);
    sockets.push(all(vec![test(0, Dword, Eq, value(libc::AF_NETLINK)), test(2, Dword, Eq, route)])?);
    rules.insert(libc::SYS_socket, sockets);
    rules.insert(libc::SYS_socketpair, vec![all(vec![test(0, Dword, Eq, value(libc::AF_UNIX))])?]);
    let requests: io::Result<_> = REQUESTS.iter().map(|request| all(vec![test(1, Dword, Eq, *request)])).collect();
    rules.insert(libc::SYS_ioctl, requests?);
    let controls: io::Result<_> =
        CONTROLS.iter().map(|control| all(vec![test(0, Dword, Eq, value(*control))])).collect();
    rules.insert(libc::SYS_prctl, controls?);
    // Signals to the process itself, and its own limits.
    let own = u64::from(std::process::id());
    for call in [libc::SYS_kill, libc::SYS_tgkill] {
        rules.insert(call, vec![all(vec![test(0, Dword, Eq, own)])?]);
    }
    rules.insert(libc::SYS_prlimit64, vec![all(vec![test(0, Dword, Eq, 0)])?]);
    Ok(rules)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    /// Filters bind the thread that installs them: the test's other threads stay free.
    fn confined<T: Send + 'static>(body: impl FnOnce() -> T + Send + 'static) -> Option<T> {
        if !confine::has_filters() {
            testkit::missing_means("this kernel does not filter system calls");
            return None;
        }
        std::thread::spawn(|| {
            confine::no_new_privileges().expect("prctl");
            install_filters(Process::Worker, Mode::On, false).expect("filters");
            body()
        })
        .join()
        .ok()
    }

    #[test]
    fn a_filtered_thread_serves_and_starts_threads_and_nothing_else() {
        let result = confined(|| {
            let thread = std::thread::spawn(|| 7).join().ok();
            let listener = std::net::TcpListener::bind("127.0.0.1:0").map_err(|e| e.raw_os_error());
            let program = std::process::Command::new("/bin/true").spawn().map(drop).map_err(|e| e.raw_os_error());
            let priority = rustix::process::getpriority_process(None).is_ok();
            (thread, listener.map(drop), program, priority)
        });
        if let Some((thread, listener, program, priority)) = result {
            assert_eq!((thread, priority), (Some(7), true));
            assert_eq!(listener, Err(Some(libc::EPERM)), "listen is the master's");
            assert_eq!(program, Err(Some(libc::EPERM)));
        }
    }

    #[test]
    fn equal_filters_have_equal_fingerprints() {
        let of = |process, mode, counted| filter_fingerprint(process, mode, counted).expect("filters");
        let master = of(Process::Master, Mode::On, false);
        assert_eq!(master, of(Process::Master, Mode::Strict, false), "the mode concerns files and ports of workers");
        assert_ne!(master, of(Process::Master, Mode::Log, false));
        assert_ne!(master, of(Process::Master, Mode::On, true));
        assert_ne!(master, of(Process::Worker, Mode::On, false));
    }

    /// Shortest time of a call in many rounds.
    fn cost() -> Duration {
        let event = rustix::event::eventfd(0, rustix::event::EventfdFlags::NONBLOCK).expect("eventfd");
        let round = || {
            let start = Instant::now();
            for _ in 0..1000 {
                let _ = rustix::io::read(&event, &mut [0; 8]);
            }
            start.elapsed() / 1000
        };
        (0..2000).map(|_| round()).min().unwrap_or_default()
    }

    /// `cargo test --release -p sandbox -- --ignored --nocapture cost`
    #[test]
    #[ignore = "a measurement"]
    fn cost_of_a_filtered_call() {
        let free = std::thread::spawn(cost).join().expect("measured");
        if let Some(filtered) = confined(cost) {
            println!("a call: {free:?} free, {filtered:?} filtered");
        }
    }
}
