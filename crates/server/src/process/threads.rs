//! The worker threads of a process: start, orders, end. Watches replaced plans until their last use.

use crate::codec::SocketAssignment;
use crate::conf::{Config, CorePlan};
use crate::process::listeners::Listeners;
use crate::say;
use area::plan::AreaPlan;
use std::collections::BTreeSet;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use worker::thread::{BoundSocket, ServeLoop, ThreadInit, WorkerCommand};

/// A thread ended: its `id` (never reused), and a flag for a regular end (`false`: panic).
#[derive(Clone, Copy, Debug)]
pub struct EndedThread {
    pub id: u64,
    pub in_order: bool,
}

pub struct Threads {
    all: Vec<RunningThread>,
    next_id: u64,
    ended: UnboundedSender<EndedThread>,
    /// Replaced plans that may still be in use, with their numbers.
    retired: Vec<(u64, Vec<Weak<dyn AreaPlan>>)>,
    current: Vec<Arc<dyn AreaPlan>>,
    generation: u64,
}

/// Maximum time for threads to write pending log lines before the files are replaced.
const FLUSH_PATIENCE: std::time::Duration = std::time::Duration::from_secs(1);

/// Maximum time that an outcome of the API waits for busy threads.
const SETTLE_PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);

struct RunningThread {
    id: u64,
    /// Index of the thread. A leaving thread may share it with its successor.
    index: usize,
    leaving: bool,
    commands: UnboundedSender<WorkerCommand>,
    handle: JoinHandle<()>,
}

impl Threads {
    pub fn new() -> (Threads, UnboundedReceiver<EndedThread>) {
        let (ended, receiver) = unbounded_channel();
        (
            Threads { all: Vec::new(), next_id: 0, ended, retired: Vec::new(), current: Vec::new(), generation: 0 },
            receiver,
        )
    }

    /// Activates a configuration. `assignments` are sockets that threads lack, with their descriptors.
    pub fn serve(&mut self, config: &Config, listeners: &Listeners, assignments: Vec<(SocketAssignment, OwnedFd)>) {
        net::pool::configure(&config.core.thread_pools);
        self.generation += 1;
        if self.generation > 1 {
            let replaced = self.current.iter().map(Arc::downgrade).collect();
            self.retired.push((self.generation - 1, replaced));
        }
        self.current = config.areas();
        upstream::scope::retire_scopes(config.scopes);
        let serving = ServeLoop {
            http: config.http.clone(),
            stream: config.stream.clone(),
            mail: config.mail.clone(),
            error_log: config.error_log.clone(),
            connections_max: config.core.worker_connections,
            multi_accept: config.core.multi_accept,
            shutdown_timeout_ms: config.core.shutdown_timeout_ms,
            stall_threshold_ms: config.core.stall_threshold_ms,
        };
        let keep: Vec<_> = listeners.all.iter().map(|l| (l.spec.address.clone(), l.spec.datagram)).collect();
        let mut bound: Vec<Vec<BoundSocket>> = (0..config.core.workers).map(|_| Vec::new()).collect();
        for (assignment, fd) in assignments {
            if let (Some(list), Some(listener)) =
                (bound.get_mut(assignment.thread), listeners.all.get(assignment.listener))
            {
                list.push(BoundSocket { spec: listener.spec.clone(), fd, shared: assignment.shared });
            }
        }
        for (index, listeners) in bound.into_iter().enumerate() {
            match self.all.iter().find(|thread| thread.index == index && !thread.leaving) {
                Some(thread) => {
                    let command = WorkerCommand::Serve { serving: serving.clone(), listeners, keep: keep.clone() };
                    let _ = thread.commands.send(command);
                }
                None => self.start(index, serving.clone(), listeners, &config.core),
            }
        }
        for thread in self.all.iter_mut().filter(|t| t.index >= config.core.workers && !t.leaving) {
            thread.leaving = true;
            let _ = thread.commands.send(WorkerCommand::Quit { timeout_ms: config.core.shutdown_timeout_ms });
        }
    }

