//! The stream area in the same way: random directives in the places of a configuration with servers of every kind, the same
//! sessions to both, and what clients and the server behind saw, access log, error log and the words of `-t` compared.
//!
//! Lines of logs are compared in order of their text: sessions that overlap end in any order.

mod origin;
mod pool;

use crate::server::{Binary, Dirs, ServerRun};
use crate::{Dice, Plan, normal};
use origin::StreamOrigin;
use pool::{StreamFragment, StreamPlace};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpStream, UdpSocket};
use std::time::Duration;

/// Longer than anything takes; only a failure waits so long.
const PATIENCE: Duration = Duration::from_secs(8);
/// Maximum wait for a response to a datagram; none is a result, too.
const SHORT: Duration = Duration::from_millis(250);

/// A directive in its place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct StreamPut {
    text: &'static str,
    place: StreamPlace,
}

/// Client's action after sending its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Then {
    /// Reads until the server closes.
    Reads,
    /// Closes its side, and reads until the server closes.
    HalfCloses,
    /// Reads so much, and closes.
    Closes(usize),
    /// Waits for one datagram.
    Datagram,
}

/// One session.
struct StreamRequest {
    /// The last number of the address of the server.
    to: StreamPlace,
    bytes: &'static [u8],
    then: Then,
}

/// The hello of a TLS client: a name, `h2` among its protocols, nothing else that matters.
const HELLO: &[u8] =
    b"\x16\x03\x01\0\x4d\x01\0\0\x49\x03\x0300000000000000000000000000000000\0\0\x02\x13\x01\x01\0\0\x1e\
    \0\0\0\x0e\0\x0c\0\0\x09a.example\0\x10\0\x08\0\x06\x02h2\x02h3\nbye\n";

const ASKS: &[StreamRequest] = &[
    StreamRequest { to: StreamPlace::Return, bytes: b"", then: Then::Reads },
    StreamRequest { to: StreamPlace::Return, bytes: b"some words", then: Then::Closes(1000) },
    StreamRequest { to: StreamPlace::Proxy, bytes: b"one\nbye\n", then: Then::Reads },
    StreamRequest { to: StreamPlace::Proxy, bytes: b"long 70000\nbye\n", then: Then::Reads },
    StreamRequest { to: StreamPlace::Proxy, bytes: b"one\n", then: Then::Closes(8) },
    StreamRequest { to: StreamPlace::Proxy, bytes: HELLO, then: Then::Reads },
    StreamRequest {
        to: StreamPlace::Behind,
        bytes: b"PROXY TCP4 10.1.2.3 10.4.5.6 1111 2222\r\none\nbye\n",
        then: Then::Reads,
    },
    StreamRequest {
        to: StreamPlace::Behind,
        bytes: b"PROXY TCP6 2001:db8::1 ::1 1111 2222\r\nbye\n",
        then: Then::Reads,
    },
    StreamRequest { to: StreamPlace::Behind, bytes: b"PROXY UNKNOWN and more\r\none\nbye\n", then: Then::Reads },
    // (nginx looks at the characters of an address only, and takes "10.1.2" for one; it is refused here.)
    StreamRequest { to: StreamPlace::Behind, bytes: b"PROXY TCP4 10.1.2.3 10.4.5.6 1111 x\r\n", then: Then::Reads },
    StreamRequest { to: StreamPlace::Behind, bytes: b"GET / HTTP/1.0\r\n\r\n", then: Then::Reads },
    StreamRequest {
        to: StreamPlace::Behind,
        bytes:
            b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x13\x0a\x01\x02\x03\x0a\x04\x05\x06\x04\x57\x08\xae\x02\0\x04name\nbye\n",
        then: Then::Reads,
    },
    StreamRequest { to: StreamPlace::Behind, bytes: b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0one\nbye\n", then: Then::Reads },
    StreamRequest { to: StreamPlace::Datagrams, bytes: b"one", then: Then::Datagram },
    StreamRequest { to: StreamPlace::Answers, bytes: b"two", then: Then::Datagram },
];

/// Only where the end of one direction does not end the session, nothing is left to chance.
const HALF: StreamRequest = StreamRequest { to: StreamPlace::Proxy, bytes: b"one\ntwo\n", then: Then::HalfCloses };

impl std::fmt::Display for StreamRequest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}: \"{}\", then {:?}", self.to, self.bytes.escape_ascii(), self.then)
    }
}

