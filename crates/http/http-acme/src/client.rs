//! Clients of Angie's directives as issuers and orders of this module: a client has one certificate, for the names of all servers that
//! use it.

use super::angie::ClientLine;
use super::certificates::Certificate;
use super::hook::Hook;
use super::issuer::{Issuer, SignerSource};
use super::order::OrderedCertificate;
use super::state::IssuerFolder;
use acme::{Algorithm, ChallengeKind, Identifier};
use conf_schema::{Complaint, Cx, Problem};
use http_client::Limits;
use http_engine::{HttpPlan, Request};
use resolver::ResolveRules;
use std::net::IpAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tls::{ClientRules, ClientSettings};
use tls_directives::acme_clients::{AcmeClient, AcmeClients};
use tls_directives::authorities;

const VERIFY_DEPTH: u32 = 10;
/// Identifiers of a certificate.
const IDENTIFIERS_MAX: usize = 100;

/// See the module's documentation.
pub struct Client {
    pub name: String,
    issuer: Arc<Issuer>,
    key: Algorithm,
    /// `FILE:LINE` of the directive.
    pub place: String,
    /// Of the http block, or of a server that uses the client.
    resolving: Mutex<Option<ResolveRules>>,
    names: Mutex<Vec<Identifier>>,
    ordered: OnceLock<Option<OrderedCertificate>>,
    /// The certificate in the folder of a client without names, which orders none.
    stored: Arc<Certificate>,
}

/// The clients of a configuration; kept in `Cx` and with the plan.
#[derive(Clone, Default)]
pub struct Clients(pub Vec<Arc<Client>>);

impl Clients {
    pub fn find(&self, name: &str) -> Option<&Arc<Client>> {
        self.0.iter().find(|client| client.name == name)
    }
    /// Returns the clients for other areas.
    pub fn shared(&self) -> AcmeClients {
        AcmeClients(self.0.iter().map(|client| client.clone() as Arc<dyn AcmeClient>).collect())
    }
    /// Tells whether a client proves this name by the DNS responder.
    pub fn prove_by_dns(&self, host: &str) -> bool {
        let dns = self.0.iter().filter(|client| client.challenge() == ChallengeKind::Dns01);
        dns.filter_map(|client| client.ordered()).flat_map(|ordered| &ordered.identifiers).any(
            |identifier| matches!(identifier, Identifier::Dns(name) if name.strip_prefix("*.").unwrap_or(name) == host),
        )
    }
}

impl Client {
    /// Makes the client. `folder`: `acme_client_path`; `response_bytes_max`: of a response of the authority.
    ///
    /// # Errors
    /// No trusted certificates are installed.
    pub fn new(line: &ClientLine, cx: &mut Cx, folder: &Path, response_bytes_max: usize) -> Result<Client, Problem> {
        let mut settings =
            ClientSettings { prefix: "ssl", verify_depth: VERIFY_DEPTH, addresses: true, ..ClientSettings::default() };
        if line.uri.tls {
            settings.verify = true;
            settings.trusted =
                authorities::trusted_certificates(cx, line.trusted.clone(), &format!("ACME client \"{}\"", line.name))?;
        }
        let rules = ClientRules::build(&settings, &tls_directives::wall_clock(), &mut Vec::new());
        let issuer = Issuer {
            name: line.name.clone(),
            source: SignerSource::Server(line.uri.clone()),
            fallbacks: Vec::new(),
            key: line.account_key.clone(),
            account: line.account.clone(),
            challenge: line.challenge,
            dns: None,
            profile: line.profile.clone(),
            preferred_chain: None,
            common_name: false,
            state_path: Some(folder.join(&line.name)),
            rules: rules.map_err(Problem::says)?,
            limits: Limits { body: response_bytes_max, ..Limits::default() },
            timing: Some(line.timing),
            shared: None,
        };
        Ok(Client {
            name: line.name.clone(),
            issuer: Arc::new(issuer),
            key: line.key,
            place: line.place.clone(),
            resolving: Mutex::default(),
            names: Mutex::default(),
            ordered: OnceLock::new(),
            stored: Arc::default(),
        })
    }
    pub fn challenge(&self) -> ChallengeKind {
        self.issuer.challenge
    }
    pub fn is_enabled(&self) -> bool {
        self.issuer.timing.is_none_or(|timing| timing.enabled)
    }
    pub fn folder(&self) -> Option<&Path> {
        self.issuer.state_path.as_deref()
    }

    /// Sets the resolver, unless a server has one.
    pub fn use_resolver(&self, resolving: Option<ResolveRules>) {
        let mut known = self.resolving.lock().unwrap_or_else(PoisonError::into_inner);
        if known.is_none() {
            *known = resolving;
        }
    }

    /// Returns the order, once all servers have added their names; `None` without names.
    pub fn ordered(&self) -> Option<&OrderedCertificate> {
        let make = || {
            let mut identifiers = self.names.lock().unwrap_or_else(PoisonError::into_inner).clone();
            identifiers.sort();
            let issuers = vec![Arc::clone(&self.issuer)];
            let resolving = self.resolving.lock().unwrap_or_else(PoisonError::into_inner).clone();
            let certificate = super::certificates::order_certificate(&issuers, &identifiers, self.key);
            let place = self.place.clone();
            let ordered = OrderedCertificate { issuers, resolving, identifiers, key: self.key, place, certificate };
            (!ordered.identifiers.is_empty()).then_some(ordered)
        };
        self.ordered.get_or_init(make).as_ref()
    }

