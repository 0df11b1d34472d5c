//! The exporter: makes batches, sends them, tries again. Runs on the control thread.

use crate::endpoint::Endpoint;
use crate::proto::{ExportTraceServiceRequest, InstrumentationScope, KeyValue, Resource, ResourceSpans, ScopeSpans};
use crate::queue::{EXPORTED, FAILED, Queue, REJECTED};
use crate::send::{SendOutcome, Sender};
use base::clock;
use bytes::Bytes;
use metrics::process;
use observe::{ErrorLog, Severity};
use prost::Message;
use runtime::time::{sleep_for, with_timeout};
use std::collections::VecDeque;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tls::ClientRules;
use tokio::sync::mpsc::UnboundedReceiver;

/// Maximum number of export attempts per batch.
const ATTEMPTS_MAX: u32 = 6;
/// Wait before the second attempt; it doubles, up to the maximum, with a random part of a half.
const WAIT_FIRST: Duration = Duration::from_millis(250);
const WAIT_MAX: Duration = Duration::from_secs(8);
/// Octets of a request above which a batch is divided; receivers of gRPC accept 4 MB by default.
const REQUEST_BYTES_MAX: usize = 3 << 20;
/// Time for a request, its connection included.
const REQUEST_TIME_MAX: Duration = Duration::from_secs(10);
/// Longest pause between looks at whether the plan is still in use.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Indexes of `tidegate_otel_exports`.
const OK: usize = 0;
const RETRIED: usize = 1;
const GIVEN_UP: usize = 2;

pub struct Settings {
    pub endpoint: Endpoint,
    pub headers: Vec<(String, String)>,
    /// The rules of `https`.
    pub rules: Option<Arc<ClientRules>>,
    pub interval: Duration,
    pub batch_size: usize,
    pub batch_count: usize,
    pub resource: Vec<KeyValue>,
    /// Name and version of the program.
    pub scope: (String, String),
}

pub struct Exporter {
    pub queue: Queue,
    settings: Settings,
    /// Taken by [`Exporter::run`].
    receiver: Mutex<Option<UnboundedReceiver<Vec<u8>>>>,
}

impl Exporter {
    pub fn new(settings: Settings) -> Exporter {
        let (queue, receiver) = Queue::new(settings.batch_size, settings.batch_count);
        Exporter { queue, settings, receiver: Mutex::new(Some(receiver)) }
    }

    /// Exports spans until `is_over` and the queue is empty. Returns at once if another call is running.
    pub async fn run(&self, log: Arc<ErrorLog>, is_over: impl Fn() -> bool) {
        let Some(mut receiver) = self.receiver.lock().unwrap_or_else(PoisonError::into_inner).take() else { return };
        let settings = &self.settings;
        let sender = Sender::new(
            settings.endpoint.clone(),
            settings.headers.clone(),
            http_client::Settings {
                rules: settings.rules.clone(),
                total: REQUEST_TIME_MAX,
                connect: REQUEST_TIME_MAX,
                ..http_client::Settings::default()
            },
        );
        let (mut spans, mut flush_at) = (VecDeque::new(), None);
        loop {
            let closing = self.queue.closing.load(Ordering::Acquire);
            if spans.is_empty() && self.queue.waiting.load(Ordering::Acquire) == 0 {
                flush_at = None;
                if is_over() {
                    return;
                }
            } else if flush_at.is_none() {
                flush_at = Some(clock::now().plus(settings.interval));
            }
            if !(closing && flush_at.is_some()) {
                let pause = flush_at.map_or(LOOK_MAX, |at| Duration::from_micros(at.micros_since(clock::now())));
                let _ = with_timeout(pause.min(LOOK_MAX), self.queue.full.notified()).await;
            }
            clock::update();
            let closing = self.queue.closing.load(Ordering::Acquire);
            while let Ok(span) = receiver.try_recv() {
                spans.push_back(span);
            }
            let due = closing || flush_at.is_some_and(|at| clock::now() >= at);
            while spans.len() >= settings.batch_size || (due && !spans.is_empty()) {
                let batch: Vec<Vec<u8>> = spans.drain(..spans.len().min(settings.batch_size)).collect();
                self.queue.waiting.fetch_sub(batch.len(), Ordering::AcqRel);
                self.deliver(&sender, batch, &log).await;
                clock::update();
                flush_at = None;
            }
        }
    }

