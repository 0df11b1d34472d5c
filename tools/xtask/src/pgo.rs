//! `cargo xtask pgo`: a release binary that the compiler has arranged by what a run of it really did (profile-guided optimisation).
//!
//! The program is built once with counters, serves the scenarios of `benches/scenarios` and loads them with its own client, and is built again with what
//! the counters say: which branches are usual, which functions belong beside each other. It wants `llvm-profdata` of the same compiler
//! (`rustup component add llvm-tools`), and twice the time of a release build.

use crate::bench;
use std::path::{Path, PathBuf};
use std::process::Command;

/// How long each scenario is served.
const SECONDS: u64 = 2;

pub fn run(_: &[String]) -> Result<(), String> {
    let binary = build()?;
    println!("{}", binary.display());
    Ok(())
}

/// Builds it; where the binary is.
pub fn build() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().map_err(|e| e.to_string())?;
    let tool = profdata()?;
    let base = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from);
    let target = base.join("pgo");
    std::fs::create_dir_all(&target).map_err(|e| format!("{}: {e}", target.display()))?;
    let target = target.canonicalize().map_err(|e| e.to_string())?;
    let (raw, merged) = (target.join("raw"), target.join("merged.profdata"));
    let _ = std::fs::remove_dir_all(&raw);
    eprintln!("==> with counters");
    let counting = compile(&root, &target.join("counting"), &format!("-Cprofile-generate={}", raw.display()))?;
    eprintln!("==> serving the scenarios");
    bench::train(&root, &counting, SECONDS)?;
    let mut merge = Command::new(&tool);
    merge.args(["merge", "-o"]).arg(&merged).arg(&raw);
    let output = merge.output().map_err(|e| format!("{}: {e}", tool.display()))?;
    if !output.status.success() {
        return Err(format!("llvm-profdata: {}", String::from_utf8_lossy(&output.stderr).trim()));
    }
    eprintln!("==> with what they counted");
    compile(&root, &target.join("using"), &format!("-Cprofile-use={}", merged.display()))
}

fn compile(root: &Path, target: &Path, flags: &str) -> Result<PathBuf, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    // A target that is named keeps the flags from build scripts and macros.
    let host = host()?;
    let status = Command::new(cargo)
        .args(["build", "--release", "--quiet", "--package", "tidegate", "--bin", "tidegate", "--target", &host])
        .env("RUSTFLAGS", flags)
        .env("CARGO_TARGET_DIR", target)
        .current_dir(root)
        .status()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    if !status.success() {
        return Err("the binary does not build".into());
    }
    Ok(target.join(host).join("release/tidegate"))
}

fn rustc(arguments: &[&str]) -> Result<String, String> {
    let output = Command::new("rustc").args(arguments).output().map_err(|e| format!("rustc: {e}"))?;
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn host() -> Result<String, String> {
    let text = rustc(&["-vV"])?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(ToString::to_string).ok_or_else(|| "rustc does not say what it compiles for".into())
}

/// The tool that belongs to the compiler: the format of profiles is the version's own.
fn profdata() -> Result<PathBuf, String> {
    let sysroot = rustc(&["--print", "sysroot"])?;
    let tool = Path::new(sysroot.trim()).join("lib/rustlib").join(host()?).join("bin/llvm-profdata");
    if tool.exists() { Ok(tool) } else { Err("llvm-profdata is not installed: rustup component add llvm-tools".into()) }
}
