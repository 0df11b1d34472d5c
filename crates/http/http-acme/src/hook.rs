//! `acme_hook` (Angie): requests to a location before and after each challenge of a client. The location passes them to a program
//! that changes DNS records or files.

use super::dns::challenge_record;
use acme::{ChallengeKind, Identifier};
use conf_schema::{Cx, Directive, Problem, ValueKind};
use http_engine::{HttpPlan, HttpTemplate, Request, own_request};
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// Time for a request.
const LIMIT: Duration = Duration::from_secs(120);
const AGENT: &str = concat!("tidegate/", env!("CARGO_PKG_VERSION"), " (ACME client)");

/// `acme_hook` as written.
#[derive(Clone)]
pub struct HookLine {
    /// In lower case.
    pub client: String,
    uri: Option<HttpTemplate>,
}

impl ValueKind for HookLine {
    const SYNTAX: &'static str = "name [uri=uri]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let client = d.args.first().map(|word| word.text().to_ascii_lowercase()).unwrap_or_default();
        let uri = match d.args.get(1) {
            None => None,
            Some(word) => {
                let wrong = || Problem::says(format!("invalid parameter \"{}\"", word.text())).at(1);
                let text = word.bytes.strip_prefix(b"uri=").ok_or_else(wrong)?;
                if !text.starts_with(b"/") && !text.starts_with(b"$") {
                    return Err(wrong().hint("a URI begins with \"/\""));
                }
                Some(HttpTemplate::compile(cx, d, text).map_err(|problem| problem.at(1))?)
            }
        };
        Ok(HookLine { client, uri })
    }
    fn meets(&self, later: &Self, _: &mut Cx, _: &Directive) -> Result<(), Problem> {
        if self.client == later.client { Err(duplicate_hook(&self.client)) } else { Ok(()) }
    }
}

pub fn duplicate_hook(client: &str) -> Problem {
    Problem::says(format!("duplicate \"acme_hook {client}\" directive")).at(0)
}

/// The hooks of a location, in its extensions.
pub struct Hooks(pub Vec<HookLine>);

/// A request of a hook, for variables; shared by the request and its subrequests.
struct HookCall {
    client: String,
    action: &'static str,
    challenge: ChallengeKind,
    domain: String,
    token: String,
    authorization: String,
}

/// The hook of a client, while one of its orders is under way.
pub struct Hook {
    plan: Arc<HttpPlan>,
    location: usize,
    line: HookLine,
    /// Tokens of the challenges to be removed.
    added: RefCell<Vec<String>>,
}

impl Hook {
    /// Finds the hook of a client.
    pub fn find(plan: &Arc<HttpPlan>, client: &str) -> Option<Rc<Hook>> {
        let lines = |location: &http_engine::Location| {
            location.ext::<Hooks>()?.0.iter().find(|line| line.client == client).cloned()
        };
        let mut all = plan.locations.iter().enumerate();
        let (location, line) = all.find_map(|(at, location)| Some((at, lines(location)?)))?;
        Some(Rc::new(Hook { plan: plan.clone(), location, line, added: RefCell::default() }))
    }

    /// Requests to make a challenge answerable.
    ///
    /// # Errors
    /// No response, or one with a status other than 200 to 299.
    pub async fn add(
        &self,
        kind: ChallengeKind,
        identifier: &Identifier,
        token: &str,
        authorization: &str,
    ) -> Result<(), String> {
        self.added.borrow_mut().push(token.to_string());
        let called = self.call("add", kind, identifier, token, authorization).await;
        if called.is_err() {
            self.added.borrow_mut().retain(|added| added != token);
        }
        called
    }

    /// Requests the removal of a challenge, unless its addition has failed.
    ///
    /// # Errors
    /// As for [`Hook::add`].
    pub async fn remove(
        &self,
        kind: ChallengeKind,
        identifier: &Identifier,
        token: &str,
        authorization: &str,
    ) -> Result<(), String> {
        let known = self.added.borrow().iter().position(|added| added == token);
        let Some(at) = known else { return Ok(()) };
        self.added.borrow_mut().swap_remove(at);
        self.call("remove", kind, identifier, token, authorization).await
    }

    async fn call(
        &self,
        action: &'static str,
        challenge: ChallengeKind,
        identifier: &Identifier,
        token: &str,
        authorization: &str,
    ) -> Result<(), String> {
        base::clock::update();
        let name = identifier.to_string();
        let call = Rc::new(HookCall {
            client: self.line.client.clone(),
            action,
            challenge,
            domain: name.strip_prefix("*.").unwrap_or(&name).to_string(),
            token: token.to_string(),
            authorization: match challenge {
                ChallengeKind::Dns01 => challenge_record(identifier, authorization).1,
                _ => authorization.to_string(),
            },
        });
        let failed = |why: &dyn std::fmt::Display| {
            let at = self.plan.locations.get(self.location);
            let location = at.map(|location| String::from_utf8_lossy(&location.name).into_owned()).unwrap_or_default();
            format!("\"acme_hook {}\" in location \"{location}\" failed ({action} for \"{name}\"): {why}", call.client)
        };
        let server = self.plan.locations.get(self.location).map_or(0, |location| location.server);
        let create = |uri: &[u8]| {
            let mut r = own_request::create_request(&self.plan, server, uri, AGENT)?;
            r.select_location(self.location);
            r.share(call.clone());
            Ok(r)
        };
        let sent = async {
            let mut r = create(b"/")?;
            if let Some(uri) = &self.line.uri {
                let uri = uri.eval(&mut r);
                r = create(&uri)?;
            }
            own_request::run_request(r, self.location, LIMIT).await
        };
        match sent.await {
            Ok(200..=299) => Ok(()),
            Ok(status) => Err(failed(&format_args!("the response has status {status}"))),
            Err(why) => Err(failed(&why)),
        }
    }
}

fn with(r: &mut Request, out: &mut Vec<u8>, part: fn(&HookCall) -> &str) -> bool {
    let call: Option<Rc<HookCall>> = r.shared();
    call.map(|call| out.extend_from_slice(part(&call).as_bytes())).is_some()
}

/// Writes `$acme_hook_client`.
pub fn write_client(r: &mut Request, out: &mut Vec<u8>) -> bool {
    with(r, out, |call| &call.client)
}

/// Writes `$acme_hook_name`.
pub fn write_action(r: &mut Request, out: &mut Vec<u8>) -> bool {
    with(r, out, |call| call.action)
}

/// Writes `$acme_hook_challenge`.
pub fn write_challenge(r: &mut Request, out: &mut Vec<u8>) -> bool {
    with(r, out, |call| match call.challenge {
        ChallengeKind::Http01 => "http",
        ChallengeKind::Dns01 => "dns",
        ChallengeKind::TlsAlpn01 => "alpn",
    })
}

/// Writes `$acme_hook_domain`.
pub fn write_domain(r: &mut Request, out: &mut Vec<u8>) -> bool {
    with(r, out, |call| &call.domain)
}

/// Writes `$acme_hook_token`.
pub fn write_token(r: &mut Request, out: &mut Vec<u8>) -> bool {
    with(r, out, |call| &call.token)
}

/// Writes `$acme_hook_keyauth`.
pub fn write_authorization(r: &mut Request, out: &mut Vec<u8>) -> bool {
    with(r, out, |call| &call.authorization)
}
