//! Loop of a thread that only runs tasks, and the parts of a turn shared with workers.

use crate::inbox::{self, LoopWaker, Remote};
use crate::{budget, task, time};
use base::clock;
use net::poller::{EVENTS_MAX, Poller};
use std::future::Future;
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll};

/// Registers a thread with the runtime, so that others can wake its tasks. Dropping it drops ready tasks; others end
/// with their sockets and timers.
pub struct Thread {
    remote: Arc<Remote>,
}

impl Thread {
    /// Registers the calling thread. Fails without descriptors. A thread must not be registered twice.
    pub fn enter() -> io::Result<Thread> {
        Ok(Thread { remote: inbox::open()? })
    }
    /// Returns the handle that wakes this thread from others; the loop watches [`Remote::event`].
    pub fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }
    /// Creates a waker of the thread's loop.
    pub fn loop_waker(&self) -> Arc<LoopWaker> {
        LoopWaker::new(self.remote.clone())
    }
    /// Starts the task part of a turn: due timers, and tasks woken by other threads.
    pub fn begin_turn(&self) {
        time::fire(clock::now());
        task::begin_turn(&self.remote);
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        inbox::close();
        task::begin_turn(&self.remote);
        time::clear();
        task::drop_all();
    }
}

/// Maximum number of tasks between two looks at the sockets.
const TASKS_A_TURN_MAX: usize = 128;

/// Runs a future and its tasks, for tests. Panics with the future, or without descriptors.
pub fn block_on<F: Future>(future: F) -> F::Output {
    run_future(future).unwrap_or_else(|e| panic!("the event queue cannot be made: {e}"))
}

/// [`block_on`] for threads that must not panic. Fails without descriptors.
pub fn run_future<F: Future>(future: F) -> io::Result<F::Output> {
    clock::update();
    let thread = Thread::enter()?;
    let poller: Rc<Poller<()>> = Rc::new(Poller::new()?);
    let before = net::outbound::watch_with(&poller);
    poller.add_copy(thread.remote.event().try_clone()?)?;
    let waker = thread.loop_waker();
    let done = {
        let mut future = pin!(future);
        let mut ready = Vec::with_capacity(EVENTS_MAX);
        loop {
            budget::renew();
            if waker.take()
                && let Poll::Ready(done) = future.as_mut().poll(&mut Context::from_waker(&waker.waker()))
            {
                break done;
            }
            let mut ran = 0;
            while ran < TASKS_A_TURN_MAX && task::run_one() {
                ran += 1;
            }
            let until = if task::any_ready() || !thread.remote.begin_sleep() {
                Some(clock::Instant::default())
            } else {
                time::next()
            };
            poller.wait(until, &mut ready)?;
            thread.remote.end_sleep();
            ready.clear();
            clock::update();
            thread.begin_turn();
        }
    };
    net::outbound::watch_again(before);
    poller.forget_all_wakers();
    drop(poller);
    drop(thread);
    Ok(done)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::{JoinSet, spawn_local, yield_now};
    use std::cell::{Cell, RefCell};
    use std::time::Duration;

    #[test]
    fn tasks_take_turns_and_their_ends_are_seen() {
        let order = Rc::new(RefCell::new(Vec::new()));
        block_on(async {
            let one = |name: &'static str| {
                let order = order.clone();
                async move {
                    for n in 0..3 {
                        order.borrow_mut().push((name, n));
                        yield_now().await;
                    }
                    name
                }
            };
            let (a, b) = (spawn_local(one("a")), spawn_local(one("b")));
            assert_eq!((a.await, b.await), (Ok("a"), Ok("b")));
        });
        assert_eq!(order.borrow()[..4], [("a", 0), ("b", 0), ("a", 1), ("b", 1)]);
    }

    #[test]
    fn a_panic_ends_its_task_alone() {
        let dropped = Rc::new(Cell::new(false));
        struct Held(Rc<Cell<bool>>);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.set(true);
            }
        }
        let held = Held(dropped.clone());
        block_on(async {
            let broken = spawn_local(async move {
                let _held = held;
                yield_now().await;
                panic!("a test's panic");
            });
            let other = spawn_local(async { 7 });
            assert!(broken.await.is_err());
            assert_eq!(other.await, Ok(7));
        });
        assert!(dropped.get());
    }

    #[test]
    fn other_threads_wake_tasks_that_sleep() {
        let (sender, receiver) = std::sync::mpsc::channel::<std::task::Waker>();
        let helper = std::thread::spawn(move || {
            while let Ok(waker) = receiver.recv() {
                waker.wake();
            }
        });
        block_on(async move {
            for _ in 0..100 {
                let mut asked = false;
                let sender = sender.clone();
                let woken = spawn_local(std::future::poll_fn(move |cx| {
                    if std::mem::replace(&mut asked, true) {
                        return Poll::Ready(());
                    }
                    sender.send(cx.waker().clone()).expect("the helper lives");
                    Poll::Pending
                }));
                assert_eq!(woken.await, Ok(()));
            }
        });
        helper.join().expect("joined");
    }

    #[test]
    fn sets_abort_what_still_runs() {
        let ended = Rc::new(Cell::new(0));
        struct Held(Rc<Cell<u32>>);
        impl Drop for Held {
            fn drop(&mut self) {
                self.0.set(self.0.get() + 1);
            }
        }
        block_on(async {
            let mut set = JoinSet::new();
            for _ in 0..3 {
                let held = Held(ended.clone());
                set.spawn_local(async move {
                    let _held = held;
                    crate::time::sleep_for(Duration::from_secs(3600)).await;
                });
            }
            set.spawn_local(async {});
            assert_eq!(set.join_next().await, Some(Ok(())));
            set.reap();
            drop(set);
            yield_now().await;
            yield_now().await;
            assert_eq!(ended.get(), 3);
        });
    }

    #[test]
    fn a_ready_future_beats_its_timeout() {
        block_on(async {
            let both = crate::time::with_timeout(Duration::ZERO, async { 1 }).await;
            assert_eq!(both, Ok(1));
            let never = std::future::pending::<()>();
            assert!(crate::time::with_timeout(Duration::from_millis(2), never).await.is_err());
        });
    }
}
