//! Simulations of [`Agenda`]: virtual time, thousands of certificates, authorities that refuse, fail and limit.

use super::*;
use std::collections::HashMap;
use testkit::Random;

const DAY: i64 = 86_400;

fn fraction(random: &mut Random) -> f64 {
    (random.number() >> 11) as f64 / (1_u64 << 53) as f64
}

/// An authority with a limit of orders in a time.
struct Authority {
    limit: usize,
    window: i64,
    /// Steady times of accepted orders.
    accepted: std::collections::VecDeque<i64>,
    refused: usize,
    down: bool,
}

impl Authority {
    fn new(limit: usize, window: i64) -> Authority {
        Authority { limit, window, accepted: std::collections::VecDeque::new(), refused: 0, down: false }
    }
    /// Returns the seconds to wait as an error.
    fn ask(&mut self, at: i64) -> Result<(), i64> {
        while self.accepted.front().is_some_and(|first| first + self.window <= at) {
            self.accepted.pop_front();
        }
        if self.accepted.len() >= self.limit {
            self.refused += 1;
            return Err(self.accepted.front().map_or(0, |first| first + self.window - at));
        }
        self.accepted.push_back(at);
        Ok(())
    }
}

fn at(time: i64) -> Now {
    Now { wall: 1_700_000_000 + time, steady: 1000 + time }
}

/// Runs the agenda for some time. `answer` judges an order at its end; an order takes `takes` seconds.
fn run(
    agenda: &mut Agenda,
    from: i64,
    until: i64,
    takes: i64,
    random: &mut Random,
    mut answer: impl FnMut(DueOrder, i64) -> Result<i64, (FailureCause, Option<i64>)>,
) {
    let mut under_way: BTreeMap<(i64, TaskId), DueOrder> = BTreeMap::new();
    let mut of_task: HashMap<TaskId, usize> = HashMap::new();
    let mut time = from;
    while time < until {
        while let Some(order) = agenda.start(at(time)) {
            let orders = of_task.entry(order.task).or_default();
            *orders += 1;
            assert_eq!(*orders, 1, "a second order at a time");
            under_way.insert((time + takes, order.task), order);
        }
        let idle = agenda.idle_for(at(time), 3600);
        let next = under_way.first_key_value().map_or(i64::MAX, |((at, _), _)| *at);
        time = next.min(time + idle.max(1));
        while let Some(entry) = under_way.first_entry().filter(|entry| entry.key().0 <= time) {
            let order = entry.remove();
            of_task.insert(order.task, 0);
            match answer(order, time) {
                Ok(renewal) => agenda.succeeded(order, at(time), at(renewal).wall, at(renewal + 30 * DAY).wall),
                Err((cause, asked)) => drop(agenda.failed(order, at(time), cause, asked, fraction(random))),
            }
        }
    }
}

/// Ten thousand certificates of 90 days, in a year, at an authority that accepts 300 orders in three hours.
#[test]
fn ten_thousand_certificates_are_renewed_within_an_authoritys_limits() {
    let mut random = Random::new(1);
    let mut agenda = Agenda::new(&[IssuerLimits::of(4)]);
    let mut authority = Authority::new(300, 3 * 3600);
    let mut ends: HashMap<TaskId, i64> = HashMap::new();
    for _ in 0..10_000 {
        agenda.add(&[0], 0, false);
    }
    let (mut orders, mut late, mut by_day) = (0, 0, HashMap::<i64, usize>::new());
    let mut spread = Random::new(2);
    run(&mut agenda, 0, 365 * DAY, 5, &mut random, |order, time| {
        authority.ask(time).map_err(|wait| (FailureCause::Limits, Some(wait)))?;
        orders += 1;
        *by_day.entry(time / DAY).or_default() += 1;
        if ends.insert(order.task, time + 90 * DAY).is_some_and(|end| end < time) {
            late += 1;
        }
        Ok(crate::Schedule::of(time, time + 90 * DAY, fraction(&mut spread)).at)
    });
    assert_eq!((ends.len(), late), (10_000, 0));
    assert!((50_000..72_000).contains(&orders), "{orders}");
    // About two refusals an hour, while more certificates are due than the limit allows.
    assert!(authority.refused < 1500, "{}", authority.refused);
    // The limit is 2,400 a day. Jitter flattens later renewals.
    let later = by_day.iter().filter(|(day, _)| **day > 200).map(|(_, orders)| *orders).max();
    assert!(later.is_some_and(|most| most < 2_400), "{later:?}");
}

