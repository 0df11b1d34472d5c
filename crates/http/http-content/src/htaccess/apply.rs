//! Everything before the content: the server's own rules, access, rewriting, redirects, indexes of directories.

use super::login::{self, Judgment, RuleLogin};
use super::merged::{self, MergeError, MergedSettings};
use super::request::{self, Env, EnvPhase, RequestValues, RewriteMachine};
use super::response;
use super::walk::FolderWalk;
use super::{ApplyHtaccess, HtaccessState};
use crate::shared::NamedIndex;
use htaccess::Settings;
use htaccess::fields::RedirectRule;
use htaccess::rewrite::{Inherit, RewriteOutcome, RewriteRule, Run};
use htaccess::settings::{ErrorDocument, LinkRule};
use http_engine::files::FileKind;
use http_engine::path::{FilePath, is_ht_name};
use http_engine::request::FolderPage;
use http_engine::{Flow, Request, file_paths};
use http_types::Method;
use observe::Severity;
use std::rc::Rc;
use std::sync::Arc;

/// Facts about a request that is about to be answered, for [`HtaccessState`].
struct RequestFacts {
    state: HtaccessState,
}

impl RequestFacts {
    fn keep(self, r: &mut Request) {
        r.keep(self.state);
    }
}

impl ApplyHtaccess {
    /// Applies all rules to a request. Errors are logged, with a 500.
    pub(super) fn apply(&self, r: &mut Request) -> Result<Flow, String> {
        // A connection accepted in this turn may precede the event of a change: access rules must not be stale.
        http_engine::files::drop_changed();
        let before = r.ext::<HtaccessState>().cloned();
        let continues = before.as_ref().is_some_and(|state| state.continues);
        let old = before.clone().unwrap_or_default();
        let is_lookup = old.index_of.as_ref().is_some_and(|folder| {
            let name = r.target.path().strip_prefix(folder.as_slice());
            name.is_some_and(|name| !name.is_empty() && !name.contains(&b'/'))
        });
        let env = match continues || is_lookup {
            true => old.env.clone(),
            false => request::after_redirect(r, before.is_some(), old.env.clone()),
        };
        let is_page = old.is_page || r.progress.is_error_page() && r.progress.error_status() != 0;
        let state =
            HtaccessState { ended: old.ended, login: old.login, vary: old.vary, is_page, ..HtaccessState::default() };
        let mut request = RequestRules { own: self, state, env, is_lookup, is_judged: false };
        if before.is_none() && self.refuses_encoded_slash(r) {
            let settings = Rc::new(merged::of_uri(self.rules.as_deref(), &r.target.path().clone())?);
            r.progress.set_folder_pages(pages(&settings));
            let env = std::mem::take(&mut request.env);
            request.keep(r, settings, env);
            return Ok(Flow::Status(404));
        }
        if !continues && let Some(flow) = request.server(r)? {
            return Ok(flow);
        }
        if !self.has_files {
            return request.without_files(r);
        }
        let Some(walk) = FolderWalk::of(r)? else { return request.without_files(r) };
        let hidden = is_ht_name(walk.name());
        let merged = match MergedSettings::of(r, self.rules.as_deref(), &walk) {
            Ok(merged) => merged,
            Err(e) => {
                // Only rules for paths are known.
                let settings = Rc::new(merged::of_uri(self.rules.as_deref(), &r.target.path().clone())?);
                r.progress.set_folder_pages(if r.progress.is_error_page() { None } else { pages(&settings) });
                request.state.is_page = false;
                let env = std::mem::take(&mut request.env);
                request.keep(r, settings, env);
                return match e {
                    MergeError::Wrong(words) => Err(words),
                    MergeError::Forbidden => {
                        r.log(Severity::Error, format_args!("access forbidden by the rules for links and files"));
                        Ok(Flow::Status(403))
                    }
                };
            }
        };
        request.state.checked = walk.filename.to_vec();
        let mut identity = merged.identity();
        identity.extend(hidden.then_some(b'h'));
        // As in Apache, an error page of the same rules is not judged again: it would be refused like the request.
        request.is_judged = r.progress.is_error_page() && old.identity.as_ref() == Some(&identity);
        request.state.identity = Some(identity);
        if self.rules.is_none() && merged.has_no_places() && before.is_none() && !hidden {
            RequestFacts { state: request.state }.keep(r);
            return Ok(Flow::Declined);
        }
        request.with_file(r, &walk, &merged, hidden)
    }
}

