//! `cargo xtask waf --crs DIR --pairs`: Tidegate beside nginx with ModSecurity's connector on equal rules, in turns: processor time and
//! response times, memory of a request in flight, memory of the rules.

use super::peer::{FirewallPeer, PeerProgram, PeerRules, start_backend};
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Requests of a turn at most, unless `--requests` says otherwise.
pub const TURN_REQUESTS: u64 = 400;
/// A turn ends after this time, with at least [`TURN_LEAST`] requests.
const TURN_TIME: Duration = Duration::from_secs(4);
const TURN_LEAST: u64 = 5;
/// Turns of each server.
const TURNS: usize = 5;
/// Requests before the first turn: they fill the caches of patterns.
const WARM_REQUESTS: u64 = 10;
/// Requests whose body is half sent, at the same time.
const OPEN_REQUESTS: usize = 64;
/// Paranoia levels of CRS that are compared.
const LEVELS: [u8; 2] = [1, 4];

/// Programs and folders of a comparison.
pub struct PairOptions {
    /// The checkout of CRS.
    pub rules: PathBuf,
    /// Programs, Tidegate last. One whose files are missing is left out, with a message; Tidegate is not.
    pub programs: Vec<PeerProgram>,
    /// Requests of a turn at most.
    pub requests: u64,
    /// Only requests whose names begin so.
    pub only: String,
    /// The folder for the table, if there is one.
    pub out: Option<PathBuf>,
}

/// A request of the comparison.
struct PairRequest {
    name: &'static str,
    bytes: Vec<u8>,
    /// An attack in the same place, which every firewall refuses with 403.
    attack: Vec<u8>,
    /// Bytes before the second half of the body; all without a body.
    half: usize,
}

const AGENT: &str = "User-Agent: Mozilla/5.0 (X11; Linux x86_64; rv:128.0) Gecko/20100101 Firefox/128.0\r\n\
                     Accept: text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8\r\n";
/// Refused by CRS at every level.
const ATTACK: &str = "1%27+union+select+password+from+users--+-";

fn get_request(argument: &str) -> Vec<u8> {
    format!("GET /index.html?q={argument} HTTP/1.1\r\nHost: www.example.com\r\n{AGENT}\r\n").into_bytes()
}

/// Returns the request with the number of bytes before the second half of its body.
fn post_request(kind: &str, body: &str) -> (Vec<u8>, usize) {
    let head = format!(
        "POST /form HTTP/1.1\r\nHost: www.example.com\r\n{AGENT}Content-Type: {kind}\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let half = head.len() + body.len() / 2;
    ([head.as_bytes(), body.as_bytes()].concat(), half)
}

/// Requests whose values are ordinary text at level 1; at others, whose rules refuse spaces, words are joined.
fn pair_requests(paranoia: u8) -> Vec<PairRequest> {
    let (plus, blank) = if paranoia == 1 { ("+", " ") } else { ("_", "_") };
    let get = get_request("hello");
    let form: Vec<String> =
        (0..40).map(|n| format!("field{n}=some ordinary text of a form number {n}").replace(' ', plus)).collect();
    let form = form.join("&");
    let items: Vec<String> = (0..400)
        .map(|n| {
            format!("{{\"id\":{n},\"name\":\"the name of an item, number {n}\"}}")
                .replace(' ', blank)
                .replace("item,", "item")
        })
        .collect();
    let items = items.join(",");
    let urlencoded = "application/x-www-form-urlencoded";
    let (form_bytes, form_half) = post_request(urlencoded, &form);
    let (form_attack, _) = post_request(urlencoded, &format!("{form}&last={ATTACK}"));
    let (json_bytes, json_half) = post_request("application/json", &format!("[{items}]"));
    let attack = ATTACK.replace("%27", "'").replace('+', " ");
    let (json_attack, _) = post_request("application/json", &format!("[{items},{{\"id\":0,\"name\":\"{attack}\"}}]"));
    let half = get.len();
    vec![
        PairRequest { name: "GET with one argument", bytes: get, attack: get_request(ATTACK), half },
        PairRequest { name: "form of 2 KB", bytes: form_bytes, attack: form_attack, half: form_half },
        PairRequest { name: "JSON of 20 KB", bytes: json_bytes, attack: json_attack, half: json_half },
    ]
}

/// The value below which so much of the sorted values lies; 0 without values.
fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let place = (values.len() as f64 * part) as usize;
    values.get(place.min(values.len().saturating_sub(1))).copied().unwrap_or_default()
}

