//! The command line of `tidegate plan`.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use clap::{Args, CommandFactory, Parser, Subcommand};
use figures::units::{parse_count, parse_seconds, parse_share};

use crate::capacity::{self, PricedMachine};
use crate::cluster::{Extras, NODES_MAX, SizingRule};
use crate::{compare, cost_report, day, day_report, fit_report, names, regions, regions_report, usl};

pub const OK: i32 = 0;
/// Unreadable or unwritable file, or invalid content.
pub const FAILED: i32 = 1;
/// Invalid command line.
pub const USAGE: i32 = 2;
/// `--check` found contradicting cells, or a fit was refused.
pub const DISAGREES: i32 = 3;

#[derive(Parser)]
#[command(name = "tidegate plan", about = "Computes machines and costs from measured capacity", after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: PlanCommand,
}

const EXAMPLES: &str = "\
Examples:
  tidegate plan cost capacity.csv --loads 1k,10k,100k --nodes 3 --utilisation 66%
  tidegate plan cost --measured bench.json --prices prices.csv --loads 50k --tolerate 1 --after 80%
  tidegate plan cost capacity.csv --loads 25k --check published.csv --html costs.html
  tidegate plan fit sweep.json --html fit.html
  tidegate plan regions world.toml
  tidegate plan day monday.toml --html day.html
  tidegate plan names dns-capacity.csv --lookups 5k --resolvers 2k --ttl 10s,30s,5m

Exit status: 0 success; 1 unusable file; 2 wrong arguments; 3 a checked table or a fit is not valid.";

#[derive(Subcommand)]
enum PlanCommand {
    /// Computes machines and dollars per hour for a list of loads.
    Cost(Box<CostArgs>),
    /// Fits the universal scalability law to a sweep and checks the fit.
    Fit {
        /// A bench report (JSON, from `bench --sweep`) or a table with columns n and rps, one line per run.
        file: PathBuf,
        #[command(flatten)]
        out: OutArgs,
    },
    /// Simulates users and sites in several regions, their routing, and site outages.
    Regions {
        /// Scenario (TOML), such as examples/lab/plan/world.toml.
        file: PathBuf,
        #[command(flatten)]
        out: OutArgs,
    },
    /// Simulates autoscaling over a day.
    Day {
        /// Scenario (TOML), such as examples/lab/plan/day.toml.
        file: PathBuf,
        #[command(flatten)]
        out: OutArgs,
    },
    /// Computes queries, machines and the delay of a failover for times to live of a zone (`dns`).
    Names(NamesArgs),
}

#[derive(Args)]
struct NamesArgs {
    /// Capacity table, as of `plan cost`; rps are queries per second.
    capacity: PathBuf,
    /// Lookups of all clients per second.
    #[arg(long, value_name = "RATE", value_parser = count)]
    lookups: f64,
    /// Number of resolvers with caches; with EDNS client subnet, of pairs of resolver and client network.
    #[arg(long, value_name = "N", value_parser = count)]
    resolvers: f64,
    /// Number of names with pools.
    #[arg(long, value_name = "N", default_value = "1", value_parser = count)]
    names: f64,
    /// Questions of a lookup: 2 for A and AAAA.
    #[arg(long, value_name = "N", default_value = "2", value_parser = count)]
    types: f64,
    /// Times to live.
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "5s,30s,60s,300s", value_parser = time)]
    ttl: Vec<f64>,
    /// Time in which health checks find a failed server: interval times fails.
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = time)]
    check: f64,
    /// Number of machines that may fail (N + k).
    #[arg(long, value_name = "K", default_value_t = 1, value_parser = losses)]
    tolerate: u32,
    /// Maximum utilisation with all machines up, and after the failures.
    #[arg(long, value_name = "SHARE", default_value = "50%", value_parser = share)]
    utilisation: f64,
    /// Write the results as JSON. `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct OutArgs {
    /// Write the report as one self-contained HTML page. `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Write the results as JSON. `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

