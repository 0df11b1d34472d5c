//! The socket pair between master and worker: orders of the master, messages of the worker. Descriptors are passed
//! along (SCM_RIGHTS), long texts in a memory file.

use crate::codec::SocketAssignment;
use crate::codec::{Reader, Writer};
use crate::conf::ConfTexts;
use crate::generations::message::{ChangeOutcome, ChangeRequest, REQUEST_BYTES_MAX};
use runtime::io::WatchedSocket;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType,
};
use std::cell::RefCell;
use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// Maximum number of descriptors per packet; the kernel allows 253.
const PACKET_DESCRIPTORS_MAX: usize = 200;
/// Maximum number of descriptors per order, above that of any practical configuration.
const ORDER_DESCRIPTORS_MAX: usize = 1 << 20;
/// Maximum time for a worker to read an order.
const SEND_PATIENCE: Duration = Duration::from_secs(5);
const PACKET_BYTES_MAX: usize = 4096;
/// Maximum packet size of an order in bytes; a longer reason of a refused reload is cut.
const ORDER_BYTES_MAX: usize = 1024;

const QUIT: u8 = b'q';
const QUIT_FOLLOWED: u8 = b'l';
const TERMINATE: u8 = b't';
const REOPEN: u8 = b'o';
const RELOAD: u8 = b'r';
const REFUSED: u8 = b'n';
const OUTCOME: u8 = b'c';
const KEYS_RESPAWNED: u8 = b'k';
const CONFIRM: u8 = b'w';
const MORE: u8 = b'+';
const DONE: u8 = b'd';
const FAILED: u8 = b'f';
const STARTED: u8 = b's';
const REQUEST: u8 = b'a';
const SETTLED: u8 = b'e';
const CONFIRMED: u8 = b'y';

#[derive(Debug)]
pub enum ChannelOrder {
    /// `followed`: another worker process serves the same sockets, or is about to.
    Quit {
        followed: bool,
    },
    Terminate,
    Reopen {
        logs: Vec<(PathBuf, OwnedFd)>,
    },
    Reload(Box<Reload>),
    /// The master refused a reload, with the reason for the record of reloads.
    Refused(String),
    /// Number of key processes that were replaced, for the metrics.
    KeysRespawned(u64),
    /// Asks for [`Message::Confirmed`].
    Confirm,
    /// Reply to a request about configurations.
    Outcome(Box<ChangeOutcome>),
}

/// A configuration, to be built from its texts.
#[derive(Debug)]
pub struct Reload {
    pub texts: ConfTexts,
    /// Sockets that the worker's threads lack.
    pub assignments: Vec<(SocketAssignment, OwnedFd)>,
    pub logs: Vec<(PathBuf, OwnedFd)>,
}

pub type ReloadResult = Result<(), String>;

#[derive(Debug, PartialEq, Eq)]
pub enum Message {
    Answer(ReloadResult),
    Started,
    /// No plan of an earlier configuration is in use.
    Settled,
    /// All threads have executed the orders before [`ChannelOrder::Confirm`].
    Confirmed,
    /// A request about configurations; `None`: it is malformed.
    Request(Option<Box<ChangeRequest>>),
}

#[derive(Debug)]
pub struct Commander {
    socket: OwnedFd,
}

#[derive(Debug)]
pub struct Channel {
    socket: WatchedSocket<OwnedFd>,
    partial: RefCell<Option<Partial>>,
}

/// An order whose descriptors are still arriving.
#[derive(Debug)]
struct Partial {
    kind: u8,
    wanted: usize,
    descriptors: Vec<OwnedFd>,
}

/// Creates both ends. The second becomes a [`Channel`] in the worker.
///
/// # Errors
/// Those of `socketpair`.
pub fn channel_pair() -> io::Result<(Commander, OwnedFd)> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let (ours, theirs) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
    Ok((Commander { socket: ours }, theirs))
}

impl Commander {
    pub fn quit(&self) -> io::Result<()> {
        self.send(&[QUIT], &[])
    }

    /// As `quit`, where another worker process takes over.
    pub fn quit_followed(&self) -> io::Result<()> {
        self.send(&[QUIT_FOLLOWED], &[])
    }

    pub fn terminate(&self) -> io::Result<()> {
        self.send(&[TERMINATE], &[])
    }

    pub fn refused(&self, why: &str) -> io::Result<()> {
        let why = why.as_bytes();
        self.send(&[&[REFUSED], why.get(..ORDER_BYTES_MAX - 1).unwrap_or(why)].concat(), &[])
    }

    pub fn keys_respawned(&self, number: u64) -> io::Result<()> {
        self.send(&[&[KEYS_RESPAWNED], &number.to_le_bytes()[..]].concat(), &[])
    }

