//! Stores a response while the client reads it: a task fills and names a file at full speed, even without the client,
//! who follows from memory or, if slow, from the file.
//! The client of a response with known length gets the last bytes only after the file has its name, and so finds it in
//! the cache.

use super::session::CacheSession;
use crate::body_store;
use crate::upstream_state::{Try, UpstreamState};
use bytes::Bytes;
use cache::store::{self, NotPlaced, PlacedEntry};
use cache::{Content, EntryDraft, Meta, StoredEntry};
use http_engine::core_table::TempPath;
use http_engine::response::OutField;
use http_engine::{BodyError, BodySource, Piece, Request, ResponseBody};
use observe::{Severity, os_error};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};

/// The place where a response is stored.
pub enum StoreTarget {
    /// A cache entry: metadata, and the response head as received.
    Entry {
        /// The request's use of the cache, which names the entry.
        session: Box<CacheSession>,
        /// Lifetime, validators and other facts of the entry.
        meta: Meta,
        /// The head as received.
        head: Bytes,
    },
    /// `proxy_store`: path and permissions of the file, and the time of `Last-Modified` in Unix seconds.
    File {
        /// The file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
        /// Modification time to set, in seconds since 1970.
        modified: Option<i64>,
    },
}

#[derive(Default)]
struct FillState {
    /// Bytes in memory, and the offset of the first one in the body.
    window: VecDeque<Bytes>,
    window_start: u64,
    window_bytes: u64,
    total: u64,
    draft: Option<EntryDraft>,
    /// The complete file and the offset of its body, as long as the client needs it.
    whole: Option<(std::fs::File, u64)>,
    end: Option<Result<(), BodyError>>,
    /// The task has received bytes, or waits for them.
    begun: bool,
    /// Offset that the client has reached; `None`: the client is gone.
    client: Option<u64>,
    client_waits: Option<Waker>,
    task_waits: Option<Waker>,
    stats: Try,
    trailers: Vec<OutField>,
}

/// `expected`: announced length, if any.
pub fn fill_entry(
    r: &mut Request,
    mut recipe: StoreTarget,
    body: Box<dyn BodySource>,
    expected: Option<u64>,
    memory_max: u64,
    temp: &TempPath,
    write_size: u64,
) -> ResponseBody {
    let Ok(mut copy) = r.copy() else { return ResponseBody::Source(body) };
    // An independent request, whose log messages are those of the original.
    copy.incoming.set_watch(None);
    if !r.is_subrequest() {
        copy.become_main();
    }
    let (origin, uri) = UpstreamState::of(r).map(|s| (s.origin.clone(), s.uri.clone())).unwrap_or_default();
    copy.upstream.set(UpstreamState {
        tries: UpstreamState::last(r).cloned().into_iter().collect(),
        origin,
        uri,
        ..UpstreamState::default()
    });
    let draft = match begin(&mut recipe, temp, write_size) {
        Ok(draft) => Some(draft),
        Err((path, e)) => {
            r.log(Severity::Crit, format_args!("open() \"{}\" failed {}", path.display(), os_error(&e)));
            None
        }
    };
    let shared = Rc::new(RefCell::new(FillState { draft, client: Some(0), ..FillState::default() }));
    let task = Task { shared: shared.clone(), recipe: Some(recipe), whole: Some(Vec::new()), memory_max };
    runtime::task::spawn_local(task.run(copy, body, expected));
    ResponseBody::Source(Box::new(Follower { shared, at: 0, expected }))
}

fn begin(recipe: &mut StoreTarget, temp: &TempPath, write_size: u64) -> Result<EntryDraft, (PathBuf, std::io::Error)> {
    let in_temp = || body_store::named_file(temp).map_err(|e| (temp.path.clone(), e));
    let (head_len, made) = match recipe {
        StoreTarget::Entry { session, meta, head } => {
            let head_len = meta.encode(&session.key, head, 0).len();
            let Some(ticket) = &session.ticket else { return Err((PathBuf::new(), std::io::Error::other("no place"))) };
            let path = session.path.zone.place.path(&ticket.hash);
            let made = if session.path.use_temp_path {
                in_temp()?
            } else {
                store::create_beside(&path).map_err(|e| (path, e))?
            };
            (head_len, made)
        }
        StoreTarget::File { .. } => (0, in_temp()?),
    };
    Ok(EntryDraft::new(made.0, made.1, head_len, write_size.max(4096) as usize))
}

struct Task {
    shared: Rc<RefCell<FillState>>,
    recipe: Option<StoreTarget>,
    /// The body so far, while small enough for the cache in memory.
    whole: Option<Vec<u8>>,
    memory_max: u64,
}

