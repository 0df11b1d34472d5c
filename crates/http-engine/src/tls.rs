//! TLS as the http area sees it: which server a handshake is for, and which requests its connection may carry.
//!
//! The handshake itself is the connection's; it asks [`HttpPlan::tls_choice`] once the ClientHello is there, and
//! [`misdirected`] and [`refused`] for every request (nginx: `ngx_http_ssl_servername`, `ngx_http_process_request`).

use crate::path;
use crate::plan::{HttpPlan, Listener};
use crate::request::{Connection, Request};
use observe::Level;
use session_engine::tls::Certified;
use session_engine::upstreams::Resolving;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tls::{Choice, ClientHello, Facts, ServerRules, VerifyClient};

/// Stands for "no server has the name" in [`Facts::server`]; other values are an index plus 1.
const NO_SERVER: u32 = u32::MAX;

/// How a server answers TLS connections.
pub type ServerTls = session_engine::tls::ServerTls<Request>;

/// The name that a client sent in its handshake, when it can be that of a server.
pub fn sent_name(connection: &Connection) -> Option<Vec<u8>> {
    name(connection.tls.as_ref()?.server_name.as_deref())
}

fn name(sent: Option<&str>) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    path::host(sent?.as_bytes(), &mut name)?;
    Some(name)
}

impl Certified for HttpPlan {
    type Session = Request;
    fn servers(&self) -> usize {
        self.servers.len()
    }
    fn tls(&self, server: usize) -> Option<&ServerTls> {
        self.servers.get(server)?.tls.as_deref()
    }
    fn resolving(&self, server: usize) -> Option<Resolving> {
        self.locations.get(self.servers.get(server)?.location)?.ext::<Resolving>().cloned()
    }
}

impl HttpPlan {
    fn rules_of(&self, server: usize) -> Option<(&ServerTls, &Arc<ServerRules>)> {
        let tls = self.servers.get(server)?.tls.as_deref()?;
        Some((tls, tls.rules.as_ref()?))
    }

    /// The server whose settings hold for a connection until a request names another: the one that SNI chose, else the
    /// default of the address (nginx: `ngx_http_connection_t.conf_ctx`). `None`: this plan does not listen there.
    #[inline]
    pub fn initial_server(self: &Arc<Self>, connection: &Connection) -> Option<usize> {
        let listener = self.listener_of(connection)?;
        match &connection.tls {
            Some(facts) if facts.server_name.is_some() && !listener.names.is_empty() => {
                Some(self.server_of_handshake(listener, connection, facts).unwrap_or(listener.default_server))
            }
            _ => Some(listener.default_server),
        }
    }

    /// The server that SNI chose, if a server has the name. Looked up once a connection and plan.
    fn server_of_handshake(self: &Arc<Self>, listener: &Listener, c: &Connection, facts: &Facts) -> Option<usize> {
        let (generation, known) = (u64::from(self.generation), facts.server.load(Ordering::Relaxed));
        let (of_plan, index) = (known >> 32, known as u32);
        if of_plan == generation && index != 0 {
            return (index != NO_SERVER).then_some(index as usize - 1);
        }
        let found = name(facts.server_name.as_deref()).and_then(|name| {
            let mut r = self.request_of_handshake(c.clone());
            listener.names.find(&name, &mut r).ok().flatten()
        });
        let index = found.map_or(NO_SERVER, |server| server as u32 + 1);
        facts.server.store(generation << 32 | u64::from(index), Ordering::Relaxed);
        found
    }

    /// A request for names that are expressions: variables need something to work on.
    fn request_of_handshake(self: &Arc<Self>, connection: Connection) -> Box<Request> {
        let mut r = Box::<Request>::default();
        r.connection = Some(Rc::new(connection));
        r.plan = Some(Rc::new(Arc::clone(self)));
        r.started = base::clock::now();
        r
    }

