//! Certificate warnings while the configuration is read (expired, or soon); `tidegate doctor` reports more.

use super::ServerTls;
use conf_schema::{At, Complaint, ComplaintLevel, Cx};
use tls::ciphers::{self, LostSuites};
use tls::review::review_pair;
use variables::AreaTypes;
use variables::names::ServerName;

pub fn report_certificates<A: AreaTypes>(tls: &ServerTls<A>, cx: &mut Cx) {
    let Some(rules) = &tls.rules else { return };
    let now = base::clock::unix_seconds();
    for pair in rules.certificates().pairs() {
        for concern in review_pair(pair, &[], now).iter().filter(|c| c.is_of_time()) {
            let complaint = Complaint { level: ComplaintLevel::Warn, ..Complaint::emerg(concern.to_string()) };
            if !cx.warnings.contains(&complaint) {
                cx.warnings.push(complaint);
            }
        }
    }
}

/// Configured cipher strings with their losses, in `Cx`.
#[derive(Default)]
struct LostCiphers {
    lost: LostSuites,
    at: At,
}

/// Records the suites lost by a block's `ssl_ciphers`, except defaults.
pub fn note_ciphers(cx: &mut Cx, ciphers: &str, at: At) {
    let lost = ciphers::lost_suites(ciphers);
    if at.line == 0 || lost.is_empty() {
        return;
    }
    let noted = cx.get::<LostCiphers>();
    if noted.lost.is_empty() {
        noted.at = at;
    }
    noted.lost.add(lost);
}

/// Start of the warning of [`ciphers_complaint`].
pub const CIPHERS: &str = "\"ssl_ciphers\": ";
/// Words beyond this number are counted, not named.
const WORDS_MAX: usize = 8;

/// A single warning for all cipher strings: ignored words and lost clients.
pub fn ciphers_complaint(cx: &mut Cx) -> Option<Complaint> {
    let LostCiphers { lost, at } = cx.take();
    if lost.is_empty() {
        return None;
    }
    let mut parts = Vec::new();
    if !lost.words.is_empty() {
        let shown = lost.words.iter().take(WORDS_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = match lost.words.len().saturating_sub(WORDS_MAX) {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        parts.push(format!("not available here and ignored: {shown}{more}"));
    }
    let clients: Vec<&str> = [(lost.ecdhe_cbc, "ECDHE with CBC"), (lost.rsa, "RSA key exchange"), (lost.dhe, "DHE")]
        .into_iter()
        .filter_map(|(lost, name)| lost.then_some(name))
        .collect();
    if !clients.is_empty() {
        parts.push(format!("clients that have only {} cannot connect", clients.join(", only ")));
    }
    let hint =
        "TLS 1.3, and TLS 1.2 with ECDHE and AES-GCM or ChaCha20, are what there is; every browser since 2015 has it";
    Some(Complaint {
        level: ComplaintLevel::Warn,
        span: Some(at.span),
        line: at.line,
        hint: Some(hint.into()),
        ..Complaint::emerg(format!("{CIPHERS}{}", parts.join("; ")))
    })
}

/// Names of a server that a certificate can contain.
pub fn certificate_hosts<A: AreaTypes>(names: &[ServerName<A>]) -> Vec<String> {
    let exact = names.iter().filter_map(|name| match name {
        ServerName::Exact(host) if host.contains(&b'.') => Some(String::from_utf8_lossy(host).into_owned()),
        _ => None,
    });
    exact.collect()
}
