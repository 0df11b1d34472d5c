//! Phases 3 to 5: the response and the log.

use super::{Transaction, Verdict};
use crate::audit::{self, AuditFacts};
use crate::moment::Moment;
use crate::rule::AuditState;
use crate::set::LimitAction;
use crate::variable::Variable;

impl Transaction {
    /// Adds a header of the response.
    pub fn response_header(&mut self, name: &[u8], value: &[u8]) {
        let field = self.facts.field(name, value, None, None);
        if name.eq_ignore_ascii_case(b"content-type") {
            let kind = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
            self.facts.set(Variable::ResponseContentType, kind, None);
        }
        self.facts.response_headers.push(field);
    }

    /// Evaluates phase 3. `protocol` is the version, as "HTTP/1.1".
    pub fn response_headers(&mut self, status: u16, protocol: &str) -> Verdict {
        self.status = status;
        self.facts.set(Variable::ResponseStatus, status.to_string().as_bytes(), None);
        self.facts.set(Variable::ResponseProtocol, protocol.as_bytes(), None);
        self.facts.set(Variable::StatusLine, format!("{protocol} {status}").as_bytes(), None);
        self.run_phase(3)
    }

    pub(super) fn inspects_response(&self) -> bool {
        let kind = self.facts.single(Variable::ResponseContentType).map(|single| single.value.to_ascii_lowercase());
        let kind = kind.unwrap_or_default();
        self.rules.settings.response_mime_types.iter().any(|known| known.as_bytes() == kind)
    }

    /// Evaluates phase 4 with the whole body or its first `SecResponseBodyLimit` bytes; `body` is empty if
    /// [`Transaction::wants_response_body`] does not hold. Over the limit, the verdict is 500 if the setting says so
    /// and the engine is on.
    pub fn response_body(&mut self, body: &[u8]) -> Verdict {
        if self.is_off() {
            return Verdict::Pass;
        }
        if self.wants_response_body() {
            let limit = usize::try_from(self.rules.settings.response_body_limit).unwrap_or(usize::MAX);
            let is_over = body.len() > limit;
            self.facts.set(Variable::OutboundDataError, if is_over { b"1" } else { b"0" }, None);
            if is_over
                && self.rules.settings.response_body_limit_action == LimitAction::Reject
                && self.engine == crate::rule::EngineState::On
                && self.verdict == Verdict::Pass
            {
                self.verdict = Verdict::Deny { status: 500, rule: 0 };
                return self.verdict.clone();
            }
            let body = body.get(..limit).unwrap_or(body);
            self.response_body = body.into();
            self.facts.set(Variable::ResponseBody, body, None);
            self.facts.set(Variable::ResponseContentLength, body.len().to_string().as_bytes(), None);
        }
        self.run_phase(4)
    }

    /// Evaluates phase 5, whose rules cannot disrupt.
    pub fn log(&mut self) {
        self.run_phase(5);
    }

    /// Returns whether the transaction belongs into the audit log: the engine's state, a match, or the status.
    pub fn is_audited(&self) -> bool {
        let is_relevant = || {
            let statuses = self.rules.settings.audit_statuses.as_ref();
            let by_status = statuses
                .is_some_and(|pattern| pattern.is_match(self.final_status().to_string().as_bytes()) == Ok(true));
            by_status || self.matches.iter().any(|found| found.audited)
        };
        match self.audit {
            AuditState::On => true,
            AuditState::Off => false,
            AuditState::RelevantOnly => is_relevant(),
        }
    }

    /// The entry of the audit log in the format of `SecAuditLogFormat`, with a newline at its end. `boundary` divides
    /// the native parts: eight characters that the caller chooses at random. Call it behind [`Transaction::log`], if
    /// [`Transaction::is_audited`] holds.
    pub fn audit_text(&self, boundary: &str) -> String {
        audit::entry(&self.audit_facts(), self.rules.settings.audit_format, boundary)
    }

    fn audit_facts(&self) -> AuditFacts<'_> {
        let single = |variable| self.facts.single(variable).map(|single| &*single.value).unwrap_or_default();
        AuditFacts {
            moment: Moment::new(self.started, self.services.utc_offset),
            unique_id: &self.connection.unique_id,
            client: (&self.connection.client_address, self.connection.client_port),
            server: (&self.connection.server_address, self.connection.server_port),
            method: single(Variable::RequestMethod),
            uri: single(Variable::RequestUriRaw),
            version: single(Variable::RequestProtocol).strip_prefix(b"HTTP/").unwrap_or_default(),
            request_headers: field_pairs(&self.facts.request_headers),
            request_body: &self.request_body,
            status: self.final_status(),
            response_headers: field_pairs(&self.facts.response_headers),
            response_body: &self.response_body,
            matches: &self.matches,
            parts: &self.audit_parts,
            engine: self.engine,
            components: &self.rules.settings.component_signatures,
            connector: &self.services.connector,
        }
    }

    /// The status of the answer: that of the verdict, or of the response.
    pub fn final_status(&self) -> u16 {
        match &self.verdict {
            Verdict::Deny { status, .. } | Verdict::Redirect { status, .. } => *status,
            Verdict::Pass | Verdict::Drop { .. } => self.status,
        }
    }
}

fn field_pairs(fields: &[super::facts::Field]) -> Vec<(&[u8], &[u8])> {
    fields.iter().map(|field| (&*field.name, &*field.value)).collect()
}
