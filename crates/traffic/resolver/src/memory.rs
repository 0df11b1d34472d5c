//! Answers of name servers and pending questions of a thread: a name is asked for once at a time, at most once a second,
//! and only while a waiter is there.

use crate::failure::ResolveFailure;
use base::clock::{self, Instant};
use runtime::task::JoinHandle;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::Future;
use std::rc::Rc;
use std::thread::LocalKey;
use std::time::Duration;
use tokio::sync::watch;

/// Longest time of a question, also an awaited one.
const QUESTION_MAX: Duration = Duration::from_secs(60);
/// Least time between two questions for a name, whatever the TTL, also after a failure (RFC 9520, 3.2) and after the last
/// waiter has left.
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// Maximum number of names per thread, answered or pending.
pub(super) const NAMES_MAX: usize = 10_000;

/// Resolver and name.
pub(super) type NameKey = (String, String);
/// Names of a thread.
pub(super) type NameMemory<T> = RefCell<HashMap<NameKey, NameEntry<T>>>;
/// An answer with its expiry, or a failure.
type TimedAnswer<T> = Result<(T, Instant), ResolveFailure>;

pub(super) enum NameEntry<T> {
    /// An answer, or the failure of the last question; `failures` of questions since `until` was set, each to another name server.
    Answered { answer: Result<T, ResolveFailure>, until: Instant, failures: usize },
    /// A question shared by all waiting requests.
    Pending(Rc<PendingQuestion<T>>),
}

pub(super) struct PendingQuestion<T> {
    answer: watch::Receiver<Option<TimedAnswer<T>>>,
    /// When the name may be asked for again, whatever the answer.
    again: Instant,
    waiters: Cell<usize>,
    /// Failed questions of this second before.
    failures: usize,
    task: RefCell<Option<JoinHandle<()>>>,
}

impl<T> PendingQuestion<T> {
    fn new(answer: watch::Receiver<Option<TimedAnswer<T>>>, again: Instant, failures: usize) -> Self {
        PendingQuestion { answer, again, waiters: Cell::new(0), failures, task: RefCell::new(None) }
    }
    fn is_abandoned(&self) -> bool {
        self.waiters.get() == 0
    }
    fn end(&self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// One request that waits for a question. The last one that leaves ends the question, one second after its start at the
/// earliest.
struct QuestionWaiter<T: 'static> {
    memory: &'static LocalKey<NameMemory<T>>,
    key: NameKey,
    question: Rc<PendingQuestion<T>>,
}

impl<T> QuestionWaiter<T> {
    fn new(memory: &'static LocalKey<NameMemory<T>>, key: NameKey, question: Rc<PendingQuestion<T>>) -> Self {
        question.waiters.set(question.waiters.get() + 1);
        QuestionWaiter { memory, key, question }
    }
}

impl<T> Drop for QuestionWaiter<T> {
    fn drop(&mut self) {
        self.question.waiters.set(self.question.waiters.get() - 1);
        if !self.question.is_abandoned() || clock::now() < self.question.again {
            return;
        }
        // (The memory may be gone at the end of the thread.)
        let _ = self.memory.try_with(|names| {
            let mut names = names.borrow_mut();
            if let Some(NameEntry::Pending(question)) = names.get(&self.key)
                && Rc::ptr_eq(question, &self.question)
            {
                question.end();
                names.remove(&self.key);
            }
        });
    }
}

/// Returns an answer, with its expiry, from the memory (then the flag is `true`) or by a question that all requests for
/// the key share. `ask` runs as a task of this thread; its result has a TTL in seconds, which `valid` replaces.
///
/// Fails with [`ResolveFailure::TimedOut`] after `timeout`, with [`ResolveFailure::TooMany`] if [`NAMES_MAX`] names are waited for, and as
/// the last question did within a second of its start, once all `servers` have failed.
pub(super) async fn recall_or_ask<T: Clone + 'static>(
    memory: &'static LocalKey<NameMemory<T>>,
    key: NameKey,
    valid: Option<Duration>,
    servers: usize,
    timeout: Duration,
    ask: impl Future<Output = Result<(T, u32), ResolveFailure>> + 'static,
) -> Result<(T, Instant, bool), ResolveFailure> {
    clock::update();
    let now = clock::now();
    let waiter = memory.with_borrow_mut(|names| match names.get(&key) {
        Some(NameEntry::Answered { answer, until, failures })
            if *until > now && (answer.is_ok() || *failures >= servers) =>
        {
            Err(answer.clone().map(|found| (found, *until, true)))
        }
        Some(NameEntry::Pending(question)) => Ok(QuestionWaiter::new(memory, key, question.clone())),
        other => {
            let (again, failures) = match other {
                Some(NameEntry::Answered { answer: Err(_), until, failures }) if *until > now => (*until, *failures),
                _ => (now.plus(ASK_AGAIN), 0),
            };
            if !make_room(names, now) {
                return Err(Err(ResolveFailure::TooMany));
            }
            let (sender, answer) = watch::channel(None);
            let question = Rc::new(PendingQuestion::new(answer, again, failures));
            names.insert(key.clone(), NameEntry::Pending(question.clone()));
            let run = ask_and_remember(memory, key.clone(), valid, ask, question.clone(), sender);
            *question.task.borrow_mut() = Some(runtime::task::spawn_local(run));
            Ok(QuestionWaiter::new(memory, key, question))
        }
    });
    let waiter = match waiter {
        Ok(waiter) => waiter,
        Err(known) => return known,
    };
    let mut answer = waiter.question.answer.clone();
    match runtime::time::with_timeout(timeout, answer.wait_for(Option::is_some)).await {
        Ok(Ok(answer)) => {
            let answer = answer.clone().unwrap_or(Err(ResolveFailure::Other));
            answer.map(|(found, until)| (found, until, false))
        }
        Ok(Err(_)) => Err(ResolveFailure::Other),
        Err(_) => Err(ResolveFailure::TimedOut),
    }
}

