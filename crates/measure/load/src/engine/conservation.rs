//! Tests of conservation: every due request is answered, late, or failed by class, for any server and network.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use figures::rng::Rng;

use super::failure::LoadFailure;
use super::feed::{LoadData, RowOrder};
use super::job::{Model, Think};
use super::profile::{Arrivals, Profile};
use super::request::RequestSpec;
use super::sim::{Act, Sim, ok_answer, play_until, play_world, sim_job, status_answer};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Random fate of a request: fast, slow, right, wrong, split, pipelined, truncated or missing responses.
fn anything(rng: &mut Rng, now: u64) -> Vec<(u64, Act)> {
    let later = now + rng.below(300) * MS;
    match rng.below(14) {
        0 => vec![(later, Act::Reset)],
        12 => vec![(later, redirect(["/next", "?x", "http://other/", ""][rng.below(4) as usize], rng.below(2) == 0))],
        1 => vec![(later, Act::End)],
        2 => vec![],
        3 => vec![(later, status_answer(500, "no"))],
        4 => vec![(later, Act::Bytes(b"nonsense\r\n\r\n".into()))],
        5 => vec![
            (later, Act::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".into())),
            (later + 5 * MS, if rng.below(2) == 0 { Act::End } else { Act::Bytes(b"enough".into()) }),
        ],
        6 => vec![(later, ok_answer()), (later, Act::End)],
        7 => vec![(later, Act::Bytes(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\nok".into()))],
        _ => vec![(later, ok_answer())],
    }
}

fn redirect(location: &str, last: bool) -> Act {
    let close = if last { "Connection: close\r\n" } else { "" };
    let cookie = "Set-Cookie: a=1; Path=/\r\n";
    Act::Bytes(
        format!("HTTP/1.1 302 X\r\nLocation: {location}\r\n{close}{cookie}Content-Length: 0\r\n\r\n").into_bytes(),
    )
}

#[test]
fn due_requests_are_answered_late_or_failed() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let stop = Arc::new(AtomicBool::new(false));
        // One run of four is stopped midway.
        let mut left = if rng.below(4) == 0 { rng.below(200) } else { u64::MAX };
        let (mut act, stopped) = (Rng::new(seed + 1000), stop.clone());
        let mut sim = Sim::new(Box::new(move |now, _, _| {
            left = left.saturating_sub(1);
            if left == 0 {
                stopped.store(true, Ordering::Relaxed);
            }
            anything(&mut act, now)
        }));
        sim.connect_delay = rng.below(30) * MS;
        sim.refuse = rng.below(20) == 0;
        if rng.below(5) == 0 {
            sim.ports = rng.below(40) as usize;
        }
        if rng.below(4) == 0 {
            sim.hold_ups = vec![(S / 2, rng.below(800) * MS)];
        }
        let connections = 1 + rng.below(20) as usize;
        let mut job = sim_job(connections, 0.5 + rng.unit() * 2.0);
        let rate = 10.0 + rng.unit() * 400.0;
        let arrivals = if rng.below(2) == 0 { Arrivals::Fixed } else { Arrivals::Poisson };
        job.model = match rng.below(5) {
            0 => Model::Open { arrivals },
            1 => Model::Connections { arrivals, think: Think { mean: 0.03, random: true } },
            2 => Model::Replay { at: (0..200).map(|i| (f64::from(i) * 0.01, 0)).collect() },
            3 => Model::Closed { think: Think { mean: 0.05, random: true } },
            _ => Model::Closed { think: Think::default() },
        };
        if job.model.is_open() {
            job.profile = Profile::constant(rate, job.profile.seconds());
        } else if rng.below(4) == 0 {
            job.profile = Profile::parse("1..20@500ms,20..2@1s").unwrap();
        }
        job.pipeline = if job.model.is_open() { 1 } else { 1 + rng.below(3) as usize };
        job.calls = rng.below(4) as u32;
        job.warmup = if rng.below(2) == 0 { 0.3 } else { 0.0 };
        job.timeout = 0.1 + rng.unit() * 0.4;
        job.connect_timeout = 0.02 + rng.unit();
        job.budget = (rng.below(3) == 0).then(|| 1 + rng.below(300));
        job.interval = 0.1;
        job.seed = seed;
        job.follow = rng.below(3) as u32;
        job.cookies = rng.below(3) == 0;
        if rng.below(3) == 0 {
            let rows: Vec<Vec<String>> = (0..1 + rng.below(100)).map(|i| vec![format!("r{i}")]).collect();
            let order = [RowOrder::Order, RowOrder::Random, RowOrder::Once][rng.below(3) as usize];
            job.data = Some(LoadData { order, rows: rows.into() });
            job.requests[0].path = "/{{path-column:0}}".into();
        }
        let is_once = job.data.as_ref().is_some_and(|data| data.order == RowOrder::Once);
        if rng.below(2) == 0 && !job.model.is_open() && !is_once {
            // Users with several connections.
            (job.session, job.pipeline, job.connections_each) = (true, 1, rng.below(5) as usize);
            let steps = (0..1 + rng.below(6))
                .map(|i| RequestSpec { parallel: i > 0 && rng.below(3) > 0, ..job.requests[0].clone() });
            job.requests = steps.collect();
        }
        let (r, done) = play_until(sim, &job, stop);
        if let Some(data) = job.data.as_ref().filter(|data| data.order == RowOrder::Once) {
            assert!(r.due <= data.rows.len() as u64, "seed {seed}: {} of {} rows", r.due, data.rows.len());
        }
        let sum = r.in_time + r.late + r.failures.total();
        assert_eq!(r.due, sum, "seed {seed}: {} in time, {} late, {:?}", r.in_time, r.late, r.failures);
        assert!(r.corrected.count() <= r.due && r.raw().count() <= r.due, "seed {seed}");
        assert_eq!(done.timeline.0.iter().map(|c| c.count).sum::<u64>(), r.corrected.count(), "seed {seed}");
        if let (Some(budget), Model::Open { .. } | Model::Closed { .. }) = (job.budget, &job.model) {
            assert!(r.due <= budget, "seed {seed}: {} of {budget}", r.due);
        }
    }
}

/// Session of three steps: a login's token and cookie must be in the next step, and the last follows it.
fn steps() -> Vec<RequestSpec> {
    let step = |path: &str, extract: &[(&str, &str)]| RequestSpec {
        extract: extract.iter().map(|(name, from)| (name.to_string(), from.to_string())).collect(),
        ..RequestSpec::get(path)
    };
    vec![
        step("/login?user={{seq}}", &[("token", "json:/token"), ("sid", "cookie:sid")]),
        RequestSpec {
            headers: vec!["Cookie: sid={{var:sid}}".into()],
            ..step("/list?t={{var:token}}", &[("item", "regex:item-(\\d+)")])
        },
        RequestSpec { think: "50ms".into(), ..step("/item/{{var:item}}?t={{var:token}}", &[]) },
    ]
}

/// Accepts steps that carry the values of earlier answers; one login in ten returns none.
fn shop(log: Arc<std::sync::Mutex<Vec<String>>>) -> Sim {
    let mut number = 0;
    Sim::new(Box::new(move |now, _, head| {
        number += 1;
        let path = head.split(' ').nth(1).unwrap_or("").to_string();
        log.lock().unwrap().push(path.clone());
        let query = path.split("t=").nth(1).unwrap_or("").to_string();
        let answer = |status: u16, fields: &str, body: String| {
            Act::Bytes(
                format!("HTTP/1.1 {status} X\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len()).into_bytes(),
            )
        };
        let act = match () {
            () if path.starts_with("/login") && number % 10 == 0 => answer(200, "", "{}".into()),
            () if path.starts_with("/login") => {
                let fields = format!("Set-Cookie: sid=s{number}; Path=/\r\n");
                answer(200, &fields, format!("{{\"token\":\"{number}\"}}"))
            }
            () if path.starts_with("/list") && head.contains(&format!("Cookie: sid=s{query}\r\n")) => {
                answer(200, "", format!("<a>item-{query}</a>"))
            }
            () if path.starts_with(&format!("/item/{query}?")) && !query.is_empty() => answer(200, "", "ok".into()),
            () => answer(403, "", "no".into()),
        };
        vec![(now + MS, act)]
    }))
}

#[test]
fn sessions_carry_what_answers_gave() {
    for model in [
        Model::Closed { think: Think::default() },
        Model::Connections { arrivals: Arrivals::Fixed, think: Think { mean: 0.005, random: false } },
    ] {
        let log = Arc::<std::sync::Mutex<Vec<String>>>::default();
        let mut job = sim_job(20, 3.0);
        (job.requests, job.session) = (steps(), true);
        if model.is_open() {
            (job.profile, job.calls) = (Profile::constant(50.0, 3.0), 3);
        }
        job.model = model;
        let (r, done) = play_world(shop(log.clone()), &job);
        assert_eq!(r.failures.of(LoadFailure::Status), 0, "every step brought what it needs: {:?}", r.failures);
        assert!(r.failures.of(LoadFailure::Extract) > 5, "a login without token ends its session");
        assert_eq!(r.due, r.in_time + r.late + r.failures.total());
        let answered: u64 = done.kinds.0.iter().map(|k| k.latency.count).sum();
        let failed: u64 = done.kinds.0.iter().map(|k| k.failed).sum();
        assert_eq!((answered, failed), (r.corrected.count(), r.failures.total()), "steps are told apart");
        let log = log.lock().unwrap();
        let count = |of: &str| log.iter().filter(|p| p.starts_with(of)).count();
        assert!(count("/item/") > 100 && count("/login") > count("/list") && count("/list") >= count("/item/"));
        if !job.model.is_open() {
            assert!((800..1200).contains(&count("/item/")), "{}", count("/item/"));
        }
    }
}

#[test]
fn a_closed_loop_ends_although_no_connection_can_be_made() {
    for ports in [0, 7] {
        let mut sim = Sim::new(Box::new(|now, _, _| vec![(now + MS, ok_answer())]));
        sim.ports = ports;
        let (r, done) = play_world(sim, &sim_job(30, 1.0));
        assert_eq!(done.measured, S);
        let failed = r.failures.of(LoadFailure::PortsExhausted);
        // Users without a connection retry every 50 ms at most.
        assert!((500..2000).contains(&failed), "{failed}");
        assert_eq!(r.good > 1000, ports > 0, "{}", r.good);
    }
}

#[test]
fn a_budget_is_of_the_measured_part() {
    for model in [Model::Closed { think: Think::default() }, Model::Open { arrivals: Arrivals::Fixed }] {
        let mut job = sim_job(2, 1000.0);
        if model.is_open() {
            job.profile = Profile::constant(100.0, 1000.0);
        }
        (job.model, job.warmup, job.budget) = (model, 0.5, Some(50));
        let (r, done) = play_world(Sim::new(Box::new(|now, _, _| vec![(now + 10 * MS, ok_answer())])), &job);
        assert_eq!((r.due, r.in_time, r.failures.total()), (50, 50, 0));
        assert!(done.measured < 2 * S);
    }
}

#[test]
fn a_timeout_counts_as_what_it_is() {
    let mut job = sim_job(3, 2.0);
    (job.timeout, job.requests) = (0.5, vec![RequestSpec::get("/")]);
    let (r, _) = play_world(Sim::new(Box::new(|_, _, _| vec![])), &job);
    assert!(r.failures.of(LoadFailure::Timeout) >= 9);
    let (low, high) = r.raw().range();
    assert!(low > 0.4995 && high < 0.5005, "{low} to {high}");
}

#[test]
fn connections_stand_before_a_closed_loop_is_timed() {
    let mut sim = Sim::new(Box::new(|now, _, _| vec![(now + MS, ok_answer())]));
    sim.connect_delay = 50 * MS;
    let (r, done) = play_world(sim, &sim_job(3000, 1.0));
    assert_eq!((done.measured, r.failures.total()), (S, 0));
    assert!(r.corrected.range().1 < 0.002, "no request waited for a connection: {}", r.corrected.range().1);
    assert_eq!((r.connections, r.connect.count()), (0, 3000), "but what they took is known");
}

#[test]
fn the_first_byte_has_a_time_of_its_own() {
    let sim = Sim::new(Box::new(|now, _, _| {
        vec![
            (now + 2 * MS, Act::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n".into())),
            (now + 9 * MS, Act::Bytes(b"ok".into())),
        ]
    }));
    let (r, _) = play_world(sim, &sim_job(1, 1.0));
    assert!((r.first_byte.quantile(0.5) - 0.002).abs() < 1e-5 && (r.corrected.quantile(0.5) - 0.009).abs() < 1e-5);
    let whole = play_world(Sim::new(Box::new(|now, _, _| vec![(now + MS, ok_answer())])), &sim_job(1, 1.0)).0;
    assert_eq!(whole.first_byte.count(), whole.corrected.count(), "answers in one piece have one too");
}

#[test]
fn a_flat_slow_server_is_no_queue() {
    use crate::engine::run::RunOutcome;
    use crate::report::build::{Watch, build_round};
    use crate::report::verdict::judge_rounds;
    let judged = |rate: f64, delay: u64, service: u64, budget: Option<u64>| {
        let mut free_at = 0;
        let sim = Sim::new(Box::new(move |now, _, _| {
            free_at = now.max(free_at) + service;
            vec![(free_at + delay, ok_answer())]
        }));
        let mut job = sim_job(2000, 10.0);
        job.model = Model::Open { arrivals: Arrivals::Poisson };
        job.profile = Profile::constant(rate, 10.0);
        (job.budget, job.timeout) = (budget, 60.0);
        let (total, done) = play_world(sim, &job);
        let (seconds, timeline) = (done.measured as f64 * 1e-9, done.timeline);
        let scheduled = budget.map(|_| done.last_due as f64 * 1e-9);
        let outcome =
            RunOutcome { total, seconds, timeline, interval: job.interval, scheduled, ..RunOutcome::default() };
        let round = build_round(&outcome, true, &Watch::default(), Default::default());
        (judge_rounds(std::slice::from_ref(&round), true), round)
    };
    let word = |rate, delay, service| judged(rate, delay, service, None).0.word;
    assert_eq!(word(100.0, 3 * S, 0), "valid", "three seconds for each, whatever the load");
    assert_eq!(word(120.0, 0, 10 * MS), "overloaded", "a fifth more than it can do, all answered in the end");
    assert_eq!(word(80.0, 0, 10 * MS), "valid");
    // A number of requests at a rate that the server does not keep up with: all are offered and answered, but late.
    let (verdict, round) = judged(100.0, 0, 26 * MS, Some(100));
    assert_eq!((verdict.word.as_str(), verdict.failed), ("overloaded", true), "{verdict:?}");
    assert!(verdict.reasons[0].contains("100 due = 100 answered in 2."), "{verdict:?}");
    super::truth::assert_near(round.offered, 100.0, 30.0);
    super::truth::assert_near(round.rps, 38.0, 1.5);
    for (delay, service) in [(0, MS), (3 * S, 0)] {
        let (verdict, round) = judged(100.0, delay, service, Some(400));
        assert_eq!((verdict.word.as_str(), verdict.failed), ("valid", false), "{verdict:?}");
        super::truth::assert_near(round.offered, 100.0, 15.0);
    }
}

#[test]
fn redirects_are_followed_within_the_latency() {
    // /a redirects after 10 ms to /b, /b after 20 ms to /c; /c answers after 30 ms.
    let hops = || {
        Sim::new(Box::new(|now, _, head: &str| match head.split(' ').nth(1) {
            Some("/a") => vec![(now + 10 * MS, redirect("b?x", false))],
            Some("/b?x") => vec![(now + 20 * MS, redirect("/c", true)), (now + 20 * MS, Act::End)],
            _ => vec![(now + 30 * MS, ok_answer())],
        }))
    };
    let mut job = sim_job(2, 60.0);
    job.requests[0].path = "/a".into();
    job.budget = Some(20);
    job.follow = 2;
    let (r, done) = play_world(hops(), &job);
    assert_eq!((r.due, r.in_time, r.answers, r.redirects), (20, 20, 20, 40));
    assert_eq!((r.statuses.sorted(), done.answer_error), (vec![(200, 20)], None));
    assert!((r.corrected.quantile(0.5) - 0.06).abs() < 0.001, "{}", r.corrected.quantile(0.5));
    assert!((r.raw().quantile(0.5) - 0.06).abs() < 0.001, "{}", r.raw().quantile(0.5));
    job.follow = 1;
    let (r, done) = play_world(hops(), &job);
    assert_eq!((r.failures.of(LoadFailure::Redirect), r.redirects), (20, 20));
    assert_eq!(done.answer_error.as_deref(), Some("more redirects than --follow 1"));
    job.follow = 0;
    let (r, _) = play_world(hops(), &job);
    assert_eq!((r.in_time, r.statuses.sorted()), (20, vec![(302, 20)]));
}

#[test]
fn a_redirect_repeats_the_body_or_drops_it() {
    for (status, expected) in [
        (302, "GET /b HTTP/1.1\r\nHost: test\r\n\r\n"),
        (307, "POST /b HTTP/1.1\r\nHost: test\r\nContent-Type: x\r\nContent-Length: 3\r\n\r\n"),
    ] {
        let log: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let seen = log.clone();
        let sim = Sim::new(Box::new(move |now, _, head: &str| {
            // The body of an earlier request stands before the next head.
            seen.lock().unwrap().push(head.trim_start_matches("n=0").to_string());
            match head.contains(" /a ") {
                true => vec![(
                    now + MS,
                    Act::Bytes(format!("HTTP/1.1 {status} X\r\nLocation: /b\r\nContent-Length: 0\r\n\r\n").into()),
                )],
                false => vec![(now + MS, ok_answer())],
            }
        }));
        let mut job = sim_job(1, 60.0);
        job.requests = vec![RequestSpec {
            method: "POST".into(),
            body: "n={{seq}}".into(),
            headers: vec!["Content-Type: x".into()],
            ..RequestSpec::get("/a")
        }];
        (job.budget, job.follow) = (Some(1), 5);
        let (r, _) = play_world(sim, &job);
        assert_eq!((r.in_time, r.redirects), (1, 1));
        assert_eq!(log.lock().unwrap()[1], expected, "{status}");
    }
}

#[test]
fn users_keep_their_cookies_and_no_others() {
    let log: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let (seen, mut number) = (log.clone(), 0);
    let sim = Sim::new(Box::new(move |now, slot, head: &str| {
        let cookie = head.lines().find_map(|line| line.strip_prefix("Cookie: ")).unwrap_or("").to_string();
        seen.lock().unwrap().push(format!("{slot} {cookie}"));
        number += 1;
        let set = if cookie.is_empty() {
            format!("Set-Cookie: id={number}; Path=/\r\nSet-Cookie: s=1; Secure\r\n")
        } else {
            String::new()
        };
        vec![(now + MS, Act::Bytes(format!("HTTP/1.1 200 X\r\n{set}Content-Length: 0\r\n\r\n").into_bytes()))]
    }));
    let mut job = sim_job(2, 60.0);
    (job.cookies, job.budget) = (true, Some(6));
    job.requests[0].headers = vec!["Cookie: own=1".into()];
    job.requests[0].headers.clear();
    let (r, _) = play_world(sim, &job);
    assert_eq!(r.in_time, 6);
    let mut all = log.lock().unwrap().clone();
    all.sort();
    assert_eq!(all, ["0 ", "0 id=1", "0 id=1", "1 ", "1 id=2", "1 id=2"]);
}

#[test]
fn rows_of_data_are_each_taken_once_and_end_the_run() {
    for sessions in [false, true] {
        let log: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
        let seen = log.clone();
        let sim = Sim::new(Box::new(move |now, _, head: &str| {
            seen.lock().unwrap().push(head.split(' ').nth(1).unwrap_or("").to_string());
            vec![(now + MS, ok_answer())]
        }));
        let mut job = sim_job(3, 3600.0);
        let rows: Vec<Vec<String>> = (0..10).map(|i| vec![format!("u {i}")]).collect();
        job.data = Some(LoadData { order: RowOrder::Once, rows: rows.into() });
        job.requests = vec![RequestSpec::get("/in/{{path-column:0}}")];
        if sessions {
            job.session = true;
            job.requests.push(RequestSpec::get("/out/{{path-column:0}}"));
        }
        let (r, done) = play_world(sim, &job);
        assert!(done.used_up && done.measured < S, "{}", done.measured);
        let mut all = log.lock().unwrap().clone();
        all.sort();
        let mut expected: Vec<String> = (0..10).map(|i| format!("/in/u%20{i}")).collect();
        if sessions {
            expected.extend((0..10).map(|i| format!("/out/u%20{i}")));
        }
        assert_eq!((r.in_time, all), (expected.len() as u64, expected));
    }
}
