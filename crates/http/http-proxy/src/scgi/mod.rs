//! SCGI (nginx: `ngx_http_scgi_module`): a netstring of parameters; the response ends with the connection.

use conf_schema::value::{Own, ValueList};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind};
use http_engine::{BlockPlan, Feature, Request};
use http_types::BodyLength;
use http_upstream::cgi::codec::ClosingStream;
use http_upstream::cgi::params::{Packing, ParamLine, Params, put_param};
use http_upstream::exchange::{Announce, PassPlan, UpstreamProtocol};
use http_upstream::target::{PassTarget, Scheme, UpstreamTarget};
use std::any::Any;
use std::sync::Arc;
use upstream::SerialCodec;

http_upstream::pass_directives! {
    pub struct ScgiConf from ScgiInput, "scgi";
    scgi_allow_upstream scgi_bind scgi_bind_dynamic scgi_request_dynamic scgi_buffer_size scgi_buffering scgi_buffers scgi_busy_buffers_size scgi_connect_timeout scgi_force_ranges
    scgi_hide_header scgi_ignore_client_abort scgi_ignore_headers scgi_intercept_errors scgi_limit_rate
    scgi_max_temp_file_size scgi_next_upstream = NextProgram scgi_next_upstream_timeout scgi_next_upstream_tries scgi_pass_header
    scgi_pass_request_body scgi_pass_request_headers scgi_read_timeout scgi_request_buffering
    scgi_send_timeout scgi_socket_keepalive scgi_socket_rcvbuf scgi_socket_sndbuf scgi_temp_file_write_size
    scgi_temp_path = "scgi_temp"
    own {
        /// Passes requests to an SCGI server at this address.
        scgi_pass: Own<ScgiPass>,
        /// Passes a parameter to the SCGI server. A block with its own `scgi_param` lines inherits none.
        /// Differs: as `fastcgi_param`.
        scgi_param: ValueList<ParamLine>,
    }
}

static SCHEME: Scheme = Scheme { plain: "scgi", secure: None, written: false, ports: (0, 0), has_uri: false };

const HIDDEN: &[&str] =
    &["status", "x-accel-expires", "x-accel-redirect", "x-accel-limit-rate", "x-accel-buffering", "x-accel-charset"];

#[derive(Clone)]
pub struct ScgiPass(Arc<PassTarget>);

impl ValueKind for ScgiPass {
    const SYNTAX: &'static str = "address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        PassTarget::parse(&SCHEME, cx, d).map(|target| ScgiPass(Arc::new(target)))
    }
}

pub struct Scgi;

impl Feature for Scgi {
    fn table(&self) -> FeatureTable {
        ScgiConf::table("scgi", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<ScgiConf>() else { return Ok(()) };
        let pass = conf.pass_conf();
        let whole: Arc<dyn Any + Send + Sync> = conf.clone();
        pass.check(block.cx, &whole)?;
        let Some(Own(ScgiPass(target))) = conf.scgi_pass.clone() else { return Ok(()) };
        let bound = target.bind(&SCHEME, block.cx)?;
        let params = Params::new(block.cx, &conf.scgi_param, pass.pass_request_headers)?;
        PassPlan::new(pass, Box::new(ScgiProtocol { params }), bound, conf.hidden(HIDDEN)).mount(block)
    }
}

/// SCGI's parameters: NUL-terminated names and values.
struct Strings;

impl Packing for Strings {
    fn begin(_: usize, _: &mut Vec<u8>) {}
    fn value(out: &mut Vec<u8>) {
        out.push(0);
    }
    fn end(start: usize, value: usize, out: &mut Vec<u8>) {
        // NUL would end a word of the head.
        let has_nul = |word: Option<&[u8]>| memchr::memchr(0, word.unwrap_or_default()).is_some();
        if has_nul(out.get(start..value - 1)) || has_nul(out.get(value..)) {
            out.truncate(start);
        } else {
            out.push(0);
        }
    }
}

struct ScgiProtocol {
    params: Params<Strings>,
}

impl UpstreamProtocol for ScgiProtocol {
    fn codec(&self) -> Option<Box<dyn SerialCodec>> {
        Some(Box::new(ClosingStream::new()))
    }
    fn write(
        &self,
        _: &PassPlan,
        r: &mut Request,
        _: &UpstreamTarget<'_>,
        announce: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        let length = if let Announce::Length(n) = announce { n } else { 0 };
        let start = out.len();
        // Must come first.
        put_param::<Strings>(b"CONTENT_LENGTH", length.to_string().as_bytes(), out);
        self.params.write(r, out);
        let netstring = format!("{}:", out.len() - start);
        out.splice(start..start, netstring.bytes());
        out.push(b',');
        Ok(true)
    }
    fn may_stream(&self, length: BodyLength) -> bool {
        // The length precedes the body.
        length != BodyLength::Chunked
    }
}
