//! Parses the ClientHello before rustls, to select the server's rules; other faults are left to rustls.

/// Longest handshake message in octets, as in rustls.
pub const HELLO_MAX: usize = 0xffff;
/// Longest fragment of a record without encryption, in octets (RFC 8446, 5.1).
const PLAINTEXT_MAX: usize = 16_384;
/// Version of SSL 3.0: a ClientHello with this legacy version or a lower one is refused (RFC 8446, D.5).
const SSL_3_0: usize = 0x0300;
/// `TLSEXT_MAXLEN_host_name` of OpenSSL.
const HOST_NAME_MAX: usize = 255;

/// Parts of a ClientHello that select a server and its certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClientHello {
    /// As sent, including case and dots.
    pub server_name: Option<String>,
    /// ALPN protocols, in the client's order.
    pub alpn: Vec<Vec<u8>>,
    /// Cipher suites.
    pub suites: Vec<u16>,
    /// Key exchange groups.
    pub groups: Vec<u16>,
    /// Signature schemes.
    pub signature_schemes: Vec<u16>,
    /// `supported_versions`, or the legacy version.
    pub versions: Vec<u16>,
    /// Legacy session id.
    pub session_id: Vec<u8>,
    /// Early data follows.
    pub early_data: bool,
}

/// Result of looking for a ClientHello.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peek {
    /// Incomplete; at least so many octets are missing.
    More(usize),
    /// The complete ClientHello.
    Hello(Box<ClientHello>),
    /// Another protocol.
    NotTls,
    /// Malformed ClientHello, with the alert to send (RFC 8446, 6.2).
    Broken(u8),
}

const DECODE_ERROR: u8 = 50;
const UNEXPECTED_MESSAGE: u8 = 10;
const UNRECOGNIZED_NAME: u8 = 112;
const PROTOCOL_VERSION: u8 = 70;
const RECORD_OVERFLOW: u8 = 22;

struct Bytes<'a>(&'a [u8]);

impl<'a> Bytes<'a> {
    fn take(&mut self, n: usize) -> Option<&'a [u8]> {
        let (head, rest) = self.0.split_at_checked(n)?;
        self.0 = rest;
        Some(head)
    }
    fn u8(&mut self) -> Option<usize> {
        self.take(1).map(|b| b.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
    }
    fn u16(&mut self) -> Option<usize> {
        self.take(2).map(|b| b.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
    }
    fn short_list(&mut self) -> Option<&'a [u8]> {
        let n = self.u8()?;
        self.take(n)
    }
    fn list(&mut self) -> Option<&'a [u8]> {
        let n = self.u16()?;
        self.take(n)
    }
}

fn words(bytes: &[u8]) -> Vec<u16> {
    bytes.chunks_exact(2).map(|p| p.iter().fold(0, |n, b| n << 8 | u16::from(*b))).collect()
}

/// Reads a ClientHello from the start of a connection's input, without consuming it. Call again with all input so far
/// once more of it has arrived.
pub fn peek_hello(input: &[u8]) -> Peek {
    let mut message: Vec<u8> = Vec::new();
    let mut wanted: Option<usize> = None;
    let mut records = Bytes(input);
    loop {
        // Short records may hide more missing octets, never fewer.
        let missing = wanted.map_or(1, |wanted: usize| wanted.saturating_sub(message.len()).max(1));
        if let Some(wanted) = wanted
            && message.len() >= wanted
        {
            message.truncate(wanted);
            return read(message.get(4..).unwrap_or_default());
        }
        let Some(kind) = records.u8() else { return Peek::More(missing) };
        if kind != 0x16 {
            // Only a TLS peer sends an alert or another record.
            return if message.is_empty() && !(0x14..=0x17).contains(&kind) {
                Peek::NotTls
            } else {
                Peek::Broken(UNEXPECTED_MESSAGE)
            };
        }
        match records.take(2) {
            None => return Peek::More(missing),
            Some([3, _]) => {}
            Some(_) => return Peek::Broken(PROTOCOL_VERSION),
        }
        let Some(length) = records.u16() else { return Peek::More(missing) };
        if length == 0 {
            return Peek::Broken(UNEXPECTED_MESSAGE);
        }
        if length > PLAINTEXT_MAX {
            return Peek::Broken(RECORD_OVERFLOW);
        }
        let (fragment, whole) = match records.take(length) {
            Some(fragment) => (fragment, true),
            None => (records.0, false),
        };
        message.extend_from_slice(fragment);
        if let Some(kind) = message.first()
            && *kind != 1
        {
            return Peek::Broken(UNEXPECTED_MESSAGE);
        }
        if wanted.is_none()
            && let Some(digits) = message.get(1..4)
        {
            let length = digits.iter().fold(0_usize, |n, b| n << 8 | usize::from(*b));
            if length > HELLO_MAX {
                return Peek::Broken(DECODE_ERROR);
            }
            wanted = Some(4 + length);
        }
        if !whole {
            return Peek::More(wanted.map_or(1, |wanted| wanted.saturating_sub(message.len()).max(1)));
        }
    }
}

