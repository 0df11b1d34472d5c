//! The actions of a rule: `id:1,phase:2,deny,msg:'text'`.

use super::controls::parse_control;
use crate::failure::{Refusal, nearest};
use crate::rule::{AllowReach, Disruption, Effect, Link, RuleLabels, VariableChange, VariablePlace};
use crate::store::LastingCollection;
use crate::template::Template;
use crate::transform::Transformation;
use crate::variable::Variable;
use std::sync::Arc;

/// An action as written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RawAction {
    pub name: String,
    pub value: Option<String>,
    /// Start of the name in the list, and of the value.
    pub offset: usize,
    pub value_offset: usize,
}

/// Divides a list of actions at commas; single quotes enclose values, within which `\'` is a quote.
pub(super) fn divide_actions(text: &str) -> Result<Vec<RawAction>, Refusal> {
    let mut actions = Vec::new();
    let mut characters = text.char_indices().peekable();
    loop {
        while characters.next_if(|(_, c)| c.is_ascii_whitespace() || *c == ',').is_some() {}
        let Some(&(offset, _)) = characters.peek() else { return Ok(actions) };
        let mut name = String::new();
        while let Some((_, c)) = characters.next_if(|(_, c)| !matches!(c, ':' | ',')) {
            name.push(c);
        }
        let name = name.trim().to_string();
        let mut action = RawAction { name, value: None, offset, value_offset: offset };
        if characters.next_if(|(_, c)| *c == ':').is_some() {
            while characters.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
            action.value_offset = characters.peek().map_or(text.len(), |(at, _)| *at);
            let mut value = String::new();
            if characters.next_if(|(_, c)| *c == '\'').is_some() {
                action.value_offset += 1;
                let mut closed = false;
                while let Some((_, c)) = characters.next() {
                    match c {
                        '\'' => {
                            closed = true;
                            break;
                        }
                        '\\' => match characters.next_if(|(_, c)| *c == '\'') {
                            Some(_) => value.push('\''),
                            None => value.push('\\'),
                        },
                        _ => value.push(c),
                    }
                }
                if !closed {
                    let refusal = Refusal::new(format!("the quote of action \"{}\" is not closed", action.name));
                    return Err(refusal.at(action.value_offset - 1));
                }
                while characters.next_if(|(_, c)| c.is_ascii_whitespace()).is_some() {}
                if let Some((at, c)) = characters.peek()
                    && *c != ','
                {
                    let refusal =
                        Refusal::new(format!("\"{c}\" follows the quoted value of action \"{}\"", action.name));
                    return Err(refusal
                        .suggest("divide actions with commas; write \\' for a quote in a value")
                        .at(*at));
                }
            } else {
                while let Some((_, c)) = characters.next_if(|(_, c)| *c != ',') {
                    value.push(c);
                }
                value.truncate(value.trim_end().len());
            }
            action.value = Some(value);
        }
        actions.push(action);
    }
}

/// The actions of one `SecRule`, `SecAction`, `SecDefaultAction` or `SecRuleUpdateActionById`.
#[derive(Clone, Debug, Default)]
pub(crate) struct ActionList {
    pub id: Option<u64>,
    pub phase: Option<u8>,
    pub chained: bool,
    pub disruption: Option<Disruption>,
    pub status: Option<u16>,
    pub skip: u32,
    pub skip_after: Option<Arc<str>>,
    pub labels: RuleLabels,
    /// Tags and message as written, for removal by tag or message.
    pub tag_texts: Vec<Box<str>>,
    pub message_text: Option<Box<str>>,
    pub transformations: Vec<Transformation>,
    pub ignores_default_chain: bool,
    pub multi_match: bool,
    pub captures: bool,
    pub logs: Option<bool>,
    pub audits: Option<bool>,
    pub changes: Vec<(VariablePlace, VariableChange)>,
    pub effects: Vec<Effect>,
    pub namespaces: Vec<(String, String)>,
}

