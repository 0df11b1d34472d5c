//! The variables of a rule: `ARGS|!ARGS:pass|&REQUEST_HEADERS:/^x-/`.

use crate::body::xml::XmlPath;
use crate::failure::{Refusal, nearest};
use crate::operator::{MATCH_STEPS_MAX, Pattern};
use crate::rule::{Target, TargetSelector};
use crate::template::Template;
use crate::variable::Variable;
use std::sync::Arc;

/// Parses the variables of a rule: targets, and exclusions (`!`). `namespaces` are those of the rule's `xmlns`.
pub(super) fn parse_targets(
    text: &str,
    namespaces: &[(String, String)],
) -> Result<(Vec<Target>, Vec<Target>), Refusal> {
    let mut targets = Vec::new();
    let mut exclusions = Vec::new();
    let mut at = 0;
    for part in divide(text) {
        let start = at;
        at += part.len() + 1;
        let trimmed = part.trim();
        let start = start + (part.len() - part.trim_start().len());
        let (excludes, counts, rest) = match trimmed.as_bytes() {
            [b'!', ..] => (true, false, trimmed.get(1..)),
            [b'&', ..] => (false, true, trimmed.get(1..)),
            _ => (false, false, Some(trimmed)),
        };
        let rest = rest.unwrap_or_default();
        let at_start = |refusal: Refusal| refusal.at(start);
        if excludes {
            exclusions.push(parse_exclusion(rest, namespaces).map_err(at_start)?);
        } else {
            targets.push(parse_target(rest, counts, namespaces).map_err(at_start)?);
        }
    }
    Ok((targets, exclusions))
}

/// Divides at `|`, but not within a pattern between slashes.
fn divide(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    loop {
        let end = part_end(rest);
        parts.push(rest.get(..end).unwrap_or_default());
        match rest.get(end + 1..) {
            Some(next) => rest = next,
            None => return parts,
        }
    }
}

/// The end of the first part: at a `|`, or at the end of the text.
fn part_end(text: &str) -> usize {
    let plain = text.find('|').unwrap_or(text.len());
    let Some(colon) = text.find(':').filter(|colon| *colon < plain) else { return plain };
    let name = text.get(..colon).unwrap_or_default().trim_start_matches(['!', '&', ' ']);
    let behind = text.get(colon + 1..).unwrap_or_default();
    let quoted = behind.starts_with("'/");
    if name.eq_ignore_ascii_case("XML") || !(behind.starts_with('/') || quoted) {
        return plain;
    }
    let body = colon + 2 + usize::from(quoted);
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(body) {
        if escaped {
            escaped = false;
        } else if byte == b'\\' {
            escaped = true;
        } else if byte == b'/' {
            let after = at + 1 + usize::from(quoted);
            let ends = text.get(after..).is_some_and(|rest| rest.is_empty() || rest.starts_with('|'));
            if ends {
                return after;
            }
        }
    }
    plain
}

/// Parses an excluded variable without its `!`: `XML` without a path means all of its paths.
pub(super) fn parse_exclusion(text: &str, namespaces: &[(String, String)]) -> Result<Target, Refusal> {
    if Variable::named(text) == Some(Variable::Xml) {
        let text = Variable::Xml.name().into();
        return Ok(Target { variable: Variable::Xml, selector: TargetSelector::All, counts: false, text });
    }
    parse_target(text, false, namespaces)
}

