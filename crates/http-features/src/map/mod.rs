//! map (nginx: `ngx_http_map_module`): a variable whose value depends on another's.
//!
//! Names are compared without regard to case, as nginx does; after them regular expressions are tried in their order.

#[cfg(test)]
mod tests;

use conf_schema::value::Number;
use conf_schema::{Area, At, Cx, Directive, Problem, Table, Value, directives};
use conf_syntax::Directive as Line;
use http_engine::hosts::Hosts;
use http_engine::regex::Pattern;
use http_engine::variable::{Compute, Variables};
use http_engine::{BlockPlan, Feature, Request, Template};
use std::any::Any;
use std::collections::HashMap;
use std::sync::Arc;

directives! {
    /// What the module is told.
    pub struct MapConf from MapInput {
        /// Makes a variable whose value is looked up in a table by the value of a string.
        map: Maps,
        /// Accepted for nginx's sake: tables here grow as they must.
        map_hash_bucket_size: Number,
        /// Accepted for nginx's sake: tables here grow as they must.
        map_hash_max_size: Number,
    }
}

/// A `map` block; the variable knows its table.
#[derive(Clone)]
pub struct Maps;

impl Value for Maps {
    const SYNTAX: &'static str = "string $variable { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (Some(source), Some(target)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
        let source = Template::compile(cx, d, &source.bytes).map_err(|p| p.at(0))?;
        let name = target.text().into_owned();
        let Some(name) = name.strip_prefix('$').filter(|n| !n.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{name}\"")).at(1).hint("it begins with \"$\""));
        };
        let (lookup, volatile) = Lookup::parse(cx, d, source)?;
        cx.get::<Variables>().computed(name, Arc::new(lookup), volatile).map_err(|p| p.at(1))?;
        Ok(Maps)
    }
}

/// The feature.
pub struct Map;

impl Feature for Map {
    fn table(&self) -> Table {
        MapConf::table("map", Area::Http)
    }
    fn plan(&self, _: &Arc<dyn Any + Send + Sync>, _: &mut BlockPlan<'_>) -> Result<(), Problem> {
        Ok(())
    }
}

/// The table of one map.
struct Lookup {
    source: Template,
    /// The results; names and patterns refer to them by index.
    results: Vec<Template>,
    exact: HashMap<Vec<u8>, usize>,
    /// Instead of `exact` when the map has wildcards.
    hosts: Option<Hosts<usize>>,
    patterns: Vec<(Pattern, usize)>,
    default: Option<usize>,
}

impl Lookup {
    fn parse(cx: &mut Cx, d: &Directive, source: Template) -> Result<(Lookup, bool), Problem> {
        let mut lookup = Lookup {
            source,
            results: Vec::new(),
            exact: HashMap::new(),
            hosts: None,
            patterns: Vec::new(),
            default: None,
        };
        let mut volatile = false;
        for line in conf_syntax::directives(d.block.as_deref().unwrap_or_default()) {
            match (line.name.bytes.as_slice(), line.args.as_slice()) {
                (b"hostnames", []) => lookup.start_hosts().map_err(|p| p.on(line))?,
                (b"volatile", []) => volatile = true,
                (_, [value]) => {
                    cx.at = At { span: line.span, line: line.line };
                    let result = Template::compile(cx, line, &value.bytes).map_err(|p| p.on(line))?;
                    lookup.add(cx, line, result).map_err(|p| p.on(line))?;
                }
                _ => return Err(Problem::says("invalid number of the map parameters").on(line)),
            }
        }
        Ok((lookup, volatile))
    }

    /// From here on names may be wildcards; those before are taken over as they are.
    fn start_hosts(&mut self) -> Result<(), Problem> {
        if self.hosts.is_none() {
            let mut hosts = Hosts::default();
            for (name, result) in self.exact.drain() {
                hosts.add(&name, result)?;
            }
            self.hosts = Some(hosts);
        }
        Ok(())
    }

    fn add(&mut self, cx: &mut Cx, line: &Line, result: Template) -> Result<(), Problem> {
        let index = self.results.len();
        self.results.push(result);
        let name = line.name.bytes.as_slice();
        if name == b"default" {
            if self.default.replace(index).is_some() {
                return Err(Problem::says("duplicate default map parameter"));
            }
            return Ok(());
        }
        if let [b'~', pattern @ ..] = name {
            let (pattern, caseless) = match pattern {
                [b'*', rest @ ..] => (rest, true),
                rest => (rest, false),
            };
            self.patterns.push((Pattern::new(cx, pattern, caseless)?, index));
            return Ok(());
        }
        let name = name.strip_prefix(b"\\").unwrap_or(name);
        if let Some(hosts) = &mut self.hosts {
            return hosts.add(name, index);
        }
        if self.exact.insert(name.to_ascii_lowercase(), index).is_some() {
            let shown = String::from_utf8_lossy(name);
            return Err(Problem::says(format!("conflicting parameter \"{shown}\"")));
        }
        Ok(())
    }

    fn find(&self, r: &mut Request, value: &[u8]) -> Option<usize> {
        let lower;
        let key = if value.iter().any(u8::is_ascii_uppercase) {
            lower = value.to_ascii_lowercase();
            &lower
        } else {
            value
        };
        let named = match &self.hosts {
            Some(hosts) => hosts.find(key).copied(),
            None => self.exact.get(key).copied(),
        };
        if named.is_some() || value.is_empty() {
            return named.or(self.default);
        }
        for (pattern, result) in &self.patterns {
            match pattern.run(r, value) {
                Ok(true) => return Some(*result),
                Ok(false) => {}
                // Those that follow are not asked, as in nginx.
                Err(_) => break,
            }
        }
        self.default
    }
}

impl Compute for Lookup {
    fn get(&self, r: &mut Request, out: &mut Vec<u8>) -> bool {
        let mut value = self.source.eval(r);
        if self.hosts.is_some() && value.last() == Some(&b'.') {
            value.pop();
        }
        if let Some(result) = self.find(r, &value).and_then(|index| self.results.get(index)) {
            result.write(r, out);
        }
        true
    }
}
