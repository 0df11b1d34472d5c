//! Sources of keys: files and subrequests. Literal names keep their keys, for `auth_jwt_key_cache`, shared by all blocks
//! that inherit the directive and by all threads.

use arc_swap::{ArcSwap, ArcSwapOption};
use conf_schema::{Complaint, ComplaintLevel, Cx, Directive, Problem, ValueKind};
use http_engine::path::{CanonicalPath, FilePath, bytes_path, unsafe_uri};
use http_engine::{HttpTemplate, Request, subrequest, unless_gone};
use jose::KeySet;
use jose::key::KEY_SET_BYTES_MAX;
use observe::{Severity, os_error};
use std::fs::Metadata;
use std::io::Read as _;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Waker};

/// After a failed subrequest other requests fail for this time, instead of asking one after another.
const FAILURE_MILLIS: u64 = 1_000;
/// Kept keys that lack a token's key are fetched again, at most once in this time.
const REFETCH_MILLIS: u64 = 10_000;

/// Keys are unavailable; logged.
#[derive(Debug)]
pub struct NoKeys;

/// A source of keys.
#[derive(Clone)]
pub enum KeySource {
    File(KeyFile),
    Request(KeyRequest),
}

/// `auth_jwt_key_file`
#[derive(Clone)]
pub struct KeyFile {
    file: HttpTemplate,
    /// Start of relative names: the prefix.
    prefix: PathBuf,
    /// `None` for names with variables.
    kept: Option<Arc<ArcSwapOption<KeptFile>>>,
}

struct KeptFile {
    set: Arc<KeySet>,
    stamp: FileStamp,
    /// Milliseconds of the clock.
    checked: AtomicU64,
}

/// Identity and times of a file: a change of its contents changes them.
#[derive(Clone, Copy, PartialEq, Eq)]
struct FileStamp([i64; 7]);

impl FileStamp {
    fn of(m: &Metadata) -> FileStamp {
        let (device, file) = (m.dev() as i64, m.ino() as i64);
        FileStamp([device, file, m.size() as i64, m.mtime(), m.mtime_nsec(), m.ctime(), m.ctime_nsec()])
    }
}

impl ValueKind for KeyFile {
    const SYNTAX: &'static str = "file";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let file = HttpTemplate::parse(cx, d)?;
        let prefix = cx.prefix.clone();
        let literal = file.as_literal().map(|name| prefix.join(bytes_path(name)));
        if let Some(path) = &literal
            && !cx.store.replay
            && !cx.store.elsewhere
            && let Err(why) = read(path)
        {
            // The file may come later.
            let text = format!("{why}: until this is mended, requests that need these keys get 500");
            cx.warnings.push(Complaint {
                level: ComplaintLevel::Warn,
                text,
                span: Some(d.span),
                line: d.line,
                hint: None,
            });
        }
        Ok(KeyFile { file, prefix, kept: literal.map(|_| Arc::default()) })
    }
}

fn read(path: &Path) -> Result<(Arc<KeySet>, FileStamp), String> {
    let failed = |call: &str, e: &std::io::Error| format!("{call}() \"{}\" failed {}", path.display(), os_error(e));
    let file = conf_syntax::open_regular(path).map_err(|e| failed("open", &e))?;
    let stamp = FileStamp::of(&file.metadata().map_err(|e| failed("fstat", &e))?);
    let mut text = Vec::new();
    file.take(KEY_SET_BYTES_MAX as u64 + 1).read_to_end(&mut text).map_err(|e| failed("read", &e))?;
    let set = KeySet::parse(&text).map_err(|e| format!("\"{}\": {e}", path.display()))?;
    Ok((Arc::new(set), stamp))
}

impl KeyFile {
    /// Returns the file's keys. Cached keys are used for `keep` milliseconds without checking the file, and longer if
    /// the file is unchanged.
    pub fn keys(&self, r: &mut Request, keep: u64) -> Result<Arc<KeySet>, NoKeys> {
        self.find(r, keep).map_err(|why| {
            r.log(Severity::Error, format_args!("{why}"));
            NoKeys
        })
    }
    fn find(&self, r: &mut Request, keep: u64) -> Result<Arc<KeySet>, String> {
        let Some(kept) = &self.kept else {
            let name = self.file.eval(r);
            let shown = String::from_utf8_lossy(&name).into_owned();
            let path = FilePath::configured(&self.file, name);
            let path = path.map_err(|_| format!("unsafe name of a key file: \"{shown}\""))?;
            return read(&self.prefix.join(bytes_path(&path.into_bytes()))).map(|(set, _)| set);
        };
        let now = base::clock::now().0 / 1000;
        let path = || self.prefix.join(bytes_path(self.file.as_literal().unwrap_or_default()));
        if let Some(known) = &*kept.load() {
            if now < known.checked.load(Ordering::Relaxed).saturating_add(keep) {
                return Ok(known.set.clone());
            }
            if std::fs::metadata(path()).is_ok_and(|m| FileStamp::of(&m) == known.stamp) {
                known.checked.store(now, Ordering::Relaxed);
                return Ok(known.set.clone());
            }
        }
        let read = read(&path());
        let new = read
            .as_ref()
            .ok()
            .map(|(set, stamp)| Arc::new(KeptFile { set: set.clone(), stamp: *stamp, checked: AtomicU64::new(now) }));
        kept.store(new);
        read.map(|(set, _)| set)
    }
}

