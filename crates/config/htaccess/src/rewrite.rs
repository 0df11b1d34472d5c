//! mod_rewrite in a directory's .htaccess (Apache: `mod_rewrite.c`, `hook_fixup`, `apply_rewrite_list`,
//! `apply_rewrite_rule`, `apply_rewrite_cond`, `do_expand`).
//! The directory is stripped before matching and prepended afterwards; the result is an internal or external redirect,
//! a status, or nothing. Servers run it again for the new path.

use crate::pattern::{Groups, Pattern};
use crate::syntax::raw_words;

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
    pub rules: Vec<Rule>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Inherit {
    After,
    Before,
}

#[derive(Debug)]
pub struct Rule {
    pub line: u32,
    pub conditions: Vec<Condition>,
    pub pattern: Pattern,
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
pub struct Condition {
    pub line: u32,
    pub subject: String,
    pub test: Test,
    pub negated: bool,
    pub or: bool,
    pub ignore_case: bool,
}

#[derive(Debug)]
pub enum Test {
    Pattern(Pattern),
    /// `-f` and similar tests, by their letter.
    File(char),
    /// Text comparison: `<`, `>`, `=`, `l` (at most), `g` (at least).
    Text(char, String),
    /// Numeric comparison: `-eq`, `-ne`, `-lt`, `-le`, `-gt`, `-ge`.
    Number(&'static str, String),
}

const NUMBERS: &[&str] = &["-eq", "-ne", "-lt", "-le", "-gt", "-ge"];

impl Condition {
    pub fn parse(line: u32, rest: &str) -> Result<Condition, String> {
        let words = raw_words(rest);
        let (Some(subject), Some(text)) = (words.first(), words.get(1)) else {
            return Err(format!("RewriteCond: bad argument line '{rest}'"));
        };
        let (mut or, mut ignore_case) = (false, false);
        for (name, _) in flags(words.get(2).map_or("", String::as_str), "RewriteCond")? {
            match name.to_ascii_lowercase().as_str() {
                "or" | "ornext" => or = true,
                "nc" | "nocase" => ignore_case = true,
                "nv" | "novary" => {}
                _ => return Err(format!("RewriteCond: unknown flag '{name}'")),
            }
        }
        if subject.eq_ignore_ascii_case("expr") {
            return Err("RewriteCond expr: expressions are not supported".into());
        }
        let (negated, bare) = text.strip_prefix('!').map_or((false, text.as_str()), |bare| (true, bare));
        let mut letters = bare.chars();
        let test = match (letters.next(), letters.next(), letters.next()) {
            (Some('-'), Some(letter @ ('f' | 'd' | 's' | 'l' | 'h' | 'L' | 'x' | 'F' | 'U')), None) => {
                if matches!(letter, 'F' | 'U') {
                    return Err(format!("RewriteCond -{letter}: subrequests are not made"));
                }
                Test::File(letter)
            }
            (Some('-'), Some(_), Some(_)) if NUMBERS.iter().any(|sign| bare.starts_with(sign)) => {
                let sign = NUMBERS.iter().find(|sign| bare.starts_with(**sign)).copied().unwrap_or("-eq");
                Test::Number(sign, bare.get(3..).unwrap_or_default().to_string())
            }
            (Some('<'), Some('='), _) => Test::Text('l', bare.get(2..).unwrap_or_default().to_string()),
            (Some('>'), Some('='), _) => Test::Text('g', bare.get(2..).unwrap_or_default().to_string()),
            (Some(sign @ ('<' | '>' | '=')), _, _) => {
                let value = bare.get(1..).unwrap_or_default();
                Test::Text(sign, if value == "\"\"" { String::new() } else { value.to_string() })
            }
            _ => Test::Pattern(Pattern::new(bare, ignore_case).map_err(|e| format!("RewriteCond: {e}"))?),
        };
        Ok(Condition { line, subject: subject.clone(), test, negated, or, ignore_case })
    }
}

fn flags<'a>(text: &'a str, directive: &str) -> Result<Vec<(&'a str, &'a str)>, String> {
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let Some(inner) = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')) else {
        return Err(format!("{directive}: bad flag delimiters"));
    };
    let parts = inner.split(',').map(str::trim).filter(|part| !part.is_empty());
    Ok(parts.map(|part| part.split_once('=').unwrap_or((part, ""))).collect())
}

