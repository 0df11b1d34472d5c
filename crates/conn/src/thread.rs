//! A worker thread: what it serves, what it can be told, and what a reload and QUIT mean for its connections. Its loop is in
//! `turn.rs`.

use crate::streams::DatagramSocket;
use crate::turn::{Progress, Turns};
use crate::worker::{ListenSocket, Registration, Worker};
use crate::{accept, inline, mux, secure, streams, waiting};
use base::clock;
use http_engine::{HttpPlan, ListenerRef};
use mail_features::MailPlan;
use net::listen::{Address, ListenSpec};
use net::poller::Key;
use observe::{ErrorLog, Level};
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use stream_features::StreamPlan;

/// A listening socket of this thread.
#[derive(Debug)]
pub struct Bound {
    pub spec: ListenSpec,
    pub fd: OwnedFd,
    /// Several threads accept from this very socket (UNIX-domain sockets): wake one at a time (EPOLLEXCLUSIVE).
    pub shared: bool,
}

/// What a thread serves, from a start or a reload on. Requests in flight keep the plan they began with.
#[derive(Clone, Debug)]
pub struct Serving {
    /// `None` when the configuration has no http block.
    pub http: Option<Arc<HttpPlan>>,
    /// The same of the stream block.
    pub stream: Option<Arc<StreamPlan>>,
    /// The same of the mail block.
    pub mail: Option<Arc<MailPlan>>,
    pub error_log: Arc<ErrorLog>,
    /// `worker_connections` of this thread.
    pub connections_max: usize,
    pub multi_accept: bool,
    /// `worker_shutdown_timeout`: how long after a reload the connections that were there before it may stay; 0 lets them.
    pub shutdown_timeout_ms: u64,
}

/// What the process tells a thread.
#[derive(Debug)]
pub enum Command {
    /// Serve this from now on. `listeners` are all sockets of the new configuration that this thread does not have yet;
    /// sockets whose address, and whether it is one of datagrams, is not in `keep` are closed.
    Serve { serving: Serving, listeners: Vec<Bound>, keep: Vec<(Address, bool)> },
    /// QUIT: stop accepting, close idle connections, finish requests, then end the thread. Connections still open after
    /// `timeout_ms` (`worker_shutdown_timeout`, 0 = never) are closed.
    Quit { timeout_ms: u64 },
    /// TERM: end the thread at once.
    Terminate,
    /// USR1: write out buffered log lines, then drop the sender.
    Flush(tokio::sync::mpsc::UnboundedSender<()>),
}

/// Everything a thread begins with.
pub struct ThreadInit {
    pub index: usize,
    pub serving: Serving,
    pub listeners: Vec<Bound>,
    pub commands: tokio::sync::mpsc::UnboundedReceiver<Command>,
    /// CPUs to run on (`worker_cpu_affinity`), if any.
    pub cpus: Option<Vec<usize>>,
}

/// Runs a worker thread until `Quit` has drained or `Terminate` comes. Call it on a thread of its own.
pub fn run(init: ThreadInit) {
    if let Some(cpus) = &init.cpus {
        let mut set = rustix::thread::CpuSet::new();
        for cpu in cpus {
            set.set(*cpu);
        }
        if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
            init.serving.error_log.log(Level::Alert, 0, format_args!("sched_setaffinity() failed ({e})"));
        }
    }
    let log = init.serving.error_log.clone();
    if let Err(e) = serve(init) {
        log.log(Level::Alert, 0, format_args!("the event loop failed: {e}"));
    }
}

fn serve(init: ThreadInit) -> std::io::Result<()> {
    let mut turns = Turns::begin(init)?;
    while turns.turn(true)? != Progress::Ended {}
    Ok(())
}

/// A panic (which the process's hook has logged) costs the connection it came from, not the thread, and never a listener.
/// Tasks are guarded by their executor in the same way.
pub(crate) fn guarded(worker: &Rc<Worker>, key: Key, act: impl FnOnce(&Rc<Worker>, Key)) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| act(worker, key))).is_ok() {
        return;
    }
    metrics::process::PANICS.up();
    if worker.poller.registration(key).is_some_and(|registration| registration.connection().is_some()) {
        worker.close(key);
    }
}

pub(crate) fn act(worker: &Rc<Worker>, key: Key) {
    let is_event = worker.poller.begin(key);
    match worker.poller.registration(key) {
        // Woken by its server's socket as well.
        Some(Registration::Waiting(waiting)) => waiting::proceed(worker, key, &waiting),
        _ if !is_event => {}
        Some(Registration::Client(connection)) => inline::readable(worker, key, &connection, None),
        Some(Registration::Secure(secure)) => secure::readable(worker, key, &secure),
        Some(Registration::Mux(mux)) => mux::readable(worker, key, &mux),
        Some(Registration::Listener(listen_socket)) => accept::accept(worker, key, &listen_socket),
        Some(Registration::Datagrams(listen_socket)) => streams::datagrams(worker, key, &listen_socket),
        Some(Registration::Files) => http_engine::files::changed(),
        None => {}
    }
}

