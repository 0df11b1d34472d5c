//! acme (nginx: `ngx_http_acme_module`): certificates that are ordered and renewed by ACME.
//!
//! `issuer.rs` and `order.rs` read the directives, `certificates.rs` stores certificates, `challenges.rs` answers
//! authorities, `engine.rs` orders and renews on the control thread. The crate `acme` implements the protocol.

mod angie;
mod certificates;
mod challenges;
mod demand;
mod desk;
mod dns;
mod engine;
mod errand;
mod issuer;
mod job;
mod office;
mod order;
mod state;

use crate::shared::acme_state::{AcmeRenewals, AcmeState, AcmeStates};
use angie::Clients;
use certificates::Certificate;
use conf_schema::value::List;
use conf_schema::{Area, Contexts, Cx, Directive, Problem, Table, Value, directives};
use http_engine::handler::{CertificateHook, HandshakeHook};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpBuild, HttpPlan, PlanOrder, Request};
use http_upstream::resolving::Resolving;
use issuer::{Issuer, IssuerBlocks, Issuers};
use order::Ordered;
use session_engine::inventory::Inventory;
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;

directives! {
    pub struct AcmeConf from AcmeInput {
        /// Defines an ACME server and an account there: `uri`, `account_key`, `challenge`, `contact`, `dns_hook`,
        /// `dns_propagation`, `dns_update`, `external_account_key`, `preferred_chain`, `profile`, `common_name_in_csr`,
        /// `ssl_trusted_certificate`, `ssl_verify`, `state_path`, `accept_terms_of_service`. `fallback`: the issuers that are
        /// tried, in their order, when this one fails. `local_authority`, instead of `uri`: an authority of this machine for
        /// local names, whose certificate is `local-authority.crt` in `state_path`.
        acme_issuer: IssuerBlocks,
        /// Size of a zone for certificates, keys and challenges.
        /// No effect: they are kept in the memory of the process.
        acme_shared_zone: ZoneLine,
        /// Orders and renews a certificate for the server's names, or for these identifiers. `$acme_certificate` and
        /// `$acme_certificate_key` are its values for `ssl_certificate` and `ssl_certificate_key`.
        acme_certificate: order::Line,
        /// Orders certificates on demand, for names that clients send (SNI) and the configuration does not list. `ask`:
        /// URL that decides about a name, requested with the parameter `domain`; a status of 200 to 299 permits the
        /// name. `rate`: maximum rate of orders (default: `10r/m`). `max`: names in memory (default: 1000). The
        /// handshake waits for the certificate.
        acme_on_demand: demand::Line,
        /// Defines a client of an ACME server, with one certificate for the names of all servers with `acme NAME`:
        /// `$acme_cert_NAME` and `$acme_cert_key_NAME`. Keys and certificates are in `acme_client_path/NAME`.
        /// Ours: `ssl_trusted_certificate=`, in place of the system's authorities.
        /// Differs: `challenge=dns` is refused, and `max_cert_size` has no effect.
        acme_client: List<angie::Line>,
        /// Adds the server's names to the certificate of an `acme_client`. Regular expressions are skipped.
        acme: List<angie::Named>,
        /// Folder with a folder for each `acme_client`.
        acme_client_path: ClientPath,
    }
}

/// `acme_client_path path`
#[derive(Clone)]
pub struct ClientPath(PathBuf);

impl Value for ClientPath {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        Ok(ClientPath(cx.full_name(&path)))
    }
}

/// `acme_shared_zone zone=name:size`
#[derive(Clone)]
pub struct ZoneLine;

