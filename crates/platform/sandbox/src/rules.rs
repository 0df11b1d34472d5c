//! Rules of a worker process, computed from the configuration's needs, and their comparison at a reload.

use crate::Mode;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum PathAccess {
    Read,
    /// Reading, writing, making and removing.
    Write,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PortRules {
    Any,
    Only(BTreeSet<u16>),
}

impl PortRules {
    pub fn none() -> PortRules {
        PortRules::Only(BTreeSet::new())
    }
    pub fn add(&mut self, port: u16) {
        if let PortRules::Only(ports) = self {
            ports.insert(port);
        }
    }
    fn cover(&self, other: &PortRules) -> bool {
        match (self, other) {
            (PortRules::Any, _) => true,
            (PortRules::Only(_), PortRules::Any) => false,
            (PortRules::Only(have), PortRules::Only(need)) => need.is_subset(have),
        }
    }
}

/// Files, folders and ports that a configuration uses at run time.
#[derive(Clone, Debug)]
pub struct Needs {
    /// Files and folders, and the directive that names each.
    pub paths: BTreeMap<(PathBuf, PathAccess), String>,
    /// Directives with a path that begins with a variable, for each kind of access.
    pub anywhere: BTreeMap<PathAccess, String>,
    pub connect: PortRules,
    pub bind: PortRules,
    /// Directive that runs a program.
    pub program: Option<String>,
    /// Files with private keys and passwords, which no worker may read.
    pub secrets: BTreeSet<PathBuf>,
    /// Folders and files from which the key process loads keys at handshakes, and the directive that names each. No worker may read them.
    pub key_paths: BTreeMap<PathBuf, String>,
    /// Directive with a key whose path begins with a variable.
    pub keys_anywhere: Option<String>,
}

impl Default for Needs {
    fn default() -> Needs {
        Needs {
            paths: BTreeMap::new(),
            anywhere: BTreeMap::new(),
            connect: PortRules::none(),
            bind: PortRules::none(),
            program: None,
            secrets: BTreeSet::new(),
            key_paths: BTreeMap::new(),
            keys_anywhere: None,
        }
    }
}

impl Needs {
    pub fn keys_at_handshakes(&self) -> bool {
        self.keys_anywhere.is_some() || !self.key_paths.is_empty()
    }
}

/// Device and inode, to which the kernel binds a rule.
type InodeIdentity = (u64, u64);

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRule {
    /// Without symbolic links.
    pub path: PathBuf,
    pub access: PathAccess,
    pub folder: bool,
    identity: InodeIdentity,
    pub why: String,
}

/// Everything else is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathRules {
    pub paths: Vec<PathRule>,
    /// Rules for each need of the configuration, also where a wider rule of `paths` covers it.
    needed: Vec<PathRule>,
    pub connect: PortRules,
    pub bind: PortRules,
    /// Files and folders that no rule may open.
    hidden: BTreeSet<PathBuf>,
}

/// Folders of the system without sites or data: readable only where a directive names something in them.
const SYSTEM: &[&str] = &["boot", "dev", "lost+found", "proc", "root", "run", "sys"];

/// Paths that the C library, the allocator and the runtime read.
const LIBRARIES: &[&str] = &[
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/kernel",
    "/proc/sys/net/core",
    "/proc/sys/vm",
    "/proc/filesystems",
    "/sys/devices/system",
    "/sys/fs/cgroup",
    "/sys/kernel/mm/transparent_hugepage",
    "/dev/random",
    "/dev/urandom",
    "/run/NetworkManager",
    "/run/resolvconf",
    "/run/systemd/resolve",
];

/// Readable in strict mode, where the rest of /etc and /usr is not: names, time zones, authorities, shared libraries.
const LIBRARIES_STRICT: &[&str] = &[
    "/etc/gai.conf",
    "/etc/group",
    "/etc/host.conf",
    "/etc/hosts",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/etc/nsswitch.conf",
    "/etc/passwd",
    "/etc/protocols",
    "/etc/resolv.conf",
    "/etc/services",
    "/etc/ssl/certs",
    "/etc/pki/tls/certs",
    "/lib",
    "/lib64",
    "/usr/lib",
    "/usr/lib64",
    "/usr/share/ca-certificates",
    "/usr/share/zoneinfo",
];

/// Writable always.
const DEVICES: &[&str] = &["/dev/full", "/dev/null", "/dev/zero"];