/// `auth_jwt_key_request`
#[derive(Clone)]
pub struct KeyRequest {
    uri: HttpTemplate,
    /// `None` for URIs with variables.
    kept: Option<Arc<KeptAnswer>>,
}

#[derive(Default)]
struct KeptAnswer {
    last: ArcSwap<Last>,
    /// Last time that keys were fetched for an unknown key, and the end of the last such fetch that failed, in milliseconds of the
    /// clock.
    doubted: AtomicU64,
    in_vain: AtomicU64,
    /// Held by the request that fetches; others wait for its result.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Default)]
enum Last {
    #[default]
    Nothing,
    Keys(Arc<KeySet>, u64),
    Failure(u64),
}

impl KeptAnswer {
    fn set(&self, last: Last) {
        self.last.store(Arc::new(last));
    }
}

fn destination(uri: &[u8]) -> Option<(CanonicalPath, Vec<u8>)> {
    unsafe_uri(uri).ok().filter(|_| uri.first() == Some(&b'/'))
}

impl ValueKind for KeyRequest {
    const SYNTAX: &'static str = "uri";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let uri = HttpTemplate::parse(cx, d)?;
        let literal = uri.as_literal();
        if literal.is_some_and(|uri| destination(uri).is_none()) {
            return Err(Problem::directive("invalid value")
                .at(0)
                .hint("a URI of this server, which begins with \"/\""));
        }
        let kept = literal.map(|_| Arc::default());
        Ok(KeyRequest { uri, kept })
    }
}

impl KeyRequest {
    /// Returns valid cached keys.
    pub fn kept(&self, keep: u64) -> Option<Arc<KeySet>> {
        let now = base::clock::now().0 / 1000;
        match &**self.kept.as_ref()?.last.load() {
            Last::Keys(set, at) if now < at.saturating_add(keep) => Some(set.clone()),
            _ => None,
        }
    }
    /// Tells whether a token whose key is unknown may wait for new keys: a fetch is under way, or the cached ones are old enough.
    pub fn may_fetch_again(&self, keep: u64) -> bool {
        let now = base::clock::now().0 / 1000;
        let Some(kept) = &self.kept else { return false };
        match &**kept.last.load() {
            Last::Keys(_, at) if now < at.saturating_add(keep) => {
                let last = kept.doubted.load(Ordering::Relaxed).max(*at);
                now >= last.saturating_add(REFETCH_MILLIS) || kept.turn.try_lock().is_err()
            }
            _ => false,
        }
    }
    /// Fetches the keys. With `keep`, concurrent requests wait for the result. `anew` replaces cached keys that lack a
    /// token's key; one request at a time does so.
    pub async fn fetch(&self, r: &mut Request, keep: u64, anew: bool) -> Result<Arc<KeySet>, NoKeys> {
        let Some(kept) = self.kept.as_ref().filter(|_| keep > 0) else {
            return self.ask(r).await;
        };
        let began = base::clock::now().0 / 1000;
        let _turn = match kept.turn.try_lock() {
            Ok(turn) => {
                if anew {
                    // Before the fetch, which may fail: clients can name unknown keys without end.
                    kept.doubted.store(began, Ordering::Relaxed);
                }
                turn
            }
            // Another request fetches.
            Err(_) => unless_gone(r.incoming.watch().cloned(), kept.turn.lock()).await.ok_or(NoKeys)?,
        };
        base::clock::update();
        let now = base::clock::now().0 / 1000;
        match &**kept.last.load() {
            Last::Keys(set, at) if now < at.saturating_add(keep) && (!anew || *at >= began) => {
                return Ok(set.clone());
            }
            Last::Keys(..) if anew && kept.in_vain.load(Ordering::Relaxed) >= began => return Err(NoKeys),
            Last::Failure(at) if now < at.saturating_add(FAILURE_MILLIS) => {
                let uri = String::from_utf8_lossy(self.uri.as_literal().unwrap_or_default());
                let wait = at.saturating_add(FAILURE_MILLIS).saturating_sub(now);
                let words = format_args!(
                    "keys of \"{uri}\" are missing: the last request for them failed, the next one follows in {wait} ms at the earliest"
                );
                r.log(Severity::Error, words);
                return Err(NoKeys);
            }
            _ => {}
        }
        let answer = self.ask(r).await;
        base::clock::update();
        let now = base::clock::now().0 / 1000;
        match (&answer, anew) {
            (Ok(set), _) => kept.set(Last::Keys(set.clone(), now)),
            // The next request fetches for a client that has left.
            (Err(NoKeys), _) if has_left(r) => {}
            // Kept keys stay valid for the tokens that they serve.
            (Err(NoKeys), true) => kept.in_vain.store(now, Ordering::Relaxed),
            (Err(NoKeys), false) => kept.set(Last::Failure(now)),
        }
        answer
    }

