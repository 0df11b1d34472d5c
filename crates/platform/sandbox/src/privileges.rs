//! Capabilities of a process.

use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities};
use std::io;

/// Which capabilities a process keeps, of those that it has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privileges {
    /// Capabilities of a master: binding ports, accessing files of all users, switching users, signalling workers,
    /// limits.
    Master,
    /// Capabilities of a worker that runs as another user.
    Worker { transparent: bool },
    /// Capabilities of a worker with `user root`: accessing files of all users.
    RootWorker { transparent: bool },
}

impl Privileges {
    fn set(self) -> CapabilitySet {
        use CapabilitySet as C;
        let files = C::CHOWN | C::DAC_OVERRIDE | C::DAC_READ_SEARCH | C::FOWNER | C::FSETID;
        let raw = |transparent| if transparent { C::NET_RAW } else { C::empty() };
        match self {
            Privileges::Master => {
                let users = C::SETUID | C::SETGID | C::SETPCAP | C::KILL;
                let limits = C::SYS_RESOURCE | C::SYS_NICE | C::IPC_LOCK;
                files | users | limits | C::NET_BIND_SERVICE | C::NET_RAW | C::NET_ADMIN | C::SYS_CHROOT
            }
            Privileges::Worker { transparent } => raw(transparent),
            Privileges::RootWorker { transparent } => files | raw(transparent),
        }
    }
}

/// Gives up all other capabilities of this thread, and with them those of processes that it starts.
///
/// # Errors
/// The kernel refuses it.
pub fn keep_capabilities(keep: Privileges) -> io::Result<()> {
    let keep = keep.set();
    // Only a privileged process can reduce the bounding set; without privileges the sets below suffice.
    for one in CapabilitySet::all().iter().filter(|one| !keep.contains(*one)) {
        let _ = rustix::thread::remove_capability_from_bounding_set(one);
    }
    let now = capabilities(None)?;
    let sets = CapabilitySets {
        effective: now.effective & keep,
        permitted: now.permitted & keep,
        inheritable: now.inheritable & keep,
    };
    Ok(set_capabilities(None, sets)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_keeps_what_transparent_proxying_needs() {
        assert!(Privileges::Worker { transparent: false }.set().is_empty());
        assert_eq!(Privileges::Worker { transparent: true }.set(), CapabilitySet::NET_RAW);
        for process in [Privileges::Master, Privileges::RootWorker { transparent: true }] {
            assert!(!process.set().intersects(CapabilitySet::SYS_ADMIN | CapabilitySet::SYS_PTRACE));
        }
    }
}
