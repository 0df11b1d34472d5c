//! Rules of `HTTPRoute`.

use std::time::Duration;

use cluster_model::{
    Action, Backend, Conditions, Filters, Location, ModelRedirect, ObjectOrigin, PathMatch, Policies, Retry,
    ValueMatch, anchor_pattern, decode_path, is_field_name, is_field_value,
};
use cluster_objects::types::HttpRoute;
use cluster_objects::types::httproutes::{
    HttpRouteRules, HttpRouteRulesMatches, HttpRouteRulesMatchesHeadersType as HeaderType,
    HttpRouteRulesMatchesMethod as Method, HttpRouteRulesMatchesPathType as PathType,
    HttpRouteRulesMatchesQueryParamsType as QueryType,
};
use cluster_objects::{Kind, ObjectName};

use crate::api::{BackendRef, Filter};
use crate::backends::{BackendReferrer, Backends};
use crate::compiled::CompiledRules;
use crate::conditions::ConditionFault;
use crate::filters::{self, CompiledFilters};
use crate::sessions::keep_sessions;

/// Status of a rule without a backend.
const NO_BACKEND: u16 = 500;

/// Translates the rules of a route.
pub(crate) fn compile(
    route: &HttpRoute,
    name: &ObjectName,
    referring: BackendReferrer<'_>,
    backends: &mut Backends<'_>,
) -> CompiledRules {
    let origin = ObjectOrigin::new(Kind::HttpRoute.name(), &name.namespace, &name.name);
    let rules = route.spec.rules.as_deref().unwrap_or_default();
    CompiledRules::of_rules(
        &origin,
        rules,
        |rule| rule.name.as_ref(),
        |rule, origin, compiled| compile_rule(rule, origin, referring, backends, compiled),
    )
}

fn compile_rule(
    rule: &HttpRouteRules,
    origin: &ObjectOrigin,
    referring: BackendReferrer<'_>,
    backends: &mut Backends<'_>,
    compiled: &mut CompiledRules,
) -> Result<Vec<Location>, ConditionFault> {
    let everything = vec![HttpRouteRulesMatches::default()];
    let listed = rule.matches.as_ref().filter(|matches| !matches.is_empty()).unwrap_or(&everything);
    let matches: Vec<(PathMatch, Conditions)> = listed.iter().map(compile_match).collect::<Result<_, _>>()?;
    let policies = policies(rule)?;
    let listed: Vec<Filter> = rule.filters.iter().flatten().map(Filter::from).collect();
    let outcome = filters::compile(&listed, referring, backends);
    let (action, filters) = match outcome {
        Err(fault) if fault.reason == "IncompatibleFilters" => return Err(fault),
        // Requests must not pass a filter that is not applied.
        Err(fault) => {
            note_partially(compiled, origin, &fault);
            (Action::Respond(NO_BACKEND), Filters::default())
        }
        Ok(CompiledFilters { filters, redirect, needs_prefix, unresolved }) => {
            compiled.resolved = compiled.resolved.take().or(unresolved);
            check_prefix(needs_prefix, &matches)?;
            let action = match redirect {
                Some(redirect) => Action::Redirect(redirect),
                None => {
                    let mut found = rule_backends(rule, origin, referring, backends, compiled, &matches)?;
                    if let Some(persistence) = &rule.session_persistence {
                        let lifetime = duration(persistence.absolute_timeout.as_deref())?;
                        keep_sessions(&persistence.into(), lifetime, origin, &mut found, backends, compiled)?;
                    }
                    Action::Proxy { backends: found, no_backend: NO_BACKEND }
                }
            };
            (action, filters)
        }
    };
    let location = |(path, conditions)| Location {
        origin: origin.clone(),
        path,
        conditions,
        filters: filters.clone(),
        policies: policies.clone(),
        action: action.clone(),
        extra: Vec::new(),
    };
    Ok(matches.into_iter().map(location).collect())
}

fn rule_backends(
    rule: &HttpRouteRules,
    origin: &ObjectOrigin,
    referring: BackendReferrer<'_>,
    backends: &mut Backends<'_>,
    compiled: &mut CompiledRules,
    matches: &[(PathMatch, Conditions)],
) -> Result<Vec<Backend>, ConditionFault> {
    let mut found = Vec::new();
    for reference in rule.backend_refs.iter().flatten() {
        let listed: Vec<Filter> = reference.filters.iter().flatten().map(Filter::from).collect();
        let (mut backend, fault) = backends.resolve(referring, &BackendRef::from(reference));
        compiled.resolved = compiled.resolved.take().or(fault);
        match filters::compile(&listed, referring, backends) {
            Err(fault) if fault.reason == "IncompatibleFilters" => return Err(fault),
            Err(fault) => {
                note_partially(compiled, origin, &fault);
                backend.group = None;
            }
            Ok(CompiledFilters { filters, redirect, needs_prefix, unresolved }) => {
                compiled.resolved = compiled.resolved.take().or(unresolved);
                check_prefix(needs_prefix, matches)?;
                backend.filters = filters;
                backend.redirect = redirect;
            }
        }
        found.push(backend);
    }
    Ok(found)
}

pub(crate) fn note_partially(compiled: &mut CompiledRules, origin: &ObjectOrigin, fault: &ConditionFault) {
    let words = format!("{}: answered with {NO_BACKEND}: {}", origin.part, fault.message);
    compiled.partially = compiled.partially.take().or(Some(ConditionFault::new(fault.reason, words)));
}

