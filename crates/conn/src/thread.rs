//! A worker thread: a tokio current-thread runtime, its listeners, its parking lot.

use crate::inline;
use crate::task::{self, Start};
use crate::world::{Door, Owner, World};
use base::clock;
use http_engine::{Connection, HttpPlan, counters};
use net::listen::{Address, ListenSpec};
use net::lot::Key;
use net::socket;
use observe::{ErrorLog, Level};
use std::cell::Cell;
use std::os::fd::{AsRawFd, OwnedFd};
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

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
    pub error_log: Arc<ErrorLog>,
    /// `worker_connections` of this thread.
    pub connections_max: usize,
    pub multi_accept: bool,
    pub timer_resolution_ms: u64,
    /// `worker_shutdown_timeout`: how long after a reload the connections that were there before it may stay; 0 lets them.
    pub shutdown_timeout_ms: u64,
}

/// What the process tells a thread.
#[derive(Debug)]
pub enum Command {
    /// Serve this from now on. `listeners` are all sockets of the new configuration that this thread does not have yet;
    /// sockets whose address is not in `keep` are closed.
    Serve { serving: Serving, listeners: Vec<Bound>, keep: Vec<Address> },
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

/// Connections accepted at one go; `multi_accept` lifts it.
const ACCEPTS_MAX: usize = 32;
/// How long a listener rests when no descriptors are left (nginx: `accept_mutex_delay`).
const ACCEPT_REST_MS: u64 = 500;
/// How many idle connections are closed to make room for new ones (nginx: `ngx_drain_connections`).
const DRAINED_MAX: usize = 32;

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
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => {
            init.serving.error_log.log(Level::Alert, 0, format_args!("the event loop cannot start: {e}"));
            return;
        }
    };
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, async move {
        let log = init.serving.error_log.clone();
        if let Err(e) = serve(init).await {
            log.log(Level::Alert, 0, format_args!("the event loop failed: {e}"));
        }
    });
}

async fn serve(mut init: ThreadInit) -> std::io::Result<()> {
    clock::update();
    let world = Rc::new(World::new(init.serving)?);
    net::outbound::watch_with(&world.lot);
    watch_files(&world)?;
    for bound in init.listeners {
        open(&world, bound)?;
    }
    let poll = net::lot::watch(&*world.lot)?;
    let mut ready = Vec::with_capacity(net::lot::EVENTS_MAX);
    let mut due = Vec::new();
    let mut stop_at = None;
    // Armed for `armed`, which may be earlier than needed: deadlines mostly move away.
    let mut sleep = std::pin::pin!(tokio::time::sleep(Duration::ZERO));
    let mut armed: Option<clock::Instant> = None;
    loop {
        // Whatever was asked for is done first; then the thread sleeps until something happens.
        let dues = [world.lot.next_due(), stop_at, world.paused_until.get(), world.next_cutoff()];
        if let Some(at) = dues.into_iter().flatten().min()
            && armed.is_none_or(|armed| at < armed)
        {
            armed = Some(at);
            let at = at.max(clock::now().plus_millis(1));
            sleep.as_mut().reset(tokio::time::Instant::from_std(clock::as_std(at)));
        }
        tokio::select! {
            biased;
            guard = poll.readable() => {
                let mut guard = guard?;
                let more = world.lot.turn(&mut ready)?;
                // Not before: what has happened must not have happened later than now.
                clock::update();
                // Before any request is answered: what has changed must not be answered as it was.
                if let Some(files) = world.files.get()
                    && let Some(at) = ready.iter().position(|key| *key == files)
                {
                    ready.swap(0, at);
                }
                for key in ready.drain(..) {
                    guarded(&world, key, act);
                }
                if more || world.lot.has_pending() {
                    tokio::task::yield_now().await;
                } else {
                    guard.clear_ready();
                }
            }
            command = init.commands.recv() => match command {
                Some(Command::Serve { serving, listeners, keep }) => reload(&world, serving, listeners, &keep)?,
                Some(Command::Quit { timeout_ms }) => {
                    clock::update();
                    begin_quit(&world);
                    if timeout_ms > 0 {
                        stop_at = Some(clock::now().plus_millis(timeout_ms));
                    }
                }
                Some(Command::Flush(done)) => {
                    if let Some(plan) = world.plan.borrow().as_ref() {
                        http_engine::flush_logs(plan);
                    }
                    drop(done);
                }
                Some(Command::Terminate) | None => return Ok(()),
            },
            () = sleep.as_mut(), if armed.is_some() => {
                armed = None;
                clock::update();
                let now = clock::now();
                if stop_at.is_some_and(|at| at <= now) {
                    return Ok(());
                }
                if world.paused_until.get().is_some_and(|at| at <= now) {
                    world.paused_until.set(None);
                    resume_accepting(&world);
                }
            }
            () = std::future::poll_fn(|cx| world.poll_pending(cx)) => {}
            () = world.idle.notified(), if world.quitting.get() => {}
        }
        let now = clock::now();
        if world.lot.has_pending() {
            world.lot.turn(&mut ready)?;
            for key in ready.drain(..) {
                guarded(&world, key, act);
            }
        }
        world.cut_off(now);
        if world.lot.next_due().is_some_and(|at| at <= now) {
            world.lot.due(now, &mut due);
            for key in due.drain(..) {
                if let Some(Owner::Client(_)) = world.lot.owner(key) {
                    world.close(key);
                }
            }
        }
        if world.quitting.get() && world.tasks.get() == 0 && world.lot.is_empty() {
            if let Some(plan) = world.plan.borrow().as_ref() {
                http_engine::flush_logs(plan);
            }
            return Ok(());
        }
    }
}

