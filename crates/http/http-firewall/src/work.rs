//! Evaluation in the loop or on a thread of the pool.

use crate::state::FirewallState;
use bytes::Bytes;
use http_engine::{FilePart, Flow, Piece, Request};
use net::pool::Overflow;
use observe::Severity;
use std::io;
use std::os::unix::fs::FileExt as _;
use waf::{Transaction, Verdict};

/// Bytes of a request's head that are evaluated in the loop: some hundreds of microseconds with CRS
/// (docs/decisions/0168).
pub(crate) const HEAD_IN_LOOP_MAX: usize = 4 * 1024;
/// Bytes of a body that are evaluated in the loop.
pub(crate) const BODY_IN_LOOP_MAX: usize = 256;

/// Runs a phase at once.
pub(crate) fn run_here(r: &mut Request, work: impl FnOnce(&mut Transaction) -> Verdict) -> Verdict {
    let state = r.ext_mut::<FirewallState>();
    match state.and_then(|state| state.transaction.as_mut()) {
        Some(transaction) => work(transaction),
        None => Verdict::Pass,
    }
}

/// Runs a phase on a thread of the pool `default`. A client that leaves does not end it: its request is logged with the
/// matches. Fails with the answer if the pool has no room, if the engine failed, or if `work` did, which is logged: the
/// request is not let through.
pub(crate) async fn run_pooled(
    r: &mut Request,
    work: impl FnOnce(&mut Transaction) -> io::Result<Verdict> + Send + 'static,
) -> Result<Verdict, Flow> {
    let taken = r.ext_mut::<FirewallState>().and_then(|state| state.transaction.take());
    let Some(mut transaction) = taken else { return Ok(Verdict::Pass) };
    let Some(pool) = net::pool::find_pool(net::pool::DEFAULT) else {
        let verdict = work(&mut transaction);
        return give_back(r, transaction, verdict);
    };
    let started = pool.run_long(move |_| {
        let verdict = work(&mut transaction);
        (transaction, verdict)
    });
    match started {
        Ok(waiting) => match waiting.await {
            Ok((transaction, verdict)) => give_back(r, transaction, verdict),
            Err(_) => {
                r.log(Severity::Crit, format_args!("ModSecurity: the inspection of the request failed"));
                Err(Flow::Status(500))
            }
        },
        Err(Overflow { waiting }) => {
            let name = net::pool::DEFAULT;
            r.log(Severity::Error, format_args!("thread pool \"{name}\" queue overflow: {waiting} tasks waiting"));
            Err(Flow::Status(503))
        }
    }
}

/// Reads a part of a file on a thread of the pool `default`. Fails with the answer, which is logged, if the pool has no room
/// or the file cannot be read.
pub(crate) async fn read_pooled(r: &mut Request, part: &FilePart) -> Result<Bytes, Flow> {
    let (start, length) = (part.start, usize::try_from(part.length).unwrap_or(usize::MAX));
    let file = part.file.file.clone();
    let job = move || -> io::Result<Bytes> {
        let mut bytes = vec![0; length];
        file.read_exact_at(&mut bytes, start)?;
        Ok(bytes.into())
    };
    let read = match net::pool::find_pool(net::pool::DEFAULT).map(|pool| pool.run(job)) {
        Some(Ok(waiting)) => waiting.await.unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
        Some(Err(Overflow { waiting })) => {
            let name = net::pool::DEFAULT;
            r.log(Severity::Error, format_args!("thread pool \"{name}\" queue overflow: {waiting} tasks waiting"));
            return Err(Flow::Status(503));
        }
        // Without a pool, as in simulations.
        None => Piece::File(part.clone()).into_bytes(),
    };
    read.map_err(|error| {
        let shown = observe::os_error(&error);
        r.log(Severity::Crit, format_args!("ModSecurity: reading the response's body failed {shown}"));
        Flow::Close
    })
}

/// Returns the transaction to its request. Fails if the work did.
fn give_back(r: &mut Request, transaction: Box<Transaction>, verdict: io::Result<Verdict>) -> Result<Verdict, Flow> {
    if let Some(state) = r.ext_mut::<FirewallState>() {
        state.transaction = Some(transaction);
    }
    verdict.map_err(|error| {
        let shown = observe::os_error(&error);
        r.log(Severity::Crit, format_args!("ModSecurity: reading the request's body failed {shown}"));
        Flow::Status(500)
    })
}
