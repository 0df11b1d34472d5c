//! Escape attempts of a confined process, in debug builds for `tests/sandbox.rs`.

use crate::say;
use net::confine::Escape;
use std::fs::File;
use std::io;
use std::net::TcpStream;

/// Port that no configuration uses.
const ELSEWHERE: &str = "127.0.0.1:9";

/// Tries every escape and logs the results. `secrets`: paths outside of all rules; none in a master.
pub fn run(process: &str, secrets: &[&str]) {
    for escape in Escape::ALL {
        tell(process, &format!("{escape:?}"), escape.attempt());
    }
    // The master may start processes and read files.
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
