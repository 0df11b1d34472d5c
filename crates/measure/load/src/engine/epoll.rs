//! Real network: non-blocking sockets over one epoll instance per thread, and the monotonic clock.
//! Sockets are registered once, edge-triggered, in both directions; a request of a busy closed loop costs one send, one
//! receive and a share of an `epoll_wait`.

use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use net::packets::{OutgoingPackets, PacketSocket};
use net::socket::set_bind_address_no_port;
use rustix::event::{PollFd, PollFlags, Timespec, epoll, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, bind, connect, ipproto, recv, send,
    socket_with, sockopt,
};
use rustix::time::{ClockId, clock_gettime};

use super::failure::LoadFailure;
use super::job::Job;
use super::ports::Ports;
use super::transport::{Cost, Io, Ready, Transport, TransportSlot};

const BATCH: usize = 256;
/// Nanoseconds from which `epoll_wait`'s steps of a millisecond are fine enough.
const COARSE: u64 = 2_000_000;

/// Polls before sleeping, about 10 µs: as long as a sleep and wake-up. With frequent answers sleeping would cost both
/// sides more.
const LOOKS: usize = 30;
/// Maximum nanoseconds of fruitless polling.
const LOOKING_MAX: u64 = 50_000;
/// Sleeps without polling, at most, after polling in vain.
const SKIPPED_MAX: u32 = 64;

/// One `connect` call in so many is timed.
const TIMED_EVERY: usize = 16;
/// Nanoseconds without another search after ports ran out: a search in vain tries all of them.
const PORTLESS: u64 = 5_000_000;

enum Socket {
    Stream(OwnedFd),
    Datagrams(PacketSocket),
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match self {
            Socket::Stream(fd) => fd.as_fd(),
            Socket::Datagrams(socket) => socket.as_fd(),
        }
    }
}

pub struct Epoll {
    epoll: OwnedFd,
    address: SocketAddr,
    unix: Option<SocketAddrUnix>,
    ports: Ports,
    /// Connects over UDP.
    datagrams: bool,
    sockets: Vec<Option<Socket>>,
    /// Number of sockets that each slot has held, to discard events of earlier ones.
    epochs: Vec<u32>,
    events: Vec<epoll::Event>,
    made: usize,
    live: Vec<usize>,
    from: Vec<usize>,
    cost: Cost,
    portless: u64,
    refusal: Option<Errno>,
    /// The address is that of a proxy.
    is_proxied: bool,
    spin: bool,
    sparse: bool,
    /// Sleeps to come without polling, and their last number.
    skip: u32,
    skipped: u32,
    spun: u64,
    start: u64,
}

impl Epoll {
    /// Creates the transport of world `world`. With [`Job::spin`] it burns the core instead of sleeping, accurate to a
    /// microsecond. Fails without a descriptor.
    pub fn new(job: &Job, world: usize) -> std::io::Result<Epoll> {
        // The default timer slack of 50 µs would delay every timed send.
        let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
        let ports = Ports::of(job);
        let live = vec![0; ports.sources.len()];
        Ok(Epoll {
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            address: job.target.address,
            unix: job.target.unix.as_ref().map(SocketAddrUnix::new).transpose()?,
            ports,
            datagrams: job.http3.is_some(),
            sockets: Vec::new(),
            epochs: Vec::new(),
            events: vec![epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; BATCH],
            made: world,
            live,
            from: Vec::new(),
            cost: Cost::default(),
            portless: 0,
            refusal: None,
            is_proxied: job.target.proxy.is_some(),
            spin: job.spin,
            sparse: false,
            skip: 0,
            skipped: 0,
            spun: 0,
            start: monotonic(),
        })
    }

