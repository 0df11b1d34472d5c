//! Work that waits for a server and is polled where its connection stands, without a task or a future of its own.
//!
//! A handler that only moves bytes between two sockets returns [`Flow::Exchange`]. The connection's carrier keeps the exchange
//! beside the request, polls it when one of its sockets turns ready, and writes the response in that turn. Where a request has
//! a task already (HTTP/2, subrequests, bodies), [`drive`] makes a future of it.

use crate::request::{Flow, Later, LocalFuture, Request};
use std::task::{Context, Poll};

/// See the module's documentation. Dropped unfinished, it closes what it has opened.
pub trait Exchange {
    /// Proceeds as far as its sockets allow. `Ready`: the handler's answer, after which the exchange is not polled again.
    /// `Pending`: the waker of `cx` is woken once there is more to do.
    fn poll(&mut self, r: &mut Request, cx: &mut Context<'_>) -> Poll<Flow>;
    /// The client has gone. `Some`: the exchange ends with this; `None`: it goes on without a client, and is polled again.
    fn client_gone(&mut self, r: &mut Request) -> Option<Flow>;
    /// Takes the memory of a finished exchange back for the next one.
    fn recycle(self: Box<Self>);
}

/// Runs an exchange to its end, or until the client has gone.
pub async fn drive(mut exchange: Box<dyn Exchange>, mut r: Box<Request>) -> (Box<Request>, Flow) {
    let watch = r.watch.clone();
    let mut alone = watch.is_none();
    let flow = std::future::poll_fn(|cx| {
        if let Poll::Ready(flow) = exchange.poll(&mut r, cx) {
            return Poll::Ready(flow);
        }
        if let Some(watch) = watch.as_ref().filter(|_| !alone)
            && watch.poll_gone(cx).is_ready()
        {
            match exchange.client_gone(&mut r) {
                Some(flow) => return Poll::Ready(flow),
                None => alone = true,
            }
        }
        Poll::Pending
    })
    .await;
    exchange.recycle();
    (r, flow)
}

/// The same as work of a handler that wraps another: what the exchange leaves to a task is done as well.
pub fn later(exchange: Box<dyn Exchange>) -> Later {
    Box::new(move |r| -> LocalFuture<(Box<Request>, Flow)> {
        Box::pin(async move {
            match drive(exchange, r).await {
                (r, Flow::Later(rest)) => rest(r).await,
                said => said,
            }
        })
    })
}
