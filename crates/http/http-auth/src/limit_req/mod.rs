//! limit_req (nginx: `ngx_http_limit_req_module`): rate of requests per key by leaky buckets; delays early requests and
//! refuses those beyond the burst.

#[cfg(test)]
mod tests;

use area::bucket::{BucketVerdict, Buckets, Rate};
use area::shared_limit::{PermitRule, SharedLimit};
use area::shared_store::StoreSlot;
use conf_schema::value::{Between, Flag, ValueList, parse_decimal};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives, words};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request};
use http_upstream::zones::{self, HttpZone};
use metrics::{limit_req as row, process};
use observe::Severity;
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

words! {
    pub enum LogLevel { Info = "info", Notice = "notice", Warn = "warn", Error = "error" }
}

directives! {
    pub struct ReqConf from ReqInput {
        /// Limits the request rate by a zone: up to `burst` excess requests are delayed, or served at once with
        /// `nodelay`.
        limit_req: ValueList<RateLimit>,
        /// Counts and logs excess requests without delaying or rejecting them.
        limit_req_dry_run: Flag = "off",
        /// Error log level of rejected requests; delayed requests are logged one level lower.
        limit_req_log_level: LogLevel = "error",
        /// Status of rejected requests.
        limit_req_status: Between<400, 599> = "503",
        /// Defines a zone: the key to count by, the size of its memory, and the rate.
        limit_req_zone: Zone,
    }
}

const KIND: &str = "limit_req";
const KEY_BYTES_MAX: usize = 65_535;

/// `limit_req`; thousandths of a request.
#[derive(Clone, Debug)]
pub struct RateLimit {
    zone: String,
    burst: u64,
    delay: u64,
}

impl ValueKind for RateLimit {
    const SYNTAX: &'static str = "zone=name [burst=number] [nodelay | delay=number]";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut limit = RateLimit { zone: String::new(), burst: 0, delay: 0 };
        let mut has_zone = false;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            let number = |value: &str| parse_decimal::<u32>(value).filter(|n| *n > 0).map(|n| u64::from(n) * 1000);
            if let Some(name) = text.strip_prefix("zone=") {
                limit.zone = name.to_string();
                has_zone = true;
            } else if let Some(value) = text.strip_prefix("burst=") {
                let wrong = || Problem::says(format!("invalid burst value \"{text}\"")).at(index);
                limit.burst = number(value).ok_or_else(wrong)?;
            } else if let Some(value) = text.strip_prefix("delay=") {
                let wrong = || Problem::says(format!("invalid delay value \"{text}\"")).at(index);
                limit.delay = number(value).ok_or_else(wrong)?;
            } else if text == "nodelay" {
                limit.delay = u64::MAX;
            } else {
                return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index));
            }
        }
        if !has_zone {
            return Err(Problem::says("\"limit_req\" must have \"zone\" parameter"));
        }
        Ok(limit)
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        if self.zone == later.zone { Err(Problem::duplicate()) } else { Ok(()) }
    }
}

#[derive(Clone)]
pub struct Zone;

/// Buckets and metrics of a zone; kept over reloads.
struct CountedZone {
    buckets: Buckets,
    counts: metrics::MetricZone<row::Of>,
}

/// A zone's state with this configuration's rate.
struct LimitedRequest {
    rate: Rate,
    zone: Arc<CountedZone>,
    /// With `sync`: where the store's settings will be, and the size of the zone.
    sync: Option<(StoreSlot, u64)>,
}

