//! Reads a ClientHello as nginx's `ngx_stream_ssl_preread_parse_record` (RFC 8446, 4.1.2; RFC 6066, 3; RFC 7301, 3.1).

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hello {
    version: [u8; 2],
    /// As sent; empty if absent.
    pub server_name: Vec<u8>,
    /// Protocols, comma-separated.
    pub alpn: Vec<u8>,
}

impl Hello {
    /// OpenSSL's name of the version; empty if it has none.
    pub fn protocol(&self) -> &'static str {
        match self.version {
            [0, 2] => "SSLv2",
            [3, 0] => "SSLv3",
            [3, 1] => "TLSv1",
            [3, 2] => "TLSv1.1",
            [3, 3] => "TLSv1.2",
            [3, 4] => "TLSv1.3",
            _ => "",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HelloResult {
    More,
    /// No ClientHello, or a malformed one.
    NotOne,
    Hello(Hello),
}

const HANDSHAKE: u8 = 0x16;
const CLIENT_HELLO: u8 = 1;
const SERVER_NAME: u16 = 0;
const ALPN: u16 = 16;
const SUPPORTED_VERSIONS: u16 = 43;

pub fn read_hello(bytes: &[u8]) -> HelloResult {
    let mut rest = bytes;
    let mut message = Vec::new();
    while let Some((&[kind, major, minor, high, low], body)) = rest.split_first_chunk::<5>() {
        // SSL 2 hello: length with the highest bit set, type, version.
        if kind & 0x80 != 0 && minor == CLIENT_HELLO && matches!(high, 0 | 3) {
            return HelloResult::Hello(Hello { version: [high, low], ..Hello::default() });
        }
        if kind != HANDSHAKE || major != 3 {
            return HelloResult::NotOne;
        }
        // Only complete records.
        let Some((record, after)) = body.split_at_checked(usize::from(u16::from_be_bytes([high, low]))) else {
            return HelloResult::More;
        };
        message.extend_from_slice(record);
        match hello(&message) {
            HelloResult::More => rest = after,
            done => return done,
        }
    }
    HelloResult::More
}

/// Read position; beyond its end bytes have not arrived, or exceed the message's length.
struct Cursor<'a> {
    bytes: &'a [u8],
    /// Octets left by the message's length.
    left: usize,
}

enum Stop {
    More,
    Broken,
}

impl<'a> Cursor<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8], Stop> {
        self.left = self.left.checked_sub(n).ok_or(Stop::Broken)?;
        let (taken, rest) = self.bytes.split_at_checked(n).ok_or(Stop::More)?;
        self.bytes = rest;
        Ok(taken)
    }
    fn byte(&mut self) -> Result<usize, Stop> {
        Ok(self.take(1)?.first().copied().map_or(0, usize::from))
    }
    fn number(&mut self) -> Result<u16, Stop> {
        let taken = self.take(2)?;
        Ok(taken.iter().fold(0, |n, byte| n << 8 | u16::from(*byte)))
    }
}

fn hello(message: &[u8]) -> HelloResult {
    let Some((&[kind, a, b, c], bytes)) = message.split_first_chunk::<4>() else { return HelloResult::More };
    if kind != CLIENT_HELLO {
        return HelloResult::NotOne;
    }
    let left = usize::from(a) << 16 | usize::from(b) << 8 | usize::from(c);
    match fields(&mut Cursor { bytes, left }) {
        Ok(hello) => HelloResult::Hello(hello),
        Err(Stop::More) => HelloResult::More,
        Err(Stop::Broken) => HelloResult::NotOne,
    }
}

