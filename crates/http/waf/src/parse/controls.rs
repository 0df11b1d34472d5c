//! Values of `ctl` and of the directives that set the same: `ctl:ruleEngine=Off`.

use super::targets::parse_exclusion;
use crate::failure::{Refusal, nearest};
use crate::rule::{AuditState, BodyProcessor, Control, EngineState};

/// Parses a range of ids: `942100` or `942100-942199`.
pub(super) fn parse_ids(text: &str) -> Result<(u64, u64), Refusal> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (first.trim().parse(), last.trim().parse()) {
        (Ok(first), Ok(last)) if first <= last => Ok((first, last)),
        _ => Err(Refusal::new(format!("\"{text}\" is no id of a rule and no range of ids"))),
    }
}

/// `On`, `Off` and `DetectionOnly`.
pub(super) fn parse_engine(value: &str) -> Result<EngineState, Refusal> {
    match value.to_ascii_lowercase().as_str() {
        "on" => Ok(EngineState::On),
        "off" => Ok(EngineState::Off),
        "detectiononly" => Ok(EngineState::DetectionOnly),
        _ => Err(Refusal::new(format!("unknown state \"{value}\"")).suggest("On, Off and DetectionOnly are known")),
    }
}

/// `On`, `Off` and `RelevantOnly`.
pub(super) fn parse_audit(value: &str) -> Result<AuditState, Refusal> {
    match value.to_ascii_lowercase().as_str() {
        "on" => Ok(AuditState::On),
        "off" => Ok(AuditState::Off),
        "relevantonly" => Ok(AuditState::RelevantOnly),
        _ => Err(Refusal::new(format!("unknown state \"{value}\"")).suggest("On, Off and RelevantOnly are known")),
    }
}

/// `On` and `Off`.
pub(super) fn parse_switch(value: &str) -> Result<bool, Refusal> {
    match value.to_ascii_lowercase().as_str() {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(Refusal::new(format!("\"{value}\" is neither On nor Off"))),
    }
}

/// Parses the value of `ctl`.
pub(super) fn parse_control(text: &str) -> Result<Control, Refusal> {
    let (name, value) = text.split_once('=').ok_or_else(|| Refusal::new("ctl needs a setting and a value"))?;
    let (name, value) = (name.trim(), value.trim());
    let divided = || {
        value.split_once(';').ok_or_else(|| {
            Refusal::new(format!("ctl:{name} needs a rule and a variable")).suggest("write 942100;ARGS:name")
        })
    };
    let target = |text: &str| parse_exclusion(text.trim(), &[]).map(Box::new);
    Ok(match name.to_ascii_lowercase().as_str() {
        "ruleengine" => Control::RuleEngine(parse_engine(value)?),
        "auditengine" => Control::AuditEngine(parse_audit(value)?),
        "auditlogparts" => match (value.strip_prefix('+'), value.strip_prefix('-')) {
            (Some(parts), _) => Control::AddAuditParts(parts.into()),
            (_, Some(parts)) => Control::RemoveAuditParts(parts.into()),
            _ => Control::SetAuditParts(value.into()),
        },
        "requestbodyaccess" => Control::RequestBodyAccess(parse_switch(value)?),
        "responsebodyaccess" => Control::ResponseBodyAccess(parse_switch(value)?),
        "forcerequestbodyvariable" => Control::ForceRequestBodyVariable(parse_switch(value)?),
        "requestbodyprocessor" => Control::RequestBodyProcessor(match value.to_ascii_uppercase().as_str() {
            "URLENCODED" => BodyProcessor::Urlencoded,
            "MULTIPART" => BodyProcessor::Multipart,
            "JSON" => BodyProcessor::Json,
            "XML" => BodyProcessor::Xml,
            _ => {
                let refusal = Refusal::new(format!("unknown body processor \"{value}\""));
                return Err(refusal.suggest("URLENCODED, MULTIPART, JSON and XML are known"));
            }
        }),
        "ruleremovebyid" => {
            let (first, last) = parse_ids(value)?;
            Control::RemoveById(first, last)
        }
        "ruleremovebytag" => Control::RemoveByTag(value.into()),
        "ruleremovebymsg" => Control::RemoveByMessage(value.into()),
        "ruleremovetargetbyid" => {
            let (ids, variable) = divided()?;
            let (first, last) = parse_ids(ids)?;
            Control::RemoveTargetById(first, last, target(variable)?)
        }
        "ruleremovetargetbytag" => {
            let (tag, variable) = divided()?;
            Control::RemoveTargetByTag(tag.into(), target(variable)?)
        }
        "ruleremovetargetbymsg" => {
            let (message, variable) = divided()?;
            Control::RemoveTargetByMessage(message.into(), target(variable)?)
        }
        _ => {
            let refusal = Refusal::new(format!("ctl:{name} is not supported"));
            return Err(match nearest(name, CONTROLS.iter().copied()) {
                Some(known) => refusal.suggest(format!("did you mean ctl:{known}?")),
                None => refusal,
            });
        }
    })
}

const CONTROLS: &[&str] = &[
    "auditEngine",
    "auditLogParts",
    "forceRequestBodyVariable",
    "requestBodyAccess",
    "requestBodyProcessor",
    "responseBodyAccess",
    "ruleEngine",
    "ruleRemoveById",
    "ruleRemoveByMsg",
    "ruleRemoveByTag",
    "ruleRemoveTargetById",
    "ruleRemoveTargetByMsg",
    "ruleRemoveTargetByTag",
];
