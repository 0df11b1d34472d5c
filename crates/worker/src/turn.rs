//! A worker's loop. A turn: commands; one wait for all events or the next deadline; clock; readable connections and
//! listeners; deadlines (after events, so that timely input is never late); tasks.
//! Events and tasks each have a share of a turn, so that neither delays the other or the commands.

use crate::accept;
use crate::command::{ThreadInit, WorkerCommand, begin_quit, open, reload, watch_files};
use crate::guard::call_guarded;
use crate::room::AdmitOrder;
use crate::worker::Worker;
use base::clock::{self, Instant};
use http_engine::counting;
use metrics::process;
use net::poller::Key;
use observe::Severity;
use runtime::{LoopWaker, budget, task, time, wake};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

/// Microseconds of events, and of tasks, before the other's share.
const SHARE_MICROS: u64 = 1000;
/// Handshakes per turn within their share: a flood of them costs others a millisecond per turn.
const HANDSHAKES_MAX: usize = 4;
/// Slices of work between readings of the clock.
const CLOCK_SLICES: u32 = 4;

/// Microseconds above which a turn counts as long.
const TURN_MICROS_MAX: u64 = 1000;

struct Share {
    until: Instant,
    slices: u32,
}

impl Share {
    fn begin() -> Share {
        Share { until: Instant(clock::now().0 + SHARE_MICROS), slices: 0 }
    }
    /// After a slice of work: tells whether the share is used up.
    fn is_over(&mut self) -> bool {
        self.slices += 1;
        if !self.slices.is_multiple_of(CLOCK_SLICES) && budget::is_left() {
            return false;
        }
        clock::update();
        clock::now() >= self.until
    }
}

thread_local! {
    /// Worker of the thread, for messages about long turns.
    static WORKER: RefCell<Weak<Worker>> = const { RefCell::new(Weak::new()) };
}

/// Logs a turn above `stall_threshold`: clients have waited, because of blocking calls or a lack of processor time.
#[cold]
fn note_stall(micros: u64) {
    let Some(worker) = WORKER.with_borrow(Weak::upgrade) else { return };
    let threshold_ms = worker.serving().stall_threshold_ms;
    let ms = micros / 1000;
    if threshold_ms > 0 && ms > threshold_ms {
        worker.log(Severity::Warn, 0, format_args!("event loop stalled for {ms} ms"));
    }
}

struct MeasuredTurn(Instant);

impl Drop for MeasuredTurn {
    fn drop(&mut self) {
        // `clock::update` follows the wait.
        let micros = clock::read().micros_since(self.0);
        process::LOOP_TURNS.up();
        process::LOOP_BUSY.add(micros);
        if micros > TURN_MICROS_MAX {
            process::LOOP_TURNS_LONG.up();
            process::LOOP_TIMES.note(micros);
            note_stall(micros);
        }
    }
}

/// Result of a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TurnProgress {
    /// Nothing was to be done.
    None,
    /// Something was done.
    Some,
    /// The thread must end.
    Ended,
}

/// The loop of a worker thread. [`Turns::begin`] on the thread itself, then [`Turns::turn`] until it returns
/// [`TurnProgress::Ended`].
pub struct Turns {
    thread: Option<runtime::Thread>,
    /// State of the thread.
    pub worker: Rc<Worker>,
    commands: tokio::sync::mpsc::UnboundedReceiver<WorkerCommand>,
    told: Arc<LoopWaker>,
    waker: Waker,
    found: Vec<Key>,
    /// Readable connections and listeners, in order.
    ready: VecDeque<Key>,
    /// Readable connections in TLS handshakes, processed last.
    handshakes: VecDeque<Key>,
    due: Vec<Key>,
    stop_at: Option<Instant>,
    stopping: bool,
    before: Option<net::outbound::Before>,
    /// Shows the thread's metrics.
    _metrics: metrics::MetricZone<metrics::worker::Of>,
}

impl Turns {
    /// Prepares the calling thread: executor, poller, sockets.
    pub fn begin(init: ThreadInit) -> std::io::Result<Turns> {
        clock::update();
        metrics::mark_worker(init.index);
        let tid = net::process::thread_id();
        let own_metrics = metrics::worker_zone(init.index, move || net::process::cpu_micros_of(tid).unwrap_or(0));
        metrics::prepare_thread();
        let thread = runtime::Thread::enter()?;
        let worker = Rc::new(Worker::new(init.serving)?);
        WORKER.set(Rc::downgrade(&worker));
        let before = net::outbound::watch_with(&worker.poller);
        net::outbound::limit_with(Some(Rc::new(AdmitOrder(Rc::downgrade(&worker)))));
        worker.poller.add_copy(thread.remote().event().try_clone()?)?;
        watch_files(&worker)?;
        for bound in init.listeners {
            open(&worker, bound)?;
        }
        let told = thread.loop_waker();
        Ok(Turns {
            waker: told.waker(),
            told,
            thread: Some(thread),
            worker,
            commands: init.commands,
            found: Vec::with_capacity(net::poller::EVENTS_MAX),
            ready: VecDeque::with_capacity(net::poller::EVENTS_MAX),
            handshakes: VecDeque::new(),
            due: Vec::new(),
            stop_at: None,
            stopping: false,
            before: Some(before),
            _metrics: own_metrics,
        })
    }

