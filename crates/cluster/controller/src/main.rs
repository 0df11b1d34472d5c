//! `tidegate-controller`: from Kubernetes objects, containers and services of Consul to configurations of Tidegate. A program of
//! its own, so that neither the types of Kubernetes nor clients of engines become part of the server.

#![forbid(unsafe_code)]

mod address_range;
mod arguments;
mod bootstrap;
mod convert_ingress;
mod discovery_arguments;
mod input;
mod render;
mod run;

use std::process::ExitCode;

/// The server's: one thread makes thousands of objects, and others free them.
#[global_allocator]
static ALLOCATOR: net::allocator::Allocator = net::allocator::Allocator;

use clap::Parser as _;

use crate::arguments::{ControllerArguments, ControllerCommand};

fn main() -> ExitCode {
    match ControllerArguments::parse().command {
        ControllerCommand::Render(options) => render::render_manifests(&options),
        ControllerCommand::ConvertIngress(options) => convert_ingress::convert_ingresses(&options),
        ControllerCommand::Run(options) => run::run_controller(&options),
        ControllerCommand::Bootstrap(options) => bootstrap::write_bootstrap(&options),
    }
}
