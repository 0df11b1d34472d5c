//! Clients of the TLS comparison: all that one client does, drawn by chance.

use super::identities::CLIENTS;
use crate::Dice;

/// Listener that a client connects to, by the last number of its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Door {
    Http,
    Stream,
    /// A stream server that passes the handshake to the http area.
    Preread,
    /// A stream server that has TLS to the client and to the server behind it.
    Upstream,
}

impl Door {
    pub fn host(self) -> u8 {
        match self {
            Door::Http => 2,
            Door::Stream => 3,
            Door::Preread => 5,
            Door::Upstream => 6,
        }
    }

    /// Tells whether the client speaks HTTP with the server at the end.
    pub fn is_http(self) -> bool {
        matches!(self, Door::Http | Door::Preread)
    }

    /// Tells whether several connections write the client's lines, in any order.
    pub fn is_passed_on(self) -> bool {
        matches!(self, Door::Preread | Door::Upstream)
    }
}

/// Connections that follow the first one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    End,
    /// Two more connections with the session of the first one, to a server of this name.
    Resume(Option<&'static str>),
    /// A connection with the session and a request in early data, and one more.
    Early,
}

/// A client that speaks TLS.
#[derive(Clone, Debug)]
pub struct Handshake {
    pub name: Option<&'static str>,
    /// Further options of `openssl s_client`.
    pub options: Vec<&'static str>,
    pub identity: Option<&'static str>,
    pub next: Next,
    /// Asks for a new handshake instead of sending a request.
    pub renegotiates: bool,
    pub is_h2: bool,
    /// Hosts of the requests.
    pub hosts: Vec<&'static str>,
}

#[derive(Clone, Debug)]
pub enum ClientKind {
    Tls(Handshake),
    /// Bytes instead of a handshake. `ends`: the client closes its sending side.
    Raw {
        bytes: &'static [u8],
        ends: bool,
    },
}

#[derive(Clone, Debug)]
pub struct Client {
    pub door: Door,
    /// Last number of the client's address.
    pub from: u8,
    pub kind: ClientKind,
}

impl std::fmt::Display for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            ClientKind::Tls(one) => write!(f, "{:?}: {one:?}", self.door),
            ClientKind::Raw { bytes, ends } => {
                write!(f, "{:?}: \"{:.120}\", ends: {ends}", self.door, bytes.escape_ascii().to_string())
            }
        }
    }
}

const NAMES: [Option<&str>; 8] =
    [Some("a.test"), Some("b.test"), Some("a.test"), Some("b.test"), Some("c.test"), Some("B.TEST"), None, None];
const HOSTS: [&str; 5] = ["a.test", "b.test", "a.test", "c.test", "B.test"];

/// Options of all clients of a version; a client of any version has none.
const VERSIONS: &[&[&str]] = &[
    &[],
    &[],
    &["-tls1_2"],
    &["-tls1_2"],
    &["-tls1_2", "-no_ticket"],
    &["-tls1_3"],
    &["-tls1_3", "-no_ticket"],
    &["-tls1_1", "-cipher", "ALL:@SECLEVEL=0"],
];

/// Algorithms; each group is offered by both servers unless the configuration says otherwise.
const ALGORITHMS: &[&[&str]] = &[
    &[],
    &[],
    &[],
    &["-groups", "X25519"],
    &["-groups", "P-256"],
    &["-groups", "P-384:X25519"],
    &["-groups", "P-256:P-384:X25519"],
    &["-cipher", "ECDHE-ECDSA-AES128-GCM-SHA256:ECDHE-RSA-AES128-GCM-SHA256"],
    &["-cipher", "ECDHE-RSA-AES256-GCM-SHA384"],
    &["-cipher", "ECDHE-ECDSA-CHACHA20-POLY1305:ECDHE-RSA-CHACHA20-POLY1305:ECDHE-ECDSA-AES256-GCM-SHA384"],
    &["-ciphersuites", "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256"],
    &["-ciphersuites", "TLS_AES_128_GCM_SHA256"],
    &["-sigalgs", "ECDSA+SHA256"],
    &["-sigalgs", "rsa_pss_rsae_sha256:RSA+SHA256"],
    &["-sigalgs", "RSA+SHA512:ECDSA+SHA256:rsa_pss_rsae_sha512"],
];

