//! Virtual network and clock: runs the whole engine without sockets or waiting, so that every reported time is
//! comparable with the script's.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::rc::Rc;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex};

use super::failure::LoadFailure;
use super::feed::RowFeed;
use super::job::{Job, Target};
use super::record::{Interval, LoadRecord};
use super::run::prepare_requests;
use super::transport::{Cost, Io, Ready, Transport, TransportSlot};
use super::world::{LoadWorld, WorldResult};
use crate::protocol::ClientProtocol;
use crate::protocol::h1::H1;
use crate::protocol::h2::H2;

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Act {
    Established,
    Refused,
    Bytes(Vec<u8>),
    End,
    Reset,
}

/// Answers a request (time, slot, head) with timed actions.
pub type Script = Box<dyn FnMut(u64, TransportSlot, &str) -> Vec<(u64, Act)>>;

pub struct Sim {
    clock: u64,
    script: Script,
    /// Hold-ups of the client: start and length, by time.
    pub hold_ups: Vec<(u64, u64)>,
    /// Time from connect to established, and whether connects are refused.
    pub connect_delay: u64,
    pub refuse: bool,
    pub ports: usize,
    connections: Vec<SimConnection>,
    events: BinaryHeap<Reverse<(u64, u64, TransportSlot, u32, Act)>>,
    order: u64,
    /// HTTP/2: the server's first bytes; the script then gets each HEADERS frame by its stream's number.
    pub settings: Option<Vec<u8>>,
    /// (time, slot) of every arrived request.
    pub arrivals: Rc<RefCell<Vec<(u64, TransportSlot)>>>,
    /// Number of waits for events.
    pub waits: Rc<Cell<u64>>,
}

#[derive(Default)]
struct SimConnection {
    epoch: u32,
    request: Vec<u8>,
    inbox: Vec<u8>,
    ended: bool,
    reset: bool,
    refused: bool,
}

impl Sim {
    pub fn new(script: Script) -> Sim {
        Sim {
            clock: 0,
            script,
            hold_ups: Vec::new(),
            connect_delay: 0,
            refuse: false,
            ports: usize::MAX,
            settings: None,
            connections: Vec::new(),
            events: BinaryHeap::new(),
            order: 0,
            arrivals: Rc::default(),
            waits: Rc::default(),
        }
    }

    fn requests(&mut self, slot: TransportSlot) -> Vec<String> {
        let mut requests = Vec::new();
        let request = &mut self.connections[slot].request;
        if self.settings.is_none() {
            while let Some(end) = memchr::memmem::find(request, b"\r\n\r\n") {
                let head: Vec<u8> = request.drain(..end + 4).collect();
                requests.push(String::from_utf8_lossy(&head).into());
            }
            return requests;
        }
        if request.starts_with(wire_h2::PREFACE) {
            request.drain(..wire_h2::PREFACE.len());
            let settings = self.settings.clone().unwrap_or_default();
            self.schedule(self.clock, slot, Act::Bytes(settings));
        }
        let request = &mut self.connections[slot].request;
        while let [a, b, c, kind, _, s, t, u, v, ..] = request[..] {
            let length = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
            if request.len() < 9 + length {
                break;
            }
            request.drain(..9 + length);
            if kind == 1 {
                requests.push(u32::from_be_bytes([s, t, u, v]).to_string());
            }
        }
        requests
    }

    fn schedule(&mut self, at: u64, slot: TransportSlot, act: Act) {
        self.order += 1;
        let epoch = self.connections[slot].epoch;
        self.events.push(Reverse((at.max(self.clock), self.order, slot, epoch, act)));
    }
}

impl Transport for Sim {
    fn now(&self) -> u64 {
        self.clock
    }
    fn connect_cost(&mut self) -> Cost {
        Cost::default()
    }

