//! Escape attempts of a confined process, in debug builds for `tests/operation/sandbox.rs`.

use crate::say;
use net::confine::Escape;
use std::fs::File;
use std::io::{self, Write};
use std::net::{TcpListener, TcpStream};

const ELSEWHERE: &str = "127.0.0.1:9";

/// Tries every escape and logs the results. `secrets`: paths outside of all rules; none in a master.
pub fn probe_escapes(process: &str, secrets: &[&str]) {
    attempt(secrets, |what, result| say!(Notice, "{}", words(process, what, result)));
}

/// As [`probe_escapes`], for a process whose only way out is the standard error stream.
pub fn run_without_log(process: &str, secrets: &[&str]) {
    attempt(secrets, |what, result| {
        let line = format!("{}\n", words(process, what, result));
        let _ = io::stderr().write_all(line.as_bytes());
    });
}

fn attempt(secrets: &[&str], tell: impl Fn(&str, io::Result<()>)) {
    for escape in Escape::ALL {
        tell(&format!("{escape:?}"), escape.attempt());
    }
    // The master may start processes and read files.
    if secrets.is_empty() {
        return;
    }
    tell("Spawn", std::process::Command::new("/bin/true").spawn().map(drop));
    for path in secrets {
        tell(path, File::open(path).map(drop));
        tell(&format!("create {path}/x"), std::fs::create_dir(format!("{path}/x")));
    }
    tell("connect", TcpStream::connect(ELSEWHERE).map(drop));
    tell("listen", TcpListener::bind("127.0.0.1:0").map(drop));
    let file = std::env::temp_dir().parent().map(|folder| folder.join("tidegate-escaped")).unwrap_or_default();
    tell("create", std::fs::create_dir(&file));
}

fn words(process: &str, what: &str, result: io::Result<()>) -> String {
    let number = result.err().map_or(0, |e| e.raw_os_error().unwrap_or(-1));
    format!("sandbox probe of the {process}: {what}: {number};")
}
