//! The values that a target or a macro means.

use super::Transaction;
use super::facts::{ArgumentSource, Field, Origin};
use super::screening::Admission;
use crate::moment::Moment;
use crate::rule::{Target, TargetSelector};
use crate::template::{Part, Template};
use crate::variable::Variable;
use base64::Engine as _;
use std::borrow::Cow;
use std::sync::Arc;

/// A value of a target.
#[derive(Clone, Debug)]
pub(super) struct FoundValue {
    /// The name of the element, for collections.
    pub element: Option<Arc<[u8]>>,
    pub value: Arc<[u8]>,
    /// The number in the cache of transformations; 0 for values that change.
    pub id: u32,
    pub origin: Origin,
}

impl FoundValue {
    /// A value of no element, without a position in the request.
    pub fn unnamed(value: Arc<[u8]>, id: u32) -> FoundValue {
        FoundValue { element: None, value, id, origin: None }
    }
}

/// A selector with its macros expanded.
pub(super) enum SelectedNames<'s> {
    All,
    Name(&'s [u8]),
    Expanded(Vec<u8>),
    Pattern(&'s crate::operator::Pattern),
}

impl SelectedNames<'_> {
    fn takes(&self, name: &[u8]) -> bool {
        match self {
            SelectedNames::All => true,
            SelectedNames::Name(wanted) => wanted.eq_ignore_ascii_case(name),
            SelectedNames::Expanded(wanted) => wanted.eq_ignore_ascii_case(name),
            SelectedNames::Pattern(pattern) => pattern.is_match(name) == Ok(true),
        }
    }
}

/// Adds fields of a collection: values, or names.
fn add_fields<'f>(
    fields: impl Iterator<Item = &'f Field>,
    wanted: &SelectedNames,
    names: bool,
    admission: Admission,
    out: &mut Vec<FoundValue>,
) {
    let is_admitted = |field: &&Field| admission.takes(if names { field.id + 1 } else { field.id });
    for field in fields.filter(is_admitted).filter(|field| wanted.takes(&field.name)) {
        out.push(match names {
            false => FoundValue {
                element: Some(field.name.clone()),
                value: field.value.clone(),
                id: field.id,
                origin: field.origin,
            },
            true => FoundValue {
                element: Some(field.name.clone()),
                value: field.name.clone(),
                id: field.id + 1,
                origin: field.name_origin,
            },
        });
    }
}

fn plain(element: Option<&[u8]>, value: &[u8]) -> FoundValue {
    FoundValue { element: element.map(Arc::from), value: value.into(), id: 0, origin: None }
}

impl Transaction {
    /// Adds the values of a target that are admitted to `out`; a counting target gives the number of all.
    pub(super) fn collect(&self, target: &Target, admission: Admission, out: &mut Vec<FoundValue>) {
        if target.counts {
            let mut counted = Vec::new();
            self.collect_values(target, Admission::ALL, &mut counted);
            let element = match &target.selector {
                TargetSelector::Name(name) => Some(name.clone()),
                _ => None,
            };
            let value = counted.len().to_string().into_bytes().into();
            out.push(FoundValue { element, value, id: 0, origin: None });
        } else {
            self.collect_values(target, admission, out);
        }
    }

    fn collect_values(&self, target: &Target, admission: Admission, out: &mut Vec<FoundValue>) {
        let wanted = match &target.selector {
            TargetSelector::All => SelectedNames::All,
            TargetSelector::Name(name) => SelectedNames::Name(name),
            TargetSelector::Macro(template) => SelectedNames::Expanded(self.expand(template)),
            TargetSelector::Pattern(pattern) => SelectedNames::Pattern(pattern),
            TargetSelector::Path(path) => {
                let index = self.rules.xml_paths.iter().position(|known| Arc::ptr_eq(known, path));
                let values = index.and_then(|index| self.facts.xml.get(index));
                for (value, id) in values.into_iter().flatten().filter(|(_, id)| admission.takes(*id)) {
                    out.push(FoundValue::unnamed(value.clone(), *id));
                }
                return;
            }
        };
        self.collect_wanted(target.variable, &wanted, admission, out);
    }

    fn arguments(&self, keep: impl Fn(ArgumentSource) -> bool) -> impl Iterator<Item = &Field> {
        self.facts.arguments.iter().filter(move |(source, _)| keep(*source)).map(|(_, field)| field)
    }

