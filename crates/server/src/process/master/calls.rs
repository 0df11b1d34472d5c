//! Requests of the control API (`-l`): processes, the active configuration, and reloads with their outcome.

use super::{ANSWER_PATIENCE, Master};
use crate::conf;
use crate::messages::Heard;
use crate::process::control_api::{Call, PendingRequest, Status};
use crate::{report, version};
use conf_syntax::SourceFile;
use observe::Severity;
use serde_json::{Value, json};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::{Arc, Weak};
use std::time::Instant;

/// A reload that clients of the control API wait for.
pub struct AskedReload {
    tickets: Vec<u64>,
    /// Warnings and errors as the error log has them.
    lines: Vec<String>,
    refused: bool,
    confirmation: Confirmation,
}

const SHUTTING_DOWN: &str = "no reload: the server is shutting down";

/// Caches the JSON of the active configuration while a connection sends it: the size of the configuration bounds the
/// memory of all clients together.
#[derive(Default)]
pub struct ShownConfiguration(Option<Weak<str>>);

impl ShownConfiguration {
    /// Forgets the JSON of an earlier configuration.
    pub fn outdated(&mut self) {
        self.0 = None;
    }
}

/// From a worker process: all of its threads serve the new configuration, or have stopped accepting connections.
enum Confirmation {
    /// The reload has not ended.
    Early,
    /// From these processes, up to a time.
    Awaited { pids: Vec<i32>, by: Instant },
}

impl AskedReload {
    pub fn new(tickets: Vec<u64>) -> AskedReload {
        AskedReload { tickets, lines: Vec::new(), refused: false, confirmation: Confirmation::Early }
    }

    /// Returns the time at which clients get the outcome without a confirmation.
    pub fn confirmed_by(&self) -> Option<Instant> {
        match self.confirmation {
            Confirmation::Awaited { by, .. } => Some(by),
            Confirmation::Early => None,
        }
    }

    pub fn hear(&mut self, messages: Vec<Heard>) {
        self.lines.extend(messages.iter().map(|message| line(message.level, &message.words)));
    }
}

impl Master {
    /// Handles the control API's connections.
    pub fn calls(&mut self) {
        let accepts = self.new_binary.is_none();
        let asked = self.control_api.as_mut().map(|api| api.turn(accepts)).unwrap_or_default();
        for PendingRequest { ticket, call } in asked {
            let shown = match call {
                Call::Versions => json!(["1"]),
                Call::Namespaces => json!(["control", "nginx"]),
                Call::Resources => json!(["processes", "config"]),
                Call::Program => program(),
                Call::Processes => self.shown_processes(),
                Call::Configuration => {
                    let shown = self.shown_configuration();
                    self.respond(ticket, Status::Ok, shown);
                    continue;
                }
                Call::Reload => {
                    self.reload_tickets.push(ticket);
                    continue;
                }
            };
            self.respond(ticket, Status::Ok, shown.to_string().into());
        }
        if self.reload_tickets.is_empty() {
            return;
        }
        let Some(why) = self.reloads_not() else {
            self.again = true;
            return;
        };
        let body: Arc<str> = json!({ "logs": [line(Severity::Emerg, why)] }).to_string().into();
        for ticket in std::mem::take(&mut self.reload_tickets) {
            self.respond(ticket, Status::Unprocessable, body.clone());
        }
    }

