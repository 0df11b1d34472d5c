//! DNS messages (RFC 1035, 2782, 3596); no socket, no clock.
//! Answers may be forged: any invalid byte invalidates them. Names are lower-case without a final dot, possibly longer
//! than 255 bytes as in nginx.

use std::net::IpAddr;

/// In bytes.
pub const NAME_MAX: usize = 1024;
/// Maximum number of compression pointers per name, as in nginx.
const POINTERS_MAX: usize = 128;
/// Records read per answer; 64 KB could hold some 5,000.
pub const RECORDS_MAX: usize = 1024;
const LABEL_MAX: usize = 63;
const HEADER: usize = 12;

const INTERNET: u16 = 1;

/// Type of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordType {
    /// IPv4 address.
    A,
    /// IPv6 address.
    Aaaa,
    /// Location of a service (RFC 2782).
    Srv,
    /// Name of an address.
    Ptr,
}

impl RecordType {
    /// Returns the type's number.
    pub fn number(self) -> u16 {
        match self {
            RecordType::A => 1,
            RecordType::Aaaa => 28,
            RecordType::Srv => 33,
            RecordType::Ptr => 12,
        }
    }
}

/// A question to a name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Random id, which the answer must repeat.
    pub id: u16,
    /// Lower-case name without a final dot.
    pub name: String,
    /// Type of the wanted records.
    pub kind: RecordType,
}

impl Question {
    /// Returns `None` for an invalid name.
    pub fn bytes(&self) -> Option<Vec<u8>> {
        let mut out = Vec::with_capacity(HEADER + self.name.len() + 6);
        out.extend_from_slice(&self.id.to_be_bytes());
        // One question, recursion desired.
        out.extend_from_slice(&[1, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        if self.name.len() > NAME_MAX {
            return None;
        }
        for label in self.name.split('.') {
            if label.is_empty() || label.len() > LABEL_MAX {
                return None;
            }
            out.push(label.len() as u8);
            out.extend_from_slice(label.as_bytes());
        }
        out.push(0);
        out.extend_from_slice(&self.kind.number().to_be_bytes());
        out.extend_from_slice(&INTERNET.to_be_bytes());
        Some(out)
    }
    /// Tells whether a message answers the question: id, name and type are equal.
    pub fn fits(&self, answer: &Message) -> bool {
        answer.response
            && answer.id == self.id
            && match &answer.question {
                Some((name, kind)) => *name == self.name && *kind == self.kind.number(),
                // A server that could not parse the question cannot repeat it.
                None => answer.code == FORMAT_ERROR,
            }
    }
}

/// Code of an answer without an error (RFC 1035, 4.1.1).
pub const NO_ERROR: u8 = 0;
/// Code of a server that cannot parse the question.
pub const FORMAT_ERROR: u8 = 1;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// The id.
    pub id: u16,
    /// It is a response and not a query.
    pub response: bool,
    /// Records were left out: to be asked again over TCP.
    pub truncated: bool,
    /// Response code (RFC 1035, 4.1.1).
    pub code: u8,
    /// Repeated question: name and type.
    pub question: Option<(String, u16)>,
    /// Answer records, at most [`RECORDS_MAX`].
    pub records: Vec<DnsRecord>,
}

/// A resource record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsRecord {
    /// Lower-case name without a final dot.
    pub name: String,
    /// Time to live in seconds.
    pub ttl: u32,
    /// Its content.
    pub data: Data,
}

/// The content of a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// A or AAAA.
    Address(IpAddr),
    /// CNAME.
    Alias(String),
    /// PTR.
    Pointer(String),
    /// SRV.
    Service {
        /// The lowest number is used first.
        priority: u16,
        /// Share among records of one priority; 0: little.
        weight: u16,
        /// Port of the service.
        port: u16,
        /// Name of the server.
        target: String,
    },
    /// Another type, or another class than IN.
    Other,
}

impl Message {
    /// Returns `None` for an invalid message.
    pub fn read(bytes: &[u8]) -> Option<Message> {
        let mut reader = MessageReader { bytes, at: 0 };
        let id = reader.u16()?;
        let flags = reader.u16()?;
        let (questions, answers) = (reader.u16()?, reader.u16()?);
        // Authority and additional sections are not read.
        reader.at = HEADER;
        (bytes.len() >= HEADER).then_some(())?;
        let mut answer = Message {
            id,
            response: flags & 0x8000 != 0,
            truncated: flags & 0x0200 != 0,
            code: (flags & 0x000f) as u8,
            question: None,
            records: Vec::new(),
        };
        match questions {
            0 => {}
            1 => {
                let (name, kind, class) = (reader.name()?, reader.u16()?, reader.u16()?);
                answer.question = (class == INTERNET).then_some((name, kind));
            }
            _ => return None,
        }
        // Truncated answers are requested again over TCP.
        if answer.truncated {
            return Some(answer);
        }
        for _ in 0..usize::from(answers).min(RECORDS_MAX) {
            answer.records.push(reader.record()?);
        }
        Some(answer)
    }
}

