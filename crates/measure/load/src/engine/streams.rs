//! Tests of HTTP/2 streams over a virtual network: every due request is answered, late, or failed by class, at the
//! script's times.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use figures::rng::Rng;

use super::failure::LoadFailure;
use super::job::{Http2, Job, Model, Think};
use super::profile::{Arrivals, Profile};
use super::request::{Expect, RequestSpec};
use super::sim::{Act, Sim, play_until, play_world, sim_job};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let mut out = (payload.len() as u32).to_be_bytes()[1..].to_vec();
    out.extend([kind, flags]);
    out.extend(stream.to_be_bytes());
    out.extend(payload);
    out
}

fn settings(streams: u32) -> Vec<u8> {
    let mut payload = vec![0, 3];
    payload.extend(streams.to_be_bytes());
    frame(SETTINGS, 0, 0, &payload)
}

fn number(kind: u8, stream: u32, number: u32) -> Act {
    Act::Bytes(frame(kind, 0, stream, &number.to_be_bytes()))
}

fn goaway(last: u32) -> Act {
    Act::Bytes(frame(GOAWAY, 0, 0, &[last.to_be_bytes(), [0; 4]].concat()))
}

/// Indexed fields of `:status` 200, 404 and 500.
const OK: u8 = 0x88;
const NOT_FOUND: u8 = 0x8d;
const BROKEN: u8 = 0x8e;

fn head(stream: u32, status: u8, end: bool) -> Act {
    Act::Bytes(frame(HEADERS, 4 | u8::from(end), stream, &[status]))
}

fn body(stream: u32, bytes: &[u8], end: bool) -> Act {
    Act::Bytes(frame(DATA, u8::from(end), stream, bytes))
}

fn streams(connections: usize, seconds: f64, at_a_time: usize) -> Job {
    Job { pipeline: at_a_time, http2: Some(Http2::default()), ..sim_job(connections, seconds) }
}

fn server(limit: u32, mut script: impl FnMut(u64, u32) -> Vec<(u64, Act)> + 'static) -> Sim {
    let script = move |now, _, stream: &str| script(now, stream.parse().unwrap());
    let mut sim = Sim::new(Box::new(script));
    sim.settings = Some(settings(limit));
    sim
}

fn anything(rng: &mut Rng, now: u64, stream: u32) -> Vec<(u64, Act)> {
    let later = now + rng.below(200) * MS;
    match rng.below(24) {
        0 => vec![(later, Act::Reset)],
        1 => vec![(later, Act::End)],
        2 => vec![],
        3 => vec![(later, head(stream, BROKEN, true))],
        4 => vec![(later, Act::Bytes(b"nonsense, and more of it".into()))],
        5 => vec![(later, number(RST_STREAM, stream, rng.below(14) as u32))],
        6 => vec![(later, goaway(rng.below(u64::from(stream) + 4) as u32)), (later + 9 * MS, head(stream, OK, true))],
        7 => vec![(later, goaway(stream)), (later + MS, head(stream, OK, true)), (later + 2 * MS, Act::End)],
        8 => vec![(later, number(RST_STREAM, stream, 7))],
        9 => vec![(later, head(stream, OK, false)), (later + 5 * MS, body(stream, b"cut", false))],
        10 => vec![(later, Act::Bytes(settings(rng.below(5) as u32))), (later, head(stream, OK, true))],
        11 => vec![(later, head(stream, 0x00, true))],
        12 => vec![(later, body(stream, b"before its head", true))],
        13 => vec![(later, number(WINDOW_UPDATE, stream, 0))],
        14 => vec![(later, head(stream, OK, false)), (later + MS, number(RST_STREAM, stream, 8))],
        _ => vec![(later, head(stream, OK, false)), (later + rng.below(20) * MS, body(stream, b"whole", true))],
    }
}

