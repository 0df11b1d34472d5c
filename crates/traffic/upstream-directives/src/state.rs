//! `state FILE` of a group: its servers, one `server` directive a line, as the commercial nginx writes them.

use super::servers::{Servers, StreamServers};
use conf_schema::complaint::ProblemWords;
use conf_schema::{Contexts, Cx, Directive, Problem, ValueKind};
use conf_syntax::{FileId, TreeItem, Word};
use keyval::state_file;
use observe::os_error;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use upstream::{Roster, ServerLine, ServerSource};

/// Maximum number of bytes of a state file, above that of any list that the API accepts.
const BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub struct StateFile {
    pub path: PathBuf,
    stream: bool,
}

/// `state`
#[derive(Clone, Debug)]
pub struct StateValue(pub Arc<StateFile>);

impl ValueKind for StateValue {
    const SYNTAX: &'static str = "file";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let name = d.args.first().map(|word| word.text().into_owned()).unwrap_or_default();
        if name.is_empty() {
            return Err(Problem::says("the name of the state file is empty").at(0));
        }
        let file = StateFile { path: cx.full_name(&name), stream: cx.context == Contexts::stream_upstream };
        if !cx.store.replay && !cx.store.elsewhere {
            file.read().map_err(|why| Problem::says(why).at(0))?;
        }
        Ok(StateValue(Arc::new(file)))
    }
}

impl StateFile {
    /// Reads the servers, none if there is no file. Blocks.
    ///
    /// # Errors
    /// The file cannot be read, or has something other than `server` directives.
    pub fn read(&self) -> Result<Vec<ServerLine>, String> {
        let path = self.path.display();
        let failed = |e: &std::io::Error| format!("open() \"{path}\" failed {}", os_error(e));
        let text = match std::fs::metadata(&self.path).map(|meta| meta.len()) {
            Ok(length) if length > BYTES_MAX => return Err(format!("the state file \"{path}\" is too large")),
            Ok(_) => conf_syntax::read_regular(&self.path).map_err(|e| failed(&e))?,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(e) => return Err(failed(&e)),
        };
        parse(&text, self.stream).map_err(|(line, why)| format!("{why} in {path}:{line}"))
    }
    /// Replaces the file: a reader finds the old or the new servers. Blocks until the disk has them.
    ///
    /// # Errors
    /// The failed call and its error; the old file is unchanged.
    pub fn write(&self, lines: &[ServerLine]) -> Result<(), String> {
        let mut text = String::new();
        for line in lines {
            let _ = writeln!(text, "{};", directive_words(line));
        }
        let replaced = state_file::replace_file(&self.path, text.as_bytes());
        replaced.map_err(|(call, e)| format!("{call}() \"{}\" failed {}", self.path.display(), os_error(&e)))
    }
    /// Reads the file into a group's roster, once in a process.
    ///
    /// # Errors
    /// As [`StateFile::read`].
    pub fn load(&self, roster: &Roster) -> Result<(), String> {
        roster.load(|| self.read())
    }
    /// Finds out whether this process, which may have given up privileges, can make files beside it.
    ///
    /// # Errors
    /// It cannot.
    pub fn check_folder(&self) -> std::io::Result<()> {
        let folder = self.path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let access = rustix::fs::Access::WRITE_OK | rustix::fs::Access::EXEC_OK;
        Ok(rustix::fs::access(folder, access)?)
    }
}

/// Parses the text of a state file; an error has its line.
fn parse(text: &[u8], stream: bool) -> Result<Vec<ServerLine>, (u32, String)> {
    let mut lines = Vec::new();
    for item in conf_syntax::parse_file(FileId(u32::MAX), text) {
        match item {
            TreeItem::Directive(d) if d.name.bytes == b"server" && !d.args.is_empty() && d.block.is_none() => {
                let at = d.line;
                lines.push(read_line(&d, stream).map_err(|problem| (at, problem_words(problem)))?);
            }
            TreeItem::Directive(d) => return Err((d.line, "only \"server\" directives may stand".into())),
            TreeItem::Error(e) => return Err((e.line, "invalid syntax".into())),
            TreeItem::Comment(_) => {}
        }
    }
    Ok(lines)
}

