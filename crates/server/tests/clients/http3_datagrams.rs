//! Hostile datagrams of clients without a connection, and of addresses that never answer: replies do not amplify, other connections go
//! on, and memory stays within the bounds of docs/attacks.md. `http3_bounds.rs` has hostile clients with a connection.

use crate::support;
use testkit::Random;

use crate::support::initial;

use initial::{DATAGRAM_MIN, Initial, SOURCE, VERSION, hello, length};
use std::net::UdpSocket;
use support::http3::{Client, config, site, tls_of};
use support::{Running, free_port, private_kb, wait};

/// Datagrams between two barriers: fewer than the kernel's smallest receive buffer holds.
const BATCH: usize = 32;
/// Kilobytes of an unfinished handshake, as in `http3_bounds.rs`.
const UNFINISHED_KB: u64 = 56;
/// Kilobytes that an allocator may keep after any class of datagrams.
const SLACK_KB: u64 = 2048;

/// An address that sends hostile datagrams, and a client whose answers tell that the server has read them.
struct Scene<'a> {
    running: &'a Running<'a>,
    port: u16,
    worker: u32,
    witness: Client,
    enemy: UdpSocket,
    private_kb: u64,
    unread: usize,
    sent: usize,
    received: usize,
}

fn socket() -> UdpSocket {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
    socket.set_nonblocking(true).expect("a socket");
    socket
}

impl<'a> Scene<'a> {
    fn new(running: &'a Running<'a>, port: u16) -> Scene<'a> {
        let worker = running.worker();
        let mut witness = Client::connect(port, "localhost", &config());
        witness.until("the handshake", |client| client.connected.is_some());
        let mut scene =
            Scene { running, port, worker, witness, enemy: socket(), private_kb: 0, unread: 0, sent: 0, received: 0 };
        scene.barrier();
        scene.another_client();
        scene.private_kb = private_kb(worker);
        scene
    }

    fn send(&mut self, octets: &[u8]) {
        self.enemy.send_to(octets, ("127.0.0.1", self.port)).expect("sent");
        self.sent += octets.len();
        self.unread += 1;
        if self.unread >= BATCH {
            self.barrier();
        }
    }

    /// Returns when the server has read all datagrams: its socket keeps their order.
    fn barrier(&mut self) -> Vec<Vec<u8>> {
        self.unread = 0;
        let stream = self.witness.get("localhost", "/");
        assert_eq!(self.witness.answer(stream).text(), "ok");
        let mut replies = Vec::new();
        let mut buf = [0; 65_536];
        while let Ok(length) = self.enemy.recv(&mut buf) {
            self.received += length;
            replies.push(buf[..length].to_vec());
        }
        replies
    }

    /// Replies to one datagram; they are no longer than it.
    fn replies(&mut self, octets: &[u8]) -> Vec<Vec<u8>> {
        self.send(octets);
        let replies = self.barrier();
        let length: usize = replies.iter().map(Vec::len).sum();
        assert!(length <= octets.len(), "{length} octets for {}", octets.len());
        replies
    }

    fn another_client(&mut self) -> bool {
        let mut client = Client::connect(self.port, "localhost", &config());
        let stream = client.get_when_connected("/");
        assert_eq!(client.answer(stream).text(), "ok");
        client.close();
        client.retried
    }

    /// Connections of the server, unfinished handshakes among them.
    fn connections(&mut self) -> usize {
        let stream = self.witness.get("localhost", "/status");
        let text = self.witness.answer(stream).text();
        let number = text.strip_prefix("Active connections: ").and_then(|rest| rest.split_whitespace().next());
        number.and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    /// Checks the server after a class of datagrams that left so many unfinished handshakes at most.
    fn check(&mut self, class: &str, handshakes: usize) {
        self.barrier();
        assert!(self.received <= 3 * self.sent, "{class}: {} octets for {}", self.received, self.sent);
        let connections = self.connections();
        let held = private_kb(self.worker).saturating_sub(self.private_kb);
        println!("{class}: {held} KB, {connections} connections, {} octets for {}", self.received, self.sent);
        assert!(connections <= 2 + handshakes, "{class}: {connections} connections");
        assert!(held <= SLACK_KB + handshakes as u64 * UNFINISHED_KB, "{class}: {held} KB");
        self.another_client();
        assert_eq!(self.running.worker(), self.worker, "{class}");
    }

    fn over(self) {
        self.running.signal("TERM");
        self.running.site.assert_no_alerts();
    }
}

