//! Sends DNS queries over UDP and TCP, and reads addresses from responses.

use crate::message::{Data, Message, Question, RecordType};
use crate::name_resolver::{ADDRESSES_MAX, ALIASES_MAX};
use net::Address;
use std::io;
use std::net::{IpAddr, SocketAddr};
use tokio::sync::Semaphore;
use transport::{ConnectOptions, Stream};

/// Concurrent queries over TCP of the process; others wait.
const TCP_MAX: usize = 8;
static TCP_QUERIES: Semaphore = Semaphore::const_new(TCP_MAX);

/// Draws a random byte from the kernel.
pub fn random_byte() -> u8 {
    let mut byte = [0];
    // The kernel's random numbers are required at start; port and name are checked in addition.
    let _ = rustix::rand::getrandom(&mut byte, rustix::rand::GetRandomFlags::empty());
    byte[0]
}

/// Sends a query over TCP, at most [`TCP_MAX`] at a time per process, and returns its answer.
pub async fn over_tcp(server: SocketAddr, bytes: &[u8], question: &Question) -> io::Result<Message> {
    let _permit = TCP_QUERIES.acquire().await.map_err(|_| io::ErrorKind::ResourceBusy)?;
    let stream = Stream::connect(&Address::Ip(server), &ConnectOptions::default()).await?;
    let length = u16::try_from(bytes.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], bytes].concat()).await?;
    // The longest response with its length prefix.
    let mut buf = Vec::with_capacity(2 + usize::from(u16::MAX));
    let message = loop {
        if let [high, low, rest @ ..] = buf.as_slice()
            && let Some(message) = rest.get(..usize::from(u16::from_be_bytes([*high, *low])))
        {
            break message;
        }
        if stream.read_buf(&mut buf).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    };
    match Message::read(message) {
        Some(answer) if question.fits(&answer) && !answer.truncated => Ok(answer),
        _ => Err(io::ErrorKind::InvalidData.into()),
    }
}

/// Addresses of a response.
#[derive(Debug, PartialEq, Eq)]
pub struct Records {
    /// Addresses of the asked type.
    pub addresses: Vec<IpAddr>,
    /// Last alias without addresses in the response.
    pub alias: Option<String>,
    /// Least time to live of the records used, in seconds.
    pub ttl: u32,
}

fn follow(answer: &Message, name: &str) -> (Option<String>, u32) {
    let (mut alias, mut least) = (None, u32::MAX);
    // Aliases may be in any order; each round follows one of them.
    for _ in 0..ALIASES_MAX {
        let name = alias.as_deref().unwrap_or(name);
        let next = answer.records.iter().find_map(|record| match &record.data {
            Data::Alias(target) if record.name == name => Some((target.clone(), record.ttl)),
            _ => None,
        });
        let Some((target, ttl)) = next else { break };
        least = least.min(ttl);
        alias = Some(target);
    }
    (alias, least)
}

/// Reads the addresses of a name along aliases, at most [`ADDRESSES_MAX`].
pub fn read_records(answer: &Message, name: &str, kind: RecordType) -> Records {
    let (alias, mut ttl) = follow(answer, name);
    let mut addresses = Vec::new();
    let name = alias.as_deref().unwrap_or(name);
    for record in answer.records.iter().filter(|r| r.name == name) {
        match &record.data {
            Data::Address(address)
                if address.is_ipv4() == (kind == RecordType::A) && addresses.len() < ADDRESSES_MAX =>
            {
                addresses.push(*address);
                ttl = ttl.min(record.ttl);
            }
            _ => {}
        }
    }
    Records { addresses, alias, ttl }
}

/// Returns the name of an address with its TTL. Fails with the target of its aliases, if any.
pub fn pointer_name(answer: &Message, name: &str) -> Result<(String, u32), Option<String>> {
    let (alias, least) = follow(answer, name);
    let name = alias.as_deref().unwrap_or(name);
    let found = answer.records.iter().filter(|r| r.name == name).find_map(|record| match &record.data {
        Data::Pointer(target) => Some((target.clone(), least.min(record.ttl))),
        _ => None,
    });
    found.ok_or(alias)
}

/// An SRV record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceRecord {
    /// Priority; the lowest number is used first.
    pub priority: u16,
    /// Weight; at least 1.
    pub weight: u32,
    /// Port.
    pub port: u16,
    /// Name of the server.
    pub target: String,
}

/// Returns the SRV records of a response, or an alias without records.
pub fn service_records(answer: &Message, name: &str) -> (Vec<ServiceRecord>, Option<String>, u32) {
    let (alias, mut least) = follow(answer, name);
    let name = alias.as_deref().unwrap_or(name);
    let mut found = Vec::new();
    for record in answer.records.iter().filter(|r| r.name == name) {
        let Data::Service { priority, weight, port, target } = &record.data else { continue };
        if found.len() < ADDRESSES_MAX {
            least = least.min(record.ttl);
            found.push(ServiceRecord {
                priority: *priority,
                weight: u32::from((*weight).max(1)),
                port: *port,
                target: target.clone(),
            });
        }
    }
    found.sort_by_key(|service| service.priority);
    (found, alias, least)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::DnsRecord;

    fn message(records: &[(&str, u32, Data)]) -> Message {
        let records =
            records.iter().map(|(name, ttl, data)| DnsRecord { name: (*name).into(), ttl: *ttl, data: data.clone() });
        let records = records.collect();
        Message { id: 1, response: true, truncated: false, code: 0, question: None, records }
    }

    #[test]
    fn aliases_are_followed_within_an_answer() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let message = message(&[("b", 60, Data::Address(ip)), ("a", 5, Data::Alias("b".into()))]);
        let found = read_records(&message, "a", RecordType::A);
        assert_eq!((found.addresses, found.ttl), (vec![ip], 5));
        let none = read_records(&message, "a", RecordType::Aaaa);
        assert_eq!((none.addresses.len(), none.alias), (0, Some("b".into())));
        assert!(read_records(&message, "x", RecordType::A).alias.is_none());
    }

    #[test]
    fn so_many_addresses_and_no_more() {
        let records: Vec<_> = (0..2 * ADDRESSES_MAX as u32)
            .flat_map(|n| {
                let service = Data::Service { priority: 1, weight: 1, port: 80, target: format!("t{n}") };
                [("n", 60, Data::Address(IpAddr::from(n.to_be_bytes()))), ("s", 60, service)]
            })
            .collect();
        let message = message(&records);
        assert_eq!(read_records(&message, "n", RecordType::A).addresses.len(), ADDRESSES_MAX);
        assert_eq!(service_records(&message, "s").0.len(), ADDRESSES_MAX);
    }

    #[test]
    fn services_by_priority() {
        let record = |priority, weight| {
            let data = Data::Service { priority, weight, port: 80 + priority, target: "host.n".into() };
            ("_http._tcp.n", 30, data)
        };
        let (found, alias, ttl) = service_records(&message(&[record(2, 0), record(1, 7)]), "_http._tcp.n");
        assert_eq!((alias, ttl), (None, 30));
        let short: Vec<_> = found.iter().map(|s| (s.priority, s.weight, s.port, s.target.as_str())).collect();
        assert_eq!(short, [(1, 7, 81, "host.n"), (2, 1, 82, "host.n")]);
    }
}
