//! A request that waits for a server in its connection's entry, without a task or future: events of both sockets poll
//! the exchange.

use crate::batch::{self, Batch};
use crate::guard::WriteGuard;
use crate::link::Link;
use crate::presence::Presence;
use crate::secure::Secure;
use crate::task::{self, Start};
use crate::worker::{Carrier, Worker};
use http_engine::engine::{self, PhaseOutcome};
use http_engine::{ClientConnection, Exchange, Request};
use net::poller::Key;
use runtime::wake::KeyWaker;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Carrier of a connection whose request waits for a server.
pub struct WaitEntry {
    connection: RefCell<Option<Rc<ClientConnection>>>,
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
    _counted: CountedWait,
}

/// Counts the wait as unfinished work and as writing.
struct CountedWait(Rc<Worker>, #[allow(dead_code)] WriteGuard);

impl CountedWait {
    fn begin(worker: &Rc<Worker>) -> CountedWait {
        worker.turn().begin_task();
        CountedWait(worker.clone(), WriteGuard::begin())
    }
}

impl Drop for CountedWait {
    fn drop(&mut self) {
        self.0.turn().end_task();
    }
}

impl WaitEntry {
    fn new(key: Key) -> Rc<WaitEntry> {
        let key = KeyWaker::new(key);
        Rc::new(WaitEntry {
            connection: RefCell::default(),
            secure: RefCell::default(),
            presence: RefCell::default(),
            work: RefCell::default(),
            waker: key.waker(),
            key,
        })
    }
}

impl Carrier for WaitEntry {
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
        request.out.set_status(0);
        worker.finished(request);
    }
    fn has_wakeups(&self) -> bool {
        true
    }
    fn has_request(&self) -> bool {
        true
    }
    fn client(self: Rc<Self>) -> Option<Rc<ClientConnection>> {
        self.connection.borrow().clone()
    }
    fn tls(self: Rc<Self>) -> Option<Rc<Secure>> {
        self.secure.borrow().clone()
    }
}

/// Polls an exchange first. `None`: it waits in the entry.
pub fn poll_in_place(
    batch: &mut Batch<'_>,
    mut r: Box<Request>,
    mut exchange: Box<dyn Exchange>,
) -> Option<PhaseOutcome> {
    let Link { worker, key, .. } = &batch.link;
    let waiting = match worker.pools.spares().take::<WaitEntry>() {
        Some(waiting) => {
            waiting.key.set(*key);
            waiting
        }
        None => WaitEntry::new(*key),
    };
    let polled = exchange.poll(&mut r, &mut Context::from_waker(&waiting.waker));
    match polled {
        Poll::Ready(flow) => {
            worker.pools.spares().put(waiting);
            Some(engine::continue_after(r, flow))
        }
        Poll::Pending => {
            begin(batch, waiting, r, exchange);
            None
        }
    }
}

fn begin(batch: &mut Batch<'_>, waiting: Rc<WaitEntry>, mut request: Box<Request>, exchange: Box<dyn Exchange>) {
    let Link { worker, key, secure } = &batch.link;
    request.accounting.note_counted();
    waiting.connection.replace(Some(batch.connection.clone()));
    waiting.secure.replace(secure.clone());
    waiting.presence.replace(batch.presence.take());
    waiting.work.replace(Some(Work { request, exchange, alone: false, _counted: CountedWait::begin(worker) }));
    worker.poller.set_registration(*key, waiting);
    // An earlier disconnection's event has passed.
    if worker.poller.closing(*key) {
        worker.poller.again(*key);
    }
}

/// Polls after an event of either socket or a timer.
fn proceed(worker: &Rc<Worker>, key: Key, waiting: &Rc<WaitEntry>) {
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
    worker.pools.spares().put(waiting.clone());
    let link = Link { worker: worker.clone(), key, secure };
    answer(link, &connection, presence, engine::continue_after(request, flow));
}

fn answer(link: Link, connection: &Rc<ClientConnection>, presence: Option<Rc<Presence>>, mut outcome: PhaseOutcome) {
    let worker = link.worker.clone();
    let key = link.key;
    let mut out = worker.pools.out_buffer().borrow_mut();
    out.clear();
    let mut batch = Batch::new(link, connection);
    batch.presence = presence;
    while let PhaseOutcome::Exchange(r, exchange) = outcome {
        match poll_in_place(&mut batch, r, exchange) {
            Some(said) => outcome = said,
            None => return,
        }
    }
    if let PhaseOutcome::Ready(r, body) = outcome {
        match batch.add(r, body, &mut out) {
            None => return batch::conclude_batch(batch, out, &[], false),
            Some((r, body)) => outcome = PhaseOutcome::Ready(r, body),
        }
    }
    drop((batch, out));
    task::spawn_task(&worker, key, connection, Start::Outcome(outcome, Vec::new()));
}