/// Entries of a writable folder that are searched for symbolic links.
const LINKS_MAX: usize = 10_000;

impl PathRules {
    /// On this machine.
    pub fn of(needs: &Needs, mode: Mode) -> PathRules {
        let strict = mode == Mode::Strict;
        let (mut rules, mut needed) = (RulesBuilder::default(), RulesBuilder::default());
        for path in LIBRARIES.iter().chain(if strict { LIBRARIES_STRICT } else { &[] }) {
            rules.existing(Path::new(path), PathAccess::Read, "the system");
        }
        for path in DEVICES {
            rules.existing(Path::new(path), PathAccess::Write, "the system");
        }
        if !strict {
            for entry in std::fs::read_dir("/").into_iter().flatten().flatten() {
                if !SYSTEM.iter().any(|name| entry.file_name() == *name) {
                    rules.existing(&entry.path(), PathAccess::Read, "links and folders of sites");
                }
            }
        }
        for (access, why) in &needs.anywhere {
            needed.existing(Path::new("/"), *access, why);
        }
        for ((path, access), why) in &needs.paths {
            needed.need(path, *access, why, strict);
        }
        let connect = if strict { needs.connect.clone() } else { PortRules::Any };
        let hidden: BTreeSet<PathBuf> =
            needs.secrets.iter().chain(needs.key_paths.keys()).filter_map(|path| existing(path)).collect();
        if hidden.is_empty() {
            let needed = needed.rules;
            rules.rules.extend(needed.iter().cloned());
            return PathRules { paths: rules.reduced(), needed, connect, bind: needs.bind.clone(), hidden };
        }
        // Paths that directives name remain open by themselves where the folder around it is not.
        let mut exact = RulesBuilder::default();
        for ((path, access), why) in &needs.paths {
            exact.existing(path, *access, why);
        }
        let hide = Hide { hidden: &hidden, exact: &exact.rules };
        let needed: Vec<PathRule> =
            needed.rules.into_iter().chain(exact.rules.iter().cloned()).filter(|rule| hide.leaves(rule)).collect();
        rules.rules.extend(needed.iter().cloned());
        for ((path, access), why) in &needs.paths {
            rules.need(path, *access, why, strict);
        }
        let rules = RulesBuilder { rules: hide.apply(rules.rules) };
        PathRules { paths: rules.reduced(), needed, connect, bind: needs.bind.clone(), hidden }
    }

    /// Rules of the key process: it may read keys that variables name, and nothing else.
    pub fn of_keys(needs: &Needs) -> PathRules {
        let mut rules = RulesBuilder::default();
        if let Some(why) = &needs.keys_anywhere {
            rules.existing(Path::new("/"), PathAccess::Read, why);
        }
        for (path, why) in &needs.key_paths {
            rules.need(path, PathAccess::Read, why, true);
        }
        let (connect, bind, hidden) = (PortRules::none(), PortRules::none(), BTreeSet::new());
        PathRules { paths: rules.reduced(), needed: Vec::new(), connect, bind, hidden }
    }

    /// Tells whether a process with these rules can do everything that others allow, and reads nothing that they hide.
    pub fn cover(&self, others: &PathRules) -> bool {
        self.connect.cover(&others.connect)
            && self.bind.cover(&others.bind)
            && others.needed.iter().all(|other| self.allows(other))
            && others.hidden.iter().all(|path| !self.paths.iter().any(|rule| path.starts_with(&rule.path)))
    }

    fn allows(&self, other: &PathRule) -> bool {
        // The folder may have been replaced since the rule was made: the kernel then knows the old one.
        let holds = |rule: &PathRule| identity(&rule.path) == Some(rule.identity);
        self.paths.iter().any(|rule| rule.access >= other.access && other.path.starts_with(&rule.path) && holds(rule))
    }

