//! Variables of tokens, and the token of a request.
//!
//! Before and during the check, header and claims of a signed token are readable as sent, for the choice of keys. From
//! the access phase on they have values only if the token was verified: a request that another check admitted
//! (`satisfy any`) cannot bring claims of its own making.

use super::check::JwtRules;
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::order::Phase;
use http_engine::variable::{Builtin, Compute, HttpVariables};
use http_engine::{HttpArea, Request};
use jose::{SignedToken, UnverifiedToken};
use serde_json::{Map, Value as Json};
use std::rc::Rc;
use std::sync::Arc;

pub static ROWS: &[Builtin] = &[
    Builtin::family("jwt_claim_", claim, "The claim NAME of the JSON Web Token."),
    Builtin::family("jwt_header_", header, "The parameter NAME of the token's JOSE header."),
    Builtin::one(
        "jwt_payload",
        payload,
        "The decrypted content of an encrypted token: its claims, or the signed token of a nested one.",
    ),
];

/// The token of a request and its subrequests, since its check began.
pub enum TokenState {
    /// A new check begins, in another location.
    Unread,
    /// Readable for the subrequests of the check.
    Checking(UnverifiedToken),
    Verified(Arc<SignedToken>),
    Refused,
}

/// Passes header and claims of the request's token to `then`.
fn with_token<R>(
    r: &mut Request,
    then: impl FnOnce(&Map<String, Json>, Option<&Map<String, Json>>) -> Option<R>,
) -> Option<R> {
    match r.shared::<TokenState>().as_deref() {
        Some(TokenState::Verified(token)) => then(&token.header, Some(&token.claims)),
        Some(TokenState::Refused) => None,
        Some(TokenState::Checking(token)) => then(&token.header, token.claims.as_ref()),
        None | Some(TokenState::Unread) if r.is_subrequest() || r.progress.phase() > Phase::Access => None,
        None | Some(TokenState::Unread) => {
            let plan = r.plan_rc();
            let check = plan.locations.get(r.location_index())?.ext::<JwtRules>()?;
            let token = UnverifiedToken::parse(&check.token(r)?)?;
            then(&token.header, token.claims.as_ref())
        }
    }
}

fn claim(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    with_token(r, |_, claims| Some(jose::append_text(jose::find_member(claims?, &[name], true)?, out))).unwrap_or(false)
}

fn header(r: &mut Request, name: &str, out: &mut Vec<u8>) -> bool {
    with_token(r, |header, _| Some(jose::append_text(jose::find_member(header, &[name], true)?, out))).unwrap_or(false)
}

fn payload(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let checked: Option<Rc<TokenState>> = r.shared();
    let Some(TokenState::Verified(token)) = checked.as_deref() else { return false };
    token.payload.as_ref().map(|payload| out.extend_from_slice(payload)).is_some()
}

/// A variable of `auth_jwt_claim_set` or `auth_jwt_header_set`.
struct Member {
    path: Box<[String]>,
    of_header: bool,
}

impl Compute<HttpArea> for Member {
    fn get(&self, r: &mut Request, out: &mut Vec<u8>) -> bool {
        with_token(r, |header, claims| {
            let members = if self.of_header { header } else { claims? };
            Some(jose::append_text(jose::find_member(members, &self.path, false)?, out))
        })
        .unwrap_or(false)
    }
}

fn define(cx: &mut Cx, d: &Directive, of_header: bool) -> Result<(), Problem> {
    let Some((target, path)) = d.args.split_first().filter(|(_, path)| !path.is_empty()) else {
        return Err(Problem::invalid());
    };
    let text = target.text().into_owned();
    let Some(name) = text.strip_prefix('$').filter(|name| !name.is_empty()) else {
        return Err(Problem::says(format!("invalid variable name \"{text}\""))
            .at(0)
            .hint("a variable name begins with \"$\""));
    };
    let path = path.iter().map(|word| word.text().into_owned()).collect();
    // Not kept with the request: an encrypted token's claims are known only after its check.
    cx.get::<HttpVariables>().computed(name, Arc::new(Member { path, of_header }), true).map_err(|p| p.at(0))?;
    Ok(())
}

/// `auth_jwt_claim_set`
#[derive(Clone)]
pub struct ClaimSet;

impl ValueKind for ClaimSet {
    const SYNTAX: &'static str = "$variable name ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        define(cx, d, false).map(|()| ClaimSet)
    }
}

/// `auth_jwt_header_set`
#[derive(Clone)]
pub struct HeaderSet;

impl ValueKind for HeaderSet {
    const SYNTAX: &'static str = "$variable name ...";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        define(cx, d, true).map(|()| HeaderSet)
    }
}
