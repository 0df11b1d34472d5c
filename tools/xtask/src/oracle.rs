//! `cargo xtask oracle`: runs the cases against the newest available nginx.
//!
//! That is one built from a checkout of nginx's source, where one is named by `--source` or the environment variable
//! `NGINX_SOURCE`, else one that is named by `--nginx`, else the installed one. The build takes some twenty seconds, once: it is kept
//! below `target` until the source changes. The checkout itself stays as it is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::SystemTime;

pub const HELP: &str = "\
Usage: cargo xtask oracle [OPTIONS]

Runs the .case files below crates and tests/cases against nginx: the expected bytes must be nginx's, unless
the case says \"differs:\".

  --source DIR   nginx's source, which is built once (default: NGINX_SOURCE from the environment)
  --nginx FILE   nginx's binary (default: /usr/sbin/nginx)
  --ours FILE    run the cases against this Tidegate binary instead
  --only TEXT    run only cases whose path contains TEXT

  cargo xtask oracle --only limit_req
";

/// On Debian.
const INSTALLED: &str = "/usr/sbin/nginx";
/// Parts of a checkout that the build needs.
const PARTS: &[&str] = &["auto", "conf", "configure", "contrib", "docs", "html", "man", "src"];
/// Used by the cases, comparisons and examples.
const WITH: &[&str] = &[
    "--with-threads",
    "--with-file-aio",
    "--with-http_ssl_module",
    "--with-http_v2_module",
    "--with-http_v3_module",
    "--with-http_realip_module",
    "--with-http_addition_module",
    "--with-http_sub_module",
    "--with-http_gunzip_module",
    "--with-http_gzip_static_module",
    "--with-http_auth_request_module",
    "--with-http_random_index_module",
    "--with-http_secure_link_module",
    "--with-http_slice_module",
    "--with-http_dav_module",
    "--with-http_flv_module",
    "--with-http_mp4_module",
    "--with-http_degradation_module",
    "--with-http_stub_status_module",
    "--with-stream",
    "--with-stream_ssl_module",
    "--with-stream_ssl_preread_module",
    "--with-stream_realip_module",
];

#[derive(Default)]
struct OracleOptions {
    source: Option<PathBuf>,
    nginx: Option<PathBuf>,
    /// Filters by path.
    only: Option<String>,
    /// Runs the cases against this Tidegate binary instead.
    ours: Option<PathBuf>,
}

impl OracleOptions {
    fn read(arguments: &[String]) -> Result<OracleOptions, String> {
        let mut asked = OracleOptions::default();
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            let mut value = || words.next().cloned().ok_or(format!("{word} wants a value"));
            match word.as_str() {
                "--source" => asked.source = Some(value()?.into()),
                "--nginx" => asked.nginx = Some(value()?.into()),
                "--only" => asked.only = Some(value()?),
                "--ours" => asked.ours = Some(value()?.into()),
                path if !path.starts_with('-') && asked.nginx.is_none() => asked.nginx = Some(path.into()),
                other => {
                    return Err(format!("unknown option \"{other}\"; see cargo xtask oracle --help"));
                }
            }
        }
        Ok(asked)
    }
}

