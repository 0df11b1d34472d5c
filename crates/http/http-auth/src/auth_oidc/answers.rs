//! The paths of a provider on this server: the return from a login, logout, front-channel and back-channel logout. They are answered in
//! every server with an `auth_oidc` of the provider, after the limits of the location and whatever its access rules.

use super::discovery::Metadata;
use super::gate::{Gate, client_left};
use super::login::{
    Return, log_failure, query_argument, redirect_client, request_origin, request_resolver, set_cookie, with_arguments,
};
use super::provider::Provider;
use super::session::{EndedSessions, Session};
use super::tokens::{ProviderClient, is_for, write_form};
use bytes::Bytes;
use http_engine::{Flow, Handler, Request, ResponseBody, unless_gone};
use http_types::Method;
use http_upstream::body_store;
use jose::UnverifiedToken;
use observe::Severity;
use resolver::ResolveRules;
use std::sync::Arc;

/// See the module's documentation.
pub struct ProviderPaths(pub Arc<[Arc<Provider>]>);

impl Handler for ProviderPaths {
    fn run(&self, r: &mut Request) -> Flow {
        if !self.0.iter().any(|provider| provider.answers(r.target.path())) || r.is_subrequest() {
            return Flow::Declined;
        }
        let plan = r.plan_rc();
        let server = r.server_index();
        let gates = || plan.locations.iter().filter(|l| l.server == server).filter_map(|l| l.ext::<Gate>());
        let mine = self.0.iter().filter(|p| p.answers(r.target.path()) && gates().any(|gate| gate.may_use(p)));
        let mine: Vec<Arc<Provider>> = mine.cloned().collect();
        let path: &[u8] = r.target.path();
        if mine.is_empty() {
            return Flow::Declined;
        }
        if mine.iter().any(|provider| provider.redirect.path == path) {
            return come_back(&mine, r);
        }
        if mine.iter().any(|provider| provider.backchannel_path.as_deref() == Some(path)) {
            return log_out_in_back(mine, r);
        }
        let is_logout = mine.iter().any(|provider| provider.logout_path.as_deref() == Some(path));
        if is_logout { log_out(&mine, r) } else { log_out_in_front(&mine, r) }
    }
}

/// Completes a login at the provider that has begun it.
fn come_back(providers: &[Arc<Provider>], r: &mut Request) -> Flow {
    if !matches!(r.target.method(), Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    let here = providers.iter().filter(|provider| provider.redirect.path[..] == r.target.path()[..]);
    match here.into_iter().find_map(|provider| Return::of(provider, r)) {
        Some(back) => back.complete(r),
        None => {
            r.log(Severity::Error, format_args!("authentication response without a login of this browser"));
            Flow::Status(400)
        }
    }
}

/// Chooses the provider of the request's session, or the first one.
fn with_session(providers: &[Arc<Provider>], r: &Request) -> (Arc<Provider>, Option<(String, Session)>) {
    let mut found = None;
    for provider in providers {
        let session = provider.session_of(r);
        if session.is_some() || found.is_none() {
            let done = session.is_some();
            found = Some((provider.clone(), session));
            if done {
                break;
            }
        }
    }
    // The caller has at least one.
    match found {
        Some(found) => found,
        None => unreachable!("a request of some provider"),
    }
}

fn log_out(providers: &[Arc<Provider>], r: &mut Request) -> Flow {
    let here: Vec<Arc<Provider>> = providers
        .iter()
        .filter(|p| p.logout_path.as_deref().is_some_and(|path| *path == r.target.path()[..]))
        .cloned()
        .collect();
    let (provider, session) = with_session(&here, r);
    let secure = request_origin(&provider, r).starts_with("https:");
    if let Some((key, _)) = &session {
        provider.end(key);
    }
    set_cookie(r, &provider.cookie_name, None, secure);
    let hint = session.filter(|_| provider.logout_token_hint).map(|(_, session)| session.id_token);
    if let Some(metadata) = provider.known_metadata() {
        return leave(&provider, r, hint.as_deref(), Some(&metadata));
    }
    let resolving = request_resolver(r);
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let Some(metadata) = unless_gone(r.incoming.watch().cloned(), provider.metadata(resolving)).await else {
                let flow = client_left(&mut r);
                return (r, flow);
            };
            // The session here has ended, whatever the provider does.
            let metadata = metadata.inspect_err(|why| log_failure(&r, &provider, why)).ok();
            let flow = leave(&provider, &mut r, hint.as_deref(), metadata.as_deref());
            (r, flow)
        })
    }))
}

/// Sends a client that has logged out to the provider, to the configured page, or shows the built-in one.
fn leave(provider: &Provider, r: &mut Request, hint: Option<&str>, metadata: Option<&Metadata>) -> Flow {
    let page = provider.post_logout.as_ref().map(|page| match page.starts_with('/') {
        true => format!("{}{page}", request_origin(provider, r)),
        false => page.clone(),
    });
    if let Some(url) = metadata.and_then(|metadata| metadata.end_session.as_ref()) {
        let mut arguments = vec![("client_id", provider.client_id.as_str())];
        arguments.extend(hint.map(|token| ("id_token_hint", token)));
        arguments.extend(page.as_deref().map(|page| ("post_logout_redirect_uri", page)));
        return redirect_client(r, with_arguments(&url.to_string(), &write_form(&arguments)));
    }
    match page {
        Some(page) => redirect_client(r, page),
        None => show(r, "You have been logged out."),
    }
}