    /// Returns the reason why no reload will begin.
    fn reloads_not(&self) -> Option<&'static str> {
        if self.quitting || self.terminating {
            return Some(SHUTTING_DOWN);
        }
        self.new_binary
            .is_some()
            .then_some("no reload: a new binary has been started, and serves its own configuration")
    }

    /// Marks the reload under way as refused. Its errors have been logged.
    pub fn refuse_asked_reload(&mut self) {
        if let Some(asked) = &mut self.asked_reload {
            asked.refused = true;
        }
    }

    /// Marks the reload under way as failed in a worker process. A reload that awaits its confirmation has succeeded: the
    /// failure is that of a later change by the API.
    pub fn asked_reload_failed(&mut self, why: &str) {
        if let Some(asked) = &mut self.asked_reload
            && matches!(asked.confirmation, Confirmation::Early)
        {
            asked.lines.push(line(Severity::Emerg, why));
            asked.refused = true;
        }
    }

    /// Records that a worker process has executed the order of a reload, or has ended.
    pub fn asked_reload_confirmed(&mut self, pid: i32) {
        if let Some(AskedReload { confirmation: Confirmation::Awaited { pids, .. }, .. }) = &mut self.asked_reload {
            pids.retain(|awaited| *awaited != pid);
        }
    }

    /// Reports the outcome of a reload that has ended: a success once no connection meets the old configuration.
    pub fn end_asked_reload(&mut self) {
        if self.pending.is_some() || self.replaced.is_some() || self.replace {
            return;
        }
        let is_refused = self.asked_reload.as_ref().is_some_and(|asked| asked.refused);
        if (self.quitting || self.terminating) && !is_refused {
            self.asked_reload_failed(SHUTTING_DOWN);
        }
        let Some(asked) = &mut self.asked_reload else { return };
        if matches!(asked.confirmation, Confirmation::Early) && !asked.refused {
            let reached = self.workers.iter().filter(|worker| worker.commander.confirm().is_ok());
            let pids = reached.map(|worker| worker.pid).collect();
            asked.confirmation = Confirmation::Awaited { pids, by: Instant::now() + ANSWER_PATIENCE };
        }
        if let Confirmation::Awaited { pids, by } = &asked.confirmation
            && !pids.is_empty()
            && Instant::now() < *by
        {
            return;
        }
        let Some(asked) = self.asked_reload.take() else { return };
        let status = if asked.refused { Status::Unprocessable } else { Status::Ok };
        let body: Arc<str> = json!({ "logs": asked.lines }).to_string().into();
        for ticket in asked.tickets {
            self.respond(ticket, status, body.clone());
        }
    }

    fn respond(&mut self, ticket: u64, status: Status, body: Arc<str>) {
        if let Some(api) = &mut self.control_api {
            api.respond(ticket, status, body);
        }
    }

    fn shown_processes(&self) -> Value {
        let one = |name: &str, pid: i32, exiting: bool| json!({ "name": name, "pid": pid, "exiting": exiting });
        let keys = self.keeper.pid().map(|pid| one("key process", pid, false));
        let workers = self.workers.iter().map(|worker| one("worker process", worker.pid, worker.exiting));
        let new_binary = self.new_binary.map(|pid| one("new binary process", pid, false));
        keys.into_iter().chain(workers).chain(new_binary).collect()
    }

    /// Renders the active configuration. JSON has no form for octets that are not UTF-8: they become U+FFFD.
    fn shown_configuration(&mut self) -> Arc<str> {
        if let Some(shown) = self.shown.0.as_ref().and_then(Weak::upgrade) {
            return shown;
        }
        let files: Vec<_> = report::source_files(&self.config.texts.files).map(shown_file).collect();
        let shown: Arc<str> = serde_json::to_string(&files).unwrap_or_default().into();
        self.shown.0 = Some(Arc::downgrade(&shown));
        shown
    }
}

fn shown_file(file: &SourceFile) -> BTreeMap<&str, Cow<'_, str>> {
    BTreeMap::from([("content", String::from_utf8_lossy(&file.text)), ("name", file.path.to_string_lossy())])
}

/// Describes the program as nginx does. Clients of nginx's API read the version of the language.
fn program() -> Value {
    json!({ "version": version::NGINX.trim_start_matches("nginx/"), "build": conf::PROGRAM.replace(' ', "/") })
}

/// Formats a line of the log. nginx's end with a line break, too.
fn line(level: Severity, words: &str) -> String {
    observe::format_line(level, format_args!("{words}"))
}
