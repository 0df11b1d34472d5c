//! A worker thread: what it serves, what it can be told, and what a reload and QUIT mean for its connections. Its loop is in
//! `turn.rs`.

use crate::streams::DatagramDoor;
use crate::turn::{Progress, Turns};
use crate::world::{Door, Owner, World};
use crate::{accept, h2, inline, secure, streams};
use base::clock;
use http_engine::{HttpPlan, ListenerRef};
use mail_features::MailPlan;
use net::listen::{Address, ListenSpec};
use net::lot::Key;
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
pub(crate) fn guarded(world: &Rc<World>, key: Key, act: impl FnOnce(&Rc<World>, Key)) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| act(world, key))).is_ok() {
        return;
    }
    metrics::process::PANICS.up();
    if world.lot.owner(key).is_some_and(|owner| owner.connection().is_some()) {
        world.close(key);
    }
}

pub(crate) fn act(world: &Rc<World>, key: Key) {
    if !world.lot.begin(key) {
        return;
    }
    match world.lot.owner(key) {
        Some(Owner::Client(connection)) => inline::readable(world, key, &connection, None),
        Some(Owner::Secure(secure)) => secure::readable(world, key, &secure),
        Some(Owner::H2(h2)) => h2::readable(world, key, &h2),
        Some(Owner::Listener(door)) => accept::accept(world, key, &door),
        Some(Owner::Datagrams(door)) => streams::datagrams(world, key, &door),
        Some(Owner::Files) => http_engine::files::changed(),
        None => {}
    }
}

/// Turns the thread's file cache on, as the plan says, and listens for what changes.
pub(crate) fn watch_files(world: &Rc<World>) -> std::io::Result<()> {
    // What is still sent is not worth it.
    if world.quitting.get() {
        return Ok(());
    }
    let (bytes, recheck) = world.plan.borrow().as_ref().map_or((0, 0), |plan| (plan.cache_bytes, plan.cache_recheck));
    http_engine::files::recheck_after(recheck);
    http_engine::files::keep_contents(bytes > 0);
    let watch = http_engine::files::enable(bytes);
    if let Some(old) = world.files.take() {
        world.lot.remove(old);
    }
    match watch {
        Some(fd) => listen_for_files(world, fd),
        None => Ok(()),
    }
}

fn listen_for_files(world: &World, fd: OwnedFd) -> std::io::Result<()> {
    world.files.set(Some(world.lot.add_listener(fd, Owner::Files, false)?));
    Ok(())
}

pub(crate) fn open(world: &Rc<World>, bound: Bound) -> std::io::Result<()> {
    if bound.spec.datagram {
        let door = Rc::new(DatagramDoor::new(&bound.fd, bound.spec.address)?);
        let key = world.lot.add_listener(bound.fd, Owner::Datagrams(door), bound.shared)?;
        world.doors.borrow_mut().push(key);
        return Ok(());
    }
    let door = Rc::new(Door {
        listener: ListenerRef::new(Rc::new(bound.spec.address)),
        shared: bound.shared,
        paused: Cell::new(false),
        stream: Cell::default(),
        mail: Cell::default(),
    });
    let key = world.lot.add_listener(bound.fd, Owner::Listener(door), bound.shared)?;
    world.doors.borrow_mut().push(key);
    Ok(())
}

/// Swaps the plan. Connections stay: they find their listener in it by its address. What fails is said and costs what it
/// concerns, not the thread.
pub(crate) fn reload(world: &Rc<World>, serving: Serving, listeners: Vec<Bound>, keep: &[(Address, bool)]) {
    let old = world.plan.borrow().clone();
    metrics::prepare_thread();
    world.begin_cutoff();
    *world.plan.borrow_mut() = serving.http.clone().map(Rc::new);
    world.streams.replan(serving.stream.clone());
    world.mails.replan(serving.mail.clone());
    *world.serving.borrow_mut() = serving;
    if let Some(old) = &old {
        http_engine::flush_logs(old);
    }
    session_engine::log::flush_thread();
    if let Err(e) = watch_files(world) {
        world.log(Level::Alert, 0, format_args!("watching files failed {}", observe::os(&e)));
    }
    let doors = std::mem::take(&mut *world.doors.borrow_mut());
    for key in doors {
        let place = match world.lot.owner(key) {
            Some(Owner::Listener(door)) => (Address::clone(door.listener.address()), false),
            Some(Owner::Datagrams(door)) => (door.address().clone(), true),
            _ => continue,
        };
        if keep.contains(&place) {
            world.doors.borrow_mut().push(key);
        } else {
            world.lot.remove(key);
        }
    }
    for bound in listeners {
        let address = bound.spec.address.clone();
        if let Err(e) = open(world, bound) {
            let e = observe::os(&e);
            world.log(
                Level::Emerg,
                0,
                format_args!("epoll_ctl() for {address} failed {e}; this thread does not listen there"),
            );
        }
    }
    let (Some(old), new) = (old, world.plan.borrow().clone()) else { return };
    for key in world.lot.keys() {
        let Some(c) = world.lot.owner(key).and_then(|owner| owner.connection()) else { continue };
        // Tasks finish what they do; their next request finds that there is no server for it.
        if !world.lot.is_parked(key) {
            continue;
        }
        // New connections go by the new configuration; this one ends when its streams have (nginx: its worker does).
        if let Some(Owner::H2(h2)) = world.lot.owner(key) {
            h2.begin_quit();
            continue;
        }
        let was = old.listener_of(&c).map(|l| (l.proxy_protocol, l.ssl));
        let is = new.as_ref().and_then(|new| new.listener_of(&c)).map(|l| (l.proxy_protocol, l.ssl));
        // What its first bytes mean would have changed in the middle.
        if is.is_none() || is != was {
            world.close(key);
        }
    }
}

