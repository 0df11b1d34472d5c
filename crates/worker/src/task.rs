//! A connection's task, for everything that waits; ends by closing the connection or making it idle.

use crate::guard::{TaskGuard, WriteGuard};
use crate::h2;
use crate::head_in::{self, HeadState};
use crate::input::{BodyState, Input, Reader};
use crate::linger;
use crate::link::Link;
use crate::output::{self, SendError, Sender};
use crate::presence::Presence;
use crate::raw::Raw;
use crate::secure::Secure;
use crate::steps;
use crate::worker::Worker;
use base::clock;
use bytes::Bytes;
use http_engine::engine::{self, PhaseOutcome};
use http_engine::{ClientConnection, PartialHead, Piece, Request, counting};
use http_types::{BodyLength, Known};
use metrics::process;
use net::poller::Key;
use observe::Severity;
use runtime::budget;
use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;
use wire_h1::HeadParser;

/// The work that a task begins with.
pub enum Start {
    /// Read bytes: part of a head, several requests, or none.
    Bytes(Vec<u8>),
    /// Request whose body starts with these bytes.
    Request(Box<Request>, Vec<u8>),
    /// Waiting request, and the bytes after it.
    Outcome(PhaseOutcome, Vec<u8>),
    /// Refused head with its bytes.
    Refused(Box<Request>, u16, Vec<u8>),
    /// Unsent rest of a response, its request, and what follows.
    Unsent { head: Vec<u8>, body: Piece, last: Box<Request>, then: Option<Box<Start>> },
    /// Writes TLS output until this time.
    Flush(clock::Instant),
}

/// Starts the connection's task. The entry is busy until the task ends or the connection becomes idle again.
pub fn spawn_task(worker: &Rc<Worker>, key: Key, connection: &Rc<ClientConnection>, start: Start) {
    worker.poller.set_busy(key);
    let (worker, connection) = (worker.clone(), connection.clone());
    let work = async move {
        let guard = TaskGuard::new(&worker, key);
        let mut client = Client {
            worker: worker.clone(),
            key,
            link: Link::of(&worker, key),
            connection,
            input: Rc::new(RefCell::new(Input::default())),
        };
        let end = client.run(start).await;
        match end {
            End::Close => {}
            End::Park(idle_ms) => {
                guard.disarm();
                client.link.shrink();
                worker.poller.set_idle(key, clock::now().plus_millis(idle_ms));
            }
            End::ParkUntil(until) => {
                guard.disarm();
                worker.poller.set_idle(key, until);
            }
            End::Http2 => {
                guard.disarm();
                worker.poller.set_idle(key, clock::Instant(u64::MAX));
                h2::begin_http2(&worker, key, &client.connection, None, client.input.borrow().bytes());
            }
            End::Begun => {
                guard.disarm();
                let connection = &client.connection;
                let began = connection.started;
                worker.poller.set_idle(key, began.plus_millis(u64::MAX / 1000));
                head_in::keep_head(&worker, key, connection, client.input.borrow().bytes(), true, None);
            }
            End::Linger(limits) => Box::pin(linger::drain_link(&client.link, &client.input, limits)).await,
        }
        drop(guard);
    };
    // Boxed: the executor moves its argument.
    runtime::task::spawn_local(Box::pin(work));
}

enum End {
    Close,
    /// Idle, with a timeout in milliseconds.
    Park(u64),
    ParkUntil(clock::Instant),
    /// HTTP/2 starts with the read bytes.
    Http2,
    /// Idle with an incomplete head.
    Begun,
    Linger(linger::Limits),
}

struct Client {
    worker: Rc<Worker>,
    key: Key,
    link: Link,
    connection: Rc<ClientConnection>,
    input: Rc<RefCell<Input>>,
}

