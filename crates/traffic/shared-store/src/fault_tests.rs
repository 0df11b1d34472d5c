//! Agents with a real Redis behind a proxy that stalls one direction, cuts answers in their middle, delivers single bytes, and
//! delivers the messages of the subscription before or behind the answers to writes.

use crate::StoreAddress;
use crate::agent::AgentOptions;
use crate::permits::{PermitPool, PermitRule, StoreLoss};
use crate::redis_tests::{Redis, TestFolder, TestNode, has_redis, redis_call, take_permits, wait_until};
use std::sync::Arc;
use std::time::Duration;
use testkit::Random;
use testkit::fault_proxy::{Direction, FaultProxy, LinkKind};

/// Redis on a port, with a proxy for each node.
struct World {
    nodes: Vec<TestNode>,
    proxies: Vec<FaultProxy>,
    _redis: Redis,
    _folder: TestFolder,
}

impl World {
    /// Starts nodes, behind a proxy each. `None`: there is no Redis.
    fn start(name: &str, nodes: u64, set: impl Fn(&mut AgentOptions)) -> Option<World> {
        if !has_redis() {
            return None;
        }
        let folder = TestFolder::new(name);
        let port = testkit::free_port();
        let text = port.to_string();
        let redis = Redis::start(&folder.0, &["--bind", "127.0.0.1", "--port", &text]);
        wait_until("Redis", || match redis_call(&["-p", &text, "ping"]).trim() {
            "PONG" => Ok(()),
            seen => Err(seen.to_owned()),
        });
        let proxies: Vec<FaultProxy> = (0..nodes).map(|_| FaultProxy::start(port)).collect();
        let nodes: Vec<TestNode> = proxies
            .iter()
            .zip(1..)
            .map(|(proxy, number)| {
                let address = StoreAddress::parse(&format!("redis://127.0.0.1:{}", proxy.port())).expect("an address");
                TestNode::start(number, &address, &set)
            })
            .collect();
        nodes.iter().for_each(|node| node.wait_connected(true));
        let world = World { nodes, proxies, _redis: redis, _folder: folder };
        wait_until("all nodes", || {
            let seen: Vec<u64> = world.nodes.iter().map(|node| node.agent.state().nodes).collect();
            seen.iter().all(|number| *number == world.nodes.len() as u64).then_some(()).ok_or(format!("{seen:?}"))
        });
        Some(world)
    }

    /// Waits until all nodes and the store have the same pairs, and nothing is pending.
    fn wait_for_equality(&self) -> Vec<(Vec<u8>, Vec<u8>)> {
        let pairs = |node: &TestNode| -> Vec<(Vec<u8>, Vec<u8>)> {
            let pairs = node.pairs.0.lock().expect("no panic");
            pairs.iter().map(|(key, (value, _))| (key.clone(), value.clone())).collect()
        };
        wait_until("equal pairs", || {
            let all: Vec<_> = self.nodes.iter().map(pairs).collect();
            let is_sent = self.nodes.iter().all(|node| node.agent.state().records_pending == 0);
            let is_equal = all.windows(2).all(|two| two[0] == two[1]);
            (is_sent && is_equal).then_some(()).ok_or_else(|| {
                let states: Vec<_> = self.nodes.iter().map(|node| node.agent.state()).collect();
                format!("{all:?} {states:?}")
            })
        });
        pairs(&self.nodes[0])
    }
}

fn patient(options: &mut AgentOptions) {
    options.patience = Duration::from_secs(20);
}

#[test]
fn messages_of_the_subscription_behind_or_before_the_answers_to_writes_change_nothing() {
    let Some(world) = World::start("reorder", 2, patient) else { return };
    let [a, b] = world.nodes.as_slice() else { unreachable!() };
    let proxy = &world.proxies[1];

    // The older message arrives when the newer write is answered already.
    proxy.hold(LinkKind::Subscription, Direction::ToClient);
    a.set("x", Some("old"));
    wait_until("the first write", || match a.agent.state().records_pending {
        0 => Ok(()),
        seen => Err(seen.to_string()),
    });
    b.set("x", Some("new"));
    a.wait_for(&[("x", "new")]);
    wait_until("the answer", || match b.agent.state().records_pending {
        0 => Ok(()),
        seen => Err(seen.to_string()),
    });
    let before = proxy.delivered(LinkKind::Subscription, Direction::ToClient);
    proxy.release(LinkKind::Subscription, Direction::ToClient);
    wait_until("the messages", || {
        let now = proxy.delivered(LinkKind::Subscription, Direction::ToClient);
        (now > before).then_some(()).ok_or_else(|| now.to_string())
    });
    // A change that follows the old message on its way has been taken over: so has the old one.
    a.set("y", Some("1"));
    b.wait_for(&[("x", "new"), ("y", "1")]);
    a.wait_for(&[("x", "new"), ("y", "1")]);

    // The answer arrives when another node's newer write is known already.
    proxy.hold(LinkKind::Commands, Direction::ToClient);
    b.set("x", Some("older"));
    a.wait_for(&[("x", "older"), ("y", "1")]);
    let before = proxy.delivered(LinkKind::Subscription, Direction::ToClient);
    a.set("x", Some("newest"));
    a.set("y", None);
    wait_until("the messages", || {
        let now = proxy.delivered(LinkKind::Subscription, Direction::ToClient);
        (now > before && a.agent.state().records_pending == 0).then_some(()).ok_or_else(|| now.to_string())
    });
    proxy.release(LinkKind::Commands, Direction::ToClient);
    assert_eq!(world.wait_for_equality(), [(b"x".to_vec(), b"newest".to_vec())]);
    assert_eq!((a.agent.state().failures, b.agent.state().failures), (0, 0), "no connection was lost");
}

