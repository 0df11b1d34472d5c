//! htaccess: applies Apache's rules to requests, those of .htaccess files and those of a server; the crate `htaccess` parses and
//! evaluates them. `walk.rs` finds directories, `files.rs` caches files, `merged.rs` merges settings, `apply.rs` acts on them,
//! `login.rs` asks for passwords, `request.rs` maps variables, `response.rs` applies settings of responses. An unreadable or
//! invalid file causes a 500 and a log line, because serving the files that it protects would be worse.

mod apply;
mod files;
mod login;
mod merged;
mod request;
mod response;
mod walk;

use conf_schema::value::Flag;
use conf_schema::{ContextArea, Cx, Directive, FeatureTable, Problem, ValueKind, directives};
use htaccess::{ServerRules, Settings, rules};
use http_engine::path::FilePath;
use http_engine::values::Alias;
use http_engine::variable::Builtin;
use http_engine::{
    BlockPlan, Feature, FileGuard, Filter, FilterOrder, Flow, Handler, HandlerOrder, Request, ResponseBody,
};
use merged::{MergeError, MergedSettings};
use observe::Severity;
use std::any::Any;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use walk::FolderWalk;

directives! {
    pub struct HtaccessConf from HtaccessInput {
        /// Applies the .htaccess files from the root to the requested file, as Apache does with `AllowOverride All`:
        /// rewriting, redirects, access by address and password, fields, media types, error documents. An unsupported directive
        /// in a file results in status 500. Changes apply immediately.
        htaccess: Flag = "off",
        /// Lines in Apache's language that apply to all requests of the server, as in a virtual host: with `<Directory>`,
        /// `<Files>`, `<Location>`, `AllowOverride` and all directives of .htaccess files. Sections of directories and files
        /// apply where `htaccess` is on. `tidegate convert apache` writes it.
        htaccess_rules: RulesText,
    }
}

/// Parsed value of `htaccess_rules`.
#[derive(Clone)]
pub struct RulesText(Arc<ServerRules>);

impl ValueKind for RulesText {
    const SYNTAX: &'static str = "line ...";
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let lines: Vec<_> = d.args.iter().map(|word| word.text().into_owned()).collect();
        let rules = rules::read_rules(&lines.join("\n")).map_err(|e| {
            let line = e.line.saturating_sub(1) as usize;
            Problem::says(format!("{} in line {} of \"htaccess_rules\"", e.text, e.line)).at(line)
        })?;
        Ok(RulesText(Arc::new(rules)))
    }
}

pub struct HtaccessFeature;

impl Feature for HtaccessFeature {
    fn table(&self) -> FeatureTable {
        HtaccessConf::table("htaccess", ContextArea::Http)
    }
    fn variables(&self) -> &'static [Builtin] {
        const VARIABLES: &[Builtin] = &[
            Builtin::one(
                "htaccess_php_values",
                php_values,
                "Settings of `php_value` and `php_flag`, a line each: the value of PHP-FPM's parameter `PHP_VALUE`.",
            ),
            Builtin::family(
                "htaccess_env_",
                |r, name, out| {
                    let known = r.ext::<HtaccessState>().and_then(|state| state.value(name));
                    known.map(|value| out.extend_from_slice(&value)).is_some()
                },
                "A variable that a .htaccess file has set (SetEnv, SetEnvIf, [E=]); its name in lower case.",
            ),
        ];
        VARIABLES
    }
    fn acts_by_default(&self) -> bool {
        false
    }
    fn plan(&self, conf: &Arc<dyn Any + Send + Sync>, block: &mut BlockPlan<'_>) -> Result<(), Problem> {
        let Some(conf) = conf.downcast_ref::<HtaccessConf>() else { return Ok(()) };
        if !conf.htaccess && conf.htaccess_rules.is_none() {
            return Ok(());
        }
        let root = &block.location.core.root;
        if conf.htaccess && root.alias == Alias::Whole && root.literal_folder().is_none_or(|folder| folder.is_empty()) {
            return Err(Problem::says(
                "\"htaccess\" cannot find the directories of an \"alias\" that begins with a variable",
            )
            .hint("begin the alias with the path of a directory, or set \"htaccess off\" in the location"));
        }
        let apply = Arc::new(ApplyHtaccess {
            has_files: conf.htaccess,
            rules: conf.htaccess_rules.as_ref().map(|RulesText(rules)| rules.clone()),
            prefix: block.cx.conf_prefix.clone(),
        });
        if conf.htaccess {
            block.location.ht_names_hidden = true;
            block.location.file_guard = Some(apply.clone());
        }
        block.handle(HandlerOrder::Htaccess, apply);
        block.handle(HandlerOrder::HtaccessListing, Arc::new(Listing));
        block.location.filters.push((FilterOrder::Htaccess, Arc::new(response::RuleFields)));
        Ok(())
    }
}

fn php_values(r: &mut Request, out: &mut Vec<u8>) -> bool {
    let Some(state) = r.ext::<HtaccessState>() else { return false };
    for (index, (name, value)) in state.settings.php_values.iter().enumerate() {
        out.extend_from_slice(format!("{}{name}={value}", if index == 0 { "" } else { "\n" }).as_bytes());
    }
    !state.settings.php_values.is_empty()
}

