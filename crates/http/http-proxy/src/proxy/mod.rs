//! Reverse proxy (nginx: `ngx_http_proxy_module`): HTTP towards servers; `http_upstream::exchange` has everything
//! independent of the protocol.
//! `request.rs` writes requests, `http2.rs` those of HTTP/2, `http1.rs` reads responses, `redirect.rs` rewrites their
//! references.

pub mod http1;
mod http2;
mod redirect;
mod request;
mod variables;

use conf_schema::value::{Flag, Own, ValueList};
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind};
use http_engine::clean;
use http_engine::values::{in_named_location, in_predicate_location, in_regex_location};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HttpTemplate, Request};
use http_types::{BodyLength, Method, NameSet};
use http_upstream::caching::CacheRequest;
use http_upstream::exchange::block::Coding;
use http_upstream::exchange::conf::PassConf;
use http_upstream::exchange::{Announce, HIDDEN, PassPlan, UpstreamProtocol};
use http_upstream::target::{PassTarget, Scheme, UpstreamTarget};
use http_upstream::tls::UpstreamTlsConf;
use http1::Http1;
use redirect::{CookieFlags, CookieRule, RedirectRule};
use std::any::Any;
use std::sync::Arc;
use tls_directives::VerifyNames;
use upstream::SerialCodec;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HttpVersion {
    V10,
    V11,
    V2,
    V3,
}

impl ValueKind for HttpVersion {
    const SYNTAX: &'static str = "1.0 | 1.1 | 2 | 3";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let known = "one of: 1.0, 1.1, 2, 3";
        match conf_schema::value::word_at(d, 0)?.text().as_ref() {
            "1.0" => Ok(HttpVersion::V10),
            "1.1" => Ok(HttpVersion::V11),
            "2" => Ok(HttpVersion::V2),
            "3" => Ok(HttpVersion::V3),
            other => Err(Problem::says(format!("invalid value \"{other}\"")).at(0).hint(known)),
        }
    }
}

http_upstream::pass_directives! {
    pub struct ProxyConf from ProxyInput, "proxy";
    proxy_allow_upstream proxy_bind proxy_bind_dynamic proxy_request_dynamic proxy_buffer_size proxy_buffering proxy_buffers proxy_busy_buffers_size proxy_connect_timeout proxy_force_ranges
    proxy_hide_header proxy_ignore_client_abort proxy_ignore_headers proxy_intercept_errors proxy_limit_rate
    proxy_max_temp_file_size proxy_next_upstream = NextUpstream proxy_next_upstream_timeout proxy_next_upstream_tries proxy_pass_header
    proxy_pass_request_body proxy_pass_request_headers proxy_read_timeout proxy_request_buffering
    proxy_send_timeout proxy_socket_keepalive proxy_socket_rcvbuf proxy_socket_sndbuf proxy_temp_file_write_size
    proxy_temp_path = "proxy_temp"
    ssl {
        "proxy_ssl"
        proxy_ssl_certificate proxy_ssl_certificate_key proxy_ssl_certificate_cache proxy_ssl_ciphers proxy_ssl_conf_command
        proxy_ssl_crl proxy_ssl_name proxy_ssl_password_file proxy_ssl_protocols proxy_ssl_server_name proxy_ssl_session_reuse
        proxy_ssl_trusted_certificate proxy_ssl_verify proxy_ssl_verify_depth proxy_ssl_key_log
    }
    own {
        /// Tries a request again after a failed try, up to `attempts` times, each `backoff` later: at a server that was not tried, or at the
        /// same one again. Failures are those of `proxy_next_upstream`, and responses with one of the `codes` (`codes=500,503`, `codes=5xx`).
        /// Replaces `proxy_next_upstream_tries`. Methods that are not idempotent need `proxy_next_upstream ... non_idempotent`.
        proxy_retry: http_upstream::exchange::conf::Retries = "off",
        /// Maximum time until a response's head, over all tries and the waits between them; then the client gets 504. 0: no limit.
        proxy_request_timeout: conf_schema::value::Msec = "0",
        /// Maximum time of each try until the response's head; then the try has failed by a timeout. 0: no limit.
        proxy_try_timeout: conf_schema::value::Msec = "0",
        /// Subject alternative names of which the server's certificate must have one with `proxy_ssl_verify on`, in place of
        /// `proxy_ssl_name`, which SNI sends: DNS names, and URIs such as `spiffe://cluster/service`, which may begin with `URI:`. Common
        /// names do not count.
        proxy_ssl_verify_names: VerifyNames,
        /// Sets SO_SNDLOWAT. Linux does not support it: no effect.
        proxy_send_lowat: conf_schema::value::SendLowat = "0",
        /// Passes requests to an HTTP server: protocol, address, and the URI that replaces the location's prefix.
        /// Differs: line breaks and NUL from variables in the URI are percent-encoded.
        proxy_pass: Own<ProxyPass>,
        /// Sets a request field; an empty value removes it.
        /// Differs: a field is dropped, with an error log line, if a variable brings a line break into its value. Line
        /// breaks in the value itself become spaces. A connection whose request said `Connection: close` is not reused,
        /// even if the response says `keep-alive`.
        proxy_set_header: ValueList<HeaderLine>,
        /// Rewrites `Location` and `Refresh` of responses.
        proxy_redirect: ValueList<RedirectRule>,
        /// Rewrites the domain of cookies.
        proxy_cookie_domain: ValueList<CookieRule>,
        /// Rewrites the path of cookies.
        proxy_cookie_path: ValueList<CookieRule>,
        /// Sets or removes flags of cookies.
        proxy_cookie_flags: ValueList<CookieFlags>,
        /// Replaces the request method.
        proxy_method: HttpTemplate,
        /// Replaces the request body.
        proxy_set_body: HttpTemplate,
        /// HTTP version for connections to the server. `3` (an extension of Angie) is HTTP/3 over QUIC and needs an
        /// `https://` URL. Health checks (`check`) then use TCP.
        proxy_http_version: HttpVersion = "1.1",
        /// Passes trailer fields of responses to the client.
        proxy_pass_trailers: Flag = "off",
        /// Size of nginx's hash table of hidden header fields. The value is checked and has no effect.
        proxy_headers_hash_max_size: conf_schema::value::HashSize = "512",
        /// As `proxy_headers_hash_max_size`.
        proxy_headers_hash_bucket_size: conf_schema::value::HashSize = "64",
    }
}

