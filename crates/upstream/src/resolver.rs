//! Names to addresses while requests wait: A and AAAA over UDP, over TCP when an answer was cut short, kept by each thread as
//! long as the records allow (nginx: `ngx_resolver.c`). Messages are written and read by hickory-proto.

use base::clock::{self, Instant};
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tokio::sync::watch;

/// A query is sent again, to the next server, when so much time has passed without an answer.
const RESEND: Duration = Duration::from_secs(5);
/// A question is given up after so long, whether or not anybody still waits.
const QUESTION_MAX: Duration = Duration::from_secs(60);
/// Aliases that are followed.
const ALIASES_MAX: usize = 50;
/// Names that a thread keeps.
const NAMES_MAX: usize = 10_000;
/// Addresses of one name that are kept.
const ADDRESSES_MAX: usize = 256;
/// Packets that do not answer the question and are read all the same, before the next server is asked.
const STRAY_PACKETS_MAX: usize = 100;
const UDP_BYTES: usize = 4096;

/// Why a name has no addresses; the words are nginx's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failed {
    Format,
    Server,
    NoSuchName,
    Unimplemented,
    Refused,
    TimedOut,
    Other,
}

impl Failed {
    /// The number that log lines carry.
    pub fn code(self) -> u32 {
        match self {
            Failed::Format => 1,
            Failed::Server => 2,
            Failed::NoSuchName => 3,
            Failed::Unimplemented => 4,
            Failed::Refused => 5,
            Failed::TimedOut => 110,
            Failed::Other => 6,
        }
    }
    fn of(code: ResponseCode) -> Failed {
        match code {
            ResponseCode::FormErr => Failed::Format,
            ResponseCode::ServFail => Failed::Server,
            ResponseCode::NXDomain => Failed::NoSuchName,
            ResponseCode::NotImp => Failed::Unimplemented,
            ResponseCode::Refused => Failed::Refused,
            _ => Failed::Other,
        }
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Failed::Format => "Format error",
            Failed::Server => "Server failure",
            Failed::NoSuchName => "Host not found",
            Failed::Unimplemented => "Unimplemented",
            Failed::Refused => "Operation refused",
            Failed::TimedOut => "Operation timed out",
            Failed::Other => "Unknown error",
        })
    }
}

/// A `resolver` line.
#[derive(Debug)]
pub struct Resolver {
    pub servers: Vec<SocketAddr>,
    /// `valid=`: replaces the times of the records.
    pub valid: Option<Duration>,
    pub ipv4: bool,
    pub ipv6: bool,
    turn: AtomicUsize,
}

type Answer = Result<Rc<[IpAddr]>, Failed>;

enum Entry {
    Known {
        addresses: Rc<[IpAddr]>,
        until: Instant,
    },
    /// One question for all who wait.
    Asked(watch::Receiver<Option<Answer>>),
}

thread_local! {
    static NAMES: RefCell<HashMap<(String, String), Entry>> = RefCell::new(HashMap::new());
}

impl Resolver {
    pub fn new(servers: Vec<SocketAddr>, valid: Option<Duration>, ipv4: bool, ipv6: bool) -> Resolver {
        Resolver { servers, valid, ipv4, ipv6, turn: AtomicUsize::new(0) }
    }
    /// The same line has the same names, also after a reload.
    fn identity(&self) -> String {
        format!("{:?} {:?} {} {}", self.servers, self.valid, self.ipv4, self.ipv6)
    }

    /// The addresses of a name; call it within a `LocalSet`.
    ///
    /// # Errors
    /// Why there are none, `TimedOut` when the answer takes longer than that.
    pub async fn resolve(self: &Arc<Self>, name: &str, timeout: Duration) -> Answer {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        let key = (self.identity(), name);
        clock::update();
        let now = clock::now();
        let mut asked = NAMES.with_borrow_mut(|names| match names.get(&key) {
            Some(Entry::Known { addresses, until }) if *until >= now => Err(addresses.clone()),
            Some(Entry::Asked(answer)) => Ok(answer.clone()),
            _ => {
                make_room(names, now);
                let (sender, answer) = watch::channel(None);
                names.insert(key.clone(), Entry::Asked(answer.clone()));
                let resolver = self.clone();
                tokio::task::spawn_local(async move { resolver.ask_and_keep(key, sender).await });
                Ok(answer)
            }
        });
        let answer = match &mut asked {
            Err(addresses) => return Ok(addresses.clone()),
            Ok(answer) => answer,
        };
        match tokio::time::timeout(timeout, answer.wait_for(Option::is_some)).await {
            Ok(Ok(answer)) => answer.clone().unwrap_or(Err(Failed::Other)),
            Ok(Err(_)) => Err(Failed::Other),
            Err(_) => Err(Failed::TimedOut),
        }
    }

