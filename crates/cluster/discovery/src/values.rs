//! Values of labels, tags and variables.

use cluster_model::{PathMatch, check_pattern, decode_path, is_field_value};
use conf_syntax::writer::{Argument, NewDirective, WriteNode};
use conf_syntax::{FileId, first_error, list_directives};

/// Longest value in bytes.
pub const VALUE_BYTES_MAX: usize = 16 << 10;
/// Networks that `internal` stands for, as nginx-proxy has them.
pub const INTERNAL_NETWORKS: &[&str] = &["127.0.0.0/8", "10.0.0.0/8", "192.168.0.0/16", "172.16.0.0/12"];
/// Directives of a group that a value may have.
const BALANCE_DIRECTIVES: &[&str] = &["ip_hash", "least_conn", "hash", "random", "least_time", "sticky"];

/// Reads a switch.
///
/// # Errors
/// If the text is no word for on or off.
pub fn parse_switch(text: &str) -> Result<bool, String> {
    match text.trim().to_ascii_lowercase().as_str() {
        "true" | "on" | "yes" | "1" | "" => Ok(true),
        "false" | "off" | "no" | "0" => Ok(false),
        other => Err(format!("\"{}\" is neither true nor false", other.escape_debug())),
    }
}

/// Reads a port.
///
/// # Errors
/// If the text is no number from 1 to 65535.
pub fn parse_port(text: &str) -> Result<u16, String> {
    match text.trim().parse::<u16>() {
        Ok(port) if port > 0 => Ok(port),
        _ => Err(format!("\"{}\" is no port", text.escape_debug())),
    }
}

/// Reads one of several words.
///
/// # Errors
/// If the text is none of them: names them all.
pub fn parse_word<T: Copy>(text: &str, words: &[(&'static str, T)]) -> Result<T, String> {
    let text = text.trim().to_ascii_lowercase();
    words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value).ok_or_else(|| {
        let all: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("\"{}\" is none of {}", text.escape_debug(), all.join(", "))
    })
}

/// Splits a list at commas and white space.
pub fn split_list(text: &str) -> impl Iterator<Item = &str> {
    text.split([',', ' ', '\t', '\n']).map(str::trim).filter(|part| !part.is_empty())
}

/// Reads a path with the modifiers of `location`: `= /exact`, `~ regex`, `~* regex`, `^~ /text`. A path without a modifier
/// is compared by whole elements, or as a text.
///
/// # Errors
/// If it is no path, or the regular expression is invalid.
pub fn parse_path(text: &str, by_elements: bool) -> Result<PathMatch, String> {
    let text = text.trim();
    let pattern = |pattern: &str, is_case_insensitive: bool| {
        check_pattern(pattern)?;
        Ok(PathMatch::Regex { pattern: pattern.to_owned(), is_case_insensitive })
    };
    if let Some(rest) = text.strip_prefix("~*") {
        return pattern(rest.trim_start(), true);
    }
    if let Some(rest) = text.strip_prefix('~') {
        return pattern(rest.trim_start(), false);
    }
    if let Some(rest) = text.strip_prefix('=') {
        return decode_path(rest.trim_start()).map(PathMatch::Exact);
    }
    if let Some(rest) = text.strip_prefix("^~") {
        return decode_path(rest.trim_start()).map(PathMatch::Text);
    }
    let path = decode_path(text)?;
    Ok(match (by_elements, path.as_str()) {
        (false, _) => PathMatch::Text(path),
        (true, "/") => PathMatch::Prefix(path),
        (true, _) => PathMatch::Prefix(path.trim_end_matches('/').to_owned()),
    })
}

/// Reads the target of a rewrite: empty, or a path.
///
/// # Errors
/// If it is no path, or the path of the route is a regular expression.
pub fn parse_rewrite(text: &str, path: &PathMatch) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() {
        return Ok(String::new());
    }
    if matches!(path, PathMatch::Regex { .. }) {
        return Err("a path that is a regular expression cannot be rewritten".into());
    }
    decode_path(text)
}

/// Reads networks of clients: CIDR, addresses, `internal` and `all`.
///
/// # Errors
/// If one of them is none.
pub fn parse_networks(text: &str) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for part in split_list(text) {
        match part {
            "internal" => found.extend(INTERNAL_NETWORKS.iter().map(|network| (*network).to_owned())),
            "all" => return Ok(Vec::new()),
            part => {
                let (address, bits) = part.split_once('/').unwrap_or((part, "0"));
                let address: std::net::IpAddr =
                    address.parse().map_err(|_| format!("\"{}\" is no network", part.escape_debug()))?;
                let max = if address.is_ipv4() { 32 } else { 128 };
                if !bits.parse::<u8>().is_ok_and(|bits| bits <= max) {
                    return Err(format!("\"{}\" is no network", part.escape_debug()));
                }
                found.push(part.to_owned());
            }
        }
    }
    Ok(found)
}

