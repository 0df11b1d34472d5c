//! TLS client: rustls with aws-lc-rs, full or resumed handshakes, verification on request.

use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, WebPkiServerVerifier, verify_server_name};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme, SupportedProtocolVersion};

use super::job::Tls;

/// Handshake settings of a world's connections.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub config: Arc<ClientConfig>,
    pub name: ServerName<'static>,
}

/// Builds the configuration for a host. One per world: worlds share no session cache and no lock.
pub fn client_config(spec: &Tls, host: &str, alpn: &[&[u8]]) -> Result<ClientTls, String> {
    let mut provider = aws_lc_rs::default_provider();
    if !spec.ciphers.is_empty() {
        let all = provider.cipher_suites.clone();
        provider.cipher_suites = Vec::new();
        for name in &spec.ciphers {
            let wanted = rustls_name(name);
            let suite = all.iter().find(|s| format!("{:?}", s.suite()) == wanted);
            provider.cipher_suites.push(*suite.ok_or_else(|| format!("cipher suite `{name}` is not known"))?);
        }
    }
    let versions: &[&SupportedProtocolVersion] = match spec.version.as_str() {
        "" => rustls::DEFAULT_VERSIONS,
        "1.2" => &[&rustls::version::TLS12],
        "1.3" => &[&rustls::version::TLS13],
        other => return Err(format!("TLS version `{other}` is not 1.2 or 1.3")),
    };
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(versions)
        .map_err(|e| format!("TLS: {e}"))?;
    let verifier: Arc<dyn ServerCertVerifier> = match &spec.ca {
        // The handshake's signature is checked: equal work, and no secrets are sent.
        None => Arc::new(::tls::verify::AnyServer),
        Some(pem) => {
            let (roots, known) = read_authorities(pem).map_err(|e| format!("CA certificates: {e}"))?;
            let chains = WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider)
                .build()
                .map_err(|e| format!("CA certificates: {e}"))?;
            Arc::new(KnownServer { chains, known })
        }
    };
    let builder = builder.dangerous().with_custom_certificate_verifier(verifier);
    let mut config = match &spec.identity {
        None => builder.with_no_client_auth(),
        Some((chain, key)) => {
            let (chain, key) = read_identity(chain, key)?;
            builder.with_client_auth_cert(chain, key).map_err(|e| format!("the client's certificate and key: {e}"))?
        }
    };
    config.alpn_protocols = alpn.iter().map(|p| p.to_vec()).collect();
    if !spec.resume {
        config.resumption = Resumption::disabled();
    }
    let name = ServerName::try_from(host.to_string()).map_err(|_| format!("`{host}` is not a host name for TLS"))?;
    Ok(ClientTls { config: Arc::new(config), name })
}

/// Reads CA certificates (PEM), as roots and as they are. Fails if there is none, or an unusable one.
pub fn read_authorities(pem: &str) -> Result<(RootCertStore, Vec<CertificateDer<'static>>), String> {
    let (mut roots, mut known) = (RootCertStore::empty(), Vec::new());
    for certificate in CertificateDer::pem_slice_iter(pem.as_bytes()) {
        let certificate = certificate.map_err(|e| format!("not a certificate in PEM format ({e})"))?;
        known.push(certificate.clone());
        roots.add(certificate).map_err(|e| format!("an unusable certificate ({e})"))?;
    }
    if known.is_empty() { Err("no certificate in PEM format".into()) } else { Ok((roots, known)) }
}

/// Reads a certificate chain and its private key (PEM). Fails if either is missing.
pub fn read_identity(chain: &str, key: &str) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), String> {
    let is_key = chain.contains("PRIVATE KEY-----");
    let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_slice_iter(chain.as_bytes())
        .collect::<Result<_, _>>()
        .map_err(|e| format!("the client's certificate is not in PEM format ({e})"))?;
    if chain.is_empty() {
        let hint = if is_key { ", but a private key: exchange --cert and --key" } else { "" };
        return Err(format!("the client's certificate file has no certificate in PEM format{hint}"));
    }
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes())
        .map_err(|_| "the client's key is no unencrypted private key in PEM format")?;
    Ok((chain, key))
}

