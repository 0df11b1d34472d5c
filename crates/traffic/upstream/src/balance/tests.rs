//! Tests of placement.

use super::*;
use crate::group::{ServerLine, ServerSource};
use crate::keep_alive::KeepAlive;
use crate::peer::{CheckState, PeerSpec};
use net::Address;

fn lines(weights: &[u32], change: impl Fn(usize, &mut PeerSpec)) -> Vec<ServerLine> {
    let line = |(i, weight): (usize, &u32)| {
        let address = Address::Ip(std::net::SocketAddr::from(([127, 0, 0, 1], 9000 + i as u16)));
        let mut spec = PeerSpec { weight: *weight, ..PeerSpec::new(format!("127.0.0.1:{}", 9000 + i), address) };
        change(i, &mut spec);
        ServerLine { source: ServerSource::Fixed(vec![spec.address.clone()]), spec }
    };
    weights.iter().enumerate().map(line).collect()
}

fn group(name: &str, weights: &[u32], method: BalanceMethod) -> Arc<Group> {
    Arc::new(Group::new(name, lines(weights, |_, _| {}), method, KeepAlive::default(), true))
}

fn at(us: u64) -> Choice<'static> {
    Choice { now: Instant(us), random: 7, key: b"", bound: None }
}

fn letter(group: &Group, active: &PeerLease) -> char {
    let index = group.members().all().position(|p| Arc::ptr_eq(p, active.peer())).unwrap();
    char::from(b'a' + index as u8)
}

fn run(group: &Arc<Group>, choice: &Choice<'_>, n: usize) -> String {
    (0..n).map(|_| group.choose(choice, &mut group.attempts()).map_or('-', |a| letter(group, &a))).collect()
}

fn all(group: &Arc<Group>, choice: &Choice<'_>) -> String {
    let mut attempts = group.attempts();
    std::iter::from_fn(|| group.choose(choice, &mut attempts)).map(|a| letter(group, &a)).collect()
}

#[test]
fn smooth_round_robin() {
    assert_eq!(run(&group("t1", &[5, 1, 1], BalanceMethod::RoundRobin), &at(1), 7), "aabacaa");
    assert_eq!(run(&group("t2", &[1, 1], BalanceMethod::RoundRobin), &at(1), 4), "abab");
}

#[test]
fn failures_count_and_are_forgotten() {
    let g = group("t3", &[1, 1], BalanceMethod::RoundRobin);
    let mut first = g.choose(&at(1_000_000), &mut g.attempts()).unwrap();
    assert!(first.failed(Instant(1_000_000)), "one failure is enough");
    drop(first);
    assert_eq!(run(&g, &at(2_000_000), 3), "bbb");
    assert!(run(&g, &at(20_000_000), 4).contains('a'));
}

#[test]
fn a_connection_forgets_failures_only_if_it_proves_that_the_server_listens() {
    for is_proof in [false, true] {
        let g = group(&format!("t3-{is_proof}"), &[1, 1], BalanceMethod::RoundRobin);
        let mut first = g.choose(&at(1_000_000), &mut g.attempts()).unwrap();
        first.failed(Instant(1_000_000));
        drop(first);
        // After `fail_timeout`, one request is a trial.
        let choose = |_| g.choose(&at(20_000_000), &mut g.attempts()).filter(|lease| letter(&g, lease) == 'a');
        let trial = (0..4).find_map(choose).unwrap();
        trial.connected(is_proof);
        assert_eq!(run(&g, &at(20_000_000), 4).contains('a'), is_proof);
    }
}

#[test]
fn one_request_asks_each_server_once_and_backups_last() {
    let g = group("t4", &[1, 1, 1], BalanceMethod::LeastConn);
    let mut got: Vec<char> = all(&g, &at(1)).chars().collect();
    got.sort_unstable();
    assert_eq!(got, ['a', 'b', 'c']);
    let backed = lines(&[1, 1, 1], |i, spec| spec.backup = i == 2);
    let g = Arc::new(Group::new("t4b", backed, BalanceMethod::RoundRobin, KeepAlive::default(), true));
    assert_eq!(run(&g, &at(1), 4), "abab");
    assert_eq!(all(&g, &at(1)), "abc");
}

#[test]
fn limits_of_connections_hold() {
    let full = lines(&[1, 1], |_, spec| spec.max_conns = 1);
    let g = Arc::new(Group::new("t4c", full, BalanceMethod::RoundRobin, KeepAlive::default(), true));
    let held: Vec<_> = (0..3).map(|_| g.choose(&at(1), &mut g.attempts())).collect();
    assert_eq!(held.iter().flatten().count(), 2);
    drop(held);
    assert!(g.choose(&at(1), &mut g.attempts()).is_some());
}

