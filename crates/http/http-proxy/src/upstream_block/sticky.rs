//! Parses `sticky`.

use area::shared_store::{StoreSlot, space_name};
use conf_schema::value::{parse_msec, parse_sec};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::HttpTemplate;
use http_upstream::sticky::{Cookie, Expires, Learn, Sticky, is_same_site};
use http_upstream::sticky_sessions::Sessions;
use http_upstream::zones;
use std::sync::{Arc, Mutex, PoisonError};

/// `sticky`; its session zone belongs to an upstream, known only at the block's end.
#[derive(Clone)]
pub struct StickyValue(Arc<Mutex<Option<StickyLine>>>);

enum StickyLine {
    Ready(Sticky),
    Learn {
        create: Vec<HttpTemplate>,
        lookup: Vec<HttpTemplate>,
        timeout_ms: u64,
        at_head: bool,
        zone: (String, u64),
        sync: Option<StoreSlot>,
    },
}

impl ValueKind for StickyValue {
    const SYNTAX: &'static str = "cookie name [expires=time] [domain=domain] [httponly] [samesite=strict|lax|none|$variable] \
                                  [secure] [path=path] | route $variable ... | learn create=$variable lookup=$variable \
                                  zone=name:size [timeout=time] [header] [sync]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let kind = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        let parsed = match kind.as_str() {
            "cookie" => StickyLine::Ready(Sticky::Cookie(Box::new(cookie(cx, d)?))),
            "route" => {
                let route = |(index, word): (usize, &conf_syntax::Word)| variable(cx, d, index, &word.bytes);
                let all: Result<Vec<HttpTemplate>, Problem> = d.args.iter().enumerate().skip(1).map(route).collect();
                StickyLine::Ready(Sticky::Route(all?))
            }
            "learn" => learn(cx, d)?,
            other => return Err(Problem::says(format!("unknown parameter \"{other}\"")).at(0)),
        };
        Ok(StickyValue(Arc::new(Mutex::new(Some(parsed)))))
    }
}

fn variable(cx: &mut Cx, d: &Directive, index: usize, text: &[u8]) -> Result<HttpTemplate, Problem> {
    if text.first() != Some(&b'$') || text.len() < 2 {
        let shown = String::from_utf8_lossy(text).into_owned();
        return Err(Problem::says(format!("invalid variable name \"{shown}\"")).at(index));
    }
    HttpTemplate::compile(cx, d, text).map_err(|p| p.at(index))
}

fn cookie(cx: &mut Cx, d: &Directive) -> Result<Cookie, Problem> {
    let name = d.args.get(1).map(|w| w.text().into_owned()).unwrap_or_default();
    if name.is_empty() {
        return Err(Problem::directive("empty cookie name").at(1));
    }
    let (domain, path, expires, same_site) = (None, None, None, None);
    let mut cookie = Cookie { name, domain, path, expires, same_site, http_only: false, secure: false };
    for (index, word) in d.args.iter().enumerate().skip(2) {
        let text = word.text().into_owned();
        let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(n, v)| (n, Some(v)));
        let twice = |is: bool| match is {
            true => Err(Problem::directive(format!("parameter \"{name}\" is duplicate")).at(index)),
            false => Ok(()),
        };
        let empty = |value: &str| match value.is_empty() {
            true => Err(Problem::directive(format!("no value for \"{name}\"")).at(index)),
            false => Ok(()),
        };
        match (name, value) {
            ("domain", Some(v)) => {
                twice(cookie.domain.is_some())?;
                empty(v)?;
                cookie.domain = Some(HttpTemplate::compile(cx, d, v.as_bytes()).map_err(|p| p.at(index))?);
            }
            ("path", Some(v)) => {
                twice(cookie.path.is_some())?;
                empty(v)?;
                cookie.path = Some(v.into());
            }
            ("expires", Some(v)) => {
                twice(cookie.expires.is_some())?;
                let seconds = parse_sec(v.as_bytes()).and_then(|s| i64::try_from(s).ok()).map(Expires::Seconds);
                let expires = if v == "max" { Some(Expires::Max) } else { seconds };
                let invalid = || Problem::directive("invalid \"expires\" parameter value").at(index);
                cookie.expires = Some(expires.ok_or_else(invalid)?);
            }
            ("httponly", None) => {
                twice(cookie.http_only)?;
                cookie.http_only = true;
            }
            ("secure", None) => {
                twice(cookie.secure)?;
                cookie.secure = true;
            }
            ("samesite", Some(v)) => {
                twice(cookie.same_site.is_some())?;
                let template = HttpTemplate::compile(cx, d, v.as_bytes()).map_err(|p| p.at(index))?;
                if template.as_literal().is_some_and(|text| !is_same_site(text)) {
                    return Err(Problem::directive("invalid \"samesite\" parameter value").at(index));
                }
                cookie.same_site = Some(template);
            }
            _ => return Err(Problem::says(format!("unknown parameter \"{text}\"")).at(index)),
        }
    }
    Ok(cookie)
}

