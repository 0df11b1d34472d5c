//! `cargo xtask deb`: a Debian package from the binary of the profile `dist` and packaging/, with `dpkg-deb`.

use crate::server_program::{build_server, target_folder};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

pub const HELP: &str = "\
Usage: cargo xtask deb

Builds the binary in the profile `dist` and a Debian package of it with dpkg-deb, and prints the path of
the package.

  cargo xtask deb
";

/// Targets of files in packaging/.
const FILES: &[(&str, &str)] = &[
    ("packaging/systemd/tidegate.service", "lib/systemd/system/tidegate.service"),
    ("packaging/systemd/tidegate-unprivileged.service", "lib/systemd/system/tidegate-unprivileged.service"),
    ("packaging/systemd/logrotate.conf", "lib/systemd/system/logrotate.service.d/tidegate.conf"),
    ("docs/replace-nginx.md", "usr/share/doc/tidegate/replace-nginx.md"),
    ("packaging/nginx.conf", "usr/share/tidegate/nginx.conf"),
    ("packaging/mime.types", "usr/share/tidegate/mime.types"),
    ("packaging/fastcgi_params", "usr/share/tidegate/fastcgi_params"),
    ("packaging/scgi_params", "usr/share/tidegate/scgi_params"),
    ("packaging/uwsgi_params", "usr/share/tidegate/uwsgi_params"),
    ("packaging/grafana/overview.json", "usr/share/tidegate/grafana/overview.json"),
    ("packaging/grafana/upstreams.json", "usr/share/tidegate/grafana/upstreams.json"),
    ("packaging/grafana/caches-tls.json", "usr/share/tidegate/grafana/caches-tls.json"),
    ("packaging/grafana/kubernetes.json", "usr/share/tidegate/grafana/kubernetes.json"),
    ("packaging/prometheus/alerts.yml", "usr/share/tidegate/prometheus/alerts.yml"),
    ("packaging/debian/index.html", "usr/share/tidegate/index.html"),
    ("packaging/logrotate", "etc/logrotate.d/tidegate"),
];

const PRINTED: &[(&[&str], &str)] = &[
    (&["completions", "bash"], "usr/share/bash-completion/completions/tidegate"),
    (&["completions", "zsh"], "usr/share/zsh/vendor-completions/_tidegate"),
    (&["completions", "fish"], "usr/share/fish/vendor_completions.d/tidegate.fish"),
    (&["reference", "man"], "usr/share/man/man8/tidegate.8"),
    (&["reference", "directives"], "usr/share/doc/tidegate/reference.md"),
    (&["reference", "compatibility"], "usr/share/doc/tidegate/compatibility.md"),
];

/// With their modes.
const SCRIPTS: &[(&str, u32)] = &[("postinst", 0o755), ("prerm", 0o755), ("postrm", 0o755), ("triggers", 0o644)];

/// Packed as a program: logrotate runs it.
const HOOK: (&str, &str) = ("packaging/debian/reopen-logs", "etc/logrotate.d/httpd-prerotate/tidegate");

const CONFFILES: &str = "/etc/logrotate.d/tidegate\n/etc/logrotate.d/httpd-prerotate/tidegate\n";

const BINARY: &str = "usr/sbin/tidegate";

pub fn run_deb(_: &[String]) -> Result<(), String> {
    println!("{}", build_deb(true)?.display());
    Ok(())
}

/// Builds the package; returns its path. Without `release` it contains the debug build, in a separate directory.
pub fn build_deb(release: bool) -> Result<PathBuf, String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let target = target_folder();
    let (target, built) = if release {
        let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
        call(Command::new(cargo).args(["build", "--profile", "dist", "--package", "tidegate"]).current_dir(&root))?;
        let built = target.join("dist/tidegate");
        (target, built)
    } else {
        (target.join("debug"), build_server()?)
    };
    let stage = target.join("deb");
    let _ = fs::remove_dir_all(&stage);
    put(&stage, BINARY, &fs::read(&built).map_err(|e| format!("{}: {e}", built.display()))?, 0o755)?;
    call(Command::new("strip").arg("--strip-debug").arg(stage.join(BINARY)))?;
    for (from, to) in FILES {
        put(&stage, to, &fs::read(root.join(from)).map_err(|e| format!("{from}: {e}"))?, 0o644)?;
    }
    for (arguments, to) in PRINTED {
        put(&stage, to, &call(Command::new(&built).args(*arguments))?, 0o644)?;
    }
    for (name, mode) in SCRIPTS {
        let script = fs::read(root.join("packaging/debian").join(name)).map_err(|e| format!("{name}: {e}"))?;
        put(&stage, &format!("DEBIAN/{name}"), &script, *mode)?;
    }
    let (from, to) = HOOK;
    put(&stage, to, &fs::read(root.join(from)).map_err(|e| format!("{from}: {e}"))?, 0o755)?;
    put(&stage, "DEBIAN/conffiles", CONFFILES.as_bytes(), 0o644)?;
    let architecture = call(Command::new("dpkg").arg("--print-architecture"))?;
    let architecture = String::from_utf8_lossy(&architecture).trim().to_string();
    let version = env!("CARGO_PKG_VERSION");
    let binary = fs::read(stage.join(BINARY)).map_err(|e| e.to_string())?;
    let depends = depends(&binary).ok_or("the binary names no version of the C library")?;
    put(&stage, "DEBIAN/control", control(version, &architecture, &depends).as_bytes(), 0o644)?;
    let package = target.join(format!("tidegate_{version}_{architecture}.deb"));
    // Debian's compression takes minutes for a debug build.
    let compression: &[&str] = if release { &[] } else { &["-Zgzip", "-z1"] };
    call(Command::new("dpkg-deb").args(compression).args(["--root-owner-group", "--build"]).arg(&stage).arg(&package))?;
    Ok(package)
}