/// Certificates that are issued in the same minute are not renewed in the same hour.
#[test]
fn jitter_spreads_renewals() {
    let mut random = Random::new(3);
    let mut hours = HashMap::<i64, usize>::new();
    for _ in 0..10_000 {
        *hours.entry(crate::Schedule::of(0, 90 * DAY, fraction(&mut random)).at / 3600).or_default() += 1;
    }
    assert!(hours.len() > 40 && hours.values().all(|orders| *orders < 350), "{hours:?}");
}

/// Any mixture of failures: never two orders at a time (asserted by `run`), and all are issued once the authorities
/// recover.
#[test]
fn random_failures_of_several_issuers() {
    for seed in 1..200 {
        let mut random = Random::new(seed);
        let mut agenda = Agenda::new(&[IssuerLimits::of(3), IssuerLimits::of(2), IssuerLimits::of(1)]);
        let orders: [&[usize]; 4] = [&[0, 1], &[1, 0, 2], &[2], &[0, 1, 2]];
        for at in 0..50 {
            agenda.add(orders[at % 4], at as i64, at % 7 == 0);
        }
        let mut issued = HashMap::<TaskId, usize>::new();
        let mut dice = Random::new(seed * 7);
        let mut answer = |order: DueOrder, time: i64| match fraction(&mut dice) {
            _ if time > 2 * DAY => {
                *issued.entry(order.task).or_default() += 1;
                Ok(time + 60 * DAY)
            }
            x if x < 0.3 => Err((FailureCause::Task, None)),
            x if x < 0.6 => Err((FailureCause::Issuer, (x < 0.5).then_some(700))),
            x if x < 0.8 => Err((FailureCause::Limits, Some((x * 10_000.0) as i64))),
            _ => Ok(time + (fraction(&mut dice) * 1000.0) as i64),
        };
        run(&mut agenda, 0, 3 * DAY, 7, &mut random, &mut answer);
        assert_eq!(issued.len(), 50, "seed {seed}");
        assert_eq!(agenda.under_way(), 0, "seed {seed}");
    }
}

#[test]
fn the_next_issuer_serves_while_the_first_is_down() {
    let mut random = Random::new(5);
    let mut agenda = Agenda::new(&[IssuerLimits::of(8), IssuerLimits::of(8)]);
    let mut first = Authority::new(usize::MAX, 1);
    first.down = true;
    for _ in 0..100 {
        agenda.add(&[0, 1], 0, false);
    }
    let (mut asked, mut by_second) = (0, 0);
    run(&mut agenda, 0, 2 * 3600, 2, &mut random, |order, time| {
        if order.issuer == 0 {
            asked += 1;
            return Err((FailureCause::Issuer, None));
        }
        by_second += 1;
        Ok(time + 60 * DAY)
    });
    assert_eq!(by_second, 100);
    // Eight at once, then single ones after growing pauses.
    assert!((8..16).contains(&asked), "{asked}");
    // At the renewal the first issuer is tried first, and is back.
    let mut issuers = [0, 0];
    run(&mut agenda, 59 * DAY, 70 * DAY, 2, &mut random, |order, time| {
        issuers[order.issuer] += 1;
        Ok(time + 60 * DAY)
    });
    assert_eq!(issuers, [100, 0]);
}

