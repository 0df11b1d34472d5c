//! Runs SSI commands: checks their parameters and context, and queues their output. [`super::parse`] finds them.

use super::TimeForm;
use super::page::{PagePart, SsiPage};
use super::parse::SsiCommand;
use super::state::{self, CommandFailed, PageState};
use bytes::Bytes;
use http_engine::{Request, path, subrequest};
use observe::Severity;

/// Commands with their parameters; `!` marks required ones.
const COMMANDS: &[(&str, &[&str])] = &[
    ("include", &["virtual", "file", "wait", "set", "stub"]),
    ("echo", &["!var", "default", "encoding"]),
    ("config", &["errmsg", "timefmt"]),
    ("set", &["!var", "!value"]),
    ("if", &["!expr"]),
    ("elif", &["!expr"]),
    ("else", &[]),
    ("endif", &[]),
    ("block", &["!name"]),
    ("endblock", &[]),
];

/// Maximum number of parameters of a command (`NGX_HTTP_SSI_MAX_PARAMS`).
const PARAMS_MAX: usize = 16;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Branch {
    #[default]
    Outside,
    If,
    Else,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Encoding {
    Nothing,
    Url,
    #[default]
    Entity,
}

fn fail(r: &mut Request, words: std::fmt::Arguments<'_>) -> CommandFailed {
    r.log(Severity::Error, words);
    CommandFailed
}

fn shown(text: &[u8]) -> std::borrow::Cow<'_, str> {
    String::from_utf8_lossy(text)
}

impl SsiPage {
    /// Runs a command, or stores it inside a block.
    pub fn run(&mut self, r: &mut Request, command: &SsiCommand) -> Result<(), CommandFailed> {
        let name = shown(&command.name);
        let Some((_, params)) = COMMANDS.iter().find(|(known, _)| *known == name) else {
            if self.output {
                return Err(fail(r, format_args!("invalid SSI command: \"{name}\"")));
            }
            return Ok(());
        };
        let conditional = matches!(&*name, "elif" | "else" | "endif");
        if !self.output && name != "endblock" {
            if self.in_block {
                return self.shared.add_to_block(&command.text()).map_err(|words| fail(r, format_args!("{words}")));
            }
            if !conditional {
                return Ok(());
            }
        }
        let misplaced = match self.branch {
            Branch::Outside => conditional,
            Branch::If => false,
            Branch::Else => matches!(&*name, "elif" | "else"),
        };
        if misplaced {
            return Err(fail(r, format_args!("invalid context of SSI command: \"{name}\"")));
        }
        self.check(r, command, params)?;
        let param = |key: &str| command.params.iter().find(|(k, _)| k == key.as_bytes()).map(|(_, v)| v.as_slice());
        let must = |key: &str| param(key).unwrap_or_default();
        match &*name {
            "include" => self.include(r, param),
            "echo" => {
                self.echo(r, must("var"), param("default"), param("encoding"));
                Ok(())
            }
            "config" => {
                if let Some(form) = param("timefmt") {
                    r.keep(TimeForm(shown(form).into_owned()));
                }
                if let Some(text) = param("errmsg") {
                    self.errmsg = Bytes::copy_from_slice(text);
                }
                Ok(())
            }
            "set" => {
                let value = state::evaluate_text(r, must("value"))?;
                let set = self.shared.set(&must("var").to_ascii_lowercase(), value);
                set.map_err(|words| fail(r, format_args!("{words}")))
            }
            "if" if self.branch != Branch::Outside => {
                Err(fail(r, format_args!("the \"if\" command inside the \"if\" command")))
            }
            "if" | "elif" => self.choose(r, must("expr")),
            "else" => {
                self.output = !self.chosen;
                self.branch = Branch::Else;
                Ok(())
            }
            "endif" => {
                (self.output, self.chosen, self.branch) = (true, false, Branch::Outside);
                Ok(())
            }
            "block" => {
                self.shared.open_block(must("name"));
                (self.output, self.in_block) = (false, true);
                Ok(())
            }
            _ => {
                (self.output, self.in_block) = (true, false);
                Ok(())
            }
        }
    }

    fn check(&self, r: &mut Request, command: &SsiCommand, params: &[&str]) -> Result<(), CommandFailed> {
        let name = shown(&command.name);
        if command.params.len() > PARAMS_MAX {
            return Err(fail(r, format_args!("too many SSI command parameters: \"{name}\"")));
        }
        for (index, (key, _)) in command.params.iter().enumerate() {
            if !params.iter().any(|p| p.trim_start_matches('!').as_bytes() == key) {
                let key = shown(key);
                return Err(fail(r, format_args!("invalid parameter name: \"{key}\" in \"{name}\" SSI command")));
            }
            if command.params.iter().take(index).any(|(earlier, _)| earlier == key) {
                let key = shown(key);
                return Err(fail(r, format_args!("duplicate \"{key}\" parameter in \"{name}\" SSI command")));
            }
        }
        for must in params.iter().filter_map(|p| p.strip_prefix('!')) {
            if !command.params.iter().any(|(key, _)| key == must.as_bytes()) {
                let words = format_args!("mandatory \"{must}\" parameter is absent in \"{name}\" SSI command");
                return Err(fail(r, words));
            }
        }
        Ok(())
    }

