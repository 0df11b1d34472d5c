//! `cargo xtask tidy`: the invariants of ARCHITECTURE.md that a look at the text can hold.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

pub const HELP: &str = "\
Usage: cargo xtask tidy

Checks rules that a look at the text can decide: file heads and lengths, unsafe code, dependencies of
protocol crates, circular imports, the longest chain of crates, names, public fields of closed types,
the wording of comments and documents, the files and limits that documents name, the index of decision
records, sleeping tests of the server, tests that give a port back before they use it, packages of which
Cargo.lock has several versions.

  cargo xtask tidy
";

/// Longest file in lines; tables and tests do not count.
const LINES_MAX: usize = 800;
const UNSAFE_CRATES: &[&str] = &["net"];
/// Numbers of descriptors, which say nothing of who owns them, stand in `net`, and where the system itself asks for a number: the
/// `NGINX` variable of an upgrade, and the name of an open file below `/proc`.
const NUMBERS: &[&str] =
    &["crates/platform/net/", "crates/server/src/process/upgrade.rs", "crates/worker/src/file_out.rs"];
/// Crates whose folders are features, which do not name each other.
const FEATURE_CRATES: &[&str] = &[
    "http-api",
    "http-auth",
    "http-compression",
    "http-content",
    "http-features",
    "http-proxy",
    "mail-features",
    "stream-features",
];
/// Crates without sockets, clocks and dependencies on other crates of the workspace except `base`.
const SANS_IO: &[&str] = &["dns-zone", "http-types", "wire-h1", "wire-h2", "wire-h3", "wire-proxy"];
/// Dependencies that a sans-I/O core may have.
const SANS_IO_NEEDS: [&str; 5] = ["base", "bytes", "http-types", "memchr", "quinn-proto"];

/// The picture of the crates in ARCHITECTURE.md.
const PICTURE: &str = "docs/images/crates.svg";

/// Most packages that are compiled in several versions: getrandom, hashbrown, miniz_oxide, syn and unicode-width on Linux.
const SEVERAL_VERSIONS_MAX: usize = 5;

pub fn run_tidy(_: &[String]) -> Result<(), String> {
    let mut complaints = Vec::new();
    let mut sources = rust_sources();
    for (file, text) in &sources {
        check(Path::new(file), text, &mut complaints);
    }
    complaints.extend(crate::names::name_complaints(&sources));
    complaints.extend(crate::closed_types::open_field_complaints(&sources));
    let crates = crate::crates::all_crates();
    for name in SANS_IO {
        let folder =
            crates.iter().find(|(known, _)| known == name).map(|(_, folder)| folder.clone()).unwrap_or_default();
        let manifest = fs::read_to_string(folder.join("Cargo.toml")).unwrap_or_default();
        if manifest.is_empty() {
            complaints.push(format!("{name}: the crate has no manifest"));
        }
        let dependencies = manifest.split("[dependencies]").nth(1).unwrap_or("").split('[').next().unwrap_or("");
        for line in dependencies.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')) {
            let dependency = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if !SANS_IO_NEEDS.contains(&dependency) {
                complaints.push(format!("{name}/Cargo.toml: a sans-io core may not depend on \"{line}\""));
            }
        }
    }
    complaints.extend(crate::circles::circle_complaints());
    complaints.extend(crate::chain::chain_complaint());
    let mut targets = Vec::new();
    collect(Path::new("fuzz/fuzz_targets"), &mut targets);
    for file in targets {
        let text = fs::read_to_string(&file).unwrap_or_default();
        sources.push((file.display().to_string(), text));
    }
    complaints.extend(crate::wording::wording_complaints(&sources));
    complaints.extend(crate::places::place_complaints(&sources));
    complaints.extend(unlisted_decisions());
    complaints.extend(missing_in_picture(&crates, &fs::read_to_string(PICTURE).unwrap_or_default()));
    complaints.extend(several_versions(&compiled_packages()?));
    if complaints.is_empty() {
        return Ok(());
    }
    Err(format!("\n  {}", complaints.join("\n  ")))
}

/// Returns the Rust files below crates/ and tools/ with their texts.
pub fn rust_sources() -> Vec<(String, String)> {
    let mut files = Vec::new();
    collect(Path::new("crates"), &mut files);
    collect(Path::new("tools"), &mut files);
    let texts =
        files.into_iter().filter_map(|file| Some((file.display().to_string(), fs::read_to_string(&file).ok()?)));
    texts.collect()
}