    /// Adds the values of a variable whose names are wanted and that are admitted.
    pub(super) fn collect_wanted(
        &self,
        variable: Variable,
        wanted: &SelectedNames,
        admission: Admission,
        out: &mut Vec<FoundValue>,
    ) {
        use Variable as V;
        let facts = &self.facts;
        let from = |source: ArgumentSource| move |found: ArgumentSource| found == source;
        match variable {
            V::Args => add_fields(self.arguments(|_| true), wanted, false, admission, out),
            V::ArgsNames => add_fields(self.arguments(|_| true), wanted, true, admission, out),
            V::ArgsGet => add_fields(self.arguments(from(ArgumentSource::Query)), wanted, false, admission, out),
            V::ArgsGetNames => add_fields(self.arguments(from(ArgumentSource::Query)), wanted, true, admission, out),
            V::ArgsPost => add_fields(self.arguments(from(ArgumentSource::Body)), wanted, false, admission, out),
            V::ArgsPostNames => add_fields(self.arguments(from(ArgumentSource::Body)), wanted, true, admission, out),
            V::RequestHeaders => add_fields(facts.request_headers.iter(), wanted, false, admission, out),
            V::RequestHeadersNames => add_fields(facts.request_headers.iter(), wanted, true, admission, out),
            V::RequestCookies => add_fields(facts.cookies.iter(), wanted, false, admission, out),
            V::RequestCookiesNames => add_fields(facts.cookies.iter(), wanted, true, admission, out),
            V::ResponseHeaders => add_fields(facts.response_headers.iter(), wanted, false, admission, out),
            V::ResponseHeadersNames => add_fields(facts.response_headers.iter(), wanted, true, admission, out),
            V::MultipartPartHeaders => add_fields(facts.part_headers.iter(), wanted, false, admission, out),
            V::MultipartName => add_fields(facts.multipart_names.iter(), wanted, false, admission, out),
            V::MultipartFilename => add_fields(facts.multipart_filenames.iter(), wanted, false, admission, out),
            V::Tx => match wanted {
                SelectedNames::Name(name) => {
                    if let Some((name, value)) = facts.tx.get(name) {
                        out.push(FoundValue { element: Some(name.clone()), value: value.clone(), id: 0, origin: None });
                    }
                }
                _ => {
                    for (name, value) in facts.tx.iter().filter(|(name, _)| wanted.takes(name)) {
                        out.push(FoundValue { element: Some(name.clone()), value: value.clone(), id: 0, origin: None });
                    }
                }
            },
            V::MatchedVars | V::MatchedVarsNames => {
                for matched in &facts.matched {
                    let name = matched.name.text();
                    if wanted.takes(&name) {
                        let value = if variable == V::MatchedVars { matched.value.clone() } else { name.clone() };
                        out.push(FoundValue { element: Some(name), value, id: 0, origin: None });
                    }
                }
            }
            V::Files | V::FilesNames | V::FilesSizes | V::FilesTmpContent => {
                for file in facts.files.iter().filter(|file| wanted.takes(&file.field)) {
                    let size = || file.size.to_string().into_bytes().into();
                    let (value, id) = match variable {
                        V::FilesNames => (file.field.clone(), file.id),
                        V::Files => (file.name.clone(), file.id + 1),
                        V::FilesSizes => (size(), file.id + 2),
                        _ => (file.content.clone(), file.id + 3),
                    };
                    if admission.takes(id) {
                        out.push(FoundValue { element: Some(file.field.clone()), value, id, origin: None });
                    }
                }
            }
            // The engine writes no files.
            V::FilesTmpNames => {}
            V::Geo => {
                let geo = facts.geo.iter().filter(|(name, _)| wanted.takes(name));
                out.extend(geo.map(|(name, value)| plain(Some(name), value)));
            }
            V::Env => {
                let set = self.environment.iter().filter(|(name, _)| wanted.takes(name.as_bytes()));
                out.extend(set.map(|(name, value)| plain(Some(name.as_bytes()), value)));
            }
            V::Rule => {
                for name in ["id", "severity", "msg", "logdata", "rev", "ver", "phase"] {
                    if wanted.takes(name.as_bytes())
                        && let Some(value) = self.rule_fact(name)
                    {
                        out.push(plain(Some(name.as_bytes()), &value));
                    }
                }
            }
            V::Global | V::Ip | V::Resource | V::Session | V::User => self.collect_lasting(variable, wanted, out),
            _ => {
                if let Some(single) = facts.single(variable) {
                    if !admission.takes(single.id) {
                        return;
                    }
                    let (value, id) = (single.value.clone(), single.id);
                    out.push(FoundValue { element: None, value, id, origin: single.origin });
                } else if let Some(value) = self.computed(variable) {
                    out.push(plain(None, &value));
                }
            }
        }
    }

    fn collect_lasting(&self, variable: Variable, wanted: &SelectedNames, out: &mut Vec<FoundValue>) {
        let Some(lasting) = variable.lasting() else { return };
        let Some(key) = self.collection_key(lasting) else { return };
        let now = self.services.clock.now() / 1000;
        match wanted {
            SelectedNames::Name(name) => {
                if let Some(value) = self.services.store.get(lasting, &key, name, now) {
                    out.push(plain(Some(name), &value));
                }
            }
            _ => {
                let all = self.services.store.list(lasting, &key, now);
                out.extend(
                    all.iter().filter(|(name, _)| wanted.takes(name)).map(|(name, value)| plain(Some(name), value)),
                );
            }
        }
    }

