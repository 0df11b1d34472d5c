//! The stream of events: sections that changed, once a second.

use super::history::HistorySpan;
use super::page::{query_span, rendered_sections, update_json};
use super::{DashboardState, content, on_thread, pool, protect};
use bytes::Bytes;
use http_engine::{BodyError, BodySource, Flow, HttpPlan, Piece, Request, ResponseBody};
use metrics::Lifecycle;
use runtime::time::{Sleep, sleep_for};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::oneshot;

/// Simultaneous streams of the process; clients beyond it ask for the data now and then.
pub const STREAMS_MAX: usize = 32;
const PERIOD: Duration = Duration::from_secs(1);
/// Events after which a stream ends. Clients begin a new one.
const EVENTS_MAX: u32 = 600;
/// Periods without a change after which a comment tells that the stream lives.
const SILENT_MAX: u32 = 15;

static STREAMS: AtomicUsize = AtomicUsize::new(0);

struct Seat;

impl Seat {
    fn take() -> Option<Seat> {
        let taken = STREAMS.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| (n < STREAMS_MAX).then_some(n + 1));
        taken.is_ok().then_some(Seat)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        STREAMS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Result of the API's thread: the event, if something changed, and the hashes of the sections.
type EventLook = (Option<String>, Vec<u64>);

enum Waits {
    Look(oneshot::Receiver<EventLook>),
    Time(Sleep),
    /// An event was sent: it must leave before the wait.
    Flush,
}

struct Events {
    _seat: Seat,
    shared: Arc<DashboardState>,
    plan: Arc<HttpPlan>,
    span: HistorySpan,
    /// Configurations that had served at the start: the stream ends with its configuration.
    loads: u64,
    sent: u32,
    silent: u32,
    known: Vec<u64>,
    waits: Waits,
}

impl Events {
    /// Asks the API's thread for what changed; waits for the next period if it is overloaded.
    fn look(&mut self) {
        let (shared, plan, span) = (self.shared.clone(), self.plan.clone(), self.span);
        let mut known = std::mem::take(&mut self.known);
        let job = move || {
            let event = update_json(&rendered_sections(&shared, &plan), span, &mut known);
            (event, known)
        };
        self.waits = match pool().run(job) {
            Ok(work) => Waits::Look(work),
            Err(_) => Waits::Time(sleep_for(PERIOD)),
        };
    }
    fn is_over(&self) -> bool {
        self.sent >= EVENTS_MAX || Lifecycle::is_ending() || Lifecycle::now().loads != self.loads
    }
}

impl BodySource for Events {
    fn poll_piece(&mut self, cx: &mut Context<'_>, _: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        loop {
            match &mut self.waits {
                Waits::Flush => {
                    self.waits = Waits::Time(sleep_for(PERIOD));
                    return Poll::Ready(Some(Ok(Piece::Flush)));
                }
                Waits::Time(time) => {
                    ready!(Pin::new(time).poll(cx));
                    if self.is_over() {
                        return Poll::Ready(None);
                    }
                    self.look();
                }
                Waits::Look(work) => {
                    let Ok((event, known)) = ready!(Pin::new(work).poll(cx)) else { return Poll::Ready(None) };
                    self.known = known;
                    let text = match event {
                        Some(event) => {
                            (self.sent, self.silent) = (self.sent + 1, 0);
                            format!("event: update\ndata: {event}\n\n")
                        }
                        None if self.silent >= SILENT_MAX => {
                            self.silent = 0;
                            ":\n\n".into()
                        }
                        None => {
                            self.silent += 1;
                            self.waits = Waits::Time(sleep_for(PERIOD));
                            continue;
                        }
                    };
                    self.waits = Waits::Flush;
                    return Poll::Ready(Some(Ok(Piece::Bytes(Bytes::from(text)))));
                }
            }
        }
    }
    /// An event may be missing.
    fn needs_window(&self) -> bool {
        false
    }
}

pub async fn start_events(r: &mut Request, shared: Arc<DashboardState>) -> Flow {
    let Some(seat) = Seat::take() else {
        r.out.add("Retry-After", "10");
        return content(r, 503, "text/plain; charset=utf-8", "Too many streams are open.\n");
    };
    let (plan, span) = (r.plan().clone(), query_span(r));
    let (first, of) = (shared.clone(), plan.clone());
    // The first look is made before the head, so that an overload has a status.
    let look = on_thread(move || {
        let mut known = Vec::new();
        (update_json(&rendered_sections(&first, &of), span, &mut known), known)
    });
    let (sender, receiver) = oneshot::channel();
    match look.await {
        Ok(look) => _ = sender.send(look),
        Err(status) => return Flow::Status(status),
    }
    protect(r);
    r.out.add("Cache-Control", "no-store");
    // Other servers in between must not buffer.
    r.out.add("X-Accel-Buffering", "no");
    r.out.set_status(200);
    r.out.set_content_type("text/event-stream");
    if r.is_head() {
        return Flow::Content(ResponseBody::Empty);
    }
    let loads = Lifecycle::now().loads;
    Flow::Content(ResponseBody::Source(Box::new(Events {
        _seat: seat,
        shared,
        plan,
        span,
        loads,
        sent: 0,
        silent: 0,
        known: Vec::new(),
        waits: Waits::Look(receiver),
    })))
}
