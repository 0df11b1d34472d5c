//! htaccess: what folders say of themselves in Apache's .htaccess files, read and obeyed at run time.
//!
//! The language and the rewriting machine are those of the crate `htaccess`; here is what they ask of the server: which folders lie on
//! the way to a file (`walk.rs`), what their files say, read once as long as they do not change (`files.rs`), variables (`request.rs`),
//! and what is done to the response (`response.rs`). A file that cannot be read or understood is answered with 500 and a line in
//! the log that names it: what it protects must not be served because of a slip.

mod files;
mod request;
mod response;
mod walk;

use conf_schema::value::Flag;
use conf_schema::{Area, Problem, Table, directives};
use htaccess::rewrite::{Inherit, Outcome, Rule, Run};
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

directives! {
    /// What the feature is told in a block.
    pub struct HtaccessConf from HtaccessInput {
        /// Whether .htaccess files in the folders from the root to the requested file are obeyed, as Apache does with AllowOverride All:
        /// rewriting, redirects, access by address, fields, types, error documents. A file with a directive that is not done is
        /// answered with 500. Changes are seen at once.
        htaccess: Flag = "off",
    }
}

/// The feature.
pub struct HtaccessFeature;

impl Feature for HtaccessFeature {
    fn table(&self) -> Table {
        HtaccessConf::table("htaccess", Area::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        const VARIABLES: &[Builtin] = &[Builtin::family(
            "htaccess_env_",
            |r, name, out| {
                let known = r.ext::<State>().and_then(|state| state.value(name));
                known.map(|value| out.extend_from_slice(&value)).is_some()
            },
            "A variable that a .htaccess file has set (SetEnv, SetEnvIf, [E=]); its name in lower case.",
        )];
        VARIABLES
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<HtaccessConf>() else { return Ok(()) };
        if conf.htaccess {
            block.location.ht_names_hidden = true;
            block.handle(HandlerOrder::Htaccess, Arc::new(Obey));
            block.handle(HandlerOrder::HtaccessListing, Arc::new(Listing));
            block.location.filters.push((FilterOrder::Htaccess, Arc::new(response::Fields)));
        }
        Ok(())
    }
}

/// What was found out about a request, for what comes later; it stays with it over internal redirects.
#[derive(Default)]
pub struct State {
    /// All that the folders say, as one.
    settings: Rc<Settings>,
    /// Variables, the latest last; `None`: unset.
    env: Vec<(String, Option<Vec<u8>>)>,
    /// `[END]`: no rule is looked at any more.
    ended: bool,
    /// The file's time, for `Expires`.
    modified: Option<i64>,
}

impl State {
    fn value(&self, name: &str) -> Option<Vec<u8>> {
        request::find(&self.env, name)
    }
}

struct Obey;

impl Handler for Obey {
    fn run(&self, r: &mut Request) -> Flow {
        if r.post_action {
            return Flow::Declined;
        }
        match obey(r) {
            Ok(flow) => flow,
            Err(words) => {
                r.log(Level::Error, format_args!("{words}"));
                Flow::Status(500)
            }
        }
    }
}

/// Everything up to the content; the error is what the log says beside the status 500.
fn obey(r: &mut Request) -> Result<Flow, String> {
    // A connection that was accepted in this turn may be answered before the loop has seen what changed: rules that protect
    // something must not be those of yesterday.
    http_engine::files::changed();
    let Some(walk) = Walk::of(r)? else { return Ok(Flow::Declined) };
    let hidden = is_ht_name(walk.name());
    let mut read: Vec<(FilePath, Rc<File>)> = Vec::new();
    for folder in &walk.folders {
        match files::read(r, folder) {
            files::Answer::None => {}
            files::Answer::File(file) => read.push((folder.clone(), file)),
            files::Answer::Forbidden => return Ok(Flow::Status(403)),
            files::Answer::Wrong(words) => return Err(words),
        }
    }
    let before = r.ext::<State>().map(|state| (state.ended, state.env.clone()));
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
    let outcome = if !allowed || ended { Outcome::Pass } else { rewrite(r, &walk, &read, &mut values)? };
    let env = values.env;
    r.folder_pages = if r.error_page { None } else { pages };
    let keep = |r: &mut Request, ended: bool| r.keep(State { settings: settings.clone(), env, ended, modified });
    if !allowed {
        keep(r, ended);
        r.log(Level::Error, format_args!("access forbidden by .htaccess"));
        return Ok(Flow::Status(403));
    }
    match outcome {
        Outcome::Status(status) => {
            keep(r, ended);
            return Ok(Flow::Status(status));
        }
        Outcome::External { status, location } => {
            keep(r, ended);
            r.out.location = location.into();
            return Ok(Flow::Status(status));
        }
        _ => {}
    }
    // What rules have made of the query is in what follows.
    let args = match &outcome {
        Outcome::Internal { path, args, .. } if !path.is_empty() => args.clone(),
        _ => r.args.clone(),
    };
    if let Some((status, target)) = redirected(&settings, r, &args)? {
        keep(r, ended);
        if (300..400).contains(&status) {
            r.out.location = target.into();
        }
        return Ok(Flow::Status(status));
    }
    match outcome {
        // A folder gets its slash first.
        Outcome::Internal { path, .. } if !path.is_empty() && walk.is_folder && !r.path.ends_with(b"/") => {
            keep(r, ended);
            let mut target = Vec::new();
            htaccess::rewrite::escape_uri(&r.path, &mut target);
            target.push(b'/');
            if !args.is_empty() {
                target.push(b'?');
                target.extend_from_slice(&args);
            }
            r.out.location = target.into();
            Ok(Flow::Status(301))
        }
        Outcome::Internal { path, args, end } if !path.is_empty() => {
            keep(r, end);
            Ok(elsewhere(r, path, args))
        }
        Outcome::Internal { end, .. } => {
            keep(r, end);
            Ok(found(r, &walk, &settings))
        }
        _ => {
            keep(r, ended);
            Ok(found(r, &walk, &settings))
        }
    }
}

/// The path stays: its type, or the file that stands for a folder.
fn found(r: &mut Request, walk: &Walk, settings: &Settings) -> Flow {
    if walk.is_folder && r.path.ends_with(b"/") && matches!(r.method, Method::Get | Method::Head | Method::Post) {
        return index(r, settings);
    }
    if let Some(media) = response::media_type(settings, walk.name())
        && r.loc().content.is_none()
    {
        r.out.content_type = media.into_bytes().into();
    }
    Flow::Declined
}

/// Starts over with a path that a folder's file has made. It is the folder's author who names it and not the operator: locations
/// that are `internal` do not answer it.
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
            return elsewhere(r, name.clone().into_bytes(), r.args.clone());
        }
        let path = match special::canonical(r, [&r.path, name.as_bytes()].concat()) {
            Ok(path) => path,
            Err(status) => return Flow::Status(status),
        };
        let Ok(file) = special::map(r, &path, Vec::new()) else { continue };
        if special::look(r, &file).is_ok_and(|found| found.kind != http_engine::files::Kind::Folder) {
            return Flow::Redirect { path, args: r.args.clone(), internal: false };
        }
    }
    if settings.indexes == Some(true) { Flow::Declined } else { Flow::Status(403) }
}

