//! Shared by tests in simulated time: plans, random numbers, and courses by seed.

use base::clock;
use net::Address;
use server::conf::{self, Invocation};
use std::cell::RefCell;
use std::io::{ErrorKind, Read};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{LazyLock, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use worker::sim::Sim;
use worker::thread::ServeLoop;

/// A folder with a file that is larger than a socket takes.
pub static FOLDER: LazyLock<PathBuf> = LazyLock::new(|| {
    let folder = std::env::temp_dir().join(format!("tidegate-simulation-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::write(folder.join("big"), big()).expect("a file");
    let huge = std::fs::File::create(folder.join("huge")).expect("a file");
    huge.set_len(1 << 30).expect("a sparse file");
    folder
});

pub fn big() -> Vec<u8> {
    (0..400_000u32).map(|n| b'a' + (n % 23) as u8).collect()
}

pub fn first() -> Address {
    Address::Ip(([127, 0, 0, 1], 8001).into())
}
pub fn second() -> Address {
    Address::Ip(([127, 0, 0, 1], 8002).into())
}

/// Returns the plan of a configuration; `servers` stands in the http block.
pub fn serving(servers: &str) -> ServeLoop {
    reading(&format!("access_log off; {servers}"))
}
/// `serving` with a log of requests in this file and format.
pub fn logging(file: &str, format: &str, servers: &str) -> ServeLoop {
    let folder = FOLDER.display();
    reading(&format!("log_format own '{format}'; access_log {folder}/{file} own; {servers}"))
}

fn reading(http: &str) -> ServeLoop {
    let folder = FOLDER.display();
    configured(&format!("error_log /dev/null crit; events {{ }} http {{ root {folder}; {http} }}")).0
}

/// Metrics, descriptors and the panic hook belong to the process: a simulation shares it with others or has it alone, until its thread
/// ends.
static PROCESS: RwLock<()> = RwLock::new(());

enum ProcessGuard {
    Shared(#[allow(dead_code, reason = "dropped with the thread")] RwLockReadGuard<'static, ()>),
    Alone(#[allow(dead_code, reason = "dropped with the thread")] RwLockWriteGuard<'static, ()>),
}

thread_local! {
    static GUARD: RefCell<Option<ProcessGuard>> = const { RefCell::new(None) };
}

/// Waits for the end of all simulations of other tests, and holds later ones off until this test ends. To be called before the first
/// configuration is read.
pub fn have_process_alone() {
    let guard = ProcessGuard::Alone(PROCESS.write().unwrap_or_else(PoisonError::into_inner));
    GUARD.with_borrow_mut(|held| *held = Some(guard));
}

fn share_process() {
    GUARD.with_borrow_mut(|held| {
        held.get_or_insert_with(|| ProcessGuard::Shared(PROCESS.read().unwrap_or_else(PoisonError::into_inner)));
    });
}

/// The plan and the listeners of a thread under this configuration.
pub fn configured(text: &str) -> (ServeLoop, Vec<net::listen::ListenSpec>) {
    share_process();
    let path = |name: &str| FOLDER.join(name);
    let invocation = Invocation {
        prefix: FOLDER.clone(),
        conf_file: path("nginx.conf"),
        error_log: None,
        error_log_said: false,
        pid: path("pid"),
        globals: Vec::new(),
        text: Some(text.as_bytes().to_vec()),
    };
    let reading = conf::read_config(
        &conf_syntax::Disk,
        conf_schema::TextStore::default(),
        &invocation,
        observe::LogFiles::default(),
    );
    let config = reading.config.unwrap_or_else(|failure| panic!("{:?}", failure.complaints));
    for file in config.logs.all() {
        file.open().expect("a log");
    }
    let specs = config.specs();
    let serving = ServeLoop {
        stream: config.stream,
        mail: config.mail,
        http: config.http,
        error_log: config.error_log,
        connections_max: config.core.worker_connections,
        multi_accept: config.core.multi_accept,
        shutdown_timeout_ms: config.core.shutdown_timeout_ms,
        stall_threshold_ms: 0,
    };
    (serving, specs)
}

/// Returns the received bytes, and `true` at the end of the stream.
pub fn drain(stream: &mut UnixStream) -> (Vec<u8>, bool) {
    let (mut all, mut buf) = (Vec::new(), [0; 4096]);
    loop {
        match stream.read(&mut buf) {
            Ok(0) => return (all, true),
            Ok(n) => all.extend_from_slice(buf.get(..n).expect("read")),
            Err(e) if e.kind() == ErrorKind::WouldBlock => return (all, false),
            Err(_) => return (all, true),
        }
    }
}
/// Turns without a step after which a loop is idle.
const IDLE_TURNS: usize = 10;

/// Runs turns until none takes simulated time any more, and returns the longest one in microseconds.
pub fn longest_turn(sim: &mut Sim) -> u64 {
    let (mut longest, mut idle) = (0, 0);
    while idle < IDLE_TURNS {
        let began = clock::now();
        sim.turn().expect("a turn");
        let micros = clock::now().micros_since(began);
        idle = if micros == 0 { idle + 1 } else { 0 };
        longest = longest.max(micros);
    }
    longest
}

/// Panics are expected; their messages are suppressed.
pub fn quiet_panics() {
    std::panic::set_hook(Box::new(|info| {
        let words = info.payload().downcast_ref::<&str>().copied().unwrap_or_default();
        if words != "a test's panic" {
            eprintln!("{info}");
        }
    }));
}

/// Runs courses by seed: `TIDEGATE_SIM_SEED` selects one, `TIDEGATE_SIM_COUNT` sets the number.
pub fn for_seeds(usual: u64, course: impl Fn(u64)) {
    let said = |name: &str| std::env::var(name).ok().and_then(|n| n.parse().ok());
    let count = said("TIDEGATE_SIM_COUNT").unwrap_or(usual);
    let seeds = said("TIDEGATE_SIM_SEED").map_or(0..count, |seed: u64| seed..seed + 1);
    for seed in seeds {
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| course(seed)));
        assert!(done.is_ok(), "seed {seed} fails: TIDEGATE_SIM_SEED={seed}");
    }
}
