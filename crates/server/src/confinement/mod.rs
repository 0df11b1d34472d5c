//! Confinement of master, worker and key process (`sandbox`): rules, enforcement and reports.
//!
//! The master computes a worker's rules before the fork and compares them at a reload. A running process cannot gain
//! permissions, so a configuration that needs more gets a new worker process.

#[cfg(debug_assertions)]
mod probe;

use crate::conf::Config;
use crate::say;
use observe::os_error;
use rustix::process::{DumpableBehavior, Resource, Rlimit};
use sandbox::{LANDLOCK_FILES, LANDLOCK_PORTS, Mode, PathRules, PortRules, PreparedRules, Privileges, Process};
use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

/// Variable for tests. `kill`: refused calls abort the process. `probe` (debug builds): each process tries to escape.
const VARIABLE: &str = "TIDEGATE_SANDBOX";
/// Variable for a new binary (USR2): fingerprint of the master's filters, which it inherits. Without it each new binary
/// would add a copy, and the kernel bounds their total length (16 copies).
const INHERITED: &str = "TIDEGATE_FILTERS";
/// Fingerprint of the filters of this master.
static FILTERS: OnceLock<String> = OnceLock::new();
/// Paths that no rule names, for tests.
#[cfg(debug_assertions)]
const SECRETS: [&str; 2] = ["/etc/shadow", "/root"];

fn testing() -> &'static str {
    static WORDS: OnceLock<String> = OnceLock::new();
    WORDS.get_or_init(|| std::env::var(VARIABLE).unwrap_or_default())
}

#[derive(Debug)]
pub struct Refusals {
    event: OwnedFd,
    told: BTreeMap<usize, u64>,
}

impl AsFd for Refusals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event.as_fd()
    }
}

impl Refusals {
    fn begin() -> Option<Refusals> {
        match sandbox::count_refused(testing() == "kill") {
            Ok(event) => Some(Refusals { event, told: BTreeMap::new() }),
            Err(e) => {
                say!(Alert, "sandbox: refused calls cannot be counted {}", os_error(&e));
                None
            }
        }
    }

    /// Logs calls that were refused for the first time. Returns the number of refused calls since the last invocation.
    pub fn tell(&mut self) -> u64 {
        let mut count = [0; 8];
        while rustix::io::read(&self.event, &mut count).is_ok() {}
        let mut new = 0;
        for (call, total) in sandbox::refused_calls() {
            let told = self.told.entry(call).or_insert(0);
            if *told == 0 {
                say!(Alert, "sandbox: refused system call {}", sandbox::call_name(call));
            }
            new += total - *told;
            *told = total;
        }
        new
    }
}

/// Enforced layers in the order of the metric's values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Layers {
    pub calls: bool,
    pub files: bool,
    pub ports: bool,
}

/// Returns the rules of the worker process; `None` without Landlock, or if the mode has no file rules. Programs that
/// the worker runs would inherit the rules and may need any file.
pub fn worker_rules(config: &Config) -> Option<PathRules> {
    let mode = config.core.sandbox.mode();
    let enforced = matches!(mode, Mode::On | Mode::Strict) && sandbox::landlock_version() >= LANDLOCK_FILES;
    (enforced && config.needs.program.is_none()).then(|| PathRules::of(&config.needs, mode))
}

/// Tells whether a worker with these rules can serve a configuration.
pub fn rules_fit(rules: Option<&PathRules>, config: &Config) -> bool {
    let covers = |rules: &PathRules| rules.cover(&PathRules::of(&config.needs, config.core.sandbox.mode()));
    rules.is_none_or(|rules| config.needs.program.is_none() && covers(rules))
}

