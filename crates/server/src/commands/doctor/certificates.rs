//! Checks the expiry, names and chains of configured certificates.

use crate::conf::Config;
use crate::machine_limits::examine::{Finding, FindingVerdict};
use tls::review::{CertificateWarning, review_pair};

/// `now`: seconds since 1970.
pub fn examine_certificates(config: &Config, now: i64) -> Vec<Finding> {
    let mut all: Vec<CertificateWarning> = Vec::new();
    let areas = config.areas();
    for (names, rules) in areas.iter().flat_map(|area| area.tls()) {
        for pair in rules.certificates().pairs() {
            for warning in review_pair(pair, names, now) {
                add(&mut all, warning);
            }
        }
    }
    all.iter().map(finding).collect()
}

/// Reports a certificate of several servers once, with the names of all of them.
fn add(all: &mut Vec<CertificateWarning>, warning: CertificateWarning) {
    if all.contains(&warning) {
        return;
    }
    if let CertificateWarning::OtherNames { subject, names } = &warning {
        for known in all.iter_mut() {
            if let CertificateWarning::OtherNames { subject: same, names: all } = known
                && same == subject
            {
                let new: Vec<String> = names.iter().filter(|name| !all.contains(name)).cloned().collect();
                all.extend(new);
                return;
            }
        }
    }
    all.push(warning);
}

fn finding(warning: &CertificateWarning) -> Finding {
    let (here, needed, remedy) = match warning {
        CertificateWarning::Expired { .. } => ("expired", "valid", "renew it, and reload"),
        CertificateWarning::NotYetValid { .. } => {
            ("not valid yet", "valid", "check this machine's clock, or the certificate")
        }
        CertificateWarning::EndsSoon { .. } => ("expires soon", "valid", "renew it, and reload"),
        CertificateWarning::OtherNames { .. } => {
            ("other names", "server_name", "get a certificate for these names, or correct server_name")
        }
        CertificateWarning::Alone { .. } => {
            ("leaf only", "full chain", "append the intermediate certificates to the file, without the root")
        }
        CertificateWarning::Disordered { .. } => {
            ("out of order", "leaf first", "put each certificate before its issuer's certificate")
        }
    };
    Finding {
        name: "certificate",
        here: here.into(),
        needed: needed.into(),
        verdict: if warning.is_fatal() { FindingVerdict::Short } else { FindingVerdict::Note },
        connections: None,
        why: warning.to_string(),
        remedy: remedy.into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_its_fault_once() {
        let other = |name: &str| CertificateWarning::OtherNames { subject: "CN=a".into(), names: vec![name.into()] };
        let expired = || CertificateWarning::Expired { subject: "CN=a".into(), end: "today".into() };
        let mut all = Vec::new();
        for warning in [other("b.test"), expired(), other("c.test"), expired(), other("b.test")] {
            add(&mut all, warning);
        }
        let words: Vec<String> = all.iter().map(CertificateWarning::to_string).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words[0].ends_with("is not for b.test, c.test"), "{words:?}");
    }
}
