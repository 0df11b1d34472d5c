//! Tests against analytic percentiles: a scripted server with delays and stalls on a virtual clock. The second half
//! shows that known defects of other load generators are absent.

use super::failure::LoadFailure;
use super::job::{Model, Think};
use super::profile::{Arrivals, Profile};
use super::request::{Expect, RequestSpec};
use super::sim::{Act, Sim, ok_answer, play_world, sim_job, status_answer};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;

/// Answers after `delay`; stalls for `stall` at the start of every `period`.
fn stalling(delay: u64, stall: u64, period: u64) -> Sim {
    Sim::new(Box::new(move |now, _, _| {
        let into = now % period;
        let start = if into < stall { now - into + stall } else { now };
        vec![(start + delay, ok_answer())]
    }))
}

pub fn assert_near(value: f64, expected: f64, tolerance: f64) {
    assert!((value - expected).abs() <= tolerance, "{value} is not {expected} ± {tolerance}");
}

#[test]
fn an_open_loop_yields_the_analytic_percentiles_of_a_stalling_server() {
    // A stall of T = 1 s every P = 10 s: a share f = T/P waits uniformly up to T. So the quantile q > 1 − f is d + T·(1
    // − (1 − q)/f), and the mean d + f·T/2.
    for arrivals in [Arrivals::Fixed, Arrivals::Poisson] {
        let mut job = sim_job(1500, 100.0);
        job.model = Model::Open { arrivals };
        job.profile = Profile::constant(1000.0, 100.0);
        job.timeout = 30.0;
        let (r, _) = play_world(stalling(MS, S, 10 * S), &job);
        let l = &r.corrected;
        assert_eq!(r.failures.total(), 0);
        assert_eq!(l.count(), r.due);
        let rough = if arrivals == Arrivals::Fixed { 0.003 } else { 0.03 };
        assert_near(l.quantile(0.5), 0.001, 1e-5);
        assert_near(l.quantile(0.89), 0.001, 0.05);
        for q in [0.92, 0.95, 0.99, 0.999] {
            assert_near(l.quantile(q), 0.001 + (1.0 - (1.0 - q) / 0.1), rough);
        }
        assert_near(l.mean(), 0.001 + 0.1 * 0.5, rough);
        assert_near(l.range().1, 1.001, rough);
    }
}

#[test]
fn few_connections_do_not_hide_the_stall() {
    // With ten connections, 990 requests of each stall wait for one: fast from the send, slow from the plan. The queue
    // then empties at 10/ms.
    let mut job = sim_job(10, 50.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(1000.0, 50.0);
    let (r, _) = play_world(stalling(100_000, S, 10 * S), &job);
    assert_near(r.corrected.quantile(0.95), 0.5, 0.02);
    assert_near(r.corrected.quantile(0.99), 0.9, 0.02);
    assert_near(r.raw().quantile(0.99), 0.000_1, 1e-5);
    assert!(r.lag.quantile(0.999) < 1e-6, "the generator itself was never late");
}

#[test]
fn a_closed_loop_says_what_its_few_users_saw() {
    // The known blindness of closed loops: ten users, one long wait each in ten seconds.
    let (r, done) = play_world(stalling(MS, S, 10 * S), &sim_job(10, 50.0));
    assert_eq!(done.measured, 50 * S);
    assert_near(r.corrected.quantile(0.99), 0.001, 1e-5);
    assert_near(r.corrected.range().1, 1.001, 0.002);
    assert_near(r.answers as f64, 10.0 * 45_000.0, 200.0);
}

#[test]
fn a_single_server_queue_agrees_with_the_formula() {
    // M/D/1 at ρ = 0.8: mean wait ρ/(2(1−ρ))·S = 2·S, so the mean response is 3·S.
    let mut free_at = 0;
    let sim = Sim::new(Box::new(move |now, _, _| {
        free_at = now.max(free_at) + MS;
        vec![(free_at, ok_answer())]
    }));
    let mut job = sim_job(500, 400.0);
    job.model = Model::Open { arrivals: Arrivals::Poisson };
    job.profile = Profile::constant(800.0, 400.0);
    let (r, _) = play_world(sim, &job);
    assert_near(r.corrected.mean(), 0.003, 0.000_15);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    let mut free_at = 0;
    let even = Sim::new(Box::new(move |now, _, _| {
        free_at = now.max(free_at) + MS;
        vec![(free_at, ok_answer())]
    }));
    assert_near(play_world(even, &job).0.corrected.range().1, 0.001, 1e-5);
}

#[test]
fn think_time_obeys_littles_law() {
    // N = X·(R + Z): 50 users, 10 ms answers and 90 ms think time make 500 requests/s.
    let mut job = sim_job(50, 20.0);
    job.model = Model::Closed { think: Think { mean: 0.09, random: true } };
    let (r, _) = play_world(stalling(10 * MS, 0, S), &job);
    assert_near(r.answers as f64 / 20.0, 500.0, 12.0);
    assert_near(r.corrected.quantile(0.999), 0.010, 1e-4);
}

#[test]
fn users_come_and_go_with_the_profile() {
    let mut job = sim_job(0, 0.0);
    job.profile = Profile::parse("0..100@10s,100@5s,10@5s").unwrap();
    let (r, _) = play_world(stalling(10 * MS, 0, S), &job);
    assert_near(r.answers as f64, 105_000.0, 1500.0);
}

#[test]
fn a_connection_run_opens_one_connection_for_each_arrival() {
    let mut job = sim_job(100, 10.0);
    job.model = Model::Connections { arrivals: Arrivals::Fixed, think: Think::default() };
    job.profile = Profile::constant(200.0, 10.0);
    job.calls = 3;
    let mut sim = stalling(2 * MS, 0, S);
    sim.connect_delay = MS;
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.connections, r.failures.total()), (2000, 0));
    assert_near(r.answers as f64, 6000.0, 6.0);
    assert_near(r.connect.quantile(0.5), 0.001, 1e-5);
    // A session's first request is timed from the plan, including the connect; others from the previous answer.
    assert_near(r.corrected.range().1, 0.003, 1e-5);
    assert_near(r.corrected.quantile(0.5), 0.002, 1e-5);
}

