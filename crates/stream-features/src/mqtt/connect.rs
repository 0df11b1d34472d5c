//! Reads a CONNECT packet (MQTT 3.1.1, section 3.1; MQTT 5.0, section 3.1).

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
const WILL: u8 = 0x04;
const USER_NAME: u8 = 0x80;

/// Reads what the client has sent so far.
pub fn read(bytes: &[u8]) -> Read {
    match connect(bytes) {
        Ok(connect) => Read::Connect(connect),
        Err(Stop::More) => Read::More,
        Err(Stop::Malformed) => Read::Other,
    }
}

fn connect(bytes: &[u8]) -> Result<Connect, Stop> {
    let mut received = Fields { rest: bytes, is_whole: false };
    if received.byte()? != CONNECT {
        return Err(Stop::Malformed);
    }
    let length = received.length()?;
    let content = received.rest.get(..length).unwrap_or(received.rest);
    let mut fields = Fields { rest: content, is_whole: content.len() == length };
    if fields.text()? != PROTOCOL {
        return Err(Stop::Malformed);
    }
    let (version, flags) = (fields.byte()?, fields.byte()?);
    if !matches!(version, 4 | VERSION_5) {
        return Err(Stop::Malformed);
    }
    let _keep_alive = fields.take(2)?;
    let skip_properties = |fields: &mut Fields<'_>| -> Result<(), Stop> {
        if version == VERSION_5 {
            let length = fields.length()?;
            fields.take(length)?;
        }
        Ok(())
    };
    skip_properties(&mut fields)?;
    let client_id = fields.text()?.to_vec();
    if flags & USER_NAME == 0 {
        return Ok(Connect { client_id, user_name: Vec::new() });
    }
    if flags & WILL != 0 {
        skip_properties(&mut fields)?;
        let _topic = fields.text()?;
        let _payload = fields.text()?;
    }
    Ok(Connect { client_id, user_name: fields.text()?.to_vec() })
}

struct Fields<'a> {
    rest: &'a [u8],
    /// Nothing follows: a field that is cut is malformed.
    is_whole: bool,
}

impl<'a> Fields<'a> {
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
        assert_eq!(read(&plain), found(b"client", b""));
        let will = [text(b"client"), text(b"topic"), text(b"\0payload"), text(b"user"), text(b"password")];
        assert_eq!(read(&packet(4, 0xC6, &will)), found(b"client", b"user"));
        let properties = vec![5, 0x11, 0, 0, 0, 10];
        let five = [properties, text(b""), vec![0], text(b"topic"), text(b"payload"), text(b"user")];
        assert_eq!(read(&packet(5, 0x86, &five)), found(b"", b"user"));
    }

    #[test]
    fn a_packet_may_arrive_in_pieces() {
        let whole = packet(4, 0xC2, &[text(b"client"), text(b"user"), text(b"password")]);
        let needed = whole.len() - text(b"password").len();
        for length in 0..needed {
            assert_eq!(read(&whole[..length]), Read::More, "{length}");
        }
        assert_eq!(read(&whole[..needed]), found(b"client", b"user"));
        assert_eq!(read(&[&whole[..], b"PUBLISH"].concat()), found(b"client", b"user"));
    }

    #[test]
    fn other_packets_are_no_connect() {
        assert_eq!(read(b"GET / HTTP/1.1\r\n"), Read::Other);
        assert_eq!(read(&[0x20, 2, 0, 0]), Read::Other);
        assert_eq!(read(&[0x10, 0xFF, 0xFF, 0xFF, 0xFF, 1]), Read::Other);
        assert_eq!(read(&packet(3, 0, &[text(b"client")])), Read::Other);
        assert_eq!(read(&[&[0x10, 12], &text(b"MQIsdp")[..], &[3, 0, 0, 60]].concat()), Read::Other);
        // The name is longer than the packet.
        assert_eq!(read(&packet(4, 0, &[vec![0, 9], b"client".to_vec()])), Read::Other);
    }
}
