//! Changes of the configuration by the API: the master checks, stores and activates them, and responds to the worker
//! that forwarded the request.
//!
//! A change is on disk before a worker receives it. If the worker rejects it, the old main file is restored. At every
//! step the disk has the old configuration or the new one.

use super::judging::{JudgedChange, refusal_of};
use super::{ANSWER_PATIENCE, Master, ServeOutcome};
use crate::conf::Config;
use crate::conf::layout::GenerationFacts;
use crate::conf::layout::{Digests, Layout};
use crate::generations::attachments::{AttachedContents, AttachedFiles};
use crate::generations::candidate::{Candidate, Texts, check_texts};
use crate::generations::kept::Generations;
use crate::generations::message::{ChangeOutcome, ChangeRequest};
use crate::generations::steps::{self, ActivationStep};
use crate::generations::{attached_digests, attachments_json, moved_texts, natural_texts};
use crate::process::listeners::{Listeners, Purpose};
use crate::process::reload;
use crate::{report, say};
use http_api::{ConfigRefusal, ConfigRequest, Terms};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Instant;

pub struct PendingChange {
    worker: i32,
    ticket: u64,
    generation: u64,
    previous: u64,
    /// Previous text of the main file.
    old_main: Vec<u8>,
    warnings: Value,
    /// A new worker process activates the change.
    pub awaits_start: bool,
    pub answer_by: Instant,
}

/// Change of the configuration that a client of the API asks for.
pub struct ConfigChange {
    texts: Texts,
    pub attached: AttachedContents,
    pub terms: Terms,
    by: &'static str,
    from: Option<u64>,
}

fn busy(why: &str) -> ConfigRefusal {
    ConfigRefusal::new(409, "ConfigBusy", why)
}

fn disk(e: impl std::fmt::Display) -> ConfigRefusal {
    say!(Error, "api: {e}");
    ConfigRefusal::internal(e.to_string())
}

impl Master {
    /// Kept configurations, if the API may change the configuration.
    fn kept_of(&self, config: &Config) -> Option<(Generations, usize)> {
        let keep = config.http.as_ref().and_then(|http| http_api::configurations_kept(http))?;
        let layout = Layout::of(&self.invocation.conf_file).filter(|_| self.invocation.text.is_none())?;
        Some((Generations { layout }, keep))
    }

    /// Stores a configuration that is not stored already; [`Master::mark_kept`] follows when it is active. Returns its facts.
    pub fn keep(&self, config: &Config, by: &str) -> Option<GenerationFacts> {
        let (kept, keep) = self.kept_of(config)?;
        if self.change.is_none() {
            kept.clean_up();
        }
        let (texts, named) = natural_texts(&kept.layout, &config.texts.files);
        let attached = attached_digests(&kept.layout, &config.texts.files);
        let numbers = kept.numbers();
        let facts = match numbers
            .iter()
            .rev()
            .find(|number| kept.is_same(**number, &texts, &attached))
            .and_then(|number| kept.facts(*number))
        {
            Some(facts) => facts,
            None => {
                base::clock::update();
                let generation = numbers.last().map_or(1, |last| last + 1);
                let facts = GenerationFacts { generation, at: base::clock::unix_millis(), by: by.into(), from: None };
                if let Err(e) = kept.write(&facts, &Texts::new(), &texts, &attached) {
                    say!(Warn, "{e}: the configuration is not kept, and cannot be changed by the API");
                    return None;
                }
                facts
            }
        };
        let needed: BTreeSet<u64> = named.into_iter().chain([facts.generation]).collect();
        // Removes leftovers of interrupted changes.
        for number in kept.numbers().into_iter().filter(|number| !needed.contains(number)) {
            if !kept.was_in_force(number) {
                kept.remove(number);
            }
        }
        let active = self.config.texts.came.as_ref().map(|came| came.generation);
        kept.prune(keep, &needed.into_iter().chain(active).collect());
        self.sweep_attachments(&kept, attached);
        Some(facts)
    }

    /// Removes attachments that neither a kept configuration, nor the active one, nor one with `more` reads.
    fn sweep_attachments(&self, kept: &Generations, more: Digests) {
        let files = AttachedFiles(kept.layout.attachments());
        if self.change.is_some() || self.judgement.is_some() || !files.0.exists() {
            return;
        }
        let active = attached_digests(&kept.layout, &self.config.texts.files);
        let stored = kept.numbers().into_iter().flat_map(|number| kept.attached(number));
        files.sweep(&stored.chain(active).chain(more).map(|(_, digest)| digest).collect());
    }

    /// Marks the configuration as active; a later rollback offers it.
    pub fn mark_kept(&self) {
        if let (Some((kept, _)), Some(came)) = (self.kept_of(&self.config), &self.config.texts.came) {
            kept.mark(came.generation);
        }
    }

