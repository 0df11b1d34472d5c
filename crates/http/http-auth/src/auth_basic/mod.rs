//! auth_basic (nginx: `ngx_http_auth_basic_module`): user names and passwords from a file.
//!
//! Cheap hashes are checked at once; bcrypt, SHA-crypt and similar ones, which are slow by design, on a pool thread.

mod crypt;

use crate::shared::failed_logins::{self, LoginAttempt};
use conf_schema::{Area, Problem, Table, directives};
use crypt::Verdict;
use http_engine::path::bytes_path;
use http_engine::variables::basic_credentials;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, Request, Template};
use http_types::Method;
use observe::{Level, os};
use std::any::Any;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use tokio::sync::{Semaphore, SemaphorePermit};

directives! {
    pub struct AuthConf from AuthInput {
        /// Requires a user name and password (RFC 7617) for this realm; `off` disables the check.
        auth_basic: Template = "off",
        /// File with user names and password hashes.
        /// Differs: hashes of crypt(3) that begin with `$2x$`, `$3$`, `$7$`, `$gy$` or `$md5` match no password.
        auth_basic_user_file: Template,
    }
}

/// The feature.
pub struct AuthBasic;

impl Feature for AuthBasic {
    fn table(&self) -> Table {
        AuthConf::table("auth_basic", Area::Http)
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<AuthConf>() else { return Ok(()) };
        if let Some(file) = &conf.auth_basic_user_file
            && conf.auth_basic.as_literal() != Some(b"off")
        {
            let prefix = block.cx.conf_prefix.clone();
            let ask = Ask { realm: conf.auth_basic.clone(), file: file.clone(), prefix };
            block.handle(HandlerOrder::AuthBasic, Arc::new(ask));
        }
        Ok(())
    }
}

struct Ask {
    realm: Template,
    file: Template,
    /// Where relative names start: the folder of the main configuration file.
    prefix: PathBuf,
}

impl Handler for Ask {
    fn run(&self, r: &mut Request) -> Flow {
        let realm = self.realm.eval(r);
        if realm == b"off" {
            return Flow::Declined;
        }
        let Some((user, password)) = basic_credentials(r) else {
            r.log(Level::Info, format_args!("no user/password was provided for basic authentication"));
            return refuse(r, &realm);
        };
        let file = self.prefix.join(bytes_path(&self.file.eval(r)));
        let users = match std::fs::read(&file) {
            Ok(users) => users,
            Err(e) => {
                let missing = e.kind() == std::io::ErrorKind::NotFound;
                let (level, status) = if missing { (Level::Error, 403) } else { (Level::Crit, 500) };
                // A folder can be opened.
                let call = if e.kind() == std::io::ErrorKind::IsADirectory { "pread" } else { "open" };
                r.log(level, format_args!("{call}() \"{}\" failed {}", file.display(), os(&e)));
                return Flow::Status(status);
            }
        };
        let shown = file.display().to_string();
        failed_logins::judge(r, move |r, attempt| judge(r, attempt, Login { users, user, password, realm }, &shown))
    }
}

/// Credentials of a request, and what they are compared with.
struct Login {
    users: Vec<u8>,
    user: Vec<u8>,
    password: Vec<u8>,
    realm: Vec<u8>,
}

