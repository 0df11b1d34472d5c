//! Room in a socket's send buffer, asked for once per many bytes.

/// Free bytes of which half count, so that a slow client gets few small writes.
const FEW_BYTES: usize = 128 * 1024;

/// Bytes that a socket takes at once, as far as they are known: what a blocked socket leaves over costs its connection
/// memory. The kernel is asked only when the answer before, less the bytes sent since, does not suffice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Room(usize);

impl Room {
    /// Assumes room, as a new socket has it.
    pub const fn assumed(bytes: usize) -> Room {
        Room(bytes)
    }
    /// Notes bytes that the socket took.
    pub fn sent(&mut self, bytes: usize) {
        self.0 = self.0.saturating_sub(bytes);
    }
    /// Notes a write that failed for lack of room.
    pub fn blocked(&mut self) {
        self.0 = 0;
    }
    /// Returns the bytes that the socket takes, at most `wanted`. `ask` returns the free bytes of its buffer; `None`, if
    /// they are unknown, counts as enough. The kernel charges its own structures to the buffer, for a peer with a small
    /// window more than twice the bytes.
    pub fn up_to(&mut self, wanted: usize, ask: impl FnOnce() -> Option<usize>) -> usize {
        if self.0 < wanted {
            self.0 = ask().map_or(wanted, |free| if free > FEW_BYTES { free / 4 } else { free / 2 });
        }
        self.0.min(wanted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_is_asked_once_per_room() {
        let (mut room, mut asked) = (Room::assumed(100), 0);
        for _ in 0..10 {
            assert_eq!(room.up_to(10, || unreachable!()), 10);
            room.sent(10);
        }
        for _ in 0..50 {
            let known = room.up_to(10, || {
                asked += 1;
                Some(200)
            });
            assert_eq!(known, 10);
            room.sent(10);
        }
        assert_eq!(asked, 5);
        room.blocked();
        assert_eq!((room.up_to(10, || Some(0)), room.up_to(10, || Some(8)), room.up_to(10, || None)), (0, 4, 10));
    }
}