#[test]
fn due_streams_are_answered_late_or_failed() {
    for seed in 0..400 {
        let mut rng = Rng::new(seed);
        let stop = Arc::new(AtomicBool::new(false));
        let mut left = if rng.below(4) == 0 { rng.below(200) } else { u64::MAX };
        let (mut act, stopped) = (Rng::new(seed + 1000), stop.clone());
        let mut sim = server(1 + rng.below(12) as u32, move |now, stream| {
            left = left.saturating_sub(1);
            if left == 0 {
                stopped.store(true, Ordering::Relaxed);
            }
            anything(&mut act, now, stream)
        });
        sim.connect_delay = rng.below(30) * MS;
        if rng.below(5) == 0 {
            sim.ports = rng.below(60) as usize;
        }
        if rng.below(4) == 0 {
            sim.hold_ups = vec![(S / 2, rng.below(800) * MS)];
        }
        let connections = 1 + rng.below(8) as usize;
        let mut job = streams(connections, 0.5 + rng.unit() * 2.0, 1 + rng.below(10) as usize);
        let arrivals = if rng.below(2) == 0 { Arrivals::Fixed } else { Arrivals::Poisson };
        job.model = match rng.below(5) {
            0 => Model::Open { arrivals },
            1 => Model::Connections { arrivals, think: Think { mean: 0.03, random: true } },
            2 => Model::Replay { at: (0..200).map(|i| (f64::from(i) * 0.01, 0)).collect() },
            3 => Model::Closed { think: Think { mean: 0.05, random: true } },
            _ => Model::Closed { think: Think::default() },
        };
        if job.model.is_open() {
            job.profile = Profile::constant(10.0 + rng.unit() * 400.0, job.profile.seconds());
        } else if rng.below(4) == 0 {
            job.profile = Profile::parse("1..20@500ms,20..2@1s").unwrap();
        }
        if !matches!(job.model, Model::Closed { think } if think.mean == 0.0) && rng.below(2) == 0 {
            job.pipeline = 1;
        }
        if rng.below(3) == 0 {
            job.requests[0].expect = Expect { contains: Some("whole".into()), ..Expect::default() };
        }
        if rng.below(3) == 0 {
            job.requests[0].method = "POST".into();
            job.requests[0].body = "x".repeat(rng.below(100_000) as usize);
        }
        job.calls = rng.below(4) as u32;
        job.warmup = if rng.below(2) == 0 { 0.3 } else { 0.0 };
        job.timeout = 0.1 + rng.unit() * 0.4;
        job.connect_timeout = 0.02 + rng.unit();
        job.budget = (rng.below(3) == 0).then(|| 1 + rng.below(300));
        job.interval = 0.1;
        job.seed = seed;
        let (r, done) = play_until(sim, &job, stop);
        let sum = r.in_time + r.late + r.failures.total();
        assert_eq!(r.due, sum, "seed {seed}: {} in time, {} late, {:?} {job:?}", r.in_time, r.late, r.failures);
        let resets: u64 = r.resets.sorted().iter().map(|(_, n)| n).sum();
        assert_eq!(resets, r.failures.of(LoadFailure::StreamReset), "seed {seed}");
        assert!(r.corrected.count() <= r.due && r.raw().count() <= r.due, "seed {seed}");
        assert_eq!(done.timeline.0.iter().map(|c| c.count).sum::<u64>(), r.corrected.count(), "seed {seed}");
        if let (Some(budget), Model::Open { .. } | Model::Closed { .. }) = (job.budget, &job.model) {
            assert!(r.due <= budget, "seed {seed}: {} of {budget}", r.due);
        }
    }
}