/// Rules of one request.
struct RequestRules<'a> {
    own: &'a ApplyHtaccess,
    state: HtaccessState,
    env: Env,
    is_lookup: bool,
    /// The rules were asked for the request that has this error page.
    is_judged: bool,
}

impl RequestRules<'_> {
    fn login(&self, settings: &Settings) -> Option<&RuleLogin> {
        self.state.login.as_ref().filter(|login| login.is_for(settings))
    }

    fn keep(self, r: &mut Request, settings: Rc<Settings>, env: Env) {
        r.keep(HtaccessState { settings, env, ..self.state });
    }

    /// Applies the server's rewriting rules and redirects, which precede the choice of a file.
    fn server(&mut self, r: &mut Request) -> Result<Option<Flow>, String> {
        let Some(rules) = self.own.rules.clone() else { return Ok(None) };
        let rewrite = rules.base.rewrite.as_ref().filter(|rewrite| rewrite.engine == Some(true));
        if rewrite.is_none() && rules.base.base.redirects.is_empty() {
            return Ok(None);
        }
        let settings = Rc::new(merged::of_uri(Some(&rules), &r.target.path().clone())?);
        let mut values = RequestValues::new(r, self.env.clone());
        values.set(&rules.base.base.env, EnvPhase::BeforeAccess)?;
        let mut outcome = RewriteOutcome::Pass;
        if let Some(rewrite) = rewrite.filter(|_| !self.state.ended) {
            let list: Vec<&RewriteRule> = rewrite.rules.iter().collect();
            let place = RuleOrigin { directory: Vec::new(), base: None, shown: b"htaccess_rules".to_vec(), walk: None };
            outcome = self.run(r, &mut values, &list, &place)?;
        }
        self.env.clone_from(&values.env);
        let redirect = match &outcome {
            RewriteOutcome::Pass => redirected(&rules.base.base.redirects, r, r.target.args())?,
            _ => None,
        };
        if outcome == RewriteOutcome::Pass && redirect.is_none() {
            return Ok(None);
        }
        r.progress.set_folder_pages(if r.progress.is_error_page() { None } else { pages(&settings) });
        let mut state = HtaccessState { settings, env: values.env, ..self.state.clone() };
        let flow = match (outcome, redirect) {
            (RewriteOutcome::Status(status), _) => Flow::Status(status),
            (RewriteOutcome::External { status, location }, _) | (_, Some((status, location))) => {
                if (300..400).contains(&status) {
                    r.out.set_location(location);
                }
                Flow::Status(status)
            }
            (RewriteOutcome::Internal { path, args, end }, _) => {
                state.ended = end;
                if path.is_empty() {
                    self.state.ended = end;
                    return Ok(None);
                }
                state.continues = true;
                state.index_of = None;
                elsewhere(r, path, args)
            }
            (RewriteOutcome::Pass, None) => return Ok(None),
        };
        RequestFacts { state }.keep(r);
        Ok(Some(flow))
    }

    /// Applies the rules that depend on the path alone, in a location without files of its own.
    fn without_files(mut self, r: &mut Request) -> Result<Flow, String> {
        let Some(rules) = self.own.rules.clone() else { return Ok(Flow::Declined) };
        let settings = Rc::new(merged::of_uri(Some(&rules), &r.target.path().clone())?);
        let mut values = RequestValues::new(r, std::mem::take(&mut self.env));
        values.set(&settings.env, EnvPhase::BeforeAccess)?;
        r.progress.set_folder_pages(if r.progress.is_error_page() { None } else { pages(&settings) });
        let judgment = self.own.judge(&settings, &values, self.login(&settings), r);
        let own = self.own;
        let args = r.target.args().to_vec();
        let redirect = redirected(&settings.redirects, r, &args)?;
        values.set(&settings.env, EnvPhase::AfterRewriting)?;
        self.keep(r, settings.clone(), values.env);
        if let Some(flow) = refused(own, r, &settings, judgment)? {
            return Ok(flow);
        }
        Ok(match redirect {
            Some((status, target)) => answer(r, status, target),
            None => Flow::Declined,
        })
    }

    /// Applies everything to a request for a file.
    fn with_file(
        mut self,
        r: &mut Request,
        walk: &FolderWalk,
        merged: &MergedSettings<'_>,
        hidden: bool,
    ) -> Result<Flow, String> {
        let settings = Rc::new(merged.settings.clone());
        let mut values = RequestValues::new(r, std::mem::take(&mut self.env));
        values.set(&settings.env, EnvPhase::BeforeAccess)?;
        self.state.access_env.clone_from(&values.env);
        self.state.modified = walk.modified;
        r.progress.set_folder_pages(if r.progress.is_error_page() { None } else { pages(&settings) });
        let judgment = match hidden {
            true => Judgment::Refused(403),
            false if self.is_judged => Judgment::Granted,
            false => self.own.judge(&settings, &values, self.login(&settings), r),
        };
        if !matches!(judgment, Judgment::Granted) {
            let own = self.own;
            self.state.is_page = false;
            self.keep(r, settings.clone(), values.env);
            return Ok(refused(own, r, &settings, judgment)?.unwrap_or(Flow::Status(403)));
        }
        if settings.scripts_off == Some(true) && !walk.is_folder && r.loc().content.is_some() {
            self.keep(r, settings, values.env);
            r.log(Severity::Error, format_args!("scripts are switched off here by .htaccess"));
            return Ok(Flow::Status(403));
        }
        if settings.is_script(walk.name()) && !walk.is_folder && walk.modified.is_some() && r.loc().content.is_none() {
            self.keep(r, settings, values.env);
            r.log(Severity::Error, format_args!("no location runs this script, and its text is not served"));
            return Ok(Flow::Status(403));
        }
        let outcome = match self.state.ended {
            true => RewriteOutcome::Pass,
            false => self.rewrite(r, walk, merged, &mut values)?,
        };
        values.set(&settings.env, EnvPhase::AfterRewriting)?;
        let env = values.env;
        match outcome {
            RewriteOutcome::Status(status) => {
                self.keep(r, settings, env);
                return Ok(Flow::Status(status));
            }
            RewriteOutcome::External { status, location } => {
                self.keep(r, settings, env);
                return Ok(answer(r, status, location));
            }
            _ => {}
        }
        let args = match &outcome {
            RewriteOutcome::Internal { path, args, .. } if !path.is_empty() => args.clone(),
            _ => r.target.args().to_vec(),
        };
        if let Some((status, target)) = redirected(&settings.redirects, r, &args)? {
            self.keep(r, settings, env);
            return Ok(answer(r, status, target));
        }
        match outcome {
            // Adds a directory's slash first.
            RewriteOutcome::Internal { path, .. }
                if !path.is_empty() && walk.is_folder && !r.target.path().ends_with(b"/") =>
            {
                self.keep(r, settings, env);
                let mut target = Vec::new();
                htaccess::rewrite::escape_uri(r.target.path(), &mut target);
                target.push(b'/');
                if !args.is_empty() {
                    target.push(b'?');
                    target.extend_from_slice(&args);
                }
                Ok(answer(r, 301, target))
            }
            RewriteOutcome::Internal { path, args, end } if !path.is_empty() => {
                self.state.ended = end;
                self.keep(r, settings, env);
                Ok(elsewhere(r, path, args))
            }
            RewriteOutcome::Internal { end, .. } => {
                self.state.ended = end;
                Ok(self.found(r, walk, settings, env))
            }
            _ => Ok(self.found(r, walk, settings, env)),
        }
    }

    /// Keeps the path: applies types and directory indexes.
    fn found(mut self, r: &mut Request, walk: &FolderWalk, settings: Rc<Settings>, env: Env) -> Flow {
        let is_index = walk.is_folder
            && r.target.path().ends_with(b"/")
            && matches!(r.target.method(), Method::Get | Method::Head | Method::Post);
        if is_index {
            self.state.index_of = Some(r.target.path().to_vec());
        }
        let own = self.own;
        self.keep(r, settings.clone(), env);
        if is_index {
            return index(own, r, &settings);
        }
        if let Some(media) = response::media_type(&settings, walk.name())
            && r.loc().content.is_none()
        {
            r.out.set_content_type(media.into_bytes());
        }
        Flow::Declined
    }

    /// Rules of the innermost directory with any, and inherited ones.
    fn rewrite(
        &mut self,
        r: &mut Request,
        walk: &FolderWalk,
        merged: &MergedSettings<'_>,
        values: &mut RequestValues,
    ) -> Result<RewriteOutcome, String> {
        let all = merged.rewrites();
        let Some((directory, shown, own)) = all.last() else { return Ok(RewriteOutcome::Pass) };
        if !all.iter().rev().find_map(|(_, _, rewrite)| rewrite.engine).unwrap_or(false) {
            return Ok(RewriteOutcome::Pass);
        }
        // Redirects a directory without its slash first, without rules.
        if directory.strip_suffix(b"/") == Some(&walk.filename[..]) && !own.allow_no_slash {
            return Ok(RewriteOutcome::Pass);
        }
        if merged.settings.links() == LinkRule::Refuse {
            r.log(
                Severity::Error,
                format_args!(
                    "Options FollowSymLinks and SymLinksIfOwnerMatch are both off, so the RewriteRule directive is also forbidden"
                ),
            );
            return Ok(RewriteOutcome::Status(403));
        }
        let mut rules: Vec<&RewriteRule> = own.rules.iter().collect();
        for (_, _, outer) in all.iter().rev().skip(1) {
            match own.inherit {
                Some(Inherit::After) => rules.extend(&outer.rules),
                Some(Inherit::Before) => {
                    rules.splice(0..0, &outer.rules);
                }
                None => break,
            }
        }
        // A place without a base has that of an outer one only with `RewriteOptions MergeBase`.
        let base = all.iter().fold((None, false), |(outer, merges): (Option<String>, bool), (_, _, rewrite)| {
            let merges = merges || rewrite.merge_base;
            (rewrite.base.clone().or(outer.filter(|_| merges)), merges)
        });
        let base = base.0;
        let place = RuleOrigin { directory: directory.clone(), base, shown: shown.clone(), walk: Some(walk) };
        self.run(r, values, &rules, &place)
    }

    /// Runs rewriting rules, and keeps the variables and types that they set.
    fn run(
        &mut self,
        r: &mut Request,
        values: &mut RequestValues,
        rules: &[&RewriteRule],
        place: &RuleOrigin<'_>,
    ) -> Result<RewriteOutcome, String> {
        let uri = r.target.path().clone();
        let user = self.state.login.as_ref().map(|login| login.user.clone());
        let root = place.walk.map(|walk| &walk.root);
        let mut run = Run {
            directory: &place.directory,
            filename: place.walk.map_or_else(|| uri.to_vec(), |walk| walk.filename.to_vec()),
            path_info: place.walk.map(|walk| walk.path_info.clone()).unwrap_or_default(),
            uri: &uri,
            args: r.target.args().to_vec(),
            root: root.map_or(b"", |root: &FilePath| &root[..]),
            root_uri: place.walk.map_or(b"", |walk| &walk.root_uri),
            origin: request::request_origin(r),
            is_subrequest: self.is_lookup || r.is_subrequest(),
            env: std::mem::take(&mut values.env),
            media_type: None,
            vary: std::mem::take(&mut self.state.vary),
        };
        let is_lookup = self.is_lookup;
        let mut machine = RewriteMachine { r, values, root, place: place.shown.clone(), is_lookup, user };
        let outcome = run.apply(rules, place.base.as_deref(), &mut machine);
        let (args, media) = (std::mem::take(&mut run.args), run.media_type.take());
        self.state.vary = std::mem::take(&mut run.vary);
        values.env = run.env;
        if let Some(media) = media {
            values.env.push((request::MEDIA.into(), Some(media.into_bytes())));
        }
        let outcome = outcome.map_err(|words| format!("{}: {words}", String::from_utf8_lossy(&place.shown)))?;
        if outcome == RewriteOutcome::Pass {
            // An unchanged path with a new query keeps the location.
            if !args.is_empty() {
                r.target.note_args(true);
            }
            r.target.set_args(args);
        }
        Ok(outcome)
    }
}

