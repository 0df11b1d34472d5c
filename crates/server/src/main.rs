//! The binary `tidegate`; everything it does stands in the library beside it.

#![forbid(unsafe_code)]

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::process::ExitCode {
    server::main(std::env::args_os().collect())
}
