//! `tidegate-controller`: from Kubernetes objects, containers and services of Consul to configurations of Tidegate. A program of
//! its own, so that neither the types of Kubernetes nor clients of engines become part of the server.

#![forbid(unsafe_code)]

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

use crate::arguments::{Arguments, Command};

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Render(options) => render::run(&options),
        Command::ConvertIngress(options) => convert_ingress::run(&options),
        Command::Run(options) => run::run(&options),
        Command::Bootstrap(options) => bootstrap::run(&options),
    }
}
