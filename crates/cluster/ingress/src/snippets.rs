//! Snippets: directives in annotations. They are parsed as a tree, checked, and placed as a tree: a snippet cannot leave
//! its block.

use conf_schema::vocabulary::{self, KnownDirective};
use conf_schema::{ContextArea, Contexts};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};
use conf_syntax::{Directive, FileId, first_error, list_directives};

use crate::values::SNIPPET_BYTES_MAX;

/// Directives that are refused in snippets, even with `--allow-snippets`, and why: they load code, read or write files,
/// or reach the process itself. A final `*` stands for any end.
pub const REFUSED: &[(&str, &str)] = &[
    ("load_module", "loads code"),
    ("*_by_lua*", "Lua is not part of Tidegate"),
    ("lua_*", "Lua is not part of Tidegate"),
    ("js_*", "scripts are files"),
    ("perl*", "scripts are files"),
    ("include", "reads a file"),
    ("root", "serves files"),
    ("alias", "serves files"),
    ("autoindex*", "serves files"),
    ("dav_*", "writes files"),
    ("*_store", "writes files"),
    ("*_store_access", "writes files"),
    ("*_temp_path", "writes files"),
    ("*_cache_path", "writes files"),
    ("client_body_in_file_only", "writes files"),
    ("*_file", "reads a file"),
    ("*_file_path", "reads a file"),
    ("modsecurity_rules_remote", "rules are not fetched over the network"),
    ("*ssl_certificate*", "reads a file: a Secret is for its namespace"),
    ("*ssl_trusted_certificate", "reads a file"),
    ("*ssl_client_certificate", "reads a file: annotation auth-tls-secret"),
    ("*ssl_crl", "reads a file"),
    ("ssl_dhparam", "reads a file"),
    ("ssl_stapling_file", "reads a file"),
    ("ssl_engine", "loads code"),
    ("*ssl_conf_command", "reads files and loads code"),
    ("geoip*", "reads a file"),
    ("xslt_stylesheet", "reads a file"),
    ("ssi*", "reads files of the server"),
    ("api", "changes the server"),
    ("status", "shows all hosts"),
    ("stub_status", "shows all hosts"),
    ("pid", "a setting of the process"),
    ("user", "a setting of the process"),
    ("env", "a setting of the process"),
    ("error_log", "writes a file"),
    ("listen", "a port of the process"),
    ("htaccess*", "reads files"),
    ("acme*", "keys of the process"),
    ("otel_exporter", "a setting of the process"),
];

/// Block that a snippet is placed in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SnippetPlace {
    Http,
    Server,
    Location,
    Stream,
}

impl SnippetPlace {
    fn contexts(self) -> Contexts {
        match self {
            SnippetPlace::Http => Contexts::http,
            SnippetPlace::Server => Contexts::server,
            SnippetPlace::Location => Contexts::location,
            SnippetPlace::Stream => Contexts::stream,
        }
    }
}

/// Parses a snippet. `listen` is permitted in `stream` only.
///
/// # Errors
/// If it does not parse, or has a directive that does not exist, cannot stand there, or is refused.
pub(crate) fn parse(text: &str, place: SnippetPlace) -> Result<Vec<WriteNode>, String> {
    if text.len() > SNIPPET_BYTES_MAX {
        return Err(format!("a snippet longer than {SNIPPET_BYTES_MAX} bytes"));
    }
    if text.contains('\0') {
        return Err("a snippet with a NUL".into());
    }
    let items = conf_syntax::parse_file(FileId(0), text.as_bytes());
    if let Some(error) = first_error(&items) {
        return Err(format!("line {}: {}", error.line, error.text));
    }
    let permits_listen = place == SnippetPlace::Stream;
    list_directives(&items).into_iter().map(|directive| convert(directive, place.contexts(), permits_listen)).collect()
}

/// Parses directives of a location, as those of the annotation `configuration-snippet`.
///
/// # Errors
/// If they do not parse, or one of them does not exist, cannot stand in a location, or is one of [`REFUSED`].
pub fn parse_location_snippet(text: &str) -> Result<Vec<WriteNode>, String> {
    parse(text, SnippetPlace::Location)
}

