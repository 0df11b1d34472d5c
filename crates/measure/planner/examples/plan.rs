//! `tidegate plan` as a separate program.

fn main() {
    std::process::exit(planner::plan_main(std::env::args_os().skip(1).collect()))
}
