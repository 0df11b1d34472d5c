//! The bounds of docs/attacks.md, measured from outside: what the worker process holds ([`PrivateMemory`]) and computes (user and
//! system time) for the bytes that one attacker has sent. `cargo xtask bounds` runs this against the release build with whole
//! amounts and prints the table; `cargo test` runs it with small ones.
//!
//! Each row has its own bounds. Builds with debug assertions are slower than release builds, so their bounds of time
//! are wider (`SLOWNESS`).

use crate::support;

use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::http2::{self, CONTINUATION, DATA, HEADERS, SETTINGS, frame};
use support::{Running, Site, free_port, pace, private_kb, status_kb, wait_within};

/// A peer that reads nothing for this long has stopped reading or has closed.
const STALL: Duration = Duration::from_millis(300);
/// Longest wait for an origin: the whole amounts are a minute's work for a slow build.
const PATIENCE: Duration = Duration::from_secs(600);
/// Factor for builds with debug assertions on a busy machine.
pub const SLOWNESS: u64 = if cfg!(debug_assertions) { 8 } else { 1 };
/// Memory that a thread needs once, for buffers and tables. Development builds run a part of the volume ([`amount`]).
pub const WARM_KB: u64 = if cfg!(debug_assertions) { 2048 } else { 4096 };

pub static ALONE: Mutex<()> = Mutex::new(());

/// Volume of an attack: complete with TIDEGATE_BOUNDS=full, otherwise a part.
pub fn amount(full: usize) -> usize {
    if std::env::var("TIDEGATE_BOUNDS").is_ok_and(|said| said == "full") { full } else { full / 16 }
}

struct Bound {
    /// Protocol, who attacks, and how.
    name: &'static str,
    /// Kilobytes that may be held beyond [`WARM_KB`], for all its connections.
    held_kb: u64,
    /// Milliseconds of CPU for each megabyte that was sent; at least 100 for all.
    millis_a_megabyte: u64,
}

/// User and system time of a process.
pub fn cpu_millis(pid: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a process");
    let fields: Vec<&str> = stat.rsplit(") ").next().expect("fields").split(' ').collect();
    // In hundredths of a second: utime and stime are fields 14 and 15 of proc(5), the third is the first here.
    [11, 12].iter().map(|at| fields[*at].parse::<u64>().expect("ticks")).sum::<u64>() * 10
}

/// The peak of [`private_kb`]. The kernel keeps the peak of all resident pages only, so that new pages of code hide memory that was freed
/// before: a thread looks meanwhile.
pub struct PrivateMemory {
    pid: u32,
    /// Kilobytes at the beginning.
    held_kb: u64,
    looks: Arc<Looks>,
}

/// Looks of the thread of [`PrivateMemory`].
#[derive(Default)]
struct Looks {
    most_kb: AtomicU64,
    is_over: AtomicBool,
}

impl PrivateMemory {
    /// Begins to count the peak anew.
    pub fn begin(pid: u32) -> PrivateMemory {
        std::fs::write(format!("/proc/{pid}/clear_refs"), "5").expect("the peak is reset");
        let looks = Arc::new(Looks::default());
        let of_thread = Arc::clone(&looks);
        std::thread::spawn(move || {
            while !of_thread.is_over.load(Ordering::Relaxed) {
                of_thread.most_kb.fetch_max(private_kb(pid), Ordering::Relaxed);
                pace(Duration::from_millis(2));
            }
        });
        PrivateMemory { pid, held_kb: private_kb(pid), looks }
    }
    /// Kilobytes that the process has held at most, beyond those of the beginning.
    pub fn growth_kb(&self) -> u64 {
        let least = status_kb(self.pid, "VmHWM:").saturating_sub(status_kb(self.pid, "RssFile:"));
        let seen = self.looks.most_kb.load(Ordering::Relaxed).max(private_kb(self.pid));
        seen.max(least).saturating_sub(self.held_kb)
    }
}

impl Drop for PrivateMemory {
    fn drop(&mut self) {
        self.looks.is_over.store(true, Ordering::Relaxed);
    }
}

