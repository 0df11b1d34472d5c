//! vhost_traffic_status (third-party module `vts`): traffic of servers, filters and upstream servers as JSON,
//! Prometheus metrics or a page. `counters.rs` counts, `formats.rs` writes.

mod counters;
mod formats;

use crate::shared::page_thread;
use area::zones;
use conf_schema::value::{Flag, Own, Text, ValueList, parse_size};
use conf_schema::{ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives, words};
use counters::{CACHE, Counters, FilterLimit, StatusKey, StatusSample};
use http_engine::core_table::Marker;
use http_engine::{BlockPlan, Feature, Flow, Handler, HttpTemplate, Logger, Request};
use http_types::Method;
use http_upstream::groups::HttpGroups;
use http_upstream::upstream_state::UpstreamState;
use std::any::Any;
use std::sync::Arc;

words! {
    pub enum Format {
        Json = "json",
        Html = "html",
        Jsonp = "jsonp",
        Prometheus = "prometheus",
    }
}

directives! {
    pub struct TrafficConf from TrafficInput {
        /// Counts requests; `vhost_traffic_status_zone` enables it.
        vhost_traffic_status: Flag,
        /// Defines the zone for the counters, with its size.
        vhost_traffic_status_zone: ZoneLine,
        /// Responds with the counters. `/format/json`, `/format/jsonp`, `/format/html` or `/format/prometheus` after
        /// the location's path selects a format.
        /// Differs: `/control` does not exist; requests cannot delete counters.
        vhost_traffic_status_display: Own<Marker>,
        /// Format of responses to requests that select none.
        vhost_traffic_status_display_format: Format = "json",
        /// Name of the JSONP function.
        vhost_traffic_status_display_jsonp: Text = "ngx_http_vhost_traffic_status_jsonp_callback",
        /// Name of the sum over all servers.
        vhost_traffic_status_display_sum_key: Text = "*",
        /// Enables the filters.
        vhost_traffic_status_filter: Flag = "on",
        /// Counts a server's requests by their host.
        vhost_traffic_status_filter_by_host: Flag = "off",
        /// Counts requests by a string, within a group or among the servers.
        vhost_traffic_status_filter_by_set_key: ValueList<FilterLine>,
        /// Counts a request once if several filters yield the same string.
        vhost_traffic_status_filter_check_duplicate: Flag = "on",
        /// Maximum number of filter entries; the least recently used one is replaced.
        vhost_traffic_status_filter_max_node: MaxNode,
        /// Bounds of the histogram of response times, in seconds.
        vhost_traffic_status_histogram_buckets: Buckets,
        /// Counts requests to upstream servers.
        vhost_traffic_status_stats_by_upstream: Flag = "on",
        /// Excludes the requests of a location from the counters.
        vhost_traffic_status_bypass_stats: Flag = "off",
        /// Exempts a location from the limits of the module.
        /// No effect: the limits of the module are not supported.
        vhost_traffic_status_bypass_limit: Flag = "off",
        /// Method for averages.
        /// Differs: averages cover all requests since the start; the value is checked and has no effect.
        vhost_traffic_status_average_method: Average,
        /// File that preserves the counters over a restart.
        /// No effect: counters survive reloads; a restart resets them, which Prometheus handles. -t warns.
        vhost_traffic_status_dump: Dump,
        /// Enforces the limits of the module.
        /// No effect: the limits of the module are not supported.
        vhost_traffic_status_limit: Flag = "on",
        /// Rejects requests of a server above a total.
        /// Refused: a total since the start is not a rate; use `limit_req` or `limit_conn`.
        vhost_traffic_status_limit_traffic: RefusedDirective,
        /// Rejects requests above a total per string.
        /// Refused: as `vhost_traffic_status_limit_traffic`.
        vhost_traffic_status_limit_traffic_by_set_key: RefusedDirective,
        /// Applies a limit of the module once for the same key.
        /// No effect: the limits of the module are not supported.
        vhost_traffic_status_limit_check_duplicate: Flag = "on",
        /// Variable with a counter's value.
        /// Refused: read the counters with `metrics` or the display.
        vhost_traffic_status_set_by_filter: RefusedDirective,
    }
}

