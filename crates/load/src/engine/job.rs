//! A run as data: what to ask, from whom, in which loop, how long. Made by the command line, sent to workers as JSON.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::profile::{Arrivals, Profile};
use super::request::RequestSpec;

/// Everything that a run depends on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub target: Target,
    pub requests: Vec<RequestSpec>,
    /// The requests are the steps of a session, in their order, each after the answer to the one before.
    #[serde(default)]
    pub session: bool,
    /// Header fields of every request.
    pub headers: Vec<String>,
    pub model: Model,
    /// Connections or users (closed loop), requests per second (open loop) or connections per second.
    pub profile: Profile,
    /// Most connections at a time in an open loop or connection-rate run.
    pub connections_max: usize,
    /// Requests on one connection before it is closed; 0 for no limit.
    pub calls: u32,
    /// Requests in flight on one connection: a pipeline, or streams.
    pub pipeline: usize,
    /// HTTP/2 instead of HTTP/1.1.
    #[serde(default)]
    pub http2: Option<Http2>,
    /// Seconds that come before the profile and are not measured; the first value of the profile holds in them.
    pub warmup: f64,
    /// Seconds until a request or a connection attempt counts as failed.
    pub timeout: f64,
    pub connect_timeout: f64,
    /// Stop after so many requests in all.
    pub budget: Option<u64>,
    pub threads: usize,
    /// Cores to pin the threads to, in turn; empty for none.
    pub cores: Vec<usize>,
    pub seed: u64,
    /// Close connections by reset.
    pub reset: bool,
    /// Busy waiting instead of sleeping.
    pub spin: bool,
    /// Seconds of one interval of the time series.
    pub interval: f64,
    /// This machine's place among all that share the load: (number, count).
    pub share: (usize, usize),
}

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    /// Host and port as in the URL, for the Host field and for TLS.
    pub host: String,
    pub port: u16,
    pub address: SocketAddr,
    pub tls: Option<Tls>,
    /// Path of a unix socket to connect to instead of `address`.
    #[serde(default)]
    pub unix: Option<std::path::PathBuf>,
    /// Local addresses to connect from, in turn; more of them give more ports.
    pub sources: Vec<std::net::IpAddr>,
}

impl Target {
    /// Host as it stands in a Host field: with the port unless it is the usual one.
    pub fn authority(&self) -> String {
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

/// What a client of HTTP/2 tells servers of itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http2 {
    /// Octets of a body that may be on their way on one stream, and over all streams of a connection.
    pub stream_window: u32,
    pub connection_window: u32,
    /// Octets of the table for header compression that servers may use.
    pub table: u32,
}

impl Default for Http2 {
    /// Windows that no answer fills, so that servers and not windows are measured; the protocol's own size of the table.
    fn default() -> Self {
        Http2 { stream_window: 1 << 30, connection_window: 1 << 30, table: 4096 }
    }
}

/// How to speak TLS.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// Certificates (PEM) to verify the server against; without them nothing is verified.
    pub ca: Option<String>,
    /// Resume sessions on later connections instead of full handshakes.
    pub resume: bool,
    /// `1.2` or `1.3`; both when empty.
    pub version: String,
    /// Names of cipher suites to offer, as `ECDHE-ECDSA-AES256-GCM-SHA384` or `TLS13_AES_128_GCM_SHA256`; all when empty.
    pub ciphers: Vec<String>,
}

/// The loop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// So many connections, each asks again when it has its answer, after a think time.
    Closed { think: Think },
    /// Requests by schedule, whatever the answers do.
    Open { arrivals: Arrivals },
    /// Connections by schedule, each with `calls` requests, with a pause between them.
    Connections {
        arrivals: Arrivals,
        #[serde(default)]
        think: Think,
    },
    /// Requests at given times (seconds from the start) with given numbers.
    Replay { at: Vec<(f64, u32)> },
}

impl Model {
    /// Whether the send times follow a plan that does not wait for answers.
    pub fn is_open(&self) -> bool {
        !matches!(self, Model::Closed { .. })
    }
    /// Whether requests go over any connection that is free.
    pub fn is_pooled(&self) -> bool {
        matches!(self, Model::Open { .. } | Model::Replay { .. })
    }
    /// What the values of the profile are.
    pub fn quantity(&self) -> &'static str {
        match self {
            Model::Closed { .. } => "connections",
            Model::Open { .. } | Model::Replay { .. } => "requests/s offered",
            Model::Connections { .. } => "connections/s offered",
        }
    }
}

/// Time between an answer and the next request of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Think {
    /// Mean in seconds.
    pub mean: f64,
    /// Exponentially distributed instead of constant.
    pub random: bool,
}

impl Job {
    /// A closed loop of `connections` on `/` for `seconds`; the command line and the tests start from here.
    pub fn closed(target: Target, connections: usize, seconds: f64) -> Job {
        Job {
            target,
            requests: vec![RequestSpec::get("/")],
            session: false,
            headers: Vec::new(),
            model: Model::Closed { think: Think::default() },
            profile: Profile::constant(connections as f64, seconds),
            connections_max: connections,
            calls: 0,
            pipeline: 1,
            http2: None,
            warmup: 0.0,
            timeout: 5.0,
            connect_timeout: 5.0,
            budget: None,
            threads: 1,
            cores: Vec::new(),
            seed: 1,
            reset: false,
            spin: false,
            interval: 1.0,
            share: (0, 1),
        }
    }

    /// Number of this machine's world `world` among all worlds of all machines, and how many those are.
    pub fn world_number(&self, world: usize) -> (usize, usize) {
        let threads = self.threads.max(1);
        (self.share.0 * threads + world, self.share.1.max(1) * threads)
    }
}
