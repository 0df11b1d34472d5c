//! Value types of the main and events contexts.

use conf_schema::store::MachineFacts;
use conf_schema::value::{parse_decimal, word_at};
use conf_schema::{At, Complaint, ComplaintLevel, Cx, Directive, Problem, ValueKind};
use net::pool::PoolSpec;
use net::process::{UserAccount, find_group, find_user};
use std::ffi::OsString;

/// Maximum number of threads; more are considered a mistake (nginx: `NGX_MAX_PROCESSES`).
pub const WORKERS_MAX: usize = 1024;

/// With root as the starter and no `user`.
pub const DEFAULT_USER: &str = "nobody";

/// Returns that account, or `None` if the system lacks it.
pub fn default_user() -> Option<UserAccount> {
    find_user(DEFAULT_USER).ok().flatten()
}

/// `user NAME [GROUP]`, looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User(pub Option<UserAccount>);

impl ValueKind for User {
    const SYNTAX: &'static str = "user [group]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        if !cx.store.superuser() {
            let text = "the \"user\" directive makes sense only if the master process runs with super-user privileges, \
                        ignored";
            cx.warn(d, text);
            return Ok(User(None));
        }
        let name = word_at(d, 0)?.text().into_owned();
        let group_name = d.args.get(1).map_or(name.clone(), |w| w.text().into_owned());
        let failed = |call: &str, name: &str, at: usize, e: Option<std::io::Error>| {
            let why = e.map_or(String::new(), |e| format!(" {}", observe::os_error(&e)));
            Problem::says(format!("{call}(\"{name}\") failed{why}")).at(at)
        };
        let account = match find_user(&name) {
            Ok(Some(account)) => account,
            // The text of a configuration of another machine is checked.
            Ok(None) if cx.store.elsewhere => return Ok(User(None)),
            Ok(None) => {
                return Err(failed("getpwnam", &name, 0, None).hint(format!("this machine has no user \"{name}\"")));
            }
            Err(e) => return Err(failed("getpwnam", &name, 0, Some(e))),
        };
        match find_group(&group_name) {
            Ok(Some(gid)) => Ok(User(Some(UserAccount { gid, ..account }))),
            Ok(None) if cx.store.elsewhere => Ok(User(None)),
            Ok(None) => {
                let hint = format!("there is no group \"{group_name}\" here; name one: user {name} GROUP;");
                Err(failed("getgrnam", &group_name, d.args.len() - 1, None).hint(hint))
            }
            Err(e) => Err(failed("getgrnam", &group_name, d.args.len() - 1, Some(e))),
        }
    }
}

conf_schema::words! {
    pub enum SandboxMode { Off = "off", Log = "log", On = "on", Strict = "strict" }
}

impl SandboxMode {
    pub fn mode(self) -> sandbox::Mode {
        match self {
            SandboxMode::Off => sandbox::Mode::Off,
            SandboxMode::Log => sandbox::Mode::Log,
            SandboxMode::On => sandbox::Mode::On,
            SandboxMode::Strict => sandbox::Mode::Strict,
        }
    }
}

/// `worker_processes N | auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Workers(pub usize);

impl ValueKind for Workers {
    const SYNTAX: &'static str = "number | auto";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?.text();
        if word == "auto" {
            return Ok(Workers(cpus(cx).min(WORKERS_MAX)));
        }
        match word.parse::<usize>() {
            Ok(n) if n <= WORKERS_MAX && !word.starts_with('+') => {
                if n == 0 {
                    // As in nginx, the sockets exist, and connections wait for a configuration with workers.
                    cx.warn(d, "without workers no connection is accepted");
                }
                Ok(Workers(n))
            }
            _ => Err(Problem::invalid().at(0).hint(format!("write \"auto\" or a number up to {WORKERS_MAX}"))),
        }
    }
}

/// Returns the starting user, and the CPUs of this process (affinity and control group quota).
pub fn starting_machine() -> MachineFacts {
    MachineFacts {
        superuser: rustix::process::geteuid().is_root(),
        cpus: std::thread::available_parallelism().map_or(1, usize::from),
    }
}

fn cpus(cx: &Cx) -> usize {
    cx.store.machine.unwrap_or_else(starting_machine).cpus
}

/// `worker_cpu_affinity MASK ... | auto [MASK]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Affinity {
    /// One CPU per thread, round robin over the mask.
    auto: bool,
    masks: Vec<Vec<usize>>,
}

impl Affinity {
    /// `None` with `auto`.
    pub fn masks(&self) -> Option<usize> {
        (!self.auto).then_some(self.masks.len())
    }

