//! Rules in Apache's own language, for `htaccess_rules`: sections that merge in Apache, and exclude each other in nginx, are left
//! to the engine that reads .htaccess files. A line that it does not know closes its place if it decides about access, or if
//! the place's files would be served as text without it.

use super::{Converter, Server};
use htaccess::reader::section_holds;
use htaccess::settings::WITHOUT_EFFECT;
use htaccess::syntax::{SyntaxLine, raw_words};

/// Longest part of a line in one word of the result, in bytes; nginx's words have at most 4096, and backslashes double.
const PART_BYTES_MAX: usize = 1900;

/// Beginnings of directives that decide about access.
const CLOSING: &[&str] = &[
    "allow",
    "anonymous",
    "auth",
    "cas",
    "dbd",
    "deny",
    "digest",
    "gss",
    "kerb",
    "krb",
    "ldap",
    "mellon",
    "nssrequire",
    "ntlm",
    "oidc",
    "openid",
    "order",
    "pam",
    "qs_deny",
    "qs_permit",
    "radius",
    "require",
    "satisfy",
    "secaction",
    "secrule",
    "session",
    "shib",
    "sspi",
    "sslopenssl",
    "sslrequire",
    "sslverify",
    "useshib",
];

/// Lines of rules that belong together: a directive, a section, or a rewriting rule with its conditions.
struct RuleGroup {
    lines: Vec<String>,
    decides_access: bool,
}

/// Rules of one place.
#[derive(Default)]
pub(super) struct PlaceRules {
    groups: Vec<RuleGroup>,
    /// A line about access has no counterpart.
    is_closed: bool,
}

impl PlaceRules {
    fn push(&mut self, line: String, name: &str) {
        self.groups.push(RuleGroup { lines: vec![line], decides_access: decides_access(name) });
    }
    /// Denies the place instead of applying a part of its access rules.
    pub(super) fn lines(self) -> Vec<String> {
        let closed = self.is_closed;
        let kept = self.groups.into_iter().filter(|group| !(closed && group.decides_access));
        let mut lines: Vec<String> = kept.flat_map(|group| group.lines).collect();
        if closed {
            lines.push("Require all denied".into());
        }
        lines
    }
    /// Denies files by their names.
    pub(super) fn deny_names(&mut self, pattern: &str) {
        let lines =
            vec![format!("<FilesMatch \"{pattern}\">"), "    Require all denied".into(), "</FilesMatch>".into()];
        self.groups.push(RuleGroup { lines, decides_access: false });
    }
    pub(super) fn is_closed(&self) -> bool {
        self.is_closed
    }
}

fn decides_access(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    CLOSING.iter().any(|head| name.starts_with(head))
}

/// Tells whether any line decides about access, at any depth.
pub(super) fn closes(lines: &[SyntaxLine]) -> bool {
    lines.iter().any(|line| decides_access(&line.name) || line.section.as_deref().is_some_and(closes))
}

/// Word of a section that the engine merges.
fn merges(name: &str) -> bool {
    matches!(
        name,
        "directory"
            | "directorymatch"
            | "files"
            | "filesmatch"
            | "location"
            | "locationmatch"
            | "limit"
            | "limitexcept"
    )
}

fn requires(name: &str) -> bool {
    matches!(name, "requireall" | "requireany" | "requirenone")
}

/// Text of a line with everything inside.
fn whole(line: &SyntaxLine) -> Vec<String> {
    match &line.section {
        None => vec![format!("{} {}", line.name, line.rest)],
        Some(inner) => {
            let mut lines = vec![format!("<{} {}>", line.name, line.rest)];
            lines.extend(inner.iter().flat_map(whole));
            lines.push(format!("</{}>", line.name));
            lines
        }
    }
}

/// Tells whether the engine takes lines inside of the sections that are open.
fn is_known(lines: &[String], open: &[String]) -> Result<(), String> {
    let mut text: Vec<String> = open.to_vec();
    text.extend(lines.iter().cloned());
    text.extend(open.iter().rev().map(|head| format!("</{}>", head_name(head))));
    htaccess::rules::read_rules(&text.join("\n")).map(|_| ()).map_err(|e| e.text)
}

fn head_name(head: &str) -> &str {
    head.trim_start_matches('<').split([' ', '>']).next().unwrap_or_default()
}

