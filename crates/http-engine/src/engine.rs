//! The phases of a request, in their order (nginx: `ngx_http_core_run_phases`). Nothing waits here: a handler that must wait
//! returns a future, and whoever drives the connection awaits it.

use crate::exchange::{self, Exchange};
use crate::path::{CanonicalPath, FilePath};
use crate::plan::{FilterOrder, HandlerOrder, Location};
use crate::request::{Flow, LocalFuture, Request, RequestBody, URI_CHANGES_MAX};
use crate::response::Body;
use crate::route::{self, Route};
use crate::special;
use crate::trace::StepKind;
use crate::values::Satisfy;
use http_types::{BodyLength, Method, Version};
use observe::Level;

/// Where a request is; the order of the variants is the order of the phases.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    #[default]
    ServerRewrite,
    FindLocation,
    Rewrite,
    PostRewrite,
    Preaccess,
    Access,
    PostAccess,
    Precontent,
    Content,
}

/// What the engine has for the connection.
pub enum Outcome {
    /// Send `Request::out` and this body.
    Ready(Box<Request>, Body),
    /// Close the connection; nothing is sent.
    Close(Box<Request>),
    /// What a handler says, later: [`finish`] goes on with it.
    Later(LocalFuture<(Box<Request>, Flow)>),
    /// The same, to be polled in place: [`after`] goes on with what it says.
    Exchange(Box<Request>, Box<dyn Exchange>),
    /// The same of the engine itself.
    Wait(LocalFuture<Outcome>),
}

/// Begins with a parsed request.
pub fn start(mut r: Box<Request>) -> Outcome {
    r.uri_changes_left = URI_CHANGES_MAX;
    r.phase = Phase::ServerRewrite;
    r.location = r.srv().location;
    r.handler = 0;
    if r.undecided {
        return settle(r, Flow::Status(500));
    }
    run(r)
}

/// Begins, or goes on, with a subrequest where it stands (see `subrequest.rs`).
pub fn resume(r: Box<Request>) -> Outcome {
    run(r)
}

/// Ends a request that went wrong before the phases (a bad head, say) with this status.
pub fn fail(mut r: Box<Request>, status: u16) -> Outcome {
    r.uri_changes_left = URI_CHANGES_MAX;
    r.location = r.srv().location;
    settle(r, Flow::Status(status))
}

/// Runs phases until there is an answer or something must wait.
fn run(mut r: Box<Request>) -> Outcome {
    loop {
        match step(&mut r) {
            Flow::Declined => {}
            Flow::Later(later) => return Outcome::Later(later(r)),
            Flow::Exchange(exchange) => return Outcome::Exchange(r, exchange),
            flow => return settle(r, flow),
        }
    }
}

/// Goes on after a handler that had to wait, with its answer.
pub fn after(mut r: Box<Request>, flow: Flow) -> Outcome {
    if !matches!(flow, Flow::Declined) {
        r.note(StepKind::Check(HandlerOrder::Files), r.loc().at, |_| crate::trace::said(&flow));
    }
    match flow {
        Flow::Declined => run(r),
        Flow::Allowed => {
            allowed(&mut r);
            run(r)
        }
        Flow::Rewritten => {
            rewritten(&mut r);
            run(r)
        }
        flow => match after_access(&mut r, flow) {
            Flow::Declined => run(r),
            flow => settle(r, flow),
        },
    }
}

/// Drives an outcome to its end.
pub async fn finish(mut outcome: Outcome) -> (Box<Request>, Option<Body>) {
    loop {
        match outcome {
            Outcome::Ready(r, body) => return (r, Some(body)),
            Outcome::Close(r) => return (r, None),
            Outcome::Later(work) => {
                let (r, flow) = work.await;
                outcome = after(r, flow);
            }
            Outcome::Exchange(r, exchange) => {
                let (r, flow) = exchange::drive(exchange, r).await;
                outcome = after(r, flow);
            }
            Outcome::Wait(later) => outcome = later.await,
        }
    }
}

fn allowed(r: &mut Request) {
    if r.phase == Phase::Access && r.loc().core.conf.satisfy == Satisfy::Any {
        r.access_status = 0;
        // What another rule has asked for is not needed any more.
        r.out.fields.retain(|field| !field.name.bytes().eq_ignore_ascii_case(b"WWW-Authenticate"));
        r.phase = Phase::PostAccess;
        r.handler = 0;
    }
}

