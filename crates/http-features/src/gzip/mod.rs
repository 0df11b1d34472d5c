//! gzip (nginx: `ngx_http_gzip_filter_module`, and the conditions of the core: `ngx_http_gzip_ok`).

use crate::shared::compress::{self, Coding};
use crate::shared::media_types::MediaTypes;
use conf_schema::value::{Between, Buffers, Flag, Size};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::regex::{MatchFailed, Pattern};
use http_engine::{BlockPlan, Body, Feature, Filter, FilterOrder, Request};
use observe::Level;
use std::any::Any;
use std::sync::Arc;
use wire_h1::{Known, Version};

conf_schema::words! {
    /// `gzip_http_version`
    pub enum MinVersion { V10 = "1.0", V11 = "1.1" }
}
conf_schema::word_set! {
    /// `gzip_proxied`
    pub struct Proxied {
        OFF = 1 "off", EXPIRED = 2 "expired", NO_CACHE = 4 "no-cache", NO_STORE = 8 "no-store", PRIVATE = 16 "private",
        NO_LAST_MODIFIED = 32 "no_last_modified", NO_ETAG = 64 "no_etag", AUTH = 128 "auth", ANY = 256 "any",
    }
}

directives! {
    /// What the gzip module is told in a block.
    pub struct GzipConf from GzipInput {
        /// Whether responses are compressed.
        gzip: Flag = "off",
        /// How hard the compressor tries.
        gzip_comp_level: Between<1, 9> = "1",
        /// Shorter responses are left alone.
        gzip_min_length: Size = "20",
        /// Media types that are compressed besides text/html.
        gzip_types: GzipTypes = "text/html",
        /// nginx's memory limits of the compressor: the values are checked and have no effect.
        gzip_window: Size = "32k",
        /// As `gzip_window`.
        gzip_hash: Size = "64k",
        /// Whether output is flushed as soon as there is some.
        gzip_no_buffer: Flag = "off",
        /// How much input is gathered before compression begins; ours begins at once.
        postpone_gzipping: Size = "0",
        /// Number and size of buffers; the compressor grows its own, the value is checked and has no effect.
        gzip_buffers: Buffers = "32 4k",
        /// The least version of HTTP that a client must speak.
        gzip_http_version: MinVersion = "1.1",
        /// What is compressed for clients behind a proxy (they send Via).
        gzip_proxied: Proxied = "off",
        /// Clients whose User-Agent matches get no compressed responses.
        gzip_disable: Disabled,
        /// Whether `Vary: Accept-Encoding` is added where compression is possible.
        gzip_vary: Flag = "off",
    }
}

/// `gzip_types`
#[derive(Clone)]
pub struct GzipTypes(MediaTypes);

impl Value for GzipTypes {
    const SYNTAX: &'static str = "media-type ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        MediaTypes::parse(cx, d).map(GzipTypes)
    }
}

/// `gzip_disable regex ... | msie6`
#[derive(Clone)]
pub struct Disabled(Arc<Vec<Agent>>);

enum Agent {
    Msie6,
    Matches(Pattern),
}

impl Value for Disabled {
    const SYNTAX: &'static str = "regex ...";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut all = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            all.push(match word.bytes.as_slice() {
                b"msie6" => Agent::Msie6,
                b"degradation" => return Err(Problem::says("gzip_disable degradation is not supported").at(index)),
                text => Agent::Matches(Pattern::new(cx, text, true).map_err(|p| p.at(index))?),
            });
        }
        Ok(Disabled(Arc::new(all)))
    }
}

/// The feature.
pub struct Gzip;

impl Feature for Gzip {
    fn table(&self) -> Table {
        GzipConf::table("gzip", Area::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<GzipConf>() else { return Ok(()) };
        if conf.gzip {
            block.location.filters.push((FilterOrder::Compress, Arc::new(Compress(conf))));
        }
        Ok(())
    }
}

struct Compress(Arc<GzipConf>);

impl Filter for Compress {
    fn name(&self) -> &'static str {
        "gzip"
    }
    fn apply(&self, r: &mut Request, body: Body) -> Result<Body, u16> {
        let conf = &self.0;
        if !compress::eligible(r, conf.gzip_min_length.0, &conf.gzip_types.0) {
            return Ok(body);
        }
        r.out.vary_encoding = conf.gzip_vary;
        if !self.wanted(r) {
            return Ok(body);
        }
        compress::apply(r, body, Coding::Gzip, conf.gzip_comp_level.0 as u32, 15)
    }
}

impl Compress {
    /// nginx: `ngx_http_gzip_ok`.
    fn wanted(&self, r: &Request) -> bool {
        let conf = &self.0;
        let accepts = r.header(Known::AcceptEncoding).is_some_and(|a| compress::quality(a, "gzip") > 0);
        if !accepts {
            return false;
        }
        if let (Some(Disabled(agents)), Some(agent)) = (&conf.gzip_disable, r.header(Known::UserAgent)) {
            let matched = agents.iter().any(|rule| match rule {
                Agent::Msie6 => http_engine::special::is_msie6(r),
                Agent::Matches(pattern) => pattern.is_match(agent).unwrap_or_else(|MatchFailed(words)| {
                    r.log(Level::Error, format_args!("{words}"));
                    true
                }),
            });
            if matched {
                return false;
            }
        }
        if conf.gzip_http_version == MinVersion::V11 && r.version < Version::Http11 {
            return false;
        }
        r.header(Known::Via).is_none() || proxied(r, conf.gzip_proxied)
    }
}

/// Whether a response may be compressed for a proxy.
fn proxied(r: &Request, allowed: Proxied) -> bool {
    if allowed.has(Proxied::OFF) {
        return false;
    }
    if allowed.has(Proxied::ANY) || (allowed.has(Proxied::AUTH) && r.header(Known::Authorization).is_some()) {
        return true;
    }
    let field = |name: &[u8]| r.out.field(name);
    if let Some(expires) = field(b"expires") {
        if !allowed.has(Proxied::EXPIRED) {
            return false;
        }
        let date = match r.out.date.bytes() {
            b"" => Some(base::clock::unix_seconds()),
            date => observe::clock::parse_http_time(date),
        };
        return match (observe::clock::parse_http_time(expires), date) {
            (None, _) => true,
            (Some(expires), Some(date)) => expires < date,
            (Some(_), None) => false,
        };
    }
    if let Some(control) = field(b"cache-control") {
        let has = |word: &[u8]| {
            control.split(|c| matches!(c, b',' | b' ' | b'=')).any(|w| w.trim_ascii().eq_ignore_ascii_case(word))
        };
        return (allowed.has(Proxied::NO_CACHE) && has(b"no-cache"))
            || (allowed.has(Proxied::NO_STORE) && has(b"no-store"))
            || (allowed.has(Proxied::PRIVATE) && has(b"private"));
    }
    (allowed.has(Proxied::NO_LAST_MODIFIED) && r.out.last_modified.is_none())
        || (allowed.has(Proxied::NO_ETAG) && r.out.etag.bytes().is_empty())
}