#[test]
fn as_many_streams_as_both_sides_want_are_in_flight() {
    for (limit, wanted, most) in [(100, 8, 8), (3, 8, 3)] {
        let open: Rc<Cell<usize>> = Rc::default();
        let highest: Rc<Cell<usize>> = Rc::default();
        let mut ends: BTreeMap<u64, usize> = BTreeMap::new();
        let (count, top) = (open.clone(), highest.clone());
        let sim = server(limit, move |now, stream| {
            let over: Vec<u64> = ends.range(..=now).map(|(at, _)| *at).collect();
            over.iter().for_each(|at| count.set(count.get() - ends.remove(at).unwrap_or(0)));
            *ends.entry(now + 10 * MS).or_default() += 1;
            count.set(count.get() + 1);
            top.set(top.get().max(count.get()));
            vec![(now + 10 * MS, head(stream, OK, true))]
        });
        let (r, _) = play_world(sim, &streams(1, 2.0, wanted));
        assert_eq!(highest.get(), most);
        assert_eq!((r.good + 50) / 100, most as u64 * 2, "{} of {most} streams", r.good);
        assert_eq!(r.failures.total(), 0);
    }
}

#[test]
fn answers_in_any_order_have_their_own_times() {
    // The first of two is answered after 100 ms, the second after 10, its head after 4.
    let sim = server(100, |now, stream| match stream % 4 {
        1 => vec![(now + 100 * MS, head(stream, OK, true))],
        _ => vec![(now + 4 * MS, head(stream, OK, false)), (now + 10 * MS, body(stream, b"ab", true))],
    });
    let mut job = streams(1, 1.0, 2);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(20.0, 1.0);
    job.pipeline = 100;
    let (r, _) = play_world(sim, &job);
    let near = |value: f64, milliseconds: f64| (value * 1e3 - milliseconds).abs() < 0.2;
    assert!(near(r.corrected.quantile(0.3), 10.0) && near(r.corrected.quantile(0.9), 100.0));
    assert!(near(r.first_byte.quantile(0.3), 4.0) && near(r.first_byte.quantile(0.9), 100.0));
    assert_eq!((r.connections, r.body_bytes), (1, 20), "one connection was enough");
}

#[test]
fn a_stall_is_seen_from_the_plan() {
    // No answers between the first and the second second; requests every 10 ms.
    let sim = server(1000, |now, stream| {
        let at = if (S..2 * S).contains(&now) { 2 * S } else { now };
        vec![(at, head(stream, OK, true))]
    });
    let mut job = streams(4, 4.0, 100);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(100.0, 4.0);
    let (r, _) = play_world(sim, &job);
    // A quarter of the requests waits evenly up to 1 s.
    let p = |q: f64| r.corrected.quantile(q);
    assert!(p(0.74) < 0.001 && (p(0.875) - 0.5).abs() < 0.03 && (p(0.99) - 0.96).abs() < 0.03);
}

#[test]
fn a_connection_for_each_request_leaves_none_behind() {
    for (calls, at_a_time) in [(1, 4), (3, 2), (2, 8)] {
        let sim = server(100, |now, stream| vec![(now + MS, head(stream, OK, true))]);
        let mut job = streams(4, 1.0, at_a_time);
        job.calls = calls;
        let (r, _) = play_world(sim, &job);
        assert_eq!((r.failures.total(), r.due), (0, r.in_time + r.late), "{calls} calls");
        assert!(r.corrected.quantile(1.0) < 0.01, "nobody waits for the end: {}", r.corrected.quantile(1.0));
    }
}

#[test]
fn a_burst_makes_as_many_connections_as_its_streams_need() {
    // Holds the client up for 100 ms, in which 2,000 requests become due; connecting takes 20 ms.
    let mut sim = server(100, |now, stream| vec![(now + MS, head(stream, OK, true))]);
    sim.connect_delay = 20 * MS;
    sim.hold_ups = vec![(S / 2, 100 * MS)];
    let mut job = streams(1000, 1.0, 50);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(20_000.0, 1.0);
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.due, r.failures.total()), (20_000, 0));
    // 400 become due during the first connect, 2,000 in the hold-up.
    assert!(r.connections <= 60, "{}", r.connections);
}

