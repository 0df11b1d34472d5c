//! The control thread of a serving process: starts the worker threads, handles signals and the master's orders, and
//! ends the process. With `master_process off` it also does the master's work.

use crate::codec::SocketAssignment;
use crate::conf::{Config, Invocation};
use crate::confinement::Refusals;
use crate::explanation::active_explainer;
use crate::messages::FATAL;
use crate::process::background::{self, Tasks};
use crate::process::channel::{Channel, ChannelOrder};
use crate::process::listeners::Listeners;
use crate::process::reload;
use crate::process::requests::Requests;
use crate::process::signals::{self, WORKER};
use crate::process::single::Single;
use crate::process::threads::{EndedThread, Threads, new_seats, socket_copies};
use crate::process::worker_process;
use crate::{messages, report, say};
use base::clock;
use net::process::{ReceivedSignal, Signals};
use observe::os_error;
use runtime::io::WatchedSocket;
use runtime::time::sleep_until;
use std::os::fd::OwnedFd;
use std::time::Duration;
use tokio::sync::mpsc::UnboundedReceiver;
use worker::thread::WorkerCommand;

/// Maximum time that threads may take to end after TERM.
const TERMINATE_PATIENCE: Duration = Duration::from_millis(500);
/// Maximum time for the export of spans after the last connection has ended, on QUIT and on TERM.
const QUIT_FLUSH_MAX: Duration = Duration::from_secs(5);
const TERMINATE_FLUSH_MAX: Duration = Duration::from_millis(700);
/// Interval between checks whether a replaced plan is still in use: first, and after doublings.
const RETIRED_FIRST: Duration = Duration::from_millis(20);
const RETIRED_LAST: Duration = Duration::from_secs(1);

pub enum Orders {
    /// Orders of the master, over a socket pair.
    Master(OwnedFd),
    /// No master: signals only (`master_process off`).
    Signals(Single),
}

enum Supervisor {
    Master(Channel),
    Absent(Single),
}

pub struct ControlThread {
    pub invocation: Invocation,
    pub config: Config,
    pub listeners: Listeners,
    pub orders: Orders,
    /// Counts refused system calls of a confined process.
    pub refusals: Option<Refusals>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ProcessEnd {
    Not,
    Graceful,
    Now,
}

/// Serves until told to stop; returns the process's exit code.
pub fn run_control(control: ControlThread) -> i32 {
    let signals = match Signals::block(WORKER) {
        Ok(signals) => signals,
        Err(e) => {
            say!(Emerg, "signalfd() failed {}", os_error(&e));
            return FATAL;
        }
    };
    let served = runtime::run_future(async {
        http_api::explain_with(active_explainer(&control.invocation, &control.config));
        background::prepare_tasks(&control.config, background::START_PATIENCE).await;
        match Loop::start(control, signals) {
            Ok(control) => control.run().await,
            Err(e) => {
                say!(Emerg, "starting the worker threads failed {}", os_error(&e));
                FATAL
            }
        }
    });
    served.unwrap_or_else(|e| {
        say!(Emerg, "the control thread's event queue failed {}", os_error(&e));
        FATAL
    })
}

struct Loop {
    invocation: Invocation,
    config: Config,
    listeners: Listeners,
    supervisor: Supervisor,
    /// Set after the master was killed; the worker continues to serve.
    orphan: bool,
    signals: WatchedSocket<Signals>,
    threads: Threads,
    ended: UnboundedReceiver<EndedThread>,
    ending: ProcessEnd,
    retired_pause: Duration,
    background: Tasks,
    refusals: Option<WatchedSocket<Refusals>>,
    requests: Requests,
}

impl Loop {
    fn start(control: ControlThread, signals: Signals) -> std::io::Result<Loop> {
        let ControlThread { invocation, config, mut listeners, orders, refusals } = control;
        // Opens this thread's descriptors before connections can use up the limit.
        let signals = WatchedSocket::new(signals)?;
        let refusals = refusals.map(WatchedSocket::new).transpose()?;
        let supervisor = match orders {
            Orders::Master(socket) => Supervisor::Master(Channel::new(socket)?),
            Orders::Signals(single) => {
                metrics::Lifecycle::note_load(clock::unix_millis());
                Supervisor::Absent(single)
            }
        };
        let requests = Requests::default();
        requests.show(&invocation, &config);
        let (mut threads, ended) = Threads::new();
        let assignments = socket_copies(&listeners, &listeners.assignments(config.core.workers))?;
        threads.serve(&config, &listeners, assignments);
        if matches!(supervisor, Supervisor::Master(_)) {
            // The master keeps its own copies. Copies here would keep addresses open that a reload removes.
            listeners.let_go();
        }
        let mut background = Tasks::default();
        background.replace(&config);
        if let Supervisor::Master(channel) = &supervisor {
            channel.started();
        }
        Ok(Loop {
            invocation,
            config,
            listeners,
            supervisor,
            orphan: false,
            signals,
            threads,
            ended,
            ending: ProcessEnd::Not,
            retired_pause: RETIRED_FIRST,
            background,
            refusals,
            requests,
        })
    }