const KIND: &str = "vhost_traffic_status";

#[derive(Clone)]
pub struct ZoneLine {
    name: String,
    counters: Arc<Counters>,
}

impl ValueKind for ZoneLine {
    const SYNTAX: &'static str = "[shared:name:size]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map_or_else(|| "shared:vhost_traffic_status:1m".into(), |w| w.text().into_owned());
        let parts = word.strip_prefix("shared:").and_then(|rest| rest.split_once(':'));
        let read = parts.and_then(|(name, size)| Some((name.to_string(), parse_size(size.as_bytes())?)));
        match read.filter(|(name, bytes)| !name.is_empty() && *bytes >= zones::BYTES_MIN) {
            Some((name, bytes)) => {
                let counters = zones::zone_state(KIND, &name, bytes, b"", || Counters::new(bytes));
                Ok(ZoneLine { name, counters })
            }
            None => Err(Problem::says(format!("invalid shared size \"{word}\""))
                .at(0)
                .hint("write shared:NAME:SIZE, with a size of at least 32k")),
        }
    }
}

#[derive(Clone)]
pub struct FilterLine {
    key: HttpTemplate,
    group: Option<HttpTemplate>,
    /// In the http block: counts in addition to servers' and locations' filters.
    is_global: bool,
}

impl ValueKind for FilterLine {
    const SYNTAX: &'static str = "key [group]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let is_global = cx.context == Contexts::http;
        let mut template = |index: usize| -> Result<Option<HttpTemplate>, Problem> {
            let Some(word) = d.args.get(index) else { return Ok(None) };
            HttpTemplate::compile(cx, d, &word.bytes).map(Some).map_err(|p| p.at(index))
        };
        Ok(FilterLine { key: template(0)?.unwrap_or_default(), group: template(1)?, is_global })
    }
}

#[derive(Clone)]
pub struct MaxNode(FilterLimit);

impl ValueKind for MaxNode {
    const SYNTAX: &'static str = "number [group ...]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let text = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let nodes_max = text.parse().map_err(|_| Problem::says(format!("invalid number \"{text}\"")).at(0))?;
        let groups = d.args.iter().skip(1).map(|w| w.text().into_owned()).collect();
        Ok(MaxNode(FilterLimit { nodes_max, groups }))
    }
}

/// `vhost_traffic_status_histogram_buckets second ...`, in milliseconds.
#[derive(Clone)]
pub struct Buckets(Vec<u64>);

/// Bounds of a histogram at most.
const BUCKETS_MAX: usize = 32;

impl ValueKind for Buckets {
    const SYNTAX: &'static str = "second ...";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        if d.args.len() > BUCKETS_MAX {
            return Err(Problem::says(format!("the number of the buckets exceeds {BUCKETS_MAX}")).at(BUCKETS_MAX));
        }
        let mut bounds = Vec::new();
        for (index, word) in d.args.iter().enumerate() {
            let seconds = word.text().parse::<f64>().ok().filter(|seconds| (0.001..=86_400.0).contains(seconds));
            let wrong = || Problem::says(format!("invalid parameter \"{}\"", word.text())).at(index);
            bounds.push((seconds.ok_or_else(wrong)? * 1000.0).round() as u64);
        }
        if !bounds.is_sorted() {
            return Err(Problem::says("the buckets must be in ascending order").at(0));
        }
        Ok(Buckets(bounds))
    }
}

#[derive(Clone)]
pub struct Average;

impl ValueKind for Average {
    const SYNTAX: &'static str = "AMM | WMA [period]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        match d.args.first().map(|w| w.bytes.as_slice()) {
            Some(b"AMM" | b"WMA") => Ok(Average),
            _ => Err(Problem::invalid().at(0)),
        }
    }
}

