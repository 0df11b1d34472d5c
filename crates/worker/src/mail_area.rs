//! Drivers of the mail area: accepted connections, and those passed from the stream area; sessions are in
//! `mail-features`.

use crate::areas::MailPlanRef;
use crate::intake;
use crate::worker::Worker;
use http_engine::ListenerRef;
use mail_features::sessions::{AcceptedSession, PassedSession};
use metrics::process;
use net::Address;
use net::socket;
use std::rc::Rc;

/// Takes a connection from the stream area; `takes` selects the listener. Returns it if there is none.
pub fn pass_connection(
    worker: &Worker,
    passed: stream_features::sessions::PassedClient,
    to: &Address,
    takes: impl Fn(&Address) -> bool,
) -> Result<(), stream_features::sessions::PassedClient> {
    let plan = worker.areas.mail.plan();
    let place = plan.as_ref().and_then(|plan| plan.listeners.iter().position(|l| takes(&l.spec.address)));
    let (Some(plan), Some(listener)) = (plan, place) else { return Err(passed) };
    let stream_features::sessions::PassedClient { stream, peer, proxy, .. } = passed;
    let (local, number) = (Rc::new(to.clone()), Worker::next_number());
    worker.areas.mail.sessions.resume(&plan, PassedSession { stream, peer, proxy, local, listener, number });
    Ok(())
}
/// Begins the session of an accepted connection.
pub fn begin_mail(
    worker: &Worker,
    accepted: socket::AcceptedSocket,
    listen_socket: &ListenerRef,
    plan: &MailPlanRef,
    listener: usize,
) {
    let local = intake::local_of(&accepted, listen_socket.address());
    // The address itself may have a listener that shares the wildcard's socket.
    let listener = plan.place(&local).unwrap_or(listener);
    process::CONNECTIONS_HANDLED.up_at(metrics::Area::Mail as usize);
    let accepted =
        AcceptedSession { fd: accepted.fd, peer: accepted.peer, local, listener, number: Worker::next_number() };
    worker.areas.mail.sessions.begin(plan, accepted);
}
