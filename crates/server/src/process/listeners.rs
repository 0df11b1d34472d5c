//! Listening sockets: opened by the master, kept across reloads and upgrades, assigned to worker threads (nginx:
//! `ngx_connection.c`).
//!
//! With several threads, every TCP address has a socket per thread (SO_REUSEPORT). The first socket is bound without
//! this option, so that an address in use by another program is an error as in nginx, and gets the option afterwards.

use crate::codec::SocketAssignment;
use crate::say;
use net::Address;
use net::listen::ListenSpec;
use net::listen::options;
use observe::os_error;
use socket2::{Domain, Protocol, SockAddr, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// nginx's default backlog on Linux.
const BACKLOG: u32 = 511;
const BIND_TRIES: usize = 5;
const BIND_PAUSE: Duration = Duration::from_millis(500);
const EADDRINUSE: i32 = 98;

#[derive(Clone, Debug)]
pub struct ListenSocket {
    pub spec: ListenSpec,
    /// One socket, or one per thread. The first one was bound first.
    pub sockets: Vec<Arc<OwnedFd>>,
    /// Inherited from the previous program (binary upgrade).
    pub inherited: bool,
}

/// All addresses of a configuration in the plan's order.
#[derive(Clone, Debug, Default)]
pub struct Listeners {
    pub all: Vec<ListenSocket>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    Serve,
    /// `-t`: an address in use is not an error, and sockets are closed again.
    Test,
}

/// The operation failed; the error has been logged.
#[derive(Debug)]
pub struct ListenFailure;

impl Listeners {
    /// Opens every address of a configuration. Reuses sockets of `old` with equal addresses.
    pub fn open(
        specs: &[ListenSpec],
        threads: usize,
        old: &Listeners,
        purpose: Purpose,
    ) -> Result<Listeners, ListenFailure> {
        let mut all: Vec<Option<ListenSocket>> = specs
            .iter()
            .map(|spec| {
                let known = old.all.iter().find(|l| same_place(&l.spec, spec))?;
                Some(ListenSocket { spec: spec.clone(), ..known.clone() })
            })
            .collect();
        let bound = bind_missing(specs, &mut all, purpose);
        let mut listeners = Listeners { all: all.into_iter().flatten().collect() };
        if bound.is_err() {
            // Sockets that were bound before the failure have no process that accepts.
            listeners.remove_paths(old);
            return Err(ListenFailure);
        }
        for listener in &mut listeners.all {
            let was = old.all.iter().find(|l| same_place(&l.spec, &listener.spec)).map(|l| l.spec.clone());
            if purpose == Purpose::Test {
                // A rehearsal of the API has sockets that serve.
                if was.is_none() {
                    listener.remove_path();
                }
                continue;
            }
            listener.multiply(threads);
            listener.configure(was.as_ref());
        }
        Ok(listeners)
    }

    /// Returns addresses without sockets, for workers whose threads own the sockets.
    pub fn of_specs(specs: &[ListenSpec]) -> Listeners {
        let listener = |spec: &ListenSpec| ListenSocket { spec: spec.clone(), sockets: Vec::new(), inherited: false };
        Listeners { all: specs.iter().map(listener).collect() }
    }

    /// Closes the master's copies of the sockets. Addresses whose threads have closed theirs become free.
    pub fn let_go(&mut self) {
        for listener in &mut self.all {
            listener.sockets.clear();
        }
    }

    /// Adopts descriptors of an earlier program. Each one's bound address identifies it.
    pub fn inherit(numbers: &[i32]) -> Listeners {
        let mut listeners = Listeners::default();
        for number in numbers {
            let found = net::process::inherit_descriptor(*number).and_then(|fd| {
                let socket = SockRef::from(&fd);
                let datagram = socket.r#type()? == Type::DGRAM;
                let address = socket.local_addr()?;
                let address = match (address.as_socket(), address.as_pathname()) {
                    (Some(ip), _) => Address::Ip(ip),
                    (None, Some(path)) => Address::Unix(path.to_path_buf()),
                    _ => return Err(io::Error::other("of an unknown family")),
                };
                let multipath = socket.protocol()? == Some(Protocol::MPTCP);
                Ok((fd, ListenSpec { datagram, multipath, ..ListenSpec::new(address) }))
            });
            match found {
                Ok((fd, spec)) => match listeners.all.iter_mut().find(|l| same_place(&l.spec, &spec)) {
                    Some(listener) => listener.sockets.push(Arc::new(fd)),
                    None => listeners.all.push(ListenSocket { spec, sockets: vec![Arc::new(fd)], inherited: true }),
                },
                Err(e) => say!(Crit, "the inherited socket #{number} cannot be used {}", os_error(&e)),
            }
        }
        listeners
    }

    /// Assigns sockets to threads. Every socket has at least one thread; otherwise connections in its queue would never
    /// be accepted.
    pub fn assignments(&self, threads: usize) -> Vec<SocketAssignment> {
        let mut assignments = Vec::new();
        for (index, listener) in self.all.iter().enumerate() {
            let sockets = listener.sockets.len();
            if sockets == 0 || threads == 0 {
                continue;
            }
            let shared = sockets < threads;
            for n in 0..sockets.max(threads) {
                assignments.push(SocketAssignment {
                    thread: n % threads,
                    listener: index,
                    socket: n % sockets,
                    shared,
                });
            }
        }
        assignments
    }

    /// Sets whether datagrams come with control messages: not for a program that may be nginx.
    pub fn set_messages(&self, on: bool) {
        let datagrams = self.all.iter().filter(|l| l.spec.datagram && matches!(l.spec.address, Address::Ip(_)));
        for listener in datagrams {
            for socket in &listener.sockets {
                if let Err(e) = options::set_messages(&**socket, on) {
                    say!(Alert, "setsockopt() {} failed {}, ignored", listener.spec.address, os_error(&e));
                }
            }
        }
    }

    /// Returns the addresses without a socket in `old`.
    pub fn new_addresses(&self, old: &Listeners) -> Vec<Address> {
        let is_new = |listener: &&ListenSocket| !old.all.iter().any(|l| same_place(&l.spec, &listener.spec));
        self.all.iter().filter(is_new).map(|listener| listener.spec.address.clone()).collect()
    }

    /// Keeps those of `kept`.
    pub fn remove_paths(&self, kept: &Listeners) {
        self.new_addresses(kept).iter().for_each(remove_path);
    }
}

/// Binds the addresses without a socket. Those that were bound before a failure stay in `all`.
fn bind_missing(specs: &[ListenSpec], all: &mut [Option<ListenSocket>], purpose: Purpose) -> Result<(), ListenFailure> {
    for round in 1..=BIND_TRIES {
        let mut in_use = false;
        for (slot, spec) in all.iter_mut().zip(specs).filter(|(slot, _)| slot.is_none()) {
            if let (Address::Unix(path), Purpose::Serve) = (&spec.address, purpose) {
                remove_stale(path);
            }
            match bind(spec, spec.reuseport && purpose == Purpose::Serve) {
                Ok(socket) => {
                    let sockets = vec![Arc::new(OwnedFd::from(socket))];
                    *slot = Some(ListenSocket { spec: spec.clone(), sockets, inherited: false });
                }
                Err((call, e)) => {
                    let busy = e.raw_os_error() == Some(EADDRINUSE);
                    if busy && purpose == Purpose::Test {
                        continue;
                    }
                    say!(Emerg, "{call} failed {}", os_error(&e));
                    if !busy {
                        return Err(ListenFailure);
                    }
                    in_use = true;
                }
            }
        }
        if !in_use {
            break;
        }
        say!(Notice, "try again to bind() after 500ms");
        std::thread::sleep(BIND_PAUSE);
        if round == BIND_TRIES {
            say!(Emerg, "still could not bind()");
            return Err(ListenFailure);
        }
    }
    Ok(())
}

impl ListenSocket {
    fn remove_path(&self) {
        remove_path(&self.spec.address);
    }

    /// Gives every thread its own socket where possible.
    fn multiply(&mut self, threads: usize) {
        if matches!(self.spec.address, Address::Unix(_)) || self.sockets.len() >= threads {
            return;
        }
        for socket in &self.sockets {
            if let Err(e) = SockRef::from(&**socket).set_reuse_port(true) {
                say!(Alert, "setsockopt(SO_REUSEPORT) {} failed {}, ignored", self.spec.address, os_error(&e));
                return;
            }
        }
        while self.sockets.len() < threads {
            match bind(&self.spec, true) {
                Ok(socket) => self.sockets.push(Arc::new(socket.into())),
                Err((call, e)) => {
                    // Threads share the existing sockets, which is slower.
                    say!(Warn, "{call} once more failed {}; threads share the socket", os_error(&e));
                    return;
                }
            }
        }
    }

    /// Sets options that can change on a listening socket (nginx: `ngx_configure_listening_sockets`).
    fn configure(&self, was: Option<&ListenSpec>) {
        let spec = &self.spec;
        if was.is_some_and(|was| was.multipath != spec.multipath) {
            say!(
                Warn,
                "the open socket {} keeps its protocol: a change of \"multipath\" requires a restart",
                spec.address
            );
        }
        for socket in &self.sockets {
            let socket_ref = SockRef::from(&**socket);
            let note = |option: &str, done: io::Result<()>| {
                if let Err(e) = done {
                    say!(Alert, "setsockopt({option}) {} failed {}, ignored", spec.address, os_error(&e));
                }
            };
            if let Some(size) = spec.receive_buffer {
                note("SO_RCVBUF", socket_ref.set_recv_buffer_size(size));
            }
            if let Some(size) = spec.send_buffer {
                note("SO_SNDBUF", socket_ref.set_send_buffer_size(size));
            }
            if spec.datagram {
                continue;
            }
            if let Some(keepalive) = spec.keepalive {
                let mut times = TcpKeepalive::new();
                if let Some(idle) = keepalive.idle {
                    times = times.with_time(idle);
                }
                if let Some(interval) = keepalive.interval {
                    times = times.with_interval(interval);
                }
                if let Some(count) = keepalive.count {
                    times = times.with_retries(count);
                }
                let has_times = keepalive.idle.or(keepalive.interval).is_some() || keepalive.count.is_some();
                note("SO_KEEPALIVE", socket_ref.set_keepalive(keepalive.on));
                if keepalive.on && has_times {
                    note("TCP_KEEPIDLE", socket_ref.set_tcp_keepalive(&times));
                }
            }
            if let Some(queue) = spec.fastopen {
                note("TCP_FASTOPEN", options::set_fastopen(&**socket, queue));
            }
            if spec.deferred || was.is_some_and(|was| was.deferred) {
                note("TCP_DEFER_ACCEPT", options::set_defer_accept(&**socket, i32::from(spec.deferred)));
            }
            if was.is_some_and(|was| was.backlog != spec.backlog) || self.inherited {
                let backlog = spec.backlog.unwrap_or(BACKLOG);
                if let Err(e) = rustix::net::listen(socket.as_fd(), backlog.min(i32::MAX as u32) as i32) {
                    say!(
                        Alert,
                        "listen() to {}, backlog {backlog} failed {}, ignored",
                        spec.address,
                        os_error(&e.into())
                    );
                }
            }
        }
    }
}

/// Equal address and protocol: one socket serves both.
pub fn same_place(a: &ListenSpec, b: &ListenSpec) -> bool {
    a.address == b.address && a.datagram == b.datagram
}

/// Opens, binds and listens. Errors contain nginx's name for the call.
fn bind(spec: &ListenSpec, reuse_port: bool) -> Result<Socket, (String, io::Error)> {
    let named = |call: &str| format!("{call} {}", spec.address);
    let kind = if spec.datagram { Type::DGRAM } else { Type::STREAM };
    let (domain, address) = match &spec.address {
        Address::Ip(ip) => (Domain::for_address(*ip), SockAddr::from(*ip)),
        Address::Unix(path) => (Domain::UNIX, SockAddr::unix(path).map_err(|e| (named("bind() to"), e))?),
    };
    let protocol = match (&spec.address, spec.datagram) {
        (_, false) if spec.multipath => Some(Protocol::MPTCP),
        (Address::Unix(_), _) => None,
        (_, true) => Some(Protocol::UDP),
        (_, false) => Some(Protocol::TCP),
    };
    let socket = Socket::new(domain, kind, protocol).map_err(|e| (named("socket()"), e))?;
    socket.set_nonblocking(true).map_err(|e| (named("ioctl(FIONBIO)"), e))?;
    if domain != Domain::UNIX {
        socket.set_reuse_address(true).map_err(|e| (named("setsockopt(SO_REUSEADDR)"), e))?;
        if reuse_port {
            socket.set_reuse_port(true).map_err(|e| (named("setsockopt(SO_REUSEPORT)"), e))?;
        }
    }
    if domain == Domain::IPV6
        && let Err(e) = socket.set_only_v6(spec.ipv6_only)
    {
        say!(Emerg, "setsockopt(IPV6_V6ONLY) {} failed {}, ignored", spec.address, os_error(&e));
    }
    socket.bind(&address).map_err(|e| (named("bind() to"), e))?;
    if let Address::Unix(path) = &spec.address
        && let Err(e) = std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o666))
    {
        say!(Emerg, "chmod() \"{}\" failed {}", path.display(), os_error(&e));
    }
    if !spec.datagram {
        let backlog = spec.backlog.unwrap_or(BACKLOG);
        let call = format!("listen() to {}, backlog {backlog}", spec.address);
        socket.listen(backlog.min(i32::MAX as u32) as i32).map_err(|e| (call, e))?;
    }
    Ok(socket)
}

