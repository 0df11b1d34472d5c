//! Certificates travel in the change of the configuration that uses them.

use serde_json::Value;

use super::{ClusterWorld, POST, PUT, route, server};

#[tokio::test(start_paused = true)]
async fn certificates_travel_with_the_configuration() {
    let world = ClusterWorld::start().await;
    let text = include_str!("../../../../render/tests/manifests/https-terminate/input.yaml");
    for document in text.split("\n---\n") {
        world.cluster.apply(serde_saphyr::from_str(document).unwrap());
    }
    let first = world.controller(&["--no-status"]);
    world.settle().await;
    let posted = |state: &server::State| state.changes.iter().any(|change| change == POST);
    world.server.until("the first push ends", |state| state.changes.last().is_some_and(|change| change == PUT)).await;
    assert!(world.server.state().main.contains("ssl_certificate_key certificates/shop/tls.key;"));
    let key = world.server.state().attachments["certificates/shop/tls.key"].clone();
    assert!(key.contains("PRIVATE KEY"), "{key}");
    world.changes();
    // A renewed certificate is a new configuration, although its text names the same files; stored files are not sent again.
    let secret = text.split("\n---\n").find(|document| document.contains("kind: Secret")).unwrap();
    let mut secret: Value = serde_saphyr::from_str(secret).unwrap();
    let mut renew = |times: usize| {
        let mut bytes: k8s_openapi::ByteString = serde_json::from_value(secret["data"]["tls.key"].clone()).unwrap();
        bytes.0.extend(vec![b'\n'; times]);
        secret["data"]["tls.key"] = serde_json::to_value(&bytes).unwrap();
        world.cluster.apply(secret.clone());
    };
    renew(1);
    world.settle().await;
    world.server.until("the push ends", posted).await;
    assert_eq!(
        (world.changes()[0].as_str(), &world.server.state().sent[..]),
        (POST, &["certificates/shop/tls.key".to_owned()][..])
    );
    assert_eq!(world.server.state().attachments["certificates/shop/tls.key"], format!("{key}\n"));
    // A controller that begins anew knows them by their digests, also if the server has lost one meanwhile.
    drop(first);
    world.changes();
    world.cluster.apply(route("b", "b.test", "api"));
    let _second = world.controller(&["--no-status"]);
    world.settle().await;
    world.server.until("the push ends", posted).await;
    assert!(world.server.state().sent.is_empty(), "{:?}", world.server.state().sent);
    world.server.state().attachments.remove("certificates/shop/tls.key");
    world.changes();
    world.cluster.apply(route("c", "c.test", "api"));
    world.settle().await;
    world.server.until("the push ends", posted).await;
    assert_eq!(world.server.state().sent, ["certificates/shop/tls.crt", "certificates/shop/tls.key"]);
}
