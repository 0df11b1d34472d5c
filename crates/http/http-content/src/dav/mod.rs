//! dav (nginx: `ngx_http_dav_module` and `nginx-dav-ext-module`): writes, removes, copies, moves, lists and locks files
//! (RFC 4918).
//! `put.rs` and `copy_move.rs` are nginx's methods, `extended.rs` the companion's; `files.rs` runs slow operations on
//! the pool.

mod condition;
mod copy_move;
mod dead;
mod extended;
mod files;
pub mod fuzzing;
mod locks;
mod properties;
mod put;
#[cfg(test)]
mod tests;
mod xml;

use conf_schema::value::{Flag, Number, parse_sec};
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use files::DavWork;
use http_engine::engine::method_bit;
use http_engine::{BlockPlan, Feature, Flow, Handler, HandlerOrder, HttpTemplate, Request};
use http_types::{BodyLength, Known, Method};
use http_upstream::caching::conf::CacheAccess;
use http_upstream::zones::{self, HttpZone};
use locks::Locks;
use observe::Severity;
use std::any::Any;
use std::sync::Arc;

directives! {
    pub struct DavConf from DavInput {
        /// Allows WebDAV methods that write files and directories.
        /// Differs: PUT and COPY of a file into a missing directory get 409, as in RFC 4918, instead of 500; copying a
        /// file onto itself under another name gets 403, and so does a destination whose own location is `internal` or
        /// denies the client's address (`allow`, `deny`, `limit_except`, `.htaccess`).
        dav_methods: Methods<Own> = "off",
        /// Lets PUT create missing intermediate directories.
        create_full_put_path: Flag = "off",
        /// Minimum number of path segments that DELETE accepts.
        min_delete_depth: Number = "0",
        /// Permissions of created files and directories.
        dav_access: CacheAccess = "user:rw",
        /// Allows further WebDAV methods: PROPFIND, OPTIONS, LOCK, UNLOCK and PROPPATCH.
        /// Differs: `getetag` and `getcontenttype` are additional properties; missing properties are reported as such;
        /// locks may be shared, store their owner, and `If` is evaluated as in RFC 4918. PROPPATCH, which the module
        /// lacks, stores properties in the extended attribute `user.tidegate.dav` of the file.
        dav_ext_methods: Methods<ExtendedMethods> = "off",
        /// Stores locks in this zone; methods that write respect them.
        dav_ext_lock: LockName,
        /// Defines a zone for locks, with its size and the maximum lifetime of a lock.
        dav_ext_lock_zone: LockZone,
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Own;
#[derive(Clone, Copy, Debug)]
pub struct ExtendedMethods;

pub trait MethodNames: Copy + 'static {
    const SYNTAX: &'static str;
    const NAMES: &'static [(&'static str, Method)];
}

impl MethodNames for Own {
    const SYNTAX: &'static str = "off | method ...";
    const NAMES: &'static [(&'static str, Method)] = &[
        ("put", Method::Put),
        ("delete", Method::Delete),
        ("mkcol", Method::Mkcol),
        ("copy", Method::Copy),
        ("move", Method::Move),
    ];
}

impl MethodNames for ExtendedMethods {
    const SYNTAX: &'static str = "off | method ...";
    const NAMES: &'static [(&'static str, Method)] = &[
        ("propfind", Method::Propfind),
        ("options", Method::Options),
        ("lock", Method::Lock),
        ("unlock", Method::Unlock),
        ("proppatch", Method::Proppatch),
    ];
}

/// A set of methods: bits of [`method_bit`].
#[derive(Clone, Copy, Debug)]
pub struct Methods<N> {
    bits: u32,
    names: std::marker::PhantomData<N>,
}

impl<N: MethodNames> ValueKind for Methods<N> {
    const SYNTAX: &'static str = N::SYNTAX;
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let mut bits = 0;
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            if text.eq_ignore_ascii_case("off") {
                continue;
            }
            let found = N::NAMES.iter().find(|(name, _)| text.eq_ignore_ascii_case(name));
            let Some((_, method)) = found else {
                let known: Vec<String> = N::NAMES.iter().map(|(name, _)| name.to_ascii_uppercase()).collect();
                let hint = format!("any of: {}", known.join(", "));
                return Err(Problem::says(format!("invalid value \"{text}\"")).at(index).hint(hint));
            };
            if bits & method_bit(*method) != 0 {
                cx.warn(d, format!("duplicate value \"{text}\""));
            }
            bits |= method_bit(*method);
        }
        Ok(Methods { bits, names: std::marker::PhantomData })
    }
    fn append(&mut self, later: Self) {
        self.bits |= later.bits;
    }
    fn meets(&self, later: &Self, cx: &mut Cx, d: &Directive) -> Result<(), Problem> {
        let both = |method: &Method| self.bits & later.bits & method_bit(*method) != 0;
        for (name, _) in N::NAMES.iter().filter(|(_, method)| both(method)) {
            cx.warn(d, format!("duplicate value \"{}\"", name.to_ascii_uppercase()));
        }
        Ok(())
    }
}

