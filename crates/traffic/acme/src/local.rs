//! A certificate authority of this machine, for `localhost`, private names and private addresses. Name constraints (RFC 5280,
//! section 4.2.1.10) restrict it to them, so that a stolen key is useless elsewhere.

use crate::certificate::{IssuedChain, alternative};
use crate::identifier::Identifier;
use crate::key::Algorithm;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};
use std::net::{IpAddr, Ipv6Addr};
use time::OffsetDateTime;

const DAY: i64 = 86_400;
/// Seconds for which a new authority is valid, and for which it must still be valid to issue: certificates must not outlive it.
const LIFE: i64 = 3650 * DAY;
const LEFT_LEAST: i64 = 150 * DAY;
/// Seconds by which certificates begin in the past: clocks differ.
const BEHIND: i64 = 3600;

/// Names of local use (RFC 6761, 6762, 8375, and ICANN's `internal`).
const NAMES: [&str; 5] = ["localhost", "local", "internal", "home.arpa", "test"];

/// See the module's documentation.
pub struct LocalAuthority {
    key: KeyPair,
    certificate: String,
    not_after: i64,
}

impl LocalAuthority {
    /// Creates an authority. `now`: seconds since 1970.
    ///
    /// # Errors
    /// The library's message.
    pub fn create(now: i64) -> Result<LocalAuthority, String> {
        let key = Algorithm::default().generate()?;
        let mut params = params(&key);
        params.not_before = time(now.saturating_sub(DAY))?;
        params.not_after = time(now.saturating_add(LIFE))?;
        let certificate = params.self_signed(&key).map_err(|e| e.to_string())?.pem();
        Ok(LocalAuthority { key, certificate, not_after: now.saturating_add(LIFE) })
    }

    /// Loads a stored authority from PEM texts.
    ///
    /// # Errors
    /// They are no authority with its key.
    pub fn load(certificate: &str, key: &str) -> Result<LocalAuthority, String> {
        let pair = tls::certs::KeyPair::load(certificate.as_bytes(), key.as_bytes(), &[]).map_err(|e| e.to_string())?;
        let leaf = pair.leaf().ok_or("no certificate")?;
        if leaf.extensions.basic_constraints != Some(true) {
            return Err("it is no authority".into());
        }
        let not_after = leaf.not_after;
        let key = KeyPair::from_pem(key).map_err(|e| e.to_string())?;
        Ok(LocalAuthority { key, certificate: certificate.to_string(), not_after })
    }

    /// Returns the certificate that clients have to trust, as PEM.
    pub fn certificate(&self) -> &str {
        &self.certificate
    }
    /// Returns the key as PEM.
    pub fn key(&self) -> String {
        self.key.serialize_pem()
    }
    /// Tells whether certificates that are issued now end before the authority.
    pub fn is_usable(&self, now: i64) -> bool {
        self.not_after.saturating_sub(now) > LEFT_LEAST
    }

    /// Tells whether the authority's constraints permit an identifier.
    pub fn permits(identifier: &Identifier) -> bool {
        match identifier {
            Identifier::Dns(name) => {
                let name = name.strip_prefix("*.").unwrap_or(name);
                let is_below = |parent: &str| name.strip_suffix(parent).is_some_and(|rest| rest.ends_with('.'));
                NAMES.iter().any(|parent| name == *parent || is_below(parent))
            }
            Identifier::Ip(IpAddr::V4(v4)) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
            Identifier::Ip(IpAddr::V6(v6)) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
        }
    }