    async fn run(mut self) -> i32 {
        let mut give_up_at = None;
        let mut look_at = None;
        loop {
            if self.ending == ProcessEnd::Now && give_up_at.is_none() {
                give_up_at = Some(clock::now().plus(TERMINATE_PATIENCE));
            }
            if self.threads.any_retired() && look_at.is_none() {
                look_at = Some(clock::now().plus(self.retired_pause));
                self.retired_pause = (self.retired_pause * 2).min(RETIRED_LAST);
            }
            tokio::select! {
                biased;
                ended = self.ended.recv() => {
                    if let Some(ended) = ended && !self.thread_ended(ended) {
                        return FATAL;
                    }
                }
                () = self.signals.readable() => {
                    self.signals.clear_ready();
                    while let Some(received) = self.signals.get_ref().next() {
                        self.signal(received).await;
                    }
                }
                () = refused(self.refusals.as_ref()) => self.tell_refused(),
                order = next_order(&self.supervisor, self.orphan) => self.order(order).await,
                asked = self.requests.next() => {
                    let channel = match &self.supervisor {
                        Supervisor::Master(channel) if !self.orphan => Some(channel),
                        _ => None,
                    };
                    self.requests.ask(asked, channel);
                }
                () = sleep_until(look_at.unwrap_or_default()), if look_at.is_some() => {
                    look_at = None;
                    self.threads.report_retired();
                    if !self.threads.any_retired() {
                        // Configurations that are no longer used were dropped.
                        net::allocator::release();
                        self.tell_settled();
                    }
                }
                () = sleep_until(give_up_at.unwrap_or_default()), if give_up_at.is_some() => {
                    break;
                }
            }
            if self.ending != ProcessEnd::Not && !self.threads.any_left() {
                break;
            }
        }
        let limit = if self.ending == ProcessEnd::Now { TERMINATE_FLUSH_MAX } else { QUIT_FLUSH_MAX };
        background::finish_tasks(&self.config, limit).await;
        // Of health checks, which run on this thread.
        upstream::mux::h3::close_all();
        say!(Notice, "exiting");
        if let Supervisor::Absent(single) = &self.supervisor {
            single.clean_up(&self.config, &self.listeners);
        }
        say!(Notice, "exit");
        0
    }

    /// Returns `false` if the process cannot continue without the thread.
    fn thread_ended(&mut self, ended: EndedThread) -> bool {
        if !self.threads.ended(ended) {
            say!(Alert, "a worker thread failed");
            // Aborts, so that the master starts a new process as after a crash.
            if matches!(self.supervisor, Supervisor::Master(_)) {
                std::process::abort();
            }
            return false;
        }
        true
    }

    async fn signal(&mut self, received: ReceivedSignal) {
        let (action, ending) =
            signals::worker_action(received.signal, matches!(self.supervisor, Supervisor::Absent(_)));
        signals::note_signal(received, action);
        match ending {
            signals::Action::Terminate => self.terminate(),
            signals::Action::Quit => self.quit(),
            signals::Action::Reopen => self.reopen().await,
            signals::Action::Reload => self.reload().await,
            signals::Action::Ignore => {}
        }
    }

    /// Reports that no earlier plan is in use, so that its keys can be dropped.
    fn tell_settled(&self) {
        match &self.supervisor {
            Supervisor::Master(channel) => channel.settled(),
            Supervisor::Absent(single) => single.keeper.forget_unused(),
        }
    }

    fn tell_refused(&mut self) {
        if let Some(refusals) = &mut self.refusals {
            refusals.clear_ready();
            metrics::process::SANDBOX_REFUSED.add(refusals.get_mut().tell());
        }
    }

    fn quit(&mut self) {
        if self.ending != ProcessEnd::Not {
            return;
        }
        say!(Notice, "gracefully shutting down");
        if matches!(self.supervisor, Supervisor::Master(_)) {
            net::title::set(&format!("{}: worker process is shutting down", crate::messages::program_name()));
        }
        self.ending = ProcessEnd::Graceful;
        metrics::Lifecycle::note_ending();
        let timeout_ms = self.config.core.shutdown_timeout_ms;
        self.listeners.let_go();
        self.threads.tell(|| WorkerCommand::Quit { timeout_ms });
    }

