//! A client of DNS, with a reader of its own.

use std::io::{Read, Write};
use std::net::{IpAddr, TcpStream, UdpSocket};
use std::time::Duration;

pub const A: u16 = 1;
pub const AAAA: u16 = 28;
pub const TXT: u16 = 16;

/// Longer than any answer takes; only a failure waits this long.
const PATIENCE: Duration = Duration::from_secs(15);

/// A query of class IN with EDNS; `subnet`: an IPv4 prefix and its length, for EDNS client subnet.
pub fn query(id: u16, name: &str, kind: u16, subnet: Option<([u8; 4], u8)>) -> Vec<u8> {
    let mut out = id.to_be_bytes().to_vec();
    out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 1]);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        out.push(label.len() as u8);
        out.extend_from_slice(label.as_bytes());
    }
    out.push(0);
    out.extend_from_slice(&kind.to_be_bytes());
    out.extend_from_slice(&[0, 1, 0, 0, 41, 4, 208, 0, 0, 0, 0]);
    let mut option = Vec::new();
    if let Some((octets, bits)) = subnet {
        let length = usize::from(bits.div_ceil(8));
        option.extend_from_slice(&[0, 8, 0, 4 + length as u8, 0, 1, bits, 0]);
        option.extend_from_slice(&octets[..length]);
    }
    out.extend_from_slice(&(option.len() as u16).to_be_bytes());
    out.extend(option);
    out
}

#[derive(Debug)]
pub struct Answer {
    pub id: u16,
    pub flags: u16,
    /// Type, TTL and data of the records of the answer section.
    pub records: Vec<(u16, u32, Vec<u8>)>,
    /// Length of the prefix for which the answer holds.
    pub scope: Option<u8>,
}

impl Answer {
    pub fn code(&self) -> u16 {
        self.flags & 15
    }
    pub fn is_truncated(&self) -> bool {
        self.flags & 0x0200 != 0
    }
    /// The addresses, sorted.
    pub fn addresses(&self) -> Vec<String> {
        let address = |(kind, _, data): &(u16, u32, Vec<u8>)| match *kind {
            A => Some(IpAddr::from(<[u8; 4]>::try_from(&data[..]).expect("4 bytes")).to_string()),
            AAAA => Some(IpAddr::from(<[u8; 16]>::try_from(&data[..]).expect("16 bytes")).to_string()),
            _ => None,
        };
        let mut all: Vec<String> = self.records.iter().filter_map(address).collect();
        all.sort();
        all
    }
}

fn end_of_name(bytes: &[u8], mut at: usize) -> usize {
    loop {
        match bytes[at] {
            0 => return at + 1,
            length if length >= 0xc0 => return at + 2,
            length => at += 1 + usize::from(length),
        }
    }
}

pub fn read(bytes: &[u8]) -> Answer {
    let number = |at: usize| u16::from_be_bytes([bytes[at], bytes[at + 1]]);
    let mut at = if number(4) == 1 { end_of_name(bytes, 12) + 4 } else { 12 };
    let mut answer = Answer { id: number(0), flags: number(2), records: Vec::new(), scope: None };
    for (section, count) in [(0, number(6)), (1, number(8)), (2, number(10))] {
        for _ in 0..count {
            let fixed = end_of_name(bytes, at);
            let (kind, length) = (number(fixed), usize::from(number(fixed + 8)));
            let data = bytes[fixed + 10..][..length].to_vec();
            if section == 0 {
                let ttl = u32::from(number(fixed + 4)) << 16 | u32::from(number(fixed + 6));
                answer.records.push((kind, ttl, data));
            } else if kind == 41 && data.len() >= 8 {
                answer.scope = Some(data[7]);
            }
            at = fixed + 10 + length;
        }
    }
    assert_eq!(at, bytes.len(), "nothing behind the records");
    answer
}

/// Returns a socket that is connected to a port.
pub fn socket(port: u16) -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("bind");
    socket.connect(("127.0.0.1", port)).expect("connect");
    socket.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    socket
}

/// Asks over UDP.
pub fn try_ask(port: u16, message: &[u8]) -> Result<Answer, String> {
    let socket = socket(port);
    socket.send(message).map_err(|e| e.to_string())?;
    let mut buf = [0; 65_535];
    let length = socket.recv(&mut buf).map_err(|e| e.to_string())?;
    Ok(read(&buf[..length]))
}

/// [`try_ask`] for an IPv4 address or another type.
pub fn ask(port: u16, name: &str, kind: u16) -> Answer {
    try_ask(port, &query(7, name, kind, None)).expect("an answer")
}

/// Sends all messages at once over TCP, and reads as many answers.
pub fn ask_stream(port: u16, messages: &[Vec<u8>]) -> Vec<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("connect");
    stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
    let framed = |message: &Vec<u8>| [&(message.len() as u16).to_be_bytes()[..], message].concat();
    stream.write_all(&messages.iter().flat_map(framed).collect::<Vec<u8>>()).expect("sent");
    let next = |_| {
        let mut prefix = [0; 2];
        stream.read_exact(&mut prefix).expect("a length");
        let mut bytes = vec![0; usize::from(u16::from_be_bytes(prefix))];
        stream.read_exact(&mut bytes).expect("a message");
        read(&bytes)
    };
    (0..messages.len()).map(next).collect()
}