impl Rule {
    pub fn parse(line: u32, rest: &str, conditions: Vec<Condition>) -> Result<Rule, String> {
        let words = raw_words(rest);
        let (Some(pattern), Some(target)) = (words.first(), words.get(1)) else {
            return Err(format!("RewriteRule: bad argument line '{rest}'"));
        };
        let own = Flags::parse(words.get(2).map_or("", String::as_str))?;
        let pattern = Pattern::new(pattern, own.ignore_case).map_err(|e| format!("RewriteRule: {e}"))?;
        let substitution = (target != "-").then(|| target.clone());
        if target.starts_with("proxy:") {
            return Err("RewriteRule: requests are not passed on from here".into());
        }
        Ok(Rule { line, conditions, pattern, substitution, flags: own })
    }
}

impl Flags {
    fn parse(text: &str) -> Result<Flags, String> {
        let mut out = Flags::default();
        for (name, value) in flags(text, "RewriteRule")? {
            match name.to_ascii_lowercase().as_str() {
                "l" | "last" => out.last = true,
                "end" => out.end = true,
                "n" | "next" => out.next = true,
                "c" | "chain" => out.chain = true,
                "s" | "skip" => out.skip = value.parse().map_err(|_| format!("RewriteRule: bad skip '{value}'"))?,
                "f" | "forbidden" => out.status = Some(403),
                "g" | "gone" => out.status = Some(410),
                "r" | "redirect" => out.status = Some(status(value)?),
                "qsa" | "qsappend" => out.append_args = true,
                "qsd" | "qsdiscard" => out.drop_args = true,
                "qsl" | "qslast" => out.last_question = true,
                "nc" | "nocase" => out.ignore_case = true,
                "ne" | "noescape" => out.no_escape = true,
                "b" => out.escape = Some(value.to_string()),
                "bnp" | "backrefnoplus" => out.escape_space_as_20 = true,
                "ns" | "nosubreq" => out.no_subrequests = true,
                "dpi" | "discardpath" => out.drop_path_info = true,
                "unsafeallow3f" => out.allow_question = true,
                // A directory has no later handler to pass through to.
                "pt" | "passthrough" | "unsafeprefixstat" | "unsafeprefixstatus" | "bctls" | "bne" => {}
                "t" | "type" => out.media_type = Some(value.to_string()),
                "e" | "env" => {
                    let (name, content) = value.split_once(':').unwrap_or((value, ""));
                    out.env.push((name.to_string(), content.to_string()));
                }
                "p" | "proxy" => {
                    return Err("RewriteRule: [P] is not supported: requests are not passed on from here".into());
                }
                "co" | "cookie" => return Err("RewriteRule: [CO] is not supported".into()),
                "h" | "handler" => return Err("RewriteRule: [H] is not supported".into()),
                _ => return Err(format!("RewriteRule: unknown flag '{name}'")),
            }
        }
        Ok(out)
    }
}

fn status(word: &str) -> Result<u16, String> {
    Ok(match word.to_ascii_lowercase().as_str() {
        "" | "temp" => 302,
        "permanent" => 301,
        "seeother" => 303,
        other => match other.parse::<u16>() {
            Ok(code) if (300..=599).contains(&code) => code,
            _ => return Err(format!("RewriteRule: invalid HTTP response code '{word}' for flag 'R'")),
        },
    })
}

pub struct Run<'a> {
    /// File system path of the rules' directory, with a final slash.
    pub directory: &'a [u8],
    /// Path up to the first missing name, and the remainder.
    pub filename: Vec<u8>,
    pub path_info: Vec<u8>,
    pub uri: &'a [u8],
    pub args: Vec<u8>,
    /// The client's path contained `%3f`.
    pub has_encoded_question: bool,
    /// Document root without a final slash, and the URI prefix that it stands for (`/x` of an alias).
    pub root: &'a [u8],
    pub root_uri: &'a [u8],
    pub origin: String,
    pub is_subrequest: bool,
    pub env: Vec<(String, Option<Vec<u8>>)>,
    pub media_type: Option<String>,
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