#[test]
fn refusals_of_a_name_pause_that_name_and_issuer_alone() {
    let mut agenda = Agenda::new(&[IssuerLimits::of(8), IssuerLimits::of(8)]);
    let (a, b) = (agenda.add(&[0, 1], 0, false), agenda.add(&[0], 0, false));
    let of_a = agenda.start(at(0)).filter(|order| order.task == a).expect("due");
    assert_eq!(agenda.start(at(0)), Some(DueOrder { task: b, issuer: 0 }));
    assert_eq!(agenda.failed(of_a, at(1), FailureCause::Task, None, 0.5), 0, "the other issuer is tried at once");
    let again = agenda.start(at(1)).expect("due");
    assert_eq!(again, DueOrder { task: a, issuer: 1 });
    assert_eq!(
        agenda.failed(again, at(2), FailureCause::Task, Some(40), 0.5),
        4,
        "the first one's pause has begun earlier"
    );
    assert_eq!((agenda.failures(a), agenda.next_order(a, at(2))), (2, at(6).wall));
    assert_eq!((agenda.start(at(5)), agenda.start(at(6))), (None, Some(DueOrder { task: a, issuer: 0 })));
}

#[test]
fn pauses_grow_and_end() {
    let mut agenda = Agenda::new(&[IssuerLimits::of(1)]);
    let id = agenda.add(&[0], 0, false);
    let mut time = 0;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        let order = agenda.start(at(time)).expect("due");
        let pause = agenda.failed(order, at(time), FailureCause::Task, None, 0.5);
        pauses.push(pause);
        assert!(agenda.start(at(time + pause - 1)).is_none());
        time += pause;
    }
    assert_eq!(pauses, [5, 15, 45, 135, 405, 1215, 3600, 3600, 3600]);
    // An operator's wish ends a pause, and the issuer's.
    let order = agenda.start(at(time)).expect("due");
    agenda.failed(order, at(time), FailureCause::Issuer, Some(86_400), 0.5);
    assert!(agenda.start(at(time + 86_000)).is_none());
    agenda.hurry(id);
    let order = agenda.start(at(time)).expect("due");
    agenda.hurry(id);
    assert!(agenda.start(at(time)).is_none(), "one at a time");
    agenda.succeeded(order, at(time), at(time + 100).wall, at(time + 200).wall);
    assert_eq!((agenda.failures(id), agenda.idle_for(at(time), 60), agenda.idle_for(at(time + 90), 60)), (0, 60, 10));
}

#[test]
fn clocks_that_are_set() {
    let later = |steady: i64, wall: i64| Now { wall: at(wall).wall, steady: at(steady).steady };
    let mut agenda = Agenda::new(&[IssuerLimits::of(1)]);
    agenda.add(&[0], 0, false);
    let order = agenda.start(at(0)).expect("due");
    // Ten years ahead during an order, and back: the pause is a few seconds all the same.
    agenda.failed(order, later(1, 3650 * DAY), FailureCause::Task, None, 0.5);
    assert!(agenda.start(later(2, 2)).is_none());
    let order = agenda.start(later(6, 6)).expect("due");
    // Issued with true times, renewed by them.
    agenda.succeeded(order, later(7, 7), at(60 * DAY).wall, at(90 * DAY).wall);
    assert!(agenda.start(later(8, -20 * 365 * DAY)).is_none(), "back to an earlier time: nothing is due");
    let order = agenda.start(later(9, 70 * DAY)).expect("a jump over the renewal");
    // A certificate that has ended by a clock that is wrong is ordered in steps, not at once.
    agenda.succeeded(order, later(10, 70 * DAY), at(60 * DAY).wall, at(90 * DAY).wall);
    assert!(agenda.start(later(11, 70 * DAY + 1)).is_none());
    assert!(agenda.start(later(16, 70 * DAY + 6)).is_some());
}

