//! auth_jwt (nginx: `ngx_http_auth_jwt_module`): JSON Web Tokens, signed or encrypted, with keys from files and
//! subrequests.
//!
//! The crate `jose` verifies tokens; here are the directives, the sources of keys, and the caches.

mod check;
mod keys;
mod variables;
mod verified;

use crate::shared::requirement::Requirement;
use check::JwtRules;
use conf_schema::value::{Msec, Sec, ValueList};
use conf_schema::{
    At, Complaint, ComplaintLevel, ContextArea, Contexts, Cx, Directive, FeatureTable, Problem, ValueKind, directives,
    words,
};
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpTemplate};
use keys::{KeyFile, KeyRequest, KeySource};
use std::any::Any;
use std::sync::Arc;
use variables::{ClaimSet, HeaderSet};

words! {
    /// `auth_jwt_type`
    pub enum TokenType { Signed = "signed", Encrypted = "encrypted", Nested = "nested" }
}

directives! {
    pub struct JwtConf from JwtInput {
        /// Requires a JSON Web Token for this realm, from the `Authorization` header (Bearer) or a variable; `off`
        /// disables the check. Without keys all requests get 500.
        auth_jwt: Realm = "off",
        /// Defines a variable: the claim found by these names, from the outermost object on. Elements of an array are
        /// separated by commas; numbers and booleans are as in JSON.
        auth_jwt_claim_set: ClaimSet,
        /// Defines a variable: the parameter of the JOSE header found by these names.
        auth_jwt_header_set: HeaderSet,
        /// Time for which keys of a file or a subrequest are cached. Keys of file names with variables are not cached.
        auth_jwt_key_cache: Msec = "0",
        /// File with a JWK set, or with a single JWK. Several files and subrequests may be given; a level with any of
        /// them inherits none.
        auth_jwt_key_file: ValueList<KeyFile>,
        /// URI of a subrequest that returns a JWK set with status 200.
        auth_jwt_key_request: ValueList<KeyRequest>,
        /// Tolerance for the times in `exp` and `nbf`.
        auth_jwt_leeway: Sec = "0s",
        /// Further conditions: every value must be neither empty nor `0`; otherwise the response is 401, or 403 with
        /// `error=403`.
        auth_jwt_require: ValueList<Require>,
        /// Structure of tokens: signed (JWS), encrypted (JWE), or a signed token in an encrypted one.
        auth_jwt_type: TokenType = "signed",
    }
}

/// `auth_jwt`
#[derive(Clone)]
pub struct Realm {
    realm: HttpTemplate,
    token: Option<HttpTemplate>,
    token_of_session: bool,
}

impl ValueKind for Realm {
    const SYNTAX: &'static str = "string [token=$variable] | off";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let Some(realm) = d.args.first() else { return Err(Problem::invalid()) };
        let token_of_session = d.args.get(1).is_some_and(|word| word.bytes.as_slice() == b"token=$oidc_id_token");
        let token = match d.args.get(1) {
            None => None,
            Some(word) => {
                let text = word.bytes.strip_prefix(b"token=").filter(|text| text.len() > 1 && text.starts_with(b"$"));
                let wrong = || Problem::says(format!("invalid parameter \"{}\"", word.text())).at(1);
                let text = text.ok_or_else(|| wrong().hint("write token=$variable"))?;
                Some(HttpTemplate::compile(cx, d, text).map_err(|p| p.at(1))?)
            }
        };
        Ok(Realm { realm: HttpTemplate::compile(cx, d, &realm.bytes).map_err(|p| p.at(0))?, token, token_of_session })
    }
}

/// `auth_jwt_require`
#[derive(Clone)]
pub struct Require(Arc<Requirement>);

impl ValueKind for Require {
    const SYNTAX: &'static str = "$value ... [error=401 | 403]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let is_allowed = |status| matches!(status, 401 | 403);
        Ok(Require(Arc::new(Requirement::parse(cx, d, 401, is_allowed, "\"error\" is 401 or 403")?)))
    }
}

/// The feature.
pub struct AuthJwt;

impl Feature for AuthJwt {
    fn table(&self) -> FeatureTable {
        let mut table = JwtConf::table("auth_jwt", ContextArea::Http);
        // Keys of an outer level are not accepted beside a level's own.
        table.inherit = |inner, outer| {
            if let (Some(inner), Some(outer)) = (inner.downcast_mut::<JwtInput>(), outer.downcast_ref::<JwtInput>()) {
                let own = inner.auth_jwt_key_file.is_some() || inner.auth_jwt_key_request.is_some();
                let (file, request) = (inner.auth_jwt_key_file.clone(), inner.auth_jwt_key_request.clone());
                inner.inherit(outer);
                if own {
                    (inner.auth_jwt_key_file, inner.auth_jwt_key_request) = (file, request);
                }
            }
        };
        table
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ROWS
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<JwtConf>() else { return Ok(()) };
        if conf.auth_jwt.realm.as_literal() == Some(b"off") && conf.auth_jwt.token.is_none() {
            return Ok(());
        }
        let files = conf.auth_jwt_key_file.iter().flat_map(|list| list.0.iter().cloned().map(KeySource::File));
        let requests = conf.auth_jwt_key_request.iter().flat_map(|list| list.0.iter().cloned().map(KeySource::Request));
        let check = JwtRules {
            realm: conf.auth_jwt.realm.clone(),
            token: conf.auth_jwt.token.clone(),
            token_of_session: conf.auth_jwt.token_of_session,
            expected: match conf.auth_jwt_type {
                TokenType::Signed => jose::ExpectedClaims::Signed,
                TokenType::Encrypted => jose::ExpectedClaims::Encrypted,
                TokenType::Nested => jose::ExpectedClaims::Nested,
            },
            leeway: conf.auth_jwt_leeway.0,
            key_cache: conf.auth_jwt_key_cache.0,
            sources: files.chain(requests).collect(),
            requirements: conf.auth_jwt_require.iter().flat_map(|list| list.0.iter().map(|r| r.0.clone())).collect(),
        };
        // A server's own check may be for its locations, which have keys.
        let off = conf.auth_jwt.realm.as_literal() == Some(b"off");
        if check.sources.is_empty() && block.context == Contexts::location && !off {
            let name = String::from_utf8_lossy(&block.location.name).into_owned();
            let At { span, line } = block.location.at;
            block.cx.warnings.push(Complaint {
                level: ComplaintLevel::Warn,
                text: format!("location \"{name}\" has \"auth_jwt\" and no keys: its requests get 500"),
                span: Some(span),
                line,
                hint: Some("write auth_jwt_key_file or auth_jwt_key_request".into()),
            });
        }
        let check = Arc::new(check);
        block.location.extensions.push(check.clone());
        block.handle(HandlerOrder::AuthJwt, Arc::new(check::JwtCheck(check)));
        Ok(())
    }
}
