//! Certificates of the configuration: their time, their names, their chain.

use super::examine::{Finding, Verdict};
use crate::conf::Config;
use tls::review::{Concern, review};

/// Everything doubtful about the certificates that servers show. `now`: seconds since 1970.
pub fn examine(config: &Config, now: i64) -> Vec<Finding> {
    let mut all: Vec<Concern> = Vec::new();
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
                add(&mut all, concern);
            }
        }
    }
    all.iter().map(finding).collect()
}

/// A certificate that several servers show has its faults once, with the names of all of them.
fn add(all: &mut Vec<Concern>, concern: Concern) {
    if all.contains(&concern) {
        return;
    }
    if let Concern::OtherNames { subject, names } = &concern {
        for known in all.iter_mut() {
            if let Concern::OtherNames { subject: same, names: all } = known
                && same == subject
            {
                let new: Vec<String> = names.iter().filter(|name| !all.contains(name)).cloned().collect();
                all.extend(new);
                return;
            }
        }
    }
    all.push(concern);
}

fn finding(concern: &Concern) -> Finding {
    let (here, needed, remedy) = match concern {
        Concern::Expired { .. } => ("expired", "valid", "renew it, and reload"),
        Concern::NotYetValid { .. } => ("not valid yet", "valid", "check this machine's clock, or the certificate"),
        Concern::EndsSoon { .. } => ("expires soon", "valid", "renew it, and reload"),
        Concern::OtherNames { .. } => {
            ("other names", "server_name", "get a certificate for these names, or correct server_name")
        }
        Concern::Alone { .. } => {
            ("leaf only", "full chain", "append the intermediate certificates to the file, without the root")
        }
        Concern::Disordered { .. } => {
            ("out of order", "leaf first", "put each certificate before its issuer's certificate")
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_has_its_fault_once() {
        let other = |name: &str| Concern::OtherNames { subject: "CN=a".into(), names: vec![name.into()] };
        let expired = || Concern::Expired { subject: "CN=a".into(), end: "today".into() };
        let mut all = Vec::new();
        for concern in [other("b.test"), expired(), other("c.test"), expired(), other("b.test")] {
            add(&mut all, concern);
        }
        let words: Vec<String> = all.iter().map(Concern::to_string).collect();
        assert_eq!(words.len(), 2, "{words:?}");
        assert!(words[0].ends_with("is not for b.test, c.test"), "{words:?}");
    }
}