fn client_hello() -> Vec<u8> {
    hello(tls_of(vec![b"h3".to_vec()]))
}

/// A packet with a long header: type and version, ids, and octets behind them.
fn long_header(first: u8, version: [u8; 4], destination: &[u8], rest: &[u8]) -> Vec<u8> {
    let ids = [&[destination.len() as u8][..], destination, &[SOURCE.len() as u8], SOURCE].concat();
    [&[first][..], &version, &ids, rest].concat()
}

#[test]
fn octets_of_no_meaning_are_dropped() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let mut random = Random::new(7);
    for first in 0..=255u8 {
        for size in [0, 1, 6, 20, 21, 22, 40, 200, DATAGRAM_MIN, 1472] {
            let mut octets = random.octets(size);
            if let Some(octet) = octets.first_mut() {
                *octet = first;
            }
            scene.send(&octets);
        }
    }
    // All types of packets of the known version: lengths of ids and tokens lie.
    for first in (0x80..=0xffu8).step_by(0x10) {
        for size in [5, 6, 7, 26, 60, 300, DATAGRAM_MIN] {
            scene.send(&[&[first][..], &VERSION, &random.octets(size - 5)].concat());
            scene.send(&long_header(first, VERSION, &random.octets(8), &random.octets(size)));
        }
    }
    scene.check("random octets", 0);
    scene.over();
}

#[test]
fn altered_first_packets_begin_nothing() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let whole = Initial::new(b"original", &client_hello()).datagram();
    for length in 0..whole.len() {
        scene.send(&whole[..length]);
    }
    assert_eq!(scene.received, 0, "RFC 9000, 14.1: datagrams below 1,200 octets are dropped");
    scene.check("truncated first packets", 0);
    let mut random = Random::new(11);
    // The tag covers the header, too.
    for at in 0..whole.len() {
        let mut altered = whole.clone();
        altered[at] ^= 1 << random.below(8);
        scene.send(&altered);
    }
    scene.check("altered first packets", 0);
    scene.over();
}

#[test]
fn first_packets_of_impossible_contents_are_refused() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let mut random = Random::new(13);
    let hello = client_hello();
    let crypto = |at: u32, octets: &[u8]| {
        [&[0x06][..], &(at | 0x8000_0000).to_be_bytes(), &length(octets.len()), octets].concat()
    };
    for (name, frames) in [
        ("nothing", vec![]),
        ("PING", vec![1]),
        ("an acknowledgment of nothing", vec![2, 0, 0, 0, 0]),
        ("STREAM", vec![0x0a, 0, 1, b'x']),
        ("HANDSHAKE_DONE", vec![0x1e]),
        ("NEW_CONNECTION_ID", [&[0x18, 1, 0, 8][..], &random.octets(24)].concat()),
        ("an undefined type", vec![0x40, 0x61]),
        ("CONNECTION_CLOSE", vec![0x1c, 0, 0, 0]),
        ("a CRYPTO frame of another message", crypto(0, &random.octets(600))),
        ("a CRYPTO frame far ahead", crypto(1 << 29, &random.octets(600))),
        ("a CRYPTO frame without its beginning", crypto(1, &hello[4..])),
        ("a ClientHello without its end", crypto(0, &hello[4..100])),
        ("a ClientHello with a length that lies", {
            let mut hello = hello.clone();
            hello[5..8].copy_from_slice(&[0xff; 3]);
            hello
        }),
        ("a ClientHello with gaps", (0..100u32).flat_map(|at| crypto(2 * at, b"x")).collect()),
        ("a cut frame", vec![0x06, 0, 0x7f]),
    ] {
        let octets = Initial::new(&random.octets(8), &frames).datagram();
        scene.replies(&octets);
        scene.check(name, 6);
    }
    // Ids that are too short, and too long for version 1.
    for size in [0, 1, 7, 21, 255] {
        scene.replies(&Initial::new(&random.octets(size), &hello).datagram());
    }
    scene.check("ids of impossible lengths", 6);
    scene.over();
}

