//! Compares HTTP/2 frame by frame. `--frames`: clients of cleartext HTTP/2 send random sequences of good frames, with one or two
//! faulty ones among them, to files, `return` and a proxied location of both servers. Compared are the frames that a client
//! receives (in order per stream, header blocks decoded, data joined), the requests that the server behind receives, and the lines
//! of both logs. `--upstream-frames` is in `upstream/`.
//!
//! Each client has an address of its own, by which requests and lines of the logs are found.

mod acts;
mod client;
mod faults;
mod known;
mod origin;
mod pool;
mod transcript;
pub mod upstream;
mod wire;

use crate::server::{Binary, Dirs, ServerRun};
use crate::stream::without_ports;
use crate::{Dice, Plan, normal};
use acts::FrameSession;
use origin::FramesOrigin;
use pool::{FramePlace, FramePut, POOL};
use std::fmt::Display;

/// Clients of one configuration.
const CLIENTS: u8 = 24;
/// Clients at a time.
const AT_ONCE: usize = 8;
/// Runs that a difference must survive: replies of a busy machine may come late.
const RUNS: usize = 3;

/// Directives that make up one configuration; a place has a directive once.
fn draw(dice: &mut Dice, pool: &[FramePut], first: &[FramePut], most: usize) -> Vec<FramePut> {
    let count = dice.below(most + 1);
    let mut puts: Vec<FramePut> = Vec::new();
    let names = |text: &str| text.split(';').filter_map(|d| d.split_whitespace().next().map(String::from)).collect();
    for index in 0..count {
        let pool = if index == 0 { first } else { pool };
        let Some(put) = pool.get(dice.below(pool.len())) else { continue };
        let own: Vec<String> = names(put.text);
        let has = |other: &FramePut| {
            other.place == put.place && names(other.text).iter().any(|name: &String| own.contains(name))
        };
        if !puts.iter().any(has) {
            puts.push(*put);
        }
    }
    puts
}