/// Measures an attack, which returns the number of bytes sent. The server must still respond at `port` afterwards.
fn measure(running: &Running<'_>, port: u16, bound: &Bound, attack: impl FnOnce() -> u64) {
    let worker = running.worker();
    answers(port);
    let (memory, cpu) = (PrivateMemory::begin(worker), cpu_millis(worker));
    let sent = attack();
    answers(port);
    let held = memory.growth_kb();
    let cpu = cpu_millis(worker) - cpu;
    let allowed_cpu = (bound.millis_a_megabyte * sent / 1_000_000).max(100) * SLOWNESS;
    println!("| {} | {} | {held} | {} | {cpu} | {allowed_cpu} |", bound.name, sent / 1024, bound.held_kb + WARM_KB,);
    assert!(held <= bound.held_kb + WARM_KB, "{}: {held} KB are held for {sent} bytes", bound.name);
    assert!(cpu <= allowed_cpu, "{}: {cpu} ms of CPU for {sent} bytes", bound.name);
}

pub fn answers(port: u16) {
    let mut stream = connect(port);
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a time-out");
    stream.write_all(b"GET /answer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("an answer");
    assert!(text.ends_with("here"), "{text}");
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("connected");
    stream.set_write_timeout(Some(STALL)).expect("a time-out");
    stream
}

/// Sends as much as is taken; how much that was.
fn pour(stream: &mut TcpStream, bytes: &[u8]) -> u64 {
    let mut at = 0;
    while at < bytes.len() {
        match stream.write(&bytes[at..(at + 65_536).min(bytes.len())]) {
            Ok(n) => at += n,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(_) => break,
        }
    }
    at as u64
}

fn http2(port: u16) -> http2::Client {
    let client = http2::Client::connect(port);
    client.stream.set_write_timeout(Some(STALL)).expect("a time-out");
    client
}

fn conf(port: u16, more: &str) -> String {
    format!(
        "http {{ access_log off; server {{ listen 127.0.0.1:{port}; http2 on; client_max_body_size 0;
         add_header X-Long {} always; location /answer {{ return 200 here; }} location /none {{ return 204; }} {more} }} }}",
        "x".repeat(1000)
    )
}

fn site(conf: &str) -> Site {
    let site = Site::new("", "");
    site.write(
        "conf/nginx.conf",
        &format!("error_log logs/error.log crit; daemon off; worker_processes 1; events {{ worker_connections 4096; }} {conf}"),
    );
    site
}

#[test]
fn clients_of_http1() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (port, nobody) = (free_port(), TcpListener::bind("127.0.0.1:0").expect("bound"));
    let origin = nobody.local_addr().expect("address").port();
    let site = site(&conf(port, &format!("location /on {{ proxy_pass http://127.0.0.1:{origin}; }}")));
    let running = site.start();
    let bound = Bound {
        name: "HTTP/1, clients: heads that never end, 100 connections",
        held_kb: 100 * 40,
        millis_a_megabyte: 60,
    };
    measure(&running, port, &bound, || {
        let mut head = b"GET / HTTP/1.1\r\n".to_vec();
        for n in 0..12 {
            head.extend_from_slice(format!("X-{n}: {}\r\n", "x".repeat(2000)).as_bytes());
        }
        let mut all: Vec<_> = (0..100).map(|_| connect(port)).collect();
        all.iter_mut().map(|one| pour(one, &head)).sum()
    });
    let bound = Bound {
        name: "HTTP/1, clients: requests in one write, answers not read",
        held_kb: 2048,
        millis_a_megabyte: 60,
    };
    measure(&running, port, &bound, || {
        let requests = b"GET /none HTTP/1.1\r\nHost: a\r\n\r\n".repeat(amount(800_000));
        pour(&mut connect(port), &requests)
    });
    let bound =
        Bound { name: "HTTP/1, clients: a body in chunks of one octet", held_kb: 16 * 1024, millis_a_megabyte: 100 };
    measure(&running, port, &bound, || {
        let mut stream = connect(port);
        let head = b"POST /on HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
        pour(&mut stream, head) + pour(&mut stream, &b"1\r\nx\r\n".repeat(amount(4_000_000)))
    });
    running.quit_now();
}

pub trait QuitNow {
    fn quit_now(self);
}
impl QuitNow for Running<'_> {
    fn quit_now(self) {
        self.signal("TERM");
        let site = self.site;
        assert!(self.ended().success(), "{}", site.log());
        site.assert_no_alerts();
    }
}