fn rewritten(r: &mut Request) {
    r.phase = Phase::PostRewrite;
    r.handler = 0;
}

/// `satisfy any` turns a refusal into "perhaps the next one allows".
fn after_access(r: &mut Request, flow: Flow) -> Flow {
    match flow {
        Flow::Status(status @ (401 | 403 | 407))
            if r.phase == Phase::Access && r.loc().core.conf.satisfy == Satisfy::Any =>
        {
            if !matches!(r.access_status, 401 | 407) {
                r.access_status = status;
            }
            Flow::Declined
        }
        flow => flow,
    }
}

/// The handlers of a phase that is passed over.
const NOBODY: Vec<std::sync::Arc<dyn crate::plan::Handler>> = Vec::new();

/// Runs until a handler has something to say, or a phase of the engine's own has.
fn step(r: &mut Request) -> Flow {
    let plan = r.plan_rc();
    loop {
        let location: &Location = plan.loc(r.location);
        // Each arm: the phase's handlers, and the phase that follows.
        let (handlers, next) = match r.phase {
            Phase::ServerRewrite => (&plan.srv(r.server).rewrite, Phase::FindLocation),
            Phase::FindLocation => match find_location(r) {
                Flow::Declined => continue,
                flow => return flow,
            },
            Phase::Rewrite => (&location.rewrite, Phase::PostRewrite),
            Phase::PostRewrite => match post_rewrite(r) {
                Flow::Declined => continue,
                flow => return flow,
            },
            Phase::Preaccess => (&location.preaccess, Phase::Access),
            // Who may have the main request's answer may have its parts.
            Phase::Access if r.is_subrequest() => (&NOBODY, Phase::PostAccess),
            Phase::Access => (&location.access, Phase::PostAccess),
            Phase::PostAccess => match post_access(r) {
                Flow::Declined => continue,
                flow => return flow,
            },
            Phase::Precontent => (&location.precontent, Phase::Content),
            Phase::Content => match &location.content {
                Some(_) if r.trace.is_some() && rehearsed(r, location) => return Flow::Close,
                Some(handler) => return handler.run(r),
                None if r.handler_lost => {
                    r.log(Level::Error, format_args!("no upstream configuration"));
                    return Flow::Status(500);
                }
                None => (&location.content_chain, Phase::Content),
            },
        };
        let Some(handler) = handlers.get(r.handler) else {
            if r.phase == Phase::Content {
                return nobody_answers(r);
            }
            r.handler = 0;
            r.phase = next;
            continue;
        };
        r.handler += 1;
        let flow = match r.trace.is_some() {
            false => handler.run(r),
            true => traced(r, location, &**handler),
        };
        match flow {
            Flow::Declined => {}
            Flow::Allowed => allowed(r),
            Flow::Rewritten => {
                if r.phase == Phase::Rewrite {
                    rewritten(r);
                } else {
                    // The server's own rewrites: locations are found afterwards anyway.
                    r.phase = Phase::FindLocation;
                    r.handler = 0;
                }
            }
            flow => match after_access(r, flow) {
                Flow::Declined => {}
                flow => return flow,
            },
        }
    }
}

/// A handler with its answer content, of a request that is traced; true: a rehearsal, which ends here.
#[cold]
fn rehearsed(r: &Request, location: &Location) -> bool {
    let (name, at) = location.answered_by.unwrap_or(("content", location.at));
    r.note(StepKind::Handler, at, |_| name.to_string());
    let ends = r.is_rehearsal() && crate::answering::passes_on(name);
    if let Some(trace) = r.trace.as_ref().filter(|_| ends) {
        trace.ends_at.set(Some((name, at)));
    }
    ends
}