#[test]
fn one_direction_that_stalls_is_a_store_that_is_gone() {
    let Some(world) = World::start("one-way", 2, |_| {}) else { return };
    let [a, b] = world.nodes.as_slice() else { unreachable!() };
    let proxy = &world.proxies[1];
    let expected = |number: usize| [("a", number.to_string()), ("b", number.to_string())];
    for (number, direction) in [Direction::ToClient, Direction::ToServer].into_iter().enumerate() {
        proxy.hold(LinkKind::Commands, direction);
        b.set("b", Some(&number.to_string()));
        b.wait_connected(false);
        assert!(b.agent.state().records_pending > 0, "a write without an answer is repeated");
        a.set("a", Some(&number.to_string()));
        proxy.release(LinkKind::Commands, direction);
        let expected = expected(number);
        let expected: Vec<(&str, &str)> = expected.iter().map(|(key, value)| (*key, value.as_str())).collect();
        a.wait_for(&expected);
        b.wait_for(&expected);
        b.wait_connected(true);
    }

    // A subscription that tells nothing, beside commands that are answered: the node's own signs of life do not come back.
    proxy.hold(LinkKind::Subscription, Direction::ToClient);
    a.set("a", Some("hidden"));
    b.wait_failure("the subscription tells nothing any more");
    proxy.release(LinkKind::Subscription, Direction::ToClient);
    b.wait_for(&[("a", "hidden"), ("b", "1")]);
}

#[test]
fn an_answer_that_is_cut_in_its_middle_is_repeated() {
    let Some(world) = World::start("cuts", 2, |_| {}) else { return };
    let [a, b] = world.nodes.as_slice() else { unreachable!() };
    let proxy = &world.proxies[1];
    // So many that an answer to a comparison has several kilobytes.
    for number in 0..200 {
        a.set(&format!("key-{number:03}"), Some("value"));
    }
    assert_eq!(world.wait_for_equality().len(), 200);
    let mut failures = b.agent.state().failures;
    for (round, bytes) in [1, 2, 3, 40, 500, 3_000].into_iter().enumerate() {
        for kind in [LinkKind::Commands, LinkKind::Subscription] {
            let cuts = proxy.cuts();
            proxy.cut_after(kind, bytes);
            // Long answers come with the comparison behind a new connection.
            proxy.cut_all();
            wait_until("the cut", || {
                a.set("tick", Some(&format!("{round}-{bytes}-{}", a.agent.state().records_sent)));
                (proxy.cuts() > cuts).then_some(()).ok_or_else(|| format!("{:?}", b.agent.state()))
            });
            b.set("mine", Some(&format!("{round} {kind:?}")));
            let pairs = world.wait_for_equality();
            assert_eq!(pairs.len(), 202, "{bytes} {kind:?}");
            let mine = pairs.iter().find(|(key, _)| key == b"mine").map(|(_, value)| value.clone());
            assert_eq!(mine, Some(format!("{round} {kind:?}").into_bytes()));
        }
        let now = b.agent.state().failures;
        assert!(now > failures, "{bytes}");
        failures = now;
    }
}

#[test]
fn answers_in_single_bytes_are_answers() {
    let Some(world) = World::start("pieces", 2, patient) else { return };
    let [a, b] = world.nodes.as_slice() else { unreachable!() };
    world.proxies.iter().for_each(|proxy| proxy.set_piece(1));
    for number in 0..20 {
        [a, b][number % 2].set(&number.to_string(), Some("value"));
    }
    assert_eq!(world.wait_for_equality().len(), 20);
    world.proxies[1].cut_all();
    b.set("0", None);
    assert_eq!(world.wait_for_equality().len(), 19);
    assert_eq!(a.agent.state().failures, 0);
}

