//! Whole connections over a network with faults.

mod pair;

use http_types::StreamMux;
use pair::{Answers, Echo, Faults, Random, World, get, lines};
use std::collections::HashMap;
use std::time::Duration;
use wire_h3::client::Client;
use wire_h3::{Congestion, Limits, Server};

fn body(length: usize) -> Vec<u8> {
    (0..length).map(|at| (at % 251) as u8).collect()
}

#[test]
fn requests_of_all_kinds_are_answered() {
    let limits = Limits::default();
    let mut pair = World::new(&limits).client(limits, Faults::default());
    let (mut echo, mut answers) = (Echo::default(), Answers::default());
    let mut streams = Vec::new();
    pair.run(|server, client| {
        answers.take(client);
        if answers.connected.is_some() && streams.is_empty() {
            for path in ["/", "/early-hints", "/trailers", "/size/0", "/size/300000"] {
                streams.push(client.open(&mut lines(&get(path)), true).expect("a stream"));
            }
            let post = [(":method", "POST"), (":scheme", "https"), (":authority", "a"), (":path", "/p"), ("x-y", "z")];
            let stream = client.open(&mut lines(&post), false).expect("a stream");
            assert_eq!(client.send_body(stream, b"some words", false), 10);
            client.send_trailers(stream, &mut lines(&[("x-t", "u")]));
            streams.push(stream);
            streams.push(client.open(&mut lines(&[(":method", "GET"), ("connection", "x")]), true).expect("a stream"));
        }
        echo.act(server);
        streams.len() == 7 && streams.iter().all(|id| answers.of.get(id).is_some_and(|a| a.done))
    });
    let of = |n: usize| &answers.of[&streams[n]];
    assert_eq!((of(0).status, of(0).body.len()), (200, 0));
    assert_eq!((of(1).interim.as_slice(), of(1).status), (&[103][..], 200));
    assert_eq!(of(2).trailers, [("x-sum".to_string(), "1".to_string())]);
    assert_eq!((of(3).status, of(3).body.len()), (200, 0));
    assert_eq!(of(4).body, body(300_000));
    assert_eq!((of(5).status, of(5).body.as_slice()), (200, &b"some words"[..]));
    assert_eq!(of(6).status, 400);
    let settings = answers.settings.expect("settings");
    assert!(settings.extended_connect && settings.table_capacity == 4096 && settings.blocked_streams == 16);
    let server = pair.server.as_mut().expect("a server");
    assert!(server.is_idle() && server.streams() == 0 && server.unsent() == 0, "{} streams", server.streams());
    assert_eq!(server.answered(), 7);
    // The tables of both sides are in use: the next request and its answer are short.
    pair.run_for(std::time::Duration::from_millis(200), |_, _| {});
}

/// Sends four megabytes, eight times the octets that a connection may queue.
#[test]
fn large_responses_share_what_a_connection_may_queue() {
    let limits = Limits::default();
    let mut pair = World::new(&limits).client(limits, Faults::default());
    let (mut echo, mut answers) = (Echo::default(), Answers::default());
    let mut streams = Vec::new();
    let mut unsent = 0;
    pair.run(|server, client| {
        answers.take(client);
        if answers.connected.is_some() && streams.is_empty() {
            streams = (0..40).filter_map(|_| client.open(&mut lines(&get("/size/100000")), true)).collect();
        }
        echo.act(server);
        unsent = unsent.max(server.unsent());
        streams.len() == 40 && streams.iter().all(|id| answers.of.get(id).is_some_and(|a| a.done))
    });
    assert!(streams.iter().all(|id| answers.of[id].body == body(100_000)));
    assert!(unsent <= (512 + 64) * 1024 + 40 * (16 * 1024 + 100), "{unsent}");
}

