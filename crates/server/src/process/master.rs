//! The master: one thread that handles signals, supervises the worker process and passes configurations to it (nginx:
//! `ngx_process_cycle.c`).

mod calls;
mod changes;
mod judging;
mod replacing;

use crate::conf::{Config, Invocation};
use crate::confinement;
use crate::keys::{Keeper, KeyProcessEnd};
use crate::messages::FATAL;
use crate::process::channel::{self, Commander, Message};
use crate::process::control_api::ControlApi;
use crate::process::listeners::Listeners;
use crate::process::neighbours::Neighbours;
use crate::process::signals as sig;
use crate::process::threads::{new_seats, socket_copies};
use crate::process::upgrade::{self, Program};
use crate::process::{pidfile, reload, supervisor, worker_process};
use crate::{messages, report, say};
use calls::{AskedReload, ShownConfiguration};
use changes::PendingChange;
use judging::Judgement;
use net::process::{Fork, ReceivedSignal, Signals, fork_process};
use observe::{Severity, os_error};
use replacing::ReplacedWorker;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process, waitpid};
use sandbox::PathRules;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A worker that lived this long did not crash because of a persistent error.
const LIVED_WELL: Duration = Duration::from_secs(10);
const BACK_OFF_FIRST: Duration = Duration::from_millis(100);
const BACK_OFF_LAST: Duration = Duration::from_secs(10);
/// Time from TERM to KILL.
const TERMINATE_PATIENCE: Duration = Duration::from_millis(1500);

/// Maximum time for a worker to build a new configuration and to report success or failure.
const ANSWER_PATIENCE: Duration = Duration::from_secs(10);

/// Maximum number of a worker's messages that are read before signals and other workers are checked.
const MESSAGES_MAX: usize = 16;

#[derive(Clone, Copy, Debug)]
pub struct MasterStanding {
    /// Process id of the parent at start.
    pub parent: i32,
    /// The listening sockets were inherited from an older binary.
    pub is_heir: bool,
    /// Runs in the background.
    pub daemonized: bool,
}

enum MasterStep {
    Go,
    Exit(i32),
}

struct Worker {
    pid: i32,
    commander: Commander,
    started: Instant,
    exiting: bool,
    /// The worker uses no plan of an earlier configuration.
    settled: bool,
    is_closed: bool,
}

/// Activation of a prepared configuration.
enum ServeOutcome {
    /// The worker process was asked, and will report.
    Asked,
    /// A new worker process serves the configuration.
    Replacing,
}

struct Master {
    invocation: Invocation,
    config: Config,
    listeners: Listeners,
    neighbours: Neighbours,
    signals: Signals,
    program: Program,
    standing: MasterStanding,
    workers: Vec<Worker>,
    /// A configuration that was sent to the worker, which has not reported yet.
    pending: Option<(Config, Listeners)>,
    answer_by: Option<Instant>,
    /// A change by the API that is not active yet.
    change: Option<PendingChange>,
    /// A change by the API that a child judges.
    judgement: Option<Judgement>,
    /// Such children that have not ended.
    judges: Vec<i32>,
    /// HUP arrived during another reload.
    again: bool,
    /// Replaces the worker with a new process.
    replace: bool,
    /// A replaced worker serves until its successor does.
    replaced: Option<ReplacedWorker>,
    back_off: Duration,
    restart_at: Option<Instant>,
    kill_at: Option<Instant>,
    quitting: bool,
    terminating: bool,
    /// No worker, because of WINCH.
    idle: bool,
    new_binary: Option<i32>,
    /// Rules of the most recent worker process.
    rules: Option<PathRules>,
    keeper: Arc<Keeper>,
    control_api: Option<ControlApi>,
    /// Requests of the control API for the next reload.
    reload_tickets: Vec<u64>,
    /// Such a reload is under way.
    asked_reload: Option<AskedReload>,
    shown: ShownConfiguration,
    /// Replaced key processes that the workers know of.
    keys_respawned_told: u64,
}

