//! Rules of `GRPCRoute`: a method is the path `/SERVICE/METHOD`.

use cluster_model::{
    Action, Conditions, Filters, Location, ObjectOrigin, PathMatch, Policies, anchor_pattern, check_pattern,
};
use cluster_objects::types::GrpcRoute;
use cluster_objects::types::grpcroutes::{
    GrpcRouteRules, GrpcRouteRulesMatches, GrpcRouteRulesMatchesHeadersType as HeaderType,
    GrpcRouteRulesMatchesMethodType as MethodType,
};
use cluster_objects::{Kind, ObjectName};

use crate::api::{BackendRef, Filter};
use crate::backends::{BackendReferrer, Backends};
use crate::compiled::CompiledRules;
use crate::conditions::ConditionFault;
use crate::filters;
use crate::http::{add_field, duration, note_partially, unsupported};
use crate::sessions::keep_sessions;

/// Status of a rule without a backend: clients take it as UNAVAILABLE.
const NO_BACKEND: u16 = 503;

/// Translates the rules of a route.
pub(crate) fn compile(
    route: &GrpcRoute,
    name: &ObjectName,
    referring: BackendReferrer<'_>,
    backends: &mut Backends<'_>,
) -> CompiledRules {
    let origin = ObjectOrigin::new(Kind::GrpcRoute.name(), &name.namespace, &name.name);
    let rules = route.spec.rules.as_deref().unwrap_or_default();
    CompiledRules::of_rules(
        &origin,
        rules,
        |rule| rule.name.as_ref(),
        |rule, origin, compiled| compile_rule(rule, origin, referring, backends, compiled),
    )
}

fn compile_rule(
    rule: &GrpcRouteRules,
    origin: &ObjectOrigin,
    referring: BackendReferrer<'_>,
    backends: &mut Backends<'_>,
    compiled: &mut CompiledRules,
) -> Result<Vec<Location>, ConditionFault> {
    let everything = vec![GrpcRouteRulesMatches::default()];
    let listed = rule.matches.as_ref().filter(|matches| !matches.is_empty()).unwrap_or(&everything);
    let matches: Vec<(PathMatch, Conditions)> = listed.iter().map(compile_match).collect::<Result<_, _>>()?;
    let listed: Vec<Filter> = rule.filters.iter().flatten().map(Filter::from).collect();
    let (action, filters) = match filters::compile(&listed, referring, backends) {
        Err(fault) => {
            note_partially(compiled, origin, &fault);
            (Action::Respond(NO_BACKEND), Filters::default())
        }
        Ok(found) => {
            compiled.resolved = compiled.resolved.take().or(found.unresolved);
            let mut used = Vec::new();
            for reference in rule.backend_refs.iter().flatten() {
                let (mut backend, fault) = backends.resolve(referring, &BackendRef::from(reference));
                compiled.resolved = compiled.resolved.take().or(fault);
                let listed: Vec<Filter> = reference.filters.iter().flatten().map(Filter::from).collect();
                match filters::compile(&listed, referring, backends) {
                    Ok(found) => backend.filters = found.filters,
                    Err(fault) => {
                        note_partially(compiled, origin, &fault);
                        backend.group = None;
                    }
                }
                used.push(backend);
            }
            if let Some(persistence) = &rule.session_persistence {
                let lifetime = duration(persistence.absolute_timeout.as_deref())?;
                keep_sessions(&persistence.into(), lifetime, origin, &mut used, backends, compiled)?;
            }
            (Action::Proxy { backends: used, no_backend: NO_BACKEND }, found.filters)
        }
    };
    let location = |(path, conditions)| Location {
        origin: origin.clone(),
        path,
        conditions,
        filters: filters.clone(),
        policies: Policies::default(),
        action: action.clone(),
        extra: Vec::new(),
    };
    Ok(matches.into_iter().map(location).collect())
}

fn compile_match(found: &GrpcRouteRulesMatches) -> Result<(PathMatch, Conditions), ConditionFault> {
    let method = found.method.clone().unwrap_or_default();
    let service = method.service.as_deref().filter(|name| !name.is_empty());
    let name = method.method.as_deref().filter(|name| !name.is_empty());
    let is_regex = method.r#type == Some(MethodType::RegularExpression);
    let is_word = |word: &&str| word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte));
    if !is_regex && !service.iter().chain(&name).all(is_word) {
        return Err(unsupported("no name of a gRPC service or method".into()));
    }
    let path = match (service, name) {
        (None, None) => PathMatch::Prefix("/".into()),
        (Some(service), Some(name)) if !is_regex => PathMatch::Exact(format!("/{service}/{name}")),
        (Some(service), None) if !is_regex => PathMatch::Prefix(format!("/{service}")),
        (service, name) => {
            let escape = |text: &str| text.replace('.', "\\.");
            let part = |text: Option<&str>| match text {
                None => "[^/]+".to_owned(),
                Some(text) if is_regex => format!("(?:{text})"),
                Some(text) => escape(text),
            };
            for text in service.iter().chain(&name).filter(|_| is_regex) {
                check_pattern(text).map_err(unsupported)?;
            }
            let pattern = format!("/{}/{}", part(service), part(name));
            PathMatch::Regex { pattern: anchor_pattern(&pattern).map_err(unsupported)?, is_case_insensitive: false }
        }
    };
    let mut conditions = Conditions::default();
    for header in found.headers.iter().flatten() {
        let is_regex = header.r#type == Some(HeaderType::RegularExpression);
        add_field(&mut conditions.fields, &header.name, &header.value, is_regex)?;
    }
    Ok((path, conditions))
}
