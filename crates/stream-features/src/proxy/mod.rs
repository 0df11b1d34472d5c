//! proxy (nginx: `ngx_stream_proxy_module`): passes a session's bytes or datagrams to a server and back.

mod connect;
mod copy;
pub(crate) mod datagrams;
mod target;
mod variables;

use crate::Builtin;
use crate::StreamTemplate;
use crate::area::StreamArea;
use crate::build::{Feature, ServerBuild, StreamBuild};
use crate::client::SessionClient;
use crate::groups::StreamGroups;
use crate::plan::{CheckFuture, Content, ContentFuture, ContentResult};
use crate::session::StreamSession;
use ::variables::template;
use area::binding;
use conf_schema::value::{Flag, Msec, Number, Size};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind};
use net::Address;
use std::any::Any;
use std::sync::Arc;
use target::{StreamTarget, Target};
use tls_directives::UpstreamTls;
use tls_directives::upstream_tls_directives;
use transport::Stream;
use upstream::Group;

type SizeTemplate = template::SizeTemplate<StreamArea>;
type BindTo = binding::BindTo<StreamArea>;

conf_schema::words! {
    pub enum ProxyProtocol { Off = "off", On = "on", V2 = "v2" }
}

upstream_tls_directives! {
    pub struct ProxyConf from ProxyInput, StreamArea, "proxy_ssl";
    proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_certificate_cache proxy_ssl_ciphers proxy_ssl_conf_command proxy_ssl_crl proxy_ssl_name proxy_ssl_password_file
    proxy_ssl_protocols proxy_ssl_server_name proxy_ssl_session_reuse proxy_ssl_trusted_certificate proxy_ssl_verify proxy_ssl_verify_depth proxy_ssl_key_log
    own {
        /// Passes sessions to a server or group; the address may contain variables.
        proxy_pass: StreamTarget,
        /// Local address of connections to the server.
        proxy_bind: BindTo,
        /// Determines the local address anew for each server, from variables such as `$upstream_last_addr`.
        proxy_bind_dynamic: Flag = "off",
        /// Enables TCP keepalive (SO_KEEPALIVE) on connections to the server.
        proxy_socket_keepalive: Flag = "off",
        /// Receive buffer (SO_RCVBUF) of connections to the server; 0: the system's default.
        proxy_socket_rcvbuf: Size = "0",
        /// Send buffer (SO_SNDBUF) of connections to the server; 0: the system's default.
        proxy_socket_sndbuf: Size = "0",
        /// Maximum time to establish a connection.
        proxy_connect_timeout: Msec = "60s",
        /// Maximum time without data in either direction before the session is closed.
        proxy_timeout: Msec = "10m",
        /// Bytes read at a time, per direction. The buffer grows up to four times while data arrives faster than it is
        /// forwarded, and shrinks again.
        proxy_buffer_size: Size = "16k",
        /// Former name of `proxy_buffer_size`.
        proxy_downstream_buffer: OldSize,
        /// Former name of `proxy_buffer_size`.
        proxy_upstream_buffer: OldSize,
        /// Maximum bytes per second from the client; 0: no limit.
        proxy_upload_rate: SizeTemplate = "0",
        /// Maximum bytes per second from the server; 0: no limit.
        proxy_download_rate: SizeTemplate = "0",
        /// Number of client datagrams per session; 0: no limit.
        proxy_requests: Number = "0",
        /// Number of server datagrams per client datagram, after which the session ends. Without it a session ends by
        /// `proxy_timeout`.
        proxy_responses: Number,
        /// Tries the next server if a connection cannot be established.
        proxy_next_upstream: Flag = "on",
        /// Maximum number of servers per session; 0: no limit.
        proxy_next_upstream_tries: Number = "0",
        /// Maximum time for trying further servers; 0: no limit.
        proxy_next_upstream_timeout: Msec = "0",
        /// Sends a PROXY protocol header to the server, in version 1 (`on`) or 2 (`v2`). Version 2 tells the
        /// facts of the client's TLS connection.
        /// Differs: without the algorithms of the server's own certificate.
        proxy_protocol: ProxyProtocol = "off",
        /// Keeps the other direction open after one direction has ended.
        proxy_half_close: Flag = "off",
        /// Connects to servers over TLS.
        proxy_ssl: Flag = "off",
        /// Protocols offered to servers by ALPN; they may contain variables.
        proxy_ssl_alpn: Alpn,
    }
}

#[derive(Clone, Copy)]
pub struct OldSize(u64);

impl ValueKind for OldSize {
    const SYNTAX: &'static str = "size";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let size = Size::parse(cx, d)?;
        let name = d.name.text();
        cx.warn(d, format!("the \"{name}\" directive is deprecated, use the \"proxy_buffer_size\" directive instead"));
        Ok(OldSize(size.0))
    }
}

#[derive(Clone)]
pub struct Alpn(Vec<StreamTemplate>);

impl ValueKind for Alpn {
    const SYNTAX: &'static str = "protocol ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut all = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            let template = StreamTemplate::compile(cx, d, &word.bytes).map_err(|p| p.at(index))?;
            if template.as_literal().is_some_and(|text| text.len() > 255) {
                return Err(Problem::directive("protocol too long"));
            }
            all.push(template);
        }
        Ok(Alpn(all))
    }
}

pub struct StreamProxy;

impl Feature for StreamProxy {
    fn table(&self) -> FeatureTable {
        ProxyConf::table("proxy", ContextArea::Stream)
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
        // All groups are known by now: selects them by name.
        let groups = block.cx.get::<StreamGroups>().clone();
        let buffer_bytes = conf.proxy_buffer_size.0;
        let old = [conf.proxy_downstream_buffer, conf.proxy_upstream_buffer].into_iter().flatten().next();
        let buffer_bytes = usize::try_from(old.map_or(buffer_bytes, |old| old.0)).unwrap_or(usize::MAX).max(1);
        let passing = PassSettings { conf: conf.clone(), target, tls, groups, buffer_bytes };
        block.answers(pass.place, Arc::new(passing));
        Ok(())
    }
}

pub struct PassSettings {
    conf: ProxyConf,
    target: Target,
    tls: Option<UpstreamTls<StreamArea>>,
    groups: StreamGroups,
    buffer_bytes: usize,
}

impl Content for PassSettings {
    fn run<'a>(&'a self, s: &'a mut StreamSession, client: &'a mut SessionClient) -> ContentFuture<'a> {
        Box::pin(async move {
            let status = match client {
                SessionClient::Stream(stream) => copy::copy_streams(self, s, stream).await,
                SessionClient::Datagrams(flow) => datagrams::copy_datagrams(self, s, &**flow).await,
            };
            ContentResult::Status(status)
        })
    }
    fn group(&self) -> Option<Arc<Group>> {
        match &self.target {
            Target::Fixed(named) => Some(named.group.clone()),
            Target::Computed(_) => None,
        }
    }
    fn begin_check<'a>(
        &'a self,
        s: &'a mut StreamSession,
        stream: &'a mut Stream,
        address: &'a Address,
        has_data: bool,
    ) -> CheckFuture<'a> {
        Box::pin(connect::begin_check(self, s, stream, address, has_data))
    }
    fn check_bytes_max(&self) -> usize {
        self.buffer_bytes
    }
}
