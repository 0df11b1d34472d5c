//! Rewriting: front controllers as `try_files`, all else as `rewrite`, `return` and `if` in the server block.
//! nginx runs that block once, Apache its per-directory rules until nothing changes; rules that depend on it are left.

use super::directives::regex_quoted;
use super::{Block, word};
use crate::scope::quoted;
use htaccess::rewrite::{Condition, Rule, Test};
use htaccess::syntax::Line;

#[derive(Clone, Debug, Default)]
pub struct Rewrites {
    on: bool,
    base: Option<String>,
    waiting: Vec<Line>,
    lines: Vec<String>,
    fronts: Vec<Front>,
    count: usize,
    written: Vec<(String, Line)>,
    /// A rule was left: later ones may depend on it.
    scripts: bool,
}

/// Front controller: missing files are answered by one script.
#[derive(Clone, Debug)]
struct Front {
    base: String,
    target: String,
    folders: bool,
    /// Pattern with one group and its replacement; `None`: the script alone.
    rewrite: Option<(String, String)>,
}

impl Rewrites {
    pub fn names_scripts(&self) -> bool {
        self.scripts
    }

    pub fn is_empty(&self) -> bool {
        self.written.is_empty()
    }
    /// Original rules, each with its file.
    pub fn written(&self) -> &[(String, Line)] {
        &self.written
    }

    /// Takes a `Rewrite...` line; `dir` is the directory of a .htaccess file or `<Directory>`. Fails with the reason to
    /// leave it.
    pub fn take(&mut self, line: &Line, dir: Option<&str>, file: &str) -> Result<(), String> {
        match line.name.to_ascii_lowercase().as_str() {
            "rewriteengine" => self.on = line.arg(0).eq_ignore_ascii_case("on"),
            "rewritebase" => self.base = Some(line.arg(0).to_string()),
            "rewritecond" => {
                Condition::parse(line.number, &line.rest)?;
                self.waiting.push(line.clone());
            }
            "rewriterule" => {
                let waiting = std::mem::take(&mut self.waiting);
                let parse = |line: &Line| Condition::parse(line.number, &line.rest);
                let conditions = waiting.iter().map(parse).collect::<Result<Vec<_>, _>>()?;
                let rule = Rule::parse(line.number, &line.rest, conditions)?;
                self.rule(&rule, dir, &format!("{file}:{}", line.number))?;
                self.written.push((file.to_string(), line.clone()));
            }
            "rewriteoptions" if line.args.iter().all(|word| word.eq_ignore_ascii_case("inherit")) => {}
            "rewritelog" | "rewriteloglevel" => {}
            _ => return Err("it has no translation".into()),
        }
        Ok(())
    }

    fn rule(&mut self, rule: &Rule, dir: Option<&str>, place: &str) -> Result<(), String> {
        let flags = &rule.flags;
        if flags.next || flags.chain || flags.skip > 0 {
            return Err("rounds, chains and skips have no translation; \"htaccess on\" supports them".into());
        }
        if flags.media_type.is_some() {
            return Err("[T] has no translation".into());
        }
        if rule.substitution.is_none() && !flags.env.is_empty() && flags.status.is_none() {
            let known = flags.env.iter().all(|(name, _)| name == "HTTP_AUTHORIZATION" || name == "BASE");
            return if known { Ok(()) } else { Err("variables: set them where requests are proxied".into()) };
        }
        if rule.substitution.as_deref().is_some_and(|target| target.contains("%{ENV:BASE}")) && flags.status.is_some() {
            return Err("a rule against the script name in URLs: \"htaccess on\" supports it".into());
        }
        let base = self.base.clone().or_else(|| dir.map(str::to_string)).unwrap_or_else(|| "/".into());
        let base = format!("{}/", base.trim_end_matches('/'));
        if let Some(front) = dir.and_then(|_| front(rule, &base)) {
            self.scripts |= front.target.contains(".php");
            self.fronts.retain(|other| other.base != front.base);
            self.fronts.push(front);
            return Ok(());
        }
        // The exception "index.php stays as it is" belongs to a front controller.
        if rule.substitution.is_none()
            && flags.status.is_none()
            && rule.conditions.is_empty()
            && rule.pattern.text.ends_with(".php$")
        {
            return Ok(());
        }
        let mut lines = vec![format!("# {place}")];
        let subject = if dir.is_some() { pattern_of(&rule.pattern.text, &base) } else { rule.pattern.text.clone() };
        let mut used = groups_of_conditions(rule);
        let action = self.action(rule, &subject, dir.is_some().then_some(base.as_str()), &mut used)?;
        self.count += 1;
        let flag = format!("$rewrite_{}", self.count);
        match rule.conditions.as_slice() {
            [] => lines.extend(action),
            [only] => {
                lines.push(format!("if ({}) {{", test(only)?));
                // The rewrite's groups replace the condition's.
                lines.extend(used.iter().map(|number| format!("set {flag}_{number} ${number};")));
                lines.extend(action);
                lines.push("}".into());
            }
            _ => {
                let all = self.counted(rule, &flag, &used, &mut lines)?;
                lines.push(format!("if ({all}) {{"));
                lines.extend(action);
                lines.push("}".into());
            }
        }
        self.scripts |= lines.iter().any(|line| line.contains(".php"));
        self.lines.extend(lines);
        Ok(())
    }

