//! Decides which certificate is ordered next, from which of its issuers, and when a failed order is repeated. Knows no
//! network and reads no clock, so that years and thousands of names can be simulated.
//!
//! A certificate has at most one order at a time. It tries its issuers in their order; an issuer that is down or limits
//! its clients is paused for all certificates, and then gets a single order until one succeeds.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// Seconds until a failed order is repeated: at first, and at most. Each failure triples the pause.
const RETRY_FIRST: i64 = 5;
const RETRY_MOST: i64 = 3600;
/// Seconds for which an issuer is paused when it limits its clients: at first. Refusals within hours triple them.
const LIMITED_FIRST: i64 = 60;
/// The longest pause that an issuer can ask for.
const ASKED_MOST: i64 = 7 * 86_400;
/// Seconds between two orders of a certificate, even if an issuer's certificates end at once. Each certificate in a row that is due
/// for renewal when it is issued triples them.
const ORDERS_APART: i64 = 5;

/// The time of a decision, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Now {
    /// Since 1970. Ends of certificates.
    pub wall: i64,
    /// Of a clock that is never set. Pauses.
    pub steady: i64,
}

/// A certificate of the agenda.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaskId(u64);

/// An order that is to be made now. [`Agenda::succeeded`], [`Agenda::failed`] or [`Agenda::postponed`] ends it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DueOrder {
    pub task: TaskId,
    /// Index of [`Agenda::new`].
    pub issuer: usize,
}

/// The cause of a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureCause {
    /// The certificate: its names, their validation.
    Task,
    /// The issuer: it is down, or refuses the account.
    Issuer,
    /// The issuer's rate limits.
    Limits,
}

/// An issuer's limits.
#[derive(Clone, Copy, Debug)]
pub struct IssuerLimits {
    /// Orders at a time.
    pub orders_max: usize,
    /// Seconds until a failed order is repeated, in place of growing pauses.
    pub retry: Option<i64>,
}

impl IssuerLimits {
    /// Limits the orders at a time; pauses grow.
    pub fn of(orders_max: usize) -> IssuerLimits {
        IssuerLimits { orders_max, retry: None }
    }
}

/// An issuer's availability.
#[derive(Clone, Debug)]
struct Pace {
    limits: IssuerLimits,
    under_way: usize,
    /// Failures of the issuer since its last success.
    failures: u32,
    paused_until: i64,
    /// Recent refusals by rate limits, one less each hour since the last.
    limited: u32,
    limited_at: i64,
}

impl Pace {
    /// Pauses the issuer, for less than it requests if that is long: it may limit a single name for days. Other
    /// certificates retry with increasing delays.
    fn limit(&mut self, now: i64, random: f64) {
        // Orders that were under way together are refused together.
        if self.paused_until > now {
            return;
        }
        let hours = u32::try_from(now.saturating_sub(self.limited_at) / RETRY_MOST).unwrap_or(u32::MAX);
        self.limited = self.limited.saturating_sub(hours);
        let step = pause(LIMITED_FIRST, self.limited, random);
        self.paused_until = now.saturating_add(step);
        (self.limited, self.limited_at) = (self.limited.saturating_add(1), now);
    }

    /// After a failure a single order finds out whether the issuer is back.
    fn is_full(&self) -> bool {
        self.under_way >= if self.failures > 0 { 1 } else { self.limits.orders_max }
    }
}

/// A certificate's tries of one issuer.
#[derive(Clone, Debug)]
struct Tries {
    issuer: usize,
    failures: u32,
    not_before: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AgendaState {
    /// Until the renewal, by the wall clock.
    Waiting(i64),
    /// Until the next try, by the steady clock.
    Paused(i64),
    /// Not urgent; the number of its arrival.
    Ready(bool, u64),
    UnderWay(usize),
}

#[derive(Clone, Debug)]
struct Task {
    tries: Vec<Tries>,
    state: AgendaState,
    urgent: bool,
    /// Steady time of the last success.
    issued: Option<i64>,
    /// Renewals in a row that the issuer asked for early in the certificate's life.
    early: u32,
    /// Certificates in a row that were due for renewal when they were issued: this machine's clock is ahead, or the issuer's is behind.
    overdue: u32,
}

/// See the module's documentation.
pub struct Agenda {
    issuers: Vec<Pace>,
    tasks: BTreeMap<TaskId, Task>,
    /// Of ids and arrivals.
    next: u64,
    waiting: BTreeSet<(i64, TaskId)>,
    paused: BTreeSet<(i64, TaskId)>,
    ready: BTreeSet<(bool, u64, TaskId)>,
}

/// Returns the pause after so many failures; `random`: 0 to 1, spreads it by a fifth.
fn pause(first: i64, failures: u32, random: f64) -> i64 {
    let pause = first.saturating_mul(3_i64.saturating_pow(failures.min(20))).min(RETRY_MOST);
    ((pause as f64 * (0.8 + 0.4 * random)) as i64).max(1)
}

enum ChosenStep {
    Now(usize),
    /// All issuers are paused until then.
    At(i64),
    Full,
}

impl Agenda {
    /// `limits`: of each issuer.
    pub fn new(limits: &[IssuerLimits]) -> Agenda {
        let pace = |limits: &IssuerLimits| Pace {
            limits: *limits,
            under_way: 0,
            failures: 0,
            paused_until: 0,
            limited: 0,
            limited_at: 0,
        };
        Agenda {
            issuers: limits.iter().map(pace).collect(),
            tasks: BTreeMap::new(),
            next: 0,
            waiting: BTreeSet::new(),
            paused: BTreeSet::new(),
            ready: BTreeSet::new(),
        }
    }