/// Times of a server's turns in microseconds.
#[derive(Default)]
struct PeerTimes {
    /// Processor time of a request, one value a turn.
    processor: Vec<f64>,
    /// Response times of all turns.
    responses: Vec<f64>,
}

impl PeerTimes {
    /// Runs a turn on one connection. Fails if a response has another status.
    fn measure_turn(
        &mut self,
        peer: &FirewallPeer,
        request: &PairRequest,
        status: u16,
        most: u64,
    ) -> Result<(), String> {
        let mut stream = peer.connect()?;
        // The first request of a connection is not like the others.
        peer.ask(&mut stream, &request.bytes)?;
        let (before, began, mut count) = (peer.thread_times(), Instant::now(), 0);
        while count < most && (count < TURN_LEAST || began.elapsed() < TURN_TIME) {
            let sent = Instant::now();
            let found = peer.ask(&mut stream, &request.bytes)?;
            if found != status {
                return Err(format!("{}: {} is answered {found}, not {status}", peer.name, request.name));
            }
            self.responses.push(sent.elapsed().as_secs_f64() * 1e6);
            count += 1;
        }
        self.processor.push(peer.thread_times().since(&before) as f64 / 1000.0 / count.max(1) as f64);
        Ok(())
    }
}

/// Returns the status by which all servers answer a request, after they have refused its attack, so that every firewall is known to
/// read what the request has; `None` if they do not answer alike, with a message. Warms the servers up.
fn common_status(peers: &[FirewallPeer], request: &PairRequest) -> Result<Option<u16>, String> {
    let mut statuses = Vec::new();
    for peer in peers {
        let found = peer.ask(&mut peer.connect()?, &request.attack)?;
        if found != 403 {
            return Err(format!("{} answers the attack in \"{}\" {found}, not 403", peer.name, request.name));
        }
        let mut status = 0;
        let mut stream = peer.connect()?;
        for _ in 0..WARM_REQUESTS {
            status = peer.ask(&mut stream, &request.bytes)?;
        }
        statuses.push(status);
    }
    let first = statuses.first().copied();
    if statuses.iter().all(|status| Some(*status) == first) {
        return Ok(first);
    }
    let answers: Vec<String> =
        peers.iter().zip(&statuses).map(|(peer, status)| format!("{} {status}", peer.name)).collect();
    println!("{} is left out: the answers are {}", request.name, answers.join(", "));
    Ok(None)
}

/// Returns private memory when it no longer changes for a second: when the server has read all that was sent.
///
/// # Errors
/// It still changes after 20 seconds, so that there is no figure.
fn settled_kb(peer: &FirewallPeer) -> Result<u64, String> {
    let (mut seen, mut equal, until) = (peer.private_kb()?, 0, Instant::now() + Duration::from_secs(20));
    while equal < 4 && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(250));
        let now = peer.private_kb()?;
        equal = if now == seen { equal + 1 } else { 0 };
        seen = now;
    }
    if equal < 4 { Err(format!("{}: its memory still changes after 20 s", peer.name)) } else { Ok(seen) }
}