    /// Joins conditions: each (or one of those joined by OR) adds a digit to a variable, and all digits must be
    /// present. Returns the last `if`'s test.
    fn counted(&self, rule: &Rule, flag: &str, used: &[usize], lines: &mut Vec<String>) -> Result<String, String> {
        lines.push(format!("set {flag} \"\";"));
        lines.push(format!("set {flag}_or \"\";"));
        for number in used {
            lines.push(format!("set {flag}_{number} \"\";"));
        }
        let mut wanted = String::new();
        let mut group: Vec<&Condition> = Vec::new();
        let last = rule.conditions.len() - 1;
        for (index, condition) in rule.conditions.iter().enumerate() {
            group.push(condition);
            if condition.or && index != last {
                continue;
            }
            for condition in group.drain(..) {
                lines.push(format!("if ({}) {{", test(condition)?));
                lines.push(format!("set {flag}_or 1;"));
                if matches!(condition.test, Test::Pattern(_)) && !condition.negated {
                    for number in used {
                        lines.push(format!("set {flag}_{number} ${number};"));
                    }
                }
                lines.push("}".into());
            }
            lines.push(format!(
                "set {flag} \"${{{}}}${{{}_or}}\";",
                flag.trim_start_matches('$'),
                flag.trim_start_matches('$')
            ));
            lines.push(format!("set {flag}_or \"\";"));
            wanted.push('1');
        }
        Ok(format!("{flag} = \"{wanted}\""))
    }

    fn action(
        &self,
        rule: &Rule,
        pattern: &str,
        base: Option<&str>,
        used: &mut Vec<usize>,
    ) -> Result<Vec<String>, String> {
        let flags = &rule.flags;
        let flag_name = format!("$rewrite_{}", self.count + 1);
        let case = if flags.ignore_case { "(?i)" } else { "" };
        let shown = word(&format!("{case}{pattern}"));
        let guard = |inner: String| -> Vec<String> {
            if !rule.pattern.negated && crate::pattern::Pattern::parse(pattern, false).is_some_and(|p| p.matches_all())
            {
                return vec![inner];
            }
            let sign = if rule.pattern.negated { "!~" } else { "~" };
            vec![format!("if ($uri {sign} {shown}) {{"), inner, "}".into()]
        };
        let narrow =
            rule.pattern.negated || !crate::pattern::Pattern::parse(pattern, false).is_some_and(|p| p.matches_all());
        if let Some(status) = flags.status.filter(|status| !(300..400).contains(status)) {
            if narrow && !rule.conditions.is_empty() {
                return Err("a status with both a pattern and conditions: write a location for the pattern".into());
            }
            return Ok(guard(format!("return {status};")));
        }
        let Some(target) = &rule.substitution else {
            if narrow && !rule.conditions.is_empty() {
                return Err("a stop with both a pattern and conditions has no translation".into());
            }
            return Ok(guard("break;".into()));
        };
        if rule.pattern.negated {
            return Err("a negated pattern with a target has no translation".into());
        }
        let mut made = target_of(target, base, &flag_name, used)?;
        let drops = flags.drop_args || (target.contains('?') && !flags.append_args);
        if made.ends_with('?') {
            made.pop();
        }
        if drops {
            made.push('?');
        }
        let kind = match flags.status {
            Some(301) => " permanent",
            Some(302) => " redirect",
            Some(_) => {
                if narrow || drops {
                    return Err("this redirect status has no translation: write a location with return".into());
                }
                return Ok(vec![format!(
                    "return {} {};",
                    flags.status.unwrap_or(302),
                    word(&format!("{made}$is_args$args"))
                )]);
            }
            None if made.starts_with("http://") || made.starts_with("https://") => " redirect",
            None if flags.last || flags.end => " last",
            None => "",
        };
        Ok(vec![format!("rewrite {shown} {}{kind};", word(&made))])
    }

