//! `cargo xtask oracle`: the cases against a real nginx.

use std::fs;
use std::path::{Path, PathBuf};

pub fn run(arguments: &[String]) -> Result<(), String> {
    let binary = arguments.first().map_or("/usr/sbin/nginx", String::as_str);
    let server = cases::Server { binary: binary.into(), nginx: true };
    let mut paths = Vec::new();
    collect(Path::new("crates"), &mut paths);
    collect(Path::new("tests/cases"), &mut paths);
    paths.sort();
    let (mut agree, mut skipped, mut wrong) = (0, 0, Vec::new());
    for path in &paths {
        let text = fs::read_to_string(path).map_err(|e| format!("{}: {e}", path.display()))?;
        let case = cases::parse(&text).map_err(|e| format!("{}: {e}", path.display()))?;
        if case.differs.is_some() {
            skipped += 1;
            continue;
        }
        let name = path.file_stem().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        match cases::run(&server, &case, &name) {
            Ok(()) => agree += 1,
            Err(words) => wrong.push(format!("{}:\n{words}", path.display())),
        }
    }
    println!("{agree} cases agree with {binary}, {skipped} say that they differ, {} disagree", wrong.len());
    if wrong.is_empty() { Ok(()) } else { Err(format!("\n{}", wrong.join("\n\n"))) }
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
