//! The man page tidegate(8): its fixed parts, with the help texts of all commands.

use super::{COMMANDS, texts};

const PAGE: &str = include_str!("man.8");

pub fn man_page() -> String {
    PAGE.replace("@COMMANDS@\n", &commands())
}

fn commands() -> String {
    let mut out = String::new();
    for command in COMMANDS {
        for (name, text) in texts(command) {
            out.push_str(&format!(".SS {}\n.EX\n{}.EE\n", escaped(&name), escaped(&text)));
        }
    }
    out
}

/// Escapes characters and line starts that troff interprets.
fn escaped(text: &str) -> String {
    let line = |line: &str| {
        let line = line.replace('\\', "\\e").replace('-', "\\-");
        let line = line.replace('\'', "\\(aq").replace('`', "\\(ga").replace('^', "\\(ha").replace('~', "\\(ti");
        if line.starts_with('.') { format!("\\&{line}") } else { line }
    };
    match text.contains('\n') {
        true => text.lines().map(|text| line(text) + "\n").collect(),
        false => line(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_for_troff() {
        assert_eq!(escaped(".a -b 'c' \\d\n"), "\\&.a \\-b \\(aqc\\(aq \\ed\n");
        assert!(!man_page().contains("@COMMANDS@") && man_page().contains(".SS plan cost\n"));
    }
}