    /// Removes a configuration that the worker process refused, unless it was active before.
    pub fn remove_refused(&self, generation: u64) {
        if let Some(layout) = Layout::of(&self.invocation.conf_file) {
            let kept = Generations { layout };
            let (_, named) = natural_texts(&kept.layout, &self.config.texts.files);
            if !kept.was_in_force(generation) && !named.contains(&generation) {
                kept.remove(generation);
            }
        }
    }

    /// Responds to a worker's request, at once or when its change is active.
    pub fn requested(&mut self, worker: i32, request: ChangeRequest) {
        let ChangeRequest { ticket, what } = request;
        let result = match what {
            ConfigRequest::Main(text, terms) => self.with_main(text).and_then(|texts| {
                let attached = self.active_attachments();
                self.begin_change(worker, ticket, ConfigChange { texts, attached, terms, by: "api", from: None })
            }),
            ConfigRequest::Files(texts, attachments, terms) => {
                let attached = match attachments {
                    Some(all) => AttachedContents::check(all),
                    None => Ok(self.active_attachments()),
                };
                attached.and_then(|attached| {
                    self.begin_change(worker, ticket, ConfigChange { texts, attached, terms, by: "api", from: None })
                })
            }
            ConfigRequest::Rollback(generation, terms) => self.shown(generation).and_then(|(texts, digests)| {
                let attached = AttachedContents { digests, ..AttachedContents::default() };
                let from = Some(generation);
                self.begin_change(worker, ticket, ConfigChange { texts, attached, terms, by: "rollback", from })
            }),
            ConfigRequest::List => self.list().map(|list| Some((list, None))),
            ConfigRequest::Show(generation) => self.shown(generation).and_then(|(texts, attached)| {
                let mut value = json!({ "generation": generation, "files": text_of(&texts)? });
                if !attached.is_empty() {
                    value["attachments"] = attachments_json(&attached);
                }
                Ok(Some((value, None)))
            }),
            ConfigRequest::Level(level) => {
                match self.config.http.as_ref().is_some_and(|http| http_api::has_writes(http)) {
                    true => {
                        observe::set_level(level);
                        Ok(Some((Value::Null, None)))
                    }
                    false => Err(ConfigRefusal::new(405, "ConfigReadOnly", "levels must not be changed")),
                }
            }
        };
        match result {
            Ok(None) => {}
            Ok(Some((value, texts))) => self.answer(worker, &ChangeOutcome { ticket, result: Ok(value), texts }),
            Err(refusal) => self.refuse(worker, ticket, refusal),
        }
    }

    fn refuse(&self, worker: i32, ticket: u64, refusal: ConfigRefusal) {
        if refusal.complaints.is_some() {
            say!(Notice, "api: a configuration was refused: {}", refusal.text);
        }
        self.answer(worker, &ChangeOutcome { ticket, result: Err(refusal), texts: None });
    }

    /// Responds to the request of a change that a child has judged, or activates the change.
    pub fn finish_judged(&mut self, now: Instant) {
        let Some(JudgedChange { worker, ticket, change, candidate, outcome }) = self.take_judged(now) else { return };
        let layout = candidate.layout.clone();
        let result = match outcome {
            Ok(ChangeOutcome { result: Ok(value), texts, .. }) if change.terms.dry_run => {
                return self.answer(worker, &ChangeOutcome { ticket, result: Ok(value), texts });
            }
            Ok(ChangeOutcome { result: Ok(_), .. }) => self.activate(worker, ticket, change, candidate),
            Ok(ChangeOutcome { result: Err(refusal), .. }) | Err(refusal) => Err(refusal),
        };
        if let Err(refusal) = result {
            // A child that was killed leaves its attachments.
            self.sweep_attachments(&Generations { layout }, Digests::new());
            self.refuse(worker, ticket, refusal);
        }
    }

    fn answer(&self, worker: i32, outcome: &ChangeOutcome) {
        if let Some(worker) = self.workers.iter().find(|one| one.pid == worker)
            && let Err(e) = worker.commander.outcome(outcome)
        {
            say!(Error, "the outcome of a change could not be sent to the worker process {}", observe::os_error(&e));
        }
    }

    /// Returns the kept configurations if the master's own configuration permits changes, regardless of the worker.
    fn allowed(&self) -> Result<(Generations, GenerationFacts), ConfigRefusal> {
        let Some((kept, _)) = self.kept_of(&self.config) else {
            return Err(ConfigRefusal::new(405, "ConfigReadOnly", "the configuration must not be changed"));
        };
        match &self.config.texts.came {
            Some(came) => Ok((kept, came.clone())),
            None => Err(ConfigRefusal::new(503, "ConfigUnavailable", "the active configuration could not be kept")),
        }
    }

