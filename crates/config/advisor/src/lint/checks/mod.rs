//! The checks by subject.

mod access;
mod exposure;
mod firewall;
mod headers;
mod ifs;
mod paths;
mod regexes;
mod servers;
mod transport;
mod upstreams;

use super::{LintCheck, LintLevel, LintRun};
use crate::location::LocationName;
use crate::scope::{ScopeId, Scopes};
use conf_schema::Contexts;

pub const ALL: &[&[LintCheck]] = &[
    paths::CHECKS,
    access::CHECKS,
    exposure::CHECKS,
    firewall::CHECKS,
    headers::CHECKS,
    upstreams::CHECKS,
    transport::CHECKS,
    regexes::CHECKS,
    ifs::CHECKS,
    servers::CHECKS,
];

/// Directives that answer a location's requests.
const ANSWERING: &[&str] = &[
    "proxy_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "grpc_pass",
    "memcached_pass",
    "tunnel_pass",
    "stub_status",
    "empty_gif",
];

fn name(scopes: &Scopes<'_>, id: ScopeId) -> Option<LocationName> {
    let scope = scopes.get(id);
    (scope.context == Contexts::location).then(|| scope.directive.and_then(LocationName::of)).flatten()
}

/// Tells whether the block answers every request without files.
fn answers(scopes: &Scopes<'_>, id: ScopeId) -> bool {
    ANSWERING.iter().any(|name| scopes.has(id, name)) || scopes.has(id, "return")
}

/// Tells whether every location refuses: `deny all`, or a `return` of 4xx.
fn refuses(scopes: &Scopes<'_>, id: ScopeId) -> bool {
    let denies = |d: &&conf_syntax::Directive| d.args.first().is_some_and(|word| word.bytes == b"all");
    let own_deny = scopes.own(id, "deny");
    let own_allow = scopes.own(id, "allow");
    let returns = scopes.own(id, "return");
    let status = returns.first().and_then(|d| d.args.first()).map(|word| word.text().into_owned());
    (own_allow.is_empty() && own_deny.iter().any(denies)) || status.is_some_and(|code| code.starts_with('4'))
}
