//! From routes to hosts, locations, groups and certificates.

use std::collections::{BTreeMap, BTreeSet};

use cluster_model::{
    Action, Conditions, Endpoint, EndpointGroup, FileName, Filters, GroupName, HostName, HttpListener, ListenSocket,
    Location, Model, ModelRedirect, ObjectOrigin, PathMatch, Policies, ServerTls, VirtualHost,
};
use cluster_objects::Complaint;
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::locations;
use crate::routes::{HostRoute, HostSettings, HttpsMode, RouteSettings};
use crate::settings::{AcmeSettings, Settings};

/// Makes the model of all routes: those that stand first decide about the settings of their host and their path.
pub fn build_model(routes: Vec<HostRoute>, settings: &Settings, complaints: &mut Vec<Complaint>) -> Model {
    let mut hosts: BTreeMap<HostName, Vec<HostRoute>> = BTreeMap::new();
    for route in routes {
        hosts.entry(route.host.clone()).or_default().push(route);
    }
    let mut assembly = Assembly { settings, complaints, model: Model::default(), issuers: BTreeSet::new() };
    for (file, reason) in &settings.certificates.problems {
        let subject = format!("certificates/{}", file.escape_debug());
        assembly.complaints.push(Complaint { subject, reason: reason.clone() });
    }
    let mut listeners = [HttpListener::default(), HttpListener { is_tls: true, hosts: Vec::new() }];
    for (name, routes) in hosts {
        assembly.host(&name, &routes, &mut listeners);
    }
    assembly.default_host(&mut listeners);
    let [plain, secure] = listeners;
    let socket = |port| ListenSocket { port, address: settings.address };
    // Without any host, requests get 404. Authorities ask for their tokens in cleartext.
    assembly.model.http.insert(socket(settings.http_port), plain);
    if !secure.hosts.is_empty() {
        assembly.model.http.insert(socket(settings.https_port), secure);
    }
    assembly.issuer_blocks();
    assembly.model
}

struct Assembly<'a> {
    settings: &'a Settings,
    complaints: &'a mut Vec<Complaint>,
    model: Model,
    /// Addresses of mails that have an account; `None` for the account without one.
    issuers: BTreeSet<Option<String>>,
}

/// Certificates of a host, and the directives of those that the server orders.
struct HostCertificate {
    tls: ServerTls,
    lines: Vec<WriteNode>,
}

