//! htaccess: applies Apache's .htaccess files to requests; the crate `htaccess` parses and evaluates them. `walk.rs`
//! finds directories, `files.rs` caches files, `request.rs` maps variables, `response.rs` applies settings. An
//! unreadable or invalid file causes a 500 and a log line, because serving the files that it protects would be worse.

mod files;
mod request;
mod response;
mod walk;

use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives};
use htaccess::rewrite::{Inherit, RewriteOutcome, Rule, Run};
use htaccess::settings::{ErrorDocument, File};
use htaccess::{Settings, access};
use http_engine::path::{FilePath, is_ht_name};
use http_engine::request::FolderPage;
use http_engine::variable::Builtin;
use http_engine::{BlockPlan, Body, Feature, Filter, FilterOrder, Flow, Handler, HandlerOrder, Request, special};
use http_types::Method;
use observe::Level;
use request::{Machine, Values};
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use walk::Walk;

/// `Header` directives of all files that apply to a request.
const FIELD_RULES_MAX: usize = 1_000;

directives! {
    pub struct HtaccessConf from HtaccessInput {
        /// Applies the .htaccess files from the root to the requested file, as Apache does with `AllowOverride All`:
        /// rewriting, redirects, access by address, fields, media types, error documents. An unsupported directive in a
        /// file results in status 500. Changes apply immediately.
        htaccess: Flag = "off",
    }
}

pub struct HtaccessFeature;

