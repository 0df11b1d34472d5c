//! Values in which ingress-nginx's configuration evaluates variables.

use conf_syntax::writer::{Argument, TemplatePart};

/// Variables that the translation itself defines.
const OWN: &[&str] = &[
    "auth_cookie",
    "best_http_host",
    "connection_upgrade",
    "escaped_request_uri",
    "ingress_name",
    "location_path",
    "namespace",
    "pass_access_scheme",
    "pass_port",
    "req_id",
    "service_name",
    "service_port",
    "the_real_ip",
];

/// Checks the variables of a value. The result is evaluated by the server, as ingress-nginx's configuration does.
///
/// # Errors
/// If a variable exists neither in nginx nor in `others`: the server would refuse the whole configuration.
pub(crate) fn template(value: &str, others: &[String]) -> Result<Argument, String> {
    if value.contains('\0') {
        return Err("a value with a NUL".into());
    }
    let mut rest = value;
    while let Some(at) = rest.find('$') {
        let behind = &rest[at + 1..];
        if behind.starts_with(|c: char| ('1'..='9').contains(&c)) {
            rest = &behind[1..];
            continue;
        }
        let (name, after) = match behind.strip_prefix('{') {
            Some(inner) => {
                inner.split_once('}').ok_or_else(|| format!("\"{}\" has no closing brace", value.escape_debug()))?
            }
            None => {
                let end = behind.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(behind.len());
                behind.split_at(end)
            }
        };
        let is_name = !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
        let is_known = conf_schema::vocabulary::variables::is_of_http(name)
            || OWN.contains(&name)
            || others.iter().any(|other| other == name);
        if !is_name || !is_known {
            return Err(format!("the variable \"${}\" does not exist", name.escape_debug()));
        }
        rest = after;
    }
    Ok(Argument::plain(value))
}

/// Returns an argument of text, a variable, and text.
pub(crate) fn parts(parts: &[Result<&str, &str>]) -> Argument {
    let part = |part: &Result<&str, &str>| match part {
        Ok(text) => TemplatePart::Text(text.as_bytes().to_vec()),
        Err(name) => TemplatePart::Variable((*name).to_owned()),
    };
    Argument::Template(parts.iter().map(part).collect())
}

#[cfg(test)]
mod tests {
    use super::template;

    #[test]
    fn variables_are_those_that_exist() {
        let bytes = |value: &str| template(value, &["mine".into()]).map(|argument| argument.bytes());
        assert_eq!(bytes("https://$host/a?b=${scheme}x").unwrap(), b"https://$host/a?b=${scheme}x");
        assert_eq!(bytes("/$1foo").unwrap(), b"/$1foo");
        assert_eq!(bytes("/x/$2").unwrap(), b"/x/$2");
        assert_eq!(bytes("$mine").unwrap(), b"$mine");
        assert_eq!(bytes("plain").unwrap(), b"plain");
        for value in ["$unknown", "${host", "$", "a$ b"] {
            assert!(bytes(value).is_err(), "{value}");
        }
    }
}