static SCHEME: Scheme = Scheme { plain: "http", secure: Some("https"), written: true, ports: (80, 443), has_uri: true };

#[derive(Clone)]
pub struct ProxyPass(pub Arc<PassTarget>);

impl ValueKind for ProxyPass {
    const SYNTAX: &'static str = "URL";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let target = PassTarget::parse(&SCHEME, cx, d)?;
        let no_uri = in_regex_location(cx)
            || in_predicate_location(cx)
            || in_named_location(cx)
            || matches!(cx.context, Contexts::if_in_location | Contexts::limit_except);
        if no_uri && target.has_uri() {
            return Err(Problem::says(
                "\"proxy_pass\" cannot have URI part in location given by regular expression, or inside predicate \
                 location, or inside named location, or inside \"if\" statement, or inside \"limit_except\" block",
            ));
        }
        let block = cx.block;
        cx.get::<Passes>().0.insert(block, matches!(target, PassTarget::Fixed(..)));
        Ok(ProxyPass(Arc::new(target)))
    }
}

/// Blocks with a `proxy_pass`, and whether its URL is constant; in `Cx`.
#[derive(Default)]
pub struct Passes(pub std::collections::HashMap<usize, bool>);

#[derive(Clone)]
pub struct HeaderLine {
    pub name: Vec<u8>,
    pub value: HttpTemplate,
}

impl ValueKind for HeaderLine {
    const SYNTAX: &'static str = "field value";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [name, value] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let value = HttpTemplate::compile(cx, d, &clean::one_line(&value.bytes)).map_err(|p| p.at(1))?;
        Ok(HeaderLine { name: name.bytes.clone(), value })
    }
}

pub struct HttpProxy;

