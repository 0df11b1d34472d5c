//! `render` of recorded answers of engines and of Consul, and the server's own check of each configuration.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use testkit::expected::folders_of;

/// Folder of one test.
struct Folder(PathBuf);

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn folder(name: &str) -> Folder {
    let path = std::env::temp_dir().join(format!("tidegate-recorded-{name}-{}", std::process::id()));
    fs::create_dir_all(&path).unwrap();
    Folder(path)
}

fn recorded() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../discovery/tests/recorded")
}

fn name_of(case: &Path) -> &str {
    case.file_name().unwrap().to_str().unwrap()
}

/// Returns the command that renders a case, with the arguments of its settings.
fn render(case: &Path, folder: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-controller"));
    let provider = match name_of(case).split('-').next() {
        Some("consul") => "consul",
        Some("podman") => "podman",
        _ => "docker",
    };
    command.args(["render", "--provider", provider, "--listen-address", "127.0.0.1", "--input"]);
    command.arg(case.join("input.json")).arg("--run-folder").arg(folder);
    for line in fs::read_to_string(case.join("settings.txt")).unwrap_or_default().lines() {
        let (name, value) = line.split_once('=').expect(line);
        match name {
            // No argument: the name of the machine.
            "server-hostname" => {}
            "published-ports" | "prefer-ipv6" | "allow-snippets" => {
                command.arg(format!("--{name}"));
            }
            "certificates" => {
                let certificates = folder.join("certificates-in");
                fs::create_dir_all(&certificates).unwrap();
                let made = rcgen::generate_simple_self_signed(["a.test".to_owned()]).unwrap();
                for name in value.split(',') {
                    fs::write(certificates.join(format!("{name}.crt")), made.cert.pem()).unwrap();
                    fs::write(certificates.join(format!("{name}.key")), made.signing_key.serialize_pem()).unwrap();
                }
                command.arg("--certificates").arg(certificates);
            }
            "acme" => {
                command.args(["--acme-accept-terms", "--acme-directory", value, "--resolver", "127.0.0.1"]);
                command.arg("--acme-state").arg(folder.join("acme"));
            }
            name => {
                command.arg(format!("--{name}")).arg(value);
            }
        }
    }
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn the_server_takes_each_configuration() {
    let server = Path::new(env!("CARGO_BIN_EXE_tidegate-controller")).with_file_name("tidegate");
    if !server.exists() {
        return testkit::missing_means("the program tidegate is not built beside this test");
    }
    for case in folders_of(recorded()) {
        let folder = folder(name_of(&case));
        let Output { status, stderr, .. } = render(&case, &folder.0).arg("--output").arg(&folder.0).output().unwrap();
        assert!(status.success(), "{}: {}", case.display(), text(&stderr));
        let file = folder.0.join("nginx.conf");
        let Output { status, stderr, .. } =
            Command::new(&server).args(["-t", "-e", "stderr", "-c"]).arg(&file).output().unwrap();
        assert!(status.success(), "{}: {}\n{}", case.display(), text(&stderr), fs::read_to_string(&file).unwrap());
        // Warnings without a line are about the machine.
        let stderr = text(&stderr);
        let is_warning = |line: &&str| line.contains("[warn]") && line.contains("nginx.conf:");
        assert_eq!(stderr.lines().find(is_warning), None, "{}", case.display());
    }
}

#[test]
fn parts_that_are_left_out_are_lines_and_an_error_with_strict() {
    let case = recorded().join("labels-unknown");
    let folder = folder("strict");
    let output = render(&case, &folder.0).output().unwrap();
    assert!(output.status.success());
    assert!(text(&output.stderr).contains("did you mean \"tidegate.host\"?"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("server_name a.example.com;"));
    let output = render(&case, &folder.0).arg("--strict").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
}

#[test]
fn input_without_routes_and_arguments_of_others_are_errors() {
    let folder = folder("errors");
    let path = folder.0.join("input.json");
    fs::write(&path, "[]").unwrap();
    let run = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-controller"));
        command.args(["render", "--input"]).arg(&path).args(words).output().unwrap()
    };
    let output = run(&["--provider", "docker"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("nothing to serve"), "{}", text(&output.stderr));
    let output = run(&["--provider", "consul", "--class", "x"]);
    assert!(text(&output.stderr).contains("--class has no meaning for this provider"), "{}", text(&output.stderr));
}