    /// The rules by which a ClientHello is answered, and whether HTTP/2 is offered. `connection` has no TLS facts yet. `None`: this plan does not listen
    /// there, or has no TLS for it.
    pub fn tls_choice(self: &Arc<Self>, connection: &Rc<Connection>, hello: &ClientHello) -> Option<(Choice, bool)> {
        let listener = self.listener_of(connection).filter(|l| l.ssl)?;
        let name = name(hello.server_name.as_deref());
        let facts = Facts { server_name: hello.server_name.as_deref().map(Box::from), ..Facts::default() };
        let mut r = self.request_of_handshake(Connection { tls: Some(Arc::new(facts)), ..(**connection).clone() });
        let found = name.and_then(|name| listener.names.find(&name, &mut r).ok().flatten());
        r.server = found.unwrap_or(listener.default_server);
        r.location = r.srv().location;
        // A server without certificates of its own goes by the default server's.
        let (tls, rules) = self.rules_of(r.server).or_else(|| self.rules_of(listener.default_server))?;
        if rules.reject {
            return Some((Choice::Reject, false));
        }
        // What the name's server says, or any `listen` of the address.
        let h2 = listener.http2_listen || self.servers.get(r.server).is_some_and(|s| s.http2.on);
        let Some(dynamic) = &tls.certificates else { return Some((Choice::Rules(Arc::clone(rules)), h2)) };
        let choice = match dynamic.load(&mut r) {
            Ok(set) => Choice::WithCertificates(Arc::clone(rules), set),
            Err(why) => {
                r.log(Level::Error, format_args!("{why} while SSL handshaking"));
                Choice::Fail
            }
        };
        Some((choice, h2))
    }
}

/// A request for a server that asks other things of clients than the one that the handshake was made with: 421 (nginx:
/// `ngx_http_set_virtual_server`). Also when a reload has changed what is asked.
pub fn misdirected(listener: &Listener, r: &mut Request) -> bool {
    let Some(facts) = r.connection().tls.clone() else { return false };
    if r.srv().tls.as_ref().is_none_or(|tls| tls.verify == VerifyClient::Off) {
        return false;
    }
    // Only a name that has chosen a server counts.
    let renamed = match sent_name(r.connection()).filter(|name| *name != r.host) {
        Some(name) => listener.names.find(&name, r).is_ok_and(|found| found.is_some()),
        None => false,
    };
    let plan = r.plan();
    let rules = plan.rules_of(r.server).or_else(|| plan.rules_of(listener.default_server));
    let misdirected = renamed || rules.is_some_and(|(_, rules)| facts.rules != rules.asks);
    if misdirected {
        r.log(
            Level::Info,
            format_args!(
                "client attempted to request the server name different from the one that was negotiated while reading client \
                 request headers"
            ),
        );
    }
    misdirected
}

/// The status with which a request is refused for what its connection lacks: 497 without TLS where there must be some, 495
/// for a certificate that did not verify, 496 for none.
pub fn refused(listener: &Listener, r: &Request) -> Option<u16> {
    let connection = r.connection();
    let Some(facts) = &connection.tls else {
        if !listener.ssl {
            return None;
        }
        r.log(
            Level::Info,
            format_args!("client sent plain HTTP request to HTTPS port while reading client request headers"),
        );
        return Some(497);
    };
    let verify = r.srv().tls.as_ref()?.verify;
    match &facts.peer {
        _ if verify == VerifyClient::Off => None,
        Some(peer) if peer.fault().is_none() => None,
        Some(peer) if verify == VerifyClient::OptionalNoCa && peer.verdict.is_missing_authority() => None,
        Some(peer) => {
            let (number, reason) = (peer.verdict.0, peer.fault().unwrap_or_default());
            r.log(
                Level::Info,
                format_args!(
                    "client SSL certificate verify error: ({number}:{reason}) while reading client request headers"
                ),
            );
            Some(495)
        }
        None if verify == VerifyClient::On => {
            r.log(
                Level::Info,
                format_args!("client sent no required SSL certificate while reading client request headers"),
            );
            Some(496)
        }
        None => None,
    }
}