pub fn enter_master(config: &Config) {
    let mode = config.core.sandbox.mode();
    if config.core.key_isolation {
        // Workers of the same user could otherwise read the memory files with keys.
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
    if mode == Mode::Off {
        return;
    }
    let _ = testing();
    tell_what_is_missing(mode);
    let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    if let Err(e) = sandbox::keep_capabilities(Privileges::Master) {
        say!(Alert, "sandbox: capset() failed {}", os_error(&e));
    }
    if has_capabilities_of_a_file() {
        say!(Notice, "sandbox: the master is not filtered, so that a new binary gets the capabilities of its file");
        return;
    }
    // A new binary (USR2) inherits the filter without the handler, so refused calls of a master are counted in tests
    // only.
    let counted = testing() == "kill" && Refusals::begin().is_some();
    let own = sandbox::filter_fingerprint(Process::Master, mode, counted).ok().map(|number| format!("{number:016x}"));
    let inherited = own.is_some() && std::env::var(INHERITED).ok() == own && sandbox::is_filtered();
    if (inherited || filter(Process::Master, mode, counted))
        && let Some(own) = own
    {
        let _ = FILTERS.set(own);
    }
    #[cfg(debug_assertions)]
    if testing() == "probe" {
        probe::probe_escapes("master", &[]);
    }
}

/// Returns the variable for a new binary, which inherits the filters of this master.
pub fn for_new_binary() -> Option<(&'static str, &'static str)> {
    FILTERS.get().map(|number| (INHERITED, number.as_str()))
}

/// A non-root program with file capabilities that sets no_new_privs would lose them for its successor (USR2).
fn has_capabilities_of_a_file() -> bool {
    use rustix::thread::{capabilities, capability_is_in_ambient_set};
    !rustix::process::geteuid().is_root()
        && capabilities(None)
            .is_ok_and(|sets| sets.permitted.iter().any(|one| !capability_is_in_ambient_set(one).unwrap_or(false)))
}

/// Warns about missing kernel features, once, in the master.
fn tell_what_is_missing(mode: Mode) {
    if !sandbox::has_filters() {
        say!(Warn, "sandbox: this kernel does not filter system calls (CONFIG_SECCOMP_FILTER)");
    }
    if mode == Mode::Log {
        return;
    }
    match sandbox::landlock_version() {
        0 => say!(Warn, "sandbox: this kernel has no Landlock: files and ports are not restricted"),
        version if version < LANDLOCK_FILES => {
            say!(Warn, "sandbox: Landlock {version} of this kernel cannot allow renames: files are not restricted");
        }
        version if version < LANDLOCK_PORTS && mode == Mode::Strict => {
            say!(Warn, "sandbox: Landlock {version} of this kernel does not restrict ports");
        }
        _ => {}
    }
}

/// Runs in the worker, with the master's privileges.
pub fn prepare_rules(rules: Option<&PathRules>) -> Option<PreparedRules> {
    let _ = testing();
    match PreparedRules::new(rules?) {
        Ok(prepared) => Some(prepared),
        Err(e) => {
            say!(Alert, "sandbox: Landlock failed {}", os_error(&e));
            None
        }
    }
}

/// Runs after the user changed and before threads start.
pub fn enter_worker(config: &Config, rules: Option<&PathRules>, prepared: Option<PreparedRules>) -> Option<Refusals> {
    let core = &config.core;
    let mode = core.sandbox.mode();
    if mode == Mode::Off {
        return None;
    }
    // Debugging needs core files.
    if core.rlimit_core.is_none() && core.debug_points.is_none() {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(Resource::Core, none);
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
    }
    let transparent = config.transparent();
    let keep = match rustix::process::geteuid().is_root() {
        true => Privileges::RootWorker { transparent },
        false => Privileges::Worker { transparent },
    };
    if let Err(e) = sandbox::keep_capabilities(keep) {
        say!(Alert, "sandbox: capset() failed {}", os_error(&e));
    }
    let refusals = if mode == Mode::Log { None } else { Refusals::begin() };
    let mut layers = Layers::default();
    if let (Some(prepared), Some(rules)) = (prepared, rules) {
        match prepared.own_process().and_then(PreparedRules::enforce) {
            Ok(()) => {
                let restricted = rules.connect != PortRules::Any || rules.bind != PortRules::Any;
                (layers.files, layers.ports) = (true, restricted && sandbox::landlock_version() >= LANDLOCK_PORTS);
            }
            Err(e) => say!(Alert, "sandbox: Landlock failed {}", os_error(&e)),
        }
    }
    layers.calls = match config.needs.program {
        None => filter(Process::Worker, mode, refusals.is_some()),
        // A program inherits the filter and has no handler for counted refusals.
        Some(_) => filter(Process::Master, mode, false),
    };
    tell(mode, layers, rules);
    #[cfg(debug_assertions)]
    if testing() == "probe" {
        probe::probe_escapes("worker", &SECRETS);
        let thread = std::thread::spawn(|| probe::probe_escapes("worker thread", &SECRETS));
        let _ = thread.join();
    }
    refusals
}

/// Configurations with equal confinement share a process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyConfinement {
    user: Option<net::process::UserAccount>,
    mode: Mode,
    rules: PathRules,
    /// Key names with variables: the process loads files during handshakes.
    pub opens: bool,
}

impl KeyConfinement {
    pub fn of(config: &Config) -> KeyConfinement {
        let user = config.core.user.clone().filter(|_| rustix::process::geteuid().is_root());
        let opens = config.needs.keys_at_handshakes();
        // Without a master, the process has its user's permissions.
        let user = user.filter(|_| config.core.master_process);
        KeyConfinement { user, mode: config.core.sandbox.mode(), rules: PathRules::of_keys(&config.needs), opens }
    }

