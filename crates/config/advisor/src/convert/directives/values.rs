//! Conversion of arguments: protocols, times and extensions.

/// Converts the arguments of `SSLProtocol` to `ssl_protocols`.
pub fn convert_protocols(args: &[String]) -> String {
    const ALL: &[&str] = &["TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3"];
    let mut on: Vec<&str> = Vec::new();
    for word in args {
        let (add, name) = match word.split_at_checked(1) {
            Some(("-", name)) => (false, name),
            Some(("+", name)) => (true, name),
            _ => (true, word.as_str()),
        };
        if name.eq_ignore_ascii_case("all") {
            on = if add { ALL.to_vec() } else { Vec::new() };
        } else if let Some(known) = ALL.iter().find(|known| known.eq_ignore_ascii_case(name)) {
            on.retain(|own| own != known);
            if add {
                on.push(known);
            }
        }
    }
    on.sort_unstable();
    if on.is_empty() { "TLSv1.2 TLSv1.3".into() } else { on.join(" ") }
}

/// Converts a time of seconds, with Apache's units, to nginx's. `None`: malformed.
pub fn convert_time(text: &str) -> Option<String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits)?;
    let number: u64 = number.parse().ok()?;
    let unit = match unit.to_ascii_lowercase().as_str() {
        "" | "s" => "s",
        "ms" => "ms",
        "min" | "mi" => "m",
        "h" => "h",
        _ => return None,
    };
    Some(format!("{number}{unit}"))
}

/// Names of extensions from a pattern for file names (`\.php$`, `.+\.(php|inc)$`) or a wildcard (`*.php`). `None`: it matches
/// other names, too.
pub fn pattern_extensions(pattern: &str, is_glob: bool) -> Option<Vec<String>> {
    let bare = if is_glob {
        pattern.strip_prefix("*.")?
    } else {
        let pattern = ["^.+", "^.*", ".+", ".*"].iter().find_map(|head| pattern.strip_prefix(head)).unwrap_or(pattern);
        pattern.strip_prefix("\\.")?.strip_suffix('$')?
    };
    let bare =
        bare.strip_prefix("(?:").or(bare.strip_prefix('(')).and_then(|rest| rest.strip_suffix(')')).unwrap_or(bare);
    // Debian's: `ph(ar|p|tml)`.
    if bare == "ph(ar|p|tml)" || bare == "ph(?:ar|p|tml)" {
        return Some(["phar", "php", "phtml"].map(str::to_string).to_vec());
    }
    let names: Vec<String> = bare.split('|').map(|name| name.replace("[0-9]?", "")).collect();
    let is_name = |name: &String| !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric());
    names.iter().all(is_name).then_some(names)
}

/// Escapes a text for a regular expression.
pub fn regex_quoted(text: &str) -> String {
    text.chars().flat_map(|c| if "\\.+*?()[]{}^$|".contains(c) { vec!['\\', c] } else { vec![c] }).collect()
}
