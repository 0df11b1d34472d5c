//! Builds a runnable configuration from the paths of the command line: reading, checking, building the plan.
//!
//! The master reads from the disk. A worker that reloads reads the texts that the master sends.

pub mod core;
pub mod effective;
mod language;
pub mod layout;
pub mod needs;
pub mod paths;
pub mod source;
pub mod unread;
pub mod values;

use self::core::{CORE, Core, CoreInput, EVENTS, Events, EventsInput};
use crate::conf::layout::{GenerationFacts, Layout};
use area::plan::AreaPlan;
use area::shared_store::StoreSlot;
use conf_schema::{CheckedBlock, Complaint, ComplaintLevel, ContextArea, Contexts, Cx, Schema, TextStore, check_tree};
use conf_syntax::{SourceFiles, SyntaxError, TextSource, TreeItem};
use http_engine::HttpPlan;
use http_engine::core_table::PackagedTempFolder;
use http_engine::file_io::PoolsAsked;
use mail_features::MailPlan;
use net::pool::DEFAULT;
use observe::{DefaultAccessLog, ErrorLog, ErrorLogLines, LogFiles, LogTarget, MainLog, Sink};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use stream_features::StreamPlan;

pub const PROGRAM: &str = concat!("tidegate ", env!("CARGO_PKG_VERSION"));

/// nginx's name for the text of `-g` in messages.
pub const GLOBALS: &str = "command line";

/// Location of the configuration, from the command line.
#[derive(Clone, Debug)]
pub struct Invocation {
    /// `-p`: where relative paths start.
    pub prefix: PathBuf,
    /// Absolute.
    pub conf_file: PathBuf,
    /// `-e`; `None` is the standard error stream.
    pub error_log: Option<PathBuf>,
    pub error_log_said: bool,
    /// Default of `pid`.
    pub pid: PathBuf,
    /// `-g`: directives before the file.
    pub globals: Vec<u8>,
    /// A configuration made in memory (`tidegate serve`) instead of the file.
    pub text: Option<Vec<u8>>,
}

#[derive(Debug)]
pub struct Config {
    pub core: CorePlan,
    pub http: Option<Arc<HttpPlan>>,
    pub stream: Option<Arc<StreamPlan>>,
    pub mail: Option<Arc<MailPlan>>,
    pub error_log: Arc<ErrorLog>,
    pub logs: LogFiles,
    pub texts: ConfTexts,
    /// Files and ports that its workers use at run time.
    pub needs: sandbox::Needs,
    /// [`upstream::scope::mark_scopes`] of the configuration.
    pub scopes: usize,
}

impl Config {
    pub fn areas(&self) -> Vec<Arc<dyn AreaPlan>> {
        areas(self.http.as_ref(), self.stream.as_ref(), self.mail.as_ref())
    }
    /// Tells whether `proxy_bind ... transparent` is used.
    pub fn transparent(&self) -> bool {
        self.areas().iter().any(|area| area.transparent())
    }
    /// Returns the listening sockets of all areas: not those of addresses that a wildcard's socket covers.
    pub fn specs(&self) -> Vec<net::listen::ListenSpec> {
        let areas = self.areas();
        let mut all: Vec<_> = areas.iter().flat_map(|area| net::listen::with_sockets(area.specs())).collect();
        // Sockets of features, where no session of the stream area has one.
        let own = self.http.iter().flat_map(|http| &http.datagrams);
        let free = own.filter(|own| !all.iter().any(|spec| spec.datagram && own.socket.covered_by(&spec.address)));
        let free: Vec<_> = free.map(|own| own.spec.clone()).collect();
        all.extend(free);
        all
    }
}

