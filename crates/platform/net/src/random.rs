//! Random bytes from the kernel.

use std::cell::RefCell;

thread_local! {
    /// Bytes of one system call, and the number of those that were given out.
    static POOL: RefCell<(Vec<u8>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// Forgets unused bytes: after a fork, both processes have them.
pub(crate) fn forget() {
    POOL.with(|pool| *pool.borrow_mut() = (Vec::new(), 0));
}

/// 16 bytes for ids (`$request_id`, traces, connections), fetched in batches to save system calls.
pub fn bytes16() -> [u8; 16] {
    POOL.with(|pool| {
        let (bytes, at) = &mut *pool.borrow_mut();
        if *at + 16 > bytes.len() {
            bytes.resize(1024, 0);
            fill(bytes);
            *at = 0;
        }
        let mut out = [0; 16];
        out.copy_from_slice(&bytes[*at..*at + 16]);
        *at += 16;
        out
    })
}

pub fn fill(mut buf: &mut [u8]) {
    while !buf.is_empty() {
        match rustix::rand::getrandom(&mut *buf, rustix::rand::GetRandomFlags::empty()) {
            Ok(n) => buf = &mut buf[n..],
            Err(rustix::io::Errno::INTR) => {}
            // Cannot fail once the kernel is up, and nothing safe could follow.
            Err(e) => panic!("getrandom: {e}"),
        }
    }
}
