//! Attempts to escape, made by a confined process of a debug build for a test (`tests/sandbox.rs`).

use crate::say;
use net::confine::Escape;
use std::fs::File;
use std::io;
use std::net::TcpStream;

/// Port of nothing that a configuration names.
const ELSEWHERE: &str = "127.0.0.1:9";

/// Tries everything and logs the results. `secrets` are paths outside of every rule; a master has none.
pub fn run(process: &str, secrets: &[&str]) {
    for escape in Escape::ALL {
        tell(process, &format!("{escape:?}"), escape.attempt());
    }
    // The master starts processes and reaches files.
    if secrets.is_empty() {
        return;
    }
    tell(process, "Spawn", std::process::Command::new("/bin/true").spawn().map(drop));
    for path in secrets {
        tell(process, path, File::open(path).map(drop));
        tell(process, &format!("create {path}/x"), std::fs::create_dir(format!("{path}/x")));
    }
    tell(process, "connect", TcpStream::connect(ELSEWHERE).map(drop));
    let file = std::env::temp_dir().parent().map(|folder| folder.join("tidegate-escaped")).unwrap_or_default();
    tell(process, "create", std::fs::create_dir(&file));
}

fn tell(process: &str, what: &str, result: io::Result<()>) {
    let number = result.err().map_or(0, |e| e.raw_os_error().unwrap_or(-1));
    say!(Notice, "sandbox probe of the {process}: {what}: {number};");
}
