//! The feature acme (nginx: `ngx_http_acme_module`): its directives and variables, and lists of certificates.

use crate::certificates::Certificate;
use crate::client::{Client, Clients};
use crate::issuer::{Issuer, IssuerBlocks, Issuers};
use crate::order::OrderedCertificate;
use crate::{angie, challenges, client, demand, engine, hook, order, responder, state};
use acme::ChallengeKind;
use area::listed::ListedObjects;
use conf_schema::value::{Own, Size, ValueList};
use conf_schema::{
    Complaint, ComplaintLevel, ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives,
};
use http_engine::acme_state::{AcmeRenewals, AcmeState, AcmeStates};
use http_engine::handler::CertificateHook;
use http_engine::own_socket::Datagrams;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpBuild, HttpPlan, PlanOrder, Request};
use http_upstream::resolving::{HttpResolver, ResolveRules};
use std::any::Any;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tls_directives::acme_clients::{AcmeClients, ClientName, HandshakeHook, ReferencedClients};

directives! {
    pub struct AcmeConf from AcmeInput {
        /// Defines an ACME server and an account there: `uri`, `account_key`, `challenge`, `contact`, `dns_hook`,
        /// `dns_propagation`, `dns_update`, `external_account_key`, `preferred_chain`, `profile`, `common_name_in_csr`,
        /// `ssl_trusted_certificate`, `ssl_verify`, `state_path`, `accept_terms_of_service`, `sync` (an extension of Tidegate). `fallback`: issuers to
        /// try, in this order, if this one fails. `local_authority`, instead of `uri`: an authority of this machine for
        /// local names, whose certificate is `local-authority.crt` in `state_path`.
        acme_issuer: IssuerBlocks,
        /// Size of a zone for certificates, keys and challenges.
        /// No effect: Tidegate stores certificates, keys and challenges in process memory.
        acme_shared_zone: ZoneLine,
        /// Orders and renews a certificate for the server's names, or for these identifiers. `$acme_certificate` and
        /// `$acme_certificate_key` are its values for `ssl_certificate` and `ssl_certificate_key`.
        acme_certificate: order::OrderLine,
        /// Orders certificates on demand, for names that clients send (SNI) and the configuration does not list. `ask`:
        /// URL that permits or refuses a name, requested with the argument `domain`; a status of 200 to 299 permits the
        /// name. `rate`: maximum rate of orders (default: `10r/m`). `max`: names in memory (default: 1000). The
        /// handshake waits for the certificate.
        acme_on_demand: demand::DemandLine,
        /// Defines a client of an ACME server, with one certificate for the names of all servers with `acme NAME`:
        /// `$acme_cert_NAME` and `$acme_cert_key_NAME`. Keys and certificates are in `acme_client_path/NAME`; the file
        /// of `account_key` is created if it does not exist. `ssl_trusted_certificate=` (an extension of Tidegate)
        /// replaces the system's authorities. Differs: `max_cert_size` and `max_key_auth_size` have no effect, as
        /// certificates have no shared zone.
        acme_client: ValueList<angie::ClientLine>,
        /// Adds the server's names to the certificate of an `acme_client`. Names that it cannot have are skipped with a
        /// warning: regular expressions, and wildcards without `challenge=dns`.
        acme: ValueList<ClientName>,
        /// Directory that contains one directory per `acme_client` (default: `acme` in the prefix).
        acme_client_path: ClientPath,
        /// UDP socket for DNS queries about `_acme-challenge` names, for clients with `challenge=dns` and no
        /// `acme_hook` (default: port 53 on all IPv4 addresses). If a server of the stream block listens on this port, its socket is shared, and other datagrams
        /// go to that server.
        acme_dns_port: angie::SocketLine<53>,
        /// Time to live of the DNS responses, in seconds.
        acme_dns_ttl: angie::Ttl = "1",
        /// Requests the location before (`add`) and after (`remove`) each challenge of an `acme_client`; the variables
        /// `$acme_hook_...` describe it. A status other than 200 to 299 fails the order. `uri`: the request's URI
        /// (default: `/`).
        acme_hook: Own<ValueList<hook::HookLine>>,
        /// Socket for http-01 challenges (default: port 80 on all IPv4 addresses), opened if no server listens on the
        /// port. It serves nothing else.
        acme_http_port: angie::SocketLine<80>,
        /// Maximum size of a response of the authorities of `acme_client`.
        acme_max_response_size: Size = "32k",
    }
}