/// A panic (which the process's hook has logged) costs the connection it came from, not the thread. Tasks are guarded by the
/// runtime in the same way.
fn guarded(world: &Rc<World>, key: Key, act: impl FnOnce(&Rc<World>, Key)) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| act(world, key))).is_err() {
        world.close(key);
    }
}

fn act(world: &Rc<World>, key: Key) {
    if !world.lot.begin(key) {
        return;
    }
    match world.lot.owner(key) {
        Some(Owner::Client(connection)) => inline::readable(world, key, &connection),
        Some(Owner::Listener(door)) => accept(world, key, &door),
        Some(Owner::Files) => http_engine::files::changed(),
        None => {}
    }
}

/// Turns the thread's file cache on, as the plan says, and listens for what changes.
fn watch_files(world: &Rc<World>) -> std::io::Result<()> {
    let (bytes, recheck) = world.plan.borrow().as_ref().map_or((0, 0), |plan| (plan.cache_bytes, plan.cache_recheck));
    http_engine::files::recheck_after(recheck);
    http_engine::files::keep_contents(bytes > 0);
    let watch = http_engine::files::enable(bytes);
    if let Some(old) = world.files.take() {
        world.lot.remove(old);
    }
    if let Some(fd) = watch {
        world.files.set(Some(world.lot.add_listener(fd, Owner::Files, false)?));
    }
    Ok(())
}

fn open(world: &Rc<World>, bound: Bound) -> std::io::Result<()> {
    let listener = listener_index(world, &bound.spec.address).unwrap_or(usize::MAX);
    let door = Rc::new(Door {
        address: bound.spec.address.clone(),
        listener: Cell::new(listener),
        shared: bound.shared,
        paused: Cell::new(false),
    });
    let key = world.lot.add_listener(bound.fd, Owner::Listener(door), bound.shared)?;
    world.doors.borrow_mut().push(key);
    Ok(())
}

fn listener_index(world: &World, address: &Address) -> Option<usize> {
    world.plan.borrow().as_ref()?.listeners.iter().position(|l| l.spec.address == *address)
}