/// Returns a complaint for each crate below crates/ that the picture does not show.
fn missing_in_picture(crates: &[(String, PathBuf)], picture: &str) -> Vec<String> {
    let missing = crates.iter().filter(|(name, folder)| {
        // The program's crate is shown with its name.
        let shown = if name == "server" { "tidegate" } else { name };
        folder.starts_with("crates") && !picture.contains(&format!(">{shown}</text>"))
    });
    missing.map(|(name, _)| format!("{PICTURE}: the crate {name} is not shown")).collect()
}

/// Reports decision records that their index does not link.
fn unlisted_decisions() -> Vec<String> {
    let index = fs::read_to_string("docs/decisions/index.md").unwrap_or_default();
    let names = fs::read_dir("docs/decisions").into_iter().flatten().flatten();
    let names = names.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let unlisted = names.filter(|name| name != "index.md" && !index.contains(&format!("({name})")));
    unlisted.map(|name| format!("docs/decisions/index.md: a line for {name} is missing")).collect()
}

/// Returns the packages that this platform compiles for the workspace and its tests, lines `name vVERSION`. (Cargo.lock has
/// those of other platforms as well, and some that no feature asks for.)
fn compiled_packages() -> Result<String, String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let output = std::process::Command::new(cargo)
        .args(["tree", "--locked", "--workspace", "--prefix", "none", "--format", "{p}"])
        .output()
        .map_err(|e| format!("cargo cannot be run: {e}"))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(format!("cargo tree: {}", String::from_utf8_lossy(&output.stderr).trim())),
    }
}

/// Reports more packages with several versions than [`SEVERAL_VERSIONS_MAX`].
fn several_versions(packages: &str) -> Option<String> {
    let words = packages.lines().filter_map(|line| line.split_once(' '));
    let versions: BTreeSet<(&str, &str)> =
        words.map(|(name, rest)| (name, rest.split(' ').next().unwrap_or_default())).collect();
    let names: Vec<&str> = versions.iter().map(|(name, _)| *name).collect();
    let mut several: Vec<&str> = names.windows(2).filter(|pair| pair[0] == pair[1]).map(|pair| pair[0]).collect();
    several.dedup();
    (several.len() > SEVERAL_VERSIONS_MAX).then(|| {
        format!(
            "Cargo.lock: several versions of {} packages are compiled, at most {SEVERAL_VERSIONS_MAX} are intended: {}",
            several.len(),
            several.join(", ")
        )
    })
}

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else { return };
    for entry in entries.flatten() {
        let path = entry.path();
        if path.is_dir() && path.file_name().is_some_and(|n| n != "target") {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "rs") {
            out.push(path);
        }
    }
}

