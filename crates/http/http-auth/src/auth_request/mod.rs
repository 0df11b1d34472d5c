//! auth_request (nginx: `ngx_http_auth_request_module`): a subrequest authorizes requests.
//!
//! 2xx admits, 401 and 403 reject, any other status is 500. The subrequest has no body: a server that gets it sees no
//! `Content-Length`, whatever the client sent.

use conf_schema::value::Text;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use http_engine::failed_logins::{self, LoginAttempt};
use http_engine::path::CanonicalPath;
use http_engine::response::OutField;
use http_engine::variable::{HttpVariables, VarId};
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request, subrequest};
use http_types::Known;
use http_upstream::upstream_state::UpstreamState;
use observe::Severity;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct AuthRequestConf from AuthRequestInput {
        /// Authorizes requests by a subrequest to this URI: 2xx admits, 401 and 403 reject. `off` disables the check.
        auth_request: Text = "off",
        /// Sets a variable after the authorization subrequest; the value may use that subrequest's variables.
        auth_request_set: Assignments,
    }
}

/// `auth_request_set` lines.
#[derive(Clone)]
pub struct Assignments(Vec<(VarId, HttpTemplate)>);

impl ValueKind for Assignments {
    const SYNTAX: &'static str = "$variable value";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let [name, value] = d.args.as_slice() else { return Err(Problem::invalid()) };
        let text = name.text().into_owned();
        let Some(name) = text.strip_prefix('$').filter(|n| !n.is_empty()) else {
            return Err(Problem::says(format!("invalid variable name \"{text}\""))
                .at(0)
                .hint("a variable name begins with \"$\""));
        };
        let id = cx.get::<HttpVariables>().writable(name).map_err(|p| p.at(0))?;
        let value = HttpTemplate::compile(cx, d, &value.bytes).map_err(|p| p.at(1))?;
        Ok(Assignments(vec![(id, value)]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// The feature.
pub struct AuthRequest;

impl Feature for AuthRequest {
    fn table(&self) -> FeatureTable {
        AuthRequestConf::table("auth_request", ContextArea::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<AuthRequestConf>() else { return Ok(()) };
        if conf.auth_request.0 != b"off" {
            let uri = CanonicalPath::configured(&conf.auth_request.0)?;
            let sets = conf.auth_request_set.as_ref().map(|a| a.0.as_slice().into()).unwrap_or_default();
            block.handle(HandlerOrder::AuthRequest, Arc::new(SubrequestCheck { uri, sets }));
        }
        Ok(())
    }
}

struct SubrequestCheck {
    uri: CanonicalPath,
    sets: Arc<[(VarId, HttpTemplate)]>,
}

impl Handler for SubrequestCheck {
    fn run(&self, r: &mut Request) -> Flow {
        let (uri, sets) = (self.uri.clone(), self.sets.clone());
        // A request without credentials, which is sent to a login page, is no failed login.
        if r.header(Known::Authorization).is_none() {
            return ask(r, None, uri, sets);
        }
        failed_logins::judge_login(r, move |r, attempt| ask(r, Some(attempt), uri, sets))
    }
}

fn ask(r: &mut Request, attempt: Option<LoginAttempt>, uri: CanonicalPath, sets: Arc<[(VarId, HttpTemplate)]>) -> Flow {
    let Ok(mut child) = r.subrequest(uri, Vec::new()) else { return Flow::Status(500) };
    child.reply.send_head_only();
    child.incoming.set_body_length(None);
    child.leave_body();
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let (mut child, body) = match subrequest::head_or_status(child).await {
                Ok(answered) => answered,
                Err(status) => return (r, Flow::Status(status)),
            };
            drop(body);
            for (id, value) in &*sets {
                let value = value.eval(&mut child);
                r.set_variable(*id, value);
            }
            let (status, challenges) = (child.out.status(), challenges(&child));
            let from_server = child.upstream.get::<UpstreamState>().is_some();
            subrequest::log_subrequest(child);
            match attempt {
                Some(attempt) if matches!(status, 401 | 403) => attempt.fail(&mut r),
                attempt => drop(attempt),
            }
            let flow = verdict(&mut r, status, challenges, from_server);
            (r, flow)
        })
    }))
}

/// The `WWW-Authenticate` fields of an answer: its own, or those of the server behind it.
fn challenges(child: &Request) -> Vec<OutField> {
    let is = |name: &[u8]| name.eq_ignore_ascii_case(b"WWW-Authenticate");
    let own: Vec<OutField> = child.out.fields().iter().filter(|f| is(f.name.bytes())).cloned().collect();
    if !own.is_empty() {
        return own;
    }
    let Some(answer) = child.upstream.get::<UpstreamState>().and_then(|state| state.answer.as_ref()) else {
        return Vec::new();
    };
    let text = |span: http_types::Span| span.of(&answer.buf).to_vec().into();
    let fields = answer.head.fields.all.iter().filter(|field| is(field.name.of(&answer.buf)));
    fields.map(|field| OutField { name: text(field.name), value: text(field.value) }).collect()
}

fn verdict(r: &mut Request, status: u16, challenges: Vec<OutField>, from_server: bool) -> Flow {
    match status {
        200..=299 => {
            failed_logins::forgive_failure(r);
            Flow::Allowed
        }
        403 => Flow::Status(403),
        401 => {
            r.out.fields_mut().extend(challenges);
            Flow::Status(401)
        }
        status => {
            // nginx's connection keeps the last action of the exchange with the server.
            let action = if from_server { " while sending to client" } else { "" };
            r.log(Severity::Error, format_args!("auth request unexpected status: {status}{action}"));
            Flow::Status(500)
        }
    }
}
