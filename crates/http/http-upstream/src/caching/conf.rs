//! Cache directives: value types, and one table that is mounted for each protocol.

use super::paths::CachePath;
use super::shared_purges::SharedPurges;
use area::shared_store::StoreSlot;
use cache::freshness::Valid;
use cache::zone::Pace;
use cache::{CacheRoot, Limits, Zone};
use conf_schema::value::{Flag, parse_decimal, parse_msec, parse_offset, parse_sec, parse_size};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::HttpTemplate;
use http_engine::used_paths::UsedPaths;
use metrics::cache as row;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

conf_schema::word_set! {
    /// `proxy_cache_use_stale`; bits of failures as in `proxy_next_upstream`, whose `non_idempotent` means nothing here.
    pub struct UseStale {
        ERROR = 1 "error", TIMEOUT = 2 "timeout", INVALID_HEADER = 4 "invalid_header", NON_IDEMPOTENT = 8 "non_idempotent",
        HTTP_500 = 16 "http_500", HTTP_502 = 32 "http_502", HTTP_503 = 64 "http_503", HTTP_504 = 128 "http_504",
        HTTP_403 = 256 "http_403", HTTP_404 = 512 "http_404", HTTP_429 = 1024 "http_429", OFF = 2048 "off",
        UPDATING = 4096 "updating",
    }
}
conf_schema::word_set! {
    /// `proxy_cache_methods`; always includes GET and HEAD.
    pub struct Methods { GET = 1 "GET", HEAD = 2 "HEAD", POST = 4 "POST" }
}

/// `proxy_cache`: a zone, or a text that names it.
#[derive(Clone, Debug)]
pub enum CacheName {
    /// No cache.
    Off,
    /// Zone of this name, which the configuration must declare.
    Zone(String),
    /// Name with variables; an unknown one fails the request.
    Computed(HttpTemplate),
}

impl ValueKind for CacheName {
    const SYNTAX: &'static str = "zone | off";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let template = HttpTemplate::parse(cx, d)?;
        Ok(match template.as_literal() {
            Some(b"off") => CacheName::Off,
            Some(b"") => return Err(Problem::says("empty zone name").at(0)),
            Some(name) => CacheName::Zone(String::from_utf8_lossy(name).into_owned()),
            None => CacheName::Computed(template),
        })
    }
}

/// `proxy_store`: the file of a response.
#[derive(Clone, Debug)]
pub enum StoreTo {
    /// Responses are not stored.
    Off,
    /// The file of the request's path (`root` or `alias`).
    Mapped,
    /// The path, with variables.
    Path(HttpTemplate),
}

impl ValueKind for StoreTo {
    const SYNTAX: &'static str = "on | off | string";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match d.args.first().map(|w| w.bytes.as_slice()) {
            Some(b"off") => Ok(StoreTo::Off),
            Some(b"on") => Ok(StoreTo::Mapped),
            Some(b"") => Err(Problem::says("empty path").at(0)),
            _ => HttpTemplate::parse(cx, d).map(StoreTo::Path),
        }
    }
}

/// `proxy_store_access`: permission bits of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheAccess(pub u32);

impl ValueKind for CacheAccess {
    const SYNTAX: &'static str = "users:permissions ...";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut mode = 0o600;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let invalid = || Problem::says(format!("invalid value \"{text}\"")).at(index);
            let (who, what) = text.split_once(':').ok_or_else(invalid)?;
            let bits = match what {
                "rw" => 6,
                "r" => 4,
                _ => return Err(invalid()),
            };
            mode = match who {
                "user" => bits << 6,
                "group" => mode | bits << 3,
                "all" => mode | bits << 3 | bits,
                _ => return Err(invalid()),
            };
        }
        Ok(CacheAccess(mode))
    }
}

/// `proxy_cache_valid`: lifetimes by status, of all lines.
#[derive(Clone, Debug, Default)]
pub struct ValidTimes(pub Vec<Valid>);

