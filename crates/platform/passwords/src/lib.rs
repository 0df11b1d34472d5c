//! Passwords of files as `htpasswd` writes them: look-up of users and groups, and comparison with stored forms.
//!
//! Cheap forms are compared at once ([`check_password`]); bcrypt, SHA-crypt and similar ones, which are slow by design, on a pool
//! thread ([`check_on_pool`]).

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing))]

mod crypt;
mod des;
mod unix;

pub use crypt::{PasswordVerdict, check_password, is_slow};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::{Semaphore, SemaphorePermit};

/// Reason why a password was not compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckError {
    /// [`PASSWORDS_WAITING_MAX`] requests wait already.
    Busy,
    /// The thread pool took no work.
    NoPool,
}

/// Compares a password with a slow form on the default thread pool, when its turn comes.
///
/// # Errors
/// No comparison took place.
pub async fn check_on_pool(password: Vec<u8>, stored: Vec<u8>) -> Result<PasswordVerdict, CheckError> {
    let turn = turns().enter().await.ok_or(CheckError::Busy)?;
    let pool = net::pool::find_pool(net::pool::DEFAULT).ok_or(CheckError::NoPool)?;
    let work = pool.run(move || check_password(&password, &stored)).map_err(|_| CheckError::NoPool)?;
    let verdict = work.await.map_err(|_| CheckError::NoPool);
    drop(turn);
    verdict
}

/// Maximum number of requests in the process that wait for a slow password check; further ones get 503. At 50 ms per
/// check they wait some seconds.
pub const PASSWORDS_WAITING_MAX: usize = 256;

/// Maximum number of concurrent checks: one per CPU, because each occupies one, and the pool's threads also read files.
const CHECKS_AT_ONCE_MAX: usize = 16;

/// A queue with an end.
struct Turns {
    running: Semaphore,
    waiting: AtomicUsize,
    waiting_max: usize,
}

/// A place in the queue, until it is dropped.
struct QueuePlace<'a>(&'a AtomicUsize);

impl Drop for QueuePlace<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Turns {
    fn new(running: usize, waiting_max: usize) -> Turns {
        Turns { running: Semaphore::new(running), waiting: AtomicUsize::new(0), waiting_max }
    }
    /// Waits for a turn, which is over when it is dropped; `None`: too many wait.
    async fn enter(&self) -> Option<SemaphorePermit<'_>> {
        if let Ok(turn) = self.running.try_acquire() {
            return Some(turn);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _place = QueuePlace(&self.waiting);
        if before >= self.waiting_max {
            return None;
        }
        self.running.acquire().await.ok()
    }
}

fn turns() -> &'static Turns {
    static TURNS: OnceLock<Turns> = OnceLock::new();
    TURNS.get_or_init(|| {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        Turns::new(processors.min(CHECKS_AT_ONCE_MAX), PASSWORDS_WAITING_MAX)
    })
}

/// Returns a user's hash: up to the end of the line or the next colon.
pub fn find_hash<'a>(users: &'a [u8], user: &[u8]) -> Option<&'a [u8]> {
    let stored = users.split(|c| *c == b'\n').filter(|line| !line.starts_with(b"#")).find_map(|line| {
        let (name, rest) = line.split_at_checked(user.len())?;
        if name == user { rest.strip_prefix(b":") } else { None }
    })?;
    stored.split(|c| matches!(c, b'\r' | b':')).next()
}

/// Names the groups of a user, from lines `group: user user` (Apache: `mod_authz_groupfile`).
pub fn groups_of(groups: &[u8], user: &[u8]) -> Vec<String> {
    let lines = groups.split(|c| *c == b'\n').filter(|line| !line.starts_with(b"#"));
    let split = lines.filter_map(|line| {
        let at = line.iter().position(|c| *c == b':')?;
        line.split_at_checked(at)
    });
    let has = |members: &[u8]| members.split(u8::is_ascii_whitespace).any(|name| name == user);
    split
        .filter(|(_, members)| has(members.get(1..).unwrap_or_default()))
        .map(|(name, _)| String::from_utf8_lossy(name.trim_ascii()).into_owned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::Future;
    use std::task::{Context, Poll, Waker};

    #[test]
    fn the_queue_of_checks_has_an_end() {
        let turns = Turns::new(1, 2);
        let mut cx = Context::from_waker(Waker::noop());
        let (mut first, mut second, mut third) =
            (Box::pin(turns.enter()), Box::pin(turns.enter()), Box::pin(turns.enter()));
        let Poll::Ready(Some(running)) = first.as_mut().poll(&mut cx) else { panic!("the queue was empty") };
        assert!(second.as_mut().poll(&mut cx).is_pending() && third.as_mut().poll(&mut cx).is_pending());
        assert!(matches!(Box::pin(turns.enter()).as_mut().poll(&mut cx), Poll::Ready(None)), "two wait already");
        drop(third);
        assert!(Box::pin(turns.enter()).as_mut().poll(&mut cx).is_pending(), "a waiting check that ends makes room");
        drop(running);
        assert!(matches!(second.as_mut().poll(&mut cx), Poll::Ready(Some(_))));
    }

    #[test]
    fn lines_of_a_group_file() {
        let groups = b"admins: joe anna\n# staff: joe\nstaff:anna\nnone\n";
        assert_eq!(groups_of(groups, b"joe"), ["admins"]);
        assert_eq!(groups_of(groups, b"anna"), ["admins", "staff"]);
        assert!(groups_of(groups, b"jo").is_empty());
    }

    #[test]
    fn lines_of_a_user_file() {
        let users = b"# joe:commented\njoe:secret:a comment\r\nanna:\nlast:{PLAIN}x";
        assert_eq!(find_hash(users, b"joe"), Some(b"secret".as_slice()));
        assert_eq!(find_hash(users, b"anna"), Some(b"".as_slice()));
        assert_eq!(find_hash(users, b"last"), Some(b"{PLAIN}x".as_slice()));
        for unknown in [b"jo".as_slice(), b"joe2", b"# joe", b""] {
            assert_eq!(find_hash(users, unknown), None);
        }
        assert_eq!(find_hash(b"windows:x\r\n", b"windows"), Some(b"x".as_slice()));
    }
}