impl Client {
    async fn run(&mut self, start: Start) -> End {
        let mut next = None;
        match start {
            Start::Bytes(bytes) => {
                self.input.borrow_mut().buf = bytes;
                if let Err(end) = Box::pin(self.proxy_header()).await {
                    return end;
                }
            }
            Start::Request(r, bytes) => {
                self.input.borrow_mut().buf = bytes;
                next = Some(Ok(r));
            }
            Start::Refused(r, status, bytes) => {
                self.input.borrow_mut().buf = bytes;
                next = Some(Err((r, status)));
            }
            Start::Outcome(outcome, bytes) => {
                self.input.borrow_mut().buf = bytes;
                let state = Rc::new(BodyState::new(BodyLength::None, false));
                if let Some(end) = self.answer(outcome, &state).await {
                    return end;
                }
            }
            Start::Unsent { head, body, last, then } => match (Box::pin(self.tail(head, body, last)).await, then) {
                (End::Park(_), Some(then)) => return Box::pin(self.run(*then)).await,
                (end, _) => return end,
            },
            Start::Flush(until) => {
                return match runtime::time::timeout_at(until, self.link.flushed()).await {
                    Ok(Ok(())) => End::ParkUntil(until),
                    _ => End::Close,
                };
            }
        }
        loop {
            // A client that sends requests without end must not keep the thread.
            budget::spend(budget::STEP as usize);
            budget::charge_time();
            budget::proceed().await;
            let request = match next.take() {
                Some(request) => request,
                None => match self.head().await {
                    Ok(request) => request,
                    Err(end) => return end,
                },
            };
            let end = match request {
                Ok(r) => self.request(r).await,
                Err((mut r, status)) => {
                    // Nothing after a broken head is trustworthy.
                    r.reply.set_keep_alive(false);
                    let state = Rc::new(BodyState::new(BodyLength::None, false));
                    self.answer(engine::fail_request(r, status), &state).await
                }
            };
            if let Some(end) = end {
                return end;
            }
        }
    }

