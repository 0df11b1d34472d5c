//! Rules as a Landlock domain.

use crate::rules::{PathAccess, PathRules, PortRules};
use crate::{LANDLOCK_FILES, LANDLOCK_PORTS, LANDLOCK_SCOPES};
use landlock::{
    AccessFs, AccessNet, BitFlags, NetPort, PathBeneath, PathFd, Ruleset, RulesetAttr, RulesetCreated,
    RulesetCreatedAttr, Scope, make_bitflags,
};
use net::confine::landlock_version;
use std::io;

/// A domain whose paths are open and that is not yet enforced.
#[derive(Debug)]
pub struct PreparedRules(RulesetCreated);

fn read() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | ReadDir})
}

fn write() -> BitFlags<AccessFs> {
    let make = make_bitflags!(AccessFs::{MakeDir | MakeReg | MakeSym | MakeFifo | MakeSock});
    let change = make_bitflags!(AccessFs::{WriteFile | Truncate | Refer | RemoveDir | RemoveFile});
    read() | make | change
}

/// Rights that no rule grants.
fn never() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{Execute | MakeChar | MakeBlock})
}

/// Rights that a rule for a file can have.
fn of_files() -> BitFlags<AccessFs> {
    make_bitflags!(AccessFs::{ReadFile | WriteFile | Truncate})
}

impl PreparedRules {
    /// Opens the paths, with the rights of this process. Paths that are gone are left out.
    ///
    /// # Errors
    /// The kernel refuses the domain, or has no Landlock.
    pub fn new(rules: &PathRules) -> io::Result<PreparedRules> {
        let version = landlock_version();
        if version < LANDLOCK_FILES {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // Without `IoctlDev`: log files may be terminals.
        let mut ruleset = Ruleset::default().handle_access(read() | write() | never()).map_err(io::Error::other)?;
        if version >= LANDLOCK_PORTS {
            for (ports, access) in [(&rules.connect, AccessNet::ConnectTcp), (&rules.bind, AccessNet::BindTcp)] {
                if *ports != PortRules::Any {
                    ruleset = ruleset.handle_access(access).map_err(io::Error::other)?;
                }
            }
        }
        if version >= LANDLOCK_SCOPES {
            ruleset = ruleset.scope(Scope::Signal | Scope::AbstractUnixSocket).map_err(io::Error::other)?;
        }
        let mut created = ruleset.create().map_err(io::Error::other)?;
        for rule in &rules.paths {
            let rights = if rule.access == PathAccess::Read { read() } else { write() };
            let rights = if rule.folder { rights } else { rights & of_files() };
            let Ok(open) = PathFd::new(&rule.path) else { continue };
            created = created.add_rule(PathBeneath::new(open, rights)).map_err(io::Error::other)?;
        }
        if version >= LANDLOCK_PORTS {
            for (ports, access) in [(&rules.connect, AccessNet::ConnectTcp), (&rules.bind, AccessNet::BindTcp)] {
                let PortRules::Only(ports) = ports else { continue };
                for port in ports {
                    created = created.add_rule(NetPort::new(*port, access)).map_err(io::Error::other)?;
                }
            }
        }
        Ok(PreparedRules(created))
    }

    /// Adds the process's own entry of `/proc`, which does not exist before the process does.
    ///
    /// # Errors
    /// The kernel refuses the rule.
    pub fn own_process(self) -> io::Result<PreparedRules> {
        let Ok(open) = PathFd::new(format!("/proc/{}", std::process::id())) else { return Ok(self) };
        let created = self.0.add_rule(PathBeneath::new(open, read())).map_err(io::Error::other)?;
        Ok(PreparedRules(created))
    }

    /// Enforces the domain on this thread, and on those that it starts.
    ///
    /// # Errors
    /// The kernel refuses it; nothing is enforced then.
    pub fn enforce(self) -> io::Result<()> {
        self.0.restrict_self().map_err(io::Error::other)?;
        Ok(())
    }
}
