//! Reverse proxy (nginx: `ngx_http_proxy_module`, `ngx_http_upstream.c`).
//!
//! `target.rs` says where to and under which URI, `request.rs` writes the request, `exchange.rs` chooses servers and tries
//! them, `conversation.rs` talks with one, `response.rs` turns the answer into ours, `storage.rs` has what is stored of it,
//! `body.rs` passes the body on, piece by piece, as fast as the client takes it.

mod body;
mod conversation;
mod early_hints;
mod exchange;
mod redirect;
mod request;
mod response;
mod storage;
mod target;
mod variables;

use crate::shared::binding::BindTo;
use crate::shared::caching::{self, Caching, Storing};
use crate::shared::groups::Named;
use crate::shared::probing::{Prober, Probing, Timeouts};
use crate::shared::tls::{CacheOf, Command, Passwords, Pem, Said, TlsProtocols, UpstreamTls, Wanted};
use conf_schema::value::{Buffers, Flag, List, Msec, Number, Offset, Own, Size, Text, Words};
use conf_schema::{Area, Contexts, Cx, Directive, Problem, Table, Value, directives};
use http_engine::clean;
use http_engine::core_table::TempPath;
use http_engine::plan::Folder;
use http_engine::values::{SizeTemplate, in_named_location, in_regex_location};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Flow, Handler, Request, Template};
use redirect::{CookieFlags, CookieRule, RedirectRule};
use std::any::Any;
use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use target::Target;
use wire_h1::NameSet;

conf_schema::word_set! {
    /// `proxy_next_upstream`
    pub struct NextUpstream {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_HEADER = 4 "invalid_header", NON_IDEMPOTENT = 8 "non_idempotent",
        HTTP_500 = 16 "http_500", HTTP_502 = 32 "http_502", HTTP_503 = 64 "http_503", HTTP_504 = 128 "http_504",
        HTTP_403 = 256 "http_403", HTTP_404 = 512 "http_404", HTTP_429 = 1024 "http_429", OFF = 2048 "off",
    }
}
conf_schema::word_set! {
    /// `proxy_ignore_headers`
    pub struct IgnoreHeaders {
        REDIRECT = 1 "X-Accel-Redirect", EXPIRES_IN = 2 "X-Accel-Expires", LIMIT_RATE = 4 "X-Accel-Limit-Rate",
        BUFFERING = 8 "X-Accel-Buffering", CHARSET = 16 "X-Accel-Charset", EXPIRES = 32 "Expires",
        CACHE_CONTROL = 64 "Cache-Control", SET_COOKIE = 128 "Set-Cookie", VARY = 256 "Vary",
    }
}
conf_schema::words! {
    /// `proxy_http_version`; HTTP/2 to upstreams comes later.
    pub enum HttpVersion { V10 = "1.0", V11 = "1.1" }
}