impl Value for ZoneLine {
    const SYNTAX: &'static str = "zone=name:size";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let Some((name, size)) = text.strip_prefix("zone=").and_then(|zone| zone.split_once(':')) else {
            return Err(Problem::directive("must have \"zone\" parameter").at(0));
        };
        match conf_schema::value::parse_size(size.as_bytes()) {
            Some(bytes) if bytes >= 8 * 4096 && !name.is_empty() => Ok(ZoneLine),
            Some(_) if !name.is_empty() => Err(Problem::says(format!("zone \"{text}\" is too small")).at(0)),
            _ => Err(Problem::says(format!("invalid zone size \"{text}\"")).at(0)),
        }
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one(
        "acme_certificate",
        |r, out| value(r, out, |c| c.chain()),
        "The server's ACME certificate with its chain.",
    ),
    Builtin::family(
        "acme_cert_",
        angie::value,
        "The certificate of the `acme_client` NAME with its chain; `key_NAME`: the certificate's key.",
    ),
    Builtin::one("acme_certificate_key", |r, out| value(r, out, |c| c.key()), "The key of `$acme_certificate`."),
];

/// Writes a part of the server's certificate; `false` without one.
fn value(r: &mut Request, out: &mut Vec<u8>, part: fn(&Certificate) -> Option<Arc<[u8]>>) -> bool {
    let plan = r.plan();
    let location = plan.locations.get(r.srv().location);
    let Some(text) = location.and_then(|l| l.ext::<Ordered>()).and_then(|ordered| part(&ordered.certificate)) else {
        return false;
    };
    out.extend_from_slice(&text);
    true
}

/// An `acme_certificate` of a configuration, for commands that show or renew it.
pub struct Listed {
    pub issuer: String,
    pub uri: String,
    pub challenge: &'static str,
    pub identifiers: Vec<String>,
    /// `FILE:LINE` of the directives, the first one's first.
    pub places: Vec<String>,
    folder: Option<state::Folder>,
    stem: String,
}

impl Listed {
    /// Returns the certificate's file; `None` with `state_path off`.
    pub fn file(&self) -> Option<PathBuf> {
        self.folder.as_ref().map(|folder| folder.0.join(format!("{}.crt", self.stem)))
    }
    /// Returns the state of the orders, as the running server stores it: a JSON object.
    pub fn status(&self) -> Option<serde_json::Value> {
        serde_json::from_str(&self.folder.as_ref()?.status(&self.stem)?).ok()
    }
    /// Requests an order of the certificate from the running server.
    ///
    /// # Errors
    /// Nothing is stored, or the file system refuses.
    pub fn renew(&self) -> std::io::Result<()> {
        let folder = self.folder.as_ref().ok_or_else(|| std::io::Error::other("the issuer has \"state_path off\""))?;
        folder.request(&self.stem)
    }
}

/// Lists the certificates of a plan, each once, and the stored ones on demand.
pub fn listed(plan: &HttpPlan) -> Vec<Listed> {
    let mut all: Vec<Listed> = with_certificates(plan).into_iter().map(|(_, listed)| listed).collect();
    for demand in engine::demands(plan) {
        let (Some(issuer), Some(path)) = (demand.issuers.first(), demand.folder()) else { continue };
        let folder = state::Folder(path);
        all.extend(folder.stems().into_iter().map(|stem| Listed {
            issuer: issuer.name.clone(),
            uri: issuer.source.to_string(),
            challenge: challenge(issuer),
            identifiers: stem.rsplit_once('-').map(|(name, _)| name.to_string()).into_iter().collect(),
            places: vec![demand.place.clone()],
            folder: Some(folder.clone()),
            stem,
        }));
    }
    all
}

fn challenge(issuer: &Issuer) -> &'static str {
    if issuer.is_local() { "local" } else { issuer.challenge.name() }
}

/// The local authorities of a plan, kept with it.
struct LocalRoots(Vec<(String, Option<PathBuf>)>);

/// Lists the local authorities of a plan: the issuer's name, and the file of its certificate if it is stored.
pub fn local_roots(plan: &HttpPlan) -> Vec<(String, Option<PathBuf>)> {
    plan.ext::<LocalRoots>().map(|roots| roots.0.clone()).unwrap_or_default()
}

