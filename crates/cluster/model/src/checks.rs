//! Values that the server would refuse, or that would mean more than a value.

/// Longest pattern that is compiled, in bytes.
const PATTERN_BYTES_MAX: usize = 1024;

/// Tells whether a name is a token (RFC 9110, section 5.1).
pub fn is_field_name(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

/// Tells whether a value has no control characters except tabs, and neither begins nor ends with white space.
pub fn is_field_value(value: &str) -> bool {
    value.trim_matches([' ', '\t']) == value && value.bytes().all(|byte| byte == b'\t' || !byte.is_ascii_control())
}

/// Checks a field that is set, added or compared.
///
/// # Errors
/// If name or value cannot stand in a message.
pub fn check_field(name: &str, value: &str) -> Result<(), String> {
    if !is_field_name(name) {
        return Err(format!("\"{}\" is no name of a header field", name.escape_debug()));
    }
    if !is_field_value(value) {
        return Err(format!("the value of \"{name}\" has control characters, or white space at an end"));
    }
    Ok(())
}

/// Checks a path and decodes its percent signs, as the server compares decoded paths.
///
/// # Errors
/// If it does not begin with a slash, has characters that cannot stand in a path, or decodes to no UTF-8 or to a control
/// character.
pub fn decode_path(path: &str) -> Result<String, String> {
    let no_path = || format!("\"{}\" is no path", path.escape_debug());
    if !path.starts_with('/') || path.contains(['?', '#']) {
        return Err(no_path());
    }
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path.bytes();
    while let Some(byte) = rest.next() {
        let decoded = match byte {
            b'%' => {
                let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
                let (Some(high), Some(low)) = (digit(), digit()) else { return Err(no_path()) };
                (high * 16 + low) as u8
            }
            _ => byte,
        };
        if decoded.is_ascii_control() {
            return Err(no_path());
        }
        out.push(decoded);
    }
    String::from_utf8(out).map_err(|_| no_path())
}

/// Checks a regular expression.
///
/// # Errors
/// If PCRE2 does not compile it.
pub fn check_pattern(pattern: &str) -> Result<(), String> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(format!("a regular expression longer than {PATTERN_BYTES_MAX} bytes"));
    }
    if pattern.bytes().any(|byte| byte == 0) {
        return Err("a regular expression with a NUL".into());
    }
    match pcre2::bytes::Regex::new(pattern) {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("regular expression \"{}\": {error}", pattern.escape_debug())),
    }
}

/// Returns the regular expression that takes whole texts: `^(?:pattern)$`.
///
/// # Errors
/// If PCRE2 does not compile it, with or without the anchors.
pub fn anchor_pattern(pattern: &str) -> Result<String, String> {
    check_pattern(pattern)?;
    let anchored = format!("^(?:{pattern})$");
    check_pattern(&anchored)?;
    Ok(anchored)
}