#[test]
fn clients_of_http2() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (port, nobody) = (free_port(), TcpListener::bind("127.0.0.1:0").expect("bound"));
    let origin = nobody.local_addr().expect("address").port();
    let more = format!("location /on {{ proxy_pass http://127.0.0.1:{origin}; proxy_request_buffering off; }}");
    let site = site(&conf(port, &more));
    let running = site.start();
    let bound = Bound {
        name: "HTTP/2, clients: answers without bodies that are not read, 10 connections",
        held_kb: 10 * 1024,
        millis_a_megabyte: 300,
    };
    measure(&running, port, &bound, || {
        let each = |_| {
            let mut client = http2(port);
            let mut all = Vec::new();
            for n in 0..amount(60_000) as u32 {
                let block = client.block("/none", &[]);
                all.extend_from_slice(&frame(HEADERS, 5, 2 * n + 1, &block));
            }
            let sent = pour(&mut client.stream, &all);
            (client, sent)
        };
        let all: Vec<_> = (0..10).map(each).collect();
        all.iter().map(|(_, sent)| sent).sum()
    });
    let bound = Bound {
        name: "HTTP/2, clients: bodies in frames of one octet, 100 streams",
        held_kb: 40 * 1024,
        millis_a_megabyte: 60,
    };
    measure(&running, port, &bound, || {
        let mut client = http2(port);
        client.send(&frame(SETTINGS, 1, 0, &[]));
        let mut all = Vec::new();
        for n in 0..100 {
            let block = client.block("/on", &[]);
            all.extend_from_slice(&frame(HEADERS, 4, 2 * n + 1, &block));
        }
        for n in 0..100 {
            all.extend_from_slice(&frame(DATA, 0, 2 * n + 1, b"x").repeat(amount(60_000)));
        }
        pour(&mut client.stream, &all)
    });
    let bound =
        Bound { name: "HTTP/2, clients: half a frame each, 50 connections", held_kb: 50 * 200, millis_a_megabyte: 60 };
    measure(&running, port, &bound, || {
        let mut large = frame(HEADERS, 4, 1, &vec![0x82; 120_000]);
        large.truncate(119_000);
        let mut all: Vec<_> = (0..50).map(|_| http2(port)).collect();
        all.iter_mut().map(|client| pour(&mut client.stream, &large)).sum()
    });
    let bound = Bound { name: "HTTP/2, clients: SETTINGS of 2,700 settings", held_kb: 2048, millis_a_megabyte: 60 };
    measure(&running, port, &bound, || {
        let mut client = http2(port);
        let one = frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255].repeat(2700));
        pour(&mut client.stream, &one.repeat(amount(2_072)))
    });
    let bound = Bound { name: "HTTP/2, clients: header blocks that do not end", held_kb: 2048, millis_a_megabyte: 60 };
    measure(&running, port, &bound, || {
        let mut client = http2(port);
        let mut all = frame(HEADERS, 0, 1, &[0x82]);
        all.extend_from_slice(&frame(CONTINUATION, 0, 1, &[0x82; 2000]).repeat(amount(10_000)));
        pour(&mut client.stream, &all)
    });
    let bound = Bound { name: "HTTP/2, clients: PING, answers not read", held_kb: 2048, millis_a_megabyte: 60 };
    measure(&running, port, &bound, || {
        let mut client = http2(port);
        pour(&mut client.stream, &frame(http2::PING, 0, 0, &[0; 8]).repeat(amount(1_000_000)))
    });
    running.quit_now();
}

#[test]
fn clients_of_tls() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (port, secure) = (free_port(), free_port());
    let key = rcgen::generate_simple_self_signed(["localhost".to_string()]).expect("a certificate");
    let conf = format!(
        "http {{ access_log off; ssl_certificate cert.pem; ssl_certificate_key key.pem;
         server {{ listen 127.0.0.1:{port}; listen 127.0.0.1:{secure} ssl; return 200 here; }} }}"
    );
    let site = site(&conf);
    site.write("conf/cert.pem", &key.cert.pem());
    site.write("conf/key.pem", &key.signing_key.serialize_pem());
    let running = site.start();
    let bound = Bound {
        name: "TLS, clients: ClientHellos that never end, 100 connections",
        held_kb: 100 * 200,
        millis_a_megabyte: 60,
    };
    measure(&running, port, &bound, || {
        // A message of 65,000 octets in records of 16,000.
        let mut hello = vec![1, 0, 0xfd, 0xe8, 3, 3];
        hello.resize(60_000, 0);
        let records: Vec<u8> = hello
            .chunks(16_000)
            .flat_map(|part| [&[0x16, 3, 1], &(part.len() as u16).to_be_bytes()[..], part].concat())
            .collect();
        let mut all: Vec<_> = (0..100).map(|_| connect(secure)).collect();
        all.iter_mut().map(|one| pour(one, &records)).sum()
    });
    running.quit_now();
}