    /// Loads the stored certificate of a client without names: servers may use it, as in Angie. Blocks.
    pub fn load_stored(&self) {
        if self.ordered().is_none()
            && !self.stored.is_set()
            && let Some(found) = self.folder().and_then(|path| IssuerFolder(path.to_path_buf()).foreign())
        {
            let _ = self.stored.set(&found, false);
        }
    }

    /// Reads a name of a server; empty: no certificate of this client can have it.
    fn identifiers(&self, written: &str) -> Vec<Identifier> {
        let by_dns = self.challenge() == ChallengeKind::Dns01;
        let texts = match written.strip_prefix('.') {
            Some(rest) if by_dns => vec![rest.to_string(), format!("*.{rest}")],
            _ => vec![written.to_string()],
        };
        let fits = |identifier: &Identifier| match identifier {
            Identifier::Dns(name) => name.len() >= 3 && !name.contains('_') && (by_dns || !name.starts_with("*.")),
            Identifier::Ip(_) => !by_dns,
        };
        let all: Option<Vec<Identifier>> = texts.iter().map(|text| Identifier::parse(text).filter(fits)).collect();
        all.unwrap_or_default()
    }
}

/// Adds an identifier, unless a wildcard covers it: authorities refuse redundant names.
fn add(identifier: Identifier, all: &mut Vec<Identifier>) {
    let covers = |wildcard: &Identifier, name: &Identifier| match (wildcard, name) {
        (Identifier::Dns(wildcard), Identifier::Dns(name)) => wildcard
            .strip_prefix("*.")
            .is_some_and(|parent| name.split_once('.').is_some_and(|(label, rest)| label != "*" && rest == parent)),
        _ => false,
    };
    if all.iter().any(|known| *known == identifier || covers(known, &identifier)) {
        return;
    }
    all.retain(|known| !covers(&identifier, known));
    all.push(identifier);
}

impl AcmeClient for Client {
    fn name(&self) -> &str {
        &self.name
    }
    fn add_names(&self, cx: &mut Cx, names: &[Vec<u8>], resolving: Option<ResolveRules>) -> Result<(), Problem> {
        let mut own = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let mut any = false;
        for name in names.iter().filter(|name| !name.is_empty()) {
            let written = String::from_utf8_lossy(name).into_owned();
            let found = self.identifiers(&written);
            if found.is_empty() {
                let needs_dns = !written.starts_with('~') && (written.starts_with('*') || written.starts_with('.'));
                cx.warnings.push(Complaint {
                    level: conf_schema::ComplaintLevel::Warn,
                    text: format!(
                        "unsupported domain format \"{written}\" used by ACME client \"{}\", ignored",
                        self.name
                    ),
                    span: None,
                    line: 0,
                    hint: needs_dns.then(|| "wildcard names need \"challenge=dns\"".to_string()),
                });
            }
            for identifier in found {
                any = true;
                add(identifier, &mut own);
            }
        }
        if !any {
            let text = format!(
                "no valid domain name defined in server block for ACME client \"{}\" in {}",
                self.name, self.place
            );
            return Err(Problem::says(text));
        }
        if own.len() > IDENTIFIERS_MAX {
            return Err(Problem::says(format!("more than {IDENTIFIERS_MAX} identifiers in a certificate")));
        }
        self.use_resolver(resolving);
        let is_resolved = self.resolving.lock().unwrap_or_else(PoisonError::into_inner).is_some();
        let SignerSource::Server(url) = &self.issuer.source else { return Ok(()) };
        let host = url.host.trim_start_matches('[').trim_end_matches(']');
        if !is_resolved && self.is_enabled() && host.parse::<IpAddr>().is_err() {
            let text = format!(
                "no resolver configured for resolving {} at run time for ACME client \"{}\"",
                url.host, self.name
            );
            return Err(Problem::says(text).hint("write \"resolver\" in the http block"));
        }
        Ok(())
    }
    fn value(&self, key: bool, placeholder: bool) -> Option<Arc<[u8]>> {
        let certificate = self.ordered().map_or(&self.stored, |ordered| &ordered.certificate);
        match (placeholder, key) {
            (false, _) => certificate.issued(key),
            (true, true) => certificate.key(),
            (true, false) => certificate.chain(),
        }
    }
}

/// See [`Client::load_stored`].
pub fn load_stored(plan: &HttpPlan) {
    plan.ext::<Clients>().into_iter().flat_map(|clients| &clients.0).for_each(|client| client.load_stored());
}

/// Returns the orders of the clients of a plan.
pub fn client_orders(plan: &HttpPlan) -> impl Iterator<Item = &OrderedCertificate> {
    plan.ext::<Clients>().into_iter().flat_map(|clients| clients.0.iter().filter_map(|client| client.ordered()))
}

/// Writes `$acme_cert_NAME` or `$acme_cert_key_NAME`.
pub fn write_value(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let plan = r.plan().clone();
    plan.ext::<AcmeClients>().is_some_and(|clients| clients.write(name, out))
}

/// Finds the hook of an issuer, if it is a client of Angie's directives.
pub fn issuer_hook(plan: &Arc<HttpPlan>, issuer: &Issuer) -> Option<std::rc::Rc<Hook>> {
    issuer.timing.and_then(|_| Hook::find(plan, &issuer.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wildcards_cover_names_of_one_label() {
        let parse = |text: &str| Identifier::parse(text).expect(text);
        let mut all = Vec::new();
        for name in ["a.x.test", "b.a.x.test", "*.x.test", "c.x.test", "x.test", "*.x.test", "127.0.0.1"] {
            add(parse(name), &mut all);
        }
        let names: Vec<String> = all.iter().map(ToString::to_string).collect();
        assert_eq!(names, ["b.a.x.test", "*.x.test", "x.test", "127.0.0.1"]);
    }
}