impl StreamRequest {
    fn run(&self, port: u16) -> std::io::Result<Vec<u8>> {
        let address = (Ipv4Addr::new(127, 0, 0, self.to.host()), port);
        if self.then == Then::Datagram {
            let socket = UdpSocket::bind("127.0.0.1:0")?;
            socket.set_read_timeout(Some(SHORT))?;
            socket.connect(address)?;
            socket.send(self.bytes)?;
            let mut buf = [0; 2048];
            return Ok(match socket.recv(&mut buf) {
                Ok(n) => buf.get(..n).unwrap_or_default().to_vec(),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => b"<nothing>".to_vec(),
                Err(e) => format!("<{:?}>", e.kind()).into_bytes(),
            });
        }
        let mut stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        // A server that closed sends no more.
        let _ = stream.write_all(self.bytes);
        if self.then == Then::HalfCloses {
            let _ = stream.shutdown(Shutdown::Write);
        }
        let most = if let Then::Closes(most) = self.then { most } else { usize::MAX };
        let (mut all, mut buf) = (Vec::new(), [0; 16 * 1024]);
        while all.len() < most {
            match stream.read(&mut buf) {
                Ok(n @ 1..) => all.extend_from_slice(buf.get(..n).unwrap_or_default()),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                    all.extend_from_slice(b"<and nothing more for a long time>");
                    break;
                }
                // A connection that is reset behind unread bytes has ended like any other.
                _ => break,
            }
        }
        Ok(all)
    }
}

/// Directives that make up one configuration.
fn draw(dice: &mut Dice, pool: &[StreamFragment], first: &[StreamFragment]) -> Vec<StreamPut> {
    const MOST: usize = 5;
    let count = 1 + dice.below(MOST);
    let mut puts: Vec<StreamPut> = (0..count)
        .filter_map(|index| {
            let pool = if index == 0 { first } else { pool };
            let fragment = pool.get(dice.below(pool.len()))?;
            Some(StreamPut { text: fragment.text, place: *fragment.places.get(dice.below(fragment.places.len()))? })
        })
        .collect();
    // nginx accepts backup servers before a method without backups, and never uses them; in Tidegate they are an error.
    if puts.iter().any(|put| put.text.ends_with(" backup;")) {
        puts.retain(|put| !put.text.starts_with("hash ") && !put.text.starts_with("random"));
    }
    puts
}

/// The configuration with the directives in their places.
fn text(puts: &[StreamPut], dirs: &Dirs, port: u16, origin: &StreamOrigin, binary: &Binary) -> String {
    let put = |place: StreamPlace| -> String {
        let lines: Vec<&str> = puts.iter().filter(|put| put.place == place).map(|put| put.text).collect();
        lines.join("\n        ")
    };
    let dir = dirs.folder.display();
    let user = if binary.nginx { "user root root;" } else { "" };
    let [stream, group, behind, proxy, answer, datagrams, answers] = [
        StreamPlace::Stream,
        StreamPlace::Group,
        StreamPlace::Behind,
        StreamPlace::Proxy,
        StreamPlace::Return,
        StreamPlace::Datagrams,
        StreamPlace::Answers,
    ]
    .map(put);
    let conf = format!(
        "daemon off;
worker_processes 1;
{user}
pid {dir}/pid;
worker_shutdown_timeout 2s;
error_log {dir}/error.log info;
events {{ }}
stream {{
    log_format all '$protocol|$status|$remote_addr|$bytes_received|$bytes_sent|$server_addr|$server_name|$v|$w|'
                   '$proxy_protocol_addr|$proxy_protocol_port|$proxy_protocol_server_addr|$proxy_protocol_server_port|'
                   '$proxy_protocol_tlv_alpn|$realip_remote_addr|$ssl_preread_server_name|$ssl_preread_protocol|'
                   '$ssl_preread_alpn_protocols|$upstream_addr|$upstream_bytes_sent|$upstream_bytes_received|$limit_conn_status';
    access_log {dir}/access.log all;
    map $protocol $v {{ default v; }}
    map $protocol $w {{ default w; }}
    limit_conn_zone $remote_addr zone=one:1m;
    limit_conn_zone $server_addr zone=two:64k;
    upstream group {{
        server 127.0.0.1:BACKEND;
        {group}
    }}
    {stream}
    server {{
        listen 127.0.0.2:PORT;
        server_name proxy.example *.other;
        {proxy}
        proxy_pass group;
    }}
    server {{
        listen 127.0.0.3:PORT proxy_protocol;
        {behind}
        proxy_pass 127.0.0.1:BACKEND;
    }}
    server {{
        listen 127.0.0.4:PORT;
        {answer}
        return \"$remote_addr $server_addr $server_name $v $w $bytes_received $status $proxy_protocol_addr.\";
    }}
    server {{
        listen 127.0.0.5:PORT udp;
        proxy_responses 1;
        proxy_timeout 500ms;
        {datagrams}
        proxy_pass 127.0.0.1:BEHIND_UDP;
    }}
    server {{
        listen 127.0.0.6:PORT udp;
        {answers}
        return \"$protocol $v $w $bytes_received.\";
    }}
    # The last socket that listens: it tells that all do.
    server {{ listen 127.0.0.1:PORT; access_log off; error_log {dir}/quiet.log crit; return ready; }}
}}
"
    );
    conf.replace("PORT", &port.to_string())
        .replace("BACKEND", &origin.port.to_string())
        .replace("BEHIND_UDP", &origin.udp.to_string())
        .replace("DIR", &dir.to_string())
}

