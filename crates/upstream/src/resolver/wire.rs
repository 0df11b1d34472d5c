//! Questions and answers of DNS on the wire: over UDP, over TCP, and what an answer says.

use super::{ADDRESSES_MAX, ALIASES_MAX};
use hickory_proto::op::{Message, MessageType, Query, ResponseCode};
use hickory_proto::rr::{DNSClass, Name, RData, RecordType};
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Packets that do not answer the question and are read all the same, before the next server is asked.
const STRAY_PACKETS_MAX: usize = 100;
const UDP_BYTES: usize = 4096;

pub fn random() -> u8 {
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

pub async fn over_udp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
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

pub async fn over_tcp(server: SocketAddr, bytes: &[u8], question: &Message) -> io::Result<Message> {
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
pub struct Found {
    pub addresses: Vec<IpAddr>,
    /// The last name of a chain of aliases that has no addresses here.
    pub alias: Option<Name>,
    pub ttl: u32,
}

pub fn read(message: &Message, name: &Name, kind: RecordType) -> Found {
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

/// A service record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    pub priority: u16,
    pub weight: u32,
    pub port: u16,
    pub target: String,
}

/// What an answer says of a service; an alias that has no records here comes with it.
pub fn services(message: &Message, name: &Name) -> (Vec<Service>, Option<Name>, u32) {
    let chain = read(message, name, RecordType::SRV);
    let name = chain.alias.as_ref().unwrap_or(name);
    let (mut found, mut ttl) = (Vec::new(), chain.ttl);
    for record in message.answers.iter().filter(|r| r.name == *name && r.dns_class == DNSClass::IN) {
        let RData::SRV(srv) = &record.data else { continue };
        if found.len() < ADDRESSES_MAX {
            ttl = ttl.min(record.ttl);
            found.push(Service {
                priority: srv.priority,
                weight: u32::from(srv.weight.max(1)),
                port: srv.port,
                target: srv.target.to_ascii().trim_end_matches('.').to_string(),
            });
        }
    }
    found.sort_by_key(|service| service.priority);
    (found, chain.alias, ttl)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hickory_proto::op::OpCode;
    use hickory_proto::rr::Record;
    use hickory_proto::rr::rdata::{A, CNAME, SRV};

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
    fn services_by_priority() {
        let mut message = Message::new(1, MessageType::Response, OpCode::Query);
        for (priority, weight) in [(2, 0), (1, 7)] {
            let record = RData::SRV(SRV::new(priority, weight, 80 + priority, name("host.n.")));
            message.answers.push(Record::from_rdata(name("_http._tcp.n."), 30, record));
        }
        let (found, alias, ttl) = services(&message, &name("_http._tcp.N."));
        assert_eq!((alias, ttl), (None, 30));
        let short: Vec<_> = found.iter().map(|s| (s.priority, s.weight, s.port, s.target.as_str())).collect();
        assert_eq!(short, [(1, 7, 81, "host.n"), (2, 1, 82, "host.n")]);
    }
}