impl Assembly<'_> {
    fn complain(&mut self, origin: &ObjectOrigin, reason: impl Into<String>) {
        self.complaints.push(crate::complaint(origin, reason));
    }

    fn host(&mut self, name: &HostName, routes: &[HostRoute], listeners: &mut [HttpListener; 2]) {
        let Some(origin) = routes.iter().map(|route| &route.origin).min() else { return };
        let of_host = self.host_settings(name, routes);
        let certificate = self.certificate(name, origin, &of_host);
        let mode = of_host.https.or(self.settings.https).unwrap_or(HttpsMode::Redirect);
        let mut host = VirtualHost {
            origin: origin.clone(),
            name: name.clone(),
            listener: None,
            tls: None,
            locations: self.locations(name, routes),
            extra: Vec::new(),
        };
        host.sort_locations();
        let [plain, secure] = listeners;
        let Some(HostCertificate { tls, lines }) = certificate.filter(|_| mode != HttpsMode::HttpOnly) else {
            plain.hosts.push(host);
            return;
        };
        match mode {
            HttpsMode::Both => plain.hosts.push(host.clone()),
            HttpsMode::Redirect => {
                plain.hosts.push(VirtualHost { locations: vec![self.redirect(origin)], ..host.clone() })
            }
            HttpsMode::HttpsOnly | HttpsMode::HttpOnly => {}
        }
        host.tls = Some(tls);
        host.extra = lines;
        let hsts = of_host.hsts.as_ref().or(self.settings.hsts.as_ref()).or(of_host.default_hsts.as_ref());
        // A client that must not use HTTP would lose the half of a host with both.
        if let Some(value) = hsts.filter(|value| *value != "off" && mode != HttpsMode::Both) {
            let line = NewDirective::new("add_header").arg("Strict-Transport-Security").arg(Argument::literal(value));
            host.extra.push(line.arg("always").into());
        }
        secure.hosts.push(host);
    }

    /// Joins the settings of a host: of each one, the first value counts.
    fn host_settings(&mut self, name: &HostName, routes: &[HostRoute]) -> HostSettings {
        let mut joined = HostSettings::default();
        for route in routes {
            let own = &route.host_settings;
            let differs = (own.https.is_some() && joined.https.is_some() && own.https != joined.https)
                || (own.certificate.is_some() && joined.certificate.is_some() && own.certificate != joined.certificate)
                || (own.hsts.is_some() && joined.hsts.is_some() && own.hsts != joined.hsts);
            if differs {
                self.complain(
                    &route.origin,
                    format!("other settings of the host {name} count (https, certificate, hsts)"),
                );
            }
            joined.https = joined.https.or(own.https);
            joined.certificate = joined.certificate.or_else(|| own.certificate.clone());
            joined.hsts = joined.hsts.or_else(|| own.hsts.clone());
            joined.default_hsts = joined.default_hsts.or_else(|| own.default_hsts.clone());
            joined.acme = joined.acme.or_else(|| own.acme.clone());
        }
        joined
    }

    fn certificate(&mut self, name: &HostName, origin: &ObjectOrigin, host: &HostSettings) -> Option<HostCertificate> {
        if host.certificate.is_none()
            && let Some(contact) = &host.acme
        {
            match (&self.settings.acme, name) {
                (None, _) => self.complain(origin, "acme: no certificates are ordered without --acme-state"),
                (Some(acme), HostName::Exact(_)) => {
                    let contact = contact.clone().or_else(|| acme.contact.clone());
                    let issuer = issuer_name(contact.as_deref());
                    self.issuers.insert(contact);
                    let lines = vec![
                        NewDirective::new("acme_certificate").arg(Argument::plain(issuer)).into(),
                        NewDirective::new("ssl_certificate").arg(Argument::variable("acme_certificate")).into(),
                        NewDirective::new("ssl_certificate_key").arg(Argument::variable("acme_certificate_key")).into(),
                    ];
                    return Some(HostCertificate { tls: ServerTls::default(), lines });
                }
                (Some(_), _) => {
                    self.complain(origin, format!("acme: {name} is no single name: no certificate is ordered for it"));
                }
            }
        }
        let folder = self.settings.certificates.clone();
        match folder.select(name, host.certificate.as_deref()) {
            Ok(None) => None,
            Ok(Some((file, certificate))) => {
                let file = FileName::new(&[self.settings.provider.name(), file]);
                self.model.certificates.entry(file.clone()).or_insert_with(|| certificate.clone());
                let tls = ServerTls { certificates: vec![file], client: None };
                Some(HostCertificate { tls, lines: Vec::new() })
            }
            Err(reason) => {
                self.complain(origin, format!("{reason}: the host {name} has no HTTPS"));
                None
            }
        }
    }

    fn redirect(&self, origin: &ObjectOrigin) -> Location {
        let port = Some(self.settings.https_port).filter(|port| *port != 443);
        let redirect = ModelRedirect { scheme: Some("https".into()), host: None, port, path: None, status: 301 };
        location(origin, PathMatch::Prefix("/".into()), Vec::new(), Action::Redirect(redirect))
    }

    fn locations(&mut self, host: &HostName, routes: &[HostRoute]) -> Vec<Location> {
        let mut paths: Vec<Vec<&HostRoute>> = Vec::new();
        for route in routes {
            let known =
                paths.iter_mut().find(|known| known.first().is_some_and(|first| is_one(&first.path, &route.path)));
            match known {
                Some(known) => known.push(route),
                None => paths.push(vec![route]),
            }
        }
        let mut locations = Vec::new();
        for routes in paths {
            let (Some(first), Some(origin)) = (routes.first(), routes.iter().map(|route| &route.origin).min()) else {
                continue;
            };
            let served: Vec<&HostRoute> = routes.iter().copied().filter(|route| self.agrees(first, route)).collect();
            let group = self.group(host, origin, &first.settings, &first.path, &served);
            let (filters, action) = locations::route_action(&first.settings, &first.path, group);
            let extra = locations::access_lines(&first.settings);
            locations.push(Location { filters, ..location(origin, first.path.clone(), extra, action) });
        }
        locations
    }

    /// Tells whether a route may have requests of the location of another one. One with other settings has none: a container that is for few
    /// clients, or speaks another protocol, must not get those of others.
    fn agrees(&mut self, first: &HostRoute, route: &HostRoute) -> bool {
        let differences = first.settings.differences(&route.settings);
        if differences.is_empty() {
            return true;
        }
        let place = format!("{}{}", first.host, first.path.text());
        let names = differences.join(", ");
        if differences == ["balance"] {
            self.complain(&route.origin, format!("{place}: balance of {} counts", first.origin));
            return true;
        }
        let reason =
            format!("{place}: gets no requests, since its settings ({names}) differ from those of {}", first.origin);
        self.complain(&route.origin, reason);
        false
    }

    fn group(
        &mut self,
        host: &HostName,
        origin: &ObjectOrigin,
        settings: &RouteSettings,
        path: &PathMatch,
        routes: &[&HostRoute],
    ) -> GroupName {
        let (provider, host) = (self.settings.provider.name(), host.to_string());
        let path = format!("{}{}", modifier(path), path.text());
        let name = match path.as_str() {
            "/" => GroupName::new(&[provider, &host]),
            path => GroupName::new(&[provider, &host, path]),
        };
        let mut endpoints: Vec<Endpoint> = routes.iter().filter_map(|route| route.endpoint.clone()).collect();
        endpoints.sort();
        endpoints.dedup_by(|a, b| (&a.host, a.port) == (&b.host, b.port));
        let group = EndpointGroup {
            origin: origin.clone(),
            endpoints,
            settings: settings.group.clone(),
            source: None,
            has_unusable: false,
        };
        self.model.groups.insert(name.clone(), group);
        name
    }

    /// Gives the requests of unknown hosts to the default host.
    fn default_host(&mut self, listeners: &mut [HttpListener; 2]) {
        let Some(text) = &self.settings.default_host else { return };
        let name = match HostName::parse_server_name(text) {
            Ok(name) => name,
            Err(reason) => {
                self.complaints.push(Complaint { subject: "--default-host".into(), reason });
                return;
            }
        };
        for listener in listeners {
            if listener.hosts.iter().any(|host| host.name == HostName::Any) {
                continue;
            }
            let default = listener.hosts.iter().find(|host| host.name == name).cloned();
            // The authority knows the host by its name only: the certificate is that of the other block.
            listener.hosts.extend(default.map(|host| VirtualHost { name: HostName::Any, ..with_names(host, text) }));
        }
    }

    fn issuer_blocks(&mut self) {
        let Some(acme) = &self.settings.acme else { return };
        for contact in &self.issuers {
            self.model.http_definitions.push(issuer_block(acme, contact.as_deref()));
        }
    }
}