/// Ports of clients are chance.
pub fn without_ports(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut rest = line;
    while let Some(at) = rest.find(':') {
        let (before, behind) = rest.split_at(at + 1);
        out += before;
        let digits = behind.bytes().take_while(u8::is_ascii_digit).count();
        if digits >= 4 {
            out.push('N');
            rest = behind.get(digits..).unwrap_or_default();
        } else {
            rest = behind;
        }
    }
    out + rest
}

fn asks(puts: &[StreamPut]) -> Vec<&'static StreamRequest> {
    let half = |put: &StreamPut| {
        put.text == "proxy_half_close on;" && matches!(put.place, StreamPlace::Stream | StreamPlace::Proxy)
    };
    let off = puts.iter().any(|put| put.text == "proxy_half_close off;");
    let more = puts.iter().any(half) && !off;
    // A client that closes after the first response; later responses may be written or not.
    let header = |put: &StreamPut| {
        put.text == "proxy_protocol on;" && matches!(put.place, StreamPlace::Stream | StreamPlace::Proxy)
    };
    let closes = !more && !puts.iter().any(header);
    // Where the end of one direction does not end the session, how much is written to a client that has gone is chance.
    ASKS.iter().filter(|ask| closes || !matches!(ask.then, Then::Closes(_))).chain(more.then_some(&HALF)).collect()
}

fn one(plan: &Plan, origin: &StreamOrigin, puts: &[StreamPut]) -> Result<(bool, usize, Option<String>), String> {
    let asks = asks(puts);
    let run = |binary: &Binary| -> Result<ServerRun, String> {
        let all = |port: u16| -> Result<Vec<Vec<u8>>, String> {
            Ok(asks.iter().map(|ask| ask.run(port).unwrap_or_else(|e| format!("<{:?}>", e.kind()).into())).collect())
        };
        let conf = |dirs: &Dirs, port: u16| text(puts, dirs, port, origin, binary);
        let mut run = ServerRun::with(binary, &conf, &all, Some(origin.port))?;
        for lines in [&mut run.access, &mut run.errors] {
            lines.iter_mut().for_each(|line| *line = without_ports(line));
            lines.sort();
        }
        Ok(run)
    };
    let (theirs, ours) = (run(&plan.nginx)?, run(&plan.ours)?);
    let refused = theirs.refused.is_some() && ours.refused.is_some();
    Ok((refused, theirs.answers.len(), normal::first_difference(&asks, &theirs, &ours)))
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Differences, with the directives that cause them; or the reason why the run failed.
pub fn compare_stream(plan: &Plan) -> Result<String, String> {
    let origin = StreamOrigin::start().map_err(|e| format!("the server behind: {e}"))?;
    let (pool, with) = (pool::stream_fragments(plan.only.as_deref()), pool::stream_fragments(plan.with.as_deref()));
    if pool.is_empty() || with.is_empty() {
        return Err("no directive holds that text".into());
    }
    let (mut refused, mut twice_wrong, mut answers, mut differences) = (0, 0, 0, Vec::new());
    for index in 0..plan.count {
        if differences.len() >= plan.differences_max {
            break;
        }
        let seed = plan.seed.wrapping_add(index);
        let mut puts = draw(&mut Dice::new(seed), &pool, if plan.with.is_some() { &with } else { &pool });
        let (both, asked, found) = one(plan, &origin, &puts)?;
        refused += u64::from(both);
        answers += asked;
        let Some(mut words) = found else { continue };
        // Removes directives that the difference does not need.
        let mut at = 0;
        while at < puts.len() && puts.len() > 1 {
            let mut fewer = puts.clone();
            fewer.remove(at);
            match one(plan, &origin, &fewer)?.2 {
                Some(still) => (puts, words) = (fewer, still),
                None => at += 1,
            }
        }
        // Each of two directives alone is refused by both in the same words. Which of them is named is a matter of the order in which
        // blocks and lines are looked at.
        if both && puts.len() > 1 {
            twice_wrong += 1;
            continue;
        }
        let lines: Vec<String> =
            puts.iter().map(|put| format!("    {:<10} {}", format!("{:?}", put.place), put.text)).collect();
        differences.push(format!("seed {seed}:\n{}\n{words}", lines.join("\n")));
    }
    let summary = format!(
        "stream: {} configurations ({refused} refused by both, {twice_wrong} for another of two reasons), {answers} sessions compared with {}",
        plan.count, plan.nginx.shown
    );
    crate::result(summary, &differences)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_clients_are_chance() {
        assert_eq!(
            without_ports("client: 127.0.0.1:40312, at 12:30 [::1]:53211"),
            "client: 127.0.0.1:N, at 12:30 [::1]:N"
        );
    }

    #[test]
    fn the_hello_is_one() {
        // Lengths of the record, of the message and of its extensions.
        let record = HELLO.strip_suffix(b"\nbye\n").expect("a line behind it");
        assert_eq!(usize::from(record[4]) + 5, record.len());
        assert_eq!(usize::from(record[8]) + 9, record.len());
        assert_eq!(usize::from(record[51]) + 52, record.len());
    }
}
