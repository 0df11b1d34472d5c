//! The admission webhook, asked over HTTPS with recorded reviews (`tests/reviews/*.json`).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use http::{Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_rustls::TlsConnector;

use super::ingresses::{ingress_class, snippet_annotations, test_ingress};
use super::{ClusterWorld, Controller};
use crate::run::webhook::{self, CertificateFiles};

/// Folder with a certificate and its key; removed with its owner.
struct KeyFolder(PathBuf);

impl Drop for KeyFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl KeyFolder {
    fn new(name: &str) -> KeyFolder {
        let folder = std::env::temp_dir().join(format!("tidegate-webhook-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let pair = KeyFolder(folder);
        pair.renew();
        pair
    }

    /// Puts another pair in place, as a mounted Secret changes: by another file under the name.
    fn renew(&self) {
        let made = rcgen::generate_simple_self_signed(["webhook.test".to_owned()]).unwrap();
        self.put("tls.crt", &made.cert.pem());
        self.put("tls.key", &made.signing_key.serialize_pem());
    }

    fn put(&self, name: &str, text: &str) {
        let temporary = self.0.join("new");
        std::fs::write(&temporary, text).unwrap();
        std::fs::rename(temporary, self.0.join(name)).unwrap();
    }

    fn files(&self) -> CertificateFiles {
        CertificateFiles::new(self.0.join("tls.crt"), self.0.join("tls.key"))
    }

    fn client(&self) -> TlsConnector {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(self.0.join("tls.crt")).unwrap()).unwrap();
        TlsConnector::from(Arc::new(ClientConfig::builder().with_root_certificates(roots).with_no_client_auth()))
    }
}

/// A controller with its webhook, and the cluster and the server of it.
struct ReviewServer {
    world: ClusterWorld,
    controller: Controller,
    pair: KeyFolder,
    port: u16,
    _webhook: JoinSet<()>,
}

impl ReviewServer {
    async fn start(name: &str) -> ReviewServer {
        let world = ClusterWorld::start().await;
        world.cluster.apply(ingress_class());
        let controller = world.controller(&["--no-status", "--allow-snippets"]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (port, pair) = (listener.local_addr().unwrap().port(), KeyFolder::new(name));
        let reviewer = Arc::new(controller.parts.reviewer(controller.outcomes.clone()));
        let mut webhook = JoinSet::new();
        webhook.spawn(webhook::serve_webhook(listener, pair.files(), reviewer));
        let reviewed = ReviewServer { world, controller, pair, port, _webhook: webhook };
        reviewed.settle().await;
        reviewed
    }

    /// Waits until the controller knows the outcome of its push.
    async fn settle(&self) {
        self.world.settle().await;
        let mut outcomes = self.controller.outcomes.clone();
        outcomes.wait_for(Option::is_some).await.unwrap();
    }

    async fn post(&self, text: &str) -> (u16, Vec<u8>) {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).await.unwrap();
        let name = ServerName::try_from("webhook.test").unwrap();
        let stream = self.pair.client().connect(name, stream).await.unwrap();
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let request = Request::post("/validate").header(header::HOST, "webhook.test");
        let request = request.body(Full::new(Bytes::from(text.to_owned()))).unwrap();
        let response = sender.send_request(request).await.unwrap();
        let status = response.status().as_u16();
        (status, response.into_body().collect().await.unwrap().to_bytes().to_vec())
    }