#[test]
fn tokens_of_any_octets_prove_nothing() {
    for retry in ["off", "on"] {
        let port = free_port();
        let site = site(port, 512, &format!("quic_retry {retry};"));
        let running = site.start();
        let mut scene = Scene::new(&running, port);
        let (mut random, hello) = (Random::new(17), client_hello());
        let sizes = [1, 2, 15, 16, 17, 31, 32, 33, 48, 64, 100, 255, 256, 700];
        for size in sizes {
            let mut initial = Initial::new(&random.octets(8), &hello);
            initial.token = random.octets(size);
            scene.send(&initial.datagram());
        }
        scene.barrier();
        // A length that is more than the datagram has, and the most that can be written.
        for token in [&[0x7f, 0xff][..], &[0xff; 8]] {
            let rest = [token, &random.octets(DATAGRAM_MIN)].concat();
            assert!(scene.replies(&long_header(0xc3, VERSION, b"original", &rest)).is_empty());
        }
        scene.check(&format!("tokens, quic_retry {retry}"), if retry == "on" { 0 } else { sizes.len() });
        scene.over();
    }
}

/// The source id and the token of a Retry packet (RFC 9000, 17.2.5).
fn retry_of(packet: &[u8]) -> (Vec<u8>, Vec<u8>) {
    assert_eq!(packet[0] & 0xf0, 0xf0, "a Retry packet");
    let after_destination = 6 + usize::from(packet[5]);
    let source = &packet[after_destination + 1..][..usize::from(packet[after_destination])];
    let token = &packet[after_destination + 1 + source.len()..packet.len() - 16];
    (source.to_vec(), token.to_vec())
}

#[test]
fn retry_tokens_are_of_one_address() {
    let port = free_port();
    let site = site(port, 512, "quic_retry on;");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let hello = client_hello();
    let replies = scene.replies(&Initial::new(b"original", &hello).datagram());
    let [retry] = &replies[..] else { panic!("{replies:x?}") };
    let (source, token) = retry_of(retry);
    let again = |token: &[u8]| {
        let mut initial = Initial::new(&source, &hello);
        (initial.token, initial.number) = (token.to_vec(), 1);
        initial.datagram()
    };
    for at in 0..token.len() {
        let mut altered = token.clone();
        altered[at] ^= 1;
        scene.replies(&again(&altered));
    }
    scene.check("altered tokens", 0);
    // The token from another address.
    let own = std::mem::replace(&mut scene.enemy, socket());
    for _ in 0..100 {
        let replies = scene.replies(&again(&token));
        assert!(replies.iter().all(|reply| reply.len() < 100), "CONNECTION_CLOSE");
    }
    scene.check("tokens of another address", 0);
    // It proves its own: the handshake is answered.
    scene.enemy = own;
    scene.send(&again(&token));
    assert!(scene.barrier().iter().map(Vec::len).sum::<usize>() > 500);
    scene.check("a token of this address", 1);
    scene.over();
}

