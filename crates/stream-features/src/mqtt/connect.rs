//! Reads and writes a CONNECT packet (MQTT 3.1.1, section 3.1; MQTT 5.0, section 3.1).

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Connect {
    pub client_id: Vec<u8>,
    /// Empty if absent.
    pub user_name: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Read {
    /// The packet, or the part with the names, is incomplete.
    More,
    /// No CONNECT packet of a known version, or a malformed one.
    Other,
    Connect(Connect),
}

/// Why reading ended early.
enum Stop {
    More,
    Malformed,
}

const CONNECT: u8 = 0x10;
const PROTOCOL: &[u8] = b"MQTT";
const VERSION_5: u8 = 5;
const RESERVED: u8 = 0x01;
const WILL: u8 = 0x04;
const PASSWORD: u8 = 0x40;
const USER_NAME: u8 = 0x80;

/// Reads what the client has sent so far.
pub fn read_connect(bytes: &[u8]) -> Read {
    match connect(bytes) {
        Ok(connect) => Read::Connect(connect),
        Err(Stop::More) => Read::More,
        Err(Stop::Malformed) => Read::Other,
    }
}

fn connect(bytes: &[u8]) -> Result<Connect, Stop> {
    let mut received = ConnectFields { rest: bytes, is_whole: false };
    if received.byte()? != CONNECT {
        return Err(Stop::Malformed);
    }
    let length = received.length()?;
    let content = received.rest.get(..length).unwrap_or(received.rest);
    let mut fields = ConnectFields { rest: content, is_whole: content.len() == length };
    let packet = Packet::names(&mut fields, false)?;
    Ok(Connect {
        client_id: packet.client_id.to_vec(),
        user_name: packet.user_name.map(<[u8]>::to_vec).unwrap_or_default(),
    })
}

/// A whole CONNECT packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    version: u8,
    flags: u8,
    keep_alive: &'a [u8],
    /// With their length; empty in version 3.1.1.
    properties: &'a [u8],
    pub client_id: &'a [u8],
    /// Properties, topic and payload.
    will: &'a [u8],
    pub user_name: Option<&'a [u8]>,
    pub password: Option<&'a [u8]>,
}

/// Result of [`read_whole`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whole<'a> {
    More,
    /// No CONNECT packet of a known version, or a malformed one.
    Other,
    /// The packet has this length, which is above the limit.
    TooLong(usize),
    /// With its length.
    Packet(Packet<'a>, usize),
}

/// Reads a packet of limited length to its end.
pub fn read_whole(bytes: &[u8], bytes_max: usize) -> Whole<'_> {
    let mut received = ConnectFields { rest: bytes, is_whole: false };
    let head = (received.byte(), received.length());
    let length = match head {
        (Ok(CONNECT), Ok(length)) => length,
        (Err(Stop::More), _) | (Ok(CONNECT), Err(Stop::More)) => return Whole::More,
        _ => return Whole::Other,
    };
    let total = bytes.len() - received.rest.len() + length;
    if total > bytes_max {
        return Whole::TooLong(total);
    }
    let Some(content) = received.rest.get(..length) else { return Whole::More };
    match Packet::read(content) {
        Ok(packet) => Whole::Packet(packet, total),
        Err(_) => Whole::Other,
    }
}

