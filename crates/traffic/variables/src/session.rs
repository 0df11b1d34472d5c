//! Interface of sessions for variables, templates, rules and logs.

use crate::forwarded::TrustedNetwork;
use observe::{ErrorLog, Severity};
use std::net::SocketAddr;
use std::sync::Arc;

/// Number of a variable in the plan of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct VarId(pub u32);

/// The last match of a regular expression.
#[derive(Clone, Debug, Default)]
pub struct Captures {
    pub subject: Vec<u8>,
    /// Start and end of each group; group 0 is the whole match. `u32::MAX` marks an unused group.
    pub groups: Vec<(u32, u32)>,
}

impl Captures {
    pub fn get(&self, group: usize) -> Option<&[u8]> {
        let (start, end) = *self.groups.get(group)?;
        self.subject.get(start as usize..end as usize)
    }
    pub fn clear(&mut self) {
        self.groups.clear();
        self.subject.clear();
    }
}

#[derive(Clone, Debug, Default)]
pub enum SessionSlot {
    #[default]
    Unset,
    /// Computed, without a value.
    Missing,
    /// A value without an allocation: its length and octets.
    Short(u8, [u8; SHORT_MAX]),
    Value(Box<[u8]>),
}

/// Longest value that fits beside the length.
const SHORT_MAX: usize = 22;

impl SessionSlot {
    #[inline]
    pub fn of(value: &[u8]) -> SessionSlot {
        let mut octets = [0; SHORT_MAX];
        match octets.get_mut(..value.len()) {
            Some(place) => {
                place.copy_from_slice(value);
                SessionSlot::Short(value.len() as u8, octets)
            }
            None => SessionSlot::Value(value.into()),
        }
    }
    #[inline]
    pub fn read(&self, out: &mut Vec<u8>) -> Option<bool> {
        match self {
            SessionSlot::Unset => None,
            SessionSlot::Missing => Some(false),
            SessionSlot::Short(length, octets) => {
                out.extend_from_slice(octets.get(..usize::from(*length)).unwrap_or_default());
                Some(true)
            }
            SessionSlot::Value(value) => {
                out.extend_from_slice(value);
                Some(true)
            }
        }
    }
    pub fn write(slots: &mut Vec<SessionSlot>, slot: u32, value: SessionSlot) {
        let slot = slot as usize;
        if slots.len() <= slot {
            slots.resize(slot + 1, SessionSlot::Unset);
        }
        if let Some(place) = slots.get_mut(slot) {
            *place = value;
        }
    }
}

/// A block of the configuration with variables of its own (`http`, `stream`, `mail`). Templates, patterns and variables are compiled for an
/// area, not for its type of session: a plan, which consists of them, does not depend on the session that holds it.
pub trait AreaTypes: Sized + 'static {
    type Session: Session;
    /// Built-in log format: name and text.
    const LOG_FORMAT: Option<(&'static str, &'static str)>;
    /// Sessions may come from proxies that name the client in a header (`proxy` of a `geo` block).
    const FORWARDED: bool;
}

/// The type of an area's sessions.
pub type SessionOf<A> = <A as AreaTypes>::Session;

/// The subject of variables and templates: a request, a TCP or UDP session.
pub trait Session: Sized + 'static {
    /// `false` if there is none.
    fn variable(&mut self, id: VarId, out: &mut Vec<u8>) -> bool;
    /// `None` if nothing is stored.
    fn read_slot(&self, slot: u32, out: &mut Vec<u8>) -> Option<bool>;
    fn write_slot(&mut self, slot: u32, value: SessionSlot);
    fn set_slot(&mut self, id: VarId, value: Box<[u8]>);
    /// Reports the first use of a variable of `set` that has no value.
    fn uninitialized(&self, name: &str) {
        let _ = name;
    }
    fn captures(&mut self) -> &mut Captures;
    /// Tells whether a template of the plan uses captures of the last match (`$1`).
    fn groups_used(&self) -> bool;
    /// Returns the client's address for access rules; `None`: a UNIX-domain socket.
    fn peer(&self) -> Option<SocketAddr>;
    /// Returns the client named by trusted proxies; `None`: the client itself.
    fn forwarded_for(
        &self,
        peer: Option<SocketAddr>,
        proxies: &[TrustedNetwork],
        recursive: bool,
    ) -> Option<SocketAddr> {
        let _ = (peer, proxies, recursive);
        None
    }
    /// Checks whether a log with variables in its name may be opened; logs the reason if not.
    fn may_open_log(&mut self) -> bool {
        true
    }
    fn tls(&self) -> Option<&tls::Facts> {
        None
    }
    fn error_log(&self) -> &Arc<ErrorLog>;
    /// Writes to the error log, with the session's details.
    fn log(&self, level: Severity, words: std::fmt::Arguments<'_>);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_all_lengths_are_read_as_written() {
        assert_eq!(size_of::<SessionSlot>(), 24);
        for length in [0, 1, SHORT_MAX, SHORT_MAX + 1, 1000] {
            let value = vec![b'x'; length];
            let slot = SessionSlot::of(&value);
            assert_eq!(matches!(slot, SessionSlot::Short(..)), length <= SHORT_MAX, "{length}");
            let mut out = b"before ".to_vec();
            assert_eq!(slot.read(&mut out), Some(true));
            assert_eq!(out, [b"before ", &value[..]].concat());
        }
        assert_eq!(
            (SessionSlot::Unset.read(&mut Vec::new()), SessionSlot::Missing.read(&mut Vec::new())),
            (None, Some(false))
        );
    }
}