pub fn run_oracle(arguments: &[String]) -> Result<(), String> {
    let asked = OracleOptions::read(arguments)?;
    let server = match &asked.ours {
        Some(ours) => cases::Server { binary: ours.clone(), nginx: false, env: Vec::new() },
        None => {
            let binary = newest_nginx(asked.source.as_deref(), asked.nginx.as_deref())?;
            let binary =
                binary.ok_or("no nginx: name a checkout of its source with --source, or a binary with --nginx")?;
            cases::Server { binary, nginx: true, env: Vec::new() }
        }
    };
    let shown = nginx_version(&server.binary).unwrap_or_else(|| server.binary.display().to_string());
    let mut paths = Vec::new();
    collect(Path::new("crates"), &mut paths);
    collect(Path::new("tests/cases"), &mut paths);
    paths.sort();
    let (mut agree, mut skipped, mut lacks, mut wrong) = (0, 0, 0, Vec::new());
    let built_with = told(&server.binary, "-V");
    // `http2` is a directive from 1.25.1 on.
    let http2 = !server.nginx || (built_with.contains("http_v2_module") && is_since(&shown, (1, 25)));
    let tls = !server.nginx || built_with.contains("http_ssl_module");
    let http3 = !server.nginx || built_with.contains("http_v3_module");
    for path in &paths {
        if asked.only.as_ref().is_some_and(|only| !path.to_string_lossy().contains(only.as_str())) {
            continue;
        }
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let case = cases::parse_case(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        if case.differs.is_some() && server.nginx {
            skipped += 1;
            continue;
        }
        if server.nginx && case.needs.as_ref().is_some_and(|module| !built_with.contains(module.as_str())) {
            lacks += 1;
            continue;
        }
        let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        let can = |over: &&cases::Over| {
            (http2 || !over.is_h2()) && (tls || !over.is_tls()) && (http3 || **over != cases::Over::H3)
        };
        let runs = case.over.iter().filter(can).map(|over| cases::run_case(&server, &case, &name, *over));
        let failed: Vec<String> = runs.filter_map(Result::err).collect();
        if failed.is_empty() {
            agree += 1;
        }
        wrong.extend(failed.iter().map(|words| format!("{}:\n{words}", path.display())));
    }
    println!(
        "{agree} cases agree with {shown}, {skipped} say that they differ, {lacks} need modules that it lacks, {} disagree",
        wrong.len()
    );
    if wrong.is_empty() { Ok(()) } else { Err(format!("\n{}", wrong.join("\n\n"))) }
}

/// Returns the newest available nginx, or `None`.
///
/// # Errors
/// The named nginx does not exist or cannot be built.
pub fn newest_nginx(source: Option<&Path>, binary: Option<&Path>) -> Result<Option<PathBuf>, String> {
    if let Some(binary) = binary {
        return if binary.is_file() {
            Ok(Some(binary.into()))
        } else {
            Err(format!("{}: no such file", binary.display()))
        };
    }
    let from_environment = std::env::var_os("NGINX_SOURCE").map(PathBuf::from);
    if let Some(source) = source.map(Path::to_path_buf).or(from_environment) {
        return build(&source).map(Some);
    }
    Ok(Some(PathBuf::from(INSTALLED)).filter(|path| path.is_file()))
}

/// `nginx/1.31.6`
pub fn nginx_version(binary: &Path) -> Option<String> {
    told(binary, "-v").split_whitespace().find(|word| word.starts_with("nginx/")).map(ToString::to_string)
}

/// Tells whether `nginx/1.31.6` is at least this version.
fn is_since(version: &str, (major, minor): (u32, u32)) -> bool {
    let mut numbers = version.trim_start_matches("nginx/").split('.').map_while(|n| n.parse().ok());
    let seen: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    seen >= (major, minor)
}

/// Empty without output.
fn told(binary: &Path, flag: &str) -> String {
    let told = Command::new(binary).arg(flag).output().ok();
    told.map_or_else(String::new, |told| {
        String::from_utf8_lossy(&told.stderr).into_owned() + &String::from_utf8_lossy(&told.stdout)
    })
}

/// Builds a copy of the checkout below `target`, unless it stands there with all modules and has not changed since.
fn build(source: &Path) -> Result<PathBuf, String> {
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| PathBuf::from("target"), PathBuf::from);
    let folder = target.join("oracle");
    let binary = folder.join("objs/nginx");
    let newest = newest(&source.join("src")).ok_or(format!("{}: no source of nginx", source.display()))?;
    let built = fs::metadata(&binary).and_then(|m| m.modified());
    let modules = if built.is_ok() { told(&binary, "-V") } else { String::new() };
    if built.is_ok_and(|built| built > newest) && WITH.iter().all(|with| modules.contains(with)) {
        return Ok(binary);
    }
    eprintln!("building nginx from {}", source.display());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    for part in PARTS.iter().map(|part| source.join(part)).filter(|part| part.exists()) {
        shell(Command::new("cp").arg("-a").arg(part).arg(&folder))?;
    }
    // A checkout has its script in another place than a release.
    let script = if folder.join("configure").exists() { "./configure" } else { "auto/configure" };
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let options = WITH.iter().copied().chain(["--with-cc-opt=-O1 -g0 -Wno-error"]);
    shell(Command::new("sh").arg(script).args(options).current_dir(&folder))?;
    shell(Command::new("make").arg(format!("-j{cores}")).args(["-f", "objs/Makefile", "binary"]).current_dir(&folder))?;
    Ok(binary)
}

fn shell(command: &mut Command) -> Result<(), String> {
    let done = command.stdin(Stdio::null()).stdout(Stdio::piped()).output().map_err(|e| format!("{command:?}: {e}"))?;
    if done.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&done.stdout).into_owned() + &String::from_utf8_lossy(&done.stderr);
    let from = text.len().saturating_sub(2000);
    Err(format!("{command:?} failed:\n{}", text.get(from..).unwrap_or(&text)))
}

/// Modification time of the newest file.
fn newest(folder: &Path) -> Option<SystemTime> {
    let mut found = None;
    for entry in fs::read_dir(folder).ok()?.flatten() {
        let path = entry.path();
        let time = if path.is_dir() { newest(&path) } else { entry.metadata().and_then(|m| m.modified()).ok() };
        found = found.max(time);
    }
    found
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "case") {
            out.push(path);
        }
    }
}
