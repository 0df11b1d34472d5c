//! Counts requests: for the process, and for zones of servers and locations (`status_zone`). Whatever becomes of a request that has
//! begun, it is counted as ended once; and one that a panic has cost has its line in the logs like any other.

use crate::Request;
use crate::request::RequestBody;
use metrics::{Lease, Zone, location_zone, process, server_zone};
use std::cell::RefCell;

/// Kept with a request while its server counts it as being handled.
struct Processing {
    _lease: Lease,
}

/// The zone of a server's own level, on its way to the plan; kept in `Location::extensions`.
pub struct ServerZone(pub Zone<server_zone::Of>);

/// A request has come, whole or refused; its server is known.
#[inline]
pub fn begun(r: &mut Request) {
    process::HTTP_REQUESTS.up_at(r.version as usize);
    (r.owes_count, r.owes_line) = (true, true);
    if r.plan.as_ref().is_some_and(|plan| plan.servers.get(r.server).is_some_and(|server| server.zone.is_some())) {
        in_server(r);
    }
}

#[cold]
fn in_server(r: &mut Request) {
    let plan = r.plan_rc();
    let Some(zone) = &plan.srv(r.server).zone else { return };
    zone.up(server_zone::REQUESTS);
    r.keep(Processing { _lease: zone.lease(server_zone::PROCESSING) });
}

/// It is over, whatever became of it.
#[inline]
pub fn ended(r: &mut Request) {
    r.owes_count = false;
    match r.bytes_sent {
        0 => process::HTTP_DISCARDED.up(),
        _ => process::HTTP_RESPONSES.up_at(metrics::class(r.out.status)),
    }
    process::HTTP_RECEIVED.add(r.length);
    process::HTTP_SENT.add(r.bytes_sent);
    let Some(plan) = &r.plan else { return };
    let server = plan.servers.get(r.server).and_then(|server| server.zone.as_ref());
    let location = plan.locations.get(r.location).and_then(|location| location.zone.as_ref());
    if server.is_some() || location.is_some() {
        in_zones(r, server, location);
    }
}

/// Its lines are written now, by the caller.
#[inline]
pub fn logged(r: &mut Request) {
    r.owes_line = false;
}

/// Nobody will answer it any more: it ends here, if it has not ended already.
#[inline]
pub(crate) fn given_up(r: &mut Request) {
    if r.owes_count {
        ended(r);
    }
    r.owes_line = false;
}

thread_local! {
    /// Requests that panics have cost, and that have no line yet. Boxed, because they travel as boxes.
    #[allow(clippy::vec_box)]
    static LOST: RefCell<Vec<Box<Request>>> = const { RefCell::new(Vec::new()) };
}

/// Panics of this thread have cost requests that have no line yet.
#[inline]
pub fn has_lost() -> bool {
    LOST.with(|lost| !lost.borrow().is_empty())
}

/// The requests that panics of this thread have cost: counted, and to be logged by the caller.
#[cold]
pub fn take_lost() -> Vec<Box<Request>> {
    LOST.take()
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        if self.owes_count || self.owes_line {
            lost(self);
        }
    }
}

/// It is dropped before its end: by a panic, or with its thread.
#[cold]
fn lost(r: &mut Request) {
    if r.bytes_sent == 0 && std::thread::panicking() {
        (r.out.status, r.error_status) = (500, 0);
    }
    if r.owes_count {
        ended(r);
    }
    if !std::mem::take(&mut r.owes_line) || !std::thread::panicking() {
        return;
    }
    // Its lines are not written from here: what they say may be what has panicked.
    let mut r = Box::new(std::mem::take(r));
    (r.body, r.watch, r.tunnel) = (RequestBody::None, None, None);
    let _ = LOST.try_with(|lost| lost.borrow_mut().push(r));
}

#[cold]
fn in_zones(r: &Request, server: Option<&Zone<server_zone::Of>>, location: Option<&Zone<location_zone::Of>>) {
    let class = metrics::class(r.out.status);
    if let Some(zone) = server {
        match r.bytes_sent {
            0 => zone.up(server_zone::DISCARDED),
            _ => zone.up_at(server_zone::RESPONSES, class),
        }
        zone.add(server_zone::RECEIVED, r.length);
        zone.add(server_zone::SENT, r.bytes_sent);
    }
    if let Some(zone) = location {
        zone.up(location_zone::REQUESTS);
        match r.bytes_sent {
            0 => zone.up(location_zone::DISCARDED),
            _ => zone.up_at(location_zone::RESPONSES, class),
        }
        zone.add(location_zone::RECEIVED, r.length);
        zone.add(location_zone::SENT, r.bytes_sent);
    }
}
