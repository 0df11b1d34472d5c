//! limit_conn (nginx: `ngx_http_limit_conn_module`, `ngx_stream_limit_conn_module`): maximum concurrent sessions per
//! key.

mod sharing;
#[cfg(test)]
mod tests;

use self::sharing::SharedCounts;
use crate::listed::ListedObjects;
use crate::shared_store::{StoreSlot, space_name};
use crate::zones::{self, DeclaredZone};
use arc_swap::ArcSwapOption;
use conf_schema::value::{ValueList, parse_decimal};
use conf_schema::{Cx, Directive, Problem, ValueKind, words};
use metrics::{limit_conn as row, process};
use observe::Severity;
use shared_store::StoreAgent;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};
use variables::{AreaTypes, Session, Template};

words! {
    pub enum LogLevel { Info = "info", Notice = "notice", Warn = "warn", Error = "error" }
}

const KIND: &str = "limit_conn";
const KEY_BYTES_MAX: usize = 255;

impl LogLevel {
    pub fn level(self) -> Severity {
        match self {
            LogLevel::Info => Severity::Info,
            LogLevel::Notice => Severity::Notice,
            LogLevel::Warn => Severity::Warn,
            LogLevel::Error => Severity::Error,
        }
    }
}

#[derive(Clone, Debug)]
pub struct ConnLimit {
    zone: String,
    most: u32,
}

impl ValueKind for ConnLimit {
    const SYNTAX: &'static str = "zone number";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(zone), Some(number)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
        let text = number.text();
        let most = parse_decimal::<u64>(&text).filter(|n| *n > 0);
        let Some(most) = most else {
            return Err(Problem::says(format!("invalid number of connections \"{text}\"")).at(1));
        };
        if most > 65_535 {
            return Err(Problem::says("connection limit must be less 65536").at(1));
        }
        Ok(ConnLimit { zone: zone.text().into_owned(), most: most as u32 })
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        if self.zone == later.zone { Err(Problem::duplicate()) } else { Ok(()) }
    }
}

/// `limit_conn_zone`; zones are found by name.
pub struct ConnZone<A>(PhantomData<fn(A)>);

impl<A> Clone for ConnZone<A> {
    fn clone(&self) -> Self {
        ConnZone(PhantomData)
    }
}

impl<A: AreaTypes> ValueKind for ConnZone<A> {
    const SYNTAX: &'static str = "key zone=name:size [sync]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let key_text = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let key = Template::<A>::compile(cx, d, &key_text).map_err(|p| p.at(0))?;
        let word = d.args.get(1).map(|w| w.text().into_owned()).unwrap_or_default();
        if !word.starts_with("zone=") {
            return Err(Problem::says(format!("invalid parameter \"{word}\"")).at(1));
        }
        let (name, size) = zones::name_and_size(d, 1)?;
        if name.is_empty() {
            return Err(Problem::says("\"limit_conn_zone\" must have \"zone\" parameter"));
        }
        let sharing = match d.args.get(2).map(|word| word.text()) {
            None => None,
            Some(word) if word == "sync" => {
                let slot = StoreSlot::for_sync(cx, d, &name, "the zone counts this server's connections");
                let area = std::any::type_name::<A>().rsplit("::").next().unwrap_or_default().to_ascii_lowercase();
                Some((slot, format!("{KIND}:{area}:{}", space_name(&name))))
            }
            Some(word) => return Err(Problem::says(format!("invalid parameter \"{word}\"")).at(2)),
        };
        let (counts, limit) =
            (zones::zone_state(KIND, &name, size, &key_text, || ZoneCounts::new(&name, size)), name.clone());
        let state = Arc::new(CountedZone { counts, is_shared: sharing.is_some() });
        if let Some((slot, space)) = sharing {
            let zone = state.clone();
            slot.at_start(move |agent| zone.begin_sharing(agent, &space));
        }
        zones::declare_zone(cx, d, KIND, DeclaredZone { name, key, key_text, state })?;
        ListedObjects::of(cx).area(cx.context).add_limit(&limit);
        Ok(ConnZone(PhantomData))
    }
}

/// A zone of a configuration.
struct CountedZone {
    counts: Arc<ZoneCounts>,
    /// With `sync`.
    is_shared: bool,
}

impl CountedZone {
    fn begin_sharing(&self, agent: &Arc<StoreAgent>, space: &str) {
        let (counts, kept) = (&self.counts, self.counts.shared.load_full());
        let shared = SharedCounts::begin(agent, space, counts.entries_max, kept);
        counts.shared.store(Some(shared.clone()));
        // Sessions of the configuration before.
        let by_key = counts.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        by_key.iter().for_each(|(key, count)| shared.note(key, *count));
    }

    fn take(&self, key: &[u8], most: u32) -> CountOutcome {
        let shared = if self.is_shared { self.counts.shared.load_full() } else { None };
        self.counts.take(key, most, shared)
    }
}

/// Counts of a zone, which outlive a reload.
pub struct ZoneCounts {
    entries_max: usize,
    zone: metrics::MetricZone<row::Of>,
    by_key: Mutex<HashMap<Box<[u8]>, u32>>,
    /// Those of all nodes, with the store of the last configuration.
    shared: ArcSwapOption<SharedCounts>,
}