fn learn(cx: &mut Cx, d: &Directive) -> Result<StickyLine, Problem> {
    let (mut create, mut lookup, mut timeout_ms, mut zone) = (Vec::new(), Vec::new(), None, None);
    let (mut at_head, mut is_shared) = (false, false);
    for (index, word) in d.args.iter().enumerate().skip(1) {
        let text = word.text().into_owned();
        let (name, value) = text.split_once('=').map_or((text.as_str(), None), |(n, v)| (n, Some(v)));
        match (name, value) {
            ("zone", Some(v)) => {
                if zone.is_some() {
                    return Err(Problem::says("duplicate zone").at(index));
                }
                let (name, _) = v.split_once(':').ok_or(Problem::says("zone size is not specified").at(index))?;
                if name.is_empty() {
                    return Err(Problem::says("zone name is not specified").at(index));
                }
                zone = Some(zones::name_and_size(d, index)?);
            }
            ("timeout", Some(v)) => {
                if timeout_ms.is_some() {
                    return Err(Problem::says("duplicate timeout").at(index));
                }
                let time = parse_msec(v.as_bytes()).filter(|ms| *ms > 0);
                timeout_ms = Some(time.ok_or(Problem::says("invalid timeout").at(index))?);
            }
            ("create" | "lookup", Some(v)) if v.starts_with('$') => {
                let template = variable(cx, d, index, v.as_bytes())?;
                if name == "create" { &mut create } else { &mut lookup }.push(template);
            }
            ("create" | "lookup", Some(_)) => {
                return Err(Problem::says(format!("missing variable in the \"{name}\" parameter")).at(index));
            }
            ("header", None) => at_head = true,
            ("sync", None) => is_shared = true,
            _ => return Err(Problem::says(format!("unknown parameter \"{text}\"")).at(index)),
        }
    }
    let missing = |name: &str| Problem::says(format!("\"{name}\" parameter is not specified"));
    if lookup.is_empty() {
        return Err(missing("lookup"));
    }
    if create.is_empty() {
        return Err(missing("create"));
    }
    let zone = zone.ok_or_else(|| missing("zone"))?;
    let sync = is_shared.then(|| StoreSlot::for_sync(cx, d, &zone.0, "the zone has this server's sessions only"));
    Ok(StickyLine::Learn { create, lookup, timeout_ms: timeout_ms.unwrap_or(600_000), at_head, zone, sync })
}

#[derive(Default)]
struct StickyZones(std::collections::HashMap<String, String>);

impl StickyValue {
    /// Fails when another upstream has the zone.
    pub fn finish(&self, upstream: &str, cx: &mut Cx) -> Result<Sticky, Problem> {
        let parsed = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        match parsed {
            Some(StickyLine::Ready(sticky)) => Ok(sticky),
            Some(StickyLine::Learn { create, lookup, timeout_ms, at_head, zone: (name, size), sync }) => {
                if let Some(other) = cx.get::<StickyZones>().0.insert(name.clone(), upstream.into()) {
                    let words = format!("sticky zone \"{name}\" is already used in upstream \"{other}\"");
                    return Err(Problem::says(words));
                }
                let make = || Sessions::new(size);
                let sessions = zones::zone_state("sticky", &name, size, upstream.as_bytes(), make);
                if let Some(slot) = sync {
                    let (sessions, space) = (sessions.clone(), format!("sticky:{}", space_name(&name)));
                    slot.at_start(move |agent| sessions.begin_sharing(agent, &space, timeout_ms));
                }
                Ok(Sticky::Learn(Learn { create, lookup, sessions, timeout_ms, at_head }))
            }
            None => Err(Problem::invalid()),
        }
    }
}
