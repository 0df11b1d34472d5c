//! The project's own chores: `cargo xtask COMMAND`.

#![forbid(unsafe_code)]

mod bench;
mod book;
mod bounds;
mod chain;
mod chart;
mod ci;
mod circles;
mod closed_types;
mod compare;
mod crates;
mod deb;
mod docs;
mod fuzz;
mod h2spec;
mod kubernetes;
mod names;
mod oracle;
mod package;
mod places;
mod reproducible;
mod sbom;
mod server_program;
mod tidy;
mod waf;
mod wording;

use std::process::ExitCode;

struct XtaskCommand {
    name: &'static str,
    summary: &'static str,
    /// Arguments, options with their defaults, and an example.
    help: &'static str,
    run: fn(&[String]) -> Result<(), String>,
}

/// In alphabetical order.
const COMMANDS: &[XtaskCommand] = &[
    XtaskCommand {
        name: "bench",
        summary: "measure CPU time and memory against nginx, in pairs",
        help: bench::HELP,
        run: bench::run_bench,
    },
    XtaskCommand {
        name: "book",
        summary: "write the documents and the reference as static pages with a search",
        help: book::HELP,
        run: book::build_book,
    },
    XtaskCommand {
        name: "bounds",
        summary: "measure the cost of attacks on the release build against the bounds of docs/attacks.md",
        help: bounds::HELP,
        run: bounds::measure_bounds,
    },
    XtaskCommand {
        name: "chain",
        summary: "print the longest chain of crates that compile one after the other",
        help: chain::HELP,
        run: chain::print_chain,
    },
    XtaskCommand {
        name: "chart",
        summary: "check the Helm chart with Helm, and compare it with the manifests",
        help: chart::HELP,
        run: chart::check_chart,
    },
    XtaskCommand {
        name: "ci",
        summary: "run the checks that a change must pass: format, lints, tests",
        help: ci::HELP,
        run: ci::run_ci,
    },
    XtaskCommand {
        name: "circles",
        summary: "list circular imports between files and between top modules, per crate",
        help: circles::HELP,
        run: circles::print_circles,
    },
    XtaskCommand {
        name: "compare",
        summary: "compare generated configurations with a real nginx",
        help: compare::HELP,
        run: compare::run_compare,
    },
    XtaskCommand {
        name: "deb",
        summary: "build a Debian package of the release binary",
        help: deb::HELP,
        run: deb::run_deb,
    },
    XtaskCommand {
        name: "docs",
        summary: "write the generated documents: reference, compatibility, lint, metrics",
        help: docs::HELP,
        run: docs::write_docs,
    },
    XtaskCommand {
        name: "fuzz",
        summary: "run fuzz targets under libFuzzer and the address sanitizer",
        help: fuzz::HELP,
        run: fuzz::run_fuzz,
    },
    XtaskCommand {
        name: "h2spec",
        summary: "run h2spec, the HTTP/2 conformance test, against the debug build",
        help: h2spec::HELP,
        run: h2spec::run_h2spec,
    },
    XtaskCommand {
        name: "kubernetes",
        summary: "run the conformance suite of Gateway API with a real API server",
        help: kubernetes::HELP,
        run: kubernetes::run_kubernetes,
    },
    XtaskCommand {
        name: "names",
        summary: "count names of one word, common type names, participles and vague test names",
        help: names::HELP,
        run: names::print_names,
    },
    XtaskCommand {
        name: "oracle",
        summary: "run the .case files against a real nginx",
        help: oracle::HELP,
        run: oracle::run_oracle,
    },
    XtaskCommand {
        name: "package",
        summary: "build the Debian package, install it below a directory, start, query and remove it",
        help: package::HELP,
        run: package::run_package,
    },
    XtaskCommand {
        name: "reproducible",
        summary: "build the release binary in two directories and compare the bytes",
        help: reproducible::HELP,
        run: reproducible::check_reproducible,
    },
    XtaskCommand {
        name: "sbom",
        summary: "write the bill of materials of the binary as CycloneDX",
        help: sbom::HELP,
        run: sbom::write_sbom,
    },
    XtaskCommand {
        name: "tidy",
        summary: "check the invariants of ARCHITECTURE.md and the wording of comments",
        help: tidy::HELP,
        run: tidy::run_tidy,
    },
    XtaskCommand {
        name: "waf",
        summary: "run the regression tests of the OWASP Core Rule Set through the engine",
        help: waf::HELP,
        run: waf::run,
    },
];

