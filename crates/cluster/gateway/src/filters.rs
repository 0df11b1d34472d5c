//! Filters of rules and backends.

use std::time::Duration;

use cluster_model::{
    Cors, FieldEdits, Filters, HostName, Mirror, ModelRedirect, PathRewrite, RedirectPath, check_field, decode_path,
    is_field_name, is_field_value,
};

use crate::api::{CorsFilter, Filter, HeaderEdits, PathChange, RedirectFilter};
use crate::backends::{BackendReferrer, Backends};
use crate::conditions::ConditionFault;

/// Age of an answer to a preflight request, if a filter names none.
const CORS_MAX_AGE: i32 = 5;

/// Filters in the form of the model.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct CompiledFilters {
    pub filters: Filters,
    pub redirect: Option<ModelRedirect>,
    /// The path of requests or redirects changes by its prefix.
    pub needs_prefix: bool,
    /// A reference of a mirror that does not resolve.
    pub unresolved: Option<ConditionFault>,
}

/// Translates the filters of a rule or backend.
///
/// # Errors
/// If a filter is not supported or not valid, or two of them exclude each other (reason `IncompatibleFilters`).
pub(crate) fn compile(
    filters: &[Filter],
    route: BackendReferrer<'_>,
    backends: &mut Backends<'_>,
) -> Result<CompiledFilters, ConditionFault> {
    let mut compiled = CompiledFilters::default();
    let has = |test: fn(&Filter) -> bool| filters.iter().any(test);
    if has(|filter| matches!(filter, Filter::Redirect(_))) && has(|filter| matches!(filter, Filter::Rewrite { .. })) {
        return Err(ConditionFault::new("IncompatibleFilters", "RequestRedirect and URLRewrite exclude each other"));
    }
    let found = &mut compiled.filters;
    for filter in filters {
        match filter {
            Filter::RequestHeaders(edits) => add_edits(&mut found.request_fields, edits)?,
            Filter::ResponseHeaders(edits) => add_edits(&mut found.response_fields, edits)?,
            Filter::Cors(filter) => found.cors = Some(cors(filter)?),
            Filter::Redirect(filter) => {
                compiled.needs_prefix |= matches!(filter.path, Some(PathChange::Prefix(_)));
                compiled.redirect = Some(redirect(filter)?);
            }
            Filter::Rewrite { host, path } => {
                if let Some(host) = host {
                    found.host = Some(exact_host(host)?);
                }
                match path {
                    None => {}
                    Some(PathChange::Full(path)) => {
                        found.path = Some(PathRewrite::Full(decode_path(path).map_err(unsupported)?));
                    }
                    Some(PathChange::Prefix(path)) => {
                        compiled.needs_prefix = true;
                        let path = match path.as_str() {
                            "" => String::new(),
                            path => decode_path(path).map_err(unsupported)?,
                        };
                        found.path = Some(PathRewrite::Prefix(path.trim_end_matches('/').to_owned()));
                    }
                }
            }
            Filter::Mirror { backend, percent, fraction } => {
                let (target, fault) = backends.resolve(route, backend);
                compiled.unresolved = compiled.unresolved.or(fault);
                let Some(group) = target.group.filter(|_| target.tls.is_none()) else { continue };
                let share = share(*percent, *fraction)?;
                if share > 0 {
                    found.mirrors.push(Mirror { group, protocol: target.protocol, share });
                }
            }
            Filter::Unsupported(name) => {
                return Err(ConditionFault::new(
                    "UnsupportedValue",
                    format!("filters of the type {name} are not supported"),
                ));
            }
        }
    }
    if compiled.redirect.is_some() {
        compiled.filters.mirrors.clear();
    }
    Ok(compiled)
}

fn unsupported(words: String) -> ConditionFault {
    ConditionFault::new("UnsupportedValue", words)
}

