//! `tidegate explain`: documents directives from the tables, and traces requests with the engine (`request.rs`).

mod request;

use crate::conf;
use crate::explanation::is_request;
use crate::reference::{self, Entry, Support};
use conf_schema::suggest::nearest_word;
use conf_schema::{KnownDirective, vocabulary};
use std::ffi::OsString;
use std::fmt::Write;

pub const HELP: &str = "\
Usage: tidegate explain DIRECTIVE ...
       tidegate explain URL [-c FILE] [-p PREFIX] [-g DIRECTIVES] [-X METHOD] [-H 'NAME: VALUE']
                        [--from ADDRESS] [--to ADDRESS] [--http3] [--json]

Documents a directive: meaning, syntax, default, contexts, nginx module, the support in this version,
and an example.

  tidegate explain worker_processes
  tidegate explain proxy_pass root     several directives
  tidegate explain 'gzip*'             all directives with this prefix
  tidegate explain '$request_uri'      a variable

With a URL, traces a request: the selected server and the reason, the locations tried, rewrites,
access checks, the content handler and the response fields, each with file and line. The server's
own engine runs the request until it would be passed to an upstream server. The command sends,
counts and changes nothing, and assumes that external checks (auth_request, limits) pass. File
lookups use the caller's permissions.

  tidegate explain https://www.example.com/app/ -c nginx.conf
  tidegate explain /img/logo.png -c nginx.conf         on the first listen address
  tidegate explain http://a.example:8080/x -X POST -H 'Cookie: a=1' --from 192.0.2.7

  -c, -p, -g      as for the server; -c also finds a file of the current directory
  -X METHOD       request method (default: GET)
  -H FIELD        request header field; may be repeated (Host overrides the URL's host)
  --from ADDRESS  client IP address (default: 127.0.0.1)
  --to ADDRESS    IP address that the client connects to, if there are several listen addresses
  --http3         over QUIC (listen ... quic)
  --json          print one JSON object

Exit code: 0 on success, 1 if a name is unknown or no server listens on the address, 2 if the
configuration is invalid.
";

const COLUMNS: usize = 100;

pub fn run_explain(arguments: &[OsString]) -> i32 {
    if arguments.is_empty() {
        eprint!("{HELP}");
        return 1;
    }
    if arguments.iter().any(|a| is_request(&a.to_string_lossy())) {
        return request::explain_request(arguments);
    }
    if let Some(option) = arguments.iter().map(|a| a.to_string_lossy()).find(|name| name.starts_with('-')) {
        eprintln!(
            "tidegate: option \"{option}\" is for URLs, which begin with http://, https:// or /\n  = \"tidegate explain --help\" lists the options"
        );
        return 2;
    }
    let schema = conf::full_schema();
    let mut code = 0;
    for name in arguments {
        let name = name.to_string_lossy();
        if let Some(variable) = name.strip_prefix('$') {
            code |= explain_variable(variable);
            continue;
        }
        let found: Vec<_> = match name.strip_suffix('*') {
            Some(head) => vocabulary::all().filter(|known| known.name.starts_with(head)).collect(),
            None => vocabulary::find_directives(&name).to_vec(),
        };
        if found.is_empty() {
            eprintln!("tidegate: unknown directive \"{name}\"");
            let last = name.rsplit(['.', '/', ' ']).next().filter(|last| *last != name && !last.is_empty());
            if let Some(last) = last.filter(|last| !vocabulary::find_directives(last).is_empty()) {
                eprintln!("  = a directive is named without the blocks around it: tidegate explain {last}");
            } else if let Some(block) = block_of(&schema, &name) {
                eprintln!("  = it belongs in the block {block}: tidegate explain {block}");
            } else if let Some(hint) = vocabulary::foreign::foreign_hint(&name) {
                eprintln!("  = {hint}");
            } else if name.contains(['.', '/', ':']) {
                eprintln!("  = a URL begins with http://, https:// or /");
            } else if let Some(near) = nearest_word(last.unwrap_or(&name), vocabulary::all().map(|known| known.name)) {
                eprintln!("  = did you mean \"{near}\"?");
            }
            code = 1;
        }
        for known in found {
            base::out!("{}", text(&Entry::of(&schema, known)));
        }
    }
    code
}

/// Returns the block whose documentation names a directive inside it, such as `oidc_provider` for `client_id`.
fn block_of(schema: &conf_schema::Schema, name: &str) -> Option<&'static str> {
    let quoted = format!("`{name}`");
    let names_it = |known: &&'static KnownDirective| known.block && Entry::of(schema, known).doc.contains(&quoted);
    vocabulary::all().find(names_it).map(|known| known.name)
}