/// Private memory of a request in flight in KB: what the second [`OPEN_REQUESTS`] with half a body each add. The first have taken up
/// memory that the allocator had free.
fn open_memory(peer: &FirewallPeer, request: &PairRequest) -> Result<f64, String> {
    let half = request.bytes.get(..request.half).unwrap_or_default();
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut stages = Vec::new();
    for _ in 0..2 {
        for _ in 0..OPEN_REQUESTS {
            let mut stream = peer.connect()?;
            stream.write_all(half).map_err(|error| format!("{}: {error}", peer.name))?;
            streams.push(stream);
        }
        stages.push(settled_kb(peer)?);
    }
    let [first, second] = stages[..] else { return Err("two stages are measured".into()) };
    Ok(second.saturating_sub(first) as f64 / OPEN_REQUESTS as f64)
}

/// Memory of a server's processes in MB after requests of each kind.
fn used_memory(
    program: &PeerProgram,
    rules: PeerRules<'_>,
    backend: u16,
    requests: &[PairRequest],
) -> Result<f64, String> {
    let peer = FirewallPeer::start(program, rules, backend)?;
    for request in requests {
        let mut stream = peer.connect()?;
        for _ in 0..TURN_LEAST {
            peer.ask(&mut stream, &request.bytes)?;
        }
    }
    Ok(peer.proportional_kb()? as f64 / 1024.0)
}

/// The lines of a table: one value for each server, and how many times as much each has as Tidegate, the last.
struct PairTable(String);

impl PairTable {
    fn new(programs: &[PeerProgram]) -> PairTable {
        let names: Vec<&str> = programs.iter().map(PeerProgram::name).collect();
        let ratios = names.iter().rev().skip(1).rev().map(|name| format!("{name} / tidegate"));
        let columns: Vec<String> = names.iter().map(ToString::to_string).chain(ratios).collect();
        let head = format!("| | {} |\n|---{}|", columns.join(" | "), "|---:".repeat(columns.len()));
        println!("{head}");
        PairTable(format!("{head}\n"))
    }

    fn add(&mut self, name: &str, unit: &str, values: &[f64]) {
        let mut line = format!("| {name} |");
        for value in values {
            let _ =
                if *value < 10.0 { write!(line, " {value:.2} {unit} |") } else { write!(line, " {value:.0} {unit} |") };
        }
        if let Some((own, others)) = values.split_last() {
            for other in others {
                let _ = write!(line, " **{:.1}** |", other / own.max(f64::MIN_POSITIVE));
            }
        }
        println!("{line}");
        let _ = writeln!(self.0, "{line}");
    }
}

/// Runs the comparison. Prints the programs that are left out, and the table.
///
/// # Errors
/// A server does not start, does not answer, or does not refuse an attack.
pub fn compare_pairs(options: &PairOptions) -> Result<(), String> {
    let mut programs = Vec::new();
    for program in &options.programs {
        match (program.missing_file(), program) {
            (None, _) => programs.push(program.clone()),
            (Some(file), PeerProgram::Tidegate { .. }) => {
                return Err(format!("{} does not exist: build it by cargo build --release", file.display()));
            }
            (Some(file), _) => println!("{} is left out: {} does not exist", program.name(), file.display()),
        }
    }
    let backend = start_backend()?;
    let mut table = PairTable::new(&programs);
    for paranoia in LEVELS {
        let mut requests = pair_requests(paranoia);
        requests.retain(|request| request.name.starts_with(&options.only));
        let rules = PeerRules::Core { folder: &options.rules, paranoia };
        compare_times(options, &programs, rules, backend, &requests, &mut table)?;
        for request in requests.iter().filter(|request| request.half < request.bytes.len()) {
            let mut memory = Vec::new();
            for program in &programs {
                let peer = FirewallPeer::start(program, rules, backend)?;
                peer.ask(&mut peer.connect()?, &request.bytes)?;
                memory.push(open_memory(&peer, request)?);
            }
            table.add(&format!("{}, {}: memory in flight", request.name, rules.name()), "KB", &memory);
        }
        let mut memory = Vec::new();
        for program in &programs {
            let without = used_memory(program, PeerRules::Off, backend, &requests)?;
            memory.push(used_memory(program, rules, backend, &requests)? - without);
        }
        table.add(&format!("rules, {}: memory", rules.name()), "MB", &memory);
    }
    if let Some(folder) = &options.out {
        write_run(folder, options.requests, &table.0)?;
    }
    Ok(())
}