/// Returns the newest version that a binary wants of a library, from its names of versions such as `GLIBC_2.34`.
fn newest(binary: &[u8], prefix: &str) -> Option<Vec<u32>> {
    let versions = memchr::memmem::find_iter(binary, prefix).filter_map(|at| {
        let rest = binary.get(at + prefix.len()..)?;
        // A name ends with a NUL.
        let end = rest.iter().take(16).position(|byte| *byte == 0)?;
        let text = std::str::from_utf8(rest.get(..end)?).ok()?;
        text.split('.').map(|part| part.parse().ok()).collect::<Option<Vec<u32>>>()
    });
    versions.max()
}

/// Returns the packages that the binary needs, with their versions; `None` for a binary that names none.
fn depends(binary: &[u8]) -> Option<String> {
    let text = |version: Vec<u32>| version.iter().map(u32::to_string).collect::<Vec<_>>().join(".");
    let libc = format!("libc6 (>= {})", text(newest(binary, "GLIBC_")?));
    Some(match newest(binary, "GCC_") {
        Some(version) => format!("{libc}, libgcc-s1 (>= {})", text(version)),
        None => libc,
    })
}

fn control(version: &str, architecture: &str, depends: &str) -> String {
    format!(
        "Package: tidegate
Version: {version}
Architecture: {architecture}
Maintainer: The Tidegate developers <tidegate@tidegate.invalid>
Section: httpd
Priority: optional
Depends: {depends}
Suggests: logrotate
Provides: httpd, httpd-cgi, nginx
Description: web server and reverse proxy that reads nginx.conf
 Tidegate serves what an nginx configuration says, unchanged: files, proxied
 applications and load-balanced groups. It is written in a memory-safe language.
"
    )
}

fn put(stage: &Path, name: &str, contents: &[u8], mode: u32) -> Result<(), String> {
    let path = stage.join(name);
    let write = || {
        fs::create_dir_all(path.parent().unwrap_or(stage))?;
        fs::write(&path, contents)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(mode))
    };
    write().map_err(|e| format!("{}: {e}", path.display()))
}

/// Runs a program and returns its output.
fn call(command: &mut Command) -> Result<Vec<u8>, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(output.stdout);
    }
    Err(format!("{name} failed:\n{}", String::from_utf8_lossy(&output.stderr)))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The exposure that systemd computes (0 to 10) of the units; skipped without systemd.
    #[test]
    fn units_are_hardened() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/systemd");
        for (name, most) in [("tidegate.service", 32), ("tidegate-unprivileged.service", 20)] {
            let most: u32 = most;
            let mut command = Command::new("systemd-analyze");
            command.args(["security", "--offline=true", "--no-pager"]).arg(format!("--threshold={most}"));
            match command.arg(folder.join(name)).output() {
                Ok(output) if output.status.success() => {}
                Ok(output) => panic!("{name}: {}", String::from_utf8_lossy(&output.stdout)),
                Err(_) => eprintln!("skipped: there is no systemd-analyze"),
            }
        }
    }

    #[test]
    fn libraries_are_required_with_their_versions() {
        let binary = b"\0GLIBC_2.9\0GLIBC_2.34\0GLIBC_2.2.5\0GCC_3.0\0GCC_4.2.0\0GLIBC_PRIVATE\0GLIBC_2.99 in a text\0";
        assert_eq!(depends(binary).as_deref(), Some("libc6 (>= 2.34), libgcc-s1 (>= 4.2.0)"));
        assert_eq!(depends(b"\0GLIBC_2.17\0").as_deref(), Some("libc6 (>= 2.17)"));
        assert_eq!(depends(b"static"), None);
    }

    /// nginx's types (its file conf/mime.types), and those of the web since.
    #[test]
    fn types_of_common_files_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let text = fs::read_to_string(root.join("packaging/mime.types")).expect("the types");
        let inner = text.split_once('{').and_then(|(_, rest)| rest.split_once('}')).expect("a block").0;
        let lines: Vec<Vec<&str>> = inner
            .split(';')
            .map(|line| line.split_whitespace().collect())
            .filter(|line: &Vec<_>| !line.is_empty())
            .collect();
        let mut extensions: Vec<&str> = lines.iter().flat_map(|line| line.iter().skip(1).copied()).collect();
        for wanted in
            ["docx", "xlsx", "pptx", "jar", "rss", "atom", "swf", "ts", "m3u8", "woff2", "wbmp", "jng", "3gp", "webm"]
        {
            assert!(extensions.contains(&wanted), "{wanted}");
        }
        let count = extensions.len();
        extensions.sort_unstable();
        extensions.dedup();
        assert_eq!(extensions.len(), count, "an extension has one type");
        assert!(count >= 120, "{count}");
    }

    /// All packed files exist, the scripts parse, and the package provides nginx for its dependants.
    #[test]
    fn the_parts_of_the_package_are_there() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        for (from, _) in FILES {
            assert!(root.join(from).is_file(), "{from}");
        }
        let scripts = SCRIPTS.iter().map(|(name, mode)| (*name, *mode)).chain([("reopen-logs", 0o755)]);
        for (name, mode) in scripts {
            let path = root.join("packaging/debian").join(name);
            if mode == 0o755 {
                let checked = Command::new("sh").arg("-n").arg(&path).status().expect("sh runs");
                assert!(checked.success(), "{name}");
            } else {
                assert!(path.is_file(), "{name}");
            }
        }
        let control = control("1", "amd64", "libc6 (>= 2.34)");
        assert!(control.contains("\nProvides: httpd, httpd-cgi, nginx\n"), "{control}");
        assert!(control.contains("\nDepends: libc6 (>= 2.34)\n"), "{control}");
    }
}