struct MessageReader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> MessageReader<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let part = self.bytes.get(self.at..self.at.checked_add(n)?)?;
        self.at += n;
        Some(part)
    }
    fn u8(&mut self) -> Option<u8> {
        self.take(1)?.first().copied()
    }
    fn u16(&mut self) -> Option<u16> {
        self.take(2)?.try_into().ok().map(u16::from_be_bytes)
    }
    fn u32(&mut self) -> Option<u32> {
        self.take(4)?.try_into().ok().map(u32::from_be_bytes)
    }
    /// Reads a name and moves behind it, wherever pointers lead.
    fn name(&mut self) -> Option<String> {
        let mut name = String::new();
        let mut after = None;
        let mut pointers = 0;
        loop {
            let n = self.u8()?;
            match n & 0xc0 {
                0 if n == 0 => break,
                0 => {
                    let label = self.take(usize::from(n))?;
                    if name.len() + label.len() >= NAME_MAX || label.contains(&b'.') {
                        return None;
                    }
                    if !name.is_empty() {
                        name.push('.');
                    }
                    name.push_str(&std::str::from_utf8(label).ok()?.to_ascii_lowercase());
                }
                0xc0 => {
                    let low = self.u8()?;
                    pointers += 1;
                    if pointers > POINTERS_MAX {
                        return None;
                    }
                    after.get_or_insert(self.at);
                    self.at = usize::from(n & 0x3f) << 8 | usize::from(low);
                }
                _ => return None,
            }
        }
        self.at = after.unwrap_or(self.at);
        Some(name)
    }
    fn record(&mut self) -> Option<DnsRecord> {
        let name = self.name()?;
        let (kind, class, ttl, length) = (self.u16()?, self.u16()?, self.u32()?, usize::from(self.u16()?));
        let start = self.at;
        let data = self.take(length)?;
        let end = self.at;
        let data = match (class, kind) {
            (INTERNET, 1) => Data::Address(IpAddr::from(<[u8; 4]>::try_from(data).ok()?)),
            (INTERNET, 28) => Data::Address(IpAddr::from(<[u8; 16]>::try_from(data).ok()?)),
            (INTERNET, 5) => {
                self.at = start;
                let target = self.name()?;
                (self.at == end).then_some(Data::Alias(target))?
            }
            (INTERNET, 12) => {
                self.at = start;
                let target = self.name()?;
                (self.at == end).then_some(Data::Pointer(target))?
            }
            (INTERNET, 33) => {
                self.at = start;
                let (priority, weight, port, target) = (self.u16()?, self.u16()?, self.u16()?, self.name()?);
                (self.at == end).then_some(Data::Service { priority, weight, port, target })?
            }
            _ => Data::Other,
        };
        self.at = end;
        // TTLs with the highest bit count as 0 (RFC 2181, 8).
        Some(DnsRecord { name, ttl: if ttl > i32::MAX as u32 { 0 } else { ttl }, data })
    }
}

#[cfg(test)]
pub mod build {
    //! Answers for tests.

    use super::*;

