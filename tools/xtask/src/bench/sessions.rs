//! Sessions of TCP and UDP through a proxy: what a megabyte costs, what a datagram and its answer cost, what a session that is
//! silent costs in memory. Client and server behind are threads of this process, on processor 1.

use super::report::BenchOutcome;
use super::scenario::Scenario;
use super::server::BenchServer;
use super::turns::Turn;
use super::{BenchOptions, in_pairs};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// Kind of sessions in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionKind {
    Tcp,
    Udp,
}

/// Unit of TCP turns: megabytes.
const MEGABYTE: f64 = 1e6;
/// In flight, per client.
const WINDOW: usize = 8;
/// In octets.
const DATAGRAM: usize = 100;
/// Timeout of a datagram.
const LOST: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(20);

/// Server-side connections that are never read.
type HeldStreams = Arc<Mutex<Vec<TcpStream>>>;

/// Upstream server; runs until the process ends.
fn origin(kind: SessionKind, idle: Option<HeldStreams>) -> std::io::Result<u16> {
    if kind == SessionKind::Udp {
        let socket = UdpSocket::bind("127.0.0.1:0")?;
        let port = socket.local_addr()?.port();
        std::thread::spawn(move || {
            let mut buf = [0; 2048];
            while let Ok((n, from)) = socket.recv_from(&mut buf) {
                let _ = socket.send_to(buf.get(..n).unwrap_or_default(), from);
            }
        });
        return Ok(port);
    }
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let port = listener.local_addr()?.port();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            if let Some(held) = &idle {
                let mut byte = [0];
                let _ = stream.set_read_timeout(Some(PATIENCE));
                let _ = stream.read_exact(&mut byte).and_then(|()| stream.write_all(&byte));
                if let Ok(mut held) = held.lock() {
                    held.push(stream);
                }
            } else {
                std::thread::spawn(move || {
                    let piece = vec![b'x'; 256 * 1024];
                    while stream.write_all(&piece).is_ok() {}
                });
            }
        }
    });
    Ok(port)
}

/// Returns pairs of turns, or of memory sizes.
pub fn measure_sessions(
    scenario: &Scenario,
    kind: SessionKind,
    binary: &Path,
    options: &BenchOptions,
) -> Result<BenchOutcome, String> {
    // Threads inherit it; the servers are pinned by `taskset`.
    let before = rustix::thread::sched_getaffinity(None).map_err(|e| e.to_string())?;
    let mut client = rustix::thread::CpuSet::new();
    client.set(1);
    rustix::thread::sched_setaffinity(None, &client).map_err(|e| e.to_string())?;
    let outcome = on_client(scenario, kind, binary, options);
    let _ = rustix::thread::sched_setaffinity(None, &before);
    outcome
}

fn on_client(
    scenario: &Scenario,
    kind: SessionKind,
    binary: &Path,
    options: &BenchOptions,
) -> Result<BenchOutcome, String> {
    let held = HeldStreams::default();
    let port = origin(kind, scenario.idle.then(|| held.clone())).map_err(|e| format!("the server behind: {e}"))?;
    let haproxy = Path::new("haproxy");
    let haproxy_conf = scenario.haproxy.as_ref().filter(|_| super::is_there("haproxy"));
    if scenario.idle {
        if let Some(conf) = haproxy_conf {
            let each = bytes_each(scenario, BenchServer::haproxy(scenario, conf, haproxy, port)?, &held)?;
            eprintln!("    HAProxy: {each:.0} B");
        }
        let mut out = Vec::new();
        for _ in 0..options.pairs {
            let theirs = bytes_each(scenario, BenchServer::start(scenario, &options.nginx, "nginx", port)?, &held)?;
            out.push((theirs, bytes_each(scenario, BenchServer::start(scenario, binary, "tidegate", port)?, &held)?));
        }
        return Ok(BenchOutcome::Memory(out));
    }
    let ours = BenchServer::start(scenario, binary, "tidegate", port)?;
    let theirs = BenchServer::start(scenario, &options.nginx, "nginx", port)?;
    let third = haproxy_conf.map(|conf| BenchServer::haproxy(scenario, conf, haproxy, port)).transpose()?;
    in_pairs(&ours, &theirs, third.as_slice(), options.pairs, &|server| turn(scenario, kind, server, options.seconds))
}

/// Counts megabytes or datagrams.
fn turn(scenario: &Scenario, kind: SessionKind, server: &BenchServer, seconds: u64) -> Result<Turn, String> {
    let count = Arc::new(AtomicU64::new(0));
    let (before, began) = (server.cpu_ns(), Instant::now());
    let until = began + Duration::from_secs(seconds);
    let threads: Vec<_> = (0..scenario.connections)
        .map(|_| {
            let (count, port) = (count.clone(), server.port);
            std::thread::spawn(move || match kind {
                SessionKind::Tcp => download(port, until, &count),
                SessionKind::Udp => ping(port, until, &count),
            })
        })
        .collect();
    for thread in threads {
        thread.join().map_err(|_| "a client's thread broke")?.map_err(|e| format!("{}: {e}", server.name))?;
    }
    let (after, took) = (server.cpu_ns(), began.elapsed().as_secs_f64());
    let done = count.load(Ordering::Relaxed) as f64 / if kind == SessionKind::Tcp { MEGABYTE } else { 1.0 };
    if done < 1.0 {
        return Err(format!("{} passed nothing on", server.name));
    }
    Ok(Turn { cpu_us: (after - before) as f64 / 1000.0 / done, per_second: done / took, ..Turn::default() })
}

fn download(port: u16, until: Instant, count: &AtomicU64) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut buf = vec![0; 256 * 1024];
    while Instant::now() < until {
        match stream.read(&mut buf)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            n => count.fetch_add(n as u64, Ordering::Relaxed),
        };
    }
    Ok(())
}

fn ping(port: u16, until: Instant, count: &AtomicU64) -> std::io::Result<()> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    socket.connect(("127.0.0.1", port))?;
    socket.set_read_timeout(Some(LOST))?;
    let (datagram, mut buf) = ([b'x'; DATAGRAM], [0; 2048]);
    for _ in 0..WINDOW {
        socket.send(&datagram)?;
    }
    while Instant::now() < until {
        if socket.recv(&mut buf).is_ok() {
            count.fetch_add(1, Ordering::Relaxed);
        }
        socket.send(&datagram)?;
    }
    Ok(())
}

/// Memory of a silent session after one octet each way.
fn bytes_each(scenario: &Scenario, server: BenchServer, held: &HeldStreams) -> Result<f64, String> {
    let before = server.memory();
    let mut streams = Vec::with_capacity(scenario.connections);
    let say = |e: std::io::Error| format!("{}: {e}", server.name);
    let echo = |stream: &mut TcpStream| stream.write_all(b"x").and_then(|()| stream.read_exact(&mut [0]));
    for _ in 0..scenario.connections {
        let mut stream = server.connect()?;
        echo(&mut stream).map_err(say)?;
        streams.push(stream);
    }
    let after = server.memory();
    if let Ok(mut held) = held.lock() {
        held.clear();
    }
    Ok(after.saturating_sub(before) as f64 / scenario.connections as f64)
}