    /// Reads a head; `Err` when the connection ends or becomes idle.
    async fn head(&mut self) -> Result<Result<Box<Request>, (Box<Request>, u16)>, End> {
        let Some(core) = self.worker.default_conf(&self.connection) else { return Err(End::Close) };
        let deadline = clock::now().plus(core.conf.client_header_timeout.duration());
        let mut limits = head_in::head_limits(&self.worker, &self.connection);
        let mut parser = HeadParser::default();
        let Some(mut r) = self.worker.request(&self.connection) else { return Err(End::Close) };
        let mut reading = None;
        loop {
            if !self.input.borrow().bytes().is_empty() {
                let (head, spare) = {
                    let input = self.input.borrow();
                    head_in::read_head(&mut parser, &limits, input.bytes(), r, &self.connection)
                };
                match (head, spare) {
                    (HeadState::Request(mut r, used), _) => {
                        self.input.borrow_mut().use_up(used);
                        counting::count_begun(&mut r);
                        return Ok(Ok(r));
                    }
                    (HeadState::Refused(mut r, status), _) => {
                        counting::count_begun(&mut r);
                        return Ok(Err((r, status)));
                    }
                    (HeadState::Partial, Some(same)) => r = same,
                    (HeadState::Partial, None) => return Err(End::Close),
                }
            }
            if self.input.borrow().bytes().len() <= head_in::BEGUN_BYTES_MAX {
                self.worker.pools.put_request(r);
                return Err(End::Begun);
            }
            reading.get_or_insert_with(Reading::begin);
            let got = Input::read(&self.input, &self.link, runtime::time::sleep_until(deadline)).await;
            match got {
                Ok(0) => {
                    self.note(r, 400, "client prematurely closed connection");
                    return Err(End::Close);
                }
                Ok(_) => {
                    // After a reload, the plan of the head's last byte applies.
                    let is_current =
                        self.worker.plan.borrow().as_ref().is_some_and(|plan| Rc::ptr_eq(plan, &r.plan_rc()));
                    if !is_current {
                        self.worker.pools.put_request(r);
                        limits = head_in::head_limits(&self.worker, &self.connection);
                        parser = HeadParser::default();
                        let Some(renewed) = self.worker.request(&self.connection) else { return Err(End::Close) };
                        r = renewed;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    self.note(r, 408, head_in::TIMED_OUT);
                    self.reset_timed_out();
                    return Err(End::Close);
                }
                Err(_) => {
                    self.worker.pools.put_request(r);
                    return Err(End::Close);
                }
            }
        }
    }

    fn note(&self, r: Box<Request>, status: u16, words: &str) {
        let since = r.accounting.started();
        self.worker.pools.put_request(r);
        head_in::never_came(&self.worker, &self.connection, self.input.borrow().bytes(), since, status, words);
    }

    async fn request(&mut self, mut r: Box<Request>) -> Option<End> {
        r.incoming.set_watch(Some(Rc::new(Presence { link: self.link.clone() })));
        let expects = r.header(Known::Expect).is_some_and(|v| v.eq_ignore_ascii_case(b"100-continue"))
            && r.target.version() >= http_types::Version::Http11;
        let length = r.incoming.body_length().unwrap_or(BodyLength::None);
        let state = Rc::new(BodyState::new(length, expects));
        // The body's reader sends an expected 100, even for an empty body; without a body it precedes the response.
        if !state.done() || (expects && length == BodyLength::Exact(0)) {
            r.incoming.count_body_by(state.clone());
            let conf = &r.loc().core.conf;
            r.incoming.set_body(Box::new(Reader {
                link: self.link.clone(),
                input: self.input.clone(),
                state: state.clone(),
                timeout: conf.client_body_timeout.duration(),
                sleep: None,
                limit: 0,
                taken: 0,
            }));
        }
        if !state.in_order(self.input.borrow().bytes()) {
            r.reply.set_keep_alive(false);
            r.incoming.note_malformed_body();
            r.log(Severity::Error, format_args!("client sent invalid chunked body"));
        }
        steps::note_step();
        self.answer(engine::start_phases(r), &state).await
    }

    /// Sends a response and drains the body; `None`: continue with the next request.
    async fn answer(&mut self, outcome: PhaseOutcome, state: &Rc<BodyState>) -> Option<End> {
        let writing = WriteGuard::begin();
        let (mut r, body) = engine::finish_request(outcome).await;
        r.accounting.note_counted();
        if self.link.is_cut() {
            // Logs 000, as nginx: the server itself has closed the connection.
            r.incoming.add_body(state.read.get());
            r.out.set_status(0);
            self.worker.finished(r);
            return Some(End::Close);
        }
        let Some(body) = body else {
            r.incoming.add_body(state.read.get());
            let timed_out = (r.out.status() == 408).then(|| r.loc().core.clone());
            if state.cut.get() {
                r.out.set_status(400);
                r.log(Severity::Info, format_args!("client prematurely closed connection"));
            }
            if r.out.status() == 0 {
                r.out.set_status(444);
            } else {
                r = engine::post_action(r).await;
            }
            self.worker.finished(r);
            if let Some(core) = timed_out {
                self.reset_if(&core);
            }
            return Some(End::Close);
        };
        if r.incoming.wants_continue() {
            Reader::say_continue_even_if_empty(&self.link, state);
        }
        // A multi-write response must not wait for acknowledgements.
        if r.loc().core.conf.tcp_nodelay {
            self.worker.no_delay(self.key, &self.connection);
        }
        let sent = output::send_response(&self.link, &mut r, body).await;
        r.incoming.add_body(state.read.get());
        // nginx counts 100 (Continue) as a part of the body.
        r.accounting.add_sent(state.sent.get(), state.sent.get());
        r.accounting.set_completed(sent.is_ok());
        if let Err(e) = sent {
            self.not_sent(&r, e);
            self.worker.finished(engine::post_action(r).await);
            return Some(End::Close);
        }
        if let Some(tunnel) = r.reply.take_tunnel() {
            let raw = Raw { link: self.link.clone(), input: self.input.clone() };
            let ended = tunnel.run(Box::new(raw)).await;
            r.accounting.add_sent(ended.sent, ended.sent);
            r.tunnel_ended(ended);
            self.worker.finished(r);
            return Some(End::Close);
        }
        if r.loc().core.needs_task {
            r = engine::post_action(r).await;
        }
        if r.has_background() {
            std::future::poll_fn(|cx| r.poll_background(cx)).await;
        }
        drop(writing);
        let conf = r.loc().core.clone();
        let keep_alive = r.reply.keeps_alive() && !self.worker.turn().is_quitting();
        let has_body = !state.done();
        // Lingers behind bodies that a handler has read, as nginx does: some clients send octets behind them.
        let had_body = matches!(r.incoming.body_length(), Some(BodyLength::Chunked | BodyLength::Exact(1..)));
        self.worker.finished(r);
        if !keep_alive {
            let more = has_body
                || had_body
                || !self.input.borrow().bytes().is_empty()
                || self.worker.poller.readable_now(self.key)
                || self.connection.pipelining.is_seen();
            let is_due = linger::is_due(conf.conf.lingering_close, more);
            return Some(if is_due { End::Linger(linger::Limits::of(&conf.conf)) } else { End::Close });
        }
        if has_body && let Some(end) = Box::pin(self.discard(state, &conf)).await {
            return Some(end);
        }
        if !self.input.borrow().bytes().is_empty() {
            self.connection.pipelining.note();
            return None;
        }
        Some(End::Park(conf.conf.keepalive_timeout.millis))
    }

    /// Drains an unused body before the next request.
    async fn discard(&mut self, state: &Rc<BodyState>, core: &http_engine::plan::Core) -> Option<End> {
        let deadline = clock::now().plus(core.conf.lingering_time.duration());
        loop {
            match state.take(&self.input) {
                Ok(Some(_)) => continue,
                Ok(None) if state.done() => return None,
                Ok(None) => {}
                Err(_) => return Some(End::Close),
            }
            let wait = core.conf.lingering_timeout.duration().max(Duration::from_millis(1));
            let until = deadline.min(clock::now().plus(wait));
            match Input::read(&self.input, &self.link, runtime::time::sleep_until(until)).await {
                Ok(n) if n > 0 => {}
                Err(e) if e.kind() == io::ErrorKind::TimedOut => {
                    self.reset_if(core);
                    return Some(End::Close);
                }
                _ => return Some(End::Close),
            }
        }
    }

    async fn tail(&mut self, head: Vec<u8>, body: Piece, mut last: Box<Request>) -> End {
        let conf = last.loc().core.clone();
        if conf.conf.tcp_nodelay {
            self.worker.no_delay(self.key, &self.connection);
        }
        let mut sender = Sender::new(self.link.clone(), conf.conf.send_timeout.0);
        let unsent = head.len() as u64 + body.len();
        sender.push(Piece::Bytes(Bytes::from(head)));
        sender.push(body);
        let sent = sender.flush().await;
        last.accounting.set_completed(sent.is_ok());
        if sent.is_err() {
            let total = last.accounting.bytes_sent().saturating_sub(unsent - sender.sent);
            last.accounting.set_sent(total, total.saturating_sub(last.accounting.header_size()));
        }
        if let Err(e) = sent {
            self.not_sent(&last, e);
        }
        let keep_alive = last.reply.keeps_alive() && !self.worker.turn().is_quitting();
        self.worker.finished(last);
        match (sent, keep_alive) {
            (Ok(()), true) => End::Park(conf.conf.keepalive_timeout.millis),
            (Ok(()), false) if linger::is_due(conf.conf.lingering_close, true) => {
                End::Linger(linger::Limits::of(&conf.conf))
            }
            (Ok(()), false) => End::Close,
            (Err(_), _) => End::Close,
        }
    }

    /// Logs why a response was not sent whole. Makes the close after a timeout a reset, as the request's location says.
    #[cold]
    fn not_sent(&self, r: &Request, e: SendError) {
        match e {
            SendError::TimedOut => {
                r.log(Severity::Info, format_args!("{}", head_in::TIMED_OUT));
                self.reset_if(&r.loc().core);
            }
            SendError::Gone(code) if !self.link.is_cut() => {
                let code = code.map(|code| format!(" {}", observe::os_error(&io::Error::from_raw_os_error(code))));
                let code = code.unwrap_or_default();
                r.log(Severity::Info, format_args!("client prematurely closed connection{code}"));
            }
            SendError::Gone(_) | SendError::Truncated => {}
        }
    }

    /// Makes the close after a timeout a reset, as the request's location says.
    fn reset_if(&self, core: &http_engine::plan::Core) {
        if core.conf.reset_timedout_connection {
            self.worker.poller.set_reset_on_close(self.key);
        }
    }

    fn reset_timed_out(&self) {
        head_in::reset_timed_out(&self.worker, self.key, &self.connection);
    }

    async fn proxy_header(&mut self) -> Result<(), End> {
        let (expected, has_ssl, has_http2) = {
            let plan = self.worker.plan.borrow();
            let Some(listener) = plan.as_ref().and_then(|plan| plan.listener_of(&self.connection)) else {
                return Err(End::Close);
            };
            let is_first = self.connection.proxy.is_none() && self.connection.requests.get() == 0;
            (listener.proxy_protocol && is_first, listener.ssl, listener.http2)
        };
        if expected {
            let parsed = wire_proxy::parse_header(self.input.borrow().bytes());
            match parsed {
                Ok(Some((header, used))) => {
                    let bytes = self.input.borrow().bytes().get(..used).unwrap_or_default().to_vec();
                    self.input.borrow_mut().use_up(used);
                    let old = &self.connection;
                    let connection = Rc::new(ClientConnection {
                        number: old.number,
                        peer: old.peer,
                        local: old.local.clone(),
                        listener: old.listener.clone(),
                        requests: old.requests.clone(),
                        nodelay: old.nodelay.clone(),
                        pipelining: http_engine::PipelineState::default(),
                        started: old.started,
                        proxy: Some(Box::new((header, bytes))),
                        socket: old.socket,
                        tls: old.tls.clone(),
                        begun: PartialHead::default(),
                    });
                    self.connection = connection.clone();
                    if has_ssl {
                        let secure = Secure::new(connection, self.input.borrow().bytes());
                        self.worker.poller.set_registration(self.key, Rc::new(secure));
                        self.worker.poller.note_readable(self.key);
                        return Err(End::ParkUntil(self.worker.poller.deadline(self.key)));
                    }
                    self.worker.poller.set_registration(self.key, connection);
                    let bytes = self.input.borrow();
                    return match has_http2.then(|| h2::is_preface(bytes.bytes())) {
                        Some(Some(true)) => Err(End::Http2),
                        Some(None) => Err(End::Begun),
                        _ => Ok(()),
                    };
                }
                Ok(None) => return Err(End::Begun),
                Err(e) => {
                    let mut words = Vec::new();
                    e.log(&mut words);
                    let words = String::from_utf8_lossy(&words);
                    let words = format_args!("{words} while reading PROXY protocol");
                    self.worker.log_client(Severity::Error, &self.connection, words);
                    return Err(End::Close);
                }
            }
        }
        Ok(())
    }
}

struct Reading;
impl Reading {
    fn begin() -> Reading {
        process::CONNECTIONS_READING.up();
        Reading
    }
}
impl Drop for Reading {
    fn drop(&mut self) {
        process::CONNECTIONS_READING.down();
    }
}
