//! Conditions of `auth_require` and `auth_jwt_require`.

use conf_schema::{Cx, Directive, Problem};
use http_engine::{HttpTemplate, Request};

/// Values that must be neither empty nor `0`.
pub struct Requirement {
    values: Vec<HttpTemplate>,
    /// Status of requests for which it does not hold.
    pub status: u16,
}

impl Requirement {
    /// Parses `$value ... [error=code]`. `hint` names the codes that `is_allowed` permits.
    ///
    /// # Errors
    /// A parameter is invalid, or there is no value.
    pub fn parse(
        cx: &mut Cx,
        d: &Directive,
        default: u16,
        is_allowed: impl Fn(u16) -> bool,
        hint: &str,
    ) -> Result<Self, Problem> {
        let (mut values, mut status) = (Vec::new(), None);
        for (index, word) in d.args.iter().enumerate() {
            let wrong = || Problem::says(format!("invalid parameter \"{}\"", word.text())).at(index);
            if let Some(code) = word.bytes.strip_prefix(b"error=") {
                let code = std::str::from_utf8(code).ok().filter(|code| code.len() == 3).and_then(|c| c.parse().ok());
                let code = code.filter(|code| status.is_none() && is_allowed(*code));
                status = Some(code.ok_or_else(|| wrong().hint(hint))?);
            } else if matches!(word.bytes.as_slice(), [b'$', _, ..]) {
                values.push(HttpTemplate::compile(cx, d, &word.bytes).map_err(|p| p.at(index))?);
            } else {
                return Err(wrong().hint(format!("each value must begin with a variable; {hint}")));
            }
        }
        match values.is_empty() {
            true => Err(Problem::directive("needs a value")),
            false => Ok(Requirement { values, status: status.unwrap_or(default) }),
        }
    }
    /// Evaluates the values until one is empty or `0`.
    pub fn holds(&self, r: &mut Request) -> bool {
        self.values.iter().all(|value| !matches!(value.eval(r).as_slice(), b"" | b"0"))
    }
}