impl ValueKind for Zone {
    const SYNTAX: &'static str = "key zone=name:size rate=rate [sync]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let key_text = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let key = HttpTemplate::compile(cx, d, &key_text).map_err(|p| p.at(0))?;
        let (mut zone, mut rate, mut sync) = (None, Rate(1000), false);
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let text = word.text();
            if text.starts_with("zone=") {
                zone = Some(zones::name_and_size(d, index)?);
            } else if let Some(value) = text.strip_prefix("rate=") {
                let wrong = || Problem::says(format!("invalid rate \"{text}\"")).at(index);
                rate = Rate::parse(value).ok_or_else(wrong)?;
            } else if text == "sync" {
                sync = true;
            } else {
                return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index));
            }
        }
        let Some((name, size)) = zone.filter(|(name, _)| !name.is_empty()) else {
            return Err(Problem::says("\"limit_req_zone\" must have \"zone\" parameter"));
        };
        let buckets = zones::zone_state(KIND, &name, size, &key_text, || CountedZone {
            buckets: Buckets::new(size),
            counts: metrics::MetricZone::named(&[&name]),
        });
        let sync = sync.then(|| (StoreSlot::for_sync(cx, d, &name, "the zone counts this server's requests"), size));
        let state = Arc::new(LimitedRequest { rate, zone: buckets, sync });
        zones::declare_zone(cx, d, KIND, HttpZone { name, key, key_text, state })?;
        Ok(Zone)
    }
}