/// A clock that is 70 days ahead, or an issuer's that is behind: each certificate of 90 days is due when it is issued.
#[test]
fn certificates_that_are_due_when_they_are_issued_do_not_loop() {
    let mut agenda = Agenda::new(&[IssuerLimits::of(1)]);
    let id = agenda.add(&[0], 0, false);
    let mut orders = 0;
    for time in 0..DAY {
        if let Some(order) = agenda.start(at(time)) {
            orders += 1;
            agenda.succeeded(order, at(time), at(time - 10 * DAY).wall, at(time + 20 * DAY).wall);
        }
    }
    assert!((20..40).contains(&orders), "{orders}");
    // The clock is corrected: one more order, and the renewal is that of its certificate.
    let corrected = |time: i64| Now { wall: at(time - 70 * DAY).wall, steady: at(time).steady };
    let order = (DAY..).find_map(|time| agenda.start(corrected(time))).expect("due within an hour");
    let time = 2 * DAY;
    agenda.succeeded(order, corrected(time), corrected(time + 60 * DAY).wall, corrected(time + 90 * DAY).wall);
    assert_eq!(agenda.next_order(id, corrected(time)), corrected(time + 60 * DAY).wall);
    // A short rest of the life is no reason to let the certificate end.
    let mut time = time + 60 * DAY;
    for _ in 0..10 {
        let order = agenda.start(corrected(time)).expect("due");
        agenda.succeeded(order, corrected(time), corrected(time - 60).wall, corrected(time + 1200).wall);
        let next = agenda.next_order(id, corrected(time));
        assert!(next <= corrected(time + 600).wall);
        time += next - corrected(time).wall;
    }
}

#[test]
fn suggestions_to_renew_at_once_do_not_loop() {
    let mut agenda = Agenda::new(&[IssuerLimits::of(1)]);
    let id = agenda.add(&[0], 0, false);
    let mut time = 0;
    let mut orders = 0;
    // An authority that suggests a window in the past for each certificate.
    while time < DAY {
        if let Some(order) = agenda.start(at(time)) {
            orders += 1;
            agenda.succeeded(order, at(time), at(time + 60 * DAY).wall, at(time + 90 * DAY).wall);
            agenda.suggest(id, at(time), at(time - DAY).wall, 90 * DAY);
        }
        time += 1;
    }
    assert!((20..40).contains(&orders), "{orders}");
    // A window late in the life is followed, and forgives.
    agenda.renew_at(id, at(time + 50 * DAY).wall);
    agenda.suggest(id, at(time), at(time + 40 * DAY).wall, 90 * DAY);
    assert_eq!(agenda.next_order(id, at(time)), at(time + 40 * DAY).wall);
}

#[test]
fn clients_that_wait_come_first() {
    let mut agenda = Agenda::new(&[IssuerLimits::of(1)]);
    for _ in 0..5 {
        agenda.add(&[0], 0, false);
    }
    let urgent = agenda.add(&[0], 0, true);
    let order = agenda.start(at(0)).expect("due");
    assert_eq!(order.task, urgent);
    assert!(!agenda.remove(urgent), "its order is under way");
    agenda.succeeded(order, at(1), at(100).wall, at(200).wall);
    assert!(agenda.remove(urgent) && agenda.len() == 5);
}

#[test]
fn pauses_can_be_fixed() {
    let mut agenda = Agenda::new(&[IssuerLimits { orders_max: 1, retry: Some(7200) }]);
    agenda.add(&[0], 0, false);
    for (cause, time) in [(FailureCause::Task, 0), (FailureCause::Issuer, 7200), (FailureCause::Task, 14_400)] {
        let order = agenda.start(at(time)).expect("due");
        assert_eq!(agenda.failed(order, at(time), cause, None, 0.9), 7200);
    }
}

#[test]
fn a_waiting_client_ends_no_pause() {
    let mut agenda = Agenda::new(&[IssuerLimits::of(1)]);
    let id = agenda.add(&[0], at(1000).wall, false);
    assert_eq!(agenda.urge(id, at(0)), 0);
    let order = agenda.start(at(0)).expect("before its time");
    assert_eq!(agenda.urge(id, at(0)), 0, "under way");
    agenda.failed(order, at(0), FailureCause::Limits, Some(500), 0.5);
    assert_eq!((agenda.urge(id, at(1)), agenda.start(at(1))), (499, None));
    let other = agenda.add(&[0], 0, true);
    assert_eq!(agenda.urge(other, at(1)), 59, "the issuer is paused");
    assert_eq!(agenda.start(at(60)).map(|order| order.task), Some(other));
}