impl ValueKind for ValidTimes {
    const SYNTAX: &'static str = "[code ...] time";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some((time, codes)) = d.args.split_last() else { return Err(Problem::invalid()) };
        let seconds = parse_sec(&time.bytes)
            .and_then(|n| i64::try_from(n).ok())
            .ok_or_else(|| Problem::says(format!("invalid time value \"{}\"", time.text())).at(codes.len()))?;
        if codes.is_empty() {
            return Ok(ValidTimes([200, 301, 302].map(|status| (status, seconds)).to_vec()));
        }
        let mut valid = Vec::with_capacity(codes.len());
        for (index, word) in codes.iter().enumerate() {
            let text = word.text();
            let status = match &*text {
                "any" => 0,
                code => parse_decimal::<u16>(code)
                    .filter(|n| (100..=599).contains(n))
                    .ok_or_else(|| Problem::says(format!("invalid status \"{text}\"")).at(index))?,
            };
            valid.push((status, seconds));
        }
        Ok(ValidTimes(valid))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// A line of `proxy_cache_path`: it adds a cache to those of its family in the configuration.
#[derive(Clone)]
pub struct PathLine;

/// Caches of a configuration by family of directives, in order.
#[derive(Default)]
pub struct DeclaredCaches(HashMap<String, Vec<Arc<CachePath>>>);

impl DeclaredCaches {
    /// Returns the caches of a family of directives, such as `proxy`.
    pub fn of(&self, family: &str) -> &[Arc<CachePath>] {
        self.0.get(family).map(Vec::as_slice).unwrap_or_default()
    }
    /// Returns the caches of all families.
    pub fn all(&self) -> impl Iterator<Item = &Arc<CachePath>> {
        self.0.values().flatten()
    }
}

/// Kind of these zones, which no other zone may use.
const KIND: &str = "cache";
/// Minimum size of a zone: two pages, as in nginx.
const ZONE_BYTES_MIN: u64 = 2 * 4096;

impl ValueKind for PathLine {
    const SYNTAX: &'static str = "path [levels=levels] [use_temp_path=on|off] keys_zone=name:size [inactive=time] [max_size=size] \
                                  [min_free=size] [manager_files=number] [manager_sleep=time] [manager_threshold=time] \
                                  [loader_files=number] [loader_sleep=time] [loader_threshold=time] [purger=on|off] \
                                  [purger_files=number] [purger_sleep=time] [purger_threshold=time] [sync]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let root = cx.full_name(if word.len() > 1 { word.trim_end_matches('/') } else { &word });
        let mut read = Parameters::default();
        for (index, word) in d.args.iter().enumerate().skip(1) {
            if word.bytes == b"sync" {
                read.is_shared = true;
                continue;
            }
            read.one(&word.text()).map_err(|p| p.at(index))?;
        }
        let name = d.name.text().into_owned();
        let Some((zone_name, bytes)) = read.zone else {
            return Err(Problem::says(format!("\"{name}\" must have \"keys_zone\" parameter")));
        };
        let family = name.trim_end_matches("_cache_path").to_string();
        UsedPaths::add(cx, d, &root, None)?;
        let declared = cx.get::<DeclaredCaches>();
        if declared.all().any(|known| known.zone.name == zone_name) {
            return Err(Problem::says(format!("duplicate zone \"{zone_name}\"")));
        }
        let place = CacheRoot { root, levels: read.levels };
        let id = [place.root.as_os_str().as_encoded_bytes(), b"\0", &place.levels].concat();
        let make = || Zone::new(&zone_name, place, bytes);
        let zone = crate::zones::zone_state(KIND, &zone_name, bytes, &id, make);
        let metrics = counted(&zone, &read.limits);
        let shared = read.is_shared.then(|| {
            let slot = StoreSlot::for_sync(cx, d, &zone.name, "purges reach this server only");
            SharedPurges::new(slot, &zone, &id)
        });
        let path = CachePath { zone, metrics, use_temp_path: read.use_temp_path, limits: read.limits, shared };
        let path = Arc::new(path);
        let shown = crate::zones::HttpZone {
            name: zone_name,
            key: HttpTemplate::default(),
            key_text: Vec::new(),
            state: path.clone(),
        };
        crate::zones::declare_zone(cx, d, KIND, shown)?;
        cx.get::<DeclaredCaches>().0.entry(family).or_default().push(path);
        Ok(PathLine)
    }
}

/// Some metrics read the index.
fn counted(zone: &Arc<Zone>, limits: &Limits) -> metrics::MetricZone<row::Of> {
    let (metrics, index, most) = (metrics::MetricZone::named(&[&zone.name]), Arc::downgrade(zone), limits.max_size);
    metrics.ask(move |values| {
        let Some(zone) = index.upgrade() else { return };
        values.set(row::ENTRIES, zone.count.load(Ordering::Relaxed) as u64);
        values.set(row::SIZE, zone.size.load(Ordering::Relaxed));
        values.set(row::SIZE_MAX, if most == u64::MAX { 0 } else { most });
        values.set(row::MEMORY, zone.memory());
        values.set(row::COLD, u64::from(zone.cold.load(Ordering::Relaxed)));
    });
    metrics
}