    /// Adds a certificate. `issuers`: in their order. `at`: the time of its next order, by the wall clock. `urgent`: a
    /// client waits.
    pub fn add(&mut self, issuers: &[usize], at: i64, urgent: bool) -> TaskId {
        let id = TaskId(self.next);
        self.next += 1;
        let tries = issuers.iter().map(|issuer| Tries { issuer: *issuer, failures: 0, not_before: 0 }).collect();
        self.waiting.insert((at, id));
        self.tasks
            .insert(id, Task { tries, state: AgendaState::Waiting(at), urgent, issued: None, early: 0, overdue: 0 });
        id
    }

    /// Removes a certificate, unless it has an order under way; returns `false` then.
    pub fn remove(&mut self, id: TaskId) -> bool {
        if matches!(self.tasks.get(&id), Some(Task { state: AgendaState::UnderWay(_), .. })) {
            return false;
        }
        self.leave(id);
        self.tasks.remove(&id);
        true
    }

    fn make_ready(&mut self, id: TaskId) {
        let later = self.tasks.get(&id).is_none_or(|task| !task.urgent);
        self.next += 1;
        self.enter(id, AgendaState::Ready(later, self.next));
    }

    /// Moves a task into a state, with its entry in the state's set.
    fn enter(&mut self, id: TaskId, state: AgendaState) {
        self.leave(id);
        let Some(task) = self.tasks.get_mut(&id) else { return };
        task.state = state;
        match state {
            AgendaState::Waiting(at) => drop(self.waiting.insert((at, id))),
            AgendaState::Paused(at) => drop(self.paused.insert((at, id))),
            AgendaState::Ready(later, number) => drop(self.ready.insert((later, number, id))),
            AgendaState::UnderWay(issuer) => {
                if let Some(pace) = self.issuers.get_mut(issuer) {
                    pace.under_way += 1;
                }
            }
        }
    }

    fn leave(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get(&id) else { return };
        match task.state {
            AgendaState::Waiting(at) => drop(self.waiting.remove(&(at, id))),
            AgendaState::Paused(at) => drop(self.paused.remove(&(at, id))),
            AgendaState::Ready(later, number) => drop(self.ready.remove(&(later, number, id))),
            AgendaState::UnderWay(issuer) => {
                if let Some(pace) = self.issuers.get_mut(issuer) {
                    pace.under_way = pace.under_way.saturating_sub(1);
                }
            }
        }
    }

    /// Chooses the first issuer that may be tried.
    fn choose(&self, task: &Task, now: Now) -> ChosenStep {
        let (mut earliest, mut is_full) = (i64::MAX, false);
        for tries in &task.tries {
            let Some(pace) = self.issuers.get(tries.issuer) else { continue };
            let from = tries.not_before.max(pace.paused_until);
            match () {
                () if from > now.steady => earliest = earliest.min(from),
                () if !pace.is_full() => return ChosenStep::Now(tries.issuer),
                () if pace.failures == 0 => return ChosenStep::Full,
                // Another order tests whether the authority is back.
                () => is_full = true,
            }
        }
        if is_full { ChosenStep::Full } else { ChosenStep::At(earliest) }
    }

