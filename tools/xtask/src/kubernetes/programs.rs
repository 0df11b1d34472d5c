//! Programs of a run: those that Go builds once, and those of this workspace.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Version of Kubernetes: k8s.io/kubernetes v1.VERSION, its parts v0.VERSION.
const KUBERNETES: &str = "36.3";
const GATEWAY_API: &str = "v1.6.3";

/// The suite as a test binary.
const SUITE_SOURCE: &str = "\
package judge

import (
	\"testing\"

	\"sigs.k8s.io/gateway-api/conformance\"
)

func TestConformance(t *testing.T) { conformance.RunConformance(t) }
";

/// Paths of all programs.
#[derive(Clone, Debug)]
pub struct Programs {
    /// Folder of the builds by Go.
    folder: PathBuf,
    pub api_server: PathBuf,
    pub suite: PathBuf,
    pub echo: PathBuf,
    pub server: PathBuf,
    pub controller: PathBuf,
    pub kubelet: PathBuf,
}

impl Programs {
    /// Returns the paths below a target directory.
    pub fn below(target: &Path) -> Programs {
        let folder = target.join("kubernetes");
        let debug = |name: &str| target.join("debug").join(name);
        Programs {
            api_server: folder.join(format!("kube-apiserver-1.{KUBERNETES}")),
            suite: folder.join(format!("conformance-{GATEWAY_API}.test")),
            echo: folder.join(format!("echo-basic-{GATEWAY_API}")),
            server: debug("tidegate"),
            controller: debug("tidegate-controller"),
            kubelet: debug("fake-kubelet"),
            folder,
        }
    }

    /// Builds the missing programs. An error names the package of a missing tool.
    pub fn prepare(&self) -> Result<(), String> {
        let tools = [("etcd", "etcd-server"), ("ip", "iproute2"), ("unshare", "util-linux"), ("go", "golang")];
        let missing: Vec<&str> =
            tools.iter().filter(|(tool, _)| !has_tool(tool)).map(|(_, package)| *package).collect();
        if !missing.is_empty() {
            return Err(format!("missing packages: {} (Go: version 1.26)", missing.join(", ")));
        }
        if !self.suite.exists() || !self.echo.exists() {
            self.build_suite()?;
        }
        if !self.api_server.exists() {
            self.build_api_server()?;
        }
        // With the features of a build of the whole workspace, as `cargo xtask ci` builds them.
        let programs = ["--bin", "tidegate", "--bin", "tidegate-controller", "--bin", "fake-kubelet"];
        let mut cargo = Command::new("cargo");
        execute(cargo.args(["build", "--quiet", "--workspace"]).args(programs))
    }

    /// Returns the folder with the definitions of Gateway API, of the experimental channel.
    pub fn definitions(&self) -> Result<PathBuf, String> {
        let folder = self.suite_folder();
        let mut list = Command::new("go");
        list.args(["list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/gateway-api"]).current_dir(folder);
        let output = list.output().map_err(|error| format!("go: {error}"))?;
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let folder = Path::new(&path).join("config/crd/experimental");
        match folder.is_dir() {
            true => Ok(folder),
            false => Err(format!("no definitions of Gateway API: {}", String::from_utf8_lossy(&output.stderr))),
        }
    }

    fn suite_folder(&self) -> PathBuf {
        self.folder.join(format!("conformance-{GATEWAY_API}"))
    }

    fn build_suite(&self) -> Result<(), String> {
        let echo = "sigs.k8s.io/gateway-api/conformance/echo-basic";
        let folder = module(&self.suite_folder(), echo)?;
        fs::write(folder.join("judge_test.go"), SUITE_SOURCE).map_err(|error| error.to_string())?;
        // Its go.mod replaces gateway-api by a path.
        let replace = format!("-replace=sigs.k8s.io/gateway-api=sigs.k8s.io/gateway-api@{GATEWAY_API}");
        let require = format!("-require=sigs.k8s.io/gateway-api/conformance@{GATEWAY_API}");
        go(&folder, &["mod", "edit", &replace, &require])?;
        go(&folder, &["mod", "tidy"])?;
        go(&folder, &["build", "-o", &self.echo.to_string_lossy(), echo])?;
        go(&folder, &["test", "-c", "-o", &self.suite.to_string_lossy(), "."])
    }

    fn build_api_server(&self) -> Result<(), String> {
        let program = "k8s.io/kubernetes/cmd/kube-apiserver";
        let folder = module(&self.folder.join(format!("kube-apiserver-1.{KUBERNETES}-build")), program)?;
        let version = format!("k8s.io/kubernetes@v1.{KUBERNETES}");
        let download = Command::new("go").args(["mod", "download", "-json", &version]).current_dir(&folder).output();
        let download = download.map_err(|error| format!("go: {error}"))?;
        let facts: serde_json::Value = serde_json::from_slice(&download.stdout).map_err(|error| error.to_string())?;
        let path = facts["GoMod"].as_str().ok_or_else(|| format!("{version} cannot be downloaded"))?;
        let text = fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
        go(&folder, &["mod", "edit", &format!("-require={version}")])?;
        for name in staging_modules(&text) {
            go(&folder, &["mod", "edit", &format!("-replace={name}={name}@v0.{KUBERNETES}")])?;
        }
        go(&folder, &["mod", "tidy"])?;
        go(&folder, &["build", "-o", &self.api_server.to_string_lossy(), program])
    }
}

/// Makes a module that needs a program of another one.
fn module(folder: &Path, program: &str) -> Result<PathBuf, String> {
    fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    let text = format!("//go:build tools\n\npackage judge\n\nimport _ \"{program}\"\n");
    fs::write(folder.join("tools.go"), text).map_err(|error| error.to_string())?;
    if !folder.join("go.mod").exists() {
        go(folder, &["mod", "init", "judge"])?;
    }
    Ok(folder.to_owned())
}

/// Returns the modules that a go.mod replaces by folders of its own repository, which a download does not have.
fn staging_modules(text: &str) -> Vec<&str> {
    let pairs = text.lines().filter_map(|line| line.trim().split_once(" => "));
    pairs.filter(|(_, place)| place.starts_with("./staging/")).map(|(name, _)| name).collect()
}

fn go(folder: &Path, arguments: &[&str]) -> Result<(), String> {
    execute(Command::new("go").args(arguments).current_dir(folder))
}

fn execute(command: &mut Command) -> Result<(), String> {
    let program = command.get_program().to_string_lossy().into_owned();
    let words: Vec<String> = command.get_args().map(|word| word.to_string_lossy().into_owned()).collect();
    let shown = format!("{program} {}", words.join(" "));
    eprintln!("==> {shown}");
    let status = command.stdin(Stdio::null()).status().map_err(|error| format!("{program}: {error}"))?;
    if status.success() { Ok(()) } else { Err(format!("{shown} failed")) }
}

fn has_tool(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).chain(["/usr/sbin".into()]).any(|folder| folder.join(name).is_file())
}

#[cfg(test)]
mod tests {
    #[test]
    fn modules_of_the_repository_itself_are_replaced() {
        let text =
            "module k8s.io/kubernetes\nreplace (\n\tk8s.io/api => ./staging/src/k8s.io/api\n\tk8s.io/x => ../x\n)\n";
        assert_eq!(super::staging_modules(text), ["k8s.io/api"]);
    }
}
