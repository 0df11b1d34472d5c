//! What `-t` says of certificates that load: that they have ended or soon will, or are for other names.

use conf_schema::{Complaint, Cx, Level};
use http_engine::tls::ServerTls;
use http_engine::values::ServerName;
use tls::verify::matches_host;
use tls::x509::{Certificate, time};

/// Days before its end in which a certificate is spoken of.
const SOON_DAYS: i64 = 7;

/// Warnings about the certificates of a server.
pub(super) fn certificates(tls: &ServerTls, names: &[ServerName], cx: &mut Cx) {
    let now = base::clock::unix_seconds();
    let Some(rules) = &tls.rules else { return };
    let set = rules.certificates();
    for leaf in set.pairs().iter().filter_map(|p| p.leaf()) {
        if let Some(text) = ending(leaf, now) {
            let complaint = Complaint { level: Level::Warn, ..Complaint::emerg(text) };
            if !cx.warnings.contains(&complaint) {
                cx.warnings.push(complaint);
            }
        }
        let _ = names;
    }
}

/// Its name in messages.
fn shown(leaf: &Certificate) -> String {
    tls::x509::name::rfc2253(leaf.subject())
}

fn ending(leaf: &Certificate, now: i64) -> Option<String> {
    let days = (leaf.not_after - now) / 86_400;
    // One that lives for days only is made anew every few of them.
    let life = (leaf.not_after - leaf.not_before) / 86_400;
    if leaf.not_after < now {
        return Some(format!("the certificate of \"{}\" has expired on {}", shown(leaf), time::print(leaf.not_after)));
    }
    if leaf.not_before > now {
        return Some(format!(
            "the certificate of \"{}\" is valid from {} on",
            shown(leaf),
            time::print(leaf.not_before)
        ));
    }
    (days < SOON_DAYS && life > 2 * SOON_DAYS)
        .then(|| format!("the certificate of \"{}\" expires on {}", shown(leaf), time::print(leaf.not_after)))
}

/// The names of a server that its certificate is not for.
pub fn uncovered(leaf: &Certificate, names: &[ServerName]) -> Vec<String> {
    let hosts = names.iter().filter_map(|name| match name {
        ServerName::Exact(host) if host.contains(&b'.') => Some(String::from_utf8_lossy(host).into_owned()),
        _ => None,
    });
    hosts.filter(|host| !matches_host(leaf, host)).collect()
}
