//! System calls per request: strace counts those of all threads of the server during requests over one connection.
//!
//! Counts calls, which a busy machine does not change. A server under strace is slow, so every request finds it
//! waiting: the figure is the cost of a single request with its wake-up.

use super::scenario::Scenario;
use super::server::{BenchServer, exchange_request};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Calls per request, the most frequent first.
pub type Calls = Vec<(String, f64)>;

/// Enough that periodic work, once per second, does not count.
const REQUESTS: u32 = 2000;
/// Fill caches and open connections.
const WARM: u32 = 50;
const PATIENCE: Duration = Duration::from_secs(10);

pub fn count_calls(scenario: &Scenario, server: &BenchServer) -> Result<Calls, String> {
    let mut stream = server.connect()?;
    stream.set_nodelay(true).map_err(|e| e.to_string())?;
    let mut request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\n", scenario.path);
    if scenario.headers.iter().any(|header| header.to_ascii_lowercase().starts_with("connection:")) {
        return Err("the connection is not kept".into());
    }
    for header in &scenario.headers {
        request.push_str(&format!("{header}\r\n"));
    }
    request.push_str("\r\n");
    let mut ask = |times: u32| -> Result<(), String> {
        for _ in 0..times {
            let answer =
                exchange_request(&mut stream, request.as_bytes()).map_err(|e| format!("{}: {e}", server.name))?;
            if answer.status != 200 {
                return Err(format!("{} answered {}", server.name, answer.status));
            }
        }
        Ok(())
    };
    ask(WARM)?;
    let processes = server.processes();
    let file = std::env::temp_dir().join(format!("bench-{}-calls", std::process::id()));
    let mut strace = Command::new("strace");
    strace.args(["-c", "-f", "-o"]).arg(&file);
    for pid in &processes {
        strace.args(["-p", &pid.to_string()]);
    }
    let mut child = strace.stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(|e| format!("strace: {e}"))?;
    let asked = attached(&processes, &mut child).and_then(|()| ask(REQUESTS));
    // It detaches, and writes its table.
    let _ = Command::new("kill").args(["-INT", &child.id().to_string()]).status();
    let _ = child.wait();
    let text = std::fs::read_to_string(&file);
    let _ = std::fs::remove_file(&file);
    asked?;
    let calls = table(&text.map_err(|e| format!("{}: {e}", file.display()))?, REQUESTS);
    if calls.is_empty() { Err(format!("strace counted nothing of {}", server.name)) } else { Ok(calls) }
}

/// Waits until strace holds every thread.
fn attached(processes: &[u32], strace: &mut Child) -> Result<(), String> {
    let held = |pid: &u32| {
        let Ok(threads) = std::fs::read_dir(format!("/proc/{pid}/task")) else { return false };
        threads.flatten().all(|thread| traced(&thread.path()))
    };
    let until = Instant::now() + PATIENCE;
    while !processes.iter().all(held) {
        if strace.try_wait().is_ok_and(|ended| ended.is_some()) || Instant::now() > until {
            return Err("strace cannot attach (it needs the right to trace other processes)".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

fn traced(thread: &Path) -> bool {
    let text = std::fs::read_to_string(thread.join("status")).unwrap_or_default();
    let pid = text.lines().find_map(|line| line.strip_prefix("TracerPid:"));
    pid.is_some_and(|pid| pid.trim() != "0")
}

/// Reads `strace -c`: time share, seconds, µs a call, calls, perhaps errors, name.
fn table(text: &str, requests: u32) -> Calls {
    let row = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let (calls, name) = (words.get(3)?.parse::<f64>().ok()?, *words.get(4..)?.last()?);
        (name != "total").then(|| (name.to_string(), (calls / f64::from(requests) * 1000.0).round() / 1000.0))
    };
    let mut out: Calls = text.lines().filter_map(row).collect();
    out.sort_by(|a, b| b.1.total_cmp(&a.1));
    out
}

/// `5.00 (epoll_wait 2.00, recvfrom 1.00, …)`; what hardly ever happened is in the sum alone.
pub fn calls_words(calls: &Calls) -> String {
    let total: f64 = calls.iter().map(|call| call.1).sum();
    let each: Vec<String> =
        calls.iter().filter(|call| call.1 >= 0.005).map(|(name, n)| format!("{name} {n:.2}")).collect();
    format!("{total:.2} ({})", each.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_strace() {
        let text = "% time     seconds  usecs/call     calls    errors syscall\n\
                    ------ ----------- ----------- --------- --------- ----------------\n \
                    61.04    0.020012          10      2001           epoll_wait\n \
                    30.00    0.010000           5      4000      2000 recvfrom\n  \
                    0.00    0.000000           0         1           brk\n\
                    ------ ----------- ----------- --------- --------- ----------------\n\
                    100.00    0.032785          16      6002      2000 total\n";
        let calls = table(text, 2000);
        assert_eq!(calls, [("recvfrom".into(), 2.0), ("epoll_wait".into(), 1.001), ("brk".into(), 0.001)]);
        assert_eq!(calls_words(&calls), "3.00 (recvfrom 2.00, epoll_wait 1.00)");
    }
}
