//! A compiled set of rules with its settings.

use crate::body::xml::XmlPath;
use crate::operator::{Operator, Pattern};
use crate::rule::{AuditState, DefaultAction, EngineState, Step};
use crate::transform::{ChainTree, UnicodeMap};
use std::sync::Arc;

/// The treatment of a body that is longer than its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitAction {
    /// The caller answers 413 (request) or 500 (response).
    Reject,
    /// The engine inspects the first bytes.
    ProcessPartial,
}

/// The answer to a transaction whose budget ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExhaustedAction {
    /// Remaining rules are left out: the request passes, and the log says so.
    Pass,
    /// The request is denied with this status, if the engine is on.
    Deny(u16),
}

/// Format of the audit log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditFormat {
    Native,
    Json,
}

/// `SecAuditLogType`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AuditType {
    Serial,
    Parallel,
    Https,
}

/// The file of `SecGeoLookupDb`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GeoFile {
    pub name: String,
    /// Where the rules name it; a relative name stands beside this file of rules.
    pub place: crate::failure::Place,
}

/// A file of `SecAuditLog` or `SecAuditLog2`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditFile {
    pub name: String,
    /// Where the rules name it.
    pub place: crate::failure::Place,
}

/// A use of `@rbl` or `@geoLookup` in the rules, for warnings.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LookupUse {
    pub phase: u8,
    pub place: crate::failure::Place,
    /// The list needs the key of `SecHttpBlKey`.
    pub needs_key: bool,
}

/// Settings of directives. Sizes are in bytes. The engine obeys those about rules and bodies; the caller those about
/// files.
#[derive(Clone, Debug)]
pub struct Settings {
    pub engine: EngineState,
    pub request_body_access: bool,
    pub request_body_limit: u64,
    pub request_body_no_files_limit: u64,
    pub request_body_limit_action: LimitAction,
    pub json_depth_limit: usize,
    pub response_body_access: bool,
    pub response_body_limit: u64,
    pub response_body_limit_action: LimitAction,
    /// Content types of responses whose body is inspected, in lower case.
    pub response_mime_types: Vec<String>,
    pub argument_separator: u8,
    pub arguments_limit: usize,
    /// Seconds; for the caller's [`crate::CollectionStore`].
    pub collection_timeout: u64,
    pub match_steps: u32,
    pub audit: AuditState,
    pub audit_parts: String,
    pub audit_format: AuditFormat,
    pub audit_type: AuditType,
    pub audit_log: Option<AuditFile>,
    pub audit_log_second: Option<AuditFile>,
    pub audit_directory: Option<String>,
    /// Octal permissions.
    pub audit_file_mode: u32,
    pub audit_directory_mode: u32,
    pub(crate) audit_statuses: Option<Arc<Pattern>>,
    pub component_signatures: Vec<String>,
    pub server_signature: Option<String>,
    pub web_app_id: String,
    /// `SecGeoLookupDb`; the caller opens it and hands in a [`crate::GeoDatabase`].
    pub geo_database: Option<GeoFile>,
    /// `SecHttpBlKey`, for `@rbl dnsbl.httpbl.org`.
    pub block_list_key: Option<String>,
    pub(crate) unicode_map: Option<Arc<UnicodeMap>>,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            engine: EngineState::Off,
            request_body_access: false,
            request_body_limit: 128 << 20,
            request_body_no_files_limit: 1 << 20,
            request_body_limit_action: LimitAction::Reject,
            json_depth_limit: crate::body::json::JSON_DEPTH_MAX,
            response_body_access: false,
            response_body_limit: 512 << 10,
            response_body_limit_action: LimitAction::Reject,
            response_mime_types: vec!["text/plain".into(), "text/html".into()],
            argument_separator: b'&',
            arguments_limit: 1000,
            collection_timeout: crate::store::COLLECTION_TIMEOUT,
            match_steps: crate::operator::MATCH_STEPS_MAX,
            audit: AuditState::Off,
            audit_parts: "ABCFHZ".into(),
            audit_format: AuditFormat::Native,
            audit_type: AuditType::Serial,
            audit_log: None,
            audit_log_second: None,
            audit_directory: None,
            audit_file_mode: 0o640,
            audit_directory_mode: 0o750,
            audit_statuses: None,
            component_signatures: Vec::new(),
            server_signature: None,
            web_app_id: "default".into(),
            geo_database: None,
            block_list_key: None,
            unicode_map: None,
        }
    }
}