    /// Combines a new main file with the files of earlier API requests.
    fn with_main(&self, text: Vec<u8>) -> Result<Texts, ConfigRefusal> {
        let (kept, _) = self.allowed()?;
        let mut texts = moved_texts(&kept.layout, &self.config.texts.files);
        texts.insert(kept.layout.name.clone(), text);
        Ok(texts)
    }

    /// Returns the attachments that stay if a change brings none.
    fn active_attachments(&self) -> AttachedContents {
        let layout = Layout::of(&self.invocation.conf_file);
        let digests = layout.map(|layout| attached_digests(&layout, &self.config.texts.files)).unwrap_or_default();
        AttachedContents { digests, ..AttachedContents::default() }
    }

    fn shown(&self, generation: u64) -> Result<(Texts, Digests), ConfigRefusal> {
        let (kept, _) = self.allowed()?;
        if kept.facts(generation).is_none() {
            let words = format!("configuration {generation} is not kept");
            return Err(ConfigRefusal::new(404, "ConfigNotFound", words));
        }
        Ok((kept.read(generation).map_err(disk)?, kept.attached(generation)))
    }

    fn list(&self) -> Result<Value, ConfigRefusal> {
        let (kept, came) = self.allowed()?;
        let one = |number: u64| {
            let facts = kept.facts(number)?;
            Some(json!({
                "generation": number,
                "at": facts.at,
                "by": facts.by,
                "from": facts.from,
                "in_force": number == came.generation,
                "files": kept.names(number),
            }))
        };
        Ok(kept.numbers().into_iter().filter_map(one).collect())
    }

    /// Checks the circumstances of a change, and returns its configuration as it will be on the disk: the judged one, if it is still that.
    fn candidate(
        &self,
        worker: i32,
        change: &ConfigChange,
        judged: Option<Candidate>,
    ) -> Result<(Generations, GenerationFacts, Candidate), ConfigRefusal> {
        let (kept, came) = self.allowed()?;
        if let Some(wanted) = &change.terms.if_match
            && !wanted.contains(&came.generation)
        {
            let words = format!("the active configuration is {}", came.generation);
            return Err(ConfigRefusal::new(412, "PreconditionFailed", words));
        }
        if self.quitting || self.terminating || self.idle || self.new_binary.is_some() {
            return Err(busy("the server is shutting down, or a new binary is being started"));
        }
        let is_changing = self.change.is_some() || self.judgement.is_some();
        if is_changing || self.pending.is_some() || self.again || self.replace || self.replaced.is_some() {
            return Err(busy("another change or a reload is under way"));
        }
        if !self.workers.iter().any(|one| one.pid == worker && !one.exiting) {
            return Err(busy("this worker process is being replaced"));
        }
        check_texts(&change.texts)?;
        let generation = kept.numbers().last().copied().unwrap_or(0).max(came.generation) + 1;
        let candidate = match judged.filter(|judged| judged.generation == generation) {
            Some(judged) => judged,
            None => Candidate::new(&kept.layout, generation, change.texts.clone(), &change.attached.digests)?,
        };
        if let Some(name) = AttachedFiles(kept.layout.attachments()).missing(&candidate, &change.attached) {
            let words = format!("the attachment \"{name}\" is not stored with this \"sha256\": send its contents");
            return Err(ConfigRefusal::new(409, "AttachmentNotFound", words));
        }
        Ok((kept, came, candidate))
    }

    /// Makes or rehearses a change, whose outcome follows later.
    fn begin_change<T>(&mut self, worker: i32, ticket: u64, change: ConfigChange) -> Result<Option<T>, ConfigRefusal> {
        let (_, came, candidate) = self.candidate(worker, &change, None)?;
        self.judge(worker, ticket, change, candidate, came.generation)?;
        Ok(None)
    }

