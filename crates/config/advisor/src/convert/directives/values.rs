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

/// Converts `access plus 1 month` to nginx's form.
pub fn duration(text: &str) -> Option<String> {
    let text = text.trim_matches('"');
    if let Some(seconds) = text.strip_prefix('A').and_then(|n| n.parse::<u64>().ok()) {
        return Some(format!("{seconds}s"));
    }
    if let Some(seconds) = text.strip_prefix('M').and_then(|n| n.parse::<u64>().ok()) {
        return Some(format!("modified {seconds}s"));
    }
    let mut words = text.split_whitespace();
    let modified = match words.next()?.to_ascii_lowercase().as_str() {
        "access" | "now" => "",
        "modification" => "modified ",
        _ => return None,
    };
    let mut out = 0_u64;
    let mut words = words.peekable();
    words.next_if(|word| word.eq_ignore_ascii_case("plus"));
    while let Some(number) = words.next() {
        let number: u64 = number.parse().ok()?;
        let unit = match words.next()?.to_ascii_lowercase().trim_end_matches('s') {
            "year" => 31_536_000,
            "month" => 2_592_000,
            "week" => 604_800,
            "day" => 86_400,
            "hour" => 3_600,
            "minute" => 60,
            "second" => 1,
            _ => return None,
        };
        out = number.checked_mul(unit).and_then(|seconds| out.checked_add(seconds))?;
    }
    Some(format!("{modified}{out}s"))
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