    fn cpu(&self) -> u64 {
        0
    }
    fn spun(&self) -> u64 {
        0
    }
    fn waited(&self) -> u64 {
        0
    }
    fn connect(&mut self, slot: TransportSlot) -> Result<(), LoadFailure> {
        if self.connections.len() <= slot {
            self.connections.resize_with(slot + 1, SimConnection::default);
        }
        if self.ports == 0 {
            return Err(LoadFailure::PortsExhausted);
        }
        self.ports -= 1;
        let epoch = self.connections[slot].epoch + 1;
        self.connections[slot] = SimConnection { epoch, ..SimConnection::default() };
        let act = if self.refuse { Act::Refused } else { Act::Established };
        self.schedule(self.clock + self.connect_delay, slot, act);
        Ok(())
    }
    fn established(&mut self, slot: TransportSlot) -> Result<(), LoadFailure> {
        if self.connections[slot].refused { Err(LoadFailure::ConnectRefused) } else { Ok(()) }
    }
    fn receive(&mut self, slot: TransportSlot, buffer: &mut [u8]) -> Io {
        let c = &mut self.connections[slot];
        if c.reset {
            return Io::Failed(LoadFailure::Reset);
        }
        if c.inbox.is_empty() {
            return if c.ended { Io::Done(0) } else { Io::Wait };
        }
        let n = c.inbox.len().min(buffer.len());
        buffer[..n].copy_from_slice(&c.inbox[..n]);
        c.inbox.drain(..n);
        Io::Done(n)
    }
    fn discard(&mut self, slot: TransportSlot, buffer: &mut [u8]) -> Io {
        self.receive(slot, buffer)
    }
    fn send(&mut self, slot: TransportSlot, bytes: &[u8]) -> Io {
        while let Some((from, length)) = self.hold_ups.first().copied()
            && from <= self.clock
        {
            self.hold_ups.remove(0);
            self.clock += length;
        }
        self.connections[slot].request.extend_from_slice(bytes);
        for request in self.requests(slot) {
            self.arrivals.borrow_mut().push((self.clock, slot));
            for (at, act) in (self.script)(self.clock, slot, &request) {
                self.schedule(at, slot, act);
            }
        }
        Io::Done(bytes.len())
    }
    fn close(&mut self, slot: TransportSlot, _: bool) {
        self.connections[slot].epoch += 1;
    }
    fn wait(&mut self, deadline: u64, ready: &mut Vec<Ready>) {
        ready.clear();
        self.waits.set(self.waits.get() + 1);
        while ready.is_empty() {
            let Some(Reverse((at, ..))) = self.events.peek() else { break };
            let at = *at;
            if at > deadline {
                break;
            }
            self.clock = self.clock.max(at);
            let Some(Reverse((_, _, slot, epoch, act))) = self.events.pop() else { break };
            let c = &mut self.connections[slot];
            if c.epoch != epoch {
                continue;
            }
            let mut event = Ready { slot, readable: true, writable: true, ended: false };
            match act {
                Act::Established => event.readable = false,
                Act::Refused => c.refused = true,
                Act::Bytes(bytes) => c.inbox.extend(bytes),
                Act::End => (c.ended, event.ended) = (true, true),
                Act::Reset => (c.reset, event.ended) = (true, true),
            }
            ready.push(event);
        }
        if ready.is_empty() {
            self.clock = self.clock.max(deadline);
        }
    }
}

pub fn ok_answer() -> Act {
    status_answer(200, "ok")
}

pub fn status_answer(status: u16, body: &str) -> Act {
    Act::Bytes(format!("HTTP/1.1 {status} X\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes())
}

pub fn sim_job(connections: usize, seconds: f64) -> Job {
    let target = Target {
        host: "test".into(),
        port: 80,
        address: ([127, 0, 0, 1], 80).into(),
        tls: None,
        unix: None,
        proxy: None,
        sources: Vec::new(),
    };
    Job::closed(target, connections, seconds)
}

/// Runs one world; returns its merged, settled record and its result.
pub fn play_world(sim: Sim, job: &Job) -> (LoadRecord, WorldResult) {
    play_until(sim, job, Arc::default())
}

pub fn play_until(sim: Sim, job: &Job, stop: Arc<AtomicBool>) -> (LoadRecord, WorldResult) {
    match job.http2 {
        None => play_with::<H1>(sim, job, stop),
        Some(_) => play_with::<H2>(sim, job, stop),
    }
}

fn play_with<P: ClientProtocol>(sim: Sim, job: &Job, stop: Arc<AtomicBool>) -> (LoadRecord, WorldResult) {
    let intervals: Arc<Mutex<Vec<Interval>>> = Arc::default();
    let sink = intervals.clone();
    let world = LoadWorld::<Sim, P>::new(
        sim,
        Arc::new(job.clone()),
        prepare_requests(job).unwrap(),
        0,
        job.data.as_ref().map(RowFeed::whole),
        Box::new(move |i| sink.lock().unwrap().push(i)),
        stop,
    );
    let mut world = world.unwrap();
    world.prepare();
    let done = world.run();
    let mut record = LoadRecord::default();
    intervals.lock().unwrap().iter().for_each(|i| record.merge(&i.record));
    record.settle();
    (record, done)
}