#[derive(Args)]
struct CostArgs {
    /// Capacity table: columns name, vcpu, rps, and optionally rps_low, rps_high, family, price, licence, link_gbit, usable_rps.
    #[arg(value_name = "CAPACITY", required_unless_present = "measured")]
    capacity: Option<PathBuf>,
    /// Price list: columns name, price, and optionally vcpu, threads_per_core, licence, link_gbit, speed.
    #[arg(long, value_name = "FILE")]
    prices: Option<PathBuf>,
    /// Bench or lab report; projects the types of the price list from it by CPU time per request.
    #[arg(long, value_name = "REPORT", requires = "prices", conflicts_with = "capacity")]
    measured: Option<PathBuf>,
    /// Server to use from a lab report.
    #[arg(long, value_name = "NAME", requires = "measured")]
    server: Option<String>,
    /// Cores per hardware thread: 0.65 makes two threads 1.3 cores.
    #[arg(long, value_name = "SHARE", default_value = "0.65", requires = "measured", value_parser = share)]
    sibling_yield: f64,
    /// Loads in requests per second.
    #[arg(long, value_name = "LIST", value_delimiter = ',', required = true, value_parser = count)]
    loads: Vec<f64>,
    /// Number of machines: `3` for exactly three, `3..` for three or more [default: one more than --tolerate, or more].
    #[arg(long, value_name = "N", value_parser = nodes)]
    nodes: Option<(u32, u32)>,
    /// Maximum utilisation with all machines up; usable rates of the table are checked against it [default: 100%, unchecked].
    #[arg(long, value_name = "SHARE", value_parser = share)]
    utilisation: Option<f64>,
    /// Number of machines that may fail (N + k).
    #[arg(long, value_name = "K", default_value_t = 0, value_parser = losses)]
    tolerate: u32,
    /// Maximum utilisation of the remaining machines after the failures.
    #[arg(long, value_name = "SHARE", default_value = "100%", value_parser = share)]
    after: f64,
    /// Cost of a load balancer in dollars per hour.
    #[arg(long, value_name = "USD", default_value_t = 0.0, value_parser = dollars)]
    balancer: f64,
    /// Cost of outgoing traffic in dollars per gigabyte (needs --response-bytes or a report).
    #[arg(long, value_name = "USD", default_value_t = 0.0, value_parser = dollars)]
    traffic: f64,
    /// Size of a response on the wire in bytes, for traffic and link limits.
    #[arg(long, value_name = "BYTES", value_parser = count)]
    response_bytes: Option<f64>,
    /// Mean time between two requests of a user, for the price per user: `10s`.
    #[arg(long, value_name = "TIME", value_parser = time)]
    user_cycle: Option<f64>,
    /// Published price table to recompute: the first column is the load, then one column per family, in dollars per hour.
    #[arg(long, value_name = "TABLE")]
    check: Option<PathBuf>,
    /// Write CSV with one line per load and family. `-` is the standard output.
    #[arg(long, value_name = "FILE")]
    csv: Option<PathBuf>,
    #[command(flatten)]
    out: OutArgs,
}

fn share(text: &str) -> Result<f64, String> {
    parse_share(text)
        .filter(|v| *v > 0.0 && *v <= 1.0)
        .ok_or_else(|| format!("`{text}` is not a share such as 66% or 0.66"))
}

fn count(text: &str) -> Result<f64, String> {
    parse_count(text)
        .filter(|v| *v > 0.0)
        .ok_or_else(|| format!("`{text}` is not a positive number such as 200, 20k or 1.5M"))
}

fn dollars(text: &str) -> Result<f64, String> {
    parse_count(text).ok_or_else(|| format!("`{text}` is not an amount such as 0.05"))
}

fn losses(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("`{text}` is not a number of machines such as 1"))
}

fn time(text: &str) -> Result<f64, String> {
    parse_seconds(text).ok_or_else(|| format!("`{text}` is not a time such as 500ms or 10s"))
}

