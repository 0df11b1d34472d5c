//! Certificates, keys and revocation lists of the TLS comparison, as files: authorities, servers, and clients that a server accepts or
//! refuses for one reason each.

use rcgen::string::Ia5String;
use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DistinguishedName, DnType, DnValue,
    ExtendedKeyUsagePurpose, IsCa, Issuer, KeyIdMethod, KeyPair, PKCS_ECDSA_P256_SHA256, PKCS_RSA_SHA256,
    PKCS_RSA_SHA512, RevocationReason, RevokedCertParams, SerialNumber, SignatureAlgorithm, date_time_ymd,
};
use std::fs;
use std::path::PathBuf;

/// Clients, by the names of their files.
pub const CLIENTS: [&str; 18] = [
    "good",
    "names",
    "byinter",
    "byinterchain",
    "bysub",
    "bysubchain",
    "expired",
    "future",
    "self",
    "selfca",
    "foreign",
    "fake",
    "revoked",
    "srvonly",
    "clionly",
    "noca",
    "nocachain",
    "sha512",
];

/// Serial number of the revoked client.
const REVOKED: u64 = 0x1234;

/// The folder of the files, removed at the end.
pub struct Identities {
    pub folder: PathBuf,
}

impl Drop for Identities {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A certificate with its key.
struct IdentityPair {
    params: CertificateParams,
    key: KeyPair,
    pem: String,
}

impl IdentityPair {
    fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }
}

/// A certificate to be made.
struct WantedCertificate {
    subject: Vec<(DnType, DnValue)>,
    is_ca: IsCa,
    /// First and last year.
    years: (i32, i32),
    algorithm: &'static SignatureAlgorithm,
    purposes: Vec<ExtendedKeyUsagePurpose>,
    serial: Option<u64>,
    names: Vec<String>,
}

impl WantedCertificate {
    fn leaf(name: &str) -> WantedCertificate {
        WantedCertificate {
            subject: vec![(DnType::CommonName, name.into())],
            is_ca: IsCa::NoCa,
            years: (2020, 2045),
            algorithm: &PKCS_ECDSA_P256_SHA256,
            purposes: Vec::new(),
            serial: None,
            names: Vec::new(),
        }
    }

    fn authority(name: &str) -> WantedCertificate {
        WantedCertificate { is_ca: IsCa::Ca(BasicConstraints::Unconstrained), ..WantedCertificate::leaf(name) }
    }
}

/// Names of attributes by their object identifiers.
fn custom(oid: &[u64]) -> DnType {
    DnType::CustomDnType(oid.to_vec())
}

struct Maker {
    folder: PathBuf,
}

impl Maker {
    fn write(&self, name: &str, text: &str) -> Result<(), String> {
        fs::write(self.folder.join(name), text).map_err(|e| format!("{name}: {e}"))
    }

    fn make(
        &self,
        file: &str,
        wanted: WantedCertificate,
        issuer: Option<&IdentityPair>,
    ) -> Result<IdentityPair, String> {
        let say = |e: rcgen::Error| format!("{file}: {e}");
        let key = KeyPair::generate_for(wanted.algorithm).map_err(say)?;
        let mut params = CertificateParams::new(wanted.names).map_err(say)?;
        params.distinguished_name = DistinguishedName::new();
        for (kind, value) in wanted.subject {
            params.distinguished_name.push(kind, value);
        }
        params.is_ca = wanted.is_ca;
        params.not_before = date_time_ymd(wanted.years.0, 1, 1);
        params.not_after = date_time_ymd(wanted.years.1, 1, 1);
        params.extended_key_usages = wanted.purposes;
        params.serial_number = wanted.serial.map(SerialNumber::from);
        let certificate = match issuer {
            Some(issuer) => params.signed_by(&key, &issuer.issuer()),
            None => params.self_signed(&key),
        };
        let pem = certificate.map_err(say)?.pem();
        self.write(&format!("{file}.crt"), &pem)?;
        self.write(&format!("{file}.key"), &key.serialize_pem())?;
        Ok(IdentityPair { params, key, pem })
    }

