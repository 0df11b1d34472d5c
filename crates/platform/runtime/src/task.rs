//! Tasks of one thread.

use crate::inbox::{self, Home};
use crate::{budget, inbox::Remote, wake};
use async_task::{FallibleTask, Runnable};
use metrics::process;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::{Context, Poll};

thread_local! {
    static WOKEN: RefCell<VecDeque<Runnable>> = const { RefCell::new(VecDeque::new()) };
    static PANICS: Cell<u64> = const { Cell::new(0) };
}

fn schedule(home: Home, runnable: Runnable) {
    if inbox::is_here(home) {
        // After the thread's end the task is dropped here, on its own thread.
        let _ = WOKEN.try_with(|woken| woken.borrow_mut().push_back(runnable));
    } else {
        inbox::send(home, runnable);
    }
}

struct CountedTask;

impl CountedTask {
    fn begin() -> CountedTask {
        process::TASKS_STARTED.up();
        process::TASKS.up();
        CountedTask
    }
}

impl Drop for CountedTask {
    fn drop(&mut self) {
        process::TASKS.down();
    }
}

/// Starts a task on this thread; it first runs in the next turn. Dropping the handle detaches it.
pub fn spawn_local<F: Future + 'static>(future: F) -> JoinHandle<F::Output>
where
    F::Output: 'static,
{
    let home = inbox::home();
    let counted = CountedTask::begin();
    let (runnable, task) = async_task::spawn_local(future, move |runnable| {
        let _lives_as_long = &counted;
        schedule(home, runnable);
    });
    runnable.schedule();
    JoinHandle { task: Some(task.fallible()) }
}

/// The task has panicked or was dropped with its thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JoinError;

/// A handle of a task; as a future, its result. Dropping it detaches the task.
pub struct JoinHandle<T> {
    task: Option<FallibleTask<T>>,
}

impl<T> JoinHandle<T> {
    /// Ends the task at its next turn and drops its contents.
    pub fn abort(mut self) {
        drop(self.task.take());
    }
    /// Tells whether the task has ended.
    pub fn is_finished(&self) -> bool {
        self.task.as_ref().is_none_or(FallibleTask::is_finished)
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.detach();
        }
    }
}

impl<T> Future for JoinHandle<T> {
    type Output = Result<T, JoinError>;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.task {
            Some(task) => Pin::new(task).poll(cx).map(|done| done.ok_or(JoinError)),
            None => Poll::Ready(Err(JoinError)),
        }
    }
}

/// Tasks that end together: dropping the set aborts them.
pub struct JoinSet<T>(Vec<JoinHandle<T>>);

impl<T: 'static> Default for JoinSet<T> {
    fn default() -> Self {
        JoinSet(Vec::new())
    }
}

impl<T: 'static> JoinSet<T> {
    /// Creates an empty set.
    pub fn new() -> Self {
        Self::default()
    }
    /// Starts a task on this thread, as a part of the set.
    pub fn spawn_local(&mut self, future: impl Future<Output = T> + 'static) {
        self.0.push(spawn_local(future));
    }
    /// Waits for the end of any task, and returns its result; `None`: the set is empty. Each call looks at all tasks.
    pub async fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        std::future::poll_fn(|cx| {
            if self.0.is_empty() {
                return Poll::Ready(None);
            }
            for at in 0..self.0.len() {
                if let Some(one) = self.0.get_mut(at)
                    && let Poll::Ready(done) = Pin::new(one).poll(cx)
                {
                    self.0.swap_remove(at);
                    return Poll::Ready(Some(done));
                }
            }
            Poll::Pending
        })
        .await
    }
    /// Removes ended tasks, whose results are dropped.
    pub fn reap(&mut self) {
        self.0.retain(|one| !one.is_finished());
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        for mut one in self.0.drain(..) {
            drop(one.task.take());
        }
    }
}

/// Yields to other tasks: continues in the next turn, after the sockets.
pub async fn yield_now() {
    let mut yielded = false;
    std::future::poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        budget::give_way(cx.waker());
        Poll::Pending
    })
    .await;
}

/// Tells whether a turn has tasks to run: the loop must not wait.
pub fn any_ready() -> bool {
    WOKEN.with_borrow(|woken| !woken.is_empty()) || wake::any() || budget::any_gave_way()
}

/// Returns the number of panics of this thread's tasks.
pub fn task_panics() -> u64 {
    PANICS.get()
}

/// Makes tasks ready that other threads have woken or that yielded in the last turn.
pub(crate) fn begin_turn(remote: &Remote) {
    budget::wake_all();
    WOKEN.with_borrow_mut(|woken| remote.take(woken));
}

/// Runs one ready task; `false` if there is none. A panic ends only the task; the process's hook reports it.
pub fn run_one() -> bool {
    let Some(runnable) = WOKEN.with_borrow_mut(VecDeque::pop_front) else { return false };
    budget::renew();
    if std::panic::catch_unwind(AssertUnwindSafe(|| runnable.run())).is_err() {
        PANICS.set(PANICS.get() + 1);
        process::PANICS.up();
    }
    true
}

/// Runs ready tasks, up to `most`, and those that they wake; the turn runs the others.
pub fn run_woken(most: usize) {
    for _ in 0..most {
        if !run_one() {
            return;
        }
    }
}

/// Drops all ready tasks, including those that the drops wake.
pub(crate) fn drop_all() {
    wake::forget_all();
    loop {
        budget::wake_all();
        let all = WOKEN.with_borrow_mut(std::mem::take);
        if all.is_empty() {
            return;
        }
        drop(all);
    }
}