#[test]
fn users_who_wait_in_vain_are_counted() {
    let sim = Sim::new(Box::new(|now, slot, _| if slot < 3 { vec![] } else { vec![(now + MS, ok_answer())] }));
    let (r, done) = play_world(sim, &sim_job(10, 2.0));
    assert_eq!((done.users, done.starved), (10, 3));
    assert_eq!(r.failures.of(LoadFailure::Timeout), 3);
    // Thinking users are not starved, nor those with a slow first answer.
    let mut slow = sim_job(10, 2.0);
    slow.model = Model::Closed { think: Think { mean: 100.0, random: false } };
    assert_eq!(play_world(stalling(MS, 0, S), &slow).1.starved, 0);
    assert_eq!(play_world(stalling(900 * MS, 0, S), &sim_job(10, 2.0)).1.starved, 0);
}

#[test]
fn the_last_answer_of_a_server_that_dies_is_known() {
    let dying = |end: u64| {
        Sim::new(Box::new(move |now, _, _| vec![if now < end { (now + MS, ok_answer()) } else { (now, Act::Reset) }]))
    };
    let (r, done) = play_world(dying(1500 * MS), &sim_job(3, 4.0));
    assert!(r.failures.total() < r.answers / 10, "failed users wait: {} of {}", r.failures.total(), r.answers);
    assert_near(done.last_answer as f64 * 1e-9, 1.5, 0.01);
    assert_near(done.last_failure as f64 * 1e-9, 4.0, 0.1);
    let (_, done) = play_world(dying(u64::MAX), &sim_job(3, 4.0));
    assert!(done.last_answer >= 4 * S - 2 * MS && done.last_failure == 0, "{done:?}");
}

#[test]
fn the_end_of_a_run_cuts_nobody_off() {
    // Connects take 5 ms, so some are always in progress at the end: their requests count too.
    for model in [
        Model::Closed { think: Think::default() },
        Model::Connections { arrivals: Arrivals::Fixed, think: Think::default() },
    ] {
        let mut sim = stalling(MS, 0, S);
        sim.connect_delay = 5 * MS;
        let mut job = sim_job(20, 1.0);
        job.model = model;
        job.calls = 1;
        if job.model.is_open() {
            job.profile = Profile::constant(777.0, 1.0);
        }
        let (r, _) = play_world(sim, &job);
        assert_eq!(r.failures.total(), 0, "{:?}", r.failures);
        assert_eq!(r.corrected.count(), r.due);
    }
}

