//! A request that waits for more than its servers, as a task: for its body, the cache, or the resolution of a name.

use super::body::CLIENT_LEFT;
use super::conf::NextUpstream;
use super::failure::OutgoingState;
use super::upstream_exchange::UpstreamExchange;
use super::{PassPlan, storage};
use crate::body_store;
use crate::caching;
use crate::hosts::NoTarget;
use crate::target::{OriginUri, UpstreamTarget};
use crate::upstream_state::{Try, UpstreamState, shown_url};
use base::clock;
use bytes::Bytes;
use http_engine::{Flow, Request};
use http_types::BodyLength;
use observe::Severity;
use std::cell::Cell;
use std::sync::Arc;

/// Passes a request on and returns the response; stops when the client disconnects.
pub async fn run_exchange(plan: &Arc<PassPlan>, r: &mut Request) -> Flow {
    let watch = r.incoming.watch().cloned().filter(|_| !plan.conf.ignore_client_abort);
    // Responses to be stored are fetched without a client, too.
    let alone = Cell::new(plan.storing.is_some());
    let gone = async {
        match &watch {
            Some(watch) => std::future::poll_fn(|cx| watch.poll_gone(cx)).await,
            None => std::future::pending().await,
        }
        if alone.get() {
            std::future::pending().await
        }
    };
    let flow = tokio::select! {
        biased;
        flow = pass(plan, r, &alone) => Some(flow),
        () = gone => None,
    };
    caching::finish_session(r);
    match flow {
        Some(flow) => flow,
        None => client_gone(r),
    }
}

/// Ends a request whose client has left: records the time of its try and responds with 499, for the log.
pub fn client_gone(r: &mut Request) -> Flow {
    let mut action = "connecting to upstream";
    if let Some(one) = UpstreamState::last(r) {
        one.response_time = Some(clock::now().since(one.started));
        if one.connect_time.is_some() {
            action = "sending request to upstream";
        }
    }
    r.accounting.set_action(Some(action));
    if !r.incoming.watch().is_some_and(|watch| watch.is_cut()) {
        r.log(Severity::Info, format_args!("{CLIENT_LEFT}"));
    }
    Flow::Status(499)
}

async fn pass(plan: &Arc<PassPlan>, r: &mut Request, alone: &Cell<bool>) -> Flow {
    let place = match find_origin(plan, r) {
        Ok(place) => place,
        Err(flow) => return flow,
    };
    let outgoing = match outgoing(plan, r).await {
        Ok(outgoing) => outgoing,
        Err(status) => return Flow::Status(status),
    };
    // A stored response is served even if its server no longer resolves.
    if let Some(flow) = storage::begin_lookup(plan, r, &place, alone).await {
        return flow;
    }
    let OriginUri { origin, uri } = place;
    let found = match plan.target.find(r, origin).await {
        Ok(found) => found,
        Err(no) => {
            nowhere(r, &no);
            return storage::answer_failure(plan, r, NextUpstream::ERROR.0, no.status);
        }
    };
    if let Some(state) = UpstreamState::of(r) {
        state.uri = uri.clone();
    }
    // Boxed: otherwise every task would contain and move it.
    let mut exchange = Box::new(UpstreamExchange::new(plan.clone(), found, uri, outgoing, false, r));
    std::future::poll_fn(|cx| exchange.poll_response(r, cx)).await
}

/// Determines origin and request target, and begins the request's record of tries. Fails with the response.
pub fn find_origin(plan: &PassPlan, r: &mut Request) -> Result<OriginUri, Flow> {
    let place = plan.target.place(r).map_err(|no| nowhere(r, &no))?;
    if let Some(state) = UpstreamState::of(r) {
        state.begin();
        state.origin = Some(place.origin.clone());
    }
    Ok(place)
}

/// Responds when no server of the group is available (any more).
pub fn no_server(plan: &Arc<PassPlan>, r: &mut Request, target: &UpstreamTarget<'_>) -> Flow {
    let name = &target.named.group.name;
    let url = shown_url(target.origin.scheme(), name, target.uri());
    r.log_of(Severity::Error, format_args!("no live upstreams while connecting to upstream"), Some(&url));
    if let Some(state) = UpstreamState::of(r) {
        state.push(Try::without_server(name, clock::now()));
    }
    storage::answer_failure(plan, r, NextUpstream::ERROR.0, 502)
}

fn nowhere(r: &Request, no: &NoTarget) -> Flow {
    r.log(Severity::Error, format_args!("{}", no.words));
    Flow::Status(no.status)
}

/// Returns the body that is sent for a request that has none.
pub fn no_body(plan: &PassPlan, r: &mut Request) -> OutgoingState {
    if !plan.conf.pass_request_body || r.incoming.body_length() != Some(BodyLength::Exact(0)) {
        return OutgoingState::Nothing;
    }
    r.incoming.set_body_bytes(Some(Bytes::new()));
    // `Content-Length: 0` is passed unchanged.
    OutgoingState::Text(Vec::new())
}

async fn outgoing(plan: &PassPlan, r: &mut Request) -> Result<OutgoingState, u16> {
    let conf = &plan.conf;
    if let Some(text) = &conf.set_body {
        let _ = body_store::read_body(r).await?;
        return Ok(OutgoingState::Text(text.eval(r)));
    }
    if !conf.pass_request_body {
        // A request without a body gets no empty one, which another location would announce.
        if r.incoming.has_body() {
            let _ = body_store::read_body(r).await?;
        }
        return Ok(OutgoingState::Nothing);
    }
    let length = r.incoming.body_length().unwrap_or(BodyLength::None);
    let may_stream = plan.protocol.may_stream(length);
    if r.incoming.is_body_unread() && !conf.request_buffering && may_stream {
        // A body that came with the head needs no wait, and can be sent again.
        let here = body_store::read_if_here(r).await?;
        return Ok(here.map_or(OutgoingState::Streamed(length), OutgoingState::Stored));
    }
    if !r.incoming.has_body() && body_store::stored_body(r).is_none() {
        return Ok(no_body(plan, r));
    }
    body_store::read_body(r).await.map(OutgoingState::Stored)
}
