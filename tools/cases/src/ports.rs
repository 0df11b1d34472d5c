//! Ports for servers under test.

use std::net::{TcpListener, UdpSocket};
use std::sync::atomic::{AtomicU32, Ordering};

/// Below Linux' ephemeral ports (32768 on): the kernel gives none of these to outgoing connections.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// Returns a loopback port that is free for connections and datagrams, a different one on each call of a process.
pub fn free_port() -> u16 {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Processes that run at a time begin far apart.
    let start = std::process::id().wrapping_mul(0x9e37_79b1) >> 8;
    loop {
        let turn = NEXT.fetch_add(1, Ordering::Relaxed);
        let port = (FIRST + start.wrapping_add(turn) % COUNT) as u16;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let mut all: Vec<u16> = (0..100).map(|_| free_port()).collect();
        assert!(all.iter().all(|port| (10_000..32_000).contains(port)));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 100);
    }
}
