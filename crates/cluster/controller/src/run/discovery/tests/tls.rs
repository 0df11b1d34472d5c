//! Engines and Consul over TLS that ask for a certificate of the client: right files, and words for each failure.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use cluster_discovery::Provider;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig};
use tokio_rustls::TlsAcceptor;

use super::super::super::probes::SourceState as _;
use super::super::super::tests::load::backends::Backend;
use super::super::source_client::source_client;
use super::fake_consul::{FakeConsul, TOKEN, fake_instance};
use super::fake_engine::{FakeEngine, fake_container};
use super::fake_http::{Outage, TempFolder, serve_tcp, socket_path, text_body};
use super::{DiscoveryWorld, program};
use crate::discovery_arguments::SourceArguments;

/// A time limit that no answer of these tests needs.
const TIME: Duration = Duration::from_secs(60);

/// An authority, whose certificates are files of a folder.
struct Authority {
    issuer: rcgen::Issuer<'static, rcgen::KeyPair>,
    pem: String,
}

impl Authority {
    fn new(name: &str) -> Authority {
        let mut parameters = rcgen::CertificateParams::new(Vec::new()).unwrap();
        parameters.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(rcgen::DnType::CommonName, name);
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = parameters.self_signed(&key).unwrap().pem();
        Authority { issuer: rcgen::Issuer::new(parameters, key), pem }
    }

    /// Returns a certificate of a name, valid until a year, with its key.
    fn certify(&self, name: &str, last_year: i32) -> (String, String) {
        let mut parameters = rcgen::CertificateParams::new(vec![name.to_owned()]).unwrap();
        parameters.not_after = rcgen::date_time_ymd(last_year, 1, 1);
        let key = rcgen::KeyPair::generate().unwrap();
        (parameters.signed_by(&key, &self.issuer).unwrap().pem(), key.serialize_pem())
    }
}

/// Makes the server's side, which asks for a certificate of an authority.
fn acceptor((certificate, key): &(String, String), clients: &Authority) -> TlsAcceptor {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(clients.pem.as_bytes()).unwrap()).unwrap();
    let verifier = WebPkiClientVerifier::builder(Arc::new(roots)).build().unwrap();
    let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
    let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
    let config = ServerConfig::builder().with_client_cert_verifier(verifier).with_single_cert(chain, key).unwrap();
    TlsAcceptor::from(Arc::new(config))
}

/// Writes the files of `DOCKER_CERT_PATH`.
fn certificate_folder(authority: &Authority, (certificate, key): &(String, String)) -> (PathBuf, TempFolder) {
    let (path, folder) = socket_path();
    let path = path.parent().unwrap().to_owned();
    for (name, text) in [("ca.pem", &authority.pem), ("cert.pem", certificate), ("key.pem", key)] {
        std::fs::write(path.join(name), text).unwrap();
    }
    (path, folder)
}

/// Lists containers as `docker` with these variables does.
async fn list(variables: &[(&str, &str)]) -> Result<u16, String> {
    let variable = |name: &str| variables.iter().find(|pair| pair.0 == name).map(|pair| pair.1.to_owned());
    let client = source_client(&SourceArguments::default(), Provider::Docker, variable)?;
    client.get("/containers/json?all=true", TIME).await.map(|answer| answer.status.as_u16())
}

#[tokio::test]
async fn each_failure_of_tls_has_its_words() {
    let (ours, others) = (Authority::new("ours"), Authority::new("others"));
    let (server, client) = (ours.certify("127.0.0.1", 4000), ours.certify("client", 4000));
    let servers = [
        ("right", server.clone()),
        ("expired", ours.certify("127.0.0.1", 2020)),
        ("unknown", others.certify("127.0.0.1", 4000)),
        ("named", ours.certify("engine.test", 4000)),
    ];
    let clients = [
        ("right", client.clone()),
        ("expired", ours.certify("client", 2020)),
        ("unknown", others.certify("client", 4000)),
    ];
    for (server_name, server) in &servers {
        let engine = FakeEngine::start_tls(acceptor(server, &ours)).await;
        for (client_name, client) in &clients {
            let (path, _folder) = certificate_folder(&ours, client);
            let path = path.display().to_string();
            let host = engine.address();
            let variables = [("DOCKER_HOST", &*host), ("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", &*path)];
            let answer = list(&variables).await;
            let words = match (*server_name, *client_name) {
                ("right", "right") => {
                    assert_eq!(answer, Ok(200));
                    continue;
                }
                ("right", "expired") => "this client's certificate has expired",
                ("right", "unknown") => "the server does not know the authority of this client's certificate",
                ("expired", _) => "the server's certificate has expired",
                ("unknown", _) => &format!("the server's certificate is signed by no authority of {path}/ca.pem"),
                _ => "the server's certificate has another name",
            };
            assert!(
                answer.as_ref().is_err_and(|answer| answer.contains(words)),
                "server {server_name}, client {client_name}: {answer:?}"
            );
        }
    }
}