#[test]
fn sessions_of_the_stream_area() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let (port, tcp, udp) = (free_port(), free_port(), free_port());
    let silent = TcpListener::bind("127.0.0.1:0").expect("bound");
    let closed = free_port();
    let more = format!(
        "stream {{ server {{ listen 127.0.0.1:{tcp}; proxy_pass 127.0.0.1:{}; }}
         server {{ listen 127.0.0.1:{udp} udp; proxy_pass 127.0.0.1:{closed}; }} }}",
        silent.local_addr().expect("address").port()
    );
    let site = site(&(conf(port, "") + &more));
    let running = site.start();
    let bound = Bound {
        name: "stream, clients: a server that does not read, 50 connections",
        held_kb: 50 * 100,
        millis_a_megabyte: 60,
    };
    measure(&running, port, &bound, || {
        let bytes = vec![b'x'; amount(16 << 20)];
        let mut all: Vec<_> = (0..50).map(|_| connect(tcp)).collect();
        all.iter_mut().map(|one| pour(one, &bytes)).sum()
    });
    let bound = Bound {
        name: "UDP, clients: datagrams for a server that is not there",
        held_kb: 16 * 1024,
        millis_a_megabyte: 100,
    };
    measure(&running, port, &bound, || {
        let clients: Vec<_> = (0..100).map(|_| UdpSocket::bind("127.0.0.1:0").expect("bound")).collect();
        let mut sent = 0;
        for _ in 0..amount(10_000) {
            for client in &clients {
                sent += client.send_to(&[b'x'; 100], ("127.0.0.1", udp)).unwrap_or(0) as u64;
            }
        }
        sent
    });
    running.quit_now();
}

/// An origin that reads a little and then repeats a text as long as its peer reads; returns the number of bytes sent.
fn flood(first: Vec<u8>, again: Vec<u8>, most: usize) -> (u16, Arc<AtomicU64>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
    let port = listener.local_addr().expect("address").port();
    let sent = Arc::new(AtomicU64::new(0));
    let count = sent.clone();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = listener.accept() {
            stream.set_write_timeout(Some(STALL)).expect("a time-out");
            let mut some = [0; 4096];
            let _ = stream.read(&mut some);
            let mut poured = pour(&mut stream, &first);
            let many = again.repeat((1 << 20) / again.len() + 1);
            while poured < most as u64 {
                match pour(&mut stream, &many) {
                    n if n == many.len() as u64 => poured += n,
                    n => {
                        poured += n;
                        break;
                    }
                }
            }
            count.fetch_add(poured, Ordering::Relaxed);
        }
    });
    (port, sent)
}

/// A client that sends a request and does not read, until the origin has sent everything.
fn ask(port: u16, path: &str, sent: &AtomicU64) -> u64 {
    let mut client = connect(port);
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).expect("sent");
    wait_within(PATIENCE, path, || match sent.load(Ordering::Relaxed) {
        0 => Err("the origin has not finished"),
        n => Ok(n),
    })
}

