//! Exit statuses and messages of arguments, files and outputs that cannot be used.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use load::bench::{FAILED, USAGE, read_report};

struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("arguments-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    fn file(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        std::fs::write(&path, content).unwrap();
        path.display().to_string()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tidegate-load"));
    command.args(arguments).stdin(Stdio::null());
    command
}

fn run(arguments: &[&str]) -> (i32, String) {
    end(&command(arguments).output().unwrap())
}

fn end(output: &Output) -> (i32, String) {
    (output.status.code().unwrap_or(-1), String::from_utf8_lossy(&output.stderr).into_owned())
}

/// Runs with a standard output that takes nothing.
fn full(arguments: &[&str]) -> (i32, String) {
    let out = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    end(&command(arguments).stdout(out).output().unwrap())
}

const LAB: &str = "title='t'\n[[server]]\nname='a'\ncommand='sleep 300'\n\
                   [[workload]]\nname='w'\nload='rate'\npath='/'\nvalues=[10]\n";

/// URL of a port without a listener.
const REFUSED: &str = "http://127.0.0.1:1/";

#[test]
fn a_refused_first_connection_ends_a_run_with_a_report() {
    let folder = Folder::new("refused");
    let json = folder.0.join("r.json").display().to_string();
    for load in
        [&["-c", "4"][..], &["-r", "100"], &["--conn-rate", "100"], &["-c", "4", "--sweep", "1,2", "--rounds", "3"]]
    {
        let (status, said) = run(&[&["bench", REFUSED, "-d", "300s", "-q", "--json", &json], load].concat());
        assert_eq!((status, said.as_str()), (FAILED, "tidegate bench: 127.0.0.1:1: connection refused\n"), "{load:?}");
        let report = read_report(Path::new(&json)).unwrap();
        assert_eq!((report.points.len(), report.points[0].rounds.len()), (1, 1), "{load:?}");
        let round = &report.points[0].rounds[0];
        assert!(round.refused.is_some() && round.failed() > 0 && round.due == round.failed(), "{load:?}: {round:?}");
    }
    let (status, said) = run(&["bench", REFUSED, "--find", "p99<5ms", "-q"]);
    assert!(status == FAILED && said.contains("connection refused"), "{said}");
    let missing = folder.0.join("missing.sock").display().to_string();
    let (status, said) = run(&["bench", "http://h/", "--unix", &missing, "-d", "300s", "-q"]);
    assert!(status == FAILED && said.contains(&format!("{missing}: No such file")), "{said}");
}

#[test]
fn an_output_that_takes_nothing_is_a_message() {
    let folder = Folder::new("full");
    let lab = folder.file("lab.toml", LAB);
    let bench = ["bench", REFUSED, "-n", "1", "-c", "1", "--no-live"];
    for (arguments, wanted) in [
        (&bench[..], USAGE),
        (&[&bench[..], &["-q", "--json", "-"]].concat(), USAGE),
        (&[&bench[..], &["-q", "--csv", "-"]].concat(), USAGE),
        (&["lab", &lab, "--dry-run"], 1),
        (&["bench", "--help"], 1),
    ] {
        let (status, said) = full(arguments);
        assert!(
            status == wanted && said.contains("cannot write to the standard output"),
            "{arguments:?} {status}: {said}"
        );
    }
    let (status, said) = run(&[&bench[..], &["-q", "--json", "/dev/full"]].concat());
    assert!(status == USAGE && said.contains("/dev/full: "), "{status}: {said}");
}

#[test]
fn unusable_files_and_arguments_are_named() {
    let folder = Folder::new("files");
    let (lab, empty) = (folder.file("lab.toml", LAB), folder.file("empty", ""));
    let stray = folder.file("stray.toml", &LAB.replace("sleep 300", "sleep @PORT:zz@"));
    let binary = folder.0.join("binary").display().to_string();
    std::fs::write(&binary, [0xff, 0xfe, 0]).unwrap();
    let here = folder.0.display().to_string();
    for (arguments, word) in [
        (&["lab", &here][..], "is a directory"),
        (&["lab", &binary], "not a text file"),
        (&["lab", &lab, "--rounds", "0"], "not positive"),
        (&["lab", &lab, "--server-cpus", "4095"], "--server-cpus 4095: this machine has no CPU"),
        (&["lab", &lab, "--client-cpus", "4095"], "--client-cpus 4095: this machine has no CPU"),
        (&["lab", &lab, "--out", "/proc/none"], "/proc/none"),
        (&["lab", &stray, "--out", "/proc/none"], "@PORT:zz@ names no server"),
        (&["bench", REFUSED, "--baseline", &empty], "the file is empty"),
        (&["bench", "https://127.0.0.1:1/", "--cacert", &empty], "empty: no certificate"),
        (&["bench", "worker", "--secret", "/nonexistent"], "/nonexistent"),
        (&["bench", "compare", &empty, &empty, "--names", "a"], "--names has 1 name for 2 files"),
        (&["top", REFUSED, "--pid", "4194304"], "no such process"),
        (&["top", REFUSED, "--probes", "abc"], "`abc` is not a whole number"),
    ] {
        let (status, said) = run(arguments);
        assert!(status == USAGE && said.contains(word), "{arguments:?} {status}: {said}");
    }
}

#[test]
fn weights_that_send_nothing_are_refused_with_their_place() {
    let folder = Folder::new("weights");
    for weight in ["-5", "0", "nan", "inf"] {
        let toml = format!("[[request]]\npath='/a'\n[[request]]\npath='/b'\nweight={weight}\n");
        let (requests, paths) = (folder.file("r.toml", &toml), folder.file("p.txt", &format!("/a\n\n{weight} /b\n")));
        for (option, file, place) in [("--request-file", &requests, ": request 2"), ("--paths", &paths, ":3")] {
            let (status, said) = run(&["bench", REFUSED, option, file, "-n", "1"]);
            assert!(status == USAGE && said.contains(&format!("{file}{place}: the weight ")), "{option}: {said}");
        }
    }
}

#[test]
fn columns_without_data_are_refused_and_can_be_escaped() {
    let folder = Folder::new("columns");
    let session = folder.file("s.toml", "[[step]]\npath='/'\nheaders=['Authorization: Bearer ${tok}']\n");
    let (status, said) = run(&["bench", REFUSED, "--session", &session]);
    let words = format!("--session {session}: the header of GET / has `${{tok}}`");
    assert!(status == USAGE && said.contains(&words), "{said}");
    let (status, said) = run(&["bench", REFUSED, "-H", "X: ${a}", "-b", "${b}", "-n", "1"]);
    assert!(status == USAGE && said.contains("with the columns b, a;"), "{said}");
    let escaped = ["bench", REFUSED, "-H", "X: {{dollar}}{a}", "-n", "1", "-q"];
    assert_eq!(run(&escaped).0, FAILED, "the run is made, and refused by the server");
}
