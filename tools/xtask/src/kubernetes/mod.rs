//! `cargo xtask kubernetes`: the conformance suite of Gateway API against the controller and the server.
//!
//! A process in a network namespace and a process namespace of its own starts etcd, an API server, the fake kubelet, the
//! server and the controller, and then the suite. All of them end with that process, which ends with this one.

mod cluster;
mod outage;
mod programs;
mod report;
mod rights;

use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use cluster::Cluster;
use programs::Programs;

use crate::server_program::target_folder;

pub const HELP: &str = "\
Usage: cargo xtask kubernetes [--profiles NAMES] [--run TEST] [--report DIR] [--hold] [--rights] [--outage S]

Runs the conformance suite of Gateway API against tidegate-controller and tidegate, with etcd and a real API
server, in a network namespace. Pods are local processes (tools/fake-kubelet). Needs root, and on Debian the
packages etcd-server and iproute2, and Go 1.26. Builds the API server and the suite once (about 15 minutes)
below the target directory, and the debug build of the other programs. The suite takes 2 to 5 minutes.

  --profiles NAMES   with commas (default: GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP,GATEWAY-UDP)
  --run TEST         one test of the suite (its ShortName)
  --report DIR       folder for report.yaml and the logs of all programs (default: target/kubernetes/run)
  --hold             starts the cluster without the suite, and holds it until Ctrl-C
  --rights           removes each right of packaging/kubernetes/tidegate.yaml in turn, instead of the suite,
                     and compares the controller's log with it
  --outage S         stops the API server for S seconds, instead of the suite: requests are answered all the
                     time, and statuses go on afterwards

  cargo xtask kubernetes --run HTTPRouteSimpleSameNamespace
";

const PROFILES: &str = "GATEWAY-HTTP,GATEWAY-GRPC,GATEWAY-TLS,GATEWAY-TCP,GATEWAY-UDP";

/// Subject of a run.
#[derive(Clone, Debug, PartialEq)]
enum RunSubject {
    Suite { profiles: String, test: Option<String> },
    Hold,
    Rights,
    Outage { seconds: u64 },
}

#[derive(Clone, Debug, PartialEq)]
struct KubernetesOptions {
    subject: RunSubject,
    folder: PathBuf,
    /// True in the namespaces.
    is_inside: bool,
}

pub fn run_kubernetes(arguments: &[String]) -> Result<(), String> {
    let target = std::path::absolute(target_folder()).map_err(|error| error.to_string())?;
    let options = parse(arguments, &target)?;
    let programs = Programs::below(&target);
    match options.is_inside {
        true => run_inside(&options, &programs),
        false => run_outside(arguments, &options, &programs),
    }
}

fn parse(arguments: &[String], target: &Path) -> Result<KubernetesOptions, String> {
    let mut folder = target.join("kubernetes/run");
    let (mut profiles, mut test) = (PROFILES.to_owned(), None);
    let (mut other, mut is_inside) = (None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        let mut value = || words.next().cloned().ok_or_else(|| format!("{word} needs a value"));
        match word.as_str() {
            "--profiles" => profiles = value()?,
            "--run" => test = Some(value()?),
            "--report" => folder = value()?.into(),
            "--hold" => other = Some(RunSubject::Hold),
            "--rights" => other = Some(RunSubject::Rights),
            "--outage" => {
                let seconds = value()?.parse().map_err(|_| "--outage needs a number of seconds".to_owned())?;
                other = Some(RunSubject::Outage { seconds });
            }
            INSIDE => is_inside = true,
            _ => return Err(format!("unknown argument \"{word}\"; see cargo xtask kubernetes --help")),
        }
    }
    let subject = other.unwrap_or(RunSubject::Suite { profiles, test });
    let folder = std::path::absolute(folder).map_err(|error| error.to_string())?;
    Ok(KubernetesOptions { subject, folder, is_inside })
}

/// Word of the process in the namespaces, which no user needs.
const INSIDE: &str = "inside-namespaces";

fn run_outside(arguments: &[String], options: &KubernetesOptions, programs: &Programs) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("needs root, for network namespaces".into());
    }
    programs.prepare()?;
    std::fs::create_dir_all(&options.folder).map_err(|error| format!("{}: {error}", options.folder.display()))?;
    let own = std::env::current_exe().map_err(|error| error.to_string())?;
    // The end of the pipe tells the process inside that this one is gone: the kernel ends the others with it.
    let mut child = Command::new("unshare")
        .args(["--net", "--pid", "--mount", "--fork", "--kill-child=SIGKILL", "--mount-proc"])
        .arg(own)
        .args(["kubernetes", INSIDE])
        .args(arguments)
        .stdin(Stdio::piped())
        .spawn()
        .map_err(|error| format!("unshare: {error}"))?;
    let input = child.stdin.take();
    let status = child.wait().map_err(|error| error.to_string())?;
    drop(input);
    match status.success() {
        true => Ok(()),
        false => Err(format!("the run failed; logs are in {}", options.folder.display())),
    }
}

fn run_inside(options: &KubernetesOptions, programs: &Programs) -> Result<(), String> {
    std::thread::spawn(|| {
        let mut byte = [0];
        // Nothing is written to this pipe.
        let _ = std::io::stdin().read(&mut byte);
        std::process::exit(130);
    });
    let mut cluster = Cluster::start(programs, &options.folder)?;
    match &options.subject {
        RunSubject::Suite { profiles, test } => report::run_suite(&mut cluster, profiles, test.as_deref()),
        RunSubject::Hold => hold(&cluster),
        RunSubject::Rights => rights::remove_each(&mut cluster),
        RunSubject::Outage { seconds } => outage::outlive_outage(&mut cluster, *seconds),
    }
}

fn hold(cluster: &Cluster) -> Result<(), String> {
    let pid = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let pid = pid.split(' ').next().unwrap_or_default();
    println!("The cluster runs; process {pid} of its namespace. Ctrl-C ends it.");
    println!("Enter it: nsenter --target $(pgrep --newest --full {INSIDE}) --net --pid --mount");
    println!("Then: export KUBECONFIG={}", cluster.admin_configuration().display());
    loop {
        std::thread::park();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn arguments_select_a_subject() {
        let options = |text: &str| parse(&words(text), Path::new("/target"));
        let all = options("").unwrap();
        assert_eq!(all.subject, RunSubject::Suite { profiles: PROFILES.into(), test: None });
        assert_eq!(all.folder, Path::new("/target/kubernetes/run"));
        let one = options("--run A --profiles GATEWAY-TLS --report /tmp").unwrap();
        assert_eq!(one.subject, RunSubject::Suite { profiles: "GATEWAY-TLS".into(), test: Some("A".into()) });
        assert_eq!(one.folder, Path::new("/tmp"));
        assert_eq!(options("--outage 600").unwrap().subject, RunSubject::Outage { seconds: 600 });
        for text in ["--outage x", "--run", "--unknown"] {
            assert!(options(text).is_err(), "{text}");
        }
    }
}
