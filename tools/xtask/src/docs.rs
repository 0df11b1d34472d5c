//! `cargo xtask docs`: writes what the binary knows about its directives into docs/. A test of the binary's crate fails
//! when they differ.

use crate::server_program::build_server;
use std::path::Path;
use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask docs

Writes docs/reference.md, compatibility.md, lint.md and metrics.md from the tables of the program.

  cargo xtask docs
";

const DOCUMENTS: [(&str, &str); 4] = [
    ("directives", "docs/reference.md"),
    ("compatibility", "docs/compatibility.md"),
    ("lint", "docs/lint.md"),
    ("metrics", "docs/metrics.md"),
];

pub fn write_docs(_: &[String]) -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let server = build_server()?;
    for (what, path) in DOCUMENTS {
        let output = Command::new(&server)
            .args(["reference", what])
            .output()
            .map_err(|e| format!("{}: {e}", server.display()))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        std::fs::write(root.join(path), output.stdout).map_err(|e| format!("{path}: {e}"))?;
        println!("{path}");
    }
    Ok(())
}