/// Returns the process's exit code.
pub fn run_master(
    invocation: Invocation,
    config: Config,
    listeners: Listeners,
    neighbours: Neighbours,
    signals: Signals,
    program: Program,
    standing: MasterStanding,
    keeper: Arc<Keeper>,
    control_api: Option<ControlApi>,
) -> i32 {
    let mut master = Master {
        invocation,
        config,
        listeners,
        neighbours,
        signals,
        program,
        standing,
        workers: Vec::new(),
        pending: None,
        answer_by: None,
        change: None,
        judgement: None,
        judges: Vec::new(),
        again: false,
        replace: false,
        replaced: None,
        back_off: BACK_OFF_FIRST,
        restart_at: None,
        kill_at: None,
        quitting: false,
        terminating: false,
        idle: false,
        new_binary: None,
        rules: None,
        keeper,
        control_api,
        reload_tickets: Vec::new(),
        asked_reload: None,
        shown: ShownConfiguration::default(),
        keys_respawned_told: 0,
    };
    note_load();
    let words: Vec<_> = master.program.arguments.iter().map(|word| word.to_string_lossy()).collect();
    net::title::set(&format!("{}: master process {}", crate::messages::program_name(), words.join(" ")));
    confinement::enter_master(&master.config);
    master.keeper.adopt(&master.config);
    master.config.texts.came = master.keep(&master.config, "start");
    master.mark_kept();
    let mut master = match master.start_worker() {
        Ok(master) => master,
        Err(code) => return code,
    };
    loop {
        master.wait();
        while let Some(received) = master.signals.next() {
            if let MasterStep::Exit(code) = master.signal(received) {
                return code;
            }
        }
        master.messages();
        master.calls();
        master.keeper.restart_if_due();
        master.tell_keys_respawned();
        let now = Instant::now();
        master.finish_judged(now);
        master.change_overdue(now);
        if master.kill_at.is_some_and(|at| at <= now) {
            master.kill_at = None;
            master.kill_workers(Signal::KILL);
        }
        if master.restart_at.is_some_and(|at| at <= now) {
            master.restart_at = None;
            master = match master.start_worker() {
                Ok(master) => master,
                Err(code) => return code,
            };
        }
        // Another reload begins after the response to the previous one.
        master.end_asked_reload();
        if master.again && master.pending.is_none() && master.replaced.is_none() && master.asked_reload.is_none() {
            master.again = false;
            // A stopping server opens no files.
            if !master.quitting && !master.terminating {
                master.reload();
            }
        }
        master.end_asked_reload();
        if std::mem::take(&mut master.replace) {
            master = match master.start_worker() {
                Ok(master) => master,
                Err(code) => return code,
            };
        }
        if master.workers.is_empty() && (master.quitting || master.terminating) {
            return master.exit(0);
        }
    }
}

/// Records for the API that a configuration is active.
fn note_load() {
    base::clock::update();
    metrics::Lifecycle::note_load(base::clock::unix_millis());
}

