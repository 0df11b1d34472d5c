//! proxy (nginx: `ngx_stream_proxy_module`): passes a session's bytes or datagrams to a server and back.
//!
//! `target.rs` finds the group of servers, `connect.rs` connects to one of them, trying others when it fails, `copy.rs` passes
//! bytes both ways, `datagrams.rs` datagrams.

mod connect;
mod copy;
pub(crate) mod datagrams;
mod target;
mod variables;

use crate::Builtin;
use crate::Template;
use crate::build::{Feature, ServerBuild, StreamBuild};
use crate::client::Client;
use crate::groups::Groups;
use crate::plan::{Content, End, Work};
use crate::session::StreamSession;
use conf_schema::value::{Flag, Msec, Number, Size};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value};
use session_engine::template;
use session_engine::tls::UpstreamTls;
use session_engine::upstream_tls_directives;
use session_engine::upstreams;
use std::any::Any;
use std::sync::Arc;
use target::{Pass, Target};

type SizeTemplate = template::SizeTemplate<StreamSession>;
type BindTo = upstreams::BindTo<StreamSession>;

conf_schema::words! {
    /// `proxy_protocol`
    pub enum ProxyProtocol { Off = "off", On = "on", V2 = "v2" }
}

upstream_tls_directives! {
    /// What the module is told in a block.
    pub struct ProxyConf from ProxyInput, StreamSession, "proxy_ssl";
    proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_certificate_cache proxy_ssl_ciphers proxy_ssl_conf_command proxy_ssl_crl proxy_ssl_name proxy_ssl_password_file
    proxy_ssl_protocols proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_trusted_certificate proxy_ssl_verify proxy_ssl_verify_depth
    own {
        /// The address of the server that sessions are passed to, or the name of a group; it may hold variables.
        proxy_pass: Pass,
        /// The address that connections to servers come from.
        proxy_bind: BindTo,
        /// Whether the system probes idle connections to servers (SO_KEEPALIVE).
        proxy_socket_keepalive: Flag = "off",
        /// The kernel's buffer for what is received from servers (SO_RCVBUF); 0: as the system has it.
        proxy_socket_rcvbuf: Size = "0",
        /// The kernel's buffer for what is sent to servers (SO_SNDBUF); 0: as the system has it.
        proxy_socket_sndbuf: Size = "0",
        /// How long a connection to a server may take.
        proxy_connect_timeout: Msec = "60s",
        /// How long neither side may say anything before the session is closed.
        proxy_timeout: Msec = "10m",
        /// Octets that are read at a time, from either side: up to four times as many where they come faster than they are read, and go as fast.
        proxy_buffer_size: Size = "16k",
        /// The old name of `proxy_buffer_size`.
        proxy_downstream_buffer: OldSize,
        /// The old name of `proxy_buffer_size`.
        proxy_upstream_buffer: OldSize,
        /// Octets a second that are read from a client, at most; 0: no limit.
        proxy_upload_rate: SizeTemplate = "0",
        /// Octets a second that are read from a server, at most; 0: no limit.
        proxy_download_rate: SizeTemplate = "0",
        /// Datagrams of a client that belong to one session; 0: no limit.
        proxy_requests: Number = "0",
        /// Datagrams that a server answers each of a client's with; after them the session is over. Without it all belong to the
        /// session that come within `proxy_timeout`.
        proxy_responses: Number,
        /// Whether another server is asked when one cannot be connected to.
        proxy_next_upstream: Flag = "on",
        /// Servers that are asked, at most; 0: no limit.
        proxy_next_upstream_tries: Number = "0",
        /// How long servers are asked one after the other; 0: no limit.
        proxy_next_upstream_timeout: Msec = "0",
        /// Whether a PROXY protocol header goes before the client's bytes, and of which version.
        proxy_protocol: ProxyProtocol = "off",
        /// Whether the end of one direction leaves the other open.
        proxy_half_close: Flag = "off",
        /// Whether connections to servers are made over TLS.
        proxy_ssl: Flag = "off",
        /// Protocols that are offered to servers (ALPN); they may hold variables.
        proxy_ssl_alpn: Alpn,
    }
}

/// A directive that was renamed: it means what the new one does.
#[derive(Clone, Copy)]
pub struct OldSize(u64);

impl Value for OldSize {
    const SYNTAX: &'static str = "size";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let size = Size::parse(cx, d)?;
        let name = d.name.text();
        cx.warn(d, format!("the \"{name}\" directive is deprecated, use the \"proxy_buffer_size\" directive instead"));
        Ok(OldSize(size.0))
    }
}

/// `proxy_ssl_alpn protocol ...`
#[derive(Clone)]
pub struct Alpn(Vec<Template>);

impl Value for Alpn {
    const SYNTAX: &'static str = "protocol ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut all = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            let template = Template::compile(cx, d, &word.bytes).map_err(|p| p.at(index))?;
            if template.as_literal().is_some_and(|text| text.len() > 255) {
                return Err(Problem::directive("protocol too long"));
            }
            all.push(template);
        }
        Ok(Alpn(all))
    }
}

/// The feature.
pub struct Proxy;

impl Feature for Proxy {
    fn table(&self) -> Table {
        ProxyConf::table("proxy", Area::Stream)
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ROWS
    }
    fn plan_stream(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut StreamBuild<'_>) -> Result<(), Problem> {
        Ok(())
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut ServerBuild<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ProxyConf>() else { return Ok(()) };
        let Some(pass) = &conf.proxy_pass else { return Ok(()) };
        let target = Target::bind(block.cx, pass)?;
        let tls = match conf.proxy_ssl {
            true => Some(conf.tls().build(block.cx)?),
            false => None,
        };
        // Names are looked up in the groups as they are when all of them are known, which they are by now.
        let groups = block.cx.get::<Groups>().clone();
        let buffer_bytes = conf.proxy_buffer_size.0;
        let old = [conf.proxy_downstream_buffer, conf.proxy_upstream_buffer].into_iter().flatten().next();
        let buffer_bytes = usize::try_from(old.map_or(buffer_bytes, |old| old.0)).unwrap_or(usize::MAX).max(1);
        let passing = Passing { conf: conf.clone(), target, tls, groups, buffer_bytes };
        block.answers(pass.place, Arc::new(passing));
        Ok(())
    }
}

/// Passes the sessions of one server.
pub struct Passing {
    conf: ProxyConf,
    target: Target,
    tls: Option<UpstreamTls<StreamSession>>,
    groups: Groups,
    buffer_bytes: usize,
}

impl Content for Passing {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut Client) -> Work<'a> {
        Box::pin(async move {
            let status = match client {
                Client::Stream(stream) => copy::run(self, s, stream).await,
                Client::Datagrams(flow) => datagrams::run(self, s, flow).await,
            };
            End::Status(status)
        })
    }
}