    pub fn write(&mut self, block: &mut Block) {
        if !self.on {
            return;
        }
        block.lines.append(&mut self.lines);
        for (index, front) in self.fronts.iter().enumerate() {
            let words = if front.base == "/" { "/".to_string() } else { front.base.clone() };
            let known = format!("^~ {words}");
            let words = if block.locations.iter().any(|(own, _)| *own == known) { known } else { words };
            let folders = if front.folders { " $uri/" } else { "" };
            match &front.rewrite {
                None => {
                    let line = format!("try_files $uri{folders} {}$is_args$args;", front.target);
                    block.location(&words).line(line);
                }
                Some((pattern, target)) => {
                    let name = format!("@front{}", if index == 0 { String::new() } else { index.to_string() });
                    block.location(&words).line(format!("try_files $uri{folders} {name};"));
                    block.location(&name).line(format!("rewrite {} {} last;", word(pattern), word(target)));
                }
            }
        }
    }
}

/// Recognizes a front controller: everything that is no file (and no directory) goes to one script.
fn front(rule: &Rule, base: &str) -> Option<Front> {
    let (mut files, mut folders) = (false, false);
    for condition in &rule.conditions {
        let of_file = matches!(
            condition.subject.as_str(),
            "%{REQUEST_FILENAME}" | "%{SCRIPT_FILENAME}" | "%{DOCUMENT_ROOT}%{REQUEST_URI}"
        );
        match (&condition.test, condition.negated, of_file, condition.or) {
            (Test::File('f'), true, true, false) => files = true,
            (Test::File('d'), true, true, false) => folders = true,
            (Test::File('l' | 'L' | 'h'), true, true, false) => {}
            (Test::Pattern(pattern), true, _, false)
                if pattern.text.contains("index\\.php") || pattern.text.contains("favicon") => {}
            _ => return None,
        }
    }
    let target = rule.substitution.as_ref()?;
    let group = matches!(rule.pattern.text.as_str(), "^(.*)$" | "(.*)" | "^(.+)$" | "(.+)");
    let all = group || matches!(rule.pattern.text.as_str(), "." | ".*" | "^" | "^.*$" | "^.+$" | "^.*");
    if !files
        || !all
        || rule.flags.status.is_some()
        || rule.pattern.negated
        || target.contains('%') && !target.starts_with("%{ENV:BASE}")
    {
        return None;
    }
    let target = target.strip_prefix("%{ENV:BASE}").unwrap_or(target);
    let absolute = if target.starts_with('/') { target.to_string() } else { format!("{base}{target}") };
    if absolute.contains("://") {
        return None;
    }
    if !absolute.contains('$') && !absolute.contains('?') {
        return Some(Front { base: base.into(), target: absolute, folders, rewrite: None });
    }
    let pattern = format!("^{}(.*)$", regex_quoted(base));
    let keeps = rule.flags.append_args || !absolute.contains('?');
    let to = format!("{}{}", absolute.replace("$0", "$1"), if keeps { "" } else { "?" });
    let script = absolute.split(['?', '$']).next().unwrap_or_default().trim_end_matches('/').to_string();
    Some(Front { base: base.into(), target: script, folders, rewrite: Some((pattern, to)) })
}

fn pattern_of(text: &str, base: &str) -> String {
    match text.strip_prefix('^') {
        Some(rest) => format!("^{}{rest}", regex_quoted(base)),
        None => format!("^{}.*?{text}", regex_quoted(base)),
    }
}

/// Numbers of the conditions' groups used by a rule (`%1`).
fn groups_of_conditions(rule: &Rule) -> Vec<usize> {
    let target = rule.substitution.as_deref().unwrap_or_default();
    (1..=9).filter(|number| target.contains(&format!("%{number}"))).collect()
}

