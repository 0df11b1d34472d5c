//! Directives that set something: `SecRuleEngine`, `SecRequestBodyLimit` and others.

use super::Compiler;
use super::controls::{parse_audit, parse_engine, parse_switch};
use super::text::{Directive, Word};
use crate::body::json::JSON_DEPTH_MAX;
use crate::failure::Refusal;
use crate::operator::Pattern;
use crate::set::{AuditFile, AuditFormat, AuditType, GeoFile, LimitAction};
use crate::transform::UnicodeMap;
use std::str::FromStr;
use std::sync::Arc;

/// Letters of a key of Project Honey Pot.
const HTTP_BL_KEY_LETTERS: usize = 12;

/// Directives that are accepted, with the reason why they change nothing.
const WITHOUT_EFFECT: &[(&str, &str)] = &[
    ("SecConnEngine", "limit_conn limits connections"),
    ("SecConnReadStateLimit", "limit_conn limits connections"),
    ("SecConnWriteStateLimit", "limit_conn limits connections"),
    ("SecCookieFormat", "cookies have version 0, as in ModSecurity v3"),
    ("SecCookieV0Separator", "cookies are divided at semicolons"),
    ("SecDataDir", "collections are kept in memory"),
    ("SecDebugLog", "the engine has no debug log"),
    ("SecDebugLogLevel", "the engine has no debug log"),
    ("SecDisableBackendCompression", "libmodsecurity v3 has no effect of it either"),
    ("SecGsbLookupDb", "@gsbLookup is not supported"),
    ("SecGuardianLog", "libmodsecurity v3 has no effect of it either"),
    ("SecInterceptOnError", "libmodsecurity v3 has no effect of it either"),
    ("SecPcreMatchLimitRecursion", "PCRE2 has no limit of recursion in this engine; SecPcreMatchLimit counts"),
    ("SecRequestBodyInMemoryLimit", "the server decides where it keeps bodies"),
    ("SecRulePerfTime", "the engine measures no times of single rules"),
    ("SecSensorId", "libmodsecurity v3 has no effect of it either"),
    ("SecStatusEngine", "the engine reports nothing to others"),
    ("SecTmpDir", "the engine writes no files"),
    ("SecUploadDir", "the engine writes no files"),
    ("SecUploadFileMode", "the engine writes no files"),
    ("SecUploadFileLimit", "the engine writes no files"),
];

/// Directives that are refused, with the reason.
const REFUSED: &[(&str, &str)] = &[
    ("SecCacheTransformations", "libmodsecurity v3 refuses it as well; transformations are always cached"),
    ("SecChrootDir", "the process does not change its root"),
    ("SecContentInjection", "responses are not changed"),
    ("SecHashEngine", "responses are not rewritten with hashes"),
    ("SecHashKey", "responses are not rewritten with hashes"),
    ("SecHashMethodPm", "responses are not rewritten with hashes"),
    ("SecHashMethodRx", "responses are not rewritten with hashes"),
    ("SecHashParam", "responses are not rewritten with hashes"),
    ("SecRemoteRules", "rules are not fetched over the network"),
    ("SecRemoteRulesFailAction", "rules are not fetched over the network"),
    ("SecRuleInheritance", "a location inherits rules by the server's directives"),
    ("SecRuleScript", "a rule must not run a script"),
    ("SecStreamInBodyInspection", "bodies are inspected whole, not as streams"),
    ("SecStreamOutBodyInspection", "bodies are inspected whole, not as streams"),
];

/// Directives with an effect, for suggestions.
const KNOWN: &[&str] = &[
    "Include",
    "SecAction",
    "SecArgumentSeparator",
    "SecArgumentsLimit",
    "SecAuditEngine",
    "SecAuditLog",
    "SecAuditLog2",
    "SecAuditLogDirMode",
    "SecAuditLogFileMode",
    "SecAuditLogFormat",
    "SecAuditLogParts",
    "SecAuditLogRelevantStatus",
    "SecAuditLogStorageDir",
    "SecAuditLogType",
    "SecCollectionTimeout",
    "SecComponentSignature",
    "SecDefaultAction",
    "SecGeoLookupDb",
    "SecHttpBlKey",
    "SecMarker",
    "SecPcreMatchLimit",
    "SecRequestBodyAccess",
    "SecRequestBodyJsonDepthLimit",
    "SecRequestBodyLimit",
    "SecRequestBodyLimitAction",
    "SecRequestBodyNoFilesLimit",
    "SecResponseBodyAccess",
    "SecResponseBodyLimit",
    "SecResponseBodyLimitAction",
    "SecResponseBodyMimeType",
    "SecResponseBodyMimeTypesClear",
    "SecRule",
    "SecRuleEngine",
    "SecRuleRemoveById",
    "SecRuleRemoveByMsg",
    "SecRuleRemoveByTag",
    "SecRuleUpdateActionById",
    "SecRuleUpdateTargetById",
    "SecRuleUpdateTargetByMsg",
    "SecRuleUpdateTargetByTag",
    "SecServerSignature",
    "SecTmpSaveUploadedFiles",
    "SecUnicodeMapFile",
    "SecUploadKeepFiles",
    "SecWebAppId",
    "SecXmlExternalEntity",
];