/// Expects no record headers, as in QUIC.
pub(crate) fn peek_message(message: &[u8]) -> Peek {
    let Some([kind, digits @ ..]) = message.first_chunk::<4>() else { return Peek::More(4 - message.len().min(3)) };
    if *kind != 1 {
        return Peek::Broken(UNEXPECTED_MESSAGE);
    }
    let length = digits.iter().fold(0_usize, |n, b| n << 8 | usize::from(*b));
    if length > HELLO_MAX {
        return Peek::Broken(DECODE_ERROR);
    }
    match message.get(4..4 + length) {
        Some(body) => read(body),
        None => Peek::More(4 + length - message.len()),
    }
}

fn read(body: &[u8]) -> Peek {
    match fields(body) {
        Some(Ok(hello)) => Peek::Hello(Box::new(hello)),
        Some(Err(alert)) => Peek::Broken(alert),
        None => Peek::Broken(DECODE_ERROR),
    }
}

fn fields(body: &[u8]) -> Option<Result<ClientHello, u8>> {
    let mut b = Bytes(body);
    let legacy = b.u16()?;
    if legacy <= SSL_3_0 {
        return Some(Err(PROTOCOL_VERSION));
    }
    b.take(32)?;
    let session_id = b.short_list()?.to_vec();
    if session_id.len() > 32 {
        return None;
    }
    let suites = words(b.list()?);
    b.short_list()?;
    let mut hello = ClientHello { session_id, suites, versions: vec![legacy as u16], ..ClientHello::default() };
    if b.0.is_empty() {
        return Some(Ok(hello));
    }
    let mut extensions = Bytes(b.list()?);
    while !extensions.0.is_empty() {
        let kind = extensions.u16()?;
        let mut value = Bytes(extensions.list()?);
        match kind {
            0 if hello.server_name.is_none() => match server_name(value.0)? {
                Ok(name) => hello.server_name = Some(name),
                Err(alert) => return Some(Err(alert)),
            },
            10 => hello.groups = words(value.list()?),
            13 => hello.signature_schemes = words(value.list()?),
            16 => {
                let mut names = Bytes(value.list()?);
                while !names.0.is_empty() {
                    hello.alpn.push(names.short_list()?.to_vec());
                }
            }
            42 => hello.early_data = true,
            43 => hello.versions = words(value.short_list()?),
            _ => {}
        }
    }
    Some(Ok(hello))
}