impl Master {
    /// Forks a worker. Does not return in the child; the error is the child's exit code.
    fn start_worker(mut self) -> Result<Master, i32> {
        say!(Notice, "start worker processes");
        let (commander, theirs) = match channel::channel_pair() {
            Ok(pair) => pair,
            Err(e) => {
                say!(Alert, "socketpair() failed while spawning \"worker process\" {}", os_error(&e));
                self.restart_at = Some(Instant::now() + BACK_OFF_LAST);
                return Ok(self);
            }
        };
        let place = self.neighbours.place();
        let door = self.keeper.door().unwrap_or_else(|e| {
            say!(Alert, "dup() failed while spawning \"worker process\" {}", os_error(&e));
            None
        });
        self.rules = confinement::worker_rules(&self.config);
        match fork_process() {
            Ok(Fork::Parent(pid)) => {
                say!(Notice, "start worker process {pid}");
                let started = Instant::now();
                let worker = Worker { pid, commander, started, exiting: false, settled: true, is_closed: false };
                self.workers.push(worker);
                self.idle = false;
                Ok(self)
            }
            Ok(Fork::Child) => {
                // Closes descriptors that the child does not need, before it changes its user.
                let Master {
                    invocation,
                    config,
                    listeners,
                    neighbours,
                    signals,
                    workers,
                    pending,
                    judgement,
                    rules,
                    keeper,
                    control_api,
                    ..
                } = self;
                // Signals stay blocked, so that one that arrives before the control thread listens is not lost.
                drop((neighbours, signals, workers, commander, pending, judgement, control_api));
                keeper.leave();
                worker::relay::set_relay(place);
                Err(worker_process::run_worker(invocation, config, listeners, rules, theirs, door))
            }
            Err(e) => {
                say!(Alert, "fork() failed while spawning \"worker process\" {}", os_error(&e));
                self.restart_at = Some(Instant::now() + BACK_OFF_LAST);
                Ok(self)
            }
        }
    }

