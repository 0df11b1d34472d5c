//! A request's use of a cache, from the lookup to the stored response.

use super::conf::UseStale;
use super::paths::{CachePath, hurry_managers};
use super::tagging;
use super::{CachePlan, CacheRequest, CacheState, Respond, any, range_too_far, rfc, serve, set_status};
use crate::slicing::Slice;
use base::clock;
use cache::freshness::{self, FreshnessVerdict, IgnoredFields};
use cache::strict::{self, Use};
use cache::{EntryError, EntryState, Fetch, Hash, Lock, Meta, StoredEntry, Ticket, store, vary};
use http_engine::file_io::{self, Aio};
use http_engine::{CacheCount, Flow, Request, subrequest};
use http_types::{Known, Method, ResponseHead};
use observe::{Severity, clock::http_time, os_error};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// The result of a lookup.
pub enum CacheStart {
    /// The request does not use the cache.
    Off,
    /// The response, from the cache or instead of it.
    Answer(Flow),
    /// Pass the request to the upstream; the session is kept with the request.
    Ask,
}

/// A request's use of a cache, kept with the request from [`begin_session`] to [`finish_session`] or until the response is stored.
/// [`CacheSession::judged`] at the head, then [`CacheSession::dress`], then [`CacheSession::entry`].
pub struct CacheSession {
    pub(super) caching: Arc<CachePlan>,
    pub(super) path: Arc<CachePath>,
    pub(super) key: Vec<u8>,
    main: Hash,
    pub(super) ticket: Option<Ticket>,
    storing: bool,
    bypassed: bool,
    expired: Option<Arc<StoredEntry>>,
    secondary: bool,
    background: bool,
    /// RFC 9111: the method is unsafe and invalidates the entries of the key.
    invalidates: bool,
    pub(super) verdict: FreshnessVerdict,
    now: i64,
    /// Start of the request in seconds.
    asked: i64,
    /// Start of the fetch in milliseconds, comparable with purges.
    asked_ms: u64,
    fetch: Option<Fetch>,
    /// The client rejected the entry, or it requires validation: it must not replace a failure.
    forced: bool,
}

enum LookupResult {
    Fresh(Arc<StoredEntry>),
    Stale(Arc<StoredEntry>),
    /// Stale, and acceptable to the client.
    Good(Arc<StoredEntry>),
    Error(u16),
    Absent,
    /// Missing; to be fetched and not stored.
    Scarce,
}

/// Looks up the response and coordinates fetches. `default_key`: for locations without a key.
pub async fn begin_session(
    caching: &Arc<CachePlan>,
    r: &mut Request,
    give: Respond<'_>,
    default_key: Vec<u8>,
) -> CacheStart {
    if let Some(mut session) = CacheSession::take(r).filter(|session| session.background) {
        session.ask(r);
        session.put(r);
        return CacheStart::Ask;
    }
    let purge = any(r, &caching.purge);
    let unsafe_method = !matches!(r.target.method(), Method::Get | Method::Head | Method::Options | Method::Trace);
    let invalidates = caching.rfc9111 && unsafe_method;
    let cached = caching.caches(r.target.method());
    if !purge && !cached && !invalidates {
        return CacheStart::Off;
    }
    let path = match caching.path(r) {
        Ok(Some(path)) => path,
        Ok(None) => return CacheStart::Off,
        Err(()) => return CacheStart::Answer(Flow::Status(500)),
    };
    let key = caching.key.as_ref().map_or(default_key, |key| key.eval(r));
    if purge {
        let flow = tagging::purge_named_tags(&caching.purge_tags, r, &path);
        return CacheStart::Answer(flow.unwrap_or_else(|| self::purge(r, &path, &key)));
    }
    if key.len() > cache::entry::KEY_MAX {
        r.log(Severity::Error, format_args!("the cache key is longer than {} bytes", cache::entry::KEY_MAX));
        return CacheStart::Off;
    }
    r.accounting.count_cache(CacheCount::new(path.metrics.clone(), ""));
    r.keep(CacheState { key: key.clone(), ..CacheState::default() });
    let main = Hash::of(&key);
    let mut session = Box::new(CacheSession {
        caching: caching.clone(),
        path,
        key,
        main,
        ticket: None,
        storing: cached,
        bypassed: false,
        expired: None,
        secondary: false,
        background: false,
        invalidates,
        verdict: FreshnessVerdict::default(),
        now: clock::unix_seconds(),
        asked: clock::unix_seconds(),
        asked_ms: 0,
        fetch: None,
        forced: false,
    });
    if !cached {
        session.put(r);
        return CacheStart::Ask;
    }
    if any(r, &caching.bypass) {
        session.bypassed = true;
        set_status(r, "BYPASS");
        session.ask(r);
        session.put(r);
        return CacheStart::Ask;
    }
    set_status(r, "MISS");
    let flow = session.decide(r, give).await;
    if let Some(flow) = flow {
        return CacheStart::Answer(flow);
    }
    if caching.rfc9111 {
        let wish = rfc::request_directives(r);
        if wish.only_if_cached {
            return CacheStart::Answer(Flow::Status(504));
        }
        session.storing &= !wish.no_store;
    }
    if range_too_far(caching, r) {
        session.storing = false;
    }
    session.ask(r);
    session.put(r);
    CacheStart::Ask
}

