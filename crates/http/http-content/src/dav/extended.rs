//! PROPFIND, OPTIONS, LOCK and UNLOCK, and the effect of locks on writing methods.

use super::condition::{self, IfList, StateToken, token_text};
use super::copy_move::{own_path, parse_destination};
use super::locks::{Lock, LockRequest, LockToken, Locks, NoLock};
use super::properties::{self, Listing};
use super::{DavPlan, Depth, ExtendedMethods, MethodNames, Own, depth, refuse, set_location, xml};
use super::{dead, files};
use bytes::Bytes;
use http_engine::engine::method_bit;
use http_engine::path::bytes_path;
use http_engine::path::{CanonicalPath, unsafe_uri};
use http_engine::{Flow, Handler, LocalFuture, Request, ResponseBody, file_paths, files as cached};
use http_types::{Known, Method};
use http_upstream::body_store;
use observe::{Severity, os_error};
use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::Arc;

/// RFC 4918, 11.3.
const LOCKED: u16 = 423;

/// Passes writing methods that hold the resource's locks.
pub struct Guard(pub Arc<DavPlan>);

impl Handler for Guard {
    fn run(&self, r: &mut Request) -> Flow {
        let Some(locks) = &self.0.locks else { return Flow::Declined };
        match judge(locks, r) {
            Ok(()) => Flow::Declined,
            Err(status) => Flow::Status(status),
        }
    }
}

fn judge(locks: &Locks, r: &mut Request) -> Result<(), u16> {
    use Method::{Copy, Delete, Mkcol, Move, Proppatch, Put};
    if !matches!(r.target.method(), Put | Delete | Mkcol | Copy | Move | Proppatch) {
        return Ok(());
    }
    let now = base::clock::unix_seconds();
    let tokens = evaluate(locks, r, now)?;
    let path = r.target.path().clone();
    let allowed = match r.target.method() {
        Method::Put | Method::Mkcol => {
            let there = file_paths::mapped_path(r).is_ok_and(|file| bytes_path(&file).exists());
            locks.allow(&path, &tokens, !there, false, now)
        }
        Method::Delete | Method::Move => locks.allow(&path, &tokens, true, true, now),
        Method::Proppatch => locks.allow(&path, &tokens, false, false, now),
        _ => true,
    };
    if !allowed {
        return Err(LOCKED);
    }
    if matches!(r.target.method(), Method::Copy | Method::Move)
        && let Some(to) = r.header(Known::Destination)
        && let Ok(to) = parse_destination(r, to)
        && !locks.allow(&to, &tokens, true, true, now)
    {
        return Err(LOCKED);
    }
    Ok(())
}

/// Evaluates the `If` fields; returns the tokens of this server in them.
fn evaluate(locks: &Locks, r: &mut Request, now: i64) -> Result<Vec<LockToken>, u16> {
    let mut fields = r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"If")).map(|(_, value)| value);
    let lists = match (fields.next(), fields.next()) {
        (None, _) => return Ok(Vec::new()),
        (Some(field), None) => condition::parse_if(field),
        // Repeated single-value fields are ignored.
        _ => None,
    };
    drop(fields);
    let Some(lists) = lists else {
        r.log(Severity::Error, format_args!("client sent invalid \"If\" header"));
        return Err(400);
    };
    let all = lists.iter().flat_map(|list| &list.conditions);
    let tokens = all.filter_map(|condition| match condition.state {
        StateToken::Token(token) => Some(token),
        _ => None,
    });
    let tokens = tokens.collect();
    for list in &lists {
        if holds(locks, r, list, now) {
            return Ok(tokens);
        }
    }
    Err(412)
}

fn holds(locks: &Locks, r: &mut Request, list: &IfList, now: i64) -> bool {
    let path = match &list.resource {
        None => Some(r.target.path().clone()),
        Some(uri) => own_path(r, uri).ok().and_then(|path| unsafe_uri(path).ok()).map(|(path, _)| path),
    };
    let held = path.as_ref().map(|path| locks.covering(path, now)).unwrap_or_default();
    list.conditions.iter().all(|condition| {
        let holds = match &condition.state {
            StateToken::Token(token) => held.iter().any(|lock| lock.token == *token),
            StateToken::Unknown => false,
            StateToken::Etag(etag) => path.as_ref().is_some_and(|path| has_etag(r, path, etag)),
        };
        holds != condition.negated
    })
}

fn has_etag(r: &mut Request, path: &CanonicalPath, etag: &[u8]) -> bool {
    let Ok(file) = file_paths::map_file(r, path, Vec::new()) else { return false };
    file_paths::look_up(r, &file).is_ok_and(|found| found.kind == cached::FileKind::File && *found.etag == *etag)
}

