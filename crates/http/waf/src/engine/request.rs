//! Phases 1 and 2: the connection, the request line, headers and the body.

use super::facts::ArgumentSource;
use super::{Transaction, Verdict};
use crate::body::multipart::{Multipart, PartKind};
use crate::body::{json, xml};
use crate::rule::BodyProcessor;
use crate::set::LimitAction;
use crate::transform::{decode_counted, decode_path};
use crate::variable::Variable;
use std::sync::Arc;

/// The message of ModSecurity for a body over `SecRequestBodyNoFilesLimit`.
const NO_FILES_LIMIT_WORDS: &str = "Request body excluding files is bigger than the maximum expected.";

fn span(start: usize, length: usize) -> Option<(u32, u32)> {
    Some((u32::try_from(start).ok()?, u32::try_from(length).ok()?))
}

impl Transaction {
    pub(super) fn set_connection(&mut self) {
        let connection = self.connection.clone();
        let texts = [
            (Variable::RemoteAddr, connection.client_address.as_str()),
            (Variable::RemoteHost, &connection.client_address),
            (Variable::ServerAddr, &connection.server_address),
            (Variable::UniqueId, &connection.unique_id),
            (Variable::RemotePort, &connection.client_port.to_string()),
            (Variable::ServerPort, &connection.server_port.to_string()),
            (Variable::MscPcreError, "0"),
            (Variable::MscPcreLimitsExceeded, "0"),
            (Variable::UrlencodedError, "0"),
        ];
        for (variable, text) in texts {
            self.facts.set(variable, text.as_bytes(), span(0, text.len()));
        }
    }

    /// Sets the request line. `uri` is the target as received, `version` the number behind `HTTP/`, as "1.1".
    pub fn uri(&mut self, method: &[u8], uri: &[u8], version: &str) {
        let start = method.len() + 1;
        let facts = &mut self.facts;
        let line = [method, b" ", uri, b" HTTP/", version.as_bytes()].concat();
        facts.set(Variable::RequestMethod, method, span(0, method.len()));
        facts.set(Variable::RequestLine, &line, span(0, line.len()));
        let protocol = format!("HTTP/{version}");
        facts.set(Variable::RequestProtocol, protocol.as_bytes(), span(start + uri.len() + 1, protocol.len()));
        facts.set(Variable::RequestUriRaw, uri, span(start, uri.len()));
        let target = uri.split(|byte| *byte == b'#').next().unwrap_or_default();
        let question = memchr::memchr(b'?', target);
        let raw_path = target.get(..question.unwrap_or(target.len())).unwrap_or_default();
        let path = decode_path(raw_path);
        let origin = span(start, raw_path.len());
        facts.set(Variable::RequestFilename, &path, origin);
        facts.set(Variable::PathInfo, &path, origin);
        let basename = path.iter().rposition(|byte| matches!(byte, b'/' | b'\\')).map(|slash| slash + 1);
        if let Some(at) = basename
            && let Some(name) = path.get(at..)
        {
            facts.set(Variable::RequestBasename, name, span(start + at, name.len()));
        }
        let decoded = decode_path(target);
        facts.set(Variable::RequestUri, without_authority(&decoded), span(start, target.len()));
        facts.offset = line.len();
        if let Some(question) = question {
            let query = target.get(question + 1..).unwrap_or_default();
            facts.set(Variable::QueryString, query, span(start + question + 1, query.len()));
            self.add_form(query, ArgumentSource::Query, start + question + 1);
        }
        self.facts.offset += 1;
    }

    /// Adds the arguments of a URL-encoded text that begins at `offset` of the request.
    fn add_form(&mut self, text: &[u8], source: ArgumentSource, offset: usize) {
        let separator = self.rules.settings.argument_separator;
        let mut at = offset;
        for pair in text.split(|byte| *byte == separator) {
            let start = at;
            at += pair.len() + 1;
            if pair.is_empty() {
                continue;
            }
            let equals = memchr::memchr(b'=', pair);
            let (name, value) = match equals {
                Some(equals) => (pair.get(..equals).unwrap_or_default(), pair.get(equals + 1..).unwrap_or_default()),
                None => (pair, &[][..]),
            };
            let (name, invalid_name) = decode_counted(name);
            let (value, invalid_value) = decode_counted(value);
            if invalid_name + invalid_value > 0 {
                self.facts.set(Variable::UrlencodedError, b"1", None);
            }
            if !self.add_argument(source, &name, &value, start) {
                break;
            }
        }
    }