#[derive(Clone)]
pub struct Dump;

impl ValueKind for Dump {
    const SYNTAX: &'static str = "path [period]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        cx.warn(d, "\"vhost_traffic_status_dump\" is ignored: counters survive reloads, but not restarts");
        Ok(Dump)
    }
}

/// A directive whose absence would mislead the operator.
#[derive(Clone, Copy)]
pub struct RefusedDirective;

impl ValueKind for RefusedDirective {
    const SYNTAX: &'static str = "value";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let hint = match d.name.bytes.ends_with(b"set_by_filter") {
            true => "have \"metrics\" or the display tell it",
            false => "write \"limit_req\" or \"limit_conn\"",
        };
        Err(Problem::directive("is not supported").hint(hint))
    }
}

pub struct VhostTrafficStatus;

impl Feature for VhostTrafficStatus {
    fn table(&self) -> FeatureTable {
        let mut table = TrafficConf::table("vhost_traffic_status", ContextArea::Http);
        table.inherit = |inner, outer| {
            let (Some(inner), Some(outer)) =
                (inner.downcast_mut::<TrafficInput>(), outer.downcast_ref::<TrafficInput>())
            else {
                return;
            };
            let outer_lines = outer.vhost_traffic_status_filter_by_set_key.iter().flat_map(|given| &given.value.0);
            if let Some(own) = &mut inner.vhost_traffic_status_filter_by_set_key {
                std::rc::Rc::make_mut(own).value.0.extend(outer_lines.filter(|line| line.is_global).cloned());
            }
            inner.inherit(outer);
        };
        table
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Ok(conf) = conf.clone().downcast::<TrafficConf>() else { return Ok(()) };
        let displays = conf.vhost_traffic_status_display.is_some();
        let Some(ZoneLine { name, counters }) = conf.vhost_traffic_status_zone.clone() else {
            if displays || conf.vhost_traffic_status == Some(true) {
                let words = "no \"vhost_traffic_status_zone\" is defined";
                return Err(Problem::says(words).of("vhost_traffic_status_display").hint("write it in the http block"));
            }
            return Ok(());
        };
        if displays {
            block.location.content =
                Some(Arc::new(Display { conf: conf.clone(), zone: name, counters: counters.clone() }));
        }
        if conf.vhost_traffic_status.unwrap_or(true) && !conf.vhost_traffic_status_bypass_stats {
            let status = conf_schema::table::synthetic_directive("vhost_traffic_status", "$upstream_cache_status");
            let cache = HttpTemplate::compile(block.cx, &status, b"$upstream_cache_status")?;
            let groups = block.cx.get::<HttpGroups>().clone();
            block.location.loggers.push(Arc::new(Count { conf, counters, cache, groups }));
        }
        Ok(())
    }
}

struct Count {
    conf: Arc<TrafficConf>,
    counters: Arc<Counters>,
    cache: HttpTemplate,
    groups: HttpGroups,
}