/// Origin of rewriting rules.
struct RuleOrigin<'a> {
    /// Directory that patterns do not see, with a final slash; empty for the server's rules.
    directory: Vec<u8>,
    base: Option<String>,
    shown: Vec<u8>,
    /// `None`: the rules precede the choice of a file.
    walk: Option<&'a FolderWalk>,
}

/// Answers a request that the access rules do not grant; `None`: granted.
fn refused(
    own: &ApplyHtaccess,
    r: &mut Request,
    settings: &Settings,
    judgment: Judgment,
) -> Result<Option<Flow>, String> {
    Ok(match judgment {
        Judgment::Granted => None,
        Judgment::Refused(status) => {
            r.log(Severity::Error, format_args!("access forbidden by .htaccess"));
            Some(login::refuse_login(r, settings, status))
        }
        Judgment::NeedsLogin => Some(own.log_in(r, settings)?),
        Judgment::Wrong(words) => return Err(words),
    })
}

fn answer(r: &mut Request, status: u16, location: Vec<u8>) -> Flow {
    if (300..400).contains(&status) {
        r.out.set_location(location);
    }
    Flow::Status(status)
}

/// Restarts with a path of a .htaccess file. Its author is not the operator: `internal` locations do not answer.
fn elsewhere(r: &Request, path: Vec<u8>, args: Vec<u8>) -> Flow {
    match file_paths::canonical_path(r, path) {
        Ok(path) => Flow::Redirect { path, args, internal: false },
        Err(status) => Flow::Status(status),
    }
}