pub fn options(plan: &DavPlan, r: &mut Request) -> Flow {
    let locks = plan.locks.is_some();
    let mut allowed = vec!["GET".to_string(), "HEAD".to_string()];
    let names = Own::NAMES.iter().chain(ExtendedMethods::NAMES);
    let named = names.filter(|(_, method)| plan.methods & method_bit(*method) != 0);
    allowed.extend(named.map(|(name, _)| name.to_ascii_uppercase()));
    r.out.set_status(200);
    r.out.add("DAV", if locks { "1, 2" } else { "1" });
    r.out.add("Allow", allowed.join(",").into_bytes());
    r.out.set_content_length(Some(0));
    Flow::Content(ResponseBody::Empty)
}

/// The body, which must fit into `client_body_buffer_size`.
async fn body(r: &mut Request) -> Result<Vec<u8>, u16> {
    let store = body_store::read_body(r).await?;
    match store.in_memory() {
        Some(text) => Ok(text.to_vec()),
        None => {
            let method = r.target.method().name();
            r.log(
                Severity::Error,
                format_args!("{method} client body is in file, you may want to increase client_body_buffer_size"),
            );
            Err(413)
        }
    }
}

/// Runs asynchronous work; its error is the status.
fn later<F>(plan: &Arc<DavPlan>, work: F) -> Flow
where
    F: for<'a> FnOnce(Arc<DavPlan>, &'a mut Request) -> std::pin::Pin<Box<dyn Future<Output = Result<Flow, u16>> + 'a>>
        + 'static,
{
    let plan = plan.clone();
    Flow::Later(Box::new(move |mut r| -> LocalFuture<(Box<Request>, Flow)> {
        Box::pin(async move {
            let flow = work(plan, &mut r).await.unwrap_or_else(Flow::Status);
            (r, flow)
        })
    }))
}

pub fn propfind(plan: &Arc<DavPlan>, _: &mut Request) -> Flow {
    later(plan, |plan, r| Box::pin(async move { list(&plan, r).await }))
}

async fn list(plan: &DavPlan, r: &mut Request) -> Result<Flow, u16> {
    let text = body(r).await?;
    let Some(wanted) = xml::parse_propfind(&text) else {
        r.log(Severity::Error, format_args!("client sent invalid PROPFIND body"));
        return Err(400);
    };
    let inside = match depth(r, Depth::Zero) {
        None => return Err(400),
        // A server may refuse infinite depth (RFC 4918, 9.1).
        Some(Depth::Infinity) => return Err(403),
        Some(depth) => depth == Depth::One,
    };
    let path = file_paths::mapped_path(r)?;
    let path = bytes_path(&path);
    let Ok(found) = std::fs::metadata(path) else { return Err(404) };
    let inside = match inside && found.is_dir() {
        false => None,
        true => Some(std::fs::read_dir(path).map_err(|e| {
            r.log(Severity::Crit, format_args!("opendir() \"{}\" failed {}", path.display(), os_error(&e)));
            500u16
        })?),
    };
    r.out.set_status(207);
    r.out.set_status_line(Some("207 Multi-Status".into()));
    r.out.set_content_type("text/xml");
    r.out.set_charset("utf-8");
    let dead = plan.allows(Method::Proppatch);
    let listing = Listing::new(wanted, plan.locks.clone(), dead, r.target.path().to_vec(), path.into(), found, inside);
    Ok(Flow::Content(ResponseBody::Source(Box::new(listing))))
}

pub fn proppatch(plan: &Arc<DavPlan>, _: &mut Request) -> Flow {
    later(plan, |_, r| Box::pin(async move { patch(r).await }))
}

async fn patch(r: &mut Request) -> Result<Flow, u16> {
    let text = body(r).await?;
    let Some(changes) = xml::parse_proppatch(&text) else {
        r.log(Severity::Error, format_args!("client sent invalid PROPPATCH body"));
        return Err(400);
    };
    let path = file_paths::mapped_path(r)?;
    if !bytes_path(&path).exists() {
        return Err(404);
    }
    let names: Vec<xml::PropertyName> = changes.iter().map(|change| change.name().clone()).collect();
    // Live properties are read-only.
    let live = |name: &xml::PropertyName| name.namespace == xml::DAV;
    let statuses: Vec<(&xml::PropertyName, &str)> = if names.iter().any(live) {
        let status = |name| if live(name) { "403 Forbidden" } else { "424 Failed Dependency" };
        names.iter().map(|name| (name, status(name))).collect()
    } else {
        files::run_job(r, move |work| {
            let path = bytes_path(&path);
            dead::change_properties(path, changes).map_err(|e| work.failed(&e, 404, "setxattr()", path))
        })
        .await?;
        names.iter().map(|name| (name, "200 OK")).collect()
    };
    let out = properties::proppatch_response(r.target.path(), &statuses);
    r.out.set_status(207);
    r.out.set_status_line(Some("207 Multi-Status".into()));
    r.out.set_content_type("text/xml");
    r.out.set_charset("utf-8");
    r.out.set_content_length(Some(out.len() as u64));
    Ok(Flow::Content(ResponseBody::Bytes(Bytes::from(out))))
}