fn read_line(d: &Directive, stream: bool) -> Result<ServerLine, Problem> {
    let mut cx = Cx::default();
    let lines = if stream { StreamServers::parse(&mut cx, d)?.0 } else { Servers::parse(&mut cx, d)?.0 };
    lines.into_iter().next().ok_or_else(Problem::invalid)
}

/// Returns a problem in nginx's words.
pub fn problem_words(problem: Problem) -> String {
    match problem.words {
        ProblemWords::Says(words) => words,
        ProblemWords::Directive(words) => format!("\"server\" directive {words}"),
    }
}

/// Parses a server given by words, as the directive `server` does.
///
/// # Errors
/// nginx's message.
pub fn parse_server(words: &[String], stream: bool) -> Result<ServerLine, Problem> {
    let word = |text: &str| Word { bytes: text.into(), ..Word::default() };
    let args = words.iter().map(|text| word(text)).collect();
    read_line(&Directive { name: word("server"), args, ..Directive::default() }, stream)
}

/// Writes a time of the configuration: whole seconds if possible.
pub fn write_time(ms: u64) -> String {
    if ms.is_multiple_of(1000) { format!("{}s", ms / 1000) } else { format!("{ms}ms") }
}

fn quoted(text: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-.:/[]=%~+@,".contains(c);
    if !text.is_empty() && text.chars().all(is_plain) {
        return text.into();
    }
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// Returns the directive of a line, without its end.
pub fn directive_words(line: &ServerLine) -> String {
    let spec = &line.spec;
    let mut text = format!("server {}", quoted(&spec.name));
    let mut add = |word: String| _ = write!(text, " {}", quoted(&word));
    if let ServerSource::Resolved { service, .. } = &line.source {
        add("resolve".into());
        if let Some(service) = service {
            add(format!("service={service}"));
        }
    }
    if spec.weight != 1 {
        add(format!("weight={}", spec.weight));
    }
    if spec.max_conns != 0 {
        add(format!("max_conns={}", spec.max_conns));
    }
    if spec.max_fails != 1 {
        add(format!("max_fails={}", spec.max_fails));
    }
    if spec.fail_timeout_ms != 10_000 {
        add(format!("fail_timeout={}", write_time(spec.fail_timeout_ms)));
    }
    if spec.slow_start_ms != 0 {
        add(format!("slow_start={}", write_time(spec.slow_start_ms)));
    }
    if !spec.route.is_empty() {
        add(format!("route={}", spec.route));
    }
    for (said, name) in [(spec.backup, "backup"), (spec.down, "down"), (spec.drain, "drain")] {
        if said {
            add(name.into());
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_survive_the_file() {
        let text = b"server 127.0.0.1:81;\nserver unix:/a/b weight=5 max_conns=2 max_fails=0 fail_timeout=3s down;\n\
                     server a.example:82 resolve backup;\n# a comment\n\
                     server b.example resolve service=http slow_start=1500ms \"route=x y\" drain;\n";
        let lines = parse(text, false).expect("servers");
        assert_eq!(lines.len(), 4);
        let again: String = lines.iter().map(|line| format!("{};\n", directive_words(line))).collect();
        assert_eq!(parse(again.as_bytes(), false), Ok(lines));
        assert!(
            again.contains("server b.example resolve service=http slow_start=1500ms \"route=x y\" drain;\n"),
            "{again}"
        );
    }

    #[test]
    fn other_texts_are_no_state() {
        for (text, line) in [
            ("server 127.0.0.1:81;\nzone a;", 2),
            ("server;", 1),
            ("server a { }", 1),
            ("\nserver 127.0.0.1:99999;", 2),
            ("server 127.0.0.1 wait=5;", 1),
            ("server 127.0.0.1", 1),
        ] {
            assert_eq!(parse(text.as_bytes(), false).map_err(|(line, _)| line), Err(line), "{text}");
        }
        assert!(parse(b"server 127.0.0.1;", true).is_err(), "a stream server needs a port");
    }
}
