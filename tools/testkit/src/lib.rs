//! Records checks that a test leaves out, so that none is left out in silence: libtest shows no output of tests that pass.
//!
//! `cargo xtask ci` names a file in `TIDEGATE_SKIPS`, prints its lines at the end, and sets `TIDEGATE_PEERS=required`, under which a
//! missing peer is a failure.

#![forbid(unsafe_code)]

use std::io::Write as _;

/// Records that a program which `cargo xtask ci` installs is missing.
///
/// # Panics
/// If `TIDEGATE_PEERS` is `required`.
#[track_caller]
pub fn missing_peer(words: &str) {
    assert!(!std::env::var("TIDEGATE_PEERS").is_ok_and(|word| word == "required"), "a peer is missing: {words}");
    record(words);
}

/// Records that the machine lacks something that no package brings: a right, a kernel's feature, a package registry.
#[track_caller]
pub fn missing_means(words: &str) {
    record(words);
}

/// Appends to the file that `TIDEGATE_SKIPS` names; also prints.
#[track_caller]
fn record(words: &str) {
    let place = std::panic::Location::caller();
    let line = format!("{}: {words}", place.file());
    eprintln!("NOT TESTED: {line}");
    if let Some(path) = std::env::var_os("TIDEGATE_SKIPS") {
        let written = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(&path)
            .and_then(|mut file| writeln!(file, "{line}"));
        assert!(written.is_ok(), "the skip cannot be recorded in {}: {written:?}", path.display());
    }
}
