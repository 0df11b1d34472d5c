//! `cargo xtask chart`: checks the Helm chart with Helm, and compares its rendering with the manifests.

use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask chart [--helm FILE] [--write]

Lints the chart in packaging/kubernetes/chart, renders it with its defaults and with other values, and
compares the first rendering with packaging/kubernetes/tidegate.yaml.

  --helm FILE   the program helm (default: one built with Go's tools, once, below target)
  --write       write tidegate.yaml again

  cargo xtask chart --write
";

const MODULE: &str = "helm.sh/helm/v3/cmd/helm@v3.22.0";

pub fn check_chart(arguments: &[String]) -> Result<(), String> {
    let (mut helm, mut writes) = (None, false);
    let mut words = arguments.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--helm" => helm = Some(PathBuf::from(words.next().ok_or("--helm needs a file")?)),
            "--write" => writes = true,
            _ => return Err("unknown arguments; see cargo xtask chart --help".into()),
        }
    }
    let helm = helm.map_or_else(build, Ok)?;
    let mut test = Command::new("cargo");
    test.args(["test", "--package", "tidegate-controller", "--test", "packaging"]).env("TIDEGATE_HELM", helm);
    if writes {
        test.env("TIDEGATE_EXPECTED", "write");
    }
    let status = test.status().map_err(|e| format!("cargo: {e}"))?;
    status.success().then_some(()).ok_or_else(|| "the chart and its manifests do not pass".into())
}

fn build() -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    // The test has another working directory, and GOBIN has to be absolute.
    let folder = std::path::absolute(target.join("helm")).map_err(|e| e.to_string())?;
    let program = folder.join("helm");
    if !Path::new(&program).exists() {
        eprintln!("building {MODULE}");
        let status = Command::new("go").args(["install", MODULE]).env("GOBIN", &folder).status();
        let status = status.map_err(|e| format!("go: {e}; name a program with --helm"))?;
        if !status.success() {
            return Err(format!("go install {MODULE} failed; name a program with --helm"));
        }
    }
    Ok(program)
}
