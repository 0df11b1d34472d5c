//! Lingering close: shuts the write side down and drains input, so that the client sees the response before a reset
//! (nginx: `ngx_http_set_lingering_close`).

use crate::guard::TaskGuard;
use crate::input::Input;
use crate::link::Link;
use crate::worker::Worker;
use base::clock;
use http_engine::ClientConnection;
use http_engine::core_table::CoreConf;
use http_engine::values::LingeringClose;
use net::poller::Key;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Place among the lingering connections, until dropped.
struct LingeringPlace<'a>(&'a Worker, u64);

impl LingeringPlace<'_> {
    fn new(worker: &Worker, key: Key) -> LingeringPlace<'_> {
        LingeringPlace(worker, worker.admission.begin_lingering(key))
    }
}

impl Drop for LingeringPlace<'_> {
    fn drop(&mut self) {
        self.0.admission.end_lingering(self.1);
    }
}

/// Tells whether the close after the last response lingers. `may_follow`: the client has sent more, or may have.
pub fn is_due(setting: LingeringClose, may_follow: bool) -> bool {
    match setting {
        LingeringClose::Off => false,
        LingeringClose::On => may_follow,
        LingeringClose::Always => true,
    }
}

/// Time limits of a lingering close.
#[derive(Clone, Copy)]
pub struct Limits {
    /// `lingering_time`
    total: Duration,
    /// `lingering_timeout`: time without a byte from the client
    silence: Duration,
}

impl Limits {
    /// Limits of the location whose response was the last.
    pub fn of(conf: &CoreConf) -> Limits {
        Limits { total: conf.lingering_time.duration(), silence: conf.lingering_timeout.duration() }
    }

    /// Limits of the listener's default server, for a connection that ends outside a request.
    pub fn of_server(worker: &Worker, connection: &ClientConnection) -> Limits {
        worker.default_conf(connection).map_or(Limits::default(), |core| Limits::of(&core.conf))
    }
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { total: Duration::from_secs(30), silence: Duration::from_secs(5) }
    }
}

/// Starts a task that drains the connection, and then closes it.
pub fn spawn_linger(worker: &Rc<Worker>, key: Key, limits: Limits) {
    worker.poller.set_busy(key);
    let link = Link::of(worker, key);
    let guard = TaskGuard::new(worker, key);
    runtime::task::spawn_local(Box::pin(async move {
        drain_link(&link, &RefCell::default(), limits).await;
        drop(guard);
    }));
}

/// Drains until the client's end, or a limit.
pub async fn drain_link(link: &Link, input: &RefCell<Input>, limits: Limits) {
    link.shutdown_write();
    let worker = &link.worker;
    let _place = LingeringPlace::new(worker, link.key);
    let deadline = clock::now().plus(limits.total);
    loop {
        input.borrow_mut().clear();
        let until = deadline.min(clock::now().plus(limits.silence));
        match Input::read(input, link, runtime::time::sleep_until(until)).await {
            Ok(n) if n > 0 && clock::now() < deadline && !worker.turn().is_quitting() => {}
            _ => return,
        }
    }
}