    /// Returns the time of the next deadline or timer; `None`: there is none.
    pub fn next_due(&self) -> Option<Instant> {
        let worker = &self.worker;
        let nearer = |one: Option<Instant>, other: Option<Instant>| match (one, other) {
            (Some(one), Some(other)) => Some(one.min(other)),
            (one, other) => one.or(other),
        };
        let seldom = nearer(self.stop_at, nearer(worker.admission.paused_until(), worker.next_cutoff()));
        nearer(worker.poller.next_due(), nearer(time::next(), seldom))
    }

    /// Runs a turn. `waits`: may sleep when idle.
    pub fn turn(&mut self, waits: bool) -> std::io::Result<TurnProgress> {
        let mut progress = TurnProgress::None;
        if self.told.take() {
            while let Poll::Ready(command) = self.commands.poll_recv(&mut Context::from_waker(&self.waker)) {
                progress = TurnProgress::Some;
                clock::update();
                if self.obey(command) {
                    return Ok(TurnProgress::Ended);
                }
            }
        }
        let Some(thread) = &self.thread else { return Ok(TurnProgress::Ended) };
        let worker = &self.worker;
        // A command may have caused output (GOAWAY), which leaves at this turn's end.
        let has_words = worker.turn().has_output();
        let left = !waits
            || !self.ready.is_empty()
            || !self.handshakes.is_empty()
            || has_words
            || task::any_ready()
            || is_done(worker);
        let until = if left || !thread.remote().begin_sleep() { Some(Instant::default()) } else { self.next_due() };
        worker.poller.wait(until, &mut self.found)?;
        thread.remote().end_sleep();
        // After the wait: events must not lie in the future.
        clock::update();
        let _turn = MeasuredTurn(clock::now());
        // Before any request: changed files must not be served stale.
        if let Some(files) = worker.files()
            && let Some(at) = self.found.iter().position(|key| *key == files)
        {
            // Keeps the order of arrival.
            call_guarded(worker, self.found.remove(at), act);
        }
        for key in self.found.drain(..) {
            self.ready.push_back(key);
        }
        wake::take(&mut self.ready);
        worker.turn().set_events(self.ready.len());
        let mut share = Share::begin();
        while let Some(key) = self.ready.pop_front() {
            progress = TurnProgress::Some;
            budget::renew();
            if worker.is_handshaking(key) {
                self.handshakes.push_back(key);
                worker.admission.note_queued_handshakes(true);
                continue;
            }
            call_guarded(worker, key, act);
            if share.is_over() {
                break;
            }
        }
        let mut share = Share::begin();
        for _ in 0..HANDSHAKES_MAX {
            let Some(key) = self.handshakes.pop_front() else { break };
            progress = TurnProgress::Some;
            budget::renew();
            call_guarded(worker, key, act);
            if share.is_over() {
                break;
            }
        }
        worker.admission.note_queued_handshakes(!self.handshakes.is_empty());
        if self.stop_at.is_some_and(|at| at <= clock::now()) {
            // Cuts all clients: sessions and streams announce their end, and tasks log their requests. Drops tasks that
            // still wait when none is ready.
            let sessions = worker.areas.session_count();
            let is_empty = sessions == 0 && worker.turn().tasks() == 0;
            if is_empty || (self.stopping && !task::any_ready()) {
                flush_logs(worker);
                return Ok(TurnProgress::Ended);
            }
            if !self.stopping {
                self.stopping = true;
                worker.areas.cut_off(u64::MAX);
                for key in worker.poller.keys() {
                    let Some(carrier) = worker.poller.registration(key) else { continue };
                    carrier.cut_off(worker);
                    if !carrier.has_streams() && carrier.client().is_some() {
                        worker.close(key);
                    }
                }
            }
        }
        if self.deadlines() {
            progress = TurnProgress::Some;
        }
        let (Some(thread), worker) = (&self.thread, &self.worker) else { return Ok(TurnProgress::Ended) };
        thread.begin_turn();
        let mut share = Share::begin();
        while task::run_one() {
            progress = TurnProgress::Some;
            if share.is_over() {
                break;
            }
        }
        // Writes all streams' output, once per connection.
        for (key, carrier) in worker.turn().take_output() {
            progress = TurnProgress::Some;
            call_guarded(worker, key, |worker, key| carrier.end_of_turn(worker, key));
        }
        if counting::has_lost() {
            worker.log_lost();
        }
        if is_done(worker) {
            flush_logs(worker);
            return Ok(TurnProgress::Ended);
        }
        if task::any_ready() || worker.poller.has_pending() || !self.ready.is_empty() || !self.handshakes.is_empty() {
            progress = TurnProgress::Some;
        }
        Ok(progress)
    }