fn areas(
    http: Option<&Arc<HttpPlan>>,
    stream: Option<&Arc<StreamPlan>>,
    mail: Option<&Arc<MailPlan>>,
) -> Vec<Arc<dyn AreaPlan>> {
    let http = http.map(|plan| plan.clone() as Arc<dyn AreaPlan>);
    let stream = stream.map(|plan| plan.clone() as Arc<dyn AreaPlan>);
    let mail = mail.map(|plan| plan.clone() as Arc<dyn AreaPlan>);
    [http, stream, mail].into_iter().flatten().collect()
}

/// Texts that were read; another process can build the same configuration from them.
#[derive(Clone, Debug, Default)]
pub struct ConfTexts {
    pub files: SourceFiles,
    pub store: TextStore,
    pub matches: source::Matches,
    /// Generation, if the API keeps configurations.
    pub came: Option<GenerationFacts>,
}

#[derive(Clone, Debug)]
pub struct CorePlan {
    pub daemon: bool,
    pub master_process: bool,
    pub user: Option<net::process::UserAccount>,
    pub workers: usize,
    pub affinity: Option<values::Affinity>,
    pub priority: i32,
    pub rlimit_nofile: Option<u64>,
    pub rlimit_core: Option<u64>,
    pub shutdown_timeout_ms: u64,
    pub working_directory: Option<PathBuf>,
    pub pid: PathBuf,
    pub environment: values::Environment,
    pub debug_points: Option<values::DebugPoints>,
    pub sandbox: values::SandboxMode,
    pub key_isolation: bool,
    pub worker_connections: usize,
    pub multi_accept: bool,
    /// `timer_resolution`, which has no other effect than on `stall_threshold`.
    pub timer_resolution_ms: u64,
    /// `stall_threshold` in milliseconds; 0: no messages.
    pub stall_threshold_ms: u64,
    pub thread_pools: Vec<net::pool::PoolSpec>,
    pub shared_store: StoreSlot,
}

impl CorePlan {
    /// Tells whether a process for one configuration can serve the other: equal settings that a process applies only
    /// once.
    pub fn same_process(&self, other: &CorePlan) -> bool {
        // The descriptor limit depends on the number of threads.
        let descriptors = |core: &CorePlan| core.rlimit_nofile.map(|n| n * core.workers as u64);
        self.user == other.user
            && self.priority == other.priority
            && descriptors(self) == descriptors(other)
            && self.rlimit_core == other.rlimit_core
            && self.working_directory == other.working_directory
            && self.environment == other.environment
            && self.affinity == other.affinity
            && self.sandbox == other.sandbox
            && self.key_isolation == other.key_isolation
    }
}

#[derive(Debug)]
pub struct ConfFailure {
    /// Errors and warnings in nginx's order; at least one error.
    pub complaints: Vec<Complaint>,
    pub files: SourceFiles,
    /// The syntax is valid: nginx prints "syntax is ok" before errors of later checks.
    pub syntax_ok: bool,
}

pub fn full_schema() -> Schema {
    let mut tables = core::core_tables();
    tables.extend(crate::http_registry::http_tables());
    tables.extend(stream_features::stream_tables());
    tables.extend(mail_features::mail_tables());
    Schema::new(tables, PROGRAM)
}

/// Result of reading a configuration.
pub struct ConfReading {
    pub config: Result<Config, ConfFailure>,
    pub warnings: Vec<Complaint>,
}

/// Reads, checks and builds a configuration. `logs`: open log files, which a log with an equal path shares. Returns memory of the
/// reading to the system, so that a master does not fork its worker with the rest.
pub fn read_config(source: &dyn TextSource, store: TextStore, invocation: &Invocation, logs: LogFiles) -> ConfReading {
    let reading = build_config(source, store, invocation, logs);
    net::allocator::release();
    reading
}