/// Loads or creates a local authority in a folder, and returns the file of its certificate. `Ok(Err)`: it cannot be stored.
///
/// # Errors
/// The reason why the stored authority is unusable, with a remedy.
pub fn local_root(folder: &Path) -> Result<Result<PathBuf, String>, String> {
    let folder = state::Folder(folder.to_path_buf());
    folder.stored_authority()?;
    base::clock::update();
    Ok(folder.authority(base::clock::unix_seconds()).map(|_| folder.authority_file()))
}

fn with_certificates(plan: &HttpPlan) -> Vec<(Arc<Certificate>, Listed)> {
    let mut all: Vec<(Arc<Certificate>, Listed)> = Vec::new();
    let servers = plan.servers.iter().filter_map(|server| plan.locations.get(server.location)?.ext::<Ordered>());
    for ordered in servers.chain(angie::orders(plan)) {
        if let Some((_, known)) = all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &ordered.certificate)) {
            known.places.push(ordered.place.clone());
            continue;
        }
        let Some(issuer) = ordered.issuers.first() else { continue };
        let listed = Listed {
            issuer: issuer.name.clone(),
            uri: issuer.source.to_string(),
            challenge: challenge(issuer),
            identifiers: ordered.identifiers.iter().map(ToString::to_string).collect(),
            places: vec![ordered.place.clone()],
            folder: issuer.state_path.clone().map(state::Folder),
            stem: state::stem(&ordered.identifiers, ordered.key),
        };
        all.push((ordered.certificate.clone(), listed));
    }
    all
}

/// Asks for orders of the certificates with a name.
fn renewals(plan: &HttpPlan, name: &str) -> Vec<(Vec<String>, std::io::Result<()>)> {
    let name = name.to_ascii_lowercase();
    let wanted = listed(plan).into_iter().filter(|one| one.identifiers.contains(&name));
    wanted.map(|one| (one.identifiers.clone(), one.renew())).collect()
}

/// Lists the states of the certificates of a plan.
fn states(plan: &HttpPlan) -> Vec<AcmeState> {
    let state = |(certificate, listed): (Arc<Certificate>, Listed)| {
        let status = listed.status().unwrap_or_default();
        let text = |name: &str| status.get(name).and_then(serde_json::Value::as_str).map(str::to_string);
        AcmeState {
            state: text("state").unwrap_or_else(|| "no order yet".into()),
            last_error: text("error"),
            next_order: status.get("next_order").and_then(serde_json::Value::as_i64),
            leaf: certificate.leaf(),
            names: listed.identifiers,
            issuer: listed.issuer,
            challenge: listed.challenge,
            places: listed.places,
        }
    };
    with_certificates(plan).into_iter().map(state).collect()
}

/// The feature.
pub struct Acme;

