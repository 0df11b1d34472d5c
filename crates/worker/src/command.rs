//! Commands of the process to a worker thread: reload, and QUIT for a graceful shutdown.

use crate::quic::QuicListener;
use crate::serving::{BoundSocket, ListenSocket, ListenState, ServeLoop};
use crate::stream_area::DatagramSocket;
use crate::worker::{Carrier, Worker, WorkerFiles};
use base::clock;
use http_engine::{ClientConnection, ListenerRef};
use net::Address;
use net::listen::ListenSpec;
use net::poller::Key;
use observe::Severity;
use std::cell::Cell;
use std::os::fd::OwnedFd;
use std::rc::Rc;

/// A command of the process to a worker thread. Executed at the begin of the next turn, in order.
#[derive(Debug)]
pub enum WorkerCommand {
    /// Serves this configuration. `listeners` are its sockets that the thread lacks; sockets whose address and kind are
    /// not in `keep` are closed.
    Serve {
        /// The configuration.
        serving: ServeLoop,
        /// Sockets to add.
        listeners: Vec<BoundSocket>,
        /// Addresses of the sockets that stay; `true`: of datagrams.
        keep: Vec<(Address, bool)>,
    },
    /// QUIT: stops accepting, closes idle connections, finishes requests, ends the thread; after `timeout_ms`
    /// (`worker_shutdown_timeout`, 0: never) closes the rest.
    Quit {
        /// Milliseconds; 0: never.
        timeout_ms: u64,
    },
    /// TERM: ends the thread at once.
    Terminate,
    /// USR1: writes buffered log lines, then drops the sender.
    Flush(tokio::sync::mpsc::UnboundedSender<()>),
}

/// All that a worker thread needs to start.
pub struct ThreadInit {
    /// Number of the thread, from 0, for metrics.
    pub index: usize,
    /// The first configuration.
    pub serving: ServeLoop,
    /// The thread's listening sockets.
    pub listeners: Vec<BoundSocket>,
    /// The end of the channel that the process sends commands to.
    pub commands: tokio::sync::mpsc::UnboundedReceiver<WorkerCommand>,
    /// CPUs to run on (`worker_cpu_affinity`).
    pub cpus: Option<Vec<usize>>,
}

/// Enables the file cache as planned, and watches for changes.
pub(crate) fn watch_files(worker: &Rc<Worker>) -> std::io::Result<()> {
    // Remaining responses need no cache.
    if worker.turn().is_quitting() {
        return Ok(());
    }
    let (bytes, recheck) = worker.plan.borrow().as_ref().map_or((0, 0), |plan| (plan.cache_bytes, plan.cache_recheck));
    http_engine::files::recheck_after(recheck);
    http_engine::files::keep_contents(bytes > 0);
    let watch = http_engine::files::enable_cache(bytes);
    if let Some(old) = worker.replace_files(None) {
        worker.poller.remove(old);
    }
    match watch {
        Some(fd) => listen_for_files(worker, fd),
        None => Ok(()),
    }
}

fn listen_for_files(worker: &Worker, fd: OwnedFd) -> std::io::Result<()> {
    worker.replace_files(Some(worker.poller.add_listener(fd, Rc::new(WorkerFiles), false)?));
    Ok(())
}

pub(crate) fn open(worker: &Rc<Worker>, bound: BoundSocket) -> std::io::Result<()> {
    let address = bound.spec.address.clone();
    let is_quic = |plan: &http_engine::HttpPlan| {
        plan.listeners.iter().any(|listener| listener.quic && listener.spec.address == address)
    };
    if bound.spec.datagram && worker.plan.borrow().as_ref().is_some_and(|plan| is_quic(plan)) {
        let spec = ListenSpec { address: address.clone(), ..bound.spec };
        let key = QuicListener::open(worker, bound.fd, &spec)?;
        worker.listening().borrow_mut().push(ListenState { key, address, accepting: None });
        return Ok(());
    }
    let (carrier, accepting): (Rc<dyn Carrier>, _) = if bound.spec.datagram {
        (Rc::new(DatagramSocket::new(&bound.fd, address.clone())?), None)
    } else {
        let listen_socket = Rc::new(ListenSocket {
            listener: ListenerRef::new(Rc::new(address.clone())),
            shared: bound.shared,
            paused: Cell::new(false),
            stream: Cell::default(),
            mail: Cell::default(),
        });
        (listen_socket.clone(), Some(listen_socket))
    };
    let key = worker.poller.add_listener(bound.fd, carrier, bound.shared)?;
    worker.listening().borrow_mut().push(ListenState { key, address, accepting });
    Ok(())
}

