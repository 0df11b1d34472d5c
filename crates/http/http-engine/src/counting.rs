//! Counts requests for the process and zones (`status_zone`). Every begun request ends exactly once; one lost to a
//! panic is still logged.

use crate::Request;
use crate::request::RequestBody;
use crate::trace_id;
use base::clock;
use metrics::{Exemplar, MetricZone, location_zone, process, server_zone};
use std::cell::RefCell;

/// Zone of the metrics of a server (`status_zone`), among the extensions of the server's own location.
pub struct ServerZone(pub MetricZone<server_zone::Of>);

/// Counts a request at its begin; its drop before [`count_ended`] and [`count_logged`] makes it a lost one.
#[inline]
pub fn count_begun(r: &mut Request) {
    process::HTTP_REQUESTS.up_at(r.target.version as usize);
    (r.accounting.owes_count, r.accounting.owes_line) = (true, true);
    if r.scope
        .plan
        .as_ref()
        .is_some_and(|plan| plan.servers.get(r.scope.server).is_some_and(|server| server.zone.is_some()))
    {
        in_server(r);
    }
}

#[cold]
fn in_server(r: &mut Request) {
    let Some(server) = r.scope.plan.as_ref().and_then(|plan| plan.servers.get(r.scope.server)) else { return };
    if let Some(zone) = server.zone.as_ref().map(MetricZone::here) {
        zone.up(server_zone::REQUESTS);
        zone.rise(server_zone::PROCESSING);
        r.accounting.in_server = true;
    }
}

/// Counts the result of a request and its bytes, for the process and for zones. To be called once, when the response
/// was sent or given up.
#[inline]
pub fn count_ended(r: &mut Request) {
    r.accounting.owes_count = false;
    match r.accounting.bytes_sent {
        0 => process::HTTP_DISCARDED.up(),
        _ => process::HTTP_RESPONSES.up_at(metrics::status_class(r.out.status)),
    }
    process::HTTP_RECEIVED.add(received(r));
    process::HTTP_SENT.add(r.accounting.bytes_sent);
    if let Some(count) = &mut r.accounting.cached {
        count.sent = r.accounting.bytes_sent;
    }
    let Some(plan) = &r.scope.plan else { return };
    let server = plan.servers.get(r.scope.server).is_some_and(|server| server.zone.is_some());
    let location = plan.locations.get(r.scope.location).is_some_and(|location| location.zone.is_some());
    if server || location {
        in_zones(r);
    }
}

/// Returns the bytes of the request and, unlike `$request_length`, those of its tunnel.
#[inline]
fn received(r: &Request) -> u64 {
    r.incoming.length + r.accounting.tunnelled.0
}

/// Notes that the request is being logged; to be called before its loggers, so that a panic of theirs does not log it
/// again.
#[inline]
pub fn count_logged(r: &mut Request) {
    r.accounting.owes_line = false;
}

/// Ends a request that gets no log line: counts it if that is still to do.
#[inline]
pub fn given_up(r: &mut Request) {
    if r.accounting.owes_count {
        count_ended(r);
    }
    r.accounting.owes_line = false;
}

thread_local! {
    /// Unlogged requests lost to panics, boxed as they travel.
    #[allow(clippy::vec_box)]
    static LOST: RefCell<Vec<Box<Request>>> = const { RefCell::new(Vec::new()) };
}

/// Tells whether panics of this thread lost requests that are not yet logged.
#[inline]
pub fn has_lost() -> bool {
    LOST.with(|lost| !lost.borrow().is_empty())
}

/// Takes this thread's lost requests, which are still to be logged.
#[cold]
pub fn take_lost() -> Vec<Box<Request>> {
    LOST.take()
}

impl Drop for Request {
    #[inline]
    fn drop(&mut self) {
        if self.accounting.owes_count || self.accounting.owes_line {
            lost(self);
        }
    }
}

/// Keeps a request that is dropped before its end: by a panic, or with its thread.
#[cold]
fn lost(r: &mut Request) {
    if r.accounting.bytes_sent == 0 && std::thread::panicking() {
        (r.out.status, r.progress.error_status) = (500, 0);
    }
    if r.accounting.owes_count {
        count_ended(r);
    }
    if !std::mem::take(&mut r.accounting.owes_line) || !std::thread::panicking() {
        return;
    }
    // Not logged here: a variable of the log line may have caused the panic.
    let mut r = Box::new(std::mem::take(r));
    (r.incoming.body, r.incoming.watch, r.reply.tunnel) = (RequestBody::None, None, None);
    let _ = LOST.try_with(|lost| lost.borrow_mut().push(r));
}

#[cold]
fn in_zones(r: &mut Request) {
    let was_processing = std::mem::take(&mut r.accounting.in_server);
    if count_in_zones(r, was_processing) {
        offer_exemplars(r);
    }
}

/// Tells whether an exemplar of the request's time is welcome.
fn count_in_zones(r: &Request, was_processing: bool) -> bool {
    let (plan, status, sent) = (r.plan(), r.out.status, r.accounting.bytes_sent);
    let class = metrics::status_class(status);
    let micros = clock::now().micros_since(r.accounting.started);
    let bucket = metrics::bucket_index(micros);
    // Exemplars name requests that can be found elsewhere.
    let now_ms = trace_id::may_be_known(r).then(clock::unix_millis);
    let mut is_welcome = false;
    if let Some(zone) = plan.servers.get(r.scope.server).and_then(|server| Some(server.zone.as_ref()?.here())) {
        if was_processing {
            zone.down(server_zone::PROCESSING);
        }
        match sent {
            0 => zone.up(server_zone::DISCARDED),
            _ => {
                zone.up_at(server_zone::RESPONSES, class);
                zone.count_code(status);
            }
        }
        zone.add(server_zone::RECEIVED, received(r));
        zone.add(server_zone::SENT, sent);
        zone.note_in(server_zone::TIME, bucket, micros);
        is_welcome |= now_ms.is_some_and(|now_ms| zone.wants_exemplar(server_zone::TIME, bucket, now_ms));
    }
    if let Some(zone) = plan.locations.get(r.scope.location).and_then(|location| Some(location.zone.as_ref()?.here())) {
        zone.up(location_zone::REQUESTS);
        match sent {
            0 => zone.up(location_zone::DISCARDED),
            _ => {
                zone.up_at(location_zone::RESPONSES, class);
                zone.count_code(status);
            }
        }
        zone.add(location_zone::RECEIVED, received(r));
        zone.add(location_zone::SENT, sent);
        zone.note_in(location_zone::TIME, bucket, micros);
        is_welcome |= now_ms.is_some_and(|now_ms| zone.wants_exemplar(location_zone::TIME, bucket, now_ms));
    }
    is_welcome
}

#[cold]
fn offer_exemplars(r: &mut Request) {
    let Some(id) = trace_id::own_trace(r) else { return };
    let plan = r.plan();
    let micros = clock::now().micros_since(r.accounting.started);
    let exemplar = Exemplar { trace_id: id, micros, at_ms: clock::unix_millis() };
    if let Some(server) = plan.servers.get(r.scope.server).and_then(|server| server.zone.as_ref()) {
        server.here().offer(server_zone::TIME, exemplar);
    }
    if let Some(location) = plan.locations.get(r.scope.location).and_then(|location| location.zone.as_ref()) {
        location.here().offer(location_zone::TIME, exemplar);
    }
}