const KIND: &str = "dav_ext_lock";

#[derive(Clone, Debug)]
pub struct LockName(String);

impl ValueKind for LockName {
    const SYNTAX: &'static str = "zone=name";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = d.args.first().map(|w| w.text().into_owned()).unwrap_or_default();
        match word.strip_prefix("zone=") {
            Some(name) if !name.is_empty() => Ok(LockName(name.into())),
            _ => Err(Problem::says(format!("invalid parameter \"{word}\"")).at(0).hint("zone=name")),
        }
    }
}

#[derive(Clone)]
pub struct LockZone;

impl ValueKind for LockZone {
    const SYNTAX: &'static str = "zone=name:size [timeout=time]";
    const REPEATS: bool = true;
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let (mut zone, mut timeout) = (None, 60);
        for (index, word) in d.args.iter().enumerate() {
            let text = word.text();
            if text.starts_with("zone=") {
                zone = Some(zones::name_and_size(d, index)?);
            } else if let Some(time) = text.strip_prefix("timeout=") {
                let seconds = parse_sec(time.as_bytes()).filter(|s| *s > 0);
                let wrong = || Problem::says(format!("invalid timeout value \"{time}\"")).at(index);
                timeout = seconds.ok_or_else(wrong)?;
            } else {
                return Err(Problem::says(format!("invalid parameter \"{text}\"")).at(index));
            }
        }
        let Some((name, size)) = zone.filter(|(name, _)| !name.is_empty()) else {
            return Err(Problem::says("\"dav_ext_lock_zone\" must have \"zone\" parameter"));
        };
        let key_text = timeout.to_string().into_bytes();
        let state = zones::zone_state(KIND, &name, size, &key_text, || Locks::new(size, timeout));
        zones::declare_zone(cx, d, KIND, HttpZone { name, key: HttpTemplate::literal(b""), key_text, state })?;
        Ok(LockZone)
    }
}

pub struct DavFeature;

impl Feature for DavFeature {
    fn table(&self) -> FeatureTable {
        DavConf::table("dav", ContextArea::Http)
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<DavConf>() else { return Ok(()) };
        let locks = match &conf.dav_ext_lock {
            Some(LockName(name)) => {
                let zone =
                    zones::find_zone::<Locks>(block.cx, KIND, name).map_err(|problem| problem.of("dav_ext_lock"))?;
                Some(zone.state.clone())
            }
            None => None,
        };
        let plan = Arc::new(DavPlan {
            methods: conf.dav_methods.bits | conf.dav_ext_methods.bits,
            full_path: conf.create_full_put_path,
            delete_depth_min: conf.min_delete_depth.0,
            access: conf.dav_access.0,
            locks,
        });
        if plan.locks.is_some() {
            block.handle(HandlerOrder::DavGuard, Arc::new(extended::Guard(plan.clone())));
        }
        if plan.methods != 0 {
            block.handle(HandlerOrder::Dav, Arc::new(Dav(plan)));
        }
        Ok(())
    }
}

struct DavPlan {
    methods: u32,
    full_path: bool,
    delete_depth_min: u64,
    access: u32,
    locks: Option<Arc<Locks>>,
}

impl DavPlan {
    /// Readers may enter.
    fn folder_access(&self) -> u32 {
        self.access | (self.access & 0o444) >> 2
    }
    fn allows(&self, method: Method) -> bool {
        self.methods & method_bit(method) != 0
    }
    /// Removes the locks of a deleted tree.
    fn forget_locks(&self, path: &[u8]) {
        if let Some(locks) = &self.locks {
            locks.forget(path);
        }
    }
}

struct Dav(Arc<DavPlan>);

impl Handler for Dav {
    fn run(&self, r: &mut Request) -> Flow {
        let plan = &self.0;
        if !plan.allows(r.target.method()) {
            return Flow::Declined;
        }
        if r.plan().ht_names_hidden && r.target.path().has_ht_name() {
            return refuse(r, 403, format_args!("names that begin with \".ht\" are not for clients"));
        }
        match r.target.method() {
            Method::Put => put::put(plan, r),
            Method::Delete => delete(plan, r),
            Method::Mkcol => mkcol(plan, r),
            Method::Copy | Method::Move => copy_move::copy_move(plan, r),
            Method::Options => extended::options(plan, r),
            Method::Propfind => extended::propfind(plan, r),
            Method::Lock => extended::lock(plan, r),
            Method::Unlock => extended::unlock(plan, r),
            Method::Proppatch => extended::proppatch(plan, r),
            _ => Flow::Declined,
        }
    }
}