fn check_prefix(needs_prefix: bool, matches: &[(PathMatch, Conditions)]) -> Result<(), ConditionFault> {
    match needs_prefix && !matches.iter().all(|(path, _)| matches!(path, PathMatch::Prefix(_))) {
        true => Err(ConditionFault::new("UnsupportedValue", "ReplacePrefixMatch needs matches of the type PathPrefix")),
        false => Ok(()),
    }
}

pub(crate) fn unsupported(words: String) -> ConditionFault {
    ConditionFault::new("UnsupportedValue", words)
}

fn compile_match(found: &HttpRouteRulesMatches) -> Result<(PathMatch, Conditions), ConditionFault> {
    let path = found.path.clone().unwrap_or_default();
    let value = path.value.as_deref().unwrap_or("/");
    let path = match path.r#type {
        Some(PathType::Exact) => PathMatch::Exact(decode_path(value).map_err(unsupported)?),
        None | Some(PathType::PathPrefix) => PathMatch::Prefix(prefix(&decode_path(value).map_err(unsupported)?)),
        Some(PathType::RegularExpression) => {
            PathMatch::Regex { pattern: anchor_pattern(value).map_err(unsupported)?, is_case_insensitive: false }
        }
    };
    let mut conditions = Conditions { method: found.method.as_ref().map(method), ..Conditions::default() };
    for header in found.headers.iter().flatten() {
        let is_regex = header.r#type == Some(HeaderType::RegularExpression);
        add_field(&mut conditions.fields, &header.name, &header.value, is_regex)?;
    }
    for parameter in found.query_params.iter().flatten() {
        if parameter.name.is_empty() || parameter.name.chars().any(char::is_control) {
            return Err(unsupported("a query parameter without a valid name".into()));
        }
        // Of equal names, the first one counts.
        if conditions.query.iter().any(|(name, _)| *name == parameter.name) {
            continue;
        }
        let value = value_match(&parameter.value, parameter.r#type == Some(QueryType::RegularExpression))?;
        conditions.query.push((parameter.name.clone(), value));
    }
    Ok((path, conditions))
}

/// Adds the condition of a header field; of equal names, the first one counts.
pub(crate) fn add_field(
    fields: &mut Vec<(String, ValueMatch)>,
    name: &str,
    value: &str,
    is_regex: bool,
) -> Result<(), ConditionFault> {
    if !is_field_name(name) {
        return Err(unsupported(format!("\"{}\" is no name of a header field", name.escape_debug())));
    }
    if !fields.iter().any(|(known, _)| known.eq_ignore_ascii_case(name)) {
        fields.push((name.to_owned(), value_match(value, is_regex)?));
    }
    Ok(())
}

fn value_match(value: &str, is_regex: bool) -> Result<ValueMatch, ConditionFault> {
    if is_regex {
        return Ok(ValueMatch::Regex(anchor_pattern(value).map_err(unsupported)?));
    }
    if !is_field_value(value) {
        return Err(unsupported("a value with control characters, or white space at an end".into()));
    }
    Ok(ValueMatch::Exact(value.to_owned()))
}

/// Returns a prefix without a slash at its end, which Gateway API ignores.
fn prefix(path: &str) -> String {
    match path.trim_end_matches('/') {
        "" => "/".into(),
        path => path.into(),
    }
}

fn method(method: &Method) -> String {
    let name = match method {
        Method::Get => "GET",
        Method::Head => "HEAD",
        Method::Post => "POST",
        Method::Put => "PUT",
        Method::Delete => "DELETE",
        Method::Connect => "CONNECT",
        Method::Options => "OPTIONS",
        Method::Trace => "TRACE",
        Method::Patch => "PATCH",
    };
    name.into()
}

fn policies(rule: &HttpRouteRules) -> Result<Policies, ConditionFault> {
    let timeouts = rule.timeouts.clone().unwrap_or_default();
    let retry = match &rule.retry {
        None => None,
        Some(retry) => Some(Retry {
            attempts: retry.attempts.map(|attempts| u32::try_from(attempts.max(0)).unwrap_or(u32::MAX)),
            statuses: retry
                .codes
                .iter()
                .flatten()
                .map(|code| u16::try_from(*code).ok().filter(|code| (400..=599).contains(code)))
                .collect::<Option<_>>()
                .ok_or_else(|| unsupported("a retry of a status that is none of 400 to 599".into()))?,
            backoff: duration(retry.backoff.as_deref())?,
        }),
    };
    Ok(Policies {
        request_timeout: duration(timeouts.request.as_deref())?,
        try_timeout: duration(timeouts.backend_request.as_deref())?,
        retry,
    })
}

pub(crate) fn duration(text: Option<&str>) -> Result<Option<Duration>, ConditionFault> {
    let Some(text) = text else { return Ok(None) };
    let parsed: gateway_api::Duration =
        text.parse().map_err(|_| unsupported(format!("\"{}\" is no duration", text.escape_debug())))?;
    Ok(Some(Duration::from_millis(u64::try_from(parsed.as_millis()).unwrap_or(u64::MAX))))
}

/// Returns a redirect with the port that its `Location` needs: that of the listener, unless the scheme changes.
pub(crate) fn with_port(redirect: &ModelRedirect, listener: u16) -> ModelRedirect {
    let port = match (redirect.port, redirect.scheme.as_deref()) {
        (Some(port), _) => port,
        (None, Some("https")) => 443,
        (None, Some(_)) => 80,
        (None, None) => listener,
    };
    ModelRedirect { port: Some(port), ..redirect.clone() }
}