struct Parameters {
    is_shared: bool,
    zone: Option<(String, u64)>,
    levels: Vec<u8>,
    use_temp_path: bool,
    limits: Limits,
    purger: Pace,
}

const PACE: Pace = Pace { files: 100, threshold_ms: 200, sleep_ms: 50 };

impl Default for Parameters {
    fn default() -> Self {
        Parameters {
            is_shared: false,
            zone: None,
            levels: Vec::new(),
            use_temp_path: true,
            limits: Limits {
                inactive_sec: 600,
                max_size: u64::MAX,
                min_free: 0,
                manager: PACE,
                loader: PACE,
                purger: None,
            },
            purger: Pace { files: 10, threshold_ms: 50, sleep_ms: 50 },
        }
    }
}

impl Parameters {
    fn one(&mut self, text: &str) -> Result<(), Problem> {
        let invalid = || Problem::says(format!("invalid parameter \"{text}\""));
        let (name, value) = text.split_once('=').ok_or_else(invalid)?;
        let wrong = || Problem::says(format!("invalid {name} value \"{text}\""));
        let on_off = || match value {
            "on" => Ok(true),
            "off" => Ok(false),
            _ => Err(Problem::says(format!("invalid {name} value \"{text}\", it must be \"on\" or \"off\""))),
        };
        let number = || parse_decimal::<u64>(value).ok_or_else(wrong);
        let msec = || parse_msec(value.as_bytes()).ok_or_else(wrong);
        match name {
            "levels" => {
                self.levels = levels(value).ok_or_else(|| Problem::says(format!("invalid \"levels\" \"{text}\"")))?
            }
            "use_temp_path" => self.use_temp_path = on_off()?,
            "keys_zone" => {
                let wrong = || Problem::says(format!("invalid keys zone size \"{text}\""));
                let (name, size) = value.split_once(':').ok_or_else(wrong)?;
                let size = parse_size(size.as_bytes()).ok_or_else(wrong)?;
                if size < ZONE_BYTES_MIN {
                    return Err(Problem::says(format!("keys zone \"{text}\" is too small")));
                }
                if !name.is_empty() {
                    self.zone = Some((name.into(), size));
                }
            }
            "inactive" => {
                let seconds = parse_sec(value.as_bytes()).and_then(|n| i64::try_from(n).ok());
                self.limits.inactive_sec = seconds.ok_or_else(wrong)?;
            }
            "max_size" => self.limits.max_size = parse_offset(value.as_bytes()).ok_or_else(wrong)?,
            "min_free" => self.limits.min_free = parse_offset(value.as_bytes()).ok_or_else(wrong)?,
            "manager_files" => self.limits.manager.files = number()?,
            "manager_sleep" => self.limits.manager.sleep_ms = msec()?,
            "manager_threshold" => self.limits.manager.threshold_ms = msec()?,
            "loader_files" => self.limits.loader.files = number()?,
            "loader_sleep" => self.limits.loader.sleep_ms = msec()?,
            "loader_threshold" => self.limits.loader.threshold_ms = msec()?,
            "purger" => self.limits.purger = on_off()?.then_some(self.purger),
            "purger_files" => self.purger.files = number()?,
            "purger_sleep" => self.purger.sleep_ms = msec()?,
            "purger_threshold" => self.purger.threshold_ms = msec()?,
            _ => return Err(invalid()),
        }
        if let Some(purger) = &mut self.limits.purger {
            *purger = self.purger;
        }
        Ok(())
    }
}

/// `1:2:2`: up to three levels, of one or two digits each.
fn levels(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() {
        return Some(Vec::new());
    }
    let levels: Vec<u8> =
        text.split(':').map(|n| parse_decimal(n).filter(|n| matches!(n, 1 | 2))).collect::<Option<_>>()?;
    (levels.len() <= 3).then_some(levels)
}

/// `proxy_cache_purge` and its siblings: conditions, or a zone and a key. [`super::purge::PurgeForm`] tells them apart.
#[derive(Clone, Debug, Default)]
pub struct PurgeWords(pub http_engine::core_table::Conditions);

impl ValueKind for PurgeWords {
    const SYNTAX: &'static str = "string ... | zone key | off";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        ValueKind::parse(cx, d).map(PurgeWords)
    }
    fn append(&mut self, later: Self) {
        self.0.append(later.0);
    }
}