/// Adds processor time and response times to the table.
fn compare_times(
    options: &PairOptions,
    programs: &[PeerProgram],
    rules: PeerRules<'_>,
    backend: u16,
    requests: &[PairRequest],
    table: &mut PairTable,
) -> Result<(), String> {
    let started = programs.iter().map(|program| FirewallPeer::start(program, rules, backend));
    let peers = started.collect::<Result<Vec<_>, _>>()?;
    for request in requests {
        let Some(status) = common_status(&peers, request)? else { continue };
        let mut times: Vec<PeerTimes> = peers.iter().map(|_| PeerTimes::default()).collect();
        for _ in 0..TURNS {
            for (peer, times) in peers.iter().zip(&mut times) {
                times.measure_turn(peer, request, status, options.requests)?;
            }
        }
        let refused = if status == 200 { String::new() } else { format!(" (answered {status})") };
        let name = format!("{}{refused}, {}", request.name, rules.name());
        let processor: Vec<f64> = times.iter_mut().map(|times| quantile(&mut times.processor, 0.5)).collect();
        table.add(&format!("{name}: processor time"), "µs", &processor);
        let slow: Vec<f64> = times.iter_mut().map(|times| quantile(&mut times.responses, 0.99)).collect();
        table.add(&format!("{name}: p99 of responses"), "µs", &slow);
    }
    Ok(())
}

fn write_run(folder: &Path, requests: u64, table: &str) -> Result<(), String> {
    std::fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let text = format!(
        "# The firewall in pairs: Tidegate and nginx with ModSecurity's connector\n\n\
         `cargo xtask waf --crs DIR --pairs`: one worker each on processor 0, equal rules and configuration, {TURNS} alternating turns of \
         {requests} requests each, or of {} s. All servers answer a request alike, with 200 unless the table says otherwise (a file of 600 bytes; `/form` is \
         proxied), and refuse an attack in the same place with 403. Requests without an equal answer are left out. Processor time is that of all threads of the server for a request, the median of the turns; \
         p99 is over the responses of all turns, one connection. Memory in flight is private memory that {OPEN_REQUESTS} connections with a \
         half-sent body add, for each, beside {OPEN_REQUESTS} others. Memory of the rules is that of all processes (proportional set size) \
         after {TURN_LEAST} requests of each kind, less that of a server without rules.\n\n{table}",
        TURN_TIME.as_secs()
    );
    let file = folder.join("pairs.md");
    std::fs::write(&file, text).map_err(|error| format!("{}: {error}", file.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attacks_are_sent_where_the_request_has_values() {
        for request in LEVELS.into_iter().flat_map(pair_requests) {
            let attack = String::from_utf8(request.attack).unwrap();
            assert!(attack.contains("union"), "{attack}");
            assert!(request.half <= request.bytes.len());
        }
    }

    #[test]
    fn quantile_takes_the_value_of_its_part() {
        let mut values: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(
            [quantile(&mut values, 0.5), quantile(&mut values, 0.99), quantile(&mut [], 0.5)],
            [50.0, 99.0, 0.0]
        );
    }

    #[test]
    fn table_compares_each_server_with_the_last() {
        let program = |name: &str| PeerProgram::Other { name: name.into(), binary: PathBuf::new() };
        let mut table = PairTable::new(&[program("nginx"), program("tidegate")]);
        table.add("a", "µs", &[30.0, 3.0]);
        assert_eq!(table.0.lines().last(), Some("| a | 30 µs | 3.00 µs | **10.0** |"));
    }
}
