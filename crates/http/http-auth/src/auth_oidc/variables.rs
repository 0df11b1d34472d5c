//! Variables of a session. They have values once `auth_oidc` has admitted the request.

use super::session::Session;
use http_engine::Request;
use http_engine::variable::Builtin;
use serde_json::{Map, Value};
use std::cell::OnceCell;
use std::rc::Rc;

pub static ROWS: &[Builtin] = &[
    Builtin::one("oidc_access_token", access_token, "The access token of the session."),
    Builtin::family(
        "oidc_claim_",
        claim,
        "The claim NAME of the ID token or, with `userinfo on`, of the user information.",
    ),
    Builtin::one("oidc_id_token", id_token, "The ID token of the session."),
    Builtin::one("oidc_userinfo", userinfo, "The user information as JSON, with `userinfo on`."),
];

/// The session of a request and its subrequests.
pub struct SessionClaims {
    session: Option<Session>,
    claims: OnceCell<Option<Map<String, Value>>>,
    userinfo: OnceCell<Option<Map<String, Value>>>,
}

impl SessionClaims {
    pub fn none() -> SessionClaims {
        SessionClaims { session: None, claims: OnceCell::new(), userinfo: OnceCell::new() }
    }
    pub fn of(session: Session) -> SessionClaims {
        SessionClaims { session: Some(session), ..SessionClaims::none() }
    }
}

fn put(r: &Request, out: &mut Vec<u8>, part: fn(&Session) -> Option<&String>) -> bool {
    let known: Option<Rc<SessionClaims>> = r.shared();
    let session = known.as_ref().and_then(|known| known.session.as_ref());
    session.and_then(part).map(|text| out.extend_from_slice(text.as_bytes())).is_some()
}

fn id_token(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(r, out, |session| Some(&session.id_token))
}

fn access_token(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(r, out, |session| session.access_token.as_ref())
}

fn userinfo(r: &mut Request, out: &mut Vec<u8>) -> bool {
    put(r, out, |session| session.userinfo.as_ref())
}

fn claim(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    let known: Option<Rc<SessionClaims>> = r.shared();
    let Some((known, session)) = known.as_deref().and_then(|known| Some((known, known.session.as_ref()?))) else {
        return false;
    };
    let claims = known.claims.get_or_init(|| session.claims());
    let userinfo = || {
        let parse = || serde_json::from_str(session.userinfo.as_ref()?).ok();
        known.userinfo.get_or_init(parse).as_ref()
    };
    let find = |members: &Map<String, Value>, out: &mut Vec<u8>| {
        jose::find_member(members, &[name], true).is_some_and(|value| jose::append_text(value, out))
    };
    claims.as_ref().is_some_and(|claims| find(claims, out)) || userinfo().is_some_and(|info| find(info, out))
}