/// Validates a host name as nginx and OpenSSL (`ngx_ssl_client_hello_callback`).
fn server_name(value: &[u8]) -> Option<Result<String, u8>> {
    let mut value = Bytes(value);
    let mut names = Bytes(value.list()?);
    let kind = names.u8()?;
    let name = names.list()?;
    if kind != 0 || name.is_empty() || !names.0.is_empty() || !value.0.is_empty() {
        return None;
    }
    if name.len() > HOST_NAME_MAX || name.contains(&0) {
        return Some(Err(UNRECOGNIZED_NAME));
    }
    // Invalid UTF-8 cannot name a server: uses the default one.
    Some(Ok(String::from_utf8_lossy(name).into_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extension(kind: u16, body: &[u8]) -> Vec<u8> {
        [&kind.to_be_bytes()[..], &(body.len() as u16).to_be_bytes(), body].concat()
    }

    fn message(extensions: &[u8]) -> Vec<u8> {
        let mut body = vec![3, 3];
        body.extend([7; 32]);
        body.extend([2, 9, 9]);
        body.extend([0, 4, 0x13, 1, 0xc0, 0x2f]);
        body.extend([1, 0]);
        body.extend((extensions.len() as u16).to_be_bytes());
        body.extend(extensions);
        let mut all = vec![1, 0];
        all.extend((body.len() as u16).to_be_bytes());
        all.extend(body);
        all
    }

    fn records(message: &[u8], size: usize) -> Vec<u8> {
        message.chunks(size).flat_map(|c| [&[0x16, 3, 1][..], &(c.len() as u16).to_be_bytes(), c].concat()).collect()
    }

    fn sni(name: &[u8]) -> Vec<u8> {
        let one = [&[0][..], &(name.len() as u16).to_be_bytes(), name].concat();
        extension(0, &[&(one.len() as u16).to_be_bytes()[..], &one].concat())
    }

    #[test]
    fn a_hello_is_read_however_it_is_cut() {
        let extensions = [
            sni(b"Www.Example"),
            extension(16, &[0, 12, 2, b'h', b'2', 8, b'h', b't', b't', b'p', b'/', b'1', b'.', b'1']),
            extension(10, &[0, 4, 0, 29, 0, 23]),
            extension(13, &[0, 2, 4, 3]),
            extension(43, &[2, 3, 4]),
            extension(42, &[]),
        ]
        .concat();
        let message = message(&extensions);
        for size in [1, 5, 64, message.len()] {
            let whole = records(&message, size);
            for cut in 0..whole.len() {
                let Peek::More(missing) = peek_hello(&whole[..cut]) else { panic!("{size} {cut}") };
                assert!(missing >= 1 && cut + missing <= whole.len(), "{size} {cut} {missing}");
            }
            let Peek::Hello(hello) = peek_hello(&whole) else { panic!("no hello") };
            assert_eq!(hello.server_name.as_deref(), Some("Www.Example"));
            assert_eq!(hello.alpn, [b"h2".to_vec(), b"http/1.1".to_vec()]);
            assert_eq!((&hello.suites[..], &hello.groups[..]), (&[0x1301, 0xc02f][..], &[29, 23][..]));
            assert_eq!((&hello.versions[..], hello.early_data), (&[0x0304][..], true));
            assert_eq!(hello.session_id, [9, 9]);
        }
    }

    #[test]
    fn other_protocols_are_recognised() {
        assert_eq!(peek_hello(b"GET / HTTP/1.1\r\n"), Peek::NotTls);
        assert_eq!(peek_hello(b"\r\n"), Peek::NotTls);
        assert_eq!(peek_hello(&[0x15, 3, 1, 0, 2, 2, 40]), Peek::Broken(UNEXPECTED_MESSAGE));
        assert_eq!(peek_hello(&[0x16, 2, 0]), Peek::Broken(PROTOCOL_VERSION));
        assert_eq!(peek_hello(&[0x16, 3, 1, 0, 4, 2]), Peek::Broken(UNEXPECTED_MESSAGE));
        assert_eq!(peek_hello(&[0x16, 3, 1, 0xff, 0xff]), Peek::Broken(RECORD_OVERFLOW));
        assert_eq!(peek_hello(&[0x16, 3, 1, 0x40, 0x01, 1]), Peek::Broken(RECORD_OVERFLOW));
        assert!(matches!(peek_hello(&[0x16, 3, 1, 0x40, 0x00, 1]), Peek::More(_)));
    }

    #[test]
    fn ssl_3_0_is_refused_beside_supported_versions() {
        let of = |legacy: [u8; 2]| {
            let mut message = message(&extension(43, &[2, 3, 4]));
            message[4..6].copy_from_slice(&legacy);
            (peek_hello(&records(&message, 400)), peek_message(&message))
        };
        for legacy in [[0, 0], [2, 0], [3, 0]] {
            assert_eq!(of(legacy), (Peek::Broken(PROTOCOL_VERSION), Peek::Broken(PROTOCOL_VERSION)), "{legacy:?}");
        }
        for legacy in [[3, 1], [3, 2], [3, 3], [3, 4]] {
            assert!(matches!(of(legacy), (Peek::Hello(_), Peek::Hello(_))), "{legacy:?}");
        }
    }

    #[test]
    fn server_names_that_openssl_refuses_are_refused() {
        let of = |bytes: &[u8]| peek_hello(&records(&message(bytes), 400));
        assert_eq!(of(&sni(b"")), Peek::Broken(DECODE_ERROR));
        assert_eq!(of(&sni(b"a\0b")), Peek::Broken(UNRECOGNIZED_NAME));
        assert_eq!(of(&sni(&[b'a'; 256])), Peek::Broken(UNRECOGNIZED_NAME));
        assert_eq!(of(&extension(0, &[0, 1, 0])), Peek::Broken(DECODE_ERROR));
    }
}