impl<'a> Packet<'a> {
    /// Reads all fields; nothing follows them.
    fn read(content: &'a [u8]) -> Result<Packet<'a>, Stop> {
        let mut fields = ConnectFields { rest: content, is_whole: true };
        let mut packet = Packet::names(&mut fields, true)?;
        // MQTT 3.1.1, sections 3.1.2.3 and 3.1.2.9.
        let lonely = packet.version != VERSION_5 && packet.flags & (USER_NAME | PASSWORD) == PASSWORD;
        if packet.flags & RESERVED != 0 || lonely {
            return Err(Stop::Malformed);
        }
        if packet.flags & PASSWORD != 0 {
            packet.password = Some(fields.text()?);
        }
        if fields.rest.is_empty() { Ok(packet) } else { Err(Stop::Malformed) }
    }

    /// Reads the fields up to the user name, or to the last name that there is.
    fn names(fields: &mut ConnectFields<'a>, with_will: bool) -> Result<Packet<'a>, Stop> {
        if fields.text()? != PROTOCOL {
            return Err(Stop::Malformed);
        }
        let (version, flags) = (fields.byte()?, fields.byte()?);
        if !matches!(version, 4 | VERSION_5) {
            return Err(Stop::Malformed);
        }
        let keep_alive = fields.take(2)?;
        let properties = fields.properties(version)?;
        let client_id = fields.text()?;
        let mut packet =
            Packet { version, flags, keep_alive, properties, client_id, will: &[], user_name: None, password: None };
        if flags & USER_NAME != 0 || with_will {
            let before = fields.rest;
            if flags & WILL != 0 {
                fields.properties(version)?;
                let _topic = fields.text()?;
                let _payload = fields.text()?;
            }
            packet.will = before.get(..before.len() - fields.rest.len()).unwrap_or_default();
        }
        if flags & USER_NAME != 0 {
            packet.user_name = Some(fields.text()?);
        }
        Ok(packet)
    }

    /// Writes the packet. `None`: a field is too long.
    pub fn write(&self) -> Option<Vec<u8>> {
        let mut flags = self.flags & !(USER_NAME | PASSWORD);
        let mut user_name = self.user_name;
        if self.password.is_some() && self.version != VERSION_5 {
            // A password needs a user name (MQTT 3.1.1, section 3.1.2.9).
            user_name = user_name.or(Some(b""));
        }
        flags |= if user_name.is_some() { USER_NAME } else { 0 };
        flags |= if self.password.is_some() { PASSWORD } else { 0 };
        let mut content = Vec::new();
        put(PROTOCOL, &mut content)?;
        content.extend_from_slice(&[self.version, flags]);
        content.extend_from_slice(self.keep_alive);
        content.extend_from_slice(self.properties);
        put(self.client_id, &mut content)?;
        content.extend_from_slice(self.will);
        for field in [user_name, self.password].into_iter().flatten() {
            put(field, &mut content)?;
        }
        let mut out = vec![CONNECT];
        let mut length = content.len();
        // A variable byte integer has at most four octets.
        if length >> 28 != 0 {
            return None;
        }
        while length > 0x7F {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.append(&mut content);
        Some(out)
    }
}

/// Appends a text with its length.
fn put(text: &[u8], out: &mut Vec<u8>) -> Option<()> {
    out.extend_from_slice(&u16::try_from(text.len()).ok()?.to_be_bytes());
    out.extend_from_slice(text);
    Some(())
}

struct ConnectFields<'a> {
    rest: &'a [u8],
    /// Nothing follows: a field that is cut is malformed.
    is_whole: bool,
}

impl<'a> ConnectFields<'a> {
    fn take(&mut self, count: usize) -> Result<&'a [u8], Stop> {
        match self.rest.split_at_checked(count) {
            Some((taken, rest)) => {
                self.rest = rest;
                Ok(taken)
            }
            None if self.is_whole => Err(Stop::Malformed),
            None => Err(Stop::More),
        }
    }
    fn byte(&mut self) -> Result<u8, Stop> {
        self.take(1)?.first().copied().ok_or(Stop::Malformed)
    }
    /// Reads a text or binary data with its length.
    fn text(&mut self) -> Result<&'a [u8], Stop> {
        let length = usize::from(self.byte()?) << 8 | usize::from(self.byte()?);
        self.take(length)
    }
    /// Reads properties with their length; version 3.1.1 has none.
    fn properties(&mut self, version: u8) -> Result<&'a [u8], Stop> {
        let before = self.rest;
        if version == VERSION_5 {
            let length = self.length()?;
            self.take(length)?;
        }
        Ok(before.get(..before.len() - self.rest.len()).unwrap_or_default())
    }
    /// Reads a variable byte integer, of four octets at most.
    fn length(&mut self) -> Result<usize, Stop> {
        let mut length = 0;
        for shift in [0, 7, 14, 21] {
            let octet = self.byte()?;
            length |= usize::from(octet & 0x7F) << shift;
            if octet & 0x80 == 0 {
                return Ok(length);
            }
        }
        Err(Stop::Malformed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &[u8]) -> Vec<u8> {
        [&(text.len() as u16).to_be_bytes(), text].concat()
    }

    /// Makes a packet of less than 16 KB.
    fn packet(version: u8, flags: u8, payload: &[Vec<u8>]) -> Vec<u8> {
        let head = [&text(b"MQTT")[..], &[version, flags, 0, 60]].concat();
        let content = [head, payload.concat()].concat();
        let length = [content.len() as u8 & 0x7F | 0x80, (content.len() >> 7) as u8];
        [&[0x10], &length[..], &content].concat()
    }

    fn found(client_id: &[u8], user_name: &[u8]) -> Read {
        Read::Connect(Connect { client_id: client_id.to_vec(), user_name: user_name.to_vec() })
    }

    #[test]
    fn names_of_both_versions_are_found() {
        let plain = packet(4, 0x02, &[text(b"client")]);
        assert_eq!(read_connect(&plain), found(b"client", b""));
        let will = [text(b"client"), text(b"topic"), text(b"\0payload"), text(b"user"), text(b"password")];
        assert_eq!(read_connect(&packet(4, 0xC6, &will)), found(b"client", b"user"));
        let properties = vec![5, 0x11, 0, 0, 0, 10];
        let five = [properties, text(b""), vec![0], text(b"topic"), text(b"payload"), text(b"user")];
        assert_eq!(read_connect(&packet(5, 0x86, &five)), found(b"", b"user"));
    }

    #[test]
    fn a_packet_may_arrive_in_pieces() {
        let whole = packet(4, 0xC2, &[text(b"client"), text(b"user"), text(b"password")]);
        let needed = whole.len() - text(b"password").len();
        for length in 0..needed {
            assert_eq!(read_connect(&whole[..length]), Read::More, "{length}");
        }
        assert_eq!(read_connect(&whole[..needed]), found(b"client", b"user"));
        assert_eq!(read_connect(&[&whole[..], b"PUBLISH"].concat()), found(b"client", b"user"));
    }

    #[test]
    fn other_packets_are_no_connect() {
        assert_eq!(read_connect(b"GET / HTTP/1.1\r\n"), Read::Other);
        assert_eq!(read_connect(&[0x20, 2, 0, 0]), Read::Other);
        assert_eq!(read_connect(&[0x10, 0xFF, 0xFF, 0xFF, 0xFF, 1]), Read::Other);
        assert_eq!(read_connect(&packet(3, 0, &[text(b"client")])), Read::Other);
        assert_eq!(read_connect(&[&[0x10, 12], &text(b"MQIsdp")[..], &[3, 0, 0, 60]].concat()), Read::Other);
        // The name is longer than the packet.
        assert_eq!(read_connect(&packet(4, 0, &[vec![0, 9], b"client".to_vec()])), Read::Other);
    }

    #[test]
    fn whole_packets_are_read_and_written() {
        let properties = vec![5, 0x11, 0, 0, 0, 10];
        let will = [text(b"topic"), text(b"payload")].concat();
        for (version, flags, payload) in [
            (4, 0x02, vec![text(b"client")]),
            (4, 0xC6, vec![text(b"client"), will.clone(), text(b"user"), text(b"password")]),
            (4, 0x06, vec![text(b""), will.clone()]),
            (5, 0x02, vec![properties.clone(), text(b"client")]),
            (5, 0x46, vec![properties.clone(), text(b""), vec![0], will.clone(), text(b"password")]),
            (5, 0x82, vec![vec![0], text(b"client"), text(&[b'u'; 200])]),
        ] {
            // The helper writes lengths below 128 in two octets.
            let packet = packet(version, flags, &payload);
            let with_more = [&packet[..], b"\x30"].concat();
            let Whole::Packet(read, length) = read_whole(&with_more, 400) else {
                panic!("{version} {flags} {payload:?}")
            };
            assert_eq!(length, packet.len());
            let written = read.write().expect("short fields");
            let Whole::Packet(again, _) = read_whole(&written, 400) else { panic!("{written:?}") };
            assert_eq!(again, read);
            for cut in 0..packet.len() {
                assert_eq!(read_whole(&packet[..cut], 400), Whole::More, "{cut}");
            }
            assert_eq!(read_whole(&packet[..3], packet.len() - 1), Whole::TooLong(packet.len()));
        }
        // Octets after the last field, and a field that is cut.
        assert_eq!(read_whole(&packet(4, 0x02, &[text(b"client"), vec![0]]), 400), Whole::Other);
        assert_eq!(read_whole(&packet(4, 0x42, &[text(b"client"), vec![0]]), 400), Whole::Other);
        // A reserved flag, and a password without a user name.
        assert_eq!(read_whole(&packet(4, 0x03, &[text(b"client")]), 400), Whole::Other);
        assert_eq!(read_whole(&packet(4, 0x42, &[text(b"client"), text(b"password")]), 400), Whole::Other);
        assert_eq!(read_whole(b"GET / HTTP/1.1\r\n", 400), Whole::Other);
        assert_eq!(read_whole(&[0x10, 0xFF, 0xFF, 0xFF, 0xFF, 1], 400), Whole::Other);
    }

    #[test]
    fn fields_are_added_with_their_flags() {
        let plain = packet(4, 0x02, &[text(b"client")]);
        let Whole::Packet(read, _) = read_whole(&plain, 400) else { panic!("a packet") };
        let write = |packet: Packet<'_>| packet.write().expect("short fields");
        let named = write(Packet { client_id: b"other", user_name: Some(b"user"), ..read.clone() });
        assert_eq!(named, b"\x10\x17\0\x04MQTT\x04\x82\0\x3c\0\x05other\0\x04user");
        // A password alone is for version 5.0 only.
        let secret = write(Packet { password: Some(b"secret"), ..read.clone() });
        assert_eq!(secret, b"\x10\x1c\0\x04MQTT\x04\xc2\0\x3c\0\x06client\0\0\0\x06secret");
        let secret = write(Packet { version: 5, properties: &[0], password: Some(b"s"), ..read.clone() });
        assert_eq!(secret, b"\x10\x16\0\x04MQTT\x05\x42\0\x3c\0\0\x06client\0\x01s");
        let long = vec![b'x'; 65_536];
        assert_eq!(Packet { client_id: &long, ..read.clone() }.write(), None);
        assert_eq!(write(Packet { client_id: &long[1..], ..read }).len(), 1 + 3 + 10 + 2 + 65_535);
    }
}
