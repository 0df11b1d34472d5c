//! Options without effect and impossible combinations, refused before the run.

use std::path::Path;

use super::cli::Options;
use crate::engine::feed::RowOrder;
use crate::engine::job::Job;
use crate::engine::request::{Expect, RequestSpec};
use crate::engine::run::prepare_requests;
use crate::engine::tls;
use crate::observe::machine::check_cpus;
use crate::protocol::ClientProtocol as _;
use crate::protocol::h1::H1;
use crate::protocol::h2::H2;
use crate::protocol::h3::H3;

/// Refuses options that are not for calls.
pub fn refuse_grpc(o: &Options) -> Result<(), String> {
    let wrong = [
        ("--http3", o.http3),
        ("--follow", o.follow.is_some()),
        ("--cookies", o.cookies),
        ("--replay", o.replay.is_some()),
        ("--session", o.session.is_some()),
        ("--show", o.show),
        ("--pipeline", o.pipeline > 1),
        ("--expect-status", !o.expect_status.is_empty()),
        ("--expect-length", o.expect_length.is_some()),
        ("--expect-contains", o.expect_contains.is_some()),
        ("--expect-hash", o.expect_hash.is_some()),
    ];
    match wrong.iter().find(|(_, given)| *given) {
        Some((option, _)) => Err(format!("{option} is for requests over HTTP, not for calls of gRPC")),
        None => Ok(()),
    }
}