fn build_config(source: &dyn TextSource, store: TextStore, invocation: &Invocation, logs: LogFiles) -> ConfReading {
    let failed = |mut complaints: Vec<Complaint>, files: SourceFiles, syntax_ok| {
        let main = files.all.iter().find(|file| file.path == invocation.conf_file);
        if let (Some(first), Some(hint)) =
            (complaints.first_mut(), main.and_then(|main| language::language_hint(&main.text)))
        {
            first.hint = Some(hint.into());
        }
        ConfReading { config: Err(ConfFailure { complaints, files, syntax_ok }), warnings: Vec::new() }
    };
    let scopes = upstream::scope::mark_scopes();
    area::zones::drop_unused();
    let recorder = source::Recorder::new(source);
    let (files, items) = match load_config(&recorder, invocation) {
        Ok(loaded) => loaded,
        Err(e) => {
            let text = format!("open() \"{}\" failed {}", invocation.conf_file.display(), observe::os_error(&e));
            let hint = if e.kind() == std::io::ErrorKind::NotFound { hint_for_missing(invocation) } else { None };
            return failed(vec![Complaint { hint, ..Complaint::emerg(text) }], SourceFiles::default(), false);
        }
    };
    let matches = recorder.matches();
    let mut cx = Cx::default();
    cx.prefix.clone_from(&invocation.prefix);
    cx.conf_prefix = invocation.conf_file.parent().unwrap_or(Path::new("/")).to_path_buf();
    cx.files = files.all.iter().map(|file| file.path.clone()).collect();
    cx.store = store;
    cx.store.machine.get_or_insert_with(values::starting_machine);
    // Known before files are read.
    cx.store.isolates_keys = isolates_keys(&items);
    *cx.get::<LogFiles>() = logs.for_next();
    cx.get::<DefaultAccessLog>().0 = paths::access_log(&invocation.prefix, &invocation.pid);
    cx.get::<PackagedTempFolder>().0 = paths::temp_folder(&invocation.prefix, &invocation.pid);
    crate::http_registry::offer_variables(&mut cx);
    stream_features::offer_variables(&mut cx);
    mail_features::offer_variables(&mut cx);
    let schema = full_schema();
    let mut checked = check_tree(&schema, &mut cx, &items, Contexts::main);
    let mut complaints = std::mem::take(&mut checked.complaints);
    complaints.extend(values::modules_warning(&mut cx));
    if complaints.iter().any(|c| c.level == ComplaintLevel::Emerg) {
        return failed(complaints, files, false);
    }
    let mut root = checked.root;
    let (mut core, lines) = core_plan(&schema, &mut root, invocation, &mut cx);
    let error_log = main_log(lines, invocation, &mut cx);
    cx.get::<MainLog>().0 = error_log.clone();
    let built = area(&mut root, Contexts::http, |block| crate::http_registry::build_http(&schema, block, &mut cx))
        .and_then(|http| {
            let stream =
                area(&mut root, Contexts::stream, |block| stream_features::build_stream(&schema, block, &mut cx))?;
            let mail = area(&mut root, Contexts::mail, |block| mail_features::build_mail(&schema, block, &mut cx))?;
            Ok((http, stream, mail))
        });
    let (http, stream, mail) = match built {
        Ok(plans) => plans,
        Err(errors) => {
            complaints.append(&mut cx.warnings);
            complaints.extend(errors);
            return failed(complaints, files, false);
        }
    };
    complaints.append(&mut cx.warnings);
    complaints.extend(core.shared_store.take_complaints());
    complaints.extend(tls_directives::report::ciphers_complaint(&mut cx));
    let areas = areas(http.as_ref(), stream.as_ref(), mail.as_ref());
    if let Some(text) = twice(&areas) {
        complaints.push(Complaint::emerg(text));
        return failed(complaints, files, true);
    }
    if core.user.is_none() && cx.store.superuser() {
        core.user = values::default_user();
        if core.user.is_none() {
            complaints.push(Complaint::emerg(format!("getpwnam(\"{}\") failed", values::DEFAULT_USER)));
            return failed(complaints, files, true);
        }
    }
    let Some(events) = events_plan(&schema, &root, &mut cx) else {
        let hint = Some("write \"events { }\", which may be empty".to_string());
        complaints.push(Complaint { hint, ..Complaint::emerg("no \"events\" section in configuration") });
        return failed(complaints, files, true);
    };
    core.worker_connections = events.worker_connections.0;
    core.multi_accept = events.multi_accept;
    core.stall_threshold_ms = if core.timer_resolution_ms == 0 { events.stall_threshold.0 } else { 0 };
    let sockets = areas.iter().map(|area| area.specs().count()).sum::<usize>();
    if core.worker_connections <= sockets {
        let text =
            format!("{} worker_connections are not enough for {sockets} listening sockets", core.worker_connections);
        complaints.push(Complaint::emerg(text));
        return failed(complaints, files, true);
    }
    if core.key_isolation && mentions(&items, "acme_certificate") {
        let text = "\"ssl_key_isolation\" does not cover \"acme_certificate\": its keys are made and kept by the worker process";
        complaints.push(Complaint { level: ComplaintLevel::Warn, ..Complaint::emerg(text) });
    }
    if let Some(text) = affinity_warning(&core) {
        complaints.push(Complaint { level: ComplaintLevel::Warn, ..Complaint::emerg(text) });
    }
    let asked: PoolsAsked = cx.take();
    let unknown =
        asked.0.into_iter().filter(|(name, _)| *name != DEFAULT && core.thread_pools.iter().all(|p| p.name != *name));
    complaints.extend(unknown.map(|(name, at)| Complaint {
        span: Some(at.span),
        line: at.line,
        hint: Some(format!("write \"thread_pool {name} threads=32;\" in the main context")),
        ..Complaint::emerg(format!("unknown thread pool \"{name}\""))
    }));
    if complaints.iter().any(|c| c.level == ComplaintLevel::Emerg) {
        return failed(complaints, files, true);
    }
    if let Some(layout) = Layout::of(&invocation.conf_file).filter(|_| !cx.store.replay) {
        let unread = unread::unread_edits(&layout, &files, &matches);
        let hint = "send the change to the API, or edit the files of the configuration; a whole configuration without \
                    \".tidegate\" in its \"include\" lines reads the folder again";
        complaints.extend(unread.into_iter().map(|text| Complaint {
            level: ComplaintLevel::Warn,
            hint: Some(hint.into()),
            ..Complaint::emerg(text)
        }));
    }
    let mut logs: LogFiles = cx.take();
    logs.forget_unused();
    let mut store = std::mem::take(&mut cx.store);
    store.key_reader = None;
    let bases = needs::Bases { prefix: &cx.prefix, conf_prefix: &cx.conf_prefix };
    let needs = needs::collect_needs(&items, &bases, &core, http.as_deref());
    let config = Config {
        core,
        http,
        stream,
        mail,
        error_log,
        logs,
        texts: ConfTexts { files, store, matches, came: None },
        needs,
        scopes,
    };
    ConfReading { config: Ok(config), warnings: complaints }
}