    /// Adds an argument; returns whether the limit allows it. One that it does not allow is noted for `REQBODY_ERROR`.
    fn add_argument(&mut self, source: ArgumentSource, name: &[u8], value: &[u8], start: usize) -> bool {
        if self.facts.arguments.len() >= self.rules.settings.arguments_limit {
            self.facts.is_cut = true;
            return false;
        }
        let origin = span(start + name.len() + 1, value.len());
        let field = self.facts.field(name, value, origin, span(start, name.len()));
        self.facts.arguments_bytes += name.len() + value.len();
        self.facts.arguments.push((source, field));
        true
    }

    /// Adds a header of the request, in the order of the request.
    pub fn request_header(&mut self, name: &[u8], value: &[u8]) {
        let start = self.facts.offset;
        let value_start = start + name.len() + 2;
        let field = self.facts.field(name, value, span(value_start, value.len()), span(start, name.len()));
        self.facts.request_headers.push(field);
        let lower = name.to_ascii_lowercase();
        match lower.as_slice() {
            b"authorization" => {
                let kind = value.split(|byte| *byte == b' ').next().unwrap_or_default();
                self.facts.set(Variable::AuthType, kind, span(value_start, kind.len()));
            }
            b"cookie" => self.add_cookies(value, value_start),
            b"content-type" => {
                let kind = value.to_ascii_lowercase();
                if kind.starts_with(b"multipart/form-data") {
                    self.set_processor(BodyProcessor::Multipart);
                } else if kind.starts_with(b"application/x-www-form-urlencoded") {
                    self.set_processor(BodyProcessor::Urlencoded);
                }
            }
            b"host" => {
                let host = value.split(|byte| *byte == b':').next().unwrap_or_default();
                self.facts.set(Variable::ServerName, host, span(value_start, host.len()));
            }
            _ => {}
        }
        self.facts.offset = value_start + value.len() + 1;
    }

    fn add_cookies(&mut self, header: &[u8], offset: usize) {
        let mut at = offset;
        let header = header.trim_ascii_end();
        for pair in header.split(|byte| *byte == b';') {
            let start = at + (pair.len() - pair.trim_ascii_start().len());
            at += pair.len() + 1;
            let pair = pair.trim_ascii_start();
            let equals = memchr::memchr(b'=', pair).unwrap_or(pair.len());
            let name = pair.get(..equals).unwrap_or_default();
            let value = pair.get(equals + 1..).unwrap_or_default();
            if !name.is_empty() {
                let origin = span(start + name.len() + 1, value.len());
                let field = self.facts.field(name, value, origin, span(start, name.len()));
                self.facts.cookies.push(field);
            }
        }
    }

    pub(super) fn set_processor(&mut self, processor: BodyProcessor) {
        self.processor = Some(processor);
        let name = match processor {
            BodyProcessor::Urlencoded => "URLENCODED",
            BodyProcessor::Multipart => "MULTIPART",
            BodyProcessor::Json => "JSON",
            BodyProcessor::Xml => "XML",
        };
        self.facts.set(Variable::ReqbodyProcessor, name.as_bytes(), None);
    }

    /// Evaluates phase 1.
    pub fn request_headers(&mut self) -> Verdict {
        self.run_phase(1)
    }

    /// Evaluates phase 2 with the whole body, or with its first bytes: `SecRequestBodyLimit` bytes suffice. `body` is
    /// empty if there is none or [`Transaction::wants_request_body`] does not hold. Over the limit, the verdict is 413
    /// if the setting says so and the engine is on.
    pub fn request_body(&mut self, body: &[u8]) -> Verdict {
        if self.is_off() {
            return Verdict::Pass;
        }
        if self.verdict != Verdict::Pass {
            return self.verdict.clone();
        }
        let limit = usize::try_from(self.rules.settings.request_body_limit).unwrap_or(usize::MAX);
        let is_over = body.len() > limit;
        let error = if is_over { b"1" } else { b"0" };
        self.facts.set(Variable::InboundDataError, error, None);
        if is_over
            && self.rules.settings.request_body_limit_action == LimitAction::Reject
            && self.engine == crate::rule::EngineState::On
        {
            self.verdict = Verdict::Deny { status: 413, rule: 0 };
            return self.verdict.clone();
        }
        let body = body.get(..limit).unwrap_or(body);
        if self.request_body_access {
            self.read_body(body);
        }
        self.run_phase(2)
    }