/// Turns the thread's file cache on, as the plan says, and listens for what changes.
pub(crate) fn watch_files(worker: &Rc<Worker>) -> std::io::Result<()> {
    // What is still sent is not worth it.
    if worker.quitting.get() {
        return Ok(());
    }
    let (bytes, recheck) = worker.plan.borrow().as_ref().map_or((0, 0), |plan| (plan.cache_bytes, plan.cache_recheck));
    http_engine::files::recheck_after(recheck);
    http_engine::files::keep_contents(bytes > 0);
    let watch = http_engine::files::enable(bytes);
    if let Some(old) = worker.files.take() {
        worker.poller.remove(old);
    }
    match watch {
        Some(fd) => listen_for_files(worker, fd),
        None => Ok(()),
    }
}

fn listen_for_files(worker: &Worker, fd: OwnedFd) -> std::io::Result<()> {
    worker.files.set(Some(worker.poller.add_listener(fd, Registration::Files, false)?));
    Ok(())
}

pub(crate) fn open(worker: &Rc<Worker>, bound: Bound) -> std::io::Result<()> {
    if bound.spec.datagram {
        let listen_socket = Rc::new(DatagramSocket::new(&bound.fd, bound.spec.address)?);
        let key = worker.poller.add_listener(bound.fd, Registration::Datagrams(listen_socket), bound.shared)?;
        worker.listen_sockets.borrow_mut().push(key);
        return Ok(());
    }
    let listen_socket = Rc::new(ListenSocket {
        listener: ListenerRef::new(Rc::new(bound.spec.address)),
        shared: bound.shared,
        paused: Cell::new(false),
        stream: Cell::default(),
        mail: Cell::default(),
    });
    let key = worker.poller.add_listener(bound.fd, Registration::Listener(listen_socket), bound.shared)?;
    worker.listen_sockets.borrow_mut().push(key);
    Ok(())
}

/// Swaps the plan. Connections stay: they find their listener in it by its address. What fails is said and costs what it
/// concerns, not the thread.
pub(crate) fn reload(worker: &Rc<Worker>, serving: Serving, listeners: Vec<Bound>, keep: &[(Address, bool)]) {
    let old = worker.plan.borrow().clone();
    metrics::prepare_thread();
    worker.begin_cutoff();
    *worker.plan.borrow_mut() = serving.http.clone().map(Rc::new);
    worker.streams.replan(serving.stream.clone());
    worker.mails.replan(serving.mail.clone());
    *worker.serving.borrow_mut() = serving;
    if let Some(old) = &old {
        http_engine::flush_logs(old);
    }
    session_engine::log::flush_thread();
    if let Err(e) = watch_files(worker) {
        worker.log(Level::Alert, 0, format_args!("watching files failed {}", observe::os(&e)));
    }
    let listen_sockets = std::mem::take(&mut *worker.listen_sockets.borrow_mut());
    for key in listen_sockets {
        let place = match worker.poller.registration(key) {
            Some(Registration::Listener(listen_socket)) => (Address::clone(listen_socket.listener.address()), false),
            Some(Registration::Datagrams(listen_socket)) => (listen_socket.address().clone(), true),
            _ => continue,
        };
        if keep.contains(&place) {
            worker.listen_sockets.borrow_mut().push(key);
        } else {
            worker.poller.remove(key);
        }
    }
    for bound in listeners {
        let address = bound.spec.address.clone();
        if let Err(e) = open(worker, bound) {
            let e = observe::os(&e);
            worker.log(
                Level::Emerg,
                0,
                format_args!("epoll_ctl() for {address} failed {e}; this thread does not listen there"),
            );
        }
    }
    let (Some(old), new) = (old, worker.plan.borrow().clone()) else { return };
    for key in worker.poller.keys() {
        let Some(c) = worker.poller.registration(key).and_then(|registration| registration.connection()) else {
            continue;
        };
        // Tasks finish what they do; their next request finds that there is no server for it.
        if is_at_work(worker, key) {
            continue;
        }
        // New connections go by the new configuration; this one ends when its streams have (nginx: its worker does).
        if let Some(Registration::Mux(mux)) = worker.poller.registration(key) {
            mux.begin_quit();
            continue;
        }
        let was = old.listener_of(&c).map(|l| (l.proxy_protocol, l.ssl));
        let is = new.as_ref().and_then(|new| new.listener_of(&c)).map(|l| (l.proxy_protocol, l.ssl));
        // What its first bytes mean would have changed in the middle.
        if is.is_none() || is != was {
            worker.close(key);
        }
    }
}