    pub fn answer(question: &[u8], code: u8, records: &[DnsRecord]) -> Vec<u8> {
        let mut out = question.to_vec();
        out[2] |= 0x80;
        out[3] = out[3] & 0xf0 | code;
        out[6..8].copy_from_slice(&(records.len() as u16).to_be_bytes());
        for record in records {
            let mut data = Vec::new();
            let kind = match &record.data {
                Data::Address(IpAddr::V4(ip)) => {
                    data.extend_from_slice(&ip.octets());
                    1
                }
                Data::Address(IpAddr::V6(ip)) => {
                    data.extend_from_slice(&ip.octets());
                    28
                }
                Data::Pointer(target) => {
                    name(target, &mut data);
                    12
                }
                Data::Alias(target) => {
                    name(target, &mut data);
                    5
                }
                Data::Service { priority, weight, port, target } => {
                    for number in [priority, weight, port] {
                        data.extend_from_slice(&number.to_be_bytes());
                    }
                    name(target, &mut data);
                    33
                }
                Data::Other => 16,
            };
            name(&record.name, &mut out);
            out.extend_from_slice(&[0, kind, 0, 1]);
            out.extend_from_slice(&record.ttl.to_be_bytes());
            out.extend_from_slice(&(data.len() as u16).to_be_bytes());
            out.extend_from_slice(&data);
        }
        out
    }
    fn name(text: &str, out: &mut Vec<u8>) {
        for label in text.split('.').filter(|label| !label.is_empty()) {
            out.push(label.len() as u8);
            out.extend_from_slice(label.as_bytes());
        }
        out.push(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(name: &str) -> Question {
        Question { id: 0x1234, name: name.into(), kind: RecordType::A }
    }

    #[test]
    fn questions_on_the_wire() {
        let bytes = question("a.example").bytes().expect("a name");
        assert_eq!(bytes, b"\x12\x34\x01\0\0\x01\0\0\0\0\0\0\x01a\x07example\0\0\x01\0\x01");
        let read = Message::read(&bytes).expect("a message");
        assert_eq!((read.id, read.response, read.question), (0x1234, false, Some(("a.example".into(), 1))));
        for none in ["", "a..b", ".", "a.", &"x".repeat(64), &"x.".repeat(600)] {
            assert!(question(none).bytes().is_none(), "{none}");
        }
        let long = ["a".repeat(63), "a".repeat(63), "a".repeat(63), "a".repeat(63)].join(".");
        assert!(question(&long).bytes().is_some(), "255 bytes are no bound");
    }

    #[test]
    fn answers_with_all_kinds_of_records() {
        let record = |name: &str, data| DnsRecord { name: name.into(), ttl: 60, data };
        let records = [
            record("a.example", Data::Alias("b.example".into())),
            record("b.example", Data::Address(IpAddr::from([127, 0, 0, 1]))),
            record("b.example", Data::Address(IpAddr::from([0, 0, 0, 0, 0, 0, 0, 1u16]))),
            record("s", Data::Service { priority: 1, weight: 2, port: 3, target: "t.example".into() }),
            record("s", Data::Other),
        ];
        let bytes = build::answer(&question("a.example").bytes().expect("a name"), 3, &records);
        let read = Message::read(&bytes).expect("a message");
        assert_eq!((read.code, read.truncated, &read.records[..]), (3, false, &records[..]));
        assert!(question("a.example").fits(&read) && !question("b.example").fits(&read));
        let other = Question { id: 1, ..question("a.example") };
        assert!(!other.fits(&read) && !Question { kind: RecordType::Aaaa, ..question("a.example") }.fits(&read));
        for n in 0..bytes.len() {
            assert_eq!(Message::read(&bytes[..n]), None, "{n} bytes of it");
        }
    }

    #[test]
    fn pointers_lead_back_and_not_in_circles() {
        let mut bytes = question("a.Example").bytes().expect("a name");
        (bytes[2], bytes[7]) = (0x81, 1);
        let with = |name: &[u8]| {
            let rest = b"\0\x01\0\x01\xff\0\0\0\0\x04\x7f\0\0\x01";
            Message::read(&[&bytes[..], name, rest].concat())
        };
        let read = with(b"\x01b\xc0\x0e").expect("a message");
        assert_eq!((read.records[0].name.as_str(), read.records[0].ttl), ("b.example", 0));
        let here = (bytes.len()) as u8;
        for wrong in [&[0xc0, here][..], &[0xc0, 0xff], &[0x40, 1], &[0x80, 1], b"\x03a.b\0", b"\x01\xff\0"] {
            assert_eq!(with(wrong), None, "{wrong:?}");
        }
        // Names that double by pointers are bounded.
        let mut bomb = bytes[..HEADER].to_vec();
        bomb[5] = 0;
        for _ in 0..70 {
            bomb.extend_from_slice(&[63; 64]);
        }
        bomb.extend_from_slice(&[0; 11]);
        assert_eq!(Message::read(&bomb), None);
    }

    #[test]
    fn a_server_that_could_not_read_the_question() {
        let mut bytes = question("a").bytes().expect("a name")[..HEADER].to_vec();
        (bytes[2], bytes[3], bytes[5]) = (0x80, FORMAT_ERROR, 0);
        assert!(question("a").fits(&Message::read(&bytes).expect("a message")));
        bytes[3] = 2;
        assert!(!question("a").fits(&Message::read(&bytes).expect("a message")));
        bytes[5] = 2;
        assert_eq!(Message::read(&bytes), None, "two questions");
    }
}
