//! Parts that tests of several crates share: random numbers, free ports, expected files, a proxy that stalls and cuts, a server for clients, and a record of checks that a test leaves out, so that none is left out in
//! silence: libtest shows no output of tests that pass.
//!
//! `cargo xtask ci` names a file in `TIDEGATE_SKIPS`, prints its lines at the end, and sets `TIDEGATE_PEERS=required`, under which a
//! missing peer is a failure.

#![forbid(unsafe_code)]

pub mod expected;
pub mod fault_proxy;
pub mod mutation;
mod ports;
pub mod thread_server;

use std::io::Write as _;

pub use ports::free_port;

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

/// Random numbers of tests (xorshift64): the same for the same seed.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Random {
        // Zero would stay zero.
        Random(seed.max(1))
    }
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
    /// A number below `end`; 0 if that is 0.
    pub fn below<N: TryInto<u64> + TryFrom<u64>>(&mut self, end: N) -> N {
        let end = end.try_into().unwrap_or(u64::MAX).max(1);
        match N::try_from(self.number() % end) {
            Ok(number) => number,
            Err(_) => unreachable!("a number below another of its type"),
        }
    }
    pub fn octet(&mut self) -> u8 {
        self.number() as u8
    }
    pub fn octets(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.octet()).collect()
    }
    /// `true` in so many of a hundred cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.number() % 100 < percent
    }
}
