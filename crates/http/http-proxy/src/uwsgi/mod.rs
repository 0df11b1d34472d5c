//! uwsgi (nginx: `ngx_http_uwsgi_module`): sends a packet of parameters and the request body; the response ends with
//! the connection.

use conf_schema::value::{Number, Own, Text, ValueList};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind};
use http_engine::{BlockPlan, Feature, Request};
use http_types::BodyLength;
use http_upstream::cgi::codec::ClosingStream;
use http_upstream::cgi::params::{Packing, ParamLine, Params};
use http_upstream::exchange::{Announce, PassPlan, UpstreamProtocol};
use http_upstream::target::{PassTarget, Scheme, UpstreamTarget};
use observe::Severity;
use std::any::Any;
use std::sync::Arc;
use upstream::SerialCodec;

http_upstream::pass_directives! {
    pub struct UwsgiConf from UwsgiInput, "uwsgi";
    uwsgi_allow_upstream uwsgi_bind uwsgi_bind_dynamic uwsgi_request_dynamic uwsgi_buffer_size uwsgi_buffering uwsgi_buffers uwsgi_busy_buffers_size uwsgi_connect_timeout
    uwsgi_force_ranges uwsgi_hide_header uwsgi_ignore_client_abort uwsgi_ignore_headers uwsgi_intercept_errors
    uwsgi_limit_rate uwsgi_max_temp_file_size uwsgi_next_upstream = NextProgram uwsgi_next_upstream_timeout uwsgi_next_upstream_tries
    uwsgi_pass_header uwsgi_pass_request_body uwsgi_pass_request_headers uwsgi_read_timeout uwsgi_request_buffering
    uwsgi_send_timeout uwsgi_socket_keepalive uwsgi_socket_rcvbuf uwsgi_socket_sndbuf
    uwsgi_temp_file_write_size uwsgi_temp_path = "uwsgi_temp"
    ssl {
        "uwsgi_ssl"
        uwsgi_ssl_certificate uwsgi_ssl_certificate_key uwsgi_ssl_certificate_cache uwsgi_ssl_ciphers uwsgi_ssl_conf_command
        uwsgi_ssl_crl uwsgi_ssl_name uwsgi_ssl_password_file uwsgi_ssl_protocols uwsgi_ssl_server_name
        uwsgi_ssl_session_reuse uwsgi_ssl_trusted_certificate uwsgi_ssl_verify uwsgi_ssl_verify_depth uwsgi_ssl_key_log
    }
    own {
        /// Passes requests to a uwsgi server: `uwsgi://`, or `suwsgi://` over TLS.
        uwsgi_pass: Own<UwsgiPass>,
        /// Passes a parameter to the uwsgi server. A block with its own `uwsgi_param` lines inherits none.
        /// Differs: as `fastcgi_param`.
        uwsgi_param: ValueList<ParamLine>,
        /// First modifier of the uwsgi packet, which selects the type of the request.
        uwsgi_modifier1: Number = "0",
        /// Second modifier of the uwsgi packet.
        uwsgi_modifier2: Number = "0",
        /// Text sent after the parameters, before the request body.
        uwsgi_string: Text,
    }
}

static SCHEME: Scheme =
    Scheme { plain: "uwsgi", secure: Some("suwsgi"), written: false, ports: (0, 0), has_uri: false };

const HIDDEN: &[&str] =
    &["x-accel-expires", "x-accel-redirect", "x-accel-limit-rate", "x-accel-buffering", "x-accel-charset"];

#[derive(Clone)]
pub struct UwsgiPass(Arc<PassTarget>);

impl ValueKind for UwsgiPass {
    const SYNTAX: &'static str = "[protocol://]address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        PassTarget::parse(&SCHEME, cx, d).map(|target| UwsgiPass(Arc::new(target)))
    }
}

pub struct Uwsgi;

impl Feature for Uwsgi {
    fn table(&self) -> FeatureTable {
        UwsgiConf::table("uwsgi", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<UwsgiConf>() else { return Ok(()) };
        let pass = conf.pass_conf();
        let whole: Arc<dyn Any + Send + Sync> = conf.clone();
        pass.check(block.cx, &whole)?;
        let modifier = |n: &Number, which: u8| {
            let wrong = || Problem::says("value must be between 0 and 255").of(format!("uwsgi_modifier{which}"));
            u8::try_from(n.0).map_err(|_| wrong())
        };
        let modifiers = (modifier(&conf.uwsgi_modifier1, 1)?, modifier(&conf.uwsgi_modifier2, 2)?);
        let Some(Own(UwsgiPass(target))) = conf.uwsgi_pass.clone() else { return Ok(()) };
        let bound = target.bind(&SCHEME, block.cx)?;
        let tls = match &*target {
            PassTarget::Fixed(url, _) if !url.tls => None,
            _ => Some(conf.tls().build(block.cx)?),
        };
        let protocol = UwsgiProtocol {
            params: Params::new(block.cx, &conf.uwsgi_param, pass.pass_request_headers)?,
            modifiers,
            text: conf.uwsgi_string.as_ref().map(|text| text.str().as_bytes().to_vec()).unwrap_or_default(),
        };
        let mut plan = PassPlan::new(pass, Box::new(protocol), bound, conf.hidden(HIDDEN));
        plan.tls = tls;
        plan.mount(block)
    }
}

/// Encoding of uwsgi parameters: name and value, each preceded by its two-byte length.
struct UwsgiPacking;

impl Packing for UwsgiPacking {
    fn begin(name: usize, out: &mut Vec<u8>) {
        out.extend_from_slice(&(name as u16).to_le_bytes());
    }
    fn value(out: &mut Vec<u8>) {
        out.extend_from_slice(&[0, 0]);
    }
    fn end(_: usize, value: usize, out: &mut Vec<u8>) {
        let length = ((out.len() - value) as u16).to_le_bytes();
        if let Some(place) = out.get_mut(value - 2..value) {
            place.copy_from_slice(&length);
        }
    }
}

struct UwsgiProtocol {
    params: Params<UwsgiPacking>,
    modifiers: (u8, u8),
    text: Vec<u8>,
}

impl UpstreamProtocol for UwsgiProtocol {
    fn codec(&self) -> Option<Box<dyn SerialCodec>> {
        Some(Box::new(ClosingStream::new()))
    }
    fn write(
        &self,
        _: &PassPlan,
        r: &mut Request,
        _: &UpstreamTarget<'_>,
        _: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        out.extend_from_slice(&[self.modifiers.0, 0, 0, self.modifiers.1]);
        let start = out.len();
        self.params.write(r, out);
        out.extend_from_slice(&self.text);
        // A parameter whose length does not fit into two bytes also exceeds this limit.
        let size = out.len() - start;
        let Ok(length) = u16::try_from(size) else {
            r.log(Severity::Alert, format_args!("uwsgi request is too big: {size}"));
            return Err(500);
        };
        if let Some(place) = out.get_mut(start - 3..start - 1) {
            place.copy_from_slice(&length.to_le_bytes());
        }
        Ok(true)
    }
    fn may_stream(&self, length: BodyLength) -> bool {
        // The protocol cannot mark the end of a body of unknown length.
        length != BodyLength::Chunked
    }
}
