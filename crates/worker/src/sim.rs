//! Runs a worker's event loop step by step in tests, with simulated time. Connections are socket pairs, whose data the
//! kernel transfers at once, so that equal steps have equal results.

use crate::byte_carrier::ByteCarrier;
use crate::command::{ThreadInit, WorkerCommand};
use crate::intake;
use crate::serving::ServeLoop;
use crate::steps;
use crate::turn::{TurnProgress, Turns};
use base::clock::{self, Instant};
use http_engine::ListenerRef;
use http_types::ByteCore;
use net::Address;
use net::poller::Key;
use net::socket::AcceptedSocket;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Number of turns after which [`Sim::settle`] fails, because the loop never becomes idle.
const TURNS_MAX: usize = 100_000;

/// A worker thread whose loop a test runs. One at a time per thread: it freezes the thread's clock until it is dropped.
pub struct Sim {
    turns: Turns,
    commands: UnboundedSender<WorkerCommand>,
    ended: bool,
    /// Step of the planned event.
    step: u64,
}

impl Sim {
    /// Starts a thread's loop without sockets.
    pub fn new(serving: ServeLoop) -> io::Result<Sim> {
        clock::freeze();
        let (commands, receiver) = unbounded_channel();
        let init = ThreadInit { index: 0, serving, listeners: Vec::new(), commands: receiver, cpus: None };
        Ok(Sim { turns: Turns::begin(init)?, commands, ended: false, step: 0 })
    }

    /// Connects a client to a listener of the http area.
    pub fn connect(&mut self, address: &Address) -> io::Result<UnixStream> {
        self.take_in(address).map(|(_, theirs)| theirs)
    }
    fn take_in(&mut self, address: &Address) -> io::Result<(Option<Key>, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let listener = ListenerRef::new(Rc::new(address.clone()));
        runtime::budget::renew();
        let key = intake::take_in(&self.turns.worker, AcceptedSocket { fd: ours.into(), peer: None }, &listener);
        Ok((key, theirs))
    }

    /// As [`Sim::connect`], with a protocol core in place of HTTP/1.
    pub fn connect_speaking(&mut self, address: &Address, core: impl ByteCore + 'static) -> io::Result<UnixStream> {
        let (key, theirs) = self.take_in(address)?;
        let worker = &self.turns.worker;
        if let Some((key, owner)) = key.and_then(|key| Some((key, worker.poller.registration(key)?.client()?))) {
            ByteCarrier::begin(worker, key, &owner, None, core);
        }
        Ok(theirs)
    }

    /// Sends a command, received in the next turn.
    pub fn tell(&mut self, command: WorkerCommand) {
        let _ = self.commands.send(command);
    }

    /// Runs turns until the loop is idle, and returns their number. Fails after [`TURNS_MAX`] turns.
    pub fn settle(&mut self) -> io::Result<usize> {
        for turns in 0..TURNS_MAX {
            if self.ended {
                return Ok(turns);
            }
            match self.turns.turn(false)? {
                TurnProgress::None => return Ok(turns),
                TurnProgress::Some => {}
                TurnProgress::Ended => self.ended = true,
            }
        }
        Err(io::Error::other("the loop does not come to rest"))
    }

    /// Runs one turn, which does not wait.
    pub fn turn(&mut self) -> io::Result<()> {
        self.ended |= self.turns.turn(false)? == TurnProgress::Ended;
        Ok(())
    }

    /// Advances time from deadline to deadline, and settles at each.
    pub fn pass(&mut self, millis: u64) -> io::Result<()> {
        let end = clock::now().plus_millis(millis);
        loop {
            self.settle()?;
            if self.ended {
                clock::set_frozen(end);
                return Ok(());
            }
            // A deadline that has been postponed is visited at its old time first.
            let next = self.turns.next_due().map_or(end, |due| due.max(Instant(clock::now().0 + 1000)).min(end));
            clock::set_frozen(next);
            self.settle()?;
            if next >= end {
                return Ok(());
            }
        }
    }

    /// Tells whether the thread has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
    /// Returns the number of unfinished tasks.
    pub fn tasks(&self) -> usize {
        self.turns.worker.turn().tasks()
    }
    /// Returns the number of poller entries, without outbound connections.
    pub fn owned(&self) -> usize {
        self.turns.worker.poller.registered()
    }
    /// Ends the thread as TERM does. Returns `false` if a task or a connection still holds the worker's state.
    #[must_use]
    pub fn end(self) -> bool {
        let worker = Rc::downgrade(&self.turns.worker);
        drop(self);
        worker.upgrade().is_none()
    }
    /// Returns the number of clients' connections.
    pub fn clients(&self) -> usize {
        let worker = &self.turns.worker;
        worker
            .poller
            .keys()
            .into_iter()
            .filter(|key| worker.poller.registration(*key).is_some_and(|carrier| carrier.client().is_some()))
            .count()
    }
    /// Makes this step panic, see `steps.rs`; 0 cancels the plan.
    pub fn panic_at(&mut self, step: u64) {
        self.at_step(step, || panic!("a test's panic"));
    }
    /// Sends a command at this step, received in the next turn.
    pub fn tell_at(&mut self, step: u64, command: WorkerCommand) {
        let commands = self.commands.clone();
        self.at_step(step, move || {
            let _ = commands.send(command);
        });
    }
    /// Counts steps from now on, for [`Sim::steps_made`].
    pub fn count_steps(&mut self) {
        self.at_step(u64::MAX, || {});
    }
    /// Cancels the planned event.
    pub fn forget_step(&mut self) {
        self.panic_at(0);
    }
    fn at_step(&mut self, step: u64, happening: impl FnOnce() + 'static) {
        self.step = step;
        steps::plan_event(step, happening);
    }
    /// Returns the number of steps since [`Sim::count_steps`].
    pub fn steps_made(&self) -> u64 {
        self.step - steps::steps_left()
    }
    /// Makes every step take this time, as expensive requests do.
    pub fn slow_steps(&mut self, micros: u64) {
        slow_step(micros);
    }
    /// Advances time without a turn, as if the thread were busy.
    pub fn stall(&mut self, millis: u64) {
        clock::set_frozen(clock::now().plus_millis(millis));
    }
}

fn slow_step(micros: u64) {
    steps::plan_event(1, move || {
        clock::set_frozen(Instant(clock::now().0 + micros));
        slow_step(micros);
    });
}

impl Drop for Sim {
    fn drop(&mut self) {
        steps::plan_event(0, || {});
        clock::thaw();
    }
}
