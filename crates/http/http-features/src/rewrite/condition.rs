//! Condition of an `if`.

use super::script::Script;
use conf_schema::{Cx, Directive, Problem};
use http_engine::core_table::SymlinkMode;
use http_engine::path::bytes_path;
use http_engine::regex::{HttpPattern, MatchFailed};
use http_engine::template::HttpTemplate;
use http_engine::variable::{HttpVariables, VarId, directive_place};
use http_engine::{Request, file_paths};
use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

#[derive(Clone)]
pub enum Condition {
    /// Neither empty nor `0`.
    True(VarId),
    Equal {
        variable: VarId,
        value: HttpTemplate,
        negative: bool,
    },
    Matches {
        variable: VarId,
        pattern: Arc<HttpPattern>,
        negative: bool,
    },
    File {
        test: Test,
        path: HttpTemplate,
        negative: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    File,
    Folder,
    Exists,
    Executable,
}

impl Condition {
    /// Fails with nginx's message on an invalid condition.
    pub fn parse(cx: &mut Cx, d: &Directive) -> Result<Condition, Problem> {
        let mut words: Vec<Vec<u8>> = d.args.iter().map(|w| w.bytes.clone()).collect();
        let shown = |w: &[u8]| String::from_utf8_lossy(w).into_owned();
        let invalid = |w: &[u8]| Problem::says(format!("invalid condition \"{}\"", shown(w)));
        let (Some(first), Some(last)) = (words.first().cloned(), words.last().cloned()) else {
            return Err(Problem::invalid());
        };
        if first.first() != Some(&b'(') {
            return Err(invalid(&first).at(0));
        }
        if last.last() != Some(&b')') {
            return Err(invalid(&last).at(words.len() - 1));
        }
        if let Some(first) = words.first_mut() {
            first.remove(0);
        }
        if let Some(last) = words.last_mut() {
            last.pop();
        }
        if words.first().is_some_and(Vec::is_empty) {
            words.remove(0);
        }
        if words.last().is_some_and(|w| w.is_empty() && !d.args.last().is_some_and(|w| w.quoted)) {
            words.pop();
        }
        let Some(head) = words.first() else { return Err(invalid(b"")) };
        if let [b'$', name @ ..] = head.as_slice() {
            if name.is_empty() {
                return Err(Problem::says(format!("invalid variable name \"{}\"", shown(head))));
            }
            let name = name.strip_prefix(b"{").and_then(|n| n.strip_suffix(b"}")).unwrap_or(name);
            let variable = cx.get::<HttpVariables>().read(&shown(name), directive_place(d));
            return match words.as_slice() {
                [_] => Ok(Condition::True(variable)),
                [_, operator, value] => match operator.as_slice() {
                    b"=" | b"!=" => {
                        let value = HttpTemplate::compile(cx, d, value)?;
                        Ok(Condition::Equal { variable, value, negative: operator == b"!=" })
                    }
                    b"~" | b"~*" | b"!~" | b"!~*" => {
                        let pattern = Arc::new(HttpPattern::new(cx, value, operator.ends_with(b"*"))?);
                        Ok(Condition::Matches { variable, pattern, negative: operator.starts_with(b"!") })
                    }
                    other => Err(Problem::says(format!("unexpected \"{}\" in condition", shown(other)))
                        .hint("one of: =, !=, ~, ~*, !~, !~*")),
                },
                _ => Err(invalid(head)),
            };
        }
        let (negative, test) = match head.as_slice() {
            [b'!', rest @ ..] => (true, rest),
            rest => (false, rest),
        };
        let test = match test {
            b"-f" => Test::File,
            b"-d" => Test::Folder,
            b"-e" => Test::Exists,
            b"-x" => Test::Executable,
            _ => return Err(invalid(head)),
        };
        let [_, path] = words.as_slice() else { return Err(invalid(head)) };
        Ok(Condition::File { test, path: HttpTemplate::compile(cx, d, path)?, negative })
    }

    /// Fails when a pattern exceeds its limits.
    pub fn holds(&self, r: &mut Request, script: &Script) -> Result<bool, MatchFailed> {
        let mut value = Vec::new();
        Ok(match self {
            Condition::True(variable) => {
                r.variable(*variable, &mut value);
                !value.is_empty() && value != b"0"
            }
            Condition::Equal { variable, value: wanted, negative } => {
                r.variable(*variable, &mut value);
                (value == script.value(r, wanted)) != *negative
            }
            Condition::Matches { variable, pattern, negative } => {
                r.variable(*variable, &mut value);
                let matched = pattern.run(r, &value)?;
                if !matched {
                    r.target.captures_mut().clear();
                }
                matched != *negative
            }
            Condition::File { test, path, negative } => {
                let path = path.eval(r);
                let mut found = std::fs::metadata(bytes_path(&path));
                if r.loc().core.conf.disable_symlinks.mode != SymlinkMode::Allowed
                    && let Err(e) = file_paths::probe_path(r, &path)
                {
                    found = Err(e);
                }
                let found = found.is_ok_and(|m| match test {
                    Test::File => m.is_file(),
                    Test::Folder => m.is_dir(),
                    Test::Exists => true,
                    Test::Executable => m.permissions().mode() & 0o111 != 0,
                });
                found != *negative
            }
        })
    }
}