    /// The key of a lasting collection, if a rule selected one.
    pub(super) fn collection_key(&self, lasting: crate::store::LastingCollection) -> Option<Arc<[u8]>> {
        self.keys.iter().find(|(known, _)| *known == lasting).map(|(_, key)| key.clone())
    }

    fn rule_fact(&self, name: &str) -> Option<Vec<u8>> {
        let rule = self.current.as_ref()?;
        let labels = &rule.links.first()?.labels;
        match name {
            "id" => Some(rule.id.to_string().into_bytes()),
            "phase" => Some(rule.phase.to_string().into_bytes()),
            "severity" => labels.severity.map(|severity| severity.to_string().into_bytes()),
            // The texts of a rule as written: an expansion could refer to itself.
            "msg" => rule.message_text.as_ref().map(|text| text.as_bytes().to_vec()),
            "logdata" => labels.data.as_ref().map(Template::shown),
            "rev" => Some(labels.revision.as_bytes().to_vec()),
            "ver" => Some(labels.version.as_bytes().to_vec()),
            _ => None,
        }
    }

    /// The value of a variable that is computed when a rule asks for it.
    fn computed(&self, variable: Variable) -> Option<Vec<u8>> {
        use Variable as V;
        let moment = || Moment::new(self.services.clock.now(), self.services.utc_offset);
        let text = match variable {
            V::ArgsCombinedSize => self.facts.arguments_bytes.to_string(),
            V::FilesCombinedSize => self.facts.files_bytes.to_string(),
            V::Duration => (self.services.clock.now().saturating_sub(self.started) / 1000).to_string(),
            V::HighestSeverity => self.highest_severity.to_string(),
            V::MatchedVar => return self.facts.matched.last().map(|matched| matched.value.to_vec()),
            V::MatchedVarName => return self.facts.matched.last().map(|matched| matched.name.text().to_vec()),
            V::ModsecBuild => "030000000".into(),
            V::RemoteUser => return self.remote_user(),
            V::SessionId => {
                return self.collection_key(crate::store::LastingCollection::Session).map(|key| key.to_vec());
            }
            V::UserId => return self.collection_key(crate::store::LastingCollection::User).map(|key| key.to_vec()),
            V::WebAppId => self.rules.settings.web_app_id.clone(),
            V::Time => {
                let moment = moment();
                format!("{:02}:{:02}:{:02}", moment.hour, moment.minute, moment.second)
            }
            V::TimeDay => format!("{:02}", moment().day),
            V::TimeEpoch => (self.services.clock.now() / 1_000_000).to_string(),
            V::TimeHour => format!("{:02}", moment().hour),
            V::TimeMin => format!("{:02}", moment().minute),
            V::TimeMon => format!("{:02}", moment().month),
            V::TimeSec => format!("{:02}", moment().second),
            V::TimeWday => moment().weekday.to_string(),
            V::TimeYear => moment().year.to_string(),
            _ => return None,
        };
        Some(text.into_bytes())
    }

    /// The user of `Authorization: Basic`.
    fn remote_user(&self) -> Option<Vec<u8>> {
        let header = self.facts.request_header("authorization")?;
        let encoded = header.strip_prefix(b"Basic ")?;
        let decoded = base64::engine::general_purpose::STANDARD.decode(encoded.trim_ascii()).ok()?;
        let end = memchr::memchr(b':', &decoded)?;
        decoded.get(..end).map(<[u8]>::to_vec)
    }

    /// Expands the macros of a text; one without macros is not copied.
    pub(super) fn expanded<'t>(&self, template: &'t Template) -> Cow<'t, [u8]> {
        match template.as_literal() {
            Some(literal) => Cow::Borrowed(literal),
            None => Cow::Owned(self.expand(template)),
        }
    }

    /// Expands the macros of a text; an unset variable is empty.
    pub(super) fn expand(&self, template: &Template) -> Vec<u8> {
        let mut text = Vec::new();
        for part in &template.parts {
            match part {
                Part::Literal(literal) => text.extend_from_slice(literal),
                Part::Variable(variable, element) => {
                    let wanted = match element {
                        Some(name) => SelectedNames::Name(name),
                        None => SelectedNames::All,
                    };
                    let mut found = Vec::new();
                    self.collect_wanted(*variable, &wanted, Admission::ALL, &mut found);
                    if let Some(first) = found.first() {
                        text.extend_from_slice(&first.value);
                    }
                }
            }
            if text.len() > EXPANDED_BYTES_MAX {
                text.truncate(EXPANDED_BYTES_MAX);
                break;
            }
        }
        text
    }
}

/// Bytes of a text with its macros expanded.
const EXPANDED_BYTES_MAX: usize = 1 << 20;
