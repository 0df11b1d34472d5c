//! `tidegate lab FILE`: experiments with servers, workloads, sweeps and rounds from one file.
//! [`file`] is the format, [`servers`] starts and stops processes, [`conduct`] runs the turns, [`compare`] judges
//! pairs, [`report`] draws.

pub mod answer;
pub mod compare;
pub mod conduct;
mod curves;
pub mod dry;
pub mod file;
pub mod probe;
pub mod report;
pub mod scale;
pub mod servers;

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::Parser;

use crate::bench::{FAILED, OK, USAGE};
use crate::observe::machine::check_cpus;

const EXAMPLES: &str = "\
Examples:
  tidegate lab examples/lab/requests-against-connections.toml
  tidegate lab examples/lab/static-servers.toml --rounds 5 --duration 3s --out results
  tidegate lab examples/lab/static-servers.toml --only nginx,h2o --quick

The output directory contains report.html, report.json, report.csv and every plot as an SVG file. Servers that are not installed are
skipped with a message. All servers listen on 127.0.0.1 only and are stopped at the end.

Exit status: 0 success; 2 wrong arguments, an invalid lab file, or an unwritable directory or output; 4 the experiment failed; 130, 143 stopped by INT or TERM, with a report of the results
so far.";

/// See `--help`.
#[derive(Parser, Clone, Debug)]
#[command(name = "tidegate lab", about = "Runs experiments: servers, workloads, sweeps, paired rounds", after_help = EXAMPLES)]
pub struct LabOptions {
    /// Lab file (TOML).
    #[arg(value_name = "FILE")]
    pub file: PathBuf,
    /// Output directory [default: the file's name with `-results`].
    #[arg(long, value_name = "DIR")]
    pub out: Option<PathBuf>,
    /// Run only these servers, by name or words of it.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run only these workloads, by name or words of it.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub workloads: Vec<String>,
    /// Override the file's number of rounds.
    #[arg(long, value_name = "N", value_parser = crate::bench::values::parse_positive)]
    pub rounds: Option<usize>,
    /// Override the file's duration of a point.
    #[arg(long, value_name = "TIME", value_parser = crate::bench::values::positive_time)]
    pub duration: Option<f64>,
    /// CPUs of the servers, such as `0,1` [default: the first half].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::bench::values::parse_cpu)]
    pub server_cpus: Vec<usize>,
    /// CPUs of the load generator [default: the second half].
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = crate::bench::values::parse_cpu)]
    pub client_cpus: Vec<usize>,
    /// Print commands, files, ports and the estimated duration; start and write nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Run one short round, to test the lab file.
    #[arg(long, conflicts_with_all = ["rounds", "duration"])]
    pub quick: bool,
    /// Random seed for the order of turns.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = crate::bench::values::parse_number::<u64>)]
    pub seed: u64,
}

/// Runs `tidegate lab` with the arguments after the subcommand's name; returns the exit status.
pub fn main(args: Vec<OsString>) -> i32 {
    let args = std::iter::once(OsString::from("tidegate lab")).chain(args);
    let options = match LabOptions::try_parse_from(args) {
        Ok(options) => options,
        Err(e) => return crate::print_usage(&e),
    };
    crate::interrupt::watch();
    let lab = match read(&options) {
        Ok(lab) => lab,
        Err(message) => {
            eprintln!("tidegate lab: {message}");
            return USAGE;
        }
    };
    match run(&lab, &options) {
        Ok(()) => crate::interrupt::status().unwrap_or(OK),
        Err(LabFailure { status, message }) => {
            eprintln!("tidegate lab: {message}");
            status
        }
    }
}

/// Reason why an experiment failed, with its exit status.
#[derive(Debug)]
pub struct LabFailure {
    pub status: i32,
    pub message: String,
}

impl From<String> for LabFailure {
    fn from(message: String) -> LabFailure {
        LabFailure { status: FAILED, message }
    }
}

impl LabFailure {
    /// A mistake in the lab file, or a directory or output that cannot be written.
    pub fn usage(message: String) -> LabFailure {
        LabFailure { status: USAGE, message }
    }
}

fn read(options: &LabOptions) -> Result<file::Lab, String> {
    check_cpus("--server-cpus", &options.server_cpus)?;
    check_cpus("--client-cpus", &options.client_cpus)?;
    let text = crate::bench::requests::read_text(&options.file)?;
    let mut lab = file::read_lab(&text).map_err(|e| format!("{}: {e}", options.file.display()))?;
    file::adapt_lab(&mut lab, options)?;
    Ok(lab)
}

fn run(lab: &file::Lab, options: &LabOptions) -> Result<(), LabFailure> {
    let out = options.out.clone().unwrap_or_else(|| {
        let stem = options.file.file_stem().map_or("lab".into(), |s| s.to_string_lossy().into_owned());
        PathBuf::from(format!("{stem}-results"))
    });
    let base = options.file.parent().unwrap_or(Path::new("."));
    let Some(results) = conduct::conduct_experiment(lab, options, &out, base)? else { return Ok(()) };
    report::write_report(&results, &out).map_err(LabFailure::usage)?;
    let page = out.join("report.html");
    crate::bench::print_text(&format!("{}\n{}\n", report::report_text(&results), page.display()))
        .map_err(LabFailure::usage)
}
