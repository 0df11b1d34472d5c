//! gRPC (nginx: `ngx_http_grpc_module`): HTTP/2 towards servers, with trailers, in both directions at once.

use conf_schema::value::{Flag, Msec, Number, Own, Size, ValueList};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind};
use http_engine::core_table::Conditions;
use http_engine::{BlockPlan, Feature, HttpArea, HttpTemplate, Request, clean};
use http_types::{Known, NameSet};
use http_upstream::binding::BindTo;
use http_upstream::exchange::block::{Coding, HeaderBlock};
use http_upstream::exchange::conf::{FieldName, IgnoreHeaders, NextUpstream, PassConf, name_list};
use http_upstream::exchange::{Announce, PassPlan, UpstreamProtocol};
use http_upstream::target::{self, PassTarget, Scheme, UpstreamTarget};
use http_upstream::tls::UpstreamTlsConf;
use std::any::Any;
use std::sync::Arc;
use tls_directives::VerifyNames;
use tls_directives::upstream_tls_directives;
use upstream::SerialCodec;

upstream_tls_directives! {
    pub struct GrpcConf from GrpcInput, HttpArea, "grpc_ssl";
    grpc_ssl_certificate grpc_ssl_certificate_key grpc_ssl_certificate_cache grpc_ssl_ciphers grpc_ssl_conf_command grpc_ssl_crl grpc_ssl_name grpc_ssl_password_file
    grpc_ssl_protocols grpc_ssl_server_name grpc_ssl_session_reuse grpc_ssl_trusted_certificate grpc_ssl_verify grpc_ssl_verify_depth grpc_ssl_key_log
    own {
        /// Passes requests to a gRPC server: `grpc://` in cleartext, `grpcs://` over TLS.
        grpc_pass: Own<GrpcPass>,
        /// Local address of connections to the server.
        grpc_bind: BindTo,
        /// Determines the local address anew for each server, from variables such as `$upstream_last_addr`.
        grpc_bind_dynamic: Flag = "off",
        /// Makes the request anew for each server: its fields can contain `$upstream_last_server_name`.
        grpc_request_dynamic: Flag = "off",
        /// Denies the connection to a selected server if a value is empty or `0`; see `proxy_allow_upstream`.
        grpc_allow_upstream: Conditions,
        /// Size of a read in nginx. The value is checked and has no effect; response fields may take 128 KB.
        grpc_buffer_size: Size = "4k",
        /// Maximum time to establish a connection.
        grpc_connect_timeout: Msec = "60s",
        /// Response fields that are not passed to the client.
        grpc_hide_header: ValueList<FieldName>,
        /// Response fields that Tidegate does not process.
        grpc_ignore_headers: IgnoreHeaders,
        /// Replaces responses with status 300 and above by `error_page`.
        grpc_intercept_errors: Flag = "off",
        /// Conditions under which a request is passed to the next server.
        grpc_next_upstream: NextUpstream = "error timeout",
        /// Maximum time for passing a request to further servers; 0: no limit.
        grpc_next_upstream_timeout: Msec = "0",
        /// Maximum number of servers per request; 0: no limit.
        grpc_next_upstream_tries: Number = "0",
        /// Tries a request again after a failed try, up to `attempts` times, each `backoff` later: at a server that was not tried, or at the
        /// same one again. Failures are those of `grpc_next_upstream`, and responses with one of the `codes` (`codes=500,503`, `codes=5xx`).
        /// Replaces `grpc_next_upstream_tries`. Methods that are not idempotent need `grpc_next_upstream ... non_idempotent`.
        grpc_retry: http_upstream::exchange::conf::Retries = "off",
        /// Maximum time until a response's head, over all tries and the waits between them; then the client gets 504. 0: no limit.
        grpc_request_timeout: Msec = "0",
        /// Maximum time of each try until the response's head; then the try has failed by a timeout. 0: no limit.
        grpc_try_timeout: Msec = "0",
        /// As `proxy_ssl_verify_names`, with `grpc_ssl_verify on` and in place of `grpc_ssl_name`.
        grpc_ssl_verify_names: VerifyNames,
        /// Response fields that are passed although they are hidden by default.
        grpc_pass_header: ValueList<FieldName>,
        /// Maximum time between two reads from the server.
        grpc_read_timeout: Msec = "60s",
        /// Maximum time between two writes to the server.
        grpc_send_timeout: Msec = "60s",
        /// Sets a request field; an empty value removes it. A block with its own `grpc_set_header` lines inherits none.
        /// Differs: as `proxy_set_header`; connection-specific fields are omitted.
        grpc_set_header: ValueList<HeaderLine>,
        /// Enables TCP keepalive (SO_KEEPALIVE) on connections to the server.
        grpc_socket_keepalive: Flag = "off",
        /// Receive buffer (SO_RCVBUF) of connections to the server; 0: the system's default.
        grpc_socket_rcvbuf: Size = "0",
        /// Send buffer (SO_SNDBUF) of connections to the server; 0: the system's default.
        grpc_socket_sndbuf: Size = "0",
    }
}