impl Feature for HttpProxy {
    fn table(&self) -> FeatureTable {
        ProxyConf::table("proxy", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ROWS
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<ProxyConf>() else { return Ok(()) };
        let pass = PassConf {
            retry: conf.proxy_retry.0.clone(),
            request_timeout: conf.proxy_request_timeout.duration(),
            try_timeout: conf.proxy_try_timeout.duration(),
            ..conf.pass_conf()
        };
        // Also without `proxy_pass`, as in nginx.
        let whole: Arc<dyn Any + Send + Sync> = conf.clone();
        pass.check(block.cx, &whole)?;
        let Some(Own(ProxyPass(target))) = conf.proxy_pass.clone() else { return Ok(()) };
        let bound = target.bind(&SCHEME, block.cx)?;
        let verify_names = conf.proxy_ssl_verify_names.as_ref().map(|names| names.0.as_slice()).unwrap_or_default();
        let own = UpstreamTlsConf { verify_names, ..conf.tls() };
        let redirects = redirect::redirect_rules(&conf.proxy_redirect, &target, &block.location.name)?;
        // A URL with variables may be https.
        let tls = match &*target {
            PassTarget::Fixed(url, _) if !url.tls => {
                if conf.proxy_http_version == HttpVersion::V3 {
                    return Err(Problem::says(
                        "\"proxy_http_version 3\" needs \"https://\" in \"proxy_pass\": QUIC is always encrypted",
                    )
                    .of("proxy_http_version"));
                }
                None
            }
            _ if conf.proxy_http_version == HttpVersion::V2 => {
                Some(UpstreamTlsConf { alpn: &["h2"], ..own }.build(block.cx)?)
            }
            _ if conf.proxy_http_version == HttpVersion::V3 => {
                Some(UpstreamTlsConf { alpn: &["h3"], ..own }.build(block.cx)?)
            }
            _ => Some(own.build(block.cx)?),
        };
        let hidden = conf.hidden(HIDDEN);
        let pass = PassConf { set_body: conf.proxy_set_body.clone(), pass_trailers: conf.proxy_pass_trailers, ..pass };
        let mut plan = PassPlan::new(pass, Box::new(Http::new(conf, redirects)), bound, hidden);
        plan.tls = tls;
        plan.mount(block)
    }
}

pub struct Http {
    conf: Arc<ProxyConf>,
    redirects: Vec<RedirectRule>,
    set: NameSet,
    /// Client fields not passed unchanged: those, and the proxy's own.
    overridden: NameSet,
}

impl Http {
    fn new(conf: Arc<ProxyConf>, redirects: Vec<RedirectRule>) -> Http {
        let lines = conf.proxy_set_header.as_ref().map(|l| l.0.as_slice()).unwrap_or_default();
        let set: NameSet = lines.iter().map(|line| line.name.as_slice()).collect();
        let own = request::OWN_FIELDS.iter().map(|name| name.as_bytes());
        let overridden = own.chain(lines.iter().map(|line| line.name.as_slice())).collect();
        Http { conf, redirects, set, overridden }
    }
    /// Coding of a head that is not HTTP/1's.
    fn coding(&self) -> Coding {
        if self.conf.proxy_http_version == HttpVersion::V3 { Coding::Http3 } else { Coding::Http2 }
    }
}

impl UpstreamProtocol for Http {
    fn codec(&self) -> Option<Box<dyn SerialCodec>> {
        (!self.multiplexes()).then(|| Box::new(Http1::new()) as Box<dyn SerialCodec>)
    }
    fn multiplexes(&self) -> bool {
        matches!(self.conf.proxy_http_version, HttpVersion::V2 | HttpVersion::V3)
    }
    fn over_quic(&self) -> bool {
        self.conf.proxy_http_version == HttpVersion::V3
    }
    fn goes_both_ways(&self) -> bool {
        self.multiplexes()
    }
    fn write(
        &self,
        plan: &PassPlan,
        r: &mut Request,
        target: &UpstreamTarget<'_>,
        announce: Announce,
        out: &mut Vec<u8>,
    ) -> Result<bool, u16> {
        if self.multiplexes() {
            http2::write_block(self, plan, r, target, announce, out);
            return Ok(true);
        }
        Ok(request::write_request(self, plan, r, target, announce, out))
    }
    fn method(&self, r: &mut Request) -> Method {
        match &self.conf.proxy_method {
            // HEAD as GET goes before the directive, so that the response serves both (nginx: `u->method`).
            _ if CacheRequest::of(r).is_some_and(|asking| asking.as_get) => Method::Get,
            Some(method) if method.eval(r) == b"HEAD" => Method::Head,
            Some(_) => Method::Get,
            None => r.head.method,
        }
    }
    fn may_stream(&self, length: BodyLength) -> bool {
        // HTTP/1.0 cannot send a body of unknown length.
        length != BodyLength::Chunked || self.conf.proxy_http_version != HttpVersion::V10
    }
    fn says_server_and_date(&self) -> bool {
        // nginx's module of HTTP/2 adds its own if the server has none.
        !self.multiplexes()
    }
    fn relays(&self) -> Option<bool> {
        let conf = &self.conf;
        let own_method = conf.proxy_method.is_some();
        let rewrites =
            conf.proxy_cookie_domain.is_some() || conf.proxy_cookie_path.is_some() || conf.proxy_cookie_flags.is_some();
        (!self.multiplexes() && !own_method).then_some(!rewrites)
    }
    fn redirect(&self, r: &mut Request, url: &[u8]) -> Option<Vec<u8>> {
        redirect::rewrite_location(&self.redirects, r, url)
    }
    fn cookie(&self, r: &mut Request, value: &[u8]) -> Option<Vec<u8>> {
        let new = redirect::rewrite_cookie(&self.conf, r, value)?;
        r.field_value("proxy_cookie_domain, proxy_cookie_path", b"Set-Cookie", new)
    }
}
