//! The bounded queue between worker threads and the exporter. No lock is held while a span is made or sent.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// The sending half. The channel itself is unbounded; [`Queue::push`] counts.
pub struct Queue {
    sender: UnboundedSender<Vec<u8>>,
    /// Spans that are waiting or being sent.
    held: AtomicUsize,
    pub held_max: usize,
    pub batch_size: usize,
    /// Spans that are waiting.
    pub(crate) waiting: AtomicUsize,
    /// A batch is complete, or a flush is requested.
    pub(crate) full: Notify,
    /// The last span has left.
    pub(crate) drained: Notify,
    pub(crate) closing: AtomicBool,
    /// Second of the last log line about dropped spans.
    told: AtomicU64,
    dropped: AtomicU64,
}

impl Queue {
    pub fn new(batch_size: usize, batch_count: usize) -> (Queue, UnboundedReceiver<Vec<u8>>) {
        let (sender, receiver) = unbounded_channel();
        let queue = Queue {
            sender,
            held: AtomicUsize::new(0),
            held_max: batch_size.saturating_mul(batch_count),
            batch_size,
            waiting: AtomicUsize::new(0),
            full: Notify::new(),
            drained: Notify::new(),
            closing: AtomicBool::new(false),
            told: AtomicU64::new(0),
            dropped: AtomicU64::new(0),
        };
        (queue, receiver)
    }

    /// Passes encoded spans on; all are dropped unless all fit. `Some`: the number of dropped spans so far, at most once a second
    /// (`seconds` is the time).
    pub fn push(&self, spans: Vec<Vec<u8>>, seconds: u64) -> Option<u64> {
        let n = spans.len();
        let held = self.held.fetch_add(n, Ordering::AcqRel);
        // A request with more spans than places passes alone.
        if held > 0 && held + n > self.held_max {
            self.left(n);
            metrics::process::OTEL_SPANS.add_at(DROPPED, n as u64);
            let dropped = self.dropped.fetch_add(n as u64, Ordering::Relaxed) + n as u64;
            return (self.told.swap(seconds, Ordering::Relaxed) != seconds).then_some(dropped);
        }
        // Before the spans, whose receipt subtracts them.
        let before = self.waiting.fetch_add(n, Ordering::AcqRel);
        for span in spans {
            // Fails only at the end of the process.
            let _ = self.sender.send(span);
        }
        // The first span starts the interval.
        if before == 0 || before + n >= self.batch_size {
            self.full.notify_one();
        }
        None
    }

    /// Releases the places of spans that were sent or given up.
    pub(crate) fn left(&self, n: usize) {
        if self.held.fetch_sub(n, Ordering::AcqRel) == n {
            self.drained.notify_waiters();
        }
    }

    pub fn held(&self) -> usize {
        self.held.load(Ordering::Acquire)
    }
}

/// Indexes of `tidegate_otel_spans`.
pub(crate) const EXPORTED: usize = 0;
pub(crate) const DROPPED: usize = 1;
pub(crate) const REJECTED: usize = 2;
pub(crate) const FAILED: usize = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_queue_is_bounded() {
        let (queue, mut receiver) = Queue::new(2, 2);
        let spans = |n: usize| vec![Vec::new(); n];
        assert_eq!(queue.push(spans(3), 1), None);
        assert_eq!(queue.push(spans(2), 1), Some(2), "neither of two fits");
        assert_eq!(queue.push(spans(1), 1), None);
        assert_eq!(queue.push(spans(1), 1), None, "told in this second");
        assert_eq!(queue.push(spans(1), 2), Some(4));
        assert_eq!(queue.held(), 4);
        let mut got = 0;
        while receiver.try_recv().is_ok() {
            got += 1;
        }
        assert_eq!(got, 4);
        assert_eq!(queue.held(), 4, "until they are sent");
        queue.left(4);
        assert_eq!(queue.push(spans(5), 3), None, "more than fit, but alone");
        assert_eq!(queue.push(spans(1), 3), Some(5));
    }

    #[test]
    fn pushes_of_many_threads_are_all_counted() {
        let (queue, mut receiver) = Queue::new(10, 10);
        let queue = std::sync::Arc::new(queue);
        let threads: Vec<_> = (0..4)
            .map(|_| {
                let queue = queue.clone();
                std::thread::spawn(move || {
                    for _ in 0..50 {
                        let _ = queue.push(vec![Vec::new()], 0);
                    }
                })
            })
            .collect();
        for thread in threads {
            thread.join().expect("ends");
        }
        let mut got = 0;
        while receiver.try_recv().is_ok() {
            got += 1;
        }
        assert_eq!((got, queue.held()), (100, 100));
    }
}
