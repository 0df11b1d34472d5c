//! Stand-alone program `tidegate-load bench|lab|plan|top …`, for machines that only generate load.

fn main() {
    let mut args = std::env::args_os().skip(1);
    let command = args.next();
    let rest: Vec<_> = args.collect();
    let status = match command.as_ref().and_then(|c| c.to_str()) {
        Some("bench") => load::bench_main(rest),
        Some("top") => load::top_main(rest),
        Some("lab") => load::lab_main(rest),
        Some("plan") => planner::plan_main(rest),
        _ => {
            eprintln!("usage: tidegate-load bench|lab|plan|top [--help]");
            2
        }
    };
    std::process::exit(status);
}
