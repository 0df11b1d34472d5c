//! Handshakes that wait for a certificate, which another thread gets.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::task::Waker;

/// Ends with a decision about a handshake; the choice is then asked for again.
#[derive(Debug, Default)]
pub struct Wait {
    is_over: AtomicBool,
    waker: Mutex<Option<Waker>>,
}

impl Wait {
    /// Tells whether the wait has ended.
    pub fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Acquire)
    }
    /// Ends the wait; callable from any thread.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Release);
        let waker = self.waker.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
    /// Wakes at the end, at once if it has come.
    pub fn wake(&self, waker: &Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker.clone());
        if self.is_over() {
            waker.wake_by_ref();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn no_end_is_missed() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let (before, after) = (Wait::default(), Wait::default());
        before.wake(&waker);
        assert!(!before.is_over());
        before.end();
        after.end();
        after.wake(&waker);
        assert!(before.is_over() && after.is_over());
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
    }
}