fn add_edits(out: &mut FieldEdits, edits: &HeaderEdits) -> Result<(), ConditionFault> {
    for (name, value) in edits.set.iter().chain(&edits.add) {
        check_field(name, value).map_err(unsupported)?;
    }
    for name in &edits.remove {
        check_field(name, "").map_err(unsupported)?;
    }
    out.set.extend(edits.set.iter().cloned());
    out.add.extend(edits.add.iter().cloned());
    out.remove.extend(edits.remove.iter().cloned());
    Ok(())
}

fn exact_host(host: &str) -> Result<String, ConditionFault> {
    match HostName::parse(host) {
        Ok(HostName::Exact(host)) => Ok(host),
        _ => Err(unsupported(format!("\"{}\" is no name of a host", host.escape_debug()))),
    }
}

fn redirect(filter: &RedirectFilter) -> Result<ModelRedirect, ConditionFault> {
    let encoded = |path: &str| match decode_path(path) {
        Ok(_) if path.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'"' && byte != b'\\') => {
            Ok(path.to_owned())
        }
        _ => Err(unsupported(format!("\"{}\" is no path", path.escape_debug()))),
    };
    let path = match &filter.path {
        None => None,
        Some(PathChange::Full(path)) => Some(RedirectPath::Full(encoded(path)?)),
        Some(PathChange::Prefix(path)) if path.is_empty() => Some(RedirectPath::Prefix(String::new())),
        Some(PathChange::Prefix(path)) => Some(RedirectPath::Prefix(encoded(path)?.trim_end_matches('/').to_owned())),
    };
    let port = match filter.port {
        None => None,
        Some(port) => {
            let port = u16::try_from(port).ok().filter(|port| *port > 0);
            Some(port.ok_or_else(|| unsupported("a redirect to no port".into()))?)
        }
    };
    let status = filter.status.unwrap_or(302);
    if !matches!(status, 301 | 302 | 303 | 307 | 308) {
        return Err(unsupported(format!("{status} is no status of a redirect")));
    }
    Ok(ModelRedirect {
        scheme: filter.scheme.map(str::to_owned),
        host: filter.host.as_deref().map(exact_host).transpose()?,
        port,
        path,
        status: status as u16,
    })
}

/// Returns a share of requests in hundredths of a percent.
fn share(percent: Option<i32>, fraction: Option<(i32, i32)>) -> Result<u32, ConditionFault> {
    let share = match (percent, fraction) {
        (_, Some((part, whole))) if whole > 0 => i64::from(part) * 10_000 / i64::from(whole),
        (Some(percent), None) => i64::from(percent) * 100,
        (None, None) => 10_000,
        _ => -1,
    };
    u32::try_from(share).ok().filter(|share| *share <= 10_000).ok_or_else(|| unsupported("no share of requests".into()))
}

fn cors(filter: &CorsFilter) -> Result<Cors, ConditionFault> {
    let is_origin = |origin: &String| {
        origin == "*" || (origin.bytes().all(|byte| byte.is_ascii_graphic()) && origin.contains("://"))
    };
    if let Some(origin) = filter.allow_origins.iter().find(|origin| !is_origin(origin)) {
        return Err(unsupported(format!("\"{}\" is no origin", origin.escape_debug())));
    }
    let words = filter.allow_methods.iter().chain(&filter.allow_headers).chain(&filter.expose_headers);
    if let Some(word) = words.into_iter().find(|word| !is_field_name(word) || !is_field_value(word)) {
        return Err(unsupported(format!("\"{}\" is no method and no header field", word.escape_debug())));
    }
    let age =
        u64::try_from(filter.max_age.unwrap_or(CORS_MAX_AGE)).map_err(|_| unsupported("a negative maxAge".into()))?;
    Ok(Cors {
        allow_origins: filter.allow_origins.clone(),
        allow_methods: filter.allow_methods.clone(),
        allow_headers: filter.allow_headers.clone(),
        expose_headers: filter.expose_headers.clone(),
        allow_credentials: filter.allow_credentials,
        max_age: Some(Duration::from_secs(age)),
    })
}