struct LimitStatus(&'static str);

static VARIABLES: &[Builtin] = &[Builtin::one(
    "limit_req_status",
    status,
    "`PASSED`, `DELAYED`, `REJECTED`, `DELAYED_DRY_RUN` or `REJECTED_DRY_RUN`, if a limit was checked.",
)];

fn status(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.shared::<LimitStatus>().map(|judged| out.extend_from_slice(judged.0.as_bytes())).is_some()
}

pub struct LimitReq;

impl Feature for LimitReq {
    fn table(&self) -> FeatureTable {
        ReqConf::table("limit_req", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ReqConf>() else { return Ok(()) };
        let Some(lines) = &conf.limit_req else { return Ok(()) };
        let mut limits: Vec<CheckedLimit> = Vec::new();
        for limit in &lines.0 {
            let zone: Arc<HttpZone<LimitedRequest>> =
                zones::find_zone(block.cx, KIND, &limit.zone).map_err(|problem| problem.of("limit_req"))?;
            let shared = zone.state.sync.as_ref().map(|(slot, size)| {
                let rule = PermitRule { rate: zone.state.rate.0, burst: limit.burst, takes_ahead: true };
                SharedLimit::new(slot.clone(), KIND, &zone.name, rule, *size)
            });
            limits.push(CheckedLimit { zone, limit: limit.clone(), shared });
        }
        let (refused, delayed) = match conf.limit_req_log_level {
            LogLevel::Info => (Severity::Info, Severity::Info),
            LogLevel::Notice => (Severity::Notice, Severity::Info),
            LogLevel::Warn => (Severity::Warn, Severity::Notice),
            LogLevel::Error => (Severity::Error, Severity::Warn),
        };
        let status = conf.limit_req_status.0 as u16;
        let check = RateCheck { limits, dry_run: conf.limit_req_dry_run, refused, delayed, status };
        block.handle(HandlerOrder::LimitReq, Arc::new(check));
        Ok(())
    }
}

/// A limit of a block, with its zone.
struct CheckedLimit {
    zone: Arc<HttpZone<LimitedRequest>>,
    limit: RateLimit,
    shared: Option<SharedLimit>,
}

struct RateCheck {
    limits: Vec<CheckedLimit>,
    dry_run: bool,
    refused: Severity,
    delayed: Severity,
    status: u16,
}

impl RateCheck {
    /// Checks every zone; the last one counts the request, then the others do.
    fn judge(&self, r: &mut Request) -> Option<(BucketVerdict, &HttpZone<LimitedRequest>)> {
        let now = base::clock::now().0 / 1000;
        let mut pending = Vec::new();
        let mut key = Vec::new();
        for (index, entry) in self.limits.iter().enumerate() {
            let CheckedLimit { zone, limit, .. } = entry;
            key.clear();
            zone.key.write(r, &mut key);
            if key.is_empty() {
                continue;
            }
            if key.len() > KEY_BYTES_MAX {
                let name = String::from_utf8_lossy(&zone.key_text);
                r.log(Severity::Error, format_args!("the value of the \"{name}\" key is more than 65535 bytes"));
                continue;
            }
            let count = index + 1 == self.limits.len();
            match zone.state.zone.buckets.ask(&key, zone.state.rate, limit.burst, now, count) {
                Ok(excess) if entry.shared.as_ref().is_some_and(|shared| !shared.admits(&key)) => {
                    return Some((BucketVerdict::Busy { excess: excess.saturating_add(1000) }, zone));
                }
                Ok(excess) => pending.push((entry, (!count).then(|| key.clone()), excess)),
                Err(verdict) => return Some((verdict, zone)),
            }
        }
        let mut worst: Option<(u64, u64, &HttpZone<LimitedRequest>)> = None;
        for (CheckedLimit { zone, limit, .. }, key, excess) in pending.iter().rev() {
            let excess = match key {
                Some(key) => zone.state.zone.buckets.account(key, zone.state.rate, now),
                None => *excess,
            };
            let wait = zone.state.rate.millis(excess.saturating_sub(limit.delay));
            if worst.is_none_or(|(longest, ..)| wait > longest) {
                worst = Some((wait, excess, zone));
            }
        }
        let (wait, excess, zone) = worst?;
        Some((if wait == 0 { BucketVerdict::Pass } else { BucketVerdict::Delay { millis: wait, excess } }, zone))
    }
}

impl Handler for RateCheck {
    fn run(&self, r: &mut Request) -> Flow {
        if r.shared::<LimitStatus>().is_some() {
            return Flow::Declined;
        }
        let Some((verdict, zone)) = self.judge(r) else { return Flow::Declined };
        let counted = match (verdict, self.dry_run) {
            (BucketVerdict::Pass, _) => 0,
            (BucketVerdict::Delay { .. }, false) => 1,
            (BucketVerdict::Busy { .. } | BucketVerdict::Full, false) => 2,
            (BucketVerdict::Delay { .. }, true) => 3,
            (BucketVerdict::Busy { .. } | BucketVerdict::Full, true) => 4,
        };
        zone.state.zone.counts.up_at(row::REQUESTS, counted);
        process::LIMIT_REQ.up_at(counted);
        let zone = &zone.name;
        let dry = if self.dry_run { ", dry run" } else { "" };
        match verdict {
            BucketVerdict::Pass => {
                r.share(Rc::new(LimitStatus("PASSED")));
                Flow::Declined
            }
            BucketVerdict::Busy { excess } => {
                r.log(
                    self.refused,
                    format_args!(
                        "limiting requests{dry}, excess: {}.{:03} by zone \"{zone}\"",
                        excess / 1000,
                        excess % 1000
                    ),
                );
                self.refuse(r)
            }
            BucketVerdict::Full => {
                r.log(Severity::Alert, format_args!("could not allocate node in limit_req zone \"{zone}\""));
                self.refuse(r)
            }
            BucketVerdict::Delay { millis, excess } => {
                r.log(
                    self.delayed,
                    format_args!(
                        "delaying request{dry}, excess: {}.{:03}, by zone \"{zone}\"",
                        excess / 1000,
                        excess % 1000
                    ),
                );
                if self.dry_run {
                    r.share(Rc::new(LimitStatus("DELAYED_DRY_RUN")));
                    return Flow::Declined;
                }
                r.share(Rc::new(LimitStatus("DELAYED")));
                Flow::Later(Box::new(move |r| {
                    Box::pin(async move {
                        let watch = r.incoming.watch().cloned();
                        let gone = async {
                            match &watch {
                                Some(watch) => std::future::poll_fn(|cx| watch.poll_gone(cx)).await,
                                None => std::future::pending().await,
                            }
                        };
                        // Ends the delay of a client that has disconnected, so that a graceful shutdown does not wait
                        // for it.
                        let flow = tokio::select! {
                            biased;
                            () = runtime::time::sleep_for(Duration::from_millis(millis)) => Flow::Declined,
                            () = gone => Flow::Status(499),
                        };
                        base::clock::update();
                        (r, flow)
                    })
                }))
            }
        }
    }
}

impl RateCheck {
    fn refuse(&self, r: &mut Request) -> Flow {
        if self.dry_run {
            r.share(Rc::new(LimitStatus("REJECTED_DRY_RUN")));
            return Flow::Declined;
        }
        r.share(Rc::new(LimitStatus("REJECTED")));
        Flow::Status(self.status)
    }
}
