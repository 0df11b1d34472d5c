//! Value types of the core module.

use crate::protocol::MailProtocol;
use area::listen::{Listen, ListenKind};
use conf_schema::value::word_at;
use conf_schema::{Cx, Directive, Problem, ValueKind};

#[derive(Clone, Debug)]
pub struct Listens(pub Listen);

impl ValueKind for Listens {
    const SYNTAX: &'static str = "address:port | port | unix:path [ssl] [proxy_protocol] [parameter ...]";
    fn parse(cx: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        Listen::read(cx, d, ListenKind::Mail).map(Listens)
    }
}

#[derive(Clone, Copy, Debug)]
pub struct ProtocolOf(pub MailProtocol);

impl ValueKind for ProtocolOf {
    const SYNTAX: &'static str = "imap | pop3 | smtp";
    const REPEATS: bool = true;
    const INHERITS: bool = false;
    fn append(&mut self, later: Self) {
        *self = later;
    }
    fn parse(_: &mut Cx, d: &Directive) -> Result<Self, Problem> {
        let word = word_at(d, 0)?.text();
        match MailProtocol::WORDS.iter().find(|(name, _)| *name == word) {
            Some((_, kind)) => Ok(ProtocolOf(*kind)),
            None => Err(Problem::says(format!("unknown protocol \"{word}\"")).at(0).hint("one of: imap, pop3, smtp")),
        }
    }
}