    fn wait(&self) {
        let mut fds = vec![PollFd::new(&self.signals, PollFlags::IN)];
        let open = self.workers.iter().filter(|worker| !worker.is_closed);
        fds.extend(open.map(|worker| PollFd::from_borrowed_fd(worker.commander.as_fd(), PollFlags::IN)));
        fds.extend(self.judgement.iter().map(|judgement| PollFd::from_borrowed_fd(judgement.pipe(), PollFlags::IN)));
        fds.extend(self.control_api.iter().flat_map(|api| api.poll_fds(self.new_binary.is_none())));
        let answer_by = self.answer_by.filter(|_| self.pending.is_some());
        let change_by = self.change.as_ref().map(|change| change.answer_by);
        let call_by = self.control_api.as_ref().and_then(ControlApi::next_end);
        let confirmed_by = self.asked_reload.as_ref().and_then(AskedReload::confirmed_by);
        let judged_by = self.judgement.as_ref().map(Judgement::until);
        let times = [
            judged_by,
            confirmed_by,
            self.restart_at,
            self.kill_at,
            answer_by,
            change_by,
            call_by,
            self.keeper.restart_at(),
        ];
        let next = times.into_iter().flatten().min();
        let timeout = next.map(|at| {
            let left = at.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) }
        });
        let _ = poll(&mut fds, timeout.as_ref());
    }

    fn signal(&mut self, received: ReceivedSignal) -> MasterStep {
        match received.signal {
            sig::CHLD => {
                sig::note_signal(received, "");
                return self.reap();
            }
            sig::TERM | sig::INT => {
                sig::note_signal(received, ", exiting");
                self.announce_end();
                self.terminating = true;
                self.restart_at = None;
                self.abandon_reload();
                self.tell_workers(Commander::terminate, Signal::TERM);
                self.kill_at = self.kill_at.or(Some(Instant::now() + TERMINATE_PATIENCE));
            }
            sig::QUIT => {
                sig::note_signal(received, ", shutting down");
                self.announce_end();
                self.quitting = true;
                self.restart_at = None;
                self.abandon_reload();
                self.quit_workers();
                self.close_listeners();
            }
            sig::HUP => {
                sig::note_signal(received, ", reconfiguring");
                if self.new_binary.is_some() {
                    // The old binary's master takes over again, with its configuration.
                    if self.workers.iter().all(|w| w.exiting) {
                        self.restart_at = Some(Instant::now());
                    }
                } else {
                    self.again = true;
                }
            }
            sig::USR1 => {
                sig::note_signal(received, ", reopening logs");
                self.reopen();
            }
            sig::USR2 => self.change_binary(received),
            sig::WINCH if self.standing.daemonized => {
                sig::note_signal(received, ", stop accepting connections");
                self.idle = true;
                self.restart_at = None;
                self.abandon_reload();
                self.quit_workers();
            }
            _ => sig::note_signal(received, ""),
        }
        MasterStep::Go
    }

    /// Tells the service manager which process is the main one from now on, or that the service ends.
    fn announce_end(&self) {
        match self.new_binary {
            Some(pid) => supervisor::tell_supervisor(&format!("MAINPID={pid}")),
            None if self.old_binary_lives() => {}
            None => supervisor::tell_supervisor("STOPPING=1"),
        }
    }

    fn quit_workers(&mut self) {
        let order = if self.new_binary.is_some() { Commander::quit_followed } else { Commander::quit };
        self.tell_workers(order, Signal::QUIT);
    }

    fn tell_workers(&mut self, order: fn(&Commander) -> std::io::Result<()>, signal: Signal) {
        tell(&mut self.workers, order, signal);
    }

    fn kill_workers(&self, signal: Signal) {
        for worker in &self.workers {
            if let Some(pid) = Pid::from_raw(worker.pid) {
                let _ = kill_process(pid, signal);
            }
        }
    }

    /// Reads, checks and binds. The worker builds the configuration and reports later.
    fn reload(&mut self) {
        if self.reload_tickets.is_empty() {
            return self.try_reload();
        }
        let tickets = std::mem::take(&mut self.reload_tickets);
        let ((), messages) = messages::collect_messages(Severity::Warn, || {
            self.asked_reload = Some(AskedReload::new(tickets));
            self.try_reload();
        });
        if let Some(asked) = &mut self.asked_reload {
            asked.hear(messages);
        }
    }

    fn try_reload(&mut self) {
        say!(Notice, "reconfiguring");
        let prepared = reload::prepare_reload(&self.invocation, &self.config, &self.listeners, &self.keeper);
        let Ok((mut config, listeners)) = prepared else {
            self.refuse_asked_reload();
            return self.tell_refused();
        };
        config.texts.came = self.keep(&config, "reload");
        let generation = config.texts.came.as_ref().map(|came| came.generation);
        if let Err(why) = self.install(config, listeners) {
            if let Some(generation) = generation {
                self.remove_refused(generation);
            }
            reload::note_refused(&why);
            self.refuse_asked_reload();
            self.tell_refused();
        }
    }

    /// Activates a prepared configuration, in the worker process or in a new one.
    ///
    /// # Errors
    /// The reason, which has been logged; the old configuration stays active.
    fn install(&mut self, config: Config, listeners: Listeners) -> Result<ServeOutcome, String> {
        self.keeper.ready(&config);
        if config.core.pid != self.config.core.pid {
            if !pidfile::write_pid(&config.core.pid) {
                return Err("the pid file could not be written; the error log has the reason".into());
            }
            pidfile::remove_pidfile(&self.config.core.pid);
        }
        if !self.config.core.same_process(&config.core) {
            say!(Notice, "a setting of the process has changed: the worker process is replaced");
            self.replace_worker(config, listeners);
            return Ok(ServeOutcome::Replacing);
        }
        if !confinement::rules_fit(self.rules.as_ref(), &config) {
            say!(Notice, "sandbox: the configuration needs more than the worker process may do: it is replaced");
            self.replace_worker(config, listeners);
            return Ok(ServeOutcome::Replacing);
        }
        let (old_threads, new_threads) = (self.config.core.workers, config.core.workers);
        let assignments = new_seats(&self.listeners, old_threads, &listeners, new_threads);
        let Some(worker) = self.workers.iter().find(|w| !w.exiting) else {
            // No worker runs: the next one starts with the new configuration.
            drop(self.commit(config, listeners));
            self.restart_at = Some(Instant::now());
            return Ok(ServeOutcome::Replacing);
        };
        let sent = socket_copies(&listeners, &assignments).and_then(|assignments| {
            worker.commander.reload(&config.texts, &assignments, &reload::log_copies(&config.logs))
        });
        match sent {
            Ok(()) => {
                self.pending = Some((config, listeners));
                self.answer_by = Some(Instant::now() + ANSWER_PATIENCE);
                Ok(ServeOutcome::Asked)
            }
            Err(e) => {
                say!(Alert, "the worker process cannot be reached {}; the old configuration stays", os_error(&e));
                Err(format!("the worker process cannot be reached {}", os_error(&e)))
            }
        }
    }

    /// Sends the reason of a refused reload to the worker process, which records reloads for the dashboard.
    fn tell_refused(&self) {
        let why = metrics::Lifecycle::record().pop().and_then(|last| last.result.err());
        let worker = self.workers.iter().find(|worker| !worker.exiting);
        if let (Some(why), Some(worker)) = (why, worker) {
            // A worker that has ended needs no record.
            let _ = worker.commander.refused(&why);
        }
    }

    /// Tells the workers, which have the metrics, how many key processes were replaced. A worker that is started later
    /// inherits the number.
    fn tell_keys_respawned(&mut self) {
        let number = metrics::Lifecycle::now().key_processes_respawned;
        if number != self.keys_respawned_told {
            self.keys_respawned_told = number;
            for worker in &self.workers {
                // A worker process that is gone shows nothing.
                let _ = worker.commander.keys_respawned(number);
            }
        }
    }

    /// Handles messages of workers, and a missing report.
    fn messages(&mut self) {
        for pid in self.workers.iter().map(|worker| worker.pid).collect::<Vec<_>>() {
            for _ in 0..MESSAGES_MAX {
                let Some(worker) = self.workers.iter_mut().find(|worker| worker.pid == pid) else { break };
                match worker.commander.message() {
                    Ok(None) => break,
                    Ok(Some(message)) => self.message(pid, message),
                    // SIGCHLD reports the end of the process.
                    Err(_) => {
                        worker.is_closed = true;
                        break;
                    }
                }
            }
        }
        if self.pending.is_some()
            && self.answer_by.is_some_and(|by| by <= Instant::now())
            && let Some(worker) = self.workers.iter().find(|w| !w.exiting)
        {
            let (pid, seconds) = (worker.pid, ANSWER_PATIENCE.as_secs());
            say!(Alert, "worker process {pid} has not answered a reload for {seconds} s and is replaced");
            // A new process starts with the new configuration, and this one is told to end.
            if let Some((config, listeners)) = self.pending.take() {
                self.replace_worker(config, listeners);
                if let Some(change) = &mut self.change {
                    change.awaits_start = true;
                }
            }
        }
    }

    fn message(&mut self, pid: i32, message: Message) {
        let at = self.workers.iter().position(|worker| worker.pid == pid);
        let serves = at.is_some_and(|at| !self.workers[at].exiting);
        match message {
            Message::Answer(Ok(())) if serves => {
                if let Some((config, listeners)) = self.pending.take() {
                    if let Some(at) = at {
                        self.workers[at].settled = false;
                    }
                    let old = self.commit(config, listeners);
                    self.change_done();
                    // Large ones take time, which the client of a change need not wait for.
                    drop(old);
                }
            }
            Message::Answer(Err(words)) if serves => {
                let Some((config, _)) = self.pending.take() else { return };
                reload::note_refused(&words);
                let told = format!("the worker process refused the configuration, the old one stays: {words}");
                say!(Emerg, "{told}");
                self.asked_reload_failed(&told);
                self.drop_refused(&config, &words);
            }
            Message::Answer(_) => {}
            Message::Settled => {
                if let Some(at) = at {
                    self.workers[at].settled = true;
                }
                self.forget_keys();
            }
            Message::Confirmed => self.asked_reload_confirmed(pid),
            Message::Started => {
                self.successor_started(pid);
                if serves && self.change.as_ref().is_some_and(|change| change.awaits_start) {
                    self.change_done();
                }
            }
            Message::Request(Some(request)) => self.requested(pid, *request),
            Message::Request(None) => say!(Alert, "worker process {pid} sent a malformed request"),
        }
    }

    /// Gives up a reload whose outcome the workers will not report, because they have been told to end.
    fn abandon_reload(&mut self) {
        self.forget_replaced();
        let Some((config, _)) = self.pending.take() else { return };
        let words = "the worker process was told to end while it took over a configuration";
        say!(Notice, "{words}; the old one stays");
        self.asked_reload_failed(&format!("{words}; the old one stays"));
        self.drop_refused(&config, words);
    }

    /// Removes a stored configuration that was not activated, or responds to the request of the API that changes to it.
    fn drop_refused(&mut self, config: &Config, why: &str) {
        match &config.texts.came {
            Some(came) if self.change.is_none() => self.remove_refused(came.generation),
            _ => self.change_failed(why),
        }
    }

    /// Drops keys of earlier configurations that no worker uses.
    fn forget_keys(&self) {
        let is_steady = self.pending.is_none() && self.replaced.is_none();
        if is_steady && self.workers.iter().all(|worker| worker.settled && !worker.exiting) {
            self.keeper.forget_unused();
        }
    }

    /// Activates a configuration; returns the old one.
    fn commit(&mut self, config: Config, listeners: Listeners) -> Config {
        note_load();
        self.keeper.adopt(&config);
        self.listeners.remove_paths(&listeners);
        let (old, _) = self.exchange(config, listeners);
        if self.change.is_none() {
            self.mark_kept();
        }
        old
    }

    /// Activates a configuration, without the removal of old paths; returns the old one.
    fn exchange(&mut self, config: Config, listeners: Listeners) -> (Config, Listeners) {
        let old = (std::mem::replace(&mut self.config, config), std::mem::replace(&mut self.listeners, listeners));
        self.shown.outdated();
        self.config.logs.forget_unused();
        messages::set_log(self.config.error_log.clone());
        observe::set_level(None);
        crate::process::start::redirect_stderr(&self.config.error_log);
        report::debug_points(self.config.core.debug_points);
        old
    }

    fn reopen(&mut self) {
        say!(Notice, "reopening logs");
        let user = if rustix::process::geteuid().is_root() { self.config.core.user.as_ref() } else { None };
        reload::reopen_logs(&self.config.logs, user);
        crate::process::start::redirect_stderr(&self.config.error_log);
        for worker in &self.workers {
            if let Err(e) = worker.commander.reopen(&reload::log_copies(&self.config.logs)) {
                say!(Alert, "the worker process cannot be reached {}; it writes to the old logs", os_error(&e));
            }
        }
    }

    fn change_binary(&mut self, received: ReceivedSignal) {
        let parent = parent();
        if self.quitting || self.terminating {
            sig::note_signal(received, ", ignoring");
            say!(Crit, "the changing binary signal is ignored: the server is shutting down");
            return;
        }
        // A master that leaves the foreground would end its service, unless the service manager is told.
        let is_bound = parent == self.standing.parent && (self.standing.is_heir || !supervisor::accepts_successor());
        if self.new_binary.is_some() || is_bound {
            sig::note_signal(received, ", ignoring");
            say!(
                Crit,
                "the changing binary signal is ignored: you should shutdown or terminate before either old or new \
                 binary's process"
            );
            return;
        }
        sig::note_signal(received, ", changing binary");
        say!(Notice, "changing binary");
        self.new_binary = upgrade::start_program(
            &self.program,
            &self.config.core,
            &self.listeners,
            &mut self.neighbours,
            self.control_api.as_ref(),
        );
    }

    fn reap(&mut self) -> MasterStep {
        while let Ok(Some((pid, status))) = waitpid(None, WaitOptions::NOHANG) {
            let pid = pid.as_raw_nonzero().get();
            if self.new_binary == Some(pid) {
                note_end("new binary process", pid, status);
                self.new_binary = None;
                upgrade::restore_program(&self.config.core, &self.listeners, "the end of the");
                if self.idle {
                    self.restart_at = Some(Instant::now());
                }
                continue;
            }
            if self.keeper.ended(pid) == KeyProcessEnd::Unexpected {
                note_end("key process", pid, status);
                continue;
            }
            if let Some(at) = self.judges.iter().position(|judge| *judge == pid) {
                self.judges.swap_remove(at);
                continue;
            }
            let Some(at) = self.workers.iter().position(|w| w.pid == pid) else {
                note_end("unknown process", pid, status);
                continue;
            };
            let worker = self.workers.remove(at);
            self.asked_reload_confirmed(pid);
            note_end("worker process", pid, status);
            self.forget_keys();
            if worker.exiting || self.quitting || self.terminating {
                continue;
            }
            if self.pending.take().is_some() {
                let told = "the worker process ended while it took over a configuration; the old one stays";
                say!(Emerg, "{told}");
                self.asked_reload_failed(told);
                self.change_failed("the worker process ended while it took over the configuration");
            }
            if self.ended_during_replacement(&worker) {
                continue;
            }
            if status.exit_status() == Some(FATAL) {
                say!(Alert, "worker process {pid} exited with fatal code {FATAL} and cannot be respawned");
                return MasterStep::Exit(self.clean_up(1));
            }
            metrics::Lifecycle::note_respawn();
            let pause = self.pause_after(&worker, status);
            self.restart_at = Some(Instant::now() + pause);
        }
        MasterStep::Go
    }

    /// Restarts a repeatedly crashing worker with increasing delays.
    fn pause_after(&mut self, worker: &Worker, status: WaitStatus) -> Duration {
        if status.exit_status() == Some(0) || worker.started.elapsed() >= LIVED_WELL {
            self.back_off = BACK_OFF_FIRST;
            return Duration::ZERO;
        }
        let pause = self.back_off;
        self.back_off = (self.back_off * 2).min(BACK_OFF_LAST);
        say!(Notice, "the next worker process is started in {} ms", pause.as_millis());
        pause
    }

    /// Tells whether the master that this one follows still runs.
    fn old_binary_lives(&self) -> bool {
        self.standing.is_heir && parent() == self.standing.parent
    }

    /// Frees the addresses, unless a new binary uses them.
    fn close_listeners(&mut self) {
        let old_binary_lives = self.old_binary_lives();
        if self.new_binary.is_none() && !old_binary_lives {
            self.listeners.remove_paths(&Listeners::default());
        }
        if old_binary_lives {
            self.listeners.set_messages(false);
        }
        self.listeners = Listeners::default();
    }

    fn exit(&mut self, code: i32) -> i32 {
        self.clean_up(code)
    }

    fn clean_up(&mut self, code: i32) -> i32 {
        let pid_file = &self.config.core.pid;
        match self.new_binary {
            Some(_) => pidfile::remove_pidfile(&pidfile::old_path(pid_file)),
            None => pidfile::remove_pidfile(pid_file),
        }
        self.keeper.stop();
        if let Some(api) = &self.control_api
            && self.new_binary.is_none()
            && !self.old_binary_lives()
        {
            api.remove_path();
        }
        say!(Notice, "exit");
        self.close_listeners();
        code
    }
}

fn parent() -> i32 {
    rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get())
}

/// Tells workers to end through the channel, or by signal if that fails.
fn tell(workers: &mut [Worker], order: fn(&Commander) -> std::io::Result<()>, signal: Signal) {
    for worker in workers {
        worker.exiting = true;
        if order(&worker.commander).is_err()
            && let Some(pid) = Pid::from_raw(worker.pid)
        {
            let _ = kill_process(pid, signal);
        }
    }
}

/// Logs ended children in nginx's words.
fn note_end(what: &str, pid: i32, status: WaitStatus) {
    match (status.terminating_signal(), status.exit_status()) {
        (Some(signal), _) => say!(Alert, "{what} {pid} exited on signal {signal}"),
        (None, Some(code)) => say!(Notice, "{what} {pid} exited with code {code}"),
        (None, None) => say!(Notice, "{what} {pid} changed its state"),
    }
}