#[tokio::test]
async fn files_and_sides_that_do_not_fit_are_named() {
    let ours = Authority::new("ours");
    let (server, client) = (ours.certify("127.0.0.1", 4000), ours.certify("client", 4000));
    let engine = FakeEngine::start_tls(acceptor(&server, &ours)).await;
    let (path, _folder) = certificate_folder(&ours, &client);
    let (host, folder) = (engine.address(), path.display().to_string());
    let variables = [("DOCKER_HOST", &*host), ("DOCKER_TLS_VERIFY", "1"), ("DOCKER_CERT_PATH", &*folder)];
    let fails = async |variables: &[(&str, &str)], words: &str| {
        let answer = list(variables).await;
        assert!(answer.as_ref().is_err_and(|answer| answer.contains(words)), "{words}: {answer:?}");
    };

    // Without TLS towards a server that has it, and the other way round.
    fails(&variables[..1], "/containers/json").await;
    let handler = Arc::new(|_| {
        let answer = async { http::Response::new(text_body("[]".into())) };
        Box::pin(answer) as futures::future::BoxFuture<'static, _>
    });
    let plain = format!("tcp://127.0.0.1:{}", serve_tcp(Outage::default(), handler).await);
    fails(&[("DOCKER_HOST", &plain), variables[1], variables[2]], "the server does not speak TLS").await;

    // Without a certificate of the client.
    let usual = [variables[0], variables[1], ("DOCKER_CONFIG", &*folder)];
    assert_eq!(list(&usual).await, Ok(200), "the usual folder");
    std::fs::rename(path.join("cert.pem"), path.join("other.pem")).unwrap();
    std::fs::rename(path.join("key.pem"), path.join("other.key")).unwrap();
    fails(&usual, "the server asks for a certificate of this client").await;
    fails(&variables, "/cert.pem: ").await;
    std::fs::write(path.join("cert.pem"), "no certificate").unwrap();
    fails(&variables, "/cert.pem: no certificate").await;
    std::fs::rename(path.join("other.pem"), path.join("cert.pem")).unwrap();
    fails(&usual, "/cert.pem: a certificate without a key").await;
    std::fs::write(path.join("key.pem"), ours.certify("client", 4000).1).unwrap();
    fails(&variables, &format!("/key.pem: not the key of {folder}/cert.pem")).await;
    std::fs::rename(path.join("other.key"), path.join("key.pem")).unwrap();
    std::fs::write(path.join("ca.pem"), "").unwrap();
    fails(&variables, "/ca.pem: no certificate of an authority").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_engine_is_watched_over_tls() {
    let Some(program) = program() else { return };
    let backend = Backend::start();
    let ours = Authority::new("ours");
    let (server, client) = (ours.certify("127.0.0.1", 4000), ours.certify("client", 4000));
    let engine = FakeEngine::start_tls(acceptor(&server, &ours)).await;
    let (path, _folder) = certificate_folder(&ours, &client);
    let file = |name: &str| path.join(name).display().to_string();
    let files = [file("ca.pem"), file("cert.pem"), file("key.pem")];
    let tls = ["--ca-file", &files[0], "--client-certificate", &files[1], "--client-key", &files[2]];
    let world =
        DiscoveryWorld::start(program, &[&["--provider", "docker", "--engine", &engine.address()][..], &tls].concat());
    engine.run(fake_container(1, backend.port));
    world.answers("a.test", 200).await;
    engine.remove(1);
    world.answers("a.test", 404).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consul_is_watched_over_https_and_an_outage_says_why() {
    let Some(program) = program() else { return };
    let backend = Backend::start();
    let ours = Authority::new("ours");
    let (server, client) = (ours.certify("server.dc1.consul", 4000), ours.certify("client", 4000));
    let consul = FakeConsul::start_with(Some(acceptor(&server, &ours))).await;
    consul.set("web", vec![fake_instance(backend.port, "a.test", "passing")]);
    let (path, _folder) = certificate_folder(&ours, &client);
    std::fs::write(path.join("token"), TOKEN).unwrap();
    let file = |name: &str| path.join(name).display().to_string();
    let files = [file("ca.pem"), file("cert.pem"), file("key.pem"), file("token")];
    let address = format!("https://127.0.0.1:{}", consul.port);
    let words = ["--provider", "consul", "--consul", &address, "--consul-token-file", &files[3]];
    let tls = ["--ca-file", &files[0], "--client-certificate", &files[1], "--client-key", &files[2]];
    let named = [&words[..], &tls, &["--tls-server-name", "server.dc1.consul"]].concat();
    let world = DiscoveryWorld::start(program.clone(), &named);
    world.answers("a.test", 200).await;

    // Without the name that the certificate has.
    let unnamed = DiscoveryWorld::start(program, &[&words[..], &tls].concat());
    unnamed
        .until("the reason", || {
            unnamed.inventory.missing().is_some_and(|words| words.contains("the server's certificate has another name"))
        })
        .await;
}
