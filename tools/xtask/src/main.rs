//! The project's own chores: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod bench;
mod book;
mod bounds;
mod ci;
mod circles;
mod compare;
mod crates;
mod deb;
mod docs;
mod fuzz;
mod h2spec;
mod oracle;
mod package;
mod reproducible;
mod sbom;
mod tidy;
mod wording;

use std::process::ExitCode;

/// Name, summary and function.
const COMMANDS: &[(&str, &str, fn(&[String]) -> Result<(), String>)] = &[
    (
        "bench",
        "measure CPU time and memory against nginx, in pairs: [SCENARIO...] [--pairs N] [--seconds S] [--syscalls] [--fairness] [--large]",
        bench::run,
    ),
    ("book", "write the documents and the reference as static pages with a search: [--out FOLDER]", book::run),
    ("bounds", "measure the cost of attacks on the release build against the bounds of SECURITY.md", bounds::run),
    ("ci", "run the checks that a change must pass: format, lints, tests", ci::run),
    ("circles", "list circular imports between files, per crate", circles::run),
    (
        "compare",
        "compare generated configurations with a real nginx: [--seed N] [--count N] [--only TEXT]",
        compare::run,
    ),
    ("deb", "build a Debian package of the release binary", deb::run),
    (
        "package",
        "build the Debian package, install it below a folder, start, ask and remove it [--in-ci]",
        package::run,
    ),
    ("docs", "write the generated documents: reference, compatibility, lint, metrics", docs::run),
    (
        "fuzz",
        "run fuzz targets under libFuzzer and the address sanitizer: [TARGET...] [--minutes N] [--jobs N]",
        fuzz::run,
    ),
    ("h2spec", "run h2spec, the HTTP/2 conformance test, against the debug build: [--h2spec FILE]", h2spec::run),
    (
        "oracle",
        "run the .case files against a real nginx: [--source DIR] [--nginx FILE] [--ours FILE] [--only TEXT]",
        oracle::run,
    ),
    (
        "reproducible",
        "build the release binary in two folders and compare the bytes (takes two release builds)",
        reproducible::run,
    ),
    ("sbom", "write the bill of materials of the binary as CycloneDX: [--out FILE]", sbom::run),
    ("tidy", "check the invariants of ARCHITECTURE.md and the wording of comments", tidy::run),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let name = arguments.first().map_or("", String::as_str);
    let Some((_, _, run)) = COMMANDS.iter().find(|(known, _, _)| *known == name) else {
        eprintln!("Usage: cargo xtask COMMAND\n");
        for (name, summary, _) in COMMANDS {
            eprintln!("  {name:<12} {summary}");
        }
        return ExitCode::FAILURE;
    };
    match run(&arguments[1..]) {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("xtask {name}: {words}");
            ExitCode::FAILURE
        }
    }
}
