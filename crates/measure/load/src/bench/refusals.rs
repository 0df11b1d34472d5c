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
        ("--show", o.show),
        ("--pipeline", o.pipeline > 1),
        ("--method", o.method != "GET"),
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

/// Tells whether the session has steps that are sent at the same time.
fn has_parallel(base: &Job) -> bool {
    base.session && base.requests.iter().any(|step| step.parallel)
}

/// Refuses connections per host, and parallel steps of a session, where they have no meaning.
fn refuse_parallel(o: &Options, base: &Job) -> Result<(), String> {
    let words = |option: &str, why: &str| Err(format!("{option} {why}"));
    if has_parallel(base) {
        let file = o.session.as_deref().unwrap_or(Path::new("")).display();
        return match () {
            () if base.websocket => words(
                "parallel",
                &format!("in {file} is for requests over HTTP: messages of a connection follow each other"),
            ),
            () if base.model.is_open() => words(
                "--conn-rate",
                &format!(
                    "has one connection for each session, and {file} has parallel steps: --users N has users with several"
                ),
            ),
            () if base.is_multiplexed() && o.connections_per_host.is_some() => words(
                "--connections-per-host",
                "is for HTTP/1.1: over HTTP/2 and HTTP/3 a user has one connection, whose streams (-m) carry parallel steps",
            ),
            () => Ok(()),
        };
    }
    let Some(each) = o.connections_per_host else { return Ok(()) };
    match &o.session {
        _ if base.model.is_pooled() => Ok(()),
        _ if o.conn_rate.is_some() => words(
            "--connections-per-host",
            "is not for --conn-rate, whose connections the rate determines: leave one of them out",
        ),
        Some(file) => {
            let file = file.display();
            let why = format!(
                "needs steps that are sent at the same time, and no step of {file} has `parallel = true`: its users need one connection each"
            );
            words("--connections-per-host", &why)
        }
        None => match o.users {
            Some(users) => {
                let why = format!(
                    "and --users: a user without a session sends one request at a time. -c {} has as many connections; a --session with \
                     `parallel = true` in steps loads them as a browser does",
                    users.saturating_mul(each)
                );
                words("--connections-per-host", &why)
            }
            None if o.connections.is_some() => words(
                "-c and --connections-per-host",
                "exclude each other: -c counts the connections to all servers together, --connections-per-host those to each server",
            ),
            None => Ok(()),
        },
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
    if o.streams.is_some_and(|n| n > 1) && o.session.is_some() && !has_parallel(base) {
        return words(
            "--streams",
            "above 1 sends a request before the answer that the next step of a --session depends on: give `parallel = true` to \
             the steps that do not wait for the step before",
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
        ("--grpc-gzip", o.grpc_gzip),
    ];
    if let Some((option, _)) = of_grpc.iter().find(|(_, given)| *given && base.grpc.is_none()) {
        return words(option, "is for URLs that begin with grpc:// or grpcs://, and for sessions with steps of `grpc`");
    }
    let is_of_http = |e: &Expect| !e.status.is_empty() || e.length.is_some() || e.hash.is_some();
    if let Some(call) = base.requests.iter().find(|r| !r.grpc.is_empty() && is_of_http(&r.expect)) {
        let why =
            "expects a status, length or hash of HTTP: a call has `expect = { grpc = [\"OK\"], contains = \"text\" }`";
        return words(&call.path, why);
    }
    if let Some(request) = base.requests.iter().find(|r| r.grpc.is_empty() && !r.expect.grpc.is_empty()) {
        return words(
            &request.path,
            "expects a status of gRPC, and is no call: `grpc = \"package.Service/Method\"` makes it one",
        );
    }
    if base.requests.iter().any(|r| !r.grpc.is_empty()) && base.http2.is_none() {
        return words(
            "grpc",
            "in a session is a call over HTTP/2: add --http2, or use a URL that begins with grpc:// or grpcs://",
        );
    }
    if base.target.proxy.is_some() && base.http2.is_some() && base.target.tls.is_none() {
        return words("--proxy", "forwards HTTP/1.1 in cleartext: --http2 through a proxy needs an https:// URL");
    }
    refuse_parallel(o, base)?;
    let is_once = base.data.as_ref().is_some_and(|data| data.order == RowOrder::Once);
    if is_once && !base.servers.is_empty() {
        return words("--data FILE:once", "is for one server: with several, each takes the rows at its own pace");
    }
    if is_once && o.warmup.is_some_and(|warmup| warmup > 0.0) {
        return words("--data FILE:once", "has no --warmup, which would use rows up unmeasured");
    }
    if let Some((_, twice)) = o.workers.iter().enumerate().find(|(i, name)| o.workers[..*i].contains(name)) {
        return words("--workers", &format!("has {twice} twice: a worker generates one share at a time"));
    }
    if !o.workers.is_empty() && o.cert.is_some() && o.workers_cert.is_none() {
        return words(
            "--cert and --key",
            "would be sent to the --workers in cleartext: --workers-cert, --workers-key and --workers-cacert encrypt the links",
        );
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