directives! {
    /// What the proxy module is told in a block.
    pub struct ProxyConf from ProxyInput {
        /// The protocol and address of the proxied server, and the URI that the location is mapped to.
        /// Differs: line ends and NUL that variables bring into the URI are percent-encoded.
        proxy_pass: Own<PassTo>,
        /// Redefines or appends a field of the request that is passed on; an empty value removes it.
        /// Differs: a field is dropped, with a line in the error log, when a variable brings a line end into its value. Line ends that the
        /// value itself has become spaces.
        proxy_set_header: List<HeaderLine>,
        /// Fields of the response that are not passed on.
        proxy_hide_header: List<Name>,
        /// Fields that would be hidden and are passed on.
        proxy_pass_header: List<Name>,
        /// Changes the Location and Refresh fields of the response.
        proxy_redirect: List<RedirectRule>,
        /// Changes the domain of cookies.
        proxy_cookie_domain: List<CookieRule>,
        /// Changes the path of cookies.
        proxy_cookie_path: List<CookieRule>,
        /// Passes another method than the client's.
        proxy_method: Template,
        /// Passes another body than the client's.
        proxy_set_body: Template,
        /// The version of HTTP that is spoken to the server.
        proxy_http_version: HttpVersion = "1.1",
        /// Whether the response is read ahead of the client.
        proxy_buffering: Flag = "on",
        /// The most that the head of a response may take.
        proxy_buffer_size: Size = "4k",
        /// Number and size of buffers for reading a response.
        proxy_buffers: Buffers = "8 4k",
        /// Whether the client's body is read whole before it is passed on.
        proxy_request_buffering: Flag = "on",
        /// When the next server is tried.
        proxy_next_upstream: NextUpstream = "error timeout",
        /// How many servers are tried; 0: all.
        proxy_next_upstream_tries: Number = "0",
        /// How long the next server may be tried; 0: no limit.
        proxy_next_upstream_timeout: Msec = "0",
        /// Whether responses of 300 and above are replaced by `error_page`.
        proxy_intercept_errors: Flag = "off",
        /// The most bytes a second that are read from the server of a buffered response; 0: no limit.
        proxy_limit_rate: SizeTemplate,
        /// Whether the fields behind a chunked response are passed on.
        proxy_pass_trailers: Flag = "off",
        /// How long a connection may take to be established.
        proxy_connect_timeout: Msec = "60s",
        /// How long the server may take nothing of a request.
        proxy_send_timeout: Msec = "60s",
        /// How long the server may send nothing.
        proxy_read_timeout: Msec = "60s",
        /// SO_KEEPALIVE on connections to servers.
        proxy_socket_keepalive: Flag = "off",
        /// Ranges are answered even when the server does not say that it does.
        proxy_force_ranges: Flag = "off",
        /// Fields of the response that are not acted upon.
        proxy_ignore_headers: IgnoreHeaders,
        /// Whether the client's fields are passed on.
        proxy_pass_request_headers: Flag = "on",
        /// Whether the client's body is passed on.
        /// Differs: a body that is not passed on is not announced either: nginx leaves its `Content-Length`, and servers wait for it.
        proxy_pass_request_body: Flag = "on",
        /// The folder of temporary files with responses that a client is too slow for.
        proxy_temp_path: TempPath = "proxy_temp",
        /// The most of a response that is kept in a temporary file; 0: none.
        proxy_max_temp_file_size: Offset = "1024m",
        /// How much is written to a temporary file at once.
        proxy_temp_file_write_size: Size = "8k",
        /// nginx: how much of the buffers may be on its way to the client while the response is still read, so that the rest can
        /// be read into. Ours hands on what it has read at once and reads up to `proxy_buffers` ahead: the value is checked as
        /// nginx checks it, and bounds nothing more.
        proxy_busy_buffers_size: Size,
        /// Whether a request is carried on when its client has gone.
        proxy_ignore_client_abort: Flag = "off",
        /// The address that connections to servers are made from.
        proxy_bind: BindTo,
        /// SO_RCVBUF of connections to servers.
        proxy_socket_rcvbuf: Size = "0",
        /// SO_SNDBUF of connections to servers.
        proxy_socket_sndbuf: Size = "0",
        /// Sets or removes flags of cookies.
        proxy_cookie_flags: List<CookieFlags>,
        /// Sets SO_SNDLOWAT where the system has it (Linux has not: no effect).
        proxy_send_lowat: Size = "0",
        /// Bounds the table of hidden fields; ours needs no tuning, the value is checked and has no effect.
        proxy_headers_hash_max_size: Number = "512",
        /// As `proxy_headers_hash_max_size`.
        proxy_headers_hash_bucket_size: Number = "64",
        /// The certificate that is shown to a server over https, with those between it and its authority.
        proxy_ssl_certificate: Pem,
        /// Its key.
        proxy_ssl_certificate_key: Pem,
        /// Keeps certificates that depend on variables.
        proxy_ssl_certificate_cache: CacheOf = "off",
        /// Cipher suites of TLSv1.2 in OpenSSL's language.
        /// Differs: as `ssl_ciphers`.
        proxy_ssl_ciphers: Text = "DEFAULT",
        /// Commands of OpenSSL.
        /// Differs: as `ssl_conf_command`.
        proxy_ssl_conf_command: List<Command>,
        /// Revoked certificates: a list for every authority of a chain.
        proxy_ssl_crl: Text,
        /// The name that the server's certificate is for, and that is sent to it.
        proxy_ssl_name: Template,
        /// Passwords of encrypted keys, one a line.
        proxy_ssl_password_file: Passwords,
        /// Versions of the protocol.
        /// Differs: those before TLSv1.2 are not available; with others listed they are left out, with a warning.
        proxy_ssl_protocols: TlsProtocols = "TLSv1.2 TLSv1.3",
        /// Whether the name is sent in the handshake (SNI).
        proxy_ssl_server_name: Flag = "off",
        /// Whether sessions are resumed.
        proxy_ssl_session_reuse: Flag = "on",
        /// Authorities of servers.
        proxy_ssl_trusted_certificate: Text,
        /// Whether the server's certificate is verified.
        proxy_ssl_verify: Flag = "off",
        /// Certificates that may stand between a server's and its authority.
        proxy_ssl_verify_depth: Number = "1",
    }
}

