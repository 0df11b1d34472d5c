//! A run as data: requests, target, loop and length. Sent to workers as JSON.

use std::net::SocketAddr;

use serde::{Deserialize, Serialize};

use super::feed::LoadData;
use super::grpc::GrpcJob;
use super::profile::{Arrivals, Profile};
use super::request::RequestSpec;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub target: Target,
    pub requests: Vec<RequestSpec>,
    /// Requests are the steps of a session, each sent after the previous answer.
    #[serde(default)]
    pub session: bool,
    pub headers: Vec<String>,
    pub model: Model,
    /// Connections or users (closed loop), requests per second (open loop), or connections per second.
    pub profile: Profile,
    /// Connections at most in an open loop or connection-rate run.
    pub connections_max: usize,
    /// Requests per connection; 0 for no limit.
    pub calls: u32,
    /// Requests in flight per connection: a pipeline or streams.
    pub pipeline: usize,
    #[serde(default)]
    pub http2: Option<Http2>,
    #[serde(default)]
    pub http3: Option<Http3>,
    /// Unmeasured seconds before the profile, at its first value.
    pub warmup: f64,
    /// Seconds until a request or connection attempt fails.
    pub timeout: f64,
    pub connect_timeout: f64,
    pub budget: Option<u64>,
    pub threads: usize,
    /// Cores to pin threads to, in rotation.
    pub cores: Vec<usize>,
    pub seed: u64,
    pub reset: bool,
    pub spin: bool,
    /// Seconds per interval of the time series.
    pub interval: f64,
    pub share: (usize, usize),
    /// Requests are messages over WebSocket.
    #[serde(default)]
    pub websocket: bool,
    /// Requests are calls of gRPC, over HTTP/2.
    #[serde(default)]
    pub grpc: Option<GrpcJob>,
    /// Redirects that are followed for each request; 0: an answer that redirects is the answer.
    #[serde(default)]
    pub follow: u32,
    /// Every user keeps cookies.
    #[serde(default)]
    pub cookies: bool,
    #[serde(default)]
    pub data: Option<LoadData>,
    /// Servers beside `target`, which [`RequestSpec::server`] counts from 1 on.
    #[serde(default)]
    pub servers: Vec<Target>,
    /// Connections to each server: at most, in an open loop; of each user, in a session with parallel steps; otherwise of
    /// a closed loop. 0: `connections_max`, or the profile, is of all servers.
    #[serde(default)]
    pub connections_each: usize,
    /// Ends the run if a connection is refused before any was established.
    #[serde(default)]
    pub end_if_refused: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Target {
    pub host: String,
    pub port: u16,
    pub address: SocketAddr,
    pub tls: Option<Tls>,
    /// Unix socket to connect to instead of `address`.
    #[serde(default)]
    pub unix: Option<std::path::PathBuf>,
    /// The proxy at `address`, which forwards to `host` and `port`.
    #[serde(default)]
    pub proxy: Option<ProxyAccess>,
    /// Local addresses to connect from, in rotation; each adds ports.
    pub sources: Vec<std::net::IpAddr>,
}

/// Access to an HTTP proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProxyAccess {
    /// Value of `Proxy-Authorization`.
    pub authorization: Option<String>,
}

impl Target {
    /// Scheme and authority, such as `https://host:8443`.
    pub fn origin(&self) -> String {
        format!("{}://{}", if self.tls.is_some() { "https" } else { "http" }, self.authority())
    }

    /// Authority with the port, for CONNECT (RFC 9110, 9.3.6).
    pub fn full_authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        format!("{host}:{}", self.port)
    }

    /// Host field: with the port unless it is the scheme's default.
    pub fn authority(&self) -> String {
        let usual = if self.tls.is_some() { 443 } else { 80 };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == usual { host } else { format!("{host}:{}", self.port) }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http2 {
    /// Flow-control windows in octets: per stream, and per connection.
    pub stream_window: u32,
    pub connection_window: u32,
    /// In octets.
    pub table: u32,
}

impl Default for Http2 {
    /// Windows too large for any response, so that servers are measured and not windows; the protocol's table size.
    fn default() -> Self {
        Http2 { stream_window: 1 << 30, connection_window: 1 << 30, table: 4096 }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Http3 {
    /// Flow-control windows in octets: per stream, and per connection.
    pub stream_window: u32,
    pub connection_window: u32,
    /// Resumed connections send their first requests as 0-RTT data.
    pub early_data: bool,
}

impl Default for Http3 {
    /// The windows of [`Http2`].
    fn default() -> Self {
        Http3 { stream_window: 1 << 30, connection_window: 1 << 30, early_data: false }
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tls {
    /// CA certificates (PEM); without them nothing is verified.
    pub ca: Option<String>,
    /// Certificate chain and private key of the client (PEM).
    #[serde(default)]
    pub identity: Option<(String, String)>,
    pub resume: bool,
    /// `1.2` or `1.3`; both when empty.
    pub version: String,
    /// Cipher suites, as `ECDHE-ECDSA-AES256-GCM-SHA384` or `TLS13_AES_128_GCM_SHA256`; all when empty.
    pub ciphers: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    Closed {
        think: Think,
    },
    Open {
        arrivals: Arrivals,
    },
    /// Connections by schedule, each with `calls` requests and pauses between them.
    Connections {
        arrivals: Arrivals,
        #[serde(default)]
        think: Think,
    },
    /// Requests at given times (seconds from the start).
    Replay {
        at: Vec<(f64, u32)>,
    },
}

impl Model {
    pub fn is_open(&self) -> bool {
        !matches!(self, Model::Closed { .. })
    }
    pub fn is_pooled(&self) -> bool {
        matches!(self, Model::Open { .. } | Model::Replay { .. })
    }
    pub fn quantity(&self) -> &'static str {
        match self {
            Model::Closed { .. } => "connections",
            Model::Open { .. } | Model::Replay { .. } => "requests/s offered",
            Model::Connections { .. } => "connections/s offered",
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Think {
    pub mean: f64,
    pub random: bool,
}

impl Job {
    /// Closed loop of `connections` on `/` for `seconds`; the base of the command line and the tests.
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
            http3: None,
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
            websocket: false,
            grpc: None,
            follow: 0,
            cookies: false,
            data: None,
            servers: Vec::new(),
            connections_each: 0,
            end_if_refused: false,
        }
    }

    /// Tells whether connections carry concurrent streams (HTTP/2, HTTP/3).
    pub fn is_multiplexed(&self) -> bool {
        self.http2.is_some() || self.http3.is_some()
    }

    /// Index of world `world` among the worlds of all machines, and their number.
    pub fn world_number(&self, world: usize) -> (usize, usize) {
        let threads = self.threads.max(1);
        (self.share.0 * threads + world, self.share.1.max(1) * threads)
    }
}