/// Checks that a private key belongs to its certificate (PEM). Other faults of either are those of [`read_identity`].
pub fn check_identity(chain: &str, key: &str) -> Result<(), String> {
    let (chain, key) = read_identity(chain, key)?;
    match CertifiedKey::from_der(chain, key, &aws_lc_rs::default_provider()) {
        Err(rustls::Error::InconsistentKeys(_)) => Err("the key does not belong to the certificate".into()),
        _ => Ok(()),
    }
}

/// Rewrites an error of rustls, or of QUIC around it, that only names its own types.
pub fn explain_error(error: &str) -> String {
    let known = [
        ("InvalidContentType", "the server does not speak TLS"),
        (
            "UnknownIssuer",
            "the certificate's authority is unknown: pass it with --cacert, or leave --cacert out to verify nothing",
        ),
        ("BadSignature", "a signature does not belong to its certificate"),
        (
            "UnsupportedCertVersion",
            "the certificate is of X.509 version 1, which names no host: leave --cacert out to verify nothing",
        ),
        ("CaUsedAsEndEntity", "the certificate is one of an authority, not of a server"),
    ];
    known.iter().find(|(name, _)| error.contains(name)).map_or(error, |(_, words)| words).to_string()
}

fn rustls_name(name: &str) -> String {
    let upper = name.to_ascii_uppercase().replace('-', "_");
    match upper.split_once("_AES") {
        Some((exchange @ ("ECDHE_ECDSA" | "ECDHE_RSA"), rest)) => {
            let rest = rest.replace("128_GCM", "_128_GCM").replace("256_GCM", "_256_GCM");
            format!("TLS_{exchange}_WITH_AES{}", rest.replace("__", "_"))
        }
        _ => upper.replace("TLS_AES", "TLS13_AES").replace("TLS_CHACHA20", "TLS13_CHACHA20"),
    }
}

/// Accepts chains to the given certificates, and these certificates themselves (self-signed test servers).
#[derive(Debug)]
struct KnownServer {
    chains: Arc<WebPkiServerVerifier>,
    known: Vec<CertificateDer<'static>>,
}

