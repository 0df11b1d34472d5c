//! `prometheus_template`: its lines, and the search of the tree.

use super::tree::{self, Leaf};
use conf_schema::{Complaint, ComplaintLevel, Cx, Directive, Problem, ValueKind};
use conf_syntax::Directive as Line;
use http_engine::regex::{HttpPattern, MatchFailed};
use http_engine::{HttpTemplate, Request};
use std::collections::HashMap;
use std::sync::Arc;

/// Known to scrapers.
const TYPES: [&str; 5] = ["counter", "gauge", "histogram", "summary", "untyped"];

/// Templates by name, in `Cx`.
#[derive(Default)]
pub struct Templates(pub HashMap<String, Arc<Vec<Metric>>>);

#[derive(Clone)]
pub struct TemplateBlocks;

impl ValueKind for TemplateBlocks {
    const SYNTAX: &'static str = "name { ... }";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        let mut metrics = Vec::new();
        for line in conf_syntax::list_directives(d.block.as_deref().unwrap_or_default()) {
            metrics.push(Metric::parse(cx, line).map_err(|problem| problem.on(line))?);
        }
        if cx.get::<Templates>().0.insert(name.clone(), Arc::new(metrics)).is_some() {
            return Err(Problem::says(format!("duplicate Prometheus template \"{name}\"")).at(0));
        }
        Ok(TemplateBlocks)
    }
}

/// Paths of the values that make samples.
#[derive(Debug)]
pub enum Paths {
    Exact(Vec<u8>),
    Like(HttpPattern),
}

impl Paths {
    /// A pattern beyond its limit matches nothing.
    fn has(&self, path: &[u8]) -> bool {
        match self {
            Paths::Exact(exact) => exact == path,
            Paths::Like(pattern) => pattern.is_match(path).unwrap_or(false),
        }
    }
}

#[derive(Debug)]
pub struct Metric {
    /// Name without labels.
    family: String,
    name: HttpTemplate,
    value: HttpTemplate,
    pub path: Option<Paths>,
    kind: Option<String>,
    help: Option<String>,
}

impl Metric {
    fn parse(cx: &mut Cx, line: &Line) -> Result<Metric, Problem> {
        let text = line.name.text().into_owned();
        let family = text.split('{').next().unwrap_or_default().to_string();
        if family.contains('$') {
            return Err(Problem::says(format!(
                "invalid metric name: \"{family}\" - only labels can contain variables"
            )));
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
        if family.is_empty() || family.starts_with(|c: char| c.is_ascii_digit()) || !family.chars().all(is_name) {
            return Err(Problem::says(format!("invalid metric name: \"{family}\"")));
        }
        let Some((variable, parameters)) = line.args.split_first() else {
            return Err(Problem::says("invalid number of metric parameters"));
        };
        if variable.bytes.first() != Some(&b'$') {
            return Err(Problem::says(format!("metric value \"{}\" isn't a variable", variable.text())).at(0));
        }
        let mut metric = Metric {
            family,
            name: HttpTemplate::compile(cx, line, &line.name.bytes)?,
            value: HttpTemplate::compile(cx, line, &variable.bytes)?,
            path: None,
            kind: None,
            help: None,
        };
        for (index, word) in parameters.iter().enumerate() {
            let text = word.text().into_owned();
            let at = |problem: Problem| problem.at(index + 1);
            match text.split_once('=') {
                Some(("path", "" | "~")) => return Err(at(Problem::says("empty metric matching path"))),
                Some(("path", path)) => metric.path = Some(paths(cx, path).map_err(at)?),
                Some(("type", kind)) if TYPES.contains(&kind) => metric.kind = Some(kind.into()),
                Some(("type", kind)) => {
                    let types = TYPES.join(", ");
                    return Err(at(
                        Problem::says(format!("invalid metric type \"{kind}\"")).hint(format!("the types are {types}"))
                    ));
                }
                Some(("help", "")) => return Err(at(Problem::says("empty metric help"))),
                Some(("help", help)) => metric.help = Some(help.replace('\\', "\\\\").replace('\n', "\\n")),
                _ => return Err(at(Problem::says(format!("invalid metric parameter \"{text}\"")))),
            }
        }
        Ok(metric)
    }

    /// Sets the captures of a path that matches.
    pub fn capture(&self, r: &mut Request, path: &[u8]) -> Result<(), MatchFailed> {
        match &self.path {
            Some(Paths::Like(pattern)) => pattern.run(r, path).map(|_| ()),
            _ => Ok(()),
        }
    }
    /// Writes nothing for an empty value.
    pub fn sample(&self, r: &mut Request, out: &mut Vec<u8>) {
        let value = self.value.eval(r);
        if !value.is_empty() {
            self.name.write(r, out);
            out.push(b' ');
            out.extend_from_slice(&value);
            out.push(b'\n');
        }
    }
    /// Writes samples with their description, nothing without samples.
    pub fn family(&self, samples: &[u8], out: &mut Vec<u8>) {
        if samples.is_empty() {
            return;
        }
        for (word, text) in [("HELP", &self.help), ("TYPE", &self.kind)] {
            if let Some(text) = text {
                out.extend_from_slice(format!("# {word} {} {text}\n", self.family).as_bytes());
            }
        }
        out.extend_from_slice(samples);
    }
}

/// Reads `path=`; refuses paths that have no value.
fn paths(cx: &mut Cx, text: &str) -> Result<Paths, Problem> {
    let lacking = |path: &str| {
        let words = format!("the statistics have no \"{path}\"");
        Problem::says(words).hint("remove the metric: Tidegate does not count this value")
    };
    let Some(expression) = text.strip_prefix('~') else {
        let path = text.to_ascii_lowercase();
        return match tree::PATHS.iter().any(|pattern| tree::matches_path(pattern, &path)) {
            true => Ok(Paths::Exact(path.into_bytes())),
            false => Err(lacking(&path)),
        };
    };
    let caseless = expression.bytes().any(|c| c.is_ascii_uppercase());
    let pattern = HttpPattern::new(cx, expression.as_bytes(), caseless)?;
    // Names that most expressions for names match.
    let matches = |all: &[&str]| {
        all.iter().any(|path| ["200", "a", "name"].iter().any(|name| is_match(&pattern, &path.replace('*', name))))
    };
    if !matches(tree::PATHS) {
        if matches(tree::LACKING) {
            return Err(lacking(text));
        }
        let words = format!("\"{text}\" matches no path of the statistics, unless it contains the name of an object");
        cx.warnings.push(Complaint { level: ComplaintLevel::Warn, ..Complaint::emerg(words) });
    }
    Ok(Paths::Like(pattern))
}

fn is_match(pattern: &HttpPattern, path: &str) -> bool {
    pattern.is_match(path.as_bytes()).unwrap_or(false)
}

#[derive(Debug, PartialEq, Eq)]
pub struct MetricSample {
    pub path: String,
    pub value: String,
}

/// Finds each metric's values. As in Angie, a value belongs to the first metric that its path matches.
pub fn search_values(metrics: &[Metric], leaves: Vec<Leaf>) -> Vec<Vec<MetricSample>> {
    let mut found: Vec<Vec<MetricSample>> = metrics.iter().map(|_| Vec::new()).collect();
    for Leaf { path, value } in leaves {
        let fits = |metric: &Metric| metric.path.as_ref().is_some_and(|paths| paths.has(path.as_bytes()));
        if let Some(place) = metrics.iter().position(fits).and_then(|at| found.get_mut(at)) {
            place.push(MetricSample { path, value });
        }
    }
    found
}