/// `acme_client_path path`
#[derive(Clone)]
pub struct ClientPath(PathBuf);

impl ValueKind for ClientPath {
    const SYNTAX: &'static str = "path";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let path = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        Ok(ClientPath(cx.full_name(&path)))
    }
}

/// `acme_shared_zone zone=name:size`
#[derive(Clone)]
pub struct ZoneLine;

impl ValueKind for ZoneLine {
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
    Builtin::one("acme_hook_client", hook::write_client, "The client of an `acme_hook` request."),
    Builtin::one("acme_hook_name", hook::write_action, "The event of an `acme_hook` request: `add` or `remove`."),
    Builtin::one(
        "acme_hook_challenge",
        hook::write_challenge,
        "The challenge of an `acme_hook` request: `http`, `dns` or `alpn`.",
    ),
    Builtin::one("acme_hook_domain", hook::write_domain, "The name that an `acme_hook` request proves."),
    Builtin::one("acme_hook_token", hook::write_token, "The token of the challenge."),
    Builtin::one(
        "acme_hook_keyauth",
        hook::write_authorization,
        "The key authorization of the challenge: the content of the file (http), the text of the TXT record (dns).",
    ),
    Builtin::one(
        "acme_certificate",
        |r, out| value(r, out, |c| c.chain()),
        "The server's ACME certificate with its chain.",
    ),
    Builtin::family(
        "acme_cert_",
        client::write_value,
        "The certificate of the `acme_client` NAME with its chain; `$acme_cert_key_NAME` is the certificate's private key.",
    ),
    Builtin::one("acme_certificate_key", |r, out| value(r, out, |c| c.key()), "The key of `$acme_certificate`."),
];

/// Writes a part of the server's certificate; `false` without one.
fn value(r: &mut Request, out: &mut Vec<u8>, part: fn(&Certificate) -> Option<Arc<[u8]>>) -> bool {
    let plan = r.plan();
    let location = plan.locations.get(r.srv().location);
    let Some(text) =
        location.and_then(|l| l.ext::<OrderedCertificate>()).and_then(|ordered| part(&ordered.certificate))
    else {
        return false;
    };
    out.extend_from_slice(&text);
    true
}

/// An `acme_certificate` of a configuration, for commands that show or renew it.
pub struct ListedCertificate {
    pub issuer: String,
    pub uri: String,
    pub challenge: &'static str,
    pub identifiers: Vec<String>,
    /// `FILE:LINE` of the directives, the first one's first.
    pub places: Vec<String>,
    folder: Option<state::IssuerFolder>,
    stem: String,
    /// Of an `acme_client`.
    is_client: bool,
}

