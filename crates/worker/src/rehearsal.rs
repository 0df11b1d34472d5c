//! Runs a made-up request through the engine for `tidegate explain URL`, without passing on, counting or changing
//! anything (`http_engine::trace`).

use crate::head_in::{self, HeadState};
use http_engine::trace::Trace;
use http_engine::{ClientConnection, HttpPlan, ListenerRef, PartialHead, Request, ResponseBody, engine};
use net::Address;
use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use wire_h1::{HeadLimits, HeadParser};

/// The client of a rehearsed request.
pub struct RehearsalClient {
    /// Index of the listener in the plan.
    pub listener: usize,
    /// Local address; `None`: the listener's.
    pub local: Option<SocketAddr>,
    /// The client's address; `None`: a UNIX-domain socket.
    pub peer: Option<SocketAddr>,
    /// Name in the ClientHello; `None`: cleartext.
    pub tls: Option<String>,
}

/// Runs a request with this head; the request then has trace, location and response head. `None`: incomplete head, or
/// no such listener, or not done within `patience`.
pub fn rehearse_request(
    plan: &Arc<HttpPlan>,
    client: &RehearsalClient,
    bytes: &[u8],
    patience: Option<Duration>,
) -> Option<(Box<Request>, Option<ResponseBody>)> {
    let work = rehearse(plan.clone(), client, bytes);
    let done = match patience {
        Some(patience) => {
            runtime::run_future(async { runtime::time::with_timeout(patience, work).await.ok().flatten() })
        }
        None => runtime::run_future(work),
    };
    done.ok().flatten()
}

async fn rehearse(
    plan: Arc<HttpPlan>,
    client: &RehearsalClient,
    bytes: &[u8],
) -> Option<(Box<Request>, Option<ResponseBody>)> {
    base::clock::update();
    let address = Rc::new(plan.listeners.get(client.listener)?.spec.address.clone());
    let quic = plan.listeners.get(client.listener).is_some_and(|listener| listener.quic);
    let limits = plan.listeners.get(client.listener).and_then(|listener| plan.servers.get(listener.default_server));
    let limits = limits.map_or_else(HeadLimits::default, |server| server.limits);
    let connection = |tls: Option<Arc<tls::Facts>>| {
        Rc::new(ClientConnection {
            number: 1,
            peer: client.peer,
            local: client.local.map_or_else(|| address.clone(), |local| Rc::new(Address::Ip(local))),
            listener: if quic { ListenerRef::datagrams(address.clone()) } else { ListenerRef::new(address.clone()) },
            requests: Cell::new(0),
            nodelay: Cell::new(true),
            pipelining: http_engine::PipelineState::default(),
            started: base::clock::now(),
            proxy: None,
            socket: None,
            tls,
            begun: PartialHead::default(),
        })
    };
    let request = |connection: &Rc<ClientConnection>| {
        let mut r = Box::<Request>::default();
        r.begin(Rc::new(plan.clone()), connection.clone(), base::clock::now());
        r.set_trace(Some(Box::new(Trace::rehearsal())));
        r
    };
    let mut facts = None;
    if let Some(name) = &client.tls {
        // The handshake follows the finally selected server.
        let plain = connection(None);
        let rules = match head_in::read_head(&mut HeadParser::default(), &limits, bytes, request(&plain), &plain).0 {
            HeadState::Request(r, _) | HeadState::Refused(r, _) => {
                r.srv().tls.as_ref().and_then(|tls| Some(tls.rules.as_ref()?.asks))
            }
            HeadState::Partial => None,
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
    let outcome = match head_in::read_head(&mut HeadParser::default(), &limits, bytes, r, &connection).0 {
        HeadState::Partial => return None,
        HeadState::Request(mut r, _) => {
            if quic {
                r.target.set_version(http_types::Version::Http30);
            }
            engine::start_phases(r)
        }
        HeadState::Refused(r, status) => engine::fail_request(r, status),
    };
    Some(engine::finish_request(outcome).await)
}