    fn read_body(&mut self, body: &[u8]) {
        self.request_body = body.into();
        let no_files_limit = usize::try_from(self.rules.settings.request_body_no_files_limit).unwrap_or(usize::MAX);
        let is_long = body.len() > no_files_limit;
        let mut error: Option<String> = None;
        match self.processor {
            Some(BodyProcessor::Urlencoded | BodyProcessor::Json | BodyProcessor::Xml) if is_long => {
                self.set_body_error(Some(NO_FILES_LIMIT_WORDS), false);
                self.facts.set(Variable::InboundDataError, b"1", None);
            }
            Some(BodyProcessor::Urlencoded) => {
                let offset = self.facts.offset + 1;
                self.add_form(body, ArgumentSource::Body, offset);
                self.set_body_error(None, true);
            }
            Some(BodyProcessor::Json) => {
                if !body.is_empty() {
                    error = self.read_json(body).map(|reason| format!("JSON parsing error: {reason}"));
                }
                self.set_body_error(error.as_deref(), true);
            }
            Some(BodyProcessor::Xml) => {
                error = self.read_xml(body).map(|reason| format!("XML parsing error: {reason}"));
                self.set_body_error(error.as_deref(), true);
            }
            Some(BodyProcessor::Multipart) => {
                let no_files = self.read_multipart(body, &mut error);
                if error.is_none() && no_files > no_files_limit {
                    self.set_body_error(Some(NO_FILES_LIMIT_WORDS), false);
                    self.facts.set(Variable::InboundDataError, b"1", None);
                } else {
                    let words = error.map(|reason| format!("Multipart parsing error: {reason}"));
                    self.set_body_error(words.as_deref(), true);
                }
            }
            None => self.set_body_error(None, true),
        }
        self.note_dropped_arguments();
        let start = self.facts.offset;
        if self.rules.uses_full_request {
            let mut full = Vec::new();
            for header in &self.facts.request_headers {
                full.extend_from_slice(&[&header.name[..], b": ", &header.value, b"\n"].concat());
            }
            full.extend_from_slice(b"\n\n");
            full.extend_from_slice(body);
            self.facts.set(Variable::FullRequest, &full, span(0, full.len()));
            self.facts.set(Variable::FullRequestLength, full.len().to_string().as_bytes(), None);
        }
        // Documents and files that could be read are not repeated.
        let is_read = matches!(self.processor, Some(BodyProcessor::Xml | BodyProcessor::Multipart))
            && self.facts.single(Variable::ReqbodyError).is_some_and(|flag| *flag.value == *b"0");
        if !body.is_empty() {
            if !is_read || self.force_body_variable {
                self.facts.set(Variable::RequestBody, body, span(start, body.len()));
            }
            self.facts.set(Variable::RequestBodyLength, body.len().to_string().as_bytes(), span(start, body.len()));
        }
    }

    /// Sets `REQBODY_ERROR` if arguments of the query string or the body are beyond `SecArgumentsLimit`: rules do not see them.
    fn note_dropped_arguments(&mut self) {
        let has_error = self.facts.single(Variable::ReqbodyError).is_some_and(|flag| *flag.value == *b"1");
        if self.facts.is_cut && !has_error {
            let limit = self.rules.settings.arguments_limit;
            self.set_body_error(Some(&format!("More than {limit} parameters (SecArgumentsLimit).")), false);
        }
    }

    /// Sets `REQBODY_ERROR` and, for errors of a processor, `REQBODY_PROCESSOR_ERROR`.
    fn set_body_error(&mut self, error: Option<&str>, of_processor: bool) {
        let flag: &[u8] = if error.is_some() { b"1" } else { b"0" };
        self.facts.set(Variable::ReqbodyError, flag, None);
        if of_processor {
            self.facts.set(Variable::ReqbodyProcessorError, flag, None);
        }
        if let Some(words) = error {
            self.facts.set(Variable::ReqbodyErrorMsg, words.as_bytes(), None);
            if of_processor {
                self.facts.set(Variable::ReqbodyProcessorErrorMsg, words.as_bytes(), None);
            }
        }
    }

