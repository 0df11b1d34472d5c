//! `tidegate-controller bootstrap` as a pod calls it.

use std::fs;
use std::process::Command;

#[test]
fn the_first_configuration_is_written_once() {
    let folder = std::env::temp_dir().join(format!("tidegate-bootstrap-{}", std::process::id()));
    let file = folder.join("nginx.conf");
    let run = |port: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-controller"));
        let output =
            command.args(["bootstrap", "--run-folder", "/run/x", "--probe-port", port, "--output"]).arg(&file).output();
        assert!(output.unwrap().status.success());
        fs::read_to_string(&file).unwrap()
    };
    let text = run("8081");
    assert!(text.starts_with("# First configuration"), "{text}");
    for words in ["listen unix:/run/x/api.sock;", "api write=on config=write;", "listen 8081 default_server;"] {
        assert!(text.contains(words), "{words} in\n{text}");
    }
    assert_eq!(run("8082"), text, "a file that exists stays");
    fs::remove_dir_all(&folder).unwrap();
}
