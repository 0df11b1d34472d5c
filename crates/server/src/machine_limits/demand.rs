//! Requirements of a configuration.

use crate::conf::{self, Config, Invocation};
use conf_syntax::{Directive, Disk, list_directives};
use net::Address;
use std::collections::BTreeSet;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    pub workers: u64,
    /// `worker_connections`, per worker thread.
    pub connections_each: u64,
    /// `worker_rlimit_nofile`, per worker thread.
    pub descriptors_each: Option<u64>,
    /// With the backlog of each.
    pub addresses: Vec<(String, u64)>,
    /// UDP ports of `listen ... quic`.
    pub quic_ports: Vec<u16>,
    /// At least one QUIC listener has `quic_gso off`.
    pub quic_without_gso: bool,
    /// 0 without a proxy.
    pub upstreams: u64,
    /// All upstream servers listen on the loopback interface.
    pub upstreams_local: bool,
    pub keeps_upstreams: bool,
    pub files: bool,
    /// Maximum buffer size in bytes of a connection with a long request head, and of one with a proxied response.
    pub head_bytes: u64,
    pub proxy_bytes: u64,
    /// In bytes, per worker thread.
    pub cache_bytes: u64,
    pub logs: u64,
}

impl Demand {
    /// Returns the maximum number of connections of all threads.
    pub fn connections(&self) -> u64 {
        self.workers.saturating_mul(self.connections_each)
    }
    /// Returns the descriptors for `n` connections, each with an upstream connection or a file if it may need one.
    pub fn descriptors(&self, connections: u64) -> u64 {
        connections.saturating_mul(self.each()).saturating_add(self.standing())
    }
    pub fn each(&self) -> u64 {
        // Cached files need no descriptor, and connections share those of large files.
        if self.upstreams > 0 || (self.files && self.cache_bytes == 0) { 2 } else { 1 }
    }
    /// Listeners, event queues, logs.
    pub fn standing(&self) -> u64 {
        self.workers * (self.addresses.len() as u64 + DESCRIPTORS_A_WORKER) + self.logs + DESCRIPTORS_STANDING
    }

    pub fn of(invocation: &Invocation, config: &Config) -> Demand {
        let mut demand = Demand {
            workers: config.core.workers as u64,
            connections_each: config.core.worker_connections as u64,
            descriptors_each: config.core.rlimit_nofile,
            head_bytes: HEAD_BYTES,
            logs: config.logs.all().count() as u64,
            ..Demand::default()
        };
        for spec in config.specs() {
            // UDP has no accept queue.
            let backlog = if spec.datagram { 0 } else { u64::from(spec.backlog.unwrap_or(BACKLOG)) };
            demand.addresses.push((spec.address.to_string(), backlog));
        }
        if config.areas().is_empty() {
            return demand;
        }
        if let Some(http) = &config.http {
            for listener in http.listeners.iter().filter(|listener| listener.quic) {
                if let Address::Ip(address) = &listener.spec.address {
                    demand.quic_ports.push(address.port());
                }
                let server = http.servers.get(listener.default_server);
                demand.quic_without_gso |= server.is_some_and(|server| !server.http3.gso);
            }
            demand.quic_ports.sort_unstable();
            demand.quic_ports.dedup();
        }
        demand.cache_bytes = config.http.as_ref().map_or(0, |http| http.cache_bytes);
        if let Ok((_, items)) = conf::load_config(&Disk, invocation) {
            let mut seen = SeenFiles::default();
            for directive in list_directives(&items) {
                seen.visit(directive);
            }
            demand.upstreams = seen.servers.len() as u64;
            demand.upstreams_local = seen.servers.iter().all(|server| is_loopback(server));
            demand.keeps_upstreams = seen.keeps;
            demand.files =
                config.http.is_some() && (seen.locations_with_answers < seen.locations || seen.locations == 0);
            demand.head_bytes = seen.head_bytes.unwrap_or(HEAD_BYTES);
            if demand.upstreams > 0 {
                demand.proxy_bytes = seen.proxy_bytes.unwrap_or(PROXY_BYTES);
            }
        }
        demand
    }
}

/// nginx's default of `backlog=` on Linux.
const BACKLOG: u32 = 511;
/// `large_client_header_buffers 4 8k` and `client_header_buffer_size 1k`.
const HEAD_BYTES: u64 = 33 * 1024;
/// `proxy_buffers 8 8k` and `proxy_buffer_size 8k`.
const PROXY_BYTES: u64 = 72 * 1024;
/// Event queues, wake-up and file watch of a worker thread.
const DESCRIPTORS_A_WORKER: u64 = 8;
/// Standard streams, signals, the channel to the master.
const DESCRIPTORS_STANDING: u64 = 16;

