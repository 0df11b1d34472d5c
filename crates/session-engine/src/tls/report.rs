//! What is said of certificates when the configuration is read: that they have ended, or soon will. `tidegate doctor` says more.

use super::ServerTls;
use crate::Session;
use crate::names::ServerName;
use conf_schema::{Complaint, Cx, Level};
use tls::review::review;

/// Warnings about the certificates of a server.
pub fn certificates<S: Session>(tls: &ServerTls<S>, cx: &mut Cx) {
    let Some(rules) = &tls.rules else { return };
    let now = base::clock::unix_seconds();
    for pair in rules.certificates().pairs() {
        for concern in review(pair, &[], now).iter().filter(|c| c.is_of_time()) {
            let complaint = Complaint { level: Level::Warn, ..Complaint::emerg(concern.to_string()) };
            if !cx.warnings.contains(&complaint) {
                cx.warnings.push(complaint);
            }
        }
    }
}

/// The names of a server that can stand in a certificate.
pub fn hosts<S: Session>(names: &[ServerName<S>]) -> Vec<String> {
    let exact = names.iter().filter_map(|name| match name {
        ServerName::Exact(host) if host.contains(&b'.') => Some(String::from_utf8_lossy(host).into_owned()),
        _ => None,
    });
    exact.collect()
}
