//! A worker thread's loop stepped by a test: time passes when the test says so, and nothing runs between its steps.
//!
//! Connections are socket pairs, which the kernel passes bytes through at once: with the same steps, the same happens.

use crate::accept;
use crate::mux::MuxConnection;
use crate::thread::{Command, Serving, ThreadInit};
use crate::turn::{Progress, Turns};
use base::clock::{self, Instant};
use http_engine::ListenerRef;
use http_types::ByteCore;
use net::listen::Address;
use net::poller::Key;
use net::socket::Accepted;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};

/// Turns without an end mean that the loop does not come to rest.
const TURNS_MAX: usize = 100_000;

/// See the module's documentation.
pub struct Sim {
    turns: Turns,
    commands: UnboundedSender<Command>,
    ended: bool,
    /// The step that something is to happen at.
    step: u64,
}

impl Sim {
    /// Time stands still from here on, for this thread.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new(serving: Serving) -> io::Result<Sim> {
        clock::freeze();
        let (commands, receiver) = unbounded_channel();
        let init = ThreadInit { index: 0, serving, listeners: Vec::new(), commands: receiver, cpus: None };
        Ok(Sim { turns: Turns::begin(init)?, commands, ended: false, step: 0 })
    }

    /// A client that has connected to a listener of the plan.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn connect(&mut self, address: &Address) -> io::Result<UnixStream> {
        self.take_in(address).map(|(_, theirs)| theirs)
    }
    fn take_in(&mut self, address: &Address) -> io::Result<(Option<Key>, UnixStream)> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        theirs.set_nonblocking(true)?;
        let listener = ListenerRef::new(Rc::new(address.clone()));
        runtime::budget::renew();
        let key = accept::take_in(&self.turns.worker, Accepted { fd: ours.into(), peer: None }, &listener);
        Ok((key, theirs))
    }

    /// The same for a client that speaks the protocol of this core.
    ///
    /// # Errors
    /// As [`Sim::connect`].
    pub fn connect_speaking(&mut self, address: &Address, core: Box<dyn ByteCore>) -> io::Result<UnixStream> {
        let (key, theirs) = self.take_in(address)?;
        let worker = &self.turns.worker;
        if let Some((key, owner)) = key.and_then(|key| Some((key, worker.poller.registration(key)?.connection()?))) {
            MuxConnection::begin(worker, key, &owner, None, core);
        }
        Ok(theirs)
    }

    /// Tells the thread something; it hears it in its next turn.
    pub fn tell(&mut self, command: Command) {
        let _ = self.commands.send(command);
    }

    /// Turns until nothing is left to do at this point in time; how many it took.
    ///
    /// # Errors
    /// When the loop fails, or does not come to rest.
    pub fn settle(&mut self) -> io::Result<usize> {
        for turns in 0..TURNS_MAX {
            if self.ended {
                return Ok(turns);
            }
            match self.turns.turn(false)? {
                Progress::None => return Ok(turns),
                Progress::Some => {}
                Progress::Ended => self.ended = true,
            }
        }
        Err(io::Error::other("the loop does not come to rest"))
    }

    /// One turn.
    ///
    /// # Errors
    /// When the loop fails.
    pub fn turn(&mut self) -> io::Result<()> {
        self.ended |= self.turns.turn(false)? == Progress::Ended;
        Ok(())
    }

    /// Lets time pass, deadline by deadline, settling at each.
    ///
    /// # Errors
    /// As [`Sim::settle`].
    pub fn pass(&mut self, millis: u64) -> io::Result<()> {
        let end = clock::now().plus_millis(millis);
        loop {
            self.settle()?;
            if self.ended {
                clock::set_frozen(end);
                return Ok(());
            }
            // A deadline that was moved away is looked at in vain and then again.
            let next = self.turns.next_due().map_or(end, |due| due.max(Instant(clock::now().0 + 1000)).min(end));
            clock::set_frozen(next);
            self.settle()?;
            if next >= end {
                return Ok(());
            }
        }
    }

    /// The thread's work has ended.
    pub fn has_ended(&self) -> bool {
        self.ended
    }
    /// Tasks that work on connections.
    pub fn tasks(&self) -> usize {
        self.turns.worker.tasks.get()
    }
    /// Entries of the event queue that are not connections of our own making.
    pub fn owned(&self) -> usize {
        self.turns.worker.poller.registered()
    }
    /// Ends the thread as TERM does; whether its state is gone with it: tasks hold it, and so might connections that tasks
    /// have become idle.
    #[must_use]
    pub fn end(self) -> bool {
        let worker = Rc::downgrade(&self.turns.worker);
        drop(self);
        worker.upgrade().is_none()
    }
    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        let worker = &self.turns.worker;
        worker
            .poller
            .keys()
            .into_iter()
            .filter(|key| worker.poller.registration(*key).is_some_and(|o| o.connection().is_some()))
            .count()
    }
    /// The thread's code panics at this step from now on, see [`Worker::step`](crate::worker::Worker::step). 0: not at all.
    pub fn panic_at(&mut self, step: u64) {
        self.at_step(step, || panic!("a test's panic"));
    }
    /// At this step the thread is told something, which it hears in its next turn.
    pub fn tell_at(&mut self, step: u64, command: Command) {
        let commands = self.commands.clone();
        self.at_step(step, move || {
            let _ = commands.send(command);
        });
    }
    /// Steps are counted, and nothing happens at any.
    pub fn count_steps(&mut self) {
        self.at_step(u64::MAX, || {});
    }
    /// Nothing happens any more.
    pub fn forget_step(&mut self) {
        self.panic_at(0);
    }
    fn at_step(&mut self, step: u64, happening: impl FnOnce() + 'static) {
        self.step = step;
        self.turns.worker.happening.replace(Some(Box::new(happening)));
        self.turns.worker.at_step.set(step);
    }
    /// How many steps were made since, up to the one that something happened at.
    pub fn steps_made(&self) -> u64 {
        self.step - self.turns.worker.at_step.get()
    }
    /// Time passes while the thread is kept busy by something else: it has not looked at anything meanwhile.
    pub fn stall(&mut self, millis: u64) {
        clock::set_frozen(clock::now().plus_millis(millis));
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        clock::thaw();
    }
}