#[test]
fn bounds_of_servers_hold() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let mut encoder = wire_h2::Encoder::stateless();
    let mut block = |fields: &[(&str, &str)]| {
        let mut out = Vec::new();
        fields.iter().for_each(|(name, value)| encoder.field(name.as_bytes(), value.as_bytes(), &mut out));
        out
    };
    let hello = frame(SETTINGS, 0, 0, &[]);
    let early = frame(HEADERS, 4, 1, &block(&[(":status", "103"), ("x-a", "b")]));
    let head = frame(HEADERS, 4, 1, &block(&[(":status", "200"), ("content-type", "application/grpc")]));
    let most = amount(64 << 20);
    let interim = b"HTTP/1.1 103 Early Hints\r\nX-A: b\r\n\r\n".to_vec();
    let record = |kind: u8, content: &[u8]| {
        let mut out = vec![1, kind, 0, 1];
        out.extend_from_slice(&(content.len() as u16).to_be_bytes());
        out.extend_from_slice(&[0, 0]);
        out.extend_from_slice(content);
        out
    };
    let rows = [
        ("HTTP/1, servers: heads before the answer without end", "proxy_pass http://", Vec::new(), interim, 1024),
        (
            "HTTP/1, servers: a head that never ends",
            "proxy_pass http://",
            b"HTTP/1.1 200 OK\r\n".to_vec(),
            b"X-A: b\r\n".to_vec(),
            1024,
        ),
        (
            "HTTP/1, servers: chunks of one octet",
            "proxy_pass http://",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_vec(),
            b"1\r\nx\r\n".to_vec(),
            16 * 1024,
        ),
        ("HTTP/2, servers: heads before the answer without end", "grpc_pass grpc://", hello.clone(), early, 2048),
        (
            "HTTP/2, servers: a body in frames of one octet",
            "grpc_pass grpc://",
            [hello.clone(), head].concat(),
            frame(DATA, 0, 1, b"x"),
            4096,
        ),
        (
            "HTTP/2, servers: SETTINGS without end",
            "grpc_pass grpc://",
            hello.clone(),
            frame(SETTINGS, 0, 0, &[0, 4, 0, 0, 255, 255].repeat(2700)),
            2048,
        ),
        ("FastCGI, servers: error output without end", "fastcgi_pass ", Vec::new(), record(7, &[b'e'; 1000]), 4096),
        (
            "FastCGI, servers: records of one octet",
            "fastcgi_pass ",
            record(6, b"Status: 200\r\n\r\n"),
            record(6, b"x"),
            16 * 1024,
        ),
    ];
    let port = free_port();
    let mut locations = String::new();
    let mut origins = Vec::new();
    for (n, (name, pass, first, again, held_kb)) in rows.into_iter().enumerate() {
        let (origin, sent) = flood(first, again, most);
        locations += &format!("location = /{n} {{ early_hints 1; {pass}127.0.0.1:{origin}; }}\n");
        origins.push((Bound { name, held_kb, millis_a_megabyte: 60 }, sent));
    }
    let site = site(&conf(port, &locations));
    let running = site.start();
    for (n, (bound, sent)) in origins.iter().enumerate() {
        measure(&running, port, bound, || ask(port, &format!("/{n}"), sent));
    }
    running.quit_now();
}

/// A PNG of a single grey, whose rows compress to almost nothing.
pub fn grey_png(side: u32) -> Vec<u8> {
    fn chunk(kind: &[u8; 4], data: &[u8], out: &mut Vec<u8>) {
        let mut crc = flate2::Crc::new();
        crc.update(kind);
        crc.update(data);
        out.extend_from_slice(&(data.len() as u32).to_be_bytes());
        out.extend_from_slice(kind);
        out.extend_from_slice(data);
        out.extend_from_slice(&crc.sum().to_be_bytes());
    }
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let row = [&[0][..], &vec![128; side as usize * 3]].concat();
    (0..side).for_each(|_| packed.write_all(&row).expect("packed"));
    let packed = packed.finish().expect("packed");
    let mut out = b"\x89PNG\r\n\x1a\n".to_vec();
    // Eight bits of red, green and blue, not interlaced.
    chunk(b"IHDR", &[&side.to_be_bytes()[..], &side.to_be_bytes(), &[8, 2, 0, 0, 0]].concat(), &mut out);
    chunk(b"IDAT", &packed, &mut out);
    chunk(b"IEND", &[], &mut out);
    out
}

#[test]
fn bounds_of_pictures_hold() {
    let _alone = ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    let port = free_port();
    let more = "location /picture { root html; image_filter resize 100 100; image_filter_buffer 8m; }";
    let site = site(&conf(port, more));
    let picture = grey_png(if amount(16) == 16 { 6000 } else { 1500 });
    std::fs::create_dir_all(site.path("html/picture")).expect("a folder");
    std::fs::write(site.path("html/picture/grey.png"), &picture).expect("a file");
    let running = site.start();
    // Its pixels are 144 MB, of which a row is held at a time.
    let bound = Bound { name: "Pictures: a PNG of 36 million pixels", held_kb: 8 * 1024, millis_a_megabyte: 20_000 };
    measure(&running, port, &bound, || {
        let mut stream = connect(port);
        stream.set_read_timeout(Some(PATIENCE)).expect("a time-out");
        stream.write_all(b"GET /picture/grey.png HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").expect("sent");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("an answer");
        assert!(answer.starts_with(b"HTTP/1.1 200 "), "{}", String::from_utf8_lossy(&answer));
        picture.len() as u64
    });
    running.quit_now();
}
