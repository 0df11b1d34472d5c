//! Compares sequences of requests, in which the response to one depends on those before it. `--groups`: upstream groups whose
//! servers fail. `--caches`: stored responses that expire, vary and are asked for in parts. `--connections`: valid and broken
//! requests over one connection, in one write or in many.
//!
//! A scene is a generated configuration with its steps. Compared are, for each step, the bytes that the client receives and the
//! requests that the servers behind receive; and the lines of both logs. A difference is reduced to the steps and lines that cause
//! it.

mod caches;
mod client;
mod connections;
mod groups;
mod known;
mod origin;

use crate::frames::{by_client, in_parallel, reduce, shown_difference};
use crate::server::{Binary, Dirs, ServerRun};
use crate::stream::without_ports;
use crate::{Dice, Mode, Plan, normal, site};
use client::Client;
use origin::ScriptOrigin;
use std::fmt::{Display, Formatter};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Runs that a difference must survive: replies of a busy machine may come late.
const RUNS: usize = 3;
/// Attempts to draw a scene with the text of `--with`.
const DRAWS_MAX: u64 = 10_000;
/// Field that stands for the latest cookie of `sticky cookie`.
const STICKY: &str = "(cookie)";
/// Time for subrequests that outlive their request to reach the servers behind.
const BACKGROUND: Duration = Duration::from_millis(20);

/// A line of the configuration, and the block that has it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ConfigLine {
    block: &'static str,
    text: String,
}

/// A request over a connection of its own.
#[derive(Clone, Debug)]
struct FreshRequest {
    method: &'static str,
    target: String,
    fields: Vec<String>,
    body: Vec<u8>,
}

/// A connection with any number of requests, written in parts.
#[derive(Clone, Debug)]
struct Talk {
    /// Last number of the client's address.
    from: u8,
    parts: Vec<Vec<u8>>,
    /// The client closes its sending side behind the last part.
    half_closes: bool,
}

#[derive(Clone, Debug)]
enum SceneStep {
    /// Stored responses of one second expire.
    Pause,
    Ask(FreshRequest),
    Talk(Talk),
}

impl Display for SceneStep {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            SceneStep::Pause => write!(f, "pause"),
            SceneStep::Ask(ask) => {
                write!(f, "{} {} {:?} {}", ask.method, ask.target, ask.fields, client::shown_body(&ask.body))
            }
            SceneStep::Talk(talk) => {
                let parts: Vec<String> = talk.parts.iter().map(|part| format!("\"{}\"", part.escape_ascii())).collect();
                write!(f, "{}{}", parts.join(", "), if talk.half_closes { ", and closes its side" } else { "" })
            }
        }
    }
}

/// A generated configuration with its steps.
#[derive(Clone, Debug)]
struct Scene {
    lines: Vec<ConfigLine>,
    steps: Vec<SceneStep>,
}

impl Scene {
    /// The configuration: each `@(block)` of the site stands for the lines of that block.
    fn text(
        &self,
        subject: &SequenceSubject,
        binary: &Binary,
        dirs: &Dirs,
        port: u16,
        origin: &ScriptOrigin,
    ) -> String {
        let mut text = format!("{}\n{}", site::main_lines(), subject.site);
        while let Some((before, rest)) = text.split_once("@(") {
            let Some((block, behind)) = rest.split_once(')') else { break };
            let lines = self.lines.iter().filter(|line| line.block == block).map(|line| line.text.as_str());
            text = format!("{before}{}{behind}", lines.collect::<Vec<_>>().join(" "));
        }
        for (index, port) in origin.ports.iter().enumerate() {
            text = text.replace(&format!("@origin{index}"), &format!("127.0.0.1:{port}"));
        }
        text.replace("@own", if binary.nginx { "" } else { "server_identity nginx;" })
            .replace("@dir", &dirs.folder.display().to_string())
            .replace("@port", &port.to_string())
    }
}

/// One of the comparisons.
struct SequenceSubject {
    name: &'static str,
    /// The http block.
    site: &'static str,
    draw: fn(&mut Dice) -> Scene,
    /// Scenes at a time.
    at_once: usize,
    /// Steps are clients that run at a time.
    in_parallel: bool,
    /// Connections to the servers behind are compared.
    numbers: bool,
}

