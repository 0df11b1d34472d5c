//! tunnel_pass (nginx: `ngx_http_tunnel_module`): CONNECT to a host and port of the request or the configuration.

use area::unopened_failure;
use base::clock;
use conf_schema::value::{Flag, Msec, Number, Own, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::core_table::Conditions;
use http_engine::{BlockPlan, Feature, Flow, Handler, HttpTemplate, Request, ResponseBody};
use http_types::Method;
use http_upstream::balancing::{self, PeerSelection};
use http_upstream::binding::BindTo;
use http_upstream::groups::{HttpGroups, UpstreamRef, host_and_port};
use http_upstream::hosts::{self, NoTarget};
use http_upstream::upgraded::UpgradedTunnel;
use http_upstream::upstream_state::{self, Try, UpstreamState};
use observe::{Severity, os_error};
use std::any::Any;
use std::sync::Arc;
use transport::{ConnectOptions, Stream};
use upstream::PeerLease;

conf_schema::word_set! {
    pub struct NextUpstream { ERROR = 1 "error", TIMEOUT = 2 "timeout", OFF = 4 "off", DENIED = 8 "denied" }
}

directives! {
    pub struct TunnelConf from TunnelInput {
        /// Establishes tunnels for CONNECT requests to this host and port, or to those that the client names.
        tunnel_pass: Own<TunnelPass>,
        /// Local address of connections to the server.
        tunnel_bind: BindTo,
        /// Determines the local address anew for each server, from variables such as `$upstream_last_addr`.
        tunnel_bind_dynamic: Flag = "off",
        /// Denies the connection to a selected server if a value is empty or `0`: another server is tried with
        /// `denied`, or the client gets 403. With `$upstream_last_addr`, keeps clients from addresses of the server's
        /// own network.
        tunnel_allow_upstream: Conditions,
        /// Buffer size per direction.
        tunnel_buffer_size: Size = "16k",
        /// Maximum time to establish a connection.
        tunnel_connect_timeout: Msec = "60s",
        /// Conditions under which the next server is tried.
        tunnel_next_upstream: NextUpstream = "error timeout",
        /// Maximum time for trying further servers; 0: no limit.
        tunnel_next_upstream_timeout: Msec = "0",
        /// Maximum number of servers per request; 0: no limit.
        tunnel_next_upstream_tries: Number = "0",
        /// Maximum time without data in either direction.
        tunnel_read_timeout: Msec = "60s",
        /// Sets SO_SNDLOWAT. Linux does not support it: no effect.
        tunnel_send_lowat: conf_schema::value::SendLowat = "0",
        /// Maximum time between two writes to the server.
        tunnel_send_timeout: Msec = "60s",
        /// Enables TCP keepalive (SO_KEEPALIVE) on connections to the server.
        tunnel_socket_keepalive: Flag = "off",
        /// Receive buffer (SO_RCVBUF) of connections to the server; 0: the system's default.
        tunnel_socket_rcvbuf: Size = "0",
        /// Send buffer (SO_SNDBUF) of connections to the server; 0: the system's default.
        tunnel_socket_sndbuf: Size = "0",
    }
}

#[derive(Clone)]
pub struct TunnelPass(HttpTemplate);

impl ValueKind for TunnelPass {
    const SYNTAX: &'static str = "[address]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map_or(b"$host:$request_port".as_slice(), |word| word.bytes.as_slice());
        HttpTemplate::compile(cx, d, text).map(TunnelPass).map_err(|p| p.at(0))
    }
}

pub struct Tunnel;