/// Actions of ModSecurity that are refused, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("append", "responses are not changed"),
    ("exec", "a rule must not start a program"),
    ("pause", "a rule must not delay other requests; use limit_req for slow clients"),
    ("prepend", "responses are not changed"),
    ("proxy", "a rule must not choose the upstream; use proxy_pass with a map"),
    ("sanitiseArg", "the audit log has no part of its own for sanitised values"),
    ("sanitiseMatched", "the audit log has no part of its own for sanitised values"),
    ("sanitiseMatchedBytes", "the audit log has no part of its own for sanitised values"),
    ("sanitiseRequestHeader", "the audit log has no part of its own for sanitised values"),
    ("sanitiseResponseHeader", "the audit log has no part of its own for sanitised values"),
];

/// Names of actions, for suggestions.
const ACTIONS: &[&str] = &[
    "accuracy",
    "allow",
    "auditlog",
    "block",
    "capture",
    "chain",
    "ctl",
    "deny",
    "deprecatevar",
    "drop",
    "expirevar",
    "id",
    "initcol",
    "log",
    "logdata",
    "maturity",
    "msg",
    "multiMatch",
    "noauditlog",
    "nolog",
    "pass",
    "phase",
    "redirect",
    "rev",
    "setenv",
    "setrsc",
    "setsid",
    "setuid",
    "setvar",
    "severity",
    "skip",
    "skipAfter",
    "status",
    "t",
    "tag",
    "ver",
    "xmlns",
];

/// Parses a list of actions.
pub(super) fn parse_actions(text: &str) -> Result<ActionList, Refusal> {
    let mut list = ActionList::default();
    for action in divide_actions(text)? {
        let value_offset = action.value_offset;
        let offset = action.offset;
        list.add(&action).map_err(|refusal| match &action.value {
            Some(_) => refusal.at(value_offset),
            None => refusal.at(offset),
        })?;
    }
    Ok(list)
}

fn number<N: std::str::FromStr>(name: &str, value: &str) -> Result<N, Refusal> {
    value.trim().parse().map_err(|_| Refusal::new(format!("action {name} needs a number, not \"{value}\"")))
}