static SCHEME: Scheme = Scheme { plain: "grpc", secure: Some("grpcs"), written: false, ports: (0, 0), has_uri: false };

/// Response fields for the proxy only.
const HIDDEN: &[&str] = &[
    "date",
    "server",
    "x-accel-expires",
    "x-accel-redirect",
    "x-accel-limit-rate",
    "x-accel-buffering",
    "x-accel-charset",
];

/// Client fields that are not passed unchanged, in lower case.
const OWN_FIELDS: &[&str] = &[
    "content-length",
    "te",
    "host",
    "connection",
    "proxy-connection",
    "transfer-encoding",
    "keep-alive",
    "expect",
    "upgrade",
];

#[derive(Clone)]
pub struct GrpcPass(Arc<PassTarget>);

impl ValueKind for GrpcPass {
    const SYNTAX: &'static str = "[protocol://]address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        PassTarget::parse(&SCHEME, cx, d).map(|target| GrpcPass(Arc::new(target)))
    }
}

#[derive(Clone)]
pub struct HeaderLine {
    name: Vec<u8>,
    value: HttpTemplate,
}

impl ValueKind for HeaderLine {
    const SYNTAX: &'static str = "field value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [name, value] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let value = HttpTemplate::compile(cx, d, &clean::one_line(&value.bytes)).map_err(|p| p.at(1))?;
        Ok(HeaderLine { name: name.bytes.clone(), value })
    }
}

pub struct Grpc;