/// Accepts the name of a family, such as `http_referer`.
fn explain_variable(name: &str) -> i32 {
    let all = reference::list_variables();
    let family = all.iter().map(|v| v.name).filter(|own| own.ends_with('_') && name.starts_with(*own));
    let wanted = match all.iter().find(|variable| variable.name == name) {
        Some(exact) => Some(exact.name),
        None => family.max_by_key(|own| own.len()),
    };
    let Some(wanted) = wanted else {
        eprintln!("tidegate: unknown variable \"${name}\"");
        if let Some(near) = nearest_word(name, all.iter().map(|variable| variable.name)) {
            eprintln!("  = did you mean \"${near}\"?");
        }
        return 1;
    };
    for variable in all.iter().filter(|variable| variable.name == wanted) {
        let mut out = format!("{}\n  area      {}\n", reference::variable_name(variable.name), variable.area);
        if variable.is_settable {
            out.push_str("  may be set\n");
        }
        out.push('\n');
        wrap(&mut out, variable.doc);
        base::outln!("{out}");
    }
    0
}

fn text(entry: &Entry) -> String {
    let mut out = format!("{}\n", entry.syntax());
    let mut line = |name: &str, text: &str| {
        let _ = writeln!(out, "  {name:<9} {text}");
    };
    line("default", entry.default().map_or("none", |text| if text.is_empty() { "\"\"" } else { text }));
    line("context", &entry.contexts());
    line("takes", &entry.known.arity.words());
    line("module", entry.known.module);
    if !entry.known.since.is_empty() {
        line("since", &format!("nginx {}", entry.known.since));
    }
    let (word, remark) = match &entry.support {
        Support::Full => ("supported", ""),
        Support::Differs(words) => ("differs from nginx", words.as_str()),
        Support::NoEffect(words) => ("accepted, no effect", words.as_str()),
        Support::Refused(words) => ("refused", words.as_str()),
        Support::NotYet => ("not supported by this version: tidegate -t refuses it", ""),
    };
    line("here", word);
    for paragraph in [entry.doc.as_str(), remark].into_iter().filter(|text| !text.is_empty()) {
        out.push('\n');
        wrap(&mut out, paragraph);
    }
    if let Some(example) = reference::example::directive_example(entry.known) {
        out.push('\n');
        for line in example.lines() {
            let _ = writeln!(out, "  {line}");
        }
    }
    out.push('\n');
    out
}

fn wrap(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        if column + word.chars().count() + 1 > COLUMNS {
            out.push('\n');
            column = 0;
        }
        out.push_str(if column == 0 { "  " } else { " " });
        out.push_str(word);
        column += word.chars().count() + if column == 0 { 2 } else { 1 };
    }
    out.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_explanation_has_everything() {
        let schema = conf::full_schema();
        let text = text(&Entry::of(&schema, vocabulary::find_directives("worker_processes")[0]));
        for part in [
            "worker_processes number | auto;",
            "default   1",
            "context   main",
            "differs from nginx",
            "threads",
            "  worker_processes auto;",
        ] {
            assert!(text.contains(part), "{part} is not in:\n{text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS));
    }
}