impl Feature for HtaccessFeature {
    fn table(&self) -> Table {
        HtaccessConf::table("htaccess", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        const VARIABLES: &[Builtin] = &[Builtin::family(
            "htaccess_env_",
            |r, name, out| {
                let known = r.ext::<HtaccessState>().and_then(|state| state.value(name));
                known.map(|value| out.extend_from_slice(&value)).is_some()
            },
            "A variable that a .htaccess file has set (SetEnv, SetEnvIf, [E=]); its name in lower case.",
        )];
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<HtaccessConf>() else { return Ok(()) };
        if conf.htaccess {
            block.location.ht_names_hidden = true;
            block.handle(HandlerOrder::Htaccess, Arc::new(ApplyHtaccess));
            block.handle(HandlerOrder::HtaccessListing, Arc::new(Listing));
            block.location.filters.push((FilterOrder::Htaccess, Arc::new(response::Fields)));
        }
        Ok(())
    }
}

/// Results for later phases; kept over internal redirects.
#[derive(Default)]
pub struct HtaccessState {
    settings: Rc<Settings>,
    /// Variables, latest last; `None`: unset.
    env: Vec<(String, Option<Vec<u8>>)>,
    /// `[END]`: skips further rules.
    ended: bool,
    modified: Option<i64>,
}

impl HtaccessState {
    fn value(&self, name: &str) -> Option<Vec<u8>> {
        request::find(&self.env, name)
    }
}

struct ApplyHtaccess;

impl Handler for ApplyHtaccess {
    fn run(&self, r: &mut Request) -> Flow {
        if r.progress.post_action {
            return Flow::Declined;
        }
        match apply(r) {
            Ok(flow) => flow,
            Err(words) => {
                r.log(Level::Error, format_args!("{words}"));
                Flow::Status(500)
            }
        }
    }
}

/// Everything before the content; errors are logged with a 500.
fn apply(r: &mut Request) -> Result<Flow, String> {
    // A connection accepted in this turn may precede the event of a change: access rules must not be stale.
    http_engine::files::changed();
    let Some(walk) = Walk::of(r)? else { return Ok(Flow::Declined) };
    let hidden = is_ht_name(walk.name());
    let mut read: Vec<(FilePath, Rc<File>)> = Vec::new();
    for folder in &walk.folders {
        match files::read(r, folder) {
            files::FileAnswer::None => {}
            files::FileAnswer::File(file) => read.push((folder.clone(), file)),
            files::FileAnswer::Forbidden => return Ok(Flow::Status(403)),
            files::FileAnswer::Wrong(words) => return Err(words),
        }
    }
    let before = r.ext::<HtaccessState>().map(|state| (state.ended, state.env.clone()));
    if read.is_empty() && before.is_none() && !hidden {
        return Ok(Flow::Declined);
    }
    let settings = Rc::new(together(r, &walk, &read)?);
    let redirected_here = before.is_some();
    let (ended, old) = before.unwrap_or_default();
    let mut values = Values::new(r, request::after_redirect(r, redirected_here, old));
    values.set(&settings.env)?;
    let modified = walk.modified;
    let pages = pages(&settings);
    let allowed = !hidden && allowed(&settings, &values);
    let outcome = if !allowed || ended { RewriteOutcome::Pass } else { rewrite(r, &walk, &read, &mut values)? };
    let env = values.env;
    r.progress.folder_pages = if r.progress.error_page { None } else { pages };
    let keep =
        |r: &mut Request, ended: bool| r.keep(HtaccessState { settings: settings.clone(), env, ended, modified });
    if !allowed {
        keep(r, ended);
        r.log(Level::Error, format_args!("access forbidden by .htaccess"));
        return Ok(Flow::Status(403));
    }
    match outcome {
        RewriteOutcome::Status(status) => {
            keep(r, ended);
            return Ok(Flow::Status(status));
        }
        RewriteOutcome::External { status, location } => {
            keep(r, ended);
            r.out.location = location.into();
            return Ok(Flow::Status(status));
        }
        _ => {}
    }
    let args = match &outcome {
        RewriteOutcome::Internal { path, args, .. } if !path.is_empty() => args.clone(),
        _ => r.target.args.clone(),
    };
    if let Some((status, target)) = redirected(&settings, r, &args)? {
        keep(r, ended);
        if (300..400).contains(&status) {
            r.out.location = target.into();
        }
        return Ok(Flow::Status(status));
    }
    match outcome {
        // Adds a directory's slash first.
        RewriteOutcome::Internal { path, .. }
            if !path.is_empty() && walk.is_folder && !r.target.path.ends_with(b"/") =>
        {
            keep(r, ended);
            let mut target = Vec::new();
            htaccess::rewrite::escape_uri(&r.target.path, &mut target);
            target.push(b'/');
            if !args.is_empty() {
                target.push(b'?');
                target.extend_from_slice(&args);
            }
            r.out.location = target.into();
            Ok(Flow::Status(301))
        }
        RewriteOutcome::Internal { path, args, end } if !path.is_empty() => {
            keep(r, end);
            Ok(elsewhere(r, path, args))
        }
        RewriteOutcome::Internal { end, .. } => {
            keep(r, end);
            Ok(found(r, &walk, &settings))
        }
        _ => {
            keep(r, ended);
            Ok(found(r, &walk, &settings))
        }
    }
}

/// Keeps the path: applies types and directory indexes.
fn found(r: &mut Request, walk: &Walk, settings: &Settings) -> Flow {
    if walk.is_folder
        && r.target.path.ends_with(b"/")
        && matches!(r.target.method, Method::Get | Method::Head | Method::Post)
    {
        return index(r, settings);
    }
    if let Some(media) = response::media_type(settings, walk.name())
        && r.loc().content.is_none()
    {
        r.out.content_type = media.into_bytes().into();
    }
    Flow::Declined
}

/// Restarts with a path of a .htaccess file. Its author is not the operator: `internal` locations do not answer.
fn elsewhere(r: &Request, path: Vec<u8>, args: Vec<u8>) -> Flow {
    match special::canonical(r, path) {
        Ok(path) => Flow::Redirect { path, args, internal: false },
        Err(status) => Flow::Status(status),
    }
}

/// `DirectoryIndex`.
fn index(r: &mut Request, settings: &Settings) -> Flow {
    let Some(names) = &settings.directory_index else { return Flow::Declined };
    for name in names {
        if name.starts_with('/') {
            return elsewhere(r, name.clone().into_bytes(), r.target.args.clone());
        }
        let path = match special::canonical(r, [&r.target.path, name.as_bytes()].concat()) {
            Ok(path) => path,
            Err(status) => return Flow::Status(status),
        };
        let Ok(file) = special::map(r, &path, Vec::new()) else { continue };
        if special::look(r, &file).is_ok_and(|found| found.kind != http_engine::files::FileKind::Folder) {
            return Flow::Redirect { path, args: r.target.args.clone(), internal: false };
        }
    }
    if settings.indexes == Some(true) { Flow::Declined } else { Flow::Status(403) }
}

/// Merges all files, outermost first, then their sections.
fn together(r: &Request, walk: &Walk, read: &[(FilePath, Rc<File>)]) -> Result<Settings, String> {
    let mut settings = Settings::default();
    for (_, file) in read {
        settings.merge(&file.base);
    }
    let method = String::from_utf8_lossy(r.head.method_span.of(&r.buf)).into_owned();
    for (_, file) in read {
        for (scope, part) in &file.parts {
            if scope.fits(walk.name(), &method)? {
                settings.merge(part);
            }
        }
    }
    if settings.headers.len() > FIELD_RULES_MAX {
        return Err(format!("there are more than {FIELD_RULES_MAX} Header directives"));
    }
    Ok(settings)
}

fn allowed(settings: &Settings, values: &Values) -> bool {
    let env = |name: &str| request::find(&values.env, name).map(|value| String::from_utf8_lossy(&value).into_owned());
    let client = access::AccessClient { address: values.peer, server: values.local, method: &values.method, env: &env };
    let required = settings.require.as_ref().is_none_or(|list| access::Require::AnyOf(list.clone()).allows(&client));
    required && settings.ordered.as_ref().is_none_or(|ordered| ordered.allows(&client))
}

/// Status and target of `Redirect` and `RedirectMatch`.
fn redirected(settings: &Settings, r: &Request, args: &[u8]) -> Result<Option<(u16, Vec<u8>)>, String> {
    for redirect in &settings.redirects {
        if let Some((status, mut target)) = redirect.of(&r.target.path)? {
            if !args.is_empty() && !target.contains(&b'?') {
                target.push(b'?');
                target.extend_from_slice(args);
            }
            if target.starts_with(b"/") {
                target = [request::origin(r).as_bytes(), &target].concat();
            }
            return Ok(Some((status, target)));
        }
    }
    Ok(None)
}

/// Rules of the innermost directory with any, and inherited ones.
fn rewrite(
    r: &mut Request,
    walk: &Walk,
    read: &[(FilePath, Rc<File>)],
    values: &mut Values,
) -> Result<RewriteOutcome, String> {
    let all: Vec<_> = read.iter().filter_map(|(folder, file)| Some((folder, file.rewrite.as_ref()?))).collect();
    let Some((folder, own)) = all.last() else { return Ok(RewriteOutcome::Pass) };
    if !all.iter().rev().find_map(|(_, rewrite)| rewrite.engine).unwrap_or(false) {
        return Ok(RewriteOutcome::Pass);
    }
    // Redirects a directory without its slash first, without rules.
    if walk.filename == **folder && !own.allow_no_slash {
        return Ok(RewriteOutcome::Pass);
    }
    let mut rules: Vec<&Rule> = own.rules.iter().collect();
    for (_, outer) in all.iter().rev().skip(1) {
        match all.last().and_then(|(_, own)| own.inherit) {
            Some(Inherit::After) => rules.extend(&outer.rules),
            Some(Inherit::Before) => {
                rules.splice(0..0, &outer.rules);
            }
            None => break,
        }
    }
    let base = all.iter().rev().find_map(|(_, rewrite)| rewrite.base.as_deref());
    let directory = [folder, b"/".as_slice()].concat();
    let uri = r.target.path.clone();
    let mut run = Run {
        directory: &directory,
        filename: walk.filename.to_vec(),
        path_info: walk.path_info.clone(),
        uri: &uri,
        args: r.target.args.clone(),
        has_encoded_question: r.head.target.of(&r.buf).windows(3).any(|w| w.eq_ignore_ascii_case(b"%3f")),
        root: &walk.root,
        root_uri: &walk.root_uri,
        origin: request::origin(r),
        is_subrequest: r.is_subrequest(),
        env: std::mem::take(&mut values.env),
        media_type: None,
    };
    let mut machine = Machine { r, values, root: &walk.root, file: [folder, b"/.htaccess".as_slice()].concat() };
    let outcome = run.apply(&rules, base, &mut machine);
    let (args, media) = (std::mem::take(&mut run.args), run.media_type.take());
    values.env = run.env;
    if let Some(media) = media {
        values.env.push((request::MEDIA.into(), Some(media.into_bytes())));
    }
    let shown = String::from_utf8_lossy(folder).into_owned();
    let outcome = outcome.map_err(|words| format!("{shown}/.htaccess: {words}"))?;
    if outcome == RewriteOutcome::Pass {
        // An unchanged path with a new query keeps the location.
        r.target.args_given |= !args.is_empty();
        r.target.args = args;
    }
    Ok(outcome)
}

fn pages(settings: &Settings) -> Option<Rc<[(u16, FolderPage)]>> {
    let page = |document: &ErrorDocument| match document {
        ErrorDocument::Path(path) => FolderPage::Path(path.clone().into_bytes()),
        ErrorDocument::Url(url) => FolderPage::Url(url.clone().into_bytes()),
        ErrorDocument::Text(text) => FolderPage::Text(text.clone().into_bytes()),
        ErrorDocument::Builtin => FolderPage::Builtin,
    };
    let pages: Vec<_> = settings.error_documents.iter().map(|(code, document)| (*code, page(document))).collect();
    (!pages.is_empty()).then(|| pages.into())
}

/// `Options -Indexes`.
struct Listing;

impl Handler for Listing {
    fn run(&self, r: &mut Request) -> Flow {
        let forbidden = r.ext::<HtaccessState>().is_some_and(|state| state.settings.indexes == Some(false));
        if forbidden && r.target.path.ends_with(b"/") { Flow::Status(403) } else { Flow::Declined }
    }
}

impl Filter for response::Fields {
    fn apply(&self, r: &mut Request, body: Body) -> Result<Body, u16> {
        response::fields(r);
        Ok(body)
    }
    fn name(&self) -> &'static str {
        "htaccess"
    }
}