impl Feature for Tunnel {
    fn table(&self) -> FeatureTable {
        TunnelConf::table("tunnel", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<TunnelConf>() else { return Ok(()) };
        let Some(Own(TunnelPass(target))) = conf.tunnel_pass.clone() else { return Ok(()) };
        let to = match target.as_literal() {
            Some(host) => {
                let host = String::from_utf8_lossy(host).into_owned();
                if block.cx.get::<HttpGroups>().get(&host).is_none() && has_no_port(&host) {
                    return Err(Problem::says(format!("no port in upstream \"{host}\"")));
                }
                To::Fixed(hosts::bind_host(block.cx, &host, 80)?)
            }
            None => To::Computed(target, Arc::new(block.cx.get::<HttpGroups>().clone())),
        };
        block.location.connect = true;
        block.location.passes = true;
        block.location.content = Some(Arc::new(TunnelHandler(Arc::new(Plan { conf, to }))));
        Ok(())
    }
}

fn has_no_port(host: &str) -> bool {
    !host.starts_with("unix:") && matches!(host_and_port(host), Ok((_, None)))
}

enum To {
    Fixed(UpstreamRef),
    Computed(HttpTemplate, Arc<HttpGroups>),
}

struct Plan {
    conf: Arc<TunnelConf>,
    to: To,
}

struct TunnelHandler(Arc<Plan>);

impl Handler for TunnelHandler {
    fn run(&self, r: &mut Request) -> Flow {
        if r.target.method() != Method::Connect {
            return Flow::Status(405);
        }
        let plan = self.0.clone();
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let watch = r.incoming.watch().cloned();
                let gone = std::future::poll_fn(|cx| match &watch {
                    Some(watch) => watch.poll_gone(cx),
                    None => std::task::Poll::Pending,
                });
                let flow = tokio::select! {
                    biased;
                    flow = pass(&plan, &mut r) => Some(flow),
                    () = gone => None,
                };
                let flow = flow.unwrap_or_else(|| {
                    let words = "client prematurely closed connection while connecting to upstream";
                    r.log(Severity::Info, format_args!("{words}"));
                    Flow::Status(499)
                });
                (r, flow)
            })
        }))
    }
}

async fn target(plan: &Plan, r: &mut Request) -> Result<UpstreamRef, NoTarget> {
    match &plan.to {
        To::Fixed(named) => Ok(named.clone()),
        To::Computed(template, groups) => {
            let host = template.eval(r);
            let host = String::from_utf8_lossy(&host).into_owned();
            if groups.get(&host).is_none() && has_no_port(&host) {
                return Err(NoTarget { words: format!("no port in upstream \"{host}\""), status: 500 });
            }
            hosts::named_group(groups, r, &host, 80).await
        }
    }
}

enum TunnelFailure {
    Error,
    Timeout,
    Denied,
    Final(u16),
}

async fn pass(plan: &Plan, r: &mut Request) -> Flow {
    let named = match target(plan, r).await {
        Ok(named) => named,
        Err(no) => {
            r.log(Severity::Error, format_args!("{}", no.words));
            return Flow::Status(no.status);
        }
    };
    let conf = &plan.conf;
    let next = conf.tunnel_next_upstream;
    let mut selection = PeerSelection::new(&named, r);
    let started = clock::now();
    let mut status = 502;
    loop {
        let (tries, time) = (conf.tunnel_next_upstream_tries.0, conf.tunnel_next_upstream_timeout.0);
        clock::update();
        let late = time > 0 && clock::now().millis_since(started) >= time;
        let asked = selection.asked() as u64;
        if asked > 0 && ((tries > 0 && asked >= tries) || late || !selection.may_retry(&named.group, r)) {
            return Flow::Status(status);
        }
        let Some(mut active) = selection.next(&named.group).await else {
            let name = &named.group.name;
            r.log_of(Severity::Error, format_args!("no live upstreams while connecting to upstream"), Some(name));
            if let Some(state) = UpstreamState::of(r) {
                state.push(Try::without_server(name, clock::now()));
            }
            return Flow::Status(502);
        };
        match connect(plan, r, &active).await {
            Ok(stream) => {
                balancing::bind_client(&named, r, &mut active);
                balancing::judge_peer(r, &active, false);
                return open(plan, r, stream, active);
            }
            Err(why) => {
                let (bit, answer) = match why {
                    TunnelFailure::Error => (NextUpstream::ERROR, 502),
                    TunnelFailure::Timeout => (NextUpstream::TIMEOUT, 504),
                    TunnelFailure::Denied => (NextUpstream::DENIED, 403),
                    TunnelFailure::Final(status) => return Flow::Status(status),
                };
                status = answer;
                if let Some(one) = UpstreamState::last(r) {
                    one.status = status;
                    one.response_time = Some(clock::now().since(one.started));
                }
                balancing::count_failure(r, &mut active, b"");
                balancing::judge_peer(r, &active, true);
                if next.has(NextUpstream::OFF) || next.0 & bit.0 == 0 || selection.asked() >= selection.tries() {
                    return Flow::Status(status);
                }
            }
        }
    }
}