fn purge(r: &mut Request, path: &CachePath, key: &[u8]) -> Flow {
    match purge_key(path, key) {
        Ok(true) => Flow::Status(204),
        Ok(false) => Flow::Status(404),
        Err(e) => {
            let root = path.zone.root().display();
            r.log(Severity::Crit, format_args!("purging in \"{root}\" could not be noted {}", os_error(&e)));
            Flow::Status(500)
        }
    }
}

/// Removes the entry of a key, or all entries with a prefix (`*`). `Ok(false)`: there was none of this key.
///
/// # Errors
/// The purge could not be noted on the disk: entries would return after a restart.
pub fn purge_key(path: &CachePath, key: &[u8]) -> std::io::Result<bool> {
    let zone = &path.zone;
    // Another thread, whose clock is newer than that of this turn, may have stored an entry before.
    clock::update();
    if let Some(prefix) = key.strip_suffix(b"*") {
        let now = clock::unix_millis();
        zone.purges.add(prefix, false, now)?;
        zone.cool_purged();
        hurry_managers();
        path.shared.iter().for_each(|shared| shared.tell(key, now));
        return Ok(true);
    }
    let now = clock::unix_millis();
    let removed = zone.purge_key(&Hash::of(key), key, now)?;
    hurry_managers();
    path.shared.iter().for_each(|shared| shared.tell(key, now));
    Ok(removed)
}

impl CacheSession {
    fn use_stale(&self, bit: u32) -> bool {
        self.caching.use_stale.0 & bit != 0
    }
    /// Tells whether the fetch continues when the client disconnects, because its response may be stored.
    pub fn goes_on_alone(&self) -> bool {
        self.storing
    }

    /// Returns `Some` if the cache has the response.
    async fn decide(&mut self, r: &mut Request, give: Respond<'_>) -> Option<Flow> {
        let stored = match self.look(r).await {
            LookupResult::Error(status) => {
                set_status(r, "HIT");
                return Some(Flow::Status(status));
            }
            LookupResult::Fresh(stored) => {
                set_status(r, "HIT");
                self.ticket = None;
                return self.serve(r, &stored, give);
            }
            LookupResult::Good(stored) => {
                set_status(r, "STALE");
                self.ticket = None;
                return self.serve(r, &stored, give);
            }
            LookupResult::Stale(stored) => stored,
            LookupResult::Absent => return None,
            LookupResult::Scarce => {
                self.storing = false;
                return None;
            }
        };
        let meta = &stored.meta;
        let may = !self.forced
            && !meta.must_revalidate
            && (self.use_stale(UseStale::UPDATING.0) || meta.valid_sec.saturating_add(meta.updating_sec) >= self.now);
        let mine = self.ticket.as_mut().is_none_or(Ticket::renew);
        if !mine && may {
            set_status(r, "UPDATING");
            self.ticket = None;
            return self.serve(r, &stored, give);
        }
        if mine && may && self.caching.background_update && self.update_beside(r, &stored) {
            set_status(r, "STALE");
            return self.serve(r, &stored, give);
        }
        set_status(r, "EXPIRED");
        if let Some(state) = r.ext_mut::<CacheState>() {
            state.stored = Some(stored.clone());
            state.revalidating = self.caching.revalidate;
        }
        self.expired = Some(stored);
        None
    }

