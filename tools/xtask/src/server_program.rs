//! The server's development build, for commands of xtask that run it or pack it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Builds the server with the features that a build of the whole workspace gives to its crates, so that nothing is
/// compiled a second time (`--package tidegate` would select fewer features). Returns the program's path.
///
/// # Errors
/// Cargo is missing, or has failed; its complaints are on the standard error stream.
pub fn build_server() -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let status = Command::new(cargo)
        .args(["build", "--quiet", "--workspace", "--bin", "tidegate"])
        .current_dir(&root)
        .status()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    if !status.success() {
        return Err("the server cannot be built".into());
    }
    Ok(target_folder().join("debug/tidegate"))
}

/// Cargo's target folder.
pub fn target_folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}
