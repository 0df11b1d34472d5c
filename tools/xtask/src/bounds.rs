//! `cargo xtask bounds`: what attackers cost the release build, measured from outside, as a table; fails where a bound does not hold.
//!
//! The measuring stands in `crates/server/tests/clients/bounds.rs`, which `cargo test` runs with small amounts.

use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask bounds

Runs the attacks of crates/server/tests/clients (bounds.rs, stream_bounds.rs) at their full volume against the
release build, prints the memory and CPU time that they cost as a table, and fails if a bound is exceeded.

  cargo xtask bounds
";

pub fn measure_bounds(_: &[String]) -> Result<(), String> {
    println!("| Protocol, attacker, attack | KB sent | KB held | allowed | CPU ms | allowed |");
    println!("|---|---:|---:|---:|---:|---:|");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = Command::new(cargo)
        .args(["test", "--release", "-q", "-p", "tidegate", "--test", "clients", "bounds::", "--"])
        .args(["--nocapture", "--test-threads=1"])
        .env("TIDEGATE_BOUNDS", "full")
        .output()
        .map_err(|e| format!("cargo does not run: {e}"))?;
    let said = String::from_utf8_lossy(&output.stdout);
    // The harness prints a dot before the output of the next test.
    let rows = said.lines().map(|line| line.trim_start_matches('.')).filter(|line| line.starts_with("| "));
    rows.for_each(|line| println!("{line}"));
    if output.status.success() {
        return Ok(());
    }
    Err(format!("a bound does not hold:\n{said}{}", String::from_utf8_lossy(&output.stderr)))
}