impl ActionList {
    fn add(&mut self, action: &RawAction) -> Result<(), Refusal> {
        let name = action.name.to_ascii_lowercase();
        let flag = |set: &mut dyn FnMut()| match &action.value {
            None => {
                set();
                Ok(())
            }
            Some(_) => Err(Refusal::new(format!("action {name} takes no value"))),
        };
        let needed = || {
            let value = action.value.as_deref().filter(|value| !value.is_empty());
            value.ok_or_else(|| Refusal::new(format!("action {name} needs a value")))
        };
        match name.as_str() {
            "id" => self.id = Some(number("id", needed()?)?),
            "phase" => self.phase = Some(phase_number(needed()?)?),
            "chain" => return flag(&mut || self.chained = true),
            "pass" => return flag(&mut || self.disruption = Some(Disruption::Pass)),
            "block" => return flag(&mut || self.disruption = Some(Disruption::Block)),
            "deny" => return flag(&mut || self.disruption = Some(Disruption::Deny)),
            "drop" => return flag(&mut || self.disruption = Some(Disruption::Drop)),
            "allow" => self.disruption = Some(Disruption::Allow(allow_reach(action.value.as_deref())?)),
            "redirect" => self.disruption = Some(Disruption::Redirect(Template::parse(needed()?.as_bytes())?)),
            "status" => {
                let status: u16 = number("status", needed()?)?;
                if !(100..=599).contains(&status) {
                    return Err(Refusal::new(format!("{status} is no HTTP status")));
                }
                self.status = Some(status);
            }
            "skip" => self.skip = number("skip", needed()?)?,
            "skipafter" => self.skip_after = Some(needed()?.into()),
            "msg" => {
                let text = needed()?;
                self.labels.message = Some(Template::parse(text.as_bytes())?);
                self.message_text = Some(text.into());
            }
            "logdata" => self.labels.data = Some(Template::parse(needed()?.as_bytes())?),
            "tag" => {
                let text = needed()?;
                self.labels.tags.push(Template::parse(text.as_bytes())?);
                self.tag_texts.push(text.into());
            }
            "rev" => self.labels.revision = needed()?.into(),
            "ver" => self.labels.version = needed()?.into(),
            "maturity" => self.labels.maturity = number("maturity", needed()?)?,
            "accuracy" => self.labels.accuracy = number("accuracy", needed()?)?,
            "severity" => self.labels.severity = Some(severity_number(needed()?)?),
            "log" => return flag(&mut || (self.logs, self.audits) = (Some(true), Some(true))),
            "nolog" => return flag(&mut || (self.logs, self.audits) = (Some(false), Some(false))),
            "auditlog" => return flag(&mut || self.audits = Some(true)),
            "noauditlog" => return flag(&mut || self.audits = Some(false)),
            "capture" => return flag(&mut || self.captures = true),
            "multimatch" => return flag(&mut || self.multi_match = true),
            "t" => self.transform(needed()?)?,
            "ctl" => self.effects.push(Effect::Control(parse_control(needed()?)?)),
            "setvar" => self.changes.push(parse_change(needed()?)?),
            "expirevar" => {
                let (place, seconds) = place_and_value("expirevar", needed()?)?;
                self.effects.push(Effect::ExpireVariable(place, seconds));
            }
            "deprecatevar" => self.effects.push(parse_deprecation(needed()?)?),
            "initcol" => {
                let value = needed()?;
                let (collection, key) = value.split_once('=').ok_or_else(|| {
                    Refusal::new("initcol needs a collection and a key").suggest("write initcol:ip=%{REMOTE_ADDR}")
                })?;
                let lasting = Variable::named(collection.trim()).and_then(Variable::lasting).ok_or_else(|| {
                    Refusal::new(format!("\"{collection}\" is no collection that lasts"))
                        .suggest("ip, session, user, global and resource are")
                })?;
                self.effects.push(Effect::SelectCollection(lasting, Template::parse(key.trim().as_bytes())?));
            }
            "setuid" | "setsid" | "setrsc" => {
                let lasting = match name.as_str() {
                    "setuid" => LastingCollection::User,
                    "setsid" => LastingCollection::Session,
                    _ => LastingCollection::Resource,
                };
                self.effects.push(Effect::SelectCollection(lasting, Template::parse(needed()?.as_bytes())?));
            }
            "setenv" => {
                let value = needed()?;
                let (variable, text) = value.split_once('=').unwrap_or((value, ""));
                self.effects.push(Effect::SetEnvironment(variable.trim().into(), Template::parse(text.as_bytes())?));
            }
            "xmlns" => {
                let value = needed()?;
                let (prefix, uri) = value.split_once('=').ok_or_else(|| {
                    Refusal::new("xmlns needs a prefix and a URI").suggest("write xmlns:soap=http://...")
                })?;
                self.namespaces.push((prefix.trim().into(), uri.trim_matches(['"', '\'']).into()));
            }
            _ => return Err(unknown_action(&action.name)),
        }
        Ok(())
    }

    fn transform(&mut self, name: &str) -> Result<(), Refusal> {
        if name.eq_ignore_ascii_case("none") {
            self.transformations.clear();
            self.ignores_default_chain = true;
            return Ok(());
        }
        let found = Transformation::named(name).ok_or_else(|| {
            let refusal = Refusal::new(format!("unknown transformation \"{name}\""));
            match nearest(name, Transformation::names()) {
                Some(known) => refusal.suggest(format!("did you mean t:{known}?")),
                None => refusal,
            }
        })?;
        self.transformations.push(found);
        Ok(())
    }