/// Rules that are compiled once and shared by transactions of all threads.
#[derive(Debug)]
pub struct RuleSet {
    pub settings: Settings,
    /// Steps of phases 1 to 5, at index `phase - 1`.
    pub(crate) phases: [Vec<Step>; 5],
    pub(crate) defaults: [DefaultAction; 5],
    /// The nodes of the transformations of `SecDefaultAction`, where a rule does not say `t:none`, are already in the
    /// rules' nodes.
    pub(crate) chains: ChainTree,
    /// Screens of rules, by layer.
    pub(crate) screens: Vec<Arc<crate::screen::ScreenLayer>>,
    pub(crate) recent_looks: crate::screen::RecentLooks,
    /// Places of markers in each phase, by name, in order.
    pub(crate) markers: [hashbrown::HashMap<Arc<str>, Vec<u32>>; 5],
    pub(crate) xml_paths: Vec<Arc<XmlPath>>,
    pub(crate) uses_full_request: bool,
    pub(crate) parts: RuleParts,
}

/// The facts of a compilation that [`RuleSet::compile_behind`] goes on with.
pub(crate) struct RuleParts {
    pub entries: Vec<crate::parse::Entry>,
    pub updates: Vec<Arc<crate::parse::RuleUpdate>>,
    /// The places of all ids, also of removed rules.
    pub ids: hashbrown::HashMap<u64, crate::failure::Place>,
    /// Links of all rules.
    pub links: usize,
}

impl std::fmt::Debug for RuleParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RuleParts").field("links", &self.links).finish_non_exhaustive()
    }
}

/// A rule's facts for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleSummary<'s> {
    pub id: u64,
    pub phase: u8,
    pub file: &'s str,
    pub line: u32,
    pub tags: Vec<&'s str>,
    /// The message as written, with its macros.
    pub message: Option<&'s str>,
}

impl RuleSet {
    /// The step of the first marker of this name behind a step of a phase, from 1 to 5.
    pub(crate) fn marker_behind(&self, phase: u8, name: &str, step: usize) -> Option<usize> {
        let places = self.markers.get(usize::from(phase).checked_sub(1)?)?.get(name)?;
        let next = places.partition_point(|place| *place as usize <= step);
        places.get(next).map(|place| *place as usize)
    }

    /// All rules by phase, in the order of their evaluation.
    pub fn rules(&self) -> impl Iterator<Item = RuleSummary<'_>> {
        let steps = self.phases.iter().flatten();
        steps.filter_map(|step| match step {
            Step::Rule(rule) => Some(RuleSummary {
                id: rule.id,
                phase: rule.phase,
                file: &rule.place.file,
                line: rule.links.first().map_or(0, |link| link.line),
                tags: rule.tag_texts.iter().map(|tag| &**tag).collect(),
                message: rule.message_text.as_deref(),
            }),
            Step::Marker => None,
        })
    }

    /// The rules that ask for the place of an address (`@geoLookup`), which needs a [`crate::GeoDatabase`].
    pub fn place_lookups(&self) -> Vec<LookupUse> {
        self.lookups(|operator| matches!(operator, Operator::GeoLookup).then_some(false))
    }

    /// The rules that ask DNS (`@rbl`).
    pub fn name_lookups(&self) -> Vec<LookupUse> {
        self.lookups(|operator| match operator {
            Operator::BlockList(list) => Some(list.needs_key()),
            _ => None,
        })
    }

    /// Rules with an operator for which `need` returns whether it needs a key.
    fn lookups(&self, need: impl Fn(&Operator) -> Option<bool>) -> Vec<LookupUse> {
        let mut found = Vec::new();
        for step in self.phases.iter().flatten() {
            let Step::Rule(rule) = step else { continue };
            for link in &rule.links {
                let operator = link.condition.as_ref().map(|condition| &condition.operator);
                if let Some(needs_key) = operator.and_then(&need) {
                    let place = crate::failure::Place { line: link.line, ..rule.place.clone() };
                    found.push(LookupUse { phase: rule.phase, place, needs_key });
                }
            }
        }
        found
    }

    /// Returns whether bodies of responses with this content type are inspected.
    pub fn inspects_response(&self, content_type: &str) -> bool {
        let kind = content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        self.settings.response_body_access && self.settings.response_mime_types.contains(&kind)
    }
}