    async fn ask_and_keep(self: Arc<Self>, key: (String, String), sender: watch::Sender<Option<Answer>>) {
        let found = match tokio::time::timeout(QUESTION_MAX, self.look_up(&key.1)).await {
            Ok(found) => found,
            Err(_) => Err(Failed::TimedOut),
        };
        clock::update();
        let answer = NAMES.with_borrow_mut(|names| match found {
            Ok((addresses, ttl)) => {
                let addresses: Rc<[IpAddr]> = addresses.into();
                let valid = self.valid.unwrap_or(Duration::from_secs(u64::from(ttl)));
                let until = clock::now().plus_millis(valid.as_millis().min(u128::from(u32::MAX)) as u64);
                names.insert(key, Entry::Known { addresses: addresses.clone(), until });
                Ok(addresses)
            }
            // Failures are not kept: the next request asks anew.
            Err(why) => {
                names.remove(&key);
                Err(why)
            }
        });
        let _ = sender.send(Some(answer));
    }

    /// Both kinds of addresses at once, and the time for which they hold.
    async fn look_up(&self, name: &str) -> Result<(Vec<IpAddr>, u32), Failed> {
        let name = Name::from_ascii(format!("{name}.")).map_err(|_| Failed::NoSuchName)?;
        // All questions of a name go to the same server; names take turns.
        let turn = self.turn.fetch_add(1, Ordering::Relaxed);
        let (v4, v6) = tokio::join!(
            async { if self.ipv4 { Some(self.follow(&name, RecordType::A, turn).await) } else { None } },
            async { if self.ipv6 { Some(self.follow(&name, RecordType::AAAA, turn).await) } else { None } },
        );
        let (mut addresses, mut ttl, mut why) = (Vec::new(), u32::MAX, None);
        for found in [v4, v6].into_iter().flatten() {
            match found {
                Ok((some, seconds)) if !some.is_empty() => {
                    addresses.extend(some);
                    ttl = ttl.min(seconds);
                }
                Ok(_) => {}
                Err(failed) => why = why.or(Some(failed)),
            }
        }
        addresses.truncate(ADDRESSES_MAX);
        if addresses.is_empty() { Err(why.unwrap_or(Failed::NoSuchName)) } else { Ok((addresses, ttl)) }
    }

    /// Addresses of one kind, along aliases.
    async fn follow(&self, name: &Name, kind: RecordType, turn: usize) -> Result<(Vec<IpAddr>, u32), Failed> {
        let mut name = name.clone();
        let mut ttl = u32::MAX;
        for _ in 0..ALIASES_MAX {
            let message = self.ask(&name, kind, turn).await?;
            let found = read(&message, &name, kind);
            ttl = ttl.min(found.ttl);
            match found.alias {
                Some(alias) if found.addresses.is_empty() => name = alias,
                _ => return Ok((found.addresses, ttl)),
            }
        }
        Err(Failed::NoSuchName)
    }

    /// Asks one server after the other until one answers.
    async fn ask(&self, name: &Name, kind: RecordType, turn: usize) -> Result<Message, Failed> {
        let mut step = 0;
        loop {
            let server = self.servers[(turn + step) % self.servers.len().max(1)];
            step += 1;
            let id = u16::from_le_bytes([random(), random()]);
            let mut message = Message::new(id, MessageType::Query, OpCode::Query);
            message.metadata.recursion_desired = true;
            message.add_query(Query::query(name.clone(), kind));
            let bytes = message.to_vec().map_err(|_| Failed::Other)?;
            let began = tokio::time::Instant::now();
            let asked = tokio::time::timeout(RESEND, async {
                let answer = over_udp(server, &bytes, &message).await?;
                if answer.metadata.truncation { over_tcp(server, &bytes, &message).await } else { Ok(answer) }
            });
            match asked.await {
                Ok(Ok(answer)) => {
                    return match answer.metadata.response_code {
                        ResponseCode::NoError => Ok(answer),
                        code => Err(Failed::of(code)),
                    };
                }
                // A server that cannot be reached is not asked again at once.
                Ok(Err(_)) => tokio::time::sleep_until(began + RESEND).await,
                Err(_) => {}
            }
        }
    }
}

/// Another name is about to be kept: makes sure that there is room.
fn make_room(names: &mut HashMap<(String, String), Entry>, now: Instant) {
    if names.len() < NAMES_MAX {
        return;
    }
    names.retain(|_, entry| match entry {
        Entry::Known { until, .. } => *until >= now,
        Entry::Asked(_) => true,
    });
    if names.len() >= NAMES_MAX {
        names.retain(|_, entry| matches!(entry, Entry::Asked(_)));
    }
}

fn random() -> u8 {
    let mut byte = [0];
    // Without the kernel's random numbers there is no server at all; a fixed number would still be checked by port and name.
    let _ = rustix::rand::getrandom(&mut byte, rustix::rand::GetRandomFlags::empty());
    byte[0]
}

/// An answer to this very question.
fn fits(answer: &Message, question: &Message) -> bool {
    let same = |a: &Query, b: &Query| a.name() == b.name() && a.query_type() == b.query_type();
    answer.metadata.id == question.metadata.id
        && answer.metadata.message_type == MessageType::Response
        && match (answer.queries.as_slice(), question.queries.as_slice()) {
            ([a], [b]) => same(a, b),
            // A server that could not read the question cannot repeat it.
            ([], _) => answer.metadata.response_code == ResponseCode::FormErr,
            _ => false,
        }
}

