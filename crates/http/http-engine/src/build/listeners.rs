//! Groups `listen` lines by address, and checks those of different servers for conflicts.

use super::{HttpBuilder, ServerDraft};
use crate::area::HttpServerNames;
use crate::listen::Listen;
use crate::plan::Listener;
use crate::protocols::{HTTP2, PROXY_PROTOCOL, Protocols, SSL};
use crate::values::ServerName;
use conf_schema::{At, Complaint, Problem};
use net::Address;
use net::listen::ListenSpec;
use std::collections::HashMap;

/// The `listen` lines of one address.
struct ListenerDraft {
    spec: ListenSpec,
    options_set: bool,
    default: Option<usize>,
    proxy_protocol: bool,
    ssl: bool,
    http2: bool,
    quic: bool,
    protocols: Protocols,
    servers: Vec<usize>,
}

impl ListenerDraft {
    fn new(address: Address, quic: bool) -> ListenerDraft {
        ListenerDraft {
            spec: ListenSpec { datagram: quic, ..ListenSpec::new(address) },
            options_set: false,
            default: None,
            proxy_protocol: false,
            ssl: false,
            http2: false,
            quic,
            protocols: Protocols::default(),
            servers: Vec::new(),
        }
    }

    fn default_server(&self) -> usize {
        self.default.or(self.servers.first().copied()).unwrap_or(0)
    }
}

impl HttpBuilder<'_> {
    /// Returns a listener for each address, in the order of the configuration.
    pub(super) fn listeners(&mut self, drafts: &[ServerDraft]) -> Vec<Listener> {
        let mut by_address: Vec<ListenerDraft> = Vec::new();
        // TCP and UDP of one address are two listeners.
        let mut places: HashMap<(Address, bool), usize> = HashMap::new();
        for (server, draft) in drafts.iter().enumerate() {
            let at = At { line: draft.at.line, ..At::default() };
            let implied = plain_listen(default_address(self.cx.store.superuser()), at);
            let listens = if draft.listens.is_empty() { std::slice::from_ref(&implied) } else { &draft.listens };
            for (listen, spec) in listens.iter().flat_map(|listen| listen.specs.iter().map(move |spec| (listen, spec)))
            {
                let place = *places.entry((spec.address.clone(), listen.quic)).or_insert_with(|| {
                    by_address.push(ListenerDraft::new(spec.address.clone(), listen.quic));
                    by_address.len() - 1
                });
                if let Err(text) = self.add(&mut by_address[place], server, listen, spec) {
                    self.complain(Some(listen.at), Problem::says(text));
                }
            }
        }
        for draft in by_address.iter().filter(|draft| draft.ssl || draft.quic) {
            self.check_tls(draft, drafts);
        }
        by_address.into_iter().map(|draft| self.listener(draft, drafts)).collect()
    }

    /// Adds a server's line to its address. Fails with the text of a conflict.
    fn add(
        &mut self,
        entry: &mut ListenerDraft,
        server: usize,
        listen: &Listen,
        spec: &ListenSpec,
    ) -> Result<(), String> {
        // Lines of one server are adjacent.
        if entry.servers.last() == Some(&server) {
            return Err(format!("a duplicate listen {}", spec.address));
        }
        entry.servers.push(server);
        entry.proxy_protocol |= listen.proxy_protocol;
        entry.ssl |= listen.ssl;
        entry.http2 |= listen.http2;
        let bit = |on: bool, bit: u8| if on { bit } else { 0 };
        let said = bit(listen.proxy_protocol, PROXY_PROTOCOL) | bit(listen.ssl, SSL) | bit(listen.http2, HTTP2);
        if entry.protocols.redefined(said, listen.options_set) {
            self.cx.warnings.push(Complaint {
                level: conf_schema::ComplaintLevel::Warn,
                text: format!("protocol options redefined for {}", spec.address),
                span: Some(listen.at.span),
                line: listen.at.line,
                hint: Some("the lines of an address say the same, or one says all".into()),
            });
        }
        if listen.options_set {
            if entry.options_set {
                return Err(format!("duplicate listen options for {}", spec.address));
            }
            entry.options_set = true;
            entry.spec = spec.clone();
        }
        if listen.default_server {
            if entry.default.is_some() {
                return Err(format!("a duplicate default server for {}", spec.address));
            }
            entry.default = Some(server);
        }
        Ok(())
    }

    /// Checks that an address with TLS has a certificate, and one with QUIC TLS 1.3.
    fn check_tls(&mut self, draft: &ListenerDraft, drafts: &[ServerDraft]) {
        let rules = |server: usize| self.servers.get(server)?.tls.as_ref()?.rules.as_ref();
        let default = draft.default_server();
        let bare = match rules(default) {
            None => Some(default),
            Some(rules) if rules.has_certificates() => None,
            // The default server rejects handshakes; the other servers need a certificate.
            Some(_) => draft.servers.iter().copied().find(|server| rules(*server).is_none()),
        };
        let without_tls13 =
            draft.servers.iter().copied().find(|server| rules(*server).is_some_and(|rules| !rules.tls13));
        if let Some(server) = bare.filter(|server| !self.faulty.contains(server)) {
            let kind = if draft.quic { "quic" } else { "ssl" };
            let text = format!("no \"ssl_certificate\" is defined for the \"listen ... {kind}\" directive");
            self.complain(drafts.get(server).map(|d| d.at), Problem::says(text));
        }
        if let Some(server) = without_tls13.filter(|server| draft.quic && !self.faulty.contains(server)) {
            let text = "\"ssl_protocols\" must enable TLSv1.3 for the \"listen ... quic\" directive";
            self.complain(drafts.get(server).map(|d| d.at), Problem::says(text));
        }
    }

    fn listener(&mut self, draft: ListenerDraft, drafts: &[ServerDraft]) -> Listener {
        // A single server needs no selection; its regular expressions set named groups.
        let is_shared = draft.servers.len() > 1;
        let mut names = HttpServerNames::default();
        for &server in &draft.servers {
            let unnamed = [ServerName::Exact(Vec::new())];
            let list = if drafts[server].names.is_empty() { &unnamed[..] } else { &drafts[server].names };
            for name in list {
                let address = &draft.spec.address;
                if is_shared && name.is_unusable() {
                    let text = format!("invalid server name or wildcard \"{}\" on {address}", name.shown());
                    self.complain(None, Problem::says(text));
                } else if !names.add(name, server) && is_shared {
                    self.cx.warnings.push(Complaint {
                        level: conf_schema::ComplaintLevel::Warn,
                        text: format!("conflicting server name \"{}\" on {address}, ignored", name.shown()),
                        span: None,
                        line: 0,
                        hint: Some("the name was given before, for this address".into()),
                    });
                }
            }
        }
        let default = draft.default_server();
        Listener {
            default_server: default,
            spec: draft.spec,
            proxy_protocol: draft.proxy_protocol,
            ssl: draft.ssl || draft.quic,
            quic: draft.quic,
            http2_listen: draft.http2,
            http2: draft.http2 || self.servers.get(default).is_some_and(|s| s.http2.on),
            names: if is_shared { names } else { names.regexes_only() },
        }
    }
}

/// Returns a `listen` line without parameters.
pub(super) fn plain_listen(address: Address, at: At) -> Listen {
    Listen::plain(vec![ListenSpec::new(address)], at)
}

/// Returns nginx's default: port 80 if started by the superuser, otherwise 8000.
pub(super) fn default_address(superuser: bool) -> Address {
    Address::Ip(std::net::SocketAddr::from(([0, 0, 0, 0], if superuser { 80 } else { 8000 })))
}
