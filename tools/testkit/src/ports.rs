//! Ports for programs that bind them later. A port that the kernel chose for a socket which is closed again is no such port: it may be
//! an outgoing connection's a moment later.

use std::fs::{File, create_dir_all};
use std::net::{TcpListener, UdpSocket};
use std::sync::{Mutex, PoisonError};

/// Below Linux' ephemeral ports (32768 on): the kernel gives none of these to outgoing connections.
const FIRST: u16 = 10_000;
const BLOCK_LENGTH: u16 = 100;
const BLOCKS: u16 = 220;

/// Ports of this process.
struct PortBlock {
    /// Next port, and the end.
    next: u16,
    end: u16,
    /// Locked files of all blocks so far: the kernel unlocks them when the process ends.
    _locks: Vec<File>,
}

static BLOCK: Mutex<PortBlock> = Mutex::new(PortBlock { next: 0, end: 0, _locks: Vec::new() });

/// Returns a loopback port that is free for connections and datagrams: another one on each call, and none of another process that
/// calls this, as long as that runs.
///
/// # Panics
/// If no block of ports is left.
pub fn free_port() -> u16 {
    let mut block = BLOCK.lock().unwrap_or_else(PoisonError::into_inner);
    loop {
        if block.next == block.end {
            let (number, lock) = lock_block();
            block.next = FIRST + number * BLOCK_LENGTH;
            block.end = block.next + BLOCK_LENGTH;
            block._locks.push(lock);
        }
        let port = block.next;
        block.next += 1;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() && UdpSocket::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Locks the file of a block that no process has, and returns the block's number.
fn lock_block() -> (u16, File) {
    let folder = std::env::temp_dir().join("tidegate-ports");
    let made = create_dir_all(&folder);
    // Processes begin far apart, so that ports of one that has ended rest for a while.
    let start = (std::process::id().wrapping_mul(0x9e37_79b1) >> 8) % u32::from(BLOCKS);
    for turn in 0..u32::from(BLOCKS) {
        let number = (start + turn) % u32::from(BLOCKS);
        let Ok(file) = File::options().create(true).append(true).open(folder.join(number.to_string())) else {
            continue;
        };
        if file.try_lock().is_ok() {
            return (number as u16, file);
        }
    }
    panic!("no block of ports is left in {} ({made:?})", folder.display());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_differ_and_are_free() {
        let mut all: Vec<u16> = (0..250).map(|_| free_port()).collect();
        assert!(all.iter().all(|port| (10_000..32_000).contains(port)));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 250);
    }

    #[test]
    fn a_block_is_of_one_holder() {
        let held: Vec<(u16, File)> = (0..5).map(|_| lock_block()).collect();
        let mut numbers: Vec<u16> = held.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), 5);
    }
}
