//! Selects the content handler if several directives set one: the last directive applies (nginx: each of them sets the
//! location's `handler`).

use crate::handler::Handler;
use crate::plan::Location;
use conf_schema::{At, CheckedBlock, FeatureTable};
use std::sync::Arc;

/// Directives that set [`Location::content`]; those that pass requests on first, in nginx's module order.
const NAMES: &[&str] = &[
    "proxy_pass",
    "fastcgi_pass",
    "uwsgi_pass",
    "scgi_pass",
    "grpc_pass",
    "memcached_pass",
    "tunnel_pass",
    "stub_status",
    "metrics",
    "api",
    "dashboard",
    "empty_gif",
    "flv",
    "mp4",
    "redirect_to",
];

/// A content handler that passes requests to servers, or `None`.
pub type PassWork = Option<Arc<dyn Handler>>;

pub(crate) fn passes_on(name: &str) -> bool {
    NAMES.iter().take(PASSING).any(|own| *own == name)
}

/// Number of [`NAMES`] that pass requests on.
const PASSING: usize = 7;

/// State of the choice of a location's content handler, while its features are planned: [`AnswerWork::begin`] before
/// each feature, [`AnswerWork::end`] after it.
#[derive(Default)]
pub struct AnswerWork {
    place: Option<usize>,
    before: Option<Arc<dyn Handler>>,
    /// Handler that passes requests on; of several, the first in the order of nginx's modules.
    pub passing: PassWork,
    rank: Option<usize>,
    /// Name and place of the directive whose content handler applies, for messages and `tidegate explain`.
    pub by: Option<(&'static str, At)>,
}

impl AnswerWork {
    /// Remembers the content handler before a feature is planned.
    #[inline]
    pub fn begin(&mut self, location: &Location) {
        if location.content.is_some() || self.before.is_some() {
            self.before.clone_from(&location.content);
        }
    }
    /// Concludes a feature: reverts its content handler if another directive comes later.
    #[inline]
    pub fn end(&mut self, location: &mut Location, block: &CheckedBlock<'_>, table: &FeatureTable) {
        if !same(self.before.as_ref(), location.content.as_ref()) {
            self.changed(location, block, table);
        }
    }
    fn changed(&mut self, location: &mut Location, block: &CheckedBlock<'_>, table: &FeatureTable) {
        let Some((place, by)) = last_of(block, table) else {
            // A wrapper around the existing handler (`slice`).
            if same(self.before.as_ref(), self.passing.as_ref()) {
                self.passing.clone_from(&location.content);
            }
            return;
        };
        let rank = NAMES.iter().take(PASSING).position(|name| table.rows.iter().any(|row| row.name == *name));
        if rank.is_some() && self.rank.is_none_or(|other| rank < Some(other)) {
            self.passing.clone_from(&location.content);
            self.rank = rank;
        }
        if self.before.is_some() && self.place.is_some_and(|other| other > place) {
            location.content = self.before.take();
        } else {
            self.place = Some(place);
            self.by = Some(by);
        }
    }
}

fn same(one: Option<&Arc<dyn Handler>>, other: Option<&Arc<dyn Handler>>) -> bool {
    match (one, other) {
        (Some(one), Some(other)) => Arc::ptr_eq(one, other),
        (one, other) => one.is_none() && other.is_none(),
    }
}

fn last_of(block: &CheckedBlock<'_>, table: &FeatureTable) -> Option<(usize, (&'static str, At))> {
    let has = |name: &str| table.rows.iter().any(|row| row.name == name);
    let names: Vec<&str> = NAMES.iter().copied().filter(|name| has(name)).collect();
    if names.is_empty() {
        return None;
    }
    let own = conf_syntax::list_directives(block.directive?.block.as_deref()?);
    let place = own.iter().rposition(|d| names.iter().any(|name| d.name.bytes == name.as_bytes()))?;
    let d = own.get(place)?;
    let name = names.into_iter().find(|name| d.name.bytes == name.as_bytes())?;
    Some((place, (name, At { span: d.span, line: d.line })))
}