    /// Sends a batch, in parts if it is large.
    async fn deliver(&self, sender: &Sender, batch: Vec<Vec<u8>>, log: &ErrorLog) {
        let mut parts = vec![batch];
        while let Some(mut part) = parts.pop() {
            let octets: usize = part.iter().map(Vec::len).sum();
            if octets > REQUEST_BYTES_MAX && part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([rest, part]);
                continue;
            }
            let n = part.len();
            let message = Bytes::from(self.request(part).encode_to_vec());
            self.attempts(sender, &message, n, log).await;
            self.queue.left(n);
        }
    }

    fn request(&self, spans: Vec<Vec<u8>>) -> ExportTraceServiceRequest {
        let (name, version) = self.settings.scope.clone();
        let scope = Some(InstrumentationScope { name, version });
        let resource = Some(Resource { attributes: self.settings.resource.clone() });
        let scope_spans = vec![ScopeSpans { scope, spans }];
        ExportTraceServiceRequest { resource_spans: vec![ResourceSpans { resource, scope_spans }] }
    }

    /// Sends a request until it is accepted, refused, or out of attempts.
    async fn attempts(&self, sender: &Sender, message: &Bytes, n: usize, log: &ErrorLog) {
        let mut wait = WAIT_FIRST;
        let mut attempt = 1;
        let why = loop {
            match sender.send(message).await {
                SendOutcome::Accepted(rejected, words) => {
                    let rejected = rejected.min(n as u64);
                    process::OTEL_EXPORTS.up_at(OK);
                    process::OTEL_SPANS.add_at(EXPORTED, n as u64 - rejected);
                    process::OTEL_SPANS.add_at(REJECTED, rejected);
                    if rejected > 0 || !words.is_empty() {
                        let words = format_args!("OTel receiver rejected {rejected} of {n} spans: {words}");
                        log.log(Severity::Warn, 0, words);
                    }
                    return;
                }
                SendOutcome::Failed(why) => break why,
                SendOutcome::Retry(why, _) if attempt >= ATTEMPTS_MAX => break why,
                SendOutcome::Retry(why, asked) => {
                    process::OTEL_EXPORTS.up_at(RETRIED);
                    log.log(Severity::Info, 0, format_args!("OTel export is tried again: {why}"));
                    let random = u32::from(net::random::bytes16().first().copied().unwrap_or_default());
                    let pause = asked.unwrap_or(wait / 2 + wait / 2 * random / 256);
                    self.pause(pause).await;
                    wait = (wait * 2).min(WAIT_MAX);
                    attempt += 1;
                }
            }
        };
        process::OTEL_EXPORTS.up_at(GIVEN_UP);
        process::OTEL_SPANS.add_at(FAILED, n as u64);
        log.log(Severity::Error, 0, format_args!("OTel export failure: {why} ({})", self.settings.endpoint.url));
    }

    /// Waits before another attempt, not for long at the end of the process.
    async fn pause(&self, pause: Duration) {
        let until = clock::now().plus(pause);
        while !self.queue.closing.load(Ordering::Acquire) && clock::now() < until {
            let left = Duration::from_micros(until.micros_since(clock::now()));
            let _ = with_timeout(left, self.queue.full.notified()).await;
            clock::update();
        }
        if self.queue.closing.load(Ordering::Acquire) {
            sleep_for(pause.min(WAIT_FIRST)).await;
        }
        // The permit that ended the pause may stand for a batch.
        self.queue.full.notify_one();
    }

    /// Asks for the export of everything in the queue, and waits for its end.
    pub async fn flush(&self) {
        self.queue.closing.store(true, Ordering::Release);
        self.queue.full.notify_one();
        loop {
            let drained = self.queue.drained.notified();
            let mut drained = std::pin::pin!(drained);
            drained.as_mut().enable();
            if self.queue.held() == 0 {
                return;
            }
            drained.await;
        }
    }
}
