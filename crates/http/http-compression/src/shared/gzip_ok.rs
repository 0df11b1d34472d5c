//! Conditions under which a client gets compressed responses (nginx: `ngx_http_gzip_ok`), shared by several modules.

use super::compress;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::Request;
use http_engine::regex::{HttpPattern, MatchFailed};
use http_types::{Known, Version};
use observe::Severity;
use std::sync::Arc;

conf_schema::words! {
    pub enum MinVersion { V10 = "1.0", V11 = "1.1" }
}
conf_schema::word_set! {
    pub struct Proxied {
        OFF = 1 "off", EXPIRED = 2 "expired", NO_CACHE = 4 "no-cache", NO_STORE = 8 "no-store", PRIVATE = 16 "private",
        NO_LAST_MODIFIED = 32 "no_last_modified", NO_ETAG = 64 "no_etag", AUTH = 128 "auth", ANY = 256 "any",
    }
}

#[derive(Clone)]
pub struct GzipDisabled(Vec<Arc<Agent>>);

pub enum Agent {
    Msie6,
    Matches(HttpPattern),
}

impl ValueKind for GzipDisabled {
    const SYNTAX: &'static str = "regex ...";
    const REPEATS: bool = true;
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut all = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            all.push(Arc::new(match word.bytes.as_slice() {
                b"msie6" => Agent::Msie6,
                b"degradation" => return Err(Problem::says("gzip_disable degradation is not supported").at(index)),
                text => Agent::Matches(HttpPattern::new(cx, text, true).map_err(|p| p.at(index))?),
            }));
        }
        Ok(GzipDisabled(all))
    }
}

/// In `Location::extensions` unless default.
pub struct GzipOk {
    pub disable: Option<GzipDisabled>,
    pub version: MinVersion,
    pub proxied: Proxied,
    pub vary: bool,
}

static DEFAULT: GzipOk = GzipOk { disable: None, version: MinVersion::V11, proxied: Proxied::OFF, vary: false };

impl GzipOk {
    pub fn of(r: &Request) -> &GzipOk {
        r.loc().ext::<GzipOk>().unwrap_or(&DEFAULT)
    }
    pub fn is_default(&self) -> bool {
        self.disable.is_none() && self.version == DEFAULT.version && self.proxied == DEFAULT.proxied && !self.vary
    }
    /// Tells whether the client accepts compressed responses and may get them.
    pub fn allows(&self, r: &Request) -> bool {
        // Subrequests are compressed with the main response.
        if r.is_subrequest() {
            return false;
        }
        let accepts = r.header(Known::AcceptEncoding).is_some_and(|a| compress::coding_quality(a, "gzip") > 0);
        if !accepts {
            return false;
        }
        if let (Some(GzipDisabled(agents)), Some(agent)) = (&self.disable, r.header(Known::UserAgent)) {
            let matched = agents.iter().any(|rule| match &**rule {
                Agent::Msie6 => http_engine::browsers::is_msie6(r),
                Agent::Matches(pattern) => pattern.is_match(agent).unwrap_or_else(|MatchFailed(words)| {
                    r.log(Severity::Error, format_args!("{words}"));
                    true
                }),
            });
            if matched {
                return false;
            }
        }
        if self.version == MinVersion::V11 && r.target.version() < Version::Http11 {
            return false;
        }
        r.header(Known::Via).is_none() || proxied(r, self.proxied)
    }
}

/// Tells whether a response to a proxy may be compressed.
fn proxied(r: &Request, allowed: Proxied) -> bool {
    if allowed.has(Proxied::OFF) {
        return false;
    }
    if allowed.has(Proxied::ANY) || (allowed.has(Proxied::AUTH) && r.header(Known::Authorization).is_some()) {
        return true;
    }
    if let Some(expires) = r.out.field(b"expires").filter(|_| !r.out.has_added_expires()) {
        let date = match r.out.date() {
            b"" => Some(base::clock::unix_seconds()),
            date => observe::clock::parse_http_time(date),
        };
        let expires = observe::clock::parse_http_time(expires);
        return allowed.has(Proxied::EXPIRED) && expires.zip(date).is_some_and(|(expires, date)| expires < date);
    }
    let lines = r.out.fields().iter().filter(|field| field.name.bytes().eq_ignore_ascii_case(b"cache-control"));
    let mut controls = lines.map(|field| field.value.bytes()).peekable();
    if controls.peek().is_some() {
        return controls.any(|control| {
            let has = |word: &[u8]| {
                control.split(|c| matches!(c, b',' | b' ' | b'=')).any(|w| w.trim_ascii().eq_ignore_ascii_case(word))
            };
            (allowed.has(Proxied::NO_CACHE) && has(b"no-cache"))
                || (allowed.has(Proxied::NO_STORE) && has(b"no-store"))
                || (allowed.has(Proxied::PRIVATE) && has(b"private"))
        });
    }
    // Responses without caching fields are compressed; a file's own modification time is not such a field.
    let dated = allowed.has(Proxied::NO_LAST_MODIFIED) && !r.out.last_modified_text().is_empty();
    let tagged = allowed.has(Proxied::NO_ETAG) && !r.out.etag().is_empty();
    !dated && !tagged
}