/// Runs a handler of a request that is traced.
#[cold]
fn traced(r: &mut Request, location: &Location, handler: &dyn crate::plan::Handler) -> Flow {
    let (phase, index) = (r.phase, r.handler - 1);
    let at_server = phase == Phase::ServerRewrite;
    let plan = r.plan_rc();
    let orders = if at_server { &plan.loc(r.srv().location).orders } else { &location.orders };
    let order = orders.iter().copied().filter(|order| order.phase() == phase).nth(index);
    let Some(order) = order else { return handler.run(r) };
    // These note themselves what they do.
    let is_script = matches!(order, HandlerOrder::Script | HandlerOrder::ServerScript | HandlerOrder::ServerExplain);
    let reads = matches!(r.method, Method::Get | Method::Head);
    if r.is_rehearsal() && crate::trace::has_effects(order) && !(order == HandlerOrder::Dav && reads) {
        r.note(StepKind::Check(order), location.at, |_| "would be asked here; taken as passed".into());
        if order == HandlerOrder::Dav {
            if let Some(trace) = &r.trace {
                trace.ends_at.set(Some(("dav_methods", location.at)));
            }
            return Flow::Close;
        }
        return Flow::Declined;
    }
    let before = if phase == Phase::Precontent { r.path.clone() } else { CanonicalPath::default() };
    let flow = handler.run(r);
    let silent = matches!(flow, Flow::Declined);
    let kind = if phase == Phase::Content { StepKind::Handler } else { StepKind::Check(order) };
    if is_script || (phase == Phase::Content && silent) {
        return flow;
    }
    let opened =
        if phase == Phase::Content { special::mapped_path(r).unwrap_or_default() } else { FilePath::default() };
    r.note(kind, location.at, |r| match (phase, silent) {
        (Phase::Content, _) => {
            format!("{order:?} {}: {}", crate::trace::said(&flow), String::from_utf8_lossy(&opened))
        }
        (Phase::Precontent, true) if r.path != before => format!("found \"{}\"", String::from_utf8_lossy(&r.path)),
        (_, true) => "passes".into(),
        _ => crate::trace::said(&flow),
    });
    flow
}

/// All content handlers declined.
fn nobody_answers(r: &mut Request) -> Flow {
    if r.path.ends_with(b"/") {
        let path = match special::mapped_path(r) {
            Ok(path) => path,
            Err(status) => return Flow::Status(status),
        };
        r.log(Level::Error, format_args!("directory index of \"{}\" is forbidden", String::from_utf8_lossy(&path)));
        return Flow::Status(403);
    }
    r.log(Level::Error, format_args!("no handler found"));
    Flow::Status(404)
}

fn find_location(r: &mut Request) -> Flow {
    r.match_again = false;
    let Ok(route) = route::find(r) else { return Flow::Status(500) };
    let mut slash = false;
    match route {
        Route::Server => r.location = r.srv().location,
        Route::Location(location) => r.location = location,
        Route::Slash(location) => {
            slash = true;
            r.location = location;
        }
    }
    if r.loc().internal && !r.internal {
        r.note(StepKind::Location, r.loc().at, |r| format!("{}, which is internal: not for clients", chosen(r)));
        return Flow::Status(404);
    }
    r.note(StepKind::Location, r.loc().at, chosen);
    enter_location(r);
    let limit = r.loc().core.conf.client_max_body_size.0;
    if let Some(BodyLength::Exact(length)) = r.body_length
        && limit != 0
        && length > limit
        // What was too large once is dropped: the page that says so is not refused for it. So is what nobody had read when the
        // response was sent.
        && !(r.error_page && r.expect_tested)
        && !(r.post_action && r.asked.is_none())
    {
        r.log(Level::Error, format_args!("client intended to send too large body: {length} bytes"));
        r.refuse_body();
        return Flow::Status(413);
    }
    if slash {
        let mut target = Vec::new();
        crate::path::escape_uri(&r.loc().name.clone(), &mut target);
        if !r.args.is_empty() {
            target.push(b'?');
            target.extend_from_slice(&r.args);
        }
        r.out.location = target.into();
        return Flow::Status(301);
    }
    r.phase = Phase::Rewrite;
    Flow::Declined
}

/// The location that a request is in, in words.
fn chosen(r: &Request) -> String {
    let location = r.loc();
    if location.at == r.plan().loc(r.srv().location).at {
        return "none: the server's own level".into();
    }
    let sign = match () {
        () if location.exact => "= ",
        () if location.regex => "~ ",
        () => "",
    };
    format!("{sign}{}", String::from_utf8_lossy(&location.name))
}