    fn collect(&mut self, timeout: Option<&Timespec>, ready: &mut Vec<Ready>) {
        let count = epoll::wait(&self.epoll, self.events.as_mut_slice(), timeout).unwrap_or(0);
        for event in &self.events[..count] {
            let (data, flags) = (event.data.u64(), event.flags);
            let (slot, epoch) = ((data & 0xffff_ffff) as usize, (data >> 32) as u32);
            if self.epochs.get(slot) != Some(&epoch) {
                continue;
            }
            let broken = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            ready.push(Ready {
                slot,
                readable: broken || flags.contains(epoll::EventFlags::IN),
                writable: broken || flags.contains(epoll::EventFlags::OUT),
                ended: broken || flags.contains(epoll::EventFlags::RDHUP),
            });
        }
    }

    /// Polls for a short while; rarely, where polling is in vain.
    fn look(&mut self, ready: &mut Vec<Ready>) {
        if self.skip > 0 {
            self.skip -= 1;
            return;
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        self.collect(Some(&zero), ready);
        if ready.is_empty() {
            let begin = monotonic();
            for _ in 1..LOOKS {
                self.collect(Some(&zero), ready);
                if !ready.is_empty() {
                    break;
                }
            }
            self.spun += (monotonic() - begin).min(LOOKING_MAX);
        }
        self.skipped = if ready.is_empty() { (self.skipped * 2).clamp(1, SKIPPED_MAX) } else { 0 };
        self.skip = self.skipped;
    }

    fn open(&mut self, slot: TransportSlot) -> Result<(), Errno> {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        if let Some(path) = &self.unix {
            let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
            // A full accept queue returns EAGAIN, where TCP would let the connection wait.
            connect(&socket, path)?;
            return self.register(slot, Socket::Stream(socket), 0);
        }
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let (kind, protocol) =
            if self.datagrams { (SocketType::DGRAM, ipproto::UDP) } else { (SocketType::STREAM, ipproto::TCP) };
        let socket = socket_with(family, kind, flags, Some(protocol))?;
        if !self.datagrams {
            sockopt::set_tcp_nodelay(&socket, true)?;
        }
        if !self.datagrams && self.address.ip().is_loopback() {
            // A pacing algorithm (BBR) would delay requests by a timer of this side. Falls back to the system's.
            let _ = sockopt::set_tcp_congestion(&socket, "reno");
        }
        let number = self.ports.choose(self.made, &self.live);
        if !self.ports.sources.is_empty() {
            set_bind_address_no_port(&socket);
            bind(&socket, &SocketAddr::new(self.ports.sources[number], 0))?;
            self.cost.sources = self.cost.sources.max(number as u64 + 1);
        }
        self.made += 1;
        let timed = self.made.is_multiple_of(TIMED_EVERY).then(|| self.cpu());
        let connecting = connect(&socket, &self.address);
        if let Some(begin) = timed {
            (self.cost.calls, self.cost.cpu) = (self.cost.calls + 1, self.cost.cpu + (self.cpu() - begin));
        }
        if let Err(error) = connecting
            && error != Errno::INPROGRESS
        {
            return Err(error);
        }
        let socket = match self.datagrams {
            true => Socket::Datagrams(PacketSocket::new(socket, false).map_err(|_| Errno::NOBUFS)?),
            false => Socket::Stream(socket),
        };
        self.register(slot, socket, number)
    }

    fn connect_failed(&mut self, error: Errno) -> LoadFailure {
        let class = connect_class(error);
        if matches!(class, LoadFailure::ConnectRefused | LoadFailure::Connect) && error != Errno::AGAIN {
            self.refusal.get_or_insert(error);
        }
        class
    }

    /// Puts a socket that connects from address `number` into a slot.
    fn register(&mut self, slot: TransportSlot, socket: Socket, number: usize) -> Result<(), Errno> {
        if self.sockets.len() <= slot {
            self.sockets.resize_with(slot + 1, || None);
            self.epochs.resize(slot + 1, 0);
            self.from.resize(slot + 1, 0);
        }
        self.epochs[slot] = self.epochs[slot].wrapping_add(1);
        let data = epoll::EventData::new_u64(u64::from(self.epochs[slot]) << 32 | slot as u64);
        let flags = epoll::EventFlags::IN | epoll::EventFlags::OUT | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
        epoll::add(&self.epoll, &socket, data, flags)?;
        self.sockets[slot] = Some(socket);
        self.from[slot] = number;
        if let Some(live) = self.live.get_mut(number) {
            *live += 1;
        }
        Ok(())
    }
}

pub fn monotonic() -> u64 {
    nanoseconds(clock_gettime(ClockId::Monotonic))
}

fn nanoseconds(t: Timespec) -> u64 {
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

fn connect_class(error: Errno) -> LoadFailure {
    match error {
        Errno::CONNREFUSED | Errno::AGAIN => LoadFailure::ConnectRefused,
        Errno::TIMEDOUT => LoadFailure::ConnectTimeout,
        Errno::ADDRNOTAVAIL | Errno::ADDRINUSE => LoadFailure::PortsExhausted,
        Errno::MFILE | Errno::NFILE => LoadFailure::DescriptorsExhausted,
        _ => LoadFailure::Connect,
    }
}

impl Transport for Epoll {
    #[inline]
    fn now(&self) -> u64 {
        monotonic() - self.start
    }

    fn connect_cost(&mut self) -> Cost {
        std::mem::take(&mut self.cost)
    }

    fn cpu(&self) -> u64 {
        nanoseconds(clock_gettime(ClockId::ThreadCPUTime))
    }

    fn spun(&self) -> u64 {
        self.spun
    }

    fn waited(&self) -> u64 {
        crate::observe::processes::thread_schedule(std::path::Path::new("/proc/thread-self")).1
    }

    fn connect(&mut self, slot: TransportSlot) -> Result<(), LoadFailure> {
        if self.portless > 0 && self.now() < self.portless {
            return Err(LoadFailure::PortsExhausted);
        }
        let result = self.open(slot).map_err(|error| self.connect_failed(error));
        if result == Err(LoadFailure::PortsExhausted) {
            self.portless = self.now() + PORTLESS;
        }
        result
    }

    fn established(&mut self, slot: TransportSlot) -> Result<(), LoadFailure> {
        let Some(Some(socket)) = self.sockets.get(slot) else { return Err(LoadFailure::Connect) };
        match sockopt::socket_error(socket) {
            Ok(Ok(())) => Ok(()),
            Ok(Err(error)) | Err(error) => Err(self.connect_failed(error)),
        }
    }

    fn refusal(&self) -> Option<String> {
        let why = match self.refusal? {
            Errno::CONNREFUSED => "connection refused".to_string(),
            error => std::io::Error::from(error).to_string(),
        };
        let path = self.unix.as_ref().and_then(SocketAddrUnix::path_bytes);
        let target = path.map_or(self.address.to_string(), |path| String::from_utf8_lossy(path).into_owned());
        let who = if self.is_proxied { "the proxy " } else { "" };
        Some(format!("{who}{target}: {why}"))
    }

    #[inline]
    fn receive(&mut self, slot: TransportSlot, buffer: &mut [u8]) -> Io {
        let Some(Some(Socket::Stream(socket))) = self.sockets.get(slot) else { return Io::Wait };
        outcome(recv(socket, buffer, RecvFlags::empty()).map(|(n, _)| n))
    }

    fn discard(&mut self, slot: TransportSlot, buffer: &mut [u8]) -> Io {
        let Some(Some(socket)) = self.sockets.get(slot) else { return Io::Wait };
        // On TCP, MSG_TRUNC drops the bytes in the kernel instead of copying them (tcp(7)).
        outcome(recv(socket, buffer, RecvFlags::TRUNC).map(|(_, n)| n))
    }

    fn receive_datagrams(&mut self, slot: TransportSlot, take: &mut dyn FnMut(&[u8])) -> Io {
        let Some(Some(Socket::Datagrams(socket))) = self.sockets.get(slot) else { return Io::Wait };
        match socket.receive(|packet| take(packet.bytes)) {
            Ok(true) => Io::Done(1),
            Ok(false) => Io::Wait,
            Err(e) => match e.kind() {
                ErrorKind::WouldBlock | ErrorKind::Interrupted => Io::Wait,
                ErrorKind::ConnectionRefused => Io::Failed(self.connect_failed(Errno::CONNREFUSED)),
                _ => Io::Failed(LoadFailure::Reset),
            },
        }
    }

    fn send_datagrams(&mut self, slot: TransportSlot, bytes: &[u8], segment: usize) -> Io {
        let Some(Some(Socket::Datagrams(socket))) = self.sockets.get(slot) else { return Io::Wait };
        // One call takes no more datagrams than the kernel segments.
        let bytes = bytes.get(..segment * socket.segments_max()).unwrap_or(bytes);
        let segment = (bytes.len() > segment).then_some(segment);
        match socket.send(&OutgoingPackets { bytes, to: self.address, from: None, ecn: 0, segment }) {
            Ok(()) => Io::Done(bytes.len()),
            Err(_) => Io::Wait,
        }
    }

    #[inline]
    fn send(&mut self, slot: TransportSlot, bytes: &[u8]) -> Io {
        let Some(Some(socket)) = self.sockets.get(slot) else { return Io::Wait };
        outcome(send(socket, bytes, SendFlags::NOSIGNAL))
    }

    fn close(&mut self, slot: TransportSlot, reset: bool) {
        let Some(entry) = self.sockets.get_mut(slot) else { return };
        if let Some(socket) = entry.take() {
            if let Some(live) = self.live.get_mut(self.from[slot]) {
                *live -= 1;
            }
            if reset && !self.datagrams {
                let _ = sockopt::set_socket_linger(&socket, Some(Duration::ZERO));
            }
            self.epochs[slot] = self.epochs[slot].wrapping_add(1);
        }
    }

    fn wait(&mut self, deadline: u64, ready: &mut Vec<Ready>) {
        ready.clear();
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        loop {
            let left = deadline.saturating_sub(self.now()).min(3_600_000_000_000);
            let sleep_first = self.sparse && left > 0;
            match () {
                () if self.spin || left == 0 => self.collect(Some(&zero), ready),
                () if left >= COARSE => {
                    self.look(ready);
                    if !ready.is_empty() {
                        return;
                    }
                    let (whole, milliseconds) = (left / 1_000_000_000, left / 1_000_000 % 1000);
                    let timeout = Timespec { tv_sec: whole as i64, tv_nsec: (milliseconds * 1_000_000) as i64 };
                    self.collect(Some(&timeout), ready);
                }
                () if sleep_first => {
                    // epoll_wait rounds to milliseconds; ppoll on the epoll descriptor does not.
                    let timeout = Timespec { tv_sec: 0, tv_nsec: left as i64 };
                    let mut poll_epoll = [PollFd::new(&self.epoll, PollFlags::IN)];
                    if poll(&mut poll_epoll, Some(&timeout)) != Ok(0) {
                        self.collect(Some(&zero), ready);
                    }
                    // Many events mean that the next poll will find some without sleeping.
                    self.sparse = ready.len() < 4;
                }
                () => {
                    self.collect(Some(&zero), ready);
                    self.sparse = ready.is_empty();
                }
            }
            if !ready.is_empty() || left == 0 {
                return;
            }
        }
    }
}

#[inline]
fn outcome(result: Result<usize, Errno>) -> Io {
    match result {
        Ok(n) => Io::Done(n),
        Err(Errno::AGAIN | Errno::INTR) => Io::Wait,
        Err(_) => Io::Failed(LoadFailure::Reset),
    }
}