/// What `proxy_temp_file_write_size` is where nobody says it; it then goes with the buffers, however large.
const WRITE_SIZE: u64 = 8 * 1024;

impl ProxyConf {
    /// What is said of TLS.
    fn tls(&self) -> Said<'_> {
        Said {
            prefix: "proxy_ssl",
            certificate: self.proxy_ssl_certificate.as_ref(),
            certificate_key: self.proxy_ssl_certificate_key.as_ref(),
            certificate_cache: &self.proxy_ssl_certificate_cache,
            ciphers: &self.proxy_ssl_ciphers,
            conf_command: self.proxy_ssl_conf_command.as_ref().map(|l| l.0.as_slice()).unwrap_or_default(),
            crl: self.proxy_ssl_crl.as_ref(),
            name: self.proxy_ssl_name.as_ref(),
            password_file: self.proxy_ssl_password_file.as_ref(),
            protocols: self.proxy_ssl_protocols,
            server_name: self.proxy_ssl_server_name,
            session_reuse: self.proxy_ssl_session_reuse,
            trusted_certificate: self.proxy_ssl_trusted_certificate.as_ref(),
            verify: self.proxy_ssl_verify,
            verify_depth: self.proxy_ssl_verify_depth.0,
        }
    }
    /// Whether the sizes of buffers and files go together.
    ///
    /// # Errors
    /// nginx's words for what does not.
    fn buffers_fit(&self) -> Result<(), Problem> {
        const AT_LEAST: &str = "the maximum of the value of \"proxy_buffer_size\" and one of the \"proxy_buffers\"";
        let buffers = &self.proxy_buffers;
        if buffers.count < 2 {
            return Err(Problem::says("there must be at least 2 \"proxy_buffers\""));
        }
        let size = self.proxy_buffer_size.0.max(buffers.size);
        let busy = self.proxy_busy_buffers_size.as_ref().map_or(2 * size, |size| size.0);
        if busy < size {
            return Err(Problem::says(format!(
                "\"proxy_busy_buffers_size\" must be equal to or greater than {AT_LEAST}"
            )));
        }
        if busy > (buffers.count - 1).saturating_mul(buffers.size) {
            return Err(Problem::says(
                "\"proxy_busy_buffers_size\" must be less than the size of all \"proxy_buffers\" minus one buffer",
            ));
        }
        let write = self.proxy_temp_file_write_size.0;
        if write < size && write != WRITE_SIZE {
            return Err(Problem::says(format!(
                "\"proxy_temp_file_write_size\" must be equal to or greater than {AT_LEAST}"
            )));
        }
        let file = self.proxy_max_temp_file_size.0;
        if file != 0 && file < size {
            return Err(Problem::says(format!(
                "\"proxy_max_temp_file_size\" must be equal to zero to disable temporary files usage or must be equal to or \
                 greater than {AT_LEAST}"
            )));
        }
        Ok(())
    }
}