/// Waits until no failure of the key is remembered, for names that are looked up in the background.
pub(super) async fn forget_failure<T: Clone>(memory: &'static LocalKey<NameMemory<T>>, key: &NameKey) {
    clock::update();
    let until = memory.with_borrow(|names| match names.get(key) {
        Some(NameEntry::Answered { answer: Err(_), until, .. }) => Some(*until),
        _ => None,
    });
    if let Some(until) = until {
        runtime::time::sleep_until(until).await;
    }
}

async fn ask_and_remember<T: Clone>(
    memory: &'static LocalKey<NameMemory<T>>,
    key: NameKey,
    valid: Option<Duration>,
    ask: impl Future<Output = Result<(T, u32), ResolveFailure>>,
    question: Rc<PendingQuestion<T>>,
    sender: watch::Sender<Option<TimedAnswer<T>>>,
) {
    let again = question.again;
    // Later on, the last waiter itself ends the question.
    let abandoned = async {
        runtime::time::sleep_until(again).await;
        if !question.is_abandoned() {
            std::future::pending::<()>().await;
        }
    };
    let found = tokio::select! {
        found = runtime::time::with_timeout(QUESTION_MAX, ask) => found.unwrap_or(Err(ResolveFailure::TimedOut)),
        () = abandoned => {
            memory.with_borrow_mut(|names| names.remove(&key));
            return;
        }
    };
    clock::update();
    let (until, answer) = match found {
        Ok((found, ttl)) => {
            let valid = valid.unwrap_or(Duration::from_secs(u64::from(ttl)));
            let until = clock::now().plus_millis(valid.as_millis().min(u128::from(u32::MAX)) as u64).max(again);
            (until, Ok((found, until)))
        }
        Err(why) => (again, Err(why)),
    };
    let kept = answer.clone().map(|(found, _)| found);
    memory.with_borrow_mut(|names| {
        names.insert(key, NameEntry::Answered { answer: kept, until, failures: question.failures + 1 })
    });
    let _ = sender.send(Some(answer));
}

