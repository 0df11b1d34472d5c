//! Tests of the relay's memory: sizes of reads, and bytes that a blocked direction holds.

use super::*;
use std::task::Waker;

const BASE: usize = 16 * 1024;

/// An endless source, which notes the sizes of its reads.
#[derive(Default)]
struct EndlessSource {
    reads: Vec<usize>,
    /// Largest read; 0 for no limit.
    most: usize,
}

/// A sink that takes `free` bytes and then blocks.
struct Sink {
    free: usize,
    /// Room that the sink reports beyond `free`; `None` if the room is unknown.
    excess: Option<usize>,
}

impl RelaySide for EndlessSource {
    fn poll_recv(&mut self, _: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        let room = buf.capacity() - buf.len();
        let n = if self.most == 0 { room } else { room.min(self.most) };
        buf.resize(buf.len() + n, b'x');
        self.reads.push(n);
        Poll::Ready(Ok(n))
    }
    fn poll_send(&mut self, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Pending
    }
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn room(&self) -> Option<usize> {
        Some(0)
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn shutdown_write(&mut self) {}
}

impl RelaySide for Sink {
    fn poll_recv(&mut self, _: &mut Context<'_>, _: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        Poll::Pending
    }
    fn poll_send(&mut self, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let n = bytes.len().min(self.free);
        self.free -= n;
        if n == 0 { Poll::Pending } else { Poll::Ready(Ok(n)) }
    }
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn room(&self) -> Option<usize> {
        // The share that counts (`base::room`).
        let share = if self.free > 32 * 1024 { 4 } else { 2 };
        self.excess.map(|excess| share * self.free + excess)
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn shutdown_write(&mut self) {}
}

/// A peer that always has bytes and takes all, at the cost of a socket's.
#[derive(Default)]
struct Fast {
    sent: usize,
    taken: usize,
}

impl RelaySide for Fast {
    fn poll_recv(&mut self, cx: &mut Context<'_>, buf: &mut Vec<u8>) -> Poll<io::Result<usize>> {
        ready!(budget::poll_proceed(cx));
        let n = buf.capacity() - buf.len();
        buf.resize(buf.capacity(), b'x');
        budget::pass(n);
        self.sent += n;
        Poll::Ready(Ok(n))
    }
    fn poll_send(&mut self, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(budget::poll_proceed(cx));
        budget::pass(bytes.len());
        self.taken += bytes.len();
        Poll::Ready(Ok(bytes.len()))
    }
    fn poll_flush(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
    fn room(&self) -> Option<usize> {
        None
    }
    fn has_unsent(&self) -> bool {
        false
    }
    fn shutdown_write(&mut self) {}
}

/// Polls a direction of the server's bytes until it blocks.
fn poll(way: &mut Direction, from: &mut EndlessSource, to: &mut Sink) {
    let terms = Terms { buffer_bytes: BASE, half_close: HalfClose::Neither, timeout_ms: 1000, stalled_ms: 1000 };
    let now = clock::now();
    let mut progress =
        RelayProgress { moved: now, began: now, answered: false, first: true, server_last: false, broken: None };
    let mut cx = Context::from_waker(Waker::noop());
    assert!(way.poll(from, to, true, false, &terms, &mut progress, &mut cx).is_pending());
}

#[test]
fn reads_of_a_free_flow_grow() {
    let (mut way, mut from) = (Direction::default(), EndlessSource::default());
    poll(&mut way, &mut from, &mut Sink { free: 1024 * 1024, excess: Some(0) });
    assert_eq!(from.reads.get(..4), Some(&[BASE, 2 * BASE, 4 * BASE, 4 * BASE][..]));
}

#[test]
fn a_side_that_takes_no_bytes_costs_a_probe() {
    let (mut way, mut from) = (Direction::default(), EndlessSource::default());
    let mut to = Sink { free: 1024 * 1024, excess: Some(0) };
    poll(&mut way, &mut from, &mut to);
    assert_eq!(to.free, 0);
    assert_eq!((way.pending.len() - way.at, way.pending.capacity()), (PROBE_BYTES, PROBE_BYTES));
    // No further read follows before the bytes have left, and the next one is as large as the room.
    let reads = from.reads.len();
    poll(&mut way, &mut from, &mut to);
    assert_eq!(from.reads.len(), reads);
    to.free = PROBE_BYTES + 2 * BASE;
    poll(&mut way, &mut from, &mut to);
    assert_eq!(from.reads.get(reads..), Some(&[2 * BASE, PROBE_BYTES][..]));
    assert_eq!(way.pending.capacity(), PROBE_BYTES);
}

#[test]
fn unaccepted_bytes_hold_memory_of_their_own_size() {
    // The sink takes less than it says, as a socket does under memory pressure.
    let (mut way, mut from) = (Direction::default(), EndlessSource::default());
    poll(&mut way, &mut from, &mut Sink { free: 7 * BASE + 4 * BASE - 1000, excess: Some(1024 * 1024) });
    assert_eq!((way.pending.len() - way.at, way.pending.capacity()), (1000, 1000));
}

#[test]
fn small_reads_end_the_growth() {
    let (mut way, mut from) = (Direction::default(), EndlessSource::default());
    poll(&mut way, &mut from, &mut Sink { free: 1024 * 1024, excess: Some(0) });
    assert_eq!(way.growth, GROWTH);
    (way.pending, way.at, from.most) = (Vec::new(), 0, 100);
    poll(&mut way, &mut from, &mut Sink { free: 1000, excess: Some(0) });
    assert!(way.growth <= 1, "asking for the room costs a call");
}

#[test]
fn a_spent_budget_leaves_no_bytes_behind_and_no_direction_out() {
    runtime::block_on(async {
        let terms = Terms { buffer_bytes: BASE, half_close: HalfClose::Neither, timeout_ms: 1000, stalled_ms: 1000 };
        let (up, down) = (Direction::default(), Direction::default());
        let mut relay = Relay::new(Fast::default(), Fast::default(), up, down, terms);
        for turn in 1..=10 {
            budget::renew();
            assert!(relay.poll(&mut Context::from_waker(Waker::noop())).is_pending());
            assert!(!budget::is_left());
            for way in [&relay.up, &relay.down] {
                assert_eq!((way.pending.capacity(), way.received), (0, way.sent), "turn {turn}");
            }
        }
        let (up, down) = (relay.up.sent, relay.down.sent);
        assert!(up.abs_diff(down) < up / 4, "{up} {down}");
        assert!(up + down < 11 * u64::from(budget::BYTES));
    });
}
