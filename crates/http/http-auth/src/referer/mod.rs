//! valid_referers (nginx: `ngx_http_referer_module`): `$invalid_referer` marks requests without a known referring page.

use conf_schema::value::Number;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::hosts::Hosts;
use http_engine::regex::{HttpPattern, MatchFailed};
use http_engine::values::ServerName;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, Request};
use http_types::Known;
use observe::Severity;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct RefererConf from RefererInput {
        /// Values of `Referer` for which `$invalid_referer` is empty.
        valid_referers: Referers,
        /// Accepted for compatibility: tables grow as needed.
        referer_hash_bucket_size: Number,
        /// Accepted for compatibility: tables grow as needed.
        referer_hash_max_size: Number,
    }
}

#[derive(Clone, Default)]
pub struct Referers {
    none: bool,
    blocked: bool,
    server_names: bool,
    /// Host, and prefix of the path.
    hosts: Vec<(Vec<u8>, Vec<u8>)>,
    patterns: Vec<Arc<HttpPattern>>,
}

impl ValueKind for Referers {
    const SYNTAX: &'static str = "none | blocked | server_names | string ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut referers = Referers::default();
        for (index, word) in d.args.iter().enumerate() {
            match word.bytes.as_slice() {
                b"" => return Err(Problem::says("invalid referer \"\"").at(index)),
                b"none" => referers.none = true,
                b"blocked" => referers.blocked = true,
                b"server_names" => referers.server_names = true,
                b"~" => return Err(Problem::says("empty regex in \"~\"").at(index)),
                [b'~', pattern @ ..] => {
                    referers.patterns.push(Arc::new(HttpPattern::new(cx, pattern, true).map_err(|p| p.at(index))?));
                }
                text => {
                    let slash = text.iter().position(|c| *c == b'/').unwrap_or(text.len());
                    let (host, path) = text.split_at(slash);
                    Hosts::default().add(host, ()).map_err(|p| p.at(index))?;
                    referers.hosts.push((host.to_vec(), path.to_vec()));
                }
            }
        }
        Ok(referers)
    }
    fn append(&mut self, later: Self) {
        self.none |= later.none;
        self.blocked |= later.blocked;
        self.server_names |= later.server_names;
        self.hosts.extend(later.hosts);
        self.patterns.extend(later.patterns);
    }
}

static VARIABLES: &[Builtin] =
    &[Builtin::one("invalid_referer", invalid_referer, "`1` unless the Referer header is a valid one.").changeable()];

pub struct Referer;

impl Feature for Referer {
    fn table(&self) -> FeatureTable {
        RefererConf::table("referer", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(referers) = conf.downcast_ref::<RefererConf>().and_then(|c| c.valid_referers.as_ref()) else {
            return Ok(());
        };
        let mut table = Valid {
            none: referers.none,
            blocked: referers.blocked,
            hosts: Hosts::default(),
            host_patterns: Vec::new(),
            patterns: referers.patterns.clone(),
        };
        for (host, path) in &referers.hosts {
            table.hosts.add(host, path.clone())?;
        }
        if referers.server_names {
            table.add_server_names(block.server_names)?;
        }
        if (table.none || table.blocked) && table.hosts.is_empty() {
            return Err(Problem::says(
                "the \"none\" or \"blocked\" referers are specified in the \"valid_referers\" directive without any \
                 valid referer",
            ));
        }
        block.location.extensions.push(Arc::new(table));
        Ok(())
    }
}

struct Valid {
    none: bool,
    blocked: bool,
    hosts: Hosts<Vec<u8>>,
    /// Patterns of server names, matched against the host only.
    host_patterns: Vec<Arc<HttpPattern>>,
    /// Patterns matched against everything after the scheme.
    patterns: Vec<Arc<HttpPattern>>,
}

/// Longest host in bytes that is checked.
const HOST_BYTES_MAX: usize = 256;

impl Valid {
    fn add_server_names(&mut self, names: &[ServerName]) -> Result<(), Problem> {
        for name in names {
            let text = match name {
                ServerName::Exact(n) => n.clone(),
                ServerName::Below(n) => [b".", n.as_slice()].concat(),
                ServerName::Suffix(n) => [b"*", n.as_slice()].concat(),
                ServerName::Prefix(n) => [n.as_slice(), b"*"].concat(),
                ServerName::Regex(pattern) => {
                    self.host_patterns.push(pattern.clone());
                    continue;
                }
            };
            self.hosts.add(&text, Vec::new())?;
        }
        Ok(())
    }