/// A request of the connection has a task, or waits for a server.
fn is_at_work(worker: &Worker, key: Key) -> bool {
    !worker.poller.is_idle(key) || matches!(worker.poller.registration(key), Some(Registration::Waiting(_)))
}

/// QUIT: no new connections; idle ones are closed, the others after their response.
pub(crate) fn begin_quit(worker: &Rc<Worker>) {
    worker.quitting.set(true);
    if let Some(files) = worker.files.take() {
        worker.poller.remove(files);
        http_engine::files::enable(0);
        http_engine::files::keep_contents(false);
    }
    for key in std::mem::take(&mut *worker.listen_sockets.borrow_mut()) {
        worker.poller.remove(key);
    }
    worker.streams.sessions.begin_quit();
    for key in worker.poller.keys() {
        let Some(c) = worker.poller.registration(key).and_then(|registration| registration.connection()) else {
            continue;
        };
        if is_at_work(worker, key) {
            continue;
        }
        if let Some(Registration::Mux(mux)) = worker.poller.registration(key) {
            mux.begin_quit();
            continue;
        }
        // One that has not asked for anything yet may, once; and so may one that is about to.
        if c.requests.get() == 0 || c.begun.is_some() {
            continue;
        }
        match worker.default_conf(&c).map_or(0, |core| core.conf.keepalive_min_timeout.0) {
            0 => worker.close(key),
            min => worker.poller.set_deadline(key, clock::now().plus_millis(min)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_engine::{Begun, Connection};
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn client(worker: &Worker) -> (Key, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let connection = Connection {
            number: Worker::next_number(),
            peer: None,
            local: Rc::new(Address::Unix("test".into())),
            listener: ListenerRef::new(Rc::new(Address::Unix("test".into()))),
            requests: Cell::new(0),
            nodelay: Cell::new(false),
            started: clock::now(),
            proxy: None,
            socket: None,
            tls: None,
            begun: Begun::default(),
        };
        let key = worker.poller.add(ours.into(), Registration::Client(Rc::new(connection))).expect("added");
        (key, theirs)
    }

    fn serving() -> Serving {
        Serving {
            http: None,
            stream: None,
            mail: None,
            error_log: Arc::new(ErrorLog::new(Vec::new())),
            connections_max: 8,
            multi_accept: false,
            shutdown_timeout_ms: 0,
        }
    }

    /// A descriptor that epoll refuses.
    fn refused() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("opened").into()
    }

    #[test]
    fn what_cannot_be_watched_after_a_reload_costs_itself_and_not_the_thread() {
        let worker = Rc::new(Worker::new(serving()).expect("a worker"));
        let bound = |name: &str, fd: OwnedFd| Bound {
            spec: net::listen::ListenSpec::new(Address::Unix(name.into())),
            fd,
            shared: false,
        };
        let (good, _other_end) = UnixStream::pair().expect("pair");
        reload(&worker, serving(), vec![bound("broken", refused()), bound("good", good.into())], &[]);
        let addresses: Vec<Address> = worker
            .listen_sockets
            .borrow()
            .iter()
            .filter_map(|key| match worker.poller.registration(*key) {
                Some(Registration::Listener(listen_socket)) => Some((**listen_socket.listener.address()).clone()),
                _ => None,
            })
            .collect();
        assert_eq!(addresses, [Address::Unix("good".into())], "the other one is listened to");
        assert!(listen_for_files(&worker, refused()).is_err());
        assert_eq!(worker.files.get(), None);
        assert_eq!(worker.poller.registered(), 1, "what was refused is closed");
    }

    #[test]
    fn a_panic_costs_one_connection() {
        let worker = Rc::new(Worker::new(serving()).expect("a worker"));
        let panics = metrics::process::PANICS.sum();
        let ((broken, mut its_peer), (other, _peer)) = (client(&worker), client(&worker));
        guarded(&worker, broken, |worker, _| {
            let _held = worker.out_buf.borrow_mut();
            panic!("a test's panic");
        });
        assert_eq!(its_peer.read(&mut [0; 1]).expect("read"), 0, "its connection is closed");
        assert!(metrics::process::PANICS.sum() > panics, "and it is counted");
        assert!(worker.poller.registration(other).is_some(), "the other one is not");
        assert!(worker.out_buf.try_borrow_mut().is_ok(), "what it held is free again");
    }
}
