//! Certificates that servers show, and the state of their orders by ACME: for the dashboard and for `/tidegate/1/certificates`.

use conf_schema::At;
use http_engine::HttpPlan;
use http_engine::acme_state::{AcmeState, AcmeStates};
use serde_json::{Value, json};
use std::path::PathBuf;
use tls::x509::{Certificate, name};

pub const DAY: i64 = 86_400;

/// As `file:line`.
pub fn place_of(at: At, files: &[PathBuf]) -> String {
    let file = files.get(at.span.file.0 as usize).filter(|_| at.line > 0);
    file.map(|file| format!("{}:{}", file.display(), at.line)).unwrap_or_default()
}

pub struct CertificateEntry {
    pub names: Vec<String>,
    pub leaf: Option<Certificate>,
    pub places: Vec<String>,
    pub acme: Option<AcmeState>,
}

/// Lists the certificates of a plan, each once. Blocks: states of orders are files.
pub fn list_certificates(plan: &HttpPlan, files: &[PathBuf]) -> Vec<CertificateEntry> {
    let mut all: Vec<CertificateEntry> = Vec::new();
    for server in &plan.servers {
        let rules = server.tls.as_ref().and_then(|tls| tls.rules.as_ref());
        let place = place_of(plan.loc(server.location).at, files);
        let Some(set) = rules.map(|rules| rules.certificates()) else { continue };
        for leaf in set.pairs().iter().filter_map(|pair| pair.leaf()) {
            let same =
                |shown: &&mut CertificateEntry| shown.leaf.as_ref().is_some_and(|known| known.der() == leaf.der());
            match all.iter_mut().find(same) {
                Some(shown) => shown.places.push(place.clone()),
                None => all.push(CertificateEntry {
                    names: leaf.names(),
                    leaf: Some(leaf.clone()),
                    places: vec![place.clone()],
                    acme: None,
                }),
            }
        }
    }
    let ordered = plan.ext::<AcmeStates>().map(|states| (states.0)(plan)).unwrap_or_default();
    all.extend(ordered.into_iter().map(|state| CertificateEntry {
        names: state.names.clone(),
        leaf: state.leaf.as_deref().cloned(),
        places: state.places.clone(),
        acme: Some(state),
    }));
    all
}

impl CertificateEntry {
    /// As `tidegate certificates --json`; `now` in seconds since 1970.
    pub fn json(&self, now: i64) -> Value {
        let leaf = self.leaf.as_ref();
        let acme = self.acme.as_ref().map(|acme| {
            json!({
                "issuer": acme.issuer, "uri": acme.uri, "challenge": acme.challenge, "state": acme.state,
                "failures": acme.failures, "last_error": acme.last_error, "last_error_at": acme.last_error_at,
                "next_order_at": acme.next_order, "served_by": acme.served_by,
            })
        });
        json!({
            "names": self.names,
            "issuer": leaf.map(|leaf| name::format_rfc2253(leaf.issuer())),
            "serial": leaf.map(Certificate::serial_hex),
            "not_before": leaf.map(|leaf| leaf.not_before),
            "not_after": leaf.map(|leaf| leaf.not_after),
            "days_left": leaf.map(|leaf| (leaf.not_after - now).div_euclid(DAY)),
            "configured": self.places,
            "acme": acme,
        })
    }
}