async fn over_udp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
    // A socket of its own for every question: the port is as hard to guess as the number.
    let any: SocketAddr = if server.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0u16; 8], 0).into() };
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(bytes).await?;
    let mut buf = vec![0; UDP_BYTES];
    for _ in 0..STRAY_PACKETS_MAX {
        let n = socket.recv(&mut buf).await?;
        if let Ok(answer) = Message::from_vec(&buf[..n])
            && fits(&answer, question)
        {
            return Ok(answer);
        }
    }
    Err(io::ErrorKind::InvalidData.into())
}

async fn over_tcp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await?;
    let mut length = [0; 2];
    stream.read_exact(&mut length).await?;
    let mut buf = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut buf).await?;
    match Message::from_vec(&buf) {
        Ok(answer) if fits(&answer, question) => Ok(answer),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// What an answer says of a name.
#[derive(Debug, PartialEq, Eq)]
struct Found {
    addresses: Vec<IpAddr>,
    /// The last name of a chain of aliases that has no addresses here.
    alias: Option<Name>,
    ttl: u32,
}

fn read(message: &Message, name: &Name, kind: RecordType) -> Found {
    let mut found = Found { addresses: Vec::new(), alias: None, ttl: u32::MAX };
    let mut name = name;
    // Aliases may stand in any order; each round follows one.
    for _ in 0..ALIASES_MAX {
        let next = message.answers.iter().find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *name && record.dns_class == DNSClass::IN => {
                Some((&target.0, record.ttl))
            }
            _ => None,
        });
        let Some((target, ttl)) = next else { break };
        found.ttl = found.ttl.min(ttl);
        found.alias = Some(target.clone());
        name = target;
    }
    for record in message.answers.iter().filter(|r| r.name == *name && r.dns_class == DNSClass::IN) {
        let address = match &record.data {
            RData::A(a) if kind == RecordType::A => IpAddr::V4(a.0),
            RData::AAAA(a) if kind == RecordType::AAAA => IpAddr::V6(a.0),
            _ => continue,
        };
        if found.addresses.len() < ADDRESSES_MAX {
            found.addresses.push(address);
            found.ttl = found.ttl.min(record.ttl);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, CNAME};

    fn name(text: &str) -> Name {
        Name::from_ascii(text).unwrap()
    }

    #[test]
    fn aliases_are_followed_within_an_answer() {
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        message.answers.push(Record::from_rdata(name("b."), 60, RData::A(A::new(127, 0, 0, 1))));
        message.answers.push(Record::from_rdata(name("a."), 5, RData::CNAME(CNAME(name("B.")))));
        let found = read(&message, &name("A."), RecordType::A);
        assert_eq!((found.addresses, found.ttl), (vec![IpAddr::from([127, 0, 0, 1])], 5));
        let none = read(&message, &name("a."), RecordType::AAAA);
        assert_eq!((none.addresses.len(), none.alias), (0, Some(name("b."))));
        assert!(read(&message, &name("x."), RecordType::A).alias.is_none());
    }

    #[test]
    fn asks_again_elsewhere_and_keeps_what_it_was_told() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        tokio::task::LocalSet::new().block_on(&runtime, async {
            let server = UdpSocket::bind("127.0.0.1:0").await.unwrap();
            let resolver = Arc::new(Resolver::new(vec![server.local_addr().unwrap()], None, true, false));
            let serve = tokio::task::spawn_local(async move {
                let mut buf = [0; 512];
                let (n, from) = server.recv_from(&mut buf).await.unwrap();
                // Noise and an answer with a wrong number first.
                server.send_to(b"noise", from).await.unwrap();
                let mut answer = Message::from_vec(&buf[..n]).unwrap();
                answer.metadata.message_type = MessageType::Response;
                let asked = answer.queries[0].name().clone();
                answer.answers.push(Record::from_rdata(asked, 60, RData::A(A::new(127, 0, 0, 9))));
                let right = answer.metadata.id;
                answer.metadata.id = right.wrapping_add(1);
                server.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
                answer.metadata.id = right;
                server.send_to(&answer.to_vec().unwrap(), from).await.unwrap();
            });
            let second = Duration::from_secs(2);
            let both = tokio::join!(resolver.resolve("one.test", second), resolver.resolve("ONE.test", second));
            let want: Rc<[IpAddr]> = vec![IpAddr::from([127, 0, 0, 9])].into();
            assert_eq!(both, (Ok(want.clone()), Ok(want.clone())));
            serve.await.unwrap();
            assert_eq!(resolver.resolve("one.test", second).await, Ok(want), "from memory: nobody answers any more");
            let quick = Duration::from_millis(20);
            assert_eq!(resolver.resolve("two.test", quick).await, Err(Failed::TimedOut));
        });
    }
}