impl Dice {
    fn one<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
    fn text(&mut self, all: &[&'static str]) -> &'static str {
        self.one::<&str>(all)
    }
    fn percent(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// Removes the connection of a note.
fn without_connection(note: &str) -> String {
    match note.split_once(", connection ").map(|(server, rest)| (server, rest.split_once(": "))) {
        Some((server, Some((_, rest)))) => format!("{server}: {rest}"),
        _ => note.to_string(),
    }
}

fn run_of(
    subject: &SequenceSubject,
    binary: &Binary,
    scene: &Scene,
    origin: &ScriptOrigin,
) -> Result<ServerRun, String> {
    origin.forget();
    let has_background = scene.lines.iter().any(|line| line.text.contains("background_update on"));
    let transcript = |text: &str, client: &str| {
        if has_background {
            std::thread::sleep(BACKGROUND);
        }
        let mut out = format!("client received\n{}", origin.named(text));
        for note in origin.take(client) {
            let note = if subject.numbers { note } else { without_connection(&note) };
            out += &format!("{}\n", origin.named(&note));
        }
        out.into_bytes()
    };
    let all = |port: u16| -> Result<Vec<Vec<u8>>, String> {
        if subject.in_parallel {
            return Ok(in_parallel(&scene.steps, |step| {
                let text = Client::default().take(step, port);
                let from = if let SceneStep::Talk(talk) = step { talk.from } else { 0 };
                transcript(&text, &from.to_string())
            }));
        }
        let mut client = Client::default();
        Ok(scene.steps.iter().map(|step| transcript(&client.take(step, port), "")).collect())
    };
    let conf = |dirs: &Dirs, port: u16| scene.text(subject, binary, dirs, port, origin);
    let mut run = ServerRun::with(binary, &conf, &all, None)?;
    let mut errors: Vec<String> =
        run.errors.iter().filter_map(|line| known::log_line(&without_ports(&origin.named(line)))).collect();
    errors.sort();
    run.errors = errors;
    run.access = run.access.iter().map(|line| origin.named(line)).collect();
    run.access.sort();
    if subject.in_parallel {
        let from = |step: &SceneStep| if let SceneStep::Talk(talk) = step { talk.from } else { 0 };
        let froms: Vec<u8> = scene.steps.iter().map(from).collect();
        by_client(&mut run.access, "access log", &froms, &mut run.answers);
        by_client(&mut run.errors, "error log", &froms, &mut run.answers);
    }
    Ok(run)
}

/// Compares both servers once. Returns the number of compared answers, and the difference.
fn compare(
    subject: &SequenceSubject,
    plan: &Plan,
    scene: &Scene,
    origin: &ScriptOrigin,
) -> Result<FoundDifference, String> {
    let theirs = run_of(subject, &plan.nginx, scene, origin)?;
    let ours = run_of(subject, &plan.ours, scene, origin)?;
    let mut found = FoundDifference {
        refused: theirs.refused.is_some(),
        answers: theirs.answers.len(),
        known: 0,
        difference: None,
    };
    for (step, (theirs, ours)) in scene.steps.iter().zip(theirs.answers.iter().zip(&ours.answers)) {
        let (theirs, ours) = (String::from_utf8_lossy(theirs), String::from_utf8_lossy(ours));
        let ends = plan.mode == Mode::Caches && known::scene_end(&theirs).is_some();
        if known::known_reason(&theirs, &ours).is_some() {
            found.known += 1;
            continue;
        }
        let (theirs, ours) = (known::normal_transcript(&theirs), known::normal_transcript(&ours));
        if theirs != ours {
            found.difference = Some(shown_difference(step, &theirs.join("\n"), &ours.join("\n")));
            return Ok(found);
        }
        if ends {
            return Ok(found);
        }
    }
    found.difference = normal::first_difference(&[] as &[SceneStep], &theirs, &ours);
    Ok(found)
}

struct FoundDifference {
    refused: bool,
    answers: usize,
    /// Answers with a known difference.
    known: usize,
    difference: Option<String>,
}

/// Compares both servers until they agree, [`RUNS`] times at most.
fn compare_again(
    subject: &SequenceSubject,
    plan: &Plan,
    scene: &Scene,
    origin: &ScriptOrigin,
) -> Result<FoundDifference, String> {
    let mut found = compare(subject, plan, scene, origin)?;
    for _ in 1..RUNS {
        if found.difference.is_none() {
            break;
        }
        found = compare(subject, plan, scene, origin)?;
    }
    Ok(found)
}

/// Removes steps and lines that a difference does not need, and describes the scene. A configuration that nginx accepts stays one.
fn reduced(
    subject: &SequenceSubject,
    plan: &Plan,
    mut scene: Scene,
    origin: &ScriptOrigin,
    words: &mut String,
) -> Result<(), String> {
    let (mut steps, mut lines) = (scene.steps.clone(), scene.lines.clone());
    let is_refused = compare(subject, plan, &scene, origin)?.refused;
    let differs = |scene: &Scene| {
        let found = compare_again(subject, plan, scene, origin)?;
        Ok(found.difference.filter(|_| found.refused == is_refused))
    };
    reduce(&mut steps, words, 0, &mut |steps| differs(&Scene { steps: steps.to_vec(), ..scene.clone() }))?;
    scene.steps = steps;
    reduce(&mut lines, words, 0, &mut |lines| differs(&Scene { lines: lines.to_vec(), ..scene.clone() }))?;
    scene.lines = lines;
    let mut out = String::new();
    for line in &scene.lines {
        out += &format!("    {:<8} {}\n", line.block, line.text);
    }
    for step in scene.steps.iter().filter(|step| !matches!(step, SceneStep::Talk(_))) {
        out += &format!("  {step}\n");
    }
    *words = format!("{out}{words}");
    Ok(())
}

fn drawn(subject: &SequenceSubject, plan: &Plan, seed: u64) -> Result<Scene, String> {
    let Some(with) = &plan.with else { return Ok((subject.draw)(&mut Dice::new(seed))) };
    let scenes = (0..DRAWS_MAX).map(|n| (subject.draw)(&mut Dice::new(seed.wrapping_add(n << 32))));
    let mut fitting = scenes.filter(|scene| scene.lines.iter().any(|line| line.text.contains(with.as_str())));
    fitting.next().ok_or("no directive holds that text".into())
}

/// Runs the plan; `Ok`: a summary.
///
/// # Errors
/// Differences, with the lines and steps that cause them; or the reason why the run failed.
pub fn compare_sequences(plan: &Plan) -> Result<String, String> {
    let subject = match plan.mode {
        Mode::Groups => &groups::SUBJECT,
        Mode::Caches => &caches::SUBJECT,
        _ => &connections::SUBJECT,
    };
    if plan.only.is_some() {
        return Err("--only does not apply to sequences".into());
    }
    let next = AtomicU64::new(0);
    let (refused, answers, known) = (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let differences = Mutex::new(Vec::new());
    let worker = || -> Result<(), String> {
        let origin = ScriptOrigin::start().map_err(|e| format!("the servers behind: {e}"))?;
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let count = differences.lock().unwrap_or_else(PoisonError::into_inner).len();
            if index >= plan.count || count >= plan.differences_max {
                return Ok(());
            }
            let seed = plan.seed.wrapping_add(index);
            let scene = drawn(subject, plan, seed)?;
            let found = compare_again(subject, plan, &scene, &origin).map_err(|e| format!("seed {seed}: {e}"))?;
            refused.fetch_add(usize::from(found.refused), Ordering::Relaxed);
            answers.fetch_add(found.answers, Ordering::Relaxed);
            known.fetch_add(found.known, Ordering::Relaxed);
            let Some(mut words) = found.difference else { continue };
            reduced(subject, plan, scene, &origin, &mut words)?;
            let words = format!("seed {seed}:\n{words}");
            // A run takes minutes: differences show as they are found, too.
            eprintln!("{words}");
            differences.lock().unwrap_or_else(PoisonError::into_inner).push(words);
        }
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..subject.at_once).map(|_| scope.spawn(worker)).collect();
        workers.into_iter().try_for_each(|worker| worker.join().map_err(|_| "a comparison panicked".to_string())?)
    })?;
    let summary = format!(
        "{}: {} configurations ({} refused by nginx), {} answers compared with {}, {} with a known difference",
        subject.name,
        plan.count,
        refused.into_inner(),
        answers.into_inner(),
        plan.nginx.shown,
        known.into_inner()
    );
    crate::result(summary, &differences.into_inner().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_of_a_line_is_in_its_site() {
        for subject in [&groups::SUBJECT, &caches::SUBJECT, &connections::SUBJECT] {
            for seed in 0..200 {
                let scene = (subject.draw)(&mut Dice::new(seed));
                assert!(!scene.steps.is_empty());
                for line in &scene.lines {
                    assert!(subject.site.contains(&format!("@({})", line.block)), "{}: {}", subject.name, line.block);
                }
            }
        }
    }
}
