//! Doubts about a loadable certificate: validity, names, chain.

use crate::certs::KeyPair;
use crate::verify::matches_host;
use crate::x509::{Certificate, name, time};

/// Days before expiry by which a certificate should be replaced.
const SOON_DAYS: i64 = 14;

/// A doubt about a certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CertificateWarning {
    /// The certificate has expired.
    Expired {
        /// Subject of the certificate.
        subject: String,
        /// End of its validity.
        end: String,
    },
    /// The certificate is not valid yet.
    NotYetValid {
        /// Subject of the certificate.
        subject: String,
        /// Begin of its validity.
        start: String,
    },
    /// Expires within days, although it is not short-lived.
    EndsSoon {
        /// Subject of the certificate.
        subject: String,
        /// End of its validity.
        end: String,
        /// Days until then.
        days: i64,
    },
    /// Server names that it does not cover.
    OtherNames {
        /// Subject of the certificate.
        subject: String,
        /// The names.
        names: Vec<String>,
    },
    /// Not self-signed, and sent without a chain.
    Alone {
        /// Subject of the certificate.
        subject: String,
        /// Its issuer.
        issuer: String,
    },
    /// A chain certificate did not issue the preceding one.
    Disordered {
        /// Subject of the certificate.
        subject: String,
        /// Subject of the preceding one.
        after: String,
    },
}

impl std::fmt::Display for CertificateWarning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            CertificateWarning::Expired { subject, end } => {
                write!(f, "the certificate of \"{subject}\" has expired on {end}")
            }
            CertificateWarning::NotYetValid { subject, start } => {
                write!(f, "the certificate of \"{subject}\" is not valid before {start}")
            }
            CertificateWarning::EndsSoon { subject, end, days } => {
                write!(f, "the certificate of \"{subject}\" expires in {days} days, on {end}")
            }
            CertificateWarning::OtherNames { subject, names } => {
                write!(f, "the certificate of \"{subject}\" is not for {}", names.join(", "))
            }
            CertificateWarning::Alone { subject, issuer } => write!(
                f,
                "the certificate of \"{subject}\" is sent without its chain: clients that do not have \"{issuer}\" reject it"
            ),
            CertificateWarning::Disordered { subject, after } => {
                write!(f, "\"{subject}\" follows \"{after}\" in the chain, but has not issued it")
            }
        }
    }
}

impl CertificateWarning {
    /// Depends on time: reported with every reading of the configuration.
    pub fn is_of_time(&self) -> bool {
        matches!(
            self,
            CertificateWarning::Expired { .. }
                | CertificateWarning::NotYetValid { .. }
                | CertificateWarning::EndsSoon { .. }
        )
    }
    /// Tells whether clients reject the certificate now.
    pub fn is_fatal(&self) -> bool {
        matches!(self, CertificateWarning::Expired { .. } | CertificateWarning::NotYetValid { .. })
    }
}

fn subject(certificate: &Certificate) -> String {
    name::format_rfc2253(certificate.subject())
}

/// All doubts. `hosts`: served names; `now`: seconds since 1970.
pub fn review_pair(pair: &KeyPair, hosts: &[String], now: i64) -> Vec<CertificateWarning> {
    let mut all = Vec::new();
    let Some(leaf) = pair.leaf() else { return all };
    let days = (leaf.not_after - now).div_euclid(86_400);
    let life = (leaf.not_after - leaf.not_before) / 86_400;
    if leaf.not_after < now {
        all.push(CertificateWarning::Expired { subject: subject(leaf), end: time::print_time(leaf.not_after) });
    } else if leaf.not_before > now {
        all.push(CertificateWarning::NotYetValid { subject: subject(leaf), start: time::print_time(leaf.not_before) });
    } else if days < SOON_DAYS && life > 2 * SOON_DAYS {
        all.push(CertificateWarning::EndsSoon { subject: subject(leaf), end: time::print_time(leaf.not_after), days });
    }
    let names: Vec<String> = hosts.iter().filter(|host| !matches_host(leaf, host)).cloned().collect();
    if !names.is_empty() {
        all.push(CertificateWarning::OtherNames { subject: subject(leaf), names });
    }
    if pair.chain.len() == 1 && !leaf.self_issued() {
        all.push(CertificateWarning::Alone { subject: subject(leaf), issuer: name::format_rfc2253(leaf.issuer()) });
    }
    for (lower, upper) in pair.chain.iter().zip(pair.chain.iter().skip(1)) {
        if !name::same_name(lower.issuer(), upper.subject()) {
            all.push(CertificateWarning::Disordered { subject: subject(upper), after: subject(lower) });
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Authority, TestCertificate, authority_params};

    #[test]
    fn doubts_are_named() {
        let root = Authority::new("root");
        let mut params = rcgen::CertificateParams::new(vec!["a.example".to_string()]).expect("names");
        params.not_before = rcgen::date_time_ymd(2026, 1, 1);
        params.not_after = rcgen::date_time_ymd(2026, 6, 1);
        let leaf = root.issue(params);
        let with = |more: &str| {
            let certificate = format!("{}{more}", leaf.certificate);
            TestCertificate { certificate, key: leaf.key.clone() }.pair()
        };
        let at = |month: u8, day: u8| rcgen::date_time_ymd(2026, month, day).unix_timestamp();
        let hosts = ["a.example".to_string()];
        let fine = with(&root.pem);
        assert_eq!(review_pair(&fine, &hosts, at(3, 1)), []);
        assert!(matches!(&review_pair(&fine, &hosts, at(5, 25))[..], [CertificateWarning::EndsSoon { days: 7, .. }]));
        assert!(matches!(&review_pair(&fine, &hosts, at(6, 2))[..], [CertificateWarning::Expired { .. }]));
        assert!(matches!(&review_pair(&fine, &hosts, at(1, 1) - 9)[..], [CertificateWarning::NotYetValid { .. }]));
        assert!(matches!(&review_pair(&with(""), &hosts, at(3, 1))[..], [CertificateWarning::Alone { .. }]));
        let other = Authority::new("other");
        assert!(matches!(
            &review_pair(&with(&other.pem), &hosts, at(3, 1))[..],
            [CertificateWarning::Disordered { .. }]
        ));
        let found = review_pair(&fine, &["b.example".to_string()], at(3, 1));
        assert!(matches!(&found[..], [CertificateWarning::OtherNames { names, .. }] if names == &["b.example"]));
        let _ = root.intermediate(authority_params("int"));
    }
}