/// Parses one variable without its `!` or `&`.
fn parse_target(text: &str, counts: bool, namespaces: &[(String, String)]) -> Result<Target, Refusal> {
    let (name, element) = match text.split_once(':').or_else(|| text.split_once('.')) {
        Some((name, element)) => (name, Some(element)),
        None => (text, None),
    };
    let Some(variable) = Variable::named(name) else {
        if let Some(reason) = Variable::absence(name) {
            return Err(Refusal::new(format!("variable {name} is not supported: {reason}")));
        }
        let refusal = Refusal::new(format!("unknown variable \"{name}\""));
        return Err(match nearest(name, Variable::names()) {
            Some(known) => refusal.suggest(format!("did you mean {known}?")),
            None => refusal,
        });
    };
    let shown = match element {
        Some(element) => format!("{}:{element}", variable.name()),
        None => variable.name().to_string(),
    };
    let offset = name.len() + 1;
    let selector = match element {
        None if variable == Variable::Xml => {
            return Err(Refusal::new("XML needs a path").suggest("write XML:/* for all text, XML://@* for attributes"));
        }
        None => TargetSelector::All,
        Some(_) if !variable.is_collection() => {
            return Err(Refusal::new(format!("{} has no elements", variable.name())).at(offset));
        }
        Some("") => return Err(Refusal::new("the name of an element is missing").at(offset)),
        Some(path) if variable == Variable::Xml => {
            let path = XmlPath::parse(path, namespaces).map_err(|reason| Refusal::new(reason).at(offset))?;
            TargetSelector::Path(Arc::new(path))
        }
        Some(element) => parse_selector(element).map_err(|refusal| refusal.at(offset))?,
    };
    Ok(Target { variable, selector, counts, text: shown.into() })
}

fn parse_selector(element: &str) -> Result<TargetSelector, Refusal> {
    let unquoted = element.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\'')).unwrap_or(element);
    let inside = unquoted.strip_prefix('/').and_then(|rest| rest.strip_suffix('/'));
    if let Some(pattern) = inside {
        let pattern = Pattern::new(pattern, true, MATCH_STEPS_MAX)
            .map_err(|(words, offset)| Refusal::new(format!("invalid pattern: {words}")).at(offset + 1))?;
        return Ok(TargetSelector::Pattern(Arc::new(pattern)));
    }
    let template = Template::parse(unquoted.as_bytes())?;
    Ok(match template.as_literal() {
        Some(name) => TargetSelector::Name(name.to_ascii_lowercase().into()),
        None => TargetSelector::Macro(template),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_are_divided_outside_of_patterns() {
        let (targets, exclusions) =
            parse_targets("ARGS|!ARGS:/a|b\\/c/|&REQUEST_HEADERS:Host|XML:/*|XML://@*", &[]).expect("targets");
        let shown: Vec<_> = targets.iter().map(|target| &*target.text).collect();
        assert_eq!(shown, ["ARGS", "REQUEST_HEADERS:Host", "XML:/*", "XML://@*"]);
        assert!(targets.get(1).is_some_and(|target| target.counts));
        assert!(exclusions.first().is_some_and(|target| target.covers(Variable::Args, Some(b"xb/c"))));
        assert!(exclusions.first().is_some_and(|target| !target.covers(Variable::Args, Some(b"b"))));
    }

    #[test]
    fn an_exclusion_of_xml_needs_no_path() {
        let (targets, exclusions) = parse_targets("XML:/*|XML://@*|!XML", &[]).expect("targets");
        assert_eq!(targets.len(), 2);
        assert!(exclusions.first().is_some_and(|excluded| excluded.covers(Variable::Xml, None)));
        assert!(exclusions.first().is_some_and(|excluded| !excluded.covers(Variable::Args, None)));
        assert!(parse_targets("XML", &[]).is_err() && parse_targets("&XML", &[]).is_err());
    }

    #[test]
    fn names_are_selected_without_case() {
        let target = parse_target("REQUEST_HEADERS:User-Agent", false, &[]).expect("target");
        assert!(target.covers(Variable::RequestHeaders, Some(b"user-agent")));
        assert!(!target.covers(Variable::ResponseHeaders, Some(b"user-agent")));
    }

    #[test]
    fn errors_name_the_place_and_a_suggestion() {
        let refusal = parse_targets("ARGS|REQUEST_HEADRES:a", &[]).expect_err("an error");
        assert_eq!((refusal.offset, refusal.suggestion.as_deref()), (5, Some("did you mean REQUEST_HEADERS?")));
        assert_eq!(parse_targets("REMOTE_ADDR:x", &[]).expect_err("an error").offset, 12);
        assert!(parse_targets("ARGS:/(/", &[]).expect_err("an error").reason.starts_with("invalid pattern"));
    }
}
