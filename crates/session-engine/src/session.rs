//! What a session must give, so that variables, templates, rules and logs work on it.

use crate::forwarded::Trusted;
use crate::regex::Captures;
use crate::variable::VarId;
use observe::{ErrorLog, Level};
use std::net::SocketAddr;
use std::sync::Arc;

/// The value of a variable that the session keeps.
#[derive(Clone, Debug, Default)]
pub enum Slot {
    #[default]
    Unset,
    /// Computed, and there is none.
    Missing,
    Value(Box<[u8]>),
}

impl Slot {
    /// Appends the value; `None` when nothing was set, `Some(false)` when it is known that there is none.
    #[inline]
    pub fn read(&self, out: &mut Vec<u8>) -> Option<bool> {
        match self {
            Slot::Unset => None,
            Slot::Missing => Some(false),
            Slot::Value(value) => {
                out.extend_from_slice(value);
                Some(true)
            }
        }
    }
    /// Writes the slot of this number in a table that grows as it must.
    pub fn write(slots: &mut Vec<Slot>, slot: u32, value: Slot) {
        let slot = slot as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, Slot::Unset);
        }
        if let Some(place) = slots.get_mut(slot) {
            *place = value;
        }
    }
}

/// What variables and templates are evaluated for: a request, a TCP or UDP session.
pub trait Session: Sized + 'static {
    /// The log format that is there without a `log_format`: its name and its text.
    const LOG_FORMAT: Option<(&'static str, &'static str)>;
    /// Its client may stand behind proxies that name it in a header (`proxy` of a `geo` block).
    const FORWARDED: bool;

    /// Appends a variable's value; `false` when it has none.
    fn variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool;
    /// Appends the value of a slot; `None` when nothing was set.
    fn read_slot(&self, slot: u32, out: &mut Vec<u8>) -> Option<bool>;
    fn write_slot(&mut self, slot: u32, value: Slot);
    /// Sets a variable that the session keeps (a named group).
    fn set_slot(&mut self, id: VarId, value: Box<[u8]>);
    /// The groups of the last match.
    fn captures(&mut self) -> &mut Captures;
    /// Some template of the plan asks for groups of the last match (`$1`).
    fn groups_used(&self) -> bool;
    /// The client's address as access rules see it; `None`: a UNIX-domain socket.
    fn peer(&self) -> Option<SocketAddr>;
    /// Whom trusted proxies name as the client; `None`: the client itself remains.
    fn forwarded_for(&self, peer: Option<SocketAddr>, proxies: &[Trusted], recursive: bool) -> Option<SocketAddr> {
        let _ = (peer, proxies, recursive);
        None
    }
    /// Whether a log whose name has variables may be opened; says why not in the error log.
    fn may_open_log(&mut self) -> bool {
        true
    }
    /// What is known of its TLS; `None`: it has none.
    fn tls(&self) -> Option<&tls::Facts> {
        None
    }
    fn error_log(&self) -> &Arc<ErrorLog>;
    /// Writes to its error log, with the facts that nginx adds to every line of a session.
    fn log(&self, level: Level, words: std::fmt::Arguments<'_>);
}