fn convert(directive: &Directive, context: Contexts, permits_listen: bool) -> Result<WriteNode, String> {
    let name = String::from_utf8(directive.name.bytes.clone()).map_err(|_| "a name that is no UTF-8".to_owned())?;
    let at = |words: String| format!("line {}: {words}", directive.line);
    if !(name == "listen" && permits_listen)
        && let Some((_, why)) = REFUSED.iter().find(|(pattern, _)| matches(pattern, &name))
    {
        return Err(at(format!("\"{name}\" is refused ({why})")));
    }
    let known = vocabulary::find_directives(&name);
    if known.is_empty() {
        let near = conf_schema::suggest::nearest_word(&name, vocabulary::all().map(|known| known.name));
        let hint = near.map_or(String::new(), |near| format!(": did you mean \"{near}\"?"));
        return Err(at(format!("unknown directive \"{}\"{hint}", name.escape_debug())));
    }
    let fits = |known: &&&KnownDirective| known.contexts.has(context) && ContextArea::of(context) == known.area();
    let Some(row) = known.iter().find(fits) else {
        return Err(at(format!("\"{name}\" is not allowed in {}", context.name())));
    };
    if row.block != directive.block.is_some() {
        return Err(at(format!("\"{name}\" {} a block", if row.block { "needs" } else { "has no" })));
    }
    if !row.arity.takes(directive.args.len()) {
        return Err(at(format!("\"{name}\" takes {}", row.arity.words())));
    }
    check_arguments(&name, directive).map_err(at)?;
    let inner = match (name.as_str(), context) {
        ("location", _) => Some(Contexts::location),
        ("if", Contexts::server) => Some(Contexts::if_in_server),
        ("if", _) => Some(Contexts::if_in_location),
        ("limit_except", _) => Some(Contexts::limit_except),
        ("server", Contexts::http) => Some(Contexts::server),
        ("server", Contexts::stream) => Some(Contexts::stream_server),
        ("upstream", Contexts::http) => Some(Contexts::upstream),
        ("upstream", Contexts::stream) => Some(Contexts::stream_upstream),
        _ => None,
    };
    let mut node = NewDirective::entry(Argument::plain(&directive.name.bytes))
        .args(directive.args.iter().map(|word| Argument::plain(&word.bytes)));
    if let Some(block) = &directive.block {
        let lines = list_directives(block);
        node = node.block(match inner {
            Some(context) => {
                lines.into_iter().map(|line| convert(line, context, permits_listen)).collect::<Result<_, _>>()?
            }
            // Lines of map, geo and others begin with data.
            None => lines.into_iter().map(entry).collect::<Result<_, _>>()?,
        });
    }
    Ok(node.into())
}

/// Arguments that name files or sockets.
fn check_arguments(name: &str, directive: &Directive) -> Result<(), String> {
    let words: Vec<String> =
        directive.args.iter().map(|word| String::from_utf8_lossy(&word.bytes).into_owned()).collect();
    let first = words.first().map_or("", String::as_str);
    match name {
        "access_log" if first != "off" => Err("\"access_log\" of a file is refused (writes a file)".into()),
        _ if name.ends_with("_pass") || name == "server" => match words.iter().any(|word| word.contains("unix:")) {
            true => Err(format!("\"{name}\" of a Unix socket is refused (reaches the process)")),
            false => Ok(()),
        },
        "if" if words.iter().any(|word| word.trim_start_matches(['(', '!']).starts_with('-')) => {
            Err("\"if\" with a test of files is refused (reads files)".into())
        }
        "modsecurity_rules" => {
            let checked = crate::firewall::check_rules(first, crate::firewall::FirewallPolicy::default());
            checked.map(drop).map_err(|error| format!("\"modsecurity_rules\": {error}"))
        }
        "try_files" => Err("\"try_files\" is refused (serves files)".into()),
        _ => Ok(()),
    }
}

