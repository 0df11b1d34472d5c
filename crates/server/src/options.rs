//! nginx's command line options: `-t`, `-s reload`, `-c FILE` and others, read for the server and its subcommands.

use crate::conf::{Invocation, paths};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerOptions {
    pub help: bool,
    pub version: bool,
    pub configure: bool,
    pub test: bool,
    pub dump: bool,
    pub quiet: bool,
    pub explain: bool,
    pub plan: bool,
    /// `--help`, `--version`: output goes to stdout. That of nginx's options goes to stderr.
    pub long: bool,
    pub signal: Option<String>,
    pub prefix: Option<PathBuf>,
    pub conf_file: Option<PathBuf>,
    pub error_log: Option<PathBuf>,
    pub globals: Vec<u8>,
    /// `-l`: address of the control API.
    pub control_api: Option<String>,
}

pub fn parse_options(arguments: &[OsString]) -> Result<ServerOptions, String> {
    use lexopt::Arg::{Long, Short, Value};
    let mut options = ServerOptions::default();
    let mut parser = lexopt::Parser::from_args(arguments);
    while let Some(argument) = parser.next().map_err(|e| e.to_string())? {
        options.long |= matches!(argument, Long("help" | "version"));
        let argument = match argument {
            Short(c) => c.to_string(),
            Long(name) => name.to_string(),
            Value(text) => return Err(format!("invalid option: \"{}\"", text.to_string_lossy())),
        };
        let mut value = |what: &str| parser.value().map_err(|_| format!("option \"-{argument}\" requires {what}"));
        match argument.as_str() {
            "?" | "h" | "help" => (options.help, options.version) = (true, true),
            "v" | "version" => options.version = true,
            "V" => (options.version, options.configure) = (true, true),
            "t" => options.test = true,
            "T" => (options.test, options.dump) = (true, true),
            "q" => options.quiet = true,
            "explain" => (options.test, options.explain) = (true, true),
            "plan" => (options.test, options.plan) = (true, true),
            "p" => options.prefix = Some(value("directory name")?.into()),
            "c" => options.conf_file = Some(value("file name")?.into()),
            "e" => options.error_log = Some(value("file name")?.into()),
            "l" => options.control_api = Some(value("listen address")?.to_string_lossy().into_owned()),
            "g" => options.globals = value("parameter")?.into_encoded_bytes(),
            "s" => {
                let signal = value("parameter")?.to_string_lossy().into_owned();
                if !["stop", "quit", "reopen", "reload", "upgrade"].contains(&signal.as_str()) {
                    return Err(format!("invalid option: \"-s {signal}\""));
                }
                options.signal = Some(signal);
            }
            _ => return Err(format!("invalid option: \"{argument}\"")),
        }
    }
    let is_signal = options.signal.is_some();
    refuse_both(&[("--plan", options.plan), ("--explain", options.explain), ("-s", is_signal)])?;
    refuse_both(&[("--plan", options.plan), ("-T", options.dump)])?;
    Ok(options)
}

/// Refuses a second option of a list of which only one can have an effect.
///
/// # Errors
/// Names the first two that were given.
pub fn refuse_both(options: &[(&str, bool)]) -> Result<(), String> {
    let mut given = options.iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name);
    match (given.next(), given.next()) {
        (Some(one), Some(other)) => Err(format!("options \"{one}\" and \"{other}\" exclude each other")),
        _ => Ok(()),
    }
}

/// Parses the options that name the configuration of a subcommand: `-c`, `-p` and `-g`. A relative file that the prefix
/// lacks is one of the current directory, unlike the server's.
///
/// # Errors
/// An option of the server, which a subcommand would ignore; everything that [`parse_options`] refuses.
pub fn parse_place(arguments: &[OsString]) -> Result<Invocation, String> {
    let options = parse_options(arguments).map_err(|words| match words.strip_prefix("invalid option: \"") {
        Some(word) if Path::new(word.trim_end_matches('"')).is_file() => {
            format!("{words}; write -c {}", word.trim_end_matches('"'))
        }
        _ => words,
    })?;
    // Options that imply others come before those.
    let of_server = [
        ("-h", options.help),
        ("-V", options.configure),
        ("-v", options.version),
        ("--explain", options.explain),
        ("--plan", options.plan),
        ("-T", options.dump),
        ("-t", options.test),
        ("-q", options.quiet),
        ("-s", options.signal.is_some()),
        ("-e", options.error_log.is_some()),
        ("-l", options.control_api.is_some()),
    ];
    match of_server.iter().find(|(_, is_given)| *is_given) {
        Some((name, _)) => Err(format!("option \"{name}\" has no meaning for this command")),
        None => {
            let mut invocation = options.invocation();
            if let Some(path) = options.conf_file.as_deref().and_then(|path| std::path::absolute(path).ok())
                && !invocation.conf_file.exists()
                && path.exists()
            {
                invocation.conf_file = path;
            }
            Ok(invocation)
        }
    }
}