fn refuse(r: &Request, status: u16, words: std::fmt::Arguments<'_>) -> Flow {
    r.log(Severity::Error, words);
    Flow::Status(status)
}

/// Tells whether the request has a body, which these methods refuse (RFC 4918, 8.4).
fn has_body(r: &Request) -> bool {
    match r.incoming.body_length() {
        Some(BodyLength::Exact(length)) => length > 0,
        Some(BodyLength::Chunked) => true,
        _ => false,
    }
}

/// `Depth` (RFC 4918, 10.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    Zero,
    One,
    Infinity,
}

/// `Depth`, or the default; `None`: invalid, logged.
fn depth(r: &Request, default: Depth) -> Option<Depth> {
    match r.header(Known::Depth) {
        None => Some(default),
        Some(b"0") => Some(Depth::Zero),
        Some(b"1") => Some(Depth::One),
        Some(b"infinity") => Some(Depth::Infinity),
        Some(other) => {
            let shown = String::from_utf8_lossy(other);
            r.log(Severity::Error, format_args!("client sent invalid \"Depth\" header: \"{shown}\""));
            None
        }
    }
}

fn set_location(r: &mut Request) {
    let mut location = Vec::with_capacity(r.target.path().len());
    http_engine::path::escape_uri(r.target.path(), &mut location);
    r.out.set_location(location);
}

/// Runs file operations on the pool, then the rest here.
fn later(
    job: impl FnOnce(&mut DavWork) -> Result<u16, u16> + Send + 'static,
    done: impl FnOnce(&mut Request, u16) -> Flow + 'static,
) -> Flow {
    Flow::Later(Box::new(move |mut r| {
        Box::pin(async move {
            let flow = match files::run_job(&r, job).await {
                Ok(status) => done(&mut r, status),
                Err(status) => Flow::Status(status),
            };
            (r, flow)
        })
    }))
}

fn delete(plan: &Arc<DavPlan>, r: &mut Request) -> Flow {
    if has_body(r) {
        return refuse(r, 415, format_args!("DELETE with body is unsupported"));
    }
    let slashed = r.target.path().ends_with(b"/");
    if plan.delete_depth_min > 0 {
        let slashes = r.target.path().iter().filter(|c| **c == b'/').count() as u64;
        // The last slash must be followed by a name.
        let deep = if slashed { slashes.saturating_sub(1) } else { slashes };
        if deep < plan.delete_depth_min {
            return refuse(r, 409, format_args!("insufficient URI depth:{slashes} to DELETE"));
        }
    }
    let asked = depth(r, Depth::Infinity);
    let Ok(path) = http_engine::file_paths::mapped_path(r) else { return Flow::Status(500) };
    let (plan, uri) = (plan.clone(), r.target.path().clone());
    later(
        move |work| {
            let folder = work.kind_to_delete(&path)?;
            if folder && !slashed {
                return Err(
                    work.says(409, format!("DELETE \"{}\" failed (21: Is a directory)", files::shown_path(&path)))
                );
            }
            match asked {
                Some(Depth::Infinity) => {}
                Some(Depth::Zero) if !folder => {}
                _ if folder => return Err(work.says(400, "\"Depth\" header must be infinity".into())),
                _ => return Err(work.says(400, "\"Depth\" header must be 0 or infinity".into())),
            }
            if folder {
                work.refuse_ht_names(&path)?;
            }
            work.delete(&path, folder)?;
            Ok(204)
        },
        move |_, status| {
            plan.forget_locks(&uri);
            Flow::Status(status)
        },
    )
}

fn mkcol(plan: &Arc<DavPlan>, r: &mut Request) -> Flow {
    if has_body(r) {
        return refuse(r, 415, format_args!("MKCOL with body is unsupported"));
    }
    if !r.target.path().ends_with(b"/") {
        return refuse(r, 409, format_args!("MKCOL can create a collection only"));
    }
    let Ok(path) = http_engine::file_paths::mapped_path(r) else { return Flow::Status(500) };
    let mode = plan.folder_access();
    later(
        move |work| {
            work.make_folder(&path, mode, 409)?;
            Ok(201)
        },
        |r, status| {
            set_location(r);
            Flow::Status(status)
        },
    )
}