/// QUIT: no new connections; idle ones are closed, the others after their response.
pub(crate) fn begin_quit(world: &Rc<World>) {
    world.quitting.set(true);
    if let Some(files) = world.files.take() {
        world.lot.remove(files);
        http_engine::files::enable(0);
        http_engine::files::keep_contents(false);
    }
    for key in std::mem::take(&mut *world.doors.borrow_mut()) {
        world.lot.remove(key);
    }
    world.streams.sessions.begin_quit();
    for key in world.lot.keys() {
        let Some(c) = world.lot.owner(key).and_then(|owner| owner.connection()) else { continue };
        if !world.lot.is_parked(key) {
            continue;
        }
        if let Some(Owner::H2(h2)) = world.lot.owner(key) {
            h2.begin_quit();
            continue;
        }
        // One that has not asked for anything yet may, once; and so may one that is about to.
        if c.requests.get() == 0 || c.begun.is_some() {
            continue;
        }
        match world.default_conf(&c).map_or(0, |core| core.conf.keepalive_min_timeout.0) {
            0 => world.close(key),
            min => world.lot.set_deadline(key, clock::now().plus_millis(min)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http_engine::{Begun, Connection};
    use std::io::Read;
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixStream;

    fn client(world: &World) -> (Key, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let connection = Connection {
            number: World::next_number(),
            peer: None,
            local: Rc::new(Address::Unix("test".into())),
            listener: ListenerRef::new(Rc::new(Address::Unix("test".into()))),
            requests: Cell::new(0),
            nodelay: Cell::new(false),
            started: clock::now(),
            proxy: None,
            fd: ours.as_raw_fd(),
            tls: None,
            begun: Begun::default(),
        };
        let key = world.lot.add(ours.into(), Owner::Client(Rc::new(connection))).expect("added");
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
        let world = Rc::new(World::new(serving()).expect("a world"));
        let bound = |name: &str, fd: OwnedFd| Bound {
            spec: net::listen::ListenSpec::new(Address::Unix(name.into())),
            fd,
            shared: false,
        };
        let (good, _other_end) = UnixStream::pair().expect("pair");
        reload(&world, serving(), vec![bound("broken", refused()), bound("good", good.into())], &[]);
        let addresses: Vec<Address> = world
            .doors
            .borrow()
            .iter()
            .filter_map(|key| match world.lot.owner(*key) {
                Some(Owner::Listener(door)) => Some((**door.listener.address()).clone()),
                _ => None,
            })
            .collect();
        assert_eq!(addresses, [Address::Unix("good".into())], "the other one is listened to");
        assert!(listen_for_files(&world, refused()).is_err());
        assert_eq!(world.files.get(), None);
        assert_eq!(world.lot.owned(), 1, "what was refused is closed");
    }

    #[test]
    fn a_panic_costs_one_connection() {
        let world = Rc::new(World::new(serving()).expect("a world"));
        let ((broken, mut its_peer), (other, _peer)) = (client(&world), client(&world));
        guarded(&world, broken, |world, _| {
            let _held = world.out_buf.borrow_mut();
            panic!("a test's panic");
        });
        assert_eq!(its_peer.read(&mut [0; 1]).expect("read"), 0, "its connection is closed");
        assert!(world.lot.owner(other).is_some(), "the other one is not");
        assert!(world.out_buf.try_borrow_mut().is_ok(), "what it held is free again");
    }
}