    /// Starts the next due order; urgent ones first.
    pub fn start(&mut self, now: Now) -> Option<DueOrder> {
        while let Some((_, id)) = self.waiting.first().copied().filter(|(at, _)| *at <= now.wall) {
            self.make_ready(id);
        }
        while let Some((_, id)) = self.paused.first().copied().filter(|(at, _)| *at <= now.steady) {
            self.make_ready(id);
        }
        for pace in &mut self.issuers {
            if now.steady.saturating_sub(pace.paused_until) > RETRY_MOST {
                pace.failures = 0;
            }
        }
        let mut after = None;
        while !self.issuers.iter().all(Pace::is_full) {
            let next = match after {
                None => self.ready.first().copied(),
                Some(last) => self.ready.range((Bound::Excluded(last), Bound::Unbounded)).next().copied(),
            };
            let entry = next?;
            let task = entry.2;
            match self.tasks.get(&task).map_or(ChosenStep::Full, |found| self.choose(found, now)) {
                ChosenStep::Now(issuer) => {
                    self.enter(task, AgendaState::UnderWay(issuer));
                    return Some(DueOrder { task, issuer });
                }
                ChosenStep::At(until) => self.enter(task, AgendaState::Paused(until)),
                ChosenStep::Full => after = Some(entry),
            }
        }
        None
    }

    /// Returns the seconds until something is due, at most `most`. Zero: something is, if a place becomes free.
    pub fn idle_for(&self, now: Now, most: i64) -> i64 {
        let waiting = self.waiting.first().map_or(i64::MAX, |(at, _)| at.saturating_sub(now.wall));
        let paused = self.paused.first().map_or(i64::MAX, |(at, _)| at.saturating_sub(now.steady));
        waiting.min(paused).clamp(0, most)
    }

    /// Ends an order: the next one is at `at`, by the wall clock. A time that is past is replaced by a pause that grows, up to half of
    /// the time until `ends`, the certificate's end: a new certificate would be due at once, too.
    pub fn succeeded(&mut self, order: DueOrder, now: Now, at: i64, ends: i64) {
        if let Some(pace) = self.issuers.get_mut(order.issuer) {
            pace.failures = 0;
        }
        let mut state = AgendaState::Waiting(at.max(now.wall.saturating_add(ORDERS_APART)));
        if let Some(task) = self.tasks.get_mut(&order.task) {
            task.tries.iter_mut().for_each(|tries| (tries.failures, tries.not_before) = (0, 0));
            task.issued = Some(now.steady);
            task.urgent = false;
            if at > now.wall {
                task.overdue = 0;
            } else {
                let step = pause(ORDERS_APART, task.overdue, 0.5).min(ends.saturating_sub(now.wall) / 2);
                task.overdue = task.overdue.saturating_add(1);
                // By the steady clock: the wall clock is probably wrong, and may be corrected.
                state = AgendaState::Paused(now.steady.saturating_add(step.max(ORDERS_APART)));
            }
        }
        self.enter(order.task, state);
    }

    /// Ends a failed order. `asked`: seconds that the issuer requests to wait. `random`: 0 to 1. Returns the seconds
    /// until the next try, with another issuer if there is one.
    pub fn failed(&mut self, order: DueOrder, now: Now, cause: FailureCause, asked: Option<i64>, random: f64) -> i64 {
        let asked = asked.unwrap_or(0).clamp(0, ASKED_MOST);
        if let Some(pace) = self.issuers.get_mut(order.issuer) {
            match cause {
                FailureCause::Task => pace.failures = 0,
                FailureCause::Issuer => {
                    let step = pause(RETRY_FIRST, pace.failures, random).max(asked);
                    pace.paused_until = pace.paused_until.max(now.steady.saturating_add(step));
                    pace.failures = pace.failures.saturating_add(1);
                }
                FailureCause::Limits => pace.limit(now.steady, random),
            }
        }
        let retry = self.issuers.get(order.issuer).and_then(|pace| pace.limits.retry);
        let Some(task) = self.tasks.get_mut(&order.task) else { return 0 };
        if let Some(tries) = task.tries.iter_mut().find(|tries| tries.issuer == order.issuer) {
            let own = match (retry, cause) {
                (Some(retry), _) => retry.max(asked),
                (None, FailureCause::Issuer) => 0,
                (None, _) => pause(RETRY_FIRST, tries.failures, random).max(asked),
            };
            tries.failures = tries.failures.saturating_add(1);
            tries.not_before = now.steady.saturating_add(own);
        }
        self.pause(order.task, now)
    }

    fn pause(&mut self, id: TaskId, now: Now) -> i64 {
        let Some(task) = self.tasks.get(&id) else { return 0 };
        let until = match self.choose(task, now) {
            ChosenStep::At(until) => until,
            ChosenStep::Now(_) | ChosenStep::Full => now.steady,
        };
        self.enter(id, AgendaState::Paused(until));
        until.saturating_sub(now.steady)
    }