/// Reads the value of `Strict-Transport-Security`, or `off`.
///
/// # Errors
/// If it cannot stand in a field.
pub fn parse_hsts(text: &str) -> Result<String, String> {
    let text = text.trim();
    if text.is_empty() || !is_field_value(text) || text.len() > VALUE_BYTES_MAX {
        return Err(format!("\"{}\" is no value of Strict-Transport-Security", text.escape_debug()));
    }
    Ok(text.to_owned())
}

/// Reads the way of balancing: directives of `upstream` such as `least_conn` or `hash $remote_addr consistent`, with or
/// without a semicolon; `round_robin` for none.
///
/// # Errors
/// If it is another directive.
pub fn parse_balance(text: &str) -> Result<Vec<WriteNode>, String> {
    let text = text.trim().trim_end_matches(';');
    if matches!(text, "" | "round_robin") {
        return Ok(Vec::new());
    }
    let items = conf_syntax::parse_file(FileId(0), format!("{text};").as_bytes());
    if let Some(error) = first_error(&items) {
        return Err(error.text.to_string());
    }
    let mut nodes = Vec::new();
    for directive in list_directives(&items) {
        let name = String::from_utf8_lossy(&directive.name.bytes).into_owned();
        if !BALANCE_DIRECTIVES.contains(&name.as_str()) || directive.block.is_some() {
            let known = BALANCE_DIRECTIVES.join(", ");
            return Err(format!("\"{}\" is no way of balancing: round_robin, {known}", name.escape_debug()));
        }
        let args = directive.args.iter().map(|word| Argument::plain(&word.bytes));
        nodes.push(NewDirective::entry(Argument::plain(&name)).args(args).into());
    }
    Ok(nodes)
}

/// Reads the number of idle connections that are kept: `disabled`, `auto`, or a number; `auto` is the server's own.
///
/// # Errors
/// If it is none of these.
pub fn parse_keepalive(text: &str) -> Result<Vec<WriteNode>, String> {
    match text.trim() {
        "auto" => Ok(Vec::new()),
        "disabled" => Ok(vec![NewDirective::new("keepalive").arg("0").into()]),
        text => match text.parse::<u16>() {
            Ok(count) => Ok(vec![NewDirective::new("keepalive").arg(Argument::plain(count.to_string())).into()]),
            Err(_) => Err(format!("\"{}\" is none of auto, disabled and a number", text.escape_debug())),
        },
    }
}

/// Reads an absolute folder of a container.
///
/// # Errors
/// If it is none.
pub fn parse_folder(text: &str) -> Result<String, String> {
    let text = text.trim();
    match text.starts_with('/') && !text.chars().any(char::is_control) && text.len() < 4096 {
        true => Ok(text.to_owned()),
        false => Err(format!("\"{}\" is no absolute path", text.escape_debug())),
    }
}

/// Reads an address of mails.
///
/// # Errors
/// If it is none.
pub fn parse_mail(text: &str) -> Result<String, String> {
    let text = text.trim();
    let is_mail = text.split_once('@').is_some_and(|(user, host)| !user.is_empty() && !host.is_empty());
    match is_mail && text.len() < 255 && text.bytes().all(|byte| byte.is_ascii_graphic()) {
        true => Ok(text.to_owned()),
        false => Err(format!("\"{}\" is no address of mails", text.escape_debug())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_the_modifiers_of_locations() {
        assert_eq!(parse_path("/api/", true), Ok(PathMatch::Prefix("/api".into())));
        assert_eq!(parse_path("/api/", false), Ok(PathMatch::Text("/api/".into())));
        assert_eq!(parse_path("= /x", true), Ok(PathMatch::Exact("/x".into())));
        assert_eq!(parse_path("^~ /x", true), Ok(PathMatch::Text("/x".into())));
        let regex = |is_case_insensitive| PathMatch::Regex { pattern: "^/(a|b)/".into(), is_case_insensitive };
        assert_eq!(parse_path("~^/(a|b)/", false), Ok(regex(false)));
        assert_eq!(parse_path("~* ^/(a|b)/", false), Ok(regex(true)));
        for text in ["", "api", "/a?b", "~(", "/%0a", "= x"] {
            assert!(parse_path(text, true).is_err(), "{text}");
        }
    }

    #[test]
    fn networks_are_checked() {
        assert_eq!(parse_networks("internal").unwrap().len(), 4);
        assert_eq!(
            parse_networks("10.1.0.0/16, fd00::/8 192.0.2.1").unwrap(),
            ["10.1.0.0/16", "fd00::/8", "192.0.2.1"]
        );
        assert_eq!(parse_networks("all").unwrap(), Vec::<String>::new());
        for text in ["10.0.0.0/33", "example.com", "10.0.0.0/8;deny all"] {
            assert!(parse_networks(text).is_err(), "{text}");
        }
    }

    #[test]
    fn balance_takes_directives_of_groups_only() {
        assert_eq!(parse_balance("hash $remote_addr consistent;").unwrap().len(), 1);
        assert_eq!(parse_balance("round_robin").unwrap().len(), 0);
        for text in ["server 10.0.0.1", "least_conn; } http {", "least_conn {}", "lua_code x"] {
            assert!(parse_balance(text).is_err(), "{text}");
        }
    }
}