pub fn lock(plan: &Arc<DavPlan>, _: &mut Request) -> Flow {
    if plan.locks.is_none() {
        return Flow::Status(405);
    }
    later(plan, |plan, r| Box::pin(async move { take(&plan, r).await }))
}

async fn take(plan: &DavPlan, r: &mut Request) -> Result<Flow, u16> {
    let Some(locks) = &plan.locks else { return Err(405) };
    let text = body(r).await?;
    let infinite = match depth(r, Depth::Infinity) {
        None | Some(Depth::One) => return Err(400),
        Some(depth) => depth == Depth::Infinity,
    };
    let now = base::clock::unix_seconds();
    let timeout = timeout(r);
    let tokens = evaluate(locks, r, now)?;
    if text.is_empty() {
        // Refreshes the named lock (RFC 4918, 9.10.2).
        let path = r.target.path().clone();
        let Some(lock) = locks.refresh(&path, &tokens, timeout, now) else { return Err(412) };
        return Ok(tell(r, 200, &lock, now));
    }
    let Some(info) = xml::lock_info(&text) else {
        r.log(Severity::Error, format_args!("client sent invalid LOCK body"));
        return Err(400);
    };
    let path = file_paths::mapped_path(r)?;
    let there = bytes_path(&path).exists();
    let uri = r.target.path().clone();
    if !there && !locks.allow(&uri, &tokens, true, false, now) {
        return Err(LOCKED);
    }
    let wish = LockRequest { exclusive: info.exclusive, infinite, owner: info.owner, timeout };
    let lock = locks.take(&uri, net::random::bytes16(), wish, now).map_err(|why| match why {
        NoLock::Locked => LOCKED,
        NoLock::Full => {
            r.log(Severity::Error, format_args!("\"dav_ext_lock\": the zone is full, or the path has too many locks"));
            507
        }
    })?;
    let status = if there { 200 } else { 201 };
    if !there && let Err(status) = create(plan, r, &path) {
        locks.release(&uri, &lock.token, now);
        return Err(status);
    }
    if !there {
        set_location(r);
    }
    Ok(tell(r, status, &lock, now))
}

/// Creates an empty file for a lock on an unmapped name (RFC 4918, 7.3).
fn create(plan: &DavPlan, r: &Request, path: &[u8]) -> Result<(), u16> {
    let path = bytes_path(path);
    let made = OpenOptions::new().write(true).create_new(true).mode(plan.access).open(path);
    made.map(drop).map_err(|e| {
        r.log(Severity::Error, format_args!("open() \"{}\" failed {}", path.display(), os_error(&e)));
        409
    })
}

/// Seconds of `Timeout: Second-60` (RFC 4918, 10.7); the first known form wins.
fn timeout(r: &Request) -> Option<u64> {
    let (_, value) = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"Timeout"))?;
    let word = value.split(|c| *c == b',').map(<[u8]>::trim_ascii).find_map(|word| word.strip_prefix(b"Second-"))?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn tell(r: &mut Request, status: u16, lock: &Lock, now: i64) -> Flow {
    let mut out = b"<?xml version=\"1.0\" encoding=\"utf-8\" ?>\n<D:prop xmlns:D=\"DAV:\">\n".to_vec();
    properties::lock_discovery(std::slice::from_ref(lock), now, &mut out);
    out.extend_from_slice(b"</D:prop>\n");
    r.out.set_status(status);
    r.out.set_content_type("text/xml");
    r.out.set_charset("utf-8");
    r.out.add("Lock-Token", format!("<{}>", token_text(&lock.token)).into_bytes());
    r.out.set_content_length(Some(out.len() as u64));
    Flow::Content(ResponseBody::Bytes(Bytes::from(out)))
}

pub fn unlock(plan: &DavPlan, r: &mut Request) -> Flow {
    let Some(locks) = &plan.locks else { return Flow::Status(405) };
    let field = r.headers().find(|(name, _)| name.eq_ignore_ascii_case(b"Lock-Token")).map(|(_, value)| value);
    let written = field.and_then(|value| value.trim_ascii().strip_prefix(b"<")?.strip_suffix(b">"));
    let Some(written) = written else {
        return refuse(r, 400, format_args!("client sent no valid \"Lock-Token\" header"));
    };
    let now = base::clock::unix_seconds();
    match condition::parse_token(written).is_some_and(|token| locks.release(r.target.path(), &token, now)) {
        true => Flow::Status(204),
        // RFC 4918, 9.11.1.
        false => Flow::Status(409),
    }
}
