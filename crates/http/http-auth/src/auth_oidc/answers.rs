//! The paths of a provider on this server: the return from a login, logout, and front-channel logout. They are answered in every
//! server with an `auth_oidc` of the provider, after the limits of the location and whatever its access rules.

use super::discovery::Metadata;
use super::gate::Gate;
use super::login::{Return, argument, complain, origin, redirect, resolving, set_cookie, with_arguments};
use super::provider::Provider;
use super::session::Session;
use super::tokens::form;
use bytes::Bytes;
use http_engine::{Body, Flow, Handler, Request};
use http_types::Method;
use observe::Level;
use std::sync::Arc;

/// See the module's documentation.
pub struct ProviderPaths(pub Arc<[Arc<Provider>]>);

impl Handler for ProviderPaths {
    fn run(&self, r: &mut Request) -> Flow {
        if !self.0.iter().any(|provider| provider.answers(&r.target.path)) || r.is_subrequest() {
            return Flow::Declined;
        }
        let plan = r.plan_rc();
        let server = r.scope.server;
        let gates = || plan.locations.iter().filter(|l| l.server == server).filter_map(|l| l.ext::<Gate>());
        let mine = self.0.iter().filter(|p| p.answers(&r.target.path) && gates().any(|gate| gate.may_use(p)));
        let mine: Vec<Arc<Provider>> = mine.cloned().collect();
        let path: &[u8] = &r.target.path;
        if mine.is_empty() {
            return Flow::Declined;
        }
        if mine.iter().any(|provider| provider.redirect.path == path) {
            return come_back(&mine, r);
        }
        let is_logout = mine.iter().any(|provider| provider.logout_path.as_deref() == Some(path));
        if is_logout { log_out(&mine, r) } else { log_out_in_front(&mine, r) }
    }
}

/// Completes a login at the provider that has begun it.
fn come_back(providers: &[Arc<Provider>], r: &mut Request) -> Flow {
    if !matches!(r.target.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    let here = providers.iter().filter(|provider| provider.redirect.path[..] == r.target.path[..]);
    match here.into_iter().find_map(|provider| Return::of(provider, r)) {
        Some(back) => back.complete(r),
        None => {
            r.log(Level::Error, format_args!("authentication response without a login of this browser"));
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
    let here: Vec<Arc<Provider>> =
        providers.iter().filter(|p| p.logout_path.as_deref() == Some(&*r.target.path)).cloned().collect();
    let (provider, session) = with_session(&here, r);
    let secure = origin(&provider, r).starts_with("https:");
    if let Some((key, _)) = &session {
        provider.end(key);
    }
    set_cookie(r, &provider.cookie_name, None, secure);
    let hint = session.filter(|_| provider.logout_token_hint).map(|(_, session)| session.id_token);
    if let Some(metadata) = provider.known_metadata() {
        return leave(&provider, r, hint.as_deref(), Some(&metadata));
    }
    let resolving = resolving(r);
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let metadata = provider.metadata(resolving).await;
            // The session here has ended, whatever the provider does.
            let metadata = metadata.inspect_err(|why| complain(&r, &provider, why)).ok();
            let flow = leave(&provider, &mut r, hint.as_deref(), metadata.as_deref());
            (r, flow)
        })
    }))
}

/// Sends a client that has logged out to the provider, to the configured page, or shows the built-in one.
fn leave(provider: &Provider, r: &mut Request, hint: Option<&str>, metadata: Option<&Metadata>) -> Flow {
    let page = provider.post_logout.as_ref().map(|page| match page.starts_with('/') {
        true => format!("{}{page}", origin(provider, r)),
        false => page.clone(),
    });
    if let Some(url) = metadata.and_then(|metadata| metadata.end_session.as_ref()) {
        let mut arguments = vec![("client_id", provider.client_id.as_str())];
        arguments.extend(hint.map(|token| ("id_token_hint", token)));
        arguments.extend(page.as_deref().map(|page| ("post_logout_redirect_uri", page)));
        return redirect(r, with_arguments(&url.to_string(), &form(&arguments)));
    }
    match page {
        Some(page) => redirect(r, page),
        None => show(r, "You have been logged out."),
    }
}

/// Ends the sessions that the provider or the cookie names (OpenID Connect Front-Channel Logout 1.0).
fn log_out_in_front(providers: &[Arc<Provider>], r: &mut Request) -> Flow {
    if !matches!(r.target.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    let (Ok(issuer), Ok(sid)) = (argument(&r.target.args, b"iss"), argument(&r.target.args, b"sid")) else {
        return Flow::Status(400);
    };
    let mut ended = false;
    let path = r.target.path.to_vec();
    for provider in providers.iter().filter(|p| p.frontchannel_path.as_ref() == Some(&path)) {
        if issuer.as_ref().is_some_and(|issuer| *issuer != provider.issuer) {
            continue;
        }
        if let (Some(_), Some(sid)) = (&issuer, &sid) {
            provider.end_all_of(sid);
            ended = true;
        } else if let Some((key, _)) = provider.session_of(r) {
            provider.end(&key);
            let secure = origin(provider, r).starts_with("https:");
            set_cookie(r, &provider.cookie_name, None, secure);
            ended = true;
        }
    }
    match ended {
        true => show(r, "Logged out."),
        false => {
            r.log(Level::Info, format_args!("front-channel logout without a session or \"iss\" and \"sid\""));
            Flow::Status(400)
        }
    }
}

fn show(r: &mut Request, text: &str) -> Flow {
    r.discard_body();
    let page = format!("<!DOCTYPE html>\n<html><head><title>Logout</title></head><body><p>{text}</p></body></html>\n");
    r.out.add("Cache-Control", "no-store");
    r.out.status = 200;
    r.out.content_type = "text/html".into();
    r.out.content_length = Some(page.len() as u64);
    Flow::Content(Body::Bytes(Bytes::from(page)))
}