    /// Ends an order that was not made, through no fault of its issuer, for so many seconds.
    pub fn postponed(&mut self, task: TaskId, now: Now, seconds: i64) {
        self.enter(task, AgendaState::Paused(now.steady.saturating_add(seconds)));
    }

    /// Orders as soon as the pauses permit, before others: a client waits. Returns the seconds until then.
    pub fn urge(&mut self, id: TaskId, now: Now) -> i64 {
        let Some(task) = self.tasks.get_mut(&id) else { return 0 };
        task.urgent = true;
        match task.state {
            AgendaState::UnderWay(_) => return 0,
            AgendaState::Paused(until) if until > now.steady => return until.saturating_sub(now.steady),
            _ => {}
        }
        self.make_ready(id);
        let chosen = self.tasks.get(&id).map(|task| self.choose(task, now));
        match chosen {
            Some(ChosenStep::At(until)) => until.saturating_sub(now.steady),
            _ => 0,
        }
    }

    /// Orders now, whatever has failed before; an order under way stays the only one.
    pub fn hurry(&mut self, id: TaskId) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let is_under_way = matches!(task.state, AgendaState::UnderWay(_));
        for tries in &mut task.tries {
            tries.not_before = 0;
            if let Some(pace) = self.issuers.get_mut(tries.issuer) {
                pace.paused_until = 0;
            }
        }
        if !is_under_way {
            self.make_ready(id);
        }
    }

    /// Moves the renewal to a time that the issuer suggests, by the wall clock; failed orders keep their own. Renewals
    /// in a row that are suggested soon after their issue are made in growing steps.
    pub fn suggest(&mut self, id: TaskId, now: Now, at: i64, life: i64) {
        let Some(task) = self.tasks.get_mut(&id) else { return };
        let AgendaState::Waiting(_) = task.state else { return };
        let wait = at.saturating_sub(now.wall);
        let age = task.issued.map_or(i64::MAX, |issued| now.steady.saturating_sub(issued));
        let at = if age.saturating_add(wait.max(0)) < life / 4 {
            let floor = if task.early == 0 { 0 } else { pause(RETRY_FIRST, task.early, 0.5) };
            task.early = task.early.saturating_add(1);
            at.max(now.wall.saturating_add(floor.saturating_sub(age)))
        } else {
            task.early = 0;
            at
        };
        self.enter(id, AgendaState::Waiting(at));
    }

    /// Moves the renewal to this time, by the wall clock, if it is later: the issuer's suggestion is none any more.
    pub fn renew_by(&mut self, id: TaskId, at: i64) {
        if let Some(Task { state: AgendaState::Waiting(now), .. }) = self.tasks.get(&id)
            && *now > at
        {
            self.enter(id, AgendaState::Waiting(at));
        }
    }

    /// Sets the time of the renewal, by the wall clock, for a certificate from elsewhere.
    pub fn renew_at(&mut self, id: TaskId, at: i64) {
        if let Some(task) = self.tasks.get_mut(&id) {
            task.tries.iter_mut().for_each(|tries| (tries.failures, tries.not_before) = (0, 0));
            task.urgent = false;
        }
        self.enter(id, AgendaState::Waiting(at));
    }

    /// Returns the time of the next order, by the wall clock.
    pub fn next_order(&self, id: TaskId, now: Now) -> i64 {
        match self.tasks.get(&id).map(|task| task.state) {
            Some(AgendaState::Waiting(at)) => at,
            Some(AgendaState::Paused(at)) => now.wall.saturating_add(at.saturating_sub(now.steady)),
            _ => now.wall,
        }
    }

    /// Returns the failures since the last success, of all issuers.
    pub fn failures(&self, id: TaskId) -> u32 {
        let tries = self.tasks.get(&id).map(|task| task.tries.iter().map(|tries| tries.failures).sum());
        tries.unwrap_or(0)
    }

    /// Returns the orders under way.
    pub fn under_way(&self) -> usize {
        self.issuers.iter().map(|pace| pace.under_way).sum()
    }

    /// Tells whether an order is under way, or due.
    pub fn is_active(&self, id: TaskId) -> bool {
        matches!(self.tasks.get(&id), Some(Task { state: AgendaState::UnderWay(_) | AgendaState::Ready(..), .. }))
    }

    pub fn len(&self) -> usize {
        self.tasks.len()
    }
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }
}

#[cfg(test)]
#[path = "agenda_tests.rs"]
mod tests;
