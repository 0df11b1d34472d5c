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

/// Returns a configuration with something else in the place of a written address or port, such as `127.0.0.1:3000`. A longer
/// number that holds it (a free port that was put in before: `127.0.0.1:30002`) stays.
pub fn replace_address(text: &str, written: &str, address: &str) -> String {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    let mut out = String::with_capacity(text.len());
    let mut start = 0;
    for (at, found) in text.match_indices(written) {
        let behind = at + found.len();
        let continues = is_digit(found.chars().next()) && is_digit(text[..at].chars().next_back());
        let goes_on = is_digit(found.chars().next_back()) && is_digit(text[behind..].chars().next());
        if !continues && !goes_on {
            out += &text[start..at];
            out += address;
            start = behind;
        }
    }
    out + &text[start..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_addresses_are_replaced() {
        let text = "listen 127.0.0.1:30002;\nproxy_pass http://127.0.0.1:3000/;\nserver 127.0.0.1:3000";
        assert_eq!(
            replace_address(text, "127.0.0.1:3000", "127.0.0.1:43705"),
            "listen 127.0.0.1:30002;\nproxy_pass http://127.0.0.1:43705/;\nserver 127.0.0.1:43705"
        );
        assert_eq!(replace_address("a 18080 8080;80801 8080", "8080", "1"), "a 18080 1;80801 1");
        assert_eq!(replace_address("none", "127.0.0.1:3000", "a"), "none");
    }

    #[test]
    fn ports_differ_and_are_free() {
        let mut all: Vec<u16> = (0..100).map(|_| free_port()).collect();
        assert!(all.iter().all(|port| (10_000..32_000).contains(port)));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 100);
    }
}