fn mentions(items: &[TreeItem], name: &str) -> bool {
    let all = conf_syntax::list_directives(items);
    all.iter().any(|d| d.name.text() == name || d.block.as_deref().is_some_and(|block| mentions(block, name)))
}

fn isolates_keys(items: &[TreeItem]) -> bool {
    let all = conf_syntax::list_directives(items);
    let on = |word: &conf_syntax::Word| word.bytes.eq_ignore_ascii_case(b"on");
    all.iter().any(|d| d.name.text() == "ssl_key_isolation" && d.args.first().is_some_and(on))
}

/// Checks the text alone: known directives in valid contexts with valid values. Certificates and hosts may be on
/// another machine.
pub fn is_well_formed(invocation: &Invocation, files: &SourceFiles, items: &[TreeItem]) -> bool {
    let mut cx = Cx::default();
    cx.prefix.clone_from(&invocation.prefix);
    cx.conf_prefix = invocation.conf_file.parent().unwrap_or(Path::new("/")).to_path_buf();
    cx.files = files.all.iter().map(|file| file.path.clone()).collect();
    cx.store.machine.get_or_insert_with(values::starting_machine);
    cx.store.elsewhere = true;
    crate::http_registry::offer_variables(&mut cx);
    stream_features::offer_variables(&mut cx);
    mail_features::offer_variables(&mut cx);
    // A configuration without `events` is refused everywhere.
    mentions(items, "events") && !check_tree(&full_schema(), &mut cx, items, Contexts::main).failed()
}

