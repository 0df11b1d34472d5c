//! Messages to a syslog server over UDP or a UNIX-domain socket (RFC 3164; nginx: `ngx_syslog.c`).
//! A message that cannot be sent at once is dropped and reported: logging never delays a request.

use crate::clock;
use socket2::{Domain, SockAddr, Socket, Type};
use std::fmt;
use std::io;
use std::net::ToSocketAddrs;
use std::sync::{Mutex, PoisonError};

const FACILITIES: [&str; 24] = [
    "kern", "user", "mail", "daemon", "auth", "intern", "lpr", "news", "uucp", "clock", "authpriv", "ftp", "ntp",
    "audit", "alert", "cron", "local0", "local1", "local2", "local3", "local4", "local5", "local6", "local7",
];
const SEVERITIES: [&str; 8] = ["emerg", "alert", "crit", "error", "warn", "notice", "info", "debug"];

const LOCAL7: u8 = 23;
const INFO: u8 = 6;
const PORT: u16 = 514;
const TAG_BYTES_MAX: usize = 32;

pub struct SyslogTarget {
    server: String,
    address: SockAddr,
    facility: u8,
    severity: u8,
    tag: String,
    hostname: String,
    socket: Mutex<Option<Socket>>,
}

impl fmt::Debug for SyslogTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "syslog:server={},facility={},tag={}", self.server, self.facility, self.tag)
    }
}

impl SyslogTarget {
    /// Reads the parameters of `syslog:`: `server=...,facility=...,severity=...,tag=...,nohostname`. Fails with nginx's
    /// message.
    pub fn parse(parameters: &str) -> Result<SyslogTarget, String> {
        let (mut server, mut facility, mut severity, mut tag, mut nohostname) = (None, None, None, None, false);
        for parameter in parameters.split(',') {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            let index = |list: &[&str]| match list.iter().position(|word| *word == value) {
                Some(index) => Ok(index as u8),
                None => Err(format!("unknown syslog {name} \"{value}\"")),
            };
            let once = |given: bool| if given { Err(format!("duplicate syslog \"{name}\"")) } else { Ok(()) };
            match name {
                "server" => {
                    once(server.is_some())?;
                    server = Some((value.to_string(), address(value)?));
                }
                "facility" => {
                    once(facility.is_some())?;
                    facility = Some(index(&FACILITIES)?);
                }
                "severity" => {
                    once(severity.is_some())?;
                    severity = Some(index(&SEVERITIES)?);
                }
                "tag" => {
                    once(tag.is_some())?;
                    if value.len() > TAG_BYTES_MAX {
                        return Err("syslog tag length exceeds 32".into());
                    }
                    if !value.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'_') {
                        return Err("syslog \"tag\" only allows alphanumeric characters and underscore".into());
                    }
                    tag = Some(value.to_string());
                }
                "nohostname" if parameter == name => nohostname = true,
                _ => return Err(format!("unknown syslog parameter \"{parameter}\"")),
            }
        }
        let (server, address) = server.ok_or("no syslog server specified")?;
        let hostname = if nohostname {
            String::new()
        } else {
            rustix::system::uname().nodename().to_string_lossy().to_ascii_lowercase()
        };
        Ok(SyslogTarget {
            server,
            address,
            facility: facility.unwrap_or(LOCAL7),
            severity: severity.unwrap_or(INFO),
            tag: tag.unwrap_or_else(|| "nginx".into()),
            hostname,
            socket: Mutex::new(None),
        })
    }

    pub fn severity(&self) -> u8 {
        self.severity
    }

    pub fn server(&self) -> &str {
        &self.server
    }

    /// Sends a message without a line break; `severity` is 0 (emerg) to 7 (debug). After an error the next message uses
    /// a new socket.
    pub fn send(&self, severity: u8, message: &[u8]) -> io::Result<()> {
        let mut packet = Vec::with_capacity(64 + self.hostname.len() + self.tag.len() + message.len());
        packet.extend_from_slice(format!("<{}>", self.facility * 8 + severity.min(7)).as_bytes());
        clock::with_cached(|strings| packet.extend_from_slice(&strings.syslog));
        for part in [&self.hostname, &self.tag] {
            if !part.is_empty() {
                packet.push(b' ');
                packet.extend_from_slice(part.as_bytes());
            }
        }
        packet.extend_from_slice(b": ");
        packet.extend_from_slice(message);
        let mut slot = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(socket) = &*slot {
            match socket.send(&packet) {
                Ok(_) => return Ok(()),
                // The server is slow: a new socket would not help.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Err(e),
                // The server was probably restarted: retries below.
                Err(_) => *slot = None,
            }
        }
        let socket = self.connect()?;
        socket.send(&packet)?;
        *slot = Some(socket);
        Ok(())
    }

    fn connect(&self) -> io::Result<Socket> {
        let socket = Socket::new(Domain::from(i32::from(self.address.family())), Type::DGRAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&self.address)?;
        Ok(socket)
    }
}