    /// The rules as lines for people.
    pub fn describe(&self) -> Vec<String> {
        let mut by_reason: Vec<(PathAccess, &str, Vec<String>)> = Vec::new();
        for rule in &self.paths {
            let path = rule.path.display().to_string();
            match by_reason.iter_mut().find(|(access, why, _)| (*access, *why) == (rule.access, &*rule.why)) {
                Some((_, _, paths)) => paths.push(path),
                None => by_reason.push((rule.access, &rule.why, vec![path])),
            }
        }
        let line = |(access, why, paths): &(PathAccess, &str, Vec<String>)| {
            let verb = if *access == PathAccess::Read { "read" } else { "write" };
            format!("{verb} {} ({why})", paths.join(" "))
        };
        let mut lines: Vec<String> = by_reason.iter().map(line).collect();
        if !self.hidden.is_empty() {
            let paths: Vec<String> = self.hidden.iter().map(|path| path.display().to_string()).collect();
            lines.push(format!("not read {} (private keys)", paths.join(" ")));
        }
        for (verb, ports) in [("connect to", &self.connect), ("bind", &self.bind)] {
            lines.push(match ports {
                PortRules::Any => format!("{verb} any TCP port"),
                PortRules::Only(ports) if ports.is_empty() => format!("{verb} no TCP port"),
                PortRules::Only(ports) => {
                    let ports: Vec<String> = ports.iter().map(u16::to_string).collect();
                    format!("{verb} TCP ports {}", ports.join(" "))
                }
            });
        }
        lines
    }
}

/// Replaces the rule for a directory by rules for its present entries.
const CARVED_MAX: usize = 10_000;

/// Removes hidden files and directories from rules. Landlock has no exceptions: rules for the present entries replace a
/// rule for a directory with a hidden entry.
struct Hide<'a> {
    hidden: &'a BTreeSet<PathBuf>,
    /// Rules for the very paths that directives name.
    exact: &'a [PathRule],
}

impl Hide<'_> {
    /// Tells whether a rule reaches no hidden path, except inside of a directory that a directive names.
    fn leaves(&self, rule: &PathRule) -> bool {
        let inside = self.hidden.iter().any(|path| rule.path.starts_with(path));
        let around = self.hidden.iter().any(|path| path.starts_with(&rule.path));
        !around && (!inside || self.exact.iter().any(|exact| exact.path == rule.path && exact.access >= rule.access))
    }

    fn apply(&self, rules: Vec<PathRule>) -> Vec<PathRule> {
        let mut out = Vec::new();
        for rule in rules {
            if self.leaves(&rule) {
                out.push(rule);
            } else if rule.folder && !self.hidden.iter().any(|path| rule.path.starts_with(path)) {
                self.carve(&rule, &mut out);
            }
        }
        out
    }

    fn carve(&self, rule: &PathRule, out: &mut Vec<PathRule>) {
        // Keys have neighbours of their kind: older keys, keys of other services.
        let holds_keys = self.hidden.iter().any(|path| path.parent() == Some(&rule.path) && !path.is_dir());
        for entry in std::fs::read_dir(&rule.path).into_iter().flatten().flatten() {
            // A rule for a link is one for its target.
            let Ok(found) = entry.metadata().map(|found| (found.is_symlink(), found.is_dir(), found)) else { continue };
            let (link, folder, found) = found;
            if link || out.len() >= CARVED_MAX {
                continue;
            }
            let identity = (found.dev(), found.ino());
            let child = PathRule { path: entry.path(), folder, identity, ..rule.clone() };
            if self.hidden.contains(&child.path) {
                continue;
            }
            let contains = self.hidden.iter().any(|path| path.starts_with(&child.path));
            if contains {
                self.carve(&child, out);
            } else if folder || !holds_keys || self.exact.iter().any(|exact| exact.path == child.path) {
                out.push(child);
            }
        }
    }
}

/// The path without links, if it exists.
fn existing(path: &Path) -> Option<PathBuf> {
    std::fs::canonicalize(path).ok()
}

fn identity(path: &Path) -> Option<InodeIdentity> {
    std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()))
}

/// Folders below the root: 2 for `/var/www`.
fn depth(path: &Path) -> usize {
    path.components().count().saturating_sub(1)
}

#[derive(Default)]
struct RulesBuilder {
    rules: Vec<PathRule>,
}

impl RulesBuilder {
    /// A missing path is left out.
    fn existing(&mut self, path: &Path, access: PathAccess, why: &str) {
        let Ok(path) = std::fs::canonicalize(path) else { return };
        let Ok(found) = std::fs::metadata(&path) else { return };
        let identity = (found.dev(), found.ino());
        self.rules.push(PathRule { path, access, folder: found.is_dir(), identity, why: why.to_string() });
    }

