//! `tidegate completions SHELL`: prints completion scripts for options, commands and directive names.

use conf_schema::vocabulary;
use std::collections::BTreeSet;
use std::ffi::OsString;

pub const HELP: &str = "\
Usage: tidegate completions bash | zsh | fish

Prints shell completions. Packages install them; manual installation:

  tidegate completions bash > ~/.local/share/bash-completion/completions/tidegate
  tidegate completions zsh  > ~/.zfunc/_tidegate
  tidegate completions fish > ~/.config/fish/completions/tidegate.fish
";

const OPTIONS: &[(&str, Follows, &str)] = &[
    ("-h", Follows::Nothing, "help"),
    ("-v", Follows::Nothing, "version"),
    ("-V", Follows::Nothing, "version and configure arguments"),
    ("-t", Follows::Nothing, "test the configuration"),
    ("-T", Follows::Nothing, "test the configuration and print it"),
    ("-q", Follows::Nothing, "errors only"),
    ("--explain", Follows::Nothing, "show every error in its line"),
    ("--plan", Follows::Nothing, "print the effective configuration"),
    ("-s", Follows::Signal, "send a signal to the master"),
    ("-p", Follows::Directory, "prefix"),
    ("-c", Follows::File, "configuration file"),
    ("-e", Follows::File, "error log"),
    ("-g", Follows::Text, "global directives"),
];

const SIGNALS: &str = "stop quit reopen reload";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Follows {
    Nothing,
    Signal,
    File,
    Directory,
    Text,
}

pub fn run(arguments: &[OsString]) -> i32 {
    let words: Vec<_> = arguments.iter().map(|a| a.to_str()).collect();
    let script = match words.as_slice() {
        [Some("bash")] => bash(),
        [Some("zsh")] => zsh(),
        [Some("fish")] => fish(),
        _ => {
            eprint!("{HELP}");
            return 1;
        }
    };
    print!("{script}");
    0
}

fn commands() -> Vec<(&'static str, &'static str)> {
    super::COMMANDS.iter().map(|c| (c.name, c.summary)).chain([("help", "print the help of a command")]).collect()
}

fn names() -> String {
    let names: BTreeSet<&str> = vocabulary::all().map(|known| known.name).collect();
    names.into_iter().collect::<Vec<_>>().join(" ")
}

fn checks() -> Vec<&'static str> {
    advisor::lint::checks().map(|check| check.id).collect()
}

