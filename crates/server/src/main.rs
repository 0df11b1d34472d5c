//! The binary `tidegate`, a shell around the library `server`.

#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: net::allocator::Allocator = net::allocator::Allocator;

fn main() -> std::process::ExitCode {
    server::main(std::env::args_os().collect())
}
