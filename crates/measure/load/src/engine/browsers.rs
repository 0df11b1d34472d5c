//! Tests of users with several connections: groups of parallel steps over a virtual network.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use super::job::{Http2, Job, Model, Think};
use super::request::RequestSpec;
use super::sim::{Act, Sim, play_world, sim_job, status_answer};

const MS: u64 = 1_000_000;

fn step(path: &str, parallel: bool) -> RequestSpec {
    RequestSpec { parallel, ..RequestSpec::get(path) }
}

/// A page whose number is in the paths of its five pictures, and the order behind it.
fn page() -> Vec<RequestSpec> {
    let mut steps = vec![RequestSpec {
        extract: [("page".to_string(), "json:/page".to_string())].into(),
        ..step("/page/{{seq}}", false)
    }];
    steps.extend((0..5).map(|i| step(&format!("/picture{i}?of={{{{var:page}}}}"), i > 0)));
    steps.push(step("/order?of={{var:page}}", false));
    steps
}

fn browsers(users: usize, lanes: usize) -> Job {
    Job { requests: page(), session: true, connections_each: lanes, ..sim_job(users, 1.0) }
}

/// Requests of a server by time and slot: 10 ms for a picture, 1 ms for others.
type Log = Arc<Mutex<Vec<(u64, usize, String)>>>;

fn shop(log: &Log) -> Sim {
    let (log, mut number) = (log.clone(), 0);
    Sim::new(Box::new(move |now, slot, head| {
        let path = head.split(' ').nth(1).unwrap_or("").to_string();
        number += 1;
        log.lock().unwrap().push((now, slot, path.clone()));
        let body = if path.starts_with("/page") { format!("{{\"page\": {number}}}") } else { "ok".into() };
        let delay = if path.starts_with("/picture") { 10 } else { 1 };
        vec![(now + delay * MS, status_answer(200, &body))]
    }))
}

#[test]
fn parallel_steps_use_the_connections_of_their_user_and_no_more() {
    for lanes in [1, 3, 6] {
        let log = Log::default();
        let (r, done) = play_world(shop(&log), &browsers(2, lanes));
        assert_eq!((r.failures.total(), done.users, r.due), (0, 2, r.in_time + r.late));
        let log = log.lock().unwrap();
        let slots: BTreeSet<usize> = log.iter().map(|(_, slot, _)| *slot).collect();
        // Five pictures use five of six connections.
        assert_eq!(slots.len(), 2 * lanes.min(5), "{lanes}");
        // The pictures of a page are sent in as few waves as the connections allow, and the order comes behind all.
        let mut times: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for (at, _, path) in log.iter() {
            if let Some((_, page)) = path.split_once("?of=") {
                times.entry(page).or_default().push(*at);
            }
        }
        let whole: Vec<_> = times.values().filter(|times| times.len() == 6).collect();
        assert!(whole.len() >= 20, "{lanes}: {}", whole.len());
        for times in whole {
            let waves = 5_u64.div_ceil(lanes as u64);
            assert_eq!((times[4] - times[0], times[5] - times[0]), ((waves - 1) * 10 * MS, waves * 10 * MS), "{lanes}");
        }
    }
}

#[test]
fn a_wait_for_a_connection_is_part_of_the_latency() {
    let (r, _) = play_world(shop(&Log::default()), &browsers(1, 2));
    // Two pictures at a time: the fifth waits for two others of 10 ms.
    assert_eq!((r.corrected.quantile(1.0) * 1e3).round(), 30.0);
    assert_eq!((r.raw().quantile(1.0) * 1e3).round(), 10.0);
}

#[test]
fn users_pause_once_behind_a_group() {
    let log = Log::default();
    let mut job = browsers(1, 6);
    job.model = Model::Closed { think: Think { mean: 0.05, random: false } };
    job.requests[2].think = "100ms".into();
    play_world(shop(&log), &job);
    let log = log.lock().unwrap();
    let at = |index: usize| log[index].0 / MS;
    // The page takes 1 ms, pictures 10 ms; the longest pause of the pictures comes before the order.
    assert_eq!([at(1) - at(0), at(5) - at(1), at(6) - at(5), at(7) - at(6)], [51, 0, 110, 51]);
}

#[test]
fn a_failed_request_ends_the_session_behind_its_group() {
    let log = Log::default();
    let seen = log.clone();
    let sim = Sim::new(Box::new(move |now, slot, head| {
        let path = head.split(' ').nth(1).unwrap_or("").to_string();
        seen.lock().unwrap().push((now, slot, path.clone()));
        match path.starts_with("/picture2") {
            true => vec![(now + MS, Act::Reset)],
            false => vec![(now + MS, status_answer(200, "{\"page\": 1}"))],
        }
    }));
    let (r, _) = play_world(sim, &browsers(1, 6));
    let log = log.lock().unwrap();
    let count = |of: &str| log.iter().filter(|(_, _, path)| path.starts_with(of)).count();
    assert!(count("/page") > 50 && count("/order") == 0, "{} pages", count("/page"));
    assert!(count("/picture4").abs_diff(count("/page")) <= 1, "the others of the group are sent");
    assert_eq!(r.due, r.in_time + r.late + r.failures.total());
}

#[test]
fn parallel_steps_are_streams_of_one_connection() {
    let slots = Arc::<Mutex<Vec<(u64, usize)>>>::default();
    let seen = slots.clone();
    let frame = |kind: u8, flags: u8, stream: u32, payload: &[u8]| {
        let length = (payload.len() as u32).to_be_bytes();
        [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
    };
    let mut sim = Sim::new(Box::new(move |now, slot, stream| {
        seen.lock().unwrap().push((now, slot));
        // `:status` 200 and the end of the stream.
        vec![(now + MS, Act::Bytes(frame(1, 5, stream.parse().unwrap(), &[0x88])))]
    }));
    sim.settings = Some(frame(4, 0, 0, &[]));
    let mut job = browsers(3, 6);
    (job.http2, job.pipeline) = (Some(Http2::default()), 100);
    job.requests.iter_mut().for_each(|step| {
        step.extract.clear();
        step.path = "/".into();
    });
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.failures.total(), r.due), (0, r.in_time + r.late));
    let slots = slots.lock().unwrap();
    assert_eq!(slots.iter().map(|(_, slot)| slot).collect::<BTreeSet<_>>().len(), 3);
    let mut waves: BTreeMap<u64, usize> = BTreeMap::new();
    slots.iter().filter(|(_, slot)| *slot == 0).for_each(|(at, _)| *waves.entry(*at).or_default() += 1);
    let waves: Vec<usize> = waves.into_values().take(6).collect();
    assert_eq!(waves, [1, 5, 1, 1, 5, 1], "a page, its pictures, the order");
}