fn fields(at: &mut Cursor<'_>) -> Result<Hello, Stop> {
    let mut hello = Hello::default();
    let mut has_alpn = false;
    let mut has_name = false;
    hello.version = at.number()?.to_be_bytes();
    at.take(32)?;
    let session_id = at.byte()?;
    at.take(session_id)?;
    let suites = at.number()?;
    at.take(usize::from(suites))?;
    let compressions = at.byte()?;
    at.take(compressions)?;
    if at.left == 0 {
        return Ok(hello);
    }
    at.number()?;
    while at.left > 0 {
        let (kind, length) = (at.number()?, usize::from(at.number()?));
        match kind {
            SERVER_NAME if !has_name => {
                has_name = true;
                let list = usize::from(at.number()?);
                if at.byte()? != 0 {
                    return Err(Stop::Broken);
                }
                let length = usize::from(at.number()?);
                let others = list.checked_sub(3 + length).ok_or(Stop::Broken)?;
                hello.server_name = at.take(length)?.to_vec();
                at.take(others)?;
            }
            ALPN if !has_alpn => {
                has_alpn = true;
                let mut list = usize::from(at.number()?);
                loop {
                    let length = at.byte()?;
                    if length == 0 {
                        return Err(Stop::Broken);
                    }
                    list = list.checked_sub(1 + length).ok_or(Stop::Broken)?;
                    hello.alpn.extend_from_slice(at.take(length)?);
                    if list == 0 {
                        break;
                    }
                    hello.alpn.push(b',');
                }
            }
            SUPPORTED_VERSIONS => {
                hello.version = [3, 4];
                let versions = at.byte()?;
                at.take(versions)?;
            }
            _ => {
                at.take(length)?;
            }
        }
    }
    Ok(hello)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
    }

    fn message(extensions: &[Vec<u8>]) -> Vec<u8> {
        let all = extensions.concat();
        let mut body = vec![3, 3];
        body.extend_from_slice(&[7; 32]);
        body.extend_from_slice(&[2, 1, 2, 0, 2, 0x13, 1, 1, 0]);
        if !extensions.is_empty() {
            body.extend_from_slice(&(all.len() as u16).to_be_bytes());
            body.extend_from_slice(&all);
        }
        [&[1, 0][..], &(body.len() as u16).to_be_bytes(), &body].concat()
    }

    fn record(body: &[u8]) -> Vec<u8> {
        [&[0x16, 3, 1][..], &(body.len() as u16).to_be_bytes(), body].concat()
    }

    fn name(name: &[u8]) -> Vec<u8> {
        let length = name.len() as u16;
        extension(0, &[&(length + 3).to_be_bytes()[..], &[0], &length.to_be_bytes(), name].concat())
    }

    fn whole() -> Vec<u8> {
        let alpn = extension(16, b"\x00\x0c\x02h2\x08http/1.1");
        message(&[name(b"a.example"), alpn, extension(43, &[2, 3, 4])])
    }

    #[test]
    fn hellos_have_name_protocols_and_version() {
        let HelloResult::Hello(hello) = read_hello(&record(&whole())) else { panic!("a hello") };
        assert_eq!(hello.server_name, b"a.example");
        assert_eq!(hello.alpn, b"h2,http/1.1");
        assert_eq!(hello.protocol(), "TLSv1.3");
        let HelloResult::Hello(hello) = read_hello(&record(&message(&[]))) else {
            panic!("a hello without extensions")
        };
        assert_eq!((hello.protocol(), hello.server_name.len()), ("TLSv1.2", 0));
    }

    #[test]
    fn any_cut_waits_and_any_records_do() {
        let one = record(&whole());
        for cut in 0..one.len() {
            assert_eq!(read_hello(&one[..cut]), HelloResult::More, "{cut}");
        }
        let all = whole();
        for cut in 1..all.len() {
            let two = [record(&all[..cut]), record(&all[cut..])].concat();
            assert_eq!(read_hello(&two), read_hello(&one), "{cut}");
        }
    }

    #[test]
    fn other_bytes_are_no_hello() {
        assert_eq!(read_hello(b"GET / HTTP/1.0\r\n"), HelloResult::NotOne);
        assert_eq!(read_hello(&[0x16, 2, 0, 0, 5, 1]), HelloResult::NotOne);
        assert_eq!(read_hello(&record(&[2, 0, 0, 0])), HelloResult::NotOne, "a ServerHello");
        assert_eq!(read_hello(&record(&message(&[extension(0, &[0, 2, 0, 0, 5, b'a'])]))), HelloResult::NotOne);
        assert_eq!(
            read_hello(&record(&message(&[extension(16, &[0, 1, 0])]))),
            HelloResult::NotOne,
            "an empty protocol"
        );
        let HelloResult::Hello(old) = read_hello(&[0x80, 46, 1, 3, 1]) else { panic!("a hello of SSL 2") };
        assert_eq!(old.protocol(), "TLSv1");
    }
}