    /// Returns `None` without an affinity.
    pub fn cpus(&self, thread: usize) -> Option<Vec<usize>> {
        let mask = if self.auto { self.masks.last() } else { self.masks.get(thread).or(self.masks.last()) }?;
        if mask.is_empty() {
            return None;
        }
        if self.auto { Some(vec![*mask.get(thread % mask.len())?]) } else { Some(mask.clone()) }
    }
}

impl ValueKind for Affinity {
    const SYNTAX: &'static str = "cpumask ... | auto [cpumask]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        const CPUS_MAX: usize = 1024;
        let auto = word_at(d, 0)?.text() == "auto";
        if auto && d.args.len() > 2 {
            return Err(Problem::says("invalid number of arguments in \"worker_cpu_affinity\" directive").at(2));
        }
        let mut masks = Vec::new();
        for (index, word) in d.args.iter().enumerate().skip(usize::from(auto)) {
            if word.bytes.len() > CPUS_MAX {
                let text = format!("\"worker_cpu_affinity\" supports up to {CPUS_MAX} CPUs only");
                return Err(Problem::says(text).at(index));
            }
            let mut mask = Vec::new();
            for (cpu, c) in word.bytes.iter().rev().filter(|c| **c != b' ').enumerate() {
                match c {
                    b'0' => {}
                    b'1' => mask.push(cpu),
                    c => {
                        let text = format!("invalid character \"{}\" in \"worker_cpu_affinity\"", *c as char);
                        return Err(Problem::says(text)
                            .at(index)
                            .hint("a mask consists of 0 and 1; its last digit is CPU 0"));
                    }
                }
            }
            masks.push(mask);
        }
        if masks.is_empty() {
            masks.push((0..cpus(cx)).collect());
        }
        Ok(Affinity { auto, masks })
    }
}

/// `worker_priority [-]N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Priority(pub i32);

impl ValueKind for Priority {
    const SYNTAX: &'static str = "number";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?.text();
        let digits = word.strip_prefix(['-', '+']).unwrap_or(&word);
        match digits.parse::<i32>() {
            Ok(n) if digits.starts_with(|c: char| c.is_ascii_digit()) => {
                Ok(Priority(if word.starts_with('-') { -n } else { n }))
            }
            _ => Err(Problem::directive("invalid number").at(0).hint("a number from -20 (first) to 19 (last)")),
        }
    }
}

/// `env NAME[=VALUE]`, accumulated over all lines.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment(pub Vec<(OsString, Option<OsString>)>);