    fn serve(&mut self, r: &mut Request, stored: &Arc<StoredEntry>, give: Respond<'_>) -> Option<Flow> {
        if let Some(state) = r.ext_mut::<CacheState>() {
            state.stored = Some(stored.clone());
        }
        let flow = serve::answer_stored(&self.caching, r, stored, give, false);
        if flow.is_none() {
            let path = self.path.zone.place.path(&stored.hash);
            r.log(Severity::Crit, format_args!("cache file \"{}\" contains invalid header", path.display()));
            set_status(r, "MISS");
        }
        flow
    }

    async fn look(&mut self, r: &mut Request) -> LookupResult {
        let zone = self.path.zone.clone();
        let (ticket, mut seen) = zone.enter(self.main, self.caching.min_uses, self.now);
        let mut ticket = ticket;
        let started = clock::unix_millis();
        let mut may_wait = self.caching.lock_timeout_ms > 0;
        let found = loop {
            match seen {
                EntryState::Error(status) => break LookupResult::Error(status),
                EntryState::Scarce => break LookupResult::Scarce,
                EntryState::Full => {
                    let name = &zone.name;
                    r.log(Severity::Alert, format_args!("could not allocate node in cache keys zone \"{name}\""));
                    break LookupResult::Scarce;
                }
                EntryState::Exists => match self.open(r, &mut ticket).await {
                    OpenedEntry::Entry(stored) => match rfc::entry_use(&self.caching, r, &stored.meta, self.now) {
                        Use::Fresh => break LookupResult::Fresh(stored),
                        Use::Stale => break LookupResult::Good(stored),
                        Use::No { may_be_stale } => {
                            self.forced = !may_be_stale;
                            break LookupResult::Stale(stored);
                        }
                    },
                    OpenedEntry::Elsewhere(again) => {
                        seen = again;
                        continue;
                    }
                    OpenedEntry::Useless => break LookupResult::Absent,
                    OpenedEntry::Missing => {
                        ticket.lost();
                        seen = ticket.look(self.now);
                        if seen != EntryState::Exists {
                            continue;
                        }
                        break LookupResult::Absent;
                    }
                },
                EntryState::Wanted => {}
            }
            if !self.caching.lock {
                break LookupResult::Absent;
            }
            let waiters = match ticket.lock(clock::unix_millis(), self.caching.lock_age_ms) {
                Lock::Mine => break LookupResult::Absent,
                Lock::Theirs(..) if !may_wait => break LookupResult::Scarce,
                Lock::Theirs(waiters, _) => waiters,
            };
            let word = waiters.notified();
            tokio::pin!(word);
            word.as_mut().enable();
            // The lock may have been released before `enable`.
            let Lock::Theirs(same, until) = ticket.lock(clock::unix_millis(), self.caching.lock_age_ms) else {
                break LookupResult::Absent;
            };
            if Arc::ptr_eq(&same, &waiters) {
                let deadline = started.saturating_add(self.caching.lock_timeout_ms);
                let pause = until.min(deadline).saturating_sub(clock::unix_millis());
                let _ = runtime::time::with_timeout(Duration::from_millis(pause + 1), word).await;
                clock::update();
                if clock::unix_millis() >= deadline {
                    r.log(Severity::Info, format_args!("cache lock timeout"));
                    may_wait = false;
                }
            }
            self.now = clock::unix_seconds();
            seen = ticket.look(self.now);
        };
        self.ticket = Some(ticket);
        found
    }

    /// From memory or from its file.
    async fn open(&mut self, r: &mut Request, ticket: &mut Ticket) -> OpenedEntry {
        let zone = self.path.zone.clone();
        let path = zone.place.path(&ticket.hash);
        let hot = zone
            .hot(&ticket.hash, self.now)
            .filter(|stored| *stored.key == *self.key && zone.recheck(stored, self.now));
        let stored = match hot {
            Some(stored) => stored,
            None => match self.read(r, path.clone(), ticket.hash).await {
                Ok(stored) => Arc::new(stored),
                Err(EntryError::Missing) => return OpenedEntry::Missing,
                Err(trouble) => {
                    note(r, &path, &trouble);
                    ticket.lost();
                    return OpenedEntry::Useless;
                }
            },
        };
        if zone.purges.hit(&stored) {
            zone.discard(&ticket.hash);
            return OpenedEntry::Missing;
        }
        if !stored.meta.vary.is_empty() {
            let variant = vary::variant_hash(&self.main, &stored.meta.vary, r.headers());
            if variant != stored.meta.variant {
                if self.secondary {
                    r.log(Severity::Crit, format_args!("cache file \"{}\" has incorrect vary hash", path.display()));
                    return OpenedEntry::Useless;
                }
                self.secondary = true;
                return OpenedEntry::Elsewhere(ticket.switch(variant, self.now));
            }
        }
        ticket.found(&stored);
        stored.looked.store(self.now, std::sync::atomic::Ordering::Relaxed);
        zone.keep_hot(stored.clone());
        OpenedEntry::Entry(stored)
    }