fn main() -> ExitCode {
    let mut arguments: Vec<String> = std::env::args().skip(1).collect();
    let mut asks_for_help = arguments.iter().any(|word| word == "--help" || word == "-h");
    arguments.retain(|word| word != "--help" && word != "-h");
    if arguments.first().is_some_and(|word| word == "help") {
        asks_for_help = true;
        arguments.remove(0);
    }
    let name = arguments.first().map_or("", String::as_str);
    let Some(command) = COMMANDS.iter().find(|command| command.name == name) else {
        if asks_for_help && name.is_empty() {
            print!("{}", overview());
            return ExitCode::SUCCESS;
        }
        if !name.is_empty() {
            eprintln!("xtask: unknown command \"{name}\"\n");
        }
        eprint!("{}", overview());
        return ExitCode::FAILURE;
    };
    if asks_for_help {
        print!("{}", command.help);
        return ExitCode::SUCCESS;
    }
    match check(command, &arguments[1..]).and_then(|()| (command.run)(&arguments[1..])) {
        Ok(()) => ExitCode::SUCCESS,
        Err(words) => {
            eprintln!("xtask {name}: {words}");
            ExitCode::FAILURE
        }
    }
}

fn overview() -> String {
    let lines = COMMANDS.iter().map(|command| format!("  {:<12} {}\n", command.name, command.summary));
    format!("Usage: cargo xtask COMMAND\n\n{}\nEach command has --help.\n", lines.collect::<String>())
}

/// Refuses arguments of a command whose help names none.
fn check(command: &XtaskCommand, arguments: &[String]) -> Result<(), String> {
    let usage = command.help.lines().next().unwrap_or_default();
    match arguments.first() {
        Some(word) if !usage.contains('[') => {
            Err(format!("takes no arguments, but got \"{word}\"; see cargo xtask {} --help", command.name))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    /// The files of a command: `src/NAME.rs`, or `src/NAME/mod.rs`.
    fn source(name: &str) -> String {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let read = |path: String| std::fs::read_to_string(folder.join(path));
        read(format!("{name}.rs")).or_else(|_| read(format!("{name}/mod.rs"))).expect("a module of the command's name")
    }

    /// The options that a module compares words with.
    fn options(source: &str) -> Vec<String> {
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let words = code.split('"').enumerate().filter(|(number, _)| number % 2 == 1).map(|(_, word)| word);
        let is_option = |word: &str| {
            word.strip_prefix("--").is_some_and(|name| name.bytes().all(|c| c.is_ascii_lowercase() || c == b'-'))
        };
        let parsed =
            |word: &str| [format!("\"{word}\" =>"), format!("== \"{word}\"")].iter().any(|place| code.contains(place));
        words.filter(|word| is_option(word) && parsed(word)).map(str::to_string).collect()
    }

    /// An argument of a process that the benchmark starts, and one of nginx's `configure`.
    const NO_OPTIONS: [&str; 2] = ["--hog", "--with-stream"];

    #[test]
    fn the_help_of_each_command_has_its_options_and_an_example() {
        let mut count = 0;
        for command in COMMANDS {
            let (name, help) = (command.name, command.help);
            assert!(help.starts_with(&format!("Usage: cargo xtask {name}")), "{help}");
            assert!(help.lines().any(|line| line.starts_with(&format!("  cargo xtask {name}"))), "{help}");
            assert!(help.ends_with('\n') && help.lines().all(|line| line.chars().count() <= 110), "{help}");
            for option in options(&source(name)).into_iter().filter(|option| !NO_OPTIONS.contains(&option.as_str())) {
                assert!(
                    help.lines().any(|line| line.starts_with(&format!("  {option} ")) || line.trim() == option),
                    "{name} {option}: {help}"
                );
                count += 1;
            }
        }
        assert!(count > 30, "{count} options");
    }

    #[test]
    fn a_command_without_options_refuses_them() {
        let command = |name: &str| COMMANDS.iter().find(|command| command.name == name).expect("a command");
        assert!(check(command("ci"), &["--quick".into()]).is_err_and(|words| words.contains("--help")));
        assert!(check(command("ci"), &[]).is_ok() && check(command("bench"), &["return".into()]).is_ok());
    }
}
