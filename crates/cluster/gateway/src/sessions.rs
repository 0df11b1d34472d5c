//! `sessionPersistence` of a rule: cookies that keep the sessions of clients with a server.

use std::time::Duration;

use cluster_model::{Backend, EndpointGroup, GroupName, ObjectOrigin};
use cluster_objects::types::{grpcroutes, httproutes};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};

use crate::backends::Backends;
use crate::compiled::CompiledRules;
use crate::conditions::ConditionFault;

/// Cookie of rules that name none.
const DEFAULT_COOKIE: &str = "tidegate-session";

/// `sessionPersistence` of both kinds of routes.
#[derive(Default)]
pub(crate) struct SessionPersistence<'a> {
    pub name: Option<&'a str>,
    pub is_header: bool,
    pub is_permanent: bool,
    pub idle_timeout: Option<&'a str>,
}

impl<'a> From<&'a httproutes::HttpRouteRulesSessionPersistence> for SessionPersistence<'a> {
    fn from(found: &'a httproutes::HttpRouteRulesSessionPersistence) -> SessionPersistence<'a> {
        use httproutes::HttpRouteRulesSessionPersistenceCookieConfigLifetimeType::Permanent;
        use httproutes::HttpRouteRulesSessionPersistenceType::Header;
        let lifetime = found.cookie_config.as_ref().and_then(|config| config.lifetime_type.as_ref());
        SessionPersistence {
            name: found.session_name.as_deref(),
            is_header: found.r#type == Some(Header),
            is_permanent: lifetime == Some(&Permanent),
            idle_timeout: found.idle_timeout.as_deref(),
        }
    }
}

impl<'a> From<&'a grpcroutes::GrpcRouteRulesSessionPersistence> for SessionPersistence<'a> {
    fn from(found: &'a grpcroutes::GrpcRouteRulesSessionPersistence) -> SessionPersistence<'a> {
        use grpcroutes::GrpcRouteRulesSessionPersistenceCookieConfigLifetimeType::Permanent;
        use grpcroutes::GrpcRouteRulesSessionPersistenceType::Header;
        let lifetime = found.cookie_config.as_ref().and_then(|config| config.lifetime_type.as_ref());
        SessionPersistence {
            name: found.session_name.as_deref(),
            is_header: found.r#type == Some(Header),
            is_permanent: lifetime == Some(&Permanent),
            idle_timeout: found.idle_timeout.as_deref(),
        }
    }
}

/// Gives the backend of a rule a group whose sessions stay with their servers; `lifetime` is `absoluteTimeout`.
///
/// # Errors
/// If the sessions cannot be kept in this way: the rule is left out.
pub(crate) fn keep_sessions(
    persistence: &SessionPersistence<'_>,
    lifetime: Option<Duration>,
    origin: &ObjectOrigin,
    found: &mut [Backend],
    backends: &mut Backends<'_>,
    compiled: &mut CompiledRules,
) -> Result<(), ConditionFault> {
    if persistence.is_header {
        return Err(unsupported("sessionPersistence of the type Header: only cookies keep sessions".into()));
    }
    let name = persistence.name.filter(|name| !name.is_empty()).unwrap_or(DEFAULT_COOKIE);
    if !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')) {
        return Err(unsupported(format!("sessionName \"{}\" is no name of a cookie", name.escape_debug())));
    }
    let lifetime = lifetime.map(|lifetime| lifetime.as_secs().max(1));
    let expires = match (persistence.is_permanent, lifetime) {
        (true, None) => return Err(unsupported("a Permanent cookie needs absoluteTimeout".into())),
        (true, lifetime) => lifetime,
        (false, None) => None,
        (false, Some(_)) => {
            let words = "sessionPersistence: absoluteTimeout is left out: a Session cookie ends with the browser";
            compiled.leftovers.push(format!("{}: {words}", origin.part));
            None
        }
    };
    if persistence.idle_timeout.is_some() {
        compiled.leftovers.push(format!("{}: sessionPersistence: idleTimeout is left out", origin.part));
    }
    let mut used = found.iter_mut().filter(|backend| backend.weight > 0);
    let (Some(first), None) = (used.next(), used.next()) else {
        // Shares are drawn for each request: a cookie would keep the server of a Service, but not the Service.
        if !found.is_empty() {
            compiled.leftovers.push(format!("{}: sessionPersistence of several backends is left out", origin.part));
        }
        return Ok(());
    };
    if let Some(group) = &first.group {
        first.group = Some(sticky_group(group, name, expires, backends));
    }
    Ok(())
}

fn sticky_group(group: &GroupName, cookie: &str, expires: Option<u64>, backends: &mut Backends<'_>) -> GroupName {
    let age = expires.map(|seconds| format!("{seconds}s"));
    let parts = [Some("sticky"), Some(cookie), age.as_deref()];
    let name = GroupName::extended(group, &parts.into_iter().flatten().collect::<Vec<_>>());
    let mut line = NewDirective::new("sticky").arg("cookie").arg(Argument::plain(cookie));
    if let Some(age) = &age {
        line = line.arg(Argument::plain(format!("expires={age}")));
    }
    let line: WriteNode = line.arg("path=/").arg("httponly").into();
    backends.add_variant(group, &name, |group| EndpointGroup { settings: vec![line], ..group.clone() });
    name
}

fn unsupported(words: String) -> ConditionFault {
    ConditionFault::new("UnsupportedValue", words)
}