    async fn read(&self, r: &mut Request, path: PathBuf, hash: Hash) -> Result<StoredEntry, EntryError> {
        let threads = matches!(r.loc().core.conf.aio, Aio::Threads(_));
        let Some(pool) = threads.then(|| file_io::file_pool(r)).flatten() else {
            return store::open_entry(&path, &hash, Some(&self.key));
        };
        let key = self.key.clone();
        match pool.run(move || store::open_entry(&path, &hash, Some(&key))) {
            Ok(read) => {
                let gone = |_| EntryError::Io(std::io::Error::other("the reading thread has ended"));
                let read = read.await.map_err(gone)?;
                clock::update();
                read
            }
            Err(full) => {
                let (name, waiting) = (&pool.spec().name, full.waiting);
                Err(EntryError::Io(std::io::Error::other(format!(
                    "thread pool \"{name}\" queue overflow: {waiting} tasks waiting"
                ))))
            }
        }
    }

    /// Updates a stale entry with a background subrequest; `false` if there are too many subrequests.
    fn update_beside(&mut self, r: &mut Request, stored: &Arc<StoredEntry>) -> bool {
        let Ok(mut copy) = r.copy() else { return false };
        copy.keep(CacheState {
            status: "EXPIRED",
            stored: Some(stored.clone()),
            key: self.key.clone(),
            revalidating: self.caching.revalidate,
        });
        if let Some(slice) = r.ext::<Slice>().cloned() {
            copy.keep(slice);
        }
        let mut ticket = self.ticket.take();
        if let Some(ticket) = &mut ticket {
            ticket.background = true;
        }
        copy.keep_boxed(Box::new(CacheSession {
            caching: self.caching.clone(),
            path: self.path.clone(),
            key: self.key.clone(),
            main: self.main,
            ticket,
            storing: true,
            bypassed: false,
            expired: Some(stored.clone()),
            secondary: self.secondary,
            background: true,
            invalidates: false,
            verdict: FreshnessVerdict::default(),
            now: self.now,
            asked: self.asked,
            asked_ms: 0,
            fetch: None,
            forced: false,
        }));
        subrequest::run_background(copy);
        true
    }

    fn ask(&mut self, r: &mut Request) {
        if !self.storing {
            return;
        }
        self.fetch = Some(Fetch::new(&self.path.zone));
        self.asked_ms = self.path.zone.purges.stamp(clock::unix_millis());
        let mut asking = CacheRequest {
            as_get: r.target.method() == Method::Head && self.caching.convert_head,
            ..CacheRequest::default()
        };
        if let Some(expired) = self.expired.as_ref().filter(|_| self.caching.revalidate) {
            let meta = &expired.meta;
            asking.if_modified_since = (meta.last_modified >= 0).then(|| http_time(meta.last_modified).to_vec());
            asking.if_none_match = (!meta.etag.is_empty()).then(|| meta.etag.clone());
        }
        r.keep(asking);
    }

    /// Responds to a failure with the stale entry, if permitted. `tries_over`: the last of several tries.
    pub fn instead(&mut self, r: &mut Request, bit: u32, tries_over: bool, give: Respond<'_>) -> Option<Flow> {
        let expired = self.expired.clone()?;
        if self.forced || expired.meta.must_revalidate {
            return None;
        }
        // RFC 5861, 4: these statuses are errors, even if no other server could be tried.
        const ERRORS: u32 = UseStale::HTTP_500.0 | UseStale::HTTP_502.0 | UseStale::HTTP_503.0 | UseStale::HTTP_504.0;
        let failed = tries_over || (self.caching.rfc9111 && bit & ERRORS != 0);
        let still = failed && expired.meta.valid_sec.saturating_add(expired.meta.error_sec) >= self.now;
        if !self.use_stale(bit) && !still {
            return None;
        }
        r.out.clear();
        set_status(r, "STALE");
        self.serve(r, &expired, give)
    }

