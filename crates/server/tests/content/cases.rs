//! Every `.case` file of the project, against our binary over real sockets.

use std::path::{Path, PathBuf};

fn collect(folder: &Path, out: &mut Vec<PathBuf>) {
    let Ok(entries) = std::fs::read_dir(folder) else { return };
    for path in entries.flatten().map(|e| e.path()) {
        if path.is_dir() {
            collect(&path, out);
        } else if path.extension().is_some_and(|e| e == "case") {
            out.push(path);
        }
    }
}

#[test]
fn every_case_holds() {
    all_hold(&[], |_| true);
}

/// Requests that wait for servers are polled in place where that is possible (`exchange/upstream_exchange.rs`), and are tasks elsewhere:
/// both give the answers that the cases expect.
#[test]
fn cases_that_pass_requests_on_hold_by_tasks_alone() {
    all_hold(&[("TIDEGATE_EXCHANGE", "task")], |text| text.contains("_pass "));
}

fn all_hold(env: &[(&'static str, &'static str)], wanted: impl Fn(&str) -> bool) {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut paths = Vec::new();
    collect(&root.join("crates"), &mut paths);
    collect(&root.join("tests/cases"), &mut paths);
    paths.sort();
    assert!(paths.len() >= 10, "the cases were not found");
    let server = cases::Server { binary: env!("CARGO_BIN_EXE_tidegate").into(), nginx: false, env: env.to_vec() };
    let mut wrong = Vec::new();
    // While a case is being written, `CASES=word` runs those alone whose path holds the word.
    if let Ok(word) = std::env::var("CASES") {
        paths.retain(|path| path.to_string_lossy().contains(&word));
    }
    for path in &paths {
        let text = std::fs::read_to_string(path).expect("readable");
        if !wanted(&text) {
            continue;
        }
        // Both tests run concurrently, in separate directories.
        let suffix = if env.is_empty() { "" } else { "-task" };
        let name = path.file_stem().map(|n| format!("{}{suffix}", n.to_string_lossy())).unwrap_or_default();
        let case = match cases::parse_case(&text) {
            Ok(case) => case,
            Err(words) => panic!("{}: {words}", path.display()),
        };
        for over in &case.over {
            if let Err(words) = cases::run_case(&server, &case, &name, *over) {
                wrong.push(format!("{}:\n{words}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "{} of {} cases fail\n{}", wrong.len(), paths.len(), wrong.join("\n\n"));
}
