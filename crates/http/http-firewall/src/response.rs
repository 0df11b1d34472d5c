//! Phases 3 and 4: the response's head and body, behind the filters of text and before compression.

use crate::state::{FirewallState, answer, protocol_text};
use crate::work::{BODY_IN_LOOP_MAX, read_pooled, run_here, run_pooled};
use bytes::{Bytes, BytesMut};
use http_engine::body_memory::{self, Reservation};
use http_engine::head_out::pass_fields;
use http_engine::{BodyError, BodySource, FilePart, Flow, Piece, Request, ResponseBody, ResponseGuard};
use http_types::Version;
use std::future::poll_fn;
use std::task::{Context, Poll};
use waf::Verdict;

/// The guard of locations with `modsecurity on`.
pub(crate) struct ResponseInspection;

impl ResponseGuard for ResponseInspection {
    fn inspect(&self, r: &mut Request, body: ResponseBody) -> Flow {
        let Some(state) = r.ext_mut::<FirewallState>() else { return Flow::Content(body) };
        if state.is_answered {
            return Flow::Content(body);
        }
        state.is_answered = true;
        // A rehearsal has no response of a server.
        if r.is_rehearsal() {
            return Flow::Content(body);
        }
        if let Some(refused) = inspect_head(r, &body) {
            return refused;
        }
        let has_body = !matches!(body, ResponseBody::Empty)
            && !r.is_head()
            && !r.reply.is_head_only()
            && !r.reply.has_tunnel()
            && !matches!(r.out.status(), 204 | 304);
        let state = r.ext_mut::<FirewallState>().and_then(|state| state.transaction.as_mut());
        if !has_body || !state.is_some_and(|transaction| transaction.wants_response_body()) {
            let verdict = run_here(r, |transaction| transaction.response_body(b""));
            return refusal(r, verdict, 4).unwrap_or(Flow::Content(body));
        }
        Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = inspect_body(&mut r, body).await;
                (r, flow)
            })
        }))
    }
}

/// Phase 3.
fn inspect_head(r: &mut Request, body: &ResponseBody) -> Option<Flow> {
    let mut fields: Vec<(Vec<u8>, Vec<u8>)> = Vec::with_capacity(16);
    let is_list = matches!(r.target.version(), Version::Http20 | Version::Http30);
    pass_fields(r, !is_list, &mut |name: &[u8], value: &[u8]| fields.push((name.to_vec(), value.to_vec())));
    // The framing, which adds the length, comes behind the compression.
    let length = body.length().filter(|_| r.out.content_length().is_none() && !r.out.is_length_undeclared());
    if let Some(length) = length {
        fields.push((b"Content-Length".to_vec(), length.to_string().into_bytes()));
    }
    let (status, protocol) = (r.out.status(), protocol_text(r.target.version()));
    let verdict = run_here(r, |transaction| {
        for (name, value) in &fields {
            transaction.response_header(name, value);
        }
        transaction.response_headers(status, &protocol)
    });
    refusal(r, verdict, 3)
}

/// The answer that takes the place of the response; `None` lets it pass.
fn refusal(r: &mut Request, verdict: Verdict, phase: u8) -> Option<Flow> {
    if verdict != Verdict::Pass {
        r.out.clear();
        r.progress.forget_error_status();
    }
    match answer(r, verdict, phase) {
        Flow::Declined => None,
        flow => Some(flow),
    }
}

/// Phase 4: reads the body to the limit, evaluates it, and passes it on.
async fn inspect_body(r: &mut Request, body: ResponseBody) -> Flow {
    let limit = r.ext::<FirewallState>().map_or(0, |state| state.firewall.rules.settings.response_body_limit);
    // One byte beyond the limit tells the engine that the body is longer.
    let most = limit.saturating_add(1);
    let expected = body.length().unwrap_or(most).min(most);
    let memory = match body_memory::reserve_memory(r, expected).await {
        Ok(memory) => memory,
        Err(none) => {
            r.out.clear();
            return Flow::Status(none.status());
        }
    };
    let mut taken = TakenBody { first: BytesMut::new(), rest: Some(body), over: None };
    if let Err(flow) = taken.read(r, usize::try_from(most).unwrap_or(usize::MAX)).await {
        r.out.clear();
        return flow;
    }
    let bytes = taken.first.freeze();
    let shared = bytes.clone();
    let done = match bytes.len() <= BODY_IN_LOOP_MAX {
        true => Ok(run_here(r, |transaction| transaction.response_body(&shared))),
        false => run_pooled(r, move |transaction| Ok(transaction.response_body(&shared))).await,
    };
    match done {
        Ok(verdict) => match refusal(r, verdict, 4) {
            Some(flow) => flow,
            None => Flow::Content(released(memory, bytes, taken.rest, taken.over)),
        },
        Err(flow) => {
            r.out.clear();
            flow
        }
    }
}

/// The body behind its inspection: the inspected bytes, and the rest of a longer one.
fn released(memory: Reservation, bytes: Bytes, rest: Option<ResponseBody>, over: Option<Piece>) -> ResponseBody {
    let bytes = memory.hold(bytes);
    match rest {
        None => ResponseBody::Bytes(bytes),
        Some(rest) => ResponseBody::Source(Box::new(ReleasedBody { first: Some(bytes), over, rest })),
    }
}

/// The beginning of a body, in memory.
struct TakenBody {
    first: BytesMut,
    /// `None` when the body has ended.
    rest: Option<ResponseBody>,
    /// A file's part behind `first`.
    over: Option<Piece>,
}

impl TakenBody {
    /// Reads until there are `most` bytes, or the body ends. A piece in memory stays whole; parts of files are read by the
    /// pool. Fails with the answer.
    async fn read(&mut self, r: &mut Request, most: usize) -> Result<(), Flow> {
        while self.first.len() < most {
            let Some(rest) = &mut self.rest else { return Ok(()) };
            match poll_fn(|cx| rest.poll_piece(cx, r)).await {
                None => self.rest = None,
                Some(Err(BodyError)) => return Err(Flow::Close),
                Some(Ok(Piece::Flush)) => {}
                Some(Ok(Piece::Bytes(bytes))) => self.first.extend_from_slice(&bytes),
                Some(Ok(Piece::File(mut part))) => {
                    let wanted = (most - self.first.len()) as u64;
                    let here = FilePart { length: part.length.min(wanted), ..part.clone() };
                    let bytes = match here.cached() {
                        Some(bytes) => bytes,
                        None => read_pooled(r, &here).await?,
                    };
                    self.first.extend_from_slice(&bytes);
                    part.start += here.length;
                    part.length -= here.length;
                    if part.length > 0 {
                        self.over = Some(Piece::File(part));
                    }
                }
            }
        }
        Ok(())
    }
}

/// A body whose beginning was inspected.
struct ReleasedBody {
    first: Option<Bytes>,
    over: Option<Piece>,
    rest: ResponseBody,
}

impl BodySource for ReleasedBody {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(Ok(Piece::Bytes(first))));
        }
        if let Some(over) = self.over.take() {
            return Poll::Ready(Some(Ok(over)));
        }
        self.rest.poll_piece(cx, r)
    }
    fn needs_window(&self) -> bool {
        self.first.is_none() && self.over.is_none() && self.rest.needs_window()
    }
    fn poll_ahead(&mut self, cx: &mut Context<'_>, r: &mut Request) {
        self.rest.poll_ahead(cx, r);
    }
}
