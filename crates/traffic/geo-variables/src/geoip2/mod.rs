//! geoip2 (third-party modules): variables from MaxMind's databases (`.mmdb`) by client address ([`GeoipClient`]).

pub mod fuzzing;
pub(crate) mod mmdb;
mod source;

use conf_schema::value::parse_sec;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use source::DatabaseSource;
use std::marker::PhantomData;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use variables::variable::{Compute, VariableTable};
use variables::{AreaTypes, SessionOf, Template};

pub trait GeoipClient: 'static {
    type Area: AreaTypes;
    /// Returns `None` for a client of a UNIX-domain socket.
    fn address(s: &SessionOf<Self::Area>) -> Option<IpAddr>;
}

/// Files of an area's `geoip2` lines, in the [`Cx`].
struct AreaFiles<C>(Vec<PathBuf>, PhantomData<fn() -> C>);

impl<C> Default for AreaFiles<C> {
    fn default() -> Self {
        AreaFiles(Vec::new(), PhantomData)
    }
}

/// A `geoip2` block; its variables hold their database.
pub struct Databases<C>(PhantomData<fn() -> C>);

impl<C> Clone for Databases<C> {
    fn clone(&self) -> Self {
        Databases(PhantomData)
    }
}

impl<C: GeoipClient> ValueKind for Databases<C> {
    const SYNTAX: &'static str = "file { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(word) = d.args.first() else { return Err(Problem::invalid()) };
        let path = cx.full_name(&word.text());
        let shown = path.display().to_string();
        let seen = &mut cx.get::<AreaFiles<C>>().0;
        if seen.contains(&path) {
            return Err(Problem::says(format!("Duplicate GeoIP2 mmdb - {shown}")).at(0));
        }
        seen.push(path.clone());
        let mut interval = 0;
        let lines = conf_syntax::list_directives(d.block.as_deref().unwrap_or_default());
        for line in lines.iter().filter(|line| line.name.bytes == b"auto_reload") {
            let [time] = line.args.as_slice() else {
                return Err(Problem::says("invalid number of arguments for auto_reload").on(line));
            };
            let text = time.text();
            let wrong = || Problem::says(format!("invalid interval for auto_reload \"{text}\"")).on(line);
            interval = parse_sec(&time.bytes).ok_or_else(wrong)?;
        }
        let source = DatabaseSource::open(path, interval)
            .map_err(|why| Problem::says(format!("MMDB_open(\"{shown}\") failed - {why}")).at(0))?;
        let source = Arc::new(source);
        for line in lines.into_iter().filter(|line| line.name.bytes != b"auto_reload") {
            let name = line.name.text();
            let Some(name) = name.strip_prefix('$').filter(|name| !name.is_empty()) else {
                return Err(Problem::says(format!("invalid setting \"{name}\"")).on(line));
            };
            let by = variable::<C>(cx, line, name, &source).map_err(|p| p.on(line))?;
            cx.get::<VariableTable<C::Area>>().computed(name, by, false).map_err(|p| p.on(line))?;
        }
        Ok(Databases(PhantomData))
    }
}

fn variable<C: GeoipClient>(
    cx: &mut Cx,
    line: &Directive,
    name: &str,
    source: &Arc<DatabaseSource>,
) -> Result<Arc<dyn Compute<C::Area>>, Problem> {
    let mut words = line.args.iter().peekable();
    if words.next_if(|word| word.bytes == b"metadata").is_some() {
        let field = match words.next().map(|word| word.text().into_owned()).as_deref() {
            Some("build_epoch") => GeoField::Built,
            Some("last_check") => GeoField::Checked,
            Some("last_change") => GeoField::Changed,
            other => {
                let other = other.unwrap_or_default();
                return Err(Problem::says(format!("invalid metadata field \"{other}\" for \"${name}\""))
                    .hint("one of: build_epoch, last_check, last_change"));
            }
        };
        return Ok(Arc::new(Metadata { source: source.clone(), field }));
    }
    let mut found = GeoipLookup::<C> { source: source.clone(), address: None, default: None, path: Vec::new() };
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

struct GeoipLookup<C: GeoipClient> {
    source: Arc<DatabaseSource>,
    /// `None`: the client's.
    address: Option<Template<C::Area>>,
    default: Option<Vec<u8>>,
    path: Vec<Vec<u8>>,
}

impl<C: GeoipClient> GeoipLookup<C> {
    fn address(&self, s: &mut SessionOf<C::Area>) -> Option<IpAddr> {
        match &self.address {
            Some(template) => {
                let text = template.eval(s);
                std::str::from_utf8(&text).ok()?.parse().ok()
            }
            None => C::address(s),
        }
    }
}

impl<C: GeoipClient> Compute<C::Area> for GeoipLookup<C> {
    fn get(&self, s: &mut SessionOf<C::Area>, out: &mut Vec<u8>) -> bool {
        let database = self.source.current();
        let found = self.address(s).is_some_and(|address| database.value(address, &self.path, out));
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
enum GeoField {
    Built,
    Checked,
    Changed,
}

struct Metadata {
    source: Arc<DatabaseSource>,
    field: GeoField,
}

impl<A: AreaTypes> Compute<A> for Metadata {
    fn get(&self, _: &mut A::Session, out: &mut Vec<u8>) -> bool {
        let number = match self.field {
            GeoField::Built => self.source.current().built.cast_signed(),
            GeoField::Checked => self.source.checked(),
            GeoField::Changed => self.source.changed(),
        };
        out.extend_from_slice(number.to_string().as_bytes());
        true
    }
}