fn judge(r: &mut Request, attempt: LoginAttempt, login: Login, file: &str) -> Flow {
    let Login { users, user, password, realm } = login;
    let Some(stored) = find(&users, &user) else {
        let shown = String::from_utf8_lossy(&user);
        r.log(Level::Error, format_args!("user \"{shown}\" was not found in \"{file}\""));
        attempt.fail(r);
        return refuse(r, &realm);
    };
    if !crypt::is_slow(stored) {
        let verdict = crypt::check(&password, stored);
        return answer(r, attempt, verdict, &user, &realm);
    }
    let stored = stored.to_vec();
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let Some(turn) = turns().enter().await else {
                r.log(Level::Error, format_args!("{PASSWORDS_WAITING_MAX} passwords wait to be checked already"));
                return (r, Flow::Status(503));
            };
            let pool = net::pool::named(net::pool::DEFAULT);
            let verdict = match pool.map(|pool| pool.run(move || crypt::check(&password, &stored))) {
                Some(Ok(work)) => work.await.ok(),
                _ => None,
            };
            drop(turn);
            let flow = match verdict {
                Some(verdict) => answer(&mut r, attempt, verdict, &user, &realm),
                None => {
                    let shown = String::from_utf8_lossy(&user);
                    r.log(Level::Crit, format_args!("user \"{shown}\": the thread pool checked no password"));
                    Flow::Status(500)
                }
            };
            (r, flow)
        })
    }))
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
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
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
        let _place = Waiting(&self.waiting);
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

fn answer(r: &mut Request, attempt: LoginAttempt, verdict: Verdict, user: &[u8], realm: &[u8]) -> Flow {
    match verdict {
        Verdict::Right => {
            drop(attempt);
            failed_logins::forgive(r);
            Flow::Allowed
        }
        Verdict::Wrong => {
            let shown = String::from_utf8_lossy(user);
            r.log(Level::Error, format_args!("user \"{shown}\": password mismatch"));
            attempt.fail(r);
            refuse(r, realm)
        }
        // As in nginx, `user:!` is a locked account, like any other form that crypt(3) does not know.
        Verdict::Unreadable => {
            let shown = String::from_utf8_lossy(user);
            r.log(Level::Error, format_args!("user \"{shown}\": password mismatch, its stored form is unknown"));
            attempt.fail(r);
            refuse(r, realm)
        }
    }
}

fn refuse(r: &mut Request, realm: &[u8]) -> Flow {
    let (field, status) = match r.target.method {
        Method::Connect => ("Proxy-Authenticate", 407),
        _ => ("WWW-Authenticate", 401),
    };
    r.out.remove(field.as_bytes());
    let value = [b"Basic realm=\"".as_slice(), realm, b"\""].concat();
    if let Some(value) = r.field_value("auth_basic", field.as_bytes(), value) {
        r.out.add(field, value);
    }
    Flow::Status(status)
}

/// Returns a user's hash: up to the end of the line or the next colon.
fn find<'a>(users: &'a [u8], user: &[u8]) -> Option<&'a [u8]> {
    let stored = users.split(|c| *c == b'\n').filter(|line| !line.starts_with(b"#")).find_map(|line| {
        let (name, rest) = line.split_at_checked(user.len())?;
        if name == user { rest.strip_prefix(b":") } else { None }
    })?;
    stored.split(|c| matches!(c, b'\r' | b':')).next()
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
        let Poll::Ready(Some(running)) = first.as_mut().poll(&mut cx) else { panic!("nobody was before it") };
        assert!(second.as_mut().poll(&mut cx).is_pending() && third.as_mut().poll(&mut cx).is_pending());
        assert!(matches!(Box::pin(turns.enter()).as_mut().poll(&mut cx), Poll::Ready(None)), "two wait already");
        drop(third);
        assert!(Box::pin(turns.enter()).as_mut().poll(&mut cx).is_pending(), "whoever leaves makes room");
        drop(running);
        assert!(matches!(second.as_mut().poll(&mut cx), Poll::Ready(Some(_))));
    }

    #[test]
    fn lines_of_a_user_file() {
        let users = b"# joe:commented\njoe:secret:a comment\r\nanna:\nlast:{PLAIN}x";
        assert_eq!(find(users, b"joe"), Some(b"secret".as_slice()));
        assert_eq!(find(users, b"anna"), Some(b"".as_slice()));
        assert_eq!(find(users, b"last"), Some(b"{PLAIN}x".as_slice()));
        for unknown in [b"jo".as_slice(), b"joe2", b"# joe", b""] {
            assert_eq!(find(users, unknown), None);
        }
        assert_eq!(find(b"windows:x\r\n", b"windows"), Some(b"x".as_slice()));
    }
}
