//! Rules of nested blocks: locations inside locations, and the methods of `limit_except`.

use crate::values::LocationKind;
use conf_schema::Problem;

/// Error of a forbidden nesting of locations.
pub fn misplaced_location(outer: &LocationKind, inner: &LocationKind) -> Option<Problem> {
    let name = |k: &LocationKind| String::from_utf8_lossy(k.name()).into_owned();
    let says = |text: String| Some(Problem::says(text));
    match (outer, inner) {
        (LocationKind::Exact(_), _) => {
            says(format!("location \"{}\" cannot be inside the exact location \"{}\"", name(inner), name(outer)))
        }
        (LocationKind::Named(_), _) => {
            says(format!("location \"{}\" cannot be inside the named location \"{}\"", name(inner), name(outer)))
        }
        (_, LocationKind::Named(_)) => {
            says(format!("named location \"{}\" can be on the server level only", name(inner)))
        }
        // The text of a regular expression is compared, too, as in nginx.
        (
            LocationKind::Prefix(..) | LocationKind::Regex(_),
            LocationKind::Exact(name_within) | LocationKind::Prefix(name_within, _),
        ) if !name_within.starts_with(outer.name()) => {
            says(format!("location \"{}\" is outside location \"{}\"", name(inner), name(outer)))
        }
        _ => None,
    }
}

/// Parses the methods of `limit_except` into bits; GET permits HEAD.
pub fn allowed_methods(d: &conf_schema::Directive) -> Result<u32, Problem> {
    use http_types::Method as M;
    const METHODS: &[(&str, M)] = &[
        ("GET", M::Get),
        ("HEAD", M::Head),
        ("POST", M::Post),
        ("PUT", M::Put),
        ("DELETE", M::Delete),
        ("MKCOL", M::Mkcol),
        ("COPY", M::Copy),
        ("MOVE", M::Move),
        ("OPTIONS", M::Options),
        ("PROPFIND", M::Propfind),
        ("PROPPATCH", M::Proppatch),
        ("LOCK", M::Lock),
        ("UNLOCK", M::Unlock),
        ("PATCH", M::Patch),
    ];
    let mut allowed = 0;
    for (index, word) in d.args.iter().enumerate() {
        let text = word.text();
        let Some((_, method)) = METHODS.iter().find(|(name, _)| name.eq_ignore_ascii_case(&text)) else {
            return Err(Problem::says(format!("invalid method \"{text}\"")).at(index));
        };
        allowed |= 1 << (*method as u32);
        if *method == M::Get {
            allowed |= 1 << (M::Head as u32);
        }
    }
    Ok(allowed)
}