/// Removes the path of a UNIX-domain socket. Other addresses have none.
pub fn remove_path(address: &Address) {
    if let Address::Unix(path) = address
        && let Err(e) = std::fs::remove_file(path)
        && e.kind() != io::ErrorKind::NotFound
    {
        say!(Emerg, "unlink() {} failed {}", path.display(), os_error(&e));
    }
}

/// Removes the file of an unused socket, left by a killed server, because `bind` would fail. A file of another type
/// also refuses connections, but may be anything.
pub fn remove_stale(path: &Path) {
    if !path.symlink_metadata().is_ok_and(|found| found.file_type().is_socket()) {
        return;
    }
    let Err(e) = std::os::unix::net::UnixStream::connect(path) else { return };
    if e.kind() == io::ErrorKind::ConnectionRefused && std::fs::remove_file(path).is_ok() {
        say!(Notice, "deleted the stale socket {}", path.display());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tcp() -> ListenSpec {
        ListenSpec::new(Address::Ip(([127, 0, 0, 1], testkit::free_port()).into()))
    }

    #[test]
    fn a_failed_opening_leaves_no_socket_behind() {
        let path = std::env::temp_dir().join(format!("tidegate-listeners-{}.sock", std::process::id()));
        let _ = std::fs::remove_file(&path);
        let unix = ListenSpec::new(Address::Unix(path.clone()));
        let none = ListenSpec::new(Address::Ip(([192, 0, 2, 1], 1).into()));
        for purpose in [Purpose::Test, Purpose::Serve] {
            let specs = [unix.clone(), none.clone()];
            assert!(Listeners::open(&specs, 1, &Listeners::default(), purpose).is_err());
            assert!(!path.exists());
        }
        // One that serves stays.
        let old = Listeners::open(std::slice::from_ref(&unix), 1, &Listeners::default(), Purpose::Serve).expect("open");
        assert!(Listeners::open(&[unix, none], 1, &old, Purpose::Serve).is_err());
        assert!(path.exists());
        old.remove_paths(&Listeners::default());
    }

    #[test]
    fn a_socket_a_thread_and_none_without_a_thread() {
        let spec = tcp();
        let four =
            Listeners::open(std::slice::from_ref(&spec), 4, &Listeners::default(), Purpose::Serve).expect("open");
        assert_eq!(four.all[0].sockets.len(), 4);
        assert!(four.assignments(4).iter().all(|s| s.thread == s.socket && !s.shared));
        // With fewer threads, surplus sockets are assigned to the remaining threads.
        let mut sockets: Vec<_> = four.assignments(3).iter().map(|s| s.socket).collect();
        sockets.sort_unstable();
        assert_eq!(sockets, [0, 1, 2, 3]);
        let more = Listeners::open(std::slice::from_ref(&spec), 6, &four, Purpose::Serve).expect("reload");
        assert_eq!(more.all[0].sockets.len(), 6);
        assert!(Arc::ptr_eq(&more.all[0].sockets[0], &four.all[0].sockets[0]), "the sockets stay");
    }

    #[test]
    fn one_thread_grows_to_two_on_the_same_address() {
        let spec = tcp();
        let one = Listeners::open(std::slice::from_ref(&spec), 1, &Listeners::default(), Purpose::Serve).expect("open");
        assert_eq!(one.all[0].sockets.len(), 1);
        let two = Listeners::open(std::slice::from_ref(&spec), 2, &one, Purpose::Serve).expect("reload");
        assert_eq!(two.all[0].sockets.len(), 2);
    }

    #[test]
    fn a_foreign_listener_is_noticed_even_with_threads() {
        let spec = tcp();
        let Address::Ip(ip) = spec.address else { unreachable!("it is one") };
        let foreign = Socket::new(Domain::IPV4, Type::STREAM, None).expect("socket");
        foreign.set_reuse_port(true).expect("option");
        foreign.bind(&ip.into()).expect("bind");
        foreign.listen(1).expect("listen");
        assert!(Listeners::open(std::slice::from_ref(&spec), 2, &Listeners::default(), Purpose::Serve).is_err());
        assert!(Listeners::open(std::slice::from_ref(&spec), 2, &Listeners::default(), Purpose::Test).is_ok());
    }

    #[test]
    fn multipath_is_a_protocol_of_new_sockets() {
        let spec = ListenSpec { multipath: true, ..tcp() };
        let open =
            |spec: &ListenSpec, old: &Listeners| Listeners::open(std::slice::from_ref(spec), 2, old, Purpose::Serve);
        let Ok(first) = open(&spec, &Listeners::default()) else {
            testkit::missing_means("the kernel has no multipath TCP");
            return;
        };
        let kept = open(&ListenSpec { multipath: false, ..spec }, &first).expect("open");
        for socket in first.all[0].sockets.iter().chain(&kept.all[0].sockets) {
            assert_eq!(SockRef::from(&**socket).protocol().expect("asked"), Some(Protocol::MPTCP));
        }
    }

    #[test]
    fn a_socket_file_without_a_listener_is_replaced() {
        let path = std::env::temp_dir().join(format!("tidegate-listeners-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        drop(std::os::unix::net::UnixListener::bind(&path).expect("bind"));
        let spec = ListenSpec::new(Address::Unix(path.clone()));
        let open =
            Listeners::open(std::slice::from_ref(&spec), 2, &Listeners::default(), Purpose::Serve).expect("open");
        assert_eq!(open.all[0].sockets.len(), 1);
        assert!(open.assignments(2).iter().all(|s| s.shared));
        open.remove_paths(&Listeners::default());
        assert!(!path.exists());
    }
}
