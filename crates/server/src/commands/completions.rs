//! `tidegate completions SHELL`: prints completion scripts for options, commands and directive names.

use super::flags::{self, Flag};
use conf_schema::vocabulary;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt::Write;

pub const HELP: &str = "\
Usage: tidegate completions bash | zsh | fish

Prints shell completions. Packages install them; manual installation:

  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh  > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish
";

/// Candidates for a word.
#[derive(Debug, PartialEq, Eq)]
enum Offer {
    /// The user's own text.
    Nothing,
    Files,
    Directories,
    Words(String),
    /// Words, or files.
    WordsOrFiles(String),
}

/// A command, or a subcommand of one (`plan cost`).
struct CommandPage {
    name: String,
    flags: Vec<Flag>,
    operands: Offer,
}

pub fn run_completions(arguments: &[OsString]) -> i32 {
    let words: Vec<_> = arguments.iter().map(|a| a.to_str()).collect();
    let script = match words.as_slice() {
        [Some("bash")] => bash(),
        [Some("zsh")] => zsh(),
        [Some("fish")] => fish(),
        other => {
            if let [Some(shell)] = other {
                eprintln!("tidegate: unknown shell \"{shell}\"\n");
            }
            eprint!("{HELP}");
            return 1;
        }
    };
    base::out!("{script}");
    0
}

fn commands() -> Vec<(&'static str, &'static str)> {
    super::COMMANDS.iter().map(|c| (c.name, c.summary)).chain([("help", "print the help of a command")]).collect()
}

/// Commands before their subcommands.
fn pages() -> Vec<CommandPage> {
    let mut pages = vec![CommandPage { name: "help".into(), flags: Vec::new(), operands: operands("help") }];
    for (name, text) in super::COMMANDS.iter().flat_map(super::texts) {
        let mut flags = flags::read_flags(&text);
        if !flags.iter().any(|flag| flag.names.iter().any(|name| name == "--help")) {
            flags.push(Flag { names: vec!["--help".into()], value: None, words: "print help".into() });
        }
        pages.push(CommandPage { flags, operands: operands(&name), name });
    }
    pages
}

fn operands(page: &str) -> Offer {
    let words = |list: &str| Offer::Words(list.to_string());
    match page {
        "serve" => Offer::Directories,
        "explain" => Offer::Words(directives()),
        "convert" => Offer::WordsOrFiles("apache ingress".into()),
        "diff" | "lab" | "bench compare" | "bench import" | "plan cost" | "plan fit" | "plan regions" | "plan day" => {
            Offer::Files
        }
        "bench" => words("compare import worker"),
        "plan" => words("cost fit regions day"),
        "completions" => words("bash zsh fish"),
        "reference" => words("directives compatibility lint metrics json man"),
        "help" => Offer::Words(commands().iter().map(|c| c.0).collect::<Vec<_>>().join(" ")),
        _ => Offer::Nothing,
    }
}

/// Returns the candidates for the value of an option; `None` for an option without a value.
fn values(flag: &Flag) -> Option<Offer> {
    Some(match flag.value.as_deref()? {
        "FILE" | "REPORT" | "TABLE" | "LOG" | "PATH" | "FILE|URL" | "filename" => Offer::Files,
        "DIR" | "prefix" => Offer::Directories,
        "ID" => Offer::Words(advisor::lint::all_checks().map(|check| check.id).collect::<Vec<_>>().join(" ")),
        "signal" => Offer::Words("stop quit reopen reload upgrade".into()),
        list if list.contains('|') => Offer::Words(list.replace('|', " ")),
        _ => Offer::Nothing,
    })
}