    /// Returns `false` if the process must exit.
    pub fn enter(&self) -> bool {
        let none = Rlimit { current: Some(0), maximum: Some(0) };
        let _ = rustix::process::setrlimit(Resource::Core, none);
        let files = matches!(self.mode, Mode::On | Mode::Strict) && sandbox::landlock_version() >= LANDLOCK_FILES;
        let prepared = if files { PreparedRules::new(&self.rules).ok() } else { None };
        if let Some(user) = &self.user
            && net::process::become_user(&user.name, user.uid, user.gid).is_err()
        {
            return false;
        }
        // In every mode: other processes of this user could read keys with a debugger.
        let _ = rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let keep = match self.opens && rustix::process::geteuid().is_root() {
            true => Privileges::RootWorker { transparent: false },
            false => Privileges::Worker { transparent: false },
        };
        if sandbox::keep_capabilities(keep).is_err() {
            return false;
        }
        if self.mode == Mode::Off {
            return true;
        }
        let counted = testing() == "kill"
            && Refusals::begin().is_some_and(|kept| {
                // The signal handler uses the descriptor.
                std::mem::forget(kept);
                true
            });
        let confined = prepared.is_none_or(|prepared| prepared.enforce().is_ok())
            && (!sandbox::has_filters()
                || sandbox::filter_calls(Process::Keys { opens: self.opens }, self.mode, counted).is_ok());
        #[cfg(debug_assertions)]
        if testing() == "probe" {
            probe::run_without_log("key process", &SECRETS);
            let _ = std::thread::spawn(|| probe::run_without_log("key thread", &SECRETS)).join();
        }
        confined
    }
}

/// Confines a process without a master like a worker, in tests only. It opens logs and addresses itself, within the
/// rules of its first configuration.
pub fn enter_single(config: &Config) -> Option<Refusals> {
    if testing() != "kill" {
        return None;
    }
    let mut needs = config.needs.clone();
    // The process opens key files for the key process.
    needs.secrets.clear();
    needs.key_paths.clear();
    let logs = config.logs.all().map(|file| file.path.clone());
    for path in logs.chain([config.core.pid.clone()]) {
        needs.paths.insert((path, sandbox::PathAccess::Write), "logs and pid".into());
    }
    let mode = config.core.sandbox.mode();
    let restricted = matches!(mode, Mode::On | Mode::Strict) && sandbox::landlock_version() >= LANDLOCK_FILES;
    let rules = restricted.then(|| PathRules::of(&needs, mode));
    let prepared = prepare_rules(rules.as_ref());
    enter_worker(config, rules.as_ref(), prepared)
}

fn filter(process: Process, mode: Mode, counted: bool) -> bool {
    if !sandbox::has_filters() {
        return false;
    }
    match sandbox::filter_calls(process, mode, counted) {
        Ok(()) => true,
        Err(e) => {
            say!(Alert, "sandbox: seccomp() failed {}", os_error(&e));
            false
        }
    }
}

fn tell(mode: Mode, layers: Layers, rules: Option<&PathRules>) {
    let word = |on: bool| if on { "yes" } else { "no" };
    let (calls, files, ports) = (word(layers.calls), word(layers.files), word(layers.ports));
    let rules = rules.map_or(0, |rules| rules.paths.len());
    let verb = if mode == Mode::Log { "logged" } else { "filtered" };
    say!(Notice, "sandbox: system calls {verb}: {calls}, files restricted: {files} ({rules} rules), ports: {ports}");
    use metrics::process::SANDBOX;
    for (index, on) in [layers.calls, layers.files, layers.ports].into_iter().enumerate() {
        if on {
            SANDBOX.up_at(index);
        }
    }
}

fn explain_keys(config: &Config) -> Vec<String> {
    let mut lines = vec!["sandbox: the key process may sign, and".into()];
    match config.needs.keys_at_handshakes() {
        false => lines.push("  open no file and no connection".into()),
        true => lines.extend(PathRules::of_keys(&config.needs).describe().into_iter().map(|line| format!("  {line}"))),
    }
    if let Some(why) = &config.needs.keys_anywhere {
        let words = "begins with a variable: the key process may read everything, and workers what their user may";
        lines.push(format!("  = \"{why}\" {words}"));
    }
    lines
}

/// Lines for `-t --explain`.
pub fn explain_rules(config: &Config) -> Vec<String> {
    let mode = config.core.sandbox.mode();
    let mut lines = match mode {
        Mode::Off => return vec!["sandbox: off".into()],
        _ if !config.core.master_process => return vec!["sandbox: none with \"master_process off\"".into()],
        Mode::Log => return vec!["sandbox: refused system calls are logged by the kernel, and made".into()],
        Mode::On => vec!["sandbox: worker processes may".into()],
        Mode::Strict => vec!["sandbox: worker processes may, strictly,".into()],
    };
    lines.extend(PathRules::of(&config.needs, mode).describe().into_iter().map(|line| format!("  {line}")));
    for (access, why) in &config.needs.anywhere {
        let verb = if *access == sandbox::PathAccess::Read { "read" } else { "write" };
        lines.push(format!("  = \"{why}\" begins with a variable: workers may {verb} everything"));
    }
    if let Some(why) = &config.needs.program {
        lines.push(format!("  = \"{why}\" runs a program: workers may use all files and the master's system calls"));
    }
    if config.core.key_isolation {
        lines.extend(explain_keys(config));
    }
    lines.push("  = a reload that needs more starts a new worker process".into());
    lines
}