/// What a location changes for the connection (nginx: `ngx_http_update_location_config`).
pub fn enter_location(r: &mut Request) {
    r.handler_lost = false;
    if let Some(limit) = &r.loc().limit_except
        && limit.allowed & (1 << (r.method as u32)) == 0
    {
        r.location = limit.location;
    }
    if !r.keep_alive {
        return;
    }
    let conf = &r.loc().core.conf;
    let connection = r.connection();
    let age = base::clock::now().millis_since(connection.started);
    r.keep_alive = conf.keepalive_timeout.millis != 0
        && u64::from(connection.requests.get()) < conf.keepalive_requests.0
        && age <= conf.keepalive_time.0
        && !special::keepalive_disabled(r);
}

fn post_rewrite(r: &mut Request) -> Flow {
    if !r.path_changed_now() {
        r.phase = Phase::Preaccess;
        return Flow::Declined;
    }
    r.uri_changes_left = r.uri_changes_left.saturating_sub(1);
    if r.uri_changes_left == 0 {
        let path = String::from_utf8_lossy(&r.path).into_owned();
        r.log(Level::Error, format_args!("rewrite or internal redirection cycle while processing \"{path}\""));
        return Flow::Status(500);
    }
    r.phase = Phase::FindLocation;
    r.location = r.srv().location;
    Flow::Declined
}

fn post_access(r: &mut Request) -> Flow {
    let status = std::mem::take(&mut r.access_status);
    if status != 0 {
        if status == 403 {
            r.log(Level::Error, format_args!("access forbidden by rule"));
        }
        return Flow::Status(status);
    }
    r.phase = Phase::Precontent;
    Flow::Declined
}

