//! FastCGI (nginx: `ngx_http_fastcgi_module`). `record.rs` implements the protocol; `http_upstream::cgi` is shared with
//! uwsgi and SCGI.

pub mod record;

use conf_schema::value::{Flag, Own, Text, ValueList};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind};
use http_engine::regex::{Captures, HttpPattern};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Request};
use http_upstream::cgi::params::{ParamLine, Params};
use http_upstream::exchange::{Announce, PassPlan, UpstreamProtocol};
use http_upstream::target::{PassTarget, Scheme, UpstreamTarget};
use record::{FastCgi, Pairs};
use std::any::Any;
use std::sync::Arc;
use upstream::SerialCodec;

http_upstream::pass_directives! {
    pub struct FastcgiConf from FastcgiInput, "fastcgi";
    fastcgi_allow_upstream fastcgi_bind fastcgi_bind_dynamic fastcgi_request_dynamic fastcgi_buffer_size fastcgi_buffering fastcgi_buffers fastcgi_busy_buffers_size fastcgi_connect_timeout
    fastcgi_force_ranges fastcgi_hide_header fastcgi_ignore_client_abort fastcgi_ignore_headers fastcgi_intercept_errors
    fastcgi_limit_rate fastcgi_max_temp_file_size fastcgi_next_upstream = NextProgram fastcgi_next_upstream_timeout
    fastcgi_next_upstream_tries fastcgi_pass_header fastcgi_pass_request_body fastcgi_pass_request_headers
    fastcgi_read_timeout fastcgi_request_buffering fastcgi_send_timeout fastcgi_socket_keepalive
    fastcgi_socket_rcvbuf fastcgi_socket_sndbuf fastcgi_temp_file_write_size fastcgi_temp_path = "fastcgi_temp"
    own {
        /// Sets SO_SNDLOWAT. Linux does not support it: no effect.
        fastcgi_send_lowat: conf_schema::value::SendLowat = "0",
        /// Passes requests to a FastCGI server at this address.
        fastcgi_pass: Own<FastcgiPass>,
        /// Passes a parameter to the FastCGI server. A block with its own `fastcgi_param` lines inherits none.
        /// Differs: the client's `Proxy` field does not become `HTTP_PROXY`, and a field spelled with underscores does
        /// not replace one spelled with hyphens.
        fastcgi_param: ValueList<ParamLine>,
        /// File name appended to a URI that ends with a slash, in `$fastcgi_script_name`.
        fastcgi_index: Text,
        /// Splits the URI into `$fastcgi_script_name` and `$fastcgi_path_info` by a regular expression with two
        /// captures.
        fastcgi_split_path_info: Split,
        /// Treats a response as invalid if the standard error stream of the FastCGI server contains one of these texts.
        fastcgi_catch_stderr: ValueList<Text>,
        /// Keeps connections to the FastCGI server open for further requests.
        fastcgi_keep_conn: Flag = "off",
    }
}

static SCHEME: Scheme = Scheme { plain: "fastcgi", secure: None, written: false, ports: (0, 0), has_uri: false };

const HIDDEN: &[&str] =
    &["status", "x-accel-expires", "x-accel-redirect", "x-accel-limit-rate", "x-accel-buffering", "x-accel-charset"];

#[derive(Clone)]
pub struct FastcgiPass(Arc<PassTarget>);

impl ValueKind for FastcgiPass {
    const SYNTAX: &'static str = "address";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        PassTarget::parse(&SCHEME, cx, d).map(|target| FastcgiPass(Arc::new(target)))
    }
}

#[derive(Clone)]
pub struct Split(Arc<HttpPattern>);

impl ValueKind for Split {
    const SYNTAX: &'static str = "regex";
    const REPEATS: bool = true;
    fn append(&mut self, later: Self) {
        *self = later;
    }
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let pattern = HttpPattern::new(cx, &word, false).map_err(|p| p.at(0))?;
        if pattern.groups() != 2 {
            let shown = String::from_utf8_lossy(&word).into_owned();
            return Err(Problem::says(format!("pattern \"{shown}\" must have 2 captures")).at(0));
        }
        Ok(Split(Arc::new(pattern)))
    }
}

struct ScriptSplit {
    split: Option<Split>,
    index: Vec<u8>,
}

pub struct Fastcgi;

impl Feature for Fastcgi {
    fn table(&self) -> FeatureTable {
        FastcgiConf::table("fastcgi", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<FastcgiConf>() else { return Ok(()) };
        let pass = conf.pass_conf();
        let whole: Arc<dyn Any + Send + Sync> = conf.clone();
        pass.check(block.cx, &whole)?;
        let index = conf.fastcgi_index.as_ref().map(|index| index.str().as_bytes().to_vec()).unwrap_or_default();
        if conf.fastcgi_split_path_info.is_some() || !index.is_empty() {
            block
                .location
                .extensions
                .push(Arc::new(ScriptSplit { split: conf.fastcgi_split_path_info.clone(), index }));
        }
        let Some(Own(FastcgiPass(target))) = conf.fastcgi_pass.clone() else { return Ok(()) };
        let bound = target.bind(&SCHEME, block.cx)?;
        let caught = conf.fastcgi_catch_stderr.iter().flat_map(|list| &list.0);
        let protocol = FastCgiProtocol {
            params: Params::new(block.cx, &conf.fastcgi_param, pass.pass_request_headers)?,
            keep: conf.fastcgi_keep_conn,
            catch: caught.map(|text| text.str().as_bytes().to_vec()).collect(),
        };
        PassPlan::new(pass, Box::new(protocol), bound, conf.hidden(HIDDEN)).mount(block)
    }
}

struct FastCgiProtocol {
    params: Params<Pairs>,
    keep: bool,
    catch: Arc<[Vec<u8>]>,
}

impl UpstreamProtocol for FastCgiProtocol {
    fn codec(&self) -> Option<Box<dyn SerialCodec>> {
        Some(Box::new(FastCgi::new(self.keep, self.catch.clone())))
    }
    fn write(
        &self,
        _: &PassPlan,
        r: &mut Request,
        _: &UpstreamTarget<'_>,
        _: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        // Fits most requests: growing in steps costs more.
        out.reserve(1024);
        record::put_request(self.keep, out, |out| self.params.write(r, out));
        Ok(true)
    }
}

static VARIABLES: &[Builtin] = &[
    Builtin::one(
        "fastcgi_script_name",
        |r, out| script(r, out, 1),
        "The URI, with `fastcgi_index` after a final slash; or the part that `fastcgi_split_path_info` captures.",
    )
    .changeable(),
    Builtin::one("fastcgi_path_info", |r, out| script(r, out, 2), "The second capture of `fastcgi_split_path_info`.")
        .changeable(),
];

fn script(r: &mut Request, out: &mut Vec<u8>, group: usize) -> bool {
    let script = r.loc().ext::<ScriptSplit>();
    let mut captures = None;
    if let Some(Split(pattern)) = script.and_then(|script| script.split.as_ref()) {
        let found = captures.insert(Captures::default());
        if pattern.captures(r.target.path(), found) != Ok(true) {
            captures = None;
        }
    }
    let part = match (&captures, group) {
        (Some(captures), group) => captures.get(group).unwrap_or_default(),
        (None, 1) => r.target.path(),
        (None, _) => b"",
    };
    out.extend_from_slice(part);
    if group == 1
        && part.ends_with(b"/")
        && let Some(script) = script
    {
        out.extend_from_slice(&script.index);
    }
    true
}