impl ServerCertVerifier for KnownServer {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        if self.known.iter().any(|known| known == certificate) {
            verify_server_name(&ParsedCertificate::try_from(certificate)?, name)?;
            return Ok(ServerCertVerified::assertion());
        }
        self.chains.verify_server_cert(certificate, between, name, ocsp, now)
    }
    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls12_signature(message, certificate, signature)
    }
    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        self.chains.verify_tls13_signature(message, certificate, signature)
    }
    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.chains.supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suites_are_found_under_both_names() {
        for name in [
            "ECDHE-ECDSA-AES256-GCM-SHA384",
            "ECDHE-RSA-AES128-GCM-SHA256",
            "TLS_AES_256_GCM_SHA384",
            "TLS13_CHACHA20_POLY1305_SHA256",
        ] {
            let spec = Tls { ciphers: vec![name.into()], ..Tls::default() };
            let version = if name.starts_with("ECDHE") { "1.2" } else { "1.3" };
            let made = client_config(&Tls { version: version.into(), ..spec }, "localhost", &[]);
            assert!(made.is_ok(), "{name}: {:?}", made.err());
        }
        assert!(client_config(&Tls { ciphers: vec!["RC4-MD5".into()], ..Tls::default() }, "h", &[]).is_err());
        assert!(client_config(&Tls { version: "1.1".into(), ..Tls::default() }, "h", &[]).is_err());
        assert!(client_config(&Tls { ca: Some("no PEM".into()), ..Tls::default() }, "h", &[]).is_err());
        assert_eq!(read_authorities("").unwrap_err(), "no certificate in PEM format");
        let exchanged = read_identity("-----BEGIN PRIVATE KEY-----\n-----END PRIVATE KEY-----\n", "").unwrap_err();
        assert!(exchanged.ends_with("exchange --cert and --key"), "{exchanged}");
    }

    /// Certificate of X.509 version 1, as `openssl x509 -req` makes it without extensions, and its key.
    const VERSION_1: &str = "\
-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQg75yZLBA8jLHMatfn
4cMSRsHwRXeSkiclACpBRlfN3WShRANCAATdjH68BskWgISPESFgoCwJqAYfO21x
W7QHlpe/DC3OllzIvQlofC8VNk1UZ0WX4NXFF7BnHpfSn/oksKgQl/nt
-----END PRIVATE KEY-----
-----BEGIN CERTIFICATE-----
MIIBIzCBywIUXZERle+HThNoq1GBanYgKWvk1xEwCgYIKoZIzj0EAwIwFDESMBAG
A1UEAwwJbG9jYWxob3N0MCAXDTI2MTEyNzAyNTkxNloYDzIxMjYxMTAzMDI1OTE2
WjAUMRIwEAYDVQQDDAlsb2NhbGhvc3QwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNC
AATdjH68BskWgISPESFgoCwJqAYfO21xW7QHlpe/DC3OllzIvQlofC8VNk1UZ0WX
4NXFF7BnHpfSn/oksKgQl/ntMAoGCCqGSM49BAMCA0cAMEQCIBJF/jIoANKYmYr1
d+KNKgPNqMSdWklBKREtTu4s6bxMAiBoWJ/5lhyVgfCPLzU6OjocRH/OwxGbSjB5
kUEhC01bLw==
-----END CERTIFICATE-----";

    #[test]
    fn version_1_certificates_are_taken_unless_verified() {
        use rustls::{ClientConnection, ServerConfig, ServerConnection};
        let chain = CertificateDer::pem_slice_iter(VERSION_1.as_bytes()).collect::<Result<Vec<_>, _>>().unwrap();
        let key = PrivateKeyDer::from_pem_slice(VERSION_1.as_bytes()).unwrap();
        let provider = Arc::new(aws_lc_rs::default_provider());
        let signing = provider.key_provider.load_private_key(key).unwrap();
        let resolver = rustls::sign::SingleCertAndKey::from(rustls::sign::CertifiedKey::new(chain, signing));
        let config = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(rustls::DEFAULT_VERSIONS)
            .unwrap()
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(resolver));
        let config = Arc::new(config);
        let shake = |spec: Tls| {
            let made = client_config(&spec, "localhost", &[]).unwrap();
            let mut client = ClientConnection::new(made.config, made.name).unwrap();
            let mut server = ServerConnection::new(config.clone()).unwrap();
            let mut bytes = Vec::new();
            while client.is_handshaking() {
                client.write_tls(&mut bytes).unwrap();
                server.read_tls(&mut &bytes[..]).unwrap();
                server.process_new_packets().unwrap();
                bytes.clear();
                server.write_tls(&mut bytes).unwrap();
                client.read_tls(&mut &bytes[..]).unwrap();
                client.process_new_packets().map_err(|e| explain_error(&e.to_string()))?;
                bytes.clear();
            }
            Ok::<_, String>(())
        };
        for version in ["1.2", "1.3"] {
            assert_eq!(shake(Tls { version: version.into(), ..Tls::default() }), Ok(()), "{version}");
        }
        let verified = shake(Tls { ca: Some(VERSION_1.into()), ..Tls::default() });
        assert!(verified.clone().unwrap_err().contains("X.509 version 1"), "{verified:?}");
    }

    #[test]
    fn errors_are_explained() {
        use rustls::{CertificateError, Error, InvalidMessage};
        let of = |error: Error| explain_error(&error.to_string());
        assert_eq!(of(InvalidMessage::InvalidContentType.into()), "the server does not speak TLS");
        assert!(of(CertificateError::UnknownIssuer.into()).contains("--cacert"));
        assert_eq!(of(Error::DecryptError), Error::DecryptError.to_string());
    }
}
