//! Values of annotations and of the ConfigMap, as ingress-nginx reads them.

use std::collections::BTreeMap;
use std::net::IpAddr;

/// Longest snippet in bytes.
pub(crate) const SNIPPET_BYTES_MAX: usize = 64 << 10;

/// Values by name, with complaints about those that are invalid.
pub(crate) struct Reader<'a> {
    values: BTreeMap<&'a str, &'a str>,
    pub complaints: Vec<String>,
}

impl<'a> Reader<'a> {
    pub fn new(values: BTreeMap<&'a str, &'a str>) -> Reader<'a> {
        Reader { values, complaints: Vec::new() }
    }

    /// Returns the value without white space at its ends; `None` if it is absent or empty.
    pub fn text(&self, name: &str) -> Option<&'a str> {
        self.values.get(name).map(|value| value.trim()).filter(|value| !value.is_empty())
    }

    /// Returns the value if it passes a check; a complaint and `None` otherwise.
    pub fn checked(&mut self, name: &str, expected: &str, check: impl Fn(&str) -> bool) -> Option<&'a str> {
        let value = self.text(name)?;
        if check(value) {
            return Some(value);
        }
        self.complaints.push(format!("{name}: \"{}\" is ignored: expected {expected}", value.escape_debug()));
        None
    }

    pub fn boolean(&mut self, name: &str) -> Option<bool> {
        let value = self.checked(name, "\"true\" or \"false\"", |value| parse_bool(value).is_some())?;
        parse_bool(value)
    }

    /// Returns an integer. Go's `Atoi` takes no units.
    pub fn integer(&mut self, name: &str) -> Option<i64> {
        let value = self.checked(name, "an integer without a unit", |value| parse_integer(value).is_some())?;
        parse_integer(value)
    }

    pub fn size(&mut self, name: &str) -> Option<&'a str> {
        self.checked(name, "a size: digits with k, m or g", is_size)
    }

    pub fn on_off(&mut self, name: &str) -> Option<&'a str> {
        self.checked(name, "\"on\" or \"off\"", |value| matches!(value, "on" | "off"))
    }

    pub fn one_of(&mut self, name: &str, words: &[&str]) -> Option<&'a str> {
        self.checked(name, &format!("one of {}", words.join(", ")), |value| words.contains(&value))
    }
}

/// Parses Go's forms of a truth value.
pub(crate) fn parse_bool(value: &str) -> Option<bool> {
    match value {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => Some(true),
        "0" | "f" | "F" | "false" | "FALSE" | "False" => Some(false),
        _ => None,
    }
}

/// Parses a number that fits into 32 bits.
pub(crate) fn parse_integer(value: &str) -> Option<i64> {
    let digits = value.strip_prefix(['-', '+']).unwrap_or(value);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    value.parse().ok().filter(|number: &i64| number.abs() <= i64::from(i32::MAX))
}

/// Tells whether a value is a size of nginx. Terabytes and exponents are none.
pub(crate) fn is_size(value: &str) -> bool {
    let digits = value.strip_suffix(['k', 'K', 'm', 'M', 'g', 'G']).unwrap_or(value);
    !digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|byte| byte.is_ascii_digit())
}

/// Parses addresses and networks between commas. The result is sorted and without duplicates.
///
/// # Errors
/// With the entry that is none.
pub(crate) fn parse_networks(value: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for entry in value.split(',').map(str::trim).filter(|entry| !entry.is_empty()) {
        let (address, bits) = entry.split_once('/').map_or((entry, None), |(address, bits)| (address, Some(bits)));
        let parsed: Option<IpAddr> = address.parse().ok();
        let width = parsed.map(|address| if address.is_ipv4() { 32 } else { 128 });
        let bits = bits.map(|bits| bits.parse::<u8>().ok());
        let is_valid = match (width, bits) {
            (Some(_), None) => true,
            (Some(width), Some(Some(bits))) => bits <= width,
            _ => false,
        };
        if !is_valid {
            return Err(format!("\"{}\" is no address or network", entry.escape_debug()));
        }
        found.push(entry.to_owned());
    }
    found.sort();
    found.dedup();
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::{is_size, parse_bool, parse_integer, parse_networks};

    #[test]
    fn values_have_the_forms_of_go() {
        assert_eq!(parse_bool("True"), Some(true));
        assert_eq!(parse_bool("yes"), None);
        assert_eq!(parse_integer("-1"), Some(-1));
        for value in ["30s", "", "1.5", "99999999999", "+"] {
            assert_eq!(parse_integer(value), None, "{value}");
        }
        assert!(is_size("8m") && is_size("0") && !is_size("1t") && !is_size("m") && !is_size("1 m"));
        assert_eq!(parse_networks("10.0.0.0/8, ::1,10.0.0.0/8").unwrap(), ["10.0.0.0/8", "::1"]);
        assert!(parse_networks("10.0.0.0/33").is_err() && parse_networks("all").is_err());
    }
}
