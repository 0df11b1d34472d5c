//! Runs a request's phases (nginx: `ngx_http_core_run_phases`). Never blocks: handlers return futures for the driver.

use crate::exchange;
use crate::handler::Exchange;
use crate::handler::{Flow, LocalFuture, ResponseBody};
use crate::order::{FilterOrder, FilterStage, HandlerOrder, Phase};
use crate::outgoing::{filter, respond};
use crate::path::{CanonicalPath, FilePath};
use crate::plan::Location;
use crate::request::{Request, RequestBody, URI_CHANGES_MAX};
use crate::route::{self, Route};
use crate::trace::StepKind;
use crate::values::Satisfy;
use crate::{browsers, file_paths, special};
use http_types::{BodyLength, Method};
use observe::Severity;

/// State of a request at the return of the engine: an answer, or a reason to wait.
pub enum PhaseOutcome {
    /// The response: the head is in `Request::out`, and the connection pulls the body.
    Ready(Box<Request>, ResponseBody),
    /// Closes the connection without a response.
    Close(Box<Request>),
    /// A handler's pending answer; [`finish_request`] continues with it.
    Later(LocalFuture<(Box<Request>, Flow)>),
    /// A handler's exchange, to be polled in place; [`continue_after`] continues with its answer.
    Exchange(Box<Request>, Box<dyn Exchange>),
    /// The engine itself waits; the future ends with the next outcome.
    Wait(LocalFuture<PhaseOutcome>),
}

/// Runs a request from the server's rewrite phase on. Its plan, connection, server, head and target must be set.
pub fn start_phases(mut r: Box<Request>) -> PhaseOutcome {
    r.progress.uri_changes_left = URI_CHANGES_MAX;
    r.progress.phase = Phase::ServerRewrite;
    r.scope.location = r.srv().location;
    r.progress.handler = 0;
    if r.target.undecided {
        return settle(r, Flow::Status(500));
    }
    run(r)
}

/// Continues a request in its current phase, such as a subrequest that has entered its location.
pub fn resume_phases(r: Box<Request>) -> PhaseOutcome {
    run(r)
}

/// Responds with an error before any phase has run (a refused head); the server's error pages apply.
pub fn fail_request(mut r: Box<Request>, status: u16) -> PhaseOutcome {
    r.progress.uri_changes_left = URI_CHANGES_MAX;
    r.scope.location = r.srv().location;
    settle(r, Flow::Status(status))
}

fn run(mut r: Box<Request>) -> PhaseOutcome {
    loop {
        match step(&mut r) {
            flow @ Flow::Declined => consume_declined(flow),
            Flow::Later(later) => return PhaseOutcome::Later(later(r)),
            Flow::Exchange(exchange) => return PhaseOutcome::Exchange(r, exchange),
            flow => return settle(r, flow),
        }
    }
}

