//! Of several directives that make their module answer in a location, the one that is written last counts (nginx: each of them
//! sets the location's `handler`).

use crate::plan::{Handler, Location};
use conf_schema::{At, Block, Table};
use std::sync::Arc;

/// The directives; a feature that has one of them and answers sets [`Location::content`]. Those that pass requests on come first,
/// in the order of nginx's modules.
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
    "empty_gif",
    "flv",
    "mp4",
];

/// What passes requests on in a location, even where something else answers: its `limit_except` takes it over.
pub type Passing = Option<Arc<dyn Handler>>;

/// Whether a directive passes requests on.
pub fn passes_on(name: &str) -> bool {
    NAMES.iter().take(PASSING).any(|own| *own == name)
}

/// So many of [`NAMES`] pass requests on.
const PASSING: usize = 7;

/// What is known of a location while its features are asked one after the other.
#[derive(Default)]
pub struct Answering {
    /// Where the directive stands whose feature answers so far, among the block's own.
    place: Option<usize>,
    before: Option<Arc<dyn Handler>>,
    /// Of several that pass requests on, the first one of nginx's modules.
    pub passing: Passing,
    rank: Option<usize>,
    /// The directive that answers so far.
    pub by: Option<(&'static str, At)>,
}

impl Answering {
    /// Before a feature is asked.
    pub fn begin(&mut self, location: &Location) {
        self.before.clone_from(&location.content);
    }
    /// When it has been asked: takes back what it made of the location if another is written later.
    pub fn end(&mut self, location: &mut Location, block: &Block<'_>, table: &Table) {
        if same(self.before.as_ref(), location.content.as_ref()) {
            return;
        }
        let Some((place, by)) = last_of(block, table) else {
            // Something put around what is there (`slice`).
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

/// The place of the last directive that makes this table's feature answer.
fn last_of(block: &Block<'_>, table: &Table) -> Option<(usize, (&'static str, At))> {
    let has = |name: &str| table.rows.iter().any(|row| row.name == name);
    let names: Vec<&str> = NAMES.iter().copied().filter(|name| has(name)).collect();
    if names.is_empty() {
        return None;
    }
    let own = conf_syntax::directives(block.directive?.block.as_deref()?);
    let place = own.iter().rposition(|d| names.iter().any(|name| d.name.bytes == name.as_bytes()))?;
    let d = own.get(place)?;
    let name = names.into_iter().find(|name| d.name.bytes == name.as_bytes())?;
    Some((place, (name, At { span: d.span, line: d.line })))
}