    /// Responds with the stored entry after a 304, and updates the entry.
    pub fn revalidated(
        &mut self,
        r: &mut Request,
        head: &ResponseHead,
        buf: &[u8],
        ignored: IgnoredFields,
        give: Respond<'_>,
    ) -> Option<Flow> {
        let expired = self.expired.clone().filter(|_| self.caching.revalidate)?;
        let old = serve::parsed_head(&expired)?;
        let now = clock::unix_seconds();
        let (date, status) = (rfc::format_date(now), expired.meta.status);
        let merged = self.caching.rfc9111.then(|| rfc::merge_fields(old, &expired.head, head, buf, &date));
        let mut verdict = match &merged {
            Some(fields) => self.judge(r, status, fields.iter().copied(), ignored, now),
            None => {
                let verdict = self.judge(r, status, fields_of(head, buf), ignored, now);
                if verdict.valid_sec != 0 {
                    verdict
                } else {
                    self.judge(r, status, fields_of(old, &expired.head), ignored, now)
                }
            }
        };
        self.by_status(&mut verdict, status, now);
        let mut shown = expired.clone();
        if merged.is_some() && verdict.forbidden {
            // The 304 forbids storing.
            self.path.zone.discard(&expired.hash);
        } else if verdict.valid_sec != 0 {
            let mut meta = expired.meta.clone();
            meta.valid_sec = verdict.valid_sec;
            (meta.updating_sec, meta.error_sec) = (verdict.updating_sec, verdict.error_sec);
            (meta.date, meta.age, meta.must_revalidate) = (now, verdict.age, verdict.must_revalidate);
            if merged.is_some() {
                let tags = tagging::read_tags(&self.caching.tags, r);
                meta.tags = if tags.is_empty() { meta.tags } else { tags };
            }
            match merged {
                None => self.renewed(r, &expired, &meta),
                Some(fields) => {
                    if meta.last_modified >= 0 || !meta.etag.is_empty() {
                        (meta.last_modified, meta.etag) = (verdict.last_modified, verdict.etag);
                    }
                    let head = rfc::write_head(old, &expired.head, &fields);
                    shown = self.rewritten(r, &expired, &meta, head);
                }
            }
        }
        r.out.clear();
        set_status(r, "REVALIDATED");
        self.serve(r, &shown, give)
    }

    /// Sets the lifetime by the configured times for a status, or by heuristics.
    fn by_status(&self, verdict: &mut FreshnessVerdict, status: u16, now: i64) {
        if verdict.valid_sec == 0 {
            let seconds = freshness::by_status(&self.caching.valid, status);
            verdict.valid_sec = if seconds > 0 { now.saturating_add(seconds) } else { verdict.estimated_sec };
        }
    }

    fn renewed(&mut self, r: &mut Request, stored: &Arc<StoredEntry>, meta: &Meta) {
        let path = self.path.zone.place.path(&stored.hash);
        match store::refresh_entry(&path, stored, meta) {
            Ok(true) => {
                let hot = Arc::new(again(stored, meta.clone(), stored.head.clone()));
                if let Some(ticket) = self.ticket.take() {
                    ticket.stored(stored.disk_size, Some(hot));
                }
            }
            Ok(false) => {}
            Err(e) => r.log(Severity::Crit, format_args!("write() \"{}\" failed {}", path.display(), os_error(&e))),
        }
    }