    /// Issues a certificate with a new key. `life`: seconds of validity.
    ///
    /// # Errors
    /// A name that is not permitted; the library's message.
    pub fn issue(
        &self,
        identifiers: &[Identifier],
        key: Algorithm,
        life: i64,
        now: i64,
    ) -> Result<IssuedChain, String> {
        if let Some(foreign) = identifiers.iter().find(|one| !LocalAuthority::permits(one)) {
            return Err(format!("\"{foreign}\" is no local name"));
        }
        let mut leaf = CertificateParams::default();
        leaf.distinguished_name = DistinguishedName::new();
        leaf.subject_alt_names = identifiers.iter().map(alternative).collect::<Result<_, _>>()?;
        leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
        leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        leaf.use_authority_key_identifier_extension = true;
        leaf.not_before = time(now.saturating_sub(BEHIND))?;
        leaf.not_after = time(now.saturating_add(life.clamp(1, LEFT_LEAST)))?;
        let own = key.generate()?;
        let issuer = params(&self.key);
        let issued = leaf.signed_by(&own, &Issuer::from_params(&issuer, &self.key)).map_err(|e| e.to_string())?;
        Ok(IssuedChain { chain: issued.pem(), key: own.serialize_pem() })
    }
}

fn time(seconds: i64) -> Result<OffsetDateTime, String> {
    OffsetDateTime::from_unix_timestamp(seconds).map_err(|e| e.to_string())
}

/// Parameters of an authority's certificate: equal for equal keys, so that issued certificates name it correctly.
fn params(key: &KeyPair) -> CertificateParams {
    let mut params = CertificateParams::default();
    let mark: String = key.public_key_raw().iter().skip(1).take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("tidegate local authority {mark}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints { permitted_subtrees: permitted(), excluded_subtrees: Vec::new() });
    params
}

/// Names and networks of local use (networks: RFC 1918, 4193, 3927, 4291).
fn permitted() -> Vec<GeneralSubtree> {
    let v4 = |a, b, prefix| GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([a, b, 0, 0], prefix));
    let v6 = |first: u16, prefix| {
        let address = Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0);
        GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(address.octets(), prefix))
    };
    let here = GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(Ipv6Addr::LOCALHOST.octets(), 128));
    let networks = [
        v4(127, 0, 8),
        v4(10, 0, 8),
        v4(172, 16, 12),
        v4(192, 168, 16),
        v4(169, 254, 16),
        v6(0xfc00, 7),
        v6(0xfe80, 10),
        here,
    ];
    NAMES.map(|name| GeneralSubtree::DnsName(name.into())).into_iter().chain(networks).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: i64 = 1_800_000_000;

    fn parse(text: &str) -> Identifier {
        Identifier::parse(text).expect("valid")
    }

    #[test]
    fn local_names_alone_are_permitted() {
        for name in ["localhost", "*.localhost", "a.b.test", "printer.local", "127.0.0.9", "::1", "10.1.2.3", "fd00::1"]
        {
            assert!(LocalAuthority::permits(&parse(name)), "{name}");
        }
        for name in ["example.com", "notlocalhost", "latest", "local.example", "8.8.8.8", "2001:db8::1", "172.32.0.1"] {
            assert!(!LocalAuthority::permits(&parse(name)), "{name}");
        }
    }

    #[test]
    fn certificates_survive_a_restart_of_their_authority() {
        let made = LocalAuthority::create(NOW).expect("created");
        let again = LocalAuthority::load(made.certificate(), &made.key()).expect("loaded");
        assert!(again.is_usable(NOW) && !again.is_usable(NOW + LIFE - LEFT_LEAST));
        let names = [parse("localhost"), parse("127.0.0.1")];
        let issued = again.issue(&names, Algorithm::default(), 7 * DAY, NOW).expect("issued");
        let leaf = issued.check(&names, NOW).expect("fine");
        assert_eq!(leaf.not_after, NOW + 7 * DAY);
        let root = tls::certs::parse_certificates(made.certificate().as_bytes()).expect("a certificate").remove(0);
        assert_eq!(leaf.issuer(), root.subject());
        assert_eq!(leaf.extensions.authority_key_id, root.extensions.subject_key_id);
        let refused = again.issue(&[parse("example.com")], Algorithm::default(), DAY, NOW);
        assert_eq!(refused.expect_err("refused"), "\"example.com\" is no local name");
        assert!(LocalAuthority::load(&issued.chain, &issued.key).is_err(), "a leaf is no authority");
        assert!(LocalAuthority::load(made.certificate(), &issued.key).is_err());
    }
}