enum Applied {
    No,
    Only,
    Changed,
    Status(u16),
}

impl Run<'_> {
    /// Applies rules (the directory's and inherited ones). Fails with 500 when a pattern exceeds its limits or rules do
    /// not end.
    pub fn apply(
        &mut self,
        rules: &[&Rule],
        base: Option<&str>,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<RewriteOutcome, String> {
        let (before, args_before) = (self.filename.clone(), self.args.clone());
        let mut external = None;
        let (mut changed, mut escape, mut end) = (false, true, false);
        let (mut index, mut rounds, mut steps, mut env_bytes) = (0, 0, 0, 0);
        while let Some(rule) = rules.get(index) {
            index += 1;
            steps += 1 + rule.conditions.len() as u32;
            if steps > STEPS_MAX {
                return Err(format!("rules ran for more than {STEPS_MAX} steps"));
            }
            if self.is_subrequest && rule.flags.no_subrequests {
                continue;
            }
            let known = self.env.len();
            let applied = self.rule(rule, asks, &mut external)?;
            if self.filename.len() > PATH_BYTES_MAX {
                return Err("rules make the path longer and longer".into());
            }
            if self.args.len() > EXPANDED_BYTES_MAX {
                return Err("rules make the arguments longer and longer".into());
            }
            let set = self.env.iter().skip(known);
            env_bytes += set.map(|(name, value)| name.len() + value.as_ref().map_or(0, Vec::len)).sum::<usize>();
            if env_bytes > ENV_BYTES_MAX {
                return Err(format!("rules set variables of more than {ENV_BYTES_MAX} bytes"));
            }
            match applied {
                Applied::No => {
                    // Skips rules chained to one that does not match.
                    let mut chained = rule.flags.chain;
                    while chained && let Some(next) = rules.get(index) {
                        chained = next.flags.chain;
                        index += 1;
                    }
                    continue;
                }
                Applied::Status(status) => return Ok(RewriteOutcome::Status(status)),
                Applied::Only => {}
                Applied::Changed => {
                    changed = true;
                    escape = !rule.flags.no_escape;
                }
            }
            if rule.flags.end {
                end = true;
                break;
            }
            if rule.flags.last {
                break;
            }
            if rule.flags.next {
                rounds += 1;
                if rounds > ROUNDS_MAX {
                    return Err(format!("[N] went round more than {ROUNDS_MAX} times"));
                }
                index = 0;
                continue;
            }
            index += rule.flags.skip;
        }
        if !changed {
            return Ok(if end {
                RewriteOutcome::Internal { path: Vec::new(), args: Vec::new(), end }
            } else {
                RewriteOutcome::Pass
            });
        }
        // A space or control character lost its escape, which [B] keeps.
        if self.args != args_before && self.args.iter().any(|byte| !matches!(byte, 0x21..=0x7e | 0x80..)) {
            return Ok(RewriteOutcome::Status(403));
        }
        if is_absolute(&self.filename) {
            return Ok(RewriteOutcome::External {
                status: external.unwrap_or(302),
                location: self.location(base, escape, &args_before),
            });
        }
        if !self.filename.starts_with(b"/") {
            return Ok(RewriteOutcome::Status(400));
        }
        // An unchanged file name does not restart the rules.
        if self.filename == before {
            return Ok(RewriteOutcome::Pass);
        }
        let path = self.to_uri(base, &self.filename);
        Ok(RewriteOutcome::Internal { path, args: std::mem::take(&mut self.args), end })
    }

    fn to_uri(&self, base: Option<&str>, filename: &[u8]) -> Vec<u8> {
        if let Some(base) = base
            && let Some(rest) = filename.strip_prefix(self.directory)
        {
            let slash: &[u8] = if base.ends_with('/') { b"" } else { b"/" };
            return [base.as_bytes(), slash, rest].concat();
        }
        match filename.strip_prefix(self.root) {
            Some(rest) if rest.starts_with(b"/") && !self.root.is_empty() => [self.root_uri, rest].concat(),
            _ => filename.to_vec(),
        }
    }

    fn location(&self, base: Option<&str>, escape: bool, args_before: &[u8]) -> Vec<u8> {
        let scheme = self.filename.windows(3).position(|w| w == b"://").map_or(0, |at| at + 3);
        let host =
            self.filename.iter().skip(scheme).position(|c| *c == b'/').map_or(self.filename.len(), |at| at + scheme);
        let (head, path) = self.filename.split_at_checked(host).unwrap_or((&self.filename, b""));
        let path =
            if base.is_some() && path.starts_with(self.directory) { self.to_uri(base, path) } else { path.to_vec() };
        let mut out = head.to_vec();
        if escape {
            escape_uri(&path, &mut out);
        } else {
            out.extend_from_slice(&path);
        }
        if !self.args.is_empty() {
            out.push(b'?');
            if escape && self.args != args_before {
                escape_uri(&self.args, &mut out);
            } else {
                out.extend_from_slice(&self.args);
            }
        }
        out
    }

    fn rule(
        &mut self,
        rule: &Rule,
        asks: &mut dyn RuleEnvironment,
        external: &mut Option<u16>,
    ) -> Result<Applied, String> {
        let whole = [self.filename.as_slice(), &self.path_info].concat();
        let subject = whole.strip_prefix(self.directory).unwrap_or(&whole).to_vec();
        let matched = rule.pattern.groups(&subject)?;
        if matched.is_some() == rule.pattern.negated {
            return Ok(Applied::No);
        }
        let groups = if rule.pattern.negated { Vec::new() } else { matched.unwrap_or_default() };
        let mut last: Groups = Vec::new();
        // Conditions joined by OR count as one: the first true one decides.
        let mut joined = false;
        for condition in &rule.conditions {
            if joined {
                joined = condition.or;
                continue;
            }
            let holds = self.condition(condition, &groups, &mut last, asks)?;
            if condition.or {
                joined = holds;
            } else if !holds {
                return Ok(Applied::No);
            }
        }
        if rule.conditions.last().is_some_and(|condition| condition.or) && !joined {
            return Ok(Applied::No);
        }
        for (name, value) in &rule.flags.env {
            match name.strip_prefix('!') {
                Some(name) => self.env.push((name.to_string(), None)),
                None => {
                    let value = self.expand(value, &groups, &last, None, asks)?;
                    self.env.push((name.clone(), Some(value)));
                }
            }
        }
        if let Some(media) = &rule.flags.media_type {
            self.media_type =
                Some(String::from_utf8_lossy(&self.expand(media, &groups, &last, None, asks)?).into_owned());
        }
        let refused = rule.flags.status.filter(|status| !(300..400).contains(status));
        let Some(target) = &rule.substitution else {
            asks.note(rule.line, &|| "matches".into());
            return Ok(refused.map_or(Applied::Only, Applied::Status));
        };
        let mut made = self.expand(
            target,
            &groups,
            &last,
            rule.flags.escape.as_ref().map(|only| (only.as_str(), rule.flags.escape_space_as_20)),
            asks,
        )?;
        if let Some(status) = refused {
            return Ok(Applied::Status(status));
        }
        self.split_args(&mut made, rule);
        if self.has_encoded_question && target.contains('?') && !rule.flags.allow_question {
            return Ok(Applied::Status(403));
        }
        if rule.flags.drop_path_info {
            self.path_info.clear();
        }
        if !made.starts_with(b"/") && !is_absolute(&made) {
            made = [self.directory, &made].concat();
        }
        // A URL of this host stays internal, unless a redirect is requested.
        if rule.flags.status.is_none()
            && let Some(rest) = made.strip_prefix(self.origin.as_bytes())
            && (rest.is_empty() || rest.starts_with(b"/"))
        {
            made = if rest.is_empty() { b"/".to_vec() } else { rest.to_vec() };
        }
        if rule.flags.status.is_some() && !is_absolute(&made) {
            made = [self.origin.as_bytes(), &made].concat();
        }
        if is_absolute(&made) {
            *external = rule.flags.status.or(*external);
        }
        let shown = String::from_utf8_lossy(&made).into_owned();
        asks.note(rule.line, &|| format!("\"{}\" to \"{shown}\"", String::from_utf8_lossy(&subject)));
        // Later rules match the path after the first missing name; [DPI] discards it.
        self.filename = made;
        Ok(Applied::Changed)
    }

    fn split_args(&mut self, made: &mut Vec<u8>, rule: &Rule) {
        if rule.flags.drop_args {
            self.args.clear();
        }
        let at = if rule.flags.last_question {
            made.iter().rposition(|c| *c == b'?')
        } else {
            made.iter().position(|c| *c == b'?')
        };
        let Some(at) = at else { return };
        let mut args = made.split_off(at).split_off(1);
        if rule.flags.append_args && !self.args.is_empty() {
            if !args.is_empty() {
                args.push(b'&');
            }
            args.extend_from_slice(&self.args);
        }
        while args.ends_with(b"&") {
            args.pop();
        }
        self.args = args;
    }

    fn condition(
        &mut self,
        condition: &Condition,
        groups: &Groups,
        last: &mut Groups,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<bool, String> {
        let subject = self.expand(&condition.subject, groups, last, None, asks)?;
        let text = |own: &Self, value: &str, asks: &mut dyn RuleEnvironment, last: &Groups| {
            own.expand(value, groups, last, None, asks)
        };
        let holds = match &condition.test {
            Test::Pattern(pattern) => match pattern.groups(&subject)? {
                Some(found) => {
                    if !condition.negated {
                        *last = found;
                    }
                    true
                }
                None => false,
            },
            Test::File(letter) => {
                let constant = is_constant(&condition.subject);
                let kind = if subject.is_empty() { PathKind::default() } else { asks.look(&subject, constant) };
                match letter {
                    'f' => kind.is_file,
                    'd' => kind.is_folder,
                    's' => kind.is_file && kind.size > 0,
                    'x' => kind.is_executable,
                    _ => kind.is_link,
                }
            }
            Test::Text(sign, value) => {
                let value = text(self, value, asks, last)?;
                let fold =
                    |bytes: &[u8]| if condition.ignore_case { bytes.to_ascii_lowercase() } else { bytes.to_vec() };
                let order = fold(&subject).cmp(&fold(&value));
                match sign {
                    '<' => order.is_lt(),
                    '>' => order.is_gt(),
                    'l' => order.is_le(),
                    'g' => order.is_ge(),
                    _ => order.is_eq(),
                }
            }
            Test::Number(sign, value) => {
                let number = |bytes: &[u8]| -> i64 {
                    let text = String::from_utf8_lossy(bytes);
                    let text = text.trim();
                    let end = text.char_indices().find(|(at, c)| !(c.is_ascii_digit() || *at == 0 && *c == '-'));
                    text.get(..end.map_or(text.len(), |(at, _)| at)).and_then(|text| text.parse().ok()).unwrap_or(0)
                };
                let order = number(&subject).cmp(&number(&text(self, value, asks, last)?));
                match *sign {
                    "-eq" => order.is_eq(),
                    "-ne" => order.is_ne(),
                    "-lt" => order.is_lt(),
                    "-le" => order.is_le(),
                    "-gt" => order.is_gt(),
                    _ => order.is_ge(),
                }
            }
        };
        Ok(holds != condition.negated)
    }

    /// Expands `$1`, `%1`, `%{NAME}` and backslashes; `${map:key}` is empty, since maps are declared in servers. Fails beyond
    /// [`EXPANDED_BYTES_MAX`].
    fn expand(
        &self,
        text: &str,
        groups: &Groups,
        last: &Groups,
        escape: Option<(&str, bool)>,
        asks: &mut dyn RuleEnvironment,
    ) -> Result<Vec<u8>, String> {
        let bytes = text.as_bytes();
        let mut out = Vec::with_capacity(bytes.len() + 32);
        let mut at = 0;
        while let Some(byte) = bytes.get(at).copied() {
            if out.len() > EXPANDED_BYTES_MAX {
                return Err(format!("a text of a rule has more than {EXPANDED_BYTES_MAX} bytes"));
            }
            let next = bytes.get(at + 1).copied();
            match (byte, next) {
                (b'\\', Some(literal)) => {
                    out.push(literal);
                    at += 2;
                }
                (b'$' | b'%', Some(digit @ b'0'..=b'9')) => {
                    let list = if byte == b'$' { groups } else { last };
                    let group = list.get(usize::from(digit - b'0')).map_or(&[][..], Vec::as_slice);
                    match escape {
                        Some((only, as_20)) => escape_group(group, only, as_20, &mut out),
                        None => out.extend_from_slice(group),
                    }
                    at += 2;
                }
                (b'%', Some(b'{')) => match text.get(at + 2..).and_then(|rest| rest.find('}')) {
                    Some(length) => {
                        let name = text.get(at + 2..at + 2 + length).unwrap_or_default();
                        out.extend(self.variable(name, asks));
                        at += length + 3;
                    }
                    None => {
                        out.push(byte);
                        at += 1;
                    }
                },
                (b'$', Some(b'{')) => match text.get(at..).and_then(|rest| rest.find('}')) {
                    Some(length) => at += length + 1,
                    None => {
                        out.push(byte);
                        at += 1;
                    }
                },
                _ => {
                    out.push(byte);
                    at += 1;
                }
            }
        }
        Ok(out)
    }

    fn variable(&self, name: &str, asks: &mut dyn RuleEnvironment) -> Vec<u8> {
        if let Some(env) = name.strip_prefix("ENV:").or(name.strip_prefix("env:")) {
            return match self.env.iter().rev().find(|(own, _)| own == env) {
                Some((_, value)) => value.clone().unwrap_or_default(),
                None => asks.variable(name),
            };
        }
        match name {
            "REQUEST_FILENAME" | "SCRIPT_FILENAME" => self.filename.clone(),
            "PATH_INFO" => self.path_info.clone(),
            "REQUEST_URI" => self.uri.to_vec(),
            "QUERY_STRING" => self.args.clone(),
            _ => asks.variable(name),
        }
    }
}

/// Tells whether a text depends only on the document root.
fn is_constant(text: &str) -> bool {
    let bare = text.replace("%{DOCUMENT_ROOT}", "").replace("%{CONTEXT_DOCUMENT_ROOT}", "");
    !bare.contains(['$', '%'])
}

fn is_absolute(text: &[u8]) -> bool {
    const SCHEMES: &[&str] =
        &["http://", "https://", "ftp://", "ws://", "wss://", "ldap://", "mailto:", "news:", "gopher://"];
    SCHEMES
        .iter()
        .any(|scheme| text.get(..scheme.len()).is_some_and(|head| head.eq_ignore_ascii_case(scheme.as_bytes())))
}

/// Escapes a path (Apache: `ap_escape_uri`).
pub fn escape_uri(text: &[u8], out: &mut Vec<u8>) {
    for byte in text {
        if byte.is_ascii_alphanumeric() || b"$-_.+!*'(),:;@&=/~".contains(byte) {
            out.push(*byte);
        } else {
            out.extend_from_slice(format!("%{byte:02x}").as_bytes());
        }
    }
}

fn escape_group(text: &[u8], only: &str, as_20: bool, out: &mut Vec<u8>) {
    for byte in text {
        let plain = byte.is_ascii_alphanumeric() || *byte == b'_';
        let escapes = if only.is_empty() { !plain } else { only.as_bytes().contains(byte) };
        match (escapes, byte) {
            (false, byte) => out.push(*byte),
            (true, b' ') if !as_20 => out.push(b'+'),
            (true, byte) => out.extend_from_slice(format!("%{byte:02x}").as_bytes()),
        }
    }
}