    fn start(&mut self, index: usize, serving: ServeLoop, listeners: Vec<BoundSocket>, core: &CorePlan) {
        let (commands, receiver) = unbounded_channel();
        let cpus = core.affinity.as_ref().and_then(|affinity| affinity.cpus(index));
        let init = ThreadInit { index, serving, listeners, commands: receiver, cpus };
        let (ended, id) = (self.ended.clone(), self.next_id);
        self.next_id += 1;
        let body = move || {
            let in_order =
                std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| worker::thread::run_thread(init))).is_ok();
            let _ = ended.send(EndedThread { id, in_order });
        };
        match std::thread::Builder::new().name(format!("worker {index}")).spawn(body) {
            Ok(handle) => self.all.push(RunningThread { id, index, leaving: false, commands, handle }),
            Err(e) => {
                say!(Alert, "starting worker thread {index} failed {}", observe::os_error(&e));
                let _ = self.ended.send(EndedThread { id, in_order: false });
            }
        }
    }

    pub fn tell(&mut self, command: impl Fn() -> WorkerCommand) {
        for thread in &mut self.all {
            thread.leaving |= !matches!(command(), WorkerCommand::Serve { .. });
            let _ = thread.commands.send(command());
        }
    }

    /// Makes every thread write its pending log lines, and waits for it (a limited time, if a disk blocks).
    pub async fn flush(&self) {
        let (done, mut all_done) = unbounded_channel();
        for thread in &self.all {
            let _ = thread.commands.send(WorkerCommand::Flush(done.clone()));
        }
        drop(done);
        // The channel closes when the last thread drops its sender.
        let _ = runtime::time::with_timeout(FLUSH_PATIENCE, all_done.recv()).await;
    }

    /// Waits until every thread has executed its earlier orders.
    pub async fn settled(&self) {
        let (done, mut all_done) = unbounded_channel();
        for thread in &self.all {
            let _ = thread.commands.send(WorkerCommand::Flush(done.clone()));
        }
        drop(done);
        let _ = runtime::time::with_timeout(SETTLE_PATIENCE, all_done.recv()).await;
    }

    /// Records the end of a thread. Returns `true` if it was told to end.
    pub fn ended(&mut self, ended: EndedThread) -> bool {
        let Some(at) = self.all.iter().position(|thread| thread.id == ended.id) else { return false };
        let thread = self.all.swap_remove(at);
        let _ = thread.handle.join();
        ended.in_order && thread.leaving
    }

    pub fn any_left(&self) -> bool {
        !self.all.is_empty()
    }

    /// Tells whether a replaced plan may still be in use.
    pub fn any_retired(&self) -> bool {
        !self.retired.is_empty()
    }

    /// Logs replaced plans that are no longer used. Scripts that wait for the end of nginx's old workers look for
    /// `exited with code`.
    pub fn report_retired(&mut self) {
        self.retired.retain(|(generation, plans)| {
            let gone = plans.iter().all(|plan| plan.strong_count() == 0);
            if gone {
                say!(Notice, "configuration {generation} is no longer used: its work has exited with code 0");
            }
            !gone
        });
    }
}

pub fn socket_copies(
    listeners: &Listeners,
    assignments: &[SocketAssignment],
) -> std::io::Result<Vec<(SocketAssignment, OwnedFd)>> {
    let copy = |assignment: &SocketAssignment| {
        let socket = listeners.all.get(assignment.listener).and_then(|l| l.sockets.get(assignment.socket));
        let socket = socket.ok_or_else(|| std::io::Error::other("an assignment without a socket"))?;
        Ok((*assignment, socket.as_fd().try_clone_to_owned()?))
    };
    assignments.iter().map(copy).collect()
}

/// Returns the assignments of `new` that `old` lacks, compared by thread, address and socket index.
pub fn new_seats(old: &Listeners, old_threads: usize, new: &Listeners, new_threads: usize) -> Vec<SocketAssignment> {
    let key = |listeners: &Listeners, assignment: &SocketAssignment| {
        let spec = &listeners.all[assignment.listener].spec;
        (assignment.thread, spec.address.clone(), spec.datagram, assignment.socket)
    };
    let had: BTreeSet<_> = if old.all.is_empty() {
        BTreeSet::new()
    } else {
        // A thread that the new configuration lacks ends, and its assignments with it.
        old.assignments(old_threads).iter().filter(|s| s.thread < new_threads).map(|s| key(old, s)).collect()
    };
    new.assignments(new_threads).into_iter().filter(|assignment| !had.contains(&key(new, assignment))).collect()
}
