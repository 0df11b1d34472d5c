//! `cargo xtask reproducible`: builds the release binary twice, in two folders with names of different lengths, and compares the bytes.
//!
//! [`environment`] is how releases are built (docs/release.md): paths are mapped to constants, in Rust and in the C libraries.

use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask reproducible

Builds the release binary in two directories and compares the bytes. Takes as long as two release builds.

  cargo xtask reproducible
";

const SOURCES: &str = "/tidegate";
const CARGO: &str = "/cargo";

pub fn check_reproducible(_: &[String]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().map_err(|e| e.to_string())?;
    let base = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let base = base.join("reproducible");
    let folders = ["one", "another-folder"].map(|name| base.join(name));
    // Both before the first build: a source may be edited meanwhile.
    for folder in &folders {
        copy(&root, folder)?;
    }
    let built = folders.iter().map(|folder| build(folder)).collect::<Result<Vec<_>, _>>()?;
    compare(&built)
}

/// As they are in the working tree.
fn copy(root: &Path, folder: &Path) -> Result<(), String> {
    // The libraries that an earlier run has built are kept.
    for entry in std::fs::read_dir(folder).into_iter().flatten().flatten().filter(|entry| entry.file_name() != "target")
    {
        let path = entry.path();
        let removed = if path.is_dir() { std::fs::remove_dir_all(&path) } else { std::fs::remove_file(&path) };
        removed.map_err(|e| format!("{}: {e}", path.display()))?;
    }
    let listed =
        Command::new("git").args(["ls-files", "-z"]).current_dir(root).output().map_err(|e| format!("git: {e}"))?;
    if !listed.status.success() {
        return Err("\"git ls-files\" failed: the checkout has to be a git repository".into());
    }
    for name in String::from_utf8_lossy(&listed.stdout).split('\0').filter(|name| !name.is_empty()) {
        let (from, to) = (root.join(name), folder.join(name));
        if let Some(parent) = to.parent() {
            std::fs::create_dir_all(parent).map_err(|e| format!("{}: {e}", parent.display()))?;
        }
        // (Deleted files are still listed.)
        if from.is_file() {
            std::fs::copy(&from, &to).map_err(|e| format!("{name}: {e}"))?;
        }
    }
    Ok(())
}

/// Variables of a build whose result does not depend on the folder.
fn environment(folder: &Path, cargo_home: &Path) -> Vec<(&'static str, String)> {
    let pairs = [(folder, SOURCES), (cargo_home, CARGO)];
    let map = |option: &str| {
        let all: Vec<String> = pairs.iter().map(|(from, to)| format!("{option}={}={to}", from.display())).collect();
        all.join(" ")
    };
    let c = map("-ffile-prefix-map");
    vec![
        ("RUSTFLAGS", map("--remap-path-prefix")),
        ("CFLAGS", c.clone()),
        ("CXXFLAGS", c),
        // Of no date: for tools that would write the current one.
        ("SOURCE_DATE_EPOCH", "1".into()),
        ("LC_ALL", "C".into()),
        ("TZ", "UTC".into()),
    ]
}

fn build(folder: &Path) -> Result<PathBuf, String> {
    let cargo_home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo_home = cargo_home.or_else(|| std::env::home_dir().map(|home| home.join(".cargo")));
    let cargo_home = cargo_home.ok_or("no CARGO_HOME and no home directory")?;
    let target = folder.join("target");
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command.args(["build", "--locked", "--profile", "dist", "--package", "tidegate"]).current_dir(folder);
    command.env("CARGO_TARGET_DIR", &target).env_remove("CARGO_ENCODED_RUSTFLAGS").env("CARGO_INCREMENTAL", "0");
    // The variables of the package that runs this task are not those of the build.
    command.env_remove("CARGO_MANIFEST_DIR").envs(environment(folder, &cargo_home));
    match command.status() {
        Ok(status) if status.success() => Ok(target.join("dist/tidegate")),
        Ok(status) => Err(format!("the build in {} failed ({status})", folder.display())),
        Err(e) => Err(format!("cargo: {e}")),
    }
}

fn compare(files: &[PathBuf]) -> Result<(), String> {
    let read = |path: &PathBuf| std::fs::read(path).map_err(|e| format!("{}: {e}", path.display()));
    let [one, other] = files else { return Err("two builds are compared".into()) };
    let (a, b) = (read(one)?, read(other)?);
    match difference(&a, &b) {
        None => {
            println!("The same {} bytes in both folders: {}", a.len(), one.display());
            Ok(())
        }
        Some(at) => Err(format!(
            "the builds differ from byte {at} on ({} and {} bytes): compare with \"diffoscope {} {}\"",
            a.len(),
            b.len(),
            one.display(),
            other.display()
        )),
    }
}

/// Position of the first different byte.
fn difference(a: &[u8], b: &[u8]) -> Option<usize> {
    let common = a.iter().zip(b).position(|(a, b)| a != b);
    common.or_else(|| (a.len() != b.len()).then(|| a.len().min(b.len())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_different_byte_is_found() {
        assert_eq!(difference(b"same", b"same"), None);
        assert_eq!(difference(b"same", b"sane"), Some(2));
        assert_eq!(difference(b"same", b"same again"), Some(4));
    }

    #[test]
    fn folders_are_mapped_in_both_languages() {
        let all = environment(Path::new("/build/a"), Path::new("/home/x/.cargo"));
        let of = |name: &str| all.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str());
        let rust = "--remap-path-prefix=/build/a=/tidegate --remap-path-prefix=/home/x/.cargo=/cargo";
        assert_eq!(of("RUSTFLAGS"), Some(rust));
        assert!(of("CFLAGS").is_some_and(|value| value.contains("-ffile-prefix-map=/build/a=/tidegate")));
    }
}