impl ServerOptions {
    /// Options, completed by defaults.
    pub fn invocation(&self) -> Invocation {
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.to_path_buf());
        let prefix = self.prefix.as_deref().map(absolute);
        let defaults = paths::default_paths(prefix.as_deref());
        let below = |path: &Path| if path.is_absolute() { path.to_path_buf() } else { defaults.prefix.join(path) };
        let error_log = match &self.error_log {
            Some(path) if path.as_os_str() == "stderr" || path.as_os_str().is_empty() => None,
            Some(path) => Some(below(path)),
            None => Some(defaults.error_log.clone()),
        };
        Invocation {
            conf_file: self.conf_file.as_deref().map_or_else(|| defaults.conf_file.clone(), below),
            error_log_said: self.error_log.is_some(),
            error_log,
            pid: defaults.pid.clone(),
            globals: self.globals.clone(),
            text: None,
            prefix: defaults.prefix,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(words: &str) -> Result<ServerOptions, String> {
        parse_options(&words.split(' ').map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn options_as_nginx_takes_them() {
        let all = read("-p /tmp/x/ -c nginx.conf -e error.log").expect("parses");
        let places = all.invocation();
        assert_eq!(places.prefix, PathBuf::from("/tmp/x/"));
        assert_eq!(places.conf_file, PathBuf::from("/tmp/x/nginx.conf"));
        assert_eq!(places.error_log, Some("/tmp/x/error.log".into()));
        assert_eq!(places.pid, PathBuf::from("/tmp/x/logs/nginx.pid"));
        assert!(read("-tq").expect("parses").quiet);
        assert!(read("-T").expect("parses").dump);
        assert_eq!(read("-sreload").expect("parses").signal.as_deref(), Some("reload"));
        assert_eq!(read("-e stderr").expect("parses").invocation().error_log, None);
        assert_eq!(read("-l unix:/x").expect("parses").control_api.as_deref(), Some("unix:/x"));
        assert!(read("-?").expect("parses").help);
    }

    #[test]
    fn options_of_the_server_are_none_of_commands() {
        let place = |words: &str| parse_place(&words.split(' ').map(OsString::from).collect::<Vec<_>>());
        assert_eq!(place("-p /tmp/x -c a -g b").map(|found| found.conf_file), Ok(PathBuf::from("/tmp/x/a")));
        for words in ["-t", "-T", "-q", "-V", "-v", "-h", "-s stop", "-e log", "-l 9000", "--explain", "--plan"] {
            let option = words.split(' ').next().expect("a word");
            let wanted = format!("option \"{option}\" has no meaning for this command");
            assert_eq!(place(words).map(|found| found.conf_file), Err(wanted));
        }
    }

    #[test]
    fn complaints_as_nginx_words_them() {
        for (words, want) in [
            ("-x", "invalid option: \"x\""),
            ("-t serve", "invalid option: \"serve\""),
            ("-s start", "invalid option: \"-s start\""),
            ("-p", "option \"-p\" requires directory name"),
            ("-c", "option \"-c\" requires file name"),
            ("-l", "option \"-l\" requires listen address"),
            ("-g", "option \"-g\" requires parameter"),
            ("--plan --explain", "options \"--plan\" and \"--explain\" exclude each other"),
            ("--plan -T", "options \"--plan\" and \"-T\" exclude each other"),
            ("-s stop --plan", "options \"--plan\" and \"-s\" exclude each other"),
            ("--explain -s stop", "options \"--explain\" and \"-s\" exclude each other"),
        ] {
            assert_eq!(read(words).expect_err(words), want);
        }
    }
}