impl Logger for Count {
    fn log(&self, r: &mut Request) {
        let conf = &self.conf;
        let cache = self.cache.eval(r);
        let sample = StatusSample {
            status: r.out.status(),
            bytes_in: r.incoming.length(),
            bytes_out: r.accounting.bytes_sent(),
            request_ms: base::clock::now().millis_since(r.accounting.started()),
            response_ms: 0,
            cache: CACHE.iter().position(|(_, word)| word.as_bytes() == cache),
        };
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let own = if conf.vhost_traffic_status_filter_by_host && !r.target.host().is_empty() {
            r.target.host()
        } else {
            &r.srv().name
        };
        let own = if own.is_empty() { "_".to_string() } else { text(own) };
        let mut samples = vec![(StatusKey::Server(own), sample)];
        if conf.vhost_traffic_status_filter {
            for line in conf.vhost_traffic_status_filter_by_set_key.iter().flat_map(|lines| &lines.0) {
                let key = text(&line.key.eval(r));
                if key.is_empty() {
                    continue;
                }
                let key = match &line.group {
                    Some(group) => StatusKey::Filter(text(&group.eval(r)), key),
                    None => StatusKey::Server(key),
                };
                let twice = samples.iter().any(|(known, _)| *known == key);
                if !(twice && conf.vhost_traffic_status_filter_check_duplicate) {
                    samples.push((key, sample));
                }
            }
        }
        if conf.vhost_traffic_status_stats_by_upstream
            && let Some(state) = r.upstream.get::<UpstreamState>()
        {
            let host = state.origin.as_ref().map(|origin| origin.written.to_string()).unwrap_or_default();
            let group = if self.groups.get(&host).is_some() { host } else { "::nogroups".to_string() };
            for one in &state.tries {
                let response_ms = one.response_time.map_or(0, |time| time.as_millis() as u64);
                let sample = StatusSample { status: one.status, response_ms, ..sample };
                samples.push((StatusKey::Upstream(group.clone(), one.address().to_string()), sample));
            }
        }
        let buckets = conf.vhost_traffic_status_histogram_buckets.as_ref().map(|b| b.0.as_slice()).unwrap_or_default();
        let none = FilterLimit::default();
        let limit = conf.vhost_traffic_status_filter_max_node.as_ref().map_or(&none, |max| &max.0);
        self.counters.count(samples, buckets, limit);
    }
}

struct Display {
    conf: Arc<TrafficConf>,
    zone: String,
    counters: Arc<Counters>,
}

impl Handler for Display {
    fn run(&self, r: &mut Request) -> Flow {
        if !matches!(r.target.method(), Method::Get | Method::Head) {
            return Flow::Status(405);
        }
        let conf = &self.conf;
        let rest = r.target.path().strip_prefix(r.loc().name.as_slice()).unwrap_or_default();
        let rest = std::str::from_utf8(rest).unwrap_or_default().trim_matches('/');
        let format = match rest.strip_prefix("format").map(|name| name.trim_matches('/')) {
            Some(name) => match Format::WORDS.iter().find(|(word, _)| *word == name) {
                Some((_, format)) => *format,
                None => return Flow::Status(404),
            },
            None if rest.is_empty() => conf.vhost_traffic_status_display_format,
            None => return Flow::Status(404),
        };
        let (conf, zone, counters) = (conf.clone(), self.zone.clone(), self.counters.clone());
        page_thread::answer_later(
            move || page(format, &conf, &zone, &counters),
            move |r, text| r.respond(200, format.media_type(), text),
        )
    }
}

impl Format {
    fn media_type(self) -> &'static str {
        match self {
            Format::Json => "application/json",
            Format::Jsonp => "application/javascript",
            Format::Html => "text/html",
            Format::Prometheus => "text/plain",
        }
    }
}

/// Writes the counters of a zone: tens of thousands, if clients choose the filters' keys.
fn page(format: Format, conf: &TrafficConf, zone: &str, counters: &Counters) -> String {
    base::clock::update();
    let (nodes, used) = counters.read();
    let buckets = conf.vhost_traffic_status_histogram_buckets.as_ref().map(|b| b.0.clone()).unwrap_or_default();
    let told = formats::TrafficStatus {
        zone,
        bytes_max: counters.bytes_max,
        bytes_used: used,
        sum_key: &conf.vhost_traffic_status_display_sum_key.str(),
        buckets: &buckets,
        nodes: &nodes,
    };
    match format {
        Format::Json => told.json(),
        Format::Jsonp => format!("{}({})", conf.vhost_traffic_status_display_jsonp.str(), told.json()),
        Format::Html => told.html(),
        Format::Prometheus => told.prometheus(),
    }
}