/// Settings whose buffers were looked at; kept in `Cx`.
#[derive(Default)]
struct Fitting(Vec<Arc<ProxyConf>>);

/// `proxy_pass URL`
#[derive(Clone)]
pub struct PassTo(pub Arc<Target>);

impl Value for PassTo {
    const SYNTAX: &'static str = "URL";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let target = Target::parse(cx, d)?;
        let no_uri = in_regex_location(cx)
            || in_named_location(cx)
            || matches!(cx.context, Contexts::if_in_location | Contexts::limit_except);
        if no_uri && target.has_uri() {
            return Err(Problem::says(
                "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside named location, \
                 or inside \"if\" statement, or inside \"limit_except\" block",
            ));
        }
        let block = cx.block;
        cx.get::<Passes>().0.insert(block, matches!(target, Target::Fixed(_)));
        Ok(PassTo(Arc::new(target)))
    }
}

/// Blocks that have had their `proxy_pass`, and whether its URL is without variables; kept in `Cx`.
#[derive(Default)]
pub struct Passes(pub std::collections::HashMap<usize, bool>);

/// `proxy_set_header field value`
#[derive(Clone)]
pub struct HeaderLine {
    pub name: Vec<u8>,
    pub value: Template,
}

impl Value for HeaderLine {
    const SYNTAX: &'static str = "field value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [name, value] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let value = Template::compile(cx, d, &clean::one_line(&value.bytes)).map_err(|p| p.at(1))?;
        Ok(HeaderLine { name: name.bytes.clone(), value })
    }
}

/// A field's name.
#[derive(Clone)]
pub struct Name(pub Vec<u8>);

impl Value for Name {
    const SYNTAX: &'static str = "field";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Words::parse(cx, d).map(|w| Name(w.0.into_iter().next().unwrap_or_default()))
    }
}

/// The feature.
pub struct Proxy;