async fn connect(plan: &Plan, r: &mut Request, active: &PeerLease) -> Result<Stream, TunnelFailure> {
    let conf = &plan.conf;
    let address = active.peer().spec.address.clone();
    let started = clock::now();
    if let Some(state) = UpstreamState::of(r) {
        state.push(Try::of(active.peer(), started));
    }
    if let Some(conditions) = &conf.tunnel_allow_upstream
        && !conditions.all_true(r)
    {
        log(r, "access to upstream denied by \"tunnel_allow_upstream\"", active);
        return Err(TunnelFailure::Denied);
    }
    let (from, transparent) = upstream_state::local_address(r, &conf.tunnel_bind, conf.tunnel_bind_dynamic);
    let options = ConnectOptions {
        from,
        transparent,
        keepalive: conf.tunnel_socket_keepalive,
        receive_buffer: conf.tunnel_socket_rcvbuf.0 as usize,
        send_buffer: conf.tunnel_socket_sndbuf.0 as usize,
    };
    let connecting = Stream::connect(&address, &options);
    let connected = runtime::time::with_timeout(conf.tunnel_connect_timeout.duration(), connecting).await;
    clock::update();
    let words = match connected {
        Ok(Ok(stream)) => {
            let time = clock::now().since(started);
            if let Some(one) = UpstreamState::last(r) {
                // A tunnel has no response: `$upstream_status` remains empty.
                (one.connect_time, one.header_time) = (Some(time), Some(time));
            }
            return Ok(stream);
        }
        Ok(Err(e)) => {
            if let Some((level, words)) = unopened_failure(&e) {
                log_at(level, r, &words, active);
                if let Some(one) = UpstreamState::last(r) {
                    one.has_no_socket = true;
                }
                return Err(TunnelFailure::Final(500));
            }
            let words = format!("{} failed {}", upstream::connect_call(active.peer(), &e), os_error(&e));
            if transparent && e.kind() == std::io::ErrorKind::PermissionDenied {
                log(r, &words, active);
                return Err(TunnelFailure::Final(500));
            }
            (words, TunnelFailure::Error)
        }
        Err(_) => ("upstream timed out (110: Connection timed out)".to_string(), TunnelFailure::Timeout),
    };
    log(r, &words.0, active);
    Err(words.1)
}

fn log(r: &Request, words: &str, active: &PeerLease) {
    log_at(Severity::Error, r, words, active);
}

fn log_at(level: Severity, r: &Request, words: &str, active: &PeerLease) {
    r.log_of(level, format_args!("{words} while connecting to upstream"), Some(&active.peer().text));
}

fn open(plan: &Plan, r: &mut Request, stream: Stream, active: PeerLease) -> Flow {
    let conf = &plan.conf;
    r.out.set_status(200);
    r.reply.set_tunnel(Box::new(UpgradedTunnel {
        stream,
        from_server: Vec::new(),
        idle: conf.tunnel_read_timeout.duration(),
        stalled: conf.tunnel_send_timeout.duration(),
        buffer: conf.tunnel_buffer_size.0.max(1) as usize,
        active,
    }));
    Flow::Content(ResponseBody::Empty)
}