#[test]
fn unknown_versions_are_told_the_known_ones_without_amplification() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let mut random = Random::new(19);
    for version in [[0xba, 0xba, 0xba, 0xba], [0x6b, 0x33, 0x43, 0xcf], [0xff, 0, 0, 0x1d], [1, 2, 3, 4]] {
        for size in [7, 30, 600, DATAGRAM_MIN - 1, DATAGRAM_MIN, 1472, 9000] {
            let mut octets = long_header(0xc0, version, &random.octets(8), &random.octets(size));
            octets.resize(size, 0);
            let replies = scene.replies(&octets);
            if size < DATAGRAM_MIN {
                assert!(replies.is_empty(), "RFC 9000, 5.2.2: {size} octets");
                continue;
            }
            let [reply] = &replies[..] else { panic!("{size}: {replies:x?}") };
            assert_eq!(reply[1..5], [0; 4], "version negotiation");
            // The ids change places.
            assert_eq!(reply[5..14], [&[SOURCE.len() as u8], SOURCE].concat());
            assert_eq!(reply[14..23], octets[5..14]);
            assert!(reply[23..].chunks(4).any(|known| known == VERSION));
            assert!(reply[23..].chunks(4).all(|known| known != version));
        }
    }
    // Ids of the lengths that a later version may have, and Version Negotiation itself, which a server never answers.
    for size in [0, 21, 255] {
        let mut octets = long_header(0xc0, [9; 4], &random.octets(size), &random.octets(DATAGRAM_MIN));
        octets.resize(DATAGRAM_MIN, 0);
        scene.replies(&octets);
    }
    let octets = long_header(0xc0, [0; 4], b"original", &random.octets(DATAGRAM_MIN));
    assert!(scene.replies(&octets).is_empty());
    scene.check("unknown versions", 0);
    scene.over();
}

#[test]
fn packets_of_no_connection_are_answered_with_less() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let mut random = Random::new(23);
    let mut resets = 0;
    for round in 0..300 {
        let size = [1, 10, 21, 22, 23, 41, 42, 43, 100, 600, DATAGRAM_MIN, 1472][round % 12];
        let mut octets = random.octets(size);
        octets[0] = 0x40 | octets[0] & 0x3f;
        for reply in scene.replies(&octets) {
            // Two servers that answer each other end (RFC 9000, 10.3.3).
            assert!(reply.len() < size, "{} for {size}", reply.len());
            resets += 1;
        }
        // Resets of connections that the client never had, from its own address.
        scene.witness.send_datagram(port, &octets);
    }
    assert!(resets > 0, "a stateless reset");
    scene.check("short headers", 0);
    // 0-RTT and Handshake packets without the Initial that they follow.
    for round in 0..300 {
        let first = [0xd0, 0xe0, 0xf0][round % 3];
        let rest = [&length(1100)[..], &random.octets(1400)].concat();
        let octets = long_header(first, VERSION, &random.octets(8), &rest);
        assert!(scene.replies(&octets).is_empty(), "{first:x}");
    }
    scene.check("0-RTT, Handshake and Retry packets", 0);
    scene.over();
}

#[test]
fn rubbish_behind_a_first_packet_is_dropped() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let (mut random, hello) = (Random::new(29), client_hello());
    let mut handshakes = 0;
    let tiny = |first: u8| long_header(first, VERSION, b"original", &[0, 0]);
    for first in [0x00, 0x40, 0x80, 0xc0, 0xd0, 0xe0, 0xf0, 0xff] {
        let id = random.octets(8);
        let mut rest = random.octets(400);
        rest[0] = first;
        // The first packet is real; what follows it has its id or another one, and any octets.
        for behind in [rest, long_header(first, VERSION, &id, &random.octets(400)), tiny(first).repeat(30)] {
            scene.send(&[Initial::new(&id, &hello).datagram(), behind].concat());
        }
        handshakes += 1;
        // Packets of no octets, in a datagram and in a connection's.
        scene.send(&tiny(first).repeat(50));
        scene.witness.send_datagram(port, &tiny(first).repeat(50));
    }
    scene.check("coalesced rubbish", handshakes);
    scene.over();
}