    /// Replaces the entry by a file with a new head and the old body. A long body is copied in the pool.
    fn rewritten(
        &mut self,
        r: &mut Request,
        stored: &Arc<StoredEntry>,
        meta: &Meta,
        head: Vec<u8>,
    ) -> Arc<StoredEntry> {
        let path = self.path.zone.place.path(&stored.hash);
        let renewed = Arc::new(again(stored, meta.clone(), head.clone().into()));
        let Some(ticket) = self.ticket.take() else { return renewed };
        let fetch = self.fetch.take();
        let (old, meta) = (stored.clone(), meta.clone());
        let copy = {
            let path = path.clone();
            move || store::rewrite_entry(&path, &old, &meta, &head)
        };
        let log = |r: &Request, e: &std::io::Error| {
            r.log(Severity::Crit, format_args!("write() \"{}\" failed {}", path.display(), os_error(e)));
        };
        if matches!(stored.content, cache::Content::Memory(_)) {
            match copy() {
                Ok(placed) => {
                    let mut hot = again(&renewed, renewed.meta.clone(), renewed.head.clone());
                    (hot.inode, hot.disk_size) = (placed.inode, placed.disk_size);
                    ticket.stored(placed.disk_size, Some(Arc::new(hot)));
                }
                Err(e) => log(r, &e),
            }
            return renewed;
        }
        match net::pool::find_pool(net::pool::DEFAULT).map(|pool| pool.run(copy)) {
            Some(Ok(done)) => {
                runtime::task::spawn_local(async move {
                    if let Ok(Ok(placed)) = done.await {
                        ticket.stored(placed.disk_size, None);
                    }
                    drop(fetch);
                });
            }
            Some(Err(_)) | None => log(r, &std::io::Error::other("no thread for it")),
        }
        renewed
    }

    fn judge<'a>(
        &self,
        r: &Request,
        status: u16,
        fields: impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone,
        ignored: IgnoredFields,
        now: i64,
    ) -> FreshnessVerdict {
        if !self.caching.rfc9111 {
            return freshness::judge_fields(fields, ignored, now);
        }
        let credentials = r.header(Known::Authorization).is_some();
        let setting =
            strict::Setting { now, asked: self.asked, status, credentials, revalidates: self.caching.revalidate };
        strict::judge_strictly(fields, ignored, &setting)
    }

    /// Tells whether a response with this status invalidates the entries of the URI (RFC 9111, 4.4).
    pub fn invalidates(&self, status: u16) -> bool {
        self.invalidates && (200..400).contains(&status)
    }
    /// Returns `None` if no key is configured.
    pub fn key_for(&self, r: &mut Request) -> Option<Vec<u8>> {
        self.caching.key.as_ref().map(|key| key.eval(r))
    }
    /// Removes the entries of the request's own key and of these keys.
    pub fn invalidate(&self, r: &Request, keys: &[Vec<u8>]) {
        for key in keys.iter().chain([&self.key]) {
            rfc::forget_entry(r, &self.path.zone, key);
        }
    }

    /// Decides whether a response may be stored. If so, the cache handles conditions and ranges.
    pub fn judged(&mut self, r: &mut Request, head: &ResponseHead, buf: &[u8], ignored: IgnoredFields) {
        if !self.storing {
            return;
        }
        self.now = clock::unix_seconds();
        let mut verdict = self.judge(r, head.status, fields_of(head, buf), ignored, self.now);
        // Partial responses are stored only with the range in the key.
        let stray = self.caching.rfc9111 && head.status == 206 && r.ext::<Slice>().is_none();
        self.storing = !verdict.forbidden && !stray;
        if self.storing {
            self.by_status(&mut verdict, head.status, self.now);
        }
        self.verdict = verdict;
    }
    /// Prepares the head for the client: ranges and conditions are applied here if the response is stored, otherwise by
    /// the server.
    pub fn dress(&self, r: &mut Request, head: &ResponseHead, buf: &[u8]) {
        if self.storing {
            serve::allow_ranges(&self.caching, r, head);
        }
        if self.caching.rfc9111 {
            rfc::drop_connection_fields(r, head, buf);
        }
        r.reply.ignore_conditions(!self.storing);
        r.reply.set_etag_alone(self.caching.rfc9111);
        if self.caching.rfc9111 && self.storing && self.verdict.age > 0 {
            r.out.remove(b"Age");
            r.out.add("Age", self.verdict.age.to_string().into_bytes());
        }
    }
    /// Stores a replaced error response as the status alone, for its configured lifetime.
    pub fn intercepted(&mut self, status: u16) {
        if self.storing
            && self.verdict.valid_sec != 0
            && let Some(ticket) = &mut self.ticket
        {
            ticket.failed(status, self.verdict.valid_sec);
        }
    }
    /// If configured.
    pub fn failed(&mut self, status: u16) {
        if self.storing && matches!(status, 502 | 504) {
            let seconds = freshness::by_status(&self.caching.valid, status);
            if seconds > 0
                && let Some(ticket) = &mut self.ticket
            {
                ticket.failed(status, clock::unix_seconds().saturating_add(seconds));
            }
        }
    }
    /// Makes the final decision to store a response. `None`: not stored.
    pub fn entry(&mut self, r: &mut Request, head: &ResponseHead) -> Option<Meta> {
        if any(r, &self.caching.no_cache.clone()) {
            self.storing = false;
        }
        if !self.storing || self.verdict.valid_sec == 0 {
            return None;
        }
        let verdict = std::mem::take(&mut self.verdict);
        let validators = matches!(head.status, 200 | 206);
        let variant = vary::variant_hash(&self.main, &verdict.vary, r.headers());
        if self.ticket.is_none() {
            let (ticket, _) = self.path.zone.enter(self.main, self.caching.min_uses, self.now);
            self.ticket = Some(ticket);
        }
        if self.secondary
            && let Some(ticket) = &mut self.ticket
            && (verdict.vary.is_empty() || variant != ticket.hash)
        {
            // The response varies by other fields: it becomes the main entry.
            ticket.switch(self.main, self.now);
        }
        if let Some(ticket) = self.ticket.as_ref().filter(|ticket| ticket.hash != self.main)
            && let Err(e) = ticket.zone().variants.note(&self.main)
        {
            let root = ticket.zone().root().display();
            r.log(
                Severity::Crit,
                format_args!("the list of variants in \"{root}\" could not be written {}", os_error(&e)),
            );
        }
        let caching = self.caching.clone();
        Some(Meta {
            status: head.status,
            must_revalidate: verdict.must_revalidate,
            valid_sec: verdict.valid_sec,
            updating_sec: verdict.updating_sec,
            error_sec: verdict.error_sec,
            last_modified: if validators { verdict.last_modified } else { -1 },
            date: self.now,
            age: verdict.age,
            // A purge during the transfer applies to this entry.
            stored_ms: self.asked_ms,
            etag: if validators { verdict.etag } else { Vec::new() },
            variant: if verdict.vary.is_empty() { Hash::default() } else { variant },
            vary: verdict.vary,
            tags: tagging::read_tags(&caching.tags, r),
        })
    }
}