fn check(file: &Path, text: &str, complaints: &mut Vec<String>) {
    let shown = file.display();
    let (crate_name, folder) = crate::crates::crate_of(file).unwrap_or_default();
    let module = file.strip_prefix(folder.join("src")).ok().and_then(|rest| rest.components().next());
    let module = module.map(|part| part.as_os_str().to_string_lossy().into_owned()).unwrap_or_default();
    let is_test = shown.to_string().contains("test") || shown.to_string().contains("/benches/");
    let is_table = shown.to_string().contains("/vocabulary/");
    if !is_test && !is_table && text.lines().count() > LINES_MAX {
        complaints.push(format!("{shown}: {} lines; a file past {LINES_MAX} wants to be two", text.lines().count()));
    }
    if !text.starts_with("//!") && !is_test {
        complaints.push(format!("{shown}: begins without a //! that states its responsibility"));
    }
    let keyword = concat!("un", "safe ");
    if !UNSAFE_CRATES.contains(&crate_name.as_str()) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if code.contains(&format!("{keyword}{{")) || code.contains(&format!("{keyword}fn")) {
                complaints.push(format!("{shown}:{}: unsafe code belongs into net", number + 1));
            }
        }
    }
    if !NUMBERS.iter().any(|place| shown.to_string().starts_with(place)) {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if [concat!("Raw", "Fd"), concat!("_raw", "_fd")].iter().any(|word| code.contains(word)) {
                complaints.push(format!("{shown}:{}: a descriptor's number; borrow it (`AsFd`)", number + 1));
            }
        }
    }
    // `net::title` overwrites the arguments: programs read them first.
    let is_program = ["/src/main.rs", "/src/bin/", "/examples/"].iter().any(|part| shown.to_string().contains(part));
    if shown.to_string().starts_with("crates/") && !is_program {
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or("");
            if code.contains(concat!("env::", "args")) {
                complaints.push(format!("{shown}:{}: arguments are read in `main` alone", number + 1));
            }
        }
    }
    // `support::wait` looks again after a pause, `support::pace` makes a peer slow.
    let own_pauses = "crates/server/tests/support/mod.rs";
    if shown.to_string().starts_with("crates/server/tests/") && shown.to_string() != own_pauses {
        for (number, line) in text.lines().enumerate() {
            if line.contains(concat!("thread::", "sleep")) {
                complaints.push(format!("{shown}:{}: a test that sleeps; use `support::wait`", number + 1));
            }
        }
    }
    complaints.extend(lost_ports(text).map(|line| {
        format!("{shown}:{line}: the port of a socket that is closed again may be an outgoing connection's; use `testkit::free_port`")
    }));
    let of_features = FEATURE_CRATES.contains(&crate_name.as_str());
    if of_features && !module.ends_with(".rs") {
        let own = module;
        for (number, line) in text.lines().enumerate() {
            if let Some(rest) = line.split("crate::").nth(1) {
                let other: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                if other != own && other != "registry" && other != "shared" && folder.join("src").join(&other).is_dir()
                {
                    complaints.push(format!("{shown}:{}: a feature may not name another ({other})", number + 1));
                }
            }
        }
    }
}

/// Returns the lines that ask the kernel for a port and close its socket in one statement.
fn lost_ports(text: &str) -> impl Iterator<Item = usize> {
    let is_lost = |statement: &str| {
        let asks = ["bind(\"127.0.0.1:0\")", "bind(\"[::1]:0\")", ", 0))"].iter().any(|form| statement.contains(form));
        asks && statement.contains("bind(") && statement.contains(concat!(".local", "_addr()"))
    };
    let mut line = 1;
    text.split(';').filter_map(move |statement| {
        let begin = statement.find("bind(").map_or("", |at| &statement[..at]);
        let found = line + begin.lines().count().saturating_sub(1);
        line += statement.matches('\n').count();
        is_lost(statement).then_some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_of_closed_sockets_are_found() {
        let asked = concat!(".local", "_addr()");
        let kept = "let listener = TcpListener::bind(\"127.0.0.1:0\").unwrap();\nlet port = listener.local_addr().unwrap().port();\n";
        let lost = ["TcpListener::bind(\"127.0.0.1:0\")", "UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))"]
            .map(|bind| format!("fn port() -> u16 {{\n    {bind}.unwrap()\n{asked}.unwrap().port()\n}}\n"));
        assert_eq!(lost_ports(kept).count(), 0);
        for text in lost {
            assert_eq!(lost_ports(&format!("{kept}{text}")).collect::<Vec<_>>(), [4], "{text}");
        }
    }

    #[test]
    fn packages_with_several_versions_are_counted_once() {
        let package = |number: usize| format!("p{number} v1.0.0\np{number} v1.0.0\np{number} v2.0.0 (proc-macro)\n");
        let packages =
            |several: usize| -> String { (0..several).map(package).collect::<String>() + "q v1.0.0\nq v1.0.0\n" };
        assert_eq!(several_versions(&packages(SEVERAL_VERSIONS_MAX)), None);
        let complaint = several_versions(&packages(SEVERAL_VERSIONS_MAX + 1)).expect("one too many");
        assert!(complaint.contains("several versions of 6 packages"), "{complaint}");
    }

    #[test]
    fn a_crate_that_the_picture_lacks_is_a_complaint() {
        let crates = ["base", "server", "tls"].map(|name| (name.to_string(), Path::new("crates").join(name)));
        let complaints = missing_in_picture(&crates, "<text>base</text><text>tidegate</text>");
        assert_eq!(complaints, ["docs/images/crates.svg: the crate tls is not shown"]);
    }
}