/// `proxy_cache_tags`, `proxy_cache_purge_tags` and their siblings: texts with tags. `off` alone is none.
#[derive(Clone, Debug, Default)]
pub struct TagTexts(pub Vec<HttpTemplate>);

impl ValueKind for TagTexts {
    const SYNTAX: &'static str = "string ... | off";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let http_engine::core_table::Conditions(texts) = ValueKind::parse(cx, d)?;
        let is_off = |text: &HttpTemplate| text.as_literal() == Some(b"off");
        match texts.as_slice() {
            [text] if is_off(text) => Ok(TagTexts::default()),
            texts => match texts.iter().position(is_off) {
                Some(index) => Err(Problem::says("\"off\" is no tag beside others").at(index)),
                None => Ok(TagTexts(texts.to_vec())),
            },
        }
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// Independent of the directives' prefix.
pub struct CacheSettings {
    /// Prefix of the directives, such as `proxy`.
    pub family: &'static str,
    /// `proxy_cache`.
    pub cache: CacheName,
    /// `proxy_cache_key`; `None`: the protocol's default.
    pub key: Option<HttpTemplate>,
    /// `proxy_cache_valid`.
    pub valid: Vec<Valid>,
    /// `proxy_cache_bypass`.
    pub bypass: Vec<HttpTemplate>,
    /// `proxy_no_cache`.
    pub no_cache: Vec<HttpTemplate>,
    /// `proxy_cache_purge`: see [`super::purge::PurgeForm`].
    pub purge: Vec<HttpTemplate>,
    /// `proxy_cache_tags`.
    pub tags: Vec<HttpTemplate>,
    /// `proxy_cache_purge_tags`.
    pub purge_tags: Vec<HttpTemplate>,
    /// `proxy_cache_lock`.
    pub lock: Flag,
    /// `proxy_cache_lock_timeout` in milliseconds.
    pub lock_timeout_ms: u64,
    /// `proxy_cache_lock_age` in milliseconds.
    pub lock_age_ms: u64,
    /// `proxy_cache_use_stale`.
    pub use_stale: UseStale,
    /// `proxy_cache_background_update`.
    pub background_update: Flag,
    /// `proxy_cache_revalidate`.
    pub revalidate: Flag,
    /// `proxy_cache_min_uses`.
    pub min_uses: u64,
    /// `proxy_cache_methods` beside GET and HEAD.
    pub methods: Option<Methods>,
    /// `proxy_cache_convert_head`.
    pub convert_head: Flag,
    /// `proxy_cache_max_range_offset` in bytes.
    pub max_range_offset: Option<u64>,
    /// `proxy_cache_rfc9111`.
    pub rfc9111: Flag,
    /// `proxy_store`.
    pub store: StoreTo,
    /// `proxy_store_access`.
    pub store_access: u32,
}

/// Declares the table of one family of directives; a protocol's own are in braces at the end.
#[macro_export]
macro_rules! cache_directives {
    ($(#[doc = $about:literal])* pub struct $Plan:ident from $Input:ident, $family:literal;
     $path:ident $cache:ident $key:ident $valid:ident $bypass:ident $no_cache:ident $purge:ident $tags:ident
     $purge_tags:ident $lock:ident $lock_timeout:ident $lock_age:ident $use_stale:ident $background:ident $revalidate:ident $min_uses:ident
     $methods:ident $max_range:ident $rfc9111:ident $store:ident $store_access:ident
     { $(convert_head $convert:ident)? }
    ) => {
        conf_schema::directives! {
            $(#[doc = $about])*
            pub struct $Plan from $Input {
                /// Defines a cache: directory, size of its index, maximum size and lifetime of unused entries.
                /// Differs: a response in memory is compared with its file once a second. After its file was deleted
                /// (`rm`), it may be served for up to a second; nginx opens the file for each request.
                $path: $crate::caching::conf::PathLine,
                /// Cache for responses, by the name of its zone. By default, it behaves as in nginx and passes 99 of
                /// the 160 required tests of cache-tests; with `proxy_cache_rfc9111 on;` (or the directive of the
                /// protocol), it follows RFC 9111 and passes 152. Differs: a stored response that came without a length
                /// is sent with one.
                $cache: $crate::caching::conf::CacheName = "off",
                /// Cache key. Requests with equal keys get the same response.
                $key: http_engine::HttpTemplate,
                /// Freshness of responses by status, unless they state it themselves.
                $valid: $crate::caching::conf::ValidTimes,
                /// Conditions under which a response is not taken from the cache: a string that is neither empty nor
                /// "0".
                $bypass: http_engine::core_table::Conditions,
                /// Conditions under which a response is not stored: a string that is neither empty nor "0".
                $no_cache: http_engine::core_table::Conditions,
                /// Conditions under which a request removes the entry of its key: a string that is neither empty nor
                /// "0". A key that ends with `*` matches all keys with this prefix. With the name of a zone and a key, as
                /// in the module ngx_cache_purge: requests of the location remove the entry of this key, and get 200, or
                /// 404 without an entry. Differs: that module's forms `on` and `method from address` are errors; a
                /// condition such as `$purge` of a `map` of `$request_method` says the same.
                $purge: $crate::caching::conf::PurgeWords,
                /// Tags of stored responses, by which `proxy_cache_purge_tags` (or the directive of the protocol), the API and
                /// other servers purge them: texts with variables, usually `$upstream_http_cache_tag`,
                /// `$upstream_http_surrogate_key` or `$upstream_http_xkey`. Commas, spaces and tabs separate tags; upper and lower
                /// case differ. A response may have 1000 tags of up to 1024 bytes; one with more, or with a longer one, is
                /// stored with a warning, and every purge of a tag purges it. A tag takes 8 bytes in the entry's file and in
                /// memory. A 304 does not change the tags, except with `proxy_cache_rfc9111 on` if it has tags of its own.
                $tags: $crate::caching::conf::TagTexts,
                /// Tags that a request purges in place of its key: if `proxy_cache_purge` (or the directive of the protocol)
                /// makes it a purge, and one of these texts has a tag. All entries of the zone with one of the tags are
                /// purged, whatever their key; status 204. More than 1000 tags or one of more than 1024 bytes: 400. No effect
                /// without `proxy_cache_purge`.
                $purge_tags: $crate::caching::conf::TagTexts,
                /// Lets only one request at a time fetch a missing response.
                $lock: conf_schema::value::Flag = "off",
                /// Maximum time that other requests wait for that response. They are then passed to the server, and
                /// their responses are not stored.
                $lock_timeout: conf_schema::value::Msec = "5s",
                /// Time after which the next waiting request is passed to the server.
                $lock_age: conf_schema::value::Msec = "5s",
                /// Conditions under which a stale response is served.
                $use_stale: $crate::caching::conf::UseStale = "off",
                /// Updates a stale response in the background, while it is served.
                $background: conf_schema::value::Flag = "off",
                /// Revalidates stale responses with conditional requests.
                $revalidate: conf_schema::value::Flag = "off",
                /// Number of requests after which a response is stored.
                $min_uses: conf_schema::value::Number = "1",
                /// Methods whose responses are cached.
                $methods: $crate::caching::conf::Methods,
                /// Offset beyond which range requests are passed to the server and their responses are not stored.
                $max_range: conf_schema::value::Offset,
                /// Follows RFC 9111 where nginx does not. Requests: `Cache-Control` with `no-cache`, `no-store`,
                /// `max-age`, `min-fresh`, `max-stale`, `only-if-cached`. Freshness: the `Age` of the received
                /// response, heuristic freshness (a tenth of the time since `Last-Modified`, one day at most),
                /// `must-revalidate`, `proxy-revalidate` and `s-maxage`, `must-understand`, `CDN-Cache-Control` (RFC
                /// 9213). Also: invalidation by unsafe methods (`Location` and `Content-Location` on the same host and
                /// in the same location), requests with credentials, and updated header fields in 304 responses.
                /// Responses that require validation are stored only with `proxy_cache_revalidate on`, partial
                /// responses (206) only with `slice`.
                $rfc9111: conf_schema::value::Flag = "off",
                /// Saves responses as files, without expiry.
                $store: $crate::caching::conf::StoreTo = "off",
                /// Permissions of these files.
                $store_access: $crate::caching::conf::CacheAccess = "user:rw",
                $(
                /// Sends HEAD requests as GET, so that the response serves both.
                $convert: conf_schema::value::Flag = "on",
                )?
            }
        }

        impl $Plan {
            /// Returns the settings apart from the prefix of their directives.
            pub fn settings(&self) -> $crate::caching::conf::CacheSettings {
                let list = |c: &Option<http_engine::core_table::Conditions>| c.clone().unwrap_or_default().0;
                #[allow(unused_mut, unused_assignments)]
                let mut convert_head = true;
                $( convert_head = self.$convert; )?
                $crate::caching::conf::CacheSettings {
                    family: $family,
                    cache: self.$cache.clone(),
                    key: self.$key.clone(),
                    valid: self.$valid.clone().unwrap_or_default().0,
                    bypass: list(&self.$bypass),
                    no_cache: list(&self.$no_cache),
                    purge: self.$purge.clone().unwrap_or_default().0.0,
                    tags: self.$tags.clone().unwrap_or_default().0,
                    purge_tags: self.$purge_tags.clone().unwrap_or_default().0,
                    lock: self.$lock,
                    lock_timeout_ms: self.$lock_timeout.0,
                    lock_age_ms: self.$lock_age.0,
                    use_stale: self.$use_stale,
                    background_update: self.$background,
                    revalidate: self.$revalidate,
                    min_uses: self.$min_uses.0,
                    methods: self.$methods,
                    convert_head,
                    max_range_offset: self.$max_range.map(|n| n.0),
                    rfc9111: self.$rfc9111,
                    store: self.$store.clone(),
                    store_access: self.$store_access.0,
                }
            }
        }

        impl $Input {
            /// A block that sets one of `cache` and `store` does not inherit the other.
            pub fn choose(inner: &mut Self) {
                use $crate::caching::conf::{CacheName, StoreTo};
                let caches = inner.$cache.as_ref().filter(|given| !matches!(given.value, CacheName::Off)).map(|g| g.at);
                let stores = inner.$store.as_ref().filter(|given| !matches!(given.value, StoreTo::Off)).map(|g| g.at);
                if let Some(at) = caches {
                    inner.$store.get_or_insert(conf_schema::GivenDirective::new(StoreTo::Off, at));
                }
                if let Some(at) = stores {
                    inner.$cache.get_or_insert(conf_schema::GivenDirective::new(CacheName::Off, at));
                }
            }
        }
    };
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    fn words(problem: Problem) -> String {
        format!("{:?}", problem.words)
    }

    #[test]
    fn parameters_of_a_path() {
        let read = |text: &str| {
            let mut all = Parameters::default();
            text.split(' ').try_for_each(|word| all.one(word)).map(|()| all).map_err(words)
        };
        let all = read("keys_zone=a:1m levels=1:2 inactive=1m max_size=1g min_free=1k manager_files=2 manager_sleep=5")
            .expect("fine");
        assert_eq!((all.zone, all.levels), (Some(("a".into(), 1 << 20)), vec![1, 2]));
        assert_eq!((all.limits.inactive_sec, all.limits.max_size, all.limits.min_free), (60, 1 << 30, 1024));
        assert_eq!((all.limits.manager.files, all.limits.manager.sleep_ms), (2, 5000));
        let purging = read("purger=on purger_files=7").expect("fine").limits.purger.expect("on");
        assert_eq!((purging.files, purging.sleep_ms), (7, 50));
        for (text, says) in [
            ("levels=3", "invalid \\\"levels\\\" \\\"levels=3\\\""),
            ("levels=1:2:2:1", "invalid \\\"levels\\\""),
            ("keys_zone=a", "invalid keys zone size \\\"keys_zone=a\\\""),
            ("keys_zone=a:1k", "is too small"),
            ("inactive=x", "invalid inactive value \\\"inactive=x\\\""),
            ("use_temp_path=1", "it must be \\\"on\\\" or \\\"off\\\""),
            ("other=1", "invalid parameter \\\"other=1\\\""),
        ] {
            let said = read(text).err().expect(text);
            assert!(said.contains(says), "{text}: {said}");
        }
    }

    #[test]
    fn times_and_permissions() {
        let valid = |text: &str| {
            ValidTimes::parse(&mut Cx::default(), &synthetic_directive("proxy_cache_valid", text)).map(|v| v.0)
        };
        assert_eq!(valid("5m").ok(), Some(vec![(200, 300), (301, 300), (302, 300)]));
        assert_eq!(valid("404 any 1s").ok(), Some(vec![(404, 1), (0, 1)]));
        assert!(words(valid("99 1s").expect_err("no status")).contains("invalid status \\\"99\\\""));
        assert!(words(valid("200 x").expect_err("no time")).contains("invalid time value \\\"x\\\""));
        let access = |text: &str| {
            CacheAccess::parse(&mut Cx::default(), &synthetic_directive("proxy_store_access", text)).map(|a| a.0)
        };
        assert_eq!(access("user:rw group:rw all:r").ok(), Some(0o664));
        assert_eq!(access("group:r").ok(), Some(0o640));
        assert!(access("me:rw").is_err() && access("user:x").is_err());
    }
}