fn directives() -> String {
    let names: BTreeSet<&str> = vocabulary::all().map(|known| known.name).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

/// The server's own options.
fn options() -> Vec<Flag> {
    let mut all = flags::read_flags(&super::help_overview());
    // Shells interpret the question mark.
    all.iter_mut().for_each(|flag| flag.names.retain(|name| name != "-?"));
    all
}

fn names(flags: &[Flag]) -> String {
    flags.iter().flat_map(|flag| &flag.names).map(String::as_str).collect::<Vec<_>>().join(" ")
}

fn bash() -> String {
    let offer = |offer: &Offer| match offer {
        Offer::Nothing => String::new(),
        Offer::Files => " -f".into(),
        Offer::Directories => " -d".into(),
        Offer::Words(words) => format!(" -W '{words}'"),
        Offer::WordsOrFiles(words) => format!(" -f -W '{words}'"),
    };
    let of_values = |out: &mut String, flags: &[Flag]| {
        for flag in flags {
            let Some(values) = values(flag) else { continue };
            let reply = match values {
                Offer::Nothing => "return".to_string(),
                values => format!("COMPREPLY=($(compgen{} -- \"$word\")); return", offer(&values)),
            };
            let _ = writeln!(out, "                {}) {reply} ;;", flag.names.join("|"));
        }
    };
    let mut cases = String::new();
    for page in pages() {
        let pattern = if page.name.contains(' ') { format!("'{}'", page.name) } else { page.name.clone() };
        let _ = writeln!(cases, "        {pattern})\n            case $before in");
        of_values(&mut cases, &page.flags);
        let mut words = names(&page.flags);
        let files = match &page.operands {
            Offer::Words(more) | Offer::WordsOrFiles(more) => {
                words = format!("{words} {more}");
                if matches!(page.operands, Offer::WordsOrFiles(_)) { " -f" } else { "" }
            }
            Offer::Files => " -f",
            Offer::Directories => " -d",
            Offer::Nothing => "",
        };
        let _ = writeln!(cases, "            esac");
        let _ = writeln!(cases, "            COMPREPLY=($(compgen{files} -W '{}' -- \"$word\")) ;;", words.trim());
    }
    let mut of_server = String::new();
    of_values(&mut of_server, &options());
    let subcommands: Vec<String> =
        pages().into_iter().map(|page| page.name).filter(|name| name.contains(' ')).map(|n| format!("'{n}'")).collect();
    format!(
        "_tidegate() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} page=${{COMP_WORDS[1]}}
    COMPREPLY=()
    if [ \"$COMP_CWORD\" = 1 ]; then
        COMPREPLY=($(compgen -W '{commands} {options}' -- \"$word\"))
        return
    fi
    if [ \"$COMP_CWORD\" -gt 2 ]; then
        case \"$page ${{COMP_WORDS[2]}}\" in
            {subcommands}) page=\"$page ${{COMP_WORDS[2]}}\" ;;
        esac
    fi
    case $page in
{cases}        -*)
            case $before in
{of_server}            esac
            COMPREPLY=($(compgen -W '{options}' -- \"$word\")) ;;
    esac
}}
complete -o filenames -F _tidegate tidegate
",
        commands = commands().iter().map(|c| c.0).collect::<Vec<_>>().join(" "),
        options = names(&options()),
        subcommands = subcommands.join("|"),
    )
}

fn zsh() -> String {
    let offer = |offer: &Offer| match offer {
        Offer::Nothing => String::new(),
        Offer::Files => "_files".into(),
        Offer::Directories => "_files -/".into(),
        Offer::Words(words) => format!("({words})"),
        Offer::WordsOrFiles(_) => "_files".into(),
    };
    let specs = |flags: &[Flag]| -> Vec<String> {
        let spec = |flag: &Flag, name: &String| {
            let value = values(flag).map_or(String::new(), |values| format!(":value:{}", offer(&values)));
            // Brackets and colons end a part of the text, unless they are escaped.
            let escape = |c: char| if "[]:".contains(c) { vec!['\\', c] } else { vec![c] };
            let words: String = flag.words.chars().flat_map(escape).collect();
            format!("'*{name}[{words}]{value}'")
        };
        flags.iter().flat_map(|flag| flag.names.iter().map(move |name| spec(flag, name))).collect()
    };
    let mut cases = String::new();
    for page in pages() {
        let mut all = specs(&page.flags);
        match &page.operands {
            Offer::Nothing => {}
            Offer::WordsOrFiles(words) => all.extend([format!("'1:word:({words})'"), "'*:file:_files'".into()]),
            operands => all.push(format!("'*:argument:{}'", offer(operands))),
        }
        let _ = writeln!(cases, "        '{}') _arguments {} ;;", page.name, all.join(" "));
    }
    let subcommands: Vec<String> =
        pages().into_iter().map(|page| page.name).filter(|name| name.contains(' ')).map(|n| format!("'{n}'")).collect();
    let commands: Vec<String> = commands().iter().map(|(name, words)| format!("        '{name}:{words}'")).collect();
    format!(
        "#compdef tidegate
_tidegate() {{
    local -a commands
    commands=(
{commands}
    )
    if (( CURRENT == 2 )) || [[ $words[2] == -* ]]; then
        _arguments {options} '1:command:{{_describe command commands}}'
        return
    fi
    local page=$words[2]
    shift words
    (( CURRENT-- ))
    if (( CURRENT > 2 )); then
        case \"$page $words[2]\" in
            {subcommands}) page=\"$page $words[2]\"; shift words; (( CURRENT-- )) ;;
        esac
    fi
    case $page in
{cases}    esac
}}
_tidegate \"$@\"
",
        commands = commands.join("\n"),
        options = specs(&options()).join(" "),
        subcommands = subcommands.join("|"),
    )
}

fn fish() -> String {
    let offer = |offer: &Offer| match offer {
        Offer::Nothing => " -x".to_string(),
        Offer::Files => " -r -F".into(),
        Offer::Directories => " -x -a '(__fish_complete_directories)'".into(),
        Offer::Words(words) | Offer::WordsOrFiles(words) => format!(" -x -a '{words}'"),
    };
    let mut out = String::from("complete -c tidegate -f\n");
    for (name, words) in commands() {
        let _ = writeln!(out, "complete -c tidegate -n __fish_use_subcommand -a {name} -d '{words}'");
    }
    let of_flags = |out: &mut String, condition: &str, flags: &[Flag]| {
        for flag in flags {
            let names: Vec<String> = flag
                .names
                .iter()
                .map(|name| match name.strip_prefix("--") {
                    Some(long) => format!("-l {long}"),
                    None => format!("-s '{}'", &name[1..]),
                })
                .collect();
            let value = values(flag).map_or(String::new(), |values| offer(&values));
            let _ = writeln!(out, "complete -c tidegate -n {condition} {}{value} -d '{}'", names.join(" "), flag.words);
        }
    };
    of_flags(&mut out, "__fish_use_subcommand", &options());
    let pages = pages();
    for page in &pages {
        let below: Vec<&str> =
            pages.iter().filter_map(|other| other.name.strip_prefix(&format!("{} ", page.name))).collect();
        let condition = match page.name.split_once(' ') {
            Some((command, sub)) => {
                format!("'__fish_seen_subcommand_from {command}; and __fish_seen_subcommand_from {sub}'")
            }
            None if below.is_empty() => format!("'__fish_seen_subcommand_from {}'", page.name),
            None => format!(
                "'__fish_seen_subcommand_from {}; and not __fish_seen_subcommand_from {}'",
                page.name,
                below.join(" ")
            ),
        };
        of_flags(&mut out, &condition, &page.flags);
        let operands = match &page.operands {
            Offer::Nothing => continue,
            Offer::Files => "-F".to_string(),
            Offer::Directories => "-a '(__fish_complete_directories)'".into(),
            Offer::Words(words) => format!("-a '{words}'"),
            Offer::WordsOrFiles(words) => format!("-F -a '{words}'"),
        };
        let _ = writeln!(out, "complete -c tidegate -n {condition} {operands}");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scripts of zsh and fish put summaries between single quotes.
    #[test]
    fn summaries_contain_no_quotes() {
        for (name, words) in commands() {
            assert!(!words.contains('\''), "{name}: {words}");
        }
        for flag in options().iter().chain(pages().iter().flat_map(|page| &page.flags)) {
            assert!(!flag.words.contains(['\'', '\\']), "{flag:?}");
            assert!(flag.names.iter().all(|name| name.starts_with('-') && name.len() > 1), "{flag:?}");
        }
    }

    #[test]
    fn every_command_and_directive_is_offered() {
        for script in [bash(), zsh(), fish()] {
            for word in ["serve", "explain", "worker_processes", "reload", "--explain", "alias-traversal", "--acme-ca"]
            {
                assert!(script.contains(word.trim_start_matches('-')), "{word} is not in:\n{script}");
            }
        }
    }

    #[test]
    fn values_are_offered_by_their_names() {
        let flag = |value: &str| Flag { names: Vec::new(), value: Some(value.into()), words: String::new() };
        assert_eq!(values(&flag("FILE")), Some(Offer::Files));
        assert_eq!(values(&flag("poisson|fixed")), Some(Offer::Words("poisson fixed".into())));
        assert_eq!(values(&flag("N")), Some(Offer::Nothing));
        let known = ["bench", "bench worker", "plan cost", "reference"];
        let pages = pages();
        for name in known {
            assert!(pages.iter().any(|page| page.name == name), "{name}");
        }
        let value = |page: &str, option: &str| {
            let page = pages.iter().find(|found| found.name == page).expect("a page");
            values(page.flags.iter().find(|flag| flag.names.iter().any(|name| name == option)).expect("an option"))
        };
        assert_eq!(value("bench", "--json"), Some(Offer::Files));
        assert_eq!(value("bench", "-c"), Some(Offer::Nothing));
        assert_eq!(value("lint", "--level"), Some(Offer::Words("note warning error".into())));
        assert_eq!(value("doctor", "-c"), Some(Offer::Files));
        assert_eq!(value("doctor", "--json"), None);
    }
}
