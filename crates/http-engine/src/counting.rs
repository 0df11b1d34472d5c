//! Counts requests: for the process, and for zones of servers and locations (`status_zone`).

use crate::Request;
use metrics::{Lease, Zone, location_zone, process, server_zone};

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
pub fn ended(r: &Request) {
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