impl ZoneCounts {
    fn new(name: &str, size: u64) -> ZoneCounts {
        // 64 bytes per entry with a short key, as in nginx.
        let zone = metrics::MetricZone::named(&[name]);
        ZoneCounts { entries_max: (size / 64) as usize, zone, by_key: Mutex::default(), shared: ArcSwapOption::empty() }
    }
    fn take(self: &Arc<Self>, key: &[u8], most: u32, shared: Option<Arc<SharedCounts>>) -> CountOutcome {
        let most = shared.as_ref().map_or(most, |shared| shared.places(key, most));
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let full = by_key.len() >= self.entries_max;
        let count = match by_key.get_mut(key) {
            Some(count) if *count >= most => return CountOutcome::Many,
            None if most == 0 => return CountOutcome::Many,
            Some(count) => {
                *count += 1;
                *count
            }
            None if full => return CountOutcome::Full,
            None => {
                by_key.insert(key.into(), 1);
                1
            }
        };
        if let Some(shared) = &shared {
            // With the lock: counts are told in their order.
            shared.note(key, count);
        }
        CountOutcome::Taken(CountGuard { counts: self.clone(), key: key.into() })
    }
}

enum CountOutcome {
    Taken(CountGuard),
    Many,
    Full,
}

/// Released on drop.
struct CountGuard {
    counts: Arc<ZoneCounts>,
    key: Box<[u8]>,
}

impl Drop for CountGuard {
    fn drop(&mut self) {
        let mut by_key = self.counts.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(count) = by_key.get_mut(&self.key) else { return };
        *count -= 1;
        let left = *count;
        if left == 0 {
            by_key.remove(&self.key);
        }
        // Of the present store, which a reload may have changed since.
        if let Some(shared) = &*self.counts.shared.load() {
            shared.note(&self.key, left);
        }
    }
}

/// Result of counting a session; dropping it frees its places.
pub struct CountedSession {
    pub status: &'static str,
    #[allow(dead_code)]
    places: Vec<CountGuard>,
}

pub struct ConnCheck<A: AreaTypes> {
    limits: Vec<(Arc<DeclaredZone<A, CountedZone>>, u32)>,
    dry_run: bool,
    level: Severity,
}

pub enum CountVerdict {
    /// No key had a value.
    NotCounted,
    Passed(CountedSession),
    /// Above the limit, and [`ConnCheck::count`] will decide: the event loop may not have seen yet that a counted client
    /// has left.
    Crowded,
    /// Above the limit; with `dry_run` the session continues.
    Refused(CountedSession),
}

impl<A: AreaTypes> ConnCheck<A> {
    /// Finds the zones of a block's limits. Fails on an unknown zone.
    pub fn new(cx: &mut Cx, limits: &ValueList<ConnLimit>, dry_run: bool, level: LogLevel) -> Result<Self, Problem> {
        let mut resolved: Vec<(Arc<DeclaredZone<A, CountedZone>>, u32)> = Vec::new();
        for limit in &limits.0 {
            let zone: Arc<DeclaredZone<A, CountedZone>> =
                zones::find_zone(cx, KIND, &limit.zone).map_err(|problem| problem.of("limit_conn"))?;
            resolved.push((zone, limit.most));
        }
        Ok(ConnCheck { limits: resolved, dry_run, level: level.level() })
    }
    pub fn dry_run(&self) -> bool {
        self.dry_run
    }
    /// Counts a session by all its limits, or by none. Logs a refusal.
    pub fn count(&self, s: &mut A::Session) -> CountVerdict {
        self.decide(s, true)
    }
    /// As [`count`](Self::count), but returns [`CountVerdict::Crowded`] instead of a refusal, without a trace in logs and
    /// metrics.
    pub fn try_count(&self, s: &mut A::Session) -> CountVerdict {
        self.decide(s, false)
    }
    fn decide(&self, s: &mut A::Session, is_final: bool) -> CountVerdict {
        let mut places: Vec<CountGuard> = Vec::new();
        let passed = |places: &[CountGuard]| places.iter().for_each(|place| place.counts.zone.up_at(row::REQUESTS, 0));
        let mut key = Vec::new();
        let mut looked = false;
        for (zone, most) in &self.limits {
            key.clear();
            zone.key.write(s, &mut key);
            if key.is_empty() {
                continue;
            }
            if key.len() > KEY_BYTES_MAX {
                let (name, shown) = (String::from_utf8_lossy(&zone.key_text), String::from_utf8_lossy(&key));
                s.log(
                    Severity::Error,
                    format_args!("the value of the \"{name}\" key is more than 255 bytes: \"{shown}\""),
                );
                continue;
            }
            looked = true;
            match zone.state.take(&key, *most) {
                CountOutcome::Taken(place) => places.push(place),
                CountOutcome::Many if !is_final => return CountVerdict::Crowded,
                outcome => {
                    passed(&places);
                    if matches!(outcome, CountOutcome::Many) {
                        let dry = if self.dry_run { ", dry run," } else { "" };
                        s.log(self.level, format_args!("limiting connections{dry} by zone \"{}\"", zone.name));
                    }
                    let (status, verdict) = if self.dry_run { ("REJECTED_DRY_RUN", 2) } else { ("REJECTED", 1) };
                    zone.state.counts.zone.up_at(row::REQUESTS, verdict);
                    process::LIMIT_CONN.up_at(verdict);
                    return CountVerdict::Refused(CountedSession { status, places: Vec::new() });
                }
            }
        }
        if !looked {
            return CountVerdict::NotCounted;
        }
        passed(&places);
        process::LIMIT_CONN.up_at(0);
        CountVerdict::Passed(CountedSession { status: "PASSED", places })
    }
}