    /// Adds the list to a rule's link, as `SecRuleUpdateActionById` does; the link's transformations are the caller's.
    pub fn update(self, link: &mut Link) {
        let labels = &mut link.labels;
        labels.message = self.labels.message.or(labels.message.take());
        labels.data = self.labels.data.or(labels.data.take());
        labels.severity = self.labels.severity.or(labels.severity);
        labels.tags.extend(self.labels.tags);
        if !self.labels.revision.is_empty() {
            labels.revision = self.labels.revision;
        }
        if !self.labels.version.is_empty() {
            labels.version = self.labels.version;
        }
        if self.labels.maturity != 0 {
            labels.maturity = self.labels.maturity;
        }
        if self.labels.accuracy != 0 {
            labels.accuracy = self.labels.accuracy;
        }
        link.multi_match |= self.multi_match;
        link.captures |= self.captures;
        link.logs = self.logs.or(link.logs);
        link.audits = self.audits.or(link.audits);
        link.changes.extend(self.changes);
        link.effects.extend(self.effects);
    }
}

fn unknown_action(name: &str) -> Refusal {
    if let Some((known, reason)) = REFUSED.iter().find(|(known, _)| known.eq_ignore_ascii_case(name)) {
        return Refusal::new(format!("action {known} is not supported: {reason}"));
    }
    let refusal = Refusal::new(format!("unknown action \"{name}\""));
    match nearest(name, ACTIONS.iter().copied()) {
        Some(known) => refusal.suggest(format!("did you mean {known}?")),
        None => refusal,
    }
}

fn phase_number(value: &str) -> Result<u8, Refusal> {
    match value.trim().to_ascii_lowercase().as_str() {
        "1" => Ok(1),
        "2" | "request" => Ok(2),
        "3" => Ok(3),
        "4" | "response" => Ok(4),
        "5" | "logging" => Ok(5),
        _ => Err(Refusal::new(format!("unknown phase \"{value}\"")).suggest("phases are 1 to 5")),
    }
}

fn allow_reach(value: Option<&str>) -> Result<AllowReach, Refusal> {
    match value.map(str::to_ascii_lowercase).as_deref() {
        None => Ok(AllowReach::Transaction),
        Some("phase") => Ok(AllowReach::Phase),
        Some("request") => Ok(AllowReach::Request),
        Some(other) => Err(Refusal::new(format!("\"{other}\" is no reach of allow")).suggest("phase and request are")),
    }
}

/// Names of severities by number.
const SEVERITIES: [&str; 8] = ["emergency", "alert", "critical", "error", "warning", "notice", "info", "debug"];

fn severity_number(value: &str) -> Result<u8, Refusal> {
    let by_name = SEVERITIES.iter().position(|name| name.eq_ignore_ascii_case(value.trim()));
    let found = by_name.or_else(|| value.trim().parse().ok().filter(|number| *number < SEVERITIES.len()));
    found.map(|number| number as u8).ok_or_else(|| {
        Refusal::new(format!("unknown severity \"{value}\"")).suggest("severities are EMERGENCY (0) to DEBUG (7)")
    })
}

/// Parses `tx.name` or `ip.name`.
fn parse_place(action: &str, text: &str) -> Result<VariablePlace, Refusal> {
    let (collection, name) = text.split_once(['.', ':']).ok_or_else(|| {
        Refusal::new(format!("{action} needs a collection and a name, not \"{text}\"")).suggest("write tx.name")
    })?;
    let variable = Variable::named(collection.trim());
    let lasting = match variable {
        Some(Variable::Tx) => None,
        Some(variable) if variable.lasting().is_some() => variable.lasting(),
        _ => {
            let refusal = Refusal::new(format!("{action} cannot change \"{collection}\""));
            return Err(refusal.suggest("tx, ip, session, user, global and resource can be changed"));
        }
    };
    let template = Template::parse(name.as_bytes()).map_err(|refusal| refusal.at(collection.len() + 1))?;
    Ok(VariablePlace { lasting, name: template })
}

fn place_and_value(action: &str, text: &str) -> Result<(VariablePlace, Template), Refusal> {
    let (place, value) =
        text.split_once('=').ok_or_else(|| Refusal::new(format!("{action} needs a value behind =")))?;
    let template = Template::parse(value.trim().as_bytes()).map_err(|refusal| refusal.at(place.len() + 1))?;
    Ok((parse_place(action, place.trim())?, template))
}

