//! Requests of the worker to the master about configurations, and their outcomes.

use super::candidate::Texts;
use crate::codec::{Reader, Writer};
use crate::conf;
use http_api::{Attachment, ConfigRefusal, ConfigReply, ConfigRequest, Terms};
use serde_json::Value;
use std::collections::BTreeMap;
use tokio::sync::oneshot;

/// In bytes.
pub const REQUEST_BYTES_MAX: u64 = 25 << 20;

/// A request of the API, and the place of its answer.
pub type SubmittedWork = (ConfigRequest, oneshot::Sender<ConfigReply>);

/// The outcome has the same ticket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeRequest {
    pub ticket: u64,
    pub what: ConfigRequest,
}

const MAIN: usize = 1;
const FILES: usize = 2;
const ROLLBACK: usize = 3;
const LIST: usize = 4;
const SHOW: usize = 5;
const LEVEL: usize = 6;

fn write_terms(writer: &mut Writer, terms: &Terms) {
    writer.number(usize::from(terms.dry_run));
    writer.number(usize::from(terms.if_match.is_some()));
    let all = terms.if_match.as_deref().unwrap_or_default();
    writer.number(all.len());
    all.iter().for_each(|one| writer.number(*one as usize));
}

fn read_terms(reader: &mut Reader<'_>) -> Option<Terms> {
    let (dry_run, has) = (reader.number()? != 0, reader.number()? != 0);
    let count = reader.number()?;
    let all: Option<Vec<u64>> = (0..count).map(|_| reader.number().map(|one| one as u64)).collect();
    Some(Terms { dry_run, if_match: all.filter(|_| has) })
}

fn write_attachments(writer: &mut Writer, all: Option<&BTreeMap<String, Attachment>>) {
    writer.number(usize::from(all.is_some()));
    writer.number(all.map_or(0, BTreeMap::len));
    for (name, attachment) in all.into_iter().flatten() {
        writer.string(name.as_bytes());
        let (is_stored, bytes) = match attachment {
            Attachment::Sent(contents) => (false, contents.as_slice()),
            Attachment::Stored(digest) => (true, digest.as_bytes()),
        };
        writer.number(usize::from(is_stored));
        writer.string(bytes);
    }
}

fn read_attachments(reader: &mut Reader<'_>) -> Option<Option<BTreeMap<String, Attachment>>> {
    let (has, count) = (reader.number()? != 0, reader.number()?);
    let mut all = BTreeMap::new();
    for _ in 0..count {
        let name = String::from_utf8(reader.string()?.to_vec()).ok()?;
        let is_stored = reader.number()? != 0;
        let bytes = reader.string()?.to_vec();
        let attachment = match is_stored {
            true => Attachment::Stored(String::from_utf8(bytes).ok()?),
            false => Attachment::Sent(bytes),
        };
        all.insert(name, attachment);
    }
    Some(has.then_some(all))
}

impl ChangeRequest {
    pub fn write(&self) -> Writer {
        let mut writer = Writer::default();
        writer.number(self.ticket as usize);
        match &self.what {
            ConfigRequest::Main(text, terms) => {
                writer.number(MAIN);
                write_terms(&mut writer, terms);
                writer.string(text);
            }
            ConfigRequest::Files(texts, attachments, terms) => {
                writer.number(FILES);
                write_terms(&mut writer, terms);
                write_attachments(&mut writer, attachments.as_ref());
                writer.number(texts.len());
                for (name, text) in texts {
                    writer.string(name.as_bytes());
                    writer.string(text);
                }
            }
            ConfigRequest::Rollback(generation, terms) => {
                writer.number(ROLLBACK);
                write_terms(&mut writer, terms);
                writer.number(*generation as usize);
            }
            ConfigRequest::List => writer.number(LIST),
            ConfigRequest::Show(generation) => {
                writer.number(SHOW);
                writer.number(*generation as usize);
            }
            ConfigRequest::Level(level) => {
                writer.number(LEVEL);
                writer.number(level.map_or(0, usize::from));
            }
        }
        writer
    }

