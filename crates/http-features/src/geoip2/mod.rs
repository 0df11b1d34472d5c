//! geoip2 (the module of that name by others): variables out of databases in MaxMind's second format (`.mmdb`), by the client's
//! address.

pub mod fuzzing;
mod mmdb;
mod source;

use crate::shared::located::{self, Proxies};
use conf_schema::value::{Flag, parse_sec};
use conf_schema::{Area, Cx, Directive, Problem, Table, Value, directives};
use http_engine::forwarded::Trusted;
use http_engine::variable::{Compute, Variables};
use http_engine::{BlockPlan, Feature, HttpBuild, Request, Template};
use source::Source;
use std::any::Any;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

directives! {
    /// What the module is told.
    pub struct Geoip2Conf from Geoip2Input {
        /// A database, and variables that are paths in what it knows of an address: `$name [default=text] [source=$variable] path ...;`,
        /// `$name metadata build_epoch | last_check | last_change;`, `auto_reload time;`. The database is read into memory.
        geoip2: Databases,
        /// Proxies that are believed: the address is then that of `X-Forwarded-For`.
        geoip2_proxy: Proxies,
        /// Whether the last address that is not a proxy's counts, instead of the last one.
        geoip2_proxy_recursive: Flag = "off",
    }
}

/// The files that `geoip2` lines have named, in the [`Cx`].
#[derive(Default)]
struct Seen(Vec<PathBuf>);

/// A `geoip2` block; its variables know their database.
#[derive(Clone)]
pub struct Databases;

impl Value for Databases {
    const SYNTAX: &'static str = "file { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
        let path = cx.full_name(&word.text());
        let shown = path.display().to_string();
        if cx.get::<Seen>().0.contains(&path) {
            return Err(Problem::says(format!("Duplicate GeoIP2 mmdb - {shown}")).at(0));
        }
        cx.get::<Seen>().0.push(path.clone());
        let mut interval = 0;
        let lines = conf_syntax::directives(d.block.as_deref().unwrap_or_default());
        for line in lines.iter().filter(|line| line.name.bytes == b"auto_reload") {
            let [time] = line.args.as_slice() else {
                return Err(Problem::says("invalid number of arguments for auto_reload").on(line));
            };
            let text = time.text();
            let wrong = || Problem::says(format!("invalid interval for auto_reload \"{text}\"")).on(line);
            interval = parse_sec(&time.bytes).ok_or_else(wrong)?;
        }
        let source = Source::open(path, interval)
            .map_err(|why| Problem::says(format!("MMDB_open(\"{shown}\") failed - {why}")).at(0))?;
        let source = Arc::new(source);
        for line in lines.into_iter().filter(|line| line.name.bytes != b"auto_reload") {
            let name = line.name.text();
            let Some(name) = name.strip_prefix('$').filter(|name| !name.is_empty()) else {
                return Err(Problem::says(format!("invalid setting \"{name}\"")).on(line));
            };
            let by = variable(cx, line, name, &source).map_err(|p| p.on(line))?;
            cx.get::<Variables>().computed(name, by, false).map_err(|p| p.on(line))?;
        }
        Ok(Databases)
    }
}

fn variable(
    cx: &mut Cx,
    line: &Directive,
    name: &str,
    source: &Arc<Source>,
) -> Result<Arc<dyn Compute<Request>>, Problem> {
    let mut words = line.args.iter().peekable();
    if words.next_if(|word| word.bytes == b"metadata").is_some() {
        let field = match words.next().map(|word| word.text().into_owned()).as_deref() {
            Some("build_epoch") => Field::Built,
            Some("last_check") => Field::Checked,
            Some("last_change") => Field::Changed,
            other => {
                let other = other.unwrap_or_default();
                return Err(Problem::says(format!("invalid metadata field \"{other}\" for \"${name}\""))
                    .hint("one of: build_epoch, last_check, last_change"));
            }
        };
        return Ok(Arc::new(Metadata { source: source.clone(), field }));
    }
    let mut found = Lookup { source: source.clone(), address: None, default: None, path: Vec::new() };
    while let Some(word) = words.next_if(|word| word.bytes.contains(&b'=')) {
        let text = word.text();
        if let Some(value) = word.bytes.strip_prefix(b"default=").filter(|value| !value.is_empty()) {
            if found.default.replace(value.to_vec()).is_some() {
                return Err(Problem::says(format!("default has already been declared for  \"${name}\"")));
            }
        } else if let Some(value) = word.bytes.strip_prefix(b"source=").filter(|value| !value.is_empty()) {
            if found.address.is_some() {
                return Err(Problem::says(format!("source has already been declared for  \"${name}\"")));
            }
            if !value.starts_with(b"$") {
                let shown = String::from_utf8_lossy(value);
                return Err(Problem::says(format!("invalid source variable name \"{shown}\"")));
            }
            found.address = Some(Template::compile(cx, line, value)?);
        } else {
            return Err(Problem::says(format!("invalid setting \"{text}\" for \"${name}\"")));
        }
    }
    found.path = words.map(|word| word.bytes.clone()).collect();
    Ok(Arc::new(found))
}

/// Whose word is taken for whom a proxy speaks for.
struct Trust {
    proxies: Vec<Trusted>,
    recursive: bool,
}

/// The feature.
pub struct Geoip2Feature;

impl Feature for Geoip2Feature {
    fn table(&self) -> Table {
        Geoip2Conf::table("geoip2", Area::Http)
    }
    fn plan_http(&self, conf: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        if let Some(conf) = conf.downcast_ref::<Geoip2Conf>() {
            let proxies = conf.geoip2_proxy.clone().map(|proxies| proxies.0).unwrap_or_default();
            http.extensions.push(Arc::new(Trust { proxies, recursive: conf.geoip2_proxy_recursive }));
        }
        Ok(())
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}

/// A value that a database has for an address.
struct Lookup {
    source: Arc<Source>,
    /// `None`: the client's.
    address: Option<Template>,
    default: Option<Vec<u8>>,
    path: Vec<Vec<u8>>,
}

impl Lookup {
    fn address(&self, r: &mut Request) -> Option<IpAddr> {
        match &self.address {
            Some(template) => {
                let text = template.eval(r);
                std::str::from_utf8(&text).ok()?.parse().ok()
            }
            None => {
                let trust = r.plan().ext::<Trust>()?;
                located::client(r, &trust.proxies, trust.recursive)
            }
        }
    }
}

impl Compute<Request> for Lookup {
    fn get(&self, r: &mut Request, out: &mut Vec<u8>) -> bool {
        let database = self.source.current();
        let found = self.address(r).is_some_and(|address| database.value(address, &self.path, out));
        match &self.default {
            Some(default) if !found => {
                out.extend_from_slice(default);
                true
            }
            _ => found,
        }
    }
}

#[derive(Clone, Copy)]
enum Field {
    Built,
    Checked,
    Changed,
}

/// What is known of a database itself.
struct Metadata {
    source: Arc<Source>,
    field: Field,
}

impl Compute<Request> for Metadata {
    fn get(&self, _: &mut Request, out: &mut Vec<u8>) -> bool {
        let number = match self.field {
            Field::Built => self.source.current().built.cast_signed(),
            Field::Checked => self.source.checked(),
            Field::Changed => self.source.changed(),
        };
        out.extend_from_slice(number.to_string().as_bytes());
        true
    }
}
