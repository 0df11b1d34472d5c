//! Checks of the client's browser, by `User-Agent` (nginx: `ngx_http_process_user_agent`).

use crate::request::Request;
use crate::values::KeepaliveDisable;
use http_types::{Known, Method};

fn agent_has(r: &Request, word: &[u8]) -> bool {
    r.header(Known::UserAgent).is_some_and(|agent| memchr::memmem::find(agent, word).is_some())
}

/// Not Opera in disguise.
pub fn is_msie(r: &Request) -> bool {
    let Some(agent) = r.header(Known::UserAgent) else { return false };
    // nginx wants a version of more than two characters (`ngx_http_process_user_agent`).
    memchr::memmem::find(agent, b"MSIE ").is_some_and(|at| at + 7 < agent.len()) && !agent_has(r, b"Opera")
}

pub(crate) fn is_chrome(r: &Request) -> bool {
    agent_has(r, b"Chrome/") && !is_msie(r)
}

/// Up to 6, service pack 1.
pub fn is_msie6(r: &Request) -> bool {
    let Some(agent) = r.header(Known::UserAgent) else { return false };
    if agent_has(r, b"Opera") {
        return false;
    }
    let Some(at) = memchr::memmem::find(agent, b"MSIE ") else { return false };
    match agent.get(at + 5..at + 7) {
        Some([b'4' | b'5', b'.']) => true,
        Some(b"6.") => memchr::memmem::find(agent, b"SV1").is_none(),
        _ => false,
    }
}

pub(crate) fn keepalive_disabled(r: &Request) -> bool {
    let disabled = r.loc().core.conf.keepalive_disable;
    if disabled.0 <= KeepaliveDisable::NONE.0 {
        return false;
    }
    (disabled.has(KeepaliveDisable::MSIE6) && r.target.method == Method::Post && is_msie6(r))
        || (disabled.has(KeepaliveDisable::SAFARI) && agent_has(r, b"Safari/") && agent_has(r, b"Mac OS X"))
}