    /// Returns `None` for bytes that are not a request.
    pub fn read(bytes: &[u8]) -> Option<ChangeRequest> {
        let mut reader = Reader::new(bytes);
        let ticket = reader.number()? as u64;
        let what = match reader.number()? {
            MAIN => {
                let terms = read_terms(&mut reader)?;
                ConfigRequest::Main(reader.string()?.to_vec(), terms)
            }
            FILES => {
                let terms = read_terms(&mut reader)?;
                let attachments = read_attachments(&mut reader)?;
                let mut texts = Texts::new();
                for _ in 0..reader.number()? {
                    let name = String::from_utf8(reader.string()?.to_vec()).ok()?;
                    texts.insert(name, reader.string()?.to_vec());
                }
                ConfigRequest::Files(texts, attachments, terms)
            }
            ROLLBACK => {
                let terms = read_terms(&mut reader)?;
                ConfigRequest::Rollback(reader.number()? as u64, terms)
            }
            LIST => ConfigRequest::List,
            SHOW => ConfigRequest::Show(reader.number()? as u64),
            LEVEL => ConfigRequest::Level(match reader.number()? {
                0 => None,
                level => Some(u8::try_from(level).ok()?),
            }),
            _ => return None,
        };
        Some(ChangeRequest { ticket, what })
    }
}

#[derive(Clone, Debug)]
pub struct ChangeOutcome {
    pub ticket: u64,
    /// JSON, or a refusal.
    pub result: Result<Value, ConfigRefusal>,
    /// The configuration that a rehearsal read, for a comparison.
    pub texts: Option<conf::ConfTexts>,
}

impl ChangeOutcome {
    pub fn write(&self) -> Writer {
        let mut writer = Writer::default();
        writer.number(self.ticket as usize);
        match &self.result {
            Ok(value) => {
                writer.number(0);
                writer.string(value.to_string().as_bytes());
            }
            Err(refusal) => {
                writer.number(usize::from(refusal.status));
                writer.string(refusal.code.as_bytes());
                writer.string(refusal.text.as_bytes());
                writer.string(refusal.complaints.as_ref().map(Value::to_string).unwrap_or_default().as_bytes());
            }
        }
        writer.number(usize::from(self.texts.is_some()));
        if let Some(texts) = &self.texts {
            writer.texts(texts);
        }
        writer
    }

    /// Returns `None` for bytes that are not an outcome.
    pub fn read(bytes: &[u8]) -> Option<ChangeOutcome> {
        let mut reader = Reader::new(bytes);
        let ticket = reader.number()? as u64;
        let result = match reader.number()? {
            0 => Ok(serde_json::from_slice(reader.string()?).ok()?),
            status => {
                let mut text = || Some(String::from_utf8_lossy(reader.string()?).into_owned());
                let (code, words, complaints) = (text()?, text()?, text()?);
                let code = ConfigRefusal::code(&code);
                let complaints = serde_json::from_str(&complaints).ok();
                Err(ConfigRefusal { status: u16::try_from(status).ok()?, code, text: words, complaints })
            }
        };
        let texts = if reader.number()? != 0 { Some(reader.texts()?) } else { None };
        Some(ChangeOutcome { ticket, result, texts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn requests_arrive_as_they_were_sent() {
        let terms = Terms { dry_run: true, if_match: Some(vec![3, 4]) };
        let texts: Texts = [("a".to_string(), b"x;".to_vec()), ("b/c".to_string(), Vec::new())].into();
        let attachments =
            [("c".to_string(), Attachment::Sent(vec![0, 255])), ("k".to_string(), Attachment::Stored("77".into()))];
        for what in [
            ConfigRequest::Main(b"events {}".to_vec(), Terms::default()),
            ConfigRequest::Files(texts.clone(), None, terms.clone()),
            ConfigRequest::Files(texts, Some(attachments.into()), terms.clone()),
            ConfigRequest::Rollback(9, terms),
            ConfigRequest::List,
            ConfigRequest::Show(7),
            ConfigRequest::Level(Some(8)),
            ConfigRequest::Level(None),
        ] {
            let request = ChangeRequest { ticket: 5, what };
            let bytes = request.write();
            assert_eq!(ChangeRequest::read(bytes.bytes()), Some(request));
            for end in 0..bytes.bytes().len() {
                assert_eq!(ChangeRequest::read(&bytes.bytes()[..end]), None, "cut");
            }
        }
    }

    #[test]
    fn outcomes_arrive_as_they_were_sent() {
        let complaints = Some(json!([{"line": 1}]));
        let refusal = ConfigRefusal { complaints, ..ConfigRefusal::new(400, "ConfigInvalid", "no") };
        for result in [Ok(json!({"generation": 3})), Err(refusal)] {
            let outcome = ChangeOutcome { ticket: 1, result: result.clone(), texts: Some(conf::ConfTexts::default()) };
            let read = ChangeOutcome::read(outcome.write().bytes());
            // (A configuration that was read knows its machine.)
            assert!(read.is_none());
            let outcome = ChangeOutcome { texts: None, ..outcome };
            assert_eq!(ChangeOutcome::read(outcome.write().bytes()).map(|outcome| outcome.result), Some(result));
        }
    }
}
