//! A controller between a fake engine, or a fake Consul, and the server itself.

mod fake_consul;
mod fake_engine;
mod fake_http;
mod outages;
mod podman;
mod replicas;
mod services;
mod tls;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Parser as _;
use serde_json::Value;
use tokio::task::JoinSet;

use super::super::tests::load::backends::KeepaliveClient;
use super::super::tests::load::process::{ServerProcess, server_program};
use super::DiscoveryParts;
use super::inventory::Inventory;
use crate::arguments::{ControllerArguments, ControllerCommand};

/// A wait that takes longer has failed.
const WAIT_MAX: Duration = Duration::from_secs(60);

/// Returns the server's program, or records that it is not built.
fn program() -> Option<std::path::PathBuf> {
    let program = server_program();
    if program.is_none() {
        testkit::missing_means("the program tidegate is not built beside this test");
    }
    program
}

/// A controller and a server process.
struct DiscoveryWorld {
    server: ServerProcess,
    inventory: Arc<Inventory>,
    parts: DiscoveryParts,
    _tasks: JoinSet<()>,
    port: u16,
}

impl DiscoveryWorld {
    /// Starts both, with these arguments of the controller.
    fn start(program: std::path::PathBuf, arguments: &[&str]) -> DiscoveryWorld {
        let port = testkit::free_port();
        let server = ServerProcess::start(program);
        let api = format!("unix:{}", server.socket().display());
        let port_text = port.to_string();
        let own =
            ["tidegate-controller", "run", "--api", &api, "--listen-address", "127.0.0.1", "--http-port", &port_text];
        let words = [&own, arguments].concat();
        let Ok(ControllerArguments { command: ControllerCommand::Run(options) }) =
            ControllerArguments::try_parse_from(words)
        else {
            panic!("arguments")
        };
        assert_eq!(options.misplaced(), None);
        let parts = DiscoveryParts::new(&options).unwrap();
        let tasks = parts.spawn();
        DiscoveryWorld { server, inventory: parts.inventory.clone(), parts, _tasks: tasks, port }
    }

    fn get(&self, host: &str) -> Result<(u16, String), String> {
        KeepaliveClient::new(self.port).get(host).map(|answer| (answer.status, answer.body))
    }

    /// Waits until a request of a host has this status.
    async fn answers(&self, host: &str, status: u16) {
        self.until(&format!("{host}: {status}"), || self.get(host).is_ok_and(|answer| answer.0 == status)).await;
    }

    /// Waits until the server's API lists these local servers of a group.
    async fn group_has(&self, group: &str, ports: &BTreeSet<u16>) {
        let path = format!("/api/9/http/upstreams/{group}/servers");
        let expected: BTreeSet<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        self.until(&format!("{group}: {expected:?}"), || {
            let Some(Value::Array(all)) = self.server.get(&path) else { return false };
            let server = |one: &Value| one["server"].as_str().map(str::to_owned);
            all.iter().filter_map(server).collect::<BTreeSet<String>>() == expected
        })
        .await;
    }

    fn generation(&self) -> u64 {
        let value = self.server.get("/api/tidegate/1/config").expect("an answer of the API");
        value["generation"].as_u64().expect("a generation")
    }

    async fn until(&self, words: &str, mut property: impl FnMut() -> bool) {
        let end = Instant::now() + WAIT_MAX;
        while !property() {
            assert!(Instant::now() < end, "it never came to this: {words}\n{}", self.server.log());
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}
