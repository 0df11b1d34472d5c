//! `cargo xtask bench --fairness`: how long a second client waits beside one that takes all it can get.
//!
//! One worker on CPU 0. The measured client requests 5 KB over one keep-alive connection every two milliseconds. The
//! other client is a separate process on CPU 1 with lower priority, so that the figure shows the server's turn and not
//! the client's. Latency is not CPU time: figures of a busy machine mean nothing.
//!
//! The file of the downloads is in the kernel's memory. Were it not, sendfile() would also wait for what the kernel reads ahead, as much as
//! the disk is set to (`read_ahead_kb`; 20 ms for 8 MB of a sparse file, with any server), which is no matter of the server's turns.

use super::scenario::Scenario;
use super::server::{BenchServer, PATIENCE, exchange_request};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Clients beside the measured one.
const HOGS: [(&str, &str); 4] = [
    ("nobody", "the client is alone"),
    ("download", "6 GB as fast as they go"),
    ("slow", "the same read at 64 KB in 10 ms, with a receive buffer of 64 KB"),
    ("pipeline", "requests without an end, 200 at a time ahead of their answers"),
];

/// In both servers' directories.
const FILE: &str = "6g.bin";
const FILE_BYTES: u64 = 6 << 30;
const PACE: Duration = Duration::from_millis(2);

/// Measures both servers beside each hog, in turns, and writes `fairness.md` into `folder`.
pub fn measure_fairness(
    scenario: &Scenario,
    binary: &Path,
    nginx: &Path,
    pairs: usize,
    seconds: u64,
    folder: &Path,
) -> Result<(), String> {
    // On another CPU than the servers.
    let mut processors = rustix::thread::CpuSet::new();
    processors.set(1);
    rustix::thread::sched_setaffinity(None, &processors).map_err(|e| format!("processor 1: {e}"))?;
    let ours = BenchServer::start(scenario, binary, "tidegate", 0)?;
    let theirs = BenchServer::start(scenario, nginx, "nginx", 0)?;
    make_download(&ours, &theirs)?;
    let mut text =
        String::from("# A second client beside a hog\n\nMilliseconds; of the turns' figures the median.\n\n");
    text.push_str("| beside | server | p50 | p99 | longest |\n|---|---|---|---|---|\n");
    for (hog, about) in HOGS {
        let mut turns = [Vec::new(), Vec::new()];
        for round in 0..pairs {
            let mut order = [(0, &ours), (1, &theirs)];
            if round % 2 == 1 {
                order.reverse();
            }
            for (place, server) in order {
                turns[place].push(turn(server, scenario, hog, seconds)?);
            }
        }
        for (turns, server) in turns.iter().zip([&ours, &theirs]) {
            let middle = |part: fn(&Waits) -> f64| {
                let mut all: Vec<f64> = turns.iter().map(part).collect();
                all.sort_by(f64::total_cmp);
                all[all.len() / 2]
            };
            let (p50, p99, longest) = (middle(|w| w.p50), middle(|w| w.p99), middle(|w| w.longest));
            let line = format!("| {hog} ({about}) | {} | {p50:.2} | {p99:.2} | {longest:.2} |", server.name);
            eprintln!("    {line}");
            let _ = writeln!(text, "{line}");
        }
    }
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    std::fs::write(folder.join("fairness.md"), text).map_err(|e| format!("{}: {e}", folder.display()))
}

/// Makes the file of the downloads in the folders of both servers, sparse and in the kernel's memory.
pub fn make_download(one: &BenchServer, other: &BenchServer) -> Result<(), String> {
    let [file, linked] = [one, other].map(|server| server.folder().join("html").join(FILE));
    File::create(&file)
        .and_then(|created| created.set_len(FILE_BYTES))
        .and_then(|()| File::open(&file))
        .and_then(|mut opened| std::io::copy(&mut opened, &mut std::io::sink()))
        .and_then(|_| std::fs::hard_link(&file, &linked))
        .map_err(|e| format!("{}: {e}", file.display()))
}

/// Response times of a turn, in milliseconds.
struct Waits {
    p50: f64,
    p99: f64,
    longest: f64,
}