/// Parses `tx.a=1`, `tx.a=+1`, `tx.a=-1`, `tx.a` and `!tx.a`.
fn parse_change(text: &str) -> Result<(VariablePlace, VariableChange), Refusal> {
    if let Some(name) = text.strip_prefix('!') {
        return Ok((parse_place("setvar", name.trim()).map_err(|refusal| refusal.at(1))?, VariableChange::Remove));
    }
    let Some((place, value)) = text.split_once('=') else {
        let one = VariableChange::Set(Template::literal(b"1"));
        return Ok((parse_place("setvar", text.trim())?, one));
    };
    let offset = place.len() + 1;
    let place = parse_place("setvar", place.trim())?;
    let template = |value: &str| Template::parse(value.as_bytes()).map_err(|refusal| refusal.at(offset));
    let change = match (value.strip_prefix('+'), value.strip_prefix('-')) {
        (Some(amount), _) => VariableChange::Add(template(amount)?),
        (_, Some(amount)) => VariableChange::Subtract(template(amount)?),
        _ => VariableChange::Set(template(value)?),
    };
    Ok((place, change))
}

fn parse_deprecation(text: &str) -> Result<Effect, Refusal> {
    let parsed = text.split_once('=').and_then(|(place, amount)| {
        let (amount, period) = amount.split_once('/')?;
        let period: i64 = period.trim().parse().ok().filter(|period| *period > 0)?;
        Some((place, amount.trim().parse().ok()?, period))
    });
    let (place, amount, period) = parsed.ok_or_else(|| {
        Refusal::new("deprecatevar needs a variable, an amount and seconds").suggest("write deprecatevar:ip.n=60/300")
    })?;
    Ok(Effect::DeprecateVariable(parse_place("deprecatevar", place.trim())?, amount, period))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_are_divided_outside_of_quotes() {
        let actions = divide_actions("id:1, msg:'a, \\'b\\'' ,deny,setvar:tx.a=%{tx.b}").expect("actions");
        let shown: Vec<_> = actions.iter().map(|action| (action.name.as_str(), action.value.as_deref())).collect();
        assert_eq!(
            shown,
            [("id", Some("1")), ("msg", Some("a, 'b'")), ("deny", None), ("setvar", Some("tx.a=%{tx.b}"))]
        );
    }

    #[test]
    fn transformations_before_none_do_not_count() {
        let list = parse_actions("id:1,t:lowercase,t:none,t:trim,capture,multiMatch").expect("actions");
        assert_eq!(list.transformations, [Transformation::Trim]);
        assert!(list.ignores_default_chain && list.captures && list.multi_match);
    }

    #[test]
    fn errors_name_the_action() {
        for (text, reason, offset) in [
            ("id:1,exec:/x.lua", "action exec is not supported: a rule must not start a program", 10),
            ("id:1,phase:9", "unknown phase \"9\"", 11),
            ("id:1,t:lowercas", "unknown transformation \"lowercas\"", 7),
            ("id:1,msg:'a", "the quote of action \"msg\" is not closed", 9),
            ("deny:1", "action deny takes no value", 5),
            ("setvar:args.a=1", "setvar cannot change \"args\"", 7),
            ("ctl:ruleEngin=On", "ctl:ruleEngin is not supported", 4),
        ] {
            let refusal = parse_actions(text).expect_err(text);
            assert_eq!((refusal.reason.as_str(), refusal.offset), (reason, offset), "{text}");
        }
    }

    #[test]
    fn changes_set_add_subtract_and_remove() {
        let list = parse_actions("setvar:tx.a,setvar:tx.b=+2,setvar:ip.c=-%{tx.a},setvar:!tx.d").expect("actions");
        let shown: Vec<_> = list.changes.iter().map(|(place, change)| (place.lasting, change)).collect();
        assert!(matches!(
            shown.as_slice(),
            [
                (None, VariableChange::Set(_)),
                (None, VariableChange::Add(_)),
                (Some(LastingCollection::Ip), VariableChange::Subtract(_)),
                (None, VariableChange::Remove)
            ]
        ));
    }
}