/// Random requests: each gets its response, whatever the network does.
fn course(seed: u64, faults: Faults) {
    let congestion = [Congestion::Cubic, Congestion::Bbr, Congestion::NewReno][seed as usize % 3];
    let limits = Limits { streams_max: 10, stream_window: 4096, congestion, ..Limits::default() };
    let mut pair = World::new(&limits).client(limits, faults);
    let (mut echo, mut answers, mut random) = (Echo::default(), Answers::default(), Random::new(seed | 1));
    let mut wanted: HashMap<u64, Vec<u8>> = HashMap::new();
    let mut sending: Vec<(u64, usize)> = Vec::new();
    let mut cancelled = 0;
    let mut begun = 0;
    pair.run(|server, client| {
        answers.take(client);
        if answers.connected.is_some() && begun < 30 {
            let length = random.below(200_000) as usize;
            let path = format!("/size/{length}");
            let is_post = random.below(3) == 0;
            let mut fields = get(&path).to_vec();
            if is_post {
                fields[0].1 = "POST";
                fields[3].1 = "/echo";
            }
            let name = format!("value {}", random.below(5));
            fields.push(("x-some", &name));
            if let Some(stream) = client.open(&mut lines(&fields), !is_post) {
                begun += 1;
                match random.below(10) {
                    0 => {
                        client.cancel(stream);
                        cancelled += 1;
                    }
                    _ => {
                        wanted.insert(stream, body(length));
                        if is_post {
                            sending.push((stream, 0));
                        }
                    }
                }
            }
        }
        for (stream, at) in &mut sending {
            *at += client.send_body(*stream, &wanted[stream][*at..], true);
        }
        echo.act(server);
        assert!(server.unsent() <= 10 * 64 * 1024 && server.streams() <= 10, "bounds, seed {seed}");
        begun == 30 && wanted.keys().all(|id| answers.of.get(id).is_some_and(|a| a.done))
    });
    assert_eq!((pair.client.failure(), pair.server.as_ref().and_then(Server::failure)), (None, None));
    for (stream, body) in &wanted {
        assert!(answers.of[stream].body == *body, "seed {seed}, stream {stream}");
    }
    assert!(cancelled < 30);
}

#[test]
fn courses_over_a_good_network() {
    for seed in 1..6 {
        course(seed, Faults { seed, ..Faults::default() });
    }
}

#[test]
fn courses_over_a_bad_network() {
    for seed in 1..13 {
        course(seed, Faults { seed, loss: 30 * (seed % 4), twice: 20, late: 100 });
    }
}

/// Virtual time of a response of 3 MB over a path that loses 2 % of the datagrams.
fn time_over_a_lossy_path(congestion: Congestion) -> Duration {
    let limits = Limits { congestion, ..Limits::default() };
    let mut pair = World::new(&limits).client(limits, Faults { seed: 7, loss: 20, ..Faults::default() });
    let (mut echo, mut answers, mut stream) = (Echo::default(), Answers::default(), None);
    pair.run(|server, client| {
        answers.take(client);
        if answers.connected.is_some() && stream.is_none() {
            stream = client.open(&mut lines(&get("/size/3000000")), true);
        }
        echo.act(server);
        stream.is_some_and(|id| answers.of.get(&id).is_some_and(|a| a.done))
    });
    pair.now - pair.begin
}

#[test]
fn bandwidth_based_control_does_not_slow_down_at_random_losses() {
    let (cubic, bbr) = (time_over_a_lossy_path(Congestion::Cubic), time_over_a_lossy_path(Congestion::Bbr));
    assert!(bbr * 2 < cubic, "{bbr:?} with bbr, {cubic:?} with cubic");
}

#[test]
fn early_requests_are_known_as_such() {
    let limits = Limits::default();
    let config = pair::client_config(quinn_proto::TransportConfig::default());
    let mut world = World::new(&limits);
    for round in 0..2 {
        world = {
            let mut pair = world.with_config(config.clone()).client(limits, Faults::default());
            let (mut echo, mut answers) = (Echo::default(), Answers::default());
            let mut streams = Vec::new();
            if pair.client.quic().has_0rtt() {
                streams.push(pair.client.open(&mut lines(&get("/early")), true).expect("a stream"));
            }
            assert_eq!(streams.len(), round, "0-RTT with a ticket alone");
            pair.run(|server, client| {
                answers.take(client);
                if answers.connected.is_some() && streams.len() == round {
                    streams.push(client.open(&mut lines(&get("/late")), true).expect("a stream"));
                }
                echo.act(server);
                streams.len() == round + 1 && streams.iter().all(|id| answers.of.get(id).is_some_and(|a| a.done))
            });
            assert_eq!((echo.early, answers.connected), (round as u64, Some(round == 1)));
            pair.run_for(std::time::Duration::from_millis(100), |_, _| {});
            pair.into_world(config.clone())
        };
    }
}

