//! Test certificates by rcgen, and by `openssl` for legacy forms.

use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use rustls::pki_types::CertificateDer;
use std::io::Write;
use std::process::{Command, Stdio};

#[derive(Clone)]
pub(crate) struct TestCertificate {
    pub certificate: String,
    pub key: String,
}

impl TestCertificate {
    pub fn certificate_der(&self) -> CertificateDer<'static> {
        let blocks = crate::pem::parse_blocks(self.certificate.as_bytes()).expect("PEM");
        CertificateDer::from(blocks[0].bytes.clone())
    }
    pub fn pair(&self) -> crate::certs::KeyPair {
        crate::certs::KeyPair::load(self.certificate.as_bytes(), self.key.as_bytes(), &[]).expect("a pair")
    }
}

pub(crate) struct Authority {
    params: CertificateParams,
    key: KeyPair,
    pub pem: String,
}

pub(crate) fn authority_params(name: &str) -> CertificateParams {
    let mut params = CertificateParams::default();
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign, KeyUsagePurpose::DigitalSignature];
    params
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        Self::with(authority_params(name))
    }

    pub fn with(params: CertificateParams) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let pem = params.clone().self_signed(&key).expect("signed").pem();
        Authority { params, key, pem }
    }

    pub fn der(&self) -> CertificateDer<'static> {
        CertificateDer::from(crate::pem::parse_blocks(self.pem.as_bytes()).expect("PEM")[0].bytes.clone())
    }

    pub fn certificate(&self) -> crate::x509::Certificate {
        crate::x509::Certificate::parse(self.der()).expect("a certificate")
    }

    pub fn issuer(&self) -> Issuer<'_, &KeyPair> {
        Issuer::from_params(&self.params, &self.key)
    }

    pub fn server(&self, names: &[&str]) -> TestCertificate {
        let names: Vec<String> = names.iter().map(|n| (*n).to_string()).collect();
        self.issue(CertificateParams::new(names).expect("names"))
    }

    /// Has a common name only.
    pub fn client(&self, name: &str) -> TestCertificate {
        let mut params = CertificateParams::default();
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(DnType::CommonName, name);
        self.issue(params)
    }

    pub fn issue(&self, params: CertificateParams) -> TestCertificate {
        let key = KeyPair::generate().expect("a key");
        let certificate = params.signed_by(&key, &self.issuer()).expect("signed").pem();
        TestCertificate { certificate, key: key.serialize_pem() }
    }

    pub fn intermediate(&self, params: CertificateParams) -> Authority {
        let key = KeyPair::generate().expect("a key");
        let pem = params.signed_by(&key, &self.issuer()).expect("signed").pem();
        Authority { params, key, pem }
    }
}

/// Returns `None` if openssl is not installed.
pub(crate) fn openssl(args: &[&str], input: &[u8]) -> Option<Vec<u8>> {
    let child =
        Command::new("openssl").args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let Ok(mut child) = child else {
        println!("no openssl program here: not tested");
        return None;
    };
    child.stdin.take().expect("piped").write_all(input).expect("written");
    let out = child.wait_with_output().expect("an end");
    assert!(out.status.success(), "openssl {args:?}");
    Some(out.stdout)
}

/// Self-signed version 1 certificate, as `openssl req -x509` without extensions.
pub(crate) fn openssl_v1(name: &str) -> Option<TestCertificate> {
    let key = openssl(&["genrsa", "2048"], b"")?;
    let directory = std::env::temp_dir().join(format!("tidegate-tls-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (conf, file) = (directory.join("req.conf"), directory.join("key.pem"));
    std::fs::write(&conf, "[ req ]\ndefault_bits = 2048\nencrypt_key = no\ndistinguished_name = dn\n[ dn ]\n")
        .expect("written");
    std::fs::write(&file, &key).expect("written");
    let subject = format!("/CN={name}/");
    let (conf, file) = (conf.display().to_string(), file.display().to_string());
    let args = ["req", "-x509", "-new", "-config", &conf, "-subj", &subject, "-key", &file, "-days", "2"];
    let certificate = openssl(&args, b"");
    let _ = std::fs::remove_dir_all(&directory);
    Some(TestCertificate {
        certificate: String::from_utf8(certificate?).expect("PEM"),
        key: String::from_utf8(key).expect("PEM"),
    })
}