#[test]
fn datagrams_of_the_greatest_length_are_read() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let (mut random, hello) = (Random::new(31), client_hello());
    const MOST: usize = 65_507;
    for first in [0x00, 0x40, 0x80, 0xc0, 0xd0, 0xe0, 0xff] {
        let mut octets = random.octets(MOST);
        octets[0] = first;
        scene.replies(&octets);
        octets[1..5].copy_from_slice(&VERSION);
        scene.replies(&octets);
        scene.witness.send_datagram(port, &octets);
        scene.barrier();
    }
    let mut octets = Initial::new(b"original", &hello).datagram();
    octets.extend(random.octets(MOST - octets.len()));
    scene.replies(&octets);
    // One packet of nearly 16 KB, the most that a length of two octets has.
    scene.send(&Initial::new(b"the next", &hello).packet(16_000));
    scene.check("datagrams of 65,507 octets", 2);
    scene.over();
}

#[test]
fn unfinished_handshakes_end() {
    const HANDSHAKES: usize = 40;
    let port = free_port();
    let site = site(port, 512, "client_header_timeout 1s;");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let hello = client_hello();
    for id in 0..HANDSHAKES as u64 {
        scene.send(&Initial::new(&id.to_be_bytes(), &hello).datagram());
    }
    wait("their end", || match scene.connections() {
        1 => Ok(()),
        connections => Err(connections),
    });
    assert!(scene.received > 0);
    scene.check("unfinished handshakes", 0);
    scene.over();
}

#[test]
fn twenty_thousand_first_packets_leave_room_for_clients() {
    const CONNECTIONS: usize = 256;
    let port = free_port();
    let site = site(port, CONNECTIONS, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let hello = client_hello();
    for id in 0..20_000u64 {
        scene.send(&Initial::new(&id.to_be_bytes(), &hello).datagram());
    }
    // The witness, which is idle now and then, has kept its connection; others prove their address.
    scene.check("20,000 first packets", CONNECTIONS / 4);
    assert!(scene.another_client(), "by a Retry");
    scene.over();
}

/// With names on demand, clients are held until their ClientHello is complete, and admitted after three seconds.
#[test]
fn halves_of_first_flights_close_no_idle_connection() {
    const CONNECTIONS: usize = 128;
    let port = free_port();
    let site = site(port, CONNECTIONS, "");
    let state = site.path("state").display().to_string();
    let conf = site.read("conf/nginx.conf");
    let http = conf.strip_suffix('}').expect("the end of http");
    site.write(
        "conf/nginx.conf",
        &format!(
            "{http} resolver 127.0.0.1:1; acme_issuer local {{ local_authority; state_path {state}; }}
            server {{ listen 127.0.0.1:{port} quic; server_name demand.test; acme_on_demand local ask=http://127.0.0.1:1/;
                ssl_certificate $acme_certificate; ssl_certificate_key $acme_certificate_key; }} }}"
        ),
    );
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let hello = client_hello();
    let half = [&[0x06, 0][..], &length(100), &hello[4..104]].concat();
    for id in 0..200u64 {
        scene.send(&Initial::new(&id.to_be_bytes(), &half).datagram());
    }
    let mut retries = 0;
    wait("Retry packets", || {
        retries += scene.barrier().iter().filter(|reply| reply[0] & 0xf0 == 0xf0).count();
        (retries >= 100).then_some(()).ok_or(retries)
    });
    scene.check("halves of first flights", CONNECTIONS / 4);
    scene.over();
}

#[test]
fn clients_that_move_with_each_datagram_hold_little() {
    let port = free_port();
    let site = site(port, 512, "");
    let running = site.start();
    let mut scene = Scene::new(&running, port);
    let mut client = Client::connect(port, "localhost", &config());
    client.until("the handshake", |client| client.connected.is_some());
    for round in 0..300 {
        if round % 4 == 0 {
            client.get("localhost", "/");
        }
        client.move_on();
        client.step();
    }
    let stream = client.get("localhost", "/");
    assert_eq!(client.answer(stream).text(), "ok");
    scene.check("moves", 0);
    client.close();
    scene.over();
}