/// Results for later phases; kept over internal redirects.
#[derive(Clone, Default)]
struct HtaccessState {
    settings: Rc<Settings>,
    /// Variables, latest last; `None`: unset.
    env: request::Env,
    /// `[END]`: skips further rules.
    ended: bool,
    /// Variables that access rules saw.
    access_env: request::Env,
    modified: Option<i64>,
    /// The path comes from the server's rewriting rules, or a password was checked: no new request, as Apache sees it.
    continues: bool,
    /// Path of the directory whose index is looked for.
    index_of: Option<Vec<u8>>,
    /// File that the settings belong to.
    checked: Vec<u8>,
    login: Option<login::RuleLogin>,
    /// The response is that of an `ErrorDocument`.
    is_page: bool,
    /// Fields of the request on which rewriting depended.
    vary: Vec<String>,
    /// Rules that applied; none before the file was known.
    identity: Option<merged::RulesIdentity>,
}

impl HtaccessState {
    fn value(&self, name: &str) -> Option<Vec<u8>> {
        request::find_variable(&self.env, name)
    }
}

/// Handler and guard of a location.
struct ApplyHtaccess {
    /// `htaccess on`: the location serves files, so that directories count.
    has_files: bool,
    rules: Option<Arc<ServerRules>>,
    /// Base of relative names of password files.
    prefix: PathBuf,
}

impl FileGuard for ApplyHtaccess {
    fn admits(&self, r: &mut Request, file: &FilePath) -> bool {
        let bare = |path: &[u8]| path.strip_suffix(b"/").unwrap_or(path).to_vec();
        let state = r.ext::<HtaccessState>();
        if state.is_some_and(|state| bare(&state.checked) == bare(file)) {
            return true;
        }
        let admitted = self.serves(r, file);
        if !admitted {
            r.log(
                Severity::Error,
                format_args!("access to \"{}\" forbidden by .htaccess", String::from_utf8_lossy(file)),
            );
        }
        admitted
    }
}

impl ApplyHtaccess {
    /// Tells whether the rules grant a file that is not that of the request's path.
    fn grants(&self, r: &mut Request, file: &FilePath) -> bool {
        self.judge_other(r, file).is_some_and(|(granted, _)| granted)
    }

    /// Tells whether the text of such a file may be sent.
    fn serves(&self, r: &mut Request, file: &FilePath) -> bool {
        let has_handler = r.loc().content.is_some();
        self.judge_other(r, file).is_some_and(|(granted, is_script)| granted && (has_handler || !is_script))
    }

    /// Judges a file that is not that of the request's path: the grant, and a flag for scripts. `None`: the rules have a
    /// fault, which is logged.
    fn judge_other(&self, r: &mut Request, file: &FilePath) -> Option<(bool, bool)> {
        let state = r.ext::<HtaccessState>();
        let login = state.and_then(|state| state.login.clone());
        let env = state.map(|state| state.access_env.clone()).unwrap_or_default();
        match self.try_judge(r, file, login, env) {
            Ok(judged) => Some(judged),
            Err(words) => {
                r.log(Severity::Error, format_args!("{words}"));
                None
            }
        }
    }

    fn try_judge(
        &self,
        r: &mut Request,
        file: &FilePath,
        login: Option<login::RuleLogin>,
        env: request::Env,
    ) -> Result<(bool, bool), String> {
        let Some(walk) = FolderWalk::to(r, file)? else { return Ok((false, false)) };
        let merged = match MergedSettings::of(r, self.rules.as_deref(), &walk) {
            Ok(merged) => merged,
            Err(MergeError::Forbidden) => return Ok((false, false)),
            Err(MergeError::Wrong(words)) => return Err(words),
        };
        let mut values = request::RequestValues::new(r, env);
        values.set(&merged.settings.env, request::EnvPhase::BeforeAccess)?;
        let is_script = merged.settings.is_script(walk.name()) && !walk.is_folder;
        let known = login.as_ref().filter(|login| login.is_for(&merged.settings));
        Ok((matches!(self.judge(&merged.settings, &values, known, r), login::Judgment::Granted), is_script))
    }
}

impl Handler for ApplyHtaccess {
    fn run(&self, r: &mut Request) -> Flow {
        if r.progress.is_post_action() {
            return Flow::Declined;
        }
        let flow = match self.apply(r) {
            Ok(flow) => flow,
            Err(words) => {
                r.log(Severity::Error, format_args!("{words}"));
                Flow::Status(500)
            }
        };
        // As in Apache, an error page that is refused leaves the status of the first error.
        match flow {
            Flow::Status(status) if status >= 400 && r.progress.is_error_page() && r.progress.error_status() >= 400 => {
                Flow::Status(r.progress.error_status())
            }
            flow => flow,
        }
    }
}

impl ApplyHtaccess {
    /// Tells whether the client's path has an encoded slash (Apache: `AllowEncodedSlashes Off`): rules for paths would see
    /// another path than the one that the client asked for.
    fn refuses_encoded_slash(&self, r: &Request) -> bool {
        if r.progress.is_internal()
            || r.is_subrequest()
            || self.rules.as_ref().is_some_and(|rules| rules.encoded_slashes)
        {
            return false;
        }
        let target = r.head.target.of(&r.buf);
        let path = target.split(|byte| *byte == b'?').next().unwrap_or_default();
        path.windows(3).any(|part| part.eq_ignore_ascii_case(b"%2f"))
    }
}

/// `Options -Indexes`.
struct Listing;

impl Handler for Listing {
    fn run(&self, r: &mut Request) -> Flow {
        let forbidden = r.ext::<HtaccessState>().is_some_and(|state| state.settings.indexes == Some(false));
        if forbidden && r.target.path().ends_with(b"/") { Flow::Status(403) } else { Flow::Declined }
    }
}

impl Filter for response::RuleFields {
    fn apply(&self, r: &mut Request, body: ResponseBody) -> Result<ResponseBody, u16> {
        response::set_fields(r);
        Ok(body)
    }
    fn name(&self) -> &'static str {
        "htaccess"
    }
}