/// Ends the session of a request that does not store an upstream response.
pub fn finish_session(r: &mut Request) {
    drop(CacheSession::take(r));
}

enum OpenedEntry {
    Entry(Arc<StoredEntry>),
    /// The entry is for another variant; holds the index's information about the right one.
    Elsewhere(EntryState),
    Missing,
    Useless,
}

fn note(r: &Request, path: &Path, trouble: &EntryError) {
    let path = path.display();
    match trouble {
        EntryError::Missing => {}
        EntryError::Wrong(words @ "version mismatch") => {
            r.log(Severity::Info, format_args!("cache file \"{path}\" {words}"));
        }
        EntryError::Wrong(words) => r.log(Severity::Crit, format_args!("cache file \"{path}\" {words}")),
        EntryError::Io(e) => r.log(Severity::Crit, format_args!("open() \"{path}\" failed {}", os_error(e))),
    }
}

fn again(stored: &StoredEntry, meta: Meta, head: bytes::Bytes) -> StoredEntry {
    let content = match &stored.content {
        cache::Content::Memory(body) => cache::Content::Memory(body.clone()),
        cache::Content::File(file) => cache::Content::File(file.clone()),
    };
    // A body in memory stands alone; a body in a file keeps its offset.
    let body_start = match &content {
        cache::Content::Memory(_) => meta.encode(&stored.key, &head, stored.body_len).len() as u64,
        cache::Content::File(_) => stored.body_start,
    };
    StoredEntry {
        hash: stored.hash,
        key: stored.key.clone(),
        meta,
        head,
        content,
        body_start,
        body_len: stored.body_len,
        inode: stored.inode,
        disk_size: stored.disk_size,
        looked: clock::unix_seconds().into(),
        compared_tags: 0.into(),
        digest: std::sync::OnceLock::new(),
    }
}

fn fields_of<'a>(head: &'a ResponseHead, buf: &'a [u8]) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + Clone {
    head.fields.all.iter().map(move |f| (f.name.of(buf), f.value.of(buf)))
}