    /// Executes a command; tells whether the thread ends at once.
    fn obey(&mut self, command: Option<WorkerCommand>) -> bool {
        let worker = &self.worker;
        match command {
            Some(WorkerCommand::Serve { serving, listeners, keep }) => reload(worker, serving, listeners, &keep),
            Some(WorkerCommand::Quit { timeout_ms }) => {
                begin_quit(worker);
                if timeout_ms > 0 {
                    self.stop_at = Some(clock::now().plus_millis(timeout_ms));
                }
            }
            Some(WorkerCommand::Flush(done)) => {
                flush_logs(worker);
                drop(done);
            }
            Some(WorkerCommand::Terminate) | None => return true,
        }
        false
    }

    /// Closes expired connections and resumes listeners; tells whether there were any.
    fn deadlines(&mut self) -> bool {
        let (worker, now) = (&self.worker, clock::now());
        let mut any = worker.admission.paused_until().is_some() && accept::resume_listeners(worker);
        worker.cut_off(now);
        if worker.poller.next_due().is_some_and(|at| at <= now) {
            worker.poller.due(now, &mut self.due);
            for key in self.due.drain(..) {
                any = true;
                if let Some(carrier) = worker.poller.registration(key) {
                    call_guarded(worker, key, |worker, key| carrier.timed_out(worker, key));
                }
            }
        }
        any
    }
}

impl Drop for Turns {
    fn drop(&mut self) {
        if let Some(before) = self.before.take() {
            net::outbound::watch_again(before);
            net::outbound::limit_with(None);
        }
        self.worker.areas.stream.sessions.begin_quit();
        for key in self.worker.poller.keys() {
            self.worker.close(key);
        }
        self.worker.poller.forget_all_wakers();
        self.worker.pools.spares().clear();
        drop(self.thread.take());
    }
}

fn act(worker: &Rc<Worker>, key: Key) {
    let is_event = worker.poller.begin(key);
    if let Some(carrier) = worker.poller.registration(key)
        && (is_event || carrier.has_wakeups())
    {
        carrier.ready(worker, key);
    }
}

fn flush_logs(worker: &Worker) {
    if let Some(plan) = worker.plan.borrow().as_ref() {
        http_engine::flush_logs(plan);
    }
    if worker.serving().stream.is_some() {
        access_logs::flush_thread();
    }
}

/// After QUIT: tells whether no client is left.
fn is_done(worker: &Worker) -> bool {
    let sessions = worker.areas.session_count();
    worker.turn().is_quitting() && worker.turn().tasks() == 0 && worker.poller.has_no_registered() && sessions == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::serving::ServeLoop;
    use observe::ring::Ring;
    use observe::{ErrorLog, LogTarget, Sink};

    fn worker(stall_threshold_ms: u64) -> (Rc<Worker>, Arc<Ring>) {
        let ring = Arc::new(Ring::new(1 << 16));
        let target =
            LogTarget { level: Severity::Warn, sink: Sink::Memory(ring.clone()), format: observe::LineFormat::Text };
        let serving = ServeLoop {
            http: None,
            stream: None,
            mail: None,
            error_log: Arc::new(ErrorLog::new(vec![target])),
            connections_max: 8,
            multi_accept: false,
            shutdown_timeout_ms: 0,
            stall_threshold_ms,
        };
        (Rc::new(Worker::new(serving).expect("a worker")), ring)
    }

    /// Ends a turn that began so long ago.
    fn end_turn(worker: &Rc<Worker>, micros: u64) {
        clock::update();
        while clock::now().0 < 2 * micros {
            clock::update();
        }
        WORKER.set(Rc::downgrade(worker));
        drop(MeasuredTurn(Instant(clock::now().0 - micros)));
    }

    #[test]
    fn long_turns_are_counted_apart() {
        let (worker, _) = worker(0);
        let (turns, long) = (process::LOOP_TURNS.sum(), process::LOOP_TURNS_LONG.sum());
        end_turn(&worker, TURN_MICROS_MAX + 1);
        assert!(process::LOOP_TURNS.sum() > turns && process::LOOP_TURNS_LONG.sum() > long);
    }

    #[test]
    fn stalls_are_logged() {
        for (threshold, lines) in [(0, 0), (3_600_000, 0), (2, 1)] {
            let (worker, ring) = worker(threshold);
            end_turn(&worker, 5_000);
            let text = String::from_utf8_lossy(&ring.contents()).into_owned();
            assert_eq!(text.matches("[warn] ").count(), lines, "{threshold}: {text}");
            assert_eq!(text.matches("event loop stalled for ").count(), lines, "{threshold}: {text}");
        }
    }
}