/// Replaces the plan; connections find their listener in it by address. A failure is logged and costs only its socket.
pub(crate) fn reload(worker: &Rc<Worker>, serving: ServeLoop, listeners: Vec<BoundSocket>, keep: &[(Address, bool)]) {
    let old = worker.plan.borrow().clone();
    metrics::prepare_thread();
    worker.begin_cutoff();
    worker.replan(serving);
    if let Some(old) = &old {
        http_engine::flush_logs(old);
    }
    access_logs::flush_thread();
    if let Err(e) = watch_files(worker) {
        worker.log(Severity::Alert, 0, format_args!("watching files failed {}", observe::os_error(&e)));
    }
    worker.listening().borrow_mut().retain(|listening| {
        let stays = keep.contains(&listening.place());
        if !stays {
            stop_listening(worker, listening.key);
        }
        stays
    });
    for bound in listeners {
        let address = bound.spec.address.clone();
        if let Err(e) = open(worker, bound) {
            let e = observe::os_error(&e);
            worker.log(
                Severity::Emerg,
                0,
                format_args!("epoll_ctl() for {address} failed {e}; this thread does not listen there"),
            );
        }
    }
    let (Some(old), new) = (old, worker.plan.borrow().clone()) else { return };
    for key in worker.poller.keys() {
        // Tasks finish; their next request finds no server.
        let Some((carrier, c)) = resting(worker, key) else { continue };
        // New connections use the new plan; multiplexed ones end with their requests, as nginx's worker.
        if carrier.begin_quit(worker, key) {
            continue;
        }
        let was = old.listener_of(&c).map(|l| (l.proxy_protocol, l.ssl));
        let is = new.as_ref().and_then(|new| new.listener_of(&c)).map(|l| (l.proxy_protocol, l.ssl));
        // The meaning of its first bytes would change midway.
        if is.is_none() || is != was {
            worker.close(key);
        }
    }
}

/// Closes a listening socket, now or with the last client that shares it.
fn stop_listening(worker: &Rc<Worker>, key: Key) {
    let carrier = worker.poller.registration(key);
    if !carrier.is_some_and(|carrier| carrier.begin_quit(worker, key)) {
        worker.poller.remove(key);
    }
}

fn resting(worker: &Worker, key: Key) -> Option<(Rc<dyn Carrier>, Rc<ClientConnection>)> {
    let carrier = worker.poller.registration(key)?;
    let connection = carrier.clone().client()?;
    (worker.poller.is_idle(key) && !carrier.has_request()).then_some((carrier, connection))
}

/// QUIT: closes idle connections, others after their response.
pub(crate) fn begin_quit(worker: &Rc<Worker>) {
    worker.turn().begin_quit();
    if let Some(files) = worker.replace_files(None) {
        worker.poller.remove(files);
        http_engine::files::enable_cache(0);
        http_engine::files::keep_contents(false);
    }
    for listening in worker.listening().take() {
        stop_listening(worker, listening.key);
    }
    worker.areas.stream.sessions.begin_quit();
    for key in worker.poller.keys() {
        let Some((carrier, c)) = resting(worker, key) else { continue };
        if carrier.begin_quit(worker, key) {
            continue;
        }
        // A connection without a request yet may send one, as may one that is about to.
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
    use crate::guard::call_guarded;
    use http_engine::PartialHead;
    use observe::ErrorLog;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::sync::Arc;

    fn client(worker: &Worker) -> (Key, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let connection = ClientConnection {
            number: Worker::next_number(),
            peer: None,
            local: Rc::new(Address::Unix("test".into())),
            listener: ListenerRef::new(Rc::new(Address::Unix("test".into()))),
            requests: Cell::new(0),
            nodelay: Cell::new(false),
            pipelining: http_engine::PipelineState::default(),
            started: clock::now(),
            proxy: None,
            socket: None,
            tls: None,
            begun: PartialHead::default(),
        };
        let key = worker.poller.add(ours.into(), Rc::new(connection)).expect("added");
        (key, theirs)
    }

    fn serving() -> ServeLoop {
        ServeLoop {
            http: None,
            stream: None,
            mail: None,
            error_log: Arc::new(ErrorLog::new(Vec::new())),
            connections_max: 8,
            multi_accept: false,
            shutdown_timeout_ms: 0,
            stall_threshold_ms: 0,
        }
    }

    fn refused() -> OwnedFd {
        std::fs::File::open("/dev/null").expect("opened").into()
    }

    #[test]
    fn a_listener_that_cannot_be_watched_does_not_end_the_thread() {
        let worker = Rc::new(Worker::new(serving()).expect("a worker"));
        let bound = |name: &str, fd: OwnedFd| BoundSocket {
            spec: net::listen::ListenSpec::new(Address::Unix(name.into())),
            fd,
            shared: false,
        };
        let (good, _other_end) = UnixStream::pair().expect("pair");
        reload(&worker, serving(), vec![bound("broken", refused()), bound("good", good.into())], &[]);
        let addresses: Vec<Address> = worker.listening().borrow().iter().map(|l| l.address.clone()).collect();
        assert_eq!(addresses, [Address::Unix("good".into())], "the other one is listened to");
        assert!(listen_for_files(&worker, refused()).is_err());
        assert_eq!(worker.files(), None);
        assert_eq!(worker.poller.registered(), 1, "the refused connection is closed");
    }

    #[test]
    fn a_panic_costs_one_connection() {
        let worker = Rc::new(Worker::new(serving()).expect("a worker"));
        let panics = metrics::process::PANICS.sum();
        let ((broken, mut its_peer), (other, _peer)) = (client(&worker), client(&worker));
        call_guarded(&worker, broken, |worker, _| {
            let _held = worker.pools.out_buffer().borrow_mut();
            panic!("a test's panic");
        });
        assert_eq!(its_peer.read(&mut [0; 1]).expect("read"), 0, "its connection is closed");
        assert!(metrics::process::PANICS.sum() > panics, "and it is counted");
        assert!(worker.poller.registration(other).is_some(), "the other one is not");
        assert!(worker.pools.out_buffer().try_borrow_mut().is_ok(), "its buffer is free again");
    }
}
