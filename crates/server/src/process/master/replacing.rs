//! Replaces the worker process on a reload: the old one serves until the new one does. If the new one ends before that,
//! because a directive cannot be applied in a process (a limit, a directory), the old configuration is restored, as
//! after other errors of a reload.

use super::{Master, Worker, tell};
use crate::conf::Config;
use crate::process::channel::Commander;
use crate::process::listeners::Listeners;
use crate::process::{pidfile, reload};
use crate::say;
use rustix::process::Signal;
use sandbox::PathRules;
use std::time::Instant;

/// The configuration of replaced workers.
pub struct ReplacedWorker {
    config: Config,
    listeners: Listeners,
    rules: Option<PathRules>,
    /// Process ids.
    workers: Vec<i32>,
}

impl Master {
    /// Activates a configuration in a new worker process, which the main loop starts.
    pub fn replace_worker(&mut self, config: Config, listeners: Listeners) {
        self.replace = true;
        let workers: Vec<i32> = self.workers.iter().filter(|worker| !worker.exiting).map(|worker| worker.pid).collect();
        if workers.is_empty() {
            return drop(self.commit(config, listeners));
        }
        super::note_load();
        self.keeper.adopt(&config);
        self.restart_at = None;
        let (config, listeners) = self.exchange(config, listeners);
        self.replaced = Some(ReplacedWorker { config, listeners, rules: self.rules.clone(), workers });
    }

    /// The new worker serves: tells the old ones to end.
    pub fn successor_started(&mut self, pid: i32) {
        if self.replaced.as_ref().is_some_and(|replaced| replaced.workers.contains(&pid)) {
            return;
        }
        let Some(replaced) = self.forget_replaced() else { return };
        if self.change.is_none() {
            self.mark_kept();
        }
        for worker in self.workers.iter_mut().filter(|worker| replaced.contains(&worker.pid)) {
            tell(std::slice::from_mut(worker), Commander::quit_followed, Signal::QUIT);
        }
    }

    /// Drops the old configuration and its addresses; returns the process ids of its workers.
    pub fn forget_replaced(&mut self) -> Option<Vec<i32>> {
        let ReplacedWorker { config, listeners, workers, .. } = self.replaced.take()?;
        listeners.remove_paths(&self.listeners);
        drop(config);
        self.config.logs.forget_unused();
        Some(workers)
    }

    /// Handles the end of a worker during a replacement: that of an old one needs no new process, and that of the
    /// successor restores the old configuration. Returns `false` if no replacement is under way.
    pub fn ended_during_replacement(&mut self, ended: &Worker) -> bool {
        let Some(ReplacedWorker { workers, .. }) = &self.replaced else { return false };
        if workers.contains(&ended.pid) {
            return true;
        }
        let Some(ReplacedWorker { config, listeners, rules, .. }) = self.replaced.take() else { return false };
        let words = "the new worker process ended before it served";
        say!(Emerg, "{words}, the old configuration stays");
        self.asked_reload_failed(&format!("{words}, the old configuration stays"));
        reload::note_refused(words);
        self.keeper.restore(&config);
        self.listeners.remove_paths(&listeners);
        let (refused, _) = self.exchange(config, listeners);
        self.rules = rules;
        if refused.core.pid != self.config.core.pid && pidfile::write_pid(&self.config.core.pid) {
            pidfile::remove_pidfile(&refused.core.pid);
        }
        self.drop_refused(&refused, words);
        self.tell_refused();
        if self.workers.iter().all(|worker| worker.exiting) {
            self.restart_at = Some(Instant::now());
        }
        true
    }
}