impl ListedCertificate {
    /// Returns the certificate's file; `None` with `state_path off`. Of a client of Angie whose folder was Angie's,
    /// that one's file.
    pub fn file(&self) -> Option<PathBuf> {
        let folder = self.folder.as_ref()?;
        let own = folder.0.join(format!("{}.crt", self.stem));
        if own.exists() || !self.is_client {
            return Some(own);
        }
        let leaf = folder
            .foreign()
            .and_then(|found| tls::certs::parse_certificates(found.chain.as_bytes()).ok()?.into_iter().next());
        let is_for = |leaf: &tls::x509::Certificate| {
            let mut names = self.identifiers.iter().filter_map(|name| ::acme::Identifier::parse(name));
            names.all(|name| ::acme::is_for(leaf, &name))
        };
        Some(if leaf.as_ref().is_some_and(is_for) { folder.foreign_file() } else { own })
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
pub fn list_certificates(plan: &HttpPlan) -> Vec<ListedCertificate> {
    let mut all: Vec<ListedCertificate> = with_certificates(plan).into_iter().map(|(_, listed)| listed).collect();
    for demand in engine::plan_demands(plan) {
        let (Some(issuer), Some(path)) = (demand.issuers.first(), demand.folder()) else { continue };
        let folder = state::IssuerFolder(path);
        all.extend(folder.stems().into_iter().map(|stem| ListedCertificate {
            issuer: issuer.name.clone(),
            uri: issuer.source.to_string(),
            challenge: challenge(issuer),
            identifiers: stem.rsplit_once('-').map(|(name, _)| name.to_string()).into_iter().collect(),
            places: vec![demand.place.clone()],
            folder: Some(folder.clone()),
            stem,
            is_client: false,
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

/// Loads or creates a local authority in a folder, and returns the file of its certificate. `Ok(Err)`: it cannot be
/// stored.
///
/// # Errors
/// The reason why the stored authority is unusable, with a remedy.
pub fn local_root(folder: &Path) -> Result<Result<PathBuf, String>, String> {
    let folder = state::IssuerFolder(folder.to_path_buf());
    folder.stored_authority()?;
    base::clock::update();
    Ok(folder.authority(base::clock::unix_seconds()).map(|_| folder.authority_file()))
}

fn with_certificates(plan: &HttpPlan) -> Vec<(Arc<Certificate>, ListedCertificate)> {
    let mut all: Vec<(Arc<Certificate>, ListedCertificate)> = Vec::new();
    let servers =
        plan.servers.iter().filter_map(|server| plan.locations.get(server.location)?.ext::<OrderedCertificate>());
    for ordered in servers.chain(client::client_orders(plan)) {
        if let Some((_, known)) = all.iter_mut().find(|(known, _)| Arc::ptr_eq(known, &ordered.certificate)) {
            known.places.push(ordered.place.clone());
            continue;
        }
        let Some(issuer) = ordered.issuers.first() else { continue };
        let listed = ListedCertificate {
            issuer: issuer.name.clone(),
            uri: issuer.source.to_string(),
            challenge: challenge(issuer),
            identifiers: ordered.identifiers.iter().map(ToString::to_string).collect(),
            places: vec![ordered.place.clone()],
            folder: issuer.state_path.clone().map(state::IssuerFolder),
            stem: state::file_stem(&ordered.identifiers, ordered.key),
            is_client: issuer.timing.is_some(),
        };
        all.push((ordered.certificate.clone(), listed));
    }
    all
}

/// Asks for orders of the certificates with a name.
fn renewals(plan: &HttpPlan, name: &str) -> Vec<(Vec<String>, std::io::Result<()>)> {
    let name = name.to_ascii_lowercase();
    let wanted = list_certificates(plan).into_iter().filter(|one| one.identifiers.contains(&name));
    wanted.map(|one| (one.identifiers.clone(), one.renew())).collect()
}

/// Lists the states of the certificates of a plan.
fn states(plan: &HttpPlan) -> Vec<AcmeState> {
    let state = |(certificate, listed): (Arc<Certificate>, ListedCertificate)| {
        let own = certificate.status().and_then(|text| serde_json::from_str(&text).ok());
        let status: serde_json::Value = own.or_else(|| listed.status()).unwrap_or_default();
        let text = |name: &str| status.get(name).and_then(serde_json::Value::as_str).map(str::to_string);
        let number = |name: &str| status.get(name).and_then(serde_json::Value::as_i64);
        AcmeState {
            state: text("state").unwrap_or_else(|| "no order yet".into()),
            last_error: text("error"),
            last_error_at: number("error_at"),
            failures: number("failures").unwrap_or(0),
            served_by: text("served_by"),
            uri: listed.uri,
            next_order: number("next_order"),
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
    fn table(&self) -> FeatureTable {
        AcmeConf::table("acme", ContextArea::Http)
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
        *http.cx.get::<AcmeClients>() = clients.shared();
        http.extensions.push(Arc::new(clients.shared()));
        http.extensions.push(Arc::new(clients));
        let roots = issuers.iter().filter(|issuer| issuer.is_local()).map(|issuer| {
            let folder = issuer.state_path.clone().map(state::IssuerFolder);
            (issuer.name.clone(), folder.map(|folder| folder.authority_file()))
        });
        http.extensions.push(Arc::new(LocalRoots(roots.collect())));
        for issuer in issuers {
            http.cx.get::<Issuers>().chain(&issuer.name)?;
            if let Some(path) = &issuer.state_path {
                http.folders.push(http_engine::plan::Folder { path: path.clone(), needed: true, is_state: true });
            }
        }
        let validations = HandshakeHook(Arc::new(challenges::choose_challenge));
        *http.cx.get::<Option<HandshakeHook>>() = Some(validations.clone());
        http.extensions.push(Arc::new(validations));
        http.extensions.push(Arc::new(engine::SharedIssuers(http.cx.get::<Issuers>().all())));
        http.background.push(Arc::new(engine::Engine));
        http.extensions.push(Arc::new(AcmeStates(states)));
        http.extensions.push(Arc::new(AcmeRenewals(renewals)));
        Ok(())
    }
    fn after_servers(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        sockets(conf, http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        if block.context == Contexts::location {
            return hooks(conf, block);
        }
        if block.context != Contexts::server {
            return Ok(());
        }
        // An authority may connect to any server.
        if !block.cx.get::<Issuers>().all().is_empty() || !block.cx.get::<Clients>().0.is_empty() {
            block.handle(HandlerOrder::ServerChallenge, Arc::new(challenges::TokenHandler));
        }
        let Some(conf) = conf.downcast_ref::<AcmeConf>() else { return Ok(()) };
        if let Some(lines) = &conf.acme {
            let names: Vec<Vec<u8>> = block.server_names.iter().map(|name| name.configured()).collect();
            let resolving = block.location.extensions.iter().find_map(|state| state.downcast_ref::<ResolveRules>());
            let resolving = resolving.cloned();
            AcmeClients::add(block.cx, &lines.0, &names, resolving).map_err(|problem| problem.of("acme"))?;
        }
        if let Some(line) = &conf.acme_certificate {
            let (issuers, resolving) = issuers_of(block, &line.issuer)?;
            let ordered = line.bind(issuers, resolving, block.server_names)?;
            if let Some(first) = ordered.identifiers.first() {
                let certificate = ordered.certificate.clone();
                let validity = move || certificate.leaf().map(|leaf| (leaf.not_before, leaf.not_after));
                ListedObjects::of(block.cx).add_certificate(&first.to_string(), Arc::new(validity));
            }
            block.location.extensions.push(Arc::new(ordered));
        }
        if let Some(line) = &conf.acme_on_demand {
            let (issuers, resolving) = issuers_of(block, &line.issuer)?;
            let demand = line.bind(issuers, resolving);
            if let Some(path) = demand.folder() {
                block.folders.push(http_engine::plan::Folder { path, needed: true, is_state: true });
            }
            if !std::mem::replace(&mut block.cx.get::<Issuers>().on_demand, true) {
                block.extensions.push(Arc::new(CertificateHook(Arc::new(demand::decide_handshake))));
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
    let bytes = usize::try_from(conf.acme_max_response_size.0).unwrap_or(usize::MAX);
    let mut clients = Clients::default();
    for line in conf.acme_client.iter().flat_map(|lines| &lines.0) {
        if clients.0.is_empty() {
            http.folders.push(http_engine::plan::Folder { path: path.clone(), needed: true, is_state: true });
        }
        if !http.cx.get::<ReferencedClients>().0.contains(&line.name) {
            let text = format!("ACME client \"{}\" is defined but not used", line.name);
            http.cx.warnings.push(Complaint { level: ComplaintLevel::Warn, text, span: None, line: 0, hint: None });
        }
        let client = Client::new(line, http.cx, &path, bytes)?;
        if let Some(path) = client.folder() {
            http.folders.push(http_engine::plan::Folder { path: path.to_path_buf(), needed: true, is_state: true });
        }
        clients.0.push(Arc::new(client));
    }
    // It may be in the folder of another client, which is created with it.
    for file in conf.acme_client.iter().flat_map(|lines| &lines.0).filter_map(|line| line.new_file.clone()) {
        let folder = file.path.parent().unwrap_or(Path::new("/"));
        let is_made = clients.0.iter().any(|client| client.folder() == Some(folder));
        if !is_made && !http.cx.store.elsewhere && !folder.is_dir() {
            let (path, folder) = (file.path.display(), folder.display());
            return Err(Problem::says(format!(
                "cannot create account key \"{path}\": there is no folder \"{folder}\""
            )));
        }
        http.new_files.push(file);
    }
    Ok(clients)
}

/// Clients that have a hook, in `Cx`.
#[derive(Default)]
struct HookedClient(Vec<String>);

/// Adds the hooks of a location.
fn hooks(conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
    let lines = conf.downcast_ref::<AcmeConf>().and_then(|conf| conf.acme_hook.as_ref());
    let Some(Own(ValueList(lines))) = lines else { return Ok(()) };
    for line in lines {
        if block.cx.get::<Clients>().find(&line.client).is_none() {
            return Err(AcmeClients::undefined(&line.client).of("acme_hook"));
        }
        let hooked = &mut block.cx.get::<HookedClient>().0;
        if hooked.contains(&line.client) {
            return Err(hook::duplicate_hook(&line.client).of("acme_hook"));
        }
        hooked.push(line.client.clone());
        let answers = block.location.content.is_some()
            || block.location.drafts.iter().any(|(order, _)| *order == HandlerOrder::Script);
        if !answers {
            let client = &line.client;
            let text = format!(
                "no request handler configured in the \"location\" block with ACME hook for client \"{client}\""
            );
            return Err(Problem::says(text)
                .hint("write \"fastcgi_pass\", \"proxy_pass\" or the like there")
                .of("acme_hook"));
        }
    }
    block.location.extensions.push(Arc::new(hook::Hooks(lines.clone())));
    Ok(())
}

/// Opens the sockets for challenges that no hook answers.
fn sockets(conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
    let Some(conf) = conf.downcast_ref::<AcmeConf>() else { return Ok(()) };
    let clients = http.cx.get::<Clients>().clone();
    let hooked = std::mem::take(&mut http.cx.get::<HookedClient>().0);
    let used = std::mem::take(&mut http.cx.get::<ReferencedClients>().0);
    // For servers of other areas.
    let resolving = http.cx.get::<HttpResolver>().resolving.clone();
    clients.0.iter().for_each(|client| client.use_resolver(resolving.clone()));
    let needs = |kind: ChallengeKind| {
        let open = |one: &&Arc<Client>| one.is_enabled() && used.contains(&one.name) && !hooked.contains(&one.name);
        clients.0.iter().filter(open).any(|one| one.challenge() == kind)
    };
    if needs(ChallengeKind::Http01) {
        http.sockets.push(angie::SocketLine::socket(conf.acme_http_port.as_ref()));
    }
    if needs(ChallengeKind::Dns01) {
        let socket = angie::SocketLine::socket(conf.acme_dns_port.as_ref());
        let ttl = conf.acme_dns_ttl.0;
        let answer = move |packet: &[u8], out: &mut Vec<u8>| {
            responder::respond_own(packet, |name| clients.prove_by_dns(name), ttl, out)
        };
        http.datagrams.push(Datagrams::new(socket, Arc::new(answer), Arc::new(responder::refuse_query)));
    }
    Ok(())
}

/// Returns an issuer with those that are tried after it, and their resolver.
fn issuers_of(block: &mut BlockPlan<'_>, name: &str) -> Result<(Vec<Arc<Issuer>>, Option<ResolveRules>), Problem> {
    let issuers = block.cx.get::<Issuers>().chain(name)?;
    let resolving = block.location.extensions.iter().find_map(|state| state.downcast_ref::<ResolveRules>()).cloned();
    match issuers.iter().find(|issuer| !issuer.is_local()) {
        Some(issuer) if resolving.is_none() => {
            let text = format!("\"resolver\" is not configured, which acme issuer \"{}\" needs", issuer.name);
            Err(Problem::says(text))
        }
        _ => Ok((issuers, resolving)),
    }
}