fn accept(world: &Rc<World>, door_key: Key, door: &Door) {
    let Some(fd) = world.lot.raw(door_key) else { return };
    let (limit, multi) = {
        let serving = world.serving.borrow();
        (serving.connections_max, serving.multi_accept)
    };
    let mut count = 0;
    loop {
        if !multi && count == ACCEPTS_MAX {
            // The lot does not tell again of what it has told: whoever still waits is looked after in the next turn.
            world.lot.again(door_key);
            return;
        }
        count += 1;
        let accepted = match socket::accept(fd) {
            Ok(accepted) => accepted,
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => return,
            Err(e) => {
                let code = e.raw_os_error().unwrap_or(0);
                let out_of_descriptors = code == libc::EMFILE || code == libc::ENFILE;
                let level = match code {
                    libc::ECONNABORTED => Level::Error,
                    _ if out_of_descriptors => Level::Crit,
                    _ => Level::Alert,
                };
                world.log(level, 0, format_args!("accept4() failed {}", observe::os(&e)));
                if out_of_descriptors {
                    make_room(world);
                    rest(world, door_key, door);
                    return;
                }
                continue;
            }
        };
        counters::own(|c| counters::up(&c.accepted));
        // Connections to servers do not count: closing idle clients makes no room among them.
        if world.lot.owned() >= limit && !make_room(world) {
            world.log(Level::Alert, 0, format_args!("{limit} worker_connections are not enough"));
            rest(world, door_key, door);
            return;
        }
        take_in(world, accepted, door);
    }
}

fn take_in(world: &Rc<World>, accepted: socket::Accepted, door: &Door) {
    let plan = world.plan.borrow().clone();
    let Some(listener) = plan.as_ref().and_then(|p| p.listeners.get(door.listener.get())) else { return };
    let raw = accepted.fd.as_raw_fd();
    // A listener on the wildcard address: which address the client chose is asked for once.
    let local = match &door.address {
        Address::Ip(ip) if ip.ip().is_unspecified() => {
            socket::local_address(&accepted.fd).map_or(door.address.clone(), Address::Ip)
        }
        address => address.clone(),
    };
    let connection = Rc::new(Connection {
        number: World::next_number(),
        peer: accepted.peer,
        local,
        listener: Cell::new(door.listener.get()),
        requests: Cell::new(0),
        nodelay: Cell::new(false),
        started: clock::now(),
        proxy: None,
        fd: raw,
        tls: false,
    });
    let plan = plan.as_ref().map(|p| &p.locations[p.servers[listener.default_server].location]);
    let timeout = plan.map_or(60_000, |l| l.core.conf.client_header_timeout.0);
    let key = world.lot.add_unwatched(accepted.fd, Owner::Client(connection.clone()));
    counters::own(|c| {
        counters::up(&c.handled);
        counters::up(&c.active);
    });
    world.lot.set_deadline(key, clock::now().plus_millis(timeout));
    // The request mostly follows the handshake at once: a connection that is answered and closed here costs epoll nothing.
    inline::readable(world, key, &connection);
    if let Err(e) = world.lot.watch_now(key) {
        counters::own(|c| counters::down(&c.active));
        world.log(Level::Alert, 0, format_args!("epoll_ctl() failed {}", observe::os(&e)));
    }
}

/// Closes idle connections, those nearest to their end first.
fn make_room(world: &Rc<World>) -> bool {
    let mut closed = 0;
    while closed < DRAINED_MAX {
        let idle = world.lot.nearest_parked(|owner| matches!(owner, Owner::Client(c) if c.requests.get() > 0));
        let Some(key) = idle else { break };
        world.close(key);
        closed += 1;
    }
    if closed > 0 {
        let limit = world.serving.borrow().connections_max;
        world.log(Level::Warn, 0, format_args!("{limit} worker_connections are not enough, reusing connections"));
    }
    closed > 0
}

fn rest(world: &World, key: Key, door: &Door) {
    if !door.paused.replace(true) {
        let _ = world.lot.listen(key, false, door.shared);
        world.paused_until.set(Some(clock::now().plus_millis(ACCEPT_REST_MS)));
    }
}

