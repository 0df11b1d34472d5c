//! A local certificate authority for `tidegate serve --tls`. Name constraints restrict it to this machine and private
//! networks, so that a stolen key is useless elsewhere.

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, PKCS_ECDSA_P256_SHA256, SanType,
};
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

const DAY: Duration = Duration::from_secs(86_400);
/// How long the authority is valid, and for how long it is used: what it signs must not outlive it.
const AUTHORITY_DAYS: u32 = 3650;
const AUTHORITY_USED_DAYS: u32 = 3500;
/// Browsers take no more than 398.
const CERTIFICATE_DAYS: u32 = 90;

/// Certificate and key of a server on this machine.
pub struct Identity {
    /// The certificate and its key, as PEM.
    pub certificate: String,
    pub key: String,
    /// Where the authority's certificate is; `None`: it could not be kept, for the reason.
    pub authority: Result<PathBuf, String>,
}

/// Issues a certificate for an address and the names of this machine; creates the authority on first use.
///
/// # Errors
/// Unreadable files, with a remedy.
pub fn identity(address: IpAddr) -> Result<Identity, String> {
    let folder = folder();
    let (key, authority) = match &folder {
        Some(folder) => match kept(folder)? {
            Some(key) => (key, Ok(folder.join(CERTIFICATE))),
            None => {
                let key = new_key()?;
                let place = keep(folder, &key).map(|()| folder.join(CERTIFICATE));
                (key, place.map_err(|e| format!("{}: {e}", folder.display())))
            }
        },
        None => (new_key()?, Err("neither XDG_DATA_HOME nor HOME is set".into())),
    };
    let params = authority_params(&key)?;
    let own = new_key()?;
    let certificate = leaf(address)?.signed_by(&own, &Issuer::from_params(&params, &key)).map_err(|e| e.to_string())?;
    Ok(Identity { certificate: certificate.pem(), key: own.serialize_pem(), authority })
}

const CERTIFICATE: &str = "local-authority.crt";
const KEY: &str = "local-authority.key";

/// The XDG base directory specification's place for data of a user.
pub fn folder() -> Option<PathBuf> {
    let absolute = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| absolute("HOME").map(|home| home.join(".local/share")))?;
    Some(data.join("tidegate"))
}

fn new_key() -> Result<KeyPair, String> {
    KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).map_err(|e| e.to_string())
}

/// The authority that was made before; `None`: there is none, or it has had its time.
fn kept(folder: &Path) -> Result<Option<KeyPair>, String> {
    let path = folder.join(KEY);
    let Ok(found) = fs::metadata(&path) else { return Ok(None) };
    let age = found.modified().ok().and_then(|at| at.elapsed().ok()).unwrap_or_default();
    if age > DAY * AUTHORITY_USED_DAYS || !folder.join(CERTIFICATE).exists() {
        return Ok(None);
    }
    let said = |e: String| format!("{}: {e}; remove it to create a new authority", path.display());
    let text = fs::read_to_string(&path).map_err(|e| said(e.to_string()))?;
    KeyPair::from_pem(&text).map(Some).map_err(|e| said(e.to_string()))
}

/// Saves the authority: the key with mode 600, the certificate readable.
fn keep(folder: &Path, key: &KeyPair) -> Result<(), String> {
    let certificate = authority_params(key)?.self_signed(key).map_err(|e| e.to_string())?.pem();
    fs::DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(|e| e.to_string())?;
    for (name, mode, text) in [(KEY, 0o600, key.serialize_pem()), (CERTIFICATE, 0o644, certificate)] {
        // Another one that starts just now finds either file whole.
        let part = folder.join(format!(".{name}.{}", std::process::id()));
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(mode).open(&part).map_err(|e| e.to_string())?;
        let written = file.write_all(text.as_bytes()).and_then(|()| fs::rename(&part, folder.join(name)));
        written.map_err(|e| {
            let _ = fs::remove_file(&part);
            e.to_string()
        })?;
    }
    Ok(())
}

/// Parameters of the authority's certificate: equal for equal keys, so that issued certificates name it correctly.
fn authority_params(key: &KeyPair) -> Result<CertificateParams, String> {
    let mut params = CertificateParams::default();
    let mark: String = key.public_key_raw().iter().skip(1).take(4).map(|byte| format!("{byte:02x}")).collect();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, format!("tidegate local authority {mark}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    params.name_constraints = Some(NameConstraints { permitted_subtrees: permitted(), excluded_subtrees: Vec::new() });
    (params.not_before, params.not_after) = validity(AUTHORITY_DAYS);
    Ok(params)
}

fn validity(days: u32) -> (time::OffsetDateTime, time::OffsetDateTime) {
    let now = SystemTime::now();
    // Clocks differ.
    ((now - DAY).into(), (now + DAY * days).into())
}

/// Names and networks of local use (RFC 6761, 6762, 1918, 4193, 3927, 4291).
fn permitted() -> Vec<GeneralSubtree> {
    let v4 = |a, b, prefix| GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix([a, b, 0, 0], prefix));
    let v6 = |first: u16, prefix| {
        let address = Ipv6Addr::new(first, 0, 0, 0, 0, 0, 0, 0);
        GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(address.octets(), prefix))
    };
    let here = GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(Ipv6Addr::LOCALHOST.octets(), 128));
    let names =
        ["localhost", "local", "internal", "home.arpa", "test"].map(|name| GeneralSubtree::DnsName(name.into()));
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
    names.into_iter().chain(networks).collect()
}

/// A server's certificate for this machine.
fn leaf(address: IpAddr) -> Result<CertificateParams, String> {
    let mut params =
        CertificateParams::new(vec!["localhost".into(), "*.localhost".into()]).map_err(|e| e.to_string())?;
    params.distinguished_name = DistinguishedName::new();
    let own = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)];
    params.subject_alt_names.extend(own.map(SanType::IpAddress));
    if !own.contains(&address) && !address.is_unspecified() && is_private(address) {
        params.subject_alt_names.push(SanType::IpAddress(address));
    }
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.use_authority_key_identifier_extension = true;
    (params.not_before, params.not_after) = validity(CERTIFICATE_DAYS);
    Ok(params)
}

/// Tells whether the constraints permit an address.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_private() || v4.is_loopback() || v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_loopback() || v6.is_unique_local() || v6.is_unicast_link_local(),
    }
}