/// All files as one: folders from the outside in, then their sections.
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
    Ok(settings)
}

fn allowed(settings: &Settings, values: &Values) -> bool {
    let env = |name: &str| request::find(&values.env, name).map(|value| String::from_utf8_lossy(&value).into_owned());
    let client = access::Client { address: values.peer, server: values.local, method: &values.method, env: &env };
    let required = settings.require.as_ref().is_none_or(|list| access::Require::AnyOf(list.clone()).allows(&client));
    required && settings.ordered.as_ref().is_none_or(|ordered| ordered.allows(&client))
}

/// `Redirect`, `RedirectMatch`: the status and the target.
fn redirected(settings: &Settings, r: &Request, args: &[u8]) -> Result<Option<(u16, Vec<u8>)>, String> {
    for redirect in &settings.redirects {
        if let Some((status, mut target)) = redirect.of(&r.path)? {
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

/// The rules of the innermost folder that has any, and those that it inherits.
fn rewrite(
    r: &mut Request,
    walk: &Walk,
    read: &[(FilePath, Rc<File>)],
    values: &mut Values,
) -> Result<Outcome, String> {
    let all: Vec<_> = read.iter().filter_map(|(folder, file)| Some((folder, file.rewrite.as_ref()?))).collect();
    let Some((folder, own)) = all.last() else { return Ok(Outcome::Pass) };
    if !all.iter().rev().find_map(|(_, rewrite)| rewrite.engine).unwrap_or(false) {
        return Ok(Outcome::Pass);
    }
    // A folder without its slash is redirected first, as if it had no rules.
    if walk.filename == **folder && !own.allow_no_slash {
        return Ok(Outcome::Pass);
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
    let uri = r.path.clone();
    let mut run = Run {
        directory: &directory,
        filename: walk.filename.to_vec(),
        path_info: walk.path_info.clone(),
        uri: &uri,
        args: r.args.clone(),
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
    if outcome == Outcome::Pass {
        // The same file with another query is no reason to begin anew, but the query counts.
        r.args_given |= !args.is_empty();
        r.args = args;
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
        let forbidden = r.ext::<State>().is_some_and(|state| state.settings.indexes == Some(false));
        if forbidden && r.path.ends_with(b"/") { Flow::Status(403) } else { Flow::Declined }
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