impl Task {
    async fn run(mut self, mut copy: Box<Request>, mut body: Box<dyn BodySource>, expected: Option<u64>) {
        let ok = loop {
            let piece = std::future::poll_fn(|cx| {
                let piece = body.poll_piece(cx, &mut copy);
                if piece.is_pending() {
                    self.begin();
                }
                piece
            })
            .await;
            let bytes = match piece {
                None => break true,
                Some(Err(BodyError)) => break false,
                Some(Ok(piece)) => match piece.into_bytes() {
                    Ok(bytes) => bytes,
                    Err(_) => break false,
                },
            };
            self.take(&mut copy, bytes);
            if !self.room().await {
                return;
            }
        };
        let whole = ok && expected.is_none_or(|n| n == self.shared.borrow().total);
        base::clock::update();
        if whole && let Err((path, e)) = self.place().await {
            copy.log(Severity::Crit, format_args!("storing \"{}\" failed {}", path.display(), os_error(&e)));
        }
        let mut shared = self.shared.borrow_mut();
        shared.draft = None;
        shared.end = Some(if ok { Ok(()) } else { Err(BodyError) });
        shared.trailers = std::mem::take(copy.out.trailers_mut());
        if let Some(one) = UpstreamState::last(&mut copy) {
            shared.stats = one.clone();
        }
        if let Some(waker) = shared.client_waits.take() {
            waker.wake();
        }
    }

    /// Lets the client send the head before a body that is late.
    fn begin(&self) {
        let mut shared = self.shared.borrow_mut();
        if !std::mem::replace(&mut shared.begun, true)
            && let Some(waker) = shared.client_waits.take()
        {
            waker.wake();
        }
    }

    fn take(&mut self, copy: &mut Request, bytes: Bytes) {
        let mut shared = self.shared.borrow_mut();
        shared.begun = true;
        shared.total += bytes.len() as u64;
        if let Some(whole) = &mut self.whole {
            whole.extend_from_slice(&bytes);
            if whole.len() as u64 > store::HOT_BODY_MAX || !matches!(self.recipe, Some(StoreTarget::Entry { .. })) {
                self.whole = None;
            }
        }
        if let Some(draft) = &mut shared.draft
            && let Err(e) = draft.write(&bytes)
        {
            copy.log(
                Severity::Crit,
                format_args!("write() to a temporary file failed {}; the response is not stored", os_error(&e)),
            );
            let flushed = draft.flushed();
            if shared.client.is_some_and(|at| at < shared.window_start.min(flushed)) {
                shared.whole =
                    shared.draft.as_ref().and_then(|d| Some((d.reader().try_clone().ok()?, d.head_len as u64)));
            }
            (shared.draft, self.recipe) = (None, None);
        }
        if shared.client.is_some() {
            shared.window_bytes += bytes.len() as u64;
            shared.window.push_back(bytes);
            // Drops bytes that are in the file.
            let flushed = shared.draft.as_ref().map_or(0, EntryDraft::flushed);
            while shared.window_bytes > self.memory_max
                && let Some(first) = shared.window.front().map(|b| b.len() as u64)
                && shared.window_start + first <= flushed
            {
                shared.window.pop_front();
                shared.window_bytes -= first;
                shared.window_start += first;
            }
        } else {
            shared.window_start = shared.total;
        }
        if let Some(one) = UpstreamState::last(copy) {
            shared.stats = one.clone();
        }
        if let Some(waker) = shared.client_waits.take() {
            waker.wake();
        }
    }

    /// Waits until memory is below the limit; `false` if the client is gone.
    async fn room(&self) -> bool {
        std::future::poll_fn(|cx| {
            let mut shared = self.shared.borrow_mut();
            if shared.draft.is_some() {
                return Poll::Ready(true);
            }
            if shared.client.is_none() {
                return Poll::Ready(false);
            }
            if shared.window_bytes <= self.memory_max {
                return Poll::Ready(true);
            }
            shared.task_waits = Some(cx.waker().clone());
            Poll::Pending
        })
        .await
    }

    async fn place(&mut self) -> Result<(), (PathBuf, std::io::Error)> {
        let Some(draft) = self.shared.borrow_mut().draft.take() else { return Ok(()) };
        {
            let mut shared = self.shared.borrow_mut();
            // A client that needs bytes of the file reads on while it moves, and afterwards.
            if shared.client.is_some_and(|at| at < shared.window_start) {
                shared.whole = draft.reader().try_clone().ok().map(|file| (file, draft.head_len as u64));
            }
        }
        let body_len = draft.len();
        match self.recipe.take() {
            None => return Ok(()),
            Some(StoreTarget::File { path, mode, modified }) => {
                let failed = |e| (path.clone(), e);
                draft.reader().set_permissions(std::fs::Permissions::from_mode(mode)).map_err(failed)?;
                place(draft, b"", &path).await.map_err(failed)?;
                // A draft is written last: its time is set after it was placed, perhaps as another file.
                let seconds = |at: i64| Duration::from_secs(at.max(0) as u64);
                if let Some(time) = modified.and_then(|at| SystemTime::UNIX_EPOCH.checked_add(seconds(at))) {
                    std::fs::File::open(&path).and_then(|file| file.set_modified(time)).map_err(failed)?;
                }
            }
            Some(StoreTarget::Entry { mut session, meta, head }) => {
                let Some(ticket) = session.ticket.take() else { return Ok(()) };
                let path = session.path.zone.place.path(&ticket.hash);
                let bytes = meta.encode(&session.key, &head, body_len);
                let body_start = bytes.len() as u64;
                let placed = match place(draft, &bytes, &path).await {
                    Ok(placed) => placed,
                    Err(e) => return Err((path, e)),
                };
                let hot = self.whole.take().map(|body| {
                    Arc::new(StoredEntry {
                        hash: ticket.hash,
                        key: session.key.as_slice().into(),
                        meta,
                        head,
                        content: Content::Memory(body.into_boxed_slice().into()),
                        body_start,
                        body_len,
                        inode: placed.inode,
                        disk_size: placed.disk_size,
                        looked: base::clock::unix_seconds().into(),
                        compared_tags: 0.into(),
                        digest: std::sync::OnceLock::new(),
                    })
                });
                ticket.stored(placed.disk_size, hot);
            }
        }
        Ok(())
    }
}