fn bash() -> String {
    let options: Vec<&str> = OPTIONS.iter().map(|o| o.0).collect();
    let commands: Vec<&str> = commands().iter().map(|c| c.0).collect();
    format!(
        "_tidegate() {{
    local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}}
    case $before in
        -s) COMPREPLY=($(compgen -W '{SIGNALS}' -- \"$word\")); return ;;
        -c|-e) COMPREPLY=($(compgen -f -- \"$word\")); return ;;
        -p) COMPREPLY=($(compgen -d -- \"$word\")); return ;;
        -g) return ;;
    esac
    case ${{COMP_WORDS[1]}} in
        explain) COMPREPLY=($(compgen -W '{names} -c -p -g -X -H --from --to --json' -- \"$word\")) ;;
        certificates) COMPREPLY=($(compgen -W '-c -p -g --json --within --renew --renew-all --local-root' -- \"$word\")) ;;
        lint) COMPREPLY=($(compgen -W '-c -p -g --format --level --off --list --explain {checks}' -- \"$word\")) ;;
        diff) COMPREPLY=($(compgen -W '-p -g --json' -f -- \"$word\")) ;;
        convert) COMPREPLY=($(compgen -W 'apache --root --php --listen --server-root --snippet -o' -f -- \"$word\")) ;;
        serve) COMPREPLY=($(compgen -W '--listen --print --tls' -d -- \"$word\")) ;;
        completions) COMPREPLY=($(compgen -W 'bash zsh fish' -- \"$word\")) ;;
        help) COMPREPLY=($(compgen -W '{commands}' -- \"$word\")) ;;
        -*) COMPREPLY=($(compgen -W '{options}' -- \"$word\")) ;;
        *) [ \"$COMP_CWORD\" = 1 ] && COMPREPLY=($(compgen -W '{commands} {options}' -- \"$word\")) ;;
    esac
}}
complete -F _tidegate tidegate
",
        names = names(),
        checks = checks().join(" "),
        commands = commands.join(" "),
        options = options.join(" "),
    )
}

fn zsh() -> String {
    let option = |(name, follows, words): &(&str, Follows, &str)| {
        let after = match follows {
            Follows::Nothing => "",
            Follows::Signal => ":signal:(stop quit reopen reload)",
            Follows::File => ":file:_files",
            Follows::Directory => ":directory:_files -/",
            Follows::Text => ":directives:",
        };
        format!("        '{name}[{words}]{after}'")
    };
    let options: Vec<String> = OPTIONS.iter().map(option).collect();
    let commands: Vec<String> = commands().iter().map(|(name, words)| format!("        '{name}:{words}'")).collect();
    format!(
        "#compdef tidegate
_tidegate() {{
    local -a commands
    commands=(
{commands}
    )
    case $words[2] in
        explain) compadd -- {names}; return ;;
        certificates) _arguments '-c[configuration file]:file:_files' '--json[print JSON]' '--within[days]:days:' '--renew[name]:name:' '--renew-all[all of ACME]' '--local-root[export the local authority]:file:_files'; return ;;
        lint) _arguments '-c[configuration file]:file:_files' '--format[format]:format:(text json sarif)' '--level[least level]:level:(note warning error)' '--off[check]:check:({checks})' '--explain[check]:check:({checks})' '--list[all checks]'; return ;;
        diff) _arguments '--json[JSON]' '*:file:_files'; return ;;
        convert) _arguments '1:from:(apache)' '--php[address]:address:' '--root[folder]:folder:_files -/' '--snippet[server blocks alone]' '-o[output]:file:_files' '*:file:_files'; return ;;
        serve) _arguments '--listen[address]:address:' '--print[print the configuration]' '--tls[HTTPS with a local authority]' '*:directory:_files -/'; return ;;
        completions) compadd -- bash zsh fish; return ;;
    esac
    _arguments \\
{options} \\
        '1:command:{{_describe command commands}}'
}}
_tidegate \"$@\"
",
        commands = commands.join("\n"),
        checks = checks().join(" "),
        names = names(),
        options = options.join(" \\\n"),
    )
}

fn fish() -> String {
    let mut out = String::from("complete -c tidegate -f\n");
    for (name, words) in commands() {
        out.push_str(&format!("complete -c tidegate -n __fish_use_subcommand -a {name} -d '{words}'\n"));
    }
    for (name, follows, words) in OPTIONS {
        let flag = match name.strip_prefix("--") {
            Some(long) => format!("-l {long}"),
            None => format!("-s {}", &name[1..]),
        };
        let after = match follows {
            Follows::Nothing => "",
            Follows::Signal => " -x -a 'stop quit reopen reload'",
            Follows::File => " -r -F",
            Follows::Directory => " -x -a '(__fish_complete_directories)'",
            Follows::Text => " -x",
        };
        out.push_str(&format!("complete -c tidegate -n __fish_use_subcommand {flag}{after} -d '{words}'\n"));
    }
    out.push_str(&format!("complete -c tidegate -n '__fish_seen_subcommand_from explain' -a '{}'\n", names()));
    out.push_str("complete -c tidegate -n '__fish_seen_subcommand_from serve' -a '(__fish_complete_directories)'\n");
    out.push_str("complete -c tidegate -n '__fish_seen_subcommand_from completions' -a 'bash zsh fish'\n");
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
        for (name, _, words) in OPTIONS {
            assert!(!words.contains('\''), "{name}: {words}");
        }
    }

    #[test]
    fn every_command_and_directive_is_offered() {
        for script in [bash(), zsh(), fish()] {
            for word in ["serve", "explain", "worker_processes", "reload", "--explain"] {
                assert!(script.contains(word.trim_start_matches('-')), "{word} is not in:\n{script}");
            }
        }
    }
}
