//! limit_conn (nginx: `ngx_http_limit_conn_module`): how many requests with the same key are answered at the same time.

#[cfg(test)]
mod tests;

use crate::shared::zones::{self, Declared};
use conf_schema::value::{Between, Flag, List};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives, words};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Flow, Handler, Request, Template};
use observe::Level;
use std::any::Any;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

words! {
    /// `limit_conn_log_level`
    pub enum LogLevel { Info = "info", Notice = "notice", Warn = "warn", Error = "error" }
}

directives! {
    /// What the module is told in a block.
    pub struct ConnConf from ConnInput {
        /// The most requests with the same key that are answered at the same time, by a zone.
        limit_conn: List<Limit>,
        /// Whether requests are only counted and noted, and none refused.
        limit_conn_dry_run: Flag = "off",
        /// How grave refusals are in the error log.
        limit_conn_log_level: LogLevel = "error",
        /// The status of refused requests.
        limit_conn_status: Between<400, 599> = "503",
        /// Declares a zone: what is counted, and how much memory the counts may take.
        limit_conn_zone: Zone,
    }
}

const KIND: &str = "limit_conn";
const KEY_BYTES_MAX: usize = 255;

/// `limit_conn zone number`
#[derive(Clone, Debug)]
pub struct Limit {
    zone: String,
    most: u32,
}

impl Value for Limit {
    const SYNTAX: &'static str = "zone number";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(zone), Some(number)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
        let text = number.text();
        let most = text.parse::<u32>().ok().filter(|n| *n > 0);
        let Some(most) = most else {
            return Err(Problem::says(format!("invalid number of connections \"{text}\"")).at(1));
        };
        if most > 65_535 {
            return Err(Problem::says("connection limit must be less 65536").at(1));
        }
        Ok(Limit { zone: zone.text().into_owned(), most })
    }
}

/// `limit_conn_zone`; the zone is found by its name.
#[derive(Clone)]
pub struct Zone;

impl Value for Zone {
    const SYNTAX: &'static str = "key zone=name:size";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let key_text = d.args.first().map(|w| w.bytes.clone()).unwrap_or_default();
        let key = Template::compile(cx, d, &key_text).map_err(|p| p.at(0))?;
        let word = d.args.get(1).map(|w| w.text().into_owned()).unwrap_or_default();
        if !word.starts_with("zone=") {
            return Err(Problem::says(format!("invalid parameter \"{word}\"")).at(1));
        }
        let (name, size) = zones::name_and_size(d, 1)?;
        if name.is_empty() {
            return Err(Problem::says("\"limit_conn_zone\" must have \"zone\" parameter"));
        }
        let state = zones::state(KIND, &name, size, &key_text, || Counts::new(size));
        zones::declare(cx, d, KIND, Declared { name, key, key_text, state })?;
        Ok(Zone)
    }
}

/// Requests that are being answered, by key.
struct Counts {
    entries_max: usize,
    by_key: Mutex<HashMap<Box<[u8]>, u32>>,
}

impl Counts {
    fn new(size: u64) -> Counts {
        // As nginx: 64 bytes an entry with a short key.
        Counts { entries_max: (size / 64) as usize, by_key: Mutex::default() }
    }
    fn take(self: &Arc<Self>, key: &[u8], most: u32) -> Outcome {
        let mut by_key = self.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        let full = by_key.len() >= self.entries_max;
        match by_key.get_mut(key) {
            Some(count) if *count >= most => return Outcome::Many,
            Some(count) => *count += 1,
            None if full => return Outcome::Full,
            None => {
                by_key.insert(key.into(), 1);
            }
        }
        Outcome::Taken(Place { counts: self.clone(), key: key.into() })
    }
}

enum Outcome {
    Taken(Place),
    /// So many are being answered already.
    Many,
    /// The zone's memory is used up.
    Full,
}

/// A request's place in a count; given back when the request is over.
struct Place {
    counts: Arc<Counts>,
    key: Box<[u8]>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut by_key = self.counts.by_key.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = by_key.get_mut(&self.key) {
            *count -= 1;
            if *count == 0 {
                by_key.remove(&self.key);
            }
        }
    }
}

/// What became of a request, and its places.
struct Counted {
    status: &'static str,
    #[allow(dead_code)]
    places: Vec<Place>,
}

static VARIABLES: &[Builtin] =
    &[Builtin::one("limit_conn_status", status, "PASSED, REJECTED or REJECTED_DRY_RUN, where a limit was looked at.")];

fn status(r: &mut Request, out: &mut Vec<u8>) -> bool {
    r.shared::<Counted>().map(|counted| out.extend_from_slice(counted.status.as_bytes())).is_some()
}

/// The feature.
pub struct LimitConn;

impl Feature for LimitConn {
    fn table(&self) -> Table {
        ConnConf::table("limit_conn", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<ConnConf>() else { return Ok(()) };
        let Some(limits) = &conf.limit_conn else { return Ok(()) };
        let mut resolved = Vec::new();
        for limit in &limits.0 {
            let zone: Arc<Declared<Counts>> = zones::find(block.cx, KIND, &limit.zone)?;
            if resolved.iter().any(|(known, _): &(Arc<Declared<Counts>>, u32)| known.name == zone.name) {
                return Err(Problem::says("\"limit_conn\" directive is duplicate"));
            }
            resolved.push((zone, limit.most));
        }
        block.location.preaccess.push(Arc::new(Check {
            limits: resolved,
            dry_run: conf.limit_conn_dry_run,
            level: match conf.limit_conn_log_level {
                LogLevel::Info => Level::Info,
                LogLevel::Notice => Level::Notice,
                LogLevel::Warn => Level::Warn,
                LogLevel::Error => Level::Error,
            },
            status: conf.limit_conn_status.0 as u16,
        }));
        Ok(())
    }
}

struct Check {
    limits: Vec<(Arc<Declared<Counts>>, u32)>,
    dry_run: bool,
    level: Level,
    status: u16,
}

impl Handler for Check {
    fn run(&self, r: &mut Request) -> Flow {
        if r.shared::<Counted>().is_some() {
            return Flow::Declined;
        }
        let mut places = Vec::new();
        let mut key = Vec::new();
        let mut looked = false;
        for (zone, most) in &self.limits {
            key.clear();
            zone.key.write(r, &mut key);
            if key.is_empty() {
                continue;
            }
            if key.len() > KEY_BYTES_MAX {
                let (name, shown) = (String::from_utf8_lossy(&zone.key_text), String::from_utf8_lossy(&key));
                r.log(
                    Level::Error,
                    format_args!("the value of the \"{name}\" key is more than 255 bytes: \"{shown}\""),
                );
                continue;
            }
            looked = true;
            match zone.state.take(&key, *most) {
                Outcome::Taken(place) => places.push(place),
                outcome => {
                    if matches!(outcome, Outcome::Many) {
                        let dry = if self.dry_run { ", dry run," } else { "" };
                        r.log(self.level, format_args!("limiting connections{dry} by zone \"{}\"", zone.name));
                    }
                    let status = if self.dry_run { "REJECTED_DRY_RUN" } else { "REJECTED" };
                    r.share(Rc::new(Counted { status, places: Vec::new() }));
                    return if self.dry_run { Flow::Declined } else { Flow::Status(self.status) };
                }
            }
        }
        if looked {
            r.alone = true;
            r.share(Rc::new(Counted { status: "PASSED", places }));
        }
        Flow::Declined
    }
}