#[test]
fn a_goaway_lets_requests_end_and_refuses_others() {
    let limits = Limits::default();
    let mut pair = World::new(&limits).client(limits, Faults::default());
    let (mut echo, mut answers) = (Echo::default(), Answers::default());
    let (mut first, mut late) = (None, None);
    pair.run(|server, client| {
        answers.take(client);
        if answers.connected.is_some() && first.is_none() {
            first = client.open(&mut lines(&get("/size/200000")), true);
        }
        let had = echo.heads;
        echo.act(server);
        if echo.heads > had {
            server.begin_shutdown();
            // It is on its way before the client knows.
            late = client.open(&mut lines(&get("/late")), true);
        }
        let is_done = |id: Option<u64>| id.and_then(|id| answers.of.get(&id)).is_some_and(|a| a.done);
        is_done(first) && late.is_some_and(|id| answers.of.get(&id).is_some_and(|a| a.reset.is_some()))
    });
    assert_eq!(answers.goaway, Some(4));
    assert_eq!(answers.of[&late.expect("a stream")].reset, Some(0x10b), "H3_REQUEST_REJECTED");
    assert_eq!(pair.client.open(&mut lines(&get("/")), true), None);
    let server = pair.server.as_mut().expect("a server");
    assert!(server.is_going() && StreamMux::is_idle(server) && echo.heads == 1);
    server.close(pair.now);
    pair.run_for(std::time::Duration::from_millis(100), |_, client| answers.take(client));
    assert!(answers.lost.is_some());
}

#[test]
fn urgent_answers_come_first() {
    let limits = Limits::default();
    let mut pair = World::new(&limits).client(limits, Faults::default());
    let (mut echo, mut answers) = (Echo::default(), Answers::default());
    let mut streams = Vec::new();
    pair.run(|server, client: &mut Client| {
        answers.take(client);
        if answers.connected.is_some() && streams.is_empty() {
            for priority in ["u=7", "u=5", "u=3", "u=0", "u=5"] {
                let fields = [&get("/size/200000")[..], &[("priority", priority)]].concat();
                streams.push(client.open(&mut lines(&fields), true).expect("a stream"));
            }
        }
        echo.act(server);
        answers.order.len() == 5
    });
    let places: Vec<usize> = streams.iter().map(|id| answers.order.iter().position(|at| at == id).unwrap()).collect();
    assert_eq!(places, [4, 2, 1, 0, 3]);
}

#[test]
fn answers_are_on_their_way_until_they_are_acknowledged() {
    let limits = Limits::default();
    let mut pair = World::new(&limits).client(limits, Faults::default());
    let (mut echo, mut answers) = (Echo::default(), Answers::default());
    let (mut stream, mut was_on_its_way) = (None, false);
    pair.run(|server, client| {
        answers.take(client);
        if answers.connected.is_some() && stream.is_none() {
            stream = client.open(&mut lines(&get("/size/100000")), true);
        }
        echo.act(server);
        let is_done = stream.and_then(|id| answers.of.get(&id)).is_some_and(|answer| answer.done);
        was_on_its_way |= server.is_idle() && server.has_unacknowledged() && !is_done && echo.heads > 0;
        is_done
    });
    assert!(was_on_its_way, "QUIC had taken it all before it was acknowledged");
    pair.run_for(std::time::Duration::from_millis(200), |_, _| {});
    assert!(!pair.server.as_mut().expect("a server").has_unacknowledged());
}
