//! auth_oidc (nginx: `ngx_http_oidc_module`): login by an OpenID Provider, with the authorization code flow.
//!
//! `provider.rs` reads the directives; `gate.rs` admits requests; `login.rs` and `answers.rs` are the requests of the flow;
//! `discovery.rs` and `tokens.rs` talk to the provider, over `http-client` on the request's thread; `session.rs` keeps sessions.

mod answers;
mod discovery;
mod gate;
mod login;
mod provider;
mod secrets;
mod session;
mod sharing;
mod state;
mod tokens;
mod variables;

use conf_schema::{ContextArea, Contexts, FeatureTable, Problem, directives};
use gate::Gate;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Feature, HandlerOrder, HttpBuild, HttpTemplate};
use provider::{ProviderBlocks, Providers};
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct OidcConf from OidcInput {
        /// Requires a login at this provider; `off` disables the check. The value may have variables.
        auth_oidc: HttpTemplate = "off",
        /// Defines an OpenID Provider and this server as its client: `issuer`, `client_id`, `client_secret`,
        /// `config_url`, `cookie_name`, `extra_auth_args`, `frontchannel_logout_uri`, `backchannel_logout_uri` (an
        /// extension of Tidegate), `pkce`, `redirect_uri`, `logout_uri`, `post_logout_uri`, `logout_token_hint`, `scope`,
        /// `session_key` (an extension of Tidegate), `session_store`, `session_timeout`, `ssl_crl`, `ssl_trusted_certificate`, `userinfo`.
        oidc_provider: ProviderBlocks,
    }
}

/// The feature.
pub struct AuthOidc;

impl Feature for AuthOidc {
    fn table(&self) -> FeatureTable {
        OidcConf::table("auth_oidc", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        variables::ROWS
    }
    fn plan_http(&self, _: &Arc<dyn Any + Send + Sync>, http: &mut HttpBuild<'_>) -> Result<(), Problem> {
        Providers::connect(http.cx)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<OidcConf>() else { return Ok(()) };
        let all = block.cx.get::<Providers>().0.clone();
        if !all.is_empty() && block.context != Contexts::limit_except {
            let answers = answers::ProviderPaths(all.values().cloned().collect());
            block.handle(HandlerOrder::OidcAnswer, Arc::new(answers));
        }
        let gate = match conf.auth_oidc.as_literal() {
            Some(b"off") => return Ok(()),
            Some(name) => {
                let name = String::from_utf8_lossy(name).into_owned();
                let unknown = || Problem::says(format!("oidc_provider \"{name}\" is not defined")).of("auth_oidc");
                Gate::Fixed(all.get(&name).ok_or_else(unknown)?.clone())
            }
            None => Gate::Named(conf.auth_oidc.clone(), Arc::new(all)),
        };
        let gate = Arc::new(gate);
        block.location.extensions.push(gate.clone());
        block.handle(HandlerOrder::AuthOidc, Arc::new(gate::SessionCheck(gate.clone())));
        block.handle(HandlerOrder::OidcLogin, Arc::new(gate::LoginStart(gate)));
        Ok(())
    }
}