/// Builds the plan of an area from its block.
fn area<P>(
    root: &mut CheckedBlock<'_>,
    context: Contexts,
    build: impl FnOnce(&mut CheckedBlock<'_>) -> Result<P, Vec<Complaint>>,
) -> Result<Option<Arc<P>>, Vec<Complaint>> {
    let Some(at) = root.children.iter().position(|block| block.context == context) else { return Ok(None) };
    let mut block = root.children.remove(at);
    build(&mut block).map(|plan| Some(Arc::new(plan)))
}

/// Finds an address that two areas listen on.
fn twice(areas: &[Arc<dyn AreaPlan>]) -> Option<String> {
    let mut seen = HashMap::new();
    let mut all = areas.iter().enumerate().flat_map(|(index, area)| area.specs().map(move |spec| (index, spec)));
    let found = all.find(|(area, spec)| *seen.entry((&spec.address, spec.datagram)).or_insert(*area) != *area)?;
    Some(format!("duplicate \"{}\" address and port pair", found.1.address))
}

fn hint_for_missing(invocation: &Invocation) -> Option<String> {
    let here = std::env::current_dir().ok()?.join(invocation.conf_file.file_name()?);
    if here != invocation.conf_file && here.exists() {
        let prefix = invocation.prefix.display();
        return Some(format!("relative paths start at \"{prefix}\"; did you mean -c {}?", here.display()));
    }
    Some("to serve a directory without a configuration: tidegate serve DIR".into())
}

/// Parses the directives of `-g`, then the file.
///
/// # Errors
/// When the main file cannot be read.
pub fn load_config(source: &dyn TextSource, invocation: &Invocation) -> std::io::Result<(SourceFiles, Vec<TreeItem>)> {
    let text = match &invocation.text {
        Some(text) => text.clone(),
        None => source.read(&invocation.conf_file)?,
    };
    let globals = Some((Path::new(GLOBALS), invocation.globals.as_slice())).filter(|(_, text)| !text.is_empty());
    let (mut load, mut items) = conf_syntax::load_texts(source, &invocation.conf_file, text, globals);
    if let Some(first) = items.iter().position(|item| matches!(item, TreeItem::Directive(d) if d.block.is_some())) {
        items.truncate(first + 1);
    }
    items.iter_mut().for_each(as_global);
    items.append(&mut load.items);
    Ok((load.files, items))
}

/// Words the errors of `-g` as nginx does, which takes no blocks there.
fn as_global(item: &mut TreeItem) {
    match item {
        TreeItem::Directive(d) if d.block.is_some() => {
            let text = "block directives are not supported in -g option".to_string();
            *item = TreeItem::Error(SyntaxError { text, span: d.name.span, line: d.line, hint: None });
        }
        TreeItem::Error(error) if error.text.starts_with("unexpected end of file") => {
            error.text = "unexpected end of parameter, expecting \";\"".into();
        }
        _ => {}
    }
}

fn core_plan(
    schema: &Schema,
    root: &mut CheckedBlock<'_>,
    invocation: &Invocation,
    cx: &mut Cx,
) -> (CorePlan, Option<ErrorLogLines>) {
    let mut input: CoreInput =
        schema.table_index(CORE, ContextArea::Main).and_then(|table| root.take(table)).unwrap_or_default();
    input.fill(cx);
    let core: Core = input.resolve();
    let plan = CorePlan {
        daemon: core.daemon,
        master_process: core.master_process,
        user: core.user.and_then(|user| user.0),
        workers: core.worker_processes.0,
        affinity: core.worker_cpu_affinity,
        priority: core.worker_priority.0,
        rlimit_nofile: core.worker_rlimit_nofile.map(|n| n.0),
        rlimit_core: core.worker_rlimit_core.map(|n| n.0),
        shutdown_timeout_ms: core.worker_shutdown_timeout.0,
        working_directory: core.working_directory.map(|path| path.0),
        pid: core.pid.flatten().map_or_else(|| invocation.pid.clone(), |path| path.0),
        environment: core.env.unwrap_or_default(),
        debug_points: core.debug_points,
        sandbox: core.sandbox,
        key_isolation: core.ssl_key_isolation,
        worker_connections: 0,
        multi_accept: false,
        timer_resolution_ms: core.timer_resolution.0,
        stall_threshold_ms: 0,
        thread_pools: core.thread_pool.map_or_else(Vec::new, |pools| pools.0),
        shared_store: cx.get::<StoreSlot>().clone(),
    };
    (plan, core.error_log)
}

/// Returns the main log: as configured; as in nginx, the default file is added if no target is a file or stream.
fn main_log(lines: Option<ErrorLogLines>, invocation: &Invocation, cx: &mut Cx) -> Arc<ErrorLog> {
    let mut targets = lines.map_or(Vec::new(), |lines| lines.0);
    if !targets.iter().any(|t| matches!(t.sink, Sink::File(_) | Sink::Stderr)) {
        let sink = match &invocation.error_log {
            Some(path) => Sink::File(cx.get::<LogFiles>().file(path)),
            None => Sink::Stderr,
        };
        targets.push(LogTarget { level: observe::Severity::Error, sink, format: observe::LineFormat::Text });
    }
    Arc::new(ErrorLog::new(targets))
}

fn events_plan(schema: &Schema, root: &CheckedBlock<'_>, cx: &mut Cx) -> Option<Events> {
    let events = root.children.iter().find(|b| b.context == Contexts::events)?;
    let table = schema.table_index(EVENTS, ContextArea::Main)?;
    let mut input: EventsInput = events.input::<EventsInput>(table).cloned().unwrap_or_default();
    input.fill(cx);
    Some(input.resolve())
}

fn affinity_warning(core: &CorePlan) -> Option<&'static str> {
    let masks = core.affinity.as_ref()?.masks()?;
    (masks != 1 && masks != core.workers).then_some(
        "the number of \"worker_processes\" is not equal to the number of \"worker_cpu_affinity\" masks, using last mask \
         for remaining worker processes",
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use conf_schema::store::MachineFacts;
    use conf_syntax::Disk;

    /// Builds a worker's configuration with the master's privileges, which the worker has dropped.
    #[test]
    fn a_configuration_does_not_depend_on_who_reads_it() {
        let text = b"worker_processes auto; events {} http { server { } }".to_vec();
        let invocation = Invocation {
            prefix: "/nowhere/".into(),
            conf_file: "/nowhere/n.conf".into(),
            error_log: None,
            error_log_said: false,
            pid: "/nowhere/pid".into(),
            globals: Vec::new(),
            text: Some(text),
        };
        for (superuser, port) in [(true, 80), (false, 8000)] {
            let store = TextStore { machine: Some(MachineFacts { superuser, cpus: 7 }), ..TextStore::default() };
            let reading = read_config(&Disk, store, &invocation, LogFiles::default());
            let config = reading.config.expect("in order");
            let addresses: Vec<String> = config.specs().iter().map(|spec| spec.address.to_string()).collect();
            assert_eq!(addresses, [format!("0.0.0.0:{port}")]);
            assert_eq!(config.core.workers, 7);
            assert_eq!(config.core.user.is_some(), superuser);
        }
    }
}
