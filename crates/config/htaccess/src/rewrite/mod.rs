//! mod_rewrite in a directory's .htaccess (Apache: `mod_rewrite.c`, `hook_fixup`, `apply_rewrite_list`,
//! `apply_rewrite_rule`, `apply_rewrite_cond`, `do_expand`).
//! The directory is stripped before matching and prepended afterwards; the result is an internal or external redirect,
//! a status, or nothing. Servers run it again for the new path.

mod condition;
mod expand;
mod parse;
mod run;

use crate::pattern::RulePattern;
pub use expand::escape_uri;

/// In bytes.
pub const PATH_BYTES_MAX: usize = 16_384;
/// Maximum number of repetitions by `[N]`.
pub const ROUNDS_MAX: u32 = 1_000;
/// Rules and conditions that a run may evaluate, over all rounds.
pub const STEPS_MAX: u32 = 100_000;
/// Maximum bytes of a text with its variables expanded, and of the arguments: a variable may contain itself, and so double
/// with each rule.
pub const EXPANDED_BYTES_MAX: usize = 65_536;
/// Maximum bytes of names and values of variables that rules set for a request.
pub const ENV_BYTES_MAX: usize = 1024 * 1024;

pub trait RuleEnvironment {
    /// Value of `%{NAME}`: server variables, `HTTP:Name`, `ENV:NAME` (with the machine's `env`). The machine itself
    /// resolves those about the path.
    fn variable(&mut self, name: &str) -> Vec<u8>;
    /// Looks up a file system path; `constant`: no part of it comes from the request.
    fn look(&mut self, path: &[u8], constant: bool) -> PathKind;
    fn note(&mut self, line: u32, words: &dyn Fn() -> String);
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathKind {
    pub is_file: bool,
    pub is_folder: bool,
    pub is_link: bool,
    pub is_executable: bool,
    pub size: u64,
}

#[derive(Debug, Default)]
pub struct Rewrite {
    pub engine: Option<bool>,
    pub base: Option<String>,
    /// `RewriteOptions Inherit`, `InheritBefore`.
    pub inherit: Option<Inherit>,
    pub allow_no_slash: bool,
    /// `RewriteOptions MergeBase`: takes the base of an outer place if it has none.
    pub merge_base: bool,
    pub rules: Vec<RewriteRule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    After,
    Before,
}

#[derive(Debug)]
pub struct RewriteRule {
    pub line: u32,
    pub conditions: Vec<RewriteCondition>,
    pub pattern: RulePattern,
    /// `None`: `-`.
    pub substitution: Option<String>,
    pub flags: Flags,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Flags {
    pub last: bool,
    pub end: bool,
    pub next: bool,
    pub chain: bool,
    pub skip: usize,
    pub status: Option<u16>,
    /// `[R]`, which subrequests ignore.
    pub redirects: bool,
    pub append_args: bool,
    pub drop_args: bool,
    pub last_question: bool,
    pub ignore_case: bool,
    pub no_escape: bool,
    /// `B`: escapes groups; if not empty, only these bytes.
    pub escape: Option<String>,
    pub escape_space_as_20: bool,
    pub no_subrequests: bool,
    pub drop_path_info: bool,
    pub allow_question: bool,
    pub media_type: Option<String>,
    /// `E=NAME:VALUE`; a leading `!` unsets.
    pub env: Vec<(String, String)>,
}

#[derive(Debug)]
pub struct RewriteCondition {
    pub line: u32,
    pub subject: String,
    pub test: Test,
    pub negated: bool,
    pub or: bool,
    pub ignore_case: bool,
    /// `[NV]`: adds no field to `Vary`.
    pub no_vary: bool,
}

#[derive(Debug)]
pub enum Test {
    Pattern(RulePattern),
    /// `-f` and similar tests, by their letter.
    File(char),
    /// Text comparison: `<`, `>`, `=`, `l` (at most), `g` (at least).
    Text(char, String),
    /// Numeric comparison: `-eq`, `-ne`, `-lt`, `-le`, `-gt`, `-ge`.
    Number(&'static str, String),
}

pub struct Run<'a> {
    /// File system path of the rules' directory, with a final slash.
    pub directory: &'a [u8],
    /// Path up to the first missing name, and the remainder.
    pub filename: Vec<u8>,
    pub path_info: Vec<u8>,
    pub uri: &'a [u8],
    pub args: Vec<u8>,
    /// Document root without a final slash, and the URI prefix that it stands for (`/x` of an alias).
    pub root: &'a [u8],
    pub root_uri: &'a [u8],
    pub origin: String,
    pub is_subrequest: bool,
    pub env: Vec<(String, Option<Vec<u8>>)>,
    pub media_type: Option<String>,
    /// Fields of the request that decided about rules that applied, for `Vary`.
    pub vary: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RewriteOutcome {
    Pass,
    Status(u16),
    External {
        status: u16,
        location: Vec<u8>,
    },
    /// Restarts with this path; `end`: without these rules.
    Internal {
        path: Vec<u8>,
        args: Vec<u8>,
        end: bool,
    },
}
