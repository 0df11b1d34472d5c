//! A worker thread from start to end; `turn.rs` is its loop.

pub use crate::command::{Command, ThreadInit};
pub use crate::serving::{Bound, Serving};
use crate::turn::{Progress, Turns};
use observe::Level;

/// Runs a worker until `Quit` has drained or `Terminate` arrives, on its own thread.
pub fn run(init: ThreadInit) {
    if let Some(cpus) = &init.cpus {
        let mut set = rustix::thread::CpuSet::new();
        for cpu in cpus {
            set.set(*cpu);
        }
        if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
            init.serving.error_log.log(
                Level::Alert,
                0,
                format_args!("sched_setaffinity() failed {}", observe::os(&e.into())),
            );
        }
    }
    let log = init.serving.error_log.clone();
    if let Err(e) = serve(init) {
        log.log(Level::Alert, 0, format_args!("the event loop failed: {e}"));
    }
}

fn serve(init: ThreadInit) -> std::io::Result<()> {
    let mut turns = Turns::begin(init)?;
    while turns.turn(true)? != Progress::Ended {}
    upstream::mux::h3::close_all();
    Ok(())
}