fn resume_accepting(world: &World) {
    for key in world.doors.borrow().iter() {
        if let Some(Owner::Listener(door)) = world.lot.owner(*key)
            && door.paused.replace(false)
            && let Err(e) = world.lot.listen(*key, true, door.shared)
        {
            world.log(Level::Alert, 0, format_args!("epoll_ctl() failed {}", observe::os(&e)));
        }
    }
}

/// Swaps the plan. Connections stay; they learn their listener's new place by its address.
fn reload(world: &Rc<World>, serving: Serving, listeners: Vec<Bound>, keep: &[Address]) -> std::io::Result<()> {
    let old = world.plan.borrow().clone();
    world.begin_cutoff();
    *world.plan.borrow_mut() = serving.http.clone().map(Rc::new);
    *world.serving.borrow_mut() = serving;
    if let Some(old) = &old {
        http_engine::flush_logs(old);
    }
    watch_files(world)?;
    let doors = std::mem::take(&mut *world.doors.borrow_mut());
    for key in doors {
        let Some(Owner::Listener(door)) = world.lot.owner(key) else { continue };
        if keep.contains(&door.address) {
            door.listener.set(listener_index(world, &door.address).unwrap_or(usize::MAX));
            world.doors.borrow_mut().push(key);
        } else {
            world.lot.remove(key);
        }
    }
    for bound in listeners {
        open(world, bound)?;
    }
    let Some(old) = old else { return Ok(()) };
    for key in world.lot.keys() {
        let Some(Owner::Client(c)) = world.lot.owner(key) else { continue };
        let place = old.listeners.get(c.listener.get()).and_then(|l| listener_index(world, &l.spec.address));
        // Tasks hold the same connection: their next request finds its listener at its new place.
        c.listener.set(place.unwrap_or(usize::MAX));
        if place.is_none() && world.lot.is_parked(key) {
            world.close(key);
        }
    }
    Ok(())
}

/// QUIT: no new connections; idle ones are closed, the others after their response.
fn begin_quit(world: &Rc<World>) {
    world.quitting.set(true);
    if let Some(files) = world.files.take() {
        world.lot.remove(files);
        http_engine::files::enable(0);
        http_engine::files::keep_contents(false);
    }
    for key in std::mem::take(&mut *world.doors.borrow_mut()) {
        world.lot.remove(key);
    }
    let plan = world.plan.borrow().clone();
    for key in world.lot.keys() {
        let Some(Owner::Client(c)) = world.lot.owner(key) else { continue };
        if !world.lot.is_parked(key) {
            continue;
        }
        let min = plan.as_ref().and_then(|plan| {
            let server = plan.listeners.get(c.listener.get())?.default_server;
            Some(plan.locations[plan.servers[server].location].core.conf.keepalive_min_timeout.0)
        });
        if c.requests.get() > 0 && min.unwrap_or(0) == 0 {
            world.close(key);
        } else if c.requests.get() > 0 {
            world.lot.set_deadline(key, clock::now().plus_millis(min.unwrap_or(0)));
        } else {
            // It has not asked for anything yet: it may, once.
            task::spawn(world, key, &c, Start::Bytes(Vec::new()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixStream;

    fn client(world: &World) -> (Key, UnixStream) {
        let (ours, theirs) = UnixStream::pair().expect("pair");
        let connection = Connection {
            number: World::next_number(),
            peer: None,
            local: Address::Unix("test".into()),
            listener: Cell::new(0),
            requests: Cell::new(0),
            nodelay: Cell::new(false),
            started: clock::now(),
            proxy: None,
            fd: ours.as_raw_fd(),
            tls: false,
        };
        let key = world.lot.add(ours.into(), Owner::Client(Rc::new(connection))).expect("added");
        (key, theirs)
    }

    #[test]
    fn a_panic_costs_one_connection() {
        let serving = Serving {
            http: None,
            error_log: Arc::new(ErrorLog::new(Vec::new())),
            connections_max: 8,
            multi_accept: false,
            timer_resolution_ms: 0,
            shutdown_timeout_ms: 0,
        };
        let world = Rc::new(World::new(serving).expect("a world"));
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