/// Ends the sessions that the provider or the cookie names (OpenID Connect Front-Channel Logout 1.0).
fn log_out_in_front(providers: &[Arc<Provider>], r: &mut Request) -> Flow {
    if !matches!(r.target.method(), Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    let (Ok(issuer), Ok(sid)) = (query_argument(r.target.args(), b"iss"), query_argument(r.target.args(), b"sid"))
    else {
        return Flow::Status(400);
    };
    let mut ended = false;
    let path = r.target.path().to_vec();
    for provider in providers.iter().filter(|p| p.frontchannel_path.as_ref() == Some(&path)) {
        if issuer.as_ref().is_some_and(|issuer| *issuer != provider.issuer) {
            continue;
        }
        if let (Some(_), Some(sid)) = (&issuer, &sid) {
            provider.end_all_of(sid);
            ended = true;
        } else if let Some((key, _)) = provider.session_of(r) {
            provider.end(&key);
            let secure = request_origin(provider, r).starts_with("https:");
            set_cookie(r, &provider.cookie_name, None, secure);
            ended = true;
        }
    }
    match ended {
        true => show(r, "Logged out."),
        false => {
            r.log(Severity::Info, format_args!("front-channel logout without a session or \"iss\" and \"sid\""));
            Flow::Status(400)
        }
    }
}

/// Ends the sessions that a logout token names (OpenID Connect Back-Channel Logout 1.0).
fn log_out_in_back(providers: Vec<Arc<Provider>>, r: &mut Request) -> Flow {
    if r.target.method() != Method::Post {
        return Flow::Status(405);
    }
    let path = r.target.path().to_vec();
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let body = match body_store::read_small(&mut r).await {
                Ok(body) => body,
                Err(status) => return (r, Flow::Status(status)),
            };
            let here = providers.iter().filter(|provider| provider.backchannel_path.as_ref() == Some(&path));
            let resolving = request_resolver(&r);
            let ended = unless_gone(r.incoming.watch().cloned(), end_by_token(here, &body, resolving)).await;
            let Some(ended) = ended else {
                let flow = client_left(&mut r);
                return (r, flow);
            };
            let flow = match ended {
                Ok((provider, words)) => {
                    r.log(Severity::Info, format_args!("oidc_provider \"{provider}\": {words}"));
                    acknowledge(&mut r, 200, "")
                }
                // As the specification demands, whatever the reason.
                Err(why) => {
                    r.log(Severity::Error, format_args!("back-channel logout failed: {why}"));
                    acknowledge(&mut r, 400, "{\"error\":\"invalid_request\"}\n")
                }
            };
            (r, flow)
        })
    }))
}

/// Returns the provider's name and the sessions that have ended, in words.
async fn end_by_token(
    providers: impl Iterator<Item = &Arc<Provider>>,
    body: &[u8],
    resolving: Option<ResolveRules>,
) -> Result<(String, String), String> {
    let token =
        query_argument(body, b"logout_token").ok().flatten().ok_or("the body has no single \"logout_token\"")?;
    let claims =
        UnverifiedToken::parse(token.as_bytes()).and_then(|token| token.claims).ok_or("malformed logout token")?;
    let named = |provider: &&Arc<Provider>| {
        claims.get("iss").is_some_and(|issuer| *issuer == provider.issuer)
            && is_for(claims.get("aud"), &provider.client_id)
    };
    let mut found = Err("logout token of another issuer or for another audience".to_string());
    // Several blocks may be one client of one issuer; each has sessions of its own.
    for provider in providers.filter(named) {
        let metadata = provider.metadata(resolving.clone()).await.map_err(|why| why.to_string())?;
        let talk = ProviderClient::new(provider, resolving.clone(), metadata);
        let (ended, at) = talk.logout(&token).await.map_err(|why| why.to_string())?;
        provider.end_by_provider(&ended, at).map_err(|refusal| format!("the logout is not stored: {refusal}"))?;
        let words = match ended {
            EndedSessions::Sid(sid) => format!("logged out, session {sid:?}"),
            EndedSessions::Subject(subject) => format!("logged out, all sessions of {subject:?}"),
        };
        found = Ok((provider.name.clone(), words));
    }
    found
}

fn acknowledge(r: &mut Request, status: u16, body: &'static str) -> Flow {
    r.out.add("Cache-Control", "no-store");
    r.out.set_status(status);
    r.out.set_content_type("application/json");
    r.out.set_content_length(Some(body.len() as u64));
    Flow::Content(ResponseBody::Bytes(Bytes::from_static(body.as_bytes())))
}

fn show(r: &mut Request, text: &str) -> Flow {
    r.discard_body();
    let page = format!("<!DOCTYPE html>\n<html><head><title>Logout</title></head><body><p>{text}</p></body></html>\n");
    r.out.add("Cache-Control", "no-store");
    r.respond(200, "text/html", page)
}
