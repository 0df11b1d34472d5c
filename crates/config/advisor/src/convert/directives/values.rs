//! Conversion of arguments: protocols, times and patterns.

/// Converts the arguments of `SSLProtocol` to `ssl_protocols`.
pub fn protocols(args: &[String]) -> String {
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

/// Converts `access plus 1 month` to nginx's form. `None`: malformed, or a time before.
pub fn duration(text: &str) -> Option<String> {
    let expires = htaccess::settings::expires(text.trim_matches('"')).ok()?;
    let seconds = u64::try_from(expires.seconds).ok()?;
    let modified = if expires.from_modification { "modified " } else { "" };
    Some(format!("{modified}{seconds}s"))
}

/// Converts a pattern of file names to one of paths.
pub fn of_name(pattern: &str) -> String {
    let (start, bare) = pattern.strip_prefix('^').map_or(("", pattern), |bare| ("/", bare));
    if bare.ends_with('$') && !bare.ends_with("\\$") {
        format!("{start}{bare}")
    } else {
        format!("{start}{bare}[^/]*$")
    }
}

/// Converts a file name with wildcards to a pattern of paths.
pub fn of_glob(glob: &str) -> String {
    let mut out = String::from("/");
    for c in glob.chars() {
        match c {
            '*' => out.push_str("[^/]*"),
            '?' => out.push_str("[^/]"),
            c => out.push_str(&regex_quoted(&c.to_string())),
        }
    }
    out + "$"
}

/// Escapes a text for a regular expression.
pub fn regex_quoted(text: &str) -> String {
    text.chars().flat_map(|c| if "\\.+*?()[]{}^$|".contains(c) { vec!['\\', c] } else { vec![c] }).collect()
}
