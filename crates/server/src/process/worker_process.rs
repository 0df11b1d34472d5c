//! Initializes a worker process after the fork: limits, user, directory, environment (nginx:
//! `ngx_worker_process_init`).

use crate::conf::{Config, CorePlan, Invocation};
use crate::confinement;
use crate::messages::FATAL;
use crate::process::control::{self, ControlThread, Orders};
use crate::process::facts;
use crate::process::listeners::Listeners;
use crate::say;
use observe::os_error;
use rustix::process::{Resource, Rlimit};
use sandbox::PathRules;
use std::ffi::OsString;
use std::os::fd::OwnedFd;

/// Runs in the child of the fork; returns the exit code.
pub fn run_worker(
    invocation: Invocation,
    config: Config,
    listeners: Listeners,
    rules: Option<PathRules>,
    channel: OwnedFd,
    keys: Option<OwnedFd>,
) -> i32 {
    if let Some(door) = keys {
        crate::keys::service::install_keys(door);
    }
    net::process::set_name(c"tidegate worker");
    net::title::set(&format!("{}: worker process", crate::messages::program_name()));
    let transparent = config.transparent();
    let prepared = confinement::prepare_rules(rules.as_ref());
    net::process::watch_memory();
    if !become_worker(&config.core, transparent) {
        return FATAL;
    }
    facts::install_metrics();
    let refusals = confinement::enter_worker(&config, rules.as_ref(), prepared);
    control::run_control(ControlThread { invocation, config, listeners, orders: Orders::Master(channel), refusals })
}

/// Returns `false` after a logged error, after which the process must exit.
fn become_worker(core: &CorePlan, transparent: bool) -> bool {
    if let Err(e) = net::process::set_environment(&keep_environment(core)) {
        say!(Emerg, "setting the environment failed {}", os_error(&e));
        return false;
    }
    if core.priority != 0
        && let Err(e) = rustix::process::setpriority_process(None, core.priority)
    {
        say!(Alert, "setpriority({}) failed {}", core.priority, os_error(&e.into()));
    }
    set_limits(core);
    if rustix::process::geteuid().is_root()
        && let Some(user) = &core.user
    {
        if transparent && let Err(e) = rustix::thread::set_keep_capabilities(true) {
            say!(Emerg, "prctl(PR_SET_KEEPCAPS, 1) failed {}", os_error(&e.into()));
            return false;
        }
        if let Err((call, e)) = net::process::become_user(&user.name, user.uid, user.gid) {
            say!(Emerg, "{call} failed {}", os_error(&e));
            return false;
        }
        if transparent && let Err(e) = keep_net_raw() {
            say!(Emerg, "capset() failed {}", os_error(&e));
            return false;
        }
    }
    // A change of the user disables core files; worker_rlimit_core enables them again.
    let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::Dumpable);
    if let Some(directory) = &core.working_directory
        && let Err(e) = std::env::set_current_dir(directory)
    {
        say!(Alert, "chdir(\"{}\") failed {}", directory.display(), os_error(&e));
        return false;
    }
    true
}

/// Keeps only the capability for transparent proxying.
fn keep_net_raw() -> std::io::Result<()> {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    let only = CapabilitySet::NET_RAW;
    let sets = CapabilitySets { effective: only, permitted: only, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets)?;
    Ok(())
}

/// Warns that a reload needs privileges that this process has dropped.
pub fn say_what_is_missing(config: &Config) {
    let transparent = config.transparent();
    let net_raw = rustix::thread::CapabilitySet::NET_RAW;
    if transparent && rustix::thread::capabilities(None).is_ok_and(|sets| !sets.effective.contains(net_raw)) {
        say!(
            Warn,
            "\"transparent\" needs a capability that this process has given up: requests to such servers get 500 until a restart"
        );
    }
}

/// Sets the limits of the process. nginx's descriptor limit applies to a worker, of which this process has several.
pub fn set_limits(core: &CorePlan) {
    let set = |resource, name: &str, value: u64, rlimit: Rlimit| {
        if let Err(e) = rustix::process::setrlimit(resource, rlimit) {
            say!(Alert, "setrlimit({name}, {value}) failed {}", os_error(&e.into()));
        }
    };
    let equal = |n: u64| Rlimit { current: Some(n), maximum: Some(n) };
    match core.rlimit_nofile {
        Some(n) => {
            let all = n.saturating_mul(core.workers as u64).min(1 << 20);
            set(Resource::Nofile, "RLIMIT_NOFILE", all, equal(all));
        }
        None => raise_descriptor_limit(),
    }
    if let Some(n) = core.rlimit_core {
        set(Resource::Core, "RLIMIT_CORE", n, equal(n));
    }
    let allowed = rustix::process::getrlimit(Resource::Nofile).current;
    let wanted = (core.worker_connections * core.workers) as u64;
    if let Some(allowed) = allowed.filter(|allowed| wanted > *allowed) {
        say!(
            Warn,
            "{wanted} connections ({} worker_connections) exceed open file resource limit: {allowed}",
            core.worker_connections
        );
    }
}

/// Raises the soft limit to the hard limit: a socket per thread and address exceeds most shells' soft limit.
pub fn raise_descriptor_limit() {
    let now = rustix::process::getrlimit(Resource::Nofile);
    let _ = rustix::process::setrlimit(Resource::Nofile, Rlimit { current: now.maximum, ..now });
}

/// Keeps TZ and the variables of `env`; removes all others.
pub fn keep_environment(core: &CorePlan) -> Vec<(OsString, OsString)> {
    let mut out = Vec::new();
    let listed = &core.environment.0;
    let zone = (!listed.iter().any(|(name, _)| name == "TZ")).then(|| (OsString::from("TZ"), None));
    for (name, value) in listed.iter().cloned().chain(zone) {
        if let Some(value) = value.or_else(|| std::env::var_os(&name)) {
            out.push((name, value));
        }
    }
    out
}
