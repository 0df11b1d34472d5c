//! Recognizes files of other servers that are given as a configuration.

/// First words of lines that only Apache's configuration has.
const APACHE: [&str; 10] = [
    "<VirtualHost",
    "<Directory",
    "<IfModule",
    "<Location",
    "<Files",
    "ServerRoot",
    "DocumentRoot",
    "LoadModule",
    "RewriteRule",
    "ServerName",
];
/// Lines that are looked at.
const LINES_MAX: usize = 200;

/// Returns a hint for a text in the language of another server.
pub fn language_hint(text: &[u8]) -> Option<&'static str> {
    let text = String::from_utf8_lossy(text);
    let lines =
        || text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')).take(LINES_MAX);
    let is_apache = |line: &str| line.split_whitespace().next().is_some_and(|word| APACHE.contains(&word));
    if lines().any(|line| is_apache(line) && !line.ends_with(';')) {
        return Some("this is a file of Apache: \"tidegate convert apache FILE\" translates it");
    }
    if lines().next().is_some_and(is_caddy_site) && !lines().any(|line| line.ends_with(';')) {
        return Some(
            "this is a Caddyfile: docs/from-caddy.md shows how its lines are written here, and \"tidegate serve --help\" \
             a server without a configuration",
        );
    }
    None
}

/// Tells whether a line opens a site of a Caddyfile: its global options, or addresses.
fn is_caddy_site(line: &str) -> bool {
    let Some(addresses) = line.strip_suffix('{') else { return false };
    let is_address = |word: &str| {
        let word = word.trim_end_matches(',');
        word.starts_with("http://")
            || word.starts_with("https://")
            || word.starts_with(':')
            || word.starts_with("localhost")
            || (word.contains('.') && !word.contains(['/', '$', '"']))
    };
    addresses.split_whitespace().all(is_address)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_other_servers_are_recognized() {
        let of = |text: &str| language_hint(text.as_bytes()).map(|hint| hint.split(' ').nth(3).unwrap_or_default());
        assert_eq!(of("<VirtualHost *:80>\n DocumentRoot /x\n</VirtualHost>\n"), Some("file"));
        assert_eq!(of("# a\nServerRoot \"/etc/apache2\"\nListen 80\n"), Some("file"));
        for caddy in ["example.com {\n root * /x\n}", "{\n email a@b\n}", ":80, localhost:443 {\n}", "https://a.b {\n}"]
        {
            assert!(language_hint(caddy.as_bytes()).is_some_and(|hint| hint.contains("Caddyfile")), "{caddy}");
        }
        for nginx in ["events {\n}\nhttp {\n}", "user a;\nhttp { }", "server {\n listen 80;\n}", "", "include a.b;"] {
            assert_eq!(of(nginx), None, "{nginx}");
        }
    }
}