#[test]
fn bound_requests_go_where_they_belong() {
    let some = lines(&[1, 1, 1], |i, spec| {
        spec.route = ["x", "y", "z"][i].into();
        spec.drain = i == 1;
        spec.down = i == 2;
    });
    for method in [
        BalanceMethod::RoundRobin,
        BalanceMethod::LeastConn,
        BalanceMethod::Hash(true),
        BalanceMethod::Hash(false),
        BalanceMethod::Random,
    ] {
        let name = format!("t4d {method:?}");
        let g = Arc::new(Group::new(&name, some.clone(), method, KeepAlive::default(), true));
        let to = |id: &'static [u8]| Choice { bound: Some(id), key: b"k", ..at(1) };
        assert_eq!(run(&g, &to(b"x"), 3), "aaa", "{method:?}");
        assert_eq!(run(&g, &to(b"y"), 3), "bbb", "{method:?}: draining, and still for those who belong there");
        assert_eq!(run(&g, &to(b"z"), 3), "aaa", "{method:?}: down");
        assert_eq!(run(&g, &to(b"?"), 3), "aaa", "{method:?}");
    }
}

#[test]
fn a_server_comes_back_slowly() {
    let slow = lines(&[1, 1], |i, spec| spec.slow_start_ms = if i == 0 { 10_000 } else { 0 });
    let g = Arc::new(Group::new("t4e", slow, BalanceMethod::RoundRobin, KeepAlive::default(), true));
    let peer = g.members().primary[0].clone();
    peer.begin_check("c", false, false);
    peer.check("c", CheckState::Unhealthy, Instant(1_000_000));
    // A check from before the reload has no effect.
    assert!(!peer.check("of before", CheckState::Healthy, Instant(1_000_000)));
    assert_eq!(run(&g, &at(1_000_000), 4), "bbbb");
    peer.check("c", CheckState::Healthy, Instant(1_000_000));
    let share = |us| run(&g, &at(us), 100).matches('a').count();
    let (early, later, at_last) = (share(2_000_000), share(6_000_000), share(12_000_000));
    assert!((5..=12).contains(&early) && (28..=36).contains(&later), "{early} {later}");
    assert!((48..=52).contains(&at_last), "{at_last}");
}

#[test]
fn outages_last_while_checks_or_requests_fail() {
    base::clock::update();
    let g = group("t4o", &[1], BalanceMethod::RoundRobin);
    let peer = g.members().primary[0].clone();
    let outage = || {
        let outages = peer.history().outages();
        (outages.lasts, outages.count)
    };
    assert_eq!(outage(), (false, 0));
    peer.begin_check("c", true, false);
    assert_eq!(outage(), (true, 0), "until the first check");
    assert!(peer.history().outages().start > 0);
    for (found, lasts) in [(CheckState::Unhealthy, true), (CheckState::Healthy, false), (CheckState::Unhealthy, true)] {
        peer.check("c", found, Instant(1_000_000));
        assert_eq!(outage(), (lasts, 0), "{found:?}: health checks do not count as failed requests");
    }
    peer.keep_checks(&[]);
    assert_eq!(outage(), (false, 0), "a configuration without the check");
    assert!(peer.failed(Instant(1_000_000)));
    assert_eq!(outage(), (true, 1));
    peer.failed(Instant(1_000_001));
    assert_eq!(outage(), (true, 1), "an outage counts once");
    peer.history().reset();
    assert_eq!(outage(), (true, 0));
}

#[test]
fn times_decide_in_steps() {
    let g = group("t4f", &[1, 1], BalanceMethod::LeastTime { time: Time::Header, inflight: false });
    let peers = g.members();
    peers.primary[0].with_state(|s| s.header_time = 100);
    peers.primary[1].with_state(|s| s.header_time = 15);
    assert_eq!(run(&g, &at(1), 3), "bbb");
    peers.primary[0].with_state(|s| s.header_time = 5);
    let both = run(&g, &at(1), 4);
    assert!(both.contains('a') && both.contains('b'), "{both}");
}

#[test]
fn checksums_equal_those_of_nginx() {
    let mut crc = Crc32::new();
    crc.update(b"123456789");
    assert_eq!(crc.finish(), 0xCBF4_3926);
}

#[test]
fn hashes_are_stable() {
    for method in [BalanceMethod::Hash(false), BalanceMethod::Hash(true), BalanceMethod::IpHash] {
        let g = group(&format!("t5 {method:?}"), &[1, 2, 3], method);
        for key in ["a", "b", "c"] {
            let choice = Choice { key: key.as_bytes(), ..at(1) };
            let first = run(&g, &choice, 1);
            assert_eq!(run(&g, &choice, 3), first.repeat(3));
        }
    }
}

#[test]
fn lots_fall_by_weight() {
    // As in nginx, of two idle servers the later drawn one.
    for method in [BalanceMethod::Random, BalanceMethod::Two(None)] {
        let g = group(&format!("t6 {method:?}"), &[3, 1], method);
        let drawn: String = (1..2000u64)
            .map(|n| Choice { random: n.wrapping_mul(0x9E37_79B9_7F4A_7C15), ..at(1) })
            .map(|choice| run(&g, &choice, 1))
            .collect();
        let first = drawn.matches('a').count();
        let wanted = if method == BalanceMethod::Random { 1400..1600 } else { 400..600 };
        assert!(wanted.contains(&first), "{method:?}: {first} of 1999");
    }
}
