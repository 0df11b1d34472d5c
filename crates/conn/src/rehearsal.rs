//! A request that nobody sent, run by the engine as one that came over a connection: what `tidegate explain URL` shows. Nothing
//! is passed on, counted or changed (`http_engine::trace`).

use crate::head_in::{self, Head};
use http_engine::trace::Trace;
use http_engine::{Begun, Body, Connection, HttpPlan, ListenerRef, Request, engine};
use net::listen::Address;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use wire_h1::{HeadLimits, HeadParser};

/// Who asks, and where.
pub struct Client {
    /// Index of the listener in the plan.
    pub listener: usize,
    /// The address that was connected to; that of the listener when `None`.
    pub local: Option<SocketAddr>,
    pub peer: Option<SocketAddr>,
    /// The connection has TLS; the name that was sent in its handshake.
    pub tls: Option<String>,
}

/// Runs a request whose head is `bytes`. What came of it stands in the request: its trace, its place, and, with a body, the head
/// of the response. `None`: the head is not whole, or the plan has no such listener.
pub fn run(plan: &Arc<HttpPlan>, client: &Client, bytes: &[u8]) -> Option<(Box<Request>, Option<Body>)> {
    runtime::run(rehearse(plan.clone(), client, bytes)).ok().flatten()
}

async fn rehearse(plan: Arc<HttpPlan>, client: &Client, bytes: &[u8]) -> Option<(Box<Request>, Option<Body>)> {
    base::clock::update();
    let address = Rc::new(plan.listeners.get(client.listener)?.spec.address.clone());
    let limits = plan.listeners.get(client.listener).and_then(|listener| plan.servers.get(listener.default_server));
    let limits = limits.map_or_else(HeadLimits::default, |server| server.limits);
    let connection = |tls: Option<Arc<tls::Facts>>| {
        Rc::new(Connection {
            number: 1,
            peer: client.peer,
            local: client.local.map_or_else(|| address.clone(), |local| Rc::new(Address::Ip(local))),
            listener: ListenerRef::new(address.clone()),
            requests: Cell::new(0),
            nodelay: Cell::new(true),
            started: base::clock::now(),
            proxy: None,
            socket: None,
            tls,
            begun: Begun::default(),
        })
    };
    let request = |connection: &Rc<Connection>| {
        let mut r = Box::<Request>::default();
        r.plan = Some(Rc::new(plan.clone()));
        r.connection = Some(connection.clone());
        r.started = base::clock::now();
        r.trace = Some(Box::new(Trace::rehearsal()));
        r
    };
    let mut facts = None;
    if let Some(name) = &client.tls {
        // The handshake went as the server asks that is chosen in the end.
        let plain = connection(None);
        let rules = match head_in::read(&mut HeadParser::default(), &limits, bytes, request(&plain), &plain).0 {
            Head::Request(r, _) | Head::Refused(r, _) => {
                r.srv().tls.as_ref().and_then(|tls| Some(tls.rules.as_ref()?.asks))
            }
            Head::Partial => None,
        };
        facts = Some(Arc::new(tls::Facts {
            protocol: "TLSv1.3",
            cipher: "TLS_AES_256_GCM_SHA384",
            server_name: Some(name.as_str().into()),
            rules: rules.unwrap_or_default(),
            ..tls::Facts::default()
        }));
    }
    let connection = connection(facts);
    let r = request(&connection);
    let outcome = match head_in::read(&mut HeadParser::default(), &limits, bytes, r, &connection).0 {
        Head::Partial => return None,
        Head::Request(r, _) => engine::start(r),
        Head::Refused(r, status) => engine::fail(r, status),
    };
    Some(engine::finish(outcome).await)
}