fn target_of(text: &str, base: Option<&str>, flag: &str, used: &mut Vec<usize>) -> Result<String, String> {
    let mut out = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['%', '\\']) {
        out.push_str(rest.get(..at).unwrap_or_default());
        rest = rest.get(at..).unwrap_or_default();
        if let Some(after) = rest.strip_prefix('\\') {
            let mut chars = after.chars();
            out.extend(chars.next());
            rest = chars.as_str();
        } else if let Some((name, after)) = rest.strip_prefix("%{").and_then(|inner| inner.split_once('}')) {
            out.push_str(&variable(name).ok_or_else(|| format!("%{{{name}}} has no translation"))?);
            rest = after;
        } else if let Some(digit) = rest.get(1..2).and_then(|c| c.parse::<usize>().ok()) {
            if !used.contains(&digit) {
                used.push(digit);
            }
            out.push_str(&format!("${{{}_{digit}}}", flag.trim_start_matches('$')));
            rest = rest.get(2..).unwrap_or_default();
        } else {
            out.push('%');
            rest = rest.get(1..).unwrap_or_default();
        }
    }
    out.push_str(rest);
    if out.contains("$0") {
        return Err("$0 has no translation".into());
    }
    let relative = !out.starts_with('/') && !out.contains("://") && !out.starts_with('$');
    Ok(match base {
        Some(base) if relative => format!("{base}{out}"),
        _ => out,
    })
}

fn variable(name: &str) -> Option<String> {
    Some(match name {
        "REQUEST_URI" => "$uri".into(),
        "REQUEST_FILENAME" | "SCRIPT_FILENAME" => "$request_filename".into(),
        "QUERY_STRING" => "$args".into(),
        "HTTP_HOST" => "$http_host".into(),
        "SERVER_NAME" => "$host".into(),
        "SERVER_PORT" => "$server_port".into(),
        "SERVER_ADDR" => "$server_addr".into(),
        "SERVER_PROTOCOL" => "$server_protocol".into(),
        "REMOTE_ADDR" | "REMOTE_HOST" => "$remote_addr".into(),
        "REMOTE_PORT" => "$remote_port".into(),
        "REMOTE_USER" => "$remote_user".into(),
        "REQUEST_METHOD" => "$request_method".into(),
        "REQUEST_SCHEME" => "$scheme".into(),
        "DOCUMENT_ROOT" => "$document_root".into(),
        "THE_REQUEST" => "$request".into(),
        "HTTPS" => "$https".into(),
        _ => {
            let (head, field) = name.split_once(':').unwrap_or(("HTTP", name.strip_prefix("HTTP_")?));
            if head != "HTTP" {
                return None;
            }
            format!("$http_{}", field.to_ascii_lowercase().replace('-', "_"))
        }
    })
}

fn test(condition: &Condition) -> Result<String, String> {
    let subject = condition.subject.as_str();
    let name = subject.strip_prefix("%{").and_then(|rest| rest.strip_suffix('}'));
    let name =
        name.filter(|name| !name.contains('}')).ok_or_else(|| format!("a test of \"{subject}\" has no translation"))?;
    let variable = variable(name).ok_or_else(|| format!("%{{{name}}} has no translation"))?;
    let not = if condition.negated { "!" } else { "" };
    Ok(match &condition.test {
        Test::File('f') => format!("{not}-f {variable}"),
        Test::File('d') => format!("{not}-d {variable}"),
        Test::File('x') => format!("{not}-x {variable}"),
        Test::Text('=', value) if name == "HTTPS" => {
            // nginx's value is "on" or empty.
            let value = if value == "off" { "" } else { value };
            format!("{variable} {not}= {}", quoted(value, true))
        }
        Test::Text('=', value) if !value.contains(['%', '$']) => format!("{variable} {not}= {}", quoted(value, true)),
        Test::Pattern(pattern) if name == "HTTPS" => {
            let off = matches!(pattern.text.as_str(), "off" | "^off$");
            let on = matches!(pattern.text.as_str(), "on" | "^on$");
            if !off && !on {
                return Err("a pattern for HTTPS has no translation".into());
            }
            let is = on != condition.negated;
            format!("{variable} {} on", if is { "=" } else { "!=" })
        }
        Test::Pattern(pattern) => {
            let sign = if condition.ignore_case { "~*" } else { "~" };
            format!("{variable} {not}{sign} {}", quoted(&pattern.text, pattern.text.contains(['(', ')'])))
        }
        _ => return Err("this test has no translation".into()),
    })
}