fn nodes(text: &str) -> Result<(u32, u32), String> {
    let wrong = || format!("`{text}` is not a number of machines such as `3` or `3..`");
    let (min, max) = match text.split_once("..") {
        Some((min, "")) => (min.parse().map_err(|_| wrong())?, NODES_MAX),
        Some((min, max)) => (min.parse().map_err(|_| wrong())?, max.parse().map_err(|_| wrong())?),
        None => text.parse().map(|n| (n, n)).map_err(|_| wrong())?,
    };
    if min == 0 || min > max || max > NODES_MAX { Err(wrong()) } else { Ok((min, max)) }
}

/// Returns the help texts of `tidegate plan` and its subcommands, by name.
pub fn plan_help() -> Vec<(&'static str, String)> {
    let mut command = Cli::command();
    let mut texts = vec![("plan", command.render_help().to_string())];
    // Subcommands get their full names ("tidegate plan cost").
    command.build();
    let shown = [
        ("cost", "plan cost"),
        ("fit", "plan fit"),
        ("regions", "plan regions"),
        ("day", "plan day"),
        ("names", "plan names"),
    ];
    for (name, shown) in shown {
        texts.extend(command.find_subcommand_mut(name).map(|found| (shown, found.render_help().to_string())));
    }
    texts
}

/// Runs `tidegate plan` with the arguments after the subcommand's name; returns the exit status.
pub fn plan_main(args: Vec<OsString>) -> i32 {
    let args = std::iter::once(OsString::from("tidegate plan")).chain(args);
    let cli = match Cli::try_parse_from(args) {
        Ok(cli) => cli,
        Err(e) => {
            let printed = e.print();
            if e.use_stderr() {
                return USAGE;
            }
            if let Err(error) = printed.and_then(|()| io::stdout().flush()) {
                base::stdout::end(&error);
            }
            return OK;
        }
    };
    let done = match cli.command {
        PlanCommand::Cost(args) => cost(&args),
        PlanCommand::Fit { file, out } => fit(&file, &out),
        PlanCommand::Regions { file, out } => run_regions(&file, &out),
        PlanCommand::Day { file, out } => run_day(&file, &out),
        PlanCommand::Names(args) => run_names(&args),
    };
    done.unwrap_or_else(|PlanFailure { status, message }| {
        eprintln!("tidegate plan: {message}");
        status
    })
}

/// Reason why a command failed, with its exit status.
struct PlanFailure {
    status: i32,
    message: String,
}

impl From<String> for PlanFailure {
    fn from(message: String) -> PlanFailure {
        PlanFailure { status: FAILED, message }
    }
}

fn wrong_arguments(message: String) -> PlanFailure {
    PlanFailure { status: USAGE, message }
}

/// Reads a file of the user, without a byte order mark.
fn read(path: &Path) -> Result<String, String> {
    let text = fs::read_to_string(path).map_err(|e| figures::errors::unreadable_file(path, &e))?;
    // Spreadsheets begin a CSV file with a byte order mark.
    Ok(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text))
}

fn in_file<T>(path: &Path, result: Result<T, String>) -> Result<T, String> {
    result.map_err(|e| format!("{}: {e}", path.display()))
}

