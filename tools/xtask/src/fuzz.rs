//! `cargo xtask fuzz`: builds all fuzz targets with libFuzzer's coverage and the address sanitizer, and runs each for some minutes.
//!
//! The flags are those of cargo-fuzz, which needs a nightly compiler; here the stable compiler builds with `RUSTC_BOOTSTRAP`.

mod kept;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

pub const HELP: &str = "\
Usage: cargo xtask fuzz [TARGET...] [--minutes N] [--jobs N] [--keep]

Builds fuzz targets with libFuzzer and the address sanitizer, runs each of them, and prints executions,
coverage and inputs. Without a name it runs all targets (fuzz/fuzz_targets). A run starts with the inputs of
fuzz/corpora, and with those of earlier runs in fuzz/corpus.

  --minutes N   duration for each target (default: 1)
  --jobs N      targets at a time (default: 1)
  --keep        replace fuzz/corpora/TARGET.txt by the fewest inputs that reach all code reached so far

  cargo xtask fuzz jwt h1_request --minutes 10 --jobs 2
";

const TARGET: &str = "x86_64-unknown-linux-gnu";

const FLAGS: &[&str] = &[
    "--cfg",
    "fuzzing",
    "-Zsanitizer=address",
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Cdebuginfo=line-tables-only",
];

/// Memory of a target, and seconds that one input may take, before libFuzzer reports it.
const MEMORY_MB: u32 = 2048;
const SECONDS_MAX: u32 = 20;

#[derive(Debug, Default, PartialEq, Eq)]
struct FuzzOptions {
    minutes: u64,
    /// At once.
    jobs: usize,
    keep: bool,
    only: Vec<String>,
}

pub fn run_fuzz(arguments: &[String]) -> Result<(), String> {
    let options = parse(arguments)?;
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let mut targets = targets(&folder)?;
    if !options.only.is_empty() {
        if let Some(unknown) = options.only.iter().find(|name| !targets.contains(name)) {
            return Err(format!("there is no target \"{unknown}\"; there are: {}", targets.join(", ")));
        }
        targets.retain(|name| options.only.contains(name));
    }
    let built = build(&folder, &targets)?;
    println!("{:<20} {:>14} {:>9} {:>9}  result", "target", "executions", "coverage", "inputs");
    let (queue, failed) = (Mutex::new(targets.iter()), Mutex::new(Vec::new()));
    let next = || queue.lock().unwrap_or_else(PoisonError::into_inner).next();
    // A thread for each job reads its target's output: a target that fills its pipe would wait.
    let work = || -> Result<(), String> {
        while let Some(name) = next() {
            let child = start(&folder, &built, name, options.minutes)?;
            let output = child.wait_with_output().map_err(|e| format!("{name}: {e}"))?;
            let stats = Stats::of(&String::from_utf8_lossy(&output.stderr));
            let word = if output.status.success() { "ok" } else { "FAILED" };
            println!("{name:<20} {:>14} {:>9} {:>9}  {word}", stats.executions, stats.coverage, stats.inputs);
            if output.status.success() && options.keep {
                kept::replace_corpus(&folder, &built.join(name), name)?;
            } else if !output.status.success() {
                failed.lock().unwrap_or_else(PoisonError::into_inner).push(describe(name, &output));
            }
        }
        Ok(())
    };
    let ends: Vec<_> = std::thread::scope(|scope| {
        let jobs: Vec<_> = (0..options.jobs).map(|_| scope.spawn(work)).collect();
        jobs.into_iter().map(|job| job.join().unwrap_or_else(|_| Err("a job panicked".into()))).collect()
    });
    ends.into_iter().collect::<Result<(), String>>()?;
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if failed.is_empty() { Ok(()) } else { Err(failed.join("\n")) }
}

fn parse(arguments: &[String]) -> Result<FuzzOptions, String> {
    let mut options = FuzzOptions { minutes: 1, jobs: 1, ..FuzzOptions::default() };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || {
            let value = rest.next().and_then(|text| text.parse::<u64>().ok()).filter(|n| *n > 0);
            value.ok_or(format!("{argument} needs a number above 0"))
        };
        match argument.as_str() {
            "--minutes" => options.minutes = number()?,
            "--jobs" => options.jobs = number()? as usize,
            "--keep" => options.keep = true,
            name if name.starts_with('-') => {
                return Err(format!("unknown option \"{name}\"; see cargo xtask fuzz --help"));
            }
            name => options.only.push(name.to_string()),
        }
    }
    Ok(options)
}