/// Makes room for one more name: expired answers go first, then all answers and the questions without a waiter. Returns
/// `false` if every name is waited for.
fn make_room<T>(names: &mut HashMap<NameKey, NameEntry<T>>, now: Instant) -> bool {
    if names.len() < NAMES_MAX {
        return true;
    }
    names.retain(|_, entry| !matches!(entry, NameEntry::Answered { until, .. } if *until < now));
    if names.len() >= NAMES_MAX {
        names.retain(|_, entry| match entry {
            NameEntry::Answered { .. } => false,
            NameEntry::Pending(question) if question.is_abandoned() => {
                question.end();
                false
            }
            NameEntry::Pending(_) => true,
        });
    }
    names.len() < NAMES_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: usize) -> NameKey {
        ("r".to_string(), format!("n{n}"))
    }

    #[test]
    fn remembered_names_have_a_bound() {
        clock::update();
        let now = clock::now();
        let later = now.plus_millis(1000);
        let answered = |until| NameEntry::Answered { answer: Ok(()), until, failures: 0 };
        let pending = |waiters| {
            let question = PendingQuestion::new(watch::channel(None).1, now, 0);
            question.waiters.set(waiters);
            NameEntry::Pending(Rc::new(question))
        };
        let mut names = HashMap::new();
        names.insert(key(0), pending(1));
        for n in 1..NAMES_MAX - 1 {
            names.insert(key(n), answered(if n % 2 == 0 { now } else { later }));
        }
        assert!(make_room(&mut names, now.plus_millis(1)));
        assert_eq!(names.len(), NAMES_MAX - 1, "while there is room, nothing goes");
        names.insert(key(NAMES_MAX - 1), answered(later));
        assert!(make_room(&mut names, now.plus_millis(1)));
        assert_eq!(names.len(), 1 + NAMES_MAX / 2, "expired answers go first");
        for n in 1..NAMES_MAX {
            names.insert(key(n), if n % 2 == 0 { answered(later) } else { pending(0) });
        }
        assert!(make_room(&mut names, now));
        assert_eq!(names.len(), 1, "then all but the awaited names");
        for n in 1..NAMES_MAX {
            names.insert(key(n), pending(1));
        }
        assert!(!make_room(&mut names, now), "an awaited question never goes");
        assert_eq!(names.len(), NAMES_MAX);
    }

    thread_local! {
        static WORDS: NameMemory<u32> = RefCell::new(HashMap::new());
    }

    /// Sets a flag when it is dropped.
    struct DropFlag(Rc<Cell<bool>>);

    impl Drop for DropFlag {
        fn drop(&mut self) {
            self.0.set(true);
        }
    }

    #[test]
    fn a_question_without_a_waiter_ends_and_an_awaited_one_goes_on() {
        runtime::block_on(async {
            let ended = Rc::new(Cell::new(false));
            let ask = |n: usize, timeout: u64| {
                let flag = DropFlag(ended.clone());
                let never = async move {
                    let _flag = flag;
                    std::future::pending().await
                };
                recall_or_ask(&WORDS, key(n), None, 1, Duration::from_millis(timeout), never)
            };
            let (first, second) = tokio::join!(ask(1, 1), ask(1, 1500));
            assert_eq!((first, second), (Err(ResolveFailure::TimedOut), Err(ResolveFailure::TimedOut)));
            assert!(WORDS.with_borrow(HashMap::is_empty), "the second waiter was the last one");
            runtime::task::yield_now().await;
            runtime::task::yield_now().await;
            assert!(ended.get());
            // Within the first second the question stays for the next request, then it ends by itself.
            assert_eq!(ask(2, 1).await, Err(ResolveFailure::TimedOut));
            assert_eq!(WORDS.with_borrow(HashMap::len), 1);
            while !WORDS.with_borrow(HashMap::is_empty) {
                runtime::time::sleep_for(Duration::from_millis(10)).await;
            }
        });
    }

    #[test]
    fn a_name_is_asked_for_at_most_once_a_second_and_failures_of_each_server_once() {
        runtime::block_on(async {
            let asked = Rc::new(Cell::new(0_u64));
            let cases = [
                (3, Ok((7, 0)), 1),
                (4, Err(ResolveFailure::NoSuchName), 1),
                (5, Ok((7, 1)), 1),
                (6, Err(ResolveFailure::Server), 3),
                (7, Ok((7, 0)), 3),
            ];
            for (n, answer, servers) in cases {
                let began = clock::read();
                let before = asked.get();
                for _ in 0..100 {
                    let asked = asked.clone();
                    let ask = async move {
                        asked.set(asked.get() + 1);
                        answer
                    };
                    let found = recall_or_ask(&WORDS, key(n), None, servers, Duration::from_secs(9), ask).await;
                    assert_eq!(found.map(|(found, ..)| found), answer.map(|(found, _)| found));
                }
                let seconds = clock::read().micros_since(began) / 1_000_000;
                let count = asked.get() - before;
                let each = if answer.is_ok() { 1 } else { servers as u64 };
                assert!(count >= each && count <= each * (1 + seconds), "{count} questions in {seconds} s");
                forget_failure(&WORDS, &key(n)).await;
                assert!(answer.is_ok() || clock::read() >= began.plus(ASK_AGAIN));
            }
        });
    }
}