/// Does something to a proxy, or nothing.
fn disturb(random: &mut Random, proxy: &FaultProxy) {
    let kind = if random.chance(50) { LinkKind::Commands } else { LinkKind::Subscription };
    let direction = if random.chance(50) { Direction::ToServer } else { Direction::ToClient };
    match random.below(8_u32) {
        0 | 1 => proxy.hold(kind, direction),
        2 => proxy.set_piece(random.below(4_usize)),
        3 => proxy.cut_after(kind, random.below(300_usize)),
        4 => proxy.cut_all(),
        5 | 6 => proxy.heal(),
        _ => {}
    }
}

#[test]
fn pairs_converge_after_random_disturbances() {
    let Some(world) = World::start("random", 3, |options| options.patience = Duration::from_millis(100)) else {
        return;
    };
    let mut random = Random::new(52);
    for round in 0..6 {
        for step in 0..40 {
            let place = random.below(world.nodes.len());
            disturb(&mut random, &world.proxies[place]);
            let node = &world.nodes[random.below(world.nodes.len())];
            let key = random.below(10_u32).to_string();
            match random.chance(25) {
                true => node.set(&key, None),
                false => node.set(&key, Some(&format!("{round}-{step}"))),
            }
            if random.chance(10) {
                // Lets agents go on from where they are.
                let sent = node.agent.state();
                wait_until("an event", || {
                    let now = node.agent.state();
                    let is_other = (now.records_sent, now.failures) != (sent.records_sent, sent.failures);
                    (is_other || now.records_pending == 0).then_some(()).ok_or_else(|| format!("{now:?}"))
                });
            }
        }
        world.proxies.iter().for_each(FaultProxy::heal);
        world.wait_for_equality();
    }
}

/// Requests of a limit by all nodes, while their connections are disturbed. Returns how many were admitted, and how many permits
/// the nodes have got.
fn admitted_under_disturbance(name: &str, loss: StoreLoss) -> Option<(usize, u64)> {
    let world = World::start(name, 3, |options| {
        (options.patience, options.loss) = (Duration::from_millis(100), loss);
    })?;
    // 32 at once, and next to none in the time of the test.
    let rule = PermitRule { rate: 1, burst: 31_000, takes_ahead: true };
    let pools: Vec<Arc<PermitPool>> =
        world.nodes.iter().map(|node| node.agent.share_permits("limit", rule, 1 << 20)).collect();
    let mut random = Random::new(17);
    let mut admitted = 0;
    for _ in 0..200 {
        let place = random.below(world.nodes.len());
        disturb(&mut random, &world.proxies[place]);
        let place = random.below(world.nodes.len());
        admitted += take_permits(&world.nodes[place], &pools[place], 1 + random.below(3_usize));
        if random.chance(10) {
            let (node, before) = (&world.nodes[place], world.nodes[place].agent.state());
            node.set("tick", Some(&random.number().to_string()));
            wait_until("an event", || {
                let now = node.agent.state();
                let is_other = (now.records_sent, now.failures) != (before.records_sent, before.failures);
                is_other.then_some(()).ok_or_else(|| format!("{now:?}"))
            });
        }
    }
    world.proxies.iter().for_each(FaultProxy::heal);
    world.wait_for_equality();
    wait_until("the limit to be used up", || {
        let more: usize = world.nodes.iter().zip(&pools).map(|(node, pool)| take_permits(node, pool, 40)).sum();
        admitted += more;
        let states: Vec<_> = world.nodes.iter().map(|node| node.agent.state()).collect();
        let is_over = more == 0 && states.iter().all(|state| state.is_connected && state.nodes == 3);
        is_over.then_some(()).ok_or_else(|| format!("{more} {states:?}"))
    });
    let taken = world.nodes.iter().map(|node| node.agent.state().permits_taken).sum();
    Some((admitted, taken))
}

#[test]
fn limits_hold_behind_connections_that_stall_and_break() {
    let Some((admitted, taken)) = admitted_under_disturbance("limit-deny", StoreLoss::Deny) else { return };
    assert!(taken <= 32, "{taken}: a permit whose answer was cut is lost, not given twice");
    assert!((1..=4 * 32).contains(&admitted), "{admitted}: the burst and one, and as many on credit a node");

    let Some((admitted, taken)) = admitted_under_disturbance("limit-local", StoreLoss::Local) else { return };
    assert!(taken <= 32, "{taken}");
    assert!(
        (1..=4 * 32 + 3 * 32).contains(&admitted),
        "{admitted}: besides, each node its part, which is the whole for a node that has seen no others"
    );
}
