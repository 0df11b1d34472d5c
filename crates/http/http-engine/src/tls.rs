//! TLS in the http area: selects the server for a handshake ([`HttpPlan::tls_choice`]), and checks requests against it
//! ([`is_misdirected`], [`certificate_refusal`]; nginx: `ngx_http_ssl_servername`, `ngx_http_process_request`).

use crate::area::HttpArea;
use crate::connection::ClientConnection;
use crate::handler::{CertificateHook, CertificateResult};
use crate::path;
use crate::plan::{HttpPlan, Listener};
use crate::request::Request;
use metrics::VerifyFailure;
use observe::Severity;
use resolver::ResolveRules;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use tls::quic::ChosenRules;
use tls::{Choice, ClientHello, Facts, ServerRules, VerifyClient};
use tls_directives::acme_clients::HandshakeHook;
use tls_directives::{StapleOwner, verify_failure};

/// Value of [`Facts::server`] if no server has the name; other values are an index plus 1.
const NO_SERVER: u32 = u32::MAX;

pub use crate::area::ServerTls;

/// Returns the name in the client's SNI, if valid for a server.
pub fn sent_name(connection: &ClientConnection) -> Option<Vec<u8>> {
    name(connection.tls.as_ref()?.server_name.as_deref())
}

fn name(sent: Option<&str>) -> Option<Vec<u8>> {
    let mut name = Vec::new();
    path::host(sent?.as_bytes(), &mut name)?;
    Some(name)
}

impl StapleOwner for HttpPlan {
    type Area = HttpArea;
    fn servers(&self) -> usize {
        self.servers.len()
    }
    fn tls(&self, server: usize) -> Option<&ServerTls> {
        self.servers.get(server)?.tls.as_deref()
    }
    fn resolving(&self, server: usize) -> Option<ResolveRules> {
        self.locations.get(self.servers.get(server)?.location)?.ext::<ResolveRules>().cloned()
    }
}

impl HttpPlan {
    fn rules_of(&self, server: usize) -> Option<(&ServerTls, &Arc<ServerRules>)> {
        let tls = self.servers.get(server)?.tls.as_deref()?;
        Some((tls, tls.rules.as_ref()?))
    }

    /// Server until a request names another: by SNI, or the default (nginx: `ngx_http_connection_t.conf_ctx`). `None`:
    /// no such listener.
    #[inline]
    pub fn initial_server(self: &Arc<Self>, connection: &ClientConnection) -> Option<usize> {
        let listener = self.listener_of(connection)?;
        match &connection.tls {
            Some(facts) if facts.server_name.is_some() && !listener.names.is_empty() => {
                Some(self.server_of_handshake(listener, connection, facts).unwrap_or(listener.default_server))
            }
            _ => Some(listener.default_server),
        }
    }