fn is_stdout(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Refuses a second result on the standard output.
fn check_outputs(paths: &[&Option<PathBuf>]) -> Result<(), PlanFailure> {
    match paths.iter().filter_map(|path| path.as_deref()).filter(|path| is_stdout(path)).count() {
        0 | 1 => Ok(()),
        _ => Err(wrong_arguments("only one of --json, --csv and --html can be the standard output".into())),
    }
}

/// Writes the results, then the report: its reader may go away. A result on the standard output moves the report to the
/// standard error.
fn publish(report: &str, results: &[(&Option<PathBuf>, &dyn Fn() -> String)]) -> Result<(), String> {
    let mut piped = false;
    for (path, content) in results {
        match path {
            Some(path) if is_stdout(path) => piped = true,
            Some(path) => fs::write(path, content()).map_err(|e| format!("{}: {e}", path.display()))?,
            None => {}
        }
    }
    if !piped {
        base::out!("{report}");
        return Ok(());
    }
    // The standard error may be closed.
    let _ = io::stderr().write_all(report.as_bytes());
    for (_, content) in results.iter().filter(|(path, _)| path.as_deref().is_some_and(is_stdout)) {
        base::out!("{}", content());
    }
    Ok(())
}

fn pretty(value: &serde_json::Value) -> String {
    serde_json::to_string_pretty(value).unwrap_or_default() + "\n"
}

fn cost(args: &CostArgs) -> Result<i32, PlanFailure> {
    if args.traffic > 0.0 && args.response_bytes.is_none() && args.measured.is_none() {
        return Err(wrong_arguments("--traffic needs --response-bytes or --measured".into()));
    }
    check_outputs(&[&args.csv, &args.out.json, &args.out.html])?;
    let (nodes_min, nodes_max) = args.nodes.unwrap_or((args.tolerate.saturating_add(1), NODES_MAX));
    if nodes_max <= args.tolerate {
        let tolerate = args.tolerate;
        return Err(wrong_arguments(format!(
            "--nodes {nodes_max} --tolerate {tolerate}: no machine is left after the failures"
        )));
    }
    let prices = match &args.prices {
        Some(path) => in_file(path, capacity::read_prices(&read(path)?))?,
        None => Vec::new(),
    };
    let mut remarks = Vec::new();
    let mut bytes = args.response_bytes.unwrap_or(0.0);
    let mut machines: Vec<PricedMachine> = match (&args.measured, &args.capacity) {
        (Some(path), _) => {
            let measured = in_file(path, capacity::read_report(&read(path)?, args.server.as_deref()))?;
            bytes = args.response_bytes.unwrap_or(measured.bytes_per_response);
            let objective =
                if measured.objective.is_empty() { String::new() } else { format!(" within {}", measured.objective) };
            remarks.push(format!(
                "Projected from {}: {} requests/s{objective}, {} of CPU time per request.",
                path.display(),
                figures::units::format_grouped(measured.rps.mid as i64),
                figures::units::format_seconds(measured.cpu_per_request)
            ));
            in_file(path, capacity::project_machines(&measured, &prices, args.sibling_yield))?
        }
        (None, Some(path)) => in_file(path, capacity::read_capacity(&read(path)?))?,
        (None, None) => return Err(wrong_arguments("a capacity table or --measured is needed".into())),
    };
    capacity::join_prices(&mut machines, &prices)?;
    let bound = capacity::cap_by_link(&mut machines, bytes);
    if !bound.is_empty() {
        remarks.push(format!("The network link, not the CPU, limits {}.", bound.join(", ")));
    }
    let rule = SizingRule {
        nodes_min,
        nodes_max,
        utilisation: args.utilisation.unwrap_or(1.0),
        losses: args.tolerate,
        utilisation_after: args.after,
    };
    let extras = Extras {
        balancer: args.balancer,
        per_gigabyte: args.traffic,
        bytes_per_response: bytes,
        user_cycle: args.user_cycle.unwrap_or(0.0),
    };
    let question =
        cost_report::Question { machines, loads: args.loads.clone(), rule, extras, remarks, usable: args.utilisation };
    let mut answer = cost_report::answer_question(&question);
    if let Some(path) = &args.check {
        let foreign = in_file(path, compare::read_foreign(&read(path)?))?;
        answer.disagreements = Some(compare::list_disagreements(&foreign, &question.machines, &rule));
    }
    publish(
        &cost_report::cost_text(&question, &answer),
        &[
            (&args.csv, &|| cost_report::cost_csv(&answer)),
            (&args.out.json, &|| pretty(&cost_report::to_json(&question, &answer))),
            (&args.out.html, &|| cost_report::cost_html(&question, &answer)),
        ],
    )?;
    Ok(if answer.disagreements.is_some_and(|d| !d.is_empty()) { DISAGREES } else { OK })
}

fn run_names(args: &NamesArgs) -> Result<i32, PlanFailure> {
    let machines = in_file(&args.capacity, capacity::read_capacity(&read(&args.capacity)?))?;
    let rule = SizingRule {
        nodes_min: args.tolerate.saturating_add(1),
        nodes_max: NODES_MAX,
        utilisation: args.utilisation,
        losses: args.tolerate,
        utilisation_after: args.utilisation,
    };
    if rule.nodes_min > NODES_MAX {
        return Err(wrong_arguments(format!("--tolerate {}: more than {NODES_MAX} machines", args.tolerate)));
    }
    let load =
        names::ZoneLoad { resolvers: args.resolvers, lookups: args.lookups, names: args.names, types: args.types };
    let rows = names::names_rows(&machines, &load, &args.ttl, args.check, &rule);
    publish(&names::names_text(&load, &rows, &rule), &[(&args.json, &|| pretty(&names::to_json(&load, &rows)))])?;
    Ok(OK)
}

fn fit(file: &Path, out: &OutArgs) -> Result<i32, PlanFailure> {
    check_outputs(&[&out.json, &out.html])?;
    let text = read(file)?;
    let levels = if text.trim_start().starts_with('{') {
        fit_report::read_report(&text)
    } else {
        fit_report::read_levels(&text).map(|levels| (levels, String::new()))
    };
    let (levels, left_out) = in_file(file, levels)?;
    if !left_out.is_empty() {
        eprintln!("tidegate plan: {}: {left_out}", file.display());
    }
    let fit = in_file(file, usl::fit_law(&levels, 1))?;
    publish(
        &fit_report::fit_text(&levels, &fit),
        &[
            (&out.json, &|| pretty(&fit_report::to_json(&levels, &fit))),
            (&out.html, &|| fit_report::fit_html(&levels, &fit)),
        ],
    )?;
    Ok(if fit.refusals.is_empty() { OK } else { DISAGREES })
}

fn run_regions(file: &Path, out: &OutArgs) -> Result<i32, PlanFailure> {
    check_outputs(&[&out.json, &out.html])?;
    let scenario = in_file(file, regions::read_scenario(&read(file)?))?;
    let outcome = regions::simulate_regions(&scenario);
    publish(
        &regions_report::regions_text(&scenario, &outcome),
        &[
            (&out.json, &|| pretty(&regions_report::to_json(&outcome))),
            (&out.html, &|| regions_report::regions_html(&scenario, &outcome)),
        ],
    )?;
    Ok(OK)
}

fn run_day(file: &Path, out: &OutArgs) -> Result<i32, PlanFailure> {
    check_outputs(&[&out.json, &out.html])?;
    let day = in_file(file, day::read_day(&read(file)?))?;
    let outcome = day::simulate_day(&day);
    publish(
        &day_report::day_text(&outcome),
        &[
            (&out.json, &|| pretty(&day_report::to_json(&outcome))),
            (&out.html, &|| day_report::day_html(&day, &outcome)),
        ],
    )?;
    Ok(OK)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        assert_eq!(nodes("3"), Ok((3, 3)));
        assert_eq!(nodes("3.."), Ok((3, NODES_MAX)));
        assert_eq!(nodes("3..5"), Ok((3, 5)));
        assert!(nodes("0").is_err() && nodes("5..3").is_err() && nodes("x").is_err());
    }

    #[test]
    fn exit_status_tells_help_from_mistakes() {
        let run = |args: &[&str]| plan_main(args.iter().map(OsString::from).collect());
        assert_eq!(run(&["--help"]), OK);
        assert_eq!(run(&["cost"]), USAGE);
        assert_eq!(run(&["fit", "/nonexistent/file"]), FAILED);
        let cost = ["cost", "/nonexistent/file", "--loads", "1k"];
        let with = |more: &[&str]| run(&[&cost[..], more].concat());
        assert_eq!(with(&["--json", "-", "--csv", "-"]), USAGE);
        assert_eq!(with(&["--nodes", "2", "--tolerate", "2"]), USAGE, "no machine is left");
        assert_eq!(with(&["--nodes", "2..", "--tolerate", "2"]), FAILED, "three machines do");
        assert_eq!(with(&["--tolerate", "one"]), USAGE);
    }
}