const PROTOCOLS: &[&[&str]] = &[
    &[],
    &[],
    &["-alpn", "http/1.1"],
    &["-alpn", "h2,http/1.1"],
    &["-alpn", "h2"],
    &["-alpn", "foo"],
    &["-alpn", "h1,http/1.1"],
    &["-alpn", "foo,http/1.0"],
];

/// A ClientHello for TLS 1.2 that offers one suite without extensions.
const BARE_HELLO: &[u8] = b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03\
    0123456789abcdef0123456789abcdef\x00\x00\x02\xc0\x2b\x01\x00";

/// Bytes that are no handshake, or not all of one.
const RAW: &[(&[u8], bool)] = &[
    (b"GET /x HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", false),
    (b"GET /x HTTP/1.1\r\nHost: b.test\r\nConnection: close\r\n\r\n", false),
    (b"GET /x HTTP/1.0\r\n\r\n", false),
    (b"POST /x HTTP/1.1\r\nHost: a.test\r\nContent-Length: 3\r\nConnection: close\r\n\r\nabc", false),
    (b"HEAD / HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", false),
    (b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\nConnection: close\r\n\r\n", false),
    (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", false),
    (b"SSH-2.0-OpenSSH_9.2\r\n", true),
    (b"\x00\x00\x00\x00\x00\x00\x00\x00", true),
    (b"", true),
    (b"\x16", true),
    (b"\x16\x03\x01", true),
    (b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29", true),
    (b"\x16\x03\x01\xff\xff\x01\x00\x00\x29", true),
    (b"\x16\x03\x01\x00\x04\x00\x00\x00\x00", true),
    (b"\x16\x03\x01\x00\x04\x02\x00\x00\x00", true),
    (b"\x16\x03\x01\x00\x06\x01\x00\x00\x02\x03\x03", true),
    (b"\x15\x03\x01\x00\x02\x02\x28", true),
    (b"\x15\x03\x01\x00\x02\x01\x00", true),
    (b"\x14\x03\x01\x00\x01\x01", true),
    (b"\x17\x03\x03\x00\x05hello", true),
    (BARE_HELLO, true),
];

/// A client with the address's last number `from`.
pub fn draw_client(dice: &mut Dice, from: u8) -> Client {
    const RAW_SHARE: usize = 6;
    const RENEGOTIATING_SHARE: usize = 6;
    let door = match dice.below(8) {
        0 | 1 => Door::Stream,
        2 => Door::Preread,
        3 => Door::Upstream,
        _ => Door::Http,
    };
    if dice.below(RAW_SHARE) == 0 {
        let (bytes, ends) = RAW[dice.below(RAW.len())];
        // A session ends with the client's direction: how much of the answer passes is chance.
        let door = if ends && door == Door::Preread { Door::Http } else { door };
        return Client { door, from, kind: ClientKind::Raw { bytes, ends } };
    }
    let name = NAMES[dice.below(NAMES.len())];
    let version = VERSIONS[dice.below(VERSIONS.len())];
    let protocols = PROTOCOLS[dice.below(PROTOCOLS.len())];
    let algorithms = ALGORITHMS[dice.below(ALGORITHMS.len())];
    // The option with a cipher list comes once.
    let algorithms = if version.contains(&"-cipher") { &[] } else { algorithms };
    let identity = (dice.below(3) > 0).then(|| CLIENTS[dice.below(CLIENTS.len())]);
    let renegotiates = version.contains(&"-tls1_2") && dice.below(RENEGOTIATING_SHARE) == 0;
    let next = match dice.below(6) {
        // The program ends at once, with or without the tickets.
        _ if renegotiates => Next::End,
        0 | 1 => Next::Resume(name),
        2 => Next::Resume(NAMES[dice.below(NAMES.len())]),
        3 => Next::Early,
        _ => Next::End,
    };
    let hosts = (0..1 + dice.below(2)).map(|_| HOSTS[dice.below(HOSTS.len())]).collect();
    let options = [version, protocols, algorithms].concat();
    let is_h2 = protocols.iter().any(|word| word.starts_with("h2"));
    Client {
        door,
        from,
        kind: ClientKind::Tls(Handshake { name, options, identity, next, renegotiates, is_h2, hosts }),
    }
}