    /// Looked up once per connection and plan.
    fn server_of_handshake(
        self: &Arc<Self>,
        listener: &Listener,
        c: &ClientConnection,
        facts: &Facts,
    ) -> Option<usize> {
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

    /// Creates a request for names with regular expressions, whose captures need one.
    fn request_of_handshake(self: &Arc<Self>, connection: ClientConnection) -> Box<Request> {
        let mut r = Box::<Request>::default();
        r.scope.connection = Some(Rc::new(connection));
        r.scope.plan = Some(Rc::new(Arc::clone(self)));
        r.accounting.started = base::clock::now();
        r
    }

    /// [`HttpPlan::tls_choice`] for a QUIC handshake, with the protocols of the server.
    pub fn quic_choice(
        self: &Arc<Self>,
        connection: &Rc<ClientConnection>,
        hello: &ClientHello,
    ) -> Option<ChosenRules> {
        let (choice, server) = self.choice(connection, hello)?;
        let http3 = &self.servers.get(server)?.http3;
        Some(ChosenRules { choice, h3: http3.on, hq: http3.hq })
    }

    /// Rules for a ClientHello, and whether to offer HTTP/2; `connection` has no facts yet. `None`: no such listener
    /// with TLS.
    pub fn tls_choice(
        self: &Arc<Self>,
        connection: &Rc<ClientConnection>,
        hello: &ClientHello,
    ) -> Option<(Choice, bool)> {
        let (choice, server) = self.choice(connection, hello)?;
        // Enabled by the name's server, or by any `listen` of the address.
        let by_listen = self.listener_of(connection).is_some_and(|listener| listener.http2_listen);
        let h2 = by_listen || self.servers.get(server).is_some_and(|server| server.http2.on);
        Some((choice, h2))
    }

    /// Counts a handshake for the server that the client named, if it has a zone.
    pub fn count_handshake(
        self: &Arc<Self>,
        connection: &ClientConnection,
        hello: Option<&ClientHello>,
        done: Result<bool, metrics::TlsFailure>,
    ) {
        if !self.servers_counted {
            return;
        }
        let Some(listener) = self.listener_of(connection) else { return };
        let named = match (&connection.tls, hello) {
            (Some(_), _) => self.initial_server(connection),
            (None, Some(hello)) => name(hello.server_name.as_deref()).and_then(|name| {
                let mut r = self.request_of_handshake(connection.clone());
                listener.names.find(&name, &mut r).ok().flatten()
            }),
            (None, None) => None,
        };
        let server = self.servers.get(named.unwrap_or(listener.default_server));
        if let Some(zone) = server.and_then(|server| server.zone.as_ref()) {
            metrics::count_handshake_of(zone, done);
        }
    }

    fn choice(self: &Arc<Self>, connection: &Rc<ClientConnection>, hello: &ClientHello) -> Option<(Choice, usize)> {
        let listener = self.listener_of(connection).filter(|l| l.ssl)?;
        // Validations of certificates offer a single protocol.
        if hello.alpn.len() == 1
            && let Some(HandshakeHook(hook)) = self.ext()
            && let Some(choice) = hook(hello)
        {
            return Some((choice, listener.default_server));
        }
        let name = name(hello.server_name.as_deref());
        let facts = Facts { server_name: hello.server_name.as_deref().map(Box::from), ..Facts::default() };
        let mut r =
            self.request_of_handshake(ClientConnection { tls: Some(Arc::new(facts)), ..(**connection).clone() });
        let found = name.and_then(|name| listener.names.find(&name, &mut r).ok().flatten());
        r.scope.server = found.unwrap_or(listener.default_server);
        r.scope.location = r.srv().location;
        // A server without certificates uses the default server's rules.
        let (tls, rules) = self.rules_of(r.scope.server).or_else(|| self.rules_of(listener.default_server))?;
        if rules.reject {
            return Some((Choice::Reject, r.scope.server));
        }
        if let Some(CertificateHook(hook)) = self.ext()
            && let Some(certifying) = self.locations.get(r.scope.location).and_then(|location| hook(location, hello))
        {
            let choice = match certifying {
                CertificateResult::Known(set) => Choice::WithCertificates(Arc::clone(rules), tls.stapled(set)),
                CertificateResult::Wait(wait) => Choice::Wait(wait),
                CertificateResult::Refused => Choice::Reject,
                CertificateResult::Failed => Choice::Fail,
            };
            return Some((choice, r.scope.server));
        }
        let Some(dynamic) = &tls.certificates else { return Some((Choice::Rules(Arc::clone(rules)), r.scope.server)) };
        let choice = match dynamic.load(&mut r) {
            Ok(set) => Choice::WithCertificates(Arc::clone(rules), tls.stapled(set)),
            Err(why) => {
                r.log(Severity::Error, format_args!("{why} while SSL handshaking"));
                Choice::Fail
            }
        };
        Some((choice, r.scope.server))
    }
}

/// Tells whether a request needs 421: its server verifies clients, and SNI named another server or the handshake used
/// other rules (nginx: `ngx_http_set_virtual_server`). Such a request belongs to the server of the handshake.
pub fn is_misdirected(listener: &Listener, r: &mut Request) -> bool {
    let Some(facts) = r.connection().tls.clone() else { return false };
    if r.srv().tls.as_ref().is_none_or(|tls| tls.verify == VerifyClient::Off) {
        return false;
    }
    // Only a name that selects a server counts.
    let named = sent_name(r.connection()).and_then(|name| Some((listener.names.find(&name, r).ok()??, name)));
    let renamed = named.as_ref().is_some_and(|(_, name)| *name != r.target.host);
    let plan = r.plan();
    let rules = plan.rules_of(r.scope.server).or_else(|| plan.rules_of(listener.default_server));
    let misdirected = renamed || rules.is_some_and(|(_, rules)| facts.rules != rules.asks);
    if misdirected {
        r.scope.server = named.map_or(listener.default_server, |(server, _)| server);
        r.scope.location = r.srv().location;
        r.log(
            Severity::Info,
            format_args!(
                "client attempted to request the server name different from the one that was negotiated while reading client \
                 request headers"
            ),
        );
    }
    misdirected
}

fn count_refused(r: &Request, why: VerifyFailure) {
    metrics::process::TLS_VERIFY_FAILURES.up_at(why as usize);
    if let Some(zone) = &r.srv().zone {
        zone.up_at(metrics::server_zone::TLS_VERIFY_FAILURES, why as usize);
    }
}

/// Status for missing TLS (497), or an invalid (495) or missing (496) client certificate.
pub fn certificate_refusal(listener: &Listener, r: &Request) -> Option<u16> {
    let connection = r.connection();
    let Some(facts) = &connection.tls else {
        if !listener.ssl {
            return None;
        }
        r.log(
            Severity::Info,
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
            // A verdict of `ssl_ocsp` has no number.
            let reason = if peer.verdict.is_ok() { reason.to_string() } else { format!("({number}:{reason})") };
            r.log(
                Severity::Info,
                format_args!("client SSL certificate verify error: {reason} while reading client request headers"),
            );
            let why = if peer.verdict.is_ok() { VerifyFailure::RevokedCert } else { verify_failure(peer.verdict) };
            count_refused(r, why);
            Some(495)
        }
        None if verify == VerifyClient::On => {
            r.log(
                Severity::Info,
                format_args!("client sent no required SSL certificate while reading client request headers"),
            );
            count_refused(r, VerifyFailure::NoCert);
            Some(496)
        }
        None => None,
    }
}