#[test]
fn resets_are_told_by_their_codes() {
    let sim = server(100, |now, stream| match (stream / 2) % 4 {
        0 => vec![(now + MS, number(RST_STREAM, stream, 2))],
        1 => vec![(now + MS, number(RST_STREAM, stream, 8))],
        2 => vec![(now + MS, head(stream, NOT_FOUND, true))],
        _ => vec![(now + MS, head(stream, OK, true))],
    });
    let mut job = streams(1, 10.0, 5);
    job.budget = Some(400);
    let (r, done) = play_world(sim, &job);
    assert_eq!((r.due, r.in_time), (400, 100));
    assert!(done.measured < S, "the run ends with its last request: {}", done.measured);
    assert_eq!((r.failures.of(LoadFailure::StreamReset), r.failures.of(LoadFailure::Status)), (200, 100));
    assert_eq!(r.resets.sorted(), [(2, 100), (8, 100)]);
    assert_eq!(r.connections, 0, "the one that was made before the run goes on");
}

#[test]
fn unprocessed_requests_are_repeated() {
    // Every connection is for ten streams; later ones are not processed.
    let sim = server(100, |now, stream| match stream {
        19 => vec![(now + MS, goaway(19)), (now + 3 * MS, head(stream, OK, true))],
        21.. => vec![],
        _ => vec![(now + 2 * MS, head(stream, OK, true))],
    });
    let mut job = streams(2, 20.0, 4);
    job.budget = Some(1000);
    let (r, done) = play_world(sim, &job);
    assert_eq!((r.due, r.in_time, r.failures.total()), (1000, 1000, 0));
    assert!(done.measured < 2 * S, "{}", done.measured);
    assert!(r.again > 100 && r.connections >= 98, "{} again, {} connections", r.again, r.connections);

    let sim = server(100, |now, stream| vec![(now + MS, number(RST_STREAM, stream, 7))]);
    let mut job = streams(1, 1.0, 2);
    job.budget = Some(20);
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.failures.of(LoadFailure::Refused), r.again), (20, 60));
    assert_eq!(r.resets.sorted(), []);
}

#[test]
fn a_stream_is_given_up_and_its_connection_is_not() {
    let sim = server(100, |now, stream| match (stream / 2) % 3 {
        0 => vec![],
        _ => vec![(now + MS, head(stream, OK, true))],
    });
    let mut job = streams(1, 1.0, 6);
    job.timeout = 0.1;
    let (r, _) = play_world(sim, &job);
    let late = r.failures.of(LoadFailure::Timeout) + r.failures.of(LoadFailure::Unfinished);
    assert_eq!(r.failures.total(), late);
    assert!(late >= 9 && r.in_time > 10, "{late} late, {} answered", r.in_time);
    let sim = server(100, |_, _| vec![]);
    let mut job = streams(1, 1.0, 6);
    job.timeout = 0.1;
    let (r, _) = play_world(sim, &job);
    assert!(r.connections >= 5 && r.in_time == 0);
    assert!((r.corrected.quantile(0.5) - 0.1).abs() < 0.002, "what it waited, and no more");
}

#[test]
fn a_request_with_a_body_waits_for_the_window() {
    // 65,535 octets go at once; the rest when the server opens stream and connection 50 ms later.
    let sim = server(100, |now, stream| {
        let open = |id| (now + 50 * MS, number(WINDOW_UPDATE, id, 1 << 20));
        vec![open(0), open(stream), (now + 60 * MS, head(stream, OK, true))]
    });
    let mut job = streams(1, 1.0, 1);
    job.requests = vec![RequestSpec { method: "POST".into(), body: "x".repeat(200_000), ..RequestSpec::get("/") }];
    job.budget = Some(3);
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.due, r.in_time), (3, 3));
}

#[test]
fn an_answer_of_another_length_is_cut() {
    // content-length: 5 (literal, indexed name), and two octets.
    let sim = server(100, |now, stream| {
        let head = frame(HEADERS, 4, stream, &[OK, 0x0f, 13, 1, b'5']);
        vec![(now + MS, Act::Bytes(head)), (now + 2 * MS, body(stream, b"ab", true))]
    });
    let mut job = streams(1, 1.0, 3);
    job.budget = Some(9);
    let (r, _) = play_world(sim, &job);
    assert_eq!(r.failures.of(LoadFailure::Truncated), 9);
}
