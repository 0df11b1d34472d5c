//! A worker thread from start to end; `turn.rs` is its loop.

pub use crate::command::{ThreadInit, WorkerCommand};
pub use crate::serving::{BoundSocket, ServeLoop};
use crate::turn::{TurnProgress, Turns};
use observe::Severity;

/// Runs a worker until `Quit` has drained or `Terminate` arrives, on its own thread.
pub fn run_thread(init: ThreadInit) {
    if let Some(cpus) = &init.cpus {
        let mut set = rustix::thread::CpuSet::new();
        for cpu in cpus {
            set.set(*cpu);
        }
        if let Err(e) = rustix::thread::sched_setaffinity(None, &set) {
            init.serving.error_log.log(
                Severity::Alert,
                0,
                format_args!("sched_setaffinity() failed {}", observe::os_error(&e.into())),
            );
        }
    }
    let log = init.serving.error_log.clone();
    if let Err(e) = serve(init) {
        log.log(Severity::Alert, 0, format_args!("the event loop failed: {e}"));
    }
}

fn serve(init: ThreadInit) -> std::io::Result<()> {
    let mut turns = Turns::begin(init)?;
    while turns.turn(true)? != TurnProgress::Ended {}
    upstream::mux::h3::close_all();
    Ok(())
}
