//! Counts of failed logins, which `auth_basic`, `auth_jwt`, `auth_request` and `.htaccess` files note and `auth_failure_limit` limits.
//!
//! A login takes a place before its credentials are judged and gives it back unless it fails, so that simultaneous guesses
//! are no more than sequential ones: [`judge_login`] takes, a [`LoginAttempt`] gives back when it is dropped.

use crate::values::Satisfy;
use crate::{Flow, HttpTemplate, Request};
use area::bucket::{BucketRefusal, Buckets, Rate};
use area::shared_limit::SharedLimit;
use observe::Severity;
use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Notify;

/// Longest key in bytes, as for `limit_req`.
pub const KEY_BYTES_MAX: usize = 65_535;
/// Maximum number of requests of a zone that wait until another login with their key is judged; further ones get 429.
pub const LOGINS_WAITING_MAX: usize = 256;

/// State of an `auth_failure_limit_zone`, which outlives a reload.
pub struct FailureZone {
    buckets: Buckets,
    /// Wakes waiting logins when a judged one gives its place back.
    judged: Notify,
    waiting: AtomicUsize,
}

impl FailureZone {
    /// Creates a zone of `bytes` bytes of memory.
    pub fn new(bytes: u64) -> FailureZone {
        FailureZone { buckets: Buckets::new(bytes), judged: Notify::new(), waiting: AtomicUsize::new(0) }
    }
}

/// `auth_failure_limit` of a location.
pub struct FailureLimit {
    /// Name of the zone.
    pub zone: String,
    /// The text that failures are counted by; requests with an empty one are not limited.
    pub key: HttpTemplate,
    /// Permitted rate of failures.
    pub rate: Rate,
    /// Thousandths of a failure.
    pub burst: u64,
    /// The zone's counts, which all threads share.
    pub state: Arc<FailureZone>,
    /// Failures of all servers.
    pub shared: Option<Arc<SharedLimit>>,
}

fn now_millis() -> u64 {
    base::clock::now().0 / 1000
}

impl FailureLimit {
    /// Returns the request's key; `None` if it is empty or too long.
    fn key(&self, r: &mut Request) -> Option<Vec<u8>> {
        Some(self.key.eval(r)).filter(|key| !key.is_empty() && key.len() <= KEY_BYTES_MAX)
    }
    /// Refuses a request whose key has too many failures, with 429.
    pub fn refusal(&self, r: &mut Request) -> Option<Flow> {
        let key = self.key(r)?;
        let excess = self.state.buckets.look(&key, self.rate, now_millis());
        if excess > self.burst { Some(self.refuse(r, excess)) } else { self.shared_refusal(r, &key) }
    }
    /// Refuses a request whose key has too many failures on all servers together.
    fn shared_refusal(&self, r: &mut Request, key: &[u8]) -> Option<Flow> {
        let millis = self.shared.as_ref()?.refusal_millis(key)?;
        let zone = &self.zone;
        r.log(Severity::Error, format_args!("limiting failed logins of all servers by zone \"{zone}\""));
        Some(refuse_for(r, millis))
    }
    fn refuse(&self, r: &mut Request, excess: u64) -> Flow {
        let (whole, part, zone) = (excess / 1000, excess % 1000, &self.zone);
        r.log(Severity::Error, format_args!("limiting failed logins, excess: {whole}.{part:03} by zone \"{zone}\""));
        refuse_for(r, self.rate.millis(excess.saturating_sub(self.burst)))
    }
}

fn refuse_for(r: &mut Request, millis: u64) -> Flow {
    r.out.add("Retry-After", millis.div_ceil(1000).max(1).to_string().into_bytes());
    Flow::Status(429)
}

/// A place of a login whose credentials are being judged. Dropping it gives the place back.
#[must_use]
pub struct LoginAttempt(Option<TakenPlace>);

struct TakenPlace {
    state: Arc<FailureZone>,
    shared: Option<Arc<SharedLimit>>,
    rate: Rate,
    key: Vec<u8>,
    location: usize,
    fails: bool,
}

impl Drop for TakenPlace {
    fn drop(&mut self) {
        self.state.buckets.settle(&self.key, self.rate, now_millis(), self.fails);
        self.state.judged.notify_waiters();
        if let Some(shared) = self.shared.as_ref().filter(|_| self.fails) {
            shared.count_event(&self.key);
        }
    }
}