fn entry(directive: &Directive) -> Result<WriteNode, String> {
    if directive.name.bytes == b"include" {
        return Err(format!("line {}: \"include\" is refused (reads a file)", directive.line));
    }
    if directive.block.is_some() {
        return Err(format!("line {}: a block where none can stand", directive.line));
    }
    let args = directive.args.iter().map(|word| Argument::plain(&word.bytes));
    Ok(NewDirective::entry(Argument::plain(&directive.name.bytes)).args(args).into())
}

/// Compares a name with a pattern whose ends may be `*`.
fn matches(pattern: &str, name: &str) -> bool {
    match (pattern.strip_prefix('*'), pattern.strip_suffix('*')) {
        (Some(_), Some(_)) => name.contains(pattern.trim_matches('*')),
        (Some(end), None) => name.ends_with(end),
        (None, Some(begin)) => name.starts_with(begin),
        (None, None) => name == pattern,
    }
}

/// Returns the variables that a snippet sets.
pub(crate) fn variables(nodes: &[WriteNode]) -> Vec<String> {
    let mut found = Vec::new();
    for node in nodes {
        let WriteNode::Directive(directive) = node else { continue };
        let name = directive.name.bytes();
        let is_setter = name == b"auth_request_set" || name.starts_with(b"set");
        if is_setter && let Some(variable) = directive.args.first() {
            let variable = String::from_utf8_lossy(&variable.bytes()).into_owned();
            found.extend(variable.strip_prefix('$').map(str::to_owned));
        }
        found.extend(variables(directive.block.as_deref().unwrap_or_default()));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::{SnippetPlace, parse, variables};

    #[test]
    fn snippets_stand_where_their_context_allows() {
        let location = "add_header X-A b always;\nmore_set_headers \"X-B: c\";\nif ($http_x = 1) { return 403; }";
        assert_eq!(parse(location, SnippetPlace::Location).unwrap().len(), 3);
        assert!(parse("location = /x { deny all; }", SnippetPlace::Server).is_ok());
        assert!(parse("map $host $x { default 1; }", SnippetPlace::Http).is_ok());
        assert!(parse("server { listen 8000; proxy_pass 127.0.0.1:80; }", SnippetPlace::Stream).is_ok());
        let set = parse("auth_request_set $user $upstream_http_x_user; set $a b;", SnippetPlace::Location).unwrap();
        assert_eq!(variables(&set), ["user", "a"]);
    }

    #[test]
    fn refused_and_misplaced_directives_give_their_reason() {
        for (text, place, words) in [
            ("load_module x.so;", SnippetPlace::Http, "refused"),
            ("content_by_lua_block { }", SnippetPlace::Location, "Lua"),
            ("include /etc/passwd;", SnippetPlace::Location, "reads a file"),
            ("location / { alias /etc/; }", SnippetPlace::Server, "serves files"),
            ("ssl_certificate_key /x.key;", SnippetPlace::Server, "reads a file"),
            ("proxy_pass http://unix:/run/api.sock;", SnippetPlace::Location, "Unix socket"),
            ("access_log /etc/cron.d/x;", SnippetPlace::Location, "writes a file"),
            ("if (-f /etc/passwd) { return 403; }", SnippetPlace::Location, "files"),
            ("listen 81;", SnippetPlace::Server, "port"),
            ("server { listen 81; }", SnippetPlace::Http, "port"),
            ("map $host $x { include /etc/passwd; }", SnippetPlace::Http, "reads a file"),
            ("upstream x { server 127.0.0.1; }", SnippetPlace::Server, "not allowed"),
            ("add_heder X-A b;", SnippetPlace::Location, "did you mean \"add_header\""),
            ("add_header X-A b; }", SnippetPlace::Location, "unexpected"),
            ("return 200", SnippetPlace::Location, "unexpected end"),
            ("proxy_read_timeout;", SnippetPlace::Location, "takes 1 argument"),
        ] {
            let error = parse(text, place).expect_err(text);
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
