//! A request that waits for a server in its connection's entry, without a task or future: events of both sockets poll
//! the exchange.

use crate::batch::{self, Batch};
use crate::guard::Writing;
use crate::link::Link;
use crate::presence::Presence;
use crate::secure::Secure;
use crate::task::{self, Start};
use crate::worker::{Carrier, Worker};
use http_engine::engine::{self, Outcome};
use http_engine::{Connection, Exchange, Request};
use net::poller::Key;
use runtime::wake::KeyWaker;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Carrier of a connection whose request waits for a server.
pub struct Waiting {
    connection: RefCell<Option<Rc<Connection>>>,
    secure: RefCell<Option<Rc<Secure>>>,
    presence: RefCell<Option<Rc<Presence>>>,
    /// `None` while polled, and afterwards.
    work: RefCell<Option<Work>>,
    key: Arc<KeyWaker>,
    waker: Waker,
}

struct Work {
    request: Box<Request>,
    exchange: Box<dyn Exchange>,
    /// The client has gone; the exchange continues.
    alone: bool,
    _counted: Counted,
}

/// Counts the wait as unfinished work and as writing.
struct Counted(Rc<Worker>, #[allow(dead_code)] Writing);

impl Counted {
    fn begin(worker: &Rc<Worker>) -> Counted {
        worker.tasks.set(worker.tasks.get() + 1);
        Counted(worker.clone(), Writing::begin())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.tasks.set(self.0.tasks.get() - 1);
    }
}

impl Waiting {
    fn new(key: Key) -> Rc<Waiting> {
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
}

impl Carrier for Waiting {
    fn ready(self: Rc<Self>, worker: &Rc<Worker>, key: Key) {
        proceed(worker, key, &self);
    }
    fn closing(&self, worker: &Worker, key: Key) {
        if let Some(secure) = self.secure.borrow().as_ref() {
            secure.say_goodbye(worker, key);
        }
    }
    fn cut_off(&self, worker: &Worker) {
        let Some(Work { mut request, exchange, .. }) = self.work.take() else { return };
        drop(exchange);
        // Logs 000, as nginx: the server itself has closed the connection.
        request.out.status = 0;
        worker.finished(request);
    }
    fn has_wakeups(&self) -> bool {
        true
    }
    fn has_request(&self) -> bool {
        true
    }
    fn client(self: Rc<Self>) -> Option<Rc<Connection>> {
        self.connection.borrow().clone()
    }
    fn tls(self: Rc<Self>) -> Option<Rc<Secure>> {
        self.secure.borrow().clone()
    }
}

/// Polls an exchange first. `None`: it waits in the entry.
pub fn poll_in_place(batch: &mut Batch<'_>, mut r: Box<Request>, mut exchange: Box<dyn Exchange>) -> Option<Outcome> {
    let Link { worker, key, .. } = &batch.link;
    let waiting = match worker.spares.take::<Waiting>() {
        Some(waiting) => {
            waiting.key.set(*key);
            waiting
        }
        None => Waiting::new(*key),
    };
    let polled = exchange.poll(&mut r, &mut Context::from_waker(&waiting.waker));
    match polled {
        Poll::Ready(flow) => {
            worker.spares.put(waiting);
            Some(engine::after(r, flow))
        }
        Poll::Pending => {
            begin(batch, waiting, r, exchange);
            None
        }
    }
}

fn begin(batch: &mut Batch<'_>, waiting: Rc<Waiting>, mut request: Box<Request>, exchange: Box<dyn Exchange>) {
    let Link { worker, key, secure } = &batch.link;
    request.accounting.counted = true;
    waiting.connection.replace(Some(batch.connection.clone()));
    waiting.secure.replace(secure.clone());
    waiting.presence.replace(batch.presence.take());
    waiting.work.replace(Some(Work { request, exchange, alone: false, _counted: Counted::begin(worker) }));
    worker.poller.set_registration(*key, waiting);
    // An earlier disconnection's event has passed.
    if worker.poller.closing(*key) {
        worker.poller.again(*key);
    }
}

/// Polls after an event of either socket or a timer.
fn proceed(worker: &Rc<Worker>, key: Key, waiting: &Rc<Waiting>) {
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
    let Work { request, _counted, .. } = work;
    let (Some(connection), secure) = (waiting.connection.take(), waiting.secure.take()) else { return };
    let carrier: Rc<dyn Carrier> = match &secure {
        Some(secure) => secure.clone(),
        None => connection.clone(),
    };
    worker.poller.set_registration(key, carrier);
    let presence = waiting.presence.take();
    worker.spares.put(waiting.clone());
    let link = Link { worker: worker.clone(), key, secure };
    answer(link, &connection, presence, engine::after(request, flow));
}

fn answer(link: Link, connection: &Rc<Connection>, presence: Option<Rc<Presence>>, mut outcome: Outcome) {
    let worker = link.worker.clone();
    let key = link.key;
    let mut out = worker.out_buf.borrow_mut();
    out.clear();
    let mut batch = Batch::new(link, connection);
    batch.presence = presence;
    while let Outcome::Exchange(r, exchange) = outcome {
        match poll_in_place(&mut batch, r, exchange) {
            Some(said) => outcome = said,
            None => return,
        }
    }
    if let Outcome::Ready(r, body) = outcome {
        match batch.add(r, body, &mut out) {
            None => return batch::conclude(batch, out, &[], false),
            Some((r, body)) => outcome = Outcome::Ready(r, body),
        }
    }
    drop((batch, out));
    task::spawn(&worker, key, connection, Start::Outcome(outcome, Vec::new()));
}
