//! `fake-kubelet`: the parts of a cluster behind an API server, for tests on one machine.
//!
//! `run` replaces the controller manager, the scheduler and the kubelet: Pods of Deployments are processes in network
//! namespaces of their own, and Services get EndpointSlices. `apply` and `delete` send manifests, and `dns` is the program of
//! containers with a name server. `cargo xtask kubernetes` runs all of them.

#![forbid(unsafe_code)]

mod apply;
mod cluster;
mod dns;
mod environment;
mod kubelet;
mod logs;
mod pods;
mod processes;
mod slices;

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

/// Parts of a cluster for tests.
#[derive(clap::Parser, Debug)]
#[command(name = "fake-kubelet", max_term_width = 100)]
struct KubeletArguments {
    #[command(subcommand)]
    command: KubeletCommand,
}

#[derive(clap::Subcommand, Debug)]
enum KubeletCommand {
    /// Runs Pods of Deployments, and writes EndpointSlices of Services, until the end of the standard input.
    Run(RunSettings),
    /// Applies manifests (files or folders), definitions first.
    Apply {
        #[arg(required = true)]
        paths: Vec<PathBuf>,
        /// Kinds that are left out, with commas.
        #[arg(long, value_delimiter = ',')]
        skip: Vec<String>,
    },
    /// Deletes the objects of manifests, if they exist.
    Delete {
        #[arg(required = true)]
        paths: Vec<PathBuf>,
    },
    /// Answers each DNS query on port 53 with its header and question.
    Dns,
}

/// Settings of `run`.
#[derive(clap::Args, Debug)]
struct RunSettings {
    /// Program of all containers, except of name servers.
    #[arg(long)]
    echo: PathBuf,
    /// Folder for volumes and logs.
    #[arg(long)]
    folder: PathBuf,
    /// Address of the node in the network namespace of this process, and port of the logs.
    #[arg(long)]
    node: SocketAddr,
    /// First address of Pods (IPv4).
    #[arg(long)]
    pods: IpAddr,
}

fn main() -> ExitCode {
    use clap::Parser as _;
    let arguments = KubeletArguments::parse();
    // An error means that there is a provider already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let result = match runtime {
        Ok(runtime) => runtime.block_on(async {
            match arguments.command {
                KubeletCommand::Run(options) => kubelet::run_kubelet(&options).await,
                KubeletCommand::Apply { paths, skip } => apply::apply_manifests(&paths, &skip).await,
                KubeletCommand::Delete { paths } => apply::delete_manifests(&paths).await,
                KubeletCommand::Dns => dns::answer_queries().await,
            }
        }),
        Err(error) => Err(error.to_string()),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("fake-kubelet: {error}");
            ExitCode::FAILURE
        }
    }
}
