//! Work that waits for a server, polled in place by its connection without a task or future.
//! The carrier polls [`Flow::Exchange`] when one of its sockets is ready, and writes the response in that turn. For
//! tasks (HTTP/2, subrequests, bodies), [`drive_exchange`] wraps it in a future.

use crate::handler::{Exchange, Flow, Later, LocalFuture};
use crate::request::Request;
use std::task::Poll;

/// Drives an exchange as a future, for requests that have a task. A client's disconnection is passed on once to
/// [`Exchange::client_gone`], which may let the exchange go on without the client.
pub async fn drive_exchange(mut exchange: Box<dyn Exchange>, mut r: Box<Request>) -> (Box<Request>, Flow) {
    let watch = r.incoming.watch.clone();
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
    (r, flow)
}

/// Converts an exchange, and the work it leaves to a task, for a handler that wraps another.
pub fn later_exchange(exchange: Box<dyn Exchange>) -> Later {
    Box::new(move |r| -> LocalFuture<(Box<Request>, Flow)> {
        Box::pin(async move {
            match drive_exchange(exchange, r).await {
                (r, Flow::Later(rest)) => rest(r).await,
                said => said,
            }
        })
    })
}
