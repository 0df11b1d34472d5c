//! `bootstrap`: the configuration of a server that has none yet.

use std::process::ExitCode;

use cluster_model::Model;

use crate::arguments::Bootstrap;
use crate::render::write_file;

/// First line of the configuration: it is none that a controller has pushed.
const FIRST_LINE: &str = "# First configuration, by tidegate-controller bootstrap.\n";

/// Runs the command: 0 if the file exists afterwards.
pub fn write_bootstrap(options: &Bootstrap) -> ExitCode {
    if options.output.exists() {
        eprintln!("tidegate-controller: {} exists and stays", options.output.display());
        return ExitCode::SUCCESS;
    }
    match write_file(&options.output, bootstrap_config(&options.run_folder, options.probe_port).as_bytes(), 0o644) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("tidegate-controller: {error}");
            ExitCode::FAILURE
        }
    }
}

/// Returns the configuration without any listener of a Gateway.
pub fn bootstrap_config(run_folder: &str, probe_port: Option<u16>) -> String {
    let settings =
        cluster_render::Settings { run_folder: run_folder.into(), probe_port, ..cluster_render::Settings::default() };
    let text = cluster_render::render_model(&Model::default(), &settings).main;
    let rest = text.split_once('\n').map_or("", |(_, rest)| rest);
    format!("{FIRST_LINE}{rest}")
}