    fn choose(&mut self, r: &mut Request, expression: &[u8]) -> Result<(), CommandFailed> {
        if self.chosen {
            self.output = false;
            return Ok(());
        }
        let holds = state::condition_holds(r, expression)?;
        (self.output, self.chosen) = (holds, holds);
        self.branch = Branch::If;
        Ok(())
    }

    fn echo(&mut self, r: &mut Request, name: &[u8], default: Option<&[u8]>, encoding: Option<&[u8]>) {
        let value = match state::variable_value(r, name) {
            Some(value) => value,
            None => default.unwrap_or(b"(none)").to_vec(),
        };
        if value.is_empty() {
            return;
        }
        match encoding {
            None => {}
            Some(b"none") => self.encoding = Encoding::Nothing,
            Some(b"url") => self.encoding = Encoding::Url,
            Some(b"entity") => self.encoding = Encoding::Entity,
            Some(other) => {
                let other = shown(other);
                r.log(Severity::Error, format_args!("unknown encoding \"{other}\" in the \"echo\" command"));
            }
        }
        self.put(match self.encoding {
            Encoding::Nothing => value.into(),
            Encoding::Url => escape_url(&value).into(),
            Encoding::Entity => escape_html(&value).into(),
        });
    }

    fn include<'a>(&mut self, r: &mut Request, param: impl Fn(&str) -> Option<&'a [u8]>) -> Result<(), CommandFailed> {
        let (uri, file, set, stub) = (param("virtual"), param("file"), param("set"), param("stub"));
        let target = match (uri, file) {
            (Some(uri), Some(file)) => {
                let (uri, file) = (shown(uri), shown(file));
                let words = format_args!("inclusion may be either virtual=\"{uri}\" or file=\"{file}\"");
                return Err(fail(r, words));
            }
            (None, None) => return Err(fail(r, format_args!("no parameter in \"include\" SSI command"))),
            (Some(target), None) | (None, Some(target)) => target,
        };
        if set.is_some() && stub.is_some() {
            let words = "\"set\" and \"stub\" cannot be used together in \"include\" SSI command";
            return Err(fail(r, format_args!("{words}")));
        }
        let wait = match param("wait") {
            None => file.is_some(),
            Some(_) if file.is_some() => {
                let file = shown(target);
                return Err(fail(r, format_args!("\"wait\" cannot be used with file=\"{file}\"")));
            }
            Some(word) if word.eq_ignore_ascii_case(b"no") => false,
            Some(word) if word.eq_ignore_ascii_case(b"yes") => true,
            Some(word) => {
                let word = shown(word);
                return Err(fail(r, format_args!("invalid value \"{word}\" in the \"wait\" parameter")));
            }
        };
        let mut target = state::evaluate_text(r, target)?;
        if !target.starts_with(b"/") && !target.is_empty() {
            let folder = r.target.path().iter().rposition(|c| *c == b'/').map_or(0, |at| at + 1);
            target.splice(0..0, r.target.path().get(..folder).unwrap_or_default().iter().copied());
        }
        let Ok((path, args)) = path::unsafe_uri(&target) else {
            let target = shown(&target);
            return Err(fail(r, format_args!("unsafe URI \"{target}\" was detected")));
        };
        let stub = match stub {
            None => None,
            Some(name) => match self.shared.block(name) {
                Some(block) => Some(Bytes::from(block)),
                None => {
                    let name = shown(name);
                    return Err(fail(r, format_args!("\"stub\"=\"{name}\" for \"include\" not found")));
                }
            },
        };
        let child = r.subrequest(path, args).map_err(|_| CommandFailed)?;
        if let Some(name) = set.map(<[u8]>::to_ascii_lowercase)
            && self.shared.get(&name).is_none()
        {
            // The variable exists while its value is being made, as in nginx.
            self.shared.set(&name, Vec::new()).map_err(|words| fail(r, format_args!("{words}")))?;
        }
        let part = match (set, stub) {
            (Some(name), _) => PagePart::Set(Box::pin(subrequest::in_memory(child)), name.to_ascii_lowercase()),
            (None, Some(stub)) => {
                PagePart::Include(subrequest::stream_or(child, stub, r.out.content_type().to_vec().into()))
            }
            (None, None) => PagePart::Include(subrequest::stream_later(child)),
        };
        self.queue.push_back(part);
        self.includes += 1;
        self.unstarted = true;
        self.waiting = wait || set.is_some();
        Ok(())
    }
}

/// Escapes the value of `echo` with `encoding="url"` (nginx: `NGX_ESCAPE_HTML`).
fn escape_url(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &c in text {
        if c <= b' ' || c >= 0x7f || b"\"#%'<>\\^`{|}".contains(&c) {
            out.extend_from_slice(format!("%{c:02X}").as_bytes());
        } else {
            out.push(c);
        }
    }
    out
}

fn escape_html(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    for &c in text {
        match c {
            b'<' => out.extend_from_slice(b"&lt;"),
            b'>' => out.extend_from_slice(b"&gt;"),
            b'&' => out.extend_from_slice(b"&amp;"),
            b'"' => out.extend_from_slice(b"&quot;"),
            c => out.push(c),
        }
    }
    out
}

pub fn page_state(r: &mut Request) -> std::rc::Rc<PageState> {
    PageState::of(r)
}
