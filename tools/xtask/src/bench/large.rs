//! A large configuration: what `-t` and a reload cost, and the memory that the server has afterwards.
//!
//! The configuration is generated: 1,000 servers with 10 locations each, most kinds of them, and groups of servers. Both servers
//! test it and reload it in turns. A reload has ended when an answer tells of the new configuration and no process works any more.

use super::report::value_spread;
use super::scenario::{self, Scenario};
use super::server::{BenchServer, PATIENCE, exchange_request};
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SERVERS: usize = 1000;
/// Of two servers each.
const GROUPS: usize = 50;
/// Runs of `-t` in a turn: the kernel tells their time in hundredths of a second.
const TESTS: u32 = 5;
const RELOADS: usize = 3;
/// Idle time of all processes.
const QUIET: Duration = Duration::from_millis(200);
/// The kernel's unit of times in `/proc/PID/stat`.
const TICK_MS: f64 = 10.0;
/// The response has as many letters.
const GENERATION: &str = "@GENERATION@";

/// In milliseconds and megabytes.
#[derive(Clone, Copy, Debug, Default)]
struct Costs {
    test_cpu: f64,
    test_wall: f64,
    master_cpu: f64,
    worker_cpu: f64,
    master_memory: f64,
    worker_memory: f64,
}

type Figure = (&'static str, fn(&Costs) -> f64);

const FIGURES: [Figure; 8] = [
    ("`-t`: CPU, ms", |c| c.test_cpu),
    ("`-t`: wall, ms", |c| c.test_wall),
    ("reload: master's CPU, ms", |c| c.master_cpu),
    ("reload: worker's CPU, ms", |c| c.worker_cpu),
    ("reload: both, ms", |c| c.master_cpu + c.worker_cpu),
    ("after it: master's VmRSS, MB", |c| c.master_memory),
    ("after it: worker's VmRSS, MB", |c| c.worker_memory),
    ("after it: both, MB", |c| c.master_memory + c.worker_memory),
];

/// Writes `large.md` into `folder`.
pub fn measure_large(binary: &Path, nginx: &Path, pairs: usize, folder: &Path) -> Result<(), String> {
    let conf = configuration();
    let lines = conf.lines().count();
    let scenario = scenario::parse_scenario("large".into(), conf)?;
    let mut turns = [Vec::new(), Vec::new()];
    for round in 0..pairs {
        let mut order = [(0, nginx, "nginx"), (1, binary, "tidegate")];
        if round % 2 == 1 {
            order.reverse();
        }
        for (place, program, name) in order {
            turns[place].push(turn(&scenario, program, name)?);
        }
    }
    let mut text = format!(
        "# {SERVERS} servers, {lines} lines\n\nMedians of {pairs} pairs.\n\n| | nginx | Tidegate | nginx / Tidegate | from, to |\n\
         |---|---|---|---|---|\n"
    );
    for (name, figure) in FIGURES {
        let middle = |place: usize| value_spread(turns[place].iter().map(figure)).median;
        let ratio = value_spread(turns[0].iter().zip(&turns[1]).map(|(theirs, ours)| figure(theirs) / figure(ours)));
        let (theirs, ours) = (middle(0), middle(1));
        let _ = writeln!(
            text,
            "| {name} | {theirs:.0} | {ours:.0} | **{:.2}** | {:.2} to {:.2} |",
            ratio.median, ratio.least, ratio.most
        );
    }
    eprint!("{text}");
    std::fs::create_dir_all(folder).map_err(|e| e.to_string())?;
    std::fs::write(folder.join("large.md"), text).map_err(|e| format!("{}: {e}", folder.display()))
}

fn turn(scenario: &Scenario, program: &Path, name: &'static str) -> Result<Costs, String> {
    let server = BenchServer::start(scenario, program, name, 0)?;
    let mut costs = Costs::default();
    (costs.test_cpu, costs.test_wall) = test(&server, program)?;
    let file = server.folder().join("server.conf");
    let written = std::fs::read_to_string(&file).map_err(|e| e.to_string())?;
    settle(&server)?;
    for generation in 1..=RELOADS {
        std::fs::write(&file, written.replace(GENERATION, &"x".repeat(generation))).map_err(|e| e.to_string())?;
        let before = server.cpu_of_each();
        server.signal("HUP")?;
        answers(&server, scenario, generation)?;
        let after = settle(&server)?;
        for (place, (pid, ns)) in after.iter().enumerate() {
            let earlier = before.iter().find(|(other, _)| other == pid).map_or(0, |(_, ns)| *ns);
            let part = ns.saturating_sub(earlier) as f64 / 1e6 / RELOADS as f64;
            *(if place == 0 { &mut costs.master_cpu } else { &mut costs.worker_cpu }) += part;
        }
    }
    let mut memory = server.resident().into_iter().map(|bytes| bytes as f64 / 1e6);
    costs.master_memory = memory.next().unwrap_or(0.0);
    costs.worker_memory = memory.sum();
    Ok(costs)
}

/// CPU and elapsed milliseconds of one `-t`.
fn test(server: &BenchServer, program: &Path) -> Result<(f64, f64), String> {
    let (before, began) = (children_ms()?, Instant::now());
    for _ in 0..TESTS {
        let status = Command::new("taskset")
            .args(["-c", "0"])
            .arg(program)
            .args(["-t", "-q", "-e", "error.log", "-c", "server.conf", "-p"])
            .arg(server.folder())
            .current_dir(server.folder())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .map_err(|e| format!("taskset: {e}"))?;
        if !status.success() {
            return Err(format!("{} refuses the configuration", server.name));
        }
    }
    let each = f64::from(TESTS);
    Ok(((children_ms()? - before) / each, began.elapsed().as_secs_f64() * 1000.0 / each))
}

/// Of children that have ended.
fn children_ms() -> Result<f64, String> {
    let text = std::fs::read_to_string("/proc/self/stat").map_err(|e| e.to_string())?;
    // The name stands in parentheses; `cutime` and `cstime` are fields 16 and 17.
    let rest = text.rsplit(')').next().unwrap_or_default();
    let ticks = rest.split_whitespace().skip(13).take(2).filter_map(|word| word.parse::<f64>().ok());
    Ok(ticks.sum::<f64>() * TICK_MS)
}

/// Waits until new connections are answered under the configuration of this generation.
fn answers(server: &BenchServer, scenario: &Scenario, generation: usize) -> Result<(), String> {
    let request = format!("GET {} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", scenario.path);
    let until = Instant::now() + PATIENCE;
    while exchange_request(&mut server.connect()?, request.as_bytes())?.length != generation {
        if Instant::now() > until {
            return Err(format!("{} does not reload", server.name));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Waits until all processes are idle and no old worker is left. Returns the CPU time of each.
fn settle(server: &BenchServer) -> Result<Vec<(u32, u64)>, String> {
    let until = Instant::now() + PATIENCE;
    let mut last = server.cpu_of_each();
    loop {
        std::thread::sleep(QUIET);
        let now = server.cpu_of_each();
        let idle = |(one, other): (&(u32, u64), &(u32, u64))| one.0 == other.0 && other.1 - one.1 < 1_000_000;
        if now.len() == 2 && last.len() == 2 && last.iter().zip(&now).all(idle) {
            return Ok(now);
        }
        if Instant::now() > until {
            return Err(format!("{} does not come to rest", server.name));
        }
        last = now;
    }
}

/// The configuration with the placeholder `@PORT@`.
fn configuration() -> String {
    let mut out = String::from(
        "# bench: path=/generation\ndaemon off;\nworker_processes 1;\nevents { worker_connections 1024; }\nerror_log error.log;\n\
         pid server.pid;\nhttp {\nserver_names_hash_max_size 8192;\naccess_log off;\n",
    );
    for group in 0..GROUPS {
        let (one, other) = (9000 + group, 9500 + group);
        let _ = writeln!(out, "upstream group{group} {{\n    server 127.0.0.1:{one} weight=2;");
        let _ = writeln!(out, "    server 127.0.0.1:{other} max_fails=2;\n}}");
    }
    let _ = writeln!(out, "server {{\n    listen 127.0.0.1:@PORT@ default_server;");
    let _ = writeln!(out, "    location = /generation {{ return 200 {GENERATION}; }}\n}}");
    for index in 0..SERVERS {
        let _ = writeln!(out, "server {{\n    listen 127.0.0.1:@PORT@; root html;");
        let _ = writeln!(out, "    server_name s{index}.example.com www.s{index}.example.com;");
        for line in locations(index) {
            let _ = writeln!(out, "    location {line}");
        }
        out.push_str("}\n");
    }
    out.push_str("}\n");
    out
}

fn locations(index: usize) -> [String; 10] {
    let group = index % GROUPS;
    [
        "/ { try_files $uri $uri/ /index.html; }".into(),
        "= /health { return 200 ok; }".into(),
        format!(
            "/api/ {{ proxy_pass http://group{group}; proxy_set_header Host $host; proxy_set_header X-Forwarded-For \
             $proxy_add_x_forwarded_for; }}"
        ),
        "/static/ { root html; expires 1h; add_header Cache-Control public; }".into(),
        format!("~ \\.php$ {{ proxy_pass http://group{group}; proxy_read_timeout 30s; }}"),
        "~* \\.(?:jpg|png|css|js)$ { expires max; access_log off; }".into(),
        format!("/old-{index}/ {{ rewrite ^/old-{index}/(.*)$ /new/$1 permanent; }}"),
        "^~ /downloads/ { limit_rate 1m; gzip off; }".into(),
        "/private/ { allow 10.0.0.0/8; deny all; }".into(),
        format!("/moved-{index}/ {{ return 301 https://$host$request_uri; }}"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_is_as_large_as_it_says() {
        let conf = configuration();
        assert_eq!(conf.matches("\nserver {").count(), SERVERS + 1);
        assert_eq!(conf.matches("    location ").count(), SERVERS * 10 + 1);
        assert_eq!(conf.matches('{').count(), conf.matches('}').count());
        assert_eq!(conf.matches(GENERATION).count(), 1);
    }

    #[test]
    fn the_time_of_children_can_be_read() {
        assert!(children_ms().expect("a stat file") >= 0.0);
    }
}