/// Names a file; copies it to another file system in the pool.
async fn place(draft: EntryDraft, head: &[u8], path: &Path) -> std::io::Result<PlacedEntry> {
    let draft = match draft.place(head, path) {
        Ok(placed) => return Ok(placed),
        Err(NotPlaced::Failed(e)) => return Err(e),
        Err(NotPlaced::Across(draft)) => draft,
    };
    let to = path.to_path_buf();
    let copy = move || draft.copy_to(&to);
    let Some(pool) = net::pool::find_pool(net::pool::DEFAULT) else { return copy() };
    let gone = |_| std::io::Error::other("the writing thread has ended");
    match pool.run(copy) {
        Ok(done) => done.await.map_err(gone)?,
        Err(full) => Err(std::io::Error::other(format!("{} tasks wait for a thread", full.waiting))),
    }
}

struct Follower {
    shared: Rc<RefCell<FillState>>,
    at: u64,
    expected: Option<u64>,
}

impl Drop for Follower {
    fn drop(&mut self) {
        let mut shared = self.shared.borrow_mut();
        shared.client = None;
        shared.window.clear();
        (shared.window_start, shared.window_bytes, shared.whole) = (shared.total, 0, None);
        if let Some(waker) = shared.task_waits.take() {
            waker.wake();
        }
    }
}

const READ_BYTES: u64 = 32 * 1024;

impl Follower {
    fn piece(&mut self, shared: &mut FillState) -> Result<Option<Bytes>, BodyError> {
        if self.at >= shared.total {
            return Ok(None);
        }
        if self.at < shared.window_start {
            let left = (shared.window_start - self.at).min(READ_BYTES);
            let (file, start) = match (&shared.draft, &shared.whole) {
                (Some(draft), _) => (draft.reader(), draft.head_len as u64),
                (None, Some((file, start))) => (file, *start),
                (None, None) => return Err(BodyError),
            };
            let mut buf = vec![0; left as usize];
            file.read_exact_at(&mut buf, start + self.at).map_err(|_| BodyError)?;
            return Ok(Some(buf.into()));
        }
        let Some(bytes) = shared.window.front() else { return Err(BodyError) };
        Ok(Some(bytes.clone()))
    }
}

impl BodySource for Follower {
    fn poll_piece(&mut self, cx: &mut Context<'_>, r: &mut Request) -> Poll<Option<Result<Piece, BodyError>>> {
        let shared = self.shared.clone();
        let mut shared = shared.borrow_mut();
        r.reply.hold_output(false);
        if let Some(one) = UpstreamState::last(r) {
            let started = one.started;
            *one = Try { started, apart: one.apart, ..shared.stats.clone() };
        }
        let piece = match self.piece(&mut shared) {
            Ok(piece) => piece,
            Err(e) => return Poll::Ready(Some(Err(e))),
        };
        let end = self.at + piece.as_ref().map_or(0, |b| b.len() as u64);
        let held_back = shared.end.is_none() && self.expected == Some(end);
        if let Some(bytes) = piece.filter(|_| !held_back) {
            if self.at >= shared.window_start {
                shared.window.pop_front();
                shared.window_bytes -= bytes.len() as u64;
                shared.window_start = end;
                if let Some(waker) = shared.task_waits.take() {
                    waker.wake();
                }
            }
            self.at = end;
            shared.client = Some(end);
            return Poll::Ready(Some(Ok(Piece::Bytes(bytes))));
        }
        match shared.end {
            Some(Ok(())) => {
                r.out.trailers_mut().append(&mut shared.trailers);
                Poll::Ready(None)
            }
            Some(Err(e)) => Poll::Ready(Some(Err(e))),
            None => {
                shared.client_waits = Some(cx.waker().clone());
                // Sends head and body together if the body is here.
                r.reply.hold_output(!shared.begun || held_back);
                Poll::Pending
            }
        }
    }
    /// Bytes that other requests have read already come from the cache's file.
    fn needs_window(&self) -> bool {
        let shared = self.shared.borrow();
        self.at < shared.window_start.min(shared.total)
    }
}
