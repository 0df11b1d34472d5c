//! `acme_certificate`: the certificate of a server.

use super::certificates::{self, Certificate};
use super::issuer::Issuer;
use acme::{Algorithm, ChallengeKind, Identifier, LocalAuthority};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::HttpArea;
use resolver::ResolveRules;
use std::sync::Arc;
use variables::names::ServerName;

/// Identifiers of one certificate.
const IDENTIFIERS_MAX: usize = 100;

const LOCAL: &str =
    "names: localhost, and those below localhost, local, internal, home.arpa and test; private addresses";

/// The directive as written.
#[derive(Clone)]
pub struct OrderLine {
    pub issuer: String,
    /// `FILE:LINE` of the directive.
    place: String,
    identifiers: Vec<Identifier>,
    key: Algorithm,
}

/// A certificate that a server uses; kept with the server.
pub struct OrderedCertificate {
    /// In the order in which they are tried; the first one's folder has the certificate.
    pub issuers: Vec<Arc<Issuer>>,
    /// `None`: all issuers are local.
    pub resolving: Option<ResolveRules>,
    pub identifiers: Vec<Identifier>,
    pub key: Algorithm,
    /// `FILE:LINE` of the directive.
    pub place: String,
    pub certificate: Arc<Certificate>,
}

fn invalid(name: &str) -> Problem {
    Problem::says(format!("invalid server name or identifier \"{name}\": invalid server name"))
}

/// Adds a name; `.example.com` stands for the name itself and `www`.
pub(super) fn add(name: &str, all: &mut Vec<Identifier>) -> Result<(), Problem> {
    let names = match name.strip_prefix('.') {
        Some(rest) => vec![rest.to_string(), format!("www.{rest}")],
        None => vec![name.to_string()],
    };
    for one in names {
        let identifier = Identifier::parse(&one).ok_or_else(|| invalid(name))?;
        if !all.contains(&identifier) {
            all.push(identifier);
        }
    }
    Ok(())
}

/// Checks that an issuer can issue for an identifier.
fn check(identifier: &Identifier, issuer: &Issuer) -> Result<(), Problem> {
    let name = identifier.to_string();
    if issuer.is_local() {
        if LocalAuthority::permits(identifier) {
            return Ok(());
        }
        let text = format!("the local authority \"{}\" cannot issue for \"{name}\"", issuer.name);
        return Err(Problem::says(text).hint(LOCAL));
    }
    let is_dns = issuer.challenge == ChallengeKind::Dns01;
    match identifier {
        // An authority validates wildcards by DNS alone, and addresses never.
        Identifier::Dns(_) if name.starts_with('*') && !is_dns => {
            Err(invalid(&name).hint("wildcard names need \"challenge dns-01\""))
        }
        Identifier::Ip(_) if is_dns => {
            Err(Problem::says(format!("\"{name}\" is an address, which \"challenge dns-01\" cannot prove")))
        }
        _ => Ok(()),
    }
}

impl OrderedCertificate {
    /// Tells whether the certificate is for a server name.
    pub fn covers(&self, name: &str) -> bool {
        self.identifiers.iter().any(|identifier| match identifier {
            Identifier::Dns(own) => match own.strip_prefix("*.") {
                Some(parent) => name.split_once('.').is_some_and(|(label, rest)| !label.is_empty() && rest == parent),
                None => own == name,
            },
            Identifier::Ip(_) => false,
        })
    }
}

impl ValueKind for OrderLine {
    const SYNTAX: &'static str = "issuer [identifier ...] [key=alg[:size]]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let place = cx.place();
        let mut line = OrderLine { issuer: String::new(), place, identifiers: Vec::new(), key: Algorithm::default() };
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            match text.strip_prefix("key=") {
                _ if index == 0 => line.issuer = text.into_owned(),
                Some(key) => {
                    let key = Algorithm::parse(key).unwrap_or_else(|| Err(format!("unsupported key \"{key}\"")));
                    line.key = key.map_err(|why| Problem::says(why).at(index))?;
                }
                None => add(&text, &mut line.identifiers).map_err(|problem| problem.at(index))?,
            }
        }
        Ok(line)
    }
}

impl OrderLine {
    /// Joins the line with its issuers; without identifiers it takes the server's names.
    ///
    /// # Errors
    /// A name that no certificate can have; no name.
    pub fn bind(
        &self,
        issuers: Vec<Arc<Issuer>>,
        resolving: Option<ResolveRules>,
        names: &[ServerName<HttpArea>],
    ) -> Result<OrderedCertificate, Problem> {
        let mut identifiers = self.identifiers.clone();
        if identifiers.is_empty() {
            for name in names {
                let written = String::from_utf8_lossy(&name.written()).into_owned();
                match name {
                    ServerName::Exact(name) if name.is_empty() => {}
                    ServerName::Exact(_) | ServerName::Below(_) => add(&written, &mut identifiers)?,
                    _ if written.starts_with("*.") => add(&written, &mut identifiers)?,
                    _ => return Err(invalid(&written)),
                }
            }
        }
        if identifiers.is_empty() {
            return Err(Problem::says(format!(
                "no identifiers found for the certificate of issuer \"{}\"",
                self.issuer
            )));
        }
        for issuer in &issuers {
            identifiers.iter().try_for_each(|identifier| check(identifier, issuer))?;
        }
        if identifiers.len() > IDENTIFIERS_MAX {
            return Err(Problem::says(format!("more than {IDENTIFIERS_MAX} identifiers in a certificate")));
        }
        let certificate = certificates::order_certificate(&issuers, &identifiers, self.key);
        Ok(OrderedCertificate {
            issuers,
            resolving,
            identifiers,
            key: self.key,
            place: self.place.clone(),
            certificate,
        })
    }
}
