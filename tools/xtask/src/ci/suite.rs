//! Runs all tests of the workspace, like `cargo test --workspace`, but two test programs at a time: those of ACME mostly wait for
//! certificate authorities, while others compute.

use serde_json::Value;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Mutex;

/// Sources of test programs that mostly wait. They run one after the other, beside the rest, also one after the other:
/// two programs that compute would only slow each other down.
const WAITING: &[&str] = &["tests/acme/main.rs"];

/// A test program.
struct Program {
    /// Its package's folder, in which it runs.
    folder: PathBuf,
    /// The source of the target, relative to the folder.
    source: String,
    file: PathBuf,
}

impl Program {
    fn waits(&self) -> bool {
        WAITING.contains(&self.source.as_str())
    }
}

/// Builds and runs all tests. Prints the output of each program when it ends.
///
/// # Errors
/// Names the programs with failed tests; the others run nevertheless.
pub fn run_suite() -> Result<(), String> {
    let skips = Skips::new()?;
    let (waiting, computing): (Vec<_>, Vec<_>) = programs()?.into_iter().partition(Program::waits);
    super::progress("the test programs are built");
    let failed = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for lane in [waiting, computing] {
            let (failed, skips) = (&failed, &skips);
            scope.spawn(move || {
                for program in lane {
                    if let Err(e) = run_one(&program, &skips.0) {
                        failed.lock().unwrap_or_else(|held| held.into_inner()).push(e);
                    }
                }
            });
        }
    });
    if let Err(e) = super::step("cargo", &["test", "--workspace", "--doc"]) {
        failed.lock().unwrap_or_else(|held| held.into_inner()).push(e);
    }
    skips.print();
    let failed = failed.into_inner().unwrap_or_else(|held| held.into_inner());
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

/// The file in which tests record what they left out (`testkit`).
struct Skips(PathBuf);

impl Skips {
    /// Starts an empty file.
    fn new() -> Result<Skips, String> {
        let path = std::env::temp_dir().join(format!("tidegate-skips-{}", std::process::id()));
        File::create(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok(Skips(path))
    }
    fn print(&self) {
        let text = std::fs::read_to_string(&self.0).unwrap_or_default();
        super::progress(&format!("not tested, because this machine does not permit it: {}", text.lines().count()));
        text.lines().for_each(|line| eprintln!("    {line}"));
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Builds the test programs; in the order of their packages and names.
fn programs() -> Result<Vec<Program>, String> {
    let args = ["test", "--workspace", "--no-run", "--message-format", "json-render-diagnostics"];
    let built = super::command("cargo", &args).stdout(Stdio::piped()).output().map_err(|e| format!("cargo: {e}"))?;
    if !built.status.success() {
        return Err("cargo test --workspace --no-run failed".into());
    }
    let text = String::from_utf8_lossy(&built.stdout);
    let mut all: Vec<Program> = text.lines().filter_map(program).collect();
    if all.is_empty() {
        return Err("cargo named no test program".into());
    }
    all.sort_by(|a, b| (&a.folder, &a.source).cmp(&(&b.folder, &b.source)));
    Ok(all)
}

/// Reads one of cargo's messages; nothing if it does not name a test program.
fn program(line: &str) -> Option<Program> {
    let message: Value = serde_json::from_str(line).ok()?;
    if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
        return None;
    }
    let folder = Path::new(message["manifest_path"].as_str()?).parent()?.to_path_buf();
    let source = Path::new(message["target"]["src_path"].as_str()?);
    let source = source.strip_prefix(&folder).unwrap_or(source).to_string_lossy().into_owned();
    Some(Program { folder, source, file: message["executable"].as_str()?.into() })
}

/// Runs a program; its output is printed as a whole. (It passes through a file: a pipe would stay open as long as a daemon that a test left behind.)
fn run_one(program: &Program, skips: &Path) -> Result<(), String> {
    let folder = program.folder.file_name().unwrap_or_default().to_string_lossy();
    let shown = format!("{folder}/{}", program.source);
    let log = program.file.with_extension("log");
    let file = |e: std::io::Error| format!("{shown}: {}: {e}", log.display());
    let (out, err) = File::create(&log).and_then(|out| Ok((out.try_clone()?, out))).map_err(file)?;
    let started = std::time::Instant::now();
    let status = super::command(&program.file.to_string_lossy(), &[])
        .current_dir(&program.folder)
        .env("CARGO_MANIFEST_DIR", &program.folder)
        .env("TIDEGATE_SKIPS", skips)
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .status()
        .map_err(|e| format!("{shown}: {e}"))?;
    let text = std::fs::read(&log).map_err(file)?;
    let mut to = std::io::stdout().lock();
    let _ = writeln!(to, "     Running {shown} ({:.1} s)", started.elapsed().as_secs_f64());
    let _ = to.write_all(&text).and_then(|()| to.flush());
    let _ = std::fs::remove_file(&log);
    if status.success() { Ok(()) } else { Err(format!("tests of {shown} failed ({status})")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn test_programs_are_read_from_cargos_messages() {
        let line = r#"{"reason":"compiler-artifact","manifest_path":"/w/crates/server/Cargo.toml","target":{"src_path":"/w/crates/server/tests/acme/main.rs"},"profile":{"test":true},"executable":"/w/target/debug/deps/acme-1"}"#;
        let read = program(line).expect("a test program");
        assert_eq!(
            (read.source.as_str(), read.folder.as_path()),
            ("tests/acme/main.rs", Path::new("/w/crates/server"))
        );
        assert!(read.waits());
        let library = line.replace(r#""test":true"#, r#""test":false"#);
        assert!(program(&library).is_none() && program("text").is_none());
    }
}