#[test]
fn warm_up_is_left_out_and_late_answers_are_not() {
    let mut job = sim_job(1000, 1.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(100.0, 1.0);
    job.warmup = 1.0;
    let (r, done) = play_world(stalling(700 * MS, 0, S), &job);
    assert_eq!((r.due, r.corrected.count(), done.measured), (100, 100, S));
    // Answers within the second may belong to the warm-up: throughput counts arrivals.
    assert_near(r.answers as f64, 100.0, 1.0);
    assert_eq!(r.failures.total(), 0);
}

#[test]
fn a_budget_ends_the_run() {
    let mut job = sim_job(7, 1000.0);
    job.budget = Some(1234);
    let (r, done) = play_world(stalling(MS, 0, S), &job);
    assert_eq!((r.answers, r.corrected.count()), (1234, 1234));
    assert!(done.measured < S);
}

#[test]
fn no_sample_is_invented() {
    // Back-filling with a wrong interval would halve the median of 100 ms. Here every request is one sample.
    let mut job = sim_job(10, 20.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(100.0, 20.0);
    let (r, _) = play_world(stalling(100 * MS, 0, S), &job);
    assert_eq!((r.corrected.count(), r.due), (2000, 2000));
    assert_near(r.corrected.quantile(0.5), 0.1, 1e-4);
    assert_near(r.corrected.quantile(0.01), 0.1, 1e-4);
}

#[test]
fn requests_of_a_stalled_connection_move_to_others() {
    // Slot 0 never answers: with a schedule per connection, its due requests would wait.
    let sim = Sim::new(Box::new(|now, slot, _| if slot == 0 { vec![] } else { vec![(now + MS, ok_answer())] }));
    let mut job = sim_job(4, 10.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(100.0, 10.0);
    job.timeout = 60.0;
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.good, r.failures.of(LoadFailure::Timeout), r.failures.total()), (999, 1, 1));
    assert_near(r.corrected.quantile(0.99), 0.001, 1e-4);
}

#[test]
fn a_burst_makes_no_more_connections_than_can_be_made_at_once() {
    // A connect takes 50 ms: a thousand requests are due before the first succeeds; each then takes 0.1 ms.
    let mut job = sim_job(10_000, 2.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(20_000.0, 2.0);
    let mut sim = stalling(100_000, 0, S);
    sim.connect_delay = 50 * MS;
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.due, r.in_time + r.late, r.failures.total()), (40_000, 40_000, 0));
    assert!(r.connections <= 256, "{} connections", r.connections);
    assert_near(r.corrected.range().1, 0.0501, 0.001);
    assert_near(r.corrected.quantile(0.5), 0.0001, 1e-5);
    // Slow answers double the connections each time, as far as needed.
    let mut slow = stalling(1000 * MS, 0, S);
    slow.connect_delay = 50 * MS;
    job.profile = Profile::constant(2000.0, 2.0);
    let (r, _) = play_world(slow, &job);
    assert_eq!((r.in_time + r.late, r.failures.total()), (4000, 0));
    assert!((1900..2600).contains(&r.connections), "{} connections", r.connections);
    assert!(r.corrected.range().1 < 1.4, "{}", r.corrected.range().1);
}