/// Acts on what a handler said, up to the response.
fn settle(mut r: Box<Request>, mut flow: Flow) -> Outcome {
    if let Flow::Status(status @ (401 | 407)) = flow
        && matches!(r.phase, Phase::Access | Phase::PostAccess)
        && r.loc().core.conf.auth_delay.0 > 0
        && !r.is_rehearsal()
    {
        // Once, and only for what the access checks said.
        r.phase = Phase::Content;
        let delay = r.loc().core.conf.auth_delay.duration();
        let later = move |r| -> LocalFuture<(Box<Request>, Flow)> {
            Box::pin(async move {
                runtime::time::sleep(delay).await;
                base::clock::update();
                (r, Flow::Status(status))
            })
        };
        return Outcome::Later(later(r));
    }
    loop {
        match flow {
            Flow::Content(body) if transforms(&mut r) => {
                let judged = r.ignore_conditions;
                let body = match conditions(&mut r, body) {
                    Ok(body) => body,
                    Err(status) => {
                        flow = Flow::Status(status);
                        continue;
                    }
                };
                let plan = r.plan_rc();
                let transform = plan.loc(r.location).transform.clone().filter(|_| r.out.status != 304);
                let Some(transform) = transform else {
                    flow = Flow::Content(body);
                    continue;
                };
                return Outcome::Wait(Box::pin(async move {
                    let (mut r, flow) = transform.run(r, body).await;
                    // Another page has conditions of its own.
                    r.ignore_conditions = judged || matches!(flow, Flow::Content(_));
                    settle(r, flow)
                }));
            }
            Flow::Content(body) => match respond(&mut r, body) {
                Ok(body) => return Outcome::Ready(r, body),
                Err(status) => {
                    r.filter_failed = status != 416;
                    flow = special::respond(&mut r, status);
                    if let Flow::Content(_) = flow {
                        // The page of a filter's error passes the filters, too; a second error ends it.
                        if let Flow::Content(body) = flow {
                            let body = respond(&mut r, body).unwrap_or_default();
                            return Outcome::Ready(r, body);
                        }
                        return Outcome::Close(r);
                    }
                }
            },
            // Where a filter's error was sent and an action done, nothing that goes wrong afterwards changes what is logged.
            Flow::Status(_) if r.settled => return Outcome::Close(r),
            Flow::Status(444) | Flow::Close => return Outcome::Close(r),
            Flow::Status(status @ (408 | 499)) if r.phase_is_final(status) => {
                r.out.status = status;
                return Outcome::Close(r);
            }
            Flow::Status(status) if r.sub.as_ref().is_some_and(|sub| sub.bare_errors) => {
                r.out.status = status;
                return Outcome::Ready(r, Body::Empty);
            }
            Flow::Status(status) => {
                r.note(StepKind::Status, r.loc().at, |_| status.to_string());
                flow = special::respond(&mut r, status);
            }
            Flow::Redirect { path, args, internal } => {
                r.uri_changes_left = r.uri_changes_left.saturating_sub(1);
                if r.uri_changes_left == 0 {
                    let shown = String::from_utf8_lossy(&path).into_owned();
                    r.log(
                        Level::Error,
                        format_args!(
                            "rewrite or internal redirection cycle while internally redirecting to \"{shown}\""
                        ),
                    );
                    flow = special::last_resort(&mut r);
                    continue;
                }
                r.append_to_alias = false;
                r.action = None;
                if !r.post_action {
                    r.old_location = std::mem::take(&mut r.out.location);
                }
                r.path = path;
                // An empty one that is kept (an index file's) stays one.
                r.args_given = !args.is_empty() || (r.args_given && r.args.is_empty());
                r.args = args;
                r.note(StepKind::Redirect, r.loc().at, |r| format!("to \"{}\"", String::from_utf8_lossy(&r.path)));
                r.internal = internal;
                r.path_changed = true;
                r.left_location = false;
                r.location = r.srv().location;
                r.phase = Phase::ServerRewrite;
                r.handler = 0;
                return run(r);
            }
            Flow::Named(name) => {
                r.uri_changes_left = r.uri_changes_left.saturating_sub(1);
                let found = if r.uri_changes_left == 0 { None } else { r.srv().tree.named(&name) };
                let Some(location) = found else {
                    let shown = String::from_utf8_lossy(&name).into_owned();
                    let why = if r.uri_changes_left == 0 {
                        "rewrite or internal redirection cycle while redirect to"
                    } else {
                        "could not find"
                    };
                    r.log(Level::Error, format_args!("{why} named location \"{shown}\""));
                    flow = if r.uri_changes_left == 0 { special::last_resort(&mut r) } else { Flow::Status(500) };
                    continue;
                };
                r.internal = true;
                r.location = location;
                r.note(StepKind::Redirect, r.loc().at, |_| {
                    format!("to the named location \"{}\"", String::from_utf8_lossy(&name))
                });
                enter_location(&mut r);
                r.phase = Phase::Rewrite;
                r.handler = 0;
                return run(r);
            }
            Flow::Declined | Flow::Allowed | Flow::Rewritten => return run(r),
            Flow::Later(later) => return Outcome::Later(later(r)),
            Flow::Exchange(exchange) => return Outcome::Exchange(r, exchange),
        }
    }
}

/// Does `post_action`, where one is set, for a request whose response was sent or could not be (nginx: `ngx_http_post_action`).
pub async fn post_action(mut r: Box<Request>) -> Box<Request> {
    loop {
        let Some(target) = r.loc().core.conf.post_action.clone() else { return r };
        if r.post_action && r.uri_changes_left == 0 {
            return r;
        }
        if !r.out.charset.bytes().is_empty() {
            // What was sent is one text by now.
            let charset = std::mem::take(&mut r.out.charset);
            r.out.content_type = [r.out.content_type.bytes(), b"; charset=", charset.bytes()].concat().into();
        }
        r.post_action = true;
        r.head_only = true;
        // Nobody waits for it, and what the client has not sent is not read for it.
        r.watch = None;
        if matches!(r.body, RequestBody::Unread(_)) {
            r.body = RequestBody::None;
        }
        let flow = match target.0.starts_with(b"/") {
            true => match special::canonical(&r, target.0) {
                Ok(path) => Flow::redirect(path, Vec::new()),
                Err(_) => return r,
            },
            false => Flow::Named(target.0),
        };
        (r, _) = finish(settle(r, flow)).await;
    }
}