/// Refuses options without effect and impossible combinations.
pub fn refuse_options(o: &Options, base: &Job) -> Result<(), String> {
    let open = base.model.is_open();
    let words = |option: &str, why: &str| Err(format!("{option} {why}"));
    let of_streams = [
        ("--streams", o.streams.is_some()),
        ("--stream-window", o.stream_window.is_some()),
        ("--connection-window", o.connection_window.is_some()),
        ("--priority", o.priority.is_some()),
    ];
    if let Some((option, _)) = of_streams.iter().find(|(_, given)| *given && !base.is_multiplexed()) {
        return words(option, "is for --http2 and --http3");
    }
    if base.http3.is_some() && (base.target.tls.is_none() || base.target.unix.is_some()) {
        return words("--http3", "needs a URL that begins with https://, and no Unix socket");
    }
    if base.http3.is_some() && o.tls == "1.2" {
        return words("--http3", "has TLS 1.3 only (RFC 9001, 4.2)");
    }
    if o.streams.is_some_and(|n| n > 1) && o.session.is_some() {
        return words(
            "--streams",
            "above 1 sends a request before the answer that the next step of a --session depends on",
        );
    }
    if o.streams.is_some_and(|n| n > 1) && o.conn_rate.is_some() {
        return words("--streams", "above 1 is not for --conn-rate, whose calls follow each other");
    }
    if o.streams.is_some_and(|n| n > 1) && o.think.is_some() {
        return words(
            "--streams",
            "above 1 is not for users who --think: a user waits for an answer before the next request",
        );
    }
    let ahead = [("--pipeline", (o.pipeline > 1).then_some(o.pipeline)), ("--streams", o.streams)];
    if let Some((option, _)) = ahead.iter().find(|(_, n)| base.calls > 0 && n.is_some_and(|n| n > base.calls as usize))
    {
        return words(option, "is above the number of requests per connection (--calls, --no-keepalive)");
    }
    let of_grpc = [
        ("--proto", !o.proto.is_empty()),
        ("--protoset", o.protoset.is_some()),
        ("--stream-interval", o.stream_interval.is_some()),
    ];
    if let Some((option, _)) = of_grpc.iter().find(|(_, given)| *given && base.grpc.is_none()) {
        return words(option, "is for URLs that begin with grpc:// or grpcs://");
    }
    if base.grpc.is_some() && base.requests.iter().any(|call| call.expect != Expect::default()) {
        return words("expect", "in a --request-file is for requests over HTTP: a call succeeds with the status OK");
    }
    if base.target.proxy.is_some() && base.http2.is_some() && base.target.tls.is_none() {
        return words("--proxy", "forwards HTTP/1.1 in cleartext: --http2 through a proxy needs an https:// URL");
    }
    if o.connections_per_host.is_some() && !base.model.is_pooled() {
        return words(
            "--connections-per-host",
            "applies to open loops (-r): a user of a closed loop has one connection",
        );
    }
    let is_once = base.data.as_ref().is_some_and(|data| data.order == RowOrder::Once);
    if is_once && !base.servers.is_empty() {
        return words("--data FILE:once", "is for one server: with several, each takes the rows at its own pace");
    }
    if is_once && o.warmup.is_some_and(|warmup| warmup > 0.0) {
        return words("--data FILE:once", "has no --warmup, which would use rows up unmeasured");
    }
    if !o.workers.is_empty() && o.cert.is_some() {
        return words("--cert and --key", "are for this machine: the link to --workers is not encrypted");
    }
    if base.websocket {
        let wrong = [
            ("--http2 and --http3", o.http2 || o.http3),
            ("--follow", o.follow.is_some()),
            ("--cookies", o.cookies),
            ("--replay", o.replay.is_some()),
            ("--method", o.method != "GET"),
            ("--expect-status", !o.expect_status.is_empty()),
            ("--show", o.show),
            ("--proxy with ws://", base.target.proxy.is_some() && base.target.tls.is_none()),
        ];
        if let Some((option, _)) = wrong.iter().find(|(_, given)| *given) {
            return words(option, "is for requests over HTTP, not for messages over WebSocket");
        }
        let first = &base.requests[0];
        let reads =
            |r: &RequestSpec| r.extract.values().any(|from| !from.starts_with("json:") && !from.starts_with("regex:"));
        if let Some(other) = base.requests.iter().find(|r| r.path != first.path || reads(r)) {
            let why = format!(
                "of {} has another path, or extracts from a head: a connection is upgraded once, for {}",
                other.path, first.path
            );
            return words("a message", &why);
        }
        if first.path.contains("{{") || base.headers.iter().chain(&first.headers).any(|line| line.contains("{{")) {
            return words(
                "a template",
                "belongs into the body of a message: path and headers are those of the upgrade",
            );
        }
    }
    if open && o.pipeline > 1 {
        return words("--pipeline", "applies to closed loops only: an open loop uses any free connection");
    }
    if open && o.think.is_some() && o.conn_rate.is_none() {
        return words("--think", "applies to closed loops and --conn-rate only: an open loop has no waiting users");
    }
    if o.session.is_some() && o.pipeline > 1 {
        return words("--pipeline", "sends a request before the answer that the next step of a --session depends on");
    }
    if !open && o.arrivals.is_some() {
        return words("--arrivals", "applies to open loops only (-r, --conn-rate)");
    }
    if base.target.tls.is_none()
        && (o.cacert.is_some() || o.cert.is_some() || o.resume || !o.tls.is_empty() || !o.ciphers.is_empty())
    {
        return words("--cacert, --cert, --resume, --tls and --ciphers", "need a URL that begins with https://");
    }
    check_cpus("--pin", &o.pin)?;
    if let Some(pid) = o.pid.iter().find(|pid| !Path::new(&format!("/proc/{pid}")).exists()) {
        return Err(format!("--pid {pid}: there is no such process"));
    }
    if !o.workers.is_empty() && !o.pin.is_empty() {
        return words("--pin", "is for threads of this machine, not for --workers");
    }
    if o.workers.is_empty() {
        for source in &o.source {
            let bound = std::net::TcpListener::bind((*source, 0));
            bound.map_err(|e| format!("--source {source}: not an address of this machine ({e})"))?;
        }
    }
    if let Some(tls) = &base.target.tls {
        match (&base.http2, &base.http3) {
            (_, Some(_)) => H3::shared(base, &[]).map(|_| ())?,
            (Some(_), _) => tls::client_config(tls, &base.target.host, &[H2::NAME]).map(|_| ())?,
            (None, None) => tls::client_config(tls, &base.target.host, &[H1::NAME]).map(|_| ())?,
        }
    }
    prepare_requests(base).map(|_| ())
}