    /// Tells whether a value is valid. Fails when a pattern exceeds its limits.
    fn welcomes(&self, referer: Option<&[u8]>) -> Result<bool, MatchFailed> {
        let Some(referer) = referer else { return Ok(self.none) };
        let scheme = |name: &[u8]| {
            let (head, rest) = referer.split_at_checked(name.len())?;
            head.eq_ignore_ascii_case(name).then_some(rest)
        };
        // Shorter values cannot name a page: treated as `blocked`.
        let rest = (referer.len() >= b"http://i.ru".len()).then(|| scheme(b"http://").or_else(|| scheme(b"https://")));
        let Some(rest) = rest.flatten() else { return Ok(self.blocked) };
        let host = rest.split(|c| matches!(c, b'/' | b':')).next().unwrap_or_default().to_ascii_lowercase();
        if host.len() > HOST_BYTES_MAX {
            return Ok(false);
        }
        if let Some(path) = self.hosts.find(&host) {
            let slash = rest.iter().position(|c| *c == b'/').unwrap_or(rest.len());
            return Ok(rest.get(slash..).is_some_and(|rest| rest.starts_with(path)));
        }
        let of_host = self.host_patterns.iter().map(|pattern| (pattern, &host[..]));
        for (pattern, subject) in of_host.chain(self.patterns.iter().map(|pattern| (pattern, rest))) {
            if pattern.is_match(subject)? {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn invalid_referer(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let plan = r.plan_rc();
    let Some(valid) = plan.locations.get(r.location_index()).and_then(|location| location.ext::<Valid>()) else {
        return true;
    };
    // A failed match counts as invalid (nginx: as valid).
    let welcome = valid.welcomes(r.header(Known::Referer)).unwrap_or_else(|MatchFailed(words)| {
        r.log(Severity::Error, format_args!("{words}"));
        false
    });
    if !welcome {
        out.push(b'1');
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    fn valid(line: &str) -> Valid {
        let referers = Referers::parse(&mut Cx::default(), &synthetic_directive("valid_referers", line)).expect(line);
        let mut hosts = Hosts::default();
        for (host, path) in referers.hosts {
            hosts.add(&host, path).expect(line);
        }
        let (none, blocked) = (referers.none, referers.blocked);
        Valid { none, blocked, hosts, host_patterns: Vec::new(), patterns: referers.patterns }
    }

    #[test]
    fn valid_referers_are_admitted() {
        let table = valid("none *.example.com www.example.org/galleries/ ~\\.google\\.");
        for (referer, want) in [
            (None, true),
            (Some("http://a.example.com/x"), true),
            (Some("HTTPS://A.EXAMPLE.COM"), true),
            (Some("http://a.example.com:8080/"), true),
            (Some("http://example.com"), false),
            (Some("http://www.example.org/galleries/1"), true),
            (Some("http://www.example.org:80/galleries/1"), true),
            (Some("http://www.example.org/"), false),
            (Some("http://www.google.de/search"), true),
            (Some("ftp://a.example.com/"), false),
            (Some("stripped"), false),
        ] {
            assert_eq!(table.welcomes(referer.map(str::as_bytes)), Ok(want), "{referer:?}");
        }
        let long = format!("http://{}/", "a".repeat(300));
        assert_eq!(table.welcomes(Some(long.as_bytes())), Ok(false));
        assert_eq!(valid("blocked x").welcomes(Some(b"stripped by a proxy")), Ok(true));
    }
}