/// Judges the request's conditions, which are about what is there and not about what is made of it.
fn conditions(r: &mut Request, mut body: Body) -> Result<Body, u16> {
    if r.is_subrequest() || r.error_status != 0 {
        return Ok(body);
    }
    if r.out.status == 0 {
        r.out.status = 200;
    }
    let plan = r.plan_rc();
    let filters = plan.loc(r.location).filters.iter();
    for (_, filter) in filters.filter(|(order, _)| *order == FilterOrder::NotModified) {
        body = filter.apply(r, body)?;
    }
    r.ignore_conditions = true;
    Ok(body)
}

/// Whether something else is to be made of a response. What nobody is sent, or is a part of another, stays as it is.
fn transforms(r: &mut Request) -> bool {
    if r.post_action || r.tunnel.is_some() || r.sub.as_ref().is_some_and(|sub| sub.as_it_comes) {
        return false;
    }
    let plan = r.plan_rc();
    plan.loc(r.location).transform.as_ref().is_some_and(|transform| transform.wants(r))
}

/// Passes a response through the location's filters and decides on its framing.
pub(crate) fn respond(r: &mut Request, mut body: Body) -> Result<Body, u16> {
    if r.post_action {
        r.settled = r.filter_failed;
        return Ok(Body::Empty);
    }
    if r.error_status != 0 {
        r.out.status = r.error_status;
        r.out.status_line = None;
    }
    if r.out.status == 0 {
        r.out.status = 200;
    }
    let plan = r.plan_rc();
    if let Some(sub) = &r.sub {
        if sub.as_it_comes {
            return Ok(body);
        }
        for (order, filter) in &plan.loc(r.location).filters {
            if order.for_subrequests() {
                body = filter.apply(r, body)?;
            }
        }
        return Ok(if r.head_only || matches!(r.out.status, 204 | 304) { Body::Empty } else { body });
    }
    for (_, filter) in &plan.loc(r.location).filters {
        body = filter.apply(r, body)?;
    }
    Ok(frame(r, body))
}

/// Head-only responses, chunked encoding, keep-alive (nginx: the chunked and header filters).
fn frame(r: &mut Request, mut body: Body) -> Body {
    if r.tunnel.is_some() {
        // What follows the head is no body.
        r.keep_alive = false;
        return body;
    }
    match r.out.status {
        204 => {
            r.head_only = true;
            r.out.content_type = crate::Str::default();
            r.out.last_modified = None;
            r.out.content_length = None;
        }
        304 => r.head_only = true,
        _ => {}
    }
    if r.is_head() {
        r.head_only = true;
    }
    if r.expect_trailers
        && !r.is_head()
        && !matches!(r.out.status, 204 | 304)
        && r.out.status >= 200
        && r.version >= Version::Http11
        && r.loc().core.conf.chunked_transfer_encoding
    {
        // Only HTTP/1 has no place for trailers behind a body of a known length.
        if r.version == Version::Http11 {
            r.out.content_length = None;
        }
        r.chunked = true;
    }
    let unknown = r.out.content_length.is_none() && !r.chunked;
    if unknown && !matches!(r.out.status, 204 | 304) && r.out.status >= 200 && !r.head_only {
        if let Some(length) = body.length() {
            r.out.content_length = Some(length);
        } else if r.version >= Version::Http11 && r.loc().core.conf.chunked_transfer_encoding {
            r.chunked = true;
        } else {
            r.keep_alive = false;
        }
    }
    if r.version < Version::Http10 {
        r.keep_alive = false;
    }
    if r.head_only {
        body = Body::Empty;
    }
    body
}

impl Request {
    /// Whether a rewrite changed the path since locations were matched; asks once.
    fn path_changed_now(&mut self) -> bool {
        std::mem::take(&mut self.match_again)
    }
    /// 408 and 499 mean that nobody listens any more, unless an operator's `return` said so.
    fn phase_is_final(&self, _status: u16) -> bool {
        !matches!(self.phase, Phase::Rewrite | Phase::ServerRewrite)
    }
}

/// Whether a method takes part in `limit_except`-like masks.
pub const fn method_bit(method: Method) -> u32 {
    1 << (method as u32)
}

/// Sorts filters into their order; call it once a location is complete.
pub fn sort_filters(filters: &mut [(FilterOrder, std::sync::Arc<dyn crate::plan::Filter>)]) {
    filters.sort_by_key(|(order, _)| *order);
}
