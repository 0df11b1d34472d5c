//! Steps of a change at which tests interrupt the process (debug builds): `TIDEGATE_CONFIG_STOP=STEP` stops it there as
//! SIGSTOP does.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ActivationStep {
    /// The configuration was read and is in order.
    Checked,
    Kept,
    /// The new main file is beside the old one.
    Written,
    Placed,
    /// The worker process was told.
    Sent,
    /// The worker process serves it.
    InForce,
}

#[cfg(debug_assertions)]
impl ActivationStep {
    const fn name(self) -> &'static str {
        match self {
            ActivationStep::Checked => "checked",
            ActivationStep::Kept => "kept",
            ActivationStep::Written => "written",
            ActivationStep::Placed => "placed",
            ActivationStep::Sent => "sent",
            ActivationStep::InForce => "in-force",
        }
    }
}

/// Reports a step. A process stops once; restoring the old file is a step, too.
#[cfg(debug_assertions)]
pub fn reached(step: ActivationStep) {
    use rustix::process::{Signal, getpid, kill_process};
    use std::sync::atomic::{AtomicBool, Ordering};
    static STOPPED: AtomicBool = AtomicBool::new(false);
    let is_asked = std::env::var_os("TIDEGATE_CONFIG_STOP").is_some_and(|name| name == step.name());
    if is_asked && !STOPPED.swap(true, Ordering::Relaxed) {
        let _ = kill_process(getpid(), Signal::STOP);
    }
}

#[cfg(not(debug_assertions))]
pub fn reached(_: ActivationStep) {}