fn turn(server: &BenchServer, scenario: &Scenario, hog: &str, seconds: u64) -> Result<Waits, String> {
    let _hog = (hog != "nobody").then(|| Hog::start(hog, server.port)).transpose()?;
    let mut stream = server.connect()?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", scenario.path);
    let (begin, mut all) = (Instant::now(), Vec::new());
    while begin.elapsed() < Duration::from_secs(seconds) {
        let asked = Instant::now();
        let answered = exchange_request(&mut stream, request.as_bytes());
        all.push(asked.elapsed());
        match answered {
            Ok(_) => {}
            // The turn ends with its longest response time.
            Err(_) if asked.elapsed() >= PATIENCE => break,
            Err(e) => return Err(format!("{}: {e}", server.name)),
        }
        std::thread::sleep(PACE.saturating_sub(asked.elapsed()));
    }
    all.sort();
    let at = |part: f64| {
        let place = ((all.len() as f64 * part) as usize).min(all.len().saturating_sub(1));
        all.get(place).map_or(0.0, |wait| wait.as_secs_f64() * 1000.0)
    };
    Ok(Waits { p50: at(0.5), p99: at(0.99), longest: at(1.0) })
}

/// The other client, in a separate process.
pub struct Hog(Child);

impl Hog {
    /// Starts it; returns when its first response has begun.
    pub fn start(kind: &str, port: u16) -> Result<Hog, String> {
        let own = std::env::current_exe().map_err(|e| e.to_string())?;
        let mut command = Command::new("taskset");
        command.args(["-c", "1", "nice", "-n", "19"]).arg(own).args(["bench", "--hog", kind, &port.to_string()]);
        command.stdin(Stdio::null()).stdout(Stdio::piped());
        let mut hog = command.spawn().map(Hog).map_err(|e| format!("taskset: {e}"))?;
        // Reports the first response.
        let mut word = [0];
        let said = hog.0.stdout.take().ok_or("no output")?.read_exact(&mut word);
        said.map(|()| hog).map_err(|_| format!("the other client ({kind}) does not get going"))
    }
}

impl Drop for Hog {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Runs in the loading process, until it is stopped.
pub fn run_hog(kind: &str, port: u16) -> Result<(), String> {
    let words = |e: std::io::Error| format!("{kind}: {e}");
    loop {
        let mut stream = TcpStream::connect(("127.0.0.1", port)).map_err(words)?;
        match kind {
            "download" => read_file(&mut stream, None).map_err(words)?,
            "slow" => read_file(&mut stream, Some(Duration::from_millis(10))).map_err(words)?,
            "pipeline" => pipeline(stream).map_err(words)?,
            _ => return Err(format!("there is no hog \"{kind}\"")),
        }
    }
}

/// Ignores a closed pipe.
fn say_going() {
    let _ = std::io::stdout().write_all(b"\n").and_then(|()| std::io::stdout().flush());
}

fn read_file(stream: &mut TcpStream, pause: Option<Duration>) -> std::io::Result<()> {
    if pause.is_some() {
        rustix::net::sockopt::set_socket_recv_buffer_size(&*stream, 64 * 1024)?;
    }
    stream.write_all(format!("GET /{FILE} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n").as_bytes())?;
    let mut buf = vec![0; 64 * 1024];
    let mut begun = false;
    while stream.read(&mut buf)? > 0 {
        if !std::mem::replace(&mut begun, true) {
            say_going();
        }
        if let Some(pause) = pause {
            std::thread::sleep(pause);
        }
    }
    Ok(())
}

fn pipeline(mut stream: TcpStream) -> std::io::Result<()> {
    let batch = b"GET /index.html HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".repeat(200);
    let mut reader = stream.try_clone()?;
    let reading = std::thread::spawn(move || {
        let mut buf = vec![0; 256 * 1024];
        let mut begun = false;
        while reader.read(&mut buf).is_ok_and(|n| n > 0) {
            if !std::mem::replace(&mut begun, true) {
                say_going();
            }
        }
    });
    while stream.write_all(&batch).is_ok() {}
    let _ = reading.join();
    Ok(())
}