    pub fn confirm(&self) -> io::Result<()> {
        self.send(&[CONFIRM], &[])
    }

    pub fn reopen(&self, logs: &[(PathBuf, OwnedFd)]) -> io::Result<()> {
        let mut writer = Writer::default();
        writer.paths(logs.iter().map(|(path, _)| path.as_path()));
        self.order(REOPEN, &writer, logs.iter().map(|(_, fd)| fd.as_fd()).collect())
    }

    pub fn reload(
        &self,
        texts: &ConfTexts,
        assignments: &[(SocketAssignment, OwnedFd)],
        logs: &[(PathBuf, OwnedFd)],
    ) -> io::Result<()> {
        let mut writer = Writer::default();
        writer.texts(texts);
        writer.assignments(assignments.iter().map(|(assignment, _)| *assignment));
        writer.paths(logs.iter().map(|(path, _)| path.as_path()));
        let fds = assignments.iter().map(|(_, fd)| fd.as_fd()).chain(logs.iter().map(|(_, fd)| fd.as_fd()));
        self.order(RELOAD, &writer, fds.collect())
    }

    pub fn outcome(&self, outcome: &ChangeOutcome) -> io::Result<()> {
        self.order(OUTCOME, &outcome.write(), Vec::new())
    }

    /// Fails if the worker has ended.
    pub fn message(&self) -> io::Result<Option<Message>> {
        let mut bytes = [0; PACKET_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let n = match rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags) {
            Ok(got) if got.bytes == 0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(got) => got.bytes,
            Err(rustix::io::Errno::AGAIN | rustix::io::Errno::INTR) => return Ok(None),
            Err(e) => return Err(e.into()),
        };
        let rights = ancillary.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut rights) => rights.next(),
            _ => None,
        });
        Ok(Some(match (bytes[0], &bytes[1..n]) {
            (DONE, _) => Message::Answer(Ok(())),
            (STARTED, _) => Message::Started,
            (SETTLED, _) => Message::Settled,
            (CONFIRMED, _) => Message::Confirmed,
            (REQUEST, _) => Message::Request(rights.and_then(|memory| read_request(memory).map(Box::new))),
            (_, words) => Message::Answer(Err(String::from_utf8_lossy(words).into_owned())),
        }))
    }

    /// Sends an order with descriptors and a payload, which is passed in a memory file.
    fn order(&self, kind: u8, payload: &Writer, descriptors: Vec<BorrowedFd<'_>>) -> io::Result<()> {
        let file = memory(payload)?;
        let mut head = vec![kind];
        head.extend_from_slice(&(descriptors.len() as u32 + 1).to_le_bytes());
        self.send(&head, &[file.as_fd()])?;
        for some in descriptors.chunks(PACKET_DESCRIPTORS_MAX) {
            self.send(&[MORE], some)?;
        }
        Ok(())
    }

    fn send(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        let until = Instant::now() + SEND_PATIENCE;
        loop {
            match send(&self.socket, bytes, descriptors) {
                Ok(()) => return Ok(()),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < until => {
                    let mut wait = [rustix::event::PollFd::new(&self.socket, rustix::event::PollFlags::OUT)];
                    let _ = rustix::event::poll(&mut wait, Some(&rustix::event::Timespec { tv_sec: 1, tv_nsec: 0 }));
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// Does not wait.
fn send(socket: &OwnedFd, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    if !descriptors.is_empty() && !ancillary.push(SendAncillaryMessage::ScmRights(descriptors)) {
        return Err(io::Error::other("too many descriptors in one packet"));
    }
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    rustix::net::sendmsg(socket, &[IoSlice::new(bytes)], &mut ancillary, flags)?;
    Ok(())
}

fn memory(payload: &Writer) -> io::Result<std::fs::File> {
    let memory = rustix::fs::memfd_create("tidegate-order", rustix::fs::MemfdFlags::CLOEXEC)?;
    let mut file = std::fs::File::from(memory);
    file.write_all(payload.bytes())?;
    file.rewind()?;
    Ok(file)
}

/// Reads a worker's request of bounded length from a regular file, so that the worker cannot make the master wait.
fn read_request(memory: OwnedFd) -> Option<ChangeRequest> {
    let file = std::fs::File::from(memory);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut bytes = Vec::new();
    file.take(REQUEST_BYTES_MAX + 1).read_to_end(&mut bytes).ok()?;
    if bytes.len() as u64 > REQUEST_BYTES_MAX { None } else { ChangeRequest::read(&bytes) }
}

impl AsFd for Commander {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Channel {
    /// Must be called within the control thread's runtime.
    ///
    /// # Errors
    /// When the runtime cannot watch the socket.
    pub fn new(socket: OwnedFd) -> io::Result<Channel> {
        Ok(Channel { socket: WatchedSocket::new(socket)?, partial: RefCell::new(None) })
    }

    /// Returns the next complete order, or `None` if the master has ended. Cancellation loses no data.
    pub async fn next_order(&self) -> Option<ChannelOrder> {
        loop {
            self.socket.readable().await;
            match self.packet() {
                Ok(Some(order)) => return Some(order),
                Ok(None) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.socket.clear_ready(),
                Err(_) => return None,
            }
        }
    }

    pub fn answer(&self, failure: Option<&str>) {
        let mut packet = vec![if failure.is_some() { FAILED } else { DONE }];
        let words = failure.unwrap_or_default().as_bytes();
        packet.extend_from_slice(&words[..words.len().min(PACKET_BYTES_MAX - 1)]);
        let _ = rustix::net::send(self.socket.get_ref(), &packet, SendFlags::DONTWAIT | SendFlags::NOSIGNAL);
    }

    pub fn started(&self) {
        let _ = send(self.socket.get_ref(), &[STARTED], &[]);
    }

    /// Tells the master that no plan of an earlier configuration is in use.
    pub fn settled(&self) {
        let _ = send(self.socket.get_ref(), &[SETTLED], &[]);
    }

    /// Responds to [`ChannelOrder::Confirm`].
    pub fn confirmed(&self) {
        let _ = send(self.socket.get_ref(), &[CONFIRMED], &[]);
    }

    /// Sends a request about configurations; the response is an order.
    ///
    /// # Errors
    /// The master has ended, or has too many unread requests.
    pub fn ask(&self, request: &ChangeRequest) -> io::Result<()> {
        let file = memory(&request.write())?;
        send(self.socket.get_ref(), &[REQUEST], &[file.as_fd()])
    }

    /// Reads one packet. Returns an order if the packet completes one.
    fn packet(&self) -> io::Result<Option<ChannelOrder>> {
        let mut bytes = [0; ORDER_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(PACKET_DESCRIPTORS_MAX))];
        let mut ancillary = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        let got =
            rustix::net::recvmsg(self.socket.get_ref(), &mut [IoSliceMut::new(&mut bytes)], &mut ancillary, flags)?;
        if got.bytes == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let mut descriptors = Vec::new();
        for message in ancillary.drain() {
            if let RecvAncillaryMessage::ScmRights(rights) = message {
                descriptors.extend(rights);
            }
        }
        let truncated = got.flags.contains(ReturnFlags::CTRUNC);
        let mut partial = self.partial.borrow_mut();
        match bytes[0] {
            kind @ (QUIT | QUIT_FOLLOWED) => return Ok(Some(ChannelOrder::Quit { followed: kind == QUIT_FOLLOWED })),
            TERMINATE => return Ok(Some(ChannelOrder::Terminate)),
            REFUSED => {
                return Ok(Some(ChannelOrder::Refused(String::from_utf8_lossy(&bytes[1..got.bytes]).into_owned())));
            }
            KEYS_RESPAWNED => {
                let number = bytes.get(1..9).and_then(|number| number.try_into().ok()).map_or(0, u64::from_le_bytes);
                return Ok(Some(ChannelOrder::KeysRespawned(number)));
            }
            CONFIRM => return Ok(Some(ChannelOrder::Confirm)),
            kind @ (REOPEN | RELOAD | OUTCOME) => {
                let wanted = u32::from_le_bytes([bytes[1], bytes[2], bytes[3], bytes[4]]) as usize;
                *partial = Some(Partial { kind, wanted: wanted.min(ORDER_DESCRIPTORS_MAX), descriptors });
            }
            MORE => {
                if let Some(partial) = &mut *partial {
                    partial.descriptors.extend(descriptors);
                }
            }
            _ => return Ok(None),
        }
        if truncated {
            // The descriptor limit prevented some from being received, so the order cannot be executed.
            *partial = None;
            drop(partial);
            self.answer(Some("too few descriptors are allowed (worker_rlimit_nofile)"));
            return Ok(None);
        }
        if partial.as_ref().is_some_and(|p| p.descriptors.len() >= p.wanted)
            && let Some(whole) = partial.take()
        {
            drop(partial);
            let kind = whole.kind;
            let order = assemble(whole);
            if order.is_none() && kind == RELOAD {
                self.answer(Some("the order was garbled"));
            }
            return Ok(order);
        }
        Ok(None)
    }
}

fn assemble(whole: Partial) -> Option<ChannelOrder> {
    let mut descriptors = whole.descriptors.into_iter();
    let mut payload = Vec::new();
    std::fs::File::from(descriptors.next()?).read_to_end(&mut payload).ok()?;
    let mut reader = Reader::new(&payload);
    if whole.kind == OUTCOME {
        return ChangeOutcome::read(&payload).map(|outcome| ChannelOrder::Outcome(Box::new(outcome)));
    }
    if whole.kind == REOPEN {
        let paths = reader.paths()?;
        return Some(ChannelOrder::Reopen { logs: paths.into_iter().zip(descriptors).collect() });
    }
    let texts = reader.texts()?;
    let assignments = reader.assignments()?;
    let paths = reader.paths()?;
    let assignments: Vec<_> = assignments.into_iter().zip(descriptors.by_ref()).collect();
    let logs = paths.into_iter().zip(descriptors).collect();
    Some(ChannelOrder::Reload(Box::new(Reload { texts, assignments, logs })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::store::MachineFacts;
    use conf_syntax::SourceFile;
    use http_api::{ConfigRequest, Terms};

    #[test]
    fn orders_arrive_whole_with_many_descriptors() {
        runtime::block_on(async {
            let (commander, theirs) = channel_pair().expect("pair");
            let channel = Channel::new(theirs).expect("channel");
            let mut texts = ConfTexts::default();
            let machine = MachineFacts { superuser: true, cpus: 3 };
            texts.store.machine = Some(machine);
            texts.files.all.push(SourceFile { path: "/n.conf".into(), text: vec![b'#'; 300_000] });
            texts.store.files.insert("/key".into(), Ok(b"secret"[..].into()));
            texts.store.files.insert("/none".into(), Err(2));
            texts.matches.insert("/d/*".into(), vec!["/d/a".into(), "/d/b".into()]);
            let null = || OwnedFd::from(std::fs::File::open("/dev/null").expect("open"));
            let assignment = |thread| SocketAssignment { thread, listener: 3, socket: thread, shared: thread == 1 };
            let assignments: Vec<_> = (0..300).map(|thread| (assignment(thread), null())).collect();
            let logs = vec![(PathBuf::from("/log"), null())];
            commander.reload(&texts, &assignments, &logs).expect("sent");
            commander.quit().expect("sent");
            commander.quit_followed().expect("sent");
            let Some(ChannelOrder::Reload(order)) = channel.next_order().await else { panic!("a reload") };
            assert_eq!(order.texts.files.all[0].text.len(), 300_000);
            assert_eq!(order.texts.store.files, texts.store.files);
            assert_eq!(order.texts.matches, texts.matches);
            assert!(order.texts.store.replay);
            assert_eq!(order.texts.store.machine, Some(machine), "whatever this process may do");
            assert_eq!(order.assignments.len(), 300);
            let device = |fd: &OwnedFd| rustix::fs::fstat(fd).expect("open").st_rdev;
            let null = device(&null());
            assert!(
                order.assignments.iter().enumerate().all(|(n, (got, fd))| *got == assignment(n) && device(fd) == null)
            );
            assert_eq!(order.logs[0].0, PathBuf::from("/log"));
            assert!(matches!(channel.next_order().await, Some(ChannelOrder::Quit { followed: false })));
            assert!(matches!(channel.next_order().await, Some(ChannelOrder::Quit { followed: true })));
            commander.refused(&"why ".repeat(1000)).expect("sent");
            let Some(ChannelOrder::Refused(why)) = channel.next_order().await else { panic!("a reason") };
            assert!(why.starts_with("why why ") && why.len() == ORDER_BYTES_MAX - 1);
            commander.keys_respawned(1 << 40).expect("sent");
            assert!(matches!(channel.next_order().await, Some(ChannelOrder::KeysRespawned(n)) if n == 1 << 40));
            channel.answer(Some("no"));
            assert_eq!(commander.message().expect("alive"), Some(Message::Answer(Err("no".into()))));
            assert_eq!(commander.message().expect("alive"), None);
            let request = ChangeRequest { ticket: 7, what: ConfigRequest::Main(vec![b'#'; 300_000], Terms::default()) };
            channel.ask(&request).expect("sent");
            channel.started();
            channel.settled();
            assert_eq!(commander.message().expect("alive"), Some(Message::Request(Some(Box::new(request)))));
            assert_eq!(commander.message().expect("alive"), Some(Message::Started));
            assert_eq!(commander.message().expect("alive"), Some(Message::Settled));
            let outcome = ChangeOutcome { ticket: 7, result: Ok(serde_json::json!({"a": 1})), texts: Some(texts) };
            commander.outcome(&outcome).expect("sent");
            let Some(ChannelOrder::Outcome(read)) = channel.next_order().await else { panic!("an outcome") };
            assert_eq!((read.ticket, read.result), (7, outcome.result));
            assert!(read.texts.is_some_and(|texts| texts.files.all.len() == 1));
            drop(commander);
            assert!(channel.next_order().await.is_none());
        });
    }
}