    /// Asks by a subrequest, which ends when the client leaves.
    async fn ask(&self, r: &mut Request) -> Result<Arc<KeySet>, NoKeys> {
        let uri = self.uri.eval(r);
        let shown = String::from_utf8_lossy(&uri).into_owned();
        let Some((path, args)) = destination(&uri) else {
            r.log(Severity::Error, format_args!("invalid URI \"{shown}\" of \"auth_jwt_key_request\""));
            return Err(NoKeys);
        };
        let Ok(mut child) = r.subrequest(path, args) else { return Err(NoKeys) };
        child.incoming.set_body_length(None);
        child.leave_body();
        let Ok((child, body)) = subrequest::in_memory(child).await else {
            r.log(Severity::Error, format_args!("incomplete answer of \"{shown}\" while fetching keys"));
            return Err(NoKeys);
        };
        let status = child.out.status();
        subrequest::log_subrequest(child);
        if status != 200 {
            r.log(Severity::Error, format_args!("unexpected status {status} of \"{shown}\" while fetching keys"));
            return Err(NoKeys);
        }
        match KeySet::parse(&body) {
            Ok(set) => {
                for why in set.skipped().iter().take(1) {
                    let count = set.skipped().len();
                    r.log(Severity::Info, format_args!("{count} keys of \"{shown}\" are not used: {why}"));
                }
                Ok(Arc::new(set))
            }
            Err(e) => {
                r.log(Severity::Error, format_args!("answer of \"{shown}\" while fetching keys: {e}"));
                Err(NoKeys)
            }
        }
    }
}

/// Tells whether the request's client has left.
pub fn has_left(r: &Request) -> bool {
    let mut cx = Context::from_waker(Waker::noop());
    r.incoming.watch().is_some_and(|watch| watch.poll_gone(&mut cx).is_ready())
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::table::synthetic_directive;

    #[test]
    fn kept_keys_end_and_may_be_doubted_after_a_while() {
        let parse =
            |uri: &str| KeyRequest::parse(&mut Cx::default(), &synthetic_directive("auth_jwt_key_request", uri));
        let Ok(request) = parse("/jwks?a=b") else { panic!("in order") };
        let set = Arc::new(KeySet::parse(b"{\"keys\":[]}").expect("a set"));
        base::clock::freeze();
        let start = base::clock::now();
        let kept = request.kept.as_ref().expect("a literal URI");
        assert!(request.kept(60_000).is_none());
        kept.set(Last::Keys(set, start.0 / 1000));
        let at = |millis: u64| {
            base::clock::set_frozen(start.plus_millis(millis));
            request.kept(60_000).map(|_| request.may_fetch_again(60_000))
        };
        assert_eq!(
            [at(0), at(9_000), at(10_001), at(59_000), at(60_001)],
            [Some(false), Some(false), Some(true), Some(true), None]
        );
        kept.set(Last::Keys(Arc::new(KeySet::parse(b"{\"keys\":[]}").expect("a set")), start.0 / 1000 + 60_001));
        kept.doubted.store(start.0 / 1000 + 75_000, Ordering::Relaxed);
        assert_eq!(
            [at(76_000), at(84_000), at(85_001)],
            [Some(false), Some(false), Some(true)],
            "one fetch in a while"
        );
        assert!(request.kept(0).is_none(), "without auth_jwt_key_cache nothing is kept");
        let turn = kept.turn.try_lock().expect("free");
        assert_eq!(at(85_002), Some(true));
        kept.doubted.store(start.0 / 1000 + 85_002, Ordering::Relaxed);
        assert_eq!(at(85_003), Some(true), "a fetch under way serves all requests");
        drop(turn);
        assert_eq!(at(85_004), Some(false));
        base::clock::thaw();
        for wrong in ["jwks", "?a", "/../x", "https://idp.example/keys"] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