/// All names of directives.
pub(super) fn directive_names() -> impl Iterator<Item = &'static str> {
    let others = WITHOUT_EFFECT.iter().chain(REFUSED).map(|(name, _)| *name);
    KNOWN.iter().copied().chain(others)
}

fn number<N: FromStr>(value: &str) -> Result<N, Refusal> {
    value.parse().map_err(|_| Refusal::new(format!("\"{value}\" is no valid number")))
}

fn limit_action(value: &str) -> Result<LimitAction, Refusal> {
    match value.to_ascii_lowercase().as_str() {
        "reject" => Ok(LimitAction::Reject),
        "processpartial" => Ok(LimitAction::ProcessPartial),
        _ => Err(Refusal::new(format!("unknown action \"{value}\"")).suggest("Reject and ProcessPartial are known")),
    }
}

fn file_mode(value: &str) -> Result<u32, Refusal> {
    match value {
        "default" => Ok(0o640),
        _ => u32::from_str_radix(value, 8).map_err(|_| Refusal::new(format!("\"{value}\" is no octal number"))),
    }
}

impl Compiler<'_> {
    pub(super) fn setting(
        &mut self,
        directive: &Directive,
        name: &Word,
        arguments: &[Word],
    ) -> Result<(), (usize, Refusal)> {
        let lower = name.text.to_ascii_lowercase();
        if let Some((_, reason)) = WITHOUT_EFFECT.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name.text)) {
            self.warn(directive, name.start, format!("{} has no effect: {reason}", name.text));
            return Ok(());
        }
        if let Some((known, reason)) = REFUSED.iter().find(|(known, _)| known.eq_ignore_ascii_case(&name.text)) {
            return Err((name.start, Refusal::new(format!("{known} is not supported: {reason}"))));
        }
        if !KNOWN.iter().any(|known| known.eq_ignore_ascii_case(&name.text)) {
            return Err(self.unknown(name));
        }
        match lower.as_str() {
            "secresponsebodymimetype" => {
                self.settings.response_mime_types =
                    arguments.iter().map(|word| word.text.to_ascii_lowercase()).collect();
                return Ok(());
            }
            "secresponsebodymimetypesclear" => {
                self.settings.response_mime_types.clear();
                return Ok(());
            }
            "secunicodemapfile" => return self.unicode_map(directive, name, arguments),
            _ => {}
        }
        let [word] = arguments else {
            return Err((name.start, Refusal::new(format!("{} needs one value", name.text))));
        };
        self.single_value(directive, &lower, word).map_err(|refusal| (word.start, refusal))
    }

    fn single_value(&mut self, directive: &Directive, name: &str, word: &Word) -> Result<(), Refusal> {
        let value = word.text.as_str();
        let settings = &mut self.settings;
        match name {
            "secruleengine" => settings.engine = parse_engine(value)?,
            "secrequestbodyaccess" => settings.request_body_access = parse_switch(value)?,
            "secrequestbodylimit" => settings.request_body_limit = number(value)?,
            "secrequestbodynofileslimit" => settings.request_body_no_files_limit = number(value)?,
            "secrequestbodylimitaction" => settings.request_body_limit_action = limit_action(value)?,
            "secrequestbodyjsondepthlimit" => {
                let depth: usize = number(value)?;
                settings.json_depth_limit = depth.min(JSON_DEPTH_MAX);
                if depth > JSON_DEPTH_MAX {
                    let reason = format!("JSON is read to a depth of {JSON_DEPTH_MAX}, not {depth}");
                    self.warn(directive, word.start, reason);
                }
            }
            "secresponsebodyaccess" => settings.response_body_access = parse_switch(value)?,
            "secresponsebodylimit" => settings.response_body_limit = number(value)?,
            "secresponsebodylimitaction" => settings.response_body_limit_action = limit_action(value)?,
            "secargumentseparator" => match value.as_bytes() {
                [separator] => settings.argument_separator = *separator,
                _ => return Err(Refusal::new("SecArgumentSeparator needs one character")),
            },
            "secargumentslimit" => settings.arguments_limit = number(value)?,
            "seccollectiontimeout" => settings.collection_timeout = number(value)?,
            "secpcrematchlimit" => {
                settings.match_steps = number(value)?;
                let reason = "SecPcreMatchLimit counts only for patterns with look-around, back references or \
                              possessive quantifiers; others are matched in linear time";
                self.warn(directive, word.start, reason);
            }
            "secauditengine" => settings.audit = parse_audit(value)?,
            "secauditlogparts" => {
                if !value.bytes().all(|part| matches!(part, b'A'..=b'K' | b'Z')) || value.is_empty() {
                    return Err(Refusal::new(format!("\"{value}\" are no parts")).suggest("parts are A to K and Z"));
                }
                settings.audit_parts = value.to_string();
            }
            "secauditlogformat" => {
                settings.audit_format = match value.to_ascii_lowercase().as_str() {
                    "native" => AuditFormat::Native,
                    "json" => AuditFormat::Json,
                    _ => {
                        return Err(
                            Refusal::new(format!("unknown format \"{value}\"")).suggest("Native and JSON are known")
                        );
                    }
                }
            }
            "secauditlogtype" => {
                settings.audit_type = match value.to_ascii_lowercase().as_str() {
                    "serial" => AuditType::Serial,
                    "parallel" | "concurrent" => AuditType::Parallel,
                    "https" => AuditType::Https,
                    _ => {
                        return Err(
                            Refusal::new(format!("unknown type \"{value}\"")).suggest("Serial and Parallel are known")
                        );
                    }
                }
            }
            "secauditlogrelevantstatus" => {
                let pattern = Pattern::new(value, false, settings.match_steps)
                    .map_err(|(words, offset)| Refusal::new(format!("invalid pattern: {words}")).at(offset))?;
                settings.audit_statuses = Some(Arc::new(pattern));
            }
            "secauditlog" | "secauditlog2" => {
                let file = AuditFile { name: value.into(), place: directive.place(&self.file, word.start) };
                match name {
                    "secauditlog" => settings.audit_log = Some(file),
                    _ => settings.audit_log_second = Some(file),
                }
            }
            "secauditlogstoragedir" => settings.audit_directory = Some(value.into()),
            "secauditlogfilemode" => settings.audit_file_mode = file_mode(value)?,
            "secauditlogdirmode" => settings.audit_directory_mode = file_mode(value)?,
            "seccomponentsignature" => settings.component_signatures.push(value.into()),
            "secserversignature" => settings.server_signature = Some(value.into()),
            "secwebappid" => settings.web_app_id = value.into(),
            "secgeolookupdb" => {
                settings.geo_database =
                    Some(GeoFile { name: value.into(), place: directive.place(&self.file, word.start) });
            }
            "sechttpblkey" => {
                if value.len() != HTTP_BL_KEY_LETTERS || !value.bytes().all(|byte| byte.is_ascii_lowercase()) {
                    let refusal = Refusal::new(format!("\"{value}\" is no key of Project Honey Pot"));
                    return Err(refusal.suggest("a key has 12 small letters"));
                }
                settings.block_list_key = Some(value.into());
            }
            "secuploadkeepfiles" | "sectmpsaveuploadedfiles" | "secxmlexternalentity" => {
                let is_on = match name {
                    // ModSecurity also knows RelevantOnly here.
                    "secuploadkeepfiles" if value.eq_ignore_ascii_case("relevantonly") => true,
                    _ => parse_switch(value)?,
                };
                if is_on {
                    let reason = match name {
                        "secxmlexternalentity" => "external entities are never read",
                        _ => "uploaded files are not written to disk",
                    };
                    return Err(Refusal::new(reason).suggest("write Off"));
                }
            }
            _ => return Err(Refusal::new(format!("directive {name} is not made"))),
        }
        Ok(())
    }

    /// `SecUnicodeMapFile FILE PAGE`.
    fn unicode_map(&mut self, directive: &Directive, name: &Word, arguments: &[Word]) -> Result<(), (usize, Refusal)> {
        let [file, page] = arguments else {
            return Err((name.start, Refusal::new("SecUnicodeMapFile needs a file and the number of a code page")));
        };
        let number: u32 = number(&page.text).map_err(|refusal| (page.start, refusal))?;
        let content = self
            .files
            .data(&file.text, &self.file)
            .map_err(|reason| (file.start, Refusal::new(format!("cannot read \"{}\": {reason}", file.text))))?;
        match UnicodeMap::parse(&String::from_utf8_lossy(&content), number) {
            Some(map) => self.settings.unicode_map = Some(Arc::new(map)),
            None => self.warn(directive, page.start, format!("\"{}\" has no code page {number}", file.text)),
        }
        Ok(())
    }
}