/// Names the certificate of a copied host: a block without names of its own orders none.
fn with_names(mut host: VirtualHost, name: &str) -> VirtualHost {
    for node in &mut host.extra {
        if let WriteNode::Directive(directive) = node
            && directive.name == Argument::plain("acme_certificate")
        {
            directive.args.push(Argument::plain(name.to_ascii_lowercase()));
        }
    }
    host
}

fn location(origin: &ObjectOrigin, path: PathMatch, extra: Vec<WriteNode>, action: Action) -> Location {
    Location {
        origin: origin.clone(),
        path,
        conditions: Conditions::default(),
        filters: Filters::default(),
        policies: Policies::default(),
        action,
        extra,
    }
}

/// Tells whether two paths cannot stand beside each other.
fn is_one(a: &PathMatch, b: &PathMatch) -> bool {
    modifier(a) == modifier(b) && a.text() == b.text()
}

fn modifier(path: &PathMatch) -> &'static str {
    match path {
        PathMatch::Exact(_) => "=",
        PathMatch::Prefix(_) | PathMatch::Text(_) => "",
        PathMatch::Regex { is_case_insensitive: false, .. } => "~",
        PathMatch::Regex { is_case_insensitive: true, .. } => "~*",
    }
}

/// Returns the name of an issuer: one for each address of mails.
fn issuer_name(contact: Option<&str>) -> String {
    match contact {
        None => "discovery".into(),
        Some(contact) => GroupName::new(&["discovery", contact]).to_string(),
    }
}

fn issuer_block(acme: &AcmeSettings, contact: Option<&str>) -> WriteNode {
    let name = issuer_name(contact);
    let folder = format!("{}/{name}", acme.state_folder.trim_end_matches('/'));
    let mut lines: Vec<WriteNode> = vec![NewDirective::new("uri").arg(Argument::plain(&acme.directory)).into()];
    if let Some(contact) = contact {
        lines.push(NewDirective::new("contact").arg(Argument::plain(contact)).into());
    }
    lines.push(NewDirective::new("state_path").arg(Argument::plain(folder)).into());
    if let Some(file) = &acme.trusted_certificate {
        lines.push(NewDirective::new("ssl_trusted_certificate").arg(Argument::plain(file)).into());
    }
    lines.push(NewDirective::new("accept_terms_of_service").into());
    NewDirective::new("acme_issuer").arg(Argument::plain(name)).block(lines).into()
}