impl ValueKind for Environment {
    const SYNTAX: &'static str = "variable[=value]";
    const REPEATS: bool = true;
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        use std::os::unix::ffi::OsStringExt;
        let bytes = &word_at(d, 0)?.bytes;
        let mut parts = bytes.splitn(2, |c| *c == b'=');
        let name = OsString::from_vec(parts.next().unwrap_or_default().to_vec());
        Ok(Environment(vec![(name, parts.next().map(|value| OsString::from_vec(value.to_vec())))]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// `load_module FILE`: does not open the file, because all modules are built in.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Modules(pub Vec<String>);

/// Dynamic modules that nginx and its distributors ship.
const KNOWN_MODULES: [&str; 23] = [
    "ndk_http_module",
    "ngx_http_echo_module",
    "ngx_http_set_misc_module",
    "ngx_http_uploadprogress_module",
    "ngx_http_vhost_traffic_status_module",
    "ngx_http_geoip_module",
    "ngx_http_image_filter_module",
    "ngx_http_geoip2_module",
    "ngx_http_dav_ext_module",
    "ngx_http_headers_more_filter_module",
    "ngx_mail_module",
    "ngx_stream_module",
    "ngx_stream_geoip_module",
    "ngx_stream_geoip2_module",
    "ngx_http_brotli_filter_module",
    "ngx_http_brotli_static_module",
    "ngx_http_zstd_filter_module",
    "ngx_http_zstd_static_module",
    "ngx_http_dav_module",
    "ngx_http_v2_module",
    "ngx_http_v3_module",
    "ngx_http_ssl_module",
    "ngx_otel_module",
];

const IGNORED: &str = "\"load_module\" is ignored: ";
/// Third-party modules named in one line; further ones are counted.
const NAMED_MAX: usize = 3;

#[derive(Default)]
struct LoadedModule {
    at: At,
    known: usize,
    foreign: Vec<String>,
}

/// Warns once about all ignored modules: distributions load twenty of them.
pub fn modules_warning(cx: &mut Cx) -> Option<Complaint> {
    let LoadedModule { at, known, foreign } = cx.take();
    let count = known + foreign.len();
    if count == 0 {
        return None;
    }
    let mut text = match (known, foreign.is_empty()) {
        (0, _) => IGNORED.to_string(),
        (1, _) => format!("{IGNORED}1 of the modules is built in"),
        _ => format!("{IGNORED}{known} of the modules are built in"),
    };
    if !foreign.is_empty() {
        let shown = foreign.iter().take(NAMED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
        let more = foreign.len().saturating_sub(NAMED_MAX);
        let more = if more > 0 { format!(" and {more} more") } else { String::new() };
        let semicolon = if known > 0 { "; " } else { "" };
        text.push_str(&format!("{semicolon}not available: {shown}{more}"));
    }
    Some(Complaint { level: ComplaintLevel::Warn, span: Some(at.span), line: at.line, ..Complaint::emerg(text) })
}

/// Warns with `-t` and at start, but not at every reload.
pub fn is_for_a_start(complaint: &Complaint) -> bool {
    complaint.text.starts_with(IGNORED) || complaint.text.starts_with(tls_directives::report::CIPHERS)
}

impl ValueKind for Modules {
    const SYNTAX: &'static str = "file";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let file = word_at(d, 0)?.text().into_owned();
        let stem = file.rsplit('/').next().unwrap_or_default().trim_end_matches(".so").to_string();
        let at = cx.at;
        let loaded = cx.get::<LoadedModule>();
        if loaded.at == At::default() {
            loaded.at = at;
        }
        if KNOWN_MODULES.contains(&stem.as_str()) {
            loaded.known += 1;
        } else if !loaded.foreign.contains(&stem) {
            loaded.foreign.push(stem);
        }
        Ok(Modules(vec![file]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

/// `thread_pool NAME threads=N [max_queue=N]`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ThreadPools(pub Vec<PoolSpec>);

#[derive(Default)]
struct PoolNames(Vec<String>);

impl ValueKind for ThreadPools {
    const SYNTAX: &'static str = "name threads=number [max_queue=number]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = word_at(d, 0)?.text().into_owned();
        let names = &mut cx.get::<PoolNames>().0;
        if names.contains(&name) {
            return Err(Problem::says(format!("duplicate thread pool \"{name}\"")).at(0));
        }
        names.push(name.clone());
        let mut pool = PoolSpec { name, threads: 0, ..PoolSpec::default() };
        for (index, word) in d.args.iter().enumerate().skip(1) {
            let word = word.text();
            let (key, value) = word.split_once('=').unwrap_or((&word, ""));
            match (key, parse_decimal::<usize>(value)) {
                ("threads", Some(n)) if n > 0 => pool.threads = n,
                ("max_queue", Some(n)) => pool.queue_max = n,
                ("threads", _) => return Err(Problem::says(format!("invalid threads value \"{word}\"")).at(index)),
                ("max_queue", _) => return Err(Problem::says(format!("invalid max_queue value \"{word}\"")).at(index)),
                // (nginx ignores other words silently.)
                _ => cx.warn(d, format!("\"thread_pool\" has no parameter \"{word}\", ignored")),
            }
        }
        if pool.threads == 0 {
            let text = "\"thread_pool\" must have \"threads\" parameter";
            return Err(Problem::says(text).hint("for example threads=32"));
        }
        Ok(ThreadPools(vec![pool]))
    }
    fn append(&mut self, later: Self) {
        self.0.extend(later.0);
    }
}

conf_schema::words! {
    pub enum DebugPoints {
        Stop = "stop",
        Abort = "abort",
    }
}

/// `worker_connections N`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Connections(pub usize);

impl ValueKind for Connections {
    const SYNTAX: &'static str = "number";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?.text();
        let number = parse_decimal::<u32>(&word);
        match number {
            Some(n) => Ok(Connections(n as usize)),
            None => {
                Err(Problem::says(format!("invalid number \"{word}\"")).at(0).hint("write a whole number such as 1024"))
            }
        }
    }
}

/// `use METHOD`: only `epoll`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EventMethod;

impl ValueKind for EventMethod {
    const SYNTAX: &'static str = "epoll";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?.text();
        if word == "epoll" {
            return Ok(EventMethod);
        }
        Err(Problem::says(format!("invalid event type \"{word}\""))
            .at(0)
            .hint("only epoll is supported: write \"use epoll;\" or remove the line"))
    }
}

/// `debug_connection ADDRESS`: no effect, without debug messages.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DebugConnections;

impl ValueKind for DebugConnections {
    const SYNTAX: &'static str = "address | CIDR | unix:";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        cx.warn(d, "\"debug_connection\" is ignored: this version writes no debug messages");
        Ok(DebugConnections)
    }
}

/// An unsupported directive that cannot be ignored, because it would change the behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedDirective;

impl ValueKind for RefusedDirective {
    const SYNTAX: &'static str = "value";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let why = match &*d.name.text() {
            "ssl_engine" => "keys are read from files, not from OpenSSL engines",
            "google_perftools_profiles" => "profile with perf, which needs no library in the program",
            _ => "it configures an event method of other systems; Linux uses epoll",
        };
        Err(Problem::directive(format!("is not supported: {why}")))
    }
}
