//! `auth_oidc`: admits requests with a session, and sends others to the provider.

use super::login::{begin_login, log_failure, request_resolver};
use super::provider::Provider;
use super::session::Session;
use super::variables::SessionClaims;
use http_engine::values::Satisfy;
use http_engine::{Flow, Handler, HttpTemplate, Request, unless_gone};
use observe::Severity;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

/// The provider of a location.
pub enum Gate {
    Fixed(Arc<Provider>),
    /// By the value of a text with variables.
    Named(HttpTemplate, Arc<BTreeMap<String, Arc<Provider>>>),
}

impl Gate {
    pub fn may_use(&self, provider: &Arc<Provider>) -> bool {
        match self {
            Gate::Fixed(own) => Arc::ptr_eq(own, provider),
            Gate::Named(..) => true,
        }
    }
    /// Chooses the provider; `Ok(None)`: `off`.
    fn choose(&self, r: &mut Request) -> Result<Option<Arc<Provider>>, String> {
        match self {
            Gate::Fixed(provider) => Ok(Some(provider.clone())),
            Gate::Named(template, all) => {
                let name = String::from_utf8_lossy(&template.eval(r)).into_owned();
                match all.get(&name) {
                    Some(provider) => Ok(Some(provider.clone())),
                    None if name == "off" => Ok(None),
                    None => Err(name),
                }
            }
        }
    }
}

/// The handler.
pub struct SessionCheck(pub Arc<Gate>);

impl Handler for SessionCheck {
    fn run(&self, r: &mut Request) -> Flow {
        let provider = match self.0.choose(r) {
            Ok(Some(provider)) => provider,
            Ok(None) => return Flow::Declined,
            Err(name) => {
                r.log(Severity::Error, format_args!("oidc_provider \"{name}\" is not defined"));
                return Flow::Status(500);
            }
        };
        // A session of an earlier location does not apply to this one.
        r.share(Rc::new(SessionClaims::none()));
        let Some((key, session)) = provider.session_of(r) else {
            if has_alternatives(r) {
                return Flow::Declined;
            }
            return match provider.known_metadata() {
                Some(metadata) => begin_login(&provider, r, &metadata),
                None => later(provider),
            };
        };
        let now = base::clock::unix_millis();
        if session.is_due(now) {
            let is_over = session.is_over(now);
            let (mut done, refresh) = provider.state.refresh(&key);
            if let Some(turn) = refresh {
                let (provider, key, resolving) = (provider.clone(), key.clone(), request_resolver(r));
                let log = r.loc().core.error_log.clone();
                // Detached from the request: a refresh that a leaving client cuts could lose the new refresh token.
                drop(runtime::task::spawn_local(async move {
                    // Another thread may have refreshed it since it was read: its refresh token is valid once.
                    let due = provider.find(&key).filter(|session| session.is_due(now));
                    let Some(session) = due else { return drop(turn) };
                    // So may another server.
                    let Some(session) = provider.take_refresh(&key, session, now).await else { return drop(turn) };
                    if let Err(why) = provider.refresh(&key, session, resolving).await {
                        let name = &provider.name;
                        log.log(
                            Severity::Error,
                            0,
                            format_args!("oidc_provider \"{name}\": {why} while refreshing a session"),
                        );
                    }
                    drop(turn);
                    provider.end_refresh(&key).await;
                }));
            }
            if is_over {
                return Flow::Later(Box::new(move |mut r| {
                    Box::pin(async move {
                        // Ends with the sender.
                        let refreshed = async { while done.changed().await.is_ok() {} };
                        if unless_gone(r.incoming.watch().cloned(), refreshed).await.is_none() {
                            let flow = client_left(&mut r);
                            return (r, flow);
                        }
                        base::clock::update();
                        let flow = match provider.find(&key) {
                            Some(session) => admit(&mut r, session),
                            None if has_alternatives(&r) => Flow::Declined,
                            None => log_in(&provider, &mut r).await,
                        };
                        (r, flow)
                    })
                }));
            }
        }
        admit(r, session)
    }
}

/// Tells whether later checks may admit the request: [`LoginStart`] comes after them.
fn has_alternatives(r: &Request) -> bool {
    r.loc().core.conf.satisfy == Satisfy::Any
}

/// The handler that starts a login if no check admitted the request (`satisfy any`).
pub struct LoginStart(pub Arc<Gate>);

impl Handler for LoginStart {
    fn run(&self, r: &mut Request) -> Flow {
        if !has_alternatives(r) {
            return Flow::Declined;
        }
        // `SessionCheck` has complained about others.
        let Ok(Some(provider)) = self.0.choose(r) else { return Flow::Declined };
        // The login takes the place of another check's challenge.
        r.out.fields_mut().retain(|field| !field.name.bytes().eq_ignore_ascii_case(b"WWW-Authenticate"));
        match provider.known_metadata() {
            Some(metadata) => begin_login(&provider, r, &metadata),
            None => later(provider),
        }
    }
}

fn admit(r: &mut Request, session: Session) -> Flow {
    r.share(Rc::new(SessionClaims::of(session)));
    http_engine::failed_logins::forgive_failure(r);
    Flow::Allowed
}

fn later(provider: Arc<Provider>) -> Flow {
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let flow = log_in(&provider, &mut r).await;
            (r, flow)
        })
    }))
}

/// Ends a request whose client has left.
pub fn client_left(r: &mut Request) -> Flow {
    r.log(Severity::Info, format_args!("client prematurely closed connection while waiting for an OpenID provider"));
    Flow::Status(499)
}

async fn log_in(provider: &Arc<Provider>, r: &mut Request) -> Flow {
    match unless_gone(r.incoming.watch().cloned(), provider.metadata(request_resolver(r))).await {
        None => client_left(r),
        Some(Ok(metadata)) => begin_login(provider, r, &metadata),
        Some(Err(why)) => {
            log_failure(r, provider, &why);
            Flow::Status(why.status())
        }
    }
}