    /// Writes a client's certificate with those of other authorities behind it.
    fn chain(&self, file: &str, leaf: &IdentityPair, others: &[&IdentityPair]) -> Result<(), String> {
        let pems: String = others.iter().map(|pair| pair.pem.as_str()).collect();
        self.write(&format!("{file}.crt"), &(leaf.pem.clone() + &pems))?;
        self.write(&format!("{file}.key"), &leaf.key.serialize_pem())
    }

    fn revocations(&self, issuer: &IdentityPair, serials: &[u64], until: i32) -> Result<String, String> {
        let revoked = |serial: &u64| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: Some(RevocationReason::KeyCompromise),
            invalidity_date: None,
        };
        let params = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 2, 1),
            next_update: date_time_ymd(until, 1, 1),
            crl_number: SerialNumber::from(1_u64),
            issuing_distribution_point: None,
            revoked_certs: serials.iter().map(revoked).collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        let list = params.signed_by(&issuer.issuer()).and_then(|list| list.pem());
        list.map_err(|e| format!("a revocation list: {e}"))
    }
}

/// Makes all files.
///
/// # Errors
/// A file or a certificate cannot be made.
pub fn make_identities() -> Result<Identities, String> {
    let folder = std::env::temp_dir().join(format!("compare-tls-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    let identities = Identities { folder: folder.clone() };
    let maker = Maker { folder };
    maker.write("ticket.key", &"0123456789abcdef".repeat(5))?;
    let authorities = authorities(&maker)?;
    servers(&maker, &authorities)?;
    clients(&maker, &authorities)?;
    Ok(identities)
}

struct Authorities {
    root: IdentityPair,
    inter: IdentityPair,
    sub: IdentityPair,
    other: IdentityPair,
    samename: IdentityPair,
}

fn authorities(maker: &Maker) -> Result<Authorities, String> {
    let named = || WantedCertificate {
        subject: vec![
            (DnType::CountryName, "DE".into()),
            (DnType::OrganizationName, "Root, \"Inc\"".into()),
            (DnType::CommonName, "root".into()),
        ],
        ..WantedCertificate::authority("root")
    };
    let root = maker.make("root", named(), None)?;
    let short = WantedCertificate {
        is_ca: IsCa::Ca(BasicConstraints::Constrained(0)),
        ..WantedCertificate::authority("inter")
    };
    let inter = maker.make("inter", short, Some(&root))?;
    let sub = maker.make("sub", WantedCertificate::authority("sub"), Some(&inter))?;
    let other = maker.make("other", WantedCertificate::authority("other ca"), None)?;
    let samename = maker.make("samename", named(), None)?;
    maker.write("bundle.crt", &(root.pem.clone() + &inter.pem))?;
    maker.write("two.crt", &(root.pem.clone() + &other.pem))?;
    let of_root = maker.revocations(&root, &[REVOKED], 2045)?;
    let of_inter = maker.revocations(&inter, &[], 2045)?;
    maker.write("root.crl", &of_root)?;
    maker.write("inter.crl", &of_inter)?;
    maker.write("both.crl", &(of_root + &of_inter))?;
    maker.write("old.crl", &maker.revocations(&root, &[REVOKED], 2025)?)?;
    Ok(Authorities { root, inter, sub, other, samename })
}

fn servers(maker: &Maker, of: &Authorities) -> Result<(), String> {
    let names = || ["localhost", "a.test", "b.test"].map(String::from).to_vec();
    maker.make(
        "server",
        WantedCertificate { names: names(), ..WantedCertificate::leaf("localhost") },
        Some(&of.root),
    )?;
    let rsa = WantedCertificate { names: names(), algorithm: &PKCS_RSA_SHA256, ..WantedCertificate::leaf("rsa") };
    maker.make("serverrsa", rsa, Some(&of.root))?;
    let chained = maker.make(
        "serverchain",
        WantedCertificate { names: names(), ..WantedCertificate::leaf("chain") },
        Some(&of.inter),
    )?;
    maker.chain("serverchain", &chained, &[&of.inter])?;
    for name in ["a.test", "b.test"] {
        maker.make(name, WantedCertificate { names: names(), ..WantedCertificate::leaf(name) }, Some(&of.root))?;
    }
    Ok(())
}

fn clients(maker: &Maker, of: &Authorities) -> Result<(), String> {
    let email = Ia5String::try_from("a@b.test").map_err(|e| e.to_string())?;
    let good = WantedCertificate {
        subject: vec![
            (DnType::CountryName, "US".into()),
            (DnType::StateOrProvinceName, "Ca+lif".into()),
            (DnType::OrganizationName, "A, B; \"C\" <d>\\#".into()),
            (DnType::CommonName, "good client".into()),
            (custom(&[1, 2, 840, 113_549, 1, 9, 1]), DnValue::Ia5String(email)),
        ],
        serial: Some(0x0a),
        ..WantedCertificate::leaf("good")
    };
    maker.make("good", good, Some(&of.root))?;
    let names = WantedCertificate {
        subject: vec![
            (DnType::OrganizationName, "Größe 漢字".into()),
            (DnType::CommonName, "#start ".into()),
            (custom(&[2, 5, 4, 5]), "77".into()),
            (custom(&[0, 9, 2342, 19_200_300, 100, 1, 25]), "x".into()),
            (custom(&[0, 9, 2342, 19_200_300, 100, 1, 1]), "u1".into()),
            (custom(&[2, 5, 4, 42]), "g".into()),
            (custom(&[2, 5, 4, 12]), "t".into()),
            (custom(&[1, 2, 3, 4]), "unknown".into()),
        ],
        algorithm: &PKCS_RSA_SHA256,
        ..WantedCertificate::leaf("names")
    };
    maker.make("names", names, Some(&of.root))?;
    let byinter = maker.make("byinter", WantedCertificate::leaf("by inter"), Some(&of.inter))?;
    maker.chain("byinterchain", &byinter, &[&of.inter])?;
    let bysub = maker.make("bysub", WantedCertificate::leaf("by sub"), Some(&of.sub))?;
    maker.chain("bysubchain", &bysub, &[&of.sub, &of.inter])?;
    let years = |from, to| WantedCertificate { years: (from, to), ..WantedCertificate::leaf("years") };
    maker.make("expired", years(2020, 2025), Some(&of.root))?;
    maker.make("future", years(2044, 2045), Some(&of.root))?;
    maker.make("self", WantedCertificate::leaf("self"), None)?;
    maker.make("selfca", WantedCertificate::authority("selfca"), None)?;
    maker.make("foreign", WantedCertificate::leaf("foreign"), Some(&of.other))?;
    maker.make("fake", WantedCertificate::leaf("fake"), Some(&of.samename))?;
    let revoked = maker.make(
        "revoked",
        WantedCertificate { serial: Some(REVOKED), ..WantedCertificate::leaf("revoked") },
        Some(&of.root),
    )?;
    let of_purpose = |purpose| WantedCertificate { purposes: vec![purpose], ..WantedCertificate::leaf("of a purpose") };
    maker.make("srvonly", of_purpose(ExtendedKeyUsagePurpose::ServerAuth), Some(&of.root))?;
    maker.make("clionly", of_purpose(ExtendedKeyUsagePurpose::ClientAuth), Some(&of.root))?;
    let noca = maker.make("noca", WantedCertificate::leaf("leaf of leaf"), Some(&revoked))?;
    maker.chain("nocachain", &noca, &[&revoked])?;
    maker.make(
        "sha512",
        WantedCertificate { algorithm: &PKCS_RSA_SHA512, ..WantedCertificate::leaf("sha512") },
        Some(&of.root),
    )?;
    Ok(())
}