    /// Returns the response to a recorded review.
    async fn review(&self, name: &str) -> Value {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/reviews/{name}.json"));
        let text = std::fs::read_to_string(path).unwrap();
        let (status, body) = self.post(&text).await;
        assert_eq!(status, 200, "{}", String::from_utf8_lossy(&body));
        let mut value: Value = serde_json::from_slice(&body).unwrap();
        let sent: Value = serde_json::from_str(&text).unwrap();
        assert_eq!((&value["apiVersion"], &value["kind"]), (&sent["apiVersion"], &sent["kind"]));
        assert_eq!(value["response"]["uid"], sent["request"]["uid"]);
        value["response"].take()
    }
}

fn words(response: &Value) -> String {
    format!("{} {}", response["status"]["message"], response["warnings"])
}

#[tokio::test]
async fn reviews_are_answered_with_the_result_of_the_translation_and_the_server() {
    let reviewed = ReviewServer::start("table").await;
    reviewed.world.server.state().refuses_lines = vec!["banana".into()];
    for (name, allowed, expected) in [
        ("ingress-plain", true, None),
        ("ingress-unknown-annotation", true, Some("limit-rps")),
        ("ingress-broken-snippet", false, Some("\\\"root\\\" is refused")),
        ("ingress-refused-by-server", false, Some("the server refuses it: nginx: [emerg] invalid value")),
        ("ingress-of-another-class", true, None),
        ("ingress-deleted", true, None),
        ("httproute-without-service", true, Some("shop/gone: does not exist")),
        ("httproute-generated-name", true, None),
        ("httproute-of-another-gateway", true, None),
        ("deployment", true, None),
    ] {
        let response = reviewed.review(name).await;
        assert_eq!(response["allowed"], allowed, "{name}: {response}");
        match expected {
            Some(expected) => assert!(words(&response).contains(expected), "{name}: {response}"),
            None => assert_eq!(response["warnings"], Value::Array(Vec::new()), "{name}: {response}"),
        }
    }
    let changes = reviewed.world.changes();
    assert!(changes.iter().any(|change| change.ends_with("?dry_run")), "{changes:?}");
    assert!(!reviewed.world.server.state().main.contains("plain.test"), "a review activates nothing");
}

#[tokio::test]
async fn files_that_the_server_has_are_not_sent_for_a_review() {
    let reviewed = ReviewServer::start("files").await;
    let text = include_str!("../../../../render/tests/manifests/https-terminate/input.yaml");
    for document in text.split("\n---\n") {
        reviewed.world.cluster.apply(serde_saphyr::from_str(document).unwrap());
    }
    reviewed.world.settle().await;
    let mut outcomes = reviewed.controller.outcomes.clone();
    let has_files =
        |outcome: &Option<super::PushResult>| outcome.as_ref().is_some_and(|one| !one.desired.files.is_empty());
    outcomes.wait_for(has_files).await.unwrap();
    reviewed.world.server.state().sent = vec!["before".into()];
    assert_eq!(reviewed.review("ingress-plain").await["allowed"], true);
    assert_eq!(reviewed.world.server.state().sent, [""; 0]);
    // The server has lost one meanwhile.
    reviewed.world.server.state().attachments.remove("certificates/shop/tls.key").unwrap();
    let response = reviewed.review("ingress-plain").await;
    assert!(response["allowed"] == true && !words(&response).contains("not checked"), "{response}");
    assert!(reviewed.world.server.state().sent.contains(&"certificates/shop/tls.key".to_owned()));
    assert!(
        !reviewed.world.server.state().attachments.contains_key("certificates/shop/tls.key"),
        "a review stores nothing"
    );
}

#[tokio::test]
async fn an_object_that_the_server_refuses_already_does_not_stand_in_the_way_of_others() {
    let reviewed = ReviewServer::start("refused").await;
    reviewed.world.server.state().refuses_lines = vec!["banana".into()];
    reviewed.world.cluster.apply(test_ingress("bad", snippet_annotations("proxy_read_timeout banana;")));
    let mut outcomes = reviewed.controller.outcomes.clone();
    let is_left_out = |outcome: &Option<super::PushResult>| {
        outcome.as_ref().is_some_and(|outcome| !outcome.desired.excluded.is_empty())
    };
    outcomes.wait_for(is_left_out).await.unwrap();
    assert_eq!(reviewed.review("ingress-plain").await["allowed"], true);
    assert_eq!(reviewed.review("ingress-refused-by-server").await["allowed"], false);
}

#[tokio::test]
async fn without_the_server_objects_are_allowed_with_a_warning() {
    let reviewed = ReviewServer::start("gone").await;
    reviewed.world.server.state().is_down = true;
    let response = reviewed.review("ingress-refused-by-server").await;
    assert_eq!(response["allowed"], true);
    assert!(words(&response).contains("not checked by the server"), "{response}");
}

#[tokio::test]
async fn other_requests_get_their_reason() {
    let reviewed = ReviewServer::start("requests").await;
    for text in [
        "",
        "{}",
        r#"{"apiVersion":"admission.k8s.io/v1beta1","kind":"AdmissionReview","request":{"uid":"1","operation":"CREATE"}}"#,
    ] {
        let (status, body) = reviewed.post(text).await;
        let body = String::from_utf8(body).unwrap();
        assert!(status == 400 && body.contains("AdmissionReview"), "{text}: {status} {body}");
    }
}

#[tokio::test]
async fn a_renewed_certificate_is_used_for_the_next_connection() {
    let reviewed = ReviewServer::start("renewed").await;
    assert_eq!(reviewed.review("deployment").await["allowed"], true);
    reviewed.pair.renew();
    // The client trusts the new certificate only.
    assert_eq!(reviewed.review("deployment").await["allowed"], true);
    // Halves of a pair do not replace it.
    let old = std::fs::read_to_string(reviewed.pair.0.join("tls.key")).unwrap();
    reviewed.pair.put("tls.key", "no key");
    assert_eq!(reviewed.review("deployment").await["allowed"], true);
    reviewed.pair.put("tls.key", &old);
    assert_eq!(reviewed.review("deployment").await["allowed"], true);
}

#[test]
fn a_missing_certificate_is_no_end() {
    let pair = KeyFolder::new("missing");
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let files = CertificateFiles::new(pair.0.join("later.crt"), pair.0.join("tls.key"));
    assert!(files.current().is_none());
    std::fs::copy(pair.0.join("tls.crt"), pair.0.join("later.crt")).unwrap();
    let first = files.current().unwrap();
    assert!(Arc::ptr_eq(&first, &files.current().unwrap()), "files that stay are read once");
}