/// Parses an address with or without a port, `[v6]`, `unix:PATH`, or a host name, which is resolved now.
fn address(text: &str) -> Result<SockAddr, String> {
    if let Some(path) = text.strip_prefix("unix:") {
        if path.is_empty() {
            return Err(format!("no path in the unix domain socket in syslog server \"{text}\""));
        }
        return SockAddr::unix(path).map_err(|_| format!("too long path in the unix domain socket \"{text}\""));
    }
    if text.is_empty() {
        return Err(format!("no host in syslog server \"{text}\""));
    }
    if text.starts_with('[') && !text.contains(']') {
        return Err(format!("invalid host in syslog server \"{text}\""));
    }
    let has_port = match text.rfind(':') {
        Some(colon) if text.starts_with('[') => text[..colon].ends_with(']'),
        found => found.is_some(),
    };
    if has_port
        && text
            .rsplit(':')
            .next()
            .and_then(|port| port.parse::<u16>().ok().filter(|_| !port.starts_with('+')))
            .is_none_or(|port| port == 0)
    {
        return Err(format!("invalid port in syslog server \"{text}\""));
    }
    let whole = if has_port { text.to_string() } else { format!("{text}:{PORT}") };
    let found = whole.to_socket_addrs().ok().and_then(|mut addresses| addresses.next());
    found.map(SockAddr::from).ok_or_else(|| format!("host not found in syslog server \"{text}\""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::os::unix::net::UnixDatagram;

    #[test]
    fn complaints_in_nginx_words() {
        for (parameters, want) in [
            ("facility=user", "no syslog server specified"),
            ("server=127.0.0.1,server=127.0.0.2", "duplicate syslog \"server\""),
            ("server=127.0.0.1,facility=foo", "unknown syslog facility \"foo\""),
            ("server=127.0.0.1,severity=loud", "unknown syslog severity \"loud\""),
            ("server=127.0.0.1,tag=a-b", "syslog \"tag\" only allows alphanumeric characters and underscore"),
            ("server=127.0.0.1,tag=123456789012345678901234567890123", "syslog tag length exceeds 32"),
            ("server=127.0.0.1,colour=red", "unknown syslog parameter \"colour=red\""),
            ("server=127.0.0.1:0", "invalid port in syslog server \"127.0.0.1:0\""),
        ] {
            assert_eq!(SyslogTarget::parse(parameters).expect_err(parameters), want);
        }
    }

    #[test]
    fn a_message_over_udp() {
        let server = UdpSocket::bind("127.0.0.1:0").expect("bind");
        let port = server.local_addr().expect("address").port();
        let text = format!("server=127.0.0.1:{port},facility=user,severity=debug,tag=SEE_ME,nohostname");
        let target = SyslogTarget::parse(&text).expect("parses");
        assert_eq!(target.severity(), 7);
        target.send(3, b"hello").expect("sent");
        let mut buffer = [0; 200];
        let length = server.recv(&mut buffer).expect("received");
        let line = String::from_utf8_lossy(&buffer[..length]).into_owned();
        assert!(line.starts_with("<11>") && line.ends_with(" SEE_ME: hello"), "{line}");
    }

    #[test]
    fn a_restarted_server_loses_no_message() {
        let folder = std::env::temp_dir().join(format!("tidegate-syslog-{}", std::process::id()));
        let _ = std::fs::remove_file(&folder);
        let first = UnixDatagram::bind(&folder).expect("bind");
        let target = SyslogTarget::parse(&format!("server=unix:{}", folder.display())).expect("parses");
        target.send(6, b"one").expect("sent");
        drop(first);
        std::fs::remove_file(&folder).expect("unlink");
        assert!(target.send(6, b"nobody listens").is_err());
        let second = UnixDatagram::bind(&folder).expect("bind again");
        target.send(6, b"two").expect("sent");
        let mut buffer = [0; 200];
        let length = second.recv(&mut buffer).expect("received");
        assert!(buffer[..length].ends_with(b"nginx: two"));
        std::fs::remove_file(&folder).expect("unlink");
    }
}
