//! A process without a master (`master_process off`).

use crate::conf::{Config, Invocation};
use crate::keys::Keeper;
use crate::process::listeners::{ListenFailure, Listeners};
use crate::process::{pidfile, reload};
use std::sync::Arc;

/// The master's tasks in a process without a master.
#[derive(Debug)]
pub struct Single {
    pub keeper: Arc<Keeper>,
    /// `tidegate serve` writes no pid file.
    pub pid_file: bool,
}

impl Single {
    /// Failures have been logged.
    pub fn reload(
        &self,
        invocation: &Invocation,
        config: &Config,
        listeners: &Listeners,
    ) -> Result<(Config, Listeners), ListenFailure> {
        let prepared = reload::prepare_reload(invocation, config, listeners, &self.keeper)?;
        if self.pid_file && prepared.0.core.pid != config.core.pid {
            if !pidfile::write_pid(&prepared.0.core.pid) {
                return Err(ListenFailure);
            }
            pidfile::remove_pidfile(&config.core.pid);
        }
        self.keeper.adopt(&prepared.0);
        Ok(prepared)
    }

    pub fn clean_up(&self, config: &Config, listeners: &Listeners) {
        // The key process ends with its last worker thread.
        self.keeper.leave();
        if self.pid_file {
            pidfile::remove_pidfile(&config.core.pid);
        }
        listeners.remove_paths(&Listeners::default());
    }
}