impl LoginAttempt {
    /// The credentials are wrong, and no other check can admit the request. Counts the failure.
    pub fn fail_for_good(mut self) {
        if let Some(place) = &mut self.0 {
            place.fails = true;
        }
    }
    /// The credentials are wrong. Counts the failure, with `satisfy any` as soon as all checks have refused the request
    /// ([`count_pending`]).
    pub fn fail(mut self, r: &mut Request) {
        let Some(mut place) = self.0.take() else { return };
        match r.loc().core.conf.satisfy {
            Satisfy::Any => r.share(Rc::new(PendingFailure(Cell::new(Some(place))))),
            Satisfy::All => place.fails = true,
        }
    }
}

/// A failed login of a request that another check may admit (`satisfy any`).
struct PendingFailure(Cell<Option<TakenPlace>>);

fn take_pending(r: &Request) -> Option<TakenPlace> {
    r.shared::<PendingFailure>()?.0.take()
}

/// Counts the failure of a request that no check has admitted.
pub fn count_pending(r: &mut Request) {
    if let Some(mut place) = take_pending(r) {
        place.fails = place.location == r.scope.location;
    }
}

/// Forgets a failed login, for another check has admitted the request (`satisfy any`).
pub fn forgive_failure(r: &Request) {
    drop(take_pending(r));
}

/// Refusal of a place: an answer, or a reason to wait.
enum NoPlace {
    Refused(Flow),
    Later,
}

fn take_place(r: &mut Request) -> Result<LoginAttempt, NoPlace> {
    let plan = r.plan_rc();
    let location = r.scope.location;
    let Some(limit) = plan.loc(location).ext::<FailureLimit>() else { return Ok(LoginAttempt(None)) };
    if let Some(place) = take_pending(r).filter(|place| place.location == location) {
        // One request is one failure, however many of its credentials are wrong.
        return Ok(LoginAttempt(Some(place)));
    }
    let Some(key) = limit.key(r) else { return Ok(LoginAttempt(None)) };
    if let Some(flow) = limit.shared_refusal(r, &key) {
        return Err(NoPlace::Refused(flow));
    }
    match limit.state.buckets.reserve(&key, limit.rate, limit.burst, now_millis()) {
        Ok(()) => {
            let (state, shared) = (limit.state.clone(), limit.shared.clone());
            Ok(LoginAttempt(Some(TakenPlace { state, shared, rate: limit.rate, key, location, fails: false })))
        }
        Err(BucketRefusal::Busy { excess }) => Err(NoPlace::Refused(limit.refuse(r, excess))),
        Err(BucketRefusal::Later) => Err(NoPlace::Later),
    }
}

/// A waiting login, until it is dropped.
struct WaitingLogin(Arc<FailureZone>);

impl Drop for WaitingLogin {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn wait_for_place(r: &mut Request) -> Result<LoginAttempt, Flow> {
    let plan = r.plan_rc();
    let Some(limit) = plan.loc(r.scope.location).ext::<FailureLimit>() else { return Ok(LoginAttempt(None)) };
    let before = limit.state.waiting.fetch_add(1, Ordering::Relaxed);
    let _waiting = WaitingLogin(limit.state.clone());
    if before >= LOGINS_WAITING_MAX {
        let zone = &limit.zone;
        r.log(Severity::Error, format_args!("{LOGINS_WAITING_MAX} logins wait for others in zone \"{zone}\" already"));
        return Err(limit.refuse(r, limit.burst));
    }
    loop {
        let judged = limit.state.judged.notified();
        tokio::pin!(judged);
        // A place that becomes free after the look below wakes this request.
        judged.as_mut().enable();
        match take_place(r) {
            Ok(attempt) => return Ok(attempt),
            Err(NoPlace::Refused(flow)) => return Err(flow),
            Err(NoPlace::Later) => judged.await,
        }
    }
}

/// Judges credentials with `run` when `auth_failure_limit` has a place for one more login with the request's key: at once,
/// or after logins that are being judged. Without a place, or with too many waiting logins, answers with 429.
pub fn judge_login(r: &mut Request, run: impl FnOnce(&mut Request, LoginAttempt) -> Flow + 'static) -> Flow {
    match take_place(r) {
        Ok(attempt) => run(r, attempt),
        Err(NoPlace::Refused(flow)) => flow,
        Err(NoPlace::Later) => Flow::Later(Box::new(move |mut r| {
            Box::pin(async move {
                let flow = match wait_for_place(&mut r).await {
                    Ok(attempt) => run(&mut r, attempt),
                    Err(flow) => flow,
                };
                (r, flow)
            })
        })),
    }
}