#[test]
fn the_generators_own_lateness_is_part_of_the_time_and_shown_apart() {
    // The client is held up for 0.5 s (paging, a busy core); 500 requests become due.
    let mut sim = stalling(100_000, 0, S);
    sim.hold_ups = vec![(S, S / 2)];
    let mut job = sim_job(1000, 3.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(1000.0, 3.0);
    let (r, _) = play_world(sim, &job);
    assert_near(r.lag.range().1, 0.5, 0.002);
    assert_near(r.lag.share_above(0.001), 0.5 / 3.0, 0.01);
    assert_near(r.corrected.range().1, 0.5, 0.002);
    assert_near(r.corrected.quantile(1.0 - 0.25 / 3.0), 0.25, 0.01);
    assert!(r.raw().quantile(0.99) < 0.01, "from the send alone nothing would be seen");
}

#[test]
fn sends_follow_the_plan_and_do_not_come_in_bursts() {
    let sim = stalling(MS, 0, S);
    let arrivals = sim.arrivals.clone();
    let mut job = sim_job(20, 1.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(5000.0, 1.0);
    play_world(sim, &job);
    let times: Vec<u64> = arrivals.borrow().iter().map(|a| a.0).collect();
    assert_eq!(times.len(), 5000);
    assert!(times.windows(2).all(|w| (199_000..201_000).contains(&(w[1] - w[0]))));
}

#[test]
fn the_tail_is_not_cut_at_the_timeout() {
    // One request in a hundred is never answered: an error, whose wait is in the histogram.
    let mut count = 0;
    let sim = Sim::new(Box::new(move |now, _, _| {
        count += 1;
        if count % 100 == 0 { vec![] } else { vec![(now + MS, ok_answer())] }
    }));
    let mut job = sim_job(50, 20.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(100.0, 20.0);
    job.timeout = 2.0;
    let (r, _) = play_world(sim, &job);
    assert_eq!(r.failures.of(LoadFailure::Timeout), 20);
    assert_eq!(r.corrected.count(), 2000);
    assert!(r.corrected.quantile(0.995) >= 2.0 && r.corrected.range().1 < 2.2);
}

#[test]
fn a_long_run_keeps_every_sample() {
    // Other tools keep the first million samples, or a sample.
    let mut job = sim_job(100, 120.0);
    job.interval = 10.0;
    let (r, _) = play_world(stalling(10 * MS, 0, S), &job);
    assert_eq!(r.corrected.count(), r.due);
    assert!(r.answers > 1_100_000);
}

#[test]
fn a_wanted_404_is_a_success_and_a_502_beside_it_is_not() {
    let mut count = 0;
    let sim = Sim::new(Box::new(move |now, _, _| {
        count += 1;
        vec![(
            now + MS,
            if count % 10 == 0 { status_answer(502, "bad gateway") } else { status_answer(404, "not found") },
        )]
    }));
    let mut job = sim_job(1, 1.0);
    job.requests =
        vec![RequestSpec { expect: Expect { status: vec![404], ..Expect::default() }, ..RequestSpec::get("/nothing") }];
    let (r, _) = play_world(sim, &job);
    assert!((r.failures.of(LoadFailure::Status) + r.good).abs_diff(r.answers) <= 1);
    assert_near(r.failures.of(LoadFailure::Status) as f64 / r.answers as f64, 0.1, 0.01);
    assert_eq!(r.statuses.sorted()[0].0, 404);
}

#[test]
fn requests_left_by_an_overloaded_server_count_with_their_wait() {
    // Capacity 1,000/s, offered 4,000/s: neither drops the excess nor calls the backlog a latency of the server.
    let mut free_at = 0;
    let sim = Sim::new(Box::new(move |now, _, _| {
        free_at = now.max(free_at) + MS;
        vec![(free_at, ok_answer())]
    }));
    let mut job = sim_job(20, 5.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(4000.0, 5.0);
    let (r, _) = play_world(sim, &job);
    assert_near(r.answers as f64 / 5.0, 1000.0, 10.0);
    assert_eq!(r.due, 20_000);
    assert_eq!(r.corrected.count(), 20_000, "each due request is in the histogram");
    assert_near(r.failures.of(LoadFailure::Unsent) as f64, 15_000.0, 100.0);
}

#[test]
fn an_impossible_rate_ends_in_time_and_is_counted_in_full() {
    // At a billion requests a second offered, the server's 10,000/s still come through.
    let mut free_at = 0;
    let sim = Sim::new(Box::new(move |now, _, _| {
        free_at = now.max(free_at) + MS / 10;
        vec![(free_at, ok_answer())]
    }));
    let mut job = sim_job(20, 0.05);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(1e9, 0.05);
    let waits = sim.waits.clone();
    let (r, done) = play_world(sim, &job);
    assert_eq!((r.due, done.measured), (50_000_000, S / 20));
    assert_near(r.answers as f64, 500.0, 10.0);
    assert_near(r.failures.of(LoadFailure::Unsent) as f64, 50e6, 1000.0);
    // The client rests while its queue is full, instead of taking up each of them.
    assert!(waits.get() < 1_010_000, "{} waits", waits.get());
}

#[test]
fn a_full_queue_loses_no_wait_and_counts_no_warm_up() {
    // More requests than the queue holds, for a server that answers 1,000/s.
    let mut free_at = 0;
    let sim = Sim::new(Box::new(move |now, _, _| {
        free_at = now.max(free_at) + MS;
        vec![(free_at, ok_answer())]
    }));
    let mut job = sim_job(20, 0.5);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    (job.profile, job.warmup) = (Profile::constant(3e6, 0.5), 0.1);
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.due, r.corrected.count()), (1_500_000, 1_500_000), "each due request is in the histogram");
    // The answers in the measured time belong to the warm-up.
    assert_eq!(r.failures.of(LoadFailure::Unsent), r.due);
}

#[test]
fn failures_have_their_class() {
    let mut refused = stalling(MS, 0, S);
    refused.refuse = true;
    let (r, _) = play_world(refused, &sim_job(3, 1.0));
    assert!(r.failures.of(LoadFailure::ConnectRefused) > 100 && r.answers == 0, "and no busy loop: {:?}", r.failures);
    assert!(r.failures.total() < 200);

    let mut act = 0;
    let breaking = Sim::new(Box::new(move |now, _, _| {
        act += 1;
        match act % 5 {
            0 => vec![(now + MS, Act::End)],
            1 => vec![(now + MS, Act::Reset)],
            2 => vec![
                (now + MS, Act::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf".into())),
                (now + 2 * MS, Act::End),
            ],
            3 => vec![(now + MS, Act::Bytes(b"garbage\r\n\r\n".into()))],
            _ => vec![(now + MS, ok_answer())],
        }
    }));
    let (r, _) = play_world(breaking, &sim_job(1, 2.0));
    for class in [LoadFailure::ClosedEarly, LoadFailure::Reset, LoadFailure::Truncated, LoadFailure::Protocol] {
        assert!(r.failures.of(class) > 5, "{class:?}: {:?}", r.failures);
    }
    assert!(r.good > 5);
}

#[test]
fn an_idle_connection_that_the_server_closes_is_no_failure() {
    let sim = Sim::new(Box::new(|now, _, _| vec![(now + MS, ok_answer()), (now + 50 * MS, Act::End)]));
    let mut job = sim_job(5, 5.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(10.0, 5.0);
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.good, r.failures.total()), (50, 0));
    assert!(r.idle_closed >= 45 && r.connections >= 45);
}

#[test]
fn a_long_queue_that_finds_no_port_is_counted_and_no_more() {
    // Ten connections hang before 100,000 waiting requests; when they time out, no port is left.
    let mut sim = Sim::new(Box::new(|_, _, _| vec![]));
    sim.ports = 10;
    let mut job = sim_job(10, 4.0);
    job.model = Model::Open { arrivals: Arrivals::Fixed };
    job.profile = Profile::constant(50_000.0, 4.0);
    job.timeout = 2.0;
    let (r, _) = play_world(sim, &job);
    assert_eq!(r.due, 200_000);
    assert_eq!(r.failures.total(), 200_000);
    assert_eq!(r.failures.of(LoadFailure::Timeout), 10);
    assert!(r.failures.of(LoadFailure::PortsExhausted) > 150_000, "{:?}", r.failures);
}

#[test]
fn bodies_are_checked_when_asked_for() {
    let mut count = 0;
    let sim = Sim::new(Box::new(move |now, _, _| {
        count += 1;
        vec![(now + MS, status_answer(200, if count % 2 == 0 { "hello world" } else { "error page" }))]
    }));
    let mut job = sim_job(1, 0.5);
    job.requests[0].expect.contains = Some("hello".into());
    let (r, _) = play_world(sim, &job);
    assert!(r.failures.of(LoadFailure::Body).abs_diff(r.good) <= 1 && r.good > 200);
}

#[test]
fn pipelining_keeps_its_depth() {
    let sim = stalling(10 * MS, 0, S);
    let mut job = sim_job(2, 5.0);
    job.pipeline = 8;
    let (r, _) = play_world(sim, &job);
    assert_near(r.answers as f64 / 5.0, 2.0 * 8.0 * 100.0, 20.0);
}

#[test]
fn requests_behind_an_announced_close_are_sent_again() {
    // Each connection is sent six requests: two before the third response announces the close, which it does not answer.
    let mut count = 0;
    let closing = || Act::Bytes(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n".to_vec());
    let sim = Sim::new(Box::new(move |now, _, _| {
        count += 1;
        match count % 6 {
            1 | 2 => vec![(now + MS, ok_answer())],
            3 => vec![(now + MS, closing()), (now + MS, Act::End)],
            _ => vec![],
        }
    }));
    let mut job = sim_job(1, 5.0);
    job.pipeline = 4;
    job.budget = Some(300);
    let (r, _) = play_world(sim, &job);
    assert_eq!((r.due, r.in_time, r.failures.total()), (300, 300, 0), "{:?}", r.failures);
    assert!(r.again >= 290, "{}", r.again);
}

#[test]
fn replay_keeps_times_and_targets() {
    let sim = stalling(MS, 0, S);
    let arrivals = sim.arrivals.clone();
    let mut job = sim_job(10, 3.0);
    job.requests = vec![RequestSpec::get("/a"), RequestSpec::get("/b")];
    job.model = Model::Replay { at: vec![(0.5, 0), (0.5, 1), (2.25, 0)] };
    let (r, _) = play_world(sim, &job);
    assert_eq!(arrivals.borrow().iter().map(|a| a.0).collect::<Vec<_>>(), [S / 2, S / 2, 2250 * MS]);
    assert_eq!(r.good, 3);
}
