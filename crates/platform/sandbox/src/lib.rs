//! Confinement of the server's processes by the kernel: seccomp filters, Landlock rules, capabilities. The rules come from the
//! configuration (`server/src/conf`); this crate knows no directive.

#![forbid(unsafe_code)]

mod calls;
mod filter;
mod landlock;
mod privileges;
mod rules;

pub use calls::call_name;
pub use filter::filter_fingerprint;
pub use landlock::PreparedRules;
pub use net::confine::{count_refused, has_filters, is_filtered, landlock_version, refused_calls};
pub use privileges::{Privileges, keep_capabilities};
pub use rules::{Needs, PathAccess, PathRule, PathRules, PortRules};

use std::io;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Process {
    Master,
    /// The worker process with its control thread and all threads that it starts.
    Worker,
    /// The process with private keys. `opens`: it loads keys that variables name.
    Keys {
        opens: bool,
    },
}

/// Values of the directive `sandbox`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Off,
    /// Calls are not refused but logged by the kernel's audit. There are no Landlock rules, which cannot be tried without effect.
    Log,
    On,
    /// Also restricts reads and TCP connections to those that the configuration names.
    Strict,
}

/// Lowest version of Landlock with rules for renames between folders, which caches and WebDAV need.
pub const LANDLOCK_FILES: u32 = 2;
/// Lowest version of Landlock with rules for TCP ports.
pub const LANDLOCK_PORTS: u32 = 4;
/// Lowest version of Landlock that confines signals and abstract sockets.
pub const LANDLOCK_SCOPES: u32 = 6;

/// Enforces filters on this thread, and on those that it starts. Refused calls fail with EPERM. `counted` calls need the handler that
/// [`count_refused`] installs: without it, as in a program that inherits the filter, they end the process.
///
/// # Errors
/// The kernel has no filters or refuses them; nothing is enforced then.
pub fn filter_calls(process: Process, mode: Mode, counted: bool) -> io::Result<()> {
    net::confine::no_new_privileges()?;
    filter::install_filters(process, mode, counted)
}