    fn read_json(&mut self, body: &[u8]) -> Option<String> {
        let settings = &self.rules.settings;
        let left = settings.arguments_limit.saturating_sub(self.facts.arguments.len());
        let found = json::arguments(body, settings.json_depth_limit, left);
        for (name, value) in found.arguments {
            self.add_argument(ArgumentSource::Document, &name, &value, 0);
        }
        self.facts.is_cut |= found.is_cut;
        found.error
    }

    fn read_xml(&mut self, body: &[u8]) -> Option<String> {
        let rules = self.rules.clone();
        match xml::values(body, rules.xml_paths.iter().map(|path| &**path)) {
            Ok(values) => {
                for path in values {
                    let first = self.facts.reserve(u32::try_from(path.len()).unwrap_or(u32::MAX));
                    let numbered = path.into_iter().zip(first..).map(|(value, id)| (Arc::from(value), id));
                    self.facts.xml.push(numbered.collect());
                }
                None
            }
            Err(reason) => Some(format!("XML: Failed parsing document: {reason}")),
        }
    }

    /// Reads a multipart body; returns its bytes without files.
    fn read_multipart(&mut self, body: &[u8], error: &mut Option<String>) -> usize {
        let header = self.facts.request_header("content-type").cloned().unwrap_or_else(|| Arc::from(&[][..]));
        let found = Multipart::read(&header, body);
        let flags = found.flags;
        let strict = flags.is_strict_error();
        for (variable, value) in [
            (Variable::MultipartUnmatchedBoundary, flags.unmatched_boundary),
            (Variable::MultipartDataBefore, flags.data_before.into()),
            (Variable::MultipartDataAfter, flags.data_after.into()),
            (Variable::MultipartBoundaryQuoted, flags.boundary_quoted.into()),
            (Variable::MultipartBoundaryWhitespace, flags.boundary_whitespace.into()),
            (Variable::MultipartHeaderFolding, flags.header_folding.into()),
            (Variable::MultipartLfLine, flags.lf_line.into()),
            (Variable::MultipartCrlfLfLines, (flags.crlf_line && flags.lf_line).into()),
            (Variable::MultipartMissingSemicolon, flags.missing_semicolon.into()),
            (Variable::MultipartInvalidQuoting, flags.invalid_quoting.into()),
            (Variable::MultipartInvalidPart, flags.invalid_part.into()),
            (Variable::MultipartInvalidHeaderFolding, flags.invalid_header_folding.into()),
            (Variable::MultipartFileLimitExceeded, 0),
            (Variable::MultipartStrictError, strict.into()),
        ] {
            self.facts.set(variable, value.to_string().as_bytes(), None);
        }
        for (name, line) in &found.header_lines {
            let field = self.facts.field(name, line, None, None);
            self.facts.part_headers.push(field);
        }
        for name in &found.names {
            let field = self.facts.field(name, name, None, None);
            self.facts.multipart_names.push(field);
        }
        for name in &found.filenames {
            let field = self.facts.field(name, name, None, None);
            self.facts.multipart_filenames.push(field);
        }
        let offset = self.facts.offset + 1;
        for part in found.parts {
            match part.kind {
                PartKind::Field => {
                    self.add_argument(ArgumentSource::Body, &part.name, &part.value, offset + part.offset);
                }
                PartKind::File { filename } => {
                    let id = self.facts.reserve(4);
                    let size = part.value.len();
                    self.facts.files_bytes += size;
                    self.facts.files.push(super::facts::FileFacts {
                        field: part.name.into(),
                        name: filename.into(),
                        size,
                        content: part.value.into(),
                        id,
                    });
                }
            }
        }
        *error = found.error;
        found.bytes_without_files
    }
}

/// The part of a URI behind `http://host`.
fn without_authority(uri: &[u8]) -> &[u8] {
    if uri.first() == Some(&b'/') {
        return uri;
    }
    let authority = memchr::memmem::find(uri, b"://").map(|at| at + 3);
    let path = authority.and_then(|at| Some(at + memchr::memchr(b'/', uri.get(at..)?)?));
    path.and_then(|at| uri.get(at..)).unwrap_or(uri)
}
