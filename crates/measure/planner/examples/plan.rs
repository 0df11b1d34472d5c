//! `tidegate plan` as a program of its own, to try it without the server.

fn main() {
    std::process::exit(planner::plan_main(std::env::args_os().skip(1).collect()))
}