/// Continues with the answer of a handler that had to wait, as if the handler had returned it at once.
pub fn continue_after(mut r: Box<Request>, flow: Flow) -> PhaseOutcome {
    if r.trace().is_some() {
        note_later(&r, &flow);
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

/// Runs a request to its response, in a task. `None`: the connection must be closed without a response.
pub async fn finish_request(mut outcome: PhaseOutcome) -> (Box<Request>, Option<ResponseBody>) {
    loop {
        match outcome {
            PhaseOutcome::Ready(r, body) => return (r, Some(body)),
            PhaseOutcome::Close(r) => return (r, None),
            PhaseOutcome::Later(work) => {
                let (r, flow) = work.await;
                outcome = continue_after(r, flow);
            }
            PhaseOutcome::Exchange(r, exchange) => {
                let (r, flow) = exchange::drive_exchange(exchange, r).await;
                outcome = continue_after(r, flow);
            }
            PhaseOutcome::Wait(later) => outcome = later.await,
        }
    }
}

fn allowed(r: &mut Request) {
    if r.progress.phase == Phase::Access && r.loc().core.conf.satisfy == Satisfy::Any {
        r.progress.access_status = 0;
        r.out.fields.retain(|field| !field.name.bytes().eq_ignore_ascii_case(b"WWW-Authenticate"));
        r.progress.phase = Phase::PostAccess;
        r.progress.handler = 0;
    }
}

fn rewritten(r: &mut Request) {
    r.progress.phase = Phase::PostRewrite;
    r.progress.handler = 0;
}

/// Under `satisfy any`, records a refusal and tries the next access check.
fn after_access(r: &mut Request, flow: Flow) -> Flow {
    match flow {
        Flow::Status(status @ (401 | 403 | 407))
            if r.progress.phase == Phase::Access && r.loc().core.conf.satisfy == Satisfy::Any =>
        {
            if !matches!(r.progress.access_status, 401 | 407) {
                r.progress.access_status = status;
            }
            Flow::Declined
        }
        flow => flow,
    }
}

/// Consumes a `Declined`, which has nothing to drop. The drop glue of the other variants is not inlined.
#[inline]
fn consume_declined(flow: Flow) {
    debug_assert!(matches!(flow, Flow::Declined));
    std::mem::forget(flow);
}

const NO_HANDLERS: Vec<std::sync::Arc<dyn crate::handler::Handler>> = Vec::new();

fn step(r: &mut Request) -> Flow {
    let plan = r.plan_rc();
    loop {
        let location: &Location = plan.loc(r.scope.location);
        // Each arm: the handlers of the phase, and the next phase.
        let (handlers, next) = match r.progress.phase {
            Phase::ServerRewrite => (&plan.srv(r.scope.server).rewrite, Phase::FindLocation),
            Phase::FindLocation => match find_location(r) {
                flow @ Flow::Declined => {
                    consume_declined(flow);
                    continue;
                }
                flow => return flow,
            },
            Phase::Rewrite => {
                if let Some(sampler) = &location.sampler
                    && r.progress.handler == 0
                    && sampler.leaves_out(r)
                {
                    // The first handler is the one that starts traces (`HandlerOrder::Otel`).
                    r.progress.handler = 1;
                }
                (&location.rewrite, Phase::PostRewrite)
            }
            Phase::PostRewrite => match post_rewrite(r) {
                flow @ Flow::Declined => {
                    consume_declined(flow);
                    continue;
                }
                flow => return flow,
            },
            Phase::Preaccess => (&location.preaccess, Phase::Access),
            // The main request's access covers subrequests.
            Phase::Access if r.is_subrequest() => (&NO_HANDLERS, Phase::PostAccess),
            Phase::Access => (&location.access, Phase::PostAccess),
            Phase::PostAccess => match post_access(r) {
                flow @ Flow::Declined => {
                    consume_declined(flow);
                    continue;
                }
                flow => return flow,
            },
            Phase::Precontent => (&location.precontent, Phase::Content),
            Phase::Content => match &location.content {
                Some(_) if r.trace().is_some() && rehearsed(r, location) => return Flow::Close,
                Some(handler) => return handler.run(r),
                None if r.progress.handler_lost => {
                    r.log(Severity::Error, format_args!("no upstream configuration"));
                    return Flow::Status(500);
                }
                None => (&location.content_chain, Phase::Content),
            },
        };
        let Some(handler) = handlers.get(r.progress.handler) else {
            if r.progress.phase == Phase::Content {
                return unhandled(r);
            }
            r.progress.handler = 0;
            r.progress.phase = next;
            continue;
        };
        r.progress.handler += 1;
        let flow = match r.trace().is_some() {
            false => handler.run(r),
            true => traced(r, location, &**handler),
        };
        match flow {
            flow @ Flow::Declined => consume_declined(flow),
            Flow::Allowed => allowed(r),
            Flow::Rewritten => {
                if r.progress.phase == Phase::Rewrite {
                    rewritten(r);
                } else {
                    r.progress.phase = Phase::FindLocation;
                    r.progress.handler = 0;
                }
            }
            flow => match after_access(r, flow) {
                Flow::Declined => {}
                flow => return flow,
            },
        }
    }
}

/// Notes the content handler of a traced request; returns `true` if a rehearsal ends here.
#[cold]
fn rehearsed(r: &Request, location: &Location) -> bool {
    let (name, at) = location.answered_by.unwrap_or(("content", location.at));
    r.note(StepKind::Handler, at, |_| name.to_string());
    let ends = r.is_rehearsal() && crate::answering::passes_on(name);
    if let Some(trace) = r.trace().filter(|_| ends) {
        trace.ends_at.set(Some((name, at)));
    }
    ends
}

/// Returns the kind of the handler that runs.
fn current_order(r: &Request, location: &Location) -> Option<HandlerOrder> {
    let (phase, index) = (r.progress.phase, r.progress.handler.checked_sub(1)?);
    let at_server = phase == Phase::ServerRewrite;
    let orders = if at_server { &r.plan().loc(r.srv().location).orders } else { &location.orders };
    orders.iter().copied().filter(|order| order.phase() == phase).nth(index)
}

/// Notes how a handler went on that had to wait.
#[cold]
fn note_later(r: &Request, flow: &Flow) {
    match (r.progress.phase, flow) {
        // The content handler was noted before; it may wait again.
        (_, Flow::Declined | Flow::Later(_) | Flow::Exchange(_)) | (Phase::Content, Flow::Content(_)) => {}
        (Phase::Content, flow) => r.note(StepKind::Handler, r.loc().at, |_| flow.words()),
        (_, flow) => {
            if let Some(order) = current_order(r, r.loc()) {
                r.note(StepKind::Check(order), r.loc().at, |_| flow.words());
            }
        }
    }
}

/// Describes a content handler and its result.
fn shown(order: HandlerOrder, flow: &Flow, path: &[u8]) -> String {
    let path = String::from_utf8_lossy(path);
    match (order, flow) {
        (HandlerOrder::Files, Flow::Content(_)) => format!("static files: {path}"),
        (HandlerOrder::Files, Flow::Status(status)) => format!("static files: {status}, {path}"),
        (order, flow) => format!("{order:?} {}: {path}", flow.words()),
    }
}

#[cold]
fn traced(r: &mut Request, location: &Location, handler: &dyn crate::handler::Handler) -> Flow {
    let phase = r.progress.phase;
    let Some(order) = current_order(r, location) else { return handler.run(r) };
    // Script handlers note their own steps.
    let is_script = matches!(
        order,
        HandlerOrder::Script
            | HandlerOrder::ServerScript
            | HandlerOrder::ServerExplain
            | HandlerOrder::FirewallHead
            | HandlerOrder::FirewallBody
    );
    let reads = matches!(r.target.method, Method::Get | Method::Head);
    if r.is_rehearsal() && order.has_effects() && !(order == HandlerOrder::Dav && reads) {
        r.note(StepKind::Check(order), location.at, |_| "would be requested here; assumed to pass".into());
        if order == HandlerOrder::Dav {
            if let Some(trace) = r.trace() {
                trace.ends_at.set(Some(("dav_methods", location.at)));
            }
            return Flow::Close;
        }
        return Flow::Declined;
    }
    let before = if phase == Phase::Precontent { r.target.path.clone() } else { CanonicalPath::default() };
    let flow = handler.run(r);
    let silent = matches!(flow, Flow::Declined);
    let kind = if phase == Phase::Content { StepKind::Handler } else { StepKind::Check(order) };
    if is_script || (phase == Phase::Content && silent) {
        return flow;
    }
    let opened =
        if phase == Phase::Content { file_paths::mapped_path(r).unwrap_or_default() } else { FilePath::default() };
    r.note(kind, location.at, |r| match (phase, silent) {
        (Phase::Content, _) => shown(order, &flow, &opened),
        (Phase::Precontent, true) if r.target.path != before => {
            format!("found \"{}\"", String::from_utf8_lossy(&r.target.path))
        }
        (_, true) => "passes".into(),
        _ => flow.words(),
    });
    flow
}

fn unhandled(r: &mut Request) -> Flow {
    if r.target.path.ends_with(b"/") {
        let path = match file_paths::mapped_path(r) {
            Ok(path) => path,
            Err(status) => return Flow::Status(status),
        };
        r.log(Severity::Error, format_args!("directory index of \"{}\" is forbidden", String::from_utf8_lossy(&path)));
        return Flow::Status(403);
    }
    r.log(Severity::Error, format_args!("no handler found"));
    Flow::Status(404)
}

fn find_location(r: &mut Request) -> Flow {
    r.target.match_again = false;
    let Ok(route) = route::find_route(r) else { return Flow::Status(500) };
    let mut slash = false;
    match route {
        Route::Server => r.scope.location = r.srv().location,
        Route::Location(location) => r.scope.location = location,
        Route::Slash(location) => {
            slash = true;
            r.scope.location = location;
        }
    }
    if r.loc().internal && !r.progress.internal {
        r.note(StepKind::Location, r.loc().at, |r| format!("{}, which is internal: not for clients", chosen(r)));
        return Flow::Status(404);
    }
    r.note(StepKind::Location, r.loc().at, chosen);
    enter_location(r);
    let limit = r.loc().core.conf.client_max_body_size.0;
    if let Some(BodyLength::Exact(length)) = r.incoming.body_length
        && limit != 0
        && length > limit
        // Neither for an error page about this (dropped) body, nor for `post_action` with an unread one.
        && !(r.progress.error_page && r.incoming.expect_tested)
        && !(r.progress.post_action && r.accounting.asked.is_none())
    {
        r.log(Severity::Error, format_args!("client intended to send too large body: {length} bytes"));
        r.refuse_body();
        return Flow::Status(413);
    }
    if slash {
        let mut target = Vec::new();
        crate::path::escape_uri(&r.loc().name.clone(), &mut target);
        if !r.target.args.is_empty() {
            target.push(b'?');
            target.extend_from_slice(&r.target.args);
        }
        r.out.location = target.into();
        return Flow::Status(301);
    }
    r.progress.phase = Phase::Rewrite;
    Flow::Declined
}

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

/// nginx: `ngx_http_update_location_config`.
pub fn enter_location(r: &mut Request) {
    r.progress.handler_lost = false;
    if let Some(limit) = &r.loc().limit_except
        && limit.allowed & (1 << (r.target.method as u32)) == 0
    {
        r.scope.location = limit.location;
    }
    if let RequestBody::Unread(_) = r.incoming.body {
        let timeout = r.loc().core.conf.client_body_timeout.duration();
        if let RequestBody::Unread(reader) = &mut r.incoming.body {
            reader.set_timeout(timeout);
        }
    }
    if !r.reply.keep_alive {
        return;
    }
    let conf = &r.loc().core.conf;
    let connection = r.connection();
    r.reply.keep_alive = conf.keepalive_timeout.millis != 0
        && connection.has_requests_left(conf.keepalive_requests.0, conf.keepalive_time.0, base::clock::now())
        && !browsers::keepalive_disabled(r);
}

fn post_rewrite(r: &mut Request) -> Flow {
    if !r.path_changed_now() {
        r.progress.phase = Phase::Preaccess;
        return Flow::Declined;
    }
    r.progress.uri_changes_left = r.progress.uri_changes_left.saturating_sub(1);
    if r.progress.uri_changes_left == 0 {
        let path = String::from_utf8_lossy(&r.target.path).into_owned();
        r.log(Severity::Error, format_args!("rewrite or internal redirection cycle while processing \"{path}\""));
        return Flow::Status(500);
    }
    r.progress.phase = Phase::FindLocation;
    r.scope.location = r.srv().location;
    Flow::Declined
}

fn post_access(r: &mut Request) -> Flow {
    let status = std::mem::take(&mut r.progress.access_status);
    if status != 0 {
        if status == 403 {
            r.log(Severity::Error, format_args!("access forbidden by rule"));
        }
        return Flow::Status(status);
    }
    r.progress.phase = Phase::Precontent;
    Flow::Declined
}

fn settle(mut r: Box<Request>, mut flow: Flow) -> PhaseOutcome {
    if matches!(flow, Flow::Content(_)) && r.incoming.take_broken_body() {
        r.out.clear();
        flow = Flow::Status(400);
    }
    if let Flow::Status(status @ (401 | 407)) = flow
        && matches!(r.progress.phase, Phase::Access | Phase::PostAccess)
        && r.loc().core.conf.auth_delay.0 > 0
        && !r.is_rehearsal()
    {
        return PhaseOutcome::Later(delay_refusal(r, status));
    }
    loop {
        match flow {
            Flow::Content(body) if transforms(&mut r) => {
                let judged = r.reply.ignore_conditions;
                let body = match conditions(&mut r, body) {
                    Ok(body) => body,
                    Err(status) => {
                        flow = Flow::Status(status);
                        continue;
                    }
                };
                let plan = r.plan_rc();
                let transform = plan.loc(r.scope.location).transform.clone().filter(|_| r.out.status != 304);
                let Some(transform) = transform else {
                    flow = Flow::Content(body);
                    continue;
                };
                return PhaseOutcome::Wait(Box::pin(async move {
                    let (mut r, flow) = transform.run(r, body).await;
                    // A replacement page has conditions of its own.
                    r.reply.ignore_conditions = judged || matches!(flow, Flow::Content(_));
                    settle(r, flow)
                }));
            }
            Flow::Content(body) if transforms_late(&r) => {
                let body = match filter(&mut r, body, &(FilterStage::Early..=FilterStage::Early)) {
                    Ok(body) => body,
                    Err(status) => {
                        match responded(r, Err(status)) {
                            Ok(outcome) => return outcome,
                            Err(instead) => (r, flow) = instead,
                        }
                        continue;
                    }
                };
                let plan = r.plan_rc();
                let transform = plan.loc(r.scope.location).late_transform.clone();
                let Some(transform) = transform.filter(|transform| transform.wants(&mut r)) else {
                    match send_through(r, body, FilterStage::Text) {
                        Ok(outcome) => return outcome,
                        Err(instead) => (r, flow) = instead,
                    }
                    continue;
                };
                return PhaseOutcome::Wait(Box::pin(async move {
                    let (r, flow) = transform.run(r, body).await;
                    let done = match flow {
                        Flow::Content(body) => send_through(r, body, FilterStage::Text),
                        Flow::Status(status) => responded(r, Err(status)),
                        flow => return settle(r, flow),
                    };
                    match done {
                        Ok(outcome) => outcome,
                        Err((r, flow)) => settle(r, flow),
                    }
                }));
            }
            Flow::Content(body) => match send_through(r, body, FilterStage::Early) {
                Ok(outcome) => return outcome,
                Err(instead) => (r, flow) = instead,
            },
            // After the page of a filter's error and the `post_action`, later errors do not change the log line.
            Flow::Status(_) if r.progress.settled => return PhaseOutcome::Close(r),
            Flow::Status(444) | Flow::Close => return PhaseOutcome::Close(r),
            // Even if `return` says so (nginx: `ngx_http_finalize_request`).
            Flow::Status(status @ (408 | 499)) => {
                r.out.status = status;
                return PhaseOutcome::Close(r);
            }
            Flow::Status(status) if r.family.sub.as_ref().is_some_and(|sub| sub.bare_errors) => {
                r.out.status = status;
                return PhaseOutcome::Ready(r, ResponseBody::Empty);
            }
            Flow::Status(status) => {
                r.note(StepKind::Status, r.loc().at, |_| status.to_string());
                flow = special::respond_status(&mut r, status);
            }
            Flow::Redirect { path, args, internal } => match redirect(&mut r, path, args, internal) {
                Ok(()) => return run(r),
                Err(instead) => flow = instead,
            },
            Flow::Named(name) => match redirect_to_named(&mut r, &name) {
                Ok(()) => return run(r),
                Err(instead) => flow = instead,
            },
            Flow::Declined | Flow::Allowed | Flow::Rewritten => return run(r),
            Flow::Later(later) => return PhaseOutcome::Later(later(r)),
            Flow::Exchange(exchange) => return PhaseOutcome::Exchange(r, exchange),
        }
    }
}

/// Delays the response to a request without valid credentials (`auth_delay`): once, and only for the status of an access check.
fn delay_refusal(mut r: Box<Request>, status: u16) -> LocalFuture<(Box<Request>, Flow)> {
    r.progress.phase = Phase::Content;
    let delay = r.loc().core.conf.auth_delay.duration();
    r.log(Severity::Info, format_args!("delaying unauthorized request"));
    Box::pin(async move {
        let watch = r.incoming.watch.clone();
        let gone =
            std::future::poll_fn(|cx| watch.as_ref().map_or(std::task::Poll::Pending, |watch| watch.poll_gone(cx)));
        // A client that has left is logged at once.
        let has_left = runtime::time::with_timeout(delay, gone).await.is_ok();
        base::clock::update();
        if has_left {
            r.log(Severity::Info, format_args!("client prematurely closed connection"));
        }
        (r, Flow::Status(if has_left { 499 } else { status }))
    })
}

/// Prepares an internal redirect (nginx: `ngx_http_internal_redirect`). Fails with the response to a redirection cycle.
fn redirect(r: &mut Request, path: CanonicalPath, args: Vec<u8>, internal: bool) -> Result<(), Flow> {
    r.progress.uri_changes_left = r.progress.uri_changes_left.saturating_sub(1);
    if r.progress.uri_changes_left == 0 {
        let shown = String::from_utf8_lossy(&path).into_owned();
        r.log(
            Severity::Error,
            format_args!("rewrite or internal redirection cycle while internally redirecting to \"{shown}\""),
        );
        return Err(special::last_resort(r));
    }
    r.target.append_to_alias = false;
    r.accounting.action = None;
    if !r.progress.post_action && !r.out.location.is_empty() {
        r.reply.old_location = std::mem::take(&mut r.out.location);
    }
    r.target.path = path;
    // An empty query that is kept (an index file's) stays present.
    r.target.args_given = !args.is_empty() || (r.target.args_given && r.target.args.is_empty());
    r.target.args = args;
    r.note(StepKind::Redirect, r.loc().at, |r| format!("to \"{}\"", String::from_utf8_lossy(&r.target.path)));
    r.progress.internal = internal;
    r.target.path_changed = true;
    r.target.left_location = false;
    r.scope.location = r.srv().location;
    r.progress.phase = Phase::ServerRewrite;
    r.progress.handler = 0;
    Ok(())
}

/// Enters a named location (nginx: `ngx_http_named_location`). Fails with the response if there is none, or for a redirection cycle.
fn redirect_to_named(r: &mut Request, name: &[u8]) -> Result<(), Flow> {
    r.progress.uri_changes_left = r.progress.uri_changes_left.saturating_sub(1);
    let is_cycle = r.progress.uri_changes_left == 0;
    let Some(location) = r.srv().tree.named(name).filter(|_| !is_cycle) else {
        let shown = String::from_utf8_lossy(name).into_owned();
        let why = if is_cycle { "rewrite or internal redirection cycle while redirect to" } else { "could not find" };
        r.log(Severity::Error, format_args!("{why} named location \"{shown}\""));
        return Err(if is_cycle { special::last_resort(r) } else { Flow::Status(500) });
    };
    r.progress.internal = true;
    r.scope.location = location;
    r.note(StepKind::Redirect, r.loc().at, |_| format!("to the named location \"{}\"", String::from_utf8_lossy(name)));
    enter_location(r);
    r.progress.phase = Phase::Rewrite;
    r.progress.handler = 0;
    Ok(())
}

/// nginx: `ngx_http_post_action`.
pub async fn post_action(mut r: Box<Request>) -> Box<Request> {
    loop {
        let Some(target) = r.loc().core.conf.post_action.clone() else { return r };
        if r.progress.post_action && r.progress.uri_changes_left == 0 {
            return r;
        }
        if !r.out.charset.bytes().is_empty() {
            // `$sent_http_content_type` shows both parts as sent.
            let charset = std::mem::take(&mut r.out.charset);
            r.out.content_type = [r.out.content_type.bytes(), b"; charset=", charset.bytes()].concat().into();
        }
        r.progress.post_action = true;
        r.reply.head_only = true;
        // Neither watches the client nor reads the rest of the body.
        r.incoming.watch = None;
        if matches!(r.incoming.body, RequestBody::Unread(_)) {
            r.incoming.body = RequestBody::None;
        }
        let flow = match target.0.starts_with(b"/") {
            true => match file_paths::canonical_path(&r, target.0) {
                Ok(path) => Flow::redirect(path, Vec::new()),
                Err(_) => return r,
            },
            false => Flow::Named(target.0),
        };
        (r, _) = finish_request(settle(r, flow)).await;
    }
}

/// Evaluates the request's conditions, against the resource instead of its transformed representation.
fn conditions(r: &mut Request, mut body: ResponseBody) -> Result<ResponseBody, u16> {
    if r.is_subrequest() || r.progress.error_status != 0 {
        return Ok(body);
    }
    if r.out.status == 0 {
        r.out.status = 200;
    }
    let plan = r.plan_rc();
    let filters = plan.loc(r.scope.location).filters.iter();
    for (_, filter) in filters.filter(|(order, _)| *order == FilterOrder::NotModified) {
        body = filter.apply(r, body)?;
    }
    r.reply.ignore_conditions = true;
    Ok(body)
}

/// Never for subrequests or `post_action`.
fn transforms(r: &mut Request) -> bool {
    if r.progress.post_action || r.reply.tunnel.is_some() || r.family.sub.as_ref().is_some_and(|sub| sub.as_it_comes) {
        return false;
    }
    let plan = r.plan_rc();
    plan.loc(r.scope.location).transform.as_ref().is_some_and(|transform| transform.wants(r))
}

fn transforms_late(r: &Request) -> bool {
    r.loc().late_transform.is_some()
        && !r.progress.post_action
        && !r.progress.filter_failed
        && r.reply.tunnel.is_none()
        && !r.family.sub.as_ref().is_some_and(|sub| sub.as_it_comes)
}

/// Applies the filters of a stage and those behind it, and asks the guard of the location before the last stage. `Err`:
/// another answer takes the place of the response.
fn send_through(
    mut r: Box<Request>,
    body: ResponseBody,
    from: FilterStage,
) -> Result<PhaseOutcome, (Box<Request>, Flow)> {
    let guard = r.loc().guard.clone().filter(|_| !r.is_subrequest() && !r.progress.post_action);
    let Some(guard) = guard else {
        let done = filter(&mut r, body, &(from..=FilterStage::Late));
        return responded(r, done);
    };
    let flow = match filter(&mut r, body, &(from..=FilterStage::Text)) {
        Ok(body) => guard.inspect(&mut r, body),
        Err(status) => return responded(r, Err(status)),
    };
    match flow {
        Flow::Content(body) => {
            let done = filter(&mut r, body, &(FilterStage::Late..=FilterStage::Late));
            responded(r, done)
        }
        Flow::Later(later) => Ok(PhaseOutcome::Wait(Box::pin(async move {
            let (mut r, flow) = later(r).await;
            let Flow::Content(body) = flow else { return settle(r, flow) };
            let done = filter(&mut r, body, &(FilterStage::Late..=FilterStage::Late));
            match responded(r, done) {
                Ok(outcome) => outcome,
                Err((r, flow)) => settle(r, flow),
            }
        }))),
        flow => Err((r, flow)),
    }
}

/// Ends a response that has passed the filters. `Err`: an error of theirs has another answer.
fn responded(mut r: Box<Request>, done: Result<ResponseBody, u16>) -> Result<PhaseOutcome, (Box<Request>, Flow)> {
    let status = match done {
        Ok(body) => return Ok(PhaseOutcome::Ready(r, body)),
        Err(status) => status,
    };
    r.progress.filter_failed = status != 416;
    match special::respond_status(&mut r, status) {
        // The page of a filter's error passes the filters, too; a second error ends the request.
        Flow::Content(body) => {
            let body = respond(&mut r, body).unwrap_or_default();
            Ok(PhaseOutcome::Ready(r, body))
        }
        flow => Err((r, flow)),
    }
}

impl Request {
    /// Tells whether a rewrite changed the path since the last match, and resets the mark.
    fn path_changed_now(&mut self) -> bool {
        std::mem::take(&mut self.target.match_again)
    }
}

/// Returns the bit of a method in sets of methods (`limit_except`, `dav_methods`).
pub const fn method_bit(method: Method) -> u32 {
    1 << (method as u32)
}

pub(crate) fn sort_filters(filters: &mut [(FilterOrder, std::sync::Arc<dyn crate::handler::Filter>)]) {
    filters.sort_by_key(|(order, _)| *order);
}