impl Feature for Acme {
    fn table(&self) -> Table {
        AcmeConf::table("acme", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan_order(&self) -> PlanOrder {
        PlanOrder::Around
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        let issuers = http.cx.get::<Issuers>().all();
        let clients = clients(conf, http)?;
        if issuers.is_empty() && clients.0.is_empty() {
            return Ok(());
        }
        *http.cx.get::<Clients>() = clients.clone();
        http.extensions.push(Arc::new(clients));
        let roots = issuers.iter().filter(|issuer| issuer.is_local()).map(|issuer| {
            let folder = issuer.state_path.clone().map(state::Folder);
            (issuer.name.clone(), folder.map(|folder| folder.authority_file()))
        });
        http.extensions.push(Arc::new(LocalRoots(roots.collect())));
        for issuer in issuers {
            http.cx.get::<Issuers>().chain(&issuer.name)?;
            if let Some(path) = &issuer.state_path {
                http.folders.push(http_engine::plan::Folder { path: path.clone(), needed: true });
            }
        }
        http.extensions.push(Arc::new(HandshakeHook(Arc::new(challenges::handshake))));
        http.background.push(Arc::new(engine::Engine));
        http.extensions.push(Arc::new(AcmeStates(states)));
        http.extensions.push(Arc::new(AcmeRenewals(renewals)));
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if block.context != Contexts::server {
            return Ok(());
        }
        // An authority may connect to any server.
        if !block.cx.get::<Issuers>().all().is_empty() || !block.cx.get::<Clients>().0.is_empty() {
            block.handle(HandlerOrder::ServerChallenge, Arc::new(challenges::Answer));
        }
        let Some(conf) = conf.downcast_ref::<AcmeConf>() else { return Ok(()) };
        for angie::Named(name) in conf.acme.iter().flat_map(|names| &names.0) {
            let lower = name.to_ascii_lowercase();
            let client = block.cx.get::<Clients>().0.iter().find(|client| client.name == lower).cloned();
            let Some(client) = client else { return Err(Problem::says(format!("unknown ACME client \"{name}\""))) };
            let resolving = block.location.extensions.iter().find_map(|state| state.downcast_ref::<Resolving>());
            let Some(resolving) = resolving.cloned() else {
                let text = format!("\"resolver\" is not configured, which ACME client \"{name}\" needs");
                return Err(Problem::says(text));
            };
            client.add(block.server_names, resolving)?;
        }
        if let Some(line) = &conf.acme_certificate {
            let (issuers, resolving) = issuers_of(block, &line.issuer)?;
            let ordered = line.bind(issuers, resolving, block.server_names)?;
            if let Some(first) = ordered.identifiers.first() {
                let certificate = ordered.certificate.clone();
                let validity = move || certificate.leaf().map(|leaf| (leaf.not_before, leaf.not_after));
                Inventory::of(block.cx).add_certificate(&first.to_string(), Arc::new(validity));
            }
            block.location.extensions.push(Arc::new(ordered));
        }
        if let Some(line) = &conf.acme_on_demand {
            let (issuers, resolving) = issuers_of(block, &line.issuer)?;
            let demand = line.bind(issuers, resolving);
            if let Some(path) = demand.folder() {
                block.folders.push(http_engine::plan::Folder { path, needed: true });
            }
            if !std::mem::replace(&mut block.cx.get::<Issuers>().on_demand, true) {
                block.extensions.push(Arc::new(CertificateHook(Arc::new(demand::handshake))));
            }
            block.location.extensions.push(Arc::new(Arc::new(demand)));
        }
        Ok(())
    }
}

/// Makes the clients of Angie's directives, and their folders.
fn clients(conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<Clients, Problem> {
    let Some(conf) = conf.downcast_ref::<AcmeConf>() else { return Ok(Clients::default()) };
    let path = conf.acme_client_path.as_ref().map(|path| path.0.clone());
    let path = path.unwrap_or_else(|| http.cx.full_name("acme"));
    let mut clients = Clients::default();
    for line in conf.acme_client.iter().flat_map(|lines| &lines.0) {
        if clients.0.is_empty() {
            http.folders.push(http_engine::plan::Folder { path: path.clone(), needed: true });
        }
        let client = line.client(http.cx, &path)?;
        if let Some(path) = client.folder() {
            http.folders.push(http_engine::plan::Folder { path: path.to_path_buf(), needed: true });
        }
        clients.0.push(Arc::new(client));
    }
    Ok(clients)
}

/// Returns an issuer with those that are tried after it, and their resolver.
fn issuers_of(block: &mut BlockPlan<'_>, name: &str) -> Result<(Vec<Arc<Issuer>>, Option<Resolving>), Problem> {
    let issuers = block.cx.get::<Issuers>().chain(name)?;
    let resolving = block.location.extensions.iter().find_map(|state| state.downcast_ref::<Resolving>()).cloned();
    match issuers.iter().find(|issuer| !issuer.is_local()) {
        Some(issuer) if resolving.is_none() => {
            let text = format!("\"resolver\" is not configured, which acme issuer \"{}\" needs", issuer.name);
            Err(Problem::says(text))
        }
        _ => Ok((issuers, resolving)),
    }
}