    fn terminate(&mut self) {
        if self.ending != ProcessEnd::Now {
            self.ending = ProcessEnd::Now;
            self.listeners.let_go();
            self.threads.tell(|| WorkerCommand::Terminate);
        }
    }

    /// Reopens logs on USR1 with `master_process off`; otherwise the master opens the files.
    async fn reopen(&mut self) {
        // Pending log lines belong to the old files.
        self.threads.flush().await;
        if matches!(self.supervisor, Supervisor::Absent(_)) {
            say!(Notice, "reopening logs");
            reload::reopen_logs(&self.config.logs, None);
        }
    }

    /// Reloads on HUP with `master_process off`.
    async fn reload(&mut self) {
        let Supervisor::Absent(single) = &self.supervisor else { return };
        say!(Notice, "reconfiguring");
        let prepared = single.reload(&self.invocation, &self.config, &self.listeners);
        let Ok((config, listeners)) = prepared else { return };
        let assignments = new_seats(&self.listeners, self.config.core.workers, &listeners, config.core.workers);
        match socket_copies(&listeners, &assignments) {
            Ok(assignments) => self.swap(config, listeners, assignments).await,
            Err(e) => say!(Emerg, "dup() failed {}; the old configuration stays", os_error(&e)),
        }
    }

    async fn swap(&mut self, config: Config, listeners: Listeners, assignments: Vec<(SocketAssignment, OwnedFd)>) {
        worker_process::say_what_is_missing(&config);
        background::prepare_tasks(&config, background::RELOAD_PATIENCE).await;
        messages::set_log(config.error_log.clone());
        report::debug_points(config.core.debug_points);
        // Precedes the threads, whose first request may use the API.
        self.requests.show(&self.invocation, &config);
        self.threads.serve(&config, &listeners, assignments);
        if matches!(self.supervisor, Supervisor::Absent(_)) {
            self.listeners.remove_paths(&listeners);
        }
        self.listeners = listeners;
        self.config = config;
        http_api::explain_with(active_explainer(&self.invocation, &self.config));
        observe::set_level(None);
        metrics::Lifecycle::note_load(clock::unix_millis());
        self.background.replace(&self.config);
        self.config.logs.forget_unused();
        self.retired_pause = RETIRED_FIRST;
    }

    async fn order(&mut self, order: Option<ChannelOrder>) {
        match order {
            None => {
                self.orphan = true;
                self.requests.give_up();
            }
            Some(ChannelOrder::Outcome(outcome)) => {
                // All threads serve the configuration of the outcome.
                self.threads.settled().await;
                self.requests.done(*outcome, &self.invocation, &self.config);
            }
            Some(ChannelOrder::Quit { followed }) => {
                if followed {
                    worker::relay::expect_next();
                }
                self.quit();
            }
            Some(ChannelOrder::Terminate) => self.terminate(),
            Some(ChannelOrder::Refused(why)) => reload::note_refused(&why),
            Some(ChannelOrder::KeysRespawned(number)) => metrics::Lifecycle::set_key_processes_respawned(number),
            Some(ChannelOrder::Confirm) => {
                self.threads.settled().await;
                if let Supervisor::Master(channel) = &self.supervisor {
                    channel.confirmed();
                }
            }
            Some(ChannelOrder::Reopen { logs }) => {
                // Pending log lines belong to the old files.
                self.threads.flush().await;
                say!(Notice, "reopening logs");
                reload::hand_over(&self.config.logs, logs);
            }
            Some(ChannelOrder::Reload(order)) => {
                let Supervisor::Master(channel) = &self.supervisor else { return };
                let done = reload::rebuild_config(*order, &self.invocation, &self.config);
                channel.answer(done.as_ref().err().map(String::as_str));
                if let Err(why) = &done {
                    reload::note_refused(why);
                }
                if let Ok((config, listeners, assignments)) = done {
                    self.swap(config, listeners, assignments).await;
                    self.listeners.let_go();
                }
            }
        }
    }
}

/// Waits until the sandbox refuses a system call.
async fn refused(refusals: Option<&WatchedSocket<Refusals>>) {
    match refusals {
        Some(refusals) => refusals.readable().await,
        None => std::future::pending().await,
    }
}

/// Returns the master's next order, or `None` when the master has ended.
async fn next_order(supervisor: &Supervisor, orphan: bool) -> Option<ChannelOrder> {
    match supervisor {
        Supervisor::Master(channel) if !orphan => channel.next_order().await,
        _ => std::future::pending().await,
    }
}