/// `DirectoryIndex`.
fn index(own: &ApplyHtaccess, r: &mut Request, settings: &Settings) -> Flow {
    let Some(names) = &settings.directory_index else { return Flow::Declined };
    let mut is_refused = false;
    for name in names {
        if name.starts_with('/') {
            return elsewhere(r, name.clone().into_bytes(), r.target.args().to_vec());
        }
        let path = match file_paths::canonical_path(r, [r.target.path(), name.as_bytes()].concat()) {
            Ok(path) => path,
            Err(status) => return Flow::Status(status),
        };
        let Ok(file) = file_paths::map_file(r, &path, Vec::new()) else { continue };
        let exists = file_paths::file_kind(r, &file).is_ok_and(|kind| kind != FileKind::Folder);
        // As in Apache, a later name is tried, and the refusal counts if there is none, even that of a missing file. One that asks
        // for a password says so if it is the last one.
        if exists && (names.last() == Some(name) || own.grants(r, &file)) {
            return Flow::Redirect { path, args: r.target.args().to_vec(), internal: false };
        }
        is_refused |= exists || settings.indexes == Some(true) && !own.grants(r, &file);
    }
    if is_refused || settings.indexes == Some(false) {
        return Flow::Status(403);
    }
    if settings.indexes != Some(true) {
        return Flow::Status(403);
    }
    let folder = r.target.path().to_vec();
    r.keep(NamedIndex { folder });
    Flow::Declined
}

/// Status and target of `Redirect` and `RedirectMatch`.
fn redirected(redirects: &[Arc<RedirectRule>], r: &Request, args: &[u8]) -> Result<Option<(u16, Vec<u8>)>, String> {
    for redirect in redirects {
        if let Some((status, mut target)) = redirect.of(r.target.path())? {
            if !args.is_empty() && !target.contains(&b'?') {
                target.push(b'?');
                target.extend_from_slice(args);
            }
            if target.starts_with(b"/") {
                target = [request::request_origin(r).as_bytes(), &target].concat();
            }
            return Ok(Some((status, target)));
        }
    }
    Ok(None)
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
