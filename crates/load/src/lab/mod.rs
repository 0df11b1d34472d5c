//! `tidegate lab FILE`: whole experiments from one small file: servers with their configuration, workloads, sweeps, rounds.
//!
//! [`file`] is the format, [`servers`] starts and stops what is measured, [`conduct`] runs the experiment turn by turn,
//! [`compare`] says what the pairs show and what the bottleneck is, [`report`] draws.

pub mod answer;
pub mod compare;
pub mod conduct;
pub mod dry;
pub mod file;
pub mod probe;
pub mod report;
pub mod servers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::bench::{FAILED, OK, USAGE};

const EXAMPLES: &str = "\
Examples:
  tidegate lab examples/lab/requests-against-connections.toml
  tidegate lab examples/lab/static-servers.toml --rounds 5 --duration 3s --out results
  tidegate lab examples/lab/static-servers.toml --only nginx,h2o --quick

The directory gets report.html, report.json, report.csv and every plot as an SVG file. Servers whose program is not installed are
left out, with a word. Everything listens on 127.0.0.1 only and is stopped at the end.

Exit status: 0 done; 2 wrong arguments; 4 the experiment could not be made; 130, 143 stopped by INT or TERM, with a report of what
there was.";

/// See `--help`.
#[derive(Parser, Clone, Debug)]
#[command(name = "tidegate lab", about = "Runs experiments: servers, workloads, sweeps, paired rounds", after_help = EXAMPLES)]
pub struct Options {
    /// The experiment.
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Directory for the results [default: the file's name with `-results`].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Only these servers, by name or words of it.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Only these workloads, by name or words of it.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// Rounds instead of the file's.
    #[arg(long, value_name = "N")]
    pub rounds: Option<usize>,
    /// Length of a point instead of the file's.
    #[arg(long, value_name = "TIME", value_parser = crate::bench::cli::time)]
    pub duration: Option<f64>,
    /// Processors of the servers and of the client [default: the first half and the second half].
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub server_cpus: Vec<usize>,
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub client_cpus: Vec<usize>,
    /// Say what would be done, with which commands, files and ports, and how long it takes; start and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// One short round, to see whether everything works.
    #[arg(long)]
    pub quick: bool,
    /// Seed of the order of turns.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,
}

/// Runs `tidegate lab` with the arguments after the subcommand's name; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let args = std::iter::once(OsString::from("tidegate lab")).chain(args);
    let options = match Options::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => {
            let _ = e.print();
            return if e.use_stderr() { USAGE } else { OK };
        }
    };
    crate::interrupt::watch();
    match run(&options) {
        Ok(()) => crate::interrupt::status().unwrap_or(OK),
        Err(message) => {
            eprintln!("tidegate lab: {message}");
            FAILED
        }
    }
}

fn run(options: &Options) -> Result<(), String> {
    let text = crate::bench::requests::read(&options.file)?;
    let mut lab = file::read(&text).map_err(|e| format!("{}: {e}", options.file.display()))?;
    file::adapt(&mut lab, options)?;
    let out = options.out.clone().unwrap_or_else(|| {
        let stem = options.file.file_stem().map_or("lab".into(), |s| s.to_string_lossy().into_owned());
        PathBuf::from(format!("{stem}-results"))
    });
    let base = options.file.parent().unwrap_or(Path::new("."));
    let Some(results) = conduct::conduct(&lab, options, &out, base)? else { return Ok(()) };
    report::write(&results, &out)?;
    let page = out.join("report.html");
    crate::bench::say(&format!("{}\n{}\n", report::text(&results), page.display()));
    Ok(())
}
