//! Certificates of the configuration: their time, their names, their chain.

use super::examine::{Finding, Verdict};
use crate::conf::Config;
use tls::review::{Concern, review};

/// Everything doubtful about the certificates that servers show. `now`: seconds since 1970.
pub fn examine(config: &Config, now: i64) -> Vec<Finding> {
    let mut out: Vec<Finding> = Vec::new();
    let http = config.http.iter().flat_map(|http| &http.servers).filter_map(|server| server.tls.as_ref());
    let http = http.map(|tls| (&tls.rules, &tls.names));
    let stream = config.stream.iter().flat_map(|stream| &stream.servers).filter_map(|server| server.tls.as_ref());
    let stream = stream.map(|tls| (&tls.rules.rules, &tls.rules.names));
    let mail = config.mail.iter().flat_map(|mail| &mail.servers).filter_map(|server| server.tls.as_ref());
    let mail = mail.map(|tls| (&tls.rules, &tls.names));
    for (rules, names) in http.chain(stream).chain(mail) {
        let Some(rules) = rules else { continue };
        for pair in rules.certificates().pairs() {
            for concern in review(pair, names, now) {
                let finding = finding(&concern);
                if !out.iter().any(|known| known.why == finding.why) {
                    out.push(finding);
                }
            }
        }
    }
    out
}

fn finding(concern: &Concern) -> Finding {
    let (here, needed, remedy) = match concern {
        Concern::Expired { .. } => ("expired", "valid", "renew it, and reload"),
        Concern::NotYetValid { .. } => {
            ("not valid yet", "valid", "look at this machine's clock, or at the certificate")
        }
        Concern::EndsSoon { .. } => ("ends soon", "valid", "renew it, and reload"),
        Concern::OtherNames { .. } => {
            ("other names", "server_name", "get one for these names too, or correct server_name")
        }
        Concern::Alone { .. } => {
            ("alone", "its chain", "append the certificates of its authorities to the file, without the root")
        }
        Concern::Disordered { .. } => {
            ("out of order", "leaf first", "put each certificate before the one of its issuer")
        }
    };
    Finding {
        name: "certificate",
        here: here.into(),
        needed: needed.into(),
        verdict: if concern.is_fatal() { Verdict::Short } else { Verdict::Note },
        connections: None,
        why: concern.to_string(),
        remedy: remedy.into(),
    }
}
