//! Angie's ACME clients (`acme_client`) as all areas see them: the http area defines them, servers of any area add their names and use
//! the certificates.

use conf_schema::{Cx, Directive, Problem, ValueKind};
use resolver::ResolveRules;
use std::collections::BTreeSet;
use std::sync::Arc;
use tls::{Choice, ClientHello};

/// Chooses the rules of handshakes that concern no server, such as validations by tls-alpn-01. The http area makes it, in `Cx` and with its
/// plan; the stream area keeps it with its own.
#[derive(Clone)]
pub struct HandshakeHook(pub Arc<dyn Fn(&ClientHello) -> Option<Choice> + Send + Sync>);

/// Start of the names of variables that have a placeholder before the first certificate.
pub const PLACEHOLDER: &str = "placeholder_";

/// A client with its certificate.
pub trait AcmeClient: Send + Sync {
    /// In lower case.
    fn name(&self) -> &str;
    /// Adds the names of a server, as written, and the server's resolver.
    ///
    /// # Errors
    /// None of the names can be in a certificate.
    fn add_names(&self, cx: &mut Cx, names: &[Vec<u8>], resolving: Option<ResolveRules>) -> Result<(), Problem>;
    /// Returns the certificate with its chain, or its key, as `ssl_certificate` takes them. `placeholder`: before the first certificate, a
    /// self-signed one.
    fn value(&self, key: bool, placeholder: bool) -> Option<Arc<[u8]>>;
}

/// `acme` as written.
#[derive(Clone)]
pub struct ClientName(pub String);

/// Clients that a server of any area uses, in lower case; complete before any plan is built.
#[derive(Default)]
pub struct ReferencedClients(pub BTreeSet<String>);

impl ValueKind for ClientName {
    const SYNTAX: &'static str = "name";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        cx.get::<ReferencedClients>().0.insert(name.to_ascii_lowercase());
        Ok(ClientName(name))
    }
}

/// The clients of a configuration, in `Cx` while it is read, and with the plans.
#[derive(Clone, Default)]
pub struct AcmeClients(pub Vec<Arc<dyn AcmeClient>>);

impl AcmeClients {
    /// Adds the names of a server with `acme` lines.
    ///
    /// # Errors
    /// A client is not defined or named twice; none of the names can be in a certificate.
    pub fn add(
        cx: &mut Cx,
        lines: &[ClientName],
        names: &[Vec<u8>],
        resolving: Option<ResolveRules>,
    ) -> Result<(), Problem> {
        for (at, ClientName(name)) in lines.iter().enumerate() {
            let lower = name.to_ascii_lowercase();
            if lines.iter().take(at).any(|earlier| earlier.0.eq_ignore_ascii_case(name)) {
                return Err(Problem::says(format!("duplicate \"acme {name}\" directive")));
            }
            let client = cx.get::<AcmeClients>().0.iter().find(|client| client.name() == lower).cloned();
            let Some(client) = client else { return Err(AcmeClients::undefined(name)) };
            client.add_names(cx, names, resolving.clone())?;
        }
        Ok(())
    }
    pub fn undefined(name: &str) -> Problem {
        let text = format!("ACME client \"{name}\" is not defined but referenced");
        Problem::says(text).hint("write \"acme_client\" with this name in the http block")
    }
    /// Writes the variable `acme_cert_NAME` or `acme_cert_key_NAME`; `name` follows `acme_cert_`, and may begin with [`PLACEHOLDER`]. Empty
    /// before the first certificate, as in Angie: a `map` can name another one.
    pub fn write(&self, name: &str, out: &mut Vec<u8>) -> bool {
        let name = name.to_ascii_lowercase();
        let find = |name: &str| self.0.iter().find(|client| client.name() == name);
        let value = |name: &str, placeholder: bool| {
            let key = || Some((find(name.strip_prefix("key_")?)?, true));
            let (client, key) = find(name).map(|client| (client, false)).or_else(key)?;
            client.value(key, placeholder)
        };
        let placeholder = || value(name.strip_prefix(PLACEHOLDER)?, true);
        let Some(text) = value(&name, false).or_else(placeholder) else { return false };
        out.extend_from_slice(&text);
        true
    }
}