fn targets(folder: &Path) -> Result<Vec<String>, String> {
    let entries = std::fs::read_dir(folder.join("fuzz_targets")).map_err(|e| format!("fuzz/fuzz_targets: {e}"))?;
    let mut names: Vec<String> = entries
        .flatten()
        .filter_map(|entry| Some(entry.file_name().to_str()?.strip_suffix(".rs")?.to_string()))
        .collect();
    names.sort();
    Ok(names)
}

/// Returns the folder of the binaries.
fn build(folder: &Path, targets: &[String]) -> Result<PathBuf, String> {
    let root = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| folder.join("target"), |dir| PathBuf::from(dir).join("fuzz"));
    let mut command = Command::new(std::env::var("CARGO").unwrap_or_else(|_| "cargo".into()));
    command
        .args(["build", "--release", "--features", "libfuzzer", "--target", TARGET, "--manifest-path"])
        .arg(folder.join("Cargo.toml"));
    command.args(targets.iter().flat_map(|name| ["--bin", name]));
    command.env("CARGO_TARGET_DIR", &root).env("RUSTC_BOOTSTRAP", "1").env("RUSTFLAGS", FLAGS.join(" "));
    match command.status() {
        Ok(status) if status.success() => Ok(root.join(TARGET).join("release")),
        Ok(_) => Err("the fuzz targets do not build".into()),
        Err(e) => Err(format!("cargo: {e}")),
    }
}

fn start(folder: &Path, built: &Path, name: &str, minutes: u64) -> Result<std::process::Child, String> {
    let (corpus, artifacts) = (folder.join("corpus").join(name), folder.join("artifacts").join(name));
    for folder in [&corpus, &artifacts] {
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
    }
    kept::unpack_corpus(folder, name, &corpus)?;
    let seconds = Duration::from_secs(minutes * 60).as_secs();
    let mut command = target_command(&built.join(name));
    command.arg(&corpus).args([
        format!("-max_total_time={seconds}"),
        format!("-rss_limit_mb={MEMORY_MB}"),
        format!("-timeout={SECONDS_MAX}"),
        format!("-artifact_prefix={}/", artifacts.display()),
        // Small inputs that reach as much replace large ones.
        "-reduce_inputs=1".to_string(),
        "-print_final_stats=1".to_string(),
    ]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().map_err(|e| format!("{name}: {e}"))
}

/// A write to a closed connection is an error for the server, whose runtime ignores SIGPIPE. libFuzzer's `main` does not.
fn target_command(binary: &Path) -> Command {
    let mut command = Command::new("sh");
    command.args(["-c", "trap '' PIPE; exec \"$0\" \"$@\""]).arg(binary);
    command
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Stats {
    executions: u64,
    /// Control-flow edges.
    coverage: u64,
    inputs: u64,
}

impl Stats {
    fn of(text: &str) -> Stats {
        let mut stats = Stats::default();
        for line in text.lines() {
            let mut words = line.split_whitespace();
            while let Some(word) = words.next() {
                let mut number = || words.next().and_then(|text| text.split('/').next()?.parse().ok());
                match word {
                    "cov:" => stats.coverage = number().unwrap_or(stats.coverage),
                    "corp:" => stats.inputs = number().unwrap_or(stats.inputs),
                    "stat::number_of_executed_units:" => stats.executions = number().unwrap_or(0),
                    _ => {}
                }
            }
        }
        stats
    }
}

/// The end of a failed target's output, from the report of the error on.
fn describe(name: &str, output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines: Vec<&str> = text.lines().collect();
    let at = lines.iter().position(|line| line.contains("panicked at") || line.contains("ERROR:")).unwrap_or(0);
    let mut out = format!("{name}:");
    for line in lines.iter().skip(at).take(12).chain(lines.iter().filter(|line| line.contains("Test unit written"))) {
        let _ = write!(out, "\n  {line}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read() {
        let words = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
        let options = parse(&words("jwt --minutes 60 --jobs 2 --keep")).expect("valid");
        assert_eq!(options, FuzzOptions { minutes: 60, jobs: 2, keep: true, only: vec!["jwt".into()] });
        assert!(parse(&words("--minutes 0")).is_err() && parse(&words("--hours 1")).is_err());
    }

    #[test]
    fn every_target_is_declared() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).expect("the manifest");
        let targets = targets(&folder).expect("targets");
        assert!(targets.len() > 30);
        for name in targets {
            assert!(manifest.contains(&format!("name = \"{name}\"")), "{name}");
        }
    }

    #[test]
    fn the_report_of_libfuzzer_is_read() {
        let text = "#2\tINITED cov: 3 ft: 4 corp: 1/1b\n#99\tDONE   cov: 345 ft: 678 corp: 12/345b lim: 4\n\
                    stat::number_of_executed_units: 99\n";
        assert_eq!(Stats::of(text), Stats { executions: 99, coverage: 345, inputs: 12 });
    }
}
