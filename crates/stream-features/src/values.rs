//! Value types shared by several features.

use crate::StreamArea;
use area::listen::{Listen, ListenKind};
use conf_schema::{Cx, Directive, Problem, ValueKind};

pub type ServerNames = variables::names::ServerNames<StreamArea>;
pub type ServerName = variables::names::ServerName<StreamArea>;

#[derive(Clone, Debug)]
pub struct Listens(pub Listen);

impl ValueKind for Listens {
    const SYNTAX: &'static str = "address:port | port | unix:path [udp] [ssl] [parameter ...]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Listen::read(cx, d, ListenKind::Stream).map(Listens)
    }
}

/// Number of directives that set a content handler, of which the last wins. Kept in `Cx`.
#[derive(Default)]
struct HandlerCount(usize);

/// Returns the position of a directive among those that set a content handler.
pub fn place_of_answer(cx: &mut Cx) -> usize {
    let answers = cx.get::<HandlerCount>();
    answers.0 += 1;
    answers.0
}
