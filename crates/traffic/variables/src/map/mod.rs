//! map (nginx: `ngx_http_map_module`, `ngx_stream_map_module`): variables by string lookup, case-insensitive as in
//! nginx, then by regular expressions in order.

mod numbers;
#[cfg(test)]
mod tests;

pub use numbers::NumMaps;

use crate::hosts::Hosts;
use crate::regex::Pattern;
use crate::variable::{Compute, VariableTable};
use crate::{AreaTypes, Template};
use conf_schema::{At, Cx, Directive, Problem, ValueKind};
use conf_syntax::Directive as Line;
use std::collections::HashMap;
use std::marker::PhantomData;
use std::sync::Arc;

/// A `map` block; the variable holds its table.
pub struct Maps<A>(PhantomData<fn(A)>);

impl<A> Clone for Maps<A> {
    fn clone(&self) -> Self {
        Maps(PhantomData)
    }
}

impl<A: AreaTypes> ValueKind for Maps<A> {
    const SYNTAX: &'static str = "string $variable { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (source, name) = declaration(cx, d)?;
        let (lookup, volatile) = MapLookup::parse(cx, d, source)?;
        cx.get::<VariableTable<A>>().computed(&name, Arc::new(lookup), volatile).map_err(|p| p.at(1))?;
        Ok(Maps(PhantomData))
    }
}

/// Reads source and name of a variable.
fn declaration<A: AreaTypes>(cx: &mut Cx, d: &Directive) -> Result<(Template<A>, String), Problem> {
    let (Some(source), Some(target)) = (d.args.first(), d.args.get(1)) else { return Err(Problem::invalid()) };
    let source = Template::compile(cx, d, &source.bytes).map_err(|p| p.at(0))?;
    let name = target.text().into_owned();
    match name.strip_prefix('$').filter(|n| !n.is_empty()) {
        Some(name) => Ok((source, name.to_string())),
        None => Err(Problem::says(format!("invalid variable name \"{name}\""))
            .at(1)
            .hint("a variable name begins with \"$\"")),
    }
}

struct MapLookup<A: AreaTypes> {
    source: Template<A>,
    /// Results; names and patterns refer to them by index.
    results: Vec<Template<A>>,
    exact: HashMap<Vec<u8>, usize>,
    /// Replaces `exact` if the map has wildcards.
    hosts: Option<Hosts<A, usize>>,
    patterns: Vec<(Pattern<A>, usize)>,
    default: Option<usize>,
}

impl<A: AreaTypes> MapLookup<A> {
    fn parse(cx: &mut Cx, d: &Directive, source: Template<A>) -> Result<(Self, bool), Problem> {
        let mut lookup = MapLookup {
            source,
            results: Vec::new(),
            exact: HashMap::new(),
            hosts: None,
            patterns: Vec::new(),
            default: None,
        };
        let mut volatile = false;
        for line in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
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

    /// Accepts wildcards from here on; keeps earlier names.
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

    fn add(&mut self, cx: &mut Cx, line: &Line, result: Template<A>) -> Result<(), Problem> {
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

    fn find(&self, r: &mut A::Session, value: &[u8]) -> Option<usize> {
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
                // Further patterns are not tried, as in nginx.
                Err(_) => break,
            }
        }
        self.default
    }
}

impl<A: AreaTypes> Compute<A> for MapLookup<A> {
    fn get(&self, r: &mut A::Session, out: &mut Vec<u8>) -> bool {
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