    /// Adds a path of the configuration. Rules are bound to the file or folder that exists now: one that does not exist yet gets
    /// the rule of the nearest folder above, and one that tools replace (a file by its editor, a folder by a deployment)
    /// the folder around it.
    fn need(&mut self, path: &Path, access: PathAccess, why: &str, strict: bool) {
        let Some(there) = path.ancestors().find(|path| path.exists()) else { return };
        let missing = there != path;
        if missing && strict && depth(there) < 2 {
            return;
        }
        let folder = there.is_dir();
        if folder || depth(there) <= 2 {
            self.existing(there, access, why);
        }
        let around = there.parent().filter(|parent| depth(parent) >= 2 && !missing && (!folder || !strict));
        match around {
            Some(parent) => self.existing(parent, access, why),
            None => self.existing(there, access, why),
        }
        if folder && access == PathAccess::Write && !strict {
            self.links(there, why);
        }
    }

    /// Data on another disk is often linked into the folder that is served.
    fn links(&mut self, folder: &Path, why: &str) {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().take(LINKS_MAX);
        for entry in entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_symlink())) {
            let target = std::fs::canonicalize(entry.path());
            if let Ok(target) = target.as_deref().map(Path::to_path_buf)
                && depth(&target) >= 2
                && target.is_dir()
            {
                self.existing(&target, PathAccess::Write, why);
            }
        }
    }

    /// Drops rules that others include.
    fn reduced(self) -> Vec<PathRule> {
        let mut rules = self.rules;
        rules.sort_by(|a, b| (depth(&a.path), b.access, &a.path).cmp(&(depth(&b.path), a.access, &b.path)));
        let mut kept: Vec<PathRule> = Vec::new();
        for rule in rules {
            let included = |other: &PathRule| other.access >= rule.access && rule.path.starts_with(&other.path);
            if !kept.iter().any(included) {
                kept.push(rule);
            }
        }
        kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Dir(PathBuf);

    impl Dir {
        fn new(name: &str) -> Dir {
            let dir = std::env::temp_dir().join(format!("tidegate-sandbox-{name}-{}", std::process::id()));
            let _ = std::fs::remove_dir_all(&dir);
            std::fs::create_dir_all(dir.join("a/b")).expect("a folder");
            Dir(std::fs::canonicalize(dir).expect("it exists"))
        }
        fn needs(&self, list: &[(&str, PathAccess)]) -> Needs {
            let one = |(path, access): &(&str, PathAccess)| ((self.0.join(path), *access), "test".to_string());
            Needs { paths: list.iter().map(one).collect(), ..Needs::default() }
        }
    }

    impl Drop for Dir {
        fn drop(&mut self) {
            let _ = std::fs::remove_dir_all(&self.0);
        }
    }

    fn has(rules: &PathRules, path: &Path, access: PathAccess) -> bool {
        rules.paths.iter().any(|rule| rule.access >= access && path.starts_with(&rule.path))
    }

    #[test]
    fn strict_rules_name_paths_alone_and_others_what_is_around() {
        let dir = Dir::new("strict");
        let needs = dir.needs(&[("a/b", PathAccess::Write)]);
        let strict = PathRules::of(&needs, Mode::Strict);
        assert!(has(&strict, &dir.0.join("a/b/c"), PathAccess::Write));
        assert!(!has(&strict, &dir.0.join("a"), PathAccess::Read));
        assert!(!has(&strict, Path::new("/etc/shadow"), PathAccess::Read));
        let on = PathRules::of(&needs, Mode::On);
        assert!(has(&on, &dir.0.join("a/replaced"), PathAccess::Write), "{:?}", on.describe());
        assert!(has(&on, &dir.0, PathAccess::Read) && !has(&on, &dir.0, PathAccess::Write));
        assert!(!has(&on, Path::new("/root"), PathAccess::Read) && !has(&on, Path::new("/proc/1"), PathAccess::Read));
    }

    #[test]
    fn a_path_that_is_missing_gets_the_rule_of_the_folder_above() {
        let dir = Dir::new("missing");
        let rules = PathRules::of(&dir.needs(&[("a/none/deep", PathAccess::Write)]), Mode::Strict);
        assert!(has(&rules, &dir.0.join("a/none"), PathAccess::Write));
        assert!(!has(&rules, &dir.0.join("x"), PathAccess::Write));
    }

    #[test]
    fn a_link_in_a_writable_folder_is_followed() {
        let dir = Dir::new("links");
        std::fs::create_dir_all(dir.0.join("disk")).expect("a folder");
        std::os::unix::fs::symlink(dir.0.join("disk"), dir.0.join("a/b/link")).expect("a link");
        let rules = PathRules::of(&dir.needs(&[("a/b", PathAccess::Write)]), Mode::On);
        assert!(has(&rules, &dir.0.join("disk/file"), PathAccess::Write));
    }

    #[test]
    fn rules_cover_what_they_include() {
        let dir = Dir::new("cover");
        let mut needs = dir.needs(&[("a", PathAccess::Write)]);
        let wide = PathRules::of(&needs, Mode::Strict);
        let narrow = PathRules::of(&dir.needs(&[("a/b", PathAccess::Read)]), Mode::Strict);
        assert!(wide.cover(&narrow) && wide.cover(&wide) && !narrow.cover(&wide));
        needs.connect.add(80);
        assert!(!wide.cover(&PathRules::of(&needs, Mode::Strict)));
        needs.connect = PortRules::none();
        needs.anywhere.insert(PathAccess::Read, "root $x".into());
        assert!(!wide.cover(&PathRules::of(&needs, Mode::Strict)));
    }

    #[test]
    fn a_folder_that_was_replaced_is_not_covered() {
        let dir = Dir::new("replaced");
        let needs = dir.needs(&[("a/b", PathAccess::Write)]);
        let rules = PathRules::of(&needs, Mode::Strict);
        assert!(rules.cover(&PathRules::of(&needs, Mode::Strict)));
        std::fs::rename(dir.0.join("a/b"), dir.0.join("a/old")).expect("renamed");
        std::fs::create_dir(dir.0.join("a/b")).expect("a folder");
        assert!(!rules.cover(&PathRules::of(&needs, Mode::Strict)));
    }

    #[test]
    fn keys_are_hidden_and_their_surroundings_are_not() {
        let dir = Dir::new("hidden");
        for name in ["key", "older", "users"] {
            std::fs::write(dir.0.join("a").join(name), "").expect("a file");
        }
        std::fs::create_dir_all(dir.0.join("site")).expect("a folder");
        std::fs::create_dir_all(dir.0.join("certs/sub")).expect("a folder");
        std::os::unix::fs::symlink(dir.0.join("a/key"), dir.0.join("link")).expect("a link");
        let mut needs = dir.needs(&[("a/users", PathAccess::Read), ("site", PathAccess::Write)]);
        needs.secrets.insert(dir.0.join("link"));
        needs.key_paths.insert(dir.0.join("certs"), "ssl_certificate_key".into());
        for mode in [Mode::On, Mode::Strict] {
            let rules = PathRules::of(&needs, mode);
            let reads = |name: &str| has(&rules, &dir.0.join(name), PathAccess::Read);
            assert!(reads("a/users") && reads("site/x"), "{mode:?} {:?}", rules.describe());
            assert!(!reads("a/key") && !reads("a/older") && !reads("certs/x.key"), "{mode:?} {:?}", rules.describe());
            assert!(has(&rules, &dir.0.join("site/x"), PathAccess::Write));
            assert!(reads("a/b/x"), "a folder beside the key");
            assert!(rules.cover(&rules));
            // Without isolation the key may be read: such rules do not serve a configuration that hides it.
            let open =
                PathRules::of(&Needs { secrets: BTreeSet::new(), key_paths: BTreeMap::new(), ..needs.clone() }, mode);
            assert!(!open.cover(&rules), "{mode:?}");
        }
        let keys = PathRules::of_keys(&needs);
        assert!(
            has(&keys, &dir.0.join("certs/x.key"), PathAccess::Read)
                && !has(&keys, &dir.0.join("a/key"), PathAccess::Read)
        );
        assert!(!has(&keys, Path::new("/etc/passwd"), PathAccess::Read));
    }

    #[test]
    fn a_variable_from_the_start_opens_everything() {
        let needs = Needs { anywhere: BTreeMap::from([(PathAccess::Read, "root $x".into())]), ..Needs::default() };
        let rules = PathRules::of(&needs, Mode::Strict);
        assert!(has(&rules, Path::new("/etc/shadow"), PathAccess::Read));
        assert!(rules.describe().iter().any(|line| line == "read / (root $x)"), "{:?}", rules.describe());
    }
}
