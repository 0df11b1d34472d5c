//! A request that waits for a server with its connection's entry: no task, no future. The entry stays idle in the poller and
//! its registration is [`Registration::Waiting`]; events of the server's socket and of the client's poll the exchange.

use crate::inline::{self, Batch};
use crate::link::Link;
use crate::secure::Secure;
use crate::task::{self, Presence, Start};
use crate::worker::{Registration, Worker};
use http_engine::engine::{self, Outcome};
use http_engine::{Connection, Exchange, Request};
use metrics::process;
use net::poller::Key;
use runtime::wake::KeyWaker;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Records of finished waits that a thread keeps for the next ones.
const SPARE_MAX: usize = 64;

/// A connection while its request waits; recycled.
pub struct Waiting {
    connection: RefCell<Option<Rc<Connection>>>,
    secure: RefCell<Option<Rc<Secure>>>,
    presence: RefCell<Option<Rc<Presence>>>,
    /// `None` while it is polled, and when it is over.
    work: RefCell<Option<Work>>,
    key: Arc<KeyWaker>,
    waker: Waker,
}

struct Work {
    request: Box<Request>,
    exchange: Box<dyn Exchange>,
    /// The client has gone, and the exchange goes on without it.
    alone: bool,
    _counted: Counted,
}

/// The wait in the worker's count of what it must finish, and among the writing connections.
struct Counted(Rc<Worker>);

impl Counted {
    fn begin(worker: &Rc<Worker>) -> Counted {
        worker.tasks.set(worker.tasks.get() + 1);
        process::CONNECTIONS_WRITING.up();
        Counted(worker.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.tasks.set(self.0.tasks.get() - 1);
        process::CONNECTIONS_WRITING.down();
    }
}

impl Waiting {
    pub fn new(key: Key) -> Rc<Waiting> {
        let key = KeyWaker::new(key);
        Rc::new(Waiting {
            connection: RefCell::default(),
            secure: RefCell::default(),
            presence: RefCell::default(),
            work: RefCell::default(),
            waker: key.waker(),
            key,
        })
    }
    pub fn connection(&self) -> Option<Rc<Connection>> {
        self.connection.borrow().clone()
    }
    pub fn secure(&self) -> Option<Rc<Secure>> {
        self.secure.borrow().clone()
    }
    pub fn waker(&self) -> &Waker {
        &self.waker
    }
    /// Names the entry that is woken from now on.
    pub fn set_key(&self, key: Key) {
        self.key.set(key);
    }
}

/// The worker's spare records.
#[derive(Default)]
pub struct SpareWaits(RefCell<Vec<Rc<Waiting>>>);

impl SpareWaits {
    pub fn take(&self, key: Key) -> Rc<Waiting> {
        match self.0.borrow_mut().pop() {
            Some(waiting) => {
                waiting.set_key(key);
                waiting
            }
            None => Waiting::new(key),
        }
    }
    pub fn put(&self, waiting: Rc<Waiting>) {
        let mut spare = self.0.borrow_mut();
        if spare.len() < SPARE_MAX {
            spare.push(waiting);
        }
    }
}

/// The exchange has something to wait for: the entry keeps it.
pub fn begin(batch: &mut Batch<'_>, waiting: Rc<Waiting>, mut request: Box<Request>, exchange: Box<dyn Exchange>) {
    let Link { worker, key, secure } = &batch.link;
    request.counted = true;
    waiting.connection.replace(Some(batch.connection.clone()));
    waiting.secure.replace(secure.clone());
    waiting.presence.replace(batch.presence.take());
    waiting.work.replace(Some(Work { request, exchange, alone: false, _counted: Counted::begin(worker) }));
    worker.poller.set_registration(*key, Registration::Waiting(waiting));
    // A client that has gone meanwhile is an event that has been told already.
    if worker.poller.closing(*key) {
        worker.poller.again(*key);
    }
}

/// Something has happened on one of the two sockets, or a timer of the exchange is due.
pub fn proceed(worker: &Rc<Worker>, key: Key, waiting: &Rc<Waiting>) {
    let Some(mut work) = waiting.work.take() else { return };
    let mut cx = Context::from_waker(&waiting.waker);
    let mut polled = work.exchange.poll(&mut work.request, &mut cx);
    if polled.is_pending() && !work.alone && worker.poller.closing(key) {
        match work.exchange.client_gone(&mut work.request) {
            Some(flow) => polled = Poll::Ready(flow),
            None => work.alone = true,
        }
    }
    let Poll::Ready(flow) = polled else {
        waiting.work.replace(Some(work));
        return;
    };
    let Work { request, exchange, _counted, .. } = work;
    exchange.recycle();
    let (Some(connection), secure) = (waiting.connection.take(), waiting.secure.take()) else { return };
    let registration = match &secure {
        Some(secure) => Registration::Secure(secure.clone()),
        None => Registration::Client(connection.clone()),
    };
    worker.poller.set_registration(key, registration);
    let presence = waiting.presence.take();
    worker.waits.put(waiting.clone());
    let link = Link { worker: worker.clone(), key, secure };
    answer(link, &connection, presence, engine::after(request, flow));
}

/// Sends what has come of the request.
fn answer(link: Link, connection: &Rc<Connection>, presence: Option<Rc<Presence>>, mut outcome: Outcome) {
    let worker = link.worker.clone();
    let key = link.key;
    let mut out = worker.out_buf.borrow_mut();
    out.clear();
    let mut batch = Batch::new(link, connection);
    batch.presence = presence;
    while let Outcome::Exchange(r, exchange) = outcome {
        match inline::poll_in_place(&mut batch, r, exchange) {
            Some(said) => outcome = said,
            None => return,
        }
    }
    if let Outcome::Ready(r, body) = outcome {
        match batch.add(r, body, &mut out) {
            None => return inline::conclude(batch, out, &[], false),
            Some((r, body)) => outcome = Outcome::Ready(r, body),
        }
    }
    drop((batch, out));
    task::spawn(&worker, key, connection, Start::Outcome(outcome, Vec::new()));
}

/// The connection is closed for good while it waits (`worker_shutdown_timeout`): its request ends.
pub fn cut_off(worker: &Worker, waiting: &Waiting) {
    let Some(mut work) = waiting.work.take() else { return };
    let _ = work.exchange.client_gone(&mut work.request);
    work.request.out.status = 499;
    worker.finished(work.request);
}
