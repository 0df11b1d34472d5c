//! The options of commands, read from their help texts: shell completions list them.

/// An option, such as `-c, --connections <N>`.
#[derive(Debug, PartialEq, Eq)]
pub struct Flag {
    pub names: Vec<String>,
    /// Name of the value (`FILE`), or its words (`text|json`).
    pub value: Option<String>,
    /// Beginning of the description.
    pub words: String,
}

/// Reads the lines of a help text that begin with an option.
pub fn read_flags(help: &str) -> Vec<Flag> {
    help.lines().filter_map(line).flatten().collect()
}

/// `-c, -p, -g   as for the server`: as many options.
fn line(text: &str) -> Option<Vec<Flag>> {
    let indent = text.len() - text.trim_start().len();
    let text = text.trim_start();
    if indent == 0 || indent > 6 || !text.starts_with('-') {
        return None;
    }
    let (head, words) = text.split_once("  ").unwrap_or((text, ""));
    let mut value = None;
    let mut names = Vec::new();
    for word in head.split([' ', ',']).filter(|word| !word.is_empty()) {
        match word.starts_with('-') {
            true => names.push(word.to_string()),
            false => value = Some(word.trim_matches(['<', '>']).to_string()),
        }
    }
    if words.trim().starts_with("as for the server") {
        return Some(names.iter().filter_map(|name| of_server(name)).collect());
    }
    let possible = words.split_once("[possible values: ").and_then(|(_, rest)| rest.split_once(']'));
    let value = possible.map_or(value, |(list, _)| Some(list.replace(", ", "|")));
    Some(vec![Flag { names, value, words: summary(words) }])
}

/// Cuts a description at the end of its first sentence or clause, without quotes and other characters that shells interpret.
fn summary(words: &str) -> String {
    let words = words.trim().trim_start_matches(": ");
    let end = [" [default", " [possible", " (", ". ", "; ", ": "]
        .iter()
        .filter_map(|mark| words.find(mark))
        .min()
        .unwrap_or(words.len());
    words[..end].trim_end_matches('.').chars().filter(|c| !"'`\"\\$".contains(*c)).collect()
}

fn of_server(name: &str) -> Option<Flag> {
    let (value, words) = match name {
        "-c" => ("FILE", "configuration file"),
        "-p" => ("DIR", "prefix"),
        "-g" => ("DIRECTIVES", "global directives"),
        _ => return None,
    };
    Some(Flag { names: vec![name.into()], value: Some(value.into()), words: words.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_read_from_a_help_text() {
        let help = "\
Usage: x [--json] -- no option
  tidegate x --json     an example
  -c, -p   as for the server
  --format text|json  the format (default: text)
  -s signal     : send signal: stop
                   -t is part of a description
      --arrivals <KIND>   Arrivals: `a` or `b` [default: a] [possible values: a, b]
  -t, --threads <N>       Threads. Each has a CPU
  --tls
";
        let flag = |names: &[&str], value: Option<&str>, words: &str| Flag {
            names: names.iter().map(|name| name.to_string()).collect(),
            value: value.map(str::to_string),
            words: words.into(),
        };
        let wanted = [
            flag(&["-c"], Some("FILE"), "configuration file"),
            flag(&["-p"], Some("DIR"), "prefix"),
            flag(&["--format"], Some("text|json"), "the format"),
            flag(&["-s"], Some("signal"), "send signal"),
            flag(&["--arrivals"], Some("a|b"), "Arrivals"),
            flag(&["-t", "--threads"], Some("N"), "Threads"),
            flag(&["--tls"], None, ""),
        ];
        assert_eq!(read_flags(help), wanted);
    }
}