fn all(pool: &[(&'static str, &[FramePlace])], only: Option<&str>) -> Vec<FramePut> {
    let of = |(text, places): &(&'static str, &[FramePlace])| -> Vec<FramePut> {
        places.iter().map(|place| FramePut { text, place: *place }).collect()
    };
    pool.iter().filter(|(text, _)| only.is_none_or(|only| text.contains(only))).flat_map(of).collect()
}

fn put(puts: &[FramePut], place: FramePlace) -> String {
    puts.iter().filter(|put| put.place == place).map(|put| put.text).collect::<Vec<_>>().join("\n        ")
}

/// The configuration with the directives in their places.
fn text(puts: &[FramePut], dirs: &Dirs, port: u16, origin: u16, binary: &Binary) -> String {
    let location = put(puts, FramePlace::Location);
    let conf = format!(
        "daemon off;
worker_processes 1;
{user}
pid DIR/pid;
error_log DIR/error.log info;
events {{ }}
http {{
    {own}
    root DIR/files;
    default_type text/plain;
    log_format all '$remote_addr|$status|$request|$request_uri|$uri|$args|$request_method|$request_length|$body_bytes_sent|'
                   '$http_host|$host|$http_cookie|$http_x';
    access_log DIR/access.log all;
    client_body_temp_path DIR/bodies;
    {on}
    proxy_set_header X-From $remote_addr;
    {http}
    server {{
        listen 127.0.0.1:PORT;
        server_name localhost;
        {server}
        location / {{ {location} }}
        location /return {{ {location} return 200 'text of $request_uri'; }}
        location /redirect {{ {location} return 302 /return; }}
        location /status/204 {{ {location} return 204; }}
        location /closed {{ {location} return 444; }}
        location /p/ {{ {location} proxy_pass http://127.0.0.1:ORIGIN; }}
        location /limited/ {{ client_max_body_size 1000; proxy_pass http://127.0.0.1:ORIGIN; }}
    }}
}}
",
        user = if binary.nginx { "user root root;" } else { "" },
        own = if binary.nginx { "" } else { "server_identity nginx;" },
        on = if puts.iter().any(|put| put.text.starts_with("http2 ") && put.place == FramePlace::Http) { "" } else { "http2 on;" },
        http = put(puts, FramePlace::Http),
        server = put(puts, FramePlace::Server),
    );
    conf.replace("PORT", &port.to_string())
        .replace("ORIGIN", &origin.to_string())
        .replace("DIR", &dirs.folder.display().to_string())
}

fn files(dirs: &Dirs) -> std::io::Result<()> {
    const AGE: std::time::Duration = std::time::Duration::from_secs(1_700_000_000);
    let folder = dirs.folder.join("files");
    std::fs::create_dir_all(folder.join("folder"))?;
    for (name, length) in [("small.txt", 12), ("page.txt", 5_000), ("large.txt", 200_000), ("empty.txt", 0)] {
        let path = folder.join(name);
        std::fs::write(&path, b"0123456789abcdef".iter().cycle().take(length).copied().collect::<Vec<u8>>())?;
        std::fs::File::options().write(true).open(&path)?.set_modified(std::time::UNIX_EPOCH + AGE)?;
    }
    Ok(())
}

/// Runs `one` for each item, a few at a time.
pub(crate) fn in_parallel<T: Sync>(items: &[T], one: impl Fn(&T) -> Vec<u8> + Sync) -> Vec<Vec<u8>> {
    let next = std::sync::atomic::AtomicUsize::new(0);
    let results: Vec<std::sync::Mutex<Vec<u8>>> = items.iter().map(|_| std::sync::Mutex::default()).collect();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE.min(items.len()) {
            scope.spawn(|| {
                while let Some((item, result)) = {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    items.get(at).zip(results.get(at))
                } {
                    let bytes = one(item);
                    *result.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = bytes;
                }
            });
        }
    });
    results.into_iter().map(|result| result.into_inner().unwrap_or_default()).collect()
}

/// Appends the lines of a log to the transcripts of their clients, in alphabetical order; other lines stay.
pub(crate) fn by_client(lines: &mut Vec<String>, title: &str, froms: &[u8], answers: &mut [Vec<u8>]) {
    for (from, answer) in froms.iter().zip(answers) {
        let (start, inside) = (format!("127.1.0.{from}|"), format!("client: 127.1.0.{from},"));
        let (mut own, others): (Vec<String>, Vec<String>) =
            lines.drain(..).partition(|line| line.starts_with(&start) || line.contains(&inside));
        *lines = others;
        own.sort();
        for line in own {
            answer.extend_from_slice(format!("{title}: {line}\n").as_bytes());
        }
    }
}

/// The lines that differ, with the session.
pub(crate) fn shown_difference(session: &impl Display, theirs: &str, ours: &str) -> String {
    const BEFORE: usize = 4;
    let (theirs, ours): (Vec<&str>, Vec<&str>) = (theirs.lines().collect(), ours.lines().collect());
    let start = theirs.iter().zip(&ours).take_while(|(a, b)| a == b).count();
    let most = theirs.len().min(ours.len()) - start;
    let end = theirs.iter().rev().zip(ours.iter().rev()).take(most).take_while(|(a, b)| a == b).count();
    let mut out = format!("  {session}\n");
    for line in theirs.get(start.saturating_sub(BEFORE)..start).unwrap_or_default() {
        out += &format!("           {line}\n");
    }
    for (name, lines) in [("nginx:   ", &theirs), ("tidegate:", &ours)] {
        for line in lines.get(start..lines.len() - end).unwrap_or_default() {
            out += &format!("  {name}{line:.600}\n");
        }
    }
    out
}

/// Outcome of one configuration in both servers.
struct FramesOutcome {
    refused: bool,
    answers: usize,
    known: usize,
    /// Index of the session that differs; `None`: the servers as a whole differ.
    difference: Option<(Option<usize>, String)>,
}

fn text_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Compares the results of both servers, session by session.
fn compare<S: Display>(
    sessions: &[S],
    theirs: &ServerRun,
    ours: &ServerRun,
    compared: &dyn Fn(&S, &str) -> Vec<String>,
    reason: &dyn Fn(&S, &str, &str) -> Option<&'static str>,
) -> FramesOutcome {
    let mut outcome = FramesOutcome {
        refused: theirs.refused.is_some() && ours.refused.is_some(),
        answers: theirs.answers.len(),
        known: 0,
        difference: None,
    };
    for (index, (session, (theirs, ours))) in sessions.iter().zip(theirs.answers.iter().zip(&ours.answers)).enumerate()
    {
        let (theirs, ours) = (text_of(theirs), text_of(ours));
        if compared(session, &theirs) == compared(session, &ours) {
            continue;
        }
        if reason(session, &theirs, &ours).is_some() {
            outcome.known += 1;
            continue;
        }
        outcome.difference = Some((Some(index), shown_difference(session, &theirs, &ours)));
        return outcome;
    }
    outcome.difference = normal::first_difference(&[] as &[FrameSession], theirs, ours).map(|words| (None, words));
    outcome
}

/// Finds the difference of a configuration and its sessions; `None`: there is none.
type Differs<'a, S> = dyn FnMut(&[FramePut], &S) -> Result<Option<String>, String> + 'a;

/// One of the two comparisons.
struct FramesSubject<'a, S> {
    name: &'static str,
    pool: &'static [(&'static str, &'static [FramePlace])],
    /// Number of sessions per configuration.
    sessions: u8,
    draw: fn(&mut Dice, u8) -> S,
    /// Runs one server with all sessions.
    run: &'a dyn Fn(&Binary, &[FramePut], &[S]) -> Result<ServerRun, String>,
    compared: fn(&S, &str) -> Vec<String>,
    reason: fn(&S, &str, &str) -> Option<&'static str>,
    /// Removes the parts of a session that a difference does not need.
    shorten: fn(&mut S, &[FramePut], &mut String, &mut Differs<'_, S>) -> Result<(), String>,
}

impl<S: Display + Clone> FramesSubject<'_, S> {
    /// Compares both servers, up to `runs` times if they differ.
    fn outcome(&self, plan: &Plan, puts: &[FramePut], sessions: &[S], runs: usize) -> Result<FramesOutcome, String> {
        let mut outcome = None;
        for _ in 0..runs {
            let (theirs, ours) = ((self.run)(&plan.nginx, puts, sessions)?, (self.run)(&plan.ours, puts, sessions)?);
            let again = compare(sessions, &theirs, &ours, &self.compared, &self.reason);
            let ends = again.difference.is_none();
            outcome = Some(again);
            if ends {
                break;
            }
        }
        outcome.ok_or("nothing was run".into())
    }

    /// Runs the plan; `Ok`: a summary.
    ///
    /// # Errors
    /// Differences, with the directives and the parts of a session that cause them; or the reason why the run failed.
    fn search(&self, plan: &Plan) -> Result<String, String> {
        let (pool, with) = (all(self.pool, plan.only.as_deref()), all(self.pool, plan.with.as_deref()));
        if pool.is_empty() || with.is_empty() {
            return Err("no directive holds that text".into());
        }
        let (mut refused, mut answers, mut known, mut differences) = (0, 0, 0, Vec::new());
        for index in 0..plan.count {
            if differences.len() >= plan.differences_max {
                break;
            }
            let seed = plan.seed.wrapping_add(index);
            let mut dice = Dice::new(seed);
            let mut puts = draw(&mut dice, &pool, if plan.with.is_some() { &with } else { &pool }, 3);
            let sessions: Vec<S> = (1..=self.sessions).map(|from| (self.draw)(&mut dice, from)).collect();
            let outcome = self.outcome(plan, &puts, &sessions, RUNS)?;
            refused += u64::from(outcome.refused);
            answers += outcome.answers;
            known += outcome.known;
            let Some((at, mut words)) = outcome.difference else { continue };
            if let Some(mut session) = at.and_then(|at| sessions.get(at)).cloned() {
                let mut differs = |puts: &[FramePut], session: &S| -> Result<Option<String>, String> {
                    let outcome = self.outcome(plan, puts, std::slice::from_ref(session), 2)?;
                    Ok(outcome.difference.map(|(_, words)| words))
                };
                if let Some(still) = differs(&puts, &session)? {
                    words = still;
                    (self.shorten)(&mut session, &puts, &mut words, &mut differs)?;
                    reduce(&mut puts, &mut words, 0, &mut |puts| differs(puts, &session))?;
                } else {
                    words += "\n  (only among the other sessions)";
                }
            }
            let lines: Vec<String> =
                puts.iter().map(|put| format!("    {:<8} {}", format!("{:?}", put.place), put.text)).collect();
            let found = format!("seed {seed}:\n{}\n{words}", lines.join("\n"));
            // A run takes minutes: differences show as they are found, too.
            eprintln!("{found}");
            differences.push(found);
        }
        let summary = format!(
            "{}: {} configurations ({refused} refused by both), {answers} sessions compared with {}, {known} with a known difference",
            self.name, plan.count, plan.nginx.shown
        );
        crate::result(summary, &differences)
    }
}

fn run_of(
    binary: &Binary,
    origin: &FramesOrigin,
    puts: &[FramePut],
    sessions: &[FrameSession],
) -> Result<ServerRun, String> {
    let froms: Vec<u8> = sessions.iter().map(|session| session.from).collect();
    let all = |port: u16| -> Result<Vec<Vec<u8>>, String> {
        Ok(in_parallel(sessions, |session| {
            origin.forget(&format!("127.1.0.{}", session.from));
            let text = client::run_session(session, port).unwrap_or_else(|e| format!("<{e}>"));
            let mut out = format!("client received\n{text}");
            for request in origin.take(&format!("127.1.0.{}", session.from)) {
                out += &format!("server received\n      {request}\n");
            }
            out.into_bytes()
        }))
    };
    let conf = |dirs: &Dirs, port: u16| {
        if let Err(e) = files(dirs) {
            eprintln!("{}: {e}", dirs.folder.display());
        }
        text(puts, dirs, port, origin.port, binary)
    };
    let mut run = ServerRun::with(binary, &conf, &all, Some(origin.port))?;
    run.connections = run.connections.iter().map(|line| without_ports(line)).collect();
    run.errors = run.errors.iter().filter_map(|line| known::log_line(&without_ports(line))).collect();
    by_client(&mut run.access, "access log", &froms, &mut run.answers);
    by_client(&mut run.errors, "error log", &froms, &mut run.answers);
    by_client(&mut run.connections, known::CONNECTION.trim_end_matches(": "), &froms, &mut run.answers);
    Ok(run)
}

/// Runs the plan of `--frames`; as [`FramesSubject::search`].
pub fn compare_frames(plan: &Plan) -> Result<String, String> {
    let origin = FramesOrigin::start().map_err(|e| format!("the server behind: {e}"))?;
    let subject = FramesSubject {
        name: "frames",
        pool: POOL,
        sessions: CLIENTS,
        draw: acts::draw_session,
        run: &|binary, puts, sessions| run_of(binary, &origin, puts, sessions),
        compared: known::compared_lines,
        reason: known::known_reason,
        shorten: |session, puts, words, differs| {
            let mut acts = session.acts.clone();
            reduce(&mut acts, words, 1, &mut |acts| {
                differs(puts, &FrameSession { acts: acts.to_vec(), ..session.clone() })
            })?;
            session.acts = acts;
            Ok(())
        },
    };
    subject.search(plan)
}

/// Removes parts behind the first `fixed` that a difference does not need.
pub(crate) fn reduce<T: Clone>(
    parts: &mut Vec<T>,
    words: &mut String,
    fixed: usize,
    differs: &mut dyn FnMut(&[T]) -> Result<Option<String>, String>,
) -> Result<(), String> {
    let mut at = fixed;
    while at < parts.len() {
        let mut fewer = parts.clone();
        fewer.remove(at);
        match differs(&fewer)? {
            Some(still) => (*parts, *words) = (fewer, still),
            None => at += 1,
        }
    }
    Ok(())
}