/// Directives whose locations serve no files.
const ANSWERS: &[&[u8]] = &[
    b"proxy_pass",
    b"return",
    b"fastcgi_pass",
    b"uwsgi_pass",
    b"scgi_pass",
    b"grpc_pass",
    b"memcached_pass",
    b"stub_status",
    b"metrics",
    b"empty_gif",
];

#[derive(Default)]
struct SeenFiles {
    servers: BTreeSet<Vec<u8>>,
    /// Names of `upstream` blocks, whose servers are counted instead of the `proxy_pass` lines.
    groups: BTreeSet<Vec<u8>>,
    keeps: bool,
    locations: u64,
    locations_with_answers: u64,
    head_bytes: Option<u64>,
    proxy_bytes: Option<u64>,
}

impl SeenFiles {
    fn visit(&mut self, d: &Directive) {
        let args: Vec<&[u8]> = d.args.iter().map(|word| &word.bytes[..]).collect();
        let inner = d.block.as_deref().map(list_directives).unwrap_or_default();
        match (&d.name.bytes[..], &args[..]) {
            (b"upstream", [name]) => {
                self.groups.insert(name.to_vec());
                self.servers.remove(*name);
                for line in &inner {
                    match (&line.name.bytes[..], line.args.first()) {
                        (b"server", Some(address)) => _ = self.servers.insert(address.bytes.to_vec()),
                        (b"keepalive", _) => self.keeps = true,
                        _ => {}
                    }
                }
                return;
            }
            (b"location", _) => {
                self.locations += 1;
                self.locations_with_answers += u64::from(inner.iter().any(|d| ANSWERS.contains(&&d.name.bytes[..])));
            }
            (b"proxy_pass" | b"fastcgi_pass" | b"uwsgi_pass" | b"scgi_pass" | b"grpc_pass", [target]) => {
                let rest = target.windows(3).position(|w| w == b"://").map_or(*target, |at| &target[at + 3..]);
                let host = rest.split(|c| *c == b'/').next().unwrap_or(rest);
                if !self.groups.contains(host) {
                    self.servers.insert(host.to_vec());
                }
            }
            (b"large_client_header_buffers", [count, size]) => {
                self.head_bytes = self.head_bytes.max(product(count, size))
            }
            (b"proxy_buffers" | b"fastcgi_buffers" | b"uwsgi_buffers" | b"scgi_buffers", [count, size]) => {
                self.proxy_bytes = self.proxy_bytes.max(product(count, size));
            }
            _ => {}
        }
        for d in inner {
            self.visit(d);
        }
    }
}

fn is_loopback(server: &[u8]) -> bool {
    server.starts_with(b"127.")
        || server.starts_with(b"[::1]")
        || server == b"localhost"
        || server.starts_with(b"localhost:")
}

fn product(count: &[u8], size: &[u8]) -> Option<u64> {
    let count: u64 = std::str::from_utf8(count).ok()?.parse().ok()?;
    Some(count.saturating_mul(conf_schema::value::parse_size(size)? as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(text: &str) -> SeenFiles {
        let items = conf_syntax::parse_file(conf_syntax::FileId(0), text.as_bytes());
        let mut seen = SeenFiles::default();
        list_directives(&items).into_iter().for_each(|d| seen.visit(d));
        seen
    }

    #[test]
    fn servers_behind_us_are_counted_once() {
        let seen = seen(
            "http { server { location / { proxy_pass http://app/x; } location /b { proxy_pass http://127.0.0.1:81; }
             location /c { proxy_pass http://127.0.0.1:81/; } }
             upstream app { server 10.0.0.1; server 10.0.0.2 backup; keepalive 4; } }",
        );
        assert_eq!(seen.servers.len(), 3, "two of the group, one by its address");
        assert!(seen.keeps);
        assert_eq!((seen.locations, seen.locations_with_answers), (3, 3));
    }

    #[test]
    fn buffers_are_multiplied() {
        let seen = seen("http { proxy_buffers 4 16k; server { large_client_header_buffers 8 32k; } }");
        assert_eq!((seen.proxy_bytes, seen.head_bytes), (Some(64 << 10), Some(256 << 10)));
    }

    #[test]
    fn descriptors_count_what_a_connection_may_open() {
        let demand = Demand { workers: 2, connections_each: 1000, upstreams: 1, logs: 3, ..Demand::default() };
        assert_eq!(demand.descriptors(demand.connections()), 2 * 2000 + 2 * 8 + 3 + 16);
    }
}