    /// Activates a change that a child has accepted; the outcome follows later.
    fn activate(
        &mut self,
        worker: i32,
        ticket: u64,
        change: ConfigChange,
        judged: Candidate,
    ) -> Result<(), ConfigRefusal> {
        // Other events may have changed the circumstances since.
        let (kept, came, candidate) = self.candidate(worker, &change, Some(judged))?;
        let generation = candidate.generation;
        let prepared = reload::prepare_from(
            &candidate,
            &self.invocation,
            &self.config,
            &self.listeners,
            Purpose::Serve,
            &self.keeper,
        );
        let (mut config, listeners, mut warnings) =
            prepared.map_err(|unprepared| refusal_of(unprepared, &kept.layout))?;
        let shown = |path: &std::path::Path| kept.layout.shown(path);
        warnings.extend(candidate.complaints());
        let warnings = report::complaints_json(&warnings, &config.texts.files, shown);
        steps::reached(ActivationStep::Checked);
        let old_main = std::fs::read(&kept.layout.main).map_err(|e| {
            disk(format_args!("open() \"{}\" failed {}", kept.layout.main.display(), observe::os_error(&e)))
        })?;
        base::clock::update();
        let facts =
            GenerationFacts { generation, at: base::clock::unix_millis(), by: change.by.into(), from: change.from };
        let (read, _) = natural_texts(&kept.layout, &config.texts.files);
        kept.write(&facts, &candidate.files, &read, &candidate.attached).map_err(disk)?;
        steps::reached(ActivationStep::Kept);
        if let Err(e) = kept.place(&candidate.main) {
            kept.remove(generation);
            return Err(disk(e));
        }
        steps::reached(ActivationStep::Placed);
        say!(Notice, "api: configuration {generation} ({}) replaces {}", facts.by, came.generation);
        config.texts.came = Some(facts);
        self.change = Some(PendingChange {
            worker,
            ticket,
            generation,
            previous: came.generation,
            old_main,
            warnings,
            awaits_start: false,
            answer_by: Instant::now() + 2 * ANSWER_PATIENCE,
        });
        self.serve_change(config, listeners);
        Ok(())
    }

    fn serve_change(&mut self, config: Config, listeners: Listeners) {
        match self.install(config, listeners) {
            Ok(ServeOutcome::Asked) => steps::reached(ActivationStep::Sent),
            Ok(ServeOutcome::Replacing) => {
                steps::reached(ActivationStep::Sent);
                if let Some(change) = &mut self.change {
                    change.awaits_start = true;
                }
            }
            Err(why) => self.change_failed(&why),
        }
    }

    /// The configuration is active: responds, and removes the oldest generations.
    pub fn change_done(&mut self) {
        let Some(change) = self.change.take() else { return };
        steps::reached(ActivationStep::InForce);
        if let Some((kept, keep)) = self.kept_of(&self.config).or_else(|| {
            // The new configuration has no API with `config=write`.
            Layout::of(&self.invocation.conf_file).map(|layout| (Generations { layout }, usize::MAX))
        }) {
            kept.mark(change.generation);
            let (_, mut needed) = natural_texts(&kept.layout, &self.config.texts.files);
            needed.extend([change.generation, change.previous]);
            kept.prune(keep, &needed);
            self.sweep_attachments(&kept, Digests::new());
        }
        let value = json!({
            "generation": change.generation, "previous": change.previous, "warnings": change.warnings,
        });
        self.answer(change.worker, &ChangeOutcome { ticket: change.ticket, result: Ok(value), texts: None });
    }

    /// The activation failed: restores the old main file.
    pub fn change_failed(&mut self, why: &str) {
        let Some(change) = self.change.take() else { return };
        let mut words = format!("{why}; the old configuration stays");
        if let Some(layout) = Layout::of(&self.invocation.conf_file) {
            let kept = Generations { layout };
            match kept.place(&change.old_main) {
                Ok(()) => {
                    kept.remove(change.generation);
                    self.sweep_attachments(&kept, Digests::new());
                }
                Err(e) => {
                    say!(Alert, "{e}: the main file has configuration {}, which was refused", change.generation);
                    words = format!("{why}; the old configuration serves, but the main file has the new one: {e}");
                }
            }
        }
        let refusal = ConfigRefusal::new(500, "ConfigRefused", words);
        self.answer(change.worker, &ChangeOutcome { ticket: change.ticket, result: Err(refusal), texts: None });
    }

    /// Handles a worker process that did not confirm the activation in time.
    pub fn change_overdue(&mut self, now: Instant) {
        if self.change.as_ref().is_none_or(|change| change.answer_by > now) {
            return;
        }
        let Some(change) = self.change.take() else { return };
        let words = format!(
            "configuration {} is on the disk, but no worker process has confirmed that it serves it",
            change.generation
        );
        say!(Alert, "api: {words}");
        let refusal = ConfigRefusal::new(504, "ConfigUncertain", words);
        self.answer(change.worker, &ChangeOutcome { ticket: change.ticket, result: Err(refusal), texts: None });
    }
}

/// As JSON strings.
fn text_of(texts: &Texts) -> Result<Value, ConfigRefusal> {
    let mut files = serde_json::Map::new();
    for (name, text) in texts {
        let Ok(text) = std::str::from_utf8(text) else {
            let words = format!("\"{name}\" is not UTF-8, and has no form in JSON");
            return Err(ConfigRefusal::new(409, "ConfigFormatError", words));
        };
        files.insert(name.clone(), json!(text));
    }
    Ok(Value::Object(files))
}