impl Feature for Grpc {
    fn table(&self) -> FeatureTable {
        GrpcConf::table("grpc", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<GrpcConf>() else { return Ok(()) };
        let Some(Own(GrpcPass(target))) = conf.grpc_pass.clone() else { return Ok(()) };
        let bound = target.bind(&SCHEME, block.cx)?;
        let tls = match &*target {
            PassTarget::Fixed(url, _) if !url.tls => None,
            _ => {
                let verify_names =
                    conf.grpc_ssl_verify_names.as_ref().map(|names| names.0.as_slice()).unwrap_or_default();
                Some(UpstreamTlsConf { verify_names, alpn: &["h2"], ..conf.tls() }.build(block.cx)?)
            }
        };
        let pass = PassConf {
            // Either side may send at any time: nothing is buffered.
            buffering: false,
            request_buffering: false,
            pass_trailers: true,
            buffer_size: conf.grpc_buffer_size.0,
            next_upstream: conf.grpc_next_upstream,
            next_upstream_tries: conf.grpc_next_upstream_tries.0,
            next_upstream_timeout: conf.grpc_next_upstream_timeout.0,
            retry: conf.grpc_retry.0.clone(),
            request_timeout: conf.grpc_request_timeout.duration(),
            try_timeout: conf.grpc_try_timeout.duration(),
            intercept_errors: conf.grpc_intercept_errors,
            connect_timeout: conf.grpc_connect_timeout.duration(),
            send_timeout: conf.grpc_send_timeout.duration(),
            read_timeout: conf.grpc_read_timeout.duration(),
            socket_keepalive: conf.grpc_socket_keepalive,
            receive_buffer: conf.grpc_socket_rcvbuf.0 as usize,
            send_buffer: conf.grpc_socket_sndbuf.0 as usize,
            ignore_headers: conf.grpc_ignore_headers.unwrap_or_default(),
            bind: conf.grpc_bind.clone(),
            bind_dynamic: conf.grpc_bind_dynamic,
            request_dynamic: conf.grpc_request_dynamic,
            allow_upstream: conf.grpc_allow_upstream.clone(),
            ..PassConf::new("grpc")
        };
        let shown: NameSet = name_list(&conf.grpc_pass_header).collect();
        let hidden = HIDDEN.iter().map(|name| name.as_bytes()).chain(name_list(&conf.grpc_hide_header));
        let hidden = hidden.filter(|name| !shown.has_name(name)).collect();
        let lines = conf.grpc_set_header.as_ref().map(|list| list.0.clone()).unwrap_or_default();
        let own = OWN_FIELDS.iter().map(|name| name.as_bytes());
        let overridden = own.chain(lines.iter().map(|line| line.name.as_slice())).collect();
        let protocol = GrpcProtocol { lines, overridden };
        let mut plan = PassPlan::new(pass, Box::new(protocol), bound, hidden);
        plan.tls = tls;
        plan.mount(block)
    }
}

struct GrpcProtocol {
    lines: Vec<HeaderLine>,
    overridden: NameSet,
}

impl HeaderLine {
    fn is_host(&self) -> bool {
        self.name.eq_ignore_ascii_case(b"host")
    }
}

impl GrpcProtocol {
    /// Value of the last `grpc_set_header Host`, unless it is empty.
    fn authority(&self, r: &mut Request) -> Option<Vec<u8>> {
        let host = self.lines.iter().rfind(|line| line.is_host())?.value.eval(r);
        r.field_value("grpc_set_header", b"Host", host).filter(|host| !host.is_empty())
    }
    fn says(&self, name: &str) -> bool {
        self.lines.iter().any(|line| line.name.eq_ignore_ascii_case(name.as_bytes()))
    }
}

impl UpstreamProtocol for GrpcProtocol {
    fn codec(&self) -> Option<Box<dyn SerialCodec>> {
        None
    }
    fn multiplexes(&self) -> bool {
        true
    }
    fn goes_both_ways(&self) -> bool {
        true
    }
    fn write(
        &self,
        _: &PassPlan,
        r: &mut Request,
        target: &UpstreamTarget<'_>,
        announce: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        let path = target::unparsed_uri(r);
        let method = r.method_name().to_vec();
        let host = self.authority(r).unwrap_or_else(|| target.origin.host.as_bytes().to_vec());
        let values: Vec<Vec<u8>> = self.lines.iter().map(|line| line.value.eval(r)).collect();
        let mut block =
            HeaderBlock::new(Coding::Http2, &method, target.origin.tls, &clean::encode_target(&path), Some(&host), out);
        if let Announce::Length(n) = announce
            && !self.says("content-length")
        {
            block.field(b"content-length", n.to_string().as_bytes());
        }
        let trailers = |value: &[u8]| value.to_ascii_lowercase().windows(8).any(|word| word == b"trailers");
        if !self.says("te") && r.header(Known::Te).is_some_and(trailers) {
            block.field(b"te", b"trailers");
        }
        for (line, value) in self.lines.iter().zip(&values).filter(|(line, _)| !line.is_host()) {
            if clean::ends_line(value) || clean::ends_line(&line.name) {
                r.dropped("grpc_set_header", &line.name, value);
            } else if !value.is_empty() {
                block.field(&line.name, value);
            }
        }
        for one in &r.head.fields.all {
            let (name, value) = (one.name.of(&r.buf), one.value.of(&r.buf));
            if !self.overridden.has(one.known, name) {
                block.field(name, value);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_host_is_the_authority() {
        let line = |name: &str, value: &str| HeaderLine {
            name: name.as_bytes().to_vec(),
            value: HttpTemplate::literal(value.as_bytes()),
        };
        let authority = |lines: Vec<HeaderLine>| {
            let spoken = GrpcProtocol { lines, overridden: NameSet::default() };
            spoken.authority(&mut Request::default())
        };
        assert_eq!(authority(vec![line("X-Host", "x"), line("host", "a"), line("Host", "b")]), Some(b"b".to_vec()));
        assert_eq!(authority(vec![line("Host", "")]), None);
        assert_eq!(authority(vec![line("X-Host", "x")]), None);
        assert!(line("HOST", "a").is_host() && !line("X-Host", "a").is_host());
    }
}