impl Feature for Proxy {
    fn table(&self) -> Table {
        ProxyConf::table("proxy", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ROWS
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<ProxyConf>() else { return Ok(()) };
        // Also where nothing is passed on, as in nginx; what is inherited as a whole was looked at.
        let seen = block.cx.get::<Fitting>();
        if !seen.0.iter().any(|known| Arc::ptr_eq(known, &conf)) {
            seen.0.push(conf.clone());
            conf.buffers_fit()?;
        }
        let Some(Own(PassTo(target))) = conf.proxy_pass.clone() else { return Ok(()) };
        let location = &mut block.location;
        let bound = target.bind(block.cx)?;
        let folder = Folder { path: conf.proxy_temp_path.path.clone(), needed: false };
        if !block.folders.contains(&folder) {
            block.folders.push(folder);
        }
        let redirects = redirect::rules(&conf.proxy_redirect, &target, &location.name)?;
        location.auto_redirect = location.name.ends_with(b"/") && !location.regex && !location.exact;
        if let Some(origin) = bound.origin() {
            location.things.push(Arc::new(origin));
        }
        // A URL with variables may turn out to be one of https.
        let tls = match &*target {
            Target::Fixed(url) if !url.tls => None,
            _ => Some(conf.tls().build(block.cx)?),
        };
        let mut plan = PassPlan::new(conf, bound, redirects);
        plan.tls = tls;
        plan.caching = location.thing::<Arc<Caching>>().cloned();
        plan.storing = location.thing::<Arc<Storing>>().cloned();
        location.passes = true;
        let plan = Arc::new(plan);
        location.things.push(Arc::new(Probing(plan.clone())));
        location.content = Some(Arc::new(Pass { plan }));
        Ok(())
    }
}

/// Everything that one location's proxying needs, prepared.
pub struct PassPlan {
    pub conf: Arc<ProxyConf>,
    pub target: target::Bound,
    /// Its number, unique in the process: which connections are its own (`keepalive ... local`).
    pub scope: usize,
    pub redirects: Vec<RedirectRule>,
    /// Names that `proxy_set_header` sets.
    pub set: NameSet,
    /// Names of client fields that are not passed on as they are: those, and the proxy's own.
    pub overridden: NameSet,
    /// Names of response fields that are not passed on.
    pub hidden: NameSet,
    pub caching: Option<Arc<Caching>>,
    pub storing: Option<Arc<Storing>>,
    /// How connections over https are made.
    pub tls: Option<UpstreamTls>,
}

const HIDDEN: &[&str] = &[
    "date",
    "server",
    "x-pad",
    "x-accel-expires",
    "x-accel-redirect",
    "x-accel-limit-rate",
    "x-accel-buffering",
    "x-accel-charset",
];

impl PassPlan {
    fn new(conf: Arc<ProxyConf>, target: target::Bound, redirects: Vec<RedirectRule>) -> PassPlan {
        let lines = conf.proxy_set_header.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
        let set: NameSet = lines.iter().map(|line| line.name.as_slice()).collect();
        let own = request::OWN_FIELDS.iter().map(|name| name.as_bytes());
        let overridden = own.chain(lines.iter().map(|line| line.name.as_slice())).collect();
        let shown: NameSet = names(&conf.proxy_pass_header).collect();
        let hidden = HIDDEN.iter().map(|name| name.as_bytes()).chain(names(&conf.proxy_hide_header));
        let hidden = hidden.filter(|name| !shown.has_name(name)).collect();
        static SCOPES: AtomicUsize = AtomicUsize::new(1);
        let scope = SCOPES.fetch_add(1, Ordering::Relaxed);
        PassPlan { conf, target, scope, redirects, set, overridden, hidden, caching: None, storing: None, tls: None }
    }
}

fn names(list: &Option<List<Name>>) -> impl Iterator<Item = &[u8]> {
    list.iter().flat_map(|list| list.0.iter().map(|name| name.0.as_slice()))
}

impl Prober for PassPlan {
    fn named(&self) -> Option<Named> {
        match &self.target {
            target::Bound::Fixed { named, .. } => Some(named.clone()),
            target::Bound::Computed { .. } => None,
        }
    }
    fn request(&self, r: &mut Request, uri: &str, close: bool) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        if let target::Bound::Fixed { named, origin, .. } = &self.target {
            let (named, origin) = (Cow::Borrowed(named), origin.clone());
            let aim = target::Aim { named, origin, uri: uri.as_bytes().to_vec() };
            request::write(self, r, &aim, request::Announce::Nothing, &mut out);
        }
        let told = out.windows(13).any(|w| w.eq_ignore_ascii_case(b"\r\nconnection:"));
        if close && !told && out.ends_with(b"\r\n\r\n") {
            out.truncate(out.len() - 2);
            out.extend_from_slice(b"Connection: close\r\n\r\n");
        }
        out
    }
    fn tls(&self, r: &mut Request, address: String) -> Result<Option<Wanted>, String> {
        match (&self.target, &self.tls) {
            (target::Bound::Fixed { origin, .. }, Some(tls)) if origin.tls => {
                tls.wanted(r, &origin.host, address).map(Some)
            }
            _ => Ok(None),
        }
    }
    fn timeouts(&self) -> Timeouts {
        Timeouts {
            connect: self.conf.proxy_connect_timeout.duration(),
            send: self.conf.proxy_send_timeout.duration(),
            read: self.conf.proxy_read_timeout.duration(),
        }
    }
    fn head_max(&self) -> usize {
        self.conf.proxy_buffer_size.0 as usize
    }
}

struct Pass {
    plan: Arc<PassPlan>,
}

impl Handler for Pass {
    fn run(&self, r: &mut Request) -> Flow {
        if let Some(caching) = &self.plan.caching {
            let give = |r: &mut Request, head: &_, buf: &_| response::take(&self.plan, r, head, buf);
            if let Some(flow) = caching::at_once(caching, r, &give, |r| self.plan.target.key(r)) {
                return flow;
            }
        }
        let plan = self.plan.clone();
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = exchange::run(&plan, &mut r).await;
                (r, flow)
            })
        }))
    }
}
