//! Lingering close: shuts the write side down and drains input, so that the client sees the response before a reset
//! (nginx: `ngx_http_set_lingering_close`).

use crate::guard::TaskGuard;
use crate::input::Input;
use crate::link::Link;
use crate::worker::Worker;
use base::clock;
use http_engine::Connection;
use http_engine::values::LingeringClose;
use net::poller::Key;
use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

/// Place among the lingering connections, until dropped.
struct LingeringPlace<'a>(&'a Worker, u64);

impl LingeringPlace<'_> {
    fn new(worker: &Worker, key: Key) -> LingeringPlace<'_> {
        LingeringPlace(worker, worker.lingering.borrow_mut().add(key))
    }
}

impl Drop for LingeringPlace<'_> {
    fn drop(&mut self) {
        self.0.lingering.borrow_mut().remove(self.1);
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

pub fn spawn(worker: &Rc<Worker>, key: Key, connection: &Rc<Connection>) {
    worker.poller.set_busy(key);
    let (link, connection) = (Link::of(worker, key), connection.clone());
    let guard = TaskGuard::new(worker, key);
    runtime::task::spawn_local(Box::pin(async move {
        drain(&link, &connection, &RefCell::default()).await;
        drop(guard);
    }));
}

/// Drains until the client's end, `lingering_timeout` of silence, or `lingering_time` in total.
pub async fn drain(link: &Link, connection: &Connection, input: &RefCell<Input>) {
    link.shutdown_write();
    let worker = &link.worker;
    let _place = LingeringPlace::new(worker, link.key);
    let core = worker.default_conf(connection);
    let (total, each) = core.map_or((Duration::from_secs(30), Duration::from_secs(5)), |core| {
        (core.conf.lingering_time.duration(), core.conf.lingering_timeout.duration())
    });
    let deadline = clock::now().plus(total);
    loop {
        input.borrow_mut().clear();
        let until = deadline.min(clock::now().plus(each));
        match Input::read(input, link, runtime::time::sleep_until(until)).await {
            Ok(n) if n > 0 && clock::now() < deadline && !worker.quitting.get() => {}
            _ => return,
        }
    }
}