/// Splits long lines into words of the result, which Apache's continuation joins again.
pub(super) fn words(lines: &[String]) -> Vec<String> {
    let mut out = Vec::new();
    for line in lines {
        let mut rest = line.as_str();
        while rest.len() > PART_BYTES_MAX {
            // A part that ended with a backslash would end with two.
            let fits =
                |at: &usize| rest.is_char_boundary(*at) && !rest.get(..*at).is_some_and(|part| part.ends_with('\\'));
            let at = (1..=PART_BYTES_MAX).rev().find(fits).unwrap_or(PART_BYTES_MAX);
            let Some((part, after)) = rest.split_at_checked(at) else { break };
            out.push(format!("{part}\\"));
            rest = after;
        }
        out.push(rest.to_string());
    }
    out
}

impl Converter<'_> {
    /// Translates the lines of a place; `open`: heads of the sections around them.
    pub(super) fn place(&mut self, lines: &[SyntaxLine], open: &[String], server: &mut Server) -> PlaceRules {
        let mut place = PlaceRules::default();
        let mut waiting = Vec::new();
        self.place_lines(lines, open, server, &mut place, &mut waiting);
        place
    }

    fn place_lines(
        &mut self,
        lines: &[SyntaxLine],
        open: &[String],
        server: &mut Server,
        place: &mut PlaceRules,
        waiting: &mut Vec<SyntaxLine>,
    ) {
        for line in lines {
            if let Some(inner) = &line.section {
                match self.holds(line) {
                    Some(true) => self.place_lines(inner, open, server, place, waiting),
                    Some(false) => self.skip(line, inner, place, server),
                    None => self.section(line, inner, open, server, place),
                }
                continue;
            }
            let name = line.name.to_ascii_lowercase();
            let text = format!("{} {}", line.name, self.filled(&line.rest)).trim_end().to_string();
            match name.as_str() {
                "include" | "includeoptional" => {
                    for (file, lines) in self.included(line) {
                        let own = std::mem::replace(&mut self.file, file);
                        self.include_depth += 1;
                        self.place_lines(&lines, open, server, place, waiting);
                        self.include_depth -= 1;
                        self.file = own;
                    }
                }
                "accessfilename" if line.args.as_slice() != [".htaccess"] => {
                    self.fail(line, "files with other names are not read");
                }
                "accessfilename" => {}
                "rewritecond" => waiting.push(line.clone()),
                "rewriterule" => {
                    let conditions = std::mem::take(waiting);
                    self.rewriting(line, &conditions, open, server, place);
                }
                "options" => self.options(line, open, server, place),
                "authuserfile" | "authgroupfile" => {
                    let path = self.absolute(line.arg(0));
                    place.push(format!("{} \"{path}\"", line.name), &name);
                }
                _ if WITHOUT_EFFECT.iter().any(|(own, _)| line.is(own)) && !self.is_server_word(&name) => {
                    let why = WITHOUT_EFFECT.iter().find(|(own, _)| line.is(own)).map_or("", |(_, why)| *why);
                    self.leave(line, &format!("it has no effect here: {why}"), &mut server.block);
                }
                _ => match self.word(line, &name, open, server, place) {
                    Some(Ok(())) => {}
                    Some(Err(why)) => {
                        self.leave(line, &why, &mut server.block);
                        place.is_closed |= why.starts_with(super::CLOSED);
                    }
                    None => match is_known(std::slice::from_ref(&text), open) {
                        Ok(()) => place.push(text, &name),
                        Err(why) => {
                            self.leave(line, &why, &mut server.block);
                            place.is_closed |= decides_access(&name);
                        }
                    },
                },
            }
        }
    }

    /// Evaluates a condition on modules, definitions or the version.
    pub(super) fn holds(&self, line: &SyntaxLine) -> Option<bool> {
        let (negated, word) = line.arg(0).strip_prefix('!').map_or((false, line.arg(0)), |word| (true, word));
        if line.is("IfDefine") {
            return Some(self.defines.contains_key(word) != negated);
        }
        if line.is("IfModule") && super::usual(word) {
            return Some(!negated);
        }
        section_holds(line)
    }

    /// Skips the lines of a module that is not there. The real server may have it, so access rules inside close the place.
    fn skip(&mut self, line: &SyntaxLine, inner: &[SyntaxLine], place: &mut PlaceRules, server: &mut Server) {
        let (negated, word) = line.arg(0).strip_prefix('!').map_or((false, line.arg(0)), |word| (true, word));
        let is_unknown = line.is("IfModule") && !negated && !super::is_of_php(word);
        if is_unknown && closes(inner) {
            self.leave(line, "the module is not known here, and its lines decide about access", &mut server.block);
            place.is_closed = true;
        }
    }

    fn section(
        &mut self,
        line: &SyntaxLine,
        inner: &[SyntaxLine],
        open: &[String],
        server: &mut Server,
        place: &mut PlaceRules,
    ) {
        let name = line.name.to_ascii_lowercase();
        if requires(&name) {
            let lines: Vec<String> = whole(line).iter().map(|line| self.filled(line)).collect();
            match is_known(&lines, open) {
                Ok(()) => place.groups.push(RuleGroup { lines, decides_access: true }),
                Err(why) => {
                    self.leave(line, &why, &mut server.block);
                    place.is_closed = true;
                }
            }
            return;
        }
        if !merges(&name) {
            let why = "this section has no translation";
            match closes(inner) {
                true => self.fail(line, why),
                false => self.leave(line, why, &mut server.block),
            }
            return;
        }
        let mut head = format!("<{} {}>", line.name, self.filled(&line.rest));
        if name == "directory" && line.args.len() == 1 && !line.arg(0).starts_with('/') {
            head = format!("<{} \"{}\">", line.name, self.absolute(line.arg(0)));
        }
        let mut within = open.to_vec();
        within.push(head.clone());
        if let Err(why) = is_known(&[], &within) {
            self.leave(line, &why, &mut server.block);
            // The section may deny, and its names are not known.
            if closes(inner) {
                place.is_closed = true;
            }
            return;
        }
        let own = self.place(inner, &within, server);
        let decides_access = matches!(name.as_str(), "limit" | "limitexcept") && closes(inner);
        if own.is_closed && decides_access {
            place.is_closed = true;
        }
        let mut lines = own.lines();
        if lines.is_empty() {
            return;
        }
        lines.iter_mut().for_each(|line| line.insert_str(0, "    "));
        lines.insert(0, head);
        lines.push(format!("</{}>", line.name));
        place.groups.push(RuleGroup { lines, decides_access });
    }

    /// A rewriting rule with its conditions; one that the engine does not know refuses the requests that it matches.
    fn rewriting(
        &mut self,
        line: &SyntaxLine,
        conditions: &[SyntaxLine],
        open: &[String],
        server: &mut Server,
        place: &mut PlaceRules,
    ) {
        let text = |line: &SyntaxLine| format!("{} {}", line.name, line.rest);
        let mut lines: Vec<String> = conditions.iter().map(|line| self.filled(&text(line))).collect();
        lines.push(self.filled(&text(line)));
        let Err(why) = is_known(&lines, open) else {
            place.groups.push(RuleGroup { lines, decides_access: false });
            return;
        };
        let words = raw_words(&line.rest);
        let flags = words.get(2).map_or("", String::as_str).to_ascii_uppercase();
        let only_sets = words.get(1).is_some_and(|target| target == "-")
            && !flags.trim_matches(['[', ']']).split(',').any(|flag| {
                let flag = flag.trim();
                flag.starts_with('F') || flag.starts_with('G') || flag.starts_with('R') || flag == "P"
            });
        let upgrades = words.get(1).is_some_and(|target| target.starts_with("ws://") || target.starts_with("wss://"));
        if upgrades && self.has_proxy {
            self.upgrades = true;
            return;
        }
        self.leave(line, &why, &mut server.block);
        if only_sets {
            return;
        }
        let pattern = words.first().map_or("^", String::as_str);
        let refuses = |pattern: &str| format!("RewriteRule \"{pattern}\" - [F]");
        let lines = match is_known(&[refuses(pattern)], open) {
            Ok(()) if !pattern.contains('"') => vec![refuses(pattern)],
            _ => vec![refuses("^")],
        };
        place.groups.push(RuleGroup { lines, decides_access: false });
    }

    /// `Options`, without the words that the engine does not know.
    fn options(&mut self, line: &SyntaxLine, open: &[String], server: &mut Server, place: &mut PlaceRules) {
        let is_other = |word: &String| {
            let bare = word.trim_start_matches(['+', '-']).to_ascii_lowercase();
            matches!(bare.as_str(), "multiviews" | "includes" | "includesnoexec" | "runscripts")
        };
        let (others, words): (Vec<String>, Vec<String>) = line.args.iter().cloned().partition(is_other);
        if others.iter().any(|word| !word.starts_with('-')) {
            let why = "MultiViews and server-side includes are not supported: see try_files and ssi";
            self.leave(line, why, &mut server.block);
        }
        // `Options Includes` alone switches all others off.
        let words = if words.is_empty() && others.iter().any(|word| !word.starts_with(['+', '-'])) {
            vec!["None".to_string()]
        } else {
            words
        };
        if words.is_empty() {
            return;
        }
        let text = format!("Options {}", words.join(" "));
        match is_known(std::slice::from_ref(&text), open) {
            Ok(()) => place.push(text, "options"),
            Err(why) => self.fail(line, &why),
        }
    }
}
